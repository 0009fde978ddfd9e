// Copies a command on a page at a click.
"use strict";

function floodmarkCopying() {
  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("code").textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(button.parentElement.querySelector("code")); }
  }));
}

// The page of a run: unpacks its data, lets a reader step through a story, and draws the run over time.
"use strict";

const floodmarkPage = { ready: null, data: null, cursor: null, listeners: [] };

(() => {
  const byId = (id) => document.getElementById(id);
  const viewer = floodmarkViewer;

  /** The text of a compressed block of the page. */
  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(byId(id).textContent.trim()), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  floodmarkPage.unpacked = unpacked;

  /** Moves the instant that every view shows, in ms; views listen. */
  floodmarkPage.moveTo = (time) => {
    floodmarkPage.cursor = time;
    floodmarkPage.listeners.forEach((listen) => listen(time));
  };

  const shown = { story: 0, at: 0, from: null, count: viewer.SHOWN, drawn: null };

  function drawStory() {
    const story = floodmarkPage.data.stories[shown.story];
    const state = viewer.stateAt(story, shown.at);
    const few = viewer.fitting(viewer.drawing(story, state, shown.from), byId("logs").clientWidth);
    shown.count = few || viewer.SHOWN;
    const drawn = viewer.drawing(story, state, shown.from, shown.count);
    shown.drawn = drawn;
    const event = story.events[shown.at];
    const step = story.steps.findIndex((one) => one.at === shown.at);
    const label = `the logs of partition ${story.partition}` + (event ? ` after: ${event.x}` : " in the end");
    byId("logs").innerHTML = viewer.svgOf(drawn, label, few !== null);
    keepInSight(byId("logs"));
    const wide = Number(byId("logs").firstElementChild.getAttribute("width")) > 660;
    document.querySelector(".viewer").classList.toggle("below", wide);
    const said = step >= 0 ? story.steps[step].text : event ? `${event.x}.` : story.said;
    byId("said").textContent = said;
    byId("cure").textContent = step >= 0 ? story.steps[step].cure : "";
    byId("line").textContent = event && event.line
      ? `event ${(shown.at + 1).toLocaleString("en")} of ${story.events.length.toLocaleString("en")}: ${event.n}, ` +
        `seq ${event.seq}, ${event.e} (trace.jsonl:${event.line})${drawn.isr ? `; ISR ${drawn.isr.join(" ")}` : ""}`
      : "";
    document.querySelectorAll("#steps button").forEach((button, number) => {
      if (number === step) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    byId("slider").value = String(shown.at);
    byId("slider").setAttribute("aria-valuetext", said);
    byId("window").hidden = drawn.end - drawn.start <= shown.count;
    byId("legend-gone").parentElement.hidden = !story.acked.length;
    byId("legend-gone").textContent = story.traced ? "acked, no longer there" : "acked, not there";
    byId("legend-epochs").innerHTML = legendOf(drawn);
    if (event) floodmarkPage.moveTo(event.t);
  }

  /** Scrolls logs that are wider than their place to the finding's record, else to their end. */
  function keepInSight(box) {
    const marks = [...box.querySelectorAll(".focus, .lostedge")], all = [...box.querySelectorAll(".box")];
    const mark = marks[0] || all[all.length - 1];
    if (!mark || box.scrollWidth <= box.clientWidth) return;
    const beyond = mark.getBoundingClientRect().right - box.getBoundingClientRect().right + 24;
    if (beyond > 0) box.scrollLeft += beyond;
  }

  function legendOf(drawn) {
    const epochs = [...new Set(drawn.rows.flatMap((row) => row.boxes.map((box) => box.epoch)))]
      .filter((epoch) => epoch !== null && epoch >= 0).sort((a, b) => a - b);
    return epochs.map((epoch) => `<li><i class="e${epoch % 5}${epoch >= 5 ? " again" : ""}"></i>epoch ${epoch}</li>`).join("");
  }

  function openStory(number) {
    const story = floodmarkPage.data.stories[number];
    shown.story = number;
    shown.from = null;
    shown.at = story.traced ? story.steps[story.opens].at : 0;
    byId("steps").innerHTML = story.steps.map((step, at) =>
      `<li><button type="button" data-step="${at}"><b>${at + 1}</b> ${viewer.escaped(step.name)}` +
      `<small>${time(step.t)}</small></button></li>`).join("");
    byId("slider").max = String(Math.max(0, story.events.length - 1));
    byId("scrub").hidden = !story.traced;
    document.querySelectorAll("[data-story]").forEach((button) =>
      button.setAttribute("aria-pressed", String(Number(button.dataset.story) === number)));
    drawStory();
    floodmarkCharts.choose(story.partition);
  }

  const time = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(3)} s` : `${ms.toFixed(1)} ms`);

  function go(at) {
    const story = floodmarkPage.data.stories[shown.story];
    shown.at = Math.max(0, Math.min(story.events.length - 1, at));
    drawStory();
  }

  function stepBy(way) {
    const places = floodmarkPage.data.stories[shown.story].steps.map((one) => one.at);
    const next = way > 0 ? places.find((at) => at > shown.at) : [...places].reverse().find((at) => at < shown.at);
    if (next !== undefined) go(next);
  }

  function listen() {
    byId("steps").addEventListener("click", (event) => {
      const button = event.target.closest("[data-step]");
      if (button) go(floodmarkPage.data.stories[shown.story].steps[Number(button.dataset.step)].at);
    });
    byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
    byId("earlier").addEventListener("click", () => go(shown.at - 1));
    byId("later").addEventListener("click", () => go(shown.at + 1));
    document.querySelectorAll("[data-shift]").forEach((button) => button.addEventListener("click", () => {
      const { start, end, from } = shown.drawn;
      const last = Math.max(start, end - shown.count + 2);
      shown.from = Math.max(start, Math.min(last, from + Number(button.dataset.shift)));
      drawStory();
    }));
    document.querySelectorAll("[data-story]").forEach((button) =>
      button.addEventListener("click", () => {
        openStory(Number(button.dataset.story));
        byId("how").scrollIntoView({ block: "nearest" });
      }));
    let width = byId("logs").clientWidth;
    addEventListener("resize", () => {
      if (byId("logs").clientWidth !== width) { width = byId("logs").clientWidth; drawStory(); }
    });
    document.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
      if (event.key === "ArrowRight") stepBy(1);
      else if (event.key === "ArrowLeft") stepBy(-1);
      else if (event.key === "Escape") { openStory(shown.story); if (floodmarkPage.reset) floodmarkPage.reset(); }
      else return;
      event.preventDefault();
    });
  }

  floodmarkPage.ready = (async () => {
    floodmarkCopying();
    floodmarkPage.data = JSON.parse(await unpacked("data"));
    if (floodmarkPage.data.stories.length) { listen(); openStory(0); }
    await floodmarkCharts.start();
    document.documentElement.dataset.ready = "yes";
  })();
})();

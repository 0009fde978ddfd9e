"""Runs Debian's chromium without a screen, so that tests open pages as a reader does."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PATIENCE_MS = 60_000


@dataclass(slots=True, kw_only=True)
class Seen:
    """An open page, and what it did besides being shown."""

    page: Any
    said: list[str] = field(default_factory=list)  # errors on its console
    asked: list[str] = field(default_factory=list)  # addresses that it requested, except its own

    def goto(self, file: Path) -> None:
        """Opens another file's page in place of this one, and waits until its script says that all is
        drawn."""
        self.page.goto(file.as_uri(), timeout=PATIENCE_MS)
        self.page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=PATIENCE_MS)

    def logs(self) -> dict[str, dict[str, Any]]:
        """The drawing of the logs, read from the document: node -> its marks and {offset: (epoch, state)}."""
        rows_drawn: dict[str, dict[str, Any]] = self.page.evaluate("""() => Object.fromEntries(
            [...document.querySelectorAll('#logs g.row')].map((row) => [row.dataset.node, {
                leo: Number(row.dataset.leo), hw: Number(row.dataset.hw), up: row.dataset.up,
                role: row.dataset.role,
                boxes: [...row.querySelectorAll('g.record')].map((box) => [
                    Number(box.dataset.offset), box.dataset.epoch, box.dataset.value, box.dataset.state,
                    box.dataset.lost])}]))""")
        return rows_drawn


def needed() -> Any:
    """playwright's entry point; skips the test if playwright or chromium is missing."""
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    return pytest.importorskip("playwright.sync_api", reason="playwright is not installed").sync_playwright


@contextmanager
def chromium() -> Iterator[Any]:
    with needed()() as kinds:
        browser = kinds.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, file: Path, *, width: int = 1240, scheme: str = "light") -> Iterator[Seen]:
    """Opens the file's page and waits until its script says that all is drawn."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    seen = Seen(page=page)
    page.on("console", lambda line: seen.said.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("dialog", lambda dialog: (seen.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda asked: seen.asked.append(asked.url) if asked.url != file.as_uri() else None)
    seen.goto(file)
    yield seen
    page.close()

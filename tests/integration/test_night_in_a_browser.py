"""The page of a night as a reader opens it: it requests nothing, and does not scroll sideways."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, opened
from judged_runs import judged
from nights import ABOUT, ALLOWED, CRASH, CUT, EARLIER, GONE, HUNG, LOST, night, written

from floodmark.harness.campaign.ledger import Ledger, with_findings
from floodmark.harness.report.night import write_index
from floodmark.harness.spec import RunSpec

pytestmark = pytest.mark.browser
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
PLAN = """
for = "4h"
[[system]]
rules = "kip-279"
[[system]]
rules = "kip-320"
bugs = ["no_epoch_bump_on_bounce"]
[[nemesis]]
nemesis = "crash"
[[nemesis]]
nemesis = "cut,expire,elect"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a night with a case of every kind, and the page of one run."""
    tmp_path = tmp_path_factory.mktemp("night")
    odd = RunSpec(rules="kip-320", bugs=("no_epoch_bump_on_bounce",), nemesis=NASTY)
    state = night(
        (CRASH, "invalid", (LOST,)), (CRASH, "valid", (ALLOWED,)), (CUT, "invalid", (GONE,)),
        (CUT, "stuck", (HUNG,)), (CUT, "not made", ()), (odd, "unknown", ()),
        (odd, "invalid", (replace(LOST, system=odd.system, step=NASTY),)))  # fmt: skip
    before = Ledger(nights={"night1": EARLIER}).with_finding(GONE, "night1", 3)
    before = before.changed(GONE.id, known={"reason": NASTY, "since": "2026-02-02"})
    folder = tmp_path / "nights" / "monday"
    ledger = with_findings(before, state, ABOUT, folder)
    written(folder, state, ledger, plan=PLAN)
    (folder / "runs").mkdir()
    judged(tmp_path, "double-failover").rename(folder / "runs" / "1")
    return write_index(folder)


@pytest.mark.parametrize(("width", "scheme"), [(1240, "light"), (390, "dark")])
def test_nothing_is_asked_of_anybody_and_nothing_scrolls_sideways(
    file: Path, browser: Any, width: int, scheme: str
) -> None:
    with opened(browser, file, width=width, scheme=scheme) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert seen.page.evaluate("document.querySelectorAll('img').length") == 0
        assert seen.page.evaluate("document.querySelectorAll('svg.spark').length") == 5
        for fold in seen.page.locator("summary").all():
            fold.click()
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert (seen.said, seen.asked) == ([], [])


def test_the_keyboard_reaches_every_fold_link_and_command(file: Path, browser: Any) -> None:
    with opened(browser, file) as seen:
        reached = []
        for _ in range(40):
            seen.page.keyboard.press("Tab")
            reached.append(seen.page.evaluate("document.activeElement.tagName"))
        counts = {name: seen.page.locator(f"{name.lower()}:visible").count()
                  for name in ("SUMMARY", "A", "BUTTON")}
        assert all(reached.count(name) >= count > 0 for name, count in counts.items()), (counts, reached)


def test_where_a_bug_was_found_the_grid_is_red_and_the_smallest_run_is_a_click_away(
        file: Path, browser: Any) -> None:
    def colour(page: Any, kind: str) -> str:
        return str(page.evaluate(f"getComputedStyle(document.querySelector('.grid .{kind}')).borderColor"))

    with opened(browser, file) as seen:
        assert colour(seen.page, "found") == "rgb(192, 35, 44)"
        assert colour(seen.page, "known") == "rgb(138, 90, 0)"
        texts = seen.page.locator(".grid .found").all_inner_texts()
        assert [" ".join(one.split()) for one in texts] == ["1 of 2", "1 of 2"]
        seen.page.locator(".signatures tr:first-child td:last-child a").click()
        seen.page.wait_for_selector("html[data-ready=yes] #steps li")
        assert seen.page.title().startswith("invalid: 1 lost write")

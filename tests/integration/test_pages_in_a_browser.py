"""The pages of a run and of a night as a reader opens them: stepped to the loss, the drawing compared with
the trace; they request nothing and do not scroll sideways."""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nights
import pytest
import real_like
from browser import chromium, opened
from command_line import edit_lines, edit_run
from judged_runs import VALID, finding, judged
from nights import ABOUT, ALLOWED, CRASH, CUT, EARLIER, GONE, HUNG, night, written
from stories import told

from floodmark.harness.campaign.ledger import Ledger, with_findings
from floodmark.harness.report.night import write_index
from floodmark.harness.report.run_page import write_report
from floodmark.harness.report.timeline import ReplicaLog
from floodmark.harness.spec import RunSpec

pytestmark = pytest.mark.browser
LOST = "double-failover"
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
OPS = 100_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that lost a write, for tests that do not change it."""
    return write_report(judged(tmp_path_factory.mktemp("lost"), LOST))


def test_the_lost_write_is_stepped_through(lost: Path, browser: Any) -> None:
    """It opens at the loss and shows what is gone; the keys go from step to step."""
    with opened(browser, lost) as seen:
        logs = seen.logs()
        assert "n3 truncates" in seen.page.text_content("[aria-current=step]")
        assert [3, "null", "3", "gone", "3"] in logs["n3"]["boxes"]
        assert [3, "0", "3", "there", ""] in logs["n1"]["boxes"]
        assert (logs["n1"]["up"], logs["n3"]["leo"], logs["n3"]["hw"]) == ("down", 3, 3)
        seen.page.click("#steps li:last-child button")
        assert [3, "2", "4", "replaced", "3"] in seen.logs()["n3"]["boxes"]

        steps = seen.page.evaluate("floodmarkPage.data.stories[0].steps")
        seen.page.keyboard.press("Escape")
        for _ in steps:
            seen.page.keyboard.press("ArrowLeft")
        for step in steps:
            assert step["name"] in seen.page.text_content("[aria-current=step]")
            assert seen.page.text_content("#said") == step["text"]
            seen.page.keyboard.press("ArrowRight")
        assert (seen.said, seen.asked) == ([], [])


def test_a_phone_shows_the_record_that_the_finding_names(tmp_path: Path, browser: Any) -> None:
    """Also in a long log: as many offsets as fit, the names of the nodes above their logs."""
    values = " ".join(map(str, range(1, 46)))
    folder = told(tmp_path / "run", f"run leaders/0/leader=n3; 1 acked {values}")
    (folder / "verdict.json").write_text(json.dumps({**VALID, "valid": False, "findings": [
        finding("lost-write", {"partition": 0, "offset": 3, "value": 4, "text": "It is gone."})]}))
    with opened(browser, write_report(folder), width=390) as seen:
        layout = seen.page.evaluate("""() => { const box = document.getElementById("logs");
            const focus = box.querySelector(".focus").getBoundingClientRect();
            return { wide: box.scrollWidth, room: box.clientWidth, right: focus.right,
                     names: [...box.querySelectorAll(".node")].map((one) => one.textContent) }; }""")
        assert layout["wide"] <= layout["room"]
        assert layout["right"] < 390
        assert [name.split()[0] for name in layout["names"]] == ["n1follower", "n2follower", "n3leads"]
        assert 3 <= len(seen.logs()["n1"]["boxes"]) <= 6
    with opened(browser, write_report(folder), width=1240) as seen:
        assert len(seen.logs()["n1"]["boxes"]) == 12


def test_it_is_printed_on_one_light_page(lost: Path, tmp_path: Path, browser: Any) -> None:
    """With what could not be read and what is unknown, if there is such."""
    def sections(page: Any) -> list[str]:
        page.emulate_media(media="print")
        return list(page.evaluate("""() => [...document.querySelectorAll("section")].filter(
            (it) => getComputedStyle(it).display !== "none").map((it) => it.getAttribute("aria-label"))"""))

    with opened(browser, lost, scheme="dark") as seen:
        printed = seen.page.pdf(format="A4")
        assert sections(seen.page) == ["what happened", "how it happened"]
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
        colour = seen.page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        assert colour == "rgb(255, 255, 255)"

        folder = judged(tmp_path, LOST)
        edit_lines(folder / "trace.jsonl", lambda lines: ["{", *lines])
        (folder / "verdict.json").write_text(json.dumps({
            **VALID, "valid": None, "unknown": [{"names": ["unseen"], "reason": "no final reads"}]}))
        seen.goto(write_report(folder))
        assert sections(seen.page) == [
            "what is missing", "what happened", "how it happened", "what is missing"]


def test_one_cursor_crosses_every_drawing_and_a_drag_zooms(lost: Path, browser: Any) -> None:
    with opened(browser, lost) as seen:
        page = seen.page
        page.click("#steps li:first-child button")
        times = page.evaluate("[...document.querySelectorAll('.cursor')].map((one) => one.dataset.time)")
        assert len(times) == 3
        assert len(set(times)) == 1

        before = page.text_content("#shown-time")
        page.locator("#plot-rails").scroll_into_view_if_needed()
        box = page.locator("#plot-rails").bounding_box()
        page.mouse.move(box["x"] + 300, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, box["y"] + 40, steps=4)
        page.mouse.up()
        page.wait_for_function(f"document.getElementById('shown-time').textContent !== {json.dumps(before)}")

        page.locator("#plot-rails").dblclick(position={"x": 400, "y": 40})
        page.wait_for_function("document.getElementById('zoom-out').hidden")
        page.keyboard.press("Escape")
        page.wait_for_function(f"document.getElementById('shown-time').textContent === {json.dumps(before)}")


def test_the_drawings_follow_the_partition_that_is_chosen(tmp_path: Path, browser: Any) -> None:
    with opened(browser, write_report(judged(tmp_path, "two-partitions-two-elections"))) as seen:
        shown = seen.page.input_value("#partition")
        other = seen.page.locator("[data-story]").nth(1)
        other.click()

        assert other.get_attribute("aria-pressed") == "true"
        assert seen.page.input_value("#partition") != shown
        assert seen.said == []


def test_a_strangers_text_is_shown_and_not_obeyed(tmp_path: Path, browser: Any) -> None:
    folder = judged(tmp_path, LOST)
    edit_run(folder, nodes=[NASTY, "n2", "n3"], partitions={"0": {
        "topic": "log", "partition": 0, "replicas": [NASTY, "n2", "n3"], "cleanup": "delete"}})
    for name in ("trace.jsonl", "history.jsonl", "replicas.jsonl"):
        edit_lines(folder / name, lambda lines: [line.replace('"n1"', json.dumps(NASTY)) for line in lines])

    with opened(browser, write_report(folder)) as seen:
        assert NASTY in seen.logs()
        seen.page.click("#steps li:first-child button")
        assert NASTY in seen.page.text_content("#said")
        assert seen.page.evaluate("document.querySelectorAll('img').length") == 0
        assert (seen.said, seen.asked) == ([], [])


def test_odd_fields_of_a_trace_stop_no_viewer(tmp_path: Path, browser: Any) -> None:
    """Numbers that are no offsets, lists that are none, an unknown node."""
    folder = judged(tmp_path, LOST)
    odd = [("epochs", "x"), ("epochs", [["0", 1], 3]), ("leo", 2**62), ("offset", 2**62), ("count", "9"),
           ("isr", {}), ("node", "nobody"), ("hw", -1), ("to", None)]  # fmt: skip
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    chance = random.Random(3)
    for line in lines:
        key, value = chance.choice(odd)
        line |= {key: value} if key in line and chance.random() < 0.2 else {}
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    with opened(browser, write_report(folder)) as seen:
        for _ in range(9):
            seen.page.keyboard.press("ArrowLeft")
        for _ in range(9):
            seen.page.keyboard.press("ArrowRight")
        assert seen.said == []


def test_the_viewer_follows_saved_runs_as_python_does(lost: Path, tmp_path: Path, browser: Any) -> None:
    """Its logs after each event are those that timeline.py makes of the trace up to its line."""
    with opened(browser, lost) as seen:
        for name in (LOST, "elected-without-a-committed-record", "two-leaders-of-one-epoch"):
            folder = judged(tmp_path, name)
            seen.goto(write_report(folder))
            trace = list(map(json.loads, (folder / "trace.jsonl").read_text().splitlines()))
            for number, story in enumerate(seen.page.evaluate("floodmarkPage.data.stories")):
                compare(story, trace, seen.page.evaluate(
                    """(number) => { const story = floodmarkPage.data.stories[number];
                    return story.events.map((_, at) => floodmarkViewer.stateAt(story, at).replicas); }""",
                    number))


def compare(story: dict[str, Any], trace: list[dict[str, Any]], states: list[list[dict[str, Any]]]) -> None:
    logs, read = {one["node"]: ReplicaLog() for one in story["replicas"]}, 0
    for event, state in zip(story["events"], states, strict=True):
        for line in trace[read:event.get("line", read)]:
            if line.get("partition") == story["partition"] and line["node"] in logs:
                logs[line["node"]].apply(line)
        read = max(read, event.get("line", read))
        for replica in state:
            log = logs[replica["node"]]
            assert [tuple(one) for one in replica["log"]] == log.log, event
            assert [tuple(one) for one in replica["cut"]] == log.cut, event
            if replica["node"] == event["n"] and "line" in event:
                assert (replica["leo"], replica["hw"]) == (log.leo, log.hw), event


def test_a_columns_counts_and_percentiles_are_those_of_its_ops(lost: Path, browser: Any) -> None:
    """Computed by hand: ten ok sends of 1 to 10 ms and two that failed end in the first column, one info in
    the last; ops that ended before and after are in none."""
    columns = {"began": [0] * 14, "what": [0] * 10 + [1, 1, 2, 0],
               "lasted": [*(each * 1000 for each in range(1, 11)), 500, 600, 99_000, 200_000],
               "records": [2] * 10 + [0, 0, 0, 7]}  # fmt: skip
    with opened(browser, lost) as seen:
        charts = seen.page.evaluate("""(columns) => { const charts = floodmarkCharts;
            const bins = charts.binned(charts.opsOf(columns), 0.1, 100.1, 5);
            return { few: bins.few, counts: bins.bins.map((one) => one.counts),
                     rows: charts.rowsOf(bins, 0.1) };
            }""", columns)

    assert charts["counts"] == [[10, 2, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert charts["few"]
    assert len(charts["rows"]["ops"]) == 13
    assert charts["rows"]["latency"][0] == {"t": 10.1, "p50": 6, "p99": 10, "max": 10}
    assert charts["rows"]["latency"][4]["p50"] is None
    assert [round(one["acked"]) for one in charts["rows"]["rates"]] == [1000, 0, 0, 0, 0]


@pytest.mark.long
def test_a_hundred_thousand_ops_are_a_small_page_with_little_to_draw(tmp_path: Path, browser: Any) -> None:
    folder = real_like.write(tmp_path / "big", ops=OPS, trace=True)
    (folder / "verdict.json").write_text(json.dumps(VALID))
    file = write_report(folder)

    assert file.stat().st_size < 10_000_000
    with opened(browser, file) as seen:
        assert seen.said == []
        assert seen.page.evaluate("document.querySelectorAll('svg *').length") < 6_000
        assert seen.page.evaluate("floodmarkPage.data.ops.began.length") >= OPS


# -- the page of a night ------------------------------------------------------------------------------------


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
def night_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a night with a case of every kind, and the page of one run."""
    tmp_path = tmp_path_factory.mktemp("night")
    odd = RunSpec(rules="kip-320", bugs=("no_epoch_bump_on_bounce",), nemesis=NASTY)
    state = night(
        (CRASH, "invalid", (nights.LOST,)), (CRASH, "valid", (ALLOWED,)), (CUT, "invalid", (GONE,)),
        (CUT, "stuck", (HUNG,)), (CUT, "not made", ()), (odd, "unknown", ()),
        (odd, "invalid", (replace(nights.LOST, system=odd.system, step=NASTY),)))  # fmt: skip
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
        lost: Path, night_page: Path, browser: Any, width: int, scheme: str) -> None:
    """On both pages every drawing is there; the legend has what the run has."""
    for page in (lost, night_page):
        with opened(browser, page, width=width, scheme=scheme) as seen:
            def count(selector: str, of: Any = seen.page) -> int:
                return int(of.evaluate(f"document.querySelectorAll('{selector}').length"))

            assert seen.page.evaluate("document.documentElement.scrollWidth") == width
            for fold in seen.page.locator("summary:visible").all():
                fold.click()
            assert seen.page.evaluate("document.documentElement.scrollWidth") == width
            assert count("img") == 0
            if page == night_page:
                assert count("svg.spark") == 5
            else:
                assert min(count(f"#plot-{name} svg path") for name in ("rails", "logs", "load")) > 3
                shown = seen.page.evaluate("""() => [...document.querySelectorAll("[data-if]")].filter(
                    (one) => !one.hidden).map((one) => one.dataset.if)""")
                assert {"leads", "fault", "elected", "unsafe", "ok", "lost"} <= set(shown)
                assert {"fail", "unclean"}.isdisjoint(shown)
            assert (seen.said, seen.asked) == ([], [])


def test_the_keyboard_reaches_every_fold_link_and_command(night_page: Path, browser: Any) -> None:
    with opened(browser, night_page) as seen:
        reached = []
        for _ in range(40):
            seen.page.keyboard.press("Tab")
            reached.append(seen.page.evaluate("document.activeElement.tagName"))
        counts = {name: seen.page.locator(f"{name.lower()}:visible").count()
                  for name in ("SUMMARY", "A", "BUTTON")}
        assert all(reached.count(name) >= count > 0 for name, count in counts.items()), (counts, reached)


def test_a_printed_night_has_each_cell_below_its_heading(night_page: Path, browser: Any) -> None:
    with opened(browser, night_page, width=718) as seen:  # A4
        seen.page.emulate_media(media="print")
        for table in (".signatures", ".grid"):
            heads, cells = seen.page.evaluate("""(table) => ["thead", "tbody"].map(
                (part) => [...document.querySelector(`${table} ${part} tr`).children].map(
                (cell) => cell.getBoundingClientRect().left))""", table)
            assert heads == cells
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 718


def test_where_a_bug_was_found_the_grid_is_red_and_the_smallest_run_is_a_click_away(
        night_page: Path, browser: Any) -> None:
    def colour(page: Any, kind: str) -> str:
        return str(page.evaluate(f"getComputedStyle(document.querySelector('.grid .{kind}')).borderColor"))

    with opened(browser, night_page) as seen:
        assert colour(seen.page, "found") == "rgb(192, 35, 44)"
        assert colour(seen.page, "known") == "rgb(138, 90, 0)"
        texts = seen.page.locator(".grid .found").all_inner_texts()
        assert [" ".join(one.split()) for one in texts] == ["1 of 2", "1 of 2"]
        seen.page.locator(".signatures tr:first-child td:last-child a").click()
        seen.page.wait_for_selector("html[data-ready=yes] #steps li")
        assert seen.page.title().startswith("invalid: 1 lost write")

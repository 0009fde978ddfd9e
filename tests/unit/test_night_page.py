"""The page of a night: its contents, that no text of a folder is markup, and its small charts."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from command_line import floodmark
from golden_text import as_written, words_of
from judged_runs import judged
from nights import ABOUT, CRASH, CUT, EARLIER, LOST, night, nights, written

from floodmark.harness.campaign.ledger import Ledger, Night, load, save, with_findings
from floodmark.harness.campaign.state import DATABASE, State
from floodmark.harness.report.night import results_of, write_index
from floodmark.harness.spec import RunSpec

PLAN = """
for = "4h"
[[system]]
rules = "kip-279"
[[nemesis]]
nemesis = "crash"
[[nemesis]]
nemesis = "cut"
"""
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u202e"


def folder_of(tmp_path: Path, state: State, before: Ledger | None = None, plan: str = PLAN) -> Path:
    folder = tmp_path / "nights" / "monday"
    return written(folder, state, with_findings(before or Ledger(), state, ABOUT, folder), plan=plan)


def page(folder: Path) -> str:
    return write_index(folder).read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """Section -> its rows, with the kinds of a grid's squares."""
    return {name: "\n".join(words_of(re.sub(r'<td class="(\w+)"', r"[\1] <td", content)))
            for name, content in re.findall(r'<section aria-label="(.*?)">(.*?)</section>', text, re.S)}


def test_what_the_pages_of_nights_show(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Their text, section by section, as golden/night_pages.txt has it."""
    now = ""
    for number, (title, state, before) in enumerate(nights()):
        text = page(folder := folder_of(tmp_path / str(number), state, before))
        lines = (f"-- {name}\n{content}" for name, content in sections(text).items())
        now += "\n".join((f"== {title}", re.findall("<title>(.*)</title>", text)[0], *lines, ""))
        now = now.replace(str(folder.parent), "NIGHTS")
    as_written("night_pages.txt", now, request)


def test_a_night_under_way_and_a_missing_ledger_are_stated(tmp_path: Path) -> None:
    """The counts of runs add up; a run's number and seed stay together on a narrow page, which lays out a
    cell as a grid."""
    state = night((CRASH, "invalid", (LOST,)), (CRASH, "valid", ()), (CUT, "valid", ()), why=None)
    state.database.execute("UPDATE runs SET status = 'recorded', judged = NULL WHERE number = 3")
    folder = folder_of(tmp_path, state)
    (folder.parent / "ledger.json").unlink()

    text = page(folder)

    assert "the campaign is not finished; 1 run begun and not judged yet" in " ".join(text.split())
    assert "runs: 1 invalid, 1 valid, 1 not judged yet" in text
    assert re.search(r"<td[^>]*><div>3 <span class=\"small\">seed 103</span>\s*</div></td>", text)
    assert "ledger.json is not there" in text
    assert "campaign mark" not in text
    assert f"floodmark campaign resume {folder}" in sections(text)["what to type next"]


def test_no_text_of_a_folder_or_a_ledger_is_markup(tmp_path: Path) -> None:
    """In a nemesis, a system, a signature, a reason, a note, an error, a folder's name and the plan."""
    case = RunSpec(rules=NASTY, nemesis=NASTY, workload=NASTY)
    hostile = replace(LOST, system=case.system, how=NASTY, step=NASTY, guarantees=NASTY, finding=NASTY)
    known = replace(hostile, finding="lost-write")
    state = night((case, "invalid", (hostile, known)), (case, NASTY, ()), (case, "not made", ()))
    before = Ledger(nights={"night1": msgspec.structs.replace(EARLIER, began=NASTY, runs={case.system: 3})})
    before = before.with_finding(known, "night1", 1, faults={NASTY: 1})
    before = before.changed(known.id, known={"reason": NASTY, "since": NASTY}, notes=(NASTY,))
    folder = folder_of(tmp_path, state, before, plan=f"{PLAN}# {NASTY.translate({27: None})}\n")

    text = page(folder)

    assert text.count("<script>") == 2  # ours
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&lt;img src=x" in text


def test_a_link_has_no_scheme_and_leads_to_a_page_that_exists(tmp_path: Path) -> None:
    state = night((CRASH, "invalid", (LOST,)))
    folder = folder_of(tmp_path, state)
    odd = folder / "javascript:alert(1)\"><b>#?%"
    run = judged(tmp_path, "double-failover").rename(odd)
    state.database.execute("UPDATE runs SET folder = ?", (odd.name,))
    again = written(tmp_path / "two" / "monday", state, Ledger(), plan=PLAN)
    run.rename(again / odd.name)

    text = page(again)

    addresses = re.findall(r'href="([^"]*)"', text)
    assert addresses == ["./javascript%3Aalert%281%29%22%3E%3Cb%3E%23%3F%25/report.html"] * 3
    assert (again / odd.name / "report.html").is_file()  # made by this page
    (again / odd.name / "report.html").unlink()
    (again / odd.name / "history.jsonl").unlink()
    (again / odd.name / "run.json").unlink()
    assert "href" not in page(again)


def test_no_page_is_written_outside_the_campaign(tmp_path: Path) -> None:
    run = judged(tmp_path, "double-failover")
    folder = written(tmp_path / "monday", night((CRASH, "invalid", (LOST,))), Ledger(), plan=PLAN)
    (folder / "runs").mkdir()
    (folder / "runs" / "1").symlink_to(run)

    assert "href" not in page(folder)
    assert not (run / "report.html").exists()


def test_a_foreign_state_is_an_error_and_an_unreadable_plan_hides_nothing(tmp_path: Path) -> None:
    state = night((CRASH, "invalid", (LOST,)))
    folder = folder_of(tmp_path, state, plan="for = ")
    assert "crash" in sections(page(folder))["coverage"]

    state.database.execute("UPDATE runs SET judged = json_set(judged, '$.signatures[0].x', 1)")
    (folder / DATABASE).write_bytes(state.database.serialize())
    answer = floodmark("report", folder)

    assert (answer.code, "campaign.db is not a state of this version" in answer.err) == (4, True)


def test_the_page_of_thousands_of_runs_is_small(tmp_path: Path) -> None:
    signatures = [replace(LOST, step=f"step {chr(97 + at // 26)}{chr(97 + at % 26)}") for at in range(300)]
    state = night(*((CRASH, "invalid", (signatures[at % 300],)) for at in range(3_000)))

    text = page(folder_of(tmp_path, state))

    assert len(text) < 500_000
    assert "100 more are left out" in sections(text)["signatures"]


# -- small charts -------------------------------------------------------------------------------------------


LATER = msgspec.structs.replace(EARLIER, began="2026-04-01T02:00:00+00:00")


def of_february(days: int, **others: dict[str, int]) -> dict[str, Night]:
    """Nights of ten runs, but for these others."""
    return {f"n{day}": Night(began=f"2026-02-{day:02d}T02:00:00+00:00", version="0.1.0", commit=None,
                             runs=others.get(f"n{day}", {"kip-279": 10})) for day in range(1, days + 1)}


def test_a_trend_ends_with_this_night_and_counts_no_later_one() -> None:
    """A cause that only later nights have seen is new."""
    ledger = Ledger(nights=of_february(20, n19={"kip-101": 5}) | {"later": LATER})
    ledger = ledger.with_finding(LOST, "n20", 4).with_finding(LOST, "later", 9)

    shown = [(CRASH, "invalid", (LOST,))] * 2 + [(CRASH, "valid", ())] * 6
    (cause,) = results_of(night(*shown), ledger, ABOUT, [CRASH], folder="n").causes

    assert [(one.began[5:10], one.hits, one.of) for one in cause.trend[-4:]] == [
        ("02-18", 0, 10), ("02-19", 0, 0), ("02-20", 4, 10), ("03-01", 2, 8)]
    assert len(cause.trend) == 14
    later = Ledger(nights={"later": LATER}).with_finding(LOST, "later", 1)
    (cause,) = results_of(night((CRASH, "invalid", (LOST,))), later, ABOUT, [CRASH], folder="n").causes
    assert cause.standing == "new"


def test_a_line_is_high_where_the_rate_is_and_has_gaps_where_nothing_ran(tmp_path: Path) -> None:
    before = Ledger(nights=of_february(5, n3={})).with_finding(LOST, "n2", 5)
    drawn = page(folder_of(tmp_path, night((CRASH, "invalid", (LOST,))), before))
    assert re.findall(r'<path d="([^"]*)"', drawn) == ["M5.0,25.0L23.8,15.0M61.4,25.0L80.2,25.0L99.0,5.0"]
    assert "<title>2026-02-02 02:00: 5 of 10 runs</title>" in drawn
    assert "; 2026-02-03 02:00: not run; " in drawn
    assert re.findall(r'<circle class="(\w+)" cx="([0-9.]+)"', drawn) == [("seen", "23.8"), ("seen", "99.0")]


def test_report_takes_a_campaigns_folder_and_another_ledger(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, night((CRASH, "invalid", (LOST,))))
    ledger = load(folder.parent / "ledger.json")
    save(tmp_path / "ours.json", ledger.changed(LOST.id, known={"reason": "KAFKA-9", "since": "2026-02-02"}))

    assert floodmark("report", folder).out.splitlines() == [str(folder / "index.html")]
    answer = floodmark("report", folder, "--ledger", tmp_path / "ours.json", "--out", tmp_path / "page.html")

    assert (answer.code, answer.last) == (0, str(tmp_path / "page.html"))
    assert "<title>1 known" in (tmp_path / "page.html").read_text()
    assert "<title>1 new" in (folder / "index.html").read_text()
    run = judged(tmp_path, "double-failover")
    assert floodmark("report", run, "--ledger", tmp_path / "ours.json").code == 2
    assert floodmark("report", tmp_path).code == 4

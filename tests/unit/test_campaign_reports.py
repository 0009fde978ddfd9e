"""What CI servers see of a campaign: its JUnit report and its page, without a cluster or Spark."""

import datetime
from dataclasses import replace
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nights import ABOUT, ALLOWED, CRASH, CUT, EARLIER, GONE, HUNG, LOST, at, night, results, written

from floodmark.harness.campaign.ledger import Ledger, with_findings
from floodmark.harness.commands import campaign
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report.night import Results, night_junit, night_markdown, results_of, summary

NOW = datetime.datetime(2026, 3, 1, 2, 3, 4)


def cases(night_results: Results) -> dict[str, ElementTree.Element]:
    """By name; each name once, and the suite's sums are those of its cases."""
    (suite,) = ElementTree.fromstring(night_junit(night_results, NOW))
    found = {f"{case.attrib['classname']}: {case.attrib['name']}": case for case in suite.iter("testcase")}
    assert len(found) == int(suite.attrib["tests"]) == len(list(suite.iter("testcase")))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.attrib[name]) == len(list(suite.iter(kind)))
    return found


def outcome(case: ElementTree.Element) -> tuple[str | None, str]:
    problems = [one for one in case if one.tag in ("failure", "error", "skipped")]
    assert len(problems) <= 1
    if problems:
        return problems[0].tag, problems[0].attrib["message"]
    return None, case.findtext("system-out") or ""


MIXED = night((CRASH, "invalid", (LOST,)), (CRASH, "valid", ()), (CRASH, "invalid", (LOST,)),
              (CUT, "stuck", (HUNG,)), (CUT, "not made", ()))


def test_a_new_bug_is_a_failure_with_all_that_is_needed_to_reproduce_it() -> None:
    found = cases(results(MIXED))
    kind, message = outcome(found[f"floodmark.signature: {LOST.sentence}"])
    assert kind == "failure"
    for text in (LOST.sentence, "new", "50 per 100 runs (15 to 85)", "smallest run nights/monday/runs/3",
                  "floodmark reproduce nights/monday/runs/3"):
        assert text in message
    assert outcome(found["floodmark.campaign: the campaign came to its end"])[0] is None


def test_a_known_bug_is_skipped_with_its_reason_and_an_earlier_unmarked_one_fails() -> None:
    state = night((CRASH, "invalid", (LOST,)), (CRASH, "invalid", (GONE,)))
    before = Ledger(nights={"night1": EARLIER})
    for signature in (LOST, GONE):
        before = before.with_finding(signature, "night1", 3)
    before = before.changed(LOST.id, known={"reason": "KAFKA-1211", "since": "2026-02-02"})
    found = cases(results(state, before))
    assert outcome(found[f"floodmark.signature: {LOST.sentence}"]) == ("skipped", "known: KAFKA-1211")
    kind, message = outcome(found[f"floodmark.signature: {GONE.sentence}"])
    assert (kind, "; since 2026-02-01, in" in message) == ("failure", True)


def test_a_signature_not_found_passes_and_one_of_a_system_not_run_is_left_out() -> None:
    other = replace(LOST, system="kip-101")
    before = Ledger(nights={"night1": EARLIER})
    for signature in (GONE, other):
        before = before.with_finding(signature, "night1", 3)
    night_results = results(night((CRASH, "valid", ())), before)
    found = cases(night_results)
    assert outcome(found[f"floodmark.signature: {GONE.sentence}"])[0] is None
    assert f"floodmark.signature: {other.sentence}" not in found
    assert GONE.finding_and_step not in summary(night_results)  # the summary lists only what was found


def test_names_are_the_same_from_night_to_night() -> None:
    one = cases(results(night((CRASH, "invalid", (LOST,)))))
    two = cases(results(night((CUT, "valid", ()), (CUT, "valid", ()), (CRASH, "invalid", (LOST,)))))
    assert one.keys() == two.keys()
    assert outcome(one["floodmark.case: kip-279 cut"]) == ("skipped", "no run of it was begun")


KINDS = ("valid", "unknown", "failed in the harness", "interrupted", "not made", "invalid", "stuck", "known",
         "permitted")


@pytest.mark.parametrize(("first", "second"), [*product(KINDS, repeat=2)])
def test_a_report_has_failures_exactly_if_the_exit_code_is_not_0(first: str, second: str) -> None:
    shown = {"invalid": LOST, "stuck": HUNG, "known": GONE, "permitted": ALLOWED}
    kind_in_journal = {"known": "invalid", "permitted": "valid"}
    state = night(*((CRASH, kind_in_journal.get(kind, kind), (shown[kind],) if kind in shown else ())
                    for kind in (first, second)))
    ledger = with_findings(Ledger(), state, ABOUT, Path("/nights"))
    if "known" in (first, second):
        ledger = ledger.changed(GONE.id, known={"reason": "KAFKA-1", "since": "2026"})
    night_results = results_of(state, ledger, ABOUT, [CRASH], folder="nights")
    (suite,) = ElementTree.fromstring(night_junit(night_results, NOW))
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (failed > 0) == (night_results.exit_code != 0)


def test_a_campaign_without_a_run_exits_4_once_it_has_ended() -> None:
    assert not results(night((CRASH, "not made", ()), why=None)).trouble
    assert not results(night(why=None)).trouble
    state = night()
    assert results(state).exit_code == 4
    assert outcome(cases(results(state))["floodmark.campaign: the campaign came to its end"]) == (
        "error", "no run was made (the time is over)")
    assert outcome(cases(results(night((CRASH, "valid", ()))))[
        "floodmark.campaign: the campaign came to its end"])[0] is None


# -- the page -----------------------------------------------------------------------------------------------


def test_a_page_begins_with_a_summary_and_keeps_kinds_apart() -> None:
    state = night((CRASH, "invalid", (GONE,)), (CRASH, "invalid", (LOST,)), (CUT, "stuck", (HUNG,)),
                  (CUT, "not made", ()), (CUT, "unknown", ()))
    before = Ledger(nights={"night1": EARLIER}).with_finding(GONE, "night1", 1)
    before = before.changed(GONE.id, known={"reason": "KAFKA-1", "since": "2026"})
    page = night_markdown(results(state, before)).decode()
    first, _, rest = page.partition("\n")
    assert first == ("## floodmark: 1 new, 1 known, 1 new (stuck); 5 runs: 2 invalid, 1 stuck, 1 unknown, "
                     "1 not made; 4,000 acked writes, 8 faults, 1 min 40 s; the time is over")
    tables = dict(part.partition("\n")[::2] for part in ("top\n" + rest).split("\n### "))
    assert "lost-write" in tables["top"]
    assert tables["top"].index("| new |") < tables["top"].index("| known: KAFKA-1 |")
    assert "stuck" not in tables["top"]
    assert "| new | stuck" in tables["Clusters that got stuck"]
    assert "| kip-279 cut | 104 | n1 did not start its log |" in tables["The harness failed"]
    assert "| kip-279 cut | 105 | unknown: nights/monday/runs/5 |" in tables["Unknown"]
    assert "floodmark reproduce nights/monday/runs/2\n```" in rest
    assert "floodmark reproduce nights/monday/runs/1\n" not in rest  # it is known


def test_text_of_a_run_is_escaped_and_a_page_has_a_limit() -> None:
    hostile = replace(LOST, how="<script>alert(1)</script> | ![x](http://x)\x1b[31m\nnext")
    night_results = results(night((CRASH, "invalid", (hostile,))))
    page = night_markdown(night_results).decode()
    assert "<script>" not in page
    assert "![" not in page
    assert "\x1b" not in page
    assert "floodmark.signature" in next(iter(
        name for name, case in cases(night_results).items() if outcome(case)[0] == "failure"))
    many_runs = night(*((CRASH, "invalid", (replace(LOST, step=f"step {chr(97 + number // 26)}{number}"),))
                        for number in range(200)))
    small = night_markdown(results(many_runs), limit=20_000)
    assert len(small) < 20_000
    assert b"Cut for length" in small


# -- written however the campaign ends ----------------------------------------------------------------------


def test_reports_are_written_when_something_ends_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise FloodmarkError("interrupted; to continue: floodmark campaign resume night")

    monkeypatch.setattr(campaign, "run_session", interrupted)
    folder = written(tmp_path / "night", night(), Ledger(), plan="for = '1min'")
    with pytest.raises(FloodmarkError, match="interrupted"):
        campaign.resume_campaign(folder, junit_file=tmp_path / "junit.xml",
                                 markdown_file=tmp_path / "summary.md")
    (suite,) = ElementTree.fromstring((tmp_path / "junit.xml").read_bytes())
    (error,) = suite.iter("error")
    assert error.attrib["message"].startswith("interrupted; to continue")
    assert "it did not finish: interrupted" in (tmp_path / "summary.md").read_text()


def test_a_report_that_cannot_be_written_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "run_session", lambda *_: None)
    folder = written(tmp_path / "night", night((CRASH, "valid", ())), Ledger(), plan="for = '1min'")
    assert campaign.resume_campaign(folder) == 0
    (tmp_path / "file").touch()
    assert campaign.resume_campaign(folder, junit_file=tmp_path / "file" / "junit.xml") == 4
    assert "junit.xml" in capsys.readouterr().err


def test_a_campaign_that_ended_early_is_no_success_and_gives_the_reason_once() -> None:
    state = night((CRASH, "valid", ()), why=None)
    at(state, 100.0).end_session("the disk is full: make room", early=True)
    night_results = results(state)
    assert night_results.exit_code == 4
    assert outcome(cases(night_results)["floodmark.campaign: the campaign came to its end"]) == (
        "error", "the disk is full: make room")
    assert summary(night_results).count("the disk is full") == 1
    state.open_session()
    assert results(state).ended_early is False


REASON = "the trace has a broken line"


@pytest.mark.parametrize("kind", ["unknown", "failed in the harness", "stuck"])
def test_a_run_without_a_violation_gives_its_reason_in_every_report(kind: str) -> None:
    night_results = results(night((CRASH, kind, (HUNG,) if kind == "stuck" else ()), judged={"why": REASON}))
    pages = (night_markdown(night_results).decode(), night_junit(night_results, NOW).decode())
    for report in (summary(night_results), *pages):
        assert REASON in report

"""What CI servers see of a campaign: its JUnit report and its page, without a cluster or Spark."""

import datetime
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from golden_text import as_written
from junit import outcome_in, suite_of
from nights import ABOUT, ALLOWED, CRASH, CUT, GONE, HUNG, LOST, night, nights, results, written

from floodmark.harness.campaign.ledger import Ledger, with_findings
from floodmark.harness.commands import campaign
from floodmark.harness.report.night import Results, night_junit, night_markdown, results_of, summary

NOW = datetime.datetime(2026, 3, 1, 2, 3, 4)


def cases(night_results: Results) -> dict[str, str]:
    """By name: the outcome and its message, or what else is said."""
    found: dict[str, str] = {}
    for case in suite_of(night_junit(night_results, NOW)).iter("testcase"):
        tag, _, message = outcome_in(case) or ("", "", case.findtext("system-out") or "")
        found[f"{case.attrib['classname']}: {case.attrib['name']}"] = f"{tag} {message}".lstrip()
    return found


def test_what_a_night_says(request: pytest.FixtureRequest) -> None:
    """The summary, the page and the cases of the JUnit report, as golden/nights.txt has them."""
    now = ""
    for title, state, before in nights():
        found = results(state, before)
        told = "".join(f"{name}: {outcome}\n" for name, outcome in cases(found).items())
        now += f"== {title}: exit code {found.exit_code}\n{summary(found).rstrip()}\n-- page\n"
        now += f"{night_markdown(found).decode().rstrip()}\n-- JUnit\n{told}"
    as_written("nights.txt", now, request)


def test_names_are_the_same_from_night_to_night() -> None:
    one = cases(results(night((CRASH, "invalid", (LOST,)))))
    two = cases(results(night((CUT, "valid", ()), (CUT, "valid", ()), (CRASH, "invalid", (LOST,)))))
    assert one.keys() == two.keys()
    assert one["floodmark.case: kip-279 cut"] == "skipped no run of it was begun"


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
    suite = suite_of(night_junit(night_results, NOW))
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (failed > 0) == (night_results.exit_code != 0)


# -- the page -----------------------------------------------------------------------------------------------


def test_text_of_a_run_is_escaped_and_a_page_has_a_limit() -> None:
    hostile = replace(LOST, how="<script>alert(1)</script> | ![x](http://x)\x1b[31m\nnext")
    night_results = results(night((CRASH, "invalid", (hostile,))))
    page = night_markdown(night_results).decode()
    assert "<script>" not in page
    assert "![" not in page
    assert "\x1b" not in page
    assert "floodmark.signature" in next(
        name for name, outcome in cases(night_results).items() if outcome.startswith("failure"))
    many_runs = night(*((CRASH, "invalid", (replace(LOST, step=f"step {chr(97 + number // 26)}{number}"),))
                        for number in range(200)))
    small = night_markdown(results(many_runs), limit=20_000)
    assert len(small) < 20_000
    assert b"Cut for length" in small


# -- written however the campaign ends ----------------------------------------------------------------------


def test_a_report_that_cannot_be_written_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "run_session", lambda *_: None)
    folder = written(tmp_path / "night", night((CRASH, "valid", ())), Ledger(), plan="for = '1min'")
    assert campaign.resume_campaign(folder) == 0
    (tmp_path / "file").touch()
    assert campaign.resume_campaign(folder, junit_file=tmp_path / "file" / "junit.xml") == 4
    assert "junit.xml" in capsys.readouterr().err

"""A gate: one outcome of a run everywhere, its name, the JUnit report, the Markdown page; without Spark."""

import datetime
import errno
import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import floodmark
from golden_text import answered_as_written, as_written
from hypothesis import example, given
from hypothesis import strategies as st
from judged_runs import finding, judge_by
from junit import outcome_in, suite_of

from floodmark.checkers.judge import report
from floodmark.harness import catalog, pipeline
from floodmark.harness.commands import check
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.error_exits import code_of
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import Part, plan_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import run_summary, verdict_text
from floodmark.harness.report.run_summary import CHARS, EXITS, UNREADABLE, Ruling, case_name
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.verdict_text import LIMIT, Outcome, junit, markdown, reading_of, seconds_of
from floodmark.harness.runner import _initial_about
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import Finding, NotMade, Policy, Unknown, Verdict, worst
from floodmark.nemesis import scenario

NOW = datetime.datetime(2026, 3, 1, 2, 3, 4)
LOST = Finding(name="lost-write", klass="bug", permitted_by=None, count=7, examples=(
    {"partition": 0, "offset": 5, "text": "It was acked, and is gone."}, {"text": "So is this."}))
TWICE = Finding(name="duplicate", klass="permitted", permitted_by="retries", count=2,
                examples=({"text": "It is there twice."},))
UNSEEN = Unknown(names=("unseen",), reason="no final reads of partition 0")
GOOD, BAD = Ruling(kind="valid", word="valid"), Ruling(kind="invalid", word="invalid")
COUNTS = {"ops": 5, "ok": 2, "records": {"n1": 6}}
ABOUT = {"format": 1, "id": "00ff", "seed": 7, "cluster": "local", "rules": "kip-320", "nodes": ["n1"],
         "ended": "done", "died": [], "nemesis": "crash,cut"}
VERDICTS = {
    "valid": Verdict(valid=True, counts=COUNTS),
    "permitted": Verdict(valid=True, findings=(TWICE,), counts=COUNTS),
    "invalid": Verdict(valid=False, findings=(TWICE, LOST), unknown=(UNSEEN,), counts=COUNTS),
    "unknown": Verdict(valid="unknown", unknown=(UNSEEN,), counts=COUNTS),
    "unknown-permitted": Verdict(valid="unknown", findings=(TWICE,), unknown=(UNSEEN,), counts=COUNTS),
    "no-run": Verdict(valid="unknown", unknown=(Unknown(names=("unseen",), reason="it has no run.json"),)),
}


def gate(**options: Any) -> pipeline.Gate:
    return pipeline.gate(**{"strict": False, "allow": (), "allow_unknown": False, **options})


def run_folder(parent: Path, name: str, **about: Any) -> Path:
    folder = parent / name
    folder.mkdir(parents=True)
    if name != "no-run":
        (folder / "run.json").write_text(json.dumps({**ABOUT, **about}))
    (folder / "history.jsonl").write_text('{"index":0,"time":1500000000}\n{"index":1,"ti')
    return folder


def verdict_of(folder: Path) -> Verdict:
    """That of its name, up to a plus; the judge fails for `broken`."""
    if folder.name == "broken":
        raise FloodmarkError("Spark cannot start")
    return VERDICTS[folder.name.partition("+")[0]]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of each kind, and a judge that knows them."""
    judge_by(monkeypatch, verdict_of)
    for name in VERDICTS:
        run_folder(tmp_path / "runs", name)
    return tmp_path / "runs"


# -- a JUnit report -----------------------------------------------------------------------------------------

def cases_of(report: bytes) -> dict[str, ElementTree.Element]:
    """By the names of their folders, which are in the properties that begin with the cases' names."""
    suite = suite_of(report)
    folders = {one.get("name"): Path(one.get("value", "")).name for one in suite.iter("property")}
    return {folders[f"{case.get('name')}: folder"]: case for case in suite.iter("testcase")}


def test_what_the_reports_say(
        runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """golden/gate.txt: the page, the worst first and with commands to look at it, and the JUnit report."""
    monkeypatch.setitem(VERDICTS, "untraced", Verdict(valid=True, counts=COUNTS, not_made=(
        NotMade(names=("ack-rule", "unsafe-isr"), reason="this system's trace has no ack"),
        NotMade(names=("unseen",), reason="this system shows no dumps"))))
    run_folder(runs, "untraced")
    page, suite = tmp_path / "page.md", tmp_path / "junit.xml"
    assert check.check_folders([runs / name for name in VERDICTS],
                               gate(markdown_file=page, junit_file=suite)) == 1
    cases = "".join(
        f"-- {name}: {case.get('name')}, {case.get('time')} s: "
        f"{' '.join((outcome_in(case) or ['passed'])[:2])}\n"
        + "".join(f"{child.get('message', child.tag)}\n{child.text or ''}\n" for child in case)
        for name, case in cases_of(suite.read_bytes()).items())
    now = f"{html.unescape(page.read_text())}\n{cases}".replace(str(runs), "RUNS")
    as_written("gate.txt", now, request)


@given(st.text(), st.text())
def test_the_report_is_xml_whatever_is_in_it(words: str, folder: str) -> None:
    """Visible text is unchanged."""
    passed = Outcome(
        reading=reading_of(Path("good"), {"unknown": outcome_with(words).unknown}, None), ruling=GOOD)
    suite = suite_of(junit([outcome_with(words, folder), passed], NOW))
    shown = escape_controls(words, breaks=True)
    assert shown in (suite.findtext("testcase/system-out") or "")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert shown in (failure.text or "")


def test_a_long_report_is_cut_and_states_by_how_much() -> None:
    failure = suite_of(junit([outcome_with("x" * 100_000)], NOW)).find("testcase/failure")
    assert failure is not None
    assert len(failure.text or "") < 21_000
    assert re.search(r"\(cut: \d+ more characters\)$", failure.text or "")
    assert re.search(r"\(cut: \d+ more characters\)$", failure.get("message", ""))


@pytest.mark.parametrize(("history", "seconds"), [
    (b'{"time":5}\n{"time":2500000000}\n', 2.5), (b'{"time":2000000000}\n{"time":9', 2.0),
    (b'{"time":1000000000}\n\n \n', 1.0), (b'{"time":3000000000}\n' + b" " * 70_000 + b"\n", 3.0),
    (b'{"time":1}\n{"time":4000000000,"reads":"' + b"x" * 70_000 + b'"}\n', 4.0),
    (b"", None), (b"[]\n", None), (b"{}\n", None), (b"no json\n", None),
    (b'{"time":"soon"}\n', None), (b'{"time":-1}\n', None), (None, None),
])
def test_the_seconds_of_a_run_are_those_of_its_last_whole_line(
        tmp_path: Path, history: bytes | None, seconds: float | None) -> None:
    if history is not None:
        (tmp_path / "history.jsonl").write_bytes(history)
    assert seconds_of(tmp_path) == seconds


def test_a_name_is_the_same_every_night_and_equal_names_are_numbered(
        runs: Path, tmp_path: Path) -> None:
    """With other folders, seeds and ids; in the order of the call. A judge that fails changes no name."""
    names = []
    for night, seed in (("monday", 1), ("tuesday", 2)):
        folders = [run_folder(tmp_path / night / f"{place}", name, seed=seed, id=f"{seed}{place}", **about)
                   for place, (name, about) in enumerate([
                       ("valid", {}), ("invalid", {}), ("valid", {"nemesis": "power"}), ("unknown", {})])]
        file = tmp_path / f"{night}.xml"
        check.check_folders(folders, gate(junit_file=file))
        names.append([case.get("name") for case in suite_of(file.read_bytes()).findall("testcase")])
    kind = "nemesis crash,cut, local cluster of 1, kip-320"
    assert names == [[kind, f"{kind} #2", "nemesis power, local cluster of 1, kip-320", f"{kind} #3"]] * 2
    with pytest.raises(FloodmarkError):
        check.check_folders([run_folder(tmp_path, "broken")], gate(junit_file=tmp_path / "broken.xml"))
    assert [case.get("name") for case in suite_of((tmp_path / "broken.xml").read_bytes()).findall("testcase")
            ] == [kind]


# -- the name of a case -------------------------------------------------------------------------------------

RUN: dict[str, Any] = {
    "cluster": "local", "nodes": ["n1", "n2", "n3"], "rules": "kip-320", "workload": "log",
    "guarantees": {"acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False}}
OF_RUN = "local cluster of 3, kip-320, workload log, acks=all, min.insync.replicas=2"


def test_a_name_states_what_was_tested(request: pytest.FixtureRequest) -> None:
    answered_as_written(
        "case_names.txt", lambda line: f"= {case_name({**RUN, **json.loads(line)})}", request)


def test_an_unreadable_run_has_a_name_and_a_long_name_is_cut() -> None:
    assert case_name(None) == UNREADABLE
    assert len(case_name({**RUN, "nemesis": "x" * 1000})) == CHARS


def test_the_first_run_json_gives_the_name_too(tmp_path: Path) -> None:
    """Written before anything has started, so that a run that failed to start has its name."""
    options = RunSpec(nemesis="crash,pause", out=tmp_path / "run", duration=1.0)
    assert case_name(_initial_about(planned(options))) == f"nemesis crash,pause, {OF_RUN}"
    one = next(each for each in scenario.shipped(scenario_words()) if each.name == "double-failover")
    part = Part(scenario=one, row=one.rows[0])
    run_json = _initial_about(plan_of(part, "local", tmp_path / "part"))
    assert case_name(run_json) == f"scenario double-failover on {one.rows[0].label}, local cluster of 3"


# -- the page -----------------------------------------------------------------------------------------------


def outcome_with(words: str, folder: str = "runs/one") -> Outcome:
    """An invalid run with these words wherever a run can have any."""
    found = finding("lost-write", {"text": words})
    verdict = {"valid": False, "findings": [found], "unknown": [{"names": ["unseen"], "reason": words}]}
    return Outcome(reading=reading_of(Path(folder.replace("\0", "")), verdict, None),
                   ruling=replace(BAD, harness=(words,)), failing=(found,), remarks=(("bad line", words),))


@example("|")
@example("```sh\n````")
@example("1. one\n- two\n# three\n<b>four</b>")
@given(st.text(alphabet=st.one_of(st.sampled_from("|`<>&*_[]()#~$!\\-+=1.\n\r\t\x1b @:/"), st.characters())))
def test_words_of_a_run_are_never_markup(words: str) -> None:
    """Outside fences there are only the page's own stars and bars; inside, no line ends the fence."""
    lines = markdown([outcome_with(words, words)]).decode().split("\n")
    opens = next(place for place, line in enumerate(lines) if line.startswith("```"))
    fence = lines[opens].removesuffix("sh")
    assert set(fence) == {"`"}
    closes = lines.index(fence, opens)
    assert [line for line in lines[closes + 1:] if line] == []
    assert not any(fence in line for line in lines[opens + 1:closes])
    assert [line.endswith(": invalid") for line in lines if line.startswith("### ")] == [True]
    for line in lines[:opens]:
        assert not re.search(r"[<>`\\\[\]~$]|&(?!#\d+;)|(?<!&)#(?!#* )", line)
        assert line.count("*") in (0, 4)
        assert line.count("|") in (0, 6)
        assert not re.match(r"\s*- ([-+=]|\d+[.)])", line)


@pytest.mark.parametrize("limit", [LIMIT, 5_000])
def test_a_page_is_bounded_and_states_what_was_cut(limit: int) -> None:
    """10,000 runs, half of them with long texts: the valid ones are cut first, and all are counted."""
    valid = Outcome(reading=reading_of(Path("runs/good"), {"valid": True}, None), ruling=GOOD)
    runs = [valid, outcome_with("what happened | " * 40)] * 5_000
    page = markdown(runs, limit).decode()
    assert len(page.encode()) <= limit
    rows = page.count("\n| runs/")
    assert f"*Cut for length: {10_000 - rows} more runs are not in this table.*" in page
    assert rows > 0
    assert rows <= 5_000 or "| runs/good |" in page
    sections = page.count("\n### ")
    assert f"*Cut for length: the sections of {5_000 - sections} more failing runs are not here.*" in page
    assert page.endswith("*\n")


def test_a_section_is_bounded_too() -> None:
    verdict = {"valid": "unknown", "unknown": [
        {"names": ["unseen"], "reason": f"no final reads of partition {number}"} for number in range(5_000)]}
    outcome = Outcome(reading=reading_of(Path("a"), verdict, None),
                      ruling=Ruling(kind="unknown", word="unknown"))
    page = markdown([outcome]).decode()
    assert "- ... and 4900 more lines: verdict.json has all" in page
    assert len(page) < 10_000
    assert outcome.why.endswith("partition 0 (and 4999 more reasons)")


# -- when nothing could be judged or written ---------------------------------------------------------------


def test_a_judge_that_cannot_start_is_an_error_in_every_report(runs: Path, tmp_path: Path) -> None:
    """The call still fails with its message."""
    run_folder(runs, "broken")
    asked = gate(junit_file=tmp_path / "junit.xml", markdown_file=tmp_path / "summary.md")
    with pytest.raises(FloodmarkError, match="Spark cannot start"):
        check.check_folders([runs / "valid", runs / "broken"], asked)
    cases = cases_of((tmp_path / "junit.xml").read_bytes())
    assert {name: (outcome_in(case) or ())[:2] for name, case in cases.items()} == dict.fromkeys(
        ("valid", "broken"), ("error", "harness"))
    assert (tmp_path / "summary.md").read_text().count("Spark cannot start") == 4


def test_a_report_that_cannot_be_written_fails_the_harness_and_keeps_the_other(
        runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder is a file; no partial file is left."""
    (tmp_path / "file").write_text("")
    asked = gate(junit_file=tmp_path / "file" / "junit.xml", markdown_file=tmp_path / "summary.md")
    assert check.check_folders([runs / "valid"], asked) == 4
    assert "cannot write" in capsys.readouterr().err
    assert (tmp_path / "summary.md").read_text().startswith("## floodmark")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "runs", "summary.md"]


@pytest.mark.parametrize(("name", "code"), [("invalid", 1), ("valid", 4)])
def test_a_verdict_that_cannot_be_printed_hides_no_bug_and_files_are_written_before(
        runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    """`floodmark check ... >/dev/full` gets its report too."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(verdict_text, "print_reports", full)
    asked = gate(junit_file=tmp_path / "junit.xml")
    assert code_of(lambda: check.check_folders([runs / name], asked)) == code
    assert [*cases_of((tmp_path / "junit.xml").read_bytes())] == [name]


# -- the cache for the next call ---------------------------------------------------------------------------


def test_background_work_is_reported_after_the_verdict(
        runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(catalog, "prepare_next_judge", lambda: True)
    check.check_folders([runs / "valid"], gate())
    assert capsys.readouterr().err.splitlines()[-1].startswith("in the background a cache is made")


def test_after_a_failed_judge_there_is_no_background_work(
        runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "prepare_next_judge", lambda: pytest.fail("not expected"))
    with pytest.raises(FloodmarkError):
        check.check_folders([runs / "broken"], gate())


# -- one outcome: in the heading of a report, the count of many, every file and the exit code --------------


ENDS = ("done", "interrupted", "interrupted; n2's log could not be read", "n1 would not start")
OPTIONS = list(product(("", "--strict"), ("", "--allow-unknown"), ("", "lost-write")))


@pytest.fixture
def ended_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each verdict, after a run that came to its end or did not."""
    judge_by(monkeypatch, verdict_of)
    folders = []
    for (name, _), (number, ended) in product(VERDICTS.items(), enumerate(ENDS)):
        folders.append(tmp_path / "runs" / f"{name}+{number}")
        folders[-1].mkdir(parents=True)
        if name != "no-run":
            (folders[-1] / "run.json").write_text(json.dumps({"format": 1, "nodes": ["n1"], "ended": ended}))
        else:
            (folders[-1] / "history.jsonl").touch()
    return folders


def kinds_of(words: Sequence[str]) -> list[str]:
    """Of each word that a report shows, the kind that it begins or ends with."""
    return [run_summary.LET_THROUGH if word.endswith(run_summary.LET_THROUGH) else
            next(kind for kind in EXITS if word.lower().startswith(kind)) for word in words]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_the_word_the_count_and_the_code_agree_everywhere(
        ended_runs: list[Path], tmp_path: Path, options: tuple[str, str, str]) -> None:
    """check, show's heading, rejudge, JUnit and the page, for every way that a run can come out."""
    words = [*filter(None, options[:2]), *(["--allow", options[2]] if options[2] else [])]
    files = ("--junit", tmp_path / "j.xml", "--markdown", tmp_path / "p.md")
    answer = floodmark("check", *ended_runs, *words, *files)
    again = floodmark("rejudge", *ended_runs, *words)
    headings = [re.search(rf"^{re.escape(folder.name)}: (.*)$", answer.out, re.M) for folder in ended_runs]
    shown = [heading[1] for heading in headings if heading]
    kinds = kinds_of(shown)
    assert len(kinds) == len(ended_runs)
    count = run_summary.summary(Ruling(kind=kind, word=kind) for kind in kinds)
    assert answer.out.splitlines()[0] == count
    assert (tmp_path / "p.md").read_text().startswith(f"## floodmark: {count}\n")
    assert f"{count}; 4 changed" in again.err  # nothing is judged of those that have no run.json
    assert answer.code == again.code == worst(EXITS[kind] for kind in kinds)
    assert re.findall(r": (?:unchanged,|still) (.*)$", again.out, re.M) == shown
    page = html.unescape((tmp_path / "p.md").read_text())
    rows = dict(re.findall(r"^\| (\S+) \| \**([^*|:]+?)\**(?:: [^|]*)? \|", page, re.M))
    cases = cases_of((tmp_path / "j.xml").read_bytes())
    for folder, word, kind in zip(ended_runs, shown, kinds, strict=True):
        case = cases[folder.name]
        red = case.find("failure") is not None or case.find("error") is not None
        assert red == (EXITS[kind] != 0)
        assert (case.find("error") is not None) == (EXITS[kind] == 4)
        assert rows[str(folder)] == word.replace("INVALID", "invalid")
        verdict = verdict_of(folder)
        policy = Policy(strict="--strict" in words, allow_unknown="--allow-unknown" in words,
                        allow=frozenset(filter(None, options[2:])))
        assert verdict_text.outcome_of(folder, verdict, policy).code == EXITS[kind]


@pytest.mark.parametrize(("name", "ended", "policy", "word", "code"), [
    ("valid", "done", Policy(), "valid", 0),
    ("valid", "interrupted", Policy(), "interrupted (judged valid)", 4),
    ("valid", "interrupted", Policy(allow_unknown=True), "interrupted (judged valid)", 4),
    ("unknown", "interrupted", Policy(allow_unknown=True), "interrupted (judged unknown)", 4),
    ("invalid", "interrupted", Policy(), "invalid", 1),
    ("invalid", "interrupted", Policy(allow=frozenset({"lost-write"})), "interrupted (judged invalid)", 4),
    ("valid", "n1 would not start", Policy(), "failed in the harness (judged valid)", 4),
    ("permitted", "done", Policy(strict=True), "invalid by --strict", 1),
    ("permitted", "interrupted", Policy(strict=True), "invalid by --strict", 1),
    ("permitted", "done", Policy(strict=True, allow=frozenset({"duplicate"})), "valid", 0),
    ("unknown-permitted", "done", Policy(), "unknown", 3),
    ("unknown", "done", Policy(allow_unknown=True), "unknown, let through", 0),
    ("invalid", "done", Policy(allow=frozenset({"lost-write"})), "unknown (invalid let through)", 3),
    ("invalid", "done", Policy(allow=frozenset({"lost-write"}), allow_unknown=True),
     "invalid, let through", 0),
    ("no-run", "done", Policy(), "failed in the harness", 4),
])
def test_each_outcome_of_a_run_has_its_word(
        name: str, ended: str, policy: Policy, word: str, code: int) -> None:
    ruled = run_summary.ruling(report.as_json(VERDICTS[name]), {"ended": ended}, policy)
    assert (ruled.word, ruled.code) == (word, code)


@pytest.mark.parametrize(("name", "policy", "effects"), [
    ("permitted", Policy(allow=frozenset({"duplicate"})), []),
    ("permitted", Policy(strict=True, allow=frozenset({"duplicate"})), ["--allow: duplicate let through"]),
    ("permitted", Policy(strict=True), ["--strict: duplicate counted as bugs"]),
    ("invalid", Policy(allow=frozenset({"lost-write"})), ["--allow: lost-write let through"]),
    ("valid", Policy(allow_unknown=True), [])])
def test_an_option_is_told_only_where_it_changes_the_result(
        name: str, policy: Policy, effects: list[str]) -> None:
    assert verdict_text.effects_of_options(VERDICTS[name], policy) == effects


@pytest.mark.parametrize(("about", "message"), [
    ({"ended": "n1 would not start"}, "the run ended early: n1 would not start"),
    ({"ended": "done", "died": 5}, "has no list"), ({"ended": "done", "schedule": "none"}, "has no list"),
    ({"ended": "done", "format": 2}, "is missing")])
def test_no_option_lets_a_harness_failure_through(
        tmp_path: Path, about: dict[str, object], message: str) -> None:
    """A saved run gets the same answer as when it was made; a bug in it is still a bug."""
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "nodes": ["n1"], **about}))
    for name in ("valid", "permitted", "unknown", "unknown-permitted", "invalid"):
        outcome = verdict_text.outcome_of(tmp_path, VERDICTS[name], Policy(allow_unknown=True))
        assert outcome.code == (1 if name == "invalid" else 4)
        assert message in outcome.ruling.harness[0]


def test_show_prints_the_heading_that_check_printed(ended_runs: list[Path]) -> None:
    """Without options: show has no gate."""
    answer = floodmark("check", *ended_runs)
    for folder in ended_runs:
        if (folder / "run.json").exists():
            assert floodmark("show", folder).out.splitlines()[0] in answer.out.splitlines()

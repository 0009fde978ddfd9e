"""A run has one outcome: in the heading of its report, the count of many, every file and the exit code."""

import html
import json
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import floodmark
from judged_runs import judge_by

from floodmark.checkers.judge import report
from floodmark.harness.report.run_summary import EXITS, LET_THROUGH, Ruling, ruling, summary
from floodmark.harness.report.verdict_text import effects_of_options, outcome_of
from floodmark.harness.verdict import Finding, Policy, Unknown, Verdict, worst

BUG = Finding(name="lost-write", klass="bug", permitted_by=None, count=2)
PERMITTED = Finding(name="duplicate", klass="permitted", permitted_by="retries", count=1)
UNSEEN = Unknown(names=("unseen",), reason="no final reads of partition 0")
COUNTS = {"ops": 5}
VERDICTS = {
    "valid": Verdict(valid=True, counts=COUNTS),
    "permitted": Verdict(valid=True, findings=(PERMITTED,), counts=COUNTS),
    "unknown": Verdict(valid="unknown", unknown=(UNSEEN,), counts=COUNTS),
    "unknown-permitted": Verdict(valid="unknown", findings=(PERMITTED,), unknown=(UNSEEN,), counts=COUNTS),
    "invalid": Verdict(valid=False, findings=(BUG, PERMITTED), unknown=(UNSEEN,), counts=COUNTS),
    "no-run": Verdict(valid="unknown", unknown=(Unknown(names=("unseen",), reason="it has no run.json"),)),
}
ENDS = ("done", "interrupted", "interrupted; n2's log could not be read", "n1 would not start")
OPTIONS = list(product(("", "--strict"), ("", "--allow-unknown"), ("", "lost-write")))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each verdict, after a run that came to its end or did not."""
    judge_by(monkeypatch, lambda folder: VERDICTS[folder.name.split("+")[0]])
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
    return [LET_THROUGH if word.endswith(LET_THROUGH) else
            next(kind for kind in EXITS if word.lower().startswith(kind)) for word in words]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_the_word_the_count_and_the_code_agree_everywhere(
        runs: list[Path], tmp_path: Path, options: tuple[str, str, str]) -> None:
    """check, show's heading, rejudge, JUnit and the page, for every way that a run can come out."""
    words = [*filter(None, options[:2]), *(["--allow", options[2]] if options[2] else [])]
    answer = floodmark("check", *runs, *words, "--junit", tmp_path / "j.xml", "--markdown", tmp_path / "p.md")
    again = floodmark("rejudge", *runs, *words)
    headings = [re.search(rf"^{re.escape(folder.name)}: (.*)$", answer.out, re.M) for folder in runs]
    shown = [heading[1] for heading in headings if heading]
    kinds = kinds_of(shown)
    assert len(kinds) == len(runs)
    count = summary(Ruling(kind=kind, word=kind) for kind in kinds)
    assert answer.out.splitlines()[0] == count
    assert (tmp_path / "p.md").read_text().startswith(f"## floodmark: {count}\n")
    assert f"{count}; 4 changed" in again.err  # nothing is judged of those that have no run.json
    assert answer.code == again.code == worst(EXITS[kind] for kind in kinds)
    assert re.findall(r": (?:unchanged,|still) (.*)$", again.out, re.M) == shown
    page = html.unescape((tmp_path / "p.md").read_text())
    rows = dict(re.findall(r"^\| (\S+) \| \**([^*|:]+?)\**(?:: [^|]*)? \|", page, re.M))
    for folder, word, kind in zip(runs, shown, kinds, strict=True):
        case = case_of(tmp_path / "j.xml", folder)
        red = case.find("failure") is not None or case.find("error") is not None
        assert red == (EXITS[kind] != 0)
        assert (case.find("error") is not None) == (EXITS[kind] == 4)
        assert rows[str(folder)] == word.replace("INVALID", "invalid")
        verdict = VERDICTS[folder.name.split("+")[0]]
        policy = Policy(strict="--strict" in words, allow_unknown="--allow-unknown" in words,
                        allow=frozenset(filter(None, options[2:])))
        assert outcome_of(folder, verdict, policy).code == EXITS[kind]


def case_of(file: Path, folder: Path) -> ElementTree.Element:
    """The test case whose report is about the folder."""
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        text = "".join(child.text or "" for child in case)
        if text.startswith(f"{folder.name}: "):
            return case
    raise AssertionError(folder)


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
    ruled = ruling(report.as_json(VERDICTS[name]), {"ended": ended}, policy)
    assert (ruled.word, ruled.code) == (word, code)


@pytest.mark.parametrize(("name", "policy", "effects"), [
    ("permitted", Policy(allow=frozenset({"duplicate"})), []),
    ("permitted", Policy(strict=True, allow=frozenset({"duplicate"})), ["--allow: duplicate let through"]),
    ("permitted", Policy(strict=True), ["--strict: duplicate counted as bugs"]),
    ("invalid", Policy(allow=frozenset({"lost-write"})), ["--allow: lost-write let through"]),
    ("valid", Policy(allow_unknown=True), [])])
def test_an_option_is_told_only_where_it_changes_the_result(
        name: str, policy: Policy, effects: list[str]) -> None:
    assert effects_of_options(VERDICTS[name], policy) == effects


@pytest.mark.parametrize(("about", "message"), [
    ({"ended": "n1 would not start"}, "the run ended early: n1 would not start"),
    ({"ended": "done", "died": 5}, "has no list"), ({"ended": "done", "schedule": "none"}, "has no list"),
    ({"ended": "done", "format": 2}, "is missing")])
def test_no_option_lets_a_harness_failure_through(
        tmp_path: Path, about: dict[str, object], message: str) -> None:
    """A saved run gets the same answer as when it was made; a bug in it is still a bug."""
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "nodes": ["n1"], **about}))
    for name in ("valid", "permitted", "unknown", "unknown-permitted", "invalid"):
        outcome = outcome_of(tmp_path, VERDICTS[name], Policy(allow_unknown=True))
        assert outcome.code == (1 if name == "invalid" else 4)
        assert message in outcome.ruling.harness[0]


def test_show_prints_the_heading_that_check_printed(runs: list[Path]) -> None:
    """Without options: show has no gate."""
    answer = floodmark("check", *runs)
    for folder in runs:
        if (folder / "run.json").exists():
            assert floodmark("show", folder).out.splitlines()[0] in answer.out.splitlines()

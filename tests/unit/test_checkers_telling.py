"""The words of the judge: explanations, sentences, what a check needs; and the error without Java."""

from itertools import chain, combinations
from pathlib import Path

import finding_tables
import pytest
import twin
from trace_laws import FIELDS

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.laws.permits import PERMITTED_BY
from floodmark.checkers.read import observed
from floodmark.checkers.read.observed import Observes, observes_of
from floodmark.checkers.spark import session
from floodmark.checkers.text import explain
from floodmark.checkers.text.words import text_of
from floodmark.harness.commands.explain import explain_finding
from floodmark.harness.errors import FloodmarkError


@pytest.mark.parametrize(("row", "sentence"), [
    ({"name": names.HW_REGRESSED, "offset": 5, "seen": 6, "nodes": ["n2"], "node": "n2", "seq": 9},
     "The HW of n2, leading partition 0, fell from 6 to 5 in one epoch (n2, seq 9 of its trace)."),
    ({"name": names.END_OFFSET_REGRESSED, "offset": 5, "seen": 6, "process": 3},
     "Process 3 got end offset 5 of partition 0, after it had seen that it is at least 6."),
])
def test_the_sentence_contains_each_number(row: dict[str, object], sentence: str) -> None:
    assert text_of(str(row["name"]), {"partition": 0, **row}) == sentence


def test_the_page_has_the_tables_of_the_findings() -> None:
    """The tables of the public page on run folders are made from the records: `make findings`."""
    page = finding_tables.PAGE.read_text(encoding="utf-8")
    assert page == finding_tables.with_tables(page)


def test_every_finding_that_is_made_is_explained_with_its_law_and_the_facts_about_it() -> None:
    """And nothing else is. Every cause that permits one has its meaning; every fact that is named exists."""
    assert {*names.MADE, names.UNFIT} == set(explain.EXPLANATIONS)
    assert all(one.means and one.near_miss and one.permitted for one in explain.EXPLANATIONS.values())
    assert set(PERMITTED_BY.values()) == set(explain.PERMISSIONS)
    explained = [*explain.EXPLANATIONS.values(), *explain.PERMISSIONS.values()]
    assert {fact for one in explained for fact in one.facts} <= set(explain.FACTS)
    assert [*explain.FACTS] == [f"S{number}" for number in range(1, 21)]
    assert all(fact.thought.endswith(".") and fact.holds.endswith(".") for fact in explain.FACTS.values())
    assert all(one.law and not one.law.endswith(".") for one in explain.EXPLANATIONS.values())


HOWS = {
    "lost-write": ("moved", "overwritten", "orphaned", "gone", "unread"),
    "G1a": ("", "aborted"),
    "torn-transaction": ("aborted", "absent", "passed"),
    "epoch-lineage": ("two records", "falls", "cache", "cache above LEO"),
    "ack-rule": ("hw", "isr", "member"),
    "candidate-incomplete": ("short", "other"),
    "unsafe-isr": ("behind", "leader", "order", "smaller"),
    "malformed-log": ("gap", "doubled", "disordered", "crc", "hw", "leo", "log_start"),
}


@pytest.mark.parametrize("name", names.MADE)
def test_every_finding_has_a_sentence(name: str) -> None:
    """One or two, however long the numbers; also if most of its fields are empty. It names the node, else the
    partition."""
    far = 2**63 - 1
    for how in HOWS.get(name, ("no leader", "no leader and no ack")):
        text = text_of(name, {
            **dict.fromkeys(("offset", "value", "seen", "epoch")), "partition": 3, "how": how, "ops": [],
            "nodes": ["n2"], "process": 1, "timeout_s": 30, "node": "n3", "seq": 3})
        assert ("n2" if name == names.BROKER_DIED else "3") in text
        assert text.endswith(".")
        if name in names.CYCLES:
            continue
        numbers = ("partition", "offset", "value", "seen", "process", "seq", "epoch", "timeout_s")
        text = text_of(name, {
            **dict.fromkeys(numbers, far), "ops": [far, far, far], "node": "controller", "how": how,
            "nodes": [f"node-{number}" for number in range(5)]})
        assert len(text) < 400
        assert text.count(". ") <= 1


@pytest.mark.parametrize(("release", "version"), [
    ('JAVA_VERSION="17.0.15"', 17), ('JAVA_VERSION="21"', 21), ('JAVA_VERSION="1.8.0_392"', 8),
    ('JAVA_VERSION="11.0.2"', 11)])
def test_the_java_version_is_read_from_its_release_file_and_too_old_a_java_is_refused(
        release: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without starting it; before 9 the version began with 1."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "release").write_text(release)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    if version >= 17:
        assert session.usable_java() == (java, version)
    else:
        with pytest.raises(FloodmarkError, match=f"Java {version}; the judge needs Java 17"):
            session.usable_java()


# -- what a check needs that a system shows (run.json's `observes`); tests/corpus/observed.txt has the cases -


NEEDED_EVENTS = {name: names.LAWS[name].needs - names.FILES for name in names.OF_THE_TRACE}
EVENTS = frozenset().union(*NEEDED_EVENTS.values())
OF_FILES = tuple(name for name, law in names.LAWS.items() if "dumps" in law.needs)


def test_every_check_of_the_trace_has_its_events() -> None:
    """And each is an event of the format's table."""
    assert {*FIELDS} >= EVENTS
    assert names.LOST_WRITE not in OF_FILES


def test_explain_says_what_a_check_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """For every check that may be not made, and nothing for the others."""
    for name in names.MADE:
        assert explain_finding(name) == 0
        output = capsys.readouterr().out
        assert ("  needs      " in output) == (name in {*OF_FILES, *NEEDED_EVENTS}), name
        for event in NEEDED_EVENTS.get(name, ()):
            assert event in output.split("  needs      ")[1], (name, event)


def test_with_more_observed_events_no_check_is_dropped() -> None:
    """And lost-write is always made."""
    events = sorted(EVENTS)
    for few in chain.from_iterable(combinations(events, number) for number in range(3)):
        less = observes_of({"observes": {"dumps": False, "trace": list(few)}})
        more = observes_of({"observes": {"dumps": False, "trace": [*few, "ack", "hw"]}})
        left_out = [{name for one in observed.not_made(each) for name in one.names} for each in (less, more)]
        assert left_out[1] <= left_out[0]
        assert names.LOST_WRITE not in left_out[0]
    assert observed.not_made(Observes()) == ()
    assert twin.judge(Path("/nowhere"))["not_made"] == []

"""Preconditions merged from ranges: however the files are cut, and in whatever order the facts arrive."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from floodmark.checkers.judge.preconditions import Preconditions, preconditions_of
from floodmark.checkers.read.facts import AcrossFacts, DumpFacts, HistoryFacts, TraceFacts
from floodmark.checkers.read.observed import Observes
from floodmark.checkers.read.ranges import Kind, Range
from floodmark.checkers.read.tables import read_bytes

FAR = (1 << 63) - 1
BROKEN, BLANK = '{"f": "kill"', ""
OPS: Sequence[dict[str, Any]] = (
    {"process": 3, "type": "ok", "f": "send", "sends": [{"partition": 5, "value": 7, "offset": 0}]},
    {"process": 3, "type": "invoke", "f": "assign", "partitions": [8, 9]},
    {"process": 4, "type": "fail", "f": "txn", "sends": [], "reads": [
        {"partition": 6, "value": 1, "offset": 4}]},
    {"process": -1, "type": "info", "f": "kill", "fault": {"nodes": ["n1"]}},
)


def op(index: int, time: int) -> str:
    return json.dumps({"index": index, "time": time, **OPS[index % len(OPS)]})


def traced(node: str, seq: int) -> str:
    line = {"time": 1, "node": node, "seq": seq, "event": "start" if seq % 2 else "checkpoint"}
    return json.dumps({**line, "clean": True})


def entry(partition: int) -> str:
    return json.dumps({"node": "n1", "partition": partition, "offset": 0, "epoch": 0, "value": 1, "crc": 7})


def facts(kind: Kind, *ranges: Sequence[str]) -> Iterator[Any]:
    """Of a file's ranges in order."""
    for number, lines in enumerate(ranges):
        at = Range(run=0, kind=kind, node="n1" if kind == "dump" else None, place=Path(), start=0, end=0,
                   number=number)
        yield read_bytes(at, "".join(f"{line}\n" for line in lines).encode()).facts


def cut(random: Random, lines: Sequence[str]) -> list[Sequence[str]]:
    """Some of the ranges may be empty."""
    cuts = sorted(random.choices(range(len(lines) + 1), k=random.randrange(6)))
    return [lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]


def damaged(random: Random, lines: Sequence[str], share: float) -> list[str]:
    return [random.choice((BROKEN, BLANK)) if random.random() < share else line for line in lines]


def random_history(random: Random) -> list[str]:
    """Mostly in order."""
    at = [(number, 10 * number) for number in range(random.randrange(14))]
    for _ in range(random.choice((0, 0, 1, 2)) if at else 0):
        number = random.randrange(len(at))
        index, time = at[number]
        at[number] = random.choice((index, 3, FAR)), random.choice((time, 25, 0, FAR))
    return damaged(random, [op(*one) for one in at], random.choice((0, 0, 0.2)))


def merged(ranges: Sequence[Any]) -> Preconditions:
    """Lines of the trace by their numbers in the file."""
    found = preconditions_of(0, ranges)
    rulings = tuple({**one, "at": found.line_at(one["at"])} for one in found.trace.rulings)
    return replace(found, trace=replace(found.trace, rulings=rulings))


def test_any_cut_in_any_order_merges_as_one_range() -> None:
    outcomes = set()
    for number in range(25):
        random = Random(number)
        files: dict[Kind, list[str]] = {
            "history": random_history(random),
            "dump": damaged(random, [entry(partition) for partition in (4, 5, 5, 90, 0)], 0.2),
            "trace": damaged(random, [traced(random.choice("ab"), at // 2) for at in range(9)], 0.1)}
        whole = merged([one for kind, lines in files.items() for one in facts(kind, lines)])
        ranges = [one for kind, lines in files.items() for one in facts(kind, *cut(random, lines))]
        assert merged(random.sample(ranges, len(ranges))) == whole, number
        outcomes.add((whole.in_order, whole.disordered, whole.falls is None, whole.history.broken == 0))
        assert_agrees_with_all_lines(whole, files["history"])
    assert len(outcomes) >= 5, outcomes


def assert_agrees_with_all_lines(found: Preconditions, lines: Sequence[str]) -> None:
    """As computed plainly from all lines."""
    there = [line for line in lines if line != BLANK]
    numbers = [None if line == BROKEN else json.loads(line) for line in there]
    good = [(one["index"], one["time"]) for one in numbers if one]
    assert (found.history.lines, found.history.broken) == (len(there), len(there) - len(good))
    assert found.history.first_broken_line == (lines.index(BROKEN) + 1 if BROKEN in lines else None)
    assert found.in_order is all(one is None or one["index"] == at for at, one in enumerate(numbers))
    indexes = [index for index, _ in good]
    rises = all(index > max(indexes[:at]) for at, index in enumerate(indexes) if at)
    assert found.disordered is not rises
    falls = (index for at, (index, time) in enumerate(good) if at and time < max(t for _, t in good[:at]))
    assert found.falls == next(falls, None)


def test_the_lowest_unmatched_completion_is_kept() -> None:
    for paired, answered, lowest in ((4, 3, 3), (4, None, 4), (None, 3, 3)):
        found = preconditions_of(0, [AcrossFacts(run=0, unmatched=each) for each in (paired, answered)])
        assert found.across.unmatched == lowest


def test_partitions_that_are_only_assigned_are_listed_and_not_used() -> None:
    history = HistoryFacts(run=0, number=0, used=((0, 1),), assigned=((1, 3),))
    dump = DumpFacts(run=0, number=0, node="n1", partitions=((7, 7),))
    found = preconditions_of(0, [history, dump])
    assert (found.partitions, found.used) == ({0, 1, 2, 3}, {0, 1, 7})


def test_a_dump_of_which_one_range_cannot_be_read_is_used_as_far_as_it_can() -> None:
    """Its flaw is the first; another node's broken line has its number in the file."""
    found = preconditions_of(0, [
        DumpFacts(run=0, number=1, node="n1", places=3, lines=2, broken=1, first_broken=2),
        DumpFacts(run=0, number=0, node="n1", places=4, lines=4),
        DumpFacts(run=0, number=0, node="n3", places=1, lines=1, partitions=((5, 5),)),
        DumpFacts(run=0, number=1, node="n3", flaw="rotten"),
        DumpFacts(run=0, number=2, node="n3", flaw="more rotten"),
    ])
    assert (found.dumps["n1"].lines, found.dumps["n1"].first_broken_line) == (6, 7)
    assert (found.flaws, found.used) == ({"n3": "rotten"}, frozenset({5}))


def of_trace(*lines: tuple[str, int]) -> TraceFacts:
    (found,) = facts("trace", [traced(*line) for line in lines])
    assert isinstance(found, TraceFacts)
    return found


@pytest.mark.parametrize(("lines", "flaw"), [
    ("n1 0 n1 1 n2 0 n2 1 c 0", None),
    ("n1 0 c 0", "it has no line of n2"),
    ("n1 0 n2 0", "it has no line of a controller"),
    ("n1 1 n1 0 n2 0 n2 2 c 0", "seq has a gap in the lines of n2"),
    ("n1 0 n1 0 n2 0 c 0", "seq has a gap in the lines of n1"),
    ("n1 2 n2 0 c 0", "seq has a gap in the lines of n1"),  # what came before is missing
])
def test_what_is_missing_in_a_trace_is_its_flaw(lines: str, flaw: str | None) -> None:
    words = lines.split()
    found = of_trace(*zip(words[::2], map(int, words[1::2]), strict=True))
    assert found.flaw(["n1", "n2"], Observes()) == flaw


def test_a_trace_without_elections_needs_no_controller() -> None:
    assert of_trace(("n1", 0)).flaw(["n1"], Observes(events=frozenset({"truncate"}))) is None


def test_an_election_by_a_broker_breaks_the_table_of_events() -> None:
    line = {"node": "n1", "event": "elect", "seq": 0}
    found = replace(of_trace(("n1", 0), ("c", 0)), rulings=(line,))
    assert found.flaw(["n1"], Observes()) == "1 line is not as the table of events says"
    assert replace(found, rulings=({**line, "node": "c"},)).flaw(["n1"], Observes()) is None
    assert replace(found, broken=2, rulings=()).flaw(["n1"], Observes()) == (
        "2 lines are not as the table of events says")

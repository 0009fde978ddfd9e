"""Preconditions merged from ranges: however the files are cut, and in whatever order the facts arrive."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from random import Random
from typing import Any

import numpy as np
import pytest

from floodmark.checkers.judge.preconditions import Preconditions, preconditions_of
from floodmark.checkers.read.arrays import mixed
from floodmark.checkers.read.facts import (
    AcrossFacts,
    DumpFacts,
    Facts,
    HistoryFacts,
    Order,
    Seqs,
    TraceFacts,
    joined,
)
from floodmark.checkers.read.observed import Observes

FAR = (1 << 63) - 1
BROKEN, BLANK = "broken", "blank"
Line = tuple[int, int] | str  # index and time of a good one


# -- facts of ranges, computed plainly ----------------------------------------------------------------------


def counts(number: int, lines: Sequence[object]) -> dict[str, Any]:
    """The fields that facts of every kind have."""
    return {
        "run": 0, "number": number, "places": len(lines), "lines": sum(line != BLANK for line in lines),
        "broken": sum(line == BROKEN for line in lines),
        "first_broken": lines.index(BROKEN) if BROKEN in lines else None,
    }  # fmt: skip


def of_history(number: int, lines: Sequence[Line]) -> HistoryFacts:
    there = [line for line in lines if line != BLANK]
    good = [line for line in there if isinstance(line, tuple)]
    index, time = [line[0] for line in good], [line[1] for line in good]
    shifts = {line[0] - place for place, line in enumerate(there) if isinstance(line, tuple)}
    fallen = (index[at] for at in range(1, len(good)) if time[at] < max(time[:at]))
    order = Order(
        first_index=index[0], least_index=min(index), highest_index=max(index),
        shift=shifts.pop() if len(shifts) == 1 else None,
        rises=all(one < other for one, other in pairwise(index)),
        first_time=time[0], highest_time=max(time), falls=next(fallen, None),
    ) if good else None  # fmt: skip
    return HistoryFacts(
        **counts(number, lines), order=order, ok=len(good), acked=2 * len(good),
        acked_at_first=joined(*(((each, each),) for each in takewhile(lambda each: each % 3, index))),
        used=joined(*(((each % 7, each % 7),) for each in index)),
        assigned=joined(*(((each % 5 + 10, each % 5 + 10),) for each in index)),
        nemesis=tuple({"index": each} for each in index if each % 3 == 0),
    )  # fmt: skip


def of_seqs(*seqs: int) -> Seqs:
    digest = int(mixed(np.array(seqs, dtype=np.uint64)).sum())
    return Seqs(lines=len(seqs), first=min(seqs), last=max(seqs), digest=digest)


def of_trace(number: int, lines: Sequence[Any]) -> TraceFacts:
    """A good line is its node and seq."""
    good = [line for line in lines if isinstance(line, tuple)]
    rulings = tuple({"event": "start", "node": node, "seq": seq} for node, seq in good if seq % 2)
    seqs = {node: of_seqs(*(seq for one, seq in good if one == node)) for node, _ in good}
    return TraceFacts(**counts(number, lines), nodes=seqs, rulings=rulings)


def of_dump(number: int, lines: Sequence[Any]) -> DumpFacts:
    """A good line is its partition."""
    there = joined(*(((line, line),) for line in lines if isinstance(line, int)))
    return DumpFacts(**counts(number, lines), node="n1", partitions=there)


def cut(random: Random, lines: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
    """Ranges with their numbers; some may be empty."""
    cuts = sorted(random.choices(range(len(lines) + 1), k=random.randrange(6)))
    return list(enumerate(lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)))


def merged(*ranges: Facts) -> Preconditions:
    return preconditions_of(0, ranges)


def damaged(random: Random, lines: list[Any], share: float) -> list[Any]:
    return [random.choice((BROKEN, BLANK)) if random.random() < share else line for line in lines]


def random_history(random: Random) -> list[Any]:
    """Mostly in order."""
    lines: list[Any] = [(at, 10 * at) for at in range(random.randrange(14))]
    for _ in range(random.choice((0, 0, 1, 2))):
        if lines:
            at = random.randrange(len(lines))
            lines[at] = random.choice((lines[at][0], 3, FAR)), random.choice((lines[at][1], 25, 0, FAR))
    return damaged(random, lines, random.choice((0, 0, 0.2)))


# -- however they are cut -----------------------------------------------------------------------------------


def test_any_cut_in_any_order_merges_as_one_range() -> None:
    kinds = set()
    for number in range(600):
        random = Random(number)
        lines, entries = random_history(random), damaged(random, [4, 5, 5, 90, 0], 0.2)
        trace = damaged(random, [(random.choice("ab"), at // 2) for at in range(9)], 0.1)
        whole = merged(of_history(0, lines), of_dump(0, entries), of_trace(0, trace))
        ranges: list[Facts] = [
            *(of_history(*each) for each in cut(random, lines)),
            *(of_dump(*each) for each in cut(random, entries)),
            *(of_trace(*each) for each in cut(random, trace)),
        ]
        assert merged(*random.sample(ranges, len(ranges))) == whole, number
        kinds.add((whole.in_order, whole.disordered, whole.falls is None, whole.history.broken == 0))
        assert_agrees_with_all_lines(whole, lines)
    assert len(kinds) >= 8, kinds


def assert_agrees_with_all_lines(found: Preconditions, lines: Sequence[Any]) -> None:
    """As computed plainly from all lines."""
    there = [line for line in lines if line != BLANK]
    good = [line for line in there if line != BROKEN]
    assert (found.history.lines, found.history.broken) == (len(there), len(there) - len(good))
    assert found.history.first_broken_line == (list(lines).index(BROKEN) + 1 if BROKEN in lines else None)
    assert found.in_order is all(line == BROKEN or line[0] == at for at, line in enumerate(there))
    indexes = [index for index, _ in good]
    rises = all(index > max(indexes[:at]) for at, index in enumerate(indexes) if at)
    assert found.disordered is not rises
    falls = (index for at, (index, time) in enumerate(good) if at and time < max(t for _, t in good[:at]))
    assert found.falls == next(falls, None)


def test_the_lowest_unmatched_completion_is_kept() -> None:
    for paired, answered, lowest in ((4, 3, 3), (4, None, 4), (None, 3, 3), (None, None, None)):
        one = preconditions_of(
            0, [AcrossFacts(run=0, unmatched=each) for each in (paired, answered)])
        assert one.across.unmatched == lowest


# -- the history --------------------------------------------------------------------------------------------


def test_partitions_that_are_only_assigned_are_listed_and_not_used() -> None:
    facts = HistoryFacts(run=0, number=0, used=((0, 1),), assigned=((1, 3),))
    dump = DumpFacts(run=0, number=0, node="n1", partitions=((7, 7),))
    found = merged(facts, dump)
    assert found.partitions == {0, 1, 2, 3}
    assert found.used == {0, 1, 7}


# -- dumps --------------------------------------------------------------------------------------------------


def test_dumps_by_node() -> None:
    found = merged(
        DumpFacts(run=0, number=1, node="n1", places=3, lines=2, broken=1, first_broken=2),
        DumpFacts(run=0, number=0, node="n1", places=4, lines=4),
        DumpFacts(run=0, number=0, node="n2"),
        DumpFacts(run=0, number=0, node="n3", places=1, lines=1, partitions=((5, 5),)),
        DumpFacts(run=0, number=1, node="n3", flaw="rotten"),
        DumpFacts(run=0, number=2, node="n3", flaw="more rotten"),
    )
    assert (found.dumps["n1"].lines, found.dumps["n2"].lines) == (6, 0)
    assert (found.dumps["n1"].broken, found.dumps["n1"].first_broken_line) == (1, 7)
    assert found.flaws == {"n3": "rotten"}
    assert found.used == frozenset()


# -- the trace ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seqs", "complete"), [
    ((0, 1, 2), True),
    ((3, 1, 2), True),
    ((2, 3, 4), False),  # what came before is missing
    ((0, 1, 2, 2), False),
    ((0, 2, 3), False),
    ((0, 2, 2, 3), False),
    ((0, 1, 1, 4, 4, 5), False),
])
def test_a_node_is_complete_if_every_seq_is_there_once(seqs: tuple[int, ...], *, complete: bool) -> None:
    assert of_seqs(*seqs).complete is complete


def flaw_of(nodes: Sequence[str], observes: Observes | None = None, **seqs: tuple[int, ...]) -> str | None:
    facts = TraceFacts(run=0, number=0, nodes={node: of_seqs(*its) for node, its in seqs.items()})
    return facts.flaw(nodes, observes or Observes())


def test_what_is_missing_in_a_trace_is_its_flaw() -> None:
    assert flaw_of(["n1", "n2"], n1=(0, 1), n2=(0, 1), controller=(0, 1)) is None
    assert flaw_of(["n1", "n2"], n1=(0, 1), controller=(0, 1)) == "it has no line of n2"
    assert flaw_of(["n1", "n2"], n1=(0, 1), n2=(0, 1)) == "it has no line of a controller"
    gap = flaw_of(["n1", "n2"], n1=(0, 1), n2=(0, 2), controller=(0, 1))
    assert gap == "seq has a gap in the lines of n2"
    assert flaw_of(["n1"], Observes(events=frozenset({"truncate"}))) is None


def test_an_election_by_a_broker_breaks_the_table_of_events() -> None:
    line = {"node": "n1", "event": "elect", "seq": 0}
    found = TraceFacts(run=0, number=0, nodes={"n1": of_seqs(0), "c": of_seqs(0)}, rulings=(line,))
    assert found.flaw(["n1"], Observes()) == "1 line is not as the table of events says"
    assert replace(found, rulings=({**line, "node": "c"},)).flaw(["n1"], Observes()) is None
    assert replace(found, broken=2, rulings=()).flaw(["n1"], Observes()) == (
        "2 lines are not as the table of events says"
    )

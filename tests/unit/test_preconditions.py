"""Preconditions merged from ranges: however the files are cut, and in whatever order the facts arrive."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, takewhile
from random import Random
from typing import Any

import pytest

from floodmark.checkers.judge.preconditions import NodeSeqs, Preconditions, TraceSummary, preconditions_of
from floodmark.checkers.read.facts import DumpFacts, Facts, HistoryFacts, TraceFacts, joined
from floodmark.checkers.read.observed import Observes
from floodmark.checkers.read.pairing import PairingFacts
from floodmark.checkers.read.repeats import RepeatFacts
from floodmark.checkers.read.seqs import SeqFacts

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
    return HistoryFacts(
        **counts(number, lines),
        first_index=index[0] if good else None, least_index=min(index, default=None),
        highest_index=max(index, default=None), shift=shifts.pop() if len(shifts) == 1 else None,
        rises=all(one < other for one, other in pairwise(index)),
        first_time=time[0] if good else None,
        highest_time=max(time, default=None), falls=next(fallen, None), ok=len(good), acked=2 * len(good),
        acked_at_first=joined(*(((each, each),) for each in takewhile(lambda each: each % 3, index))),
        used=joined(*(((each % 7, each % 7),) for each in index)),
        assigned=joined(*(((each % 5 + 10, each % 5 + 10),) for each in index)),
        nemesis=tuple(json.dumps({"index": each}) for each in index if each % 3 == 0),
    )  # fmt: skip


def of_trace(number: int, lines: Sequence[Any]) -> tuple[TraceFacts, SeqFacts]:
    """A good line is its node and seq."""
    good = [line for line in lines if isinstance(line, tuple)]
    rulings = tuple({"event": "start", "node": node, "seq": seq} for node, seq in good if seq % 2)
    seqs = {node: joined(*(((seq, seq),) for one, seq in good if one == node)) for node, _ in good}
    counted = Counter(node for node, _ in good)
    return TraceFacts(**counts(number, lines), nodes=counted, rulings=rulings), SeqFacts(run=0, nodes=seqs)


def of_dump(number: int, lines: Sequence[Any]) -> DumpFacts:
    """A good line is its partition."""
    there = joined(*(((line, line),) for line in lines if isinstance(line, int)))
    return DumpFacts(**counts(number, lines), node="n1", partitions=there)


def cut(random: Random, lines: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
    """Ranges with their numbers; some may be empty."""
    cuts = sorted(random.choices(range(len(lines) + 1), k=random.randrange(6)))
    return list(enumerate(lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)))


def merged(*ranges: Facts | SeqFacts) -> Preconditions:
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
        whole = merged(of_history(0, lines), of_dump(0, entries), *of_trace(0, trace))
        ranges: list[Facts | SeqFacts] = [
            *(of_history(*each) for each in cut(random, lines)),
            *(of_dump(*each) for each in cut(random, entries)),
            *(facts for each in cut(random, trace) for facts in of_trace(*each)),
        ]
        assert merged(*random.sample(ranges, len(ranges))) == whole, number
        kinds.add((whole.in_order, whole.disordered, whole.falls is None, whole.first_bad is None))
        assert_agrees_with_all_lines(whole, lines)
    assert len(kinds) >= 8, kinds


def assert_agrees_with_all_lines(found: Preconditions, lines: Sequence[Any]) -> None:
    """As computed plainly from all lines."""
    there = [line for line in lines if line != BLANK]
    good = [line for line in there if line != BROKEN]
    assert (found.lines, found.bad) == (len(there), len(there) - len(good))
    assert found.first_bad == (list(lines).index(BROKEN) + 1 if BROKEN in lines else None)
    assert found.in_order is all(line == BROKEN or line[0] == at for at, line in enumerate(there))
    indexes = [index for index, _ in good]
    rises = all(index > max(indexes[:at]) for at, index in enumerate(indexes) if at)
    assert found.disordered is not rises
    falls = (index for at, (index, time) in enumerate(good) if at and time < max(t for _, t in good[:at]))
    assert found.falls == next(falls, None)


def test_the_lowest_unmatched_completion_is_kept() -> None:
    for paired, answered, lowest in ((4, 3, 3), (4, None, 4), (None, 3, 3), (None, None, None)):
        one = preconditions_of(
            0, [PairingFacts(run=0, unmatched=paired), RepeatFacts(run=0, unmatched=answered)])
        assert one.unmatched == lowest


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
    assert found.entries == {"n1": 6}
    assert found.bad_entries == {"n1": 1}
    assert found.first_bad_entries == {"n1": 7}
    assert found.flaws == {"n3": "rotten"}
    assert found.used == frozenset()


# -- the trace ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lines", "seqs", "complete"), [
    (3, ((0, 2),), True),
    (3, ((1, 3),), True),
    (3, ((2, 4),), False),  # what came before is missing
    (4, ((0, 2),), False),  # one of them twice
    (3, ((0, 0), (2, 3)), False),
])
def test_a_node_is_complete_if_every_seq_is_there_once(
    lines: int, seqs: tuple[tuple[int, int], ...], *, complete: bool
) -> None:
    assert NodeSeqs(lines=lines, seqs=seqs).complete is complete


def summary(**nodes: tuple[int, tuple[tuple[int, int], ...]]) -> TraceSummary:
    return TraceSummary(
        nodes={node: NodeSeqs(lines=lines, seqs=seqs) for node, (lines, seqs) in nodes.items()}
    )


def test_what_is_missing_in_a_trace_is_its_flaw() -> None:
    every, whole = Observes(), (2, ((0, 1),))
    assert summary(n1=whole, n2=whole, controller=whole).flaw(["n1", "n2"], every) is None
    assert summary(n1=whole, controller=whole).flaw(["n1", "n2"], every) == "it has no line of n2"
    assert summary(n1=whole, n2=whole).flaw(["n1", "n2"], every) == "it has no line of a controller"
    gap = summary(n1=whole, n2=(2, ((0, 0), (2, 2))), controller=whole)
    assert gap.flaw(["n1", "n2"], every) == "seq has a gap in the lines of n2"
    few = Observes(events=frozenset({"truncate"}))
    assert summary().flaw(["n1"], few) is None


def test_an_election_by_a_broker_breaks_the_table_of_events() -> None:
    line = {"node": "n1", "event": "elect", "seq": 0}
    nodes = {"n1": NodeSeqs(lines=1, seqs=((0, 0),)), "c": NodeSeqs(lines=1, seqs=((0, 0),))}
    found = TraceSummary(nodes=nodes, rulings=[line])
    assert found.flaw(["n1"], Observes()) == "1 line is not as the table of events says"
    assert TraceSummary(nodes=nodes, rulings=[{**line, "node": "c"}]).flaw(["n1"], Observes()) is None
    assert TraceSummary(bad=2, nodes=nodes).flaw(["n1"], Observes()) == (
        "2 lines are not as the table of events says"
    )

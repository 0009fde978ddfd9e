"""The twin's cycles, counted: which level tells of a cycle, how often, and what makes none.

A value v is sent to partition v // 10 and lies where `logs` puts it. A, B, C, ... are processes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import twin
from folders import Line, Tale

A, B, C, D, E = range(1, 6)
Teller = Callable[[], Tale]
TOLD: dict[str, tuple[Teller, tuple[str, ...]]] = {}


def tale(*found: str) -> Callable[[Teller], Teller]:
    """What must be found, and nothing else: NAME CLASS-OR-CAUSE COUNT each."""

    def register(teller: Teller) -> Teller:
        TOLD[teller.__name__] = (teller, found)
        return teller

    return register


def logs(*values: Sequence[int]) -> Tale:
    """Partitions 0, 1, ... with these values at offsets 0, 1, ..."""
    told = Tale(partitions=len(values))
    for partition, mine in enumerate(values):
        told.logged(*mine, partition=partition)
    return told


def ask(told: Tale, process: int, *values: int, f: str = "txn") -> None:
    sends = [{"partition": value // 10, "value": value} for value in values]
    told.line(process, "invoke", f, **({"sends": sends} if values else {}))


def answer(told: Tale, process: int, reads: Sequence[int] = (), *, kind: str = "ok", f: str = "txn") -> None:
    """The answer to what the process asked last, and the values that it read."""
    asked = next(line for line in reversed(told.lines) if line["process"] == process)
    known = ("partition", "value", "offset") if kind == "ok" else ("partition", "value")
    fields = {"reads": [place(told, value) for value in reads]} if f != "send" else {}
    if "sends" in asked:
        sent = [place(told, send["value"]) for send in asked["sends"]]
        fields["sends"] = [{key: send[key] for key in known} for send in sent]
    told.line(process, kind, f, **fields)


def both(told: Tale, process: int, *values: int, reads: Sequence[int] = (), kind: str = "ok", f: str = "txn"
         ) -> None:  # fmt: skip
    ask(told, process, *values, f=f)
    answer(told, process, reads, kind=kind, f=f)


def place(told: Tale, value: int) -> Line:
    entry = next(entry for entry in told.logs["n1"] if entry["value"] == value)
    return {key: entry[key] for key in ("partition", "offset", "value")}


# -- who read whom ------------------------------------------------------------------------------------------


@tale("G1c bug 1")
def two_rings_that_share_a_txn_are_one_component() -> Tale:
    told = logs([1, 2, 3])
    both(told, A, 1, reads=[2, 3])
    both(told, B, 2, reads=[1])
    both(told, C, 3, reads=[1])
    return told


@tale("G1c bug 2")
def two_rings_apart_are_two() -> Tale:
    told = logs([1, 2, 3, 4])
    both(told, A, 1, reads=[2])
    both(told, B, 2, reads=[1])
    both(told, C, 3, reads=[4])
    both(told, D, 4, reads=[3])
    return told


@tale("G1c bug 1")
def what_holds_a_ring_is_not_told_again_with_time() -> Tale:
    """A and B read each other; C had read what B sent before B was asked."""
    told = logs([1, 2])
    ask(told, A, 1)
    both(told, C, reads=[2])
    both(told, B, 2, reads=[1])
    answer(told, A, [2])
    return told


@tale("G1c bug 1", "G1c-realtime bug 1")
def a_ring_and_one_through_time_apart() -> Tale:
    told = logs([1, 2], [11])
    both(told, C, reads=[11])
    both(told, D, 11)
    ask(told, A, 1)
    ask(told, B, 2)
    answer(told, A, [2])
    answer(told, B, [1])
    return told


@tale("G1a bug 1")
def a_failed_txn_wrote_nothing() -> Tale:
    told = logs([1, 2])
    both(told, A, 1, reads=[2])
    both(told, B, 2, reads=[1], kind="fail")
    for node in ("n1", "n2", "n3"):
        told.entry(node, 1)["aborted"] = True
    return told


@tale()
def an_open_txn_read_nothing() -> Tale:
    told = logs([1, 2])
    ask(told, A, 1)
    both(told, B, 2, reads=[1])
    return told


@tale("G1c isolation 1", "precommitted-read isolation 1")
def who_reads_uncommitted_reads_in_cycles() -> Tale:
    told = logs([1, 2, 3])
    told.run["guarantees"]["isolation"] = "read_uncommitted"
    both(told, A, 1, reads=[2])
    both(told, B, 2, reads=[1])
    both(told, C, 3, reads=[3])
    return told


@tale("precommitted-read bug 2")
def one_finding_a_txn_that_reads_its_own() -> Tale:
    told = logs([1, 2, 3, 4])
    both(told, A, 1, 2, reads=[1, 2])
    both(told, B, 3, reads=[3], kind="info")
    both(told, C, 4)
    return told


# -- processes and time -------------------------------------------------------------------------------------


@tale("G1c-realtime bug 1")
def a_value_is_read_before_it_is_sent() -> Tale:
    """One finding a value, however many readers."""
    told = logs([1])
    both(told, A, reads=[1], f="poll")
    both(told, B, reads=[1], f="poll", kind="fail")
    both(told, C, 1, f="send")
    return told


@tale("G1c-process bug 1")
def its_own_sender_read_it_and_another_too() -> Tale:
    told = logs([1])
    both(told, A, reads=[1], f="poll")
    both(told, B, reads=[1], f="poll")
    both(told, B, 1, f="send")
    return told


@tale("G1c-realtime isolation 1")
def even_that_is_permitted_to_who_reads_uncommitted() -> Tale:
    told = logs([1])
    told.run["guarantees"]["isolation"] = "read_uncommitted"
    both(told, A, reads=[1], f="poll")
    both(told, C, 1, f="send")
    return told


@tale()
def a_plain_run_knows_no_other_cycle() -> Tale:
    """A sent 2 after 1, and B's poll, which was answered before, showed neither; the log has them swapped in
    nobody's sight."""
    told = logs([1, 2])
    ask(told, A, 1, f="send")
    ask(told, B, 2, f="send")
    both(told, C, reads=[1], f="poll")
    answer(told, A, f="send")
    answer(told, B, f="send")
    return told


@tale("G1c-process bug 1")
def a_process_has_an_order_over_what_failed_and_what_showed_nothing() -> Tale:
    told = logs([1])
    both(told, A, reads=[1])
    both(told, A, reads=[], f="poll")
    both(told, A, kind="fail")
    both(told, A, 1)
    return told


@tale("G0-realtime isolation 1")
def an_answer_orders_what_comes_after_it() -> Tale:
    return long_around("ok", [])


@tale()
def an_info_orders_nothing_if_it_read_nothing() -> Tale:
    return long_around("info", [])


@tale()
def what_an_info_read_says_nothing_of_when_it_wrote() -> Tale:
    return long_around("info", [21])


def long_around(kind: str, reads: Sequence[int]) -> Tale:
    """A wrote before B, which was answered so, and after C, which was asked later."""
    told = logs([1, 2], [11, 12], [21])
    both(told, E, 21, f="send")
    ask(told, A, 1, 12)
    both(told, B, 2, reads=reads, kind=kind)
    both(told, C, 11)
    answer(told, A)
    return told


@tale("G0-process isolation 1")
def a_processes_order_is_an_order_of_time_and_told_once() -> Tale:
    told = logs([1, 2], [11, 12])
    ask(told, A, 1, 12)
    both(told, B, 2)
    both(told, B, 11)
    answer(told, A)
    return told


@tale("G1c-realtime bug 1")
def what_an_info_read_it_had_read_by_then() -> Tale:
    """A reads of C, which was asked for after B, which had read A's, was answered."""
    told = logs([1], [11])
    ask(told, A, 1)
    both(told, B, reads=[1], kind="info")
    both(told, C, 11)
    answer(told, A, [11])
    return told


# -- the order of writes ------------------------------------------------------------------------------------


@tale("G0 isolation 1")
def writes_interleave() -> Tale:
    told = logs([1, 2, 3])
    ask(told, A, 1, 3)
    both(told, B, 2)
    answer(told, A)
    return told


@tale("G0 isolation 1")
def a_ring_of_writes_is_not_told_again_with_reads() -> Tale:
    told = logs([1, 2, 3, 4])
    ask(told, A, 1, 3)
    ask(told, B, 2)
    both(told, C, 4, reads=[2])
    answer(told, B, [])
    answer(told, A, [4])
    return told


@tale("G1c isolation 1")
def one_wrote_before_the_other_and_read_it() -> Tale:
    told = logs([1, 2])
    ask(told, A, 1)
    both(told, B, 2)
    answer(told, A, [2])
    return told


@tale("G1a bug 1")
def a_failed_record_stands_between_two_others() -> Tale:
    """C read what B wrote in vain; A's write lies next to it, and so next to nobody's."""
    told = logs([1, 2, 3])
    ask(told, A, 1, 3)
    ask(told, B, 2)
    both(told, C, reads=[2], f="poll")
    answer(told, B, kind="fail")
    answer(told, A)
    for node in ("n1", "n2", "n3"):
        told.entry(node, 1)["aborted"] = True
    return told


@tale("inconsistent-offsets bug 1", "saw-then-lost bug 1")
def an_offset_that_showed_two_values_orders_nothing() -> Tale:
    """B's record lies between A's two, but its offset was seen with another value as well."""
    told = logs([1, 2, 3])
    ask(told, A, 1, 3)
    both(told, B, 2)
    answer(told, A)
    ask(told, C, 9)
    told.line(D, "invoke", "poll")
    told.line(D, "ok", "poll", reads=[{"partition": 0, "offset": 1, "value": 9}])
    return told


# -- what was read before it was written --------------------------------------------------------------------


@tale("G-single isolation 1")
def a_fractured_read() -> Tale:
    told = logs([1, 2], [12])
    both(told, D, 1, f="send")
    ask(told, A, 2, 12)
    both(told, B, reads=[1, 12], f="poll")
    answer(told, A)
    return told


@tale()
def a_read_of_all_of_it_after_one_of_none() -> Tale:
    told = logs([1, 2], [11, 12])
    both(told, D, 1, f="send")
    both(told, D, 11, f="send")
    ask(told, A, 2, 12)
    both(told, B, reads=[1, 11], f="poll")
    both(told, B, reads=[2, 12], f="poll")
    answer(told, A)
    return told


@tale("G2-item isolation 1")
def each_read_what_the_other_wrote_past() -> Tale:
    told = skewed(logs([1, 2], [11, 12], [21, 22]), 12, 22)
    both(told, E, 21)
    answer(told, A, [1, 21])  # that it wrote past the second itself is no edge
    answer(told, B, [11])
    return told


@tale("G2-item isolation 1")
def a_longer_ring_with_one_such_edge_does_not_count() -> Tale:
    """A and B as before; besides C read of A, and B of C: one edge more, and the shortest is the measure."""
    told = skewed(logs([1, 2], [11, 12], [21], [31]), 12, 21)
    ask(told, C, 31)
    answer(told, A, [1])
    answer(told, B, [11, 31])
    answer(told, C, [21])
    return told


def skewed(told: Tale, *of_a: int) -> Tale:
    """A and B, to be answered when each has read what the other wrote past."""
    both(told, D, 1, f="send")
    both(told, D, 11, f="send")
    ask(told, A, *of_a)
    ask(told, B, 2)
    return told


@tale("G-single isolation 1")
def of_two_edges_between_two_the_one_that_was_read_counts() -> Tale:
    told = skewed(logs([1, 2], [11, 12], [21]), 12, 21)
    answer(told, A, [1])
    answer(told, B, [11, 21])
    return told


@tale("G-single isolation 1")
def of_two_rings_equally_short_the_one_with_fewer_such_edges_counts() -> Tale:
    """A and B as before; and C read one of B's two writes, and to before the other."""
    told = skewed(logs([1, 2], [11, 12], [], [31]), 12)
    told.lines[-1]["sends"].append({"partition": 3, "value": 31})
    answer(told, A, [1])
    answer(told, B, [11])
    both(told, C, reads=[1, 31], f="poll")
    return told


@tale("G-single isolation 1")
def an_update_is_lost() -> Tale:
    told = logs([1, 2, 3])
    both(told, D, 1, f="send")
    ask(told, A, 2)
    ask(told, B, 3)
    answer(told, A, [1])
    answer(told, B, [1])
    return told


@pytest.mark.parametrize("name", sorted(TOLD))
def test_a_cycle_is_told_once_at_its_level(name: str, tmp_path: Path) -> None:
    """Names, classes and counts."""
    teller, found = TOLD[name]
    verdict = twin.judge(teller().write(tmp_path / "run"))
    told = [
        f"{one['name']} {one['permitted_by'] or one['class']} {one['count']}" for one in verdict["findings"]
    ]

    assert sorted(found) == sorted(told)

"""The twin's cycles, counted: which level reports a cycle, how often, and what is no cycle.

A value v is sent to partition v // 10 and is at the offset where `logs` puts it. A, B, C, ... are processes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import twin
from folders import Line, Tale

A, B, C, D, E = range(1, 6)
Build = Callable[[], Tale]
CASES: dict[str, tuple[Build, tuple[str, ...]]] = {}


def case(*found: str) -> Callable[[Build], Build]:
    """What must be found, and nothing else: NAME CLASS-OR-CAUSE COUNT each."""

    def register(build: Build) -> Build:
        CASES[build.__name__] = (build, found)
        return build

    return register


def logs(*values: Sequence[int]) -> Tale:
    """Partitions 0, 1, ... with these values at offsets 0, 1, ..."""
    folder = Tale(partitions=len(values))
    for partition, mine in enumerate(values):
        folder.logged(*mine, partition=partition)
    return folder


def invoke(folder: Tale, process: int, *values: int, f: str = "txn") -> None:
    sends = [{"partition": value // 10, "value": value} for value in values]
    folder.line(process, "invoke", f, **({"sends": sends} if values else {}))


def complete(folder: Tale, process: int, reads: Sequence[int] = (), *, kind: str = "ok", f: str = "txn"
             ) -> None:  # fmt: skip
    """The completion of the process's last invocation, with the values that it read."""
    invocation = next(line for line in reversed(folder.lines) if line["process"] == process)
    known = ("partition", "value", "offset") if kind == "ok" else ("partition", "value")
    fields = {"reads": [place(folder, value) for value in reads]} if f != "send" else {}
    if "sends" in invocation:
        sent = [place(folder, send["value"]) for send in invocation["sends"]]
        fields["sends"] = [{key: send[key] for key in known} for send in sent]
    folder.line(process, kind, f, **fields)


def op(folder: Tale, process: int, *values: int, reads: Sequence[int] = (), kind: str = "ok", f: str = "txn"
       ) -> None:  # fmt: skip
    invoke(folder, process, *values, f=f)
    complete(folder, process, reads, kind=kind, f=f)


def place(folder: Tale, value: int) -> Line:
    entry = next(entry for entry in folder.logs["n1"] if entry["value"] == value)
    return {key: entry[key] for key in ("partition", "offset", "value")}


# -- cycles of reads ----------------------------------------------------------------------------------------


@case("G1c bug 1")
def two_cycles_that_share_a_txn_are_one_component() -> Tale:
    folder = logs([1, 2, 3])
    op(folder, A, 1, reads=[2, 3])
    op(folder, B, 2, reads=[1])
    op(folder, C, 3, reads=[1])
    return folder


@case("G1c bug 2")
def two_cycles_apart_are_two() -> Tale:
    folder = logs([1, 2, 3, 4])
    op(folder, A, 1, reads=[2])
    op(folder, B, 2, reads=[1])
    op(folder, C, 3, reads=[4])
    op(folder, D, 4, reads=[3])
    return folder


@case("G1c bug 1")
def a_cycle_of_reads_is_not_reported_again_with_time() -> Tale:
    """A and B read each other; C had read B's record before B was invoked."""
    folder = logs([1, 2])
    invoke(folder, A, 1)
    op(folder, C, reads=[2])
    op(folder, B, 2, reads=[1])
    complete(folder, A, [2])
    return folder


@case("G1c bug 1", "G1c-realtime bug 1")
def a_cycle_and_one_through_time_apart() -> Tale:
    folder = logs([1, 2], [11])
    op(folder, C, reads=[11])
    op(folder, D, 11)
    invoke(folder, A, 1)
    invoke(folder, B, 2)
    complete(folder, A, [2])
    complete(folder, B, [1])
    return folder


@case("G1a bug 1")
def a_failed_txn_wrote_nothing() -> Tale:
    folder = logs([1, 2])
    op(folder, A, 1, reads=[2])
    op(folder, B, 2, reads=[1], kind="fail")
    for node in ("n1", "n2", "n3"):
        folder.entry(node, 1)["aborted"] = True
    return folder


@case()
def an_open_txn_read_nothing() -> Tale:
    folder = logs([1, 2])
    invoke(folder, A, 1)
    op(folder, B, 2, reads=[1])
    return folder


@case("G1c isolation 1", "precommitted-read isolation 1")
def read_uncommitted_permits_cycles_of_reads() -> Tale:
    folder = logs([1, 2, 3])
    folder.run["guarantees"]["isolation"] = "read_uncommitted"
    op(folder, A, 1, reads=[2])
    op(folder, B, 2, reads=[1])
    op(folder, C, 3, reads=[3])
    return folder


@case("precommitted-read bug 2")
def one_finding_for_each_txn_that_reads_its_own_record() -> Tale:
    folder = logs([1, 2, 3, 4])
    op(folder, A, 1, 2, reads=[1, 2])
    op(folder, B, 3, reads=[3], kind="info")
    op(folder, C, 4)
    return folder


# -- processes and time -------------------------------------------------------------------------------------


@case("G1c-realtime bug 1")
def a_value_is_read_before_it_is_sent() -> Tale:
    """One finding a value, however many readers."""
    folder = logs([1])
    op(folder, A, reads=[1], f="poll")
    op(folder, B, reads=[1], f="poll", kind="fail")
    op(folder, C, 1, f="send")
    return folder


@case("G1c-process bug 1")
def its_own_sender_read_it_and_another_too() -> Tale:
    folder = logs([1])
    op(folder, A, reads=[1], f="poll")
    op(folder, B, reads=[1], f="poll")
    op(folder, B, 1, f="send")
    return folder


@case("G1c-realtime bug 1")
def without_transactions_read_uncommitted_permits_no_read_before_the_send() -> Tale:
    folder = logs([1])
    folder.run["guarantees"]["isolation"] = "read_uncommitted"
    op(folder, A, reads=[1], f="poll")
    op(folder, C, 1, f="send")
    return folder


@case()
def a_run_without_transactions_has_no_other_cycle() -> Tale:
    """Two sends at once, and a poll that read one of them."""
    folder = logs([1, 2])
    invoke(folder, A, 1, f="send")
    invoke(folder, B, 2, f="send")
    op(folder, C, reads=[1], f="poll")
    complete(folder, A, f="send")
    complete(folder, B, f="send")
    return folder


@case("G1c-process bug 1")
def the_order_of_a_process_spans_failed_and_empty_ops() -> Tale:
    folder = logs([1])
    op(folder, A, reads=[1])
    op(folder, A, reads=[], f="poll")
    op(folder, A, kind="fail")
    op(folder, A, 1)
    return folder


@case("G0-realtime isolation 1")
def a_completion_orders_what_comes_after_it() -> Tale:
    return long_around("ok", [])


@case()
def an_info_orders_nothing_if_it_read_nothing() -> Tale:
    return long_around("info", [])


@case()
def the_reads_of_an_info_do_not_show_when_it_wrote() -> Tale:
    return long_around("info", [21])


def long_around(kind: str, reads: Sequence[int]) -> Tale:
    """A wrote before B, which completed with this type, and after C, which was invoked later."""
    folder = logs([1, 2], [11, 12], [21])
    op(folder, E, 21, f="send")
    invoke(folder, A, 1, 12)
    op(folder, B, 2, reads=reads, kind=kind)
    op(folder, C, 11)
    complete(folder, A)
    return folder


@case("G0-process isolation 1")
def the_order_of_a_process_is_an_order_of_time_and_reported_once() -> Tale:
    folder = logs([1, 2], [11, 12])
    invoke(folder, A, 1, 12)
    op(folder, B, 2)
    op(folder, B, 11)
    complete(folder, A)
    return folder


@case("G1c-realtime bug 1")
def what_an_info_read_was_read_before_its_completion() -> Tale:
    """A read from C, which was invoked after the completion of B, which had read from A."""
    folder = logs([1], [11])
    invoke(folder, A, 1)
    op(folder, B, reads=[1], kind="info")
    op(folder, C, 11)
    complete(folder, A, [11])
    return folder


# -- the order of writes ------------------------------------------------------------------------------------


@case("G0 isolation 1")
def writes_interleave() -> Tale:
    folder = logs([1, 2, 3])
    invoke(folder, A, 1, 3)
    op(folder, B, 2)
    complete(folder, A)
    return folder


@case("G0 isolation 1")
def a_cycle_of_writes_is_not_reported_again_with_reads() -> Tale:
    folder = logs([1, 2, 3, 4])
    invoke(folder, A, 1, 3)
    invoke(folder, B, 2)
    op(folder, C, 4, reads=[2])
    complete(folder, B, [])
    complete(folder, A, [4])
    return folder


@case("G1c isolation 1")
def one_wrote_before_the_other_and_read_it() -> Tale:
    folder = logs([1, 2])
    invoke(folder, A, 1)
    op(folder, B, 2)
    complete(folder, A, [2])
    return folder


@case("G1a bug 1")
def a_failed_record_is_between_two_others() -> Tale:
    """C read B's aborted record; A's records are next to that one, and so next to no other write."""
    folder = logs([1, 2, 3])
    invoke(folder, A, 1, 3)
    invoke(folder, B, 2)
    op(folder, C, reads=[2], f="poll")
    complete(folder, B, kind="fail")
    complete(folder, A)
    for node in ("n1", "n2", "n3"):
        folder.entry(node, 1)["aborted"] = True
    return folder


@case("inconsistent-offsets bug 1", "saw-then-lost bug 1")
def an_offset_that_showed_two_values_orders_nothing() -> Tale:
    """B's record is between A's two, but its offset was seen with another value as well."""
    folder = logs([1, 2, 3])
    invoke(folder, A, 1, 3)
    op(folder, B, 2)
    complete(folder, A)
    invoke(folder, C, 9)
    folder.line(D, "invoke", "poll")
    folder.line(D, "ok", "poll", reads=[{"partition": 0, "offset": 1, "value": 9}])
    return folder


# -- what was read before it was written --------------------------------------------------------------------


@case()
def a_fractured_read() -> Tale:
    folder = logs([1, 2], [12])
    op(folder, D, 1, f="send")
    invoke(folder, A, 2, 12)
    op(folder, B, reads=[1, 12], f="poll")
    complete(folder, A)
    return folder


@case()
def a_read_of_all_of_it_after_one_of_none() -> Tale:
    folder = logs([1, 2], [11, 12])
    op(folder, D, 1, f="send")
    op(folder, D, 11, f="send")
    invoke(folder, A, 2, 12)
    op(folder, B, reads=[1, 11], f="poll")
    op(folder, B, reads=[2, 12], f="poll")
    complete(folder, A)
    return folder


@case()
def an_update_is_lost() -> Tale:
    folder = logs([1, 2, 3])
    op(folder, D, 1, f="send")
    invoke(folder, A, 2)
    invoke(folder, B, 3)
    complete(folder, A, [1])
    complete(folder, B, [1])
    return folder


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_cycle_is_reported_once_at_its_level(name: str, tmp_path: Path) -> None:
    """Names, classes and counts."""
    build, found = CASES[name]
    verdict = twin.judge(build().write(tmp_path / "run"))
    actual = [
        f"{one['name']} {one['permitted_by'] or one['class']} {one['count']}" for one in verdict["findings"]
    ]

    assert sorted(found) == sorted(actual)

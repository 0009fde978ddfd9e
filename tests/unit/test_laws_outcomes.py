"""The laws of records' outcomes, on tables given row by row: hits, and near misses.

The tales of test_checkers_durability.py and others test the same with whole folders.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import pytest
from unit_rows import found_each

from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.outcomes import outcomes
from floodmark.checkers.laws.permits import (
    ACKS,
    BUDGET_MAYBE,
    DOUBT,
    EVER,
    INTERNAL_MAYBE,
    ISOLATION,
    NEVER,
    RETRIES,
    UNCLEAN,
)
from floodmark.checkers.laws.permits import UNCLEAN_MAYBE as UNCLEAN_PERHAPS
from floodmark.checkers.laws.values import values

Row = dict[str, Any]
Rows = dict[str, list[Row]]
LEAST, MOST = -(1 << 63), (1 << 63) - 1
READER, FINAL = 50, 900

# One partition led by n1, for which everything may be claimed except from final reads.
PARTITION: Row = {
    "hw": 100, "readable_to": 100, "stable_to": 100, "unseen_judged": False,
    "unclean_index": NEVER, "unclean_time": NEVER, "unclean_maybe_time": NEVER,
    "budget_index": NEVER, "budget_maybe_index": NEVER,
}  # fmt: skip
NO_LOG: Row = {
    "leader": None, "leader_known": False, "losses_judged": False, "log_start": None, "hw": None,
    "readable_to": None, "stable_to": None,
}  # fmt: skip


def found(*rows: Rows, **partition: Any) -> list[Row]:
    """The findings in these rows and the partition as changed, each without null and empty fields."""
    return found_by_run([(together(*rows), partition)])[0]


def found_by_run(runs: Iterable[tuple[Rows, Row]]) -> list[list[Row]]:
    """The same for many runs, all in one unit."""
    given = [together(run_of(partition, rows), rows) for rows, partition in runs]
    return [
        [{key: value for key, value in one.items() if value != []} for one in findings
         if one["name"] not in ("malformed-log", "epoch-lineage")]
        for findings in found_each((log, values, outcomes), given)
    ]  # fmt: skip


def run_of(partition: Row, rows: Rows) -> Rows:
    of_run = {"transactional": any(one.get("f") == "txn" for one in rows.get("sends", ())),
              "internal_index": NEVER}
    return {
        "partitions": [PARTITION | partition],
        "runs": [{key: partition.get(key, value) for key, value in of_run.items()}],
        "processes": [{"process": FINAL, "final": True, "overlaps": False}],
        "replicas": [replica("n1", leads=True), replica("n2"), replica("n3")],
    }


def brief(findings: Iterable[Row]) -> list[tuple[Any, ...]]:
    """(name, offset, and the permit if there is one)."""
    return sorted(
        (one["name"], one.get("offset"), *([one["permit"]] if "permit" in one else [])) for one in findings
    )


def replica(node: str, *, leads: bool = False, partition: int = 0) -> Row:
    flags = {"leads": leads, "in_isr": True, "complete": True, "settled": True, "struck": False}
    return {"node": node, "partition": partition, "compact": False, **flags}


def line(table: str, at: int, kind: str, f: str, process: int, **more: Any) -> Rows:
    """One item of a line whose index is its place, unless given otherwise."""
    places = {"at": at, "pos": 0, "index": at, "time": 1000 * at, "process": process, "type": kind, "f": f}
    return {table: [{"partition": 0, **places, **more}]}


def together(*several: Rows) -> Rows:
    rows: Rows = {}
    for name, each in chain.from_iterable(one.items() for one in several):
        rows.setdefault(name, []).extend(each)
    return rows


def invoked(at: int, value: int = 7, process: int = 1, f: str = "send", **more: Any) -> Rows:
    return line("sends", at, "invoke", f, process, value=value, **more)


def answer(
    at: int, value: int = 7, kind: str = "ok", offset: int | None = None, process: int = 1, **more: Any
) -> Rows:
    return line("sends", at, kind, more.pop("f", "send"), process, value=value, offset=offset, **more)


def sent(at: int, value: int = 7, kind: str = "ok", offset: int | None = None, **more: Any) -> Rows:
    """Invoked at this line and answered on the next."""
    return together(invoked(at, value, **more), answer(at + 1, value, kind, offset, **more))


def read(at: int, offset: int, value: int = 7, process: int = READER, kind: str = "ok", **more: Any) -> Rows:
    return line("reads", at, kind, "poll", process, offset=offset, value=value, **more)


def entry(offset: int, value: int | None = 7, node: str = "n1", **more: Any) -> Rows:
    row = {"node": node, "at": offset, "offset": offset, "epoch": 0, "value": value, "crc": 1}
    return {"entries": [{"partition": 0, **row, "crc_ok": True, "aborted": False, **more}]}


def repeated(value: int = 7) -> Rows:
    return {"repeated": [{"value": value}]}


DOUBTFUL_TXN = sent(0, kind="info", f="txn")

# Each case: the rows, the changes of the partition, the findings.
CASES: dict[str, tuple[list[Rows], Row, list[tuple[Any, ...]]]] = {
    # -- lost-write
    "at its offset": ([sent(0, offset=5), entry(5)], {}, []),
    "at its offset in a follower's log alone": (
        [sent(0, offset=5), entry(5, node="n2")], {}, [("lost-write", 5)],
    ),
    "below the log start": ([sent(0, offset=4)], {"log_start": 5}, []),
    "at the log start": ([sent(0, offset=5)], {"log_start": 5}, [("lost-write", 5)]),
    "acked twice, the first answer counts": (
        [sent(0, offset=5), answer(2, offset=6), entry(5)], {}, [],
    ),
    "the first answer by its line, whatever its index": (
        [invoked(0), answer(1, offset=5, index=9), answer(2, offset=6, index=3), entry(5)], {}, [],
    ),
    "the first answer by its place in the line": (
        [invoked(0), answer(1, offset=6, pos=1), answer(1, offset=5), entry(5)], {}, [],
    ),
    "acked without an offset, and somewhere": ([sent(0), entry(5)], {}, []),
    "acked without an offset, and nowhere": ([sent(0)], {}, [("lost-write", None)]),
    "acked without an offset, perhaps below the log start": ([sent(0)], {"log_start": 1}, []),
    "acked, and never invoked": ([answer(1, offset=5)], {}, [("lost-write", 5)]),
    "failed": ([sent(0, kind="fail", offset=5)], {}, []),
    "doubtful": ([sent(0, kind="info")], {}, []),
    "sent more than once": ([sent(0, offset=5), sent(2, offset=6), repeated(), entry(6)], {}, []),
    "aborted where it was acked, it is there": ([sent(0, offset=5), entry(5, aborted=True)], {}, []),
    "under acks=1": ([sent(0, offset=5)], {"weak_acks": True}, [("lost-write", 5, ACKS)]),
    "acks come first": (
        [sent(0, offset=5)], {"weak_acks": True, "unclean_index": 1}, [("lost-write", 5, ACKS)],
    ),
    "invoked before the bound": (
        [sent(0, offset=5)], {"unclean_index": 1}, [("lost-write", 5, UNCLEAN)],
    ),
    "invoked at the bound": ([sent(1, offset=5)], {"unclean_index": 1}, [("lost-write", 5)]),
    "invoked before the bound in time": (
        [sent(1, offset=5)], {"unclean_time": 1001}, [("lost-write", 5, UNCLEAN)],
    ),
    "invoked at the bound in time": ([sent(1, offset=5)], {"unclean_time": 1000}, [("lost-write", 5)]),
    "by an invocation that is missing, any bound": (
        [answer(1, offset=5)], {"budget_maybe_index": 0}, [("lost-write", 5, BUDGET_MAYBE)],
    ),
    "of two causes the first": (
        [sent(0, offset=5)],
        {"unclean_maybe": True, "budget_index": 1},
        [("lost-write", 5, UNCLEAN_PERHAPS)],
    ),
    "the leader's log is unknown": ([sent(0, offset=5)], NO_LOG, []),
    # -- by reads
    "the final reads passed it": (
        [sent(0, offset=5), read(9, 5, 1, FINAL), read(9, 6, 2, FINAL), invoked(8, 1), invoked(8, 2)],
        {**NO_LOG, "by_final_reads": True},
        [("inconsistent-offsets", 5), ("lost-write", 5)],
    ),
    "nothing below was read": (
        [sent(0, offset=5), read(9, 6, 1, FINAL), read(9, 7, 2, FINAL), invoked(8, 1), invoked(8, 2)],
        {**NO_LOG, "by_final_reads": True},
        [],
    ),
    "nothing above was read by a final reader": (
        [sent(0, offset=5), read(9, 4, 1, FINAL), read(9, 6, 2), invoked(8, 1), invoked(8, 2)],
        {**NO_LOG, "by_final_reads": True},
        [],
    ),
    "logs were never promised": (
        [sent(0, offset=5), read(9, 4, 1, FINAL), invoked(8, 1)],
        {**NO_LOG, "by_final_reads": True, "loss_in_doubt": True},
        [("lost-write", 5, DOUBT)],
    ),
    "a piece of the log shows it": (
        [sent(0, offset=5), entry(5), read(9, 4, 1, FINAL), invoked(8, 1)],
        {**NO_LOG, "by_final_reads": True, "loss_in_doubt": True},
        [],
    ),
    "in an import some read passed it": (
        [sent(0, offset=5), read(9, 6, 2), invoked(8, 2)],
        {**NO_LOG, "by_any_read": True},
        [("lost-write", 5)],
    ),
    "in an import no read passed it": (
        [sent(0, offset=5), read(9, 5, 2), invoked(8, 2)],
        {**NO_LOG, "by_any_read": True},
        [("inconsistent-offsets", 5)],
    ),
    # -- unseen
    "no final read returned it": (
        [sent(0, offset=5), entry(5)], {"unseen_judged": True}, [("unseen", 5)],
    ),
    "a final read of any outcome returned it": (
        [sent(0, offset=5), entry(5), read(9, 5, process=FINAL, kind="info")], {"unseen_judged": True}, [],
    ),
    "only another reader did": (
        [sent(0, offset=5), entry(5), read(9, 5)], {"unseen_judged": True}, [("unseen", 5)],
    ),
    "at the end of what a reader may see": (
        [sent(0, offset=5), entry(5)], {"unseen_judged": True, "readable_to": 5}, [],
    ),
    "at another place than it was acked": (
        [sent(0, offset=5), entry(4)], {"unseen_judged": True}, [("lost-write", 5)],
    ),
    "acked without an offset, at two places": (
        [sent(0), entry(4), entry(5)],
        {"unseen_judged": True, "log_start": 5},
        [("duplicate", 4), ("unseen", 5)],
    ),
    # -- duplicate
    "one place in the log and in reads": ([sent(0, offset=5), entry(5), read(9, 5), read(10, 5)], {}, []),
    "two places in a follower's log": (
        [sent(0, offset=5), entry(5), entry(5, node="n2"), entry(6, node="n2")], {}, [],
    ),
    "two places in the leader's": ([sent(0, offset=5), entry(5), entry(6)], {}, [("duplicate", 5)]),
    "one of them aborted": ([sent(0, offset=5), entry(5), entry(6, aborted=True)], {}, []),
    "twice at one place": ([sent(0, offset=5), entry(5), entry(5, at=6)], {}, []),
    "with retries": ([sent(0), entry(5), entry(6)], {"retried": True}, [("duplicate", 5, RETRIES)]),
    "acked here and read there": (
        [sent(0, offset=5), read(9, 6)], NO_LOG, [("duplicate", 5)],
    ),
    "the log is unknown, data were lost, and the invocation is a line that cannot be read": (
        [answer(8, offset=5), read(9, 6)], {**NO_LOG, "budget_index": 3},
        [("duplicate", 5, BUDGET_MAYBE), ("phantom", 6)],  # the gates give no phantoms in such a run
    ),
    "the same, invoked after it": (
        [invoked(7), answer(8, offset=5), read(9, 6)], {**NO_LOG, "budget_index": 3}, [("duplicate", 5)],
    ),
    "sent more than once, and twice there": ([sent(0), sent(2), repeated(), entry(5), entry(6)], {}, []),
    "acked here, read and logged there: lost, and no second copy": (
        [sent(0, offset=5), read(9, 6), entry(6)], {}, [("lost-write", 5)],
    ),
    # -- phantom
    "read, and never sent": ([read(9, 5), entry(5)], {}, [("phantom", 5)]),
    "logged by a follower alone, and never sent": ([entry(5, node="n3")], {}, [("phantom", None)]),
    "in a stray copy, and never sent": ([entry(5, node="n4")], {}, []),
    "answered, and never invoked": ([answer(1, kind="info")], {}, []),
    "a record of others": ([entry(5, value=None)], {}, []),
    # -- G1a
    "failed and read": ([sent(0, kind="fail"), read(9, 5), entry(5)], {}, [("G1a", 5)]),
    "failed, and below the last stable offset": ([sent(0, kind="fail"), entry(99)], {}, [("G1a", 99)]),
    "failed, and undecided": ([sent(0, kind="fail"), entry(100)], {}, []),
    "failed, and aborted": ([sent(0, kind="fail"), entry(5, aborted=True)], {}, []),
    "failed, and in a follower's log": ([sent(0, kind="fail"), entry(5, node="n2")], {}, []),
    "failed and read uncommitted": (
        [sent(0, kind="fail"), read(9, 5), entry(5, aborted=True)],
        {"uncommitted": True},
        [("G1a", 5, ISOLATION)],
    ),
    "failed, read uncommitted, and committed": (
        [sent(0, kind="fail"), read(9, 5), entry(5)], {"uncommitted": True}, [("G1a", 5)],
    ),
    "a txn's value was read where the log has it as aborted": (
        [DOUBTFUL_TXN, read(9, 5), entry(5, aborted=True)], {}, [("G1a", 5)],
    ),
    "the same, and its client was told ok": (
        [sent(0, offset=5, f="txn"), read(9, 5), entry(5, aborted=True)], {}, [("G1a", 5)],
    ),
    "its client was told that it failed: still one finding": (
        [sent(0, kind="fail", f="txn"), read(9, 5), entry(5, aborted=True)], {}, [("G1a", 5)],
    ),
    "read by a poll in doubt": ([DOUBTFUL_TXN, read(9, 5, kind="info"), entry(5, aborted=True)], {}, []),
    "read elsewhere": (
        [DOUBTFUL_TXN, read(9, 4), entry(5, aborted=True)], {}, [("saw-then-lost", 4)],
    ),
    "a plain send's": ([sent(0, kind="info"), read(9, 5), entry(5, aborted=True)], {}, []),
    "a follower alone has it as aborted": (
        [DOUBTFUL_TXN, read(9, 5), entry(5), entry(5, node="n2", aborted=True)], {}, [],
    ),
    "the log has a copy of it that was not aborted": (
        [DOUBTFUL_TXN, read(9, 5), entry(5, aborted=True), entry(6)], {}, [],
    ),
    "the log that has it as aborted is not complete": (
        [DOUBTFUL_TXN, read(9, 5), entry(5, aborted=True)],
        {"leader_known": False, "losses_judged": False},
        [],
    ),
    "the reader reads uncommitted": (
        [DOUBTFUL_TXN, read(9, 5), entry(5, aborted=True)], {"uncommitted": True}, [],
    ),
    "its transaction may have been lost by the internal topics": (
        [DOUBTFUL_TXN, read(9, 5), entry(5, aborted=True)],
        {"internal_index": 1},
        [("G1a", 5, INTERNAL_MAYBE)],
    ),
    "they lost data before it": (
        [DOUBTFUL_TXN, read(9, 5), entry(5, aborted=True)], {"internal_index": 0}, [("G1a", 5)],
    ),
    "its marker may have been lost": (
        [sent(0, kind="fail", f="txn"), read(9, 5), entry(5, aborted=True)],
        {"budget_maybe_index": 1},
        [("G1a", 5, INTERNAL_MAYBE)],
    ),
    # -- saw-then-lost
    "read, and another there now": (
        [sent(0, kind="info"), read(9, 5), entry(5, 8), invoked(0, 8)], {}, [("saw-then-lost", 5)],
    ),
    "read below the log start": ([sent(0, kind="info"), read(9, 4)], {"log_start": 5}, []),
    "read at two places, there at one": (
        [sent(0, kind="info"), read(9, 4), read(10, 5), entry(5)],
        {},
        [("duplicate", 4), ("saw-then-lost", 4)],
    ),
    "permitted with the loss": (
        [sent(0, kind="info"), read(9, 5)], {"unclean_index": 1}, [("saw-then-lost", 5, UNCLEAN)],
    ),
    "acks permit no loss of what was read": (
        [sent(0, kind="info"), read(9, 5)], {"weak_acks": True}, [("saw-then-lost", 5)],
    ),
    "sent more than once, and read where it is not": (
        [sent(0), sent(2), repeated(), read(9, 5), entry(6)],
        {"budget_maybe_index": 1},
        [("saw-then-lost", 5, BUDGET_MAYBE)],
    ),
    # -- inconsistent-offsets
    "two values read at one place": (
        [invoked(0, 7), invoked(0, 8), read(9, 5, 7), read(10, 5, 8)], NO_LOG, [("inconsistent-offsets", 5)],
    ),
    "one acked, another read": (
        [sent(0, 7, offset=5), invoked(0, 8), read(10, 5, 8)], NO_LOG, [("inconsistent-offsets", 5)],
    ),
    "one acked of those sent more than once": (
        [sent(0, 7, offset=5), repeated(), invoked(0, 8), read(10, 5, 8)], NO_LOG, [],
    ),
    "where one of them was never read under acks=1": (
        [sent(0, 7, offset=5), invoked(0, 8), read(10, 5, 8)],
        {**NO_LOG, "weak_acks": True},
        [("inconsistent-offsets", 5, ACKS)],
    ),
    "where one of them may be lost": (
        [sent(0, 7, offset=5), invoked(3, 8), read(10, 5, 8)],
        {**NO_LOG, "unclean_index": 1},
        [("inconsistent-offsets", 5, UNCLEAN_PERHAPS)],
    ),
    # -- read before it was sent
    "read before it was sent": ([sent(5, kind="info"), read(4, 0), entry(0)], {}, [("G1c-realtime", 0)]),
    "read before it was answered": ([sent(5, kind="info"), read(6, 0), entry(0)], {}, []),
    "by its own sender": (
        [sent(5, kind="info"), read(3, 0), read(4, 0, process=1), entry(0)], {}, [("G1c-process", 0)],
    ),
    "by its own sender only later": (
        [sent(5, kind="info"), read(3, 0), read(7, 0, process=1), entry(0)], {}, [("G1c-realtime", 0)],
    ),
    "failed, and read before": ([sent(5, kind="fail"), read(4, 0)], NO_LOG, [("G1a", 0)]),
    "sent again after it was read": (
        [sent(0, kind="info"), sent(5, kind="info"), repeated(), read(4, 0), entry(0)], {}, [],
    ),
}  # fmt: skip


@pytest.fixture(scope="module", name="findings")
def findings_of_cases() -> dict[str, list[Row]]:
    """Each case is a run; all are in one unit, and have the same partition and value."""
    runs = [(together(*rows), partition) for rows, partition, _ in CASES.values()]
    return dict(zip(CASES, found_by_run(runs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, findings: dict[str, list[Row]]) -> None:
    assert brief(findings[name]) == CASES[name][2]


LOST = [
    ([entry(6), entry(5, 8), invoked(0, 8)], "moved", 6, ["n1"]),
    ([entry(5, 8), invoked(0, 8), entry(5, node="n3"), entry(5, node="n2")], "overwritten", 8, ["n2", "n3"]),
    ([entry(5, None)], "overwritten", None, None),
    ([entry(9, node="n2")], "orphaned", None, ["n2"]),
    ([entry(5, node="n4")], "gone", None, None),  # a stray copy is no replica
]


def test_a_lost_write_shows_where_its_record_is() -> None:
    findings = found_by_run((together(sent(3, offset=5), *rows), {}) for rows, *_ in LOST)

    for (loss,), (_, how, seen, nodes) in zip(findings, LOST, strict=True):
        assert (loss["how"], loss.get("seen"), loss.get("nodes")) == (how, seen, nodes)
        assert (loss["value"], loss["ops"]) == (7, [3, 4])


def test_partitions_are_not_joined() -> None:
    """The record is in another partition; the cases above test the same for runs."""
    other = {"replicas": [replica("n1", leads=True, partition=1)]}

    findings = found(sent(0, offset=5), other, entry(5, partition=1), invoked(0, partition=1))

    assert brief(findings) == [("lost-write", 5)]


def test_a_process_that_overlaps_proves_no_order_of_its_own() -> None:
    overlaps = {"processes": [{"process": 1, "final": False, "overlaps": True}]}
    rows = [sent(5, kind="info"), read(3, 0), read(4, 0, process=1), entry(0)]

    (early,) = found(*rows, overlaps)

    assert (early["name"], early["process"], early["ops"]) == ("G1c-realtime", READER, [5, 6, 3])


def test_in_runs_with_transactions_an_early_read_is_left_to_the_cycles() -> None:
    assert not found(sent(5, kind="info"), read(4, 0), entry(0), transactional=True)


def test_of_two_reads_at_one_index_the_lower_process_is_named() -> None:
    (early,) = found(sent(5, kind="info"), read(4, 0, process=60), read(4, 0), entry(0))

    assert (early["process"], early["ops"]) == (READER, [5, 6, 4])


def test_lines_of_a_duplicate_are_named_once() -> None:
    (twice,) = found(sent(3, offset=5), entry(5), entry(6), read(4, 5), read(8, 6))

    assert (twice["ops"], twice["offset"], twice["seen"]) == ([3, 4], 5, 6)


def test_an_inconsistency_names_each_line_once_and_in_order() -> None:
    rows = [sent(6, 7, offset=5), invoked(0, 8), invoked(0, 9), read(3, 5, 8), read(3, 5, 9, pos=1)]

    (two,) = found(*rows, **NO_LOG)

    assert (two["value"], two["seen"], two["ops"]) == (7, 9, [3, 7])


ODD = (LEAST, LEAST + 1, -1, 0, 1, MOST - 1, MOST)


def odd_runs(odd: int) -> list[tuple[Rows, Row]]:
    """With this number as offset, value, index, time, process and bound."""
    other = -1 - odd
    there = {"index": odd, "time": odd, "process": odd, "at": odd, "value": odd, "offset": odd}
    bounds = {"log_start": odd, "hw": other, "readable_to": other, "stable_to": other, "unclean_index": odd,
              "unclean_time": other, "unclean_maybe_time": odd, "budget_index": odd,
              "budget_maybe_index": other, "unseen_judged": True, "retried": True}  # fmt: skip
    rows = [
        invoked(1) | {"sends": [invoked(1)["sends"][0] | there | {"offset": None}]},
        answer(2) | {"sends": [answer(2)["sends"][0] | there]},
        read(3, other, odd), read(4, odd, other), read(5, odd, odd), entry(other, odd), entry(odd, other),
        entry(odd, odd, node="n2"), repeated(other),
    ]  # fmt: skip
    without = {**bounds, **NO_LOG, "by_final_reads": True, "by_any_read": True}
    return [(together(*rows), changed) for changed in (bounds, without)]


def test_any_number_may_be_any_64_bit_integer() -> None:
    """No statement fails, and each of the runs, all in one unit, has a finding."""
    findings = found_by_run(run for odd in ODD for run in odd_runs(odd))

    assert len(findings) == 2 * len(ODD)
    assert all(findings)


def test_an_offset_at_either_end_of_the_range_is_like_any_other() -> None:
    lowest = {"log_start": LEAST, "hw": MOST, "stable_to": MOST, "readable_to": MOST}
    there = [(together(sent(0, offset=one), entry(one), read(9, one)), lowest) for one in ODD]
    gone = [(sent(0, offset=one), lowest) for one in ODD]

    findings = list(map(brief, found_by_run(there + gone)))

    assert findings == [[]] * len(ODD) + [[("lost-write", one)] for one in ODD]


def test_a_bound_of_ever_covers_all_and_one_of_never_none() -> None:
    rows = sent(0, offset=5)

    assert brief(found(rows, unclean_time=EVER)) == [("lost-write", 5, UNCLEAN)]
    assert brief(found(rows, unclean_time=NEVER, budget_index=NEVER)) == [("lost-write", 5)]

"""The laws about what replicas must agree on (checkers.laws.replicas): breaches and near misses.

All runs are judged in one unit.
"""

from collections.abc import Sequence
from typing import Any

from unit_rows import GREATEST, LEAST, Batch, Run, briefly, each

from floodmark.checkers.laws.log import BLOCK, log
from floodmark.checkers.laws.replicas import replicas

Entry = dict[str, Any]
RECORD: Entry = {"offset": 3, "epoch": 2, "value": 7, "crc": 9}
DIVERGED, UNDER, LINEAGE = "diverged", "under-replicated", "epoch-lineage"
BATCH = Batch(log, replicas)


def case(
    *logs: Sequence[Entry] | Entry, rows: dict[str, Any] | None = None, end: int = 4, **second: Any
) -> Run:
    """A run in which n1, the leader, n2, n3 have these records. `rows`: fields of every row of `replicas`;
    `second`: of n2's row alone."""
    entries, replica_rows = [], []
    for number, records in enumerate(logs, 1):
        records = [records] if isinstance(records, dict) else records
        entries += [{"node": f"n{number}", **one} for one in records]
        row = {"node": f"n{number}", "leads": number == 1, "hw": end, "leo": end, "complete": False}
        replica_rows.append({**row, **(rows or {}), **(second if number == 2 else {})})
    followers = [{"node": f"n{number}", "log_start": 0} for number in range(2, len(logs) + 1)]
    if second.get("in_isr", True) is False:
        followers = [one for one in followers if one["node"] != "n2"]
    partition = {"hw": end, "isr_followers": followers}
    return BATCH.add(entries=entries, replicas=replica_rows, partitions=[partition])


def found(run: Run) -> list[dict[str, Any]]:
    """The findings, except those about one log by itself."""
    return [one for one in run.findings() if one["name"] != "malformed-log"]


@each("run", {
    "three": case(RECORD, RECORD, RECORD),
    "without a value": case({**RECORD, "value": None}, {**RECORD, "value": None}),
})  # fmt: skip
def test_equal_replicas_agree(run: Run) -> None:
    assert found(run) == []


@each("run, others", {
    "in epoch": (case(RECORD, {**RECORD, "epoch": 1}, RECORD), []),
    "in value": (case(RECORD, {**RECORD, "value": 8}, RECORD), [LINEAGE]),
    "without a value": (case(RECORD, {**RECORD, "value": None}, RECORD), [LINEAGE]),
    "in checksum": (case(RECORD, {**RECORD, "crc": 8}, RECORD), [LINEAGE]),
    "in both": (case(RECORD, {**RECORD, "value": LEAST, "crc": GREATEST}, RECORD), [LINEAGE]),
})  # fmt: skip
def test_the_replica_that_differs_from_the_leader_is_named(run: Run, others: list[str]) -> None:
    findings = found(run)

    assert [one["name"] for one in findings] == [DIVERGED, *others]
    assert findings[0] == {"name": DIVERGED, "partition": 0, "offset": 3, "value": 7, "nodes": ["n2"]}


ABOVE_THE_HW = case(RECORD, {**RECORD, "value": 8}, rows={"settled": False, "hw": 3})


def test_two_records_with_the_same_epoch_and_offset_are_a_finding() -> None:
    """Whether or not the replicas have to agree there; one finding for each epoch."""
    assert found(ABOVE_THE_HW) == [
        {"name": LINEAGE, "partition": 0, "offset": 3, "value": 7, "how": "two records", "seen": 2,
         "nodes": ["n1", "n2"]}
    ]  # fmt: skip


WITHOUT_EPOCHS = case({**RECORD, "epoch": -1}, {**RECORD, "epoch": -1, "value": 8})


def test_records_without_an_epoch_may_differ_in_lineage() -> None:
    assert [one["name"] for one in found(WITHOUT_EPOCHS)] == [DIVERGED]


OTHER = {**RECORD, "epoch": 1}


@each("run, diverged", {
    "settled": (case(RECORD, OTHER, rows={"settled": True, "hw": 0}), True),
    "below the HW": (case(RECORD, OTHER, rows={"settled": False, "hw": 4}), True),
    "at the HW": (case(RECORD, OTHER, rows={"settled": False, "hw": 3}), False),
    "at one HW": (case(RECORD, OTHER, rows={"settled": False, "hw": 4}, hw=3), False),
    "outside the ISR": (
        case(RECORD, OTHER, rows={"settled": False, "hw": 4}, in_isr=False), True),
    "outside the ISR, and data was lost": (
        case(RECORD, OTHER, rows={"settled": False, "hw": 4, "struck": True}, in_isr=False), False),
    "in the ISR, and data was lost": (
        case(RECORD, OTHER, rows={"settled": False, "hw": 4, "struck": True}), True),
    "one HW is unknown": (
        case(RECORD, OTHER, rows={"settled": False, "hw": GREATEST}, hw=None), False),
})  # fmt: skip
def test_where_two_replicas_must_agree(run: Run, diverged: bool) -> None:
    """Everywhere once settled. Before that below both HWs; where data was lost only inside the ISR."""
    assert (DIVERGED in {one["name"] for one in found(run)}) == diverged


COMPACT = {"compact": True}
OTHER_CRC = case(RECORD, {**RECORD, "crc": 1}, rows=COMPACT)
OTHER_VALUE = case(RECORD, {**RECORD, "value": 1}, rows=COMPACT)


def test_compaction_may_rewrite_a_batch() -> None:
    """Then its checksum is not compared; its record is."""
    assert found(OTHER_CRC) == []
    assert found(OTHER_VALUE) != []


def without_n2(*nodes: str, hw: int, log_start: int) -> Run:
    """These nodes have the record; n2, an ISR member with this log start, does not."""
    followers = [{"node": "n2", "log_start": log_start}, {"node": "n3", "log_start": 0}]
    return BATCH.add(
        entries=[{"node": node, **RECORD} for node in nodes],
        replicas=[{"node": node, "leads": node == "n1", "leo": 4} for node in ("n1", "n2", "n3")],
        partitions=[{"hw": hw, "isr_followers": followers}],
    )


@each("run, expected", {
    "committed": (without_n2("n1", "n3", hw=4, log_start=0), [["n2"]]),
    "not committed": (without_n2("n1", "n3", hw=3, log_start=0), []),
    "below the follower's log start": (without_n2("n1", "n3", hw=4, log_start=4), []),
    "not in the leader's log either": (without_n2("n3", hw=4, log_start=0), []),
})  # fmt: skip
def test_a_member_of_the_isr_has_every_committed_record(run: Run, expected: list[list[str]]) -> None:
    assert [one["nodes"] for one in found(run) if one["name"] == UNDER] == expected


# n2 has another record in the second block, n3 none of the third, and n4 has one record of the fourth twice
# and the next one not at all.
N1 = [{**RECORD, "offset": offset, "value": offset} for offset in range(0, 4 * BLOCK, BLOCK // 4)]
N2 = [{**one, "value": 1} if one["offset"] == BLOCK else one for one in N1]
N3 = [one for one in N1 if one["offset"] // BLOCK != 2]
N4 = [N1[12] if one is N1[13] else one for one in N1]
FOUR_BLOCKS = case(N1, N2, N3, N4, end=4 * BLOCK)


def test_every_block_of_the_logs_is_compared() -> None:
    missing = [(UNDER, one["offset"], ["n3"]) for one in N1[8:12]] + [(UNDER, N1[13]["offset"], ["n4"])]
    assert sorted(briefly(found(FOUR_BLOCKS), "offset", "nodes")) == sorted(
        [(DIVERGED, BLOCK, ["n2"]), (LINEAGE, BLOCK, ["n1", "n2", "n3", "n4"]), *missing]
    )


def two_partitions(first_value: int) -> Run:
    """Offset 0 of each has another value."""
    replica_rows = [(node, key) for key in (0, 1) for node in ("n1", "n2")]
    followers = [{"node": "n2", "log_start": 0}]
    return BATCH.add(
        entries=[
            {"node": node, "partition": key, "offset": 0, "value": first_value + key}
            for node, key in replica_rows
        ],
        replicas=[
            {"node": node, "partition": key, "leads": node == "n1", "leo": 1, "hw": 1}
            for node, key in replica_rows
        ],
        partitions=[{"partition": key, "hw": 1, "isr_followers": followers} for key in (0, 1)],
    )


ONE_RUN, ANOTHER_RUN = two_partitions(0), two_partitions(10)


def test_records_of_two_runs_or_partitions_are_not_compared() -> None:
    assert ONE_RUN.findings() == []
    assert ANOTHER_RUN.findings() == []

"""What replicas must agree on (checkers.laws.replicas): each breach of it beside what is none."""

from collections.abc import Sequence
from typing import Any

import pytest
from unit_rows import GREATEST, LEAST, briefly, found, found_each

from floodmark.checkers.laws.log import BLOCK, log
from floodmark.checkers.laws.replicas import replicas

Entry = dict[str, Any]
RECORD: Entry = {"offset": 3, "epoch": 2, "value": 7, "crc": 9}
DIVERGED, UNDER, LINEAGE = "diverged", "under-replicated", "epoch-lineage"


def three(
    *records: Sequence[Entry] | Entry | None, rows: dict[str, Any] | None = None, end: int = 4, **second: Any
) -> list[dict[str, Any]]:
    """What is found where n1, the leader, n2 and n3 hold these, without what each log breaks by itself.
    `rows`: of all replicas; `second`: of n2's alone."""
    entries, told = [], []
    for number, held in enumerate(records, 1):
        held = [held] if isinstance(held, dict) else held or []
        entries += [{"node": f"n{number}", **one} for one in held]
        row = {"node": f"n{number}", "leads": number == 1, "hw": end, "leo": end, "complete": False}
        told.append({**row, **(rows or {}), **(second if number == 2 else {})})
    followers = [{"node": f"n{number}", "log_start": 0} for number in range(2, len(records) + 1)]
    if second.get("in_isr", True) is False:
        followers = [one for one in followers if one["node"] != "n2"]
    partition = {"hw": end, "isr_followers": followers}
    findings = found([log, replicas], entries=entries, replicas=told, partitions=[partition])
    return [one for one in findings if one["name"] != "malformed-log"]


def test_replicas_that_hold_the_same_agree() -> None:
    assert three(RECORD, RECORD, RECORD) == []
    assert three({**RECORD, "value": None}, {**RECORD, "value": None}) == []


@pytest.mark.parametrize(
    ("told", "others"),
    [
        ({"epoch": 1}, []),
        ({"value": 8}, ["epoch-lineage"]),
        ({"value": None}, ["epoch-lineage"]),
        ({"crc": 8}, ["epoch-lineage"]),
        ({"value": LEAST, "crc": GREATEST}, ["epoch-lineage"]),
    ],
)
def test_one_replica_differs(told: Entry, others: list[str]) -> None:
    """The one that the leader is not like is named, though it be the first."""
    other = {**RECORD, **told}

    findings = three(RECORD, other, RECORD)

    assert [one["name"] for one in findings] == [DIVERGED, *others]
    assert findings[0] == {"name": DIVERGED, "partition": 0, "offset": 3, "value": 7, "nodes": ["n2"]}


def test_one_epoch_and_offset_name_one_record() -> None:
    """Whether or not the replicas have to agree there; one finding for each epoch."""
    other = {**RECORD, "value": 8}

    findings = three(RECORD, other, rows={"settled": False, "hw": 3})

    assert findings == [
        {"name": LINEAGE, "partition": 0, "offset": 3, "value": 7, "how": "two records", "seen": 2,
         "nodes": ["n1", "n2"]}
    ]  # fmt: skip


def test_records_without_an_epoch_name_nothing() -> None:
    findings = three({**RECORD, "epoch": -1}, {**RECORD, "epoch": -1, "value": 8})

    assert [one["name"] for one in findings] == [DIVERGED]


@pytest.mark.parametrize(
    ("rows", "second", "wanted"),
    [
        ({"settled": True, "hw": 0}, {}, True),
        ({"settled": False, "hw": 4}, {}, True),
        ({"settled": False, "hw": 3}, {}, False),
        ({"settled": False, "hw": 4}, {"hw": 3}, False),
        ({"settled": False, "hw": 4}, {"in_isr": False}, True),
        ({"settled": False, "hw": 4, "struck": True}, {"in_isr": False}, False),
        ({"settled": False, "hw": 4, "struck": True}, {}, True),
        ({"settled": False, "hw": GREATEST}, {"hw": None}, False),
    ],
)
def test_where_two_replicas_must_agree(rows: Entry, second: Entry, wanted: bool) -> None:
    """Once settled anywhere, before that below both HWs; with one outside the ISR not where data was lost."""
    findings = three(RECORD, {**RECORD, "epoch": 1}, rows=rows, **second)

    assert (DIVERGED in {one["name"] for one in findings}) == wanted


def test_compaction_may_rewrite_a_batch() -> None:
    """Its crc says nothing then; its record does."""
    compact = {"compact": True}

    assert three(RECORD, {**RECORD, "crc": 1}, rows=compact) == []
    assert three(RECORD, {**RECORD, "value": 1}, rows=compact) != []


@pytest.mark.parametrize(
    ("led", "hw", "start", "wanted"),
    [
        (True, 4, 0, [["n2"]]),
        (True, 3, 0, []),  # not committed
        (True, 4, 4, []),  # below the follower's log start
        (False, 4, 0, []),  # the leader holds nothing there either
    ],
)
def test_a_member_of_the_isr_holds_what_the_leader_holds(
    led: bool, hw: int, start: int, wanted: list[list[str]]
) -> None:
    replica_rows = [{"node": node, "leads": node == "n1", "leo": 4} for node in ("n1", "n2", "n3")]
    holders = ("n1", "n3") if led else ("n3",)
    followers = [{"node": "n2", "log_start": start}, {"node": "n3", "log_start": 0}]

    findings = found(
        [log, replicas],
        entries=[{"node": node, **RECORD} for node in holders],
        replicas=replica_rows,
        partitions=[{"hw": hw, "isr_followers": followers}],
    )

    assert [one["nodes"] for one in findings if one["name"] == UNDER] == wanted


def test_every_block_of_the_logs_is_compared() -> None:
    """n2 has another record in the second block, n3 nothing of the third, and n4 one of the fourth twice and
    another not."""
    held = [{**RECORD, "offset": offset, "value": offset} for offset in range(0, 4 * BLOCK, BLOCK // 4)]
    n2 = [{**one, "value": 1} if one["offset"] == BLOCK else one for one in held]
    n3 = [one for one in held if one["offset"] // BLOCK != 2]
    n4 = [held[12] if one is held[13] else one for one in held]

    findings = three(held, n2, n3, n4, end=4 * BLOCK)

    lacking = [(UNDER, one["offset"], ["n3"]) for one in held[8:12]] + [(UNDER, held[13]["offset"], ["n4"])]
    assert sorted(briefly(findings, "offset", "nodes")) == sorted(
        [(DIVERGED, BLOCK, ["n2"]), (LINEAGE, BLOCK, ["n1", "n2", "n3", "n4"]), *lacking]
    )


def test_runs_and_partitions_are_not_mixed() -> None:
    """The same offset in two runs, or in two partitions, is two places."""

    def of(run: int) -> dict[str, Any]:
        entries = [
            {"node": node, "partition": key, "offset": 0, "value": 10 * run + key}
            for key in (0, 1)
            for node in ("n1", "n2")
        ]
        rows = [
            {"node": node, "partition": key, "leads": node == "n1", "leo": 1, "hw": 1}
            for key in (0, 1)
            for node in ("n1", "n2")
        ]
        followers = [{"node": "n2", "log_start": 0}]
        parts = [{"partition": key, "hw": 1, "isr_followers": followers} for key in (0, 1)]
        return {"entries": entries, "replicas": rows, "partitions": parts}

    assert found_each([log, replicas], [of(0), of(1)]) == [[], []]

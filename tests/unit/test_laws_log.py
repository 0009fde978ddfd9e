"""What one log must be (checkers.laws.log): each breach of it beside what is none."""

from typing import Any

import pytest
from unit_rows import GREATEST, briefly, found

from floodmark.checkers.laws.log import log

MALFORMED, LINEAGE = "malformed-log", "epoch-lineage"


def one_log(*entries: dict[str, Any], **replica: Any) -> list[dict[str, Any]]:
    offsets = [entry["offset"] for entry in entries]
    leo = max(offsets, default=-1) + 1
    healthy = {"log_start": min(offsets, default=0), "leo": min(leo, GREATEST), "hw": 0}
    return found([log], entries=entries, replicas=[{**healthy, **replica}])


def at(*offsets: int) -> list[dict[str, Any]]:
    return [{"offset": offset, "value": 10 * offset % 1000} for offset in offsets]


def epochs(*each: int) -> list[dict[str, Any]]:
    return [{"offset": offset, "epoch": epoch} for offset, epoch in enumerate(each)]


@pytest.mark.parametrize(
    ("offsets", "replica", "wanted"),
    [
        ((0, 1, 2), {}, []),
        ((7, 8), {}, []),
        ((), {}, []),
        ((0, 1, 1, 2), {}, [("doubled", 1, 1)]),
        ((0, 2, 1, 3), {}, [("disordered", 1, 2), ("gap", 2, 0), ("gap", 3, 1)]),
        ((0, 1, 5), {}, [("gap", 5, 1)]),
        ((0, 1, 5), {"compact": True}, []),
        ((0, 1, 5), {"complete": False}, []),
        ((0, 0), {"complete": False}, [("doubled", 0, 0)]),
        ((0, GREATEST), {"leo": GREATEST}, [("gap", GREATEST, 0), ("leo", GREATEST, GREATEST)]),
    ],
)
def test_each_offset_follows_the_one_before(
    offsets: tuple[int, ...], replica: dict[str, Any], wanted: list[tuple[str, int, int]]
) -> None:
    """A gap is none where lines are missing or compaction makes them; the rest is wrong anywhere."""
    findings = one_log(*at(*offsets), **replica)

    assert sorted(briefly(findings, "how", "offset", "seen")) == [(MALFORMED, *one) for one in wanted]


def test_the_order_is_that_of_the_dump() -> None:
    """Not that in which rows reach the unit; and logs of other nodes and partitions lie between."""
    rows = [
        {"node": node, "partition": key, "offset": offset, "at": 2 * offset + key}
        for offset in (2, 0, 1)
        for node in ("n1", "n2")
        for key in (0, 1)
    ]
    replicas = [{"node": node, "partition": key, "leo": 3} for node in ("n1", "n2") for key in (0, 1)]

    assert found([log], entries=rows, replicas=replicas) == []


def test_rows_that_go_on_from_each_other_may_have_another_between() -> None:
    """In the dump 9 stands between 5 and 6, though its row comes last."""
    rows = [{"offset": 5, "at": 1}, {"offset": 6, "at": 3}, {"offset": 9, "at": 2}]

    findings = one_log(*rows)

    wanted = [("disordered", 6, 9), ("gap", 9, 5)]
    assert sorted(briefly(findings, "how", "offset", "seen")) == [(MALFORMED, *one) for one in wanted]


def test_a_checksum_fits_its_bytes() -> None:
    assert one_log({"offset": 0}, {"offset": 1, "value": 4, "crc_ok": False}) == [
        {"name": MALFORMED, "partition": 0, "offset": 1, "value": 4, "how": "crc", "nodes": ["n1"]}
    ]


@pytest.mark.parametrize(
    ("replica", "wanted"),
    [
        ({"hw": 3}, []),
        ({"hw": 4}, [("hw", 3, 4)]),
        ({"hw": 4, "running": False}, []),
        ({"leo": 4}, [("leo", 4, 2)]),
        ({"leo": 4, "complete": False}, []),
        ({"leo": 4, "compact": True}, []),
        ({"leo": 2, "complete": False}, [("leo", 2, 2)]),
        ({"log_start": 0}, [("log_start", 0, 1)]),
        ({"log_start": 0, "compact": True}, []),
        ({"log_start": 2, "compact": True}, [("log_start", 2, 1)]),
        ({"hw": GREATEST, "leo": GREATEST}, [("leo", GREATEST, 2)]),
        ({"hw": None, "log_start": None, "leo": None, "running": None}, []),
    ],
)
def test_bounds_fit_the_entries(replica: dict[str, Any], wanted: list[tuple[str, int, int]]) -> None:
    """Of a log of offsets 1 and 2. A row that is not there says nothing."""
    findings = one_log(*at(1, 2), **replica)

    assert sorted(briefly(findings, "how", "offset", "seen")) == [(MALFORMED, *one) for one in wanted]


def test_an_empty_log_ends_where_it_starts() -> None:
    assert one_log(log_start=5, leo=5) == []
    assert briefly(one_log(log_start=5, leo=6), "how") == [(MALFORMED, "leo")]


@pytest.mark.parametrize(
    ("each", "wanted"),
    [
        ((0, 0, 3, 3), []),
        ((0, 3, 2, 2), [("falls", 2, 3)]),
        ((3, -1, 2), [("falls", 2, 3)]),
        ((3, -1, 3), []),
        ((GREATEST, 0), [("falls", 1, GREATEST)]),
    ],
)
def test_epochs_do_not_fall(each: tuple[int, ...], wanted: list[tuple[str, int, int]]) -> None:
    """Records without an epoch are passed over."""
    findings = one_log(*epochs(*each))

    assert briefly(findings, "how", "offset", "seen") == [(LINEAGE, *one) for one in wanted]


def cache(*starts: tuple[int, int]) -> list[dict[str, int]]:
    return [{"epoch": epoch, "start": start} for epoch, start in starts]


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (None, []),
        (cache((0, 0), (2, 1)), []),
        (cache((0, -5), (2, 1)), []),
        (cache((0, 0), (2, 1), (4, 3)), []),  # elected, and nothing written
        (cache((0, 0), (2, 1), (4, 4)), [("cache above LEO", 4, 4)]),
        (cache((0, 0), (2, 2)), [("cache", 1, 0)]),
        (cache((0, 0), (1, 1), (2, 1)), []),  # two of one start: the higher
        (cache((2, 1)), [("cache", 0, -1)]),
        ([], [("cache", 0, -1), ("cache", 1, -1), ("cache", 2, -1)]),
        (cache((0, 0), (3, 1)), [("cache", 1, 3), ("cache", 2, 3)]),
    ],
)
def test_the_epoch_cache_fits_the_records(
    told: list[dict[str, int]] | None, wanted: list[tuple[str, int, int]]
) -> None:
    """Of a log of three records, of epochs 0, 2, 2."""
    findings = one_log(*epochs(0, 2, 2), cache=told)

    assert briefly(findings, "how", "offset", "seen") == [(LINEAGE, *one) for one in wanted]


def test_a_record_without_an_epoch_is_not_in_the_cache() -> None:
    assert one_log(*epochs(-1, -1), cache=[]) == []


def test_a_stray_copy_is_no_log() -> None:
    """Entries of a node that no replica row names are nobody's to judge."""
    stray = [{"node": "n9", "offset": 3, "crc_ok": False}, {"node": "n9", "offset": 3}]

    assert one_log(*at(0), leo=1) == found([log], entries=[*at(0), *stray], replicas=[{"leo": 1}]) == []

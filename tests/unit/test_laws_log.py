"""The laws about one log by itself (checkers.laws.log): breaches and near misses.

All runs are judged in one unit.
"""

from typing import Any

from unit_rows import GREATEST, Batch, Run, briefly, each

from floodmark.checkers.laws.log import log

MALFORMED, LINEAGE = "malformed-log", "epoch-lineage"
BATCH = Batch(log)


def one_log(*entries: dict[str, Any], **replica: Any) -> Run:
    """A run in which n1 has these entries. `replica`: fields of its row."""
    offsets = [entry["offset"] for entry in entries]
    leo = max(offsets, default=-1) + 1
    healthy = {"log_start": min(offsets, default=0), "leo": min(leo, GREATEST), "hw": 0}
    return BATCH.add(entries=entries, replicas=[{**healthy, **replica}])


def at(*offsets: int) -> list[dict[str, Any]]:
    return [{"offset": offset, "value": 10 * offset % 1000} for offset in offsets]


def epochs(*several: int) -> list[dict[str, Any]]:
    return [{"offset": offset, "epoch": epoch} for offset, epoch in enumerate(several)]


def brief(run: Run) -> list[tuple[Any, ...]]:
    """The name of each finding, and its how, offset and seen."""
    return briefly(run.findings(), "how", "offset", "seen")


@each("run, expected", {
    "from 0": (one_log(*at(0, 1, 2)), []),
    "from 7": (one_log(*at(7, 8)), []),
    "empty": (one_log(), []),
    "an offset twice": (one_log(*at(0, 1, 1, 2)), [("doubled", 1, 1)]),
    "two offsets swapped": (
        one_log(*at(0, 2, 1, 3)), [("disordered", 1, 2), ("gap", 2, 0), ("gap", 3, 1)]),
    "a gap": (one_log(*at(0, 1, 5)), [("gap", 5, 1)]),
    "a gap, compacted": (one_log(*at(0, 1, 5), compact=True), []),
    "a gap, lines missing": (one_log(*at(0, 1, 5), complete=False), []),
    "an offset twice, lines missing": (one_log(*at(0, 0), complete=False), [("doubled", 0, 0)]),
    "the greatest gap": (
        one_log(*at(0, GREATEST), leo=GREATEST),
        [("gap", GREATEST, 0), ("leo", GREATEST, GREATEST)]),
})  # fmt: skip
def test_each_offset_follows_the_one_before(run: Run, expected: list[tuple[str, int, int]]) -> None:
    """A gap is allowed where lines are missing or compaction makes it; the rest is wrong anywhere."""
    assert sorted(brief(run)) == [(MALFORMED, *one) for one in expected]


OUT_OF_ORDER = BATCH.add(
    entries=[
        {"node": node, "partition": key, "offset": offset, "at": 2 * offset + key}
        for offset in (2, 0, 1)
        for node in ("n1", "n2")
        for key in (0, 1)
    ],
    replicas=[{"node": node, "partition": key, "leo": 3} for node in ("n1", "n2") for key in (0, 1)],
)


def test_the_order_of_entries_is_that_of_the_dump() -> None:
    """Not that of the rows in the unit, where entries of other nodes and partitions are in between."""
    assert OUT_OF_ORDER.findings() == []


LAST_ROW_IN_THE_MIDDLE = one_log({"offset": 5, "at": 1}, {"offset": 6, "at": 3}, {"offset": 9, "at": 2})


def test_consecutive_rows_may_have_another_entry_between_them_in_the_dump() -> None:
    """In the dump 9 is between 5 and 6, though its row is the last."""
    expected = [("disordered", 6, 9), ("gap", 9, 5)]
    assert sorted(brief(LAST_ROW_IN_THE_MIDDLE)) == [(MALFORMED, *one) for one in expected]


DAMAGED = one_log({"offset": 0}, {"offset": 1, "value": 4, "crc_ok": False})


def test_a_wrong_checksum_is_a_finding() -> None:
    assert DAMAGED.findings() == [
        {"name": MALFORMED, "partition": 0, "offset": 1, "value": 4, "how": "crc", "nodes": ["n1"]}
    ]


@each("run, expected", {
    "HW at the LEO": (one_log(*at(1, 2), hw=3), []),
    "HW above it": (one_log(*at(1, 2), hw=4), [("hw", 3, 4)]),
    "HW above it, not running": (one_log(*at(1, 2), hw=4, running=False), []),
    "LEO too high": (one_log(*at(1, 2), leo=4), [("leo", 4, 2)]),
    "LEO too high, lines missing": (one_log(*at(1, 2), leo=4, complete=False), []),
    "LEO too high, compacted": (one_log(*at(1, 2), leo=4, compact=True), []),
    "LEO too low, lines missing": (one_log(*at(1, 2), leo=2, complete=False), [("leo", 2, 2)]),
    "log start too low": (one_log(*at(1, 2), log_start=0), [("log_start", 0, 1)]),
    "log start too low, compacted": (one_log(*at(1, 2), log_start=0, compact=True), []),
    "log start too high, compacted": (
        one_log(*at(1, 2), log_start=2, compact=True), [("log_start", 2, 1)]),
    "HW and LEO as high as can be": (
        one_log(*at(1, 2), hw=GREATEST, leo=GREATEST), [("leo", GREATEST, 2)]),
    "unknown": (one_log(*at(1, 2), hw=None, log_start=None, leo=None, running=None), []),
})  # fmt: skip
def test_the_bounds_fit_the_entries(run: Run, expected: list[tuple[str, int, int]]) -> None:
    """Of a log with offsets 1 and 2. Unknown bounds contradict nothing."""
    assert sorted(brief(run)) == [(MALFORMED, *one) for one in expected]


EMPTY, EMPTY_WITH_HIGHER_LEO = one_log(log_start=5, leo=5), one_log(log_start=5, leo=6)


def test_an_empty_log_ends_where_it_starts() -> None:
    assert EMPTY.findings() == []
    assert briefly(EMPTY_WITH_HIGHER_LEO.findings(), "how") == [(MALFORMED, "leo")]


@each("run, expected", {
    "rising": (one_log(*epochs(0, 0, 3, 3)), []),
    "falling": (one_log(*epochs(0, 3, 2, 2)), [("falls", 2, 3)]),
    "falling after one without": (one_log(*epochs(3, -1, 2)), [("falls", 2, 3)]),
    "the same after one without": (one_log(*epochs(3, -1, 3)), []),
    "falling from the greatest": (one_log(*epochs(GREATEST, 0)), [("falls", 1, GREATEST)]),
})  # fmt: skip
def test_epochs_do_not_fall(run: Run, expected: list[tuple[str, int, int]]) -> None:
    """Records without an epoch are left out."""
    assert brief(run) == [(LINEAGE, *one) for one in expected]


def with_cache(*starts: tuple[int, int]) -> Run:
    """A log of three records, of epochs 0, 2, 2, with a leader-epoch cache of these epochs and starts."""
    return one_log(*epochs(0, 2, 2), cache=[{"epoch": epoch, "start": start} for epoch, start in starts])


@each("run, expected", {
    "unknown": (one_log(*epochs(0, 2, 2), cache=None), []),
    "the same": (with_cache((0, 0), (2, 1)), []),
    "from below the log start": (with_cache((0, -5), (2, 1)), []),
    "an epoch in which nothing is written yet": (with_cache((0, 0), (2, 1), (4, 3)), []),
    "an epoch above the LEO": (with_cache((0, 0), (2, 1), (4, 4)), [("cache above LEO", 4, 4)]),
    "a start too late": (with_cache((0, 0), (2, 2)), [("cache", 1, 0)]),
    "two of one start: the higher": (with_cache((0, 0), (1, 1), (2, 1)), []),
    "no epoch at the beginning": (with_cache((2, 1)), [("cache", 0, -1)]),
    "empty": (with_cache(), [("cache", 0, -1), ("cache", 1, -1), ("cache", 2, -1)]),
    "another epoch": (with_cache((0, 0), (3, 1)), [("cache", 1, 3), ("cache", 2, 3)]),
})  # fmt: skip
def test_the_epoch_cache_fits_the_records(run: Run, expected: list[tuple[str, int, int]]) -> None:
    assert brief(run) == [(LINEAGE, *one) for one in expected]


WITHOUT_EPOCHS = one_log(*epochs(-1, -1), cache=[])


def test_a_record_without_an_epoch_is_not_in_the_cache() -> None:
    assert WITHOUT_EPOCHS.findings() == []


STRAY = [{"node": "n9", "offset": 3, "crc_ok": False}, {"node": "n9", "offset": 3}]
WITHOUT_COPY = one_log(*at(0), leo=1)
WITH_COPY = BATCH.add(entries=[*at(0), *STRAY], replicas=[{"leo": 1}])


def test_a_stray_copy_is_not_judged() -> None:
    """Entries of a node that has no row in `replicas`."""
    assert WITHOUT_COPY.findings() == WITH_COPY.findings() == []

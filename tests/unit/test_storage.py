"""A partition's log on a real disk: its folder, its reads, what is refused. (tests/property/test_disk.py
holds appends, rolls, truncations and restarts against a model.)"""

from pathlib import Path

import pytest
from disk import Disk, batch

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.wire.record_batch import parse_batches

SIZE = len(batch(0).data)  # of a batch of one record, as these tests write them


def test_a_new_log_is_a_directory_as_in_kafka(tmp_path: Path) -> None:
    disk = Disk(tmp_path)

    names = sorted(path.name for path in disk.folder.iterdir())
    assert names == ["00000000000000000000.log", "partition.metadata"]
    text = (disk.folder / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n"
    assert (disk.log.log_start, disk.log.leo) == (0, 0)


def test_an_append_stamps_offset_and_epoch_into_the_clients_batch(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.log.append([batch(offset) for offset in range(4)])
    sent = batch(0, 2)

    disk.log.append([Batch(base_offset=4, last_offset=5, epoch=9, data=sent.data)])

    found = parse_batches(disk.log.read(4, 6, 1000))[0]
    assert (found.base_offset, found.last_offset, found.epoch) == (4, 5, 9)


@pytest.mark.parametrize(("start", "end", "limit", "offsets"), [
    (0, 10, 10_000, [0, 3, 4, 6]),
    (0, 10, 1, [0]),  # at least one
    (1, 10, 1, [0]),  # from the batch that holds the offset
    (3, 10, 2 * SIZE, [3, 4]),
    (3, 10, 2 * SIZE - 1, [3]),
    (4, 6, 10_000, [4]),
    (4, 5, 10_000, []),  # its one batch goes beyond the end
    (0, 5, 10_000, [0, 3]),  # the batch that holds 5 is not returned in part
    (0, 4, 10_000, [0, 3]),
    (7, 7, 10_000, []),
    (6, 99, 10_000, [6]),
])
def test_a_read_gives_whole_batches_within_its_bounds(tmp_path: Path, start: int, end: int, limit: int,
                                                      offsets: list[int]) -> None:
    disk = Disk(tmp_path)
    disk.log.append([batch(0, 3), batch(3), batch(4, 2), batch(6)])

    assert [one.base_offset for one in parse_batches(disk.log.read(start, end, limit))] == offsets


def test_what_no_log_holds_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """A hole, an overlap, a read below the start, a truncation inside a batch or below the start. One at or
    above the end does nothing."""
    disk = Disk(tmp_path)
    disk.log.reset(2)
    disk.log.append([batch(2, 2), batch(4, 2)])
    before = disk.content()

    for act, why in (
        (lambda: disk.log.append([batch(5)]), "a batch at offset 5, not 6"),
        (lambda: disk.log.append([batch(7)]), "a batch at offset 7, not 6"),
        (lambda: disk.log.read(1, 6, 100), "offset 1 is below the log's start 2"),
        (lambda: disk.log.truncate(5), "inside a batch"),
        (lambda: disk.log.truncate(1), "the log begins at 2"),
    ):
        with pytest.raises(ValueError, match=why):
            act()
    disk.log.truncate(6)
    disk.log.truncate(9)
    assert (disk.content(), disk.log.leo) == (before, 6)


@pytest.mark.parametrize(("every", "flushed"), [(1, 5), (2, 4), (5, 5), (6, 0), (None, 0)])
def test_flush_messages_decides_after_how_many_records_an_append_is_durable(
        tmp_path: Path, every: int | None, flushed: int) -> None:
    disk = Disk(tmp_path, flush_messages=every)
    for offset in range(5):
        disk.log.append([batch(offset)])

    assert disk.log.recovery_point == flushed

"""A partition's log on a real disk: appends, reads, rolls and truncations."""

from pathlib import Path

import pytest
from disk import Disk, batch

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.wire.record_batch import parse_batches

SIZE = len(batch(0).data)  # of a batch of one record, as these tests write them


def written(disk: Disk, *batches: Batch) -> list[Batch]:
    for one in batches:
        disk.log.append((one,))
    return list(batches)


def singles(first: int, end: int, epoch: int = 0) -> list[Batch]:
    return [batch(offset, epoch=epoch) for offset in range(first, end)]


# -- reading and writing ------------------------------------------------------------


def test_a_new_log_is_a_directory_as_in_kafka(tmp_path: Path) -> None:
    disk = Disk(tmp_path)

    names = sorted(path.name for path in disk.folder.iterdir())
    assert names == ["00000000000000000000.log", "partition.metadata"]
    text = (disk.folder / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n"
    assert (disk.log.log_start, disk.log.leo) == (0, 0)


def test_appended_batches_are_on_disk_byte_for_byte(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    batches = [batch(0, 3, 1), batch(3, 1, 1), batch(4, 2, 2)]

    disk.log.append(batches)

    assert disk.content() == b"".join(one.data for one in batches)
    assert disk.log.leo == 6


def test_an_append_stamps_offset_and_epoch_into_the_clients_batch(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.log.append(singles(0, 4))
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


def test_a_read_below_the_start_is_an_error(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.log.reset(5)
    disk.log.append([batch(5)])

    with pytest.raises(ValueError, match="offset 4 is below the log's start 5"):
        disk.log.read(4, 6, 100)


@pytest.mark.parametrize("offset", [3, 5])
def test_a_batch_that_leaves_a_hole_or_overlaps_is_refused(tmp_path: Path, offset: int) -> None:
    disk = Disk(tmp_path)
    disk.log.append(singles(0, 4))
    before = disk.content()

    with pytest.raises(ValueError, match=f"a batch at offset {offset}, not 4"):
        disk.log.append([batch(offset)])

    assert (disk.content(), disk.log.leo) == (before, 4)


# -- segments ------------------------------------------------------------


def test_a_full_segment_rolls_and_reads_go_on_across(tmp_path: Path) -> None:
    disk = Disk(tmp_path, segment_bytes=3 * SIZE)
    batches = singles(0, 8)

    disk.log.append(batches)

    assert [path.name for path in disk.segments()] == [f"{base:020d}.log" for base in (0, 3, 6)]
    assert disk.read_all() == b"".join(one.data for one in batches)
    assert len(disk.log.read(1, 8, 10_000)) == 2 * SIZE  # to the end of its segment


def test_a_batch_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    disk = Disk(tmp_path, segment_bytes=2 * SIZE)
    large = batch(1, payload=b"x" * 1000)

    disk.log.append([batch(0), large, batch(2)])

    assert [int(path.stem) for path in disk.segments()] == [0, 1, 2]
    assert disk.log.read(1, 3, 1) == large.data


def test_a_roll_makes_what_is_before_it_durable(tmp_path: Path) -> None:
    disk = Disk(tmp_path, segment_bytes=3 * SIZE)

    disk.log.append(singles(0, 3))
    assert disk.log.recovery_point == 0
    disk.log.append(singles(3, 5))
    assert disk.log.recovery_point == 3


@pytest.mark.parametrize(("every", "flushed"), [(1, 5), (2, 4), (5, 5), (6, 0), (None, 0)])
def test_flush_messages_decides_after_how_many_records_an_append_is_durable(tmp_path: Path, every: int | None,
                                                                            flushed: int) -> None:
    disk = Disk(tmp_path, flush_messages=every)

    written(disk, *singles(0, 5))

    assert disk.log.recovery_point == flushed


# -- truncation ------------------------------------------------------------


@pytest.mark.parametrize("to", range(8))
def test_a_truncation_cuts_across_segments_and_the_log_goes_on(tmp_path: Path, to: int) -> None:
    disk = Disk(tmp_path, segment_bytes=3 * SIZE)
    disk.log.append(singles(0, 8))

    disk.log.truncate(to)
    disk.log.append(singles(to, to + 2, epoch=3))

    expected = singles(0, to) + singles(to, to + 2, epoch=3)
    assert disk.log.leo == to + 2
    assert disk.read_all() == b"".join(one.data for one in expected)
    disk.restart()
    assert disk.log.recovered.cut is None
    assert disk.read_all() == b"".join(one.data for one in expected)


def test_a_truncation_at_or_above_the_end_does_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.log.append(singles(0, 3))

    disk.log.truncate(3)
    disk.log.truncate(7)

    assert disk.log.leo == 3


@pytest.mark.parametrize(("to", "why"), [(5, "inside a batch"), (1, "the log begins at 2")])
def test_a_truncation_to_an_offset_that_is_no_boundary_is_refused(tmp_path: Path, to: int, why: str) -> None:
    disk = Disk(tmp_path)
    disk.log.reset(2)
    disk.log.append([batch(2, 2), batch(4, 2)])

    with pytest.raises(ValueError, match=why):
        disk.log.truncate(to)
    assert disk.log.leo == 6


def test_a_reset_leaves_an_empty_log_that_begins_elsewhere(tmp_path: Path) -> None:
    disk = Disk(tmp_path, segment_bytes=3 * SIZE)
    disk.log.append(singles(0, 8))

    disk.log.reset(100)
    disk.log.append([batch(100, 2)])
    disk.restart()

    assert (disk.log.log_start, disk.log.leo) == (100, 102)
    assert [int(path.stem) for path in disk.segments()] == [100]

"""Offsets by time: the first record not older than a time, against a scan of every record."""

from pathlib import Path
from random import Random

import pytest
from disk import Disk
from kafka_batches import batch

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.storage.offsets_by_timestamp import MAX_TIMESTAMP, TimestampAndOffset, find_offset
from floodmark.broker.wire.record_batch import parse_batches

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


def sent(times: list[int], codec: int) -> bytes:
    """A batch as a client sends it."""
    return batch(0, [b"v" * 40] * len(times), codec=codec, headers=[("h", b"w")], times=times)


def logged(disk: Disk, times: list[list[int]], codec: int) -> None:
    for epoch, each in enumerate(times):
        (one,) = parse_batches(sent(each, codec))
        base = disk.log.leo
        disk.log.append([
            Batch(base_offset=base, last_offset=base + len(each) - 1, epoch=epoch, data=one.data)])


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_the_offset_is_that_of_the_first_record_that_is_not_older(tmp_path: Path, codec: int) -> None:
    """Times in no order, several batches a segment, several segments; also below an end."""
    random = Random(codec)
    for turn in range(10):
        disk = Disk(tmp_path / f"{turn}", segment_bytes=600)
        times = [[random.randrange(100) for _ in range(random.randrange(1, 6))]
                 for _ in range(random.randrange(12))]
        logged(disk, times, codec)
        stamps = [(timestamp, epoch) for epoch, each in enumerate(times) for timestamp in each]
        every = [TimestampAndOffset(offset=offset, timestamp=timestamp, epoch=epoch)
                 for offset, (timestamp, epoch) in enumerate(stamps)]
        for target in range(-1, 102, 3):
            expected = next((one for one in every if one.timestamp >= max(target, 0)), None)
            assert find_offset(disk.log, max(target, 0), disk.log.leo) == expected
        youngest = max((one.timestamp for one in every), default=0)
        assert find_offset(disk.log, MAX_TIMESTAMP, disk.log.leo) == next(
            (one for one in every if one.timestamp == youngest), None)

    disk = Disk(tmp_path / "an uncommitted record is not found")
    logged(disk, [[10, 11], [20]], codec)

    assert find_offset(disk.log, 15, 3) == TimestampAndOffset(offset=2, timestamp=20, epoch=1)
    assert find_offset(disk.log, 15, 2) is None
    assert find_offset(disk.log, MAX_TIMESTAMP, 2) == TimestampAndOffset(offset=1, timestamp=11, epoch=0)


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_an_unreadable_batch_is_found_by_its_first_record(tmp_path: Path, codec: int) -> None:
    """The offset may be too early, never too late; it comes with its own time."""
    disk = Disk(tmp_path)
    logged(disk, [[1, 2], [10, 15, 20], [30]], codec)

    assert find_offset(disk.log, 15, 6) == TimestampAndOffset(offset=2, timestamp=10, epoch=1)
    assert find_offset(disk.log, 21, 6) == TimestampAndOffset(offset=5, timestamp=30, epoch=2)
    assert find_offset(disk.log, 31, 6) is None
    assert find_offset(disk.log, MAX_TIMESTAMP, 5) == TimestampAndOffset(offset=4, timestamp=20, epoch=1)


def test_malformed_records_are_no_error(tmp_path: Path) -> None:
    """The broker parses no records before; the batch's CRC is valid, its records are noise."""
    disk = Disk(tmp_path)
    random = Random(3)
    for codec in (NONE, GZIP):
        data = bytearray(sent([10, 20], codec))
        for turn in range(50):
            data[61:] = random.randbytes(len(data) - 61)
            noisy = Batch(base_offset=disk.log.leo, last_offset=disk.log.leo, epoch=0, data=bytes(data))
            disk.log.append([noisy])
            assert find_offset(disk.log, 15, disk.log.leo) is not None, turn

"""A partition's log on a real disk: its folder, its reads, what is refused, what is left after damage.

Appends, rolls, truncations, kills and power cuts are held against a model in tests/property/test_disk.py;
what the known storage bugs do, the scenarios show.
"""

import errno
import os
from pathlib import Path

import pytest
from disk import SIZE, TOPIC_ID, Disk, batch, files_no_larger_than, singles

from floodmark.broker.storage.checkpoint_files import CheckpointError, read_epoch_checkpoint
from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.storage.log_directory import DiskError, LogDirectory
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.wire.record_batch import parse_batches


def test_a_new_log_is_a_directory_as_in_kafka(tmp_path: Path) -> None:
    disk = Disk(tmp_path)

    names = sorted(path.name for path in disk.folder.iterdir())
    assert names == ["00000000000000000000.log", "partition.metadata"]
    text = (disk.folder / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n"
    assert (disk.log.log_start, disk.log.leo) == (0, 0)


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
    disk.log.truncate(3)
    assert disk.log.recovery_point == min(flushed, 3)


# -- recovery --------------------------------------------------------------------------------------------


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]


def test_what_is_damaged_costs_its_batch_and_all_after_it(tmp_path: Path) -> None:
    """A log cut at every byte, with rubbish behind it, and with a flipped bit anywhere but in the leader
    epoch, which neither the CRC nor the order of offsets checks. It is reported, and the log goes on."""
    disk = Disk(tmp_path, account=False)
    batches = [batch(0, 2), batch(2, 3, payload=b"yy"), batch(5, 1, payload=b"zzzz")]
    disk.log.append(batches)
    disk.kill()
    [path] = disk.segments()
    whole = path.read_bytes()
    ends = [len(batches[0].data), len(batches[0].data) + len(batches[1].data), len(whole)]
    rubbish = (b"\0" * 100, b"\xff" * 100, b"\0" * 7, bytes(range(256)))
    for damaged, kept in (
            *((whole[:length], sum(end <= length for end in ends)) for length in range(ends[0], ends[2] + 1)),
            *((whole + tail, 3) for tail in rubbish),
            *((flipped(whole, at), 1) for at in range(ends[0], ends[1]) if not 12 <= at - ends[0] < 16)):
        path.write_bytes(damaged)
        disk.start()
        assert (disk.log.leo, disk.content()) == (batches[kept - 1].last_offset + 1, whole[:ends[kept - 1]])
        gone = len(damaged) - ends[kept - 1]
        told = disk.log.recovered.cut
        assert told is None if not gone else f"{gone} of {len(damaged)} bytes cut off" in (told or "")
        disk.log.append([more := batch(disk.log.leo)])
        assert disk.read_all() == whole[:ends[kept - 1]] + more.data
        disk.kill()


@pytest.mark.parametrize(("bad", "leo", "left"), [(True, 4, [0, 3]), (False, 3, [0])])
def test_a_bad_batch_or_a_missing_segment_drops_the_later_ones(
        tmp_path: Path, bad: bool, leo: int, left: list[int]) -> None:
    disk = Disk(tmp_path, segment_bytes=3 * SIZE)
    disk.log.append(singles(0, 8))
    disk.kill()
    second = disk.segments()[1]
    second.write_bytes(flipped(second.read_bytes(), SIZE + 30)) if bad else second.unlink()

    disk.start()

    assert (disk.log.leo, [int(path.stem) for path in disk.segments()]) == (leo, left)
    assert "segments dropped: 00000000000000000006.log" in (disk.log.recovered.cut or "")
    disk.log.append(singles(leo, 9))
    assert disk.read_all() == b"".join(one.data for one in singles(0, 9))


@pytest.mark.parametrize(("saved", "repaired"), [
    ([(0, 0), (2, 2)], [(0, 0), (2, 2)]),  # as it was left
    ([(0, 0), (2, 2), (5, 4)], [(0, 0), (2, 2), (5, 4)]),  # elected, nothing written
    ([(0, 0), (2, 2), (5, 9)], [(0, 0), (2, 2)]),  # its records are lost
    ([(0, 0)], [(0, 0), (2, 2)]),  # the file is older than the batches
    ([], [(0, 0), (2, 2)]),
    ([(0, 0), (1, 1), (2, 3)], [(0, 0), (2, 2)]),  # another history
    ([(0, 0), (2, 2), (1, 4)], [(0, 0), (2, 2)]),  # an older epoch at the end means nothing
])
def test_the_epoch_file_is_repaired_from_the_batches(tmp_path: Path, saved: list[tuple[int, int]],
                                                     repaired: list[tuple[int, int]]) -> None:
    disk = Disk(tmp_path)
    disk.log.append([batch(0, 2), batch(2, 2, epoch=2)])
    disk.log.save_epochs(saved)

    disk.restart()

    assert disk.log.recovered.epochs == tuple(repaired)
    assert read_epoch_checkpoint(disk.folder / "leader-epoch-checkpoint") == tuple(repaired)
    (disk.folder / "leader-epoch-checkpoint").write_bytes(b"")  # as Kafka leaves one on a full disk
    disk.restart()
    assert disk.log.recovered.epochs == ((0, 0), (2, 2))


def test_a_generation_without_epochs_keeps_no_epoch_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.log.append([batch(0, epoch=3)])
    disk.log.close()

    log = LocalLog.open(disk.files, "log", 0, topic_id=TOPIC_ID, rules=rules_for("high-watermark"))

    assert log.recovered.epochs == ()
    assert not (disk.folder / "leader-epoch-checkpoint").exists()


def test_the_directory_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.log.close()

    with pytest.raises(CheckpointError, match="the log of another topic"):
        LocalLog.open(disk.files, "log", 0, topic_id="ff" * 16)


# -- disk errors and killed processes -----------------------------------------------------------------


def test_a_full_disk_is_reported_and_leaves_whole_batches(tmp_path: Path) -> None:
    """Half of a batch is written; nothing of that half may stay. So in the middle of several segments."""
    disk = Disk(tmp_path, segment_bytes=3 * SIZE)
    disk.log.append(singles(0, 2))
    for room, batches, leo in (
            (2 * SIZE + SIZE // 2, [batch(2)], 2),
            (3 * SIZE, [batch(2), *(batch(at, payload=b"x" * 3 * SIZE) for at in range(3, 9))], 3)):
        with files_no_larger_than(room), pytest.raises(DiskError, match=r"to .*\.log: no room"):
            disk.log.append(batches)
        whole = b"".join(one.data for one in singles(0, leo))
        assert (disk.log.leo, disk.content()) == (leo, whole)
        disk.restart()
        assert (disk.log.recovered.cut, disk.read_all()) == (None, whole)


def test_a_directory_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    """Of another process, which runs; or none at all."""
    disk = Disk(tmp_path)
    with pytest.raises(DiskError, match="in use by another process"):
        LogDirectory.open(disk.log_dir, None)
    disk.restart()
    (tmp_path / "n2").write_text("a file")
    with pytest.raises(DiskError, match=r"cannot open .*n2"):
        LogDirectory.open(tmp_path / "n2", None)


def test_a_disk_error_other_than_no_room_is_reported_as_it_is(tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path)
    disk.log.append([batch(0)])

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("floodmark.broker.storage.log_directory.os.fdatasync", broken)
    with pytest.raises(DiskError, match=r"cannot fsync .*0\.log: Input/output error"):
        disk.log.flush()
    assert disk.log.recovery_point == 0

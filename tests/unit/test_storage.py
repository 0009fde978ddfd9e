"""A partition's log on a real disk: its folder, its reads, what is refused, what a recovery keeps.
(tests/property/test_disk.py holds appends, rolls, truncations and restarts against a model.)"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disk import TOPIC_ID, Disk, batch

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.storage.checkpoint_files import read_epoch_checkpoint
from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.broker.testing.bugs import rules_for
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


# -- what the known storage bugs do to a log, and a correct recovery does not ----------------------------


@contextmanager
def opened(folder: Path, *bugs: str) -> Iterator[LocalLog]:
    """Log 0 of a directory, in a broker with these bugs, which is killed afterwards."""
    files = LogDirectory.open(folder, None)
    log = LocalLog.open(files, "log", 0, topic_id=TOPIC_ID, rules=rules_for("kip-320", bugs))
    try:
        yield log
    finally:
        log.close()
        files.close()


def end(folder: Path, *bugs: str) -> int:
    """The LEO that a restart finds."""
    with opened(folder, *bugs) as log:
        return log.leo


def left(folder: Path, *batches: Batch) -> Path:
    """The one segment of a log with these batches whose broker was killed."""
    with opened(folder) as log:
        log.append(batches)
    (path,) = (folder / "log-0").glob("*.log")
    return path


@pytest.mark.parametrize(("bug", "damage", "sound", "bad"), [
    ("recover_no_crc", "torn", 2, 3),  # it counts as a record although half of it is missing
    ("recover_no_crc", "flipped", 1, 3),  # and so is what follows it
    ("recover_no_crc", "half a header", 0, 0),
    ("recover_drop_segment", "torn", 2, 0),  # the two good ones before it are gone too
    *((bug, None, 3, 3) for bug in ("recover_no_crc", "recover_drop_segment", "epochfile_not_rebuilt")),
])
def test_what_a_recovery_keeps_of_a_damaged_segment(
        tmp_path: Path, bug: str, damage: str | None, sound: int, bad: int) -> None:
    """The log goes on from there."""
    for name, bugs, leo in (("sound", (), sound), ("bad", (bug,), bad)):
        path = left(tmp_path / name, batch(0), batch(1), batch(2, payload=b"z" * 90))
        content = bytearray(path.read_bytes())
        content[len(batch(0).data) * 2 - 1] ^= damage == "flipped"
        path.write_bytes(content[:{"torn": -40, "half a header": 20}.get(damage or "")])
        with opened(tmp_path / name, *bugs) as log:
            assert log.leo == leo
            log.append([batch(leo)])
            assert log.leo == leo + 1


def test_the_last_good_batch_is_cut_off(tmp_path: Path) -> None:
    """recover_drop_last_batch: one more at each start, although nothing was torn, until none is left."""
    left(tmp_path, batch(0), batch(1))
    assert [end(tmp_path) for _ in range(2)] == [2, 2]
    assert [end(tmp_path, "recover_drop_last_batch") for _ in range(3)] == [1, 0, 0]
    left(tmp_path / "again", batch(0), batch(1))
    with opened(tmp_path / "again", "recover_drop_last_batch") as log:
        assert (log.recovered.leo, len(log.recovered.batches)) == (1, 1)
        log.append([batch(1)])
    assert end(tmp_path / "again") == 2


def test_epochs_of_records_that_are_gone_stay(tmp_path: Path) -> None:
    """epochfile_not_rebuilt: the checkpoint has an epoch that begins beyond the log's end."""
    saved = ((0, 0), (1, 2))
    for name, bugs, epochs in (("sound", (), saved[:1]), ("bad", ("epochfile_not_rebuilt",), saved)):
        path = left(tmp_path / name, batch(0), batch(1))
        with opened(tmp_path / name) as log:
            log.save_epochs(saved)
            log.append([batch(2, epoch=1)])
        path.write_bytes(path.read_bytes()[: len(batch(0).data)])
        with opened(tmp_path / name, *bugs) as log:
            assert log.recovered.epochs == epochs
        assert read_epoch_checkpoint(tmp_path / name / "log-0" / "leader-epoch-checkpoint") == epochs


def test_offsets_that_go_backwards_are_written(tmp_path: Path) -> None:
    """append_no_base_check: a correct log refuses them, and a correct recovery truncates them."""
    left(tmp_path, batch(0), batch(1), batch(2))
    with opened(tmp_path) as log, pytest.raises(ValueError, match="not 3"):
        log.append([batch(1, 5)])
    with opened(tmp_path, "append_no_base_check") as log:
        log.append([batch(1, 5)])
        assert log.leo == 6
    assert end(tmp_path) == 3

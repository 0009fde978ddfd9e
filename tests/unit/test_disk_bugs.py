"""What the known storage bugs do to a log on a real disk, and a correct recovery does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disk import TOPIC_ID, batch

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.storage.checkpoint_files import read_epoch_checkpoint
from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.broker.testing.bugs import rules_for


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

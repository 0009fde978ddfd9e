"""The power cut: the broker's durability side file (broker.storage.durability_side_file, log_directory)
and its reader (harness.cluster.reference.power_loss) share no code and must agree."""

from pathlib import Path

import pytest
from disk import SIZE, Disk, singles

from floodmark.broker.storage import log_directory
from floodmark.broker.storage.durability_side_file import DurabilitySideFile, Note
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.harness.cluster.log_extents import wipe
from floodmark.harness.cluster.reference import power_loss
from floodmark.harness.cluster.reference.power_loss import power_cut
from floodmark.harness.errors import FloodmarkError

NAME = "log-0"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path, segment_bytes=5 * SIZE)


@pytest.mark.parametrize(("every", "kept"), [(1, 8), (2, 8), (3, 6), (None, 6)])
def test_a_log_flushes_what_it_found_unflushed_as_its_topic_wants(disk: Disk, every: int | None,
                                                                   kept: int) -> None:
    """A broker that was killed between a write and its fsync finds the records again, and counts them. When
    its log is opened the topic is unknown, so the configuration decides."""
    disk.log.append(singles(0, 6))
    disk.log.flush()
    disk.log.append(singles(6, 8))
    disk.restart()
    assert (disk.log.leo, disk.log.recovery_point) == (8, 6)

    disk.log.configure(segment_bytes=5 * SIZE, flush_messages=every)
    disk.kill()

    assert power_cut(disk.durable, disk.log_dir).kept == {NAME: kept}


# -- small files ------------------------------------------------------------


class Killed(BaseException):
    """A SIGKILL."""


def replace_and_be_killed(disk: Disk, name: str, content: bytes) -> None:
    """Killed when the new file has its name, and that is neither durable nor noted."""
    def kill(_: Path) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_directory, "_sync_folder", kill)
        with pytest.raises(Killed):
            disk.files.replace(name, content)
    assert disk.files.path(name).read_bytes() == content
    disk.kill()


def test_a_file_whose_new_name_is_not_durable_goes_back_to_the_version_before(disk: Disk) -> None:
    """Until the next replacement is done, also over starts."""
    disk.files.replace("some-checkpoint", b"first")
    disk.files.replace("some-checkpoint", b"second one")
    for content in (b"third", b"4"):
        replace_and_be_killed(disk, "some-checkpoint", content)
        disk.start()
    disk.kill()

    lost = power_cut(disk.durable, disk.log_dir)

    assert lost.restored == ("some-checkpoint",)
    assert disk.files.path("some-checkpoint").read_bytes() == b"second one"
    disk.start()
    disk.files.replace("some-checkpoint", b"fifth")
    disk.kill()
    assert power_cut(disk.durable, disk.log_dir).restored == ()
    assert disk.files.path("some-checkpoint").read_bytes() == b"fifth"


@pytest.mark.parametrize("started", [False, True])
def test_a_new_file_that_was_not_noted_is_durable_from_the_next_start_on(disk: Disk, started: bool) -> None:
    """Also one of a name that was removed. A partition.metadata that vanished later, beside its log, would
    hide the log at a start."""
    disk.files.replace("some-checkpoint", b"first")
    disk.files.remove(["some-checkpoint", "never-there"])
    replace_and_be_killed(disk, "some-checkpoint", b"again")
    if started:
        disk.start()
        disk.kill()

    power_cut(disk.durable, disk.log_dir)
    assert disk.files.path("some-checkpoint").exists() == started


# -- the side file ----------------------------------------------------------


def test_a_side_file_that_the_files_contradict_or_that_is_none_is_refused(disk: Disk) -> None:
    disk.log.append(singles(0, 4))
    disk.log.flush()
    disk.kill()
    disk.segments()[0].write_bytes(b"")
    for harm, why in ((lambda: None, f"0 bytes, of which {4 * SIZE} should be durable"),
                      (lambda: disk.durable.write_bytes(b"rubbish" * 100), "no side file of this version"),
                      (disk.durable.unlink, r"floodmark\.durable must name it")):
        harm()
        with pytest.raises(FloodmarkError, match=why):
            power_cut(disk.durable, disk.log_dir)


def test_a_new_side_file_takes_existing_files_for_durable(tmp_path: Path) -> None:
    """A directory written without a side file, or by Apache Kafka, is made durable before that is claimed."""
    plain = Disk(tmp_path, account=False)
    plain.log.append(singles(0, 4))
    plain.kill()
    disk = Disk(tmp_path)
    disk.kill()

    assert power_cut(disk.durable, disk.log_dir).kept == {NAME: 4}


def test_many_names_make_the_side_file_grow_and_freed_slots_are_reused(tmp_path: Path) -> None:
    """A name that is noted again is not taken for removed: its slot has the note of its removal."""
    side_file = DurabilitySideFile.open(tmp_path / "account")
    size = (tmp_path / "account").stat().st_size
    for number in range(200):
        side_file.note(f"log-0/{number:020d}.log", number)
    grown = (tmp_path / "account").stat().st_size
    for number in range(0, 200, 2):
        side_file.remove_note(f"log-0/{number:020d}.log")
    side_file.note(f"log-0/{198:020d}.log", 7)
    for number in range(99):
        side_file.note(f"other-{number}", number, kept=number)
    side_file.close()

    again = DurabilitySideFile.open(tmp_path / "account")

    assert size < grown == (tmp_path / "account").stat().st_size
    assert len(again.names()) == 200
    assert again.get("log-0/00000000000000000007.log") == Note(length=7)
    assert again.get("log-0/00000000000000000008.log") is None
    assert again.get("log-0/00000000000000000198.log") == Note(length=7)
    assert again.get("other-98") == Note(length=98, kept=98)
    again.close()


def test_a_note_torn_at_any_byte_leaves_the_one_before_it(tmp_path: Path) -> None:
    """Both readers: every prefix of the bytes that the second note writes, put over the first state."""
    log_dir, path = tmp_path / "n1", tmp_path / "account"
    files = LogDirectory.open(log_dir, path)
    files.replace("file", b"0123456789")
    files.close()
    states = [path.read_bytes()]
    side_file = DurabilitySideFile.open(path)
    side_file.note("file", 3)
    side_file.close()
    states.append(path.read_bytes())
    changed = [at for at, (old, new) in enumerate(zip(*states, strict=True)) if old != new]
    for torn in range(changed[0], changed[-1] + 2):
        path.write_bytes(states[1][:torn] + states[0][torn:])
        (log_dir / "file").write_bytes(b"0123456789")
        side_file = DurabilitySideFile.open(path)
        note = side_file.get("file")
        side_file.close()
        power_cut(path, log_dir)
        assert note is not None
        assert (log_dir / "file").read_bytes() == b"0123456789"[:note.length]
        assert note.length == (3 if torn > changed[-1] else 10)


def test_a_wiped_disk_holds_nothing_and_gets_nothing_back(disk: Disk) -> None:
    """Neither what was fsynced nor a file whose replacement was not durable."""
    disk.log.append(singles(0, 7))
    disk.log.flush()
    disk.files.replace("some-checkpoint", b"first")
    replace_and_be_killed(disk, "some-checkpoint", b"second")
    assert wipe(power_loss, disk.durable, disk.log_dir).records == {NAME: 7}
    assert list(disk.log_dir.iterdir()) == []
    disk.start()
    disk.log.append(singles(0, 2))
    disk.log.flush()
    disk.log.append(singles(2, 3))
    disk.kill()
    lost = power_cut(disk.durable, disk.log_dir)
    assert (lost.kept, lost.restored) == ({NAME: 2}, ())

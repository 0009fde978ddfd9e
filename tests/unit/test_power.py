"""What the broker writes beside its records: Kafka's small text files and the controller's journal, read back
or refused by file and line; and the side file of what is durable, whose reader for power cuts
(harness.cluster.reference.power_loss) shares no code with it and must agree."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk import SIZE, Disk, files_no_larger_than, singles
from golden_text import refused_as_written

from floodmark.broker.storage import log_directory
from floodmark.broker.storage.checkpoint_files import (
    HIGH_WATERMARKS,
    CheckpointError,
    ensure_meta_properties,
    read_epoch_checkpoint,
    read_offset_checkpoint,
    take_clean_shutdown_marker,
    write_clean_shutdown_marker,
    write_epoch_checkpoint,
    write_offset_checkpoint,
)
from floodmark.broker.storage.controller_journal import Journal, JournalError
from floodmark.broker.storage.durability_side_file import DurabilitySideFile, Note
from floodmark.broker.storage.log_directory import DiskError, LogDirectory
from floodmark.harness.cluster.log_extents import wipe
from floodmark.harness.cluster.reference import power_loss
from floodmark.harness.cluster.reference.power_loss import power_cut
from floodmark.harness.errors import FloodmarkError

NAME = "log-0"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[LogDirectory]:
    opened = LogDirectory.open(tmp_path / "n1", tmp_path / "n1.durable")
    yield opened
    opened.close()


# -- checkpoints ------------------------------------------------------------


def test_checkpoints_are_written_as_kafka_writes_them(files: LogDirectory) -> None:
    """And read back; an empty one of epochs differs from a missing one."""
    assert read_offset_checkpoint(files.root, HIGH_WATERMARKS) == {}
    write_offset_checkpoint(files, HIGH_WATERMARKS, {("other-topic", 12): 7, ("log", 0): 41})
    assert files.path(HIGH_WATERMARKS).read_text() == "0\n2\nlog 0 41\nother-topic 12 7\n"
    assert read_offset_checkpoint(files.root, HIGH_WATERMARKS) == {("log", 0): 41, ("other-topic", 12): 7}

    path = files.path("leader-epoch-checkpoint")
    assert read_epoch_checkpoint(path) is None
    for entries, text in (([(0, 0), (3, 17)], "0\n2\n0 0\n3 17\n"), ([], "0\n0\n")):
        write_epoch_checkpoint(files, path.name, entries)
        assert path.read_text() == text
        assert read_epoch_checkpoint(path) == tuple(entries)
    path.write_bytes(b"")
    assert read_epoch_checkpoint(path) == ()


def test_a_malformed_checkpoint_is_refused_by_file_and_line(
        files: LogDirectory, request: pytest.FixtureRequest) -> None:
    def read(text: str) -> None:
        files.path(HIGH_WATERMARKS).write_bytes(text.encode(errors="surrogateescape"))
        read_offset_checkpoint(files.root, HIGH_WATERMARKS)

    refused_as_written("a checkpoint", read, CheckpointError, request, f"{files.root}/")


def test_a_full_disk_leaves_the_old_checkpoint(files: LogDirectory) -> None:
    write_offset_checkpoint(files, HIGH_WATERMARKS, {("log", 0): 1})

    with files_no_larger_than(20), pytest.raises(DiskError, match=f"{HIGH_WATERMARKS}: no room"):
        write_offset_checkpoint(files, HIGH_WATERMARKS, {("log", partition): 2 for partition in range(100)})

    assert read_offset_checkpoint(files.root, HIGH_WATERMARKS) == {("log", 0): 1}


def test_the_clean_shutdown_marker_is_taken_once(files: LogDirectory) -> None:
    """An empty one of an older Kafka is clean without an epoch; a malformed one is refused."""
    marker = files.path(".kafka_cleanshutdown")
    assert take_clean_shutdown_marker(files) is None
    write_clean_shutdown_marker(files, 17)
    assert json.loads(marker.read_text()) == {"version": 0, "brokerEpoch": 17}
    assert [take_clean_shutdown_marker(files), take_clean_shutdown_marker(files)] == [17, None]
    marker.touch()
    assert [take_clean_shutdown_marker(files), take_clean_shutdown_marker(files)] == [-1, None]
    for text in ("{", "[]", "7", "{}", '{"version":0,"brokerEpoch":"x"}'):
        marker.write_text(text)
        with pytest.raises(CheckpointError, match=r"\.kafka_cleanshutdown, line 1"):
            take_clean_shutdown_marker(files)


def test_a_directory_belongs_to_one_node_of_one_cluster(files: LogDirectory) -> None:
    """A line without a value is refused by its number."""
    for _ in range(2):
        ensure_meta_properties(files, node_id=1, cluster_id="abc")
    for node_id, cluster_id, why in ((2, "abc", r"node\.id is 1, this node's is 2"),
                                     (1, "xyz", r"cluster\.id is abc, this node's is xyz")):
        with pytest.raises(CheckpointError, match=why):
            ensure_meta_properties(files, node_id=node_id, cluster_id=cluster_id)
    files.path("meta.properties").write_text("#\nversion=1\nnode.id\n")
    with pytest.raises(CheckpointError, match=r"meta\.properties, line 3"):
        ensure_meta_properties(files, node_id=1, cluster_id="abc")


# -- the journal ------------------------------------------------------------


def test_a_journal_cut_at_every_byte_keeps_whole_appends_only(tmp_path: Path) -> None:
    """An append of several records is there as a whole or not at all."""
    path = tmp_path / "controller.jsonl"
    journal = Journal.open(path)
    journal.append([{"n": 1}])
    journal.append([{"n": 2}, {"n": 3}])
    journal.close()
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        journal = Journal.open(path)
        torn = 0 if length == len(whole) else length - first if length >= first else length
        assert journal.torn_bytes == torn
        kept = [record["n"] for record in journal.records]
        assert kept == ([1, 2, 3] if length == len(whole) else [1] if length >= first else [])
        journal.append([{"n": 9}])
        journal.close()
        journal = Journal.open(path)
        assert [record["n"] for record in journal.records] == [*kept, 9]
        journal.close()


@pytest.mark.parametrize("bad", [b"{torn\n", b"\n", b'{"n":1}\n', b"[1]\n", b"\x00\x00\n", b"\xff\n"])
def test_a_bad_line_that_is_not_torn_is_an_error_with_its_number(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "controller.jsonl"
    path.write_bytes(b'[{"n":1}]\n' + bad + b'[{"n":2}]\n')

    with pytest.raises(JournalError, match=r"controller\.jsonl, line 2: not"):
        Journal.open(path)


def test_a_journal_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """By a second controller, or without its folder."""
    journal = Journal.open(tmp_path / "controller.jsonl")
    with pytest.raises(JournalError, match="in use by another process"):
        Journal.open(tmp_path / "controller.jsonl")
    journal.close()
    with pytest.raises(JournalError, match=r"cannot open .*missing/controller\.jsonl"):
        Journal.open(tmp_path / "missing" / "controller.jsonl")


def test_after_a_failed_write_a_journal_accepts_nothing_more(tmp_path: Path) -> None:
    """How much of the line was written is unknown until the journal is opened again."""
    journal = Journal.open(tmp_path / "controller.jsonl")
    journal.append([{"n": 1}])
    with files_no_larger_than(20), pytest.raises(JournalError, match="File too large"):
        journal.append([{"n": "2" * 20}])
    with pytest.raises(JournalError, match="an earlier write failed"):
        journal.append([{"n": 3}])
    journal.close()
    assert Journal.open(tmp_path / "controller.jsonl").records == ({"n": 1},)


# -- power cuts -------------------------------------------------------------


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

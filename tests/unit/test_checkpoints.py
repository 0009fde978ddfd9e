"""Kafka's small text files and the controller's journal: written, read back, and refused by file and line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk import files_no_larger_than
from golden_text import refused_as_written

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
from floodmark.broker.storage.log_directory import DiskError, LogDirectory


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

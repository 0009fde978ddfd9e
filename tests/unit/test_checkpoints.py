"""Kafka's small text files and the controller's journal: written, read back, and refused by file and line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk import files_no_larger_than

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


def test_offsets_are_written_as_kafka_writes_them(files: LogDirectory) -> None:
    write_offset_checkpoint(files, HIGH_WATERMARKS, {("other-topic", 12): 7, ("log", 0): 41})

    assert files.path(HIGH_WATERMARKS).read_text() == "0\n2\nlog 0 41\nother-topic 12 7\n"
    assert read_offset_checkpoint(files.root, HIGH_WATERMARKS) == {("log", 0): 41, ("other-topic", 12): 7}


def test_epochs_are_written_as_kafka_writes_them(files: LogDirectory) -> None:
    write_epoch_checkpoint(files, "leader-epoch-checkpoint", [(0, 0), (3, 17)])

    path = files.path("leader-epoch-checkpoint")
    assert path.read_text() == "0\n2\n0 0\n3 17\n"
    assert read_epoch_checkpoint(path) == ((0, 0), (3, 17))


def test_an_empty_epoch_checkpoint_differs_from_a_missing_one(files: LogDirectory) -> None:
    path = files.path("leader-epoch-checkpoint")

    assert read_epoch_checkpoint(path) is None
    write_epoch_checkpoint(files, path.name, [])
    assert read_epoch_checkpoint(path) == ()
    path.write_bytes(b"")
    assert read_epoch_checkpoint(path) == ()
    assert read_offset_checkpoint(files.root, HIGH_WATERMARKS) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "line 1: version ''"),
        ("1\n0\n", "line 1: version '1'"),
        ("0\n", "line 2: '' is no number"),
        ("0\n-1\n", "line 2: '-1' is no number"),
        ("0\n2\nlog 0 1\n", "line 2: says 2 entries, 1 follow"),
        ("0\n1\nlog 0 1\nlog 1 1\n", "line 2: says 1 entries, 2 follow"),
        ("0\n2\nlog 0 1\nlog 1\n", "line 4: 'log 1' is malformed"),
        ("0\n1\nlog 0 x\n", "line 3: 'log 0 x' is malformed"),
        ("0\n1\nlog 0 1 2\n", "line 3: 'log 0 1 2' is malformed"),
    ],
)
def test_a_malformed_checkpoint_is_refused_by_file_and_line(
    files: LogDirectory, text: str, message: str
) -> None:
    files.path(HIGH_WATERMARKS).write_text(text)

    with pytest.raises(CheckpointError) as caught:
        read_offset_checkpoint(files.root, HIGH_WATERMARKS)

    assert f"{files.path(HIGH_WATERMARKS)}, {message}" in str(caught.value)


def test_a_checkpoint_that_is_no_text_is_refused(files: LogDirectory) -> None:
    files.path(HIGH_WATERMARKS).write_bytes(b"0\n1\n\xff\xfe")

    with pytest.raises(CheckpointError, match="not text"):
        read_offset_checkpoint(files.root, HIGH_WATERMARKS)


def test_a_full_disk_leaves_the_old_checkpoint(files: LogDirectory) -> None:
    write_offset_checkpoint(files, HIGH_WATERMARKS, {("log", 0): 1})

    with files_no_larger_than(20), pytest.raises(DiskError, match=f"{HIGH_WATERMARKS}: no room"):
        write_offset_checkpoint(files, HIGH_WATERMARKS, {("log", partition): 2 for partition in range(100)})

    assert read_offset_checkpoint(files.root, HIGH_WATERMARKS) == {("log", 0): 1}


def test_the_clean_shutdown_marker_is_taken_once(files: LogDirectory) -> None:
    assert take_clean_shutdown_marker(files) is None

    write_clean_shutdown_marker(files, 17)

    assert json.loads(files.path(".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 17}
    assert take_clean_shutdown_marker(files) == 17
    assert take_clean_shutdown_marker(files) is None


def test_an_empty_marker_of_an_older_kafka_is_clean_without_an_epoch(files: LogDirectory) -> None:
    files.path(".kafka_cleanshutdown").write_text("")

    assert take_clean_shutdown_marker(files) == -1


@pytest.mark.parametrize("text", ["{", "[]", "7", "{}", '{"version":0,"brokerEpoch":"x"}'])
def test_a_malformed_marker_is_refused(files: LogDirectory, text: str) -> None:
    files.path(".kafka_cleanshutdown").write_text(text)

    with pytest.raises(CheckpointError, match=r"\.kafka_cleanshutdown, line 1"):
        take_clean_shutdown_marker(files)


def test_a_directory_belongs_to_one_node_of_one_cluster(files: LogDirectory) -> None:
    ensure_meta_properties(files, node_id=1, cluster_id="abc")

    ensure_meta_properties(files, node_id=1, cluster_id="abc")
    with pytest.raises(CheckpointError, match=r"node\.id is 1, this node's is 2"):
        ensure_meta_properties(files, node_id=2, cluster_id="abc")
    with pytest.raises(CheckpointError, match=r"cluster\.id is abc, this node's is xyz"):
        ensure_meta_properties(files, node_id=1, cluster_id="xyz")


def test_a_line_without_a_value_in_meta_properties_is_refused_by_its_number(files: LogDirectory) -> None:
    files.path("meta.properties").write_text("#\nversion=1\nnode.id\n")

    with pytest.raises(CheckpointError, match=r"meta\.properties, line 3"):
        ensure_meta_properties(files, node_id=1, cluster_id="abc")


# -- the journal ------------------------------------------------------------


def test_a_journal_returns_its_records_in_order(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "controller.jsonl")
    assert journal.records == ()
    journal.append([{"type": "register", "broker": 1}])
    journal.append([{"type": "elect"}, {"type": "isr", "isr": [1, 2]}])
    journal.close()

    again = Journal.open(tmp_path / "controller.jsonl")

    assert [record["type"] for record in again.records] == ["register", "elect", "isr"]
    assert again.records[2] == {"type": "isr", "isr": [1, 2]}
    assert again.torn_bytes == 0
    again.close()


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


def test_a_second_controller_on_one_journal_is_refused(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "controller.jsonl")

    with pytest.raises(JournalError, match="in use by another process"):
        Journal.open(tmp_path / "controller.jsonl")
    journal.close()


def test_a_journal_without_a_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"cannot open .*missing/controller\.jsonl"):
        Journal.open(tmp_path / "missing" / "controller.jsonl")


def test_after_a_failed_write_a_journal_accepts_nothing_more(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much of the line was written is unknown until the journal is opened again."""
    journal = Journal.open(tmp_path / "controller.jsonl")
    journal.append([{"n": 1}])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("floodmark.broker.storage.controller_journal.os.fdatasync", full)
        with pytest.raises(JournalError, match="No space left"):
            journal.append([{"n": 2}])
    with pytest.raises(JournalError, match="an earlier write failed"):
        journal.append([{"n": 3}])
    journal.close()

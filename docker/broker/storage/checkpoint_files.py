"""Reads and writes Kafka's small text files in a log directory: offsets, leader epochs, meta.properties ...

Rules
1. Every one is replaced whole and durable when its writer returns (broker.storage.log_directory).
2. A malformed one raises CheckpointError with file and line, as Kafka stops at start; nothing is guessed.
3. A missing one is normal: a new directory, or a power cut before the first.

Offsets: "0" (version), number of entries, then "topic partition offset" a line; leader epochs: the same
head, then "epoch startOffset". (Apache Kafka: CheckpointFile, LeaderEpochCheckpointFile,
CleanShutdownFileHandler.)
"""

import base64
import binascii
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from floodmark.broker.storage.log_directory import LogDirectory

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
META = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
UNKNOWN_BROKER_EPOCH = -1
_VERSION = "0"
_Entry = TypeVar("_Entry")


class CheckpointError(Exception):
    """A file in the log directory is not what it must be; the text names file and line."""


def read_offset_checkpoint(log_dir: Path, name: str) -> dict[tuple[str, int], int]:
    """HIGH_WATERMARKS or RECOVERY_POINTS: (topic, partition) -> offset; {} when the file is missing."""
    return dict(_read_entries(log_dir / name, _parse_offset) or ())


def write_offset_checkpoint(files: LogDirectory, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """All partitions of the directory in one file."""
    ordered = sorted(offsets.items())
    _write_entries(files, name, [f"{topic} {partition} {offset}" for (topic, partition), offset in ordered])


def read_epoch_checkpoint(path: Path) -> tuple[tuple[int, int], ...] | None:
    """(epoch, start offset) in the file's order; None when it is missing."""
    entries = _read_entries(path, _parse_epoch)
    return None if entries is None else tuple(entries)


def write_epoch_checkpoint(files: LogDirectory, name: str, entries: Iterable[tuple[int, int]]) -> None:
    """`name` with its folder: `<topic>-<partition>/leader-epoch-checkpoint`."""
    _write_entries(files, name, [f"{epoch} {start}" for epoch, start in entries])


def ensure_meta_properties(files: LogDirectory, *, node_id: int, cluster_id: str) -> None:
    """Writes meta.properties (version 1) into a new directory; checks it in an old one: CheckpointError
    when the directory belongs to another node or cluster."""
    path = files.path(META)
    if not path.exists():
        lines = ("#", "version=1", f"cluster.id={cluster_id}", f"node.id={node_id}", "")
        files.replace(META, "\n".join(lines).encode())
        return
    found = _read_properties(path, "=")
    for key, wanted in (("node.id", str(node_id)), ("cluster.id", cluster_id)):
        if found.get(key) != wanted:
            raise CheckpointError(f"{path}: {key} is {found.get(key, 'missing')}, this node's is {wanted}:"
                                  " the directory belongs to another node or cluster")


def take_clean_shutdown_marker(files: LogDirectory) -> int | None:
    """At start: the broker epoch of the last, orderly stop (UNKNOWN_BROKER_EPOCH if the marker names none;
    Kafka before KIP-966 left it empty), and the marker is gone, durably. None: the last stop was not
    orderly."""
    path = files.path(CLEAN_SHUTDOWN)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        epoch = json.loads(text)["brokerEpoch"] if text.strip() else UNKNOWN_BROKER_EPOCH
        if type(epoch) is not int:
            raise ValueError(f"brokerEpoch is {epoch!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}, line 1: not the marker of an orderly stop ({error})") from error
    files.remove([CLEAN_SHUTDOWN])
    return epoch


def write_clean_shutdown_marker(files: LogDirectory, broker_epoch: int) -> None:
    """The last act of an orderly stop, after every log was flushed."""
    files.replace(CLEAN_SHUTDOWN, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())


def ensure_partition_metadata(files: LogDirectory, folder: str, topic_id: str) -> None:
    """Writes partition.metadata with this id (32 hex digits), or checks the one that is there:
    CheckpointError when the directory holds a topic of the same name but another id (deleted and made
    again: KAFKA-12257)."""
    name = f"{folder}/{PARTITION_METADATA}"
    path = files.path(name)
    raw = uuid.UUID(hex=topic_id).bytes
    if not path.exists():
        text = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        files.replace(name, f"version: 0\ntopic_id: {text}\n".encode())
        return
    found = _read_properties(path, ": ").get("topic_id", "")
    try:
        same = base64.urlsafe_b64decode(found + "==") == raw
    except binascii.Error as error:
        raise CheckpointError(f"{path}: topic_id {found!r} is not a base64 id") from error
    if not same:
        raise CheckpointError(f"{path}: the log of another topic, of id {found} and not {topic_id}")


def _read_properties(path: Path, separator: str) -> dict[str, str]:
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            key, given, value = line.partition(separator)
            if not given:
                raise CheckpointError(f"{path}, line {number}: {line!r} is no 'key{separator}value'")
            found[key.strip()] = value.strip()
    return found


def _write_entries(files: LogDirectory, name: str, lines: list[str]) -> None:
    files.replace(name, "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode())


def _read_entries(path: Path, entry_of: Callable[[str], _Entry]) -> list[_Entry] | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not text ({error})") from error
    version, count = (*lines[:2], "", "")[:2]
    if version != _VERSION:
        raise CheckpointError(f"{path}, line 1: version {version!r}, only {_VERSION} is known")
    if not (count.isascii() and count.isdecimal()):
        raise CheckpointError(f"{path}, line 2: {count!r} is no number of entries")
    if len(lines) - 2 != int(count):
        raise CheckpointError(f"{path}, line 2: says {count} entries, {len(lines) - 2} follow")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entries.append(entry_of(line))
        except ValueError as error:
            raise CheckpointError(f"{path}, line {number}: {line!r} is malformed ({error})") from error
    return entries


def _parse_offset(line: str) -> tuple[tuple[str, int], int]:
    topic, partition, offset = line.split(" ")
    return (topic, int(partition)), int(offset)


def _parse_epoch(line: str) -> tuple[int, int]:
    epoch, start = line.split(" ")
    return int(epoch), int(start)

"""Reads and writes Kafka's small text files in a log directory: checkpoints, meta.properties, markers.

Rules
1. Each write replaces the file, and is durable when it returns (broker.storage.log_directory).
2. A malformed file raises CheckpointError with file and line, as Kafka stops at start; nothing is guessed.
3. A missing file is normal: a new directory, or a power cut before the first write. One without a byte has no
   entries, as for Kafka, which creates it before it writes it.

Offsets: "0" (version), number of entries, then "topic partition offset" a line; leader epochs: the same
head, then "epoch startOffset". (Apache Kafka: CheckpointFile, LeaderEpochCheckpointFile,
CleanShutdownFileHandler.)
"""

import base64
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
    """A file in the log directory is malformed or belongs to another node or topic; the text says which."""


def read_offset_checkpoint(log_dir: Path, name: str) -> dict[tuple[str, int], int]:
    """Read HIGH_WATERMARKS or RECOVERY_POINTS: (topic, partition) -> offset; {} when the file is missing."""
    return dict(_read_entries(log_dir / name, _parse_offset) or ())


def write_offset_checkpoint(files: LogDirectory, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the offsets of all partitions of the directory into one file."""
    ordered = sorted(offsets.items())
    _write_entries(files, name, [f"{topic} {partition} {offset}" for (topic, partition), offset in ordered])


def read_epoch_checkpoint(path: Path) -> tuple[tuple[int, int], ...] | None:
    """Read (epoch, start offset) in the file's order; None when the file is missing."""
    entries = _read_entries(path, _parse_epoch)
    return None if entries is None else tuple(entries)


def write_epoch_checkpoint(files: LogDirectory, name: str, entries: Iterable[tuple[int, int]]) -> None:
    """Write the epochs; `name` includes the folder: `<topic>-<partition>/leader-epoch-checkpoint`."""
    _write_entries(files, name, [f"{epoch} {start}" for epoch, start in entries])


def ensure_meta_properties(files: LogDirectory, *, node_id: int, cluster_id: str) -> None:
    """Write meta.properties (version 1) into a new directory; check it in an old one: CheckpointError
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
    """Read and durably remove the marker of a clean shutdown: the broker epoch of that shutdown
    (UNKNOWN_BROKER_EPOCH if the marker names none; Kafka before KIP-966 left it empty). None: the last
    shutdown was not clean."""
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
    """Write the marker: the last act of a clean shutdown, after every log was flushed."""
    files.replace(CLEAN_SHUTDOWN, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())


def ensure_partition_metadata(files: LogDirectory, folder: str, topic_id: str) -> None:
    """Write partition.metadata with this id (32 hex digits), or check the existing file: CheckpointError
    when the directory holds a topic of the same name but another id (deleted and created again:
    KAFKA-12257)."""
    name = f"{folder}/{PARTITION_METADATA}"
    found = read_topic_id(files, folder)
    if found is None:
        text = base64.urlsafe_b64encode(uuid.UUID(hex=topic_id).bytes).decode().rstrip("=")
        files.replace(name, f"version: 0\ntopic_id: {text}\n".encode())
    elif found != uuid.UUID(hex=topic_id).hex:
        raise CheckpointError(
            f"{files.path(name)}: the log of another topic, of id {found} and not {topic_id}"
        )


def read_topic_id(files: LogDirectory, folder: str) -> str | None:
    """Read the topic id in a partition's partition.metadata, as hex; None when the file is missing."""
    path = files.path(f"{folder}/{PARTITION_METADATA}")
    if not path.exists():
        return None
    try:
        text = _read_properties(path, ": ").get("topic_id", "")
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")).hex
    except ValueError as error:
        raise CheckpointError(f"{path}: its topic_id is not a base64 id ({error})") from error


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


def _read_entries(path: Path, parse_entry: Callable[[str], _Entry]) -> list[_Entry] | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not text ({error})") from error
    if not lines:
        return []
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
            entries.append(parse_entry(line))
        except ValueError as error:
            raise CheckpointError(f"{path}, line {number}: {line!r} is malformed ({error})") from error
    return entries


def _parse_offset(line: str) -> tuple[tuple[str, int], int]:
    topic, partition, offset = line.split(" ")
    return (topic, int(partition)), int(offset)


def _parse_epoch(line: str) -> tuple[int, int]:
    epoch, start = line.split(" ")
    return int(epoch), int(start)

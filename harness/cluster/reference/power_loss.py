"""Simulates a power cut on the files of a dead reference broker: each file loses what was not durable
(log_extents.PowerLoss; kafka_system.CutLogs is Kafka's). A killed process loses nothing that it has written;
a machine that loses power loses what was not fsynced. The broker records what is durable in a side file (its
format: docker/broker/storage/durability_side_file.py), which this module reads with its own code:

- a file with a durable length is cut to it; the tail of a partition's log can instead be cut at a batch
  boundary between that and its end, because a real power cut may spare bytes that were already written back;
- a file that was replaced, and is not durable yet, gets its previous content back;
- a file without a note is removed.

Afterwards everything left is durable, and the side file says so. An interrupted power cut can be repeated.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from floodmark.harness.cluster import log_extents
from floodmark.harness.cluster.log_extents import Lost, segments_of
from floodmark.harness.errors import FloodmarkError

_MAGIC = b"floodmark-dur-1\n"
_SLOT_BYTES = 512
_MODE_AT = 20
_EVERYTHING = 1  # mode: no notes, all files are durable
_NOTES_AT = (416, 448)
_LOCK = ".lock"

@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    length: int
    kept: int  # the number of the previous copy; 0: the file itself is durable up to `length`


def power_cut(durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None) -> Lost:
    """Without `keep` exactly the durable bytes stay. keep: "topic-partition" -> offset: that log keeps
    complete batches up to that offset at most, but never less than what is durable. FloodmarkError if there
    is no side file, or it does not fit the files."""
    if (notes := _read_notes(durable_file)) is None:
        return log_extents.records_between({}, log_extents.log_extents(log_dir))
    before = log_extents.log_extents(log_dir)
    restored = _settle_names(durable_file, log_dir, notes)
    for name in log_extents.partition_folders(log_dir):
        _cut_log(log_dir / name, notes, (keep or {}).get(name))
    for name, note in notes.items():
        path = log_dir / name
        if not note.kept and path.exists() and path.suffix != ".log":
            _cut_file(path, note.length)
    mark_all_durable(durable_file)
    return replace(log_extents.records_between(before, log_extents.log_extents(log_dir)), restored=restored)


def fsynced(durable_file: Path) -> Mapping[str, int] | None:
    """The bytes of each file of the log directory that are durable at least; None: all."""
    notes = _read_notes(durable_file)
    return None if notes is None else {name: note.length for name, note in notes.items()}


def mark_all_durable(durable_file: Path, _ends: Mapping[str, int] | None = None) -> None:
    """Writes a side file without notes: all files are durable. The broker must not run."""
    fresh = durable_file.with_name(durable_file.name + ".new")
    header = _MAGIC + struct.pack("<IB", _SLOT_BYTES, _EVERYTHING)
    fresh.write_bytes(header.ljust(_SLOT_BYTES, b"\0"))
    os.replace(fresh, durable_file)
    kept = _kept_folder(durable_file)
    if kept.is_dir():
        for path in kept.iterdir():
            path.unlink()


def _read_notes(durable_file: Path) -> dict[str, _Note] | None:
    """The notes by file name; None: everything is durable."""
    try:
        content = durable_file.read_bytes()
    except FileNotFoundError:
        raise FloodmarkError(f"cannot simulate a power cut: there is no {durable_file}, the broker's side"
        " file of what is durable (its key floodmark.durable must name it)") from None
    if content[:len(_MAGIC)] != _MAGIC or struct.unpack_from("<I", content, len(_MAGIC)) != (_SLOT_BYTES,):
        raise FloodmarkError(f"cannot simulate a power cut: {durable_file} is no side file of this version")
    if content[_MODE_AT] == _EVERYTHING:
        return None
    notes = {}
    for slot in range(_SLOT_BYTES, len(content) - _SLOT_BYTES + 1, _SLOT_BYTES):
        length, _, name_crc = struct.unpack_from("<HHI", content, slot)
        raw = content[slot + 8:slot + 8 + length]
        if length and zlib.crc32(raw) == name_crc:
            newest = max(_valid_notes(content, slot, name_crc), default=(0, -1, 0))
            if newest[1] >= 0:  # -1: the note was removed
                notes[raw.decode()] = _Note(length=newest[1], kept=newest[2])
    return notes


def _valid_notes(content: bytes, slot: int, name_crc: int) -> Iterator[tuple[int, int, int]]:
    for at in _NOTES_AT:
        sequence, durable, kept, crc = struct.unpack_from("<QqQI", content, slot + at)
        if zlib.crc32(content[slot + at:slot + at + 24], name_crc) == crc:
            yield sequence, durable, kept


def _kept_folder(durable_file: Path) -> Path:
    return durable_file.with_name(durable_file.name + ".kept")


def _settle_names(durable_file: Path, log_dir: Path, notes: Mapping[str, _Note]) -> tuple[str, ...]:
    """Removes files without a note and restores replaced ones; returns these."""
    restored = []
    for path in sorted(path for path in log_dir.rglob("*") if path.is_file()):
        name = path.relative_to(log_dir).as_posix()
        if name not in notes and name != _LOCK:
            path.unlink()
    for name, note in sorted(notes.items()):
        if note.kept:
            copy = _kept_folder(durable_file) / str(note.kept)
            try:
                content = copy.read_bytes()
            except OSError as error:
                raise FloodmarkError(f"cannot simulate a power cut: {copy}, the durable copy of {name}:"
                                     f" {error.strerror}") from error
            fresh = log_dir / (name + ".restored")
            fresh.write_bytes(content)
            os.replace(fresh, log_dir / name)
            restored.append(name)
    return tuple(restored)


def _cut_file(path: Path, length: int) -> None:
    size = path.stat().st_size
    if size < length:
        raise FloodmarkError(f"cannot simulate a power cut: {path} has {size} bytes, of which {length} should"
        " be durable: the side file is another directory's, or the file was changed")
    if size > length:
        os.truncate(path, length)


def _cut_log(folder: Path, notes: Mapping[str, _Note], keep: int | None) -> None:
    """Cuts a partition's log at its durable end or a batch boundary after it, and removes the rest."""
    segments = segments_of(folder)
    choices: list[tuple[int, int, int]] = []  # (segment, byte, LEO): where the log may end, the lowest first
    for number, path in enumerate(segments):
        length = notes[f"{folder.name}/{path.name}"].length
        ends = list(log_extents.batch_ends(path))
        # Normally only the last segment has bytes that are not durable, unless the kill interrupted a write.
        if not choices and length < path.stat().st_size:
            leo = max((end.leo for end in ends if end.byte <= length), default=log_extents.base_offset(path))
            choices.append((number, length, leo))
        if choices:
            choices.extend((number, end.byte, end.leo) for end in ends
                           if number > choices[0][0] or end.byte > length)
    if not choices:
        for path in segments:
            _cut_file(path, notes[f"{folder.name}/{path.name}"].length)
        return
    kept = (choice for choice in choices[1:] if keep is not None and choice[2] <= keep)
    number, end, _ = max(kept, default=choices[0])
    for path in reversed(segments[number + 1:]):
        path.unlink()
    os.truncate(segments[number], end)

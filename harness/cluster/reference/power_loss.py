"""Plays a power cut on the files of a broker that is dead already: each falls back to what was durable.

A process that is killed loses nothing it has written; a machine that loses power loses what was not
fsynced. The broker notes in a side file what is durable, as it becomes so (its format:
docker/broker/storage/durability_side_file.py; what each act on the disk is taken to do: log_directory.py
beside it). This reads that
account with code of its own and makes it true:

- a file with a durable length is cut to it, or, for the tail of a partition's log, on request to a batch
  boundary between that and its end: a real power cut may spare bytes that the system had written back
  already;
- a file that was replaced and not yet durable is given its previous content back;
- a file without a note is gone.

Afterwards whatever is left is durable, and the account says so: a second power cut loses nothing more.
Interrupted, a power cut can be played again. Nothing here starts or ends a process: whoever calls has
killed the broker.
"""

import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from floodmark.harness.cluster.log_extents import (
    Lost,
    base_offset,
    batch_ends,
    log_end_offset,
    log_extents,
    partition_folders,
    records_between,
    records_in,
    segments_of,
)
from floodmark.harness.errors import FloodmarkError

_MAGIC = b"floodmark-dur-1\n"
_SLOT_BYTES = 512
_MODE_AT = 20
_EVERYTHING = 1  # mode: no notes, all that is there is durable
_NOTES_AT = (416, 448)
_LOCK = ".lock"

@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    length: int
    kept: int  # number of the previous copy, 0: the file itself is durable up to `length`


def power_cut(durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None,
              random: Random | None = None) -> Lost:
    """Makes the directory what a power cut would have left, and says what is lost.

    Without `keep` and `random` exactly the durable bytes stay. keep: "topic-partition" -> offset: of that
    log whole batches stay up to that offset at most, and never less than what is durable. random: of every
    other log whole batches up to a boundary drawn evenly between the durable end and the end. Raises
    FloodmarkError when there is no account to go by, or it does not fit the files.
    """
    notes = _read_notes(durable_file)
    if notes is None:
        return Lost(kept={name: log_end_offset(log_dir / name) for name in partition_folders(log_dir)})
    before = log_extents(log_dir)
    removed, restored = _settle_names(durable_file, log_dir, notes)
    for name in partition_folders(log_dir):
        _cut_log(log_dir / name, notes, None if keep is None else keep.get(name), random)
    for name, note in notes.items():
        path = log_dir / name
        if not note.kept and path.exists() and path.suffix != ".log":
            _cut_file(path, note.length)
    start_anew(durable_file)
    return replace(records_between(before, log_extents(log_dir)), restored=restored, removed=removed)


def fsynced(durable_file: Path) -> Mapping[str, int] | None:
    """File of the log directory -> its bytes that are durable at least; None: all that is there."""
    notes = _read_notes(durable_file)
    return None if notes is None else {name: note.length for name, note in notes.items()}


def start_anew(durable_file: Path) -> None:
    """An account without notes: whatever lies there is durable. Its broker does not run."""
    fresh = durable_file.with_name(durable_file.name + ".new")
    header = _MAGIC + struct.pack("<IB", _SLOT_BYTES, _EVERYTHING)
    fresh.write_bytes(header.ljust(_SLOT_BYTES, b"\0"))
    os.replace(fresh, durable_file)
    kept = _kept_folder(durable_file)
    if kept.is_dir():
        for path in kept.iterdir():
            path.unlink()


def wipe(durable_file: Path, log_dir: Path) -> Lost:
    """Empties the directory, as if it were on a new disk: what was fsynced is gone too. The directory itself
    stays, and the account says that whatever lies there (nothing) is durable."""
    records = {name: records_in(log_dir / name) for name in partition_folders(log_dir)}
    for path in sorted(log_dir.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    start_anew(durable_file)
    return Lost(kept={}, records={name: count for name, count in records.items() if count})


# -- the account ----------------------------------------------------------------------------------------


def _read_notes(durable_file: Path) -> dict[str, _Note] | None:
    """name -> note; None: everything is durable."""
    try:
        content = durable_file.read_bytes()
    except FileNotFoundError:
        raise FloodmarkError(f"cannot play a power cut: there is no {durable_file}, the broker's account of"
                             " what is durable (its key floodmark.durable must name it)") from None
    if content[:len(_MAGIC)] != _MAGIC or struct.unpack_from("<I", content, len(_MAGIC)) != (_SLOT_BYTES,):
        raise FloodmarkError(f"cannot play a power cut: {durable_file} is not an account of this version")
    if content[_MODE_AT] == _EVERYTHING:
        return None
    notes = {}
    for slot in range(_SLOT_BYTES, len(content) - _SLOT_BYTES + 1, _SLOT_BYTES):
        length, _, name_crc = struct.unpack_from("<HHI", content, slot)
        raw = content[slot + 8:slot + 8 + length]
        if length and zlib.crc32(raw) == name_crc:
            newest = max(_valid_notes(content, slot, name_crc), default=(0, -1, 0))
            if newest[1] >= 0:
                notes[raw.decode()] = _Note(length=newest[1], kept=newest[2])
    return notes


def _valid_notes(content: bytes, slot: int, name_crc: int) -> Iterator[tuple[int, int, int]]:
    for at in _NOTES_AT:
        sequence, durable, kept, crc = struct.unpack_from("<QqQI", content, slot + at)
        if zlib.crc32(content[slot + at:slot + at + 24], name_crc) == crc:
            yield sequence, durable, kept


def _kept_folder(durable_file: Path) -> Path:
    return durable_file.with_name(durable_file.name + ".kept")


# -- the files --------------------------------------------------------------------------------------------


def _settle_names(durable_file: Path, log_dir: Path, notes: Mapping[str, _Note]
                  ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which names there are and whose content they have; returns (removed, restored)."""
    removed, restored = [], []
    for path in sorted(path for path in log_dir.rglob("*") if path.is_file()):
        name = path.relative_to(log_dir).as_posix()
        if name not in notes and name != _LOCK:
            path.unlink()
            removed.append(name)
    for name, note in sorted(notes.items()):
        if note.kept:
            copy = _kept_folder(durable_file) / str(note.kept)
            try:
                content = copy.read_bytes()
            except OSError as error:
                raise FloodmarkError(f"cannot play a power cut: {copy}, the durable copy of {name}:"
                                     f" {error.strerror}") from error
            fresh = log_dir / (name + ".restored")
            fresh.write_bytes(content)
            os.replace(fresh, log_dir / name)
            restored.append(name)
    return tuple(removed), tuple(restored)


def _cut_file(path: Path, length: int) -> None:
    size = path.stat().st_size
    if size < length:
        raise FloodmarkError(f"cannot play a power cut: {path} has {size} bytes, of which {length} are said"
                             " to be durable: the account is another directory's, or the file was changed")
    if size > length:
        os.truncate(path, length)


def _cut_log(folder: Path, notes: Mapping[str, _Note], keep: int | None, random: Random | None) -> None:
    """Cuts a partition's log at its durable end or a batch boundary behind it, and drops what lies behind."""
    segments = segments_of(folder)
    choices: list[tuple[int, int, int]] = []  # (segment, byte, LEO): where the log may end, the least first
    for number, path in enumerate(segments):
        length = notes[f"{folder.name}/{path.name}"].length
        ends = list(batch_ends(path))
        # Only the last segment should have bytes that are not durable; a kill in the middle of an act may
        # say else.
        if not choices and length < path.stat().st_size:
            leo = max((end.leo for end in ends if end.byte <= length), default=base_offset(path))
            choices.append((number, length, leo))
        if choices:
            choices.extend((number, end.byte, end.leo) for end in ends
                           if number > choices[0][0] or end.byte > length)
    if not choices:
        for path in segments:
            _cut_file(path, notes[f"{folder.name}/{path.name}"].length)
        return
    if keep is not None:
        choice = max((choice for choice in choices[1:] if choice[2] <= keep), default=choices[0])
    else:
        choice = choices[0] if random is None else random.choice(choices)
    number, end, _ = choice
    for path in reversed(segments[number + 1:]):
        path.unlink()
    os.truncate(segments[number], end)

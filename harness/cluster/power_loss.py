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
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.logdir.record_batches import frame

_MAGIC = b"floodmark-dur-1\n"
_SLOT_BYTES = 512
_MODE_AT = 20
_EVERYTHING = 1  # mode: no notes, all that is there is durable
_NOTES_AT = (416, 448)
_LOCK = ".lock"
_SEGMENT = "[0-9]" * 20 + ".log"

Held = Mapping[str, tuple[int, int]]  # "topic-partition" -> LEO, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a power cut took, by "topic-partition"; only partitions that have a log are named in `kept`."""

    kept: Mapping[str, int]  # the LEO that is left
    records: Mapping[str, int] = field(default_factory=dict)  # lost; partitions that lost none are left out
    bytes: Mapping[str, int] = field(default_factory=dict)  # likewise, a torn last batch among them
    restored: tuple[str, ...] = ()  # files that got their previous content back
    removed: tuple[str, ...] = ()  # files that are gone
    how: str | None = None  # by what it was played, where a cluster has several ways

    @property
    def lost_records(self) -> int:
        return sum(self.records.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    length: int
    kept: int  # number of the previous copy, 0: the file itself is durable up to `length`


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Where a batch ends: at `byte` of its segment, and the log with it at offset `leo`."""

    byte: int
    leo: int


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
        return Lost(kept={name: _leo(log_dir / name) for name in _logs(log_dir)})
    before = log_extents(log_dir)
    removed, restored = _settle_names(durable_file, log_dir, notes)
    for name in _logs(log_dir):
        _cut_log(log_dir / name, notes, None if keep is None else keep.get(name), random)
    for name, note in notes.items():
        path = log_dir / name
        if not note.kept and path.exists() and path.suffix != ".log":
            _cut_file(path, note.length)
    start_anew(durable_file)
    return replace(records_between(before, log_extents(log_dir)), restored=restored, removed=removed)


def log_extents(log_dir: Path) -> Held:
    """What each log holds: its LEO and its bytes."""
    return {name: (_leo(log_dir / name), _size(log_dir / name)) for name in _logs(log_dir)}


def records_between(before: Held, after: Held) -> Lost:
    """What the logs have lost from one look to the next."""
    gone = {name: (leo - after.get(name, (0, 0))[0], size - after.get(name, (0, 0))[1])
            for name, (leo, size) in before.items()}
    return Lost(
        kept={name: leo for name, (leo, _) in after.items()},
        records={name: records for name, (records, _) in gone.items() if records > 0},
        bytes={name: size for name, (_, size) in gone.items() if size > 0},
    )


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
    records = {name: _records(log_dir / name) for name in _logs(log_dir)}
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
    segments = _segments(folder)
    choices: list[tuple[int, int, int]] = []  # (segment, byte, LEO): where the log may end, the least first
    for number, path in enumerate(segments):
        length = notes[f"{folder.name}/{path.name}"].length
        ends = list(_walk(path))
        # Only the last segment should have bytes that are not durable; a kill in the middle of an act may
        # say else.
        if not choices and length < path.stat().st_size:
            leo = max((end.leo for end in ends if end.byte <= length), default=_base(path))
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


def _logs(log_dir: Path) -> list[str]:
    """The folders of partitions, which are those with a segment."""
    return sorted({path.parent.name for path in log_dir.glob(f"*-*/{_SEGMENT}")})


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob(_SEGMENT))


def _base(segment: Path) -> int:
    return int(segment.stem)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in _segments(folder))


def _leo(folder: Path) -> int:
    """The offset after the last whole batch of the log; 0 when it has no segment."""
    leo = 0
    for path in _segments(folder):
        leo = _base(path)
        for end in _walk(path):
            leo = end.leo
    return leo


def _records(folder: Path) -> int:
    segments = _segments(folder)
    return _leo(folder) - _base(segments[0]) if segments else 0


def _walk(path: Path) -> Iterator[_End]:
    """Where each whole, sound batch of a segment ends, up to the first that is not: there recovery will
    cut."""
    data = path.read_bytes()
    position = 0
    while (found := frame(data, position)) is not None and found.crc_ok:
        position += found.size
        yield _End(byte=position, leo=found.last_offset + 1)

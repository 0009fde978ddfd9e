"""Records, in a mapped side file, which bytes of the log directory would survive a power cut.

A SIGKILL loses nothing that was written; only a power cut does. The page cache cannot be asked which of its
bytes are on the disk, so the broker records it itself: after every fsync, rename, unlink or truncation (all
in broker.storage.log_directory) it notes here what is durable, and the harness reads the notes when it
simulates a power cut on the dead broker's directory. The file is mapped shared, so that a SIGKILL loses none
of it, and it is outside the directory that it describes (key floodmark.durable).

What a name's note means, after a power cut
- no note: the file is gone. (A file is made durable by fsync of its directory, not by being created.)
- length n, no kept copy: the first n bytes are there, and nothing after them.
- kept copy k: the name holds what is in `<side file>.kept/k` (decimal), a link to the file as it was before
  it was replaced without being durable yet.

Format (little endian)
    header, 512 bytes:  0 magic "floodmark-dur-1\\n" | 16 u32 slot size (512) | 20 u8 mode
    slot i at 512 * (1 + i):
        0 u16 length of the name | 2 u16 zero | 4 u32 CRC-32 of the name | 8 the name, UTF-8, parts by '/'
        416 note A, 448 note B, each: u64 sequence | i64 length (-1: no note) | u64 kept copy (0: none)
                                      | u32 CRC-32 of the 24 bytes before, started from the CRC-32 of the name
Mode 1: there are no notes yet and every file in the directory is durable (the side file is new, or a power
cut has just been simulated); mode 0: the notes are valid. A slot whose name does not match its CRC is empty.
Of its two notes with a valid CRC the one with the higher sequence counts; the other one is overwritten next,
so that a kill in the middle of a write leaves the earlier note. The file grows slot by slot and never
shrinks.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from zlib import crc32

MAGIC = b"floodmark-dur-1\n"
SLOT_BYTES = 512
_MODE_AT = 20
_MODE_ADOPTING, _MODE_NOTED = 1, 0
_NAME_AT = 8
_NOTES_AT = (416, 448)
_NAME_BYTES_MAX = _NOTES_AT[0] - _NAME_AT
_NAME = Struct("<HHI")
_NOTE = Struct("<QqQ")
_CRC = Struct("<I")
_SLOTS_ADDED_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The durable part of one file: its first `length` bytes, or, when kept > 0, the kept copy of that
    number."""

    length: int
    kept: int = 0


class DurabilitySideFile:
    """The side file, open and mapped. Only broker.storage.log_directory writes notes: an operation and its
    note belong together."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.kept_folder = path.with_name(path.name + ".kept")
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, 0)
        self._slots: dict[str, int] = {}
        self._notes: dict[str, Note] = {}
        self._sequences: dict[str, int] = {}
        self._name_crcs: dict[str, int] = {}
        self._free: list[int] = []
        self._read_slots()
        self._next_kept = 1 + max((note.kept for note in self._notes.values()), default=0)

    @classmethod
    def open(cls, path: Path) -> "DurabilitySideFile":
        """Open the side file, or create one in mode 1 (every existing file is durable). Raises OSError."""
        if not path.exists():
            _create_side_file(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return cls(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def is_adopting(self) -> bool:
        """Whether it is in mode 1: there are no notes, and every file in the directory is durable."""
        return self._map[_MODE_AT] == _MODE_ADOPTING

    def finish_adopting(self) -> None:
        """Enter mode 0: every file in the directory has its note now."""
        self._map[_MODE_AT] = _MODE_NOTED

    def get(self, name: str) -> Note | None:
        return self._notes.get(name)

    def names(self) -> list[str]:
        return list(self._notes)

    def note(self, name: str, length: int, *, kept: int = 0) -> None:
        """Note that the first `length` bytes of `name`, or its kept copy, are durable."""
        slot = self._slots.get(name)
        if slot is None:
            slot = self._claim_slot(name)
        self._write_note(name, slot, length, kept)
        self._notes[name] = Note(length=length, kept=kept)

    def remove_note(self, name: str) -> None:
        """Note that a power cut would leave no file of this name."""
        if self._notes.pop(name, None) is None:
            return
        slot = self._slots.pop(name)
        self._write_note(name, slot, -1, 0)
        del self._sequences[name], self._name_crcs[name]
        self._free.append(slot)

    def allocate_kept_copy(self) -> tuple[int, Path]:
        """Allocate a number for a kept copy; returns it and the copy's path."""
        number = self._next_kept
        self._next_kept += 1
        return number, self.kept_folder / str(number)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor >= 0:
            self._map.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def _write_note(self, name: str, slot: int, length: int, kept: int) -> None:
        sequence = self._sequences[name] + 1
        name_crc = self._name_crcs[name]
        at = slot + _NOTES_AT[sequence & 1]
        body = _NOTE.pack(sequence, length, kept)
        self._map[at:at + _NOTE.size + _CRC.size] = body + _CRC.pack(crc32(body, name_crc))
        self._sequences[name] = sequence

    def _claim_slot(self, name: str) -> int:
        raw = name.encode()
        if len(raw) > _NAME_BYTES_MAX:
            raise ValueError(f"the name {name!r} is longer than {_NAME_BYTES_MAX} bytes")
        if not self._free:
            self._add_slots()
        slot = self._free.pop()
        name_crc = crc32(raw)
        # The old name's notes do not match the new name's CRC: between these writes the slot is simply empty.
        self._map[slot:slot + _NAME_AT + len(raw)] = _NAME.pack(len(raw), 0, name_crc) + raw
        self._slots[name], self._name_crcs[name] = slot, name_crc
        # Notes of an earlier file of this very name are still valid and must have a lower sequence.
        self._sequences[name] = max((found[0] for found in self._valid_notes(slot, name_crc)), default=0)
        return slot

    def _add_slots(self) -> None:
        size = len(self._map)
        wanted = size + _SLOTS_ADDED_AT_ONCE * SLOT_BYTES
        # Allocated, not just extended: a full disk is an error here, not a SIGBUS at some later store.
        os.posix_fallocate(self._descriptor, size, wanted - size)
        self._map.resize(wanted)
        self._free = list(range(wanted - SLOT_BYTES, size - 1, -SLOT_BYTES))

    def _read_slots(self) -> None:
        if self._map[:len(MAGIC)] != MAGIC:
            raise OSError(f"{self.path} is not a side file of this version")
        for slot in range(SLOT_BYTES, len(self._map), SLOT_BYTES):
            length, _, name_crc = _NAME.unpack_from(self._map, slot)
            raw = self._map[slot + _NAME_AT:slot + _NAME_AT + min(length, _NAME_BYTES_MAX)]
            notes = self._valid_notes(slot, name_crc) if length and crc32(raw) == name_crc else []
            if not notes or max(notes)[1] < 0:
                self._free.append(slot)
                continue
            name = raw.decode()
            sequence, durable, kept = max(notes)
            self._slots[name], self._sequences[name], self._name_crcs[name] = slot, sequence, name_crc
            self._notes[name] = Note(length=durable, kept=kept)

    def _valid_notes(self, slot: int, name_crc: int) -> list[tuple[int, int, int]]:
        found = []
        for at in (slot + _NOTES_AT[0], slot + _NOTES_AT[1]):
            body = self._map[at:at + _NOTE.size]
            if crc32(body, name_crc) == _CRC.unpack_from(self._map, at + _NOTE.size)[0]:
                sequence, length, kept = _NOTE.unpack(body)
                found.append((sequence, length, kept))
        return found


def _create_side_file(path: Path) -> None:
    """Create a side file: it is complete before it gets its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    size = SLOT_BYTES * (1 + _SLOTS_ADDED_AT_ONCE)
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, size)
        os.pwrite(descriptor, MAGIC + SLOT_BYTES.to_bytes(4, "little") + bytes([_MODE_ADOPTING]), 0)
    finally:
        os.close(descriptor)
    os.replace(fresh, path)

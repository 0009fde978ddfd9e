"""Reads Kafka's checkpoint files: a version (0), the number of lines, the lines."""

from pathlib import Path
from typing import Final, Literal

from floodmark.harness.errors import FloodmarkError

UNREADABLE: Final = "unreadable"  # a leader-epoch-checkpoint that is empty or torn
# (epoch, start offset) of each entry; None: there is no such file
Epochs = tuple[tuple[int, int], ...] | Literal["unreadable"] | None


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read a checkpoint of offsets (`topic partition offset` in each line); empty if there is no file."""
    return offsets_in(_text(path) or "", str(path))


def offsets_in(text: str, source: str) -> dict[tuple[str, int], int]:
    """Parse the text of a checkpoint of offsets. source: the file's name, for errors."""
    lines = _lines_in(text, source, fields=3) if text else []  # Kafka creates it before it writes anything
    return {(line[0], int(line[1])): int(line[2]) for line in lines}


def read_epochs(folder: Path) -> Epochs:
    """Read leader-epoch-checkpoint in a partition's folder."""
    path = folder / "leader-epoch-checkpoint"
    try:
        text = _text(path)
        return None if text is None else tuple(
            (int(epoch), int(start)) for epoch, start in _lines_in(text, str(path), fields=2))
    except FloodmarkError:
        return UNREADABLE


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FloodmarkError(f"the checkpoint {path} cannot be read: {error}") from error


def _lines_in(text: str, source: str, *, fields: int) -> list[list[str]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    valid = (len(lines) >= 2 and lines[0] == ["0"] and lines[1] == [str(len(lines) - 2)]
             and all(len(line) == fields and all(field.lstrip("-").isdecimal() for field in line[fields - 2:])
                     for line in lines[2:]))
    if not valid:
        raise FloodmarkError(f"the checkpoint {source} is damaged: it should be 0, a count and that many "
                             f"lines of {fields} fields")
    return lines[2:]

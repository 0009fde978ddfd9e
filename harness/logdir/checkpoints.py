"""Reads Kafka's checkpoint files: a version (0), the number of lines, the lines."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from floodmark.harness.errors import FloodmarkError

UNREADABLE: Final = "unreadable"  # a leader-epoch-checkpoint that is empty or torn
# (epoch, start offset) of each entry; None: there is no such file
Epochs = tuple[tuple[int, int], ...] | Literal["unreadable"] | None


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read a checkpoint of offsets (`topic partition offset` in each line); empty if there is no file."""
    return _offsets(_checkpoint_lines(path, fields=3) or ())


def offsets_in(text: str, source: str) -> dict[tuple[str, int], int]:
    """Parse the text of a checkpoint of offsets. source: the file's name, for errors."""
    return _offsets(_lines_in(text, source, fields=3))


def _offsets(lines: Iterable[list[str]]) -> dict[tuple[str, int], int]:
    return {(line[0], int(line[1])): int(line[2]) for line in lines}


def read_epochs(folder: Path) -> Epochs:
    """Read leader-epoch-checkpoint in a partition's folder."""
    try:
        lines = _checkpoint_lines(folder / "leader-epoch-checkpoint", fields=2, may_be_empty=False)
    except FloodmarkError:
        return UNREADABLE
    return None if lines is None else tuple((int(line[0]), int(line[1])) for line in lines)


def _checkpoint_lines(path: Path, *, fields: int, may_be_empty: bool = True) -> list[list[str]] | None:
    """The lines of a checkpoint, split into fields; None: there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FloodmarkError(f"the checkpoint {path} cannot be read: {error}") from error
    return _lines_in(text, str(path), fields=fields, may_be_empty=may_be_empty)


def _lines_in(text: str, source: str, *, fields: int, may_be_empty: bool = True) -> list[list[str]]:
    if not text and may_be_empty:  # Kafka creates the file before it has anything to write
        return []
    lines = [line.split() for line in text.splitlines() if line.strip()]
    valid = (len(lines) >= 2 and lines[0] == ["0"] and lines[1] == [str(len(lines) - 2)]
             and all(len(line) == fields and all(field.lstrip("-").isdecimal() for field in line[fields - 2:])
                     for line in lines[2:]))
    if not valid:
        raise FloodmarkError(f"the checkpoint {source} is damaged: it should be 0, a count and that many "
                             f"lines of {fields} fields")
    return lines[2:]

"""Kafka's checkpoint files: a version (0), how many lines, the lines."""

from collections.abc import Iterable
from pathlib import Path

from floodmark.harness.errors import FloodmarkError


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """A checkpoint of offsets (`topic partition offset` a line): empty where the file is not there."""
    return _offsets(_checkpoint_lines(path, fields=3) or ())


def offsets_in(text: str, source: str) -> dict[tuple[str, int], int]:
    """The same of such a file's text; source: what it is called in an error."""
    return _offsets(_lines_in(text, source, fields=3))


def _offsets(lines: Iterable[list[str]]) -> dict[tuple[str, int], int]:
    return {(line[0], int(line[1])): int(line[2]) for line in lines}


def read_epochs(folder: Path) -> tuple[tuple[int, int], ...] | None:
    """leader-epoch-checkpoint of a partition's folder: (epoch, start offset); None: there is no such file."""
    lines = _checkpoint_lines(folder / "leader-epoch-checkpoint", fields=2)
    return None if lines is None else tuple((int(line[0]), int(line[1])) for line in lines)


def _checkpoint_lines(path: Path, *, fields: int) -> list[list[str]] | None:
    """Kafka's checkpoint files: a version (0), how many lines, the lines."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FloodmarkError(f"the checkpoint {path} cannot be read: {error}") from error
    return _lines_in(text, str(path), fields=fields)


def _lines_in(text: str, source: str, *, fields: int) -> list[list[str]]:
    if not text:  # Kafka makes the file before it has anything to write, and reads it so
        return []
    lines = [line.split() for line in text.splitlines() if line.strip()]
    sound = (len(lines) >= 2 and lines[0] == ["0"] and lines[1] == [str(len(lines) - 2)]
             and all(len(line) == fields and all(word.lstrip("-").isdecimal() for word in line[fields - 2:])
                     for line in lines[2:]))
    if not sound:
        raise FloodmarkError(f"the checkpoint {source} is damaged: it should be 0, a count and that many "
                             f"lines of {fields} words")
    return lines[2:]

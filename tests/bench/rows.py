"""What every part of the bench is made of: options, and rows of figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Figures = Mapping[tuple[str, str], float]  # (who, what and its unit) -> the figure of one turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """None: as many as the part usually takes."""

    scratch: Path
    kept: Path | None
    seconds: float
    ops: Sequence[int] | None
    folders: int | None
    memory_mb: int | None
    kafka: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Figures that are measured together, for the number of a turn: what has to meet a busy minute of the
    machine together. against: with whom the others are compared."""

    about: str
    measured: Callable[[int], Figures]
    against: str = ""

"""What the statistics of runs (checkers/stats) owe the commands and pages that print them: seams only."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Answers(Protocol):
    """What the measures of many runs say together; rows by their columns, None for null."""

    @property
    def runs(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def faults(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def by_kind(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def nights(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def trend(self) -> Sequence[Mapping[str, Any]]: ...
    def write(self, folder: Path) -> None: ...  # all runs and all faults as Parquet files


class Seen(Protocol):
    """What the page of a run draws of its clients. Times: ns since the run began, but for the columns'.

    columns, by their beginnings: `began` (us since the op before), `lasted` (us), `what` (ok, fail, info: 0,
    1, 2; of polls 3 more, of what is neither send nor poll 6), `records` sent and read by ok ones.
    acked, near a finding: partition, offset, value, when its op was invoked and when it was acked.
    """

    @property
    def lines(self) -> int: ...
    @property
    def broken(self) -> int: ...
    @property
    def last_ns(self) -> int: ...
    @property
    def ops(self) -> int: ...  # how many there are; the columns may have fewer
    @property
    def columns(self) -> Mapping[str, Sequence[int]]: ...
    @property
    def acked(self) -> Sequence[tuple[int, int, int, int, int]]: ...
    @property
    def nemesis(self) -> Sequence[str]: ...  # its lines
    @property
    def faults(self) -> Sequence[Mapping[str, Any]]: ...  # what each cost, as checkers/stats has it
    @property
    def unmeasured(self) -> str: ...  # why there are no faults; empty: there are all


class Measures(Protocol):
    """What faults cost clients, of each run of a call by its position in it; checkers/stats says what each
    figure is."""

    @property
    def failures(self) -> Mapping[int, str]: ...  # those that could not be measured, and why
    @property
    def unsaved(self) -> Mapping[int, str]: ...  # those whose folders could not keep their measures, and why
    def run_rows(self) -> Mapping[int, Mapping[str, Any]]: ...
    def answers(self, names: Mapping[int, tuple[str, str]]) -> Answers: ...  # of each: the night, the run

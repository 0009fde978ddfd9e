"""Protocols of the statistics of runs (checkers/stats), for the commands and pages that print them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Answers(Protocol):
    """The statistics of many runs together; each row maps columns to values, with None for null."""

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


class ClientActivity(Protocol):
    """The ops of a run's clients, as the run's page draws them. Times are in ns since the run began, except
    in
    `columns`.

    columns, in the order of the invocations: `began` (us since the op before), `lasted` (us), `what` (ok,
    fail, info: 0, 1, 2; for polls 3 more; for anything else 6 more), `records` that the ok ops sent and read.
    acked, for records near a finding: partition, offset, value, when its op was invoked, when it was acked.
    """

    @property
    def lines(self) -> int: ...
    @property
    def broken(self) -> int: ...
    @property
    def last_ns(self) -> int: ...
    @property
    def ops(self) -> int: ...  # the number of ops; the columns may have fewer
    @property
    def columns(self) -> Mapping[str, Sequence[int]]: ...
    @property
    def acked(self) -> Sequence[tuple[int, int, int, int, int]]: ...
    @property
    def nemesis(self) -> Sequence[str]: ...  # its lines
    @property
    def faults(self) -> Sequence[Mapping[str, Any]]: ...  # the cost of each, as in checkers/stats
    @property
    def unmeasured(self) -> str: ...  # why `faults` is empty; "": it is complete


class Measures(Protocol):
    """What faults cost clients, for each run of a call by its position; checkers/stats defines each
    figure."""

    @property
    def failures(self) -> Mapping[int, str]: ...  # the runs that could not be measured, and why
    @property
    def unsaved(self) -> Mapping[int, str]: ...  # the runs whose measures could not be saved, and why
    def run_rows(self) -> Mapping[int, Mapping[str, Any]]: ...
    def answers(self, names: Mapping[int, tuple[str, str]]) -> Answers: ...  # names: a run's night and name

"""Reads from the history what a page shows of the clients: their ops, and how each fault affected them.
The history is parsed as for the judge and measured as for `campaign stats` (checkers/stats), so that the page
agrees with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.reports.html.lines import Line
from floodmark.harness.reports.run_files import fields_of
from floodmark.harness.run import Run

OPS_AT_MOST = 500_000  # more would make the page too large to send
BYTES_AT_MOST = 1 << 31

Near = tuple[int, int, int]  # partition, first offset, the offset after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """An acked record near a finding."""

    partition: int
    offset: int
    value: int
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients' ops of a run, and the measures of its faults."""

    ops: int = 0
    columns: Mapping[str, Sequence[int]] = field(
        default_factory=lambda: dict.fromkeys(("began", "lasted", "what", "records"), ()))
    acked: Sequence[Acked] = ()
    nemesis: Sequence[Line] = ()
    faults: Sequence[Mapping[str, Any]] = ()  # a row of measures for each
    unmeasured: str = ""  # why there are no measures
    last_ns: int = 0
    problems: Sequence[str] = ()


def clients(run: Run, near: Sequence[Near]) -> Clients:
    """Reads the history once. near: the ranges of offsets whose acked records are wanted."""
    name = run.history_path.name
    try:
        if run.history_path.stat().st_size > BYTES_AT_MOST:
            return unreadable(f"{name} has more than {BYTES_AT_MOST >> 20} MB: clients' ops are not shown")
        activity = catalog.client_activity(run.folder, near, OPS_AT_MOST)
    except FileNotFoundError:
        return unreadable(f"there is no {name}")
    except OSError as error:
        return unreadable(f"{name} cannot be read: {error.strerror or error}")
    problems = []
    if activity.broken:
        problems.append(f"{name}: {activity.broken:,} line(s) are not in format 1 and were skipped")
    if activity.ops > OPS_AT_MOST:
        problems.append(f"the drawings show the first {OPS_AT_MOST:,} of {activity.ops:,} ops")
    return Clients(
        ops=activity.ops,
        columns=activity.columns,
        acked=[Acked(partition=partition, offset=offset, value=value, began_ns=began, ended_ns=ended)
               for partition, offset, value, began, ended in activity.acked],
        nemesis=[line for each in activity.nemesis if (line := fields_of(each.encode())) is not None],
        faults=activity.faults,
        unmeasured=activity.unmeasured,
        last_ns=activity.last_ns,
        problems=problems,
    )  # fmt: skip


def unreadable(why: str) -> Clients:
    return Clients(problems=(why,), unmeasured=why)

"""What clients asked and were told, and what each fault cost them: as the page takes it from the history.

The history is parsed as for the judge and measured as for `campaign stats` (checkers/stats), so that a page
says of a run what they say of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.reports.html.lines import Line
from floodmark.harness.reports.run_files import fields_of
from floodmark.harness.run import Run

OPS_AT_MOST = 500_000  # on a page; with more it would be too large to send
BYTES_AT_MOST = 1 << 31

Near = tuple[int, int, int]  # partition, first offset, the offset behind the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A micro-send that was acked, near a finding."""

    partition: int
    offset: int
    value: int
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients' side of a run."""

    ops: int = 0
    columns: Mapping[str, Sequence[int]] = field(
        default_factory=lambda: dict.fromkeys(("began", "lasted", "what", "records"), ()))
    acked: Sequence[Acked] = ()
    nemesis: Sequence[Line] = ()
    faults: Sequence[Mapping[str, Any]] = ()  # rows of the measures
    unmeasured: str = ""  # why there are none
    last_ns: int = 0
    problems: Sequence[str] = ()


def clients(run: Run, near: Sequence[Near]) -> Clients:
    """One pass over the history. near: where acked records are wanted one by one."""
    name = run.history_path.name
    try:
        if run.history_path.stat().st_size > BYTES_AT_MOST:
            return unread(f"{name} has more than {BYTES_AT_MOST >> 20} MB: what clients did is not shown")
        told = catalog.seen(run.folder, near, OPS_AT_MOST)
    except FileNotFoundError:
        return unread(f"there is no {name}")
    except OSError as error:
        return unread(f"{name} cannot be read: {error.strerror or error}")
    problems = []
    if told.broken:
        problems.append(f"{name}: {told.broken:,} line(s) are not as format 1 has them, and were passed over")
    if told.ops > OPS_AT_MOST:
        problems.append(f"the drawings show the first {OPS_AT_MOST:,} of {told.ops:,} ops")
    return Clients(
        ops=told.ops,
        columns=told.columns,
        acked=[Acked(partition=partition, offset=offset, value=value, began_ns=began, ended_ns=ended)
               for partition, offset, value, began, ended in told.acked],
        nemesis=[line for each in told.nemesis if (line := fields_of(each.encode())) is not None],
        faults=told.faults,
        unmeasured=told.unmeasured,
        last_ns=told.last_ns,
        problems=problems,
    )  # fmt: skip


def unread(why: str) -> Clients:
    return Clients(problems=(why,), unmeasured=why)

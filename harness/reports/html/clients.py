"""What clients asked and were told: the ops in columns, acks by partition, and how long nothing was acked.

Rules
1. One pass over history.jsonl. An op begins with its invocation; what never ended is info, as for the judge.
2. The columns hold an op in five small numbers, so that a page of 100,000 ops stays small; the page makes
   counts and percentiles of them for whatever time is looked at.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.op import NEMESIS
from harness.reports.html.lines import Line, Lines, items, text, whole
from harness.run import Run

OPS_AT_MOST = 500_000  # on a page; with more it would be too large to send
TYPES = ("ok", "fail", "info")
KINDS = ("send", "poll", "other")
SETTLING = 1_000_000  # clients from here on settle the cluster and read it to the end

Near = tuple[int, int, int]  # partition, first offset, the offset behind the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A micro-send that was acked, near a finding."""

    partition: int
    offset: int
    value: int
    epoch: int | None
    began_ns: int
    ended_ns: int


@dataclass(slots=True, kw_only=True)
class Clients:
    """The clients' side of a run."""

    began_us: "array[int]" = field(default_factory=lambda: array("q"))
    lasted_us: "array[int]" = field(default_factory=lambda: array("q"))
    types: "array[int]" = field(default_factory=lambda: array("B"))  # by TYPES
    kinds: "array[int]" = field(default_factory=lambda: array("B"))  # by KINDS
    records: "array[int]" = field(default_factory=lambda: array("i"))  # of an ok op: sent or read
    acks_ns: dict[int, list[int]] = field(default_factory=dict)  # partition -> when, in order
    failures_ns: list[int] = field(default_factory=list)  # invocations of ops that were not ok, in order
    acked: list[Acked] = field(default_factory=list)
    nemesis: list[Line] = field(default_factory=list)
    lines: int = 0
    last_ns: int = 0
    problems: list[str] = field(default_factory=list)


def clients(run: Run, near: Sequence[Near]) -> Clients:
    """One pass over the history. near: where acked records are wanted one by one."""
    told = Clients()
    opened: dict[int, Line] = {}
    lines = Lines(run=run, path=run.history_path)
    for number, line in lines:
        time, process = whole(line, "time"), whole(line, "process")
        if time is None or process is None:
            continue
        told.lines, told.last_ns = told.lines + 1, max(told.last_ns, time)
        if process == NEMESIS:
            told.nemesis.append({**line, "index": number - 1} if whole(line, "index") is None else line)
        elif text(line, "type") == "invoke":
            opened[process] = line
        elif text(line, "type") in TYPES:
            ended(told, opened.pop(process, line), line, time, near)
    for line in opened.values():
        ended(told, line, {**line, "type": "info"}, told.last_ns, near)
    told.failures_ns.sort()
    for acks in told.acks_ns.values():
        acks.sort()
    told.problems = lines.problems
    if len(told.types) > OPS_AT_MOST:
        told.problems.append(f"the drawings show the first {OPS_AT_MOST:,} of {len(told.types):,} ops")
    return told


def ended(told: Clients, asked: Line, line: Line, time: int, near: Sequence[Near]) -> None:
    """An op that is over."""
    began = whole(asked, "time") or 0
    kind = text(line, "f")
    outcome = TYPES.index(text(line, "type"))
    sends, reads = items(line, "sends"), items(line, "reads")
    told.began_us.append(began // 1_000)
    told.lasted_us.append(max(0, time - began) // 1_000)
    told.types.append(outcome)
    told.kinds.append(KINDS.index(kind) if kind in KINDS else 2)
    told.records.append((len(sends) + len(reads)) if outcome == 0 else 0)
    if outcome:
        told.failures_ns.append(began)
        return
    for send in sends:
        if isinstance(send, dict) and (partition := whole(send, "partition")) is not None:
            told.acks_ns.setdefault(partition, []).append(time)
            keep(told, send, partition, (began, time), near)


def keep(told: Clients, send: Line, partition: int, span: tuple[int, int], near: Sequence[Near]) -> None:
    offset, value = whole(send, "offset"), whole(send, "value")
    if (
        offset is not None
        and value is not None
        and any(partition == of and first <= offset < behind for of, first, behind in near)
    ):
        told.acked.append(
            Acked(
                partition=partition,
                offset=offset,
                value=value,
                epoch=whole(send, "epoch"),
                began_ns=span[0],
                ended_ns=span[1],
            )
        )


# -- availability -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """What clients noticed of one fault; a time is None where there was none."""

    first_failure_ns: int | None  # after it was set about, of ops begun before it was mended
    longest_gap_ns: int | None  # between two acks of one partition, of those that overlap the fault
    gap_partition: int | None
    first_ack_ns: int | None  # after the mending, of the partition that took longest


def availability(told: Clients, began_ns: int, mended_ns: int | None) -> Availability:
    """Of a fault from its beginning until it was mended (None: never, or at once)."""
    until = mended_ns if mended_ns is not None else began_ns
    at = bisect_left(told.failures_ns, began_ns)
    failed = at < len(told.failures_ns) and told.failures_ns[at] <= max(until, began_ns + 1_000_000_000)
    gaps = [(gap_around(acks, began_ns, until), partition) for partition, acks in told.acks_ns.items()]
    longest = max(((gap, partition) for gap, partition in gaps if gap is not None), default=(None, None))
    firsts = [
        acks[index] - until
        for acks in told.acks_ns.values()
        if (index := bisect_right(acks, until)) < len(acks)
    ]
    return Availability(
        first_failure_ns=told.failures_ns[at] - began_ns if failed else None,
        longest_gap_ns=longest[0],
        gap_partition=longest[1],
        first_ack_ns=max(firsts) if firsts and mended_ns is not None else None,
    )


def gap_around(acks: Sequence[int], began_ns: int, until_ns: int) -> int | None:
    """The longest time without an ack that overlaps the fault; None where the acks do not enclose it."""
    first = bisect_left(acks, began_ns) - 1
    last = bisect_right(acks, until_ns)
    if first < 0 or last >= len(acks):
        return None
    return max(acks[index + 1] - acks[index] for index in range(first, last))


def columns(told: Clients, cap: int = OPS_AT_MOST) -> Mapping[str, Any]:
    """The ops as JSON: by their beginning, which is told as the difference to the one before."""
    order = sorted(range(len(told.types)), key=told.began_us.__getitem__)[:cap]
    begins = [told.began_us[at] for at in order]
    return {
        "began": [one - before for one, before in zip(begins, [0, *begins], strict=False)],
        "lasted": [told.lasted_us[at] for at in order],
        "what": [told.types[at] + 3 * told.kinds[at] for at in order],
        "records": [told.records[at] for at in order],
    }

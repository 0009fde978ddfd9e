"""Compares reproductions with the run that they repeat: how often the finding came back, and how close the
faults were to their moments.

Rules
1. Pure: from values to values and text.
2. "The same finding" has the same name and class. Its partition and how the record was lost are shown beside
   it, because another interleaving may lose another record in the same way.
3. How late a fault struck is counted from the instant of its moment in the reproduction's own history; for a
   failpoint, from when the broker reached it; for a state, from when it was observed. The distance in acks is
   counted against the first run, in the partition that the anchors use.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.harness.report.phrases import align_columns, class_text, many
from floodmark.harness.report.rates import wilson
from floodmark.harness.report.run_outcome import VALID, Ruling, ruling
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.report.verdict_text import worst_first
from floodmark.harness.run import Run
from floodmark.harness.saved_run import SavedRun
from floodmark.harness.schedule.entry import ACTS, Entry, Schedule
from floodmark.harness.schedule.moments import Ack, After, Failpoint, FirstOf, InTurn, Moment, Time
from floodmark.harness.schedule.reanchoring import AnchorBasis, ReanchoredEntry, ScheduleHistory, Strike
from floodmark.harness.verdict import BUG

Json = Mapping[str, Any]  # an object of run.json or verdict.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One reproduction that has been carried out and judged."""

    number: int  # from 1
    folder: Path
    ended: str
    missed: tuple[int, ...]
    history: ScheduleHistory
    verdict: Json  # as verdict.json
    died: tuple[str, ...] = ()

    @property
    def ruling(self) -> Ruling:
        return ruling(self.verdict, {"ended": self.ended, "died": list(self.died)})


@dataclass(frozen=True, slots=True, kw_only=True)
class StrikeDifference:
    """How far one fault was from its moment, and from its place in the first run."""

    late_ns: int | None  # None: unknown
    acks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """The run that is reproduced."""

    run: Run
    saved: SavedRun
    schedule: Schedule  # the original one
    basis: AnchorBasis
    anchors: tuple[ReanchoredEntry, ...]
    verdict: Json | None  # None: not judged yet
    sought: Json | None  # the group of findings to reproduce; None: there is none


# -- findings -----------------------------------------------------------------------------------------------


def finding_of(verdict: Json, name: str, klass: str) -> Json | None:
    """The group of findings with this name and class."""
    for found in verdict.get("findings") or ():
        if (found["name"], found["class"]) == (name, klass):
            return dict(found)
    return None


def same_in(sought: Json, attempt: Attempt, key: str) -> bool:
    """Whether an example has the same value of this key (partition, how) as one of the first run's."""
    found = finding_of(attempt.verdict, sought["name"], sought["class"])
    then = {example.get(key) for example in sought.get("examples") or ()} - {None}
    now = {example.get(key) for example in (found or {}).get("examples") or ()}
    return bool(then & now)


def bugs_of(verdict: Json) -> tuple[str, ...]:
    return tuple(sorted({found["name"] for found in verdict.get("findings") or () if found["class"] == BUG}))


def rate_text(hits: int, of: int) -> str:
    """`7/10, 70 % (95 % interval 40 to 89 %)`."""
    if of == 0:
        return "0/0: no run was carried out"
    low, high = wilson(hits, of)
    return f"{hits}/{of}, {100 * hits / of:.0f} % (95 % interval {100 * low:.0f} to {100 * high:.0f} %)"


# -- how close ----------------------------------------------------------------------------------------------


def compare_strikes(anchor: ReanchoredEntry, attempt: Attempt, basis: AnchorBasis
                   ) -> StrikeDifference | None:
    """How much this strike differs from the saved run's; None if it did not strike, its moment was missed, or
    it struck without the state that it should wait for."""
    strike = attempt.history.strikes.get(anchor.position)
    if strike is None or anchor.strike is None or anchor.position in attempt.missed:
        return None
    if anchor.by == "state" and strike.first:
        return None
    partition = basis.partition_of(anchor.strike)
    acks = (attempt.history.acks(partition).count_by(strike.began_ns)
            - basis.history.acks(partition).count_by(anchor.strike.began_ns))
    return StrikeDifference(late_ns=late_ns(anchor.now, strike, attempt.history, anchor.position), acks=acks)


def late_ns(entry: Entry, strike: Strike, history: ScheduleHistory, position: int) -> int | None:
    """The time from the moment's instant to the strike."""
    done_ns = history.done_before(position)
    moment_ns = done_ns if entry.moment is None else _due_ns(entry.moment, history, done_ns)
    if moment_ns is None:
        moment_ns = strike.reached_ns if strike.met_ns is None else strike.met_ns + (
                0 if entry.moment is None else entry.moment.delay_ns)
    return None if moment_ns is None else max(0, strike.began_ns - moment_ns)


def _due_ns(moment: Moment, history: ScheduleHistory, done_ns: int | None) -> int | None:
    """The time at which it was due, by this history; None if the history does not show it."""
    came_ns = moment.came_ns(lambda partition: history.acks(partition).times, done_ns)
    return None if came_ns is None else came_ns + (moment.then_ns or 0)


def nearness(all_apart: Sequence[StrikeDifference]) -> dict[str, float]:
    """Median and worst distance, in milliseconds and in acks; a key is absent if it is unknown for all."""
    late = [one.late_ns / 1e6 for one in all_apart if one.late_ns is not None]
    acks = [abs(one.acks) for one in all_apart]
    distances: dict[str, float] = {}
    if late:
        distances |= {"late_ms_median": statistics.median(late), "late_ms_worst": max(late)}
    if acks:
        distances |= {"acks_median": statistics.median(acks), "acks_worst": max(acks)}
    return distances


# -- text ---------------------------------------------------------------------------------------------------


_ANCHOR_WORDS = {"asked": "as before", "acks": "by acks", "state": "by leader and ISR",
                 "after": "relative to the entry before", "time": "by time"}  # ReanchoredEntry.by


def shown_anchors(anchors: Sequence[ReanchoredEntry]) -> list[ReanchoredEntry]:
    """The faults, and other entries whose anchor is new."""
    return [one for one in anchors if one.then.f not in ACTS or one.by != "asked"]


def moments_text(anchors: Sequence[ReanchoredEntry]) -> str:
    """How many moments are as they were, and what has replaced the others: `4 as before, 1 by acks`."""
    counts = Counter(one.by for one in shown_anchors(anchors))
    parts = [f"{counts[kind]} {words}" for kind, words in _ANCHOR_WORDS.items() if counts[kind]]
    return ", ".join(parts) or "none"


def table(anchors: Sequence[ReanchoredEntry], attempts: Sequence[Attempt], basis: AnchorBasis) -> str:
    """A row for each fault: the moment asked for, where it struck, its anchor now, and how close it came."""
    rows = [("", "fault", "asked then", "struck then", "anchored now", "met", "late ms", "acks apart")]
    for one in shown_anchors(anchors):
        found = [compare_strikes(one, attempt, basis) for attempt in attempts]
        near = [each for each in found if each is not None]
        rows.append((
            str(one.position), _who(one), _asked(one, anchors), _struck(one, basis),
            "as asked" if one.by == "asked" else f"{moment_text(one.now.moment)} ({one.why})",
            f"{len(near)}/{len(attempts)}", _late(near), _acks(near)))
    return "\n".join(f"  {line}" for line in align_columns(rows))


def _who(one: ReanchoredEntry) -> str:
    """`kill n1 as leader`."""
    then, now = " ".join(one.then.nodes), " ".join(one.now.nodes)
    return f"{one.then.f} {then}".rstrip() + (f" as {now}" if now != then else "")


def _asked(one: ReanchoredEntry, anchors: Sequence[ReanchoredEntry]) -> str:
    """The entry's moment; if it was to follow a wait at once, the wait's."""
    before = anchors[one.position - 1].then if one.position else None
    if one.then.moment is None and before is not None and before.f == "wait":
        return f"once {moment_text(before.moment)}"
    return moment_text(one.then.moment)


def _struck(one: ReanchoredEntry, basis: AnchorBasis) -> str:
    if one.strike is None:
        return "left no line"
    partition = basis.partition_of(one.strike)
    count = basis.history.acks(partition).count_by(one.strike.began_ns)
    leader = one.strike.leader(partition)
    isr = one.strike.isr(partition)
    parts = [f"{one.strike.began_ns / 1e9:.3f} s", f"p{partition}: ack {count}"]
    parts += [f"leader {leader}"] if leader else []
    parts += [f"ISR {' '.join(isr)}"] if isr is not None else []
    return ", ".join(parts)


def _late(near: Sequence[StrikeDifference]) -> str:
    late = [one.late_ns / 1e6 for one in near if one.late_ns is not None]
    return f"{statistics.median(late):.1f} ({max(late):.1f})" if late else "-"


def _acks(near: Sequence[StrikeDifference]) -> str:
    if not near:
        return "-"
    acks = sorted(one.acks for one in near)
    return f"{statistics.median_low(acks):+d} ({max(acks, key=abs):+d})"


def moment_text(moment: Moment | None) -> str:
    """A moment for the table: `ack 5 of p0 + 1.0 ms`; a state as in steps."""
    match moment:
        case None:
            return "at once"
        case Time():
            text = f"{moment.time / 1e9:.3f} s"
        case After():
            text = f"{moment.after_ns / 1e6:.0f} ms after"
        case Ack():
            text = moment.asked().removeprefix("asked at ")
        case Failpoint():
            text = f"{moment.node} at {moment.name}"
        case InTurn() | FirstOf():
            text = (", then " if isinstance(moment, InTurn) else " or ").join(map(moment_text, moment.of))
        case _:
            text = moment.words()
    return text + (f" + {moment.then_ns / 1e6:.1f} ms" if moment.then_ns else "")


# -- the report --------------------------------------------------------------------------------------------


def attempt_text(first: First, attempts: Sequence[Attempt], *, failed: int) -> str:
    """The report: the table of faults, a line for each run, and the rate."""
    lines = [f"{harmless(first.run.folder.name)}, reproduced {many(len(attempts), 'time')}"]
    if shown_anchors(first.anchors):
        lines += ["", "faults and other moments (late and acks apart: median, in brackets the worst):",
                  table(first.anchors, attempts, first.basis)]
    lines += ["", "runs:", *(run_line(first, attempt) for attempt in attempts), ""]
    lines += [f"  {many(failed, 'run')} not carried out"] if failed else []
    lines += rates(first, attempts)
    near = nearness(_apart(first, attempts))
    if "late_ms_median" in near:
        lines.append(f"  faults struck {near['late_ms_median']:.1f} ms after their moments (median; worst "
                     f"{near['late_ms_worst']:.1f} ms)")
    if "acks_median" in near:
        lines.append(f"  and {near['acks_median']:g} acks from their places in the first run (median; worst "
                     f"{near['acks_worst']:g})")
    return "\n".join(lines)


def run_line(first: First, attempt: Attempt) -> str:
    """The line about one run."""
    names = ", ".join(one["name"] for one in worst_first(attempt.verdict.get("findings") or ()))
    parts = [f"{attempt.ruling.heading}{': ' + names if names else ''}"]
    if first.sought is not None:
        parts.append("the same finding" if shows(first.sought, attempt) else "not the finding")
    parts += [f"missed {', '.join(map(str, attempt.missed))}"] if attempt.missed else []
    parts += [f"ended early: {attempt.ended}"] if attempt.ended != "done" else []
    near = nearness(_apart(first, [attempt]))
    parts += [f"late {near['late_ms_median']:.1f} ms (worst {near['late_ms_worst']:.1f})"
              ] if "late_ms_median" in near else []
    return f"  {attempt.number:>3}  {'; '.join(parts)}\n       {attempt.folder}"


def rates(first: First, attempts: Sequence[Attempt]) -> list[str]:
    """Lines on how often the finding came back, and how often with the same partition or in the same way."""
    if first.sought is None:
        valid = sum(attempt.ruling.kind == VALID for attempt in attempts)
        return [f"  the first run has no findings; valid reproductions: {valid}/{len(attempts)}"]
    sought = first.sought
    showing = [attempt for attempt in attempts if shows(sought, attempt)]
    rate = rate_text(len(showing), len(attempts))
    lines = [f"  {sought['name']}, {class_text(sought)}: {rate}"]
    for key, phrase in (("partition", "in the same partition"), ("how", "in the same way")):
        then = sorted({str(example[key]) for example in sought.get("examples") or () if key in example})
        if then and showing:
            same = sum(same_in(sought, attempt, key) for attempt in showing)
            lines.append(f"    {phrase} ({', '.join(then)}): {same}/{len(showing)}")
    return lines


def shows(sought: Json, attempt: Attempt) -> bool:
    return finding_of(attempt.verdict, sought["name"], sought["class"]) is not None


def _apart(first: First, attempts: Sequence[Attempt]) -> list[StrikeDifference]:
    found = (compare_strikes(one, attempt, first.basis)
             for one in shown_anchors(first.anchors) for attempt in attempts)
    return [one for one in found if one is not None]


def as_json(first: First, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """The report as JSON."""
    sought = first.sought
    hits = [attempt for attempt in attempts if sought is not None and shows(sought, attempt)]
    return {
        "reproduces": {"folder": str(first.run.folder), "id": first.saved.run_id},
        "finding": None if sought is None else {"name": sought["name"], "class": sought["class"]},
        "shown": len(hits), "of": len(attempts),
        "interval_95": list(wilson(len(hits), len(attempts))),
        **nearness(_apart(first, attempts)),
        "runs": [{"run": attempt.number, "folder": str(attempt.folder), "valid": attempt.verdict["valid"],
                  "shown": attempt in hits, "missed": list(attempt.missed)} for attempt in attempts],
        "moments": [{"entry": one.position, "f": one.then.f, "by": one.by, "why": one.why,
                     "then": one.then.moment and one.then.moment.to_json(),
                     "now": one.now.moment and one.now.moment.to_json()}
                    for one in shown_anchors(first.anchors)],
    }

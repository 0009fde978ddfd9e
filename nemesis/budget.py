"""Finds the entries of a schedule that do more harm than Kafka's guarantees tolerate. Pure.

The budget: an acked write survives any number of kills, pauses and cuts, because the kernel keeps what was
written. It survives one lost page cache at a time, if acks rest on at least two copies. So within the budget
1. no election is unclean;
2. a power cut, or a wiped disk, strikes one node, while every broker is up, every ISR full and no fault in
   force (`healthy`), and nothing is armed that could yet strike;
3. after it nothing strikes until the cluster is healthy again, except the start of nodes that are down, and
   cuts of what the struck node alone hears: what others have does not change by that;
4. and neither happens with min.insync.replicas=1; but with flush.messages=1 a power cut loses nothing (a
   wiped disk does). The controller may be killed, paused or cut at any time: it fsyncs its decisions before
   anybody learns of them. A failpoint that is reached kills, pauses, or loses, delays or doubles a message,
   which the budget allows too; only around a loss (2, 3) must nothing be armed. A schedule within the budget
   can have no permitted findings.
"""

from dataclasses import dataclass

from floodmark.harness.faults import FAULTS, MENDING, REPORT, SPARES_FLUSHED, loses
from floodmark.harness.schedule.moments import ACTS, Entry, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Overspent:
    """One entry that goes beyond the budget, and why."""

    position: int
    why: str


def overspends(schedule: Schedule, *, min_insync_replicas: int = 2,
               flush_every: bool = False) -> tuple[Overspent, ...]:
    """Every entry of the schedule that overspends, in order; a schedule within the budget has none."""
    found: list[Overspent] = []
    lost_at: int | None = None  # the last loss, until the cluster is known to have recovered from it
    armed: dict[str, int] = {}  # node, or role -> its last failpoint, which may strike at any time
    for position, entry in enumerate(schedule):
        if entry.moment is not None and entry.moment.saw_healthy:
            lost_at = None
        if entry.f == "elect" and entry.args.get("unclean"):
            found.append(Overspent(position=position, why="an unclean election may lose acked writes"))
        if entry.f == "release" and not entry.args.get("point"):
            armed = {node: at for node, at in armed.items() if node not in entry.nodes}
        if entry.f in ACTS or entry.f in MENDING:
            continue
        if entry.f == "arm" and entry.args["point"]["action"] == REPORT:  # it harms nobody
            continue
        hearers = {*entry.args.get("grudge", ())} if entry.f == "cut" else set()
        if lost_at is not None and not (hearers and hearers <= {*schedule[lost_at].nodes}):
            found.append(Overspent(position=position, why=(
                f"{entry.f} strikes before the cluster has been seen healthy after entry {lost_at}")))
        if entry.f == "arm":
            armed |= dict.fromkeys(entry.nodes, position)
        if loses(entry.f, entry.args) and not (flush_every and entry.f in SPARES_FLUSHED):
            found += [Overspent(position=position, why=why) for why in _of_a_loss(entry, min_insync_replicas)]
            found += [Overspent(position=position, why=(
                f"the failpoint armed by entry {at} may strike before the loss is recovered"))
                for at in sorted({*armed.values()})]
            lost_at = position
    return tuple(found)


def _of_a_loss(entry: Entry, min_insync_replicas: int) -> list[str]:
    why, fault = [], FAULTS.get(entry.f)
    if len(entry.nodes) != 1 or entry.nodes[0] in ("down", "paused"):
        data = "all their data" if fault is None else fault.loses_what
        why.append(f"{len(entry.nodes)} nodes lose {data} together")
    if min_insync_replicas < 2:
        why.append("an ack may rest on the one copy that loses power (min.insync.replicas is 1)")
    if entry.moment is None or not entry.moment.saw_healthy:
        what = (f"{entry.args['kind']} disk" if fault is not None and fault.kinds
                else entry.f.replace("_", " "))
        why.append(f"a {what} that does not wait for a healthy cluster may take the last copy")
    return why

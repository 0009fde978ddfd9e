"""The twin: a second judge of run folders, in plain Python, quadratic and meant to be obviously right.

It follows only the text of the format and shares no code with the product's judge, so that each can prove the
other wrong. `judge(folder)` gives {"valid", "findings", "unknown", "not_made"}.

    twin_folder, twin_observes    the files, and what they promise
    twin_facts, twin_timeline     what clients and brokers did, and what was lost
    twin_permits                  what permits a finding
    twin_logs, twin_clients, twin_order, twin_trace    the findings
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import twin_clients
import twin_logs
import twin_observes
import twin_order
import twin_trace
from twin_facts import UNNAMED, World, facts, inferred, read_to_the_end, topic_gone
from twin_folder import read
from twin_permits import DOUBT, Found

CHECKS: dict[str, Callable[[World], Iterator[Found]]] = {
    "diverged": twin_logs.diverged, "under-replicated": twin_logs.under_replicated,
    "epoch-lineage": twin_logs.epoch_lineage, "malformed-log": twin_logs.malformed_log,
    "stuck": twin_logs.stuck, "broker-died": twin_logs.broker_died,
    "lost-write": twin_clients.lost_write, "unseen": twin_clients.unseen,
    "inconsistent-offsets": twin_clients.inconsistent_offsets, "phantom": twin_clients.phantom,
    "G1a": twin_clients.G1a, "torn-transaction": twin_clients.torn_transaction,
    "saw-then-lost": twin_clients.saw_then_lost, "duplicate": twin_clients.duplicate,
    "realtime-order": twin_order.realtime_order, "nonmonotonic-send": twin_order.nonmonotonic_send,
    "int-nonmonotonic-send": twin_order.int_nonmonotonic_send,
    "end-offset-regressed": twin_order.end_offset_regressed,
}
LOGS = ("diverged", "under-replicated", "epoch-lineage", "malformed-log")
POLLS = ("nonmonotonic-poll", "poll-skip")
ALL_POLLS = (*POLLS, *(f"int-{name}" for name in POLLS))
UNTRACED = {*CHECKS, *ALL_POLLS, *twin_order.CYCLES}  # checked without a trace too
HISTORY = UNTRACED - {*LOGS, "stuck", "broker-died"}
# Nothing of these is claimed below the final log start; nor of a partition that run.json does not name.
ABOVE_LOG_START = (*ALL_POLLS, "unsafe-truncation")
OF_UNNAMED = (*ALL_POLLS, "inconsistent-offsets", "realtime-order", "nonmonotonic-send", "duplicate",
              "end-offset-regressed", "G1a")
NAMES = tuple(sorted({*UNTRACED, *twin_trace.NAMES}))
UNFIT = "unfit"


def judge(path: Path) -> dict[str, Any]:
    """The verdict of one folder, in the form of expected.json."""
    folder = read(path)
    if folder is None:
        return {"valid": "unknown", "findings": [], "unknown": [*NAMES, UNFIT], "not_made": []}
    world = facts(folder)
    found = [(name, one) for name, check in CHECKS.items() for one in check(world)]
    found += twin_order.poll_findings(world)
    found += twin_order.cycle_findings(world)
    found += twin_trace.trace_findings(world)
    unknown = {*unknown_names(world)}
    counts: Counter[tuple[str, str, str]] = Counter()
    unclear = {cause for name in world.strange for cause in twin_observes.GUARANTEES[name][2].split(", ")}
    for name, (key, cause) in found:
        if cause is DOUBT or perhaps_below_log_start(world, name, key) or (cause and cause.by in unclear):
            unknown.add(name)
            continue
        unknown |= {name} if cause and not cause.sure else set()
        counts[name, "permitted" if cause else "bug", cause.by if cause else ""] += 1
    left_out = twin_observes.not_made(world.run)
    unknown -= left_out
    bug = any(klass == "bug" for _, klass, _ in counts)
    return {"valid": False if bug else "unknown" if unknown else True, "unknown": sorted(unknown),
            "not_made": sorted(left_out),
            "findings": [{"name": name, "class": klass, "permitted_by": by or None, "count": count}
                         for (name, klass, by), count in sorted(counts.items())]}


def perhaps_below_log_start(world: World, name: str, key: int | None) -> bool:
    home = UNNAMED if key is None else world.partitions.get(key, UNNAMED)
    return name in ABOVE_LOG_START and not home.log_start_known if home.named else name in OF_UNNAMED


def unknown_names(world: World) -> Iterator[str]:
    """The table "What makes checks unknown", row by row."""
    folder, run = world.folder, world.run
    if world.repeated:
        yield from UNTRACED - {*LOGS, "end-offset-regressed"}
    if world.overlapping:
        yield from ("nonmonotonic-send", *POLLS, "realtime-order", *twin_order.BY_PROCESS)
    if folder.breach:
        yield from HISTORY
    if folder.damaged & {node for home in world.partitions.values() for node in home.replicas}:
        yield from LOGS
    if folder.rows_damaged:
        yield from LOGS
    keys = {item.partition for line in world.lines
            for key in ("sends", "reads", "offsets", "starts", "corrupt") for item in line.get(key) or []}
    keys |= {key for line in world.lines if line.process >= 0 for key in line.partitions or []}
    if keys - world.partitions.keys():
        yield from ("lost-write", "unseen", "saw-then-lost", "under-replicated")
    final = run.final_reads or {}
    for home in world.partitions.values():
        yield from ("unseen", "saw-then-lost") if not home.usable else ()
        yield from ("under-replicated",) if home.leader is None else ()
        if not home.usable and not (read_to_the_end(world, home) or topic_gone(world, home) or (
                inferred(world, home) and home.key not in run.imported.get("unread", []))):
            yield "lost-write"  # nor is there an ack above all that an import has read
        if home.compact:
            yield from ("lost-write", "saw-then-lost", "under-replicated", "epoch-lineage")
        if any(row.epochs_unreadable is True and row.running is not False for row in home.rows.values()):
            yield "epoch-lineage"
        if home.key not in final.get("partitions", []) or not isinstance(final.get("processes", []), list):
            yield "unseen"
    if not world.settled:
        yield from ("diverged", "under-replicated", "unseen")
    if run.history_lines is None:
        yield from ("phantom", "unseen", *POLLS)
    if not world.acked:
        yield from ("lost-write", "unseen")
    if run.missed or run.unstruck:
        yield UNFIT
    for name in world.strange:
        yield from {*twin_observes.GUARANTEES[name][3]} - (
            {*twin_trace.NAMES} if folder.trace is None else set())
    if twin_observes.is_broken(run):
        yield from ("lost-write", *twin_observes.OF_LOGS, *twin_trace.NAMES)
    if perhaps_unread(world):
        yield "lost-write"
    if twin_observes.events(run) and folder.trace is None:  # it was promised
        yield from twin_trace.NAMES


def perhaps_unread(world: World) -> bool:
    """There is no log (final reads decide, of a system that promises none; or the topic is gone), and an ok
    send that no final read returned may be lost."""
    blind = twin_observes.blind_to_losses(world.run)
    seen = {(read.partition, read.value) for read in world.reads if read.process in world.readers}
    return any(
        send.home.named and not send.lost and not send.home.places[send.value]
        and (send.partition, send.value) not in seen
        and ((blind and read_to_the_end(world, send.home)) or topic_gone(world, send.home))
        for send in world.oks)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(argument, judge(Path(argument)))

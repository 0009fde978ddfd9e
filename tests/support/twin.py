"""The twin: a second judge of run folders, in plain Python, quadratic and meant to be obviously right.

It follows only the text of the format and shares no code with the product's judge, so that each can prove the
other wrong. `judge(folder)` gives {"valid", "findings", "unknown", "exact"}.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import twin_classes
import twin_clients
import twin_cycles
import twin_deaths
import twin_logs
import twin_observes
import twin_order
import twin_torn
import twin_trace
from twin_facts import World, facts
from twin_folder import read
from twin_logs import Found

LOGS = ("diverged", "under-replicated", "epoch-lineage", "malformed-log")
POLLS = ("nonmonotonic-poll", "poll-skip")
HISTORY = ("lost-write", "unseen", "inconsistent-offsets", "phantom", "G1a", "saw-then-lost", "duplicate",
           "torn-transaction", "realtime-order", "nonmonotonic-send", "int-nonmonotonic-send", *POLLS,
           *(f"int-{name}" for name in POLLS), "end-offset-regressed", *twin_cycles.NAMES)
ABOVE_LOG_START = (*POLLS, *(f"int-{name}" for name in POLLS), "unsafe-truncation")
OF_UNNAMED = (*ABOVE_LOG_START[:-1], "inconsistent-offsets", "realtime-order", "nonmonotonic-send",
              "duplicate", "end-offset-regressed", "G1a")
UNTRACED = tuple(sorted({*LOGS, *HISTORY, "stuck", "broker-died"}))  # checked without a trace too
NAMES = tuple(sorted({*UNTRACED, *twin_trace.NAMES}))
UNFIT = "unfit"

CHECKS: dict[str, Callable[[World], Iterator[Found]]] = {
    "under-replicated": twin_logs.under_replicated, "epoch-lineage": twin_logs.epoch_lineage,
    "malformed-log": twin_logs.malformed_log, "stuck": twin_logs.stuck,
    "broker-died": twin_logs.broker_died,
    "lost-write": twin_clients.lost_write, "unseen": twin_clients.unseen,
    "inconsistent-offsets": twin_clients.inconsistent_offsets, "phantom": twin_clients.phantom,
    "G1a": twin_clients.g1a, "torn-transaction": twin_torn.torn_transaction,
    "saw-then-lost": twin_clients.saw_then_lost, "duplicate": twin_clients.duplicate,
    "realtime-order": twin_order.realtime_order, "nonmonotonic-send": twin_order.nonmonotonic_send,
    "int-nonmonotonic-send": twin_order.int_nonmonotonic_send,
    "end-offset-regressed": twin_order.end_offset_regressed,
}


def judge(path: Path) -> dict[str, Any]:
    """The verdict of one folder, in the form of expected.json, and the exact set of its findings."""
    folder = read(path)
    if folder.run is None:
        return {"valid": "unknown", "findings": [], "unknown": [*NAMES, UNFIT], "exact": set(),
                "not_made": []}
    world = facts(folder)
    unknown: set[str] = set(unknown_names(world))
    found: list[tuple[str, Found]] = []
    guessing: list[str] = []
    found += [("diverged", one) for one in twin_logs.diverged(world, guessing)]
    for name, check in CHECKS.items():
        found += [(name, one) for one in check(world)]
    found += twin_order.poll_findings(world)
    found += twin_cycles.cycle_findings(world)
    found += twin_trace.trace_findings(world, unknown)
    unknown |= {name for name, one in found if perhaps_below_log_start(world, name, one)}
    found = [(name, one) for name, one in found if not perhaps_below_log_start(world, name, one)]
    unknown |= set(guessing)
    unclear = {cause for name in world.strange for cause in twin_observes.GUARANTEES[name][2].split(", ")}
    unknown |= {name for name, (_, cause) in found if cause is not None and cause.by in unclear}
    found = [(name, one) for name, one in found if one[1] is None or one[1].by not in unclear]
    unknown |= {name for name, (_, cause) in found if cause is not None and not cause.sure}
    left_out = twin_observes.not_made(world.run)
    return {**verdict(found, unknown - left_out), "not_made": sorted(left_out)}


def perhaps_below_log_start(world: World, name: str, found: Found) -> bool:
    """Nothing of these is claimed below the final log start, and nobody knows that."""
    partition = world.partitions.get(found[0][0])
    if partition is None:  # run.json does not name it: nor does anybody know what may be lost there
        return name in OF_UNNAMED
    return name in ABOVE_LOG_START and not partition.log_start_known


def verdict(found: list[tuple[str, Found]], unknown: set[str]) -> dict[str, Any]:
    """Counts by (name, class, permitted_by). A bug makes the run invalid; otherwise anything unknown makes it
    unknown."""
    counts: dict[tuple[str, str, str], int] = {}
    for name, (_, cause) in found:
        group = (name, "bug" if cause is None else "permitted", "" if cause is None else cause.by)
        counts[group] = counts.get(group, 0) + 1
    findings = [{"name": name, "class": klass, "permitted_by": by or None, "count": count}
                for (name, klass, by), count in sorted(counts.items())]
    bug = any(cause is None for _, (_, cause) in found)
    return {"valid": False if bug else "unknown" if unknown else True, "findings": findings,
            "unknown": sorted(unknown), "exact": {(name, *key) for name, (key, _) in found}}


def unknown_names(world: World) -> Iterator[str]:
    """Applies the table "What makes checks unknown", row by row."""
    if world.repeated:
        yield from set(UNTRACED) - {*LOGS, "end-offset-regressed"}
    if world.overlapping:
        yield from ("nonmonotonic-send", *POLLS, "realtime-order", *twin_cycles.BY_PROCESS)
    if world.folder.breach:
        yield from HISTORY
    held = {node for partition in world.partitions.values() for node in partition.replicas}
    if world.damaged & held or world.folder.rows_damaged:
        yield from LOGS
    if twin_logs.perhaps_stuck(world):
        yield "stuck"
    if not twin_logs.is_list_of_names(world.run.get("died") or []):
        yield from ("stuck", "broker-died")
    elif twin_logs.may_lack_a_fault(world) and any(True for _ in twin_deaths.unexplained(world)):
        yield "broker-died"
    if twin_logs.may_lack_a_fault(world) and any(True for _ in twin_logs.unreadable(world)):
        yield "malformed-log"
    final = world.run.get("final_reads") or {}
    named = isinstance(final.get("processes", []), list)
    keys = {item["partition"] for line in world.lines
            for key in ("sends", "reads", "offsets", "starts", "corrupt") for item in line.get(key) or []}
    keys |= {key for line in world.lines if line["process"] >= 0 for key in line.get("partitions") or []}
    if keys - world.partitions.keys():
        yield from ("lost-write", "unseen", "saw-then-lost", "under-replicated")
    for partition in world.partitions.values():
        if partition.leader is None:
            yield from ("unseen", "saw-then-lost", "under-replicated")
        elif not partition.usable:
            yield from ("unseen", "saw-then-lost")
        if not partition.usable and not (
                twin_classes.read_to_the_end(world, partition)
                or twin_classes.topic_gone(world, partition) or (
                    twin_classes.inferred(world, partition)
                    and not twin_classes.is_unread_above(world, partition))):
            yield "lost-write"
        if partition.compact:
            yield from ("lost-write", "saw-then-lost", "under-replicated", "epoch-lineage")
        elif any(twin_logs.lost_cache(partition, node) for node in partition.rows):
            yield "epoch-lineage"
        if partition.key not in final.get("partitions", []) or not named:
            yield "unseen"
    if not world.settled:
        yield from ("diverged", "under-replicated", "unseen")
    if world.run.get("history_lines") is None:
        yield from ("phantom", "unseen", *POLLS)
    if not world.acked:
        yield from ("lost-write", "unseen")
    if world.run.get("missed") or world.run.get("unstruck"):
        yield UNFIT
    for name in world.strange:
        yield from (check for check in twin_observes.GUARANTEES[name][3]
                    if world.folder.trace is not None or check not in twin_trace.NAMES)
    if twin_observes.is_broken(world.run):
        yield from ("lost-write", *twin_observes.OF_LOGS, *twin_trace.NAMES)
    if twin_classes.perhaps_unread(world):
        yield "lost-write"
    if folder_lacks_its_trace(world):
        yield from twin_trace.NAMES


def folder_lacks_its_trace(world: World) -> bool:
    """A trace was promised, and is not there."""
    return bool(twin_observes.events(world.run)) and world.folder.trace is None


def main(paths: list[str]) -> None:
    for path in paths:
        print(path, judge(Path(path)))


if __name__ == "__main__":
    main(sys.argv[1:])

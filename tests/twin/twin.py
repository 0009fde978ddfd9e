"""The twin: a second judge of run folders, in plain Python, quadratic and meant to be obviously right.

It follows only the text of the format and shares no code with the product's judge, so that each can prove the
other wrong. `judge(folder)` gives {"valid", "findings", "unknown", "not_made"}.

    twin_folder, twin_observes    the files, and what they promise
    twin_facts, twin_timeline     what clients and brokers did, and what was lost
    twin_permits                  what permits a finding
    twin_logs, twin_clients, twin_trace    the findings
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import twin_clients
import twin_logs
import twin_observes
import twin_trace
from twin_facts import UNNAMED, facts
from twin_folder import World, read
from twin_permits import DOUBT, by_name

CHECKS = by_name(
    twin_logs.diverged, twin_logs.under_replicated, twin_logs.epoch_lineage, twin_logs.malformed_log,
    twin_logs.stuck, twin_logs.broker_died, twin_clients.lost_write, twin_clients.unseen,
    twin_clients.inconsistent_offsets, twin_clients.phantom, twin_clients.G1a, twin_clients.torn_transaction,
    twin_clients.saw_then_lost, twin_clients.duplicate, twin_clients.precommitted_read,
    twin_clients.realtime_order, twin_clients.nonmonotonic_send, twin_clients.int_nonmonotonic_send,
    twin_clients.end_offset_regressed)
LOGS = ("diverged", "under-replicated", "epoch-lineage", "malformed-log")
POLLS = ("nonmonotonic-poll", "poll-skip")
ALL_POLLS = (*POLLS, *(f"int-{name}" for name in POLLS))
UNTRACED = {*CHECKS, *ALL_POLLS, *twin_clients.CYCLES}  # checked without a trace too
HISTORY = UNTRACED - {*LOGS, "stuck", "broker-died"}
# Nothing of these is claimed below the final log start; nor of a partition that run.json does not name.
ABOVE_LOG_START = (*ALL_POLLS, *twin_observes.STOP_AT_LOG_START)
OF_UNNAMED = (*ALL_POLLS, "inconsistent-offsets", "realtime-order", "nonmonotonic-send", "duplicate",
              "end-offset-regressed", "G1a")
NAMES = tuple(sorted({*UNTRACED, *twin_trace.NAMES}))
UNFIT = "unfit"


def judge(path: Path) -> dict[str, Any]:
    """The verdict of one folder, in the form of expected.json."""
    world = read(path)
    if world is None:
        return {"valid": "unknown", "findings": [], "unknown": [*NAMES, UNFIT], "not_made": []}
    facts(world)
    found = [(name, one) for name, check in CHECKS.items() for one in check(world)]
    for several in (twin_clients.poll_findings, twin_clients.cycles, twin_trace.trace_findings):
        found += several(world)
    unknown = unknown_names(world)
    counts: Counter[tuple[str, str, str]] = Counter()
    unclear = {cause for name in world.unclear for cause in twin_observes.GUARANTEES[name][2].split(", ")}
    for name, (key, cause) in found:
        home = world.partitions.get(key, UNNAMED)
        perhaps_below = name in ABOVE_LOG_START and not home.log_start_known
        if cause is DOUBT or (cause and cause.by in unclear) or (
                perhaps_below if home.named else name in OF_UNNAMED):
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


def unknown_names(world: World) -> set[str]:
    """The table "What makes checks unknown"."""
    run, homes = world.run, [*world.partitions.values()]
    named = {item.partition for line in world.lines
             for key in ("sends", "reads", "offsets", "starts", "corrupt") for item in line.get(key) or []}
    named |= {key for line in world.lines if line.process >= 0 for key in line.partitions or []}
    traced = {*twin_trace.NAMES}
    table: list[tuple[object, Iterable[str]]] = [
        (world.repeated, UNTRACED - {*LOGS, "end-offset-regressed"}),
        (world.overlapping, ("nonmonotonic-send", *POLLS, "realtime-order", *twin_clients.BY_PROCESS)),
        (world.breach, HISTORY),
        (world.rows_damaged or world.damaged & {node for home in homes for node in home.replicas}, LOGS),
        (named - world.partitions.keys(), ("lost-write", "unseen", "saw-then-lost", "under-replicated")),
        (any(home.leader is None for home in homes), ("under-replicated",)),
        (any(not home.usable for home in homes), ("unseen", "saw-then-lost")),
        (any(not home.usable and not (home.read_to_the_end or home.topic_gone or (
            # nor is there an ack above all that an import has read
            home.inferred and home.key not in run.imported.get("unread", []))) for home in homes)
         or perhaps_unread(world), ("lost-write",)),
        (any(row.epochs_unreadable is True and row.running is not False
             for home in homes for row in home.rows.values()), ("epoch-lineage",)),
        (not world.settled, ("diverged", "under-replicated", "unseen")),
        (any(home.key not in world.read_to_the_end for home in homes), ("unseen",)),
        (any(home.compact for home in homes),
         ("lost-write", "saw-then-lost", "under-replicated", "epoch-lineage")),
        (twin_observes.events(run) and world.trace is None, traced),  # it was promised
        (run.history_lines is None, ("phantom", "unseen", *POLLS)),
        (not world.acked, ("lost-write", "unseen")),
        (run.missed or run.unstruck, (UNFIT,)),
        (twin_observes.is_broken(run), ("lost-write", *twin_observes.OF_LOGS, *traced)),
        *((True, {*twin_observes.GUARANTEES[name][3]} - (traced if world.trace is None else set()))
          for name in world.unclear),
    ]
    return {name for applies, names in table if applies for name in names}


def perhaps_unread(world: World) -> bool:
    """There is no log (final reads decide, of a system that promises none; or the topic is gone), and an ok
    send that no final read returned may be lost."""
    blind = twin_observes.blind_to_losses(world.run)
    return any(send.home.named and not send.lost and not send.home.places[send.value]
               and send.ident not in world.returned
               and ((blind and send.home.read_to_the_end) or send.home.topic_gone) for send in world.oks)

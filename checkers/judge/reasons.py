"""Lists what makes checks unknown, row by row of the format's table, as (names, reason)."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from floodmark.checkers.judge.claim_gates import (
    are_all_nodes,
    gates_of,
    imported,
    partitions_read_to_end,
)
from floodmark.checkers.judge.deaths import explained
from floodmark.checkers.judge.preconditions import Preconditions
from floodmark.checkers.laws import finding_names
from floodmark.checkers.read.columns import Flags, contains
from floodmark.checkers.read.folder import UNKNOWN_NS, Folder, clock_error_ns, damage_dump, ints, is_int
from floodmark.checkers.read.observed import OF_FILES
from floodmark.harness.run import RunAt

SHOWN = 5  # partitions, values or processes named in a reason
Reason = tuple[tuple[str, ...], str]  # the checks, and why they may have missed something


def reasons_of(folder: Folder, seen: Preconditions) -> None:
    """Add to folder.reasons everything that follows from the preconditions and the small files; dumps with
    flaws become damaged ones."""
    if seen.repeated:
        of_the_trace = finding_names.OF_THE_TRACE if folder.trace else ()
        repeated = f"values were sent more than once: {listed(seen.repeated)}"
        folder.reasons.append(((*finding_names.IF_VALUES_REPEAT, *of_the_trace), repeated))
    for process, index in sorted(seen.overlapping.items())[:SHOWN]:
        overlap = f"process {process} had two ops open, or invoked one after an info, at index {index}"
        folder.reasons.append((finding_names.IF_OPS_OVERLAP, f"history.jsonl: {overlap}"))
    folder.reasons += [(finding_names.IF_BREACHED, breach) for breach in breaches(folder, seen)]
    damaged_dumps(folder, seen)
    open_losses = losses_open(folder, seen)
    folder.reasons += losses_of_dumps(folder, open_losses)
    folder.reasons += missing_rows(folder, open_losses)
    folder.reasons += unreadable_epochs(folder)
    folder.reasons += partitions_unknown(folder, seen, open_losses)
    folder.reasons += of_the_end(folder, seen)
    folder.reasons += [(finding_names.OF_THE_TRACE, flaw) for flaw in trace_flaws(folder, seen)]
    folder.reasons += promises_unclear(folder, open_losses)
    for checks, why in folder.guarantees.reasons():
        made = tuple(name for name in checks if folder.trace or name not in finding_names.OF_THE_TRACE)
        folder.reasons.append((made, why))
    if seen.acked == 0:
        folder.reasons.append((finding_names.IF_NOTHING_ACKED, "nothing was acked at all"))
    folder.reasons += [((finding_names.UNFIT,), f"not what was asked: {why}") for why in unfit(folder)]
    if folder.trace:
        folder.reasons[:] = [with_the_trace(reason) for reason in folder.reasons]


def with_the_trace(reason: Reason) -> Reason:
    """Whatever makes checks of the history unknown does the same to checks that also use the trace."""
    names, why = reason
    if names == finding_names.IF_BREACHED:
        return (*names, *finding_names.OF_TRACE_AND_HISTORY), why
    return ((*names, finding_names.RECOVERY_LOSS), why) if names == finding_names.IF_KILLED else reason


def of_the_end(folder: Folder, seen: Preconditions) -> Iterator[Reason]:
    """Reasons from run.json about the end of the run."""
    if not folder.settled:
        yield finding_names.IF_NOT_SETTLED, f"not settled: {why_not_settled(folder)}"
    if died(folder) is None:
        yield (
            (finding_names.BROKER_DIED, finding_names.STUCK),
            "run.json: `died` is no list of nodes, so nobody knows which of them ended by themselves",
        )
    if died_unexplained(folder, seen) and may_have_been_struck(folder, seen):
        yield (
            (finding_names.BROKER_DIED,),
            "a line of history.jsonl that is missing or wrong may be of the fault that made a node end",
        )
    if (why := stuck(folder, seen)[1]) is not None:
        yield (finding_names.STUCK,), f"stuck, or not: {why}"
    if folder.killed:
        yield (
            finding_names.IF_KILLED,
            "run.json has no history_lines: the run was killed, and lines of the history may be missing",
        )


def unfit(folder: Folder) -> Iterator[str]:
    missed, unstruck = folder.about.get("missed"), folder.about.get("unstruck")
    if missed:
        yield f"moments of the schedule never came, positions {listed(missed)}"
    if unstruck:
        yield f"a nemesis was to strike and nothing did: {unstruck}"


def died(folder: Folder) -> list[str] | None:
    """The nodes whose process ended by itself after it had been ready, sorted; None: run.json has no list of
    them."""
    nodes = folder.about.get("died") or []
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        return None
    return sorted(set(nodes))


def died_unexplained(folder: Folder, seen: Preconditions) -> list[str]:
    nodes = died(folder) or []
    return sorted({*nodes} - {*explained(folder, nodes, seen.nemesis)})


def may_have_been_struck(folder: Folder, seen: Preconditions) -> bool:
    """Whether the history may lack a fault, or its time may be wrong."""
    closed, lines = folder.about.get("history_lines"), seen.lines - folder.torn
    may_be = seen.broken_faults | (frozenset() if folder.torn else seen.last_broken_faults)
    missing = folder.history is None or (is_int(closed) and lines < closed)
    return bool(missing or may_be - {"elect"} or seen.disordered or seen.falls is not None)


def waiting(folder: Folder) -> dict[int, list[str]]:
    """What partitions still lacked after mending; nothing where a node had died or a fault was left."""
    settle = folder.about.get("settle") or {}
    unled, unacked = set(ints(settle.get("no_leader"))), set(ints(settle.get("no_ack")))
    if folder.about.get("died") or folder.about.get("residue"):
        return {}
    return {
        key: [what for what, keys in (("no leader", unled), ("no ack", unacked)) if key in keys]
        for key in sorted(unled | unacked)
    }


def stuck(folder: Folder, seen: Preconditions) -> tuple[dict[int, list[str]], str | None]:
    """What partitions still lacked although every node was up; and why nobody knows that of some, None: all
    is known. Where only the wire is seen, a partition that never worked may be a mistake in the setup."""
    lacking = waiting(folder)
    if not lacking:
        return {}, None
    if folder.observes.replicas:
        up = are_up(folder)
        return lacking if up else {}, (
            "replicas.jsonl does not say for every node whether it was running" if up is None else None
        )
    if not are_all_nodes(folder, "answering"):
        return {}, "not every node is in settle.answering, so some may not have been up"
    acked = frozenset() if is_breached(folder, seen) else seen.acked_at_first
    silent = [key for key in lacking if key not in acked]
    return {key: what for key, what in lacking.items() if key in acked}, (
        f"nothing shows that partition {listed(silent)} acked before the first fault" if silent else None
    )


def are_up(folder: Folder) -> bool | None:
    """Whether every node was running at the end, by the rows of its replicas; None: some rows are missing."""
    if not folder.replicas.all_run:
        return False
    return True if not folder.rows_damaged and not rowless(folder).any() else None


def is_breached(folder: Folder, seen: Preconditions) -> bool:
    return any(True for _ in breaches(folder, seen))


def listed(items: object) -> str:
    shown = [str(item) for item in items] if isinstance(items, (list, tuple)) else [str(items)]
    return ", ".join(shown[:SHOWN]) + (", ..." if len(shown) > SHOWN else "")


# -- the history ------------------------------------------------------------------------------------------


def breaches(folder: Folder, seen: Preconditions) -> Iterator[str]:
    """Every kind of breach of history.jsonl's field table, with the place of the first."""
    if folder.history is None:
        yield "history.jsonl cannot be read"
        return
    bad = seen.bad - folder.torn
    if bad > 0:
        are = "lines are" if bad > 1 else "line is"
        yield f"history.jsonl:{seen.first_bad}: {bad} {are} not as the field table says"
    elif not seen.in_order:
        yield "history.jsonl: index is not the line's position"
    if seen.unmatched is not None:
        yield f"history.jsonl:{seen.unmatched + 1}: a completion that fits no invocation"
    if seen.falls is not None:
        yield f"history.jsonl:{seen.falls + 1}: time falls"
    lines, closed = seen.lines - folder.torn, folder.about.get("history_lines")
    if is_int(closed) and lines < closed:
        yield f"history.jsonl has {lines} lines, and had {closed} when it was closed"


# -- dumps and rows ---------------------------------------------------------------------------------------


def damaged_dumps(folder: Folder, seen: Preconditions) -> None:
    """Mark dumps as damaged that have broken lines, or Parquet that cannot be read."""
    for node, flaw in sorted(seen.flaws.items()):
        if node in folder.dumps:
            dump = folder.dumps.pop(node)
            damage_dump(folder, node, f"logs/{dump.name} cannot be read: {flaw}")
    for node, bad in sorted(seen.bad_entries.items()):
        if bad and node not in folder.damaged:
            dump, line = folder.dumps[node], seen.first_bad_entries.get(node)
            number = f":{line}" if dump.suffix == ".jsonl" else ""
            lines = f"{bad} lines are" if bad > 1 else "1 line is"
            damage_dump(folder, node, f"logs/{dump.name}{number}: {lines} no entry")


# Below, `open_losses` and others are flags, one for each partition of run.json.


def losses_open(folder: Folder, seen: Preconditions) -> Flags:
    """The partitions whose losses neither the leader's log nor reads show."""
    return ~gates_of(folder, breached=is_breached(folder, seen)).losses_shown


def losses_of_dumps(folder: Folder, open_losses: Flags) -> Iterator[Reason]:
    """Reasons for damaged dumps of leaders, and of replicas that would have to show losses."""
    leaders = folder.partitions.leader
    leading, losing = leaders.there(), leaders.taken(np.flatnonzero(open_losses)).there()
    for node, flaw in folder.flaws.items():
        if node in leading:
            yield finding_names.OF_THE_LOG_ALONE, flaw
        if node in losing:
            yield (finding_names.LOST_WRITE,), flaw


def if_leaderless(those: Flags, open_losses: Flags) -> tuple[str, ...]:
    """The checks that are unknown where the leaders of these partitions are unknown."""
    checks = finding_names.IF_LEADER_UNKNOWN
    is_open = (those & open_losses).any()
    return checks if is_open else tuple(name for name in checks if name != finding_names.LOST_WRITE)


def missing_rows(folder: Folder, open_losses: Flags) -> Iterator[Reason]:
    """Reasons for replicas without a row in replicas.jsonl (for followers only where the file itself is
    there); the first few are named."""
    if not folder.observes.replicas:
        return
    run = RunAt(folder=folder.path)
    is_there = run.has(run.replicas_path)
    # Partitions whose leader lacks a row, or only others do.
    leaders = leader_rowless(folder)
    others = rowless(folder) & ~leaders & is_there
    nobody = np.zeros(len(leaders), dtype=np.bool_)
    for whose, those, is_open in (("the leader", leaders, leaders & open_losses), ("some", others, nobody)):
        rows = np.flatnonzero(those).tolist()
        for row in rows[:SHOWN]:
            partition = folder.partitions.row(row)
            nodes = [node for node in partition.replicas if (node, partition.key) not in folder.replicas]
            missing = f"replicas.jsonl has no row of {listed(nodes)} for partition {partition.key}"
            yield if_rowless(leads=those is leaders, losses=bool(is_open[row])), missing
        if len(rows) > SHOWN:
            missing = f"replicas.jsonl has no row of {whose} of {len(rows)} partitions"
            yield if_rowless(leads=those is leaders, losses=bool(is_open.any())), missing


def unreadable_epochs(folder: Folder) -> Iterator[Reason]:
    """A reason for the running replicas whose leader-epoch cache could not be read."""
    partitions, unreadable = folder.partitions, folder.replicas.unreadable_epochs(running=True)
    whose = []
    for node in partitions.nodes:
        claimed = partitions.replicas.where(partial(contains, item=node)) & ~partitions.compact
        claimed &= unreadable[folder.replicas.rows_of(node, partitions.keys_there)]
        whose += [f"{node} for partition {key}" for key in partitions.numbers(claimed)]
    if whose:
        yield (
            (finding_names.EPOCH_LINEAGE,),
            f"leader-epoch-checkpoint is empty or torn beside a log with records: {listed(whose)}",
        )


def leader_rowless(folder: Folder) -> Flags:
    """The partitions whose leader is known and has no row. (It is one of the replicas.)"""
    leader = folder.partitions.leader
    rows = folder.replicas.rows_by(leader, folder.partitions.keys_there)
    return leader.where(lambda node: node is not None) & (rows < 0)


def is_log_start_unknown(folder: Folder) -> Flags:
    """The partitions whose final log start may be higher than in the rows that are there: the leader's row is
    missing; or, if the leader is unknown, that of any replica. (A system that shows no rows is assumed to
    delete nothing.)"""
    if not folder.observes.replicas:
        return np.zeros(len(folder.partitions), dtype=np.bool_)
    leaderless = folder.partitions.leader.where(lambda node: node is None)
    return leader_rowless(folder) | (leaderless & rowless(folder))


def rowless(folder: Folder) -> Flags:
    """The partitions in which some replica has no row."""
    partitions = folder.partitions
    lacks = np.zeros(len(partitions), dtype=np.bool_)
    for node in partitions.nodes:
        has_replica = partitions.replicas.where(partial(contains, item=node))
        lacks |= has_replica & (folder.replicas.rows_of(node, partitions.keys_there) < 0)
    return lacks


def if_rowless(*, leads: bool, losses: bool) -> tuple[str, ...]:
    """The checks that are unknown where rows are missing: those of leaders, and of partitions whose losses
    are open."""
    lost = (finding_names.LOST_WRITE,) if losses else ()
    return (*finding_names.OF_THE_LOGS, *(finding_names.OF_THE_LOG_ALONE if leads else ()), *lost)


def trace_flaws(folder: Folder, seen: Preconditions) -> Iterator[str]:
    """What is wrong with the trace, or with the clock error in run.json."""
    if not folder.trace:
        if folder.observes.events:
            yield "trace.jsonl cannot be read, and run.json's `observes` promises it"
        return
    flaw = seen.traced.flaw(folder.nodes, folder.observes)
    if flaw is not None:
        yield f"trace.jsonl: {flaw}"
    if clock_error_ns(folder) == UNKNOWN_NS:
        yield "run.json: clock_error_ns is no number of nanoseconds, so no two nodes' times can be compared"


def promises_unclear(folder: Folder, open_losses: Flags) -> Iterator[Reason]:
    """Reasons from run.json's `observes`: if it cannot be understood, all checks that it may be about; and
    losses, if it promises nothing that would show them, and reads do not show them either."""
    observes = folder.observes
    if observes.flaw is not None:
        unsure = finding_names.LOST_WRITE, *OF_FILES, *finding_names.OF_THE_TRACE
        yield unsure, f"{observes.flaw}, so nobody knows what could be seen"
    known = folder.partitions.leader.where(lambda node: node is not None)
    logless = folder.partitions.numbers(known & open_losses)
    if logless and not (observes.dumps and observes.replicas):
        lacking = "dumps" if not observes.dumps else "replicas.jsonl"
        unshown = f"this system shows no {lacking}: nobody knows the log of partition {listed(logless)}"
        yield (finding_names.LOST_WRITE,), unshown + why_unread(folder, logless)


def why_unread(folder: Folder, logless: list[int]) -> str:
    """Why final reads do not show what is lost of these partitions, as the end of a sentence."""
    if imported(folder):
        return ""
    if not folder.settled:
        return f", and final reads prove nothing: not settled: {why_not_settled(folder)}"
    unread = sorted({*logless} - {*partitions_read_to_end(folder)})
    return f", and no final read reached its end{how_far(folder, unread)}" if unread else ""


def partitions_unknown(
    folder: Folder, seen: Preconditions, open_losses: Flags
) -> Iterator[Reason]:
    """Reasons for partitions without a known leader, without final reads, or compacted."""
    partitions, named = folder.partitions, np.fromiter(seen.partitions, np.int64, len(seen.partitions))
    strange = np.setdiff1d(named, partitions.keys_there).tolist()
    if strange:
        unnamed = f"run.json does not name partition {listed(strange)}, which the history uses"
        yield finding_names.IF_LEADER_UNKNOWN, unnamed
    strays = partitions.led_by_none
    if strays.any():
        stray = listed(partitions.numbers(strays))
        yield (
            if_leaderless(strays, open_losses),
            f"run.json: the leader of partition {stray} is none of its replicas",
        )
    leaderless = ~strays & partitions.leader.where(lambda node: node is None)
    if leaderless.any():
        why = f"nobody knows the leader of partition {listed(partitions.numbers(leaderless))}"
        lost = partitions.numbers(leaderless & open_losses)
        if imported(folder) and lost:
            why += f", and reads do not show all that may be lost of partition {listed(lost)}"
        yield if_leaderless(leaderless, open_losses), why
    unread = partitions.numbers(~np.isin(partitions.keys_there, partitions_read_to_end(folder)))
    if unread:
        stops = how_far(folder, unread)
        yield (finding_names.UNSEEN,), f"no final reads of partition {listed(unread)}{stops}"
    compact = partitions.numbers(partitions.compact)
    if compact:
        yield finding_names.IF_COMPACT, f"partition {listed(compact)} is compacted"


def how_far(folder: Folder, unread: list[int]) -> str:
    """Where the unfinished final reads stopped, by run.json."""
    lacking = (folder.about.get("final_reads") or {}).get("lacking")
    if not isinstance(lacking, dict):
        return ""
    stops = [f"{key} {lacking[str(key)]}" for key in unread if str(key) in lacking]
    return f" (read of partition {'; '.join(stops[:SHOWN])})" if stops else ""


def why_not_settled(folder: Folder) -> str:
    settle = folder.about.get("settle") or {}
    if folder.killed and "settled" not in folder.about:
        return "the run was killed before it could be"
    if folder.undecided is not None and folder.about.get("settled") is True:
        return folder.undecided
    return str(settle.get("why") or "run.json does not say that it was")

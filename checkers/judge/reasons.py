"""Decides what may be claimed of a run and of each of its partitions, once the first pass is over.

The rows of the format's table "What makes checks unknown" that hold go into folder.reasons, as (If, why): the
verdict lists the checks that they make unknown, and the laws claim nothing where they would be silent
(finding_names.py). What differs from partition to partition is in the gates, columns of the laws' tables
(run_tables.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from floodmark.checkers.judge.deaths import died, may_have_been_struck, unexplained
from floodmark.checkers.judge.preconditions import Preconditions, is_cut_short
from floodmark.checkers.laws.finding_names import BROKER_DIED, STUCK, If, Reason
from floodmark.checkers.read.arrays import Bools, Ints
from floodmark.checkers.read.facts import each_of
from floodmark.checkers.read.folder import UNKNOWN_NS, Folder, clock_error_ns, damage_dump, ints, is_number
from floodmark.harness.faults import FAULTS

SHOWN = 5  # partitions, values or processes named in a reason
Gates = Any  # np.recarray: flags for each partition of run.json, in its order; gates_of lists them
NO_ROW = If(0)


def reasons_of(folder: Folder, seen: Preconditions, flaw_of_trace: str | None) -> Gates:
    """Add every row that holds to folder.reasons; return the gates. Dumps with flaws become damaged ones."""
    reasons = folder.reasons
    reasons += of_the_history(folder, seen)
    damaged_dumps(folder, seen)
    gates = gates_of(folder, breached=folder.killed or bool(rows_that_hold(folder) & If.BREACHED))
    reasons += of_the_logs(folder, gates)
    reasons += of_partitions(folder, seen, gates)
    reasons += of_the_end(folder, seen, gates)
    reasons += of_the_trace(folder, flaw_of_trace)
    reasons += of_promises(folder, gates)
    if seen.history.acked == 0:
        reasons.append((If.UNACKED, "nothing was acked at all"))
    missed, unstruck = folder.about.get("missed"), folder.about.get("unstruck")
    if missed:
        asked = f"moments of the schedule never came, positions {listed(missed)}"
        reasons.append((If.UNFIT, f"not what was asked: {asked}"))
    if unstruck:
        asked = f"a nemesis was to strike and nothing did: {unstruck}"
        reasons.append((If.UNFIT, f"not what was asked: {asked}"))
    return gates


def rows_that_hold(folder: Folder) -> If:
    return reduce(or_, (row for row, _ in folder.reasons if isinstance(row, If)), NO_ROW)


def listed(items: object) -> str:
    shown = [str(item) for item in items] if isinstance(items, (list, tuple)) else [str(items)]
    return ", ".join(shown[:SHOWN]) + (", ..." if len(shown) > SHOWN else "")


# -- the gates ----------------------------------------------------------------------------------------------


def gates_of(folder: Folder, *, breached: bool) -> Gates:
    """breached: lines of the history may be missing or wrong, so nobody can say what was not read."""
    partitions, elsewhere = folder.partitions, imported(folder)
    keys, compact = partitions.keys_there, partitions.compact
    leaderless = partitions.led_by(None)
    has_row, rowless = np.zeros((2, len(keys)), dtype=np.bool_)
    for node in partitions.nodes:
        is_there = np.isin(keys, folder.replicas.partitions(node))
        has_row |= partitions.led_by(node) & is_there
        rowless |= partitions.on(node) & ~is_there
    # The leader is known, has its row in replicas.jsonl, and its dump is complete.
    leader_known = has_row & partitions.where(lambda one: one.leader not in folder.damaged)
    read_to_end = np.isin(keys, partitions_read_to_end(folder))
    # There is no leader's log, the log was not compacted, and the history has all reads. Then final reads
    # show losses; or, in an imported history, Jepsen's inference does: every record below one that was read
    # was read too. Nor is there a log where no node knows the topic, and nobody leads the partition.
    logless = ~leader_known & ~compact & ~_is_blind(elsewhere, keys) & (not breached)
    by_final_reads = logless & read_to_end & folder.settled
    by_any_read = logless & bool(elsewhere)
    topic_gone = logless & folder.topic_gone & leaderless
    # An import lists the partitions that have an ack above all reads: for those nothing can be claimed.
    beyond_reads = np.isin(keys, ints(elsewhere.get("unread")))
    # If rows are missing, the final log start may be higher than in those that are there. (A system that
    # shows no rows is assumed to delete nothing.)
    hides_log_start = np.where(leaderless, rowless, ~has_row) & folder.observes.replicas
    gates = {
        "leader_known": leader_known,
        "losses_judged": leader_known & ~compact,
        "unseen_judged": leader_known & read_to_end & folder.settled,
        "by_final_reads": by_final_reads,
        "by_any_read": by_any_read,
        "topic_gone": topic_gone,
        # where the leader's log does not show them
        "losses_shown": by_final_reads | topic_gone | (by_any_read & ~beyond_reads),
        "log_start_unknown": hides_log_start,
        "leaderless": leaderless,
        "leader_rowless": ~leaderless & ~has_row,
        "rowless": rowless,
        "read_to_end": read_to_end,
    }
    return np.rec.fromarrays(list(gates.values()), dtype=[(name, np.bool_) for name in gates])


def _is_blind(elsewhere: Mapping[str, Any], keys: Ints) -> Bools:
    """The partitions for which an import has left out some reads."""
    blind, left_out = elsewhere.get("blind"), elsewhere.get("left_out")
    if isinstance(blind, list):
        return np.isin(keys, ints(blind))
    # An import by an older version names no partitions.
    all_blind = isinstance(left_out, dict) and any(name.startswith("read ") for name in left_out)
    return np.full(len(keys), all_blind)


def partitions_read_to_end(folder: Folder) -> tuple[int, ...]:
    """The partitions that known processes have read to the end."""
    processes = folder.about["final_reads"].get("processes")
    known = isinstance(processes, list) and 0 < len(processes) == len(folder.final_processes)
    return folder.final_partitions if known else ()


def is_topic_gone(folder: Folder, nemesis: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no node knew our topics throughout settling. Nothing is claimed where an act of the run may
    have deleted them, or the controllers' log with them: one that is not floodmark's own, or lost data
    anywhere (a broker may be a controller too)."""
    harmless = all(op["f"] in FAULTS and op["fault"].get("lost") is not True for op in nemesis)
    return harmless and are_all_nodes(folder, "topic_unknown")


def are_all_nodes(folder: Folder, name: str) -> bool:
    """Whether this list in run.json's `settle` names every node."""
    named = folder.about["settle"].get(name)
    return isinstance(named, list) and all(node in named for node in folder.nodes) and bool(folder.nodes)


def imported(folder: Folder) -> Mapping[str, Any]:
    """What run.json says about the import of the history; empty if the history was made here."""
    elsewhere = folder.about.get("imported")
    return {"from": None, **elsewhere} if isinstance(elsewhere, dict) else {}


def uncommitted_of(folder: Folder) -> dict[int, bool]:
    """The processes whose isolation is another one than the guarantee's: whether it is read_uncommitted."""
    named = folder.about.get("isolation_of")
    return {int(process): level == "read_uncommitted"
            for process, level in (named.items() if isinstance(named, dict) else ())
            if is_number(process)}  # fmt: skip


# -- the rows -----------------------------------------------------------------------------------------------


def of_the_history(folder: Folder, seen: Preconditions) -> Iterator[Reason]:
    """Every kind of breach of history.jsonl's field table comes with the place of the first."""
    history, across = seen.history, seen.across
    if across.repeated:
        yield If.REPEATED, f"values were sent more than once: {listed(across.repeated)}"
    for process, index in sorted(across.overlapping.items())[:SHOWN]:
        overlap = f"process {process} had two ops open, or invoked one after an info, at index {index}"
        yield If.OVERLAPPING, f"history.jsonl: {overlap}"
    if folder.history is None:
        yield If.BREACHED, "history.jsonl cannot be read"
        return
    bad, breached = history.broken - folder.torn, If.BREACHED | (If.DISORDERED if seen.disordered else NO_ROW)
    if bad > 0:
        are = "lines are" if bad > 1 else "line is"
        yield breached, f"history.jsonl:{history.first_broken_line}: {bad} {are} not as the field table says"
    elif not seen.in_order:
        yield breached, "history.jsonl: index is not the line's position"
    if across.unmatched is not None:
        yield If.BREACHED, f"history.jsonl:{across.unmatched + 1}: a completion that fits no invocation"
    if seen.falls is not None:
        yield If.BREACHED, f"history.jsonl:{seen.falls + 1}: time falls"
    if is_cut_short(folder, seen):
        lines, closed = history.lines - folder.torn, folder.about["history_lines"]
        yield If.BREACHED, f"history.jsonl has {lines} lines, and had {closed} when it was closed"


def damaged_dumps(folder: Folder, seen: Preconditions) -> None:
    """Mark dumps as damaged that have broken lines, or Parquet that cannot be read."""
    for node, entries in sorted(seen.dumps.items()):
        dump = folder.dumps[node]
        if entries.flaw is not None:
            del folder.dumps[node]
            damage_dump(folder, node, f"logs/{dump.name} cannot be read: {entries.flaw}")
        elif entries.broken:
            number = f":{entries.first_broken_line}" if dump.suffix == ".jsonl" else ""
            lines = f"{entries.broken} lines are" if entries.broken > 1 else "1 line is"
            damage_dump(folder, node, f"logs/{dump.name}{number}: {lines} no entry")


def of_leaders(those: Bools, gates: Gates) -> If:
    """The rows of checks that need the leader's log, where it does not show these partitions: those of
    lost-write only where reads do not show what is lost either."""
    hidden = those & ~gates.losses_shown
    return (If.LEADERS_LOG if those.any() else NO_ROW) | (If.LOSS_HIDDEN if hidden.any() else NO_ROW)


def of_the_logs(folder: Folder, gates: Gates) -> Iterator[Reason]:
    """Damaged dumps of leaders; replicas without a row in replicas.jsonl; and leader-epoch caches that could
    not be read."""
    partitions, replicas = folder.partitions, folder.replicas
    for node, flaw in folder.flaws.items():
        yield of_leaders(partitions.led_by(node), gates), flaw
    if not folder.observes.replicas:
        return
    keys, rowless, torn = partitions.keys_there, list[str](), list[str]()
    for node in partitions.nodes:
        is_there = np.isin(keys, replicas.partitions(node))
        is_torn = np.isin(keys, replicas.partitions(node, replicas.unreadable_epochs))
        for found, those in ((rowless, ~is_there), (torn, is_torn)):
            numbers = partitions.numbers(partitions.on(node) & those)
            found += [f"{node} for partition {key}" for key in numbers]
    if rowless:
        missing = f"replicas.jsonl has no row of {listed(rowless)}"
        yield If.LOG | of_leaders(gates.leader_rowless, gates), missing
    if torn:
        empty = f"leader-epoch-checkpoint is empty or torn beside a log with records: {listed(torn)}"
        yield If.EPOCHS, empty


def of_partitions(folder: Folder, seen: Preconditions, gates: Gates) -> Iterator[Reason]:
    """Reasons for partitions without a known leader, without final reads, or compacted."""
    partitions, named = folder.partitions, np.fromiter(seen.partitions, np.int64, len(seen.partitions))
    strays = partitions.where(lambda one: one.led_by_none)
    strange = np.setdiff1d(named, partitions.keys_there).tolist()
    if strange:
        unnamed = f"run.json does not name partition {listed(strange)}, which the history uses"
        yield If.LEADERLESS | If.LOSS_HIDDEN, unnamed
    unread, hidden = ~gates.read_to_end, partitions.numbers(gates.leaderless & ~gates.losses_shown)
    besides = f", and reads do not show all that may be lost of partition {listed(hidden)}" if hidden else ""
    for row, those, before, after in (
        (If.LEADERLESS, strays, "run.json: the leader of ", " is none of its replicas"),
        (If.LEADERLESS | (If.LOSS_HIDDEN if hidden else NO_ROW), gates.leaderless,
         "nobody knows the leader of ", besides),
        (If.UNREAD, unread, "no final reads of ", how_far(folder, partitions.numbers(unread))),
        (If.COMPACT, partitions.compact, "", " is compacted"),
    ):
        if those.any():
            yield row, f"{before}partition {listed(partitions.numbers(those))}{after}"


def of_the_end(folder: Folder, seen: Preconditions, gates: Gates) -> Iterator[Reason]:
    """What run.json says about the end of the run."""
    if not folder.settled:
        yield If.UNSETTLED, f"not settled: {why_not_settled(folder)}"
    if died(folder) is None:
        unlisted = "nobody knows which of them ended by themselves"
        yield If.DIED, f"run.json: `died` is no list of nodes, so {unlisted}"
    if unexplained(folder, seen) and may_have_been_struck(folder, seen):
        unread = "a line of history.jsonl that is missing or wrong may be of the fault that made a node end"
        yield (BROKER_DIED,), unread
    if (why := stuck(folder, seen, gates)[1]) is not None:
        yield (STUCK,), f"stuck, or not: {why}"
    if folder.killed:
        killed = "the run was killed, and lines of the history may be missing"
        yield If.KILLED, f"run.json has no history_lines: {killed}"


def stuck(folder: Folder, seen: Preconditions, gates: Gates) -> tuple[dict[int, list[str]], str | None]:
    """What partitions still lacked after mending although every node was up; and why nobody knows that of
    some, None: all is known. Where only the wire is seen, a partition that never worked may be a mistake in
    the setup."""
    settle = folder.about["settle"]
    unled, unacked = set(ints(settle.get("no_leader"))), set(ints(settle.get("no_ack")))
    lacking = {
        key: [what for what, keys in (("no leader", unled), ("no ack", unacked)) if key in keys]
        for key in sorted(unled | unacked)
    }
    if not lacking or folder.about.get("died") or folder.about.get("residue"):
        return {}, None
    if folder.observes.replicas:
        if not folder.replicas.all_run:
            return {}, None
        if folder.rows_damaged or gates.rowless.any():
            return {}, "replicas.jsonl does not say for every node whether it was running"
        return lacking, None
    if not are_all_nodes(folder, "answering"):
        return {}, "not every node is in settle.answering, so some may not have been up"
    acked = {*each_of(() if rows_that_hold(folder) & If.BREACHED else seen.history.acked_at_first)}
    silent = [key for key in lacking if key not in acked]
    return {key: what for key, what in lacking.items() if key in acked}, (
        f"nothing shows that partition {listed(silent)} acked before the first fault" if silent else None
    )


def of_the_trace(folder: Folder, flaw: str | None) -> Iterator[Reason]:
    if not folder.trace:
        if folder.observes.events:
            yield If.TRACE, "trace.jsonl cannot be read, and run.json's `observes` promises it"
        return
    if flaw is not None:
        yield If.TRACE, f"trace.jsonl: {flaw}"
    if clock_error_ns(folder) == UNKNOWN_NS:
        unordered = "so no two nodes' times can be compared"
        yield If.CLOCKS, f"run.json: clock_error_ns is no number of nanoseconds, {unordered}"


def of_promises(folder: Folder, gates: Gates) -> Iterator[Reason]:
    """`observes` cannot be understood, or promises nothing that would show losses, and reads do not show them
    either; guarantees are unknown."""
    observes = folder.observes
    if observes.flaw is not None:
        yield If.OBSERVES, f"{observes.flaw}, so nobody knows what could be seen"
    logless = folder.partitions.numbers(~gates.leaderless & ~gates.losses_shown)
    if logless and observes.files_lacked:
        lacking = min(observes.files_lacked)
        unshown = f"this system shows no {lacking}: nobody knows the log of partition {listed(logless)}"
        yield If.LOSS_HIDDEN, unshown + why_unread(folder, logless)
    yield from folder.guarantees.reasons()


def why_unread(folder: Folder, logless: list[int]) -> str:
    """Why final reads do not show what is lost of these partitions, as the end of a sentence."""
    if not folder.settled:
        return f", and final reads prove nothing: not settled: {why_not_settled(folder)}"
    unread = sorted({*logless} - {*partitions_read_to_end(folder)})
    return f", and no final read reached its end{how_far(folder, unread)}" if unread else ""


def how_far(folder: Folder, unread: list[int]) -> str:
    """Where the unfinished final reads stopped, by run.json."""
    lacking = folder.about["final_reads"].get("lacking")
    if not isinstance(lacking, dict):
        return ""
    stops = [f"{key} {lacking[str(key)]}" for key in unread if str(key) in lacking]
    return f" (read of partition {'; '.join(stops[:SHOWN])})" if stops else ""


def why_not_settled(folder: Folder) -> str:
    unsaid = "the run was killed before it could be" if folder.killed else "run.json does not say that it was"
    return str(folder.about["settle"].get("why") or folder.undecided or unsaid)

"""Makes the laws' tables about runs, partitions and replicas: what may be claimed, and what is permitted.

The driver writes what it knows of a run as a few small tables of facts (facts_of). In each unit SELECTs over
these, and over the rows of replicas.jsonl, make the tables of the contract (make_tables):

  partitions, replicas   only those for which the history or a dump has anything; about the others there is
                         nothing to claim. (A replica whose row in replicas.jsonl is contradictory has its row
                         here even if its partition has none.)
  traced                 every partition of a run that has a trace
  log_start_unknown, active_brokers, strikes
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.checkers.judge.acts import ACTS, acts_of, flushes_at_recovery
from floodmark.checkers.judge.deaths import died, may_have_been_struck
from floodmark.checkers.judge.permissions import ACTIVE_BROKERS, permissions
from floodmark.checkers.judge.reasons import uncommitted_of
from floodmark.checkers.judge.runs import Run, silent_names
from floodmark.checkers.laws.permits import EVER
from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.laws.trace.node_timeline import near
from floodmark.checkers.laws.unit import Unit, opened
from floodmark.checkers.read.folder import Folder, clock_error_ns, is_int
from floodmark.checkers.read.observed import ELECTIONS
from floodmark.checkers.read.replica_rows import REPLICA_ROWS

_INT, _FLAG, _TEXT = pa.int64(), pa.bool_(), pa.string()
_TEXTS = pa.list_(_TEXT)


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([("run", pa.int32()), *columns.items()])


_GATES = ("leader_known", "losses_judged", "unseen_judged", "by_final_reads", "by_any_read", "topic_gone",
          "log_start_unknown")  # fmt: skip
FACTS: Mapping[str, pa.Schema] = {
    # Of each run, besides the flags of acts.unread_of. recovers: the system flushes what it finds at a start;
    # died: null where nobody knows; complete: no line of the trace is missing; elections, cleanness: and it
    # shows elections and ISRs, and whether elections were clean.
    "run_facts": _schema(
        nodes=_TEXTS, clock_error=_INT, min_insync=_INT, unclean=_FLAG, flushed=_FLAG, weak_acks=_FLAG,
        retried=_FLAG, uncommitted=_FLAG, surely_uncommitted=_FLAG, transactional=_FLAG, loss_in_doubt=_FLAG,
        settled=_FLAG, recovers=_FLAG, died=_TEXTS, traced=_FLAG, complete=_FLAG, elections=_FLAG,
        cleanness=_FLAG, lost=_FLAG, lost_flushed=_FLAG, ended=_FLAG, elected=_FLAG, asked=_FLAG,
        disordered=_FLAG, untimely=_FLAG),
    # complete: its dump has every entry; first_seq: of its trace
    "run_nodes": _schema(node=_TEXT, complete=_FLAG, first_seq=_INT, configured_min_insync=_INT),
    "acts": ACTS,
    # The partitions of run.json. used: the history or a dump has anything of it.
    "assignments": _schema(
        partition=_INT, replicas=_TEXTS, leader=_TEXT, isr=_TEXTS, compact=_FLAG, keeps_all=_FLAG, used=_FLAG,
        **dict.fromkeys(_GATES, _FLAG)),
    # The lines of the controller, which is no broker of the run, and the brokers' starts. of_run: of no
    # partition that run.json does not name
    "controller_lines": _schema(
        at=_INT, time=_INT, node=_TEXT, seq=_INT, event=_TEXT, partition=_INT, leader=_TEXT, epoch=_INT,
        isr=_TEXTS, broker=_TEXT, clean=_FLAG, of_run=_FLAG),
    **{name: TABLES[name] for name in ("runs", "processes", "faults")},
}  # fmt: skip


# -- at the driver ------------------------------------------------------------------------------------------


def facts_of(number: int, run: Run) -> dict[str, pa.Table]:
    """The facts of a run; number: its position in the call."""
    facts = run_facts(run)
    rows: dict[str, Iterable[dict[str, Any]]] = {
        "run_facts": [facts], "run_nodes": node_facts(run), "runs": [row_of_run(run, facts)],
        "acts": acts_of(run.preconditions.history.nemesis), "processes": process_rows(run),
        "faults": fault_rows(run), "controller_lines": rulings_of(run),
    }  # fmt: skip
    made = {name: pa.Table.from_pylist([{**row, "run": number} for row in each], schema=FACTS[name])
            for name, each in rows.items()}  # fmt: skip
    return {**made, "assignments": assignments_of(number, run)}


def run_facts(run: Run) -> dict[str, Any]:
    folder, promised, observes = run.folder, run.folder.guarantees, run.folder.observes
    complete = run.trace_whole
    return {
        "nodes": folder.nodes, "clock_error": clock_error_ns(folder), "unclean": promised.unclean,
        "min_insync": None if promised.min_insync is None else min(promised.min_insync, EVER),
        "flushed": promised.flushed, "weak_acks": promised.weak_acks, "retried": promised.retried,
        "uncommitted": sees_uncommitted(run), "surely_uncommitted": promised.surely_uncommitted,
        "transactional": run.preconditions.history.txns > 0, "loss_in_doubt": bool(observes.files_lacked),
        "settled": folder.settled, "recovers": flushes_at_recovery(folder), "died": died(folder),
        "traced": run.traced, "complete": complete, "elections": complete and observes.shows(*ELECTIONS),
        "cleanness": complete and observes.shows("elect"), **run.unread,
    }  # fmt: skip


def sees_uncommitted(run: Run) -> bool:
    """Whether readers may see records of open and aborted transactions, if there are any."""
    return run.folder.guarantees.uncommitted and run.preconditions.history.txns > 0


def node_facts(run: Run) -> Iterator[dict[str, Any]]:
    folder, seqs = run.folder, run.preconditions.trace.nodes
    for node in dict.fromkeys((*folder.nodes, *folder.partitions.nodes)):
        yield {"node": node, "complete": node not in folder.damaged,
               "first_seq": seqs[node].first if node in seqs else 0,
               "configured_min_insync": configured_min_insync(folder, node)}  # fmt: skip


def configured_min_insync(folder: Folder, node: str) -> int | None:
    config = folder.about.get("config")
    its = config.get(node) if isinstance(config, dict) else None
    number = its.get("min.insync.replicas") if isinstance(its, dict) else None
    return number if is_int(number) and number > 0 else None


def row_of_run(run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: facts[name] for name in ("transactional", "uncommitted", "surely_uncommitted")}
    faults_known = not may_have_been_struck(run.folder, run.preconditions)
    return {**shared, "silent": silent_names(run), "internal_index": internal_index(run),
            "faults_known": faults_known, "sent_once": run.folder.guarantees.sent_once}  # fmt: skip


def internal_index(run: Run) -> int | None:
    """The index of the last fault that may have cost records of __transaction_state or __consumer_offsets. No
    run names their partitions and no trace shows them: any node that lost data may have had all copies, and
    nobody knows whether flush holds for them."""
    indexes = [act["index"] for act in acts_of(run.preconditions.history.nemesis)
               if act["lost"] or (act["asks"] and act["partitions"] is None)]
    unread = run.unread
    if run.folder.guarantees.unclean or unread["lost"] or unread["elected"] or (
            unread["disordered"] and indexes):
        return EVER
    return max(indexes, default=None)


def process_rows(run: Run) -> Iterator[dict[str, Any]]:
    final, overlapping = frozenset(run.folder.final_processes), run.preconditions.across.overlapping
    uncommitted = uncommitted_of(run.folder)
    for process in sorted(final | overlapping.keys() | uncommitted.keys()):
        yield {"process": process, "final": process in final, "overlaps": process in overlapping,
               "uncommitted": uncommitted.get(process)}  # fmt: skip


def fault_rows(run: Run) -> Iterator[dict[str, Any]]:
    for op in run.preconditions.history.nemesis:
        yield {"index": op["index"], "time": op["time"], "f": op["f"], "fault": json.dumps(op["fault"])}


def rulings_of(run: Run) -> Iterator[dict[str, Any]]:
    named = {None, *run.folder.partitions.keys_there.tolist()}
    for line in run.preconditions.trace.rulings if run.traced else ():
        if (line["node"] in run.folder.nodes) == (line["event"] == "start"):
            yield {**line, "of_run": line.get("partition") in named}


def assignments_of(number: int, run: Run) -> pa.Table:
    """Every column at once for all partitions of the run."""
    partitions = run.folder.partitions
    columns = {
        "run": np.full(len(partitions), number),
        "partition": partitions.keys_there,
        "replicas": partitions.column(lambda one: one.replicas, _TEXTS),
        "leader": partitions.column(lambda one: one.leader, _TEXT),
        "isr": partitions.column(lambda one: sorted(one.isr), _TEXTS),
        "compact": partitions.compact,
        "keeps_all": partitions.where(lambda one: one.keeps_all),
        "used": np.isin(partitions.keys_there, [*run.preconditions.used]),
        **{name: np.array(run.gates[name]) for name in _GATES},
    }
    return pa.table(columns).select(FACTS["assignments"].names).cast(FACTS["assignments"])


# -- in a unit ----------------------------------------------------------------------------------------------


def make_tables(unit: Unit, facts: Mapping[str, pa.Table]) -> None:
    """Make the tables from the facts of all its runs, with the rows of replicas.jsonl as REPLICA_ROWS."""
    for name, table in facts.items():
        unit.load(name, table)
    unit.make("rows", _ROWS)
    unit.make("log_starts", _LOG_STARTS)
    permissions(unit)
    for name, select in _TABLES.items():
        columns = ", ".join(f'"{column}"' for column in TABLES[name].names)
        unit.make(name, f"select {columns} from ({select})")


def tables_from(facts: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The same tables, and those of the contract among the facts, without a unit."""
    with opened({}) as unit:
        make_tables(unit, facts)
        return {name: unit.table(name).cast(TABLES[name]) for name in (*facts, *_TABLES) if name in TABLES}


# The rows of replicas.jsonl; of two of a replica the first of the file.
_ROWS = f"""
    select run, node, partition, hw, log_start, leo, lso, coalesce(running, true) as running, epochs,
        coalesce(epochs_unreadable, false) as unreadable,
        log_start <> leo or hw > leo
            or len(list_filter(epochs, lambda one: one[2] > leo)) > 0 as contradictory
    from {REPLICA_ROWS} semi join assignments using (run, partition)
    qualify row_number() over (partition by run, node, partition order by "at") = 1"""
# For each partition the highest log start in the rows of its replicas: below it records may have been
# deleted.
_LOG_STARTS = """
    select run, partition, max(log_start) as highest
    from assignments join rows using (run, partition) where list_contains(replicas, node) group by all"""
_TABLES: Mapping[str, str] = {
    # Where a transaction may be open, readers of committed records see less (least ignores nulls).
    # isr_followers: a damaged dump may lack records that the replica has: nothing is claimed about it.
    "partitions": """
    with members as (select run, partition, leader, unnest(isr) as node from assignments where losses_judged),
    followers as (
        select m.run, m.partition,
            list({'node': m.node, 'log_start': r.log_start} order by m.node) as isr_followers
        from members m join run_facts f using (run) join run_nodes n using (run, node)
        join rows r using (run, partition, node)
        where settled and n.complete and leader is distinct from m.node group by all)
    select a.* exclude (keeps_all), b.* exclude (run, partition), f.weak_acks, f.retried, f.uncommitted,
        f.loss_in_doubt, l.log_start, l.hw, coalesce(l.log_start, s.highest, 0) as claims_from,
        if(surely_uncommitted, l.hw, least(l.hw, l.lso)) as readable_to,
        if(transactional, least(l.hw, l.lso), l.hw) as stable_to,
        coalesce(isr_followers, []) as isr_followers, keeps_all and not compact and settled as keeps_all,
        if(topic_gone, len(f.nodes), 0) as denied_by,
        leader_known and settled and l.lso is not null as decided
    from assignments a join run_facts f using (run) join bounds b using (run, partition)
    left join rows l on l.run = a.run and l.partition = a.partition and l.node = a.leader
    left join log_starts s using (run, partition) left join followers using (run, partition)
    where used order by run, partition""",
    # Nothing is claimed about leader epochs that cannot be read, those of a compacted log, or of a node that
    # was not running.
    "replicas": """
    with each as (
        select * exclude (replicas), unnest(list_distinct(replicas)) as node
        from assignments join bounds using (run, partition))
    select a.run, a.node, a.partition, coalesce(leader = a.node, false) as leads,
        list_contains(isr, a.node) as in_isr, hw, log_start, leo, running, n.complete, settled, struck,
        compact,
        case when running and not compact and not unreadable
            then list_transform(epochs, lambda one: {'start': one[2], 'epoch': one[1]}) end as cache
    from each a join run_facts using (run) join run_nodes n using (run, node)
    left join rows r using (run, partition, node)
    where used or coalesce(contradictory, false) order by a.run, a.partition, a.node""",
    "traced": f"""
    with unfenced as (
        select run, replicas, list_sort(list(distinct {near("since")}::bigint)) as unfenced
        from replica_sets join activity using (run) where list_contains(replicas, node) group by all)
    select run, partition, nodes, replicas, clock_error,
        least(coalesce(min_insync, 1), len(replicas)) as min_isr, coalesce(highest, 0) as claims_from,
        complete, coalesce(unfenced, []) as unfenced, coalesce(excuses, []) as excuses
    from assignments join run_facts using (run)
    left join log_starts using (run, partition) left join unfenced using (run, replicas)
    left join excuses using (run, partition)
    where traced""",
    "log_start_unknown": """
        select run, partition, true as named from assignments where log_start_unknown
        union all select run, partition, false from (
            select run, partition from sends union select run, partition from reads
            union select run, partition from ends)
        anti join assignments using (run, partition)""",
    "active_brokers": ACTIVE_BROKERS,
    "strikes": f"""
        select run, n.node, {near("began")}::bigint as since, {near("time")}::bigint as until
        from acts a join run_nodes n using (run) where lost and n.node = coalesce(a.node, n.node)""",
}

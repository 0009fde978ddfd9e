"""The dependencies between ops of runs with transactions: who read or followed whose writes; reads of own
writes; and what became of the records of transactions that were not ok (torn_transactions.py).

There are three steps, because a partition shows what ops read and wrote there, a process when its ops began
and ended, and only the complete run shows cycles:
    dependencies(unit)  from `sends`, `reads` and by_value (values.py) of complete partitions
    ops(unit)           (cycles.py) from `lines` and `answers` of complete processes
    of_the_run(unit)    from the tables that these have made; makes the findings
Units of partitions and of processes send these tables (SENT_ON) to the one unit of their run. A unit that has
all of a run calls `transactions`.

Rules
1. A value that the run sent more than once is left out: nobody knows which of its sends wrote a record.
2. A line is identified by `at`, because a history that breaks its rules may have an index twice.
3. The version order of a partition is that of the offsets which acks of ok sends and reads prove. An offset
   that showed two values is left out. A record of a failed send, or of a value that nobody sent, keeps its
   place without a writer: the writers before it and after it are not neighbours.
4. A value's writer is the line that invoked its send; if the invocation is missing, the completion. A send
   whose first completion is a fail wrote nothing.
"""

import pyarrow as pa

from floodmark.checkers.laws import cycles, finding_names
from floodmark.checkers.laws.op_graph import WR, WW
from floodmark.checkers.laws.permits import ISOLATION
from floodmark.checkers.laws.tables import SENT_ON_BY_PARTITIONS, SENT_ON_BY_PROCESSES
from floodmark.checkers.laws.torn_transactions import TORN, fates
from floodmark.checkers.laws.unit import Unit


def transactions(unit: Unit) -> None:
    """Do all steps in a unit that has all partitions of its runs, and their lines."""
    dependencies(unit)
    cycles.ops(unit)
    of_the_run(unit)


# -- by partition -------------------------------------------------------------------------------------------


def dependencies(unit: Unit) -> None:
    """Make the tables of SENT_ON_BY_PARTITIONS."""
    unit.make(
        "txn_reads",
        f"""select d.run, d.partition, d.value, d."offset", d."at", {_WRITER} as writer,
            invoked as asked_index
        from reads d join value_rows v using (run, partition, value) join runs using (run)
        where transactional and not repeated""",
    )
    unit.make("txn_records", _RECORDS)
    unit.make("dependencies", f"from ({_WR} union all by name {_WW})")
    unit.make("dependency_counts", "select run, count(*) as edges from dependencies group by run")
    unit.make("own_reads", _OWN_READS)
    fates(unit)


def sent_on(unit: Unit) -> dict[str, pa.Table]:
    """These tables, for the unit of the run. A run that has too many dependencies in this unit alone sends
    none: their count says so."""
    few = unit.rows(f"select run from dependency_counts where edges <= {cycles.MOST_EDGES}")
    runs = ", ".join(map(str, few["run"].to_pylist())) or "null"
    return {
        name: rows_of(unit, name, schema, f"run in ({runs})" if name == "dependencies" else "true")
        for name, schema in SENT_ON_BY_PARTITIONS.items()
    }


def ops_sent_on(unit: Unit) -> dict[str, pa.Table]:
    """The tables of cycles.ops, for the unit of the run."""
    return {name: rows_of(unit, name, schema) for name, schema in SENT_ON_BY_PROCESSES.items()}


def rows_of(unit: Unit, table: str, schema: pa.Schema, where: str = "true") -> pa.Table:
    columns = ", ".join(f'"{name}"' for name in schema.names)
    return unit.rows(f"select {columns} from {table} where {where}").cast(schema)


_WRITER = "if(v.type = 'fail', null, sent_at)"
# Where values are known to be: from the few places of each value, not from each read of it.
_RECORDS = f"""with known as (
        select v.*, {_WRITER} as writer from value_rows v join runs using (run)
        where transactional and not repeated)
    select run, partition, "offset", min(value) as value, min(writer) as writer
    from (select run, partition, ack as "offset", value, writer from known
        union all select run, partition, read_low, value, writer from known
        union all select run, partition, unnest(read_at), value, writer from known)
    where "offset" is not null
    group by run, partition, "offset" having min(value) = max(value)"""
# Of several records of one writer that a line reads, only the lowest is kept: the others say the same.
_WR = f"""select * exclude (lowest), lowest."offset", lowest.value
    from (select run, {WR}::tinyint as kind, partition, writer as x, "at" as y,
            min(struct_pack("offset" := "offset", value := value)) as lowest
        from txn_reads where writer is not null group by run, partition, writer, "at")"""
_WW = f"""select run, {WW}::tinyint as kind, partition, writer as x, next_writer as y, "offset", value
    from (select *, lead(writer) over (partition by run, partition order by "offset") as next_writer
        from txn_records)
    where writer <> next_writer"""
# A value counts once, for the first txn that both sends and reads it: a second answer adds nothing.
_OWN_READS = """with shown as (
        select run, partition, value, "at", s.index, s.process, min(d."offset") as "offset", asked_index
        from sends s join txn_reads d using (run, partition, value, "at")
        group by run, partition, value, "at", s.index, s.process, asked_index),
    first_shown as (
        select * from shown
        qualify row_number() over (partition by run, partition, value order by "at") = 1)
    select run, "at", index, process, lowest.partition, lowest."offset", lowest.value, invoked
    from (select run, "at", min(index) as index, min(process) as process, min(asked_index) as invoked,
            min(struct_pack(partition := partition, "offset" := "offset", value := value)) as lowest
        from first_shown group by run, "at")"""


# -- by run -------------------------------------------------------------------------------------------------


def of_the_run(unit: Unit) -> None:
    """Make the findings, in a unit that has all rows of SENT_ON of its runs."""
    unit.find(
        finding_names.PRECOMMITTED_READ,
        f"""select run, lowest.partition, lowest."offset", lowest.value, process,
            list_filter([invoked, index], lambda one: one is not null) as ops,
            if(uncommitted, {ISOLATION}, null) as permit
        from (select run, min(index) as index, min(process) as process, min(invoked) as invoked,
                min(struct_pack(partition := partition, "offset" := "offset", value := value)) as lowest
            from own_reads group by run, "at") join runs using (run)""",
    )
    unit.find(finding_names.TORN_TRANSACTION, TORN)
    cycles.cycles(unit)

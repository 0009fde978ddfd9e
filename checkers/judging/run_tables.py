"""What the driver knows of the runs, as tables of the contract: gates, permissions, special processes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from checkers import facts
from checkers.cycles import is_uncommitted
from checkers.facts import Run, partition_rows, replica_rows, traced_rows
from checkers.judge import silenced
from checkers.laws.tables import TABLES
from checkers.survey import Survey


def run_tables(runs: Sequence[Run], surveys: Sequence[Survey]) -> dict[str, pa.Table]:
    """partitions, replicas, processes, faults, runs, traced and active_brokers of all the runs."""
    judged = [(number, run) for number, run in enumerate(runs) if run.folder.judged]
    traced = [(number, run) for number, run in judged if run.folder.trace is not None]
    return {
        "partitions": table_of("partitions", (row for one in judged for row in partition_rows(*one))),
        "replicas": table_of("replicas", (row for one in judged for row in replica_rows(*one))),
        "processes": table_of("processes", (row for one in judged for row in process_rows(*one))),
        "faults": table_of(
            "faults", (row for number, _ in judged for row in fault_rows(number, surveys[number]))
        ),
        "runs": table_of("runs", (run_row(*one) for one in judged)),
        "traced": table_of("traced", (renamed(row) for one in traced for row in traced_rows(*one))),
        "active_brokers": table_of(
            "active_brokers", (row for one in traced for row in facts.active_rows(*one))
        ),
    }


def table_of(name: str, rows: Iterable[tuple[object, ...]]) -> pa.Table:
    """Rows in the order of the schema's columns."""
    schema = TABLES[name]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def process_rows(number: int, run: Run) -> Iterable[tuple[object, ...]]:
    final = frozenset(run.folder.final_processes)
    for process in sorted(final | run.overlapping):
        yield number, process, process in final, process in run.overlapping


def fault_rows(number: int, seen: Survey) -> Iterable[tuple[object, ...]]:
    for op in seen.nemesis:
        yield number, op["index"], op["time"], op["f"], orjson.dumps(op["fault"]).decode()


def run_row(number: int, run: Run) -> tuple[object, ...]:
    return number, run.transactional, is_uncommitted(run.folder), list(silenced(run))


def renamed(row: tuple[object, ...]) -> tuple[object, ...]:
    """`by` of an excuse is `permit` here."""
    excuses: Iterable[Mapping[str, Any]] = row[-1]  # type: ignore[assignment]
    return *row[:-1], [
        {"permit": each["by"], **{k: v for k, v in each.items() if k != "by"}} for each in excuses
    ]

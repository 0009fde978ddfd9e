"""Runs families of laws on a unit of rows written by hand.

    found([log], entries=[{"node": "n1", "offset": 5}, ...], replicas=[...])

A field that a row leaves out is that of a healthy run of one partition, else null. A field that does not
apply to a finding is left out of it.

A unit costs some tenths of a second of CPU time, however few rows it has. So a test file puts its runs into
one Batch:

    BATCH = Batch(log)
    GAP = BATCH.add(entries=[{"offset": 1}, {"offset": 3}], replicas=[...])

    def test_a_gap_is_a_finding() -> None:
        assert GAP.findings() == [...]
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.laws.unit import Family, Unit, opened, run_families

Row = Mapping[str, Any]
Findings = list[dict[str, Any]]

LEAST, GREATEST = -(2**63), 2**63 - 1  # the bounds of a 64-bit integer
_EVERYWHERE = {"run": 0, "partition": 0}
HEALTHY: Mapping[str, Row] = {
    "sends": {"process": 0, "f": "send", "pos": 0, "time": 0},
    "reads": {"process": 0, "f": "poll", "type": "ok", "pos": 0, "time": 0},
    "entries": {"node": "n1", "epoch": 0, "crc": 0, "crc_ok": True, "aborted": False},
    "replicas": {
        "node": "n1", "leads": False, "in_isr": True, "hw": 0, "log_start": 0, "leo": 0, "running": True,
        "complete": True, "settled": True, "struck": False, "compact": False,
    },
    "partitions": {
        "leader": "n1", "leader_known": True, "compact": False, "losses_judged": True, "log_start": 0,
        "claims_from": 0, "hw": 0, "readable_to": 0, "stable_to": 0, "unseen_judged": True,
        "by_final_reads": False, "by_any_read": False, "loss_in_doubt": False, "isr_followers": [],
        "weak_acks": False, "retried": False, "uncommitted": False, "decided": False, "unclean_maybe": False,
    },
    "processes": {"final": False, "overlaps": False},
    "runs": {"transactional": False, "uncommitted": False, "surely_uncommitted": False, "silent": [],
             "sent_once": True},
    "trace": {"epoch": 0, "leo": 0, "hw": 0},
    "traced": {
        "nodes": ["n1", "n2", "n3"], "replicas": ["n1", "n2", "n3"], "clock_error": 0, "min_isr": 2,
        "claims_from": 0, "complete": True, "unfenced": [], "excuses": [],
    },
}  # fmt: skip


def table(name: str, rows: Iterable[Row]) -> pa.Table:
    """The rows as this table of the contract; `at` is the row's position unless the row has one."""
    schema = TABLES[name]
    full = [{**_EVERYWHERE, "at": at, **HEALTHY.get(name, {}), **row} for at, row in enumerate(rows)]
    return pa.Table.from_pylist(
        [{key: row.get(key) for key in schema.names} for row in full], schema=schema
    )


def found(families: Sequence[Family], **tables: Iterable[Row]) -> Findings:
    """The findings, sorted by name and place."""
    return found_each(families, [tables])[0]


def claimed_by(unit: Unit, families: Sequence[Family]) -> list[Row]:
    """What these families find in the unit, in the columns of FINDINGS."""
    run_families(unit, families)
    rows: list[Row] = unit.rows("from claimed").to_pylist()
    return rows


def found_each(
    families: Sequence[Family], runs: Sequence[Mapping[str, Iterable[Row]]]
) -> list[Findings]:
    """The findings of each of many runs, all judged in one unit."""
    with opened(tables_of(runs)) as unit:
        rows = claimed_by(unit, families)
    by_run: list[Findings] = [[] for _ in runs]
    for row in rows:
        by_run[row["run"]].append(
            {key: value for key, value in row.items() if value is not None and key != "run"}
        )
    return [
        sorted(some, key=lambda row: (row["name"], row.get("offset", LEAST), str(sorted(row.items()))))
        for some in by_run
    ]


def tables_of(runs: Sequence[Mapping[str, Iterable[Row]]]) -> dict[str, pa.Table]:
    """The tables of one unit with all of these runs."""
    parts: dict[str, list[pa.Table]] = {}
    for run, tables in enumerate(runs):
        for name, rows in {"runs": [{}], **tables}.items():
            parts.setdefault(name, []).append(table(name, ({**row, "run": run} for row in rows)))
    return {name: pa.concat_tables(some) for name, some in parts.items()}


def briefly(findings: Iterable[Row], *keys: str) -> list[tuple[Any, ...]]:
    """Each finding's name and these fields."""
    return [(row["name"], *(row.get(key) for key in keys)) for row in findings]


class Batch:
    """Runs that are judged together, in one unit. All are added while the test file is imported; the first
    test that needs findings judges them. If a statement fails, each run is judged alone, so that only the
    tests of those at fault fail."""

    def __init__(self, *families: Family) -> None:
        self._families = families
        self._runs: list[dict[str, list[Row]]] = []
        self._judged: list[Findings | Exception] = []

    def add(self, **tables: Iterable[Row]) -> "Run":
        assert not self._judged, "the batch is judged already: add its runs at import"
        self._runs.append({name: list(rows) for name, rows in tables.items()})
        return Run(self, len(self._runs) - 1)

    def findings_of(self, number: int) -> Findings:
        self._judged = self._judged or self._judge()
        judged = self._judged[number]
        if isinstance(judged, Exception):
            raise judged
        return judged

    def _judge(self) -> list[Findings | Exception]:
        together = _findings_or_error(self._families, self._runs)
        if not isinstance(together, Exception):
            return [*together]
        alone = [_findings_or_error(self._families, [run]) for run in self._runs]
        if not any(isinstance(one, Exception) for one in alone):
            return [together] * len(self._runs)
        return [one if isinstance(one, Exception) else one[0] for one in alone]


def _findings_or_error(
    families: Sequence[Family], runs: Sequence[Mapping[str, Iterable[Row]]]
) -> list[Findings] | Exception:
    try:
        return found_each(families, runs)
    except Exception as error:
        return error


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a batch."""

    batch: Batch
    number: int

    def findings(self) -> Findings:
        """Sorted by name and place."""
        return self.batch.findings_of(self.number)


def each(arguments: str, cases: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrizes a test: the name of each case, and its arguments."""
    return pytest.mark.parametrize(arguments, cases.values(), ids=cases.keys())

"""Summarizes the measures of many runs: availability by kind of fault, runs, nights, trends.

Rules
1. A median is that of the rows that have a figure; null rows are left out, and their number is reported
   (`faults` beside `failed`, for example). For an even number of rows it is the middle of the two in the
   middle.
2. Figures of faults are medians over faults, those of runs over runs; none is a median of medians.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from floodmark.checkers.stats.tables import QUANTILES, WINDOWS
from floodmark.harness.run import write_whole

Row = dict[str, Any]

_TIMES = ("first_failed_s", "gap_s", "recovery_s")
_LATENCIES = tuple(f"{window}_{name}_ms" for window in WINDOWS for name in QUANTILES)
_OF_FAULTS = ", ".join([
    "count(*) faults", "count(first_failed_s) failed", "count(gap_s) waited", "count(recovery_s) mended",
    "count(*) filter (recovered = false) unrecovered",
    *(f"median({name}) {name}, max({name}) max_{name}" for name in _TIMES),
    *(f"median({name}) {name}" for name in _LATENCIES),
    *(f"median({window}_sends) {window}_sends" for window in WINDOWS),
    "median(elections) elections", "median(isr_changes) isr_changes", "median(truncations) truncations",
])
_BY_KIND = f"select kind, {_OF_FAULTS} from faults group by kind order by kind"
_TREND = (f"select kind, night, {_OF_FAULTS} from faults group by kind, night "
          "order by kind, min(position)")
_NIGHTS = """
with of_runs as (
    select night, min(position) as first, count(*) runs, sum(acked)::bigint acked, median(acked) acked_a_run,
           sum(faults)::bigint faults, sum(elections)::bigint elections,
           sum(unclean_elections)::bigint unclean_elections, sum(isr_changes)::bigint isr_changes,
           sum(truncations)::bigint truncations, median(p50_ms) p50_ms, median(p99_ms) p99_ms,
           median(p999_ms) p999_ms
    from runs group by night),
of_faults as (
    select night, median(first_failed_s) first_failed_s, median(gap_s) gap_s, max(gap_s) max_gap_s,
           median(recovery_s) recovery_s, max(recovery_s) max_recovery_s
    from faults group by night)
select of_runs.* exclude (first), of_faults.* exclude (night)
from of_runs left join of_faults using (night) order by first"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The statistics of many runs together; each row maps columns to values, with None for null."""

    run_table: pa.Table
    fault_table: pa.Table
    by_kind: Sequence[Row]
    nights: Sequence[Row]
    trend: Sequence[Row]  # by kind and night

    @property
    def runs(self) -> Sequence[Row]:
        """The rows of tables.RUN, with `night` and `run`."""
        return [{**row, "faults_by_kind": dict(row["faults_by_kind"])} for row in self.run_table.to_pylist()]

    @property
    def faults(self) -> Sequence[Row]:
        """The rows of tables.FAULT, with `night` and `run`."""
        rows: Sequence[Row] = self.fault_table.to_pylist()
        return rows

    def write(self, folder: Path) -> None:
        """Write runs.parquet and faults.parquet. FloodmarkError if they cannot be written."""
        for name, table in (("runs", self.run_table), ("faults", self.fault_table)):
            data = io.BytesIO()
            pq.write_table(table, data, compression="zstd")
            write_whole(folder / f"{name}.parquet", data.getvalue())


def answers(rows: pa.Table, names: Mapping[int, tuple[str, str]]) -> Answers:
    """Summarize a table of KEPT with `position`. names: for each position the night and the run."""
    of_faults = rows["of_faults"].combine_chunks()
    row_of = pc.list_parent_indices(of_faults)
    flat = pa.Table.from_struct_array(of_faults.flatten())
    runs = _named(rows.drop_columns(["of_faults"]), names)
    faults = _named(flat.append_column("position", rows["position"].take(row_of)), names)
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("runs", runs)
        database.register("faults", faults)
        by_kind, nights, trend = (database.sql(select).to_arrow_table().to_pylist()
                                  for select in (_BY_KIND, _NIGHTS, _TREND))
    return Answers(run_table=runs.drop_columns(["position"]), fault_table=faults.drop_columns(["position"]),
                   by_kind=by_kind, nights=nights, trend=trend)


def _named(table: pa.Table, names: Mapping[int, tuple[str, str]]) -> pa.Table:
    """Add the columns night and run in front."""
    named = [names[number] for number in table["position"].to_pylist()]
    for place, name in enumerate(("night", "run")):
        column = pa.array([both[place] for both in named], pa.string())
        table = table.add_column(place, name, column)
    return table

"""The columns of the measures, for a run and for a fault; the package's docstring defines each."""

import pyarrow as pa

INT, REAL, TEXT, FLAG = pa.int64(), pa.float64(), pa.string(), pa.bool_()

QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
WINDOWS = ("before", "during", "after")

FAULT = pa.schema([
    ("index", INT),  # of its line
    ("kind", TEXT),  # its f
    ("detail", TEXT),  # which kind of cut or disk fault; null if there is only one kind
    ("nodes", pa.list_(TEXT)),
    ("failed", FLAG),  # it failed half-way: the line has an error
    ("began_s", REAL),
    ("effect_s", REAL),
    ("mended_s", REAL),
    ("first_failed_s", REAL),
    ("gap_s", REAL),
    ("gap_partition", INT),
    ("recovery_s", REAL),
    ("recovery_partition", INT),
    ("recovered", FLAG),
    *((f"{window}_{name}_ms", REAL) for window in WINDOWS for name in QUANTILES),
    *((f"{window}_sends", INT) for window in WINDOWS),
    ("elections", INT),
    ("unclean_elections", INT),
    ("isr_changes", INT),
    ("truncations", INT),
])

RUN = pa.schema([
    ("system", TEXT),  # rules and known bugs, as a campaign names it
    ("nemesis", TEXT),  # or the scenario
    ("seed", INT),
    ("load_s", REAL),  # when the load ended
    ("acked", INT),
    ("ok", INT),
    ("fail", INT),
    ("info", INT),
    ("unanswered", INT),
    ("broken_lines", INT),  # of the history; no figure counts them
    ("faults", INT),
    ("faults_by_kind", pa.map_(TEXT, INT)),
    ("elections", INT),
    ("unclean_elections", INT),
    ("isr_changes", INT),
    ("isr_by_leader", INT),
    ("isr_by_controller", INT),
    ("truncations", INT),
    ("largest_truncation", INT),
    ("max_unavailable_s", REAL),
    ("max_recovery_s", REAL),
    *((f"{name}_ms", REAL) for name in QUANTILES),  # of all sends of the load
])

# A run's row as its folder keeps it, with the rows of its faults inside.
KEPT = RUN.append(pa.field("of_faults", pa.list_(pa.struct(list(FAULT)))))

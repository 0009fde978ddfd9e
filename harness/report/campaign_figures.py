"""Prints how faults affected clients, over all runs of some campaigns: `floodmark campaign stats`. Pure.
checkers/stats/__init__.py defines each figure; harness/campaign/README.md summarises them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.harness.report.phrases import short_time_text
from floodmark.harness.report.terminal import table

if TYPE_CHECKING:
    from floodmark.checkers.stats.questions import Answers

RUNS_SHOWN = 30
FEW = 100  # sends: latencies of fewer say little
NO_NIGHT = "-"  # for a run folder that was named directly
Row = Mapping[str, Any]
Cells = tuple[str, ...]
_BY_KIND: Cells = ("faults", "first failed op after", "longest gap", "acked again after",
                   "p50", "p99", "p99.9")


def tables(answers: "Answers") -> str:
    """The tables, each under its title."""
    parts = [_titled(
        "Availability by kind of fault: medians (worst); latency of sends, waiting included, before > during "
        "> after (~: few sends)",
        ("fault", *_BY_KIND), [(str(row["kind"]), *_availability(row)) for row in answers.by_kind],
        "no fault struck")]
    nights = {row["night"] for row in answers.nights}
    if len(nights) > 1:
        trend = [(str(row["kind"]), str(row["night"]), *_availability(row)) for row in answers.trend]
        parts.append(_titled("The same, night by night", ("fault", "night", *_BY_KIND), trend,
                             "no fault struck"))
    if nights - {NO_NIGHT}:
        parts.append(_titled("Nights: sums; medians of runs and of faults (worst)", _NIGHT,
                             [_night(row) for row in answers.nights], ""))
    runs = sorted(answers.runs, key=lambda row: -(row["max_unavailable_s"] or 0.0))
    more = f" of {len(runs)}; --json and --parquet have all" if len(runs) > RUNS_SHOWN else ""
    parts.append(_titled(f"Runs, the longest gap first{f': {RUNS_SHOWN}{more}' if more else ''}", _RUN,
                         [_run(row) for row in runs[:RUNS_SHOWN]], "none could be measured"))
    return "\n\n".join(parts)


def _titled(title: str, heads: Cells, rows: Sequence[Cells], otherwise: str) -> str:
    return f"{title}\n{table(heads, rows) if rows else otherwise}"


def _availability(row: Row) -> Cells:
    faults = row["faults"]
    gone = f", {row['unrecovered']} never" if row["unrecovered"] else ""
    return (
        str(faults),
        _time(row, "first_failed_s", row["failed"], faults),
        _time(row, "gap_s", row["waited"], faults),
        _time(row, "recovery_s", row["mended"], faults) + gone,
        *(" > ".join(_few(row, window) + _ms(row[f"{window}_{name}_ms"])
                     for window in ("before", "during", "after")) for name in ("p50", "p99", "p999")),
    )


def _few(row: Row, window: str) -> str:
    """The mark of a latency that is a median over faults with few sends in that time."""
    return "~" if 0 < (row[f"{window}_sends"] or 0) < FEW else ""


def _time(row: Row, name: str, known: int, of: int) -> str:
    """`12.3 ms (1.2 s)`, with the number of values if some are missing."""
    if not known:
        return "-"
    some = f", {known} of {of}" if known < of else ""
    return f"{short_time_text(row[name])} ({short_time_text(row[f'max_{name}'])}{some})"


_NIGHT: Cells = ("night", "runs", "acked", "faults", "longest gap", "acked again after",
                 "p50", "p99", "p99.9", "elections (unclean)", "ISR changes", "truncations")


def _night(row: Row) -> Cells:
    return (
        str(row["night"]), str(row["runs"]), _count(row["acked"]), _count(row["faults"]),
        *(_time(row, name, row[name] is not None, 1) for name in ("gap_s", "recovery_s")),
        *(_ms(row[f"{name}_ms"]) for name in ("p50", "p99", "p999")),
        _elections(row), _count(row["isr_changes"]), _count(row["truncations"]),
    )  # fmt: skip


_RUN: Cells = ("run", "system", "nemesis", "acked", "ok / fail / info", "faults", "longest gap",
               "acked again after", "elections (unclean)", "ISR changes (leader, controller)",
               "truncations (largest)")


def _run(row: Row) -> Cells:
    parts = f" ({_count(row['isr_by_leader'])}, {_count(row['isr_by_controller'])})"
    largest = f" ({row['largest_truncation']:,})" if row["largest_truncation"] else ""
    return (
        str(row["run"]), str(row["system"]), str(row["nemesis"]), _count(row["acked"]),
        f"{row['ok']:,} / {row['fail']:,} / {row['info']:,}",
        ", ".join(f"{count} {kind}" for kind, count in row["faults_by_kind"].items()) or "none",
        _brief(row["max_unavailable_s"]), _brief(row["max_recovery_s"]), _elections(row),
        _count(row["isr_changes"]) + (parts if row["isr_changes"] is not None else ""),
        _count(row["truncations"]) + largest,
    )  # fmt: skip


def _elections(row: Row) -> str:
    return _count(row["elections"]) + (f" ({row['unclean_elections']})" if row["unclean_elections"] else "")


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _brief(time_s: float | None) -> str:
    return "-" if time_s is None else short_time_text(time_s)


def _ms(time_ms: float | None) -> str:
    return _brief(None if time_ms is None else time_ms / 1000)

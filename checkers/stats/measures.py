"""Measures one run folder: its row and those of its faults (defined in the package's docstring).

Everything but the reading is pure.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from floodmark.checkers.read.folder import Folder, is_int
from floodmark.checkers.stats.clients import NEVER, Clients, Waited, clients_of
from floodmark.checkers.stats.protocol import Protocol, protocol_of
from floodmark.checkers.stats.spans import FaultSpan, fault_spans
from floodmark.checkers.stats.tables import QUANTILES
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import system_of

Ints = npt.NDArray[np.int64]
Row = dict[str, Any]
NS = 1_000_000_000


def measured(folder: Folder) -> Row:
    """The row of KEPT. FloodmarkError if there is nothing to measure; OSError if a file cannot be read."""
    refuse_unfit(folder)
    return measures_of(folder, clients_of(folder))


def refuse_unfit(folder: Folder) -> None:
    """FloodmarkError if there is nothing to measure."""
    if not folder.judged or folder.history is None:
        words = [words for _, words in folder.reasons]
        of_history = [why for why in words if why.startswith("history.jsonl")]
        raise FloodmarkError((of_history or words or ["there is no history.jsonl"])[0])


def measures_of(folder: Folder, clients: Clients) -> Row:
    """The row, for a history that was read."""
    protocol = protocol_of(folder)
    spans = fault_spans(clients.nemesis)
    faults = [_fault(span, clients, protocol) for span in spans]
    for row, more in zip(faults, _waits(spans, clients), strict=True):
        row.update(more)
    return {**_run(folder, clients, protocol), **_of_faults(faults), "of_faults": faults}


# -- the run ------------------------------------------------------------------------------------------------


def _run(folder: Folder, clients: Clients, protocol: Protocol) -> Row:
    about, facts = folder.about, clients.facts
    seed = about.get("seed")
    summed = {name: sum(getattr(one, name) for one in facts) for name in ("acked", "ok", "fail", "info")}
    latencies = _latencies(clients, 0, NEVER)
    return {
        "system": system_of(about),
        "nemesis": str(about.get("scenario") or about.get("nemesis") or "none"),
        "seed": seed if is_int(seed) else None,
        "load_s": clients.ends_ns / NS,
        **summed,
        "unanswered": clients.unanswered,
        "broken_lines": sum(one.broken for one in facts) - folder.torn,
        "elections": _count(protocol.elections),
        "unclean_elections": _count(protocol.unclean),
        "isr_changes": _count(protocol.isr_changes),
        "isr_by_leader": protocol.isr_by_leader,
        "isr_by_controller": protocol.isr_by_controller,
        "truncations": _count(protocol.truncations),
        "largest_truncation": protocol.largest_truncation,
        **{f"{name}_ms": quantile(latencies, share) for name, share in QUANTILES.items()},
    }


def _of_faults(faults: list[Row]) -> Row:
    kinds = Counter(row["kind"] for row in faults)
    worst = {name: max((row[of] for row in faults if row[of] is not None), default=None)
             for name, of in (("max_unavailable_s", "gap_s"), ("max_recovery_s", "recovery_s"))}
    return {"faults": len(faults), "faults_by_kind": sorted(kinds.items()), **worst}


def _count(times: Ints | None) -> int | None:
    return None if times is None else len(times)


# -- a fault ------------------------------------------------------------------------------------------------


def _fault(span: FaultSpan, clients: Clients, protocol: Protocol) -> Row:
    """All columns except those about waiting for an ack."""
    begin, end = span.began_ns, span.until_ns(clients.ends_ns)
    windows = {"before": (2 * begin - end, begin), "during": (begin, end), "after": (end, 2 * end - begin)}
    latencies = {window: _latencies(clients, *bounds) for window, bounds in windows.items()}
    return {
        "index": span.index,
        "kind": span.kind,
        "detail": span.detail,
        "nodes": list(span.nodes),
        "failed": span.failed,
        "began_s": begin / NS,
        "effect_s": span.effect_ns / NS,
        "mended_s": _seconds(span.mended_ns),
        "first_failed_s": _first_failed(clients, begin, end),
        **{f"{window}_{name}_ms": quantile(latencies[window], share)
           for window in windows for name, share in QUANTILES.items()},
        **{f"{window}_sends": len(of) for window, of in latencies.items()},
        "elections": _within(protocol.elections, begin, end),
        "unclean_elections": _within(protocol.unclean, begin, end),
        "isr_changes": _within(protocol.isr_changes, begin, end),
        "truncations": _within(protocol.truncations, begin, end),
    }


def _first_failed(clients: Clients, begin: int, end: int) -> float | None:
    ops = clients.ops
    failed = ops.ended[~ops.ok & (ops.ended >= begin) & (ops.ended < NEVER) & (ops.began < end)]
    return (int(failed.min()) - begin) / NS if len(failed) else None


def _latencies(clients: Clients, begin: int, end: int) -> Ints:
    """The latencies of the sends that were due from begin on and before end, in ns, sorted."""
    sends = clients.due_sends
    return np.sort(sends.took[(sends.due >= begin) & (sends.due < end)])


def quantile(latencies: Ints, share: float) -> float | None:
    """The lowest latency, in ms, that this share of them does not exceed."""
    if not len(latencies):
        return None
    return float(latencies[max(math.ceil(round(share * len(latencies), 6)), 1) - 1]) / 1e6


def _within(times: Ints | None, begin: int, end: int) -> int | None:
    return None if times is None else int(((times >= begin) & (times < end)).sum())


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / NS


# -- waiting for an ack -------------------------------------------------------------------------------------


def _waits(spans: list[FaultSpan], clients: Clients) -> list[Row]:
    """For each fault the worst gap and the worst recovery, over all partitions."""
    rows: list[Row] = [{"gap_s": None, "gap_partition": None, "recovery_s": None, "recovery_partition": None,
                        "recovered": None} for _ in spans]
    for waited in clients.partitions:
        begin, end = waited.waits(clients.ends_ns)
        for span, row in zip(spans, rows, strict=True):
            met = (begin < span.until_ns(clients.ends_ns)) & (end > span.began_ns)
            if met.any():
                _keep_worst(row, "gap", waited.partition, int((end - begin)[met].max()))
        for row, recovery in zip(rows, _recoveries(spans, waited, clients.ends_ns), strict=True):
            if recovery is not None:
                lasted, recovered = recovery
                _keep_worst(row, "recovery", waited.partition, lasted)
                row["recovered"] = recovered and row["recovered"] is not False
    return rows


def _recoveries(
    spans: list[FaultSpan], waited: Waited, ends_ns: int
) -> list[tuple[int, bool] | None]:
    """For each fault how long this partition took to recover (ns), and whether it did."""
    over = np.array([NEVER if span.over_ns is None else span.over_ns for span in spans], dtype=np.int64)
    since, acked = waited.since(over), waited.next_ack(over)
    known = (over < NEVER) & (since < ends_ns)
    return [(min(ack, ends_ns) - begin, ack < NEVER) if is_known else None
            for begin, ack, is_known in zip(since.tolist(), acked.tolist(), known.tolist(), strict=True)]


def _keep_worst(row: Row, name: str, partition: int, lasted_ns: int) -> None:
    lasted: Mapping[str, Any] = {f"{name}_s": lasted_ns / NS, f"{name}_partition": partition}
    before = row[f"{name}_s"]
    if before is None or lasted[f"{name}_s"] > before:
        row.update(lasted)

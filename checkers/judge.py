"""The judge: any number of run folders to as many verdicts, in one set of Spark jobs.

Theory of operation. The driver reads the small files (folder.py) and names the big ones to Spark
(sources.py), which parses them once (frames.py). A first action surveys what is wrong with them (survey.py);
with that the driver knows what each run's checks may claim (facts.py). A second action runs every check
(durability, agreement, order, polls), counts each group of findings and keeps its worst examples. The driver
puts the verdicts together (verdicts.py).

When something fails, a dump that nobody can read is set aside and the rest is judged again: that is damaged
input. Whatever else fails is the judge's own failure, and is never passed over: the folder that brings it
about is found by halving the call and is unknown, with the reason and the traceback; its neighbours are
judged. Where folders fail together and none of them alone, all of them are unknown. If Spark's JVM dies, a
new one is started for the halves: only a folder that kills it alone is unknown.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from checkers import (
    agreement,
    cycles,
    durability,
    elections,
    frames,
    names,
    order,
    polls,
    rotten,
    session,
    sources,
    traced,
    traces,
    transactions,
)
from checkers.facts import NOTHING, Facts, Run, Seen, beside, contradicted, fact_bytes, facts_of
from checkers.faults import bounds_of
from checkers.findings import COLUMNS, together
from checkers.folder import Folder, open_folder
from checkers.guilt import SUSPECTS, lines_of
from checkers.observed import silent_of_trace
from checkers.reasons import is_breached, reasons_of
from checkers.rulings import rulings_of
from checkers.sifted import is_for_the_sieve, sift
from checkers.survey import Survey, survey
from checkers.unread import unread_of
from checkers.values import values_of
from checkers.verdicts import EXAMPLES, crashed, verdict_of
from harness.errors import FloodmarkError
from harness.places import Place
from harness.verdict import Verdict
from harness.workers import HERE, Workers

ROW_BYTES = 150  # a row that passed the sieve, as work
SIEVED_SHARE = 8  # of the bytes that a sieve can read the JVM has to do with one in so many, if not fewer
_LOG = logging.getLogger("floodmark.judge")
TRACE_WEIGHT = 4  # a byte of a trace is as much work as so many of a history


class SparkJudge:
    """Implements protocols.Judge."""

    def __init__(self, workers: Workers = HERE) -> None:
        self._workers = workers

    def judge(self, folders: Sequence[Place]) -> list[Verdict]:
        """A verdict for each folder, in order."""
        verdicts: dict[int, Verdict] = {}
        opened: dict[int, Folder] = {}
        size = of_jvm = 0
        for number, place in enumerate(folders):
            try:
                folder = open_folder(place)
                if not folder.judged:
                    verdicts[number] = verdict_of(folder, Survey(), [], {}, {})
                    continue
                work = frames.work_bytes([folder]) + frames.trace_bytes([folder])
                size, of_jvm = size + work, of_jvm + jvm_bytes([folder], work)
                opened[number] = folder
            except Exception as error:
                verdicts[number] = crashed(error, {})
        if opened:
            made = self._with_spark([*opened.values()], size, of_jvm)
            verdicts |= zip(opened, made, strict=True)
        return [verdicts[number] for number in range(len(folders))]

    def _with_spark(self, folders: Sequence[Folder], size: int, of_jvm: int) -> list[Verdict]:
        began = time.perf_counter()
        try:
            jvm = Jvm(spark=session.session(of_jvm, self._workers), work_bytes=of_jvm, workers=self._workers)
            session.suit(jvm.spark, size)
        except FloodmarkError:
            raise
        except Exception as error:
            return [crashed(error, {}) for _ in folders]
        return judge_all(jvm, folders, {"spark_start": time.perf_counter() - began})


@dataclass(slots=True, kw_only=True)
class Jvm:
    """The session that the judge works on; another one once its JVM has died."""

    spark: SparkSession
    work_bytes: int
    workers: Workers

    def restarted(self) -> bool:
        """Whether the JVM has died; then another one is there. FloodmarkError where none starts."""
        if not session.has_died(self.spark.sparkContext):
            return False
        _LOG.warning("Spark's JVM has died; another one is started, and the runs are judged half by half")
        self.spark = session.session(self.work_bytes, self.workers)
        return True


def jvm_bytes(folders: Sequence[Folder], size: int) -> int:
    """What of all work will be the JVM's, as far as anybody can tell: most of a big run is the sieve's."""
    sieved = frames.work_bytes([folder for folder in folders if is_for_the_sieve(folder)])
    return size - sieved + sieved // SIEVED_SHARE


def judge_all(
    jvm: Jvm, folders: Sequence[Folder], timings_s: dict[str, float], *, anew: bool = False
) -> list[Verdict]:
    """All of them in one set of jobs. If that fails, again without the dumps that nobody can read; if it
    still does, each half by itself, down to the folder that breaks it. anew: they have been judged before;
    what was noted of them then is void."""
    alone, died = len(folders) == 1, False
    for flaw in flaws(jvm, alone=alone):
        try:
            opened = [open_folder(folder.path) for folder in folders] if anew else folders
            aside = [flaw is not None and rotten.set_aside(folder, flaw) for folder in opened]
            if flaw is None or any(aside):
                return judge_together(jvm.spark, opened, timings_s)
        except FloodmarkError:
            raise  # it says what is lacking; that is no folder's fault
        except Exception as error:
            failed, died = error, jvm.restarted()
            if died:
                break
        anew = True
    if alone:
        return [crashed(failed, timings_s, died=died)]
    middle = len(folders) // 2
    halves = [
        *judge_all(jvm, folders[:middle], timings_s, anew=True),
        *judge_all(jvm, folders[middle:], timings_s, anew=True),
    ]
    if died or any(verdict.failure for verdict in halves):
        return halves
    return [crashed(failed, timings_s) for _ in folders]


def flaws(jvm: Jvm, *, alone: bool) -> Iterator[rotten.Flaw | None]:
    """What to look for in the dumps before each attempt. Spark reads worse than Arrow, and is slow to say
    so."""
    yield None
    yield rotten.flaw
    if alone:
        yield lambda dump: rotten.flaw_to(jvm.spark, dump)


def judge_together(
    spark: SparkSession, folders: Sequence[Folder], timings_s: dict[str, float]
) -> list[Verdict]:
    timings, watch = dict(timings_s), Watch()
    sizes = [frames.work_bytes([folder]) + fact_bytes(folder) for folder in folders]
    sifted = sift(spark, folders, sizes, session.sieves_at_once(spark, max(sizes)))
    timings["sieve"] = watch.lap()
    rest = [run for run, folder in enumerate(folders) if folder.judged and run not in sifted.surveys]
    size = sum(sizes[run] for run in rest) + sifted.rows * ROW_BYTES
    size += TRACE_WEIGHT * frames.trace_bytes(folders)
    traced_runs = [folder for folder in folders if folder.judged and folder.trace]
    session.suit(spark, size)
    probes = [frozenset(folder.settle_processes) for folder in folders]
    surveys = [sifted.surveys.get(run, Survey()) for run in range(len(folders))]
    contradictions = any(contradicted(folders[run], seen) for run, seen in sifted.seen.items())
    found: list[Row] = []
    with sources.scratch() as scratch:
        if rest or sifted.rows or traced_runs or contradictions:
            small = session.is_small(spark, size)
            files = sources.sources_of(
                folders, Path(scratch), sifted.surveys, link=session.works_here(spark.sparkContext)
            )
            read = frames.read(spark, files, sifted.passed, small=small)
            read = replace(read, trace=traces.traces(spark, files.trace, small=small))
        if rest or traced_runs:
            seen = survey(read, probes)
            surveys = [with_trace(sifted.surveys.get(run), seen[run]) for run in range(len(folders))]
        timings["survey"] = watch.lap()
        runs = [run_of(folder, surveys[run], sifted.seen.get(run)) for run, folder in enumerate(folders)]
        if rest or sifted.rows or traced_runs or contradictions:
            found = findings(spark, read, runs)
        timings["checks"] = watch.lap()
    mine: list[list[Row]] = [[] for _ in folders]
    for row in found:
        mine[row["run"]].append(row)
    return [
        verdict_of(folder, seen, rows, timings, lines_of(folder.trace, rows))
        for folder, seen, rows in zip(folders, surveys, mine, strict=True)
    ]


def with_trace(sieved: Survey | None, seen: Survey) -> Survey:
    """The survey of a run; a sieved one's trace has been seen with the others."""
    return seen if sieved is None else replace(sieved, traced=seen.traced)


class Watch:
    """Laps, in seconds."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        before, self._last = self._last, time.perf_counter()
        return self._last - before


def run_of(folder: Folder, seen: Survey, sieved: Seen | None) -> Run:
    """What the checks of this run may claim; its reasons are complete with this."""
    if not folder.judged:
        return Run(folder=folder, bounds={}, breached=True, overlapping=frozenset(), seen=NOTHING)
    reasons_of(folder, seen)
    rulings = rulings_of(folder, seen.traced)
    bounds = bounds_of(folder, seen.nemesis, rulings, unread_of(folder, seen))
    folder.reasons += elections.doubtful_elections(bounds)
    return Run(
        folder=folder,
        bounds=bounds,
        rulings=rulings,
        breached=is_breached(folder, seen),
        disordered=seen.disordered,
        overlapping=frozenset(seen.overlapping),
        seen=sieved or Seen(used=frozenset(seen.used), whole=frozenset(seen.used)),
        sieved=sieved is not None,
        transactional=seen.txns > 0,
        repeated=bool(seen.repeated),
    )


def findings(spark: SparkSession, read: frames.Frames, runs: Sequence[Run]) -> list[Row]:
    """The worst examples of every group of findings, each with its group's exact count."""
    facts = facts_of(spark, runs, read.small)
    entries = agreement.placed_entries(read, facts)
    values = values_of(read, entries, facts)
    made = [*checks(read, facts, entries, values), *cycles.by_component(spark, read, runs, facts)]
    unclean = [
        tuple(row.get(name) for name in COLUMNS)
        for number, run in enumerate(runs)
        for row in elections.unclean_elections(number, run.bounds)
    ]
    if unclean:
        schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        made.append(beside(spark, unclean, schema, read.small))
    found = together(made, read.small)
    silent = [(number, name) for number, run in enumerate(runs) for name in silenced(run)]
    if silent:
        found = found.join(
            beside(spark, silent, "run int, name string", read.small), ["run", "name"], "left_anti"
        )
    group = Window.partitionBy("run", "name", "by")
    worst = group.orderBy(
        F.col("partition").asc_nulls_last(),
        F.col("offset").asc_nulls_last(),
        "value",
        "nodes",
        "process",
        "how",
    )
    blamed = Window.partitionBy("run", F.col("name").isin(*names.GUILTY)).orderBy(
        F.col("tick").asc_nulls_last()
    )
    ranked = found.select(
        "*",
        F.row_number().over(worst).alias("rank"),
        F.count("*").over(group).alias("count"),
        F.when(F.col("name").isin(*names.GUILTY), F.row_number().over(blamed)).alias("suspect"),
    )
    return ranked.where((F.col("rank") <= EXAMPLES) | (F.col("suspect") <= SUSPECTS)).collect()


def silenced(run: Run) -> tuple[str, ...]:
    """The checks that claim nothing in this run, for a missing line may excuse what they see."""
    if not run.folder.judged:
        return names.MADE
    return (
        *(names.SILENT_IF_BREACHED if run.breached else ()),
        *(names.SILENT_IF_DISORDERED if run.disordered else ()),
        *(names.IF_KILLED if run.folder.killed else ()),
        *(names.SILENT_IF_TRACE_TORN if run.folder.trace and not run.rulings.whole else ()),
        *silent_of_trace(run.folder.observes),
    )


def checks(read: frames.Frames, facts: Facts, entries: DataFrame, values: DataFrame) -> list[DataFrame]:
    """Every check that is made, as findings."""
    of_trace: list[DataFrame] = []
    if read.trace is not None and facts.traced is not None:
        of_trace = traced.by_line(read.trace, values, entries, facts)
    return [
        durability.by_value(values, entries, by_reads=facts.by_reads),
        agreement.by_offset(entries, facts),
        agreement.by_log(entries, facts),
        order.by_send(values, facts),
        polls.by_read(read, values, facts),
        transactions.read_too_early(values, facts),
        *of_trace,
    ]

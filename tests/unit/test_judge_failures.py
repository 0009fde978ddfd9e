"""The judge's own failure is loud, in whichever stage: unknown, exit 4, and the traceback in a file."""

import importlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import floodmark
from folders import Tale
from pyspark import SparkContext
from pyspark.sql import functions as F
from traced_story import Story
from txn_tales import txn

from checkers import judge, sifted
from checkers.findings import COLUMNS

pytestmark = pytest.mark.spark
INJECTED = "injected by a test"
ERROR_FILE = "judge-error.txt"

# Where the driver can fail, as MODULE.FUNCTION; a function is named where it is called.
IN_THE_DRIVER = (
    "judge.open_folder", "frames.work_bytes", "frames.trace_bytes", "judge.jvm_bytes", "session.session",
    "session.suit", "session.sieves_at_once", "judge.fact_bytes", "judge.sift", "judge.contradicted",
    "sources.sources_of", "frames.read", "traces.traces", "judge.survey", "judge.run_of", "judge.reasons_of",
    "judge.rulings_of", "judge.unread_of", "judge.bounds_of", "judge.is_breached", "judge.findings",
    "judge.facts_of", "agreement.placed_entries", "judge.values_of", "durability.by_value",
    "agreement.by_offset", "agreement.by_log", "order.by_send", "polls.by_read",
    "transactions.read_too_early", "traced.by_line", "commits.incomplete", "quorums.by_quorum",
    "cycles.by_component", "judge.together", "judge.silenced", "judge.verdict_of", "judge.lines_of",
)  # fmt: skip
ONLY_UNSIEVED = ("transactions.items_of", "cycles.found_in")
# The same in a Python worker of Spark's.
IN_A_WORKER = (
    "sifted.open_folder", "sifted.sieve", "sieve.read", "history_twin.read", "sieve.history_of",
    "sieve.pairing", "sieve.read_dump", "sieve.repeated", "sieve.moves_of", "sieve.used",
    "sieve.sieve_partition", "sieve.logs_of", "sieve.sends_of", "sieve.proof_of", "sieve.out_of_order",
    "sieve.odd_values", "sieve.unread_of", "sieve.disputed", "sieve.closed", "sieve.about_transactions",
    "sieve_cycles.found_in", "sifted.history_rows", "sifted.entry_rows", "sifted.finding_rows",
    "sifted.told_of", "sifted.batch_of",
)  # fmt: skip
OF_SPARK = ("durability.by_value", "cycles.by_component")


def run_in(folder: Path) -> Path:
    """A valid run for which every stage has work: a trace, transactions, reads."""
    tale = Tale().acked(1).assign(7, 0).poll(7, (0, 1)).ends(7, 1)
    txn(tale, 5, (0, 1, 2), reads=[(0, 0, 1)])
    tale.logged(2)
    tale.trace = Story().begin().produce(2).lines
    return tale.write(folder)


def failing(*_: Any, **__: Any) -> Any:
    raise RuntimeError(INJECTED)


def replace(patch: pytest.MonkeyPatch, stage: str, function: Callable[..., Any]) -> None:
    module, name = stage.split(".")
    patch.setattr(importlib.import_module(f"checkers.{module}"), name, function)


def failing_in_a_worker(stage: str, kill: bool = False) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A stand-in for sieve_batches whose stage fails. Spark takes a function inside a function along as it
    is; a worker is used again, so the stage is mended at the end."""
    module, name = stage.split(".")
    said = INJECTED

    def batches(coming: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import os
        import signal

        def broken(*_: Any, **__: Any) -> Any:
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(said)

        home = importlib.import_module(f"checkers.{module}")
        whole = getattr(home, name)
        work = importlib.import_module("checkers.sifted").sieve_batches
        setattr(home, name, broken)
        try:
            yield from work(coming)
        finally:
            setattr(home, name, whole)

    return batches


def refused(folder: Path, *words: str) -> None:
    """`check` says that the judge failed, with these words, and lets nothing through."""
    answer = floodmark("check", folder, "--allow-unknown")
    verdict = json.loads((folder / "verdict.json").read_text())
    assert (answer.code, verdict["valid"]) == (4, "unknown")
    assert verdict["findings"] == []
    [unknown] = verdict["unknown"]
    assert unknown["reason"].startswith("the judge failed: ")
    assert "lost-write" in unknown["names"]
    error = (folder / ERROR_FILE).read_text()
    for word in words:
        assert word in unknown["reason"]
        assert word in error
    assert "Traceback (most recent call last)" in error
    assert str(folder / ERROR_FILE) in answer.err


@pytest.mark.parametrize("sieved", [False, True])
def test_unharmed_it_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sieved: bool) -> None:
    """So that every test below could fail; and what an earlier failure left beside the verdict goes."""
    folder = run_in(tmp_path / "run")
    (folder / ERROR_FILE).write_text("of last week")
    surveys: list[int] = []

    def sift(*told: Any) -> sifted.Sifted:
        made = sifted.sift(*told)
        surveys.append(len(made.surveys))
        return made

    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0 if sieved else 1 << 40)
    monkeypatch.setattr(judge, "sift", sift)
    assert floodmark("check", folder).code == 0
    assert surveys == [int(sieved)]
    assert not (folder / ERROR_FILE).exists()


@pytest.mark.parametrize("stage", [*IN_THE_DRIVER, *ONLY_UNSIEVED])
def test_a_stage_fails_in_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 1 << 40 if stage in ONLY_UNSIEVED else 0)
    if stage == "judge.contradicted":  # is asked only of a run that was sieved
        monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)
    replace(monkeypatch, stage, failing)
    refused(run_in(tmp_path / "run"), INJECTED)


@pytest.mark.parametrize("stage", OF_SPARK)
def test_a_stage_fails_inside_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Its plan is one, and breaks when it is carried out."""

    def frames(*_: Any, **__: Any) -> Any:
        spark = judge.session.session(None)
        broken = (F.raise_error(F.lit(INJECTED)).cast(kind).alias(name) for name, kind in COLUMNS.items())
        frame = spark.range(1).select(*broken)
        return frame if stage == "durability.by_value" else [frame]

    replace(monkeypatch, stage, frames)
    refused(run_in(tmp_path / "run"), INJECTED)


def test_a_plan_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, "durability.by_value", lambda values, *_, **__: values.select("no_such_column"))
    refused(run_in(tmp_path / "run"), "no_such_column")


@pytest.mark.parametrize("stage", IN_A_WORKER)
def test_a_stage_fails_in_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)
    monkeypatch.setattr(sifted, "sieve_batches", failing_in_a_worker(stage))
    refused(run_in(tmp_path / "run"), INJECTED)


def test_a_worker_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a machine that is short of memory."""
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)
    monkeypatch.setattr(sifted, "sieve_batches", failing_in_a_worker("sifted.sieve", kill=True))
    refused(run_in(tmp_path / "run"))


# -- several folders ----------------------------------------------------------------------------------------


def outcomes(folders: Sequence[Path]) -> tuple[int, list[object], list[bool]]:
    """The exit code of all, each one's `valid`, and whether it has a traceback beside it."""
    code = floodmark("check", *folders).code
    valid = [json.loads((folder / "verdict.json").read_text())["valid"] for folder in folders]
    return code, valid, [(folder / ERROR_FILE).exists() for folder in folders]


@pytest.mark.parametrize("stage", ["judge.open_folder", "judge.verdict_of"])
def test_its_neighbours_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    folders = [run_in(tmp_path / name) for name in ("broken", "other")]
    whole = getattr(judge, stage.split(".")[1])

    def only_one(what: Any, *told: Any) -> Any:
        path = what if isinstance(what, Path) else what.path
        return failing() if path.name == "broken" else whole(what, *told)

    replace(monkeypatch, stage, only_one)
    assert outcomes(folders) == (4, ["unknown", True], [True, False])


def test_what_fails_together_and_never_alone_is_unknown_altogether(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [run_in(tmp_path / name) for name in ("one", "two")]
    whole = judge.findings

    def not_two(spark: Any, read: Any, runs: Sequence[Any]) -> Any:
        return failing() if len(runs) > 1 else whole(spark, read, runs)

    monkeypatch.setattr(judge, "findings", not_two)
    assert outcomes(folders) == (4, ["unknown", "unknown"], [True, True])


def test_where_nothing_can_be_written_the_traceback_is_in_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders stand in the places of both files."""
    folder = run_in(tmp_path / "run")
    (folder / ERROR_FILE).mkdir()
    (folder / "verdict.json").mkdir()
    monkeypatch.setattr(judge, "findings", failing)
    monkeypatch.setattr(judge.sources.tempfile, "tempdir", str(tmp_path))
    answer = floodmark("check", folder)
    [kept] = tmp_path.glob("floodmark-judge-error-*.txt")
    assert answer.code == 4
    assert str(kept) in answer.err
    assert INJECTED in kept.read_text()
    assert "cannot write" in answer.err


def test_a_jvm_that_dies_costs_only_the_run_that_kills_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies of both together, then of the first alone; the second is judged by the third."""
    folders = [run_in(tmp_path / name) for name in ("deadly", "other")]
    whole, killed = judge.findings, []

    def deadly(spark: Any, read: Any, runs: Sequence[Any]) -> Any:
        if any(run.folder.path.name == "deadly" for run in runs):
            gateway = SparkContext._gateway
            assert gateway is not None
            killed.append(gateway.proc.pid)
            os.kill(gateway.proc.pid, signal.SIGKILL)
        return whole(spark, read, runs)

    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)  # with Python workers, that see it die too
    monkeypatch.setattr(judge, "findings", deadly)
    assert outcomes(folders) == (4, ["unknown", True], [True, False])
    assert len(set(killed)) == 2
    [unknown] = json.loads((folders[0] / "verdict.json").read_text())["unknown"]
    assert unknown["reason"].startswith("the judge failed: Spark's JVM died: ")

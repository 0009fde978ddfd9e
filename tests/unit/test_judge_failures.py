"""The judge's own failure on a run is reported, whatever stage fails: unknown, exit 4, and the traceback in a
file. Other runs of the call are judged as they would be alone."""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import floodmark
from no_spark import NoSpark
from stories import told

from floodmark.checkers.judge import job, layout, many_runs, passes, verdicts
from floodmark.checkers.judge.failures import failure_of
from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.stats import job as stats
from floodmark.harness.parquet_dump import write_parquet

ERROR_FILE, INJECTED = "judge-error.txt", "injected by a test"
RUNS = ("good", "bad", "good-too")  # the folders of a call; on one of them the judge fails


def run_in(folder: Path) -> Path:
    """A valid run for which every stage has work: a trace, transactions, reads."""
    return told(folder, "7 assign 0 time=99000; 1 acked 1; 7 poll 1@0; 7 list_offsets 1",
                "5 txn 2@1 reads 1@0; log 2; begin; produce 2")


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [run_in(tmp_path / name) for name in RUNS]


def failing(*_: Any, **__: Any) -> Any:
    raise RuntimeError(INJECTED)


def verdict_in(folder: Path) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    return verdict


def is_refused(folder: Path, words: str, beginning: str = "the judge failed: ") -> None:
    """Its verdict is that the judge failed, with these words, and the traceback is in the folder."""
    verdict = verdict_in(folder)
    assert (verdict["valid"], verdict["findings"]) == ("unknown", [])
    [unknown] = verdict["unknown"]
    assert unknown["reason"].startswith(beginning)
    assert "\n" not in unknown["reason"]
    assert "lost-write" in unknown["names"]
    error = (folder / ERROR_FILE).read_text()
    assert "Traceback (most recent call last)" in error
    assert words in unknown["reason"]
    assert words in error


def is_judged(folder: Path) -> None:
    """As it would be alone."""
    verdict = verdict_in(folder)
    assert (verdict["valid"], verdict["unknown"], verdict["findings"]) == (True, [], []), folder
    assert verdict["counts"]["acked"] == 2
    assert not (folder / ERROR_FILE).exists()


# -- every place in which an error of one run is caught, in this process ------------------------------------

STAGES = (  # of reading a range; of what goes across ranges; between the passes; of the laws; of the verdict
    "read_range", "pairing", "run_of", "facts_of", "make_tables", "answers", "worst", "verdict_of",
)  # fmt: skip
IN_PIECES = ("ops", "of_the_run")  # also: of the ops of a run in pieces; of the search for their cycles


def runs_in(what: object) -> set[object]:
    """The numbers and names of the runs in an argument."""
    if isinstance(what, Unit):
        return set(what.rows("select run from runs")["run"].to_pylist()) if what.has("runs") else set()
    if isinstance(what, pa.Table):
        return set(what["run"].to_pylist()) if "run" in what.column_names else set()
    if isinstance(what, Path):
        return {what.name}
    if isinstance(what, dict):
        return runs_in([*what.values()])
    if isinstance(what, (list, tuple)):
        return set().union(*map(runs_in, what))
    parts = [getattr(what, name, None) for name in ("folder", "path")]
    return {what if isinstance(what, int) else getattr(what, "run", None)}.union(
        *(runs_in(part) for part in parts if part is not None))


def failing_on(run: set[object], original: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, but it fails on this run, known by its number in the call or by its name."""

    @wraps(original)
    def broken(*args: Any) -> Any:
        return failing() if run & runs_in(args) else original(*args)

    return broken


UNSEEN = "{} is not there for the machine that was to read it; on a cluster every worker must see"


def by_many(works: Sequence[RunWork]) -> dict[int, Any]:
    return {**passes.judged_by_many(NoSpark(), works)}  # type: ignore[arg-type]


@pytest.mark.parametrize("pieces", [False, True])
def test_each_stage_fails_on_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pieces: bool) -> None:
    """Each on its own run, all in one call: the laws fail on a bag, and then on such runs of it alone."""
    stages = [*STAGES, *(IN_PIECES if pieces else ())]
    folders = [run_in(tmp_path / name) for name in ("good", *stages)]
    for number, stage in enumerate(stages, 1):
        monkeypatch.setattr(passes, stage, failing_on({number, stage}, getattr(passes, stage)))
    works = [RunWork.of(run, open_folder(folder)) for run, folder in enumerate(folders)]
    judged: dict[int, Any] = by_many(works) if pieces else {**passes.judged_bag(works)}

    assert judged[0].valid is True
    assert {judged[run].words for run in range(1, len(folders))} == {f"RuntimeError: {INJECTED}"}


@pytest.mark.parametrize("judge", [passes.judged_bag, by_many])
@pytest.mark.parametrize(("name", "change", "words"), [
    ("history.jsonl", Path.unlink, UNSEEN), ("logs/n1.parquet", Path.unlink, UNSEEN),
    ("history.jsonl", lambda file: os.truncate(file, 100), "{} is shorter than when its ranges were cut"),
])
def test_a_file_changes_after_it_was_cut_into_ranges(
        tmp_path: Path, judge: Any, name: str, change: Callable[[Path], None], words: str) -> None:
    """Parquet that is not there is not damaged Parquet, and another run is judged."""
    for run in ("0", "1"):
        lines = run_in(tmp_path / run) / "logs" / "n1.jsonl"
        write_parquet(lines)
        lines.unlink()
    works = [RunWork.of(run, open_folder(tmp_path / str(run))) for run in range(2)]
    change(file := tmp_path / "0" / name)
    judged = judge(works)
    assert words.format(file) in judged[0].words
    assert judged[1].valid is True


# -- on the command line, with Spark ------------------------------------------------------------------------


@pytest.mark.spark
def test_the_driver_fails_on_a_run(
        folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it opens the folder, where it cuts the files, and where it finds that there is nothing to judge.
    The file of an earlier failure is removed."""
    monkeypatch.setattr(job, "open_folder", failing_on({"bad"}, job.open_folder))
    monkeypatch.setattr(layout, "ranges_of", failing_on({"good-too"}, layout.ranges_of))
    monkeypatch.setattr(verdicts, "not_judged", failing)
    (strange := tmp_path / "strange").mkdir()
    (strange / "run.json").write_text("{}")
    (folders[0] / ERROR_FILE).write_text("of last week")
    answer = floodmark("check", *folders, strange, "--allow-unknown")

    assert answer.code == 4
    assert str(folders[1] / ERROR_FILE) in answer.err
    is_judged(folders[0])
    for folder in (*folders[1:], strange):
        is_refused(folder, f"RuntimeError: {INJECTED}")


@pytest.mark.spark
def test_the_driver_fails_on_all_of_them_together_and_on_none_alone(
        folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be written (both files' paths are folders), the traceback is in a temporary file."""
    whole = many_runs.bags_of

    def not_two(works: Sequence[Any], *more: int) -> Any:
        return failing() if len(works) > 1 else whole(works, *more)

    monkeypatch.setattr(many_runs, "bags_of", not_two)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in (ERROR_FILE, "verdict.json"):
        (folders[1] / name).mkdir()
    answer = floodmark("check", *folders[:2])
    assert (answer.code, "cannot write" in answer.err) == (4, True)
    is_refused(folders[0], f"RuntimeError: {INJECTED}")
    [kept] = tmp_path.glob("floodmark-judge-error-*.txt")
    assert str(kept) in answer.err
    assert INJECTED in kept.read_text()


def ended_by(act: Callable[[str], object], work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A task's work, which does this before for each run that it gets, by its name."""

    def of_a_task(works: Any) -> Any:
        for one in works:
            act(one.folder.path.name if hasattr(one, "folder") else one[1].name)
        return work(works)

    return of_a_task


def without_memory(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The work ends by the kernel, or by itself."""

    def end(run: str) -> None:
        import os
        import signal

        if run == "bad":
            os.kill(os.getpid(), signal.SIGKILL)
        if run == "good-too":
            raise MemoryError("of this task")

    return ended_by(end, work)


@pytest.mark.spark
def test_a_task_ends_when_memory_runs_out(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs, "judged_bag", without_memory(many_runs.judged_bag))
    assert floodmark("check", *folders).code == 4
    is_judged(folders[0])
    is_refused(folders[1], "Python worker exited unexpectedly")
    is_refused(folders[2], "MemoryError: of this task")


@pytest.mark.spark
def test_a_task_of_the_statistics_ends(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours are measured; an error that no folder causes is raised."""
    monkeypatch.setattr(stats, "measured_here", without_memory(stats.measured_here))
    measures = stats.measure(folders)
    assert list(measures.run_rows()) == [0]
    assert "Python worker exited unexpectedly" in measures.failures[1]
    assert measures.failures[2] == "MemoryError: of this task"
    monkeypatch.setattr(stats, "_size", failing)
    with pytest.raises(RuntimeError, match=INJECTED):
        stats.measure(folders)


@pytest.mark.spark
def test_a_worker_is_killed_while_it_reads_a_run_in_pieces(
        folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(layout: Any, read_as: Any, ranges: Any) -> Any:
        import os
        import signal

        from floodmark.checkers.judge import passes

        ranges = list(ranges)
        if any("bad" in one.place.parts for one, _ in ranges):
            os.kill(os.getpid(), signal.SIGKILL)
        yield from passes.parsed(layout, read_as, ranges)

    monkeypatch.setattr(layout, "BIG_BYTES", 0)
    monkeypatch.setattr(passes, "parsed", parsed)
    assert floodmark("check", *folders[:2]).code == 4
    is_refused(folders[1], "Python worker exited unexpectedly")
    is_judged(folders[0])


@pytest.mark.spark
@pytest.mark.long
def test_a_jvm_that_dies_fails_only_the_run_that_kills_it(
        folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run of the call is judged by a later JVM."""

    def kill_the_jvm(run: str) -> None:
        import os
        import signal

        if run == "bad":
            daemon = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(daemon, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(many_runs, "judged_bag", ended_by(kill_the_jvm, many_runs.judged_bag))
    assert floodmark("check", *folders[:2]).code == 4
    is_judged(folders[0])
    is_refused(folders[1], "", beginning="the judge failed: Spark's JVM died: ")


# -- a task's failure in one line: the type and the message of the error that caused it -------------------


WORKS = """An error occurred while calling z:PythonRDD.collectAndServe.
: SparkException: Lost task 0.0 in stage 1.0 (host executor 1): Python: Traceback (most recent call last):
  File "worker.py", line 5, in main
    process()
KeyError: 'epoch'

	at org.apache.spark.api.python.BasePythonRunner
"""
STARTS = """Lost task 0.0 in stage 0.0 (host executor 1): org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "daemon.py", line 7, in <module>
      from floodmark.checkers.judge import passes
  ImportError: cannot import name 'passes'
PYTHONPATH was:
  /opt/spark
"""


@pytest.mark.parametrize(("message", "line"), [
    (WORKS, "KeyError: 'epoch'"),
    (STARTS, "ImportError: cannot import name 'passes'"),
    ("Lost task 1.0 in stage 0.0 (host executor 2): ExecutorLost\nmore", "RuntimeError: ExecutorLost"),
    ("nothing is known\nof it", "RuntimeError: nothing is known"),
])  # fmt: skip
def test_the_line_of_a_failure(message: str, line: str) -> None:
    assert failure_of(RuntimeError(message)).words == line

"""The judge's own failure is reported in every stage: unknown, exit 4, and the traceback in a file. Other
runs of the call are judged as they would be alone."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import injected
import pytest
from command_line import floodmark
from folders import Tale
from injected import INJECTED, Injection
from traced_story import Story
from txn_tales import txn

from floodmark.checkers.judge import layout, many_runs, passes, verdicts
from floodmark.checkers.laws.families import FAMILIES

pytestmark = pytest.mark.spark
ERROR_FILE = "judge-error.txt"
BAGS, PIECES = 1 << 40, 0  # bytes from which a run is judged in pieces: no run, every run

# Where the judge can fail, as MODULE.FUNCTION; a function is named where it is called.
# Between the passes, on one run: in the driver, or in the task of a bag.
BETWEEN = (
    "judge.passes.preconditions_of_run", "judge.passes.read_lines_instead", "judge.passes.run_of",
    "judge.passes.facts_of", "judge.runs.with_replicas", "judge.runs.reasons_of", "judge.runs.unread_of",
    "judge.passes.verdict_of", "judge.verdicts.counts_of",
)  # fmt: skip
DRIVER_ON_A_RUN = (
    "judge.job.open_folder", "judge.layout.ranges_of", "judge.layout.weight_of",
)  # fmt: skip
# In the driver, on all of them:
DRIVER = ("judge.job.session.context", "judge.many_runs.bags_of", "judge.many_runs.session.cores",
          "judge.many_runs.SparkContext.parallelize", "judge.many_runs.rounded")  # fmt: skip
PIECES_DRIVER = ("judge.passes.judged_by_many", "judge.verdicts.merged",
                 "judge.layout.Layout.of", "judge.passes.concatenated",
                 "judge.passes.SparkContext.broadcast", "judge.passes.SparkContext.runJob")  # fmt: skip
# In a Python worker of Spark, always on one run.
IN_BOTH = (
    "read.tables._history", "read.tables._dump", "read.tables._replicas", "read.tables._trace",
    "judge.passes.read_range", "judge.passes.for_driver", "judge.layout.by_unit", "judge.layout.by_hash",
    "judge.passes.joined", "judge.pieces.concatenated", "judge.passes.pairing", "judge.passes.repeats",
    "judge.passes.seq_facts", "judge.passes.answers", "judge.passes.make_tables",
    "judge.run_tables.permissions",
    "judge.passes.worst", "judge.passes.unsearched",
)  # fmt: skip
WORKER = (*IN_BOTH, *BETWEEN, *(f"family.{family.__name__}" for family in FAMILIES))
PIECES_TASKS = tuple(
    f"judge.passes.{name}" for name in ("parsed", "across_partitions", "judge_shared", "find_cycles")
)
PIECES_WORKER = (
    *IN_BOTH, "judge.passes.ops", "judge.passes.ops_sent_on", "judge.passes.sent_on",
    *(f"family.{family.__name__}" for family in passes.DEPENDENCIES), "family.of_the_run",
)  # fmt: skip


def run_in(folder: Path) -> Path:
    """A valid run for which every stage has work: a trace, transactions, reads."""
    tale = Tale().acked(1).assign(7, 0).poll(7, (0, 1)).ends(7, 1)
    txn(tale, 5, (0, 1, 2), reads=[(0, 0, 1)])
    tale.logged(2)
    story = Story().begin().produce(2)
    tale.trace = [{**line, "time": line["time"] // 1000} for line in story.lines]  # before the clients' ops
    return tale.write(folder)


def failing(*_: Any, **__: Any) -> Any:
    raise RuntimeError(INJECTED)


def verdict_in(folder: Path) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    verdict.pop("timings_s")
    return verdict


def is_refused(folder: Path, *words: str, beginning: str = "the judge failed: ") -> None:
    """Its verdict is that the judge failed, with these words, and the traceback is in the folder."""
    verdict = verdict_in(folder)
    assert verdict["valid"] == "unknown", folder
    assert verdict["findings"] == []
    [unknown] = verdict["unknown"]
    assert unknown["reason"].startswith(beginning)
    assert "\n" not in unknown["reason"]
    assert "lost-write" in unknown["names"]
    error = (folder / ERROR_FILE).read_text()
    assert "Traceback (most recent call last)" in error
    for word in words:
        assert word in unknown["reason"], folder
        assert word in error


def is_judged(folder: Path) -> None:
    """As it would be alone."""
    verdict = verdict_in(folder)
    assert (verdict["valid"], verdict["unknown"], verdict["findings"]) == (True, [], []), folder
    assert verdict["counts"]["acked"] == 2
    assert not (folder / ERROR_FILE).exists()


def refused(folder: Path, *words: str) -> None:
    """`check` of this folder alone reports it, lets nothing through, and names the file of the traceback."""
    answer = floodmark("check", folder, "--allow-unknown")
    assert answer.code == 4
    assert str(folder / ERROR_FILE) in answer.err
    is_refused(folder, *words)


def called(stage: str) -> str:
    return stage.replace(".", "-")


def folders_of(parent: Path, stages: Sequence[str]) -> dict[str, Path]:
    """A run for each stage, and two good ones, first and last in the call."""
    return {stage: run_in(parent / called(stage)) for stage in ("good", *stages, "good too")}


def check_all(folders: dict[str, Path], words: Callable[[str], str]) -> None:
    """All in one call: for each its own stage fails."""
    assert floodmark("check", *folders.values()).code == 4
    for stage, folder in folders.items():
        if stage.startswith("good"):
            is_judged(folder)
        else:
            is_refused(folder, words(stage))


SIZES = (pytest.param(BAGS, id="bags"), pytest.param(PIECES, id="pieces"))


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Both paths."""
    monkeypatch.setattr(layout, "BIG_BYTES", request.param)
    return int(request.param)


def test_without_an_injection_it_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """So that every test below could fail; the file of an earlier failure is removed."""
    folder = run_in(tmp_path / "run")
    (folder / ERROR_FILE).write_text("of last week")
    cut_up: list[int] = []
    whole = passes.judged_by_many
    monkeypatch.setattr(
        passes, "judged_by_many",
        lambda spark, works, *more: cut_up.append(len(works)) or whole(spark, works, *more),
    )  # fmt: skip
    assert floodmark("check", folder).code == 0
    assert cut_up == ([] if size == BAGS else [1])
    is_judged(folder)


# -- in the driver ------------------------------------------------------------------------------------------


def test_a_stage_fails_in_the_driver_on_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Each on its own run, all in one call."""
    stages = DRIVER_ON_A_RUN if size == BAGS else BETWEEN
    folders = folders_of(tmp_path, stages)
    injection = Injection(monkeypatch, {})
    into_workers(injection, size)
    numbers = injection.numbers

    class Of(set[object]):
        """The run of a stage; its number is known once the call is made."""

        def __init__(self, name: str) -> None:
            super().__init__({name})
            self.name = name

        def __and__(self, others: Any) -> set[object]:
            return {self.name, numbers.get(self.name)} & others - {None}

    with injected.injected({stage: Of(called(stage)) for stage in stages}, injected.fail):
        check_all(folders, lambda stage: f"RuntimeError: {INJECTED} {stage}")


@pytest.mark.parametrize("stage", [*DRIVER, *PIECES_DRIVER])
def test_a_stage_fails_in_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    size = PIECES if stage in PIECES_DRIVER else BAGS
    monkeypatch.setattr(layout, "BIG_BYTES", size)
    into_workers(Injection(monkeypatch, {}), size)
    monkeypatch.setattr(f"floodmark.checkers.{stage}", failing)
    refused(run_in(tmp_path / "run"), f"RuntimeError: {INJECTED}")


# -- in a worker --------------------------------------------------------------------------------------------


def into_workers(injection: Injection, size: int) -> None:
    if size == BAGS:
        injection.into("judge.many_runs.judged_bag")
    else:
        injection.into(*PIECES_TASKS)


def test_a_stage_fails_in_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Each on its own run, all in one call: the laws fail on a bag, and then on each such run of it."""
    monkeypatch.setattr(many_runs, "bags_of", one_bag if size == BAGS else layout.bags_of)
    folders = folders_of(tmp_path, WORKER if size == BAGS else PIECES_WORKER)
    injection = Injection(monkeypatch, {called(stage): stage for stage in folders if "." in stage})
    into_workers(injection, size)
    check_all(folders, lambda stage: f"RuntimeError: {INJECTED} {stage}")


def one_bag(works: Any, *_: int) -> Any:
    return [list(works)], []


@pytest.mark.parametrize("stage", PIECES_TASKS)
def test_a_task_fails_altogether(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Before it begins to work on a run."""
    monkeypatch.setattr(layout, "BIG_BYTES", PIECES)
    folder = run_in(tmp_path / "run")
    Injection(monkeypatch, {"run": f"whole {stage}"}).into(stage)
    refused(folder, f"RuntimeError: {INJECTED} whole {stage}")


def test_a_worker_is_short_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    stages = ("read.tables._trace", "family.log")
    folders = folders_of(tmp_path, stages)
    broken = {called(stage): stage for stage in stages}
    into_workers(Injection(monkeypatch, broken, injected.run_out_of_memory), size)
    check_all(folders, lambda stage: f"MemoryError: {INJECTED} {stage}")


def test_a_worker_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """While it reads, and while it runs the checks."""
    stage = "family.log" if size == BAGS else "read.tables._trace"
    folders = folders_of(tmp_path, [stage])
    into_workers(Injection(monkeypatch, {called(stage): stage}, injected.die), size)
    check_all(folders, lambda _: "Python worker exited unexpectedly")


@pytest.mark.long
def test_a_jvm_that_dies_fails_only_the_run_that_kills_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Another run of the call is judged by a later JVM."""
    stage = "family.log"
    killer, good = run_in(tmp_path / called(stage)), run_in(tmp_path / "good")
    into_workers(Injection(monkeypatch, {killer.name: stage}, injected.die_with_the_jvm), size)
    assert floodmark("check", killer, good).code == 4
    is_judged(good)
    is_refused(killer, beginning="the judge failed: Spark's JVM died: ")


# -- several folders ----------------------------------------------------------------------------------------


def test_runs_that_fail_only_as_a_bag_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone, in the same task."""
    folders = [run_in(tmp_path / name) for name in ("one", "two")]

    def judged(bag: Any) -> Any:
        from floodmark.checkers.judge import passes

        whole = passes.run_families

        def of_one_run(unit: Any, *more: Any) -> Any:
            assert unit.rows("from runs").num_rows == 1
            return whole(unit, *more)

        passes.run_families = of_one_run
        try:
            yield from passes.judged_bag(bag).items()
        finally:
            passes.run_families = whole

    monkeypatch.setattr(many_runs, "bags_of", one_bag)
    monkeypatch.setattr(many_runs, "judged_bag", judged)
    assert floodmark("check", *folders).code == 0
    for folder in folders:
        is_judged(folder)


def test_runs_that_fail_in_the_driver_only_together_are_all_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [run_in(tmp_path / name) for name in ("one", "two")]
    whole = many_runs.bags_of

    def not_two(works: Sequence[Any], *more: int) -> Any:
        return failing() if len(works) > 1 else whole(works, *more)

    monkeypatch.setattr(many_runs, "bags_of", not_two)
    assert floodmark("check", *folders).code == 4
    for folder in folders:
        is_refused(folder, f"RuntimeError: {INJECTED}")


def test_a_folder_that_is_not_to_be_judged_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does not get it."""
    good, strange = run_in(tmp_path / "good"), tmp_path / "strange"
    strange.mkdir()
    (strange / "run.json").write_text("{}")
    monkeypatch.setattr(verdicts, "not_judged", failing)
    assert floodmark("check", good, strange).code == 4
    is_judged(good)
    is_refused(strange, f"RuntimeError: {INJECTED}")


def test_where_nothing_can_be_written_the_traceback_is_in_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files' paths are folders."""
    folder = run_in(tmp_path / "run")
    (folder / ERROR_FILE).mkdir()
    (folder / "verdict.json").mkdir()
    monkeypatch.setattr(many_runs, "bags_of", failing)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = floodmark("check", folder)
    [kept] = tmp_path.glob("floodmark-judge-error-*.txt")
    assert answer.code == 4
    assert str(kept) in answer.err
    assert INJECTED in kept.read_text()
    assert "cannot write" in answer.err

"""The processes of a campaign: one that makes its runs, and one that judges them, each with what it has
imported: `python -m floodmark.harness.commands.campaign_processes play|judge`.

Rules
1. A process prints a line when it is ready. Then each line of JSON on its stdin is a request, and a line on
   its stdout, with the request's `id`, is its answer.
2. It ends when its stdin ends, or an answer fails, and is killed with the campaign's process; what it was
   doing ends with it.
3. A request to `play` is {"case", "seed", "folder"}, or {"again", "finding", "number", "folder"} for a
   reproduction. Each run is made in a forked child; as many go on at once as were requested and not answered.
   The answer is {"ended", "cpu_s", "resident_bytes", "why"}; why: the reason if there is no run to judge. One
   that ended early is judged, as `floodmark run` does.
4. A request to `judge` names run folders, {"folders": [...]}; the answer is {"answers": [...]}: each run's
   summary for the campaign (summary_of). Verdict and measures are in the folder by then. Spark is started
   before the first request, because its start uses all processors; it ends with this process.
"""

import asyncio
import itertools
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import psutil

from floodmark.checkers.judge import report
from floodmark.checkers.laws.finding_names import STUCK
from floodmark.harness import catalog, pipeline
from floodmark.harness.campaign.plan import MAX_RECOVERY_S, MAX_UNAVAILABLE_S, case_of_json
from floodmark.harness.campaign.signatures import events_of, signatures
from floodmark.harness.campaign.state import JUDGE_FAILED
from floodmark.harness.commands.reproduce import plan_of as plan_of_reproduction
from floodmark.harness.commands.reproduce import read_first
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import part_of
from floodmark.harness.commands.scenario import plan_of as plan_of_part
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.forked_child import end_with_parent, result_of_child
from floodmark.harness.pipeline import Judged, Play, has_died, judge, written
from floodmark.harness.protocols import Cluster, ReportsMemory, ability
from floodmark.harness.report.model import Json
from floodmark.harness.report.run_files import RunFiles
from floodmark.harness.report.run_summary import NO_STRIKES, UNKNOWN, Ruling, ruling
from floodmark.harness.run import Run, sync_run
from floodmark.harness.spec import RunPlan, RunSpec
from floodmark.harness.verdict import BUG
from floodmark.nemesis.scenario import Scenario

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0
LINE_BYTES = 1 << 26  # of an answer, at most
PLAYER, JUDGE = (("floodmark.harness.commands.campaign_processes", what) for what in ("play", "judge"))


def serve(prepare: Callable[[], None], answer: Callable[[Any], Awaitable[Mapping[str, Any]]]) -> None:
    """Answers all requests until stdin ends, in their process, after it is prepared."""
    end_with_parent()
    out = os.fdopen(os.dup(1), "wb")  # only for the answers: what Java or another child prints is for the log
    os.dup2(2, 1)
    prepare()
    _put(out, {"ready": True})
    asyncio.run(_serve(out, answer))


async def _serve(out: BinaryIO, answer: Callable[[Any], Awaitable[Mapping[str, Any]]]) -> None:
    requests, work = asyncio.StreamReader(limit=LINE_BYTES), set[asyncio.Task[None]]()

    async def answer_one(request: Mapping[str, Any]) -> None:
        _put(out, {**await answer(request), "id": request["id"]})

    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    def ended(task: asyncio.Task[None]) -> None:
        work.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            requests.set_exception(error)  # this process ends by it, which whoever asked sees

    while line := await requests.readline():
        work.add(task := asyncio.create_task(answer_one(orjson.loads(line))))
        task.add_done_callback(ended)


def _put(out: BinaryIO, answer: Mapping[str, Any]) -> None:
    out.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
    out.flush()


class Worker:
    """A process that answers several requests at once, started for the first one, and again if it died."""

    def __init__(self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        """words: its module and that module's arguments."""
        self._words, self._log, self._environment = words, log, environment or {}
        self._ids = itertools.count()
        self._starts = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._listens: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}  # for answers, by the request's id

    async def start(self) -> None:
        """Starts the process, unless it runs; returns when it is ready. FloodmarkError if that takes long."""
        async with self._starts:
            if self._process is not None:
                return
            with self._log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", *self._words, stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE, stderr=output, limit=LINE_BYTES, start_new_session=True,
                    env={**os.environ, **self._environment})
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await self._answer(process)
            except TimeoutError as error:
                process.kill()
                raise FloodmarkError(f"waited {START_TIMEOUT_S:.0f} s for {self._name} to start; its words "
                                     f"are in {self._log}") from error
            self._process, self._listens = process, asyncio.create_task(self._listen(process))

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. FloodmarkError if the process died."""
        await self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        id_, answer = next(self._ids), asyncio.get_running_loop().create_future()
        self._waiting[id_] = answer
        self._process.stdin.write(orjson.dumps({**request, "id": id_}, option=orjson.OPT_APPEND_NEWLINE))
        found: dict[str, Any] = await answer
        return found

    @property
    def _name(self) -> str:
        return "the judge" if self._words == JUDGE else "the process that makes the runs"

    async def _answer(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):  # it may have died in the middle of a line
            raise FloodmarkError(f"{self._name} ended with {await process.wait()}; its log is {self._log}")
        found: dict[str, Any] = orjson.loads(line)
        return found

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        try:
            while True:
                answer = await self._answer(process)
                if not (waiting := self._waiting.pop(answer["id"])).done():
                    waiting.set_result(answer)
        except FloodmarkError as error:
            left, self._waiting, self._process = self._waiting, {}, None
            for waiting in left.values():
                if not waiting.done():
                    waiting.set_exception(error)

    async def end(self) -> None:
        """Ends the process, at once if it is at work: nobody waits for the answers. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        if self._waiting:
            process.kill()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if self._listens is not None:
            await self._listens


# -- play ----------------------------------------------------------------------------------------------------

SAMPLE_S = 1.0


async def make_run(request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return await result_of_child(lambda _: play(request))
    except BaseException as error:  # the child's, or its death
        return {"why": str(error) or type(error).__name__}


def play(request: Mapping[str, Any]) -> dict[str, Any]:
    ended, why, most, folder = None, None, [0], Path(request["folder"])
    try:
        plan, scenario = plan_of(request)
        run = Play(title=str(folder), folder=folder, plan=lambda _: plan, scenario=scenario)
        (played,) = asyncio.run(with_memory_watched(plan.cluster, pipeline.play([run]), most))
        why = played.missed
        if played.result is not None:
            ended = played.result.ended
        elif played.recorded and has_died(folder):  # the cluster caused it
            ended = str(played.error)
        else:
            why = str(played.error)
        if why is None:
            sync_run(folder)
    except FloodmarkError as error:
        why = str(error)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"ended": ended, "why": why, "resident_bytes": most[0],
            "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in (own, children)), 2)}


def plan_of(request: Mapping[str, Any]) -> tuple[RunPlan, Scenario | None]:
    """The run's plan, and its scenario if it has one. FloodmarkError if such a run is impossible."""
    folder = Path(request["folder"])
    if "again" in request:
        first = read_first(Path(request["again"]), request["finding"])
        return plan_of_reproduction(first, int(request["number"]), folder), None
    return plan_of_case(case_of_json(request["case"]), int(request["seed"]), folder)


def plan_of_case(case: RunSpec, seed: int, folder: Path, *, ask_broker: bool = True
                 ) -> tuple[RunPlan, Scenario | None]:
    if case.scenario is None:
        return planned(replace(case, seed=seed, out=folder), ask_broker=ask_broker), None
    part = part_of(case)  # it has its own cluster and steps, and no seed changes it
    return plan_of_part(part, case.cluster, folder, ask_broker=ask_broker), part.scenario


async def with_memory_watched(cluster: Cluster, work: Awaitable[Any], most: list[int]) -> Any:
    """The work's result. most[0]: the highest memory meanwhile, of all processes of run and cluster."""
    others = ability(cluster, ReportsMemory)

    async def watch() -> None:
        while True:
            found = await asyncio.to_thread(resident_bytes)
            if others is not None:
                with suppress(FloodmarkError):  # it was not started yet, or is gone
                    found += await others.resident_bytes()
            most[0] = max(most[0], found)
            await asyncio.sleep(SAMPLE_S)

    watching = asyncio.create_task(watch())
    try:
        return await work
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def resident_bytes(process: int | None = None) -> int:
    """The memory of this process and all its descendants. What several share is counted once."""
    total, root = 0, psutil.Process(process)
    for one in (root, *root.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            total += one.memory_full_info().pss
    return total


# -- judge ---------------------------------------------------------------------------------------------------

async def judge_runs(request: Mapping[str, Any]) -> Mapping[str, Any]:
    folders = list(map(Path, request["folders"]))
    return {"answers": [{**answer(one), **more}
                        for one, more in zip(judge(folders), figures(folders), strict=True)]}


def answer(one: Judged[Path]) -> dict[str, Any]:
    """The summary, when the verdict is on the disk: a valid run is shrunk then. `unsaved`: why it is not."""
    unsaved = one.unsaved or written(lambda: sync_run(one.folder))
    return {**summary_of(Run(folder=one.folder), report.as_json(one.verdict)), "unsaved": unsaved,
            JUDGE_FAILED: one.verdict.failure is not None}


def summary_of(run: Run, verdict: Json) -> dict[str, Any]:
    """How a run ended, and what was found. kind: of run_summary.py, or STUCK if that is its only bug; why: a
    sentence if it is no violation; harness: whether the run itself failed; then signatures as rows, acked
    writes, planned faults by kind, and the folder's bytes."""
    try:
        about = run.about()
    except FloodmarkError:
        about = {}
    ruled = ruling(verdict, about or None)
    bugs = {found["name"] for found in verdict["findings"] if found["class"] == BUG}
    kind = STUCK if bugs == {STUCK} else ruled.kind
    files = RunFiles(run)
    lines = {number: line.fields for number in events_of(verdict)
             if (line := files.event(number + 1)) is not None}
    return {
        "kind": kind,
        "why": why(kind, ruled, verdict),
        "harness": bool(ruled.harness),
        "signatures": [asdict(one) for one in signatures(verdict, about, lines)],
        "acked": (verdict["counts"] or {}).get("acked", 0),
        "faults": Counter(name for entry in about.get("schedule") or () if isinstance(entry, dict)
                          and (name := str(entry.get("f"))) not in NO_STRIKES),
        "size_bytes": sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file()),
    }


def why(kind: str, ruled: Ruling, verdict: Json) -> str:
    """Why the verdict is unknown or missing, or how the cluster got stuck; else empty."""
    if kind == STUCK:
        return next(str(example.get("text") or "") for found in verdict["findings"]
                    if found["name"] == STUCK for example in found["examples"])
    reasons = [str(entry["reason"]) for entry in verdict["unknown"]]
    sentences = [*ruled.harness, *(reasons if kind == UNKNOWN or not verdict["counts"] else ())]
    return "; ".join(dict.fromkeys(sentences))


def figures(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Each run's measures for gates, or why there are none. An error here does not affect the verdicts."""
    try:
        measures = catalog.measure(folders)
    except Exception as error:
        return [{"unmeasured": f"{type(error).__name__}: {error}".splitlines()[0]} for _ in folders]
    rows = measures.run_rows()
    return [
        {"measures": {name: rows[number][name] for name in (MAX_UNAVAILABLE_S, MAX_RECOVERY_S)}}
        if number in rows else {"unmeasured": measures.failures.get(number, "no answer")}
        for number in range(len(folders))
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["play"]:
        serve(catalog.import_simulated, make_run)  # it is imported once, not in each child
    else:
        serve(catalog.warm_judge, judge_runs)
        catalog.stop_judge()

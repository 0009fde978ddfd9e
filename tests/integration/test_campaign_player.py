"""The process that makes a campaign's runs: simulated ones, several at once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from run_processes import state_of, wait_until

from floodmark.harness import catalog, pipeline
from floodmark.harness.campaign.plan import case_to_json
from floodmark.harness.commands.campaign_processes import PLAYER, Worker, play
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import Run, create
from floodmark.harness.runner import RunResult
from floodmark.harness.spec import DRAWN, RULES, RunSpec

CASE = RunSpec(rules=RULES[-1], cluster=catalog.SIMULATED, rate=100.0, nemesis="all", settings=DRAWN,
            duration=1.0)


@asynccontextmanager
async def player(log: Path, words: Sequence[str] = PLAYER, **environment: str) -> AsyncIterator[Worker]:
    made = Worker(words, log, environment)
    try:
        yield made
    finally:
        await made.end()


def request(folder: Path, seed: int = 7, **options: Any) -> dict[str, Any]:
    return {"case": case_to_json(CASE) | options, "seed": seed, "folder": str(folder)}


def test_runs_go_on_side_by_side_and_none_changes_another(tmp_path: Path) -> None:
    """Twice the same seed beside another one: the same bytes. Each answer is that of its own run."""

    async def played() -> list[dict[str, Any]]:
        async with player(tmp_path / "log") as one:
            return list(await asyncio.gather(
                one.ask(request(tmp_path / "a")), one.ask(request(tmp_path / "b", 8)),
                one.ask(request(tmp_path / "c")), one.ask(request(tmp_path / "d", nemesis="none such"))))

    *made, refused = asyncio.run(played())
    assert [(answer["ended"], answer["why"]) for answer in made] == [("done", None)] * 3
    assert all(answer["cpu_s"] > 0 for answer in made)
    assert "no nemesis 'none such'" in refused["why"]
    for file in ("history.jsonl", "trace.jsonl", "run.json"):
        first, other, again = ((tmp_path / name / file).read_bytes() for name in "abc")
        assert first == again, file
        assert first != other, file
    assert orjson.loads((tmp_path / "b" / "run.json").read_bytes())["seed"] == 8


def test_a_process_that_died_is_reported_and_started_again(tmp_path: Path) -> None:
    async def played() -> str:
        async with player(tmp_path / "log") as one:
            first = asyncio.create_task(one.ask(request(tmp_path / "a", duration=600.0)))
            await asyncio.to_thread(wait_until, "the run to begin", (tmp_path / "a" / "run.json").exists)
            assert one._process is not None
            process = psutil.Process(one._process.pid)
            family = [one.pid for one in (process, *process.children(recursive=True))]
            one._process.kill()
            with pytest.raises(FloodmarkError, match=r"ended with -9; its log is .*/log") as ended:
                await first
            assert len(family) >= 3  # its child, and the simulation's
            await asyncio.to_thread(wait_until, "its family to end", lambda: not any(map(state_of, family)))
            assert (await one.ask(request(tmp_path / "b")))["ended"] == "done"
            return str(ended.value)

    assert asyncio.run(played()).startswith("the process that makes the runs ended with")


EARLY = RunResult(run=Run(folder=Path("r")), about={"ended": "a broker answers no longer", "missed": []})


@pytest.mark.parametrize(("result", "died", "answered"), [
    (EARLY, [], ("a broker answers no longer", None)),
    (None, ["n2"], ("n2 is gone", None)),
    (None, [], (None, "n2 is gone")),
])
def test_a_run_that_ended_early_is_judged_where_it_can_be(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: RunResult | None, died: list[str],
        answered: tuple[str | None, str | None]) -> None:
    """As `floodmark run` does: what it has recorded may show a bug, and a broker's own death is one."""
    async def played(plays: Sequence[pipeline.Play]) -> list[pipeline.Played]:
        create(tmp_path / "a", {"format": 1, "died": died})
        return [pipeline.Played(play=plays[0], folder=tmp_path / "a", tries=1, seconds=1.0, result=result,
                                error=FloodmarkError("n2 is gone") if result is None else None)]

    monkeypatch.setattr(pipeline, "play", played)
    answer = play(request(tmp_path / "a"))
    assert (answer["ended"], answer["why"]) == answered


TALKATIVE = """
import subprocess
from floodmark.harness.commands.campaign_processes import serve

async def answer(request):
    subprocess.run(["echo", "a warning"])
    return {"done": True}

serve(lambda: subprocess.run(["echo", "another"]), answer)
"""
CUT_SHORT = """
import sys
print("{}", flush=True)
sys.stdin.readline()
print('{"id":', end="", flush=True)
sys.exit(1)
"""


async def asked(folder: Path, module: str) -> dict[str, Any]:
    (folder / "a_worker.py").write_text(module)
    async with player(folder / "log", ["a_worker"], PYTHONPATH=str(folder)) as one, asyncio.timeout(60):
        return await one.ask({})


def test_what_a_child_of_it_prints_is_no_answer(tmp_path: Path) -> None:
    """Java warns on stdout."""
    assert asyncio.run(asked(tmp_path, TALKATIVE))["done"] is True
    assert (tmp_path / "log").read_text().splitlines() == ["another", "a warning"]


def test_half_an_answer_of_one_that_died_is_none(tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError, match=r"ended with 1; its log is .*/log"):
        asyncio.run(asked(tmp_path, CUT_SHORT))

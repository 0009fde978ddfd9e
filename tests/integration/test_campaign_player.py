"""The process that makes a campaign's runs: simulated ones, several at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from run_processes import state_of, wait_until

from floodmark.harness import catalog
from floodmark.harness.campaign.plan import case_to_json
from floodmark.harness.commands.campaign_processes import PLAYER, Worker
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.spec import DRAWN, RULES, RunSpec

CASE = RunSpec(rules=RULES[-1], cluster=catalog.SIMULATED, rate=100.0, nemesis="all", settings=DRAWN,
            duration=1.0)


@asynccontextmanager
async def player(log: Path) -> AsyncIterator[Worker]:
    made = Worker(PLAYER, log)
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

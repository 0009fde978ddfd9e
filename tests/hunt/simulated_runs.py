"""Runs on the simulated cluster for hunt.py and healthy.py: a warm process makes them, and batches of them
are judged together, both by a campaign's own processes."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path

import psutil

from floodmark.harness.campaign.plan import case_to_json
from floodmark.harness.catalog import SIMULATED
from floodmark.harness.commands.campaign_processes import JUDGE, PLAYER, Worker
from floodmark.harness.run import Run
from floodmark.harness.spec import DRAWN, RULES, RunSpec

CORES = len(os.sched_getaffinity(0))
DURATION_S = 20.0  # of virtual time
RATE = 100.0  # ops a second
OPTIONS = ("--cluster simulated", "--settings drawn", f"--rate {RATE:g}")  # of every run

Whys = list[str | None]  # for each run why it could not be made, or None


@asynccontextmanager
async def started_judge(folder: Path) -> AsyncIterator[Worker]:
    judge = Worker(JUDGE, folder / "judge.log")
    await judge.start()
    try:
        yield judge
    finally:
        await judge.end()


@asynccontextmanager
async def player_with(folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Worker]:
    """environment: variables that put a bug into its brokers; none: correct ones."""
    player = Worker(PLAYER, folder / "player.log", environment)
    try:
        yield player
    finally:
        await player.end()


async def judged_batches(player: Worker, judge: Worker, batches: Iterable[Sequence[int]], parent: Path, *,
                         duration_s: float, at_once: int) -> AsyncIterator[tuple[Sequence[int], Whys]]:
    """Each batch of seeds when it is judged. The next one is made meanwhile."""
    judging: asyncio.Task[None] | None = None
    judged: tuple[Sequence[int], Whys] = (), []
    for seeds in batches:
        whys = await played(player, seeds, parent, duration_s=duration_s, at_once=at_once)
        if judging is not None:
            await judging
            yield judged
        judging, judged = asyncio.create_task(judge_runs(judge, seeds, parent)), (seeds, whys)
    if judging is not None:
        await judging
        yield judged


async def played(player: Worker, seeds: Sequence[int], parent: Path, *, duration_s: float, at_once: int
                 ) -> Whys:
    """Makes these seeds' runs, each in a folder of its name. Returns for each why it could not be made."""
    case = case_to_json(RunSpec(rules=RULES[-1], cluster=SIMULATED, rate=RATE, nemesis="all", settings=DRAWN,
                duration=duration_s))
    room = asyncio.Semaphore(at_once)

    async def play(seed: int) -> str | None:
        async with room:
            answer = await player.ask({"case": case, "seed": seed, "folder": str(parent / str(seed))})
            return None if answer["why"] is None else str(answer["why"])

    return await asyncio.gather(*map(play, seeds))


async def judge_runs(judge: Worker, seeds: Sequence[int], parent: Path) -> None:
    """Judges these seeds' runs in one call: those that left a run.json have a verdict.json then."""
    folders = [parent / str(seed) for seed in seeds]
    await judge.ask({"folders": [str(folder) for folder in folders
                                 if Run(folder=folder).about_path.is_file()]})


def growing_batches(seeds: Sequence[int], first: int) -> Iterator[Sequence[int]]:
    """The seeds in batches, each twice as long as the one before: most bugs are found by the first ones."""
    left = iter(seeds)
    while batch := [*islice(left, first)]:
        yield batch
        first *= 2


def cpu_s() -> float:
    """The CPU time of this process and of all its descendants, also of those that have ended, in seconds."""
    spent_s = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            spent_s += sum(process.cpu_times()[:4])  # its own, and those of children that were waited for
    return spent_s

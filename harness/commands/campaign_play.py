"""Makes the runs of a campaign, each in a forked child: `python -m floodmark.harness.commands.campaign_play`.

A request is {"case", "seed", "folder"}, or {"again", "finding", "number", "folder"} for a reproduction; as
many runs go on at once as were requested and not answered. The answer is {"ended", "cpu_s", "resident_bytes",
"why"}; why: the reason if there is no run to judge. One that ended early is judged, as `floodmark run` does.
"""

import asyncio
import resource
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from floodmark.harness import catalog, pipeline
from floodmark.harness.campaign.plan import case_of_json
from floodmark.harness.commands.campaign_processes import serve
from floodmark.harness.commands.reproduce import plan_of as plan_of_reproduction
from floodmark.harness.commands.reproduce import read_first
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import part_of
from floodmark.harness.commands.scenario import plan_of as plan_of_part
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.forked_child import result_of_child
from floodmark.harness.pipeline import Play, has_died
from floodmark.harness.protocols import Cluster, ReportsMemory, ability
from floodmark.harness.run import sync_run
from floodmark.harness.spec import RunPlan, RunSpec
from floodmark.nemesis.scenario import Scenario

SAMPLE_S = 1.0


async def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
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


# -- memory -------------------------------------------------------------------------------------------------


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


if __name__ == "__main__":
    serve(catalog.import_simulated, answer)  # it is imported once, not in each child

"""One run of a campaign, in a process of its own: `python -m floodmark.harness.commands.campaign_play`.

Rules
1. What to run comes as one line of JSON on stdin: {"case", "seed", "folder"}, or {"again", "finding",
   "number", "folder"} for a reproduction. What came of it goes to stdout, one line: {"ended", "cpu_s",
   "resident_bytes", "why"}; why: what kept the harness from making the run, null of one that was recorded.
2. When stdin ends, whoever asked is gone: this process ends at once, and its cluster with it.
"""

import asyncio
import contextlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.campaign.cases import Case
from floodmark.harness.commands.reproduce import options_of as options_of_reproduction
from floodmark.harness.commands.reproduce import read_first
from floodmark.harness.commands.run import RunOptions, planned
from floodmark.harness.commands.scenario import named
from floodmark.harness.commands.scenario_runs import Part, missed
from floodmark.harness.commands.scenario_runs import options_of as options_of_part
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import DONE, sync_run
from floodmark.harness.runner import RunPlan, RunResult, carry_out
from floodmark.nemesis.expectations import Row
from floodmark.nemesis.scenario import Scenario


def main() -> None:
    asked = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=end_with_the_asker, daemon=True).start()
    with contextlib.redirect_stdout(sys.stderr):  # stdout is the answer's alone
        answer = played(asked)
    sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))


def end_with_the_asker() -> None:
    """The brokers' keeper sees this process end and ends them."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def played(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the run; what came of it."""
    ended, why = None, None
    try:
        plan, scenario = plan_of(asked)
        result = asyncio.run(carry_out(plan, lambda _: None))
        ended, why = result.ended, trouble(result, scenario)
        sync_run(plan.folder)
    except FloodmarkError as error:
        why = str(error)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"ended": ended, "why": why,
            "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in (own, children)), 2),
            "resident_bytes": (own.ru_maxrss + children.ru_maxrss) << 10}


def trouble(result: RunResult, scenario: Scenario | None) -> str | None:
    """What was wrong with the run itself. A scenario that missed its moment shows nothing of the cluster."""
    if result.ended != DONE:
        return result.ended
    return missed(scenario, result.about) if scenario is not None else None


def plan_of(asked: Mapping[str, Any]) -> tuple[RunPlan, Scenario | None]:
    """FloodmarkError where no such run can be."""
    folder = Path(asked["folder"])
    if "again" in asked:
        first = read_first(Path(asked["again"]), asked["finding"])
        options = options_of_reproduction(first, folder, int(asked["number"]))
        return planned(options, tuple(one.now for one in first.anchors)), None
    case = Case.of_json(asked["case"])
    if case.scenario is None:
        return planned(options_of(case, int(asked["seed"]), folder)), None
    (scenario,) = named(case.scenario)
    return planned(scenario_options(case, scenario, folder), scenario.schedule), scenario


def options_of(case: Case, seed: int, folder: Path) -> RunOptions:
    """As `floodmark run` would have them."""
    return RunOptions(
        kafka=case.kafka,
        rules=case.rules, bugs=case.bugs, cluster=case.cluster, nodes=case.nodes, links=case.links,
        workload=case.workload, concurrency=case.concurrency, rate=case.rate, partitions=case.partitions,
        replication_factor=case.replication_factor, acks=case.acks, config=case.config, nemesis=case.nemesis,
        interval=case.interval, overspend=case.overspend, duration=case.duration, seed=seed, out=folder,
        settings=case.settings, given=frozenset(case.said),
    )  # fmt: skip


def scenario_options(case: Case, scenario: Scenario, folder: Path) -> RunOptions:
    """Its own cluster and steps, on the case's rules. (Nothing in it is drawn: no seed changes it.)"""
    config = dict(word.split("=", 1) for word in case.config)
    row = Row(rules=case.rules, bugs=case.bugs, config=config)
    return replace(options_of_part(Part(scenario=scenario, row=row), case.cluster, folder), kafka=case.kafka)


if __name__ == "__main__":
    main()

"""What each strike asks of a cluster that only records its calls, and what it gives the history; what exceeds
the fault budget."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from golden_text import answered_as_written

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS, POINTS
from floodmark.harness.protocols import BadDisks, Clocks, MemoryLimits, Packets, Resets
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Entry
from floodmark.nemesis.random_plans import overspends
from floodmark.nemesis.schedule_runner import ScheduleRunner
from floodmark.nemesis.steps import read_step
from floodmark.nemesis.strikes import Strikes, unavailable

NODES = ("n1", "n2", "n3")


def noted(answer: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """A method of a fault: it is refused for one node, noted for the others, and answered so."""
    async def act(self: "Recording", *what: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        if what and what[0] == self.refuses:
            raise FloodmarkError(f"{what[0]} does not obey")
        self.calls.append(what)
        return answer(*what)

    return act


class Recording:
    """A cluster that can suffer everything."""

    name, nodes = "recording", NODES
    abilities: Sequence[object] = ()
    kinds, points = frozenset({"full", "truncated"}), frozenset(POINTS)
    kill = stop_node = start_node = pause = resume = expire = cut = heal = power_cut = noted()
    elect = elect_replica = arm = release = met = crashes = bump = limit = degrade = noted()
    repair, reset, wipe = noted(), noted(lambda _: 4), noted(lambda _: {"lost_records": 7})
    harm = noted(lambda _, kind: {} if kind == "full" else {"lost_records": 2, "position": 90})

    def __init__(self) -> None:
        self.lacks: Mapping[type, str] = {}
        self.refuses: str | None = None
        self.calls: list[tuple[Any, ...]] = []


def struck(line: str) -> str:
    """The cluster's calls; the nodes that were struck, and the detail."""
    args = json.loads(line)
    cluster = Recording()
    cluster.refuses = args.pop("refuses", None)
    cluster.lacks = {BadDisks: "no disks of its own"} if args.pop("lacks", None) else {}
    f, nodes = args.pop("f"), tuple(args.pop("nodes", ()))
    try:
        done = asyncio.run(Strikes(cluster).strike(Entry(f=f, nodes=nodes, args=args), nodes))
    except FloodmarkError as error:
        return f"! {error}, after {json.dumps(cluster.calls)}"
    return f"= {json.dumps(cluster.calls)} struck {' '.join(done.nodes)} {json.dumps(done.detail)}"


def test_what_a_strike_asks_and_gives(request: pytest.FixtureRequest) -> None:
    answered_as_written("strikes.txt", struck, request)


def test_a_cluster_suffers_what_it_is_able_to_and_the_rest_has_its_reason() -> None:
    """Each fault comes with the fault that undoes it."""
    cluster = Recording()
    assert Strikes(cluster).answers == FAULTS.keys()
    assert unavailable(cluster) == {}

    cluster.lacks = dict.fromkeys((BadDisks, Clocks, MemoryLimits, Packets, Resets), "a reason")
    missing = {"bad_disk", "mend_disk", "clock", "reset_clock", "memory", "free_memory", "packet", "reset"}
    assert FAULTS.keys() - Strikes(cluster).answers == missing
    assert unavailable(cluster) == dict.fromkeys(missing, "a reason")


def test_two_nemeses_that_answer_one_f_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="answer"):
        ScheduleRunner([Strikes(Recording()), Strikes(Recording())], ())


# -- the budget --------------------------------------------------------------------------------------------


def overspent(steps: str) -> str:
    """Which of the steps (between ` / `) exceed the budget, and why. `fsynced: ` before them: with
    flush.messages=1."""
    line = steps.removeprefix("fsynced: ")
    schedule = json_form.read([entry for step in line.split(" / ") for entry in read_step(step)])
    found = overspends(schedule, flush_every=line != steps)
    return "\n".join(f"! {one.position}: {one.why}" for one in found) or "= within it"


def test_one_loss_at_a_time_the_cluster_healthy_in_between(request: pytest.FixtureRequest) -> None:
    answered_as_written("budget.txt", overspent, request)

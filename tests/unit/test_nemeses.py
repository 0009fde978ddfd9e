"""What each strike asks of a cluster that only records its calls, and what it gives the history; what exceeds
the fault budget; a registered nemesis, of which budget, runner and judge know that it may lose data."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributions import brings, forget
from golden_text import answered_as_written

from floodmark.checkers.judge.acts import is_grave
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.faults import FAULTS, POINTS, loses
from floodmark.harness.protocols import BadDisks, Clocks, MemoryLimits, Packets, Resets
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Entry
from floodmark.harness.schedule.views import ActiveFaults
from floodmark.nemesis.random_plans import overspends
from floodmark.nemesis.schedule_runner import ScheduleRunner
from floodmark.nemesis.steps import read_step
from floodmark.nemesis.strikes import Strikes, nemeses_of, unavailable

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


# -- a registered nemesis ----------------------------------------------------------------------------------

CODE = """
from floodmark.harness.faults import Fault
from floodmark.harness.protocols import Pauses, RegisteredNemesis

ROT = RegisteredNemesis(does="", draw_pattern=print, make=print, needs=(Pauses,), faults=(
    Fault(f="rot", does="forget what was written", loses=True), Fault(f="rot_slowly", does="be slow")))
"""


@pytest.fixture
def rot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The nemesis rot is installed, for this process."""
    monkeypatch.syspath_prepend(brings(tmp_path, {"nemeses": ["rot = rotten:ROT"]}, CODE, name="rotten"))
    forget()
    yield
    monkeypatch.undo()
    forget("rotten")


@pytest.mark.usefixtures("rot")
def test_a_fault_is_known_to_lose_data_if_its_nemesis_declares_it() -> None:
    assert [loses(f, {}) for f in ("rot", "rot_slowly", "rotting", "kill")] == [True, False, False, False]
    assert ActiveFaults().after("rot", ["n1"]).lasting == ()


@pytest.mark.usefixtures("rot")
def test_a_schedule_is_written_as_it_was_read() -> None:
    written = [{"f": "rot", "nodes": ["n1"], "share": 0.5, "of": ["log", 3]}, {"f": "rot_slowly"}]
    assert json_form.write(json_form.read(written)) == written


@pytest.mark.usefixtures("rot")
@pytest.mark.parametrize(("entry", "message"), [
    ({"f": "rotting"}, 'f: is "rotting"; valid: '),
    ({"f": "rot", "lost": False}, 'has the key "lost", which the history uses itself'),
    ({"f": "rot", "share": float("nan")}, "which is not valid in JSON"),
    ({"f": "rot", "partition": -1}, "should be a whole number"),
])
def test_an_entry_that_no_nemesis_accepts_is_refused(entry: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        json_form.read([entry])
    assert message in str(refused.value)


@pytest.mark.usefixtures("rot")
def test_a_loss_is_within_the_budget_only_on_one_node_of_a_healthy_cluster() -> None:
    healthy = {"at": "state", "healthy": True}
    near = json_form.read([{"f": "rot", "nodes": ["n1"], "moment": healthy},
                           {"f": "rot_slowly", "moment": healthy}])
    hit = json_form.read([{"f": "rot", "nodes": ["n1"]}, {"f": "rot_slowly"}])
    assert overspends(near) == ()
    assert [one.position for one in overspends(hit)] == [0, 1]


@pytest.mark.usefixtures("rot")
def test_a_missing_ability_of_the_cluster_is_named_in_the_error() -> None:
    bare: Any = SimpleNamespace(name="bare", lacks={}, abilities=())
    schedule = json_form.read([{"f": "rot"}])
    with pytest.raises(UsageError, match=r"nemesis 'rot' of rotten 0.3 cannot strike here: .*Pauses"):
        nemeses_of(schedule, bare)
    assert nemeses_of(json_form.read([{"f": "heal"}]), bare) == ()


def test_a_judge_takes_an_unknown_fault_for_a_loss_where_lines_are_missing() -> None:
    """The nemesis need not be installed where the folder is judged."""
    assert is_grave({"f": "of-somebody-else"})
    assert not any(is_grave({"f": f}) for f in ("kill", "send", "wait", "poll", "list_offsets"))

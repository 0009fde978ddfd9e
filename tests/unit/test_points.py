"""Failpoints on the harness's side: requests, what was met, armed crashes; against a small control server."""

import asyncio
import json
import signal
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from floodmark.broker.testing import failpoint_requests
from floodmark.harness.cluster.layout import Layout, Ports, ids_of, lay_out
from floodmark.harness.cluster.processes import ControlError, Refused
from floodmark.harness.cluster.reference import control_sockets
from floodmark.harness.cluster.reference.control_sockets import ControlSockets, FailpointControl
from floodmark.harness.cluster.reference.system import broker_settings, write_properties
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import POINTS, SCOPES
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER

NODES = ("n1", "n2")
SPECS = (PartitionSpec(key=4, topic="log", partition=1, replicas=NODES),)
NAMES = control_sockets.Names(NODES, SPECS)
HOLD = {"name": "F.truncated", "action": "hold", "partition": 4, "peer": "n1", "epoch": 2, "scope": "broker"}
CRASH = {"name": "F.truncated", "action": "crash"}


@dataclass(kw_only=True)
class Node:
    """One process's control socket, and whether it runs; the requests it got, and its answers. What has none
    waits, and is answered after a later request."""

    requests: list[Mapping[str, Any]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=lambda: {
        "arm": {"id": 1}, "release": {"released": 1}, "points": {"met": [], "armed": []}})
    running: bool = True
    is_paused: bool = False
    hangs_up: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: list[dict[str, Any]] = []
        while line := await reader.readline():
            waiting.insert(0, json.loads(line))
            self.requests.append({key: value for key, value in waiting[0].items() if key != "id"})
            if self.hangs_up:
                break
            for request in [one for one in waiting if one["do"] in self.answers]:
                waiting.remove(request)
                answer = self.answers[request["do"]]
                how = {"error": answer} if isinstance(answer, str) else {"ok": answer}
                writer.write(json.dumps({"id": request["id"], **how}).encode() + b"\n")
        writer.close()


@dataclass(kw_only=True)
class Stand:
    """n2's points, its control socket, its trace."""

    layout: Layout
    traces: bool
    node: Node = field(default_factory=Node)
    points: FailpointControl = field(init=False)

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        asyncio.run(self.served(story))

    async def served(self, story: Coroutine[Any, Any, None]) -> None:
        server = await asyncio.start_server(self.node.serve, "127.0.0.1", 0)
        n2 = replace(self.layout.places["n2"], asked=server.sockets[0].getsockname())
        self.layout = replace(self.layout, places={**self.layout.places, "n2": n2})
        write_properties(self.layout, broker_settings({}, nodes=2), rules="kip-320", bugs=())
        sockets = ControlSockets(self)  # type: ignore[arg-type]
        self.points = FailpointControl(sockets, lambda: SPECS)
        try:
            async with asyncio.timeout(20):
                await story
        finally:
            self.points.close()
            await sockets.hang_up()
            server.close()
            await server.wait_closed()

    def lives(self, name: str) -> bool:
        return self.node.running

    def paused(self, name: str) -> bool:
        return self.node.is_paused

    def matches(self, time: int, action: str = "hold") -> None:
        """n2 traces a match, where it traces."""
        if (path := self.layout.places["n2"].trace) is not None:
            with path.open("ab") as file:
                file.write(orjson.dumps({
                    "node": 2, "seq": 0, "time": time, "event": "failpoint", "topic": "log", "partition": 1,
                    "epoch": 2, "leo": 5, "hw": 4, "name": "F.truncated", "action": action}) + b"\n")

    def armed(self) -> str:
        """For the next start."""
        properties = self.layout.properties_of("n2").read_text()
        return properties.partition("floodmark.failpoints=")[2]


@pytest.fixture
def stand(tmp_path: Path, request: pytest.FixtureRequest) -> Stand:
    """It traces, unless its parameter says otherwise."""
    ports, traces = Ports(), getattr(request, "param", True)
    layout = lay_out(tmp_path, ids_of(NODES), proxied=False, ports=ports, first_port=None, trace=traces)
    ports.close()
    return Stand(layout=layout, traces=traces)


def test_both_sides_know_the_same_points() -> None:
    """Their names, whether they are the controller's, and the allowed actions."""
    assert {name: (point.of_controller, point.actions) for name, point in POINTS.items()} == {
        name: (point.role == failpoint_requests.CONTROLLER, point.actions)
        for name, point in failpoint_requests.POINTS.items()}
    assert SCOPES == failpoint_requests.SCOPES


@pytest.mark.parametrize("name", sorted(POINTS))
def test_a_request_is_parsed_by_the_process_as_it_was_meant(name: str) -> None:
    """Every action at every point, with every condition."""
    role = failpoint_requests.CONTROLLER if POINTS[name].of_controller else failpoint_requests.BROKER
    for action in POINTS[name].actions:
        point = {"name": name, "action": action, "partition": 4, "epoch": 2, "peer": "n1", "offset": 5,
                 "times": 0, "skip": 1, **({"for_ms": 5} if action == "delay" else {})}
        arm = failpoint_requests.parse_arm(control_sockets.point_request(NAMES, point), role)
        assert (arm.point, arm.action, arm.topic, arm.partition, arm.peer) == (name, action, "log", 1, 1)
    through = {"through_epoch": 3} if name == "C.elected" else {}
    release = failpoint_requests.parse_release(control_sockets.point_request(NAMES, {
        "name": name, "partition": 4, "peer": CONTROLLER, "keep": True, **through}), role)
    assert (release.topic, release.partition, release.peer) == ("log", 1, 100)


async def test_a_release_of_nothing_is_no_error(stand: Stand) -> None:
    """The failpoint may have ended by itself; but a refusal while one is armed or held is an error."""
    stand.node.answers |= {"release": "nothing of that kind", "points": {"met": [], "armed": []}}
    assert await stand.points.release("n2", {"name": "F.truncated"}) == 0
    for left in {"armed": [{"point": "F.truncated"}]}, {"met": [{"point": "F.truncated", "held": True}]}:
        stand.node.answers["points"] = {"met": [], "armed": [], **left}
        with pytest.raises(Refused, match="nothing of that kind"):
            await stand.points.release("n2", {"name": "F.truncated"})


async def crash_as_armed(stand: Stand) -> None:
    """n2 closes the connection at the next request, and its host learns a moment later that it has exited."""
    while len(stand.node.requests) < 2:
        await asyncio.sleep(0.001)
    stand.matches(time.monotonic_ns(), "crash")
    assert stand.points.expects_exit("n2", -signal.SIGKILL)
    stand.points.clear_pending("n2")
    stand.node.running = False


@pytest.mark.parametrize("request_of", ["arm", "release"])
async def test_a_node_that_crashes_during_a_request_is_armed_for_its_next_start_or_holds_nothing(
        stand: Stand, request_of: str) -> None:
    await stand.points.arm("n2", CRASH)
    stand.points.started("n2")
    stand.node.hangs_up = True
    ends = asyncio.create_task(crash_as_armed(stand))
    if request_of == "arm":
        await stand.points.arm("n2", HOLD)
    else:
        assert await stand.points.release("n2", {"name": "F.appended"}) == 0
    await ends
    assert ('"hold"' in stand.armed()) == (request_of == "arm")


async def test_a_node_that_disconnects_without_reaching_a_failpoint_is_an_error(
        stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_sockets, "END_KNOWN_S", 0.1)
    stand.node.hangs_up = True
    for act in (stand.points.arm("n2", HOLD), stand.points.release("n2", {"name": "F.appended"})):
        with pytest.raises(ControlError, match="n2 closed the connection without an answer"):
            await act


@pytest.mark.parametrize("stand", [False], indirect=True)
async def test_without_a_trace_the_process_is_queried(stand: Stand) -> None:
    """It reports an unknown value as -1."""
    row = {"id": 1, "point": "C.elected", "action": "hold", "topic": "log", "partition": 1, "epoch": -1,
           "peer": 100, "offset": -1, "count": 1, "time": 5, "held": True}
    stand.node.answers["points"] = {"met": [row, {**row, "topic": None, "peer": -1}], "armed": []}
    first, second = await stand.points.met("n2")
    assert (first.partition, first.epoch, first.peer, first.offset, first.held) == (
        4, None, CONTROLLER, None, True)
    assert (second.partition, second.peer) == (None, None)


@pytest.mark.parametrize("stand", [True, False], indirect=True)
async def test_an_armed_crash_is_expected_once_and_reported_from_then_on(stand: Stand) -> None:
    """Not before the exit is known. Another exit is not expected: of a later process, after a release, of one
    that was held."""
    await stand.points.arm("n2", CRASH)
    stand.matches(5, "crash")
    assert await stand.points.met("n2") == []
    stand.node.running = False
    assert stand.points.expects_exit("n2", -signal.SIGKILL)
    [met] = await stand.points.met("n2")
    assert (stand.points.crashes, met.name, met.action) == ([met], "F.truncated", "crash")
    stand.points.started("n2")
    assert not stand.points.expects_exit("n2", -signal.SIGKILL)
    stand.node.running = True
    await stand.points.arm("n2", CRASH)
    await stand.points.release("n2", {"name": "F.truncated"})
    assert not stand.points.expects_exit("n2", -signal.SIGKILL)
    await stand.points.arm("n2", HOLD)
    stand.matches(time.monotonic_ns())
    assert not stand.points.expects_exit("n2", -signal.SIGKILL)


async def test_releasing_all_disarms_all_and_reports_what_is_left(stand: Stand) -> None:
    """Pending ones too; a node that was never armed gets no request; one that refuses is reported."""
    assert await stand.points.release_all(NODES) == []
    assert stand.node.requests == []
    stand.node.running = False
    await stand.points.arm("n2", HOLD)
    stand.node.running = True
    stand.node.answers["points"] = {"met": [], "armed": [{"point": "F.hold"}]}
    assert await stand.points.release_all(NODES) == ["n2 has failpoints left: F.hold"]
    assert stand.armed() == ""
    stand.node.answers["release"] = "no"
    assert await stand.points.release_all(NODES) == [
        "n2 may still be held at a failpoint: n2 refused 'release': no"]


async def test_who_cannot_be_asked(stand: Stand) -> None:
    """A paused process would not read the request in time; one that ends while all are asked is left out; a
    partition must be known."""
    stand.node.is_paused = True
    with pytest.raises(FloodmarkError, match="n2 is paused, or down, and cannot be asked to arm"):
        await stand.points.arm("n2", HOLD)
    lives = iter([True, False])
    stand.lives = lambda name: next(lives)  # type: ignore[method-assign]
    assert await stand.points.sockets.ask_all("points", ["n2"], 1.0) == {}
    with pytest.raises(FloodmarkError, match="there is no partition 9"):
        control_sockets.point_request(NAMES, {"partition": 9})


async def test_answers_find_their_requests_in_any_order_and_none_is_an_error(stand: Stand) -> None:
    """A later one may be answered first. Silence, and nobody who listens, are told by name."""
    ask = stand.points.sockets.ask
    with pytest.raises(ControlError, match="n2 did not answer 'state' in"):
        await ask("n2", "state", timeout_s=0.1)
    waits = asyncio.create_task(ask("n2", "state"))
    while len(stand.node.requests) < 2:
        await asyncio.sleep(0.001)
    stand.node.answers["state"] = {"leo": 3}
    assert await ask("n2", "points") == stand.node.answers["points"]
    assert await waits == {"leo": 3}
    with pytest.raises(ControlError, match="n1 does not listen on its control socket"):
        await ask("n1", "state")

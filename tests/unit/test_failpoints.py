"""Failpoints as they are armed, counted and released; what is held at one is in golden/plays.txt."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from golden_text import refused_as_written
from machine_text import happened_as_written, shown

from floodmark.broker.server.config import ConfigError, parse_config
from floodmark.broker.testing.failpoint_requests import (
    CarriedEpochs,
    FailpointError,
    FailpointSite,
    parse_arm,
    parse_failpoint_setting,
    parse_release,
)
from floodmark.broker.testing.failpoints import Failpoints


def test_an_invalid_request_is_refused_with_what_is_valid(request: pytest.FixtureRequest) -> None:
    """Points, actions, keys, values, and combinations."""
    refused_as_written("arm", lambda one: parse_arm(one, "broker"), FailpointError, request)


def test_null_fields_are_ignored_and_those_of_the_control_socket() -> None:
    asked = {"id": 7, "do": "arm", "point": "L.hw", "action": "hold", "topic": None, "epoch": None}
    assert parse_arm(asked, "broker") == parse_arm({"point": "L.hw", "action": "hold"}, "broker")
    assert parse_release({"point": "C.elected", "through_epoch": 0}, "controller").keep


def test_the_key_of_the_properties_file() -> None:
    """The error has the line and the request's place in the array; the role decides which points exist."""
    head = "process.roles={0}\nnode.id=1\nlisteners=h:1\nlog.dirs=/d\ncontroller.quorum.voters=100@h:2\n"
    key = 'floodmark.failpoints=[{"point":"L.hw","action":"hold","topic":"a:b"}]\n'
    assert parse_config(head.format("broker") + key, "f")[0].failpoints[0]["topic"] == "a:b"
    with pytest.raises(ConfigError, match=r"f:6: floodmark.failpoints\[0\]: no point 'L.hw'; a controller"):
        parse_config(head.format("controller") + key, "f")
    with pytest.raises(ConfigError, match=r"f:6: floodmark.failpoints: not JSON"):
        parse_config(head.format("broker") + "floodmark.failpoints=[{]\n", "f")
    with pytest.raises(FailpointError, match="an array of objects"):
        parse_failpoint_setting('{"point":"L.hw"}')


class Player:
    """Plays the events of one story after another."""

    points: Failpoints

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner, self.traced, self.went_on = runner, list[str](), list[str]()

    def happens(self, event: str, *given: Any, **named: Any) -> Iterator[str]:
        self.traced.clear(), self.went_on.clear()
        try:
            told = self.runner.run(self.play(event, *given, **named))
        except FailpointError as error:
            yield f"! {error}"
            return
        parts = [*([told] if told else []), *([f"traced {', '.join(self.traced)}"] if self.traced else []),
                 *([f"goes on: {', '.join(self.went_on)}"] if self.went_on else [])]
        yield from [f"= {'; '.join(parts)}"] if parts else []

    async def play(self, event: str, *given: Any, **named: Any) -> str | None:
        told: str | None = getattr(self, event)(*given, **named)
        async with asyncio.timeout(20):
            await asyncio.sleep(0)
            while event == "passes" and not self.went_on:
                await asyncio.sleep(0.001)
        return told

    def begin(self, role: str = "broker") -> None:
        self.points = Failpoints(
            role, write_trace=lambda at, action: self.traced.append(f"{at.name}:{action}"))

    def passes(self) -> None:
        """Time, until a step goes on."""

    def arm(self, point: str, action: str, **more: Any) -> None:
        self.points.arm({"point": point, "action": action, **more})

    def meet(self, point: str = "F.appended", **more: Any) -> str:
        at = FailpointSite(**{"name": point, "topic": "t", "partition": 0, "epoch": 2, "peer": 1, "offset": 5,
                              **more})
        return self.points.meet(at, lambda: self.went_on.append(f"partition {at.partition}")).name

    def publish(self, peer: int, *epochs: int) -> str:
        """A message to this peer has the partitions' epochs."""
        at = FailpointSite(name="C.elected", topic="t", partition=0, peer=peer, epoch=epochs[0])
        carries = CarriedEpochs(epochs={("t", number): epoch for number, epoch in enumerate(epochs)})
        return self.points.meet(at, lambda: self.went_on.append(shown(epochs)), carried=carries).name

    def release(self, **which: Any) -> str:
        return f"{self.points.release(which)['released']} released"

    def met(self) -> str:
        """The points that are armed, and the steps that met one."""
        listed = self.points.list_points({})
        assert bool(listed["armed"]) == self.points.armed
        return "; ".join([f"{len(listed['armed'])} armed", *(
            f"{one['point']} {one['action']} {one['count']} offset {one['offset']}{' held' * one['held']}"
            for one in listed["met"])])


def test_what_failpoints_do(request: pytest.FixtureRequest) -> None:
    with asyncio.Runner() as runner:
        happened_as_written("failpoints.txt", Player(runner).happens, request)

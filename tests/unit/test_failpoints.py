"""Failpoints as they are armed, counted and released; and how far a step has got when it is held.

Below an event of golden/failpoints.txt: `=` what came of it, the trace's lines, which steps and effects went
on; `.` what a replica's log then has; `!` a refusal. `pytest --rewrite` writes those; then read the diff.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_text import refused_as_written
from machine_text import happened_as_written, shown

from floodmark.broker.protocol.messages import (
    NO_EPOCH,
    Append,
    Batch,
    FetchAnswer,
    FetchRequest,
    FetchResponse,
    HwMoved,
    LeaderAndIsr,
    Produce,
    ProduceAnswer,
    RoleChanged,
    SaveEpochs,
    Truncate,
)
from floodmark.broker.protocol.replica import RecoveredState, Replica, ReplicaConfig
from floodmark.broker.server.config import ConfigError, parse_config
from floodmark.broker.server.effect_runner import EffectRunner, HostedPartition
from floodmark.broker.storage.checkpoint_files import read_epoch_checkpoint
from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.failpoint_requests import (
    CarriedEpochs,
    FailpointError,
    FailpointSite,
    parse_arm,
    parse_failpoint_setting,
    parse_release,
)
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.broker.testing.trace import Trace


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


class OneReplica:
    """One replica of two, with its log on disk and its trace; `out` has the effects that left it."""

    def __init__(self, folder: Path, leader: int) -> None:
        self.out: list[str] = []
        (folder / "log").mkdir(parents=True)
        self.trace = folder / "trace"
        files = LogDirectory.open(folder / "log", None)
        self.log = LocalLog.open(files, "t", 0, topic_id="0" * 32)
        config = ReplicaConfig(min_insync_replicas=1, replica_lag_time_max_ms=1000)
        replica = Replica(me=1, config=config, rules=rules_for("kip-320"), recovered=RecoveredState())
        self.hosted = HostedPartition(
            topic="t", topic_id="0" * 32, partition=0, log=self.log, replica=replica, checkpointed_hw=0
        )
        sent = (HwMoved, RoleChanged, ProduceAnswer, FetchAnswer)
        carry_out = dict.fromkeys(sent, self._left) | {
            Append: lambda _, effect: self.log.append(effect.batches),
            Truncate: lambda _, effect: self.log.truncate(effect.to),
            SaveEpochs: lambda _, effect: self.log.save_epochs(effect.entries),
        }
        trace = Trace(self.trace, 1)
        self.points = Failpoints(write_trace=trace.write_failpoint)
        self.carrier = EffectRunner(carry_out, trace, self.points, lambda _: self.out.append("let go"))
        self.seen = 0
        self.leads(leader, 0)

    def _left(self, _: HostedPartition, effect: Any) -> None:
        self.out.append(type(effect).__name__)

    def leads(self, leader: int, epoch: int, isr: tuple[int, ...] = (1, 2)) -> None:
        self.carrier.post(self.hosted, LeaderAndIsr(
            now_ms=0, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=epoch, replicas=(1, 2),
            broker_epochs={1: 1, 2: 2}))

    def fetched(self, offset: int, epoch: int, hw: int) -> None:
        request = self.hosted.replica.next_request()
        assert isinstance(request, FetchRequest)
        one = Batch(base_offset=offset, last_offset=offset, epoch=epoch, data=bytes(100))
        self.carrier.post(self.hosted, FetchResponse(
            now_ms=0, leader=2, asked=request, error=0, hw=hw, diverging=None, batches=(one,)))

    def produced(self, acks: int) -> None:
        one = Batch(base_offset=0, last_offset=0, epoch=NO_EPOCH, data=bytes(100))
        self.carrier.post(self.hosted, Produce(
            now_ms=0, token=len(self.out), acks=acks, timeout_ms=1000, batches=(one,)))

    def lines(self) -> list[str]:
        """The events of the trace's new lines."""
        new = self.trace.read_text().splitlines()[self.seen:]
        self.seen += len(new)
        return [line.partition('"event":"')[2].partition('"')[0] for line in new]

    def state(self) -> str:
        one = self.hosted
        epochs = read_epoch_checkpoint(self.trace.parent / "log" / "t-0" / "leader-epoch-checkpoint") or ()
        return (f"LEO {self.log.leo}, HW {one.visible_hw}, checkpointable {one.checkpointable_hw}, "
                f"epochs {shown(epochs)}; events that wait: {len(one.deferred_events)}")


class Player:
    """Plays the events of one story after another: of failpoints alone, or of a replica with some."""

    points: Failpoints
    replica_: OneReplica | None

    def __init__(self, runner: asyncio.Runner, folder: Path) -> None:
        self.runner, self.folder = runner, folder
        self.traced, self.went_on, self.stories = list[str](), list[str](), 0

    def happens(self, event: str, *given: Any, **named: Any) -> Iterator[str]:
        state = self.replica_ and self.replica_.state() if event not in ("begin", "replica") else None
        self.traced.clear(), self.went_on.clear()
        try:
            told = self.runner.run(self.play(event, *given, **named))
        except FailpointError as error:
            told = f"! {error}"
        if (one := self.replica_) is not None:
            self.traced, self.went_on = one.lines(), one.out
        parts = [*([told] if told else []), *([f"traced {', '.join(self.traced)}"] if self.traced else []),
                 *([f"goes on: {', '.join(self.went_on)}"] if self.went_on else [])]
        yield from [f"= {'; '.join(parts)}".removeprefix("= " if parts[0][0] == "!" else "")] if parts else []
        yield from [f". {one.state()}"] if one and one.state() != state else []

    async def play(self, event: str, *given: Any, **named: Any) -> str | None:
        told: str | None = getattr(self if hasattr(self, event) else self.replica_, event)(*given, **named)
        async with asyncio.timeout(20):
            await asyncio.sleep(0)
            while event == "passes" and not self.went_on:
                await asyncio.sleep(0.001)
        return told

    def begin(self, role: str = "broker") -> None:
        self.replica_ = None
        self.points = Failpoints(
            role, write_trace=lambda at, action: self.traced.append(f"{at.name}:{action}"))

    def replica(self, leader: int) -> None:
        self.stories += 1
        self.replica_ = OneReplica(self.folder / str(self.stories), leader)
        self.points = self.replica_.points

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


def test_what_failpoints_do(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with asyncio.Runner() as runner:
        happened_as_written("failpoints.txt", Player(runner, tmp_path).happens, request)

"""Failpoints as they are armed, counted and released; and how far a step has got when it is held."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from golden_text import refused_as_written

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
from floodmark.broker.testing.armed_failpoint import Fate
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


def site(name: str = "F.appended", **besides: Any) -> FailpointSite:
    usual = {"name": name, "topic": "t", "partition": 0, "epoch": 2, "peer": 1, "offset": 5}
    return FailpointSite(**{**usual, **besides})


def fates(points: Failpoints, *sites: FailpointSite, go_on: Callable[[], None] = lambda: None) -> list[Fate]:
    """The fate of each, in an event loop."""

    async def play() -> list[Fate]:
        return [points.meet(each, go_on) for each in sites]

    return asyncio.run(play())


# -- requests to arm -----------------------------------------------------------------------------------


def test_an_invalid_request_is_refused_with_what_is_valid(request: pytest.FixtureRequest) -> None:
    """Points, actions, keys, values, and combinations."""
    refused_as_written("arm", lambda one: parse_arm(one, "broker"), FailpointError, request)


def test_releases_are_read_as_strictly() -> None:
    """through_epoch is only for points of the controller's messages. Null fields are ignored, as are those of
    the control socket itself."""
    request_ = {"id": 7, "do": "arm", "point": "L.hw", "action": "hold", "topic": None, "epoch": None}
    assert parse_arm(request_, "broker") == parse_arm({"point": "L.hw", "action": "hold"}, "broker")
    with pytest.raises(FailpointError, match="through_epoch is for the point"):
        parse_release({"through_epoch": 1}, "controller")
    with pytest.raises(FailpointError, match="release knows no action; there are: point, topic"):
        parse_release({"action": "hold"}, "broker")
    with pytest.raises(FailpointError, match="keep is true or false"):
        parse_release({"keep": 1}, "broker")
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


# -- steps at the points -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("condition", "near_miss"), [
    ({"topic": "t"}, {"topic": "u"}), ({"partition": 0}, {"partition": 1}), ({"epoch": 2}, {"epoch": 3}),
    ({"peer": 1}, {"peer": 2}), ({"offset": 5}, {"offset": 4}), ({"offset": 5}, {"offset": 6, "last": 7}),
    ({"offset": 5}, {"offset": 3, "last": 4}), ({"offset": 5}, {"offset": -1}),
])
def test_conditions(condition: Mapping[str, Any], near_miss: Mapping[str, Any]) -> None:
    """Each rejects its near miss; a missing one matches anything; an offset may lie inside a batch."""
    points = Failpoints()
    points.arm({"point": "F.appended", "action": "hold", "times": 0, **condition})

    assert fates(points, site(**near_miss)) == [Fate.GO]
    assert fates(points, site(), site(offset=3, last=5)) == [Fate.HELD] * 2
    assert fates(points, site("F.truncated")) == [Fate.GO]


def test_skip_then_times_and_then_disarmed() -> None:
    """The first two are counted, the next two held; then nothing is armed and no step checks."""
    points = Failpoints()
    points.arm({"point": "F.appended", "action": "hold", "skip": 2, "times": 2})
    go, held = Fate.GO, Fate.HELD

    assert fates(points, *[site()] * 3) == [go, go, held]
    assert points.armed
    assert fates(points, *[site()] * 2) == [held, go]
    assert not points.armed
    listed = points.list_points({})
    assert listed["armed"] == []
    assert [(each["count"], each["held"], each["action"]) for each in listed["met"]] == [
        (3, True, "hold"), (4, True, "hold"),
    ]  # fmt: skip


def test_after_a_report_the_next_failpoint_acts() -> None:
    """In the order of arming; a dropped message meets no later one. The trace records each first."""
    traced: list[tuple[str, str]] = []
    points = Failpoints(write_trace=lambda at, action: traced.append((at.name, action)))
    for action in ("report", "drop", "duplicate"):
        points.arm({"point": "F.fetch_resp", "action": action, "times": 0})

    assert fates(points, site("F.fetch_resp")) == [Fate.DROPPED]
    assert traced == [("F.fetch_resp", "report"), ("F.fetch_resp", "drop")]


async def test_releases() -> None:
    """Once; by point or all; a release that matches nothing is refused with what is held and armed."""
    points, released = Failpoints(), []
    number = points.arm({"point": "F.appended", "action": "hold", "times": 0})["id"]
    with pytest.raises(FailpointError, match=f"armed already, as id {number}"):
        points.arm({"point": "F.appended", "action": "hold", "times": 0})
    for at in range(3):
        points.meet(site(partition=at), lambda at=at: released.append(at))
    assert points.release({"point": "F.appended", "partition": 1, "keep": True}) == {"released": 1}
    await asyncio.sleep(0)
    assert released == [1]
    assert points.armed
    with pytest.raises(FailpointError, match=r"held: F.appended, F.appended; armed: F.appended"):
        points.release({"point": "L.acked"})
    assert points.release({"partition": 0}) == {"released": 1}
    assert not points.armed
    assert points.release({}) == {"released": 1}
    assert points.release({}) == {"released": 0}
    with pytest.raises(FailpointError, match="held: nothing; armed: nothing"):
        points.release({"point": "F.appended"})
    await asyncio.sleep(0)
    assert released == [1, 0, 2]
    assert not any(each["held"] for each in points.list_points({})["met"])


async def test_a_delay_ends_by_itself_or_is_released_before() -> None:
    """The step continues once."""
    points, released = Failpoints(), []
    over = asyncio.Event()
    points.arm({"point": "F.appended", "action": "delay", "for_ms": 20, "times": 2})
    assert points.meet(site(partition=0), lambda: released.append("early")) is Fate.HELD
    assert points.release({"partition": 0, "keep": True}) == {"released": 1}
    assert points.meet(site(partition=1), over.set) is Fate.HELD
    async with asyncio.timeout(20):
        await over.wait()
    assert released == ["early"]
    assert points.release({}) == {"released": 0}


async def test_a_held_message_holds_all_later_ones_to_that_peer() -> None:
    """Up to the release, which names its last epoch; messages to other peers pass."""
    points, released = Failpoints("controller"), []

    def publish(peer: int, *epochs: int) -> Fate:
        at = site("C.elected", peer=peer, epoch=epochs[0])
        carries = CarriedEpochs(epochs={("t", number): epoch for number, epoch in enumerate(epochs)})
        return points.meet(at, lambda: released.append((peer, epochs)), carried=carries)

    points.arm({"point": "C.elected", "action": "hold", "epoch": 2, "partition": 0})
    assert publish(1, 1, 0) is Fate.GO
    assert publish(1, 2, 0) is Fate.HELD
    assert publish(2, 2, 0) is Fate.GO  # armed for one step
    assert [publish(1, 2, 1), publish(1, 3, 1), publish(1, 3, 2)] == [Fate.HELD] * 3
    through = {"point": "C.elected", "topic": "t", "partition": 0, "through_epoch": 2}
    assert points.release(through) == {"released": 2}
    assert points.release(through) == {"released": 0}
    assert publish(1, 3, 3) is Fate.HELD
    assert points.release({"point": "C.elected", "partition": 1, "through_epoch": 2}) == {"released": 2}
    with pytest.raises(FailpointError, match="nothing of that kind"):
        points.release({"point": "C.elected", "peer": 2})
    assert points.release({"point": "C.elected", "peer": 1}) == {"released": 1}
    await asyncio.sleep(0)
    assert [epochs for _, epochs in released] == [(2, 0), (2, 1), (3, 1), (3, 2), (3, 3)]
    assert publish(1, 4, 4) is Fate.GO


# -- a replica with held steps -----------------------------------------------------------------------------


class OneReplica:
    """One replica of two, with its log on disk and its trace; `out` has the effects that left it."""

    def __init__(self, folder: Path, leader: int) -> None:
        self.out: list[str] = []
        (folder / "log").mkdir()
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

    def produced(self, acks: int = 1) -> None:
        one = Batch(base_offset=0, last_offset=0, epoch=NO_EPOCH, data=bytes(100))
        self.carrier.post(self.hosted, Produce(
            now_ms=0, token=len(self.out), acks=acks, timeout_ms=1000, batches=(one,)))

    def lines(self) -> list[str]:
        text = self.trace.read_text().splitlines()
        return [line.partition('"event":"')[2].partition('"')[0] for line in text]


async def test_held_between_append_and_hw(tmp_path: Path) -> None:
    """The trace has the append; the HW, its checkpoint and later events wait, in order."""
    one = OneReplica(tmp_path, leader=2)
    one.points.arm({"point": "F.appended", "action": "hold", "offset": 0})
    one.fetched(0, 0, hw=1)
    assert one.lines()[-2:] == ["append", "failpoint"]
    assert (one.log.leo, one.hosted.visible_hw, one.hosted.checkpointable_hw) == (1, 0, 0)
    one.leads(1, 1)
    one.produced()
    assert len(one.hosted.deferred_events) == 2
    assert one.out == ["RoleChanged"]
    one.points.release({})
    await asyncio.sleep(0)
    assert (one.hosted.held_step, one.hosted.checkpointable_hw, one.log.leo) == (None, 1, 2)
    assert one.lines()[-6:] == ["failpoint", "hw", "become_leader", "checkpoint", "append", "ack"]
    assert one.out == ["RoleChanged", "RoleChanged", "ProduceAnswer", "let go"]


async def test_held_twice_in_one_step(tmp_path: Path) -> None:
    """Alone in its ISR: the HW moves, then the ack is sent; each can be held, the next produce waits."""
    one = OneReplica(tmp_path, leader=1)
    one.leads(1, 1, isr=(1,))
    one.points.arm({"point": "L.hw", "action": "hold"})
    one.points.arm({"point": "L.acked", "action": "hold", "offset": 0})
    one.out.clear()
    one.produced(acks=-1)
    one.produced(acks=-1)
    assert one.out == ["HwMoved"]
    assert one.lines()[-3:] == ["append", "hw", "failpoint"]
    one.points.release({"point": "L.hw"})
    await asyncio.sleep(0)
    assert one.out == ["HwMoved", "ProduceAnswer", "let go"]
    assert (one.log.leo, one.lines()[-2:]) == (1, ["ack", "failpoint"])
    one.points.release({})
    await asyncio.sleep(0)
    assert one.log.leo == 2
    assert one.out[3:] == ["HwMoved", "ProduceAnswer", "let go"]


async def test_an_elected_leader_is_held_after_its_epoch_and_before_all_else(tmp_path: Path) -> None:
    """Alone in its ISR it would move the HW at once."""
    one = OneReplica(tmp_path, leader=2)
    one.fetched(0, 0, hw=0)
    one.points.arm({"point": "L.elected", "action": "hold", "epoch": 1})
    one.out.clear()
    one.leads(1, 1, isr=(1,))
    assert (one.lines()[-3:], one.out) == (["become_leader", "checkpoint", "failpoint"], [])
    assert read_epoch_checkpoint(tmp_path / "log" / "t-0" / "leader-epoch-checkpoint") == ((0, 0), (1, 1))
    one.points.release({})
    await asyncio.sleep(0)
    assert (one.lines()[-1], one.out) == ("hw", ["HwMoved", "RoleChanged", "let go"])


async def test_only_a_produce_that_waits_is_at_p_parked(tmp_path: Path) -> None:
    """Appended with acks=all and not yet acked."""
    one = OneReplica(tmp_path, leader=1)
    one.points.arm({"point": "P.parked", "action": "report", "times": 0})
    one.produced(acks=1)
    one.produced(acks=-1)
    assert [each["offset"] for each in one.points.list_points({})["met"]] == [1]

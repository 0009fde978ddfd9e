"""The trace lines of a step: which lines, in which order, each with the state after it."""

from collections.abc import Sequence
from typing import Any

import pytest

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.controller import Controller, ControllerConfig
from floodmark.broker.protocol.messages import (
    CONSUMER,
    AlterPartitionResponse,
    AlterTopic,
    Batch,
    CreateTopic,
    DeleteTopic,
    EpochEnd,
    Expire,
    Fetch,
    FetchRequest,
    FetchResponse,
    GrowTopic,
    Heartbeat,
    LeaderAndIsr,
    LogEndsRequest,
    LogEndsResponse,
    Persist,
    Produce,
    ProposeIsr,
    Register,
    ReplicaEvent,
    Tick,
)
from floodmark.broker.protocol.replica import RecoveredState, Replica, ReplicaConfig
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.trace_events import (
    RecoveredLogSummary,
    controller_lines,
    missing_lines,
    replica_lines,
    start_lines,
    take_snapshot,
)

ISR = (1, 2, 3)


def replica(*batches: tuple[int, int, int], hw: int = 0, rules: str = "kip-320", bugs: Sequence[str] = ()
            ) -> Replica:
    """Replica 1 with batches (first, last, epoch)."""
    frames = [Batch(base_offset=first, last_offset=last, epoch=epoch) for first, last, epoch in batches]
    return Replica(
        me=1, config=ReplicaConfig(min_insync_replicas=2), rules=rules_for(rules, bugs),
        recovered=RecoveredState(batches=frames, hw=hw),
    )  # fmt: skip


def traced(one: Replica, event: ReplicaEvent) -> list[dict[str, Any]]:
    before = take_snapshot(one)
    effects = one.step(event)
    return [dict(line) for line in replica_lines(before, event, effects, take_snapshot(one))]


def brief(lines: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """(event, LEO, HW)."""
    return [(line["event"], line["leo"], line["hw"]) for line in lines]


def leads(epoch: int = 1, leader: int = 1, isr: tuple[int, ...] = ISR, partition_epoch: int = 4
          ) -> LeaderAndIsr:
    return LeaderAndIsr(
        now_ms=0, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=partition_epoch, replicas=ISR,
        broker_epochs={1: 11, 2: 12, 3: 13},
    )  # fmt: skip


def produce(count: int = 1, acks: int = -1) -> Produce:
    batch = Batch(base_offset=0, last_offset=count - 1, epoch=-1)
    return Produce(now_ms=0, token=None, acks=acks, timeout_ms=1_000, batches=(batch,))


def fetch(follower: int, offset: int, *, again: bool = False, epoch: int = 1, last: int = 1) -> Fetch:
    return Fetch(
        now_ms=0, token=None, replica=follower, broker_epoch=10 + follower, offset=offset,
        current_leader_epoch=epoch, last_fetched_epoch=last, again=again,
    )  # fmt: skip


def response_of(one: Replica, *batches: Batch, hw: int = 0, diverging: EpochEnd | None = None
                ) -> FetchResponse:
    request = one.next_request()
    assert isinstance(request, FetchRequest)
    return FetchResponse(
        now_ms=0, leader=one.leader, asked=request, error=0, hw=hw, diverging=diverging, batches=batches
    )


def test_a_retry_of_an_appended_batch_is_acked_with_its_own_last_offset() -> None:
    one = replica()
    traced(one, leads())
    batch = Batch(base_offset=0, last_offset=1, epoch=-1, producer_id=7, producer_epoch=0, base_sequence=0)
    event = Produce(now_ms=0, token=None, acks=1, timeout_ms=1_000, batches=(batch,))
    traced(one, event)
    traced(one, produce(acks=1))
    (ack,) = traced(one, event)
    assert (ack["event"], ack["offset"], ack["leo"]) == ("ack", 1, 3)


@pytest.mark.parametrize(
    "event",
    [
        fetch(CONSUMER, 0),
        fetch(2, 0, again=True),
        fetch(2, 0, epoch=0),
        fetch(2, 9, last=-1),
        fetch(4, 0),
        produce(acks=7),
        Tick(now_ms=1),
    ],
    ids=["a client's", "woken", "fenced", "out of range", "of no replica", "refused", "nothing"],
)
def test_an_event_without_effect_is_not_traced(event: ReplicaEvent) -> None:
    one = replica((0, 0, 0))
    traced(one, leads())
    assert traced(one, event) == []


def test_a_diverging_fetch_is_traced_with_where_it_diverges() -> None:
    """It is traced, for it proves what the follower's log held."""
    one = replica((0, 1, 0))
    traced(one, leads())
    (line,) = traced(one, fetch(2, 3, last=0))
    assert (line["event"], line["offset"], line["diverging"]) == ("fetch", 3, (0, 2))


def test_a_follower_appends_and_learns_the_hw_and_a_truncation_takes_the_hw_along() -> None:
    """With the leader's answer that it follows from."""
    one = replica((0, 1, 0))
    traced(one, leads(leader=2))
    batches = [Batch(base_offset=2, last_offset=2, epoch=0), Batch(base_offset=3, last_offset=3, epoch=1)]
    lines = {line["event"]: line for line in traced(one, response_of(one, *batches, hw=4))}
    assert (lines["append"]["role"], lines["append"]["count"], lines["append"]["hw"]) == ("follower", 2, 0)
    assert lines["append"]["epochs"] == [(0, 2), (1, 3)]
    assert lines["checkpoint"]["value"][-1] == (1, 3)
    assert (lines["hw"]["role"], lines["hw"]["hw"]) == ("follower", 4)
    traced(one, leads(epoch=2, leader=3))
    line, *_ = traced(one, response_of(one, diverging=EpochEnd(epoch=0, end_offset=2)))
    assert (line["event"], line["from"], line["to"], line["hw"]) == ("truncate", 4, 2, 2)
    assert line["answer"] == {"epoch": 0, "end": 2}


def test_a_log_that_starts_anew_is_traced_as_a_truncation() -> None:
    one = replica((0, 1, 0), hw=2)
    traced(one, leads(leader=2))
    out_of_range = response_of(one)
    traced(one, FetchResponse(now_ms=0, leader=2, asked=out_of_range.asked, error=errors.OFFSET_OUT_OF_RANGE,
                              hw=0, diverging=None, batches=()))
    request = one.next_request()
    assert isinstance(request, LogEndsRequest)
    response = LogEndsResponse(now_ms=0, leader=2, asked=request, error=0, log_start=9, log_end=12)
    line, *_ = traced(one, response)
    assert (line["event"], line["from"], line["to"], line["leo"], line["hw"]) == ("truncate", 2, 9, 9, 9)


def test_a_follower_takes_its_role_before_it_truncates_and_a_leader_after() -> None:
    """Before KIP-101 a follower truncated to its HW; the bug in which a leader does too is traced as well."""
    one = replica((0, 1, 0), (2, 2, 0), hw=2, rules="high-watermark")
    assert brief(traced(one, leads(leader=2))) == [("become_follower", 3, 2), ("truncate", 2, 2)]
    one = replica((0, 1, 0), (2, 2, 0), hw=2, bugs=["leader_trunc"])
    lines = traced(one, leads())
    assert brief(lines)[:2] == [("truncate", 2, 2), ("become_leader", 2, 2)]
    assert lines[0]["epoch"] == lines[1]["epoch"] == 1
    assert (lines[1]["start"], lines[1]["isr"]) == (2, ISR)


def test_an_isr_is_proposed_after_the_fetch_that_causes_it_and_learnt_before_the_hw_moves() -> None:
    one = replica()
    traced(one, leads(isr=(1, 2)))
    traced(one, produce())
    traced(one, fetch(2, 1))
    lines = traced(one, fetch(3, 1, last=1))
    assert [line["event"] for line in lines] == ["fetch", "isr_proposed"]
    assert (lines[1]["isr"], lines[1]["partition_epoch"]) == (ISR, 4)
    traced(one, produce())
    traced(one, fetch(2, 2))
    assert brief(traced(one, fetch(3, 1)))[-1] == ("fetch", 2, 1)
    proposal = ProposeIsr(leader_epoch=1, partition_epoch=4, isr=((1, 11), (2, 12), (3, 13)))
    late_ms = 60_000  # 3 is no longer about to join, so the HW does not wait for it
    answer = AlterPartitionResponse(now_ms=late_ms, proposal=proposal, error=0, leader_epoch=1, isr=(1, 2),
                           partition_epoch=5)
    lines = traced(one, answer)
    assert brief(lines) == [("isr", 2, 1), ("hw", 2, 2), ("ack", 2, 2)]
    assert (lines[0]["leader"], lines[0]["isr"], lines[0]["partition_epoch"]) == (1, (1, 2), 5)
    assert traced(one, answer) == []


def test_a_produce_that_fails_is_no_ack() -> None:
    """It waits in purgatory, then another node leads: its records stay, and no ack is traced."""
    one = replica()
    traced(one, leads())
    traced(one, produce())
    assert brief(traced(one, leads(epoch=2, leader=2))) == [("become_follower", 1, 0)]


def test_an_ack_names_the_isr_as_its_leader_counts_it() -> None:
    """With an expansion in flight that is the larger one (KIP-497)."""
    one = replica()
    traced(one, leads(isr=(1, 2)))
    traced(one, fetch(3, 0))
    traced(one, produce())
    traced(one, fetch(2, 1))
    assert traced(one, fetch(3, 1))[-1]["isr"] == ISR


def test_a_follower_that_learns_of_another_isr_has_no_line() -> None:
    one = replica()
    traced(one, leads(leader=2))
    assert traced(one, leads(leader=2, isr=(2, 3), partition_epoch=5)) == []


def test_a_start_has_a_line_of_its_own_and_one_for_each_log() -> None:
    log = RecoveredLogSummary(topic="log", partition=0, log_start=1, leo=3, hw=2,
                              batches=[Batch(base_offset=1, last_offset=2, epoch=4)])
    own, found = start_lines(False, [log])
    assert own == {"event": "start", "clean": False}
    assert found == {"event": "start", "topic": "log", "partition": 0, "epoch": -1, "leo": 3, "hw": 2,
                     "clean": False, "log_start": 1, "epochs": [(4, 1)]}


# -- the controller ---------------------------------------------------------------------------------------


class TracedController:
    """A controller whose steps are traced."""

    def __init__(self, rules: str = "kip-320", bugs: Sequence[str] = (), *, unclean: bool = False) -> None:
        config = ControllerConfig(unclean_leader_election=unclean)
        self.controller = Controller(config, (), rules_for(rules, bugs))
        self.journal: list[Any] = []

    def step(self, event: Any) -> list[dict[str, Any]]:
        before = self.controller.metadata()
        lines: list[dict[str, Any]] = []
        for effect in self.controller.step(event):
            if isinstance(effect, Persist):
                self.journal += effect.records
                lines += [dict(line) for line in controller_lines(before, event, effect.records)]
        return lines

    def register(self, broker: int, incarnation: str = "a", *, clean: bool = False) -> list[dict[str, Any]]:
        return self.step(Register(now_ms=0, token=None, broker=broker, incarnation=incarnation, host="h",
                                  port=1, clean=clean))

    def heartbeat(self, broker: int, *, stopping: bool = False) -> list[dict[str, Any]]:
        epoch = self.controller.metadata().broker_epochs.get(broker, broker - 1)
        return self.step(Heartbeat(now_ms=0, token=None, broker=broker, broker_epoch=epoch,
                                   metadata_version=99, stopping=stopping))

    def create(self) -> list[dict[str, Any]]:
        for broker in ISR:
            self.register(broker)
        for broker in ISR:
            self.heartbeat(broker)
        return self.step(CreateTopic(now_ms=0, token=None, topic="log", topic_id="0" * 32, partitions=1,
                                     replication_factor=3, assignment=(ISR,), configs={}))

    def expire(self, broker: int) -> list[dict[str, Any]]:
        return self.step(Expire(now_ms=0, token=None, broker=broker))


def events(lines: Sequence[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


def test_a_bounce_that_is_overlooked_is_a_registration_that_is_not_fenced() -> None:
    """KAFKA-1120: nothing else changes."""
    controller = TracedController(bugs=["no_epoch_bump_on_bounce"])
    controller.create()
    assert events(controller.register(1, "b")) == ["register", "unfence"]
    right = TracedController()
    right.create()
    assert events(right.register(1, "b")) == ["register", "elect"]


def told(line: dict[str, Any]) -> str:
    """An event of the controller in brief: its version, of whom, and why."""
    whom = line.get("broker", f"{line.get('partition')} {line.get('leader')} in {line.get('epoch')}")
    clean = {True: ", clean", False: ", unclean"}.get(line.get("clean"), "")
    cause = f", {line['cause']}" if "cause" in line else ""
    return f"{line['version']}: {line['event']} {whom}{clean}{cause}"


def test_the_lines_of_a_controllers_life() -> None:
    """Each change of a broker or a partition has a line; a config makes a version and no line."""
    one = TracedController(unclean=True)
    story = [
        one.register(1, clean=True), one.register(2), one.heartbeat(1), one.heartbeat(2),
        one.step(CreateTopic(now_ms=0, token=None, topic="log", topic_id="0" * 32, partitions=1,
                             replication_factor=2, assignment=((1, 2),), configs={})),
        one.step(AlterTopic(now_ms=0, token=None, topic="log", configs={"flush.messages": "1"})),
        one.step(GrowTopic(now_ms=0, token=None, topic="log", partitions=2, assignment=((2, 1),))),
        one.expire(1), one.expire(2), one.heartbeat(1),
        one.step(DeleteTopic(now_ms=0, token=None, topic="log")),
        one.step(CreateTopic(now_ms=0, token=None, topic="log", topic_id="1" * 32, partitions=1,
                             replication_factor=1, assignment=((1,),), configs={})),
    ]
    assert [told(line) for lines in story for line in lines] == [
        "1: register 1, clean", "2: register 2, unclean", "3: unfence 1", "4: unfence 2",
        "5: elect 0 1 in 0, clean, created", "7: elect 1 2 in 0, clean, created", "8: fence 1",
        "9: elect 0 2 in 1, clean, expired", "10: isr 1 2 in 0, expired", "11: fence 2",
        "12: isr 0 -1 in 2, expired", "13: isr 1 -1 in 1, expired", "14: unfence 1",
        "15: elect 0 1 in 3, unclean, heartbeat", "16: elect 1 1 in 2, unclean, heartbeat",
        "18: elect 0 1 in 0, clean, created",
    ]


def test_durable_records_that_were_not_traced_are_traced_at_the_next_start() -> None:
    """All of them, from any version; none where all were traced. Records without a line (of a broker, of
    configs) count too."""
    controller = TracedController()
    lines = controller.create()
    controller.step(AlterTopic(now_ms=0, token=None, topic="log", configs={"flush.messages": "1"}))
    controller.heartbeat(3, stopping=True)
    lines = [dict(line) for line in missing_lines(controller.journal, 0)]
    assert events(lines) == ["register"] * 3 + ["unfence"] * 3 + ["elect", "isr"]
    assert [line["version"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 10]
    for version in range(11):
        rest = [line for line in lines if line["version"] > version]
        assert events([dict(line) for line in missing_lines(controller.journal, version)]) == events(rest)

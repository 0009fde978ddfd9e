"""What a step means as lines of the trace: which lines, in which order, each with the state after it."""

from collections.abc import Sequence
from typing import Any

import pytest

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.controller import Controller, ControllerConfig
from floodmark.broker.protocol.messages import (
    CONSUMER,
    AlterPartitionResponse,
    Batch,
    CreateTopic,
    Elect,
    EpochEnd,
    Expire,
    Fetch,
    FetchRequest,
    FetchResponse,
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
    checkpoint_line,
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


def told(one: Replica, event: ReplicaEvent) -> list[dict[str, Any]]:
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


def answered(one: Replica, *batches: Batch, hw: int = 0, diverging: EpochEnd | None = None) -> FetchResponse:
    wish = one.next_request()
    assert isinstance(wish, FetchRequest)
    return FetchResponse(
        now_ms=0, leader=2, asked=wish, error=0, hw=hw, log_start=0, diverging=diverging, batches=batches
    )


def test_an_append_shows_the_hw_before_it_moved_then_comes_the_move_then_the_ack() -> None:
    one = replica()
    told(one, leads())
    assert brief(told(one, produce(2))) == [("append", 2, 0)]
    assert brief(told(one, fetch(2, 2))) == [("fetch", 2, 0)]
    lines = told(one, fetch(3, 2))
    assert brief(lines) == [("fetch", 2, 0), ("hw", 2, 2), ("ack", 2, 2)]
    assert (lines[0]["follower"], lines[0]["offset"], lines[0]["follower_epoch"]) == (3, 2, 1)
    assert (lines[2]["offset"], lines[2]["acks"], lines[2]["isr"]) == (1, "all", ISR)


@pytest.mark.parametrize(("acks", "word"), [(0, "0"), (1, "1")])
def test_an_ack_of_the_leader_alone_says_so_and_shows_the_hw_it_had(acks: int, word: str) -> None:
    one = replica()
    told(one, leads())
    append, ack = told(one, produce(3, acks))
    assert (append["offset"], append["count"], append["epochs"]) == (0, 3, [(1, 0)])
    assert (ack["event"], ack["offset"], ack["acks"], ack["hw"]) == ("ack", 2, word, 0)


def test_a_retry_of_what_is_here_is_acked_by_its_own_last_offset() -> None:
    one = replica()
    told(one, leads())
    batch = Batch(base_offset=0, last_offset=1, epoch=-1, producer_id=7, producer_epoch=0, base_sequence=0)
    event = Produce(now_ms=0, token=None, acks=1, timeout_ms=1_000, batches=(batch,))
    told(one, event)
    told(one, produce(acks=1))
    (ack,) = told(one, event)
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
def test_what_has_not_come_about_is_not_told(event: ReplicaEvent) -> None:
    one = replica((0, 0, 0))
    told(one, leads())
    assert told(one, event) == []


def test_a_produce_that_fails_is_no_ack() -> None:
    """Parked, then the leader is another's: its records stay, nobody is told that they are committed."""
    one = replica()
    told(one, leads())
    told(one, produce())
    assert brief(told(one, leads(epoch=2, leader=2))) == [("become_follower", 1, 0)]


def test_a_follower_appends_then_moves_its_hw_and_tells_the_epochs_of_the_records() -> None:
    one = replica((0, 1, 0), hw=1)
    assert brief(told(one, leads(epoch=5, leader=2))) == [("become_follower", 2, 1)]
    batches = [Batch(base_offset=2, last_offset=4, epoch=3), Batch(base_offset=5, last_offset=5, epoch=5)]
    lines = told(one, answered(one, *batches, hw=4))
    assert brief(lines) == [("checkpoint", 2, 1), ("append", 6, 1), ("hw", 6, 4)]
    assert lines[1]["epochs"] == [(3, 2), (5, 5)]
    assert lines[2]["role"] == "follower"


def test_a_hw_that_stands_still_is_not_told() -> None:
    one = replica((0, 1, 0), hw=2)
    told(one, leads(leader=2))
    assert told(one, answered(one, hw=2)) == []


def test_a_follower_that_diverges_truncates_and_its_hw_falls_with_its_log() -> None:
    """The truncation itself shows the HW; no line of its own follows."""
    one = replica((0, 1, 0), (2, 4, 0), hw=5)
    told(one, leads(epoch=2, leader=2))
    lines = told(one, answered(one, diverging=EpochEnd(epoch=0, end_offset=2)))
    assert brief(lines) == [("truncate", 2, 2)]
    assert (lines[0]["from"], lines[0]["to"]) == (5, 2)


def test_a_leader_that_finds_a_fetch_diverging_says_where() -> None:
    """It is told, for it proves what the follower held; nobody is credited by it."""
    one = replica((0, 1, 0))
    told(one, leads())
    (line,) = told(one, fetch(2, 3, last=0))
    assert (line["event"], line["offset"], line["diverging"]) == ("fetch", 3, (0, 2))
    assert one.remote_leos[2] == -1


def test_a_log_begun_anew_is_a_truncation_too() -> None:
    one = replica((0, 1, 0), hw=2)
    told(one, leads(leader=2))
    out_of_range = answered(one)
    told(one, FetchResponse(now_ms=0, leader=2, asked=out_of_range.asked, error=errors.OFFSET_OUT_OF_RANGE,
                            hw=0, log_start=0, diverging=None, batches=()))
    wish = one.next_request()
    assert isinstance(wish, LogEndsRequest)
    line, *_ = told(one, LogEndsResponse(now_ms=0, leader=2, asked=wish, error=0, log_start=9, log_end=12))
    assert (line["event"], line["from"], line["to"], line["leo"], line["hw"]) == ("truncate", 2, 9, 9, 9)


def test_a_follower_takes_its_role_before_it_cuts_and_a_leader_after() -> None:
    """Before KIP-101 a follower cut at its HW; the bug that a leader does is known too."""
    one = replica((0, 1, 0), (2, 2, 0), hw=2, rules="high-watermark")
    assert brief(told(one, leads(leader=2))) == [("become_follower", 3, 2), ("truncate", 2, 2)]
    one = replica((0, 1, 0), (2, 2, 0), hw=2, bugs=["leader_trunc"])
    lines = told(one, leads())
    assert brief(lines)[:2] == [("truncate", 2, 2), ("become_leader", 2, 2)]
    assert lines[0]["epoch"] == lines[1]["epoch"] == 1
    assert (lines[1]["start"], lines[1]["isr"]) == (2, ISR)


def test_an_isr_is_proposed_on_what_it_builds_and_learnt_before_what_it_moves() -> None:
    one = replica()
    told(one, leads(isr=(1, 2)))
    told(one, produce())
    told(one, fetch(2, 1))
    lines = told(one, fetch(3, 1, last=1))
    assert [line["event"] for line in lines] == ["fetch", "isr_proposed"]
    assert (lines[1]["isr"], lines[1]["partition_epoch"]) == (ISR, 4)
    told(one, produce())
    told(one, fetch(2, 2))
    assert brief(told(one, fetch(3, 1)))[-1] == ("fetch", 2, 1)
    proposal = ProposeIsr(leader_epoch=1, partition_epoch=4, isr=((1, 11), (2, 12), (3, 13)))
    late_ms = 60_000  # 3 is no longer one that is about to join, for which the HW would wait
    answer = AlterPartitionResponse(now_ms=late_ms, proposal=proposal, error=0, leader_epoch=1, isr=(1, 2),
                           partition_epoch=5)
    lines = told(one, answer)
    assert brief(lines) == [("isr", 2, 1), ("hw", 2, 2), ("ack", 2, 2)]
    assert (lines[0]["leader"], lines[0]["isr"], lines[0]["partition_epoch"]) == (1, (1, 2), 5)
    assert told(one, answer) == []


def test_an_ack_names_the_isr_as_its_leader_counts_it() -> None:
    """With an expansion in flight that is the larger one (KIP-497)."""
    one = replica()
    told(one, leads(isr=(1, 2)))
    told(one, fetch(3, 0))
    told(one, produce())
    told(one, fetch(2, 1))
    assert told(one, fetch(3, 1))[-1]["isr"] == ISR


def test_a_start_tells_of_the_process_and_of_every_log_it_found() -> None:
    batches = [Batch(base_offset=0, last_offset=2, epoch=1), Batch(base_offset=3, last_offset=3, epoch=4)]
    found = RecoveredLogSummary(topic="log", partition=2, log_start=0, leo=4, hw=3, batches=batches)
    process, log = start_lines(True, [found])
    assert process == {"event": "start", "clean": True}
    assert (log["topic"], log["partition"], log["leo"], log["hw"], log["clean"]) == ("log", 2, 4, 3, True)
    assert log["epochs"] == [(1, 0), (4, 3)]


def test_a_checkpoint_tells_the_state_that_it_was_written_in() -> None:
    line = checkpoint_line("hw", 2, take_snapshot(replica((0, 4, 0), hw=3)))
    assert (line["what"], line["value"], line["leo"], line["hw"]) == ("hw", 2, 5, 3)


# -- the controller ---------------------------------------------------------------------------------------


class Ruler:
    """A controller whose steps are told."""

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


def test_a_registration_is_told_with_its_epoch_and_begins_fenced() -> None:
    ruler = Ruler()
    (line,) = ruler.register(2, clean=True)
    assert (line["event"], line["broker"], line["broker_epoch"], line["clean"]) == ("register", 2, 0, True)
    assert ruler.register(2) == []  # the same incarnation again
    assert events(ruler.step(Heartbeat(now_ms=0, token=None, broker=2, broker_epoch=0, metadata_version=9,
                                       stopping=False))) == ["unfence"]


def test_the_first_leader_of_a_partition_is_an_election_too() -> None:
    (line,) = Ruler().create()
    assert (line["event"], line["leader"], line["epoch"], line["clean"]) == ("elect", 1, 0, True)
    assert (line["isr"], line["partition_epoch"], line["cause"]) == (ISR, 0, "created")


def test_a_session_that_ends_fences_then_takes_the_leadership_away() -> None:
    ruler = Ruler()
    ruler.create()
    lines = ruler.expire(1)
    assert events(lines) == ["fence", "elect"]
    assert (lines[1]["leader"], lines[1]["isr"], lines[1]["epoch"]) == (2, (2, 3), 1)
    assert lines[1]["clean"]
    assert events(ruler.expire(3)) == ["fence", "isr"]
    gone = ruler.expire(2)[-1]
    assert (gone["event"], gone["leader"], gone["isr"], gone["epoch"]) == ("isr", -1, (2,), 2)


def test_a_leader_from_outside_the_isr_is_not_clean() -> None:
    ruler = Ruler()
    ruler.create()
    for broker in (1, 3, 2):
        ruler.expire(broker)
    ruler.heartbeat(3)
    (elect,) = ruler.step(Elect(now_ms=0, token=None, partitions=(("log", 0),), unclean=True))
    assert (elect["event"], elect["leader"], elect["isr"], elect["clean"]) == ("elect", 3, (3,), False)


def test_a_bounce_that_is_overlooked_is_a_registration_that_is_not_fenced() -> None:
    """KAFKA-1120: nothing else changes."""
    ruler = Ruler(bugs=["no_epoch_bump_on_bounce"])
    ruler.create()
    assert events(ruler.register(1, "b")) == ["register", "unfence"]
    right = Ruler()
    right.create()
    assert events(right.register(1, "b")) == ["register", "elect"]


def test_what_was_durable_and_untold_is_told_at_the_next_start() -> None:
    """Whole, from any version; nothing where all was told; broker records that say nothing count too."""
    ruler = Ruler()
    lines = ruler.create()
    ruler.heartbeat(3, stopping=True)
    lines = [dict(line) for line in missing_lines(ruler.journal, 0)]
    assert events(lines) == ["register"] * 3 + ["unfence"] * 3 + ["elect", "isr"]
    assert [line["version"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 9]
    for version in range(10):
        rest = [line for line in lines if line["version"] > version]
        assert events([dict(line) for line in missing_lines(ruler.journal, version)]) == events(rest)

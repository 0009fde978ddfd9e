"""The controller's decisions one by one: incarnations, elections, compare-and-set, what is durable first."""

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.controller import Controller, ControllerConfig, PartitionInfo
from floodmark.broker.protocol.messages import (
    NO_LEADER,
    AllocateProducerIds,
    AlterPartition,
    AlterPartitionAnswer,
    ControllerEffect,
    ControllerEvent,
    CreateAnswer,
    CreateTopic,
    Elect,
    ElectAnswer,
    Expire,
    ExpireAnswer,
    Heartbeat,
    HeartbeatAnswer,
    Persist,
    ProducerIdsAnswer,
    Publish,
    Register,
    Registered,
    Tick,
)
from floodmark.broker.server.controller_server import parse_election
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.control_socket import ControlError

Effect = TypeVar("Effect")
SESSION_MS = 1_000


class Cluster:
    """A controller, its journal, and brokers whose requests the test sends."""

    def __init__(self, brokers: int = 3, *, unclean: bool = False, replicas: tuple[int, ...] = (),
                 bugs: tuple[str, ...] = ()) -> None:
        self.config = ControllerConfig(session_timeout_ms=SESSION_MS, unclean_leader_election=unclean)
        self.journal: list[Mapping[str, Any]] = []
        self.controller = Controller(self.config, (), rules_for("kip-320", bugs))
        self.now_ms = 0
        self.epochs: dict[int, int] = {}
        for broker in range(1, brokers + 1):
            self.register(broker)
            self.beat(broker)
        assert self.create(assignment=(replicas or tuple(range(1, brokers + 1)),)).error == errors.NONE

    def step(self, event: ControllerEvent) -> list[ControllerEffect]:
        effects = self.controller.step(event)
        for effect in effects:
            if isinstance(effect, Persist):
                self.journal.extend(effect.records)
        kinds = [type(effect) for effect in effects]
        assert kinds == sorted(kinds, key=lambda kind: {Persist: 0, Publish: 1}.get(kind, 2)), kinds
        return effects

    def answer(self, event: ControllerEvent, kind: type[Effect]) -> Effect:
        (found,) = [effect for effect in self.step(event) if isinstance(effect, kind)]
        return found

    def register(self, broker: int, incarnation: str = "a") -> int:
        event = Register(
            now_ms=self.now_ms, token=0, broker=broker, incarnation=incarnation, host="h", port=1, clean=False
        )
        self.epochs[broker] = self.answer(event, Registered).broker_epoch
        return self.epochs[broker]

    def beat(
        self, broker: int, version: int | None = None, *, stopping: bool = False, epoch: int | None = None
    ) -> HeartbeatAnswer:
        version = self.controller.metadata().version if version is None else version
        event = Heartbeat(
            now_ms=self.now_ms, token=0, broker=broker, metadata_version=version, stopping=stopping,
            broker_epoch=self.epochs[broker] if epoch is None else epoch,
        )  # fmt: skip
        return self.answer(event, HeartbeatAnswer)

    def create(self, topic: str = "t", **more: Any) -> CreateAnswer:
        fields: dict[str, Any] = {"partitions": 1, "replication_factor": 1, "assignment": (), "configs": {}}
        event = CreateTopic(now_ms=self.now_ms, token=0, topic=topic, topic_id="x", **(fields | more))
        return self.answer(event, CreateAnswer)

    def alter(self, *isr: int, by: int = 1, **more: Any) -> AlterPartitionAnswer:
        fields: dict[str, Any] = {
            "broker_epoch": self.epochs[by], "leader_epoch": self.partition.leader_epoch,
            "partition_epoch": self.partition.partition_epoch, "isr": tuple((b, self.epochs[b]) for b in isr),
        }  # fmt: skip
        event = AlterPartition(
            now_ms=self.now_ms, token=0, topic="t", partition=0, broker=by, **(fields | more)
        )
        return self.answer(event, AlterPartitionAnswer)

    def expire(self, broker: int) -> None:
        assert self.answer(Expire(now_ms=self.now_ms, token=0, broker=broker), ExpireAnswer).error == 0

    def elect(self, leader: int = NO_LEADER, *, unclean: bool = False, named: bool = True) -> list[int]:
        partitions = (("t", 0),) if named else ()
        event = Elect(
            now_ms=self.now_ms, token=0, partitions=partitions, unclean=unclean, leader=leader
        )
        return [error for _, _, error in self.answer(event, ElectAnswer).results]

    @property
    def partition(self) -> PartitionInfo:
        return self.controller.metadata().topics["t"].partitions[0]

    @property
    def leadership(self) -> tuple[int, int, tuple[int, ...]]:
        """(leader, leader epoch, ISR)."""
        return self.partition.leader, self.partition.leader_epoch, self.partition.isr


def test_a_new_incarnation_leaves_the_isr_and_its_leadership_before_it_is_answered() -> None:
    """Everything is durable first; a repeated registration gets the same answer and changes nothing."""
    cluster = Cluster()
    effects = cluster.step(
        Register(now_ms=0, token=0, broker=1, incarnation="b", host="h", port=1, clean=True)
    )
    assert [type(effect) for effect in effects] == [Persist, Publish, Registered]
    assert cluster.leadership == (2, 1, (2, 3))
    assert cluster.controller.metadata().brokers[0].fenced
    version = cluster.controller.metadata().version
    assert cluster.register(1, "b") == effects[-1].broker_epoch  # type: ignore[union-attr]
    assert cluster.controller.metadata().version == version
    cluster.register(3, "b")  # a follower's changes only the ISR
    assert cluster.leadership == (2, 1, (2,))


def test_the_last_isr_member_stays_and_leads_again_in_a_new_epoch() -> None:
    """There is no leader in between."""
    cluster = Cluster()
    for broker in (2, 3):
        cluster.expire(broker)
    cluster.register(1, "b")
    assert cluster.leadership == (-1, 1, (1,))
    cluster.beat(1)
    assert cluster.leadership == (1, 2, (1,))


def test_a_broker_is_unfenced_when_it_has_metadata_of_its_own_registration() -> None:
    """A heartbeat with an older metadata version leaves it fenced; one with another epoch is refused."""
    cluster = Cluster()
    cluster.register(2, "b")
    version = cluster.controller.metadata().version
    assert cluster.beat(2, version=0).fenced
    assert cluster.beat(2, epoch=1).error == errors.STALE_BROKER_EPOCH
    assert not cluster.beat(2, version=version).fenced


def test_a_broker_without_heartbeats_is_fenced() -> None:
    """Not before its session ends; one that sends heartbeats is not."""
    cluster = Cluster()
    for now_ms in range(400, 1_200, 400):
        cluster.now_ms = now_ms
        cluster.beat(2)
        cluster.step(Tick(now_ms=now_ms))
    assert cluster.leadership == (1, 0, (1, 2, 3))
    cluster.now_ms = 1_001
    cluster.step(Tick(now_ms=1_001))
    assert cluster.leadership == (2, 1, (2,))


@pytest.mark.parametrize(("bugs", "isr"), [((), (2,)), (("stale_isr_batch",), (1, 3))])
def test_of_sessions_that_end_together_the_one_with_the_oldest_heartbeat_ends_first(
    bugs: tuple[str, ...], isr: tuple[int, ...]
) -> None:
    """KAFKA-13173: only the broker with the latest heartbeat stays in the ISR."""
    cluster = Cluster(bugs=bugs)
    for now_ms, broker in ((100, 3), (200, 1), (300, 2)):
        cluster.now_ms = now_ms
        cluster.beat(broker)
    for now_ms in (700, 1_100):
        cluster.step(Tick(now_ms=now_ms))
    cluster.step(Tick(now_ms=1_400))
    assert cluster.partition.isr == isr


def test_the_leader_changes_the_isr_in_its_epochs() -> None:
    """Every accepted change increments the partition epoch, also one to the same ISR: so a leader rules out
    that an expansion without an answer is still applied."""
    cluster = Cluster()
    answer = cluster.alter(1, 2)
    assert (answer.error, answer.isr, answer.partition_epoch) == (0, (1, 2), 1)
    late = {"partition_epoch": cluster.partition.partition_epoch}
    assert cluster.alter(1, 2).partition_epoch == 2
    assert cluster.leadership == (1, 0, (1, 2))
    assert cluster.alter(1, 2, 3, **late).error == errors.INVALID_UPDATE_VERSION
    assert cluster.alter(1, 2, by=2).error == errors.INVALID_REQUEST  # the leader alone may


@pytest.mark.parametrize(("fields", "error"), [
    ({"broker_epoch": 99}, errors.STALE_BROKER_EPOCH),
    ({"leader_epoch": 0}, errors.FENCED_LEADER_EPOCH),
    ({"leader_epoch": 2}, errors.NOT_CONTROLLER),
    ({"partition_epoch": 9}, errors.NOT_CONTROLLER),
    ({"partition_epoch": 0}, errors.INVALID_UPDATE_VERSION),
    ({"isr": ((2, 1), (4, 0))}, errors.INVALID_REQUEST),
    ({"isr": ((2, 1), (2, 1))}, errors.INVALID_REQUEST),
    ({"isr": ((3, 2),)}, errors.INVALID_REQUEST),
    ({"isr": ((2, 1), (3, 1))}, errors.INELIGIBLE_REPLICA),
    ({"isr": ((2, 1), (3, -1))}, errors.INELIGIBLE_REPLICA),
    ({"isr": ((2, 1), (1, 0))}, errors.INELIGIBLE_REPLICA),
])
def test_an_isr_is_refused_with_kafkas_error(fields: dict[str, Any], error: int) -> None:
    """n2 leads epoch 1, n1 is fenced; nothing changes. A known-bad rule lets it in (KIP-841)."""
    cluster = Cluster()
    cluster.expire(1)
    leadership = cluster.leadership
    assert cluster.alter(2, 3, by=2, **fields).error == error
    assert cluster.leadership == leadership
    bad = Cluster(bugs=("alter_no_fence",))
    bad.expire(1)
    assert (bad.alter(2, 1, by=2).error, bad.partition.isr) == (errors.NONE, (1, 2))


def test_controlled_shutdown_moves_leaderships_and_waits_for_all_metadata() -> None:
    """A broker may stop once every other one has the metadata; it is in no ISR and cannot rejoin one."""
    cluster = Cluster()
    assert not cluster.beat(1, stopping=True).may_stop
    assert cluster.leadership == (2, 1, (2, 3))
    cluster.beat(2)
    assert not cluster.beat(1, stopping=True).may_stop
    cluster.beat(3)
    assert cluster.beat(1, stopping=True).may_stop
    assert cluster.alter(1, 2, 3, by=2).error == errors.INELIGIBLE_REPLICA


def test_preferred_elections() -> None:
    """The first replica, if it is in the ISR, alive and not yet the leader; the ISR is unchanged."""
    cluster = Cluster()
    assert cluster.elect() == [errors.ELECTION_NOT_NEEDED]
    assert cluster.elect(named=False) == []
    cluster.expire(1)
    assert cluster.elect() == [errors.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.beat(1)
    assert cluster.elect() == [errors.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.alter(1, 2, 3, by=2)
    assert cluster.elect() == [errors.NONE]
    assert cluster.leadership == (1, 2, (1, 2, 3))


def test_an_election_of_a_chosen_leader() -> None:
    """An active member of the ISR, which is unchanged; each election is a new leader epoch."""
    cluster = Cluster()
    assert cluster.elect(1) == [errors.ELECTION_NOT_NEEDED]
    assert cluster.elect(3) == [errors.NONE]
    assert cluster.leadership == (3, 1, (1, 2, 3))
    cluster.alter(1, 3, by=3)
    assert cluster.elect(2) == [errors.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.beat(1, stopping=True)
    assert cluster.elect(1) == [errors.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert cluster.elect(7) == [errors.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert cluster.leadership == (3, 1, (3,))


def test_an_unclean_election_of_a_chosen_leader() -> None:
    """A leader from outside the ISR is then its only member; a member leaves it unchanged; a fenced one is
    not eligible."""
    cluster = Cluster()
    cluster.alter(1, 3)
    assert cluster.elect(3, unclean=True) == [errors.NONE]
    assert cluster.leadership == (3, 1, (1, 3))
    assert cluster.elect(2, unclean=True) == [errors.NONE]
    assert cluster.leadership == (2, 2, (2,))
    cluster.expire(1)
    assert cluster.elect(1, unclean=True) == [errors.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_an_election_as_the_control_socket_requests_it() -> None:
    """Without a leader the controller chooses; an invalid request is refused with the expected form."""
    request = {"topic": "t", "partition": 0}
    assert parse_election(request, 5) == Elect(now_ms=5, token=None, partitions=(("t", 0),), unclean=False)
    assert parse_election({**request, "leader": 2, "unclean": True}, 5).leader == 2
    for wrong in ({"topic": 1}, {"partition": "0"}, {"leader": None}, {"unclean": "yes"}):
        with pytest.raises(ControlError, match="elect wants"):
            parse_election({**request, **wrong}, 5)


def leaderless() -> Cluster:
    """n1 was the last ISR member and is dead; n2 and n3 are alive and behind."""
    cluster = Cluster()
    for broker in (2, 3, 1):
        cluster.expire(broker)
    for broker in (2, 3):
        cluster.beat(broker)
    return cluster


def test_an_unclean_election_is_only_made_when_requested_or_enabled() -> None:
    """The ISR is then the elected leader alone; it needs a live replica."""
    cluster = leaderless()
    assert cluster.leadership == (-1, 1, (1,))
    assert cluster.elect(unclean=True) == [errors.NONE]
    assert cluster.leadership == (2, 2, (2,))
    assert cluster.elect(unclean=True) == [errors.ELECTION_NOT_NEEDED]
    for broker in (3, 2):
        cluster.expire(broker)
    assert cluster.elect(unclean=True) == [errors.ELIGIBLE_LEADERS_NOT_AVAILABLE]

    enabled = Cluster(unclean=True)
    enabled.alter(1)
    enabled.expire(1)
    assert enabled.leadership == (2, 1, (2,))


def test_a_restarted_controller_continues_from_its_journal() -> None:
    """The same metadata at the same version, and no broker epoch or producer id twice."""
    cluster = leaderless()
    cluster.register(1, "c")
    ids = AllocateProducerIds(now_ms=0, token=0, broker=2, broker_epoch=cluster.epochs[2])
    first = cluster.answer(ids, ProducerIdsAnswer)
    restarted = Controller(cluster.config, cluster.journal)
    assert restarted.metadata() == cluster.controller.metadata()
    cluster.controller = restarted
    second = cluster.answer(ids, ProducerIdsAnswer)
    assert second.first == first.first + first.count
    assert cluster.register(3, "d") > max(cluster.epochs[1], cluster.epochs[2])


@pytest.mark.parametrize(("fields", "error"), [
    ({"topic": "a b"}, errors.INVALID_TOPIC_EXCEPTION), ({"topic": ".."}, errors.INVALID_TOPIC_EXCEPTION),
    ({"topic": "t"}, errors.TOPIC_ALREADY_EXISTS), ({"partitions": 0}, errors.INVALID_PARTITIONS),
    ({"replication_factor": 4}, errors.INVALID_REPLICATION_FACTOR),
    ({"assignment": ((1, 1),)}, errors.INVALID_REPLICA_ASSIGNMENT),
    ({"assignment": ((1, 9),)}, errors.INVALID_REPLICA_ASSIGNMENT),
    ({"assignment": ((1, 2), (3,))}, errors.INVALID_REPLICA_ASSIGNMENT),
])
def test_a_topic_is_refused_with_kafkas_error(fields: dict[str, Any], error: int) -> None:
    """And is not created."""
    cluster = Cluster()
    assert cluster.create(**({"topic": "new"} | fields)).error == error
    assert set(cluster.controller.metadata().topics) == {"t"}


def test_replicas_are_spread_round_the_brokers() -> None:
    """Each partition begins with the next broker; fenced ones get none."""
    cluster = Cluster(4)
    cluster.expire(2)
    assert cluster.create("new", partitions=4, replication_factor=2).error == 0
    partitions = cluster.controller.metadata().topics["new"].partitions
    assert [p.replicas for p in partitions] == [(1, 3), (3, 4), (4, 1), (1, 3)]
    assert [p.leader for p in partitions] == [1, 3, 4, 1]

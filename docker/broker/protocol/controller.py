"""Runs the controller as a pure machine: sessions, elections, ISR changes, epochs; step(event) -> effects.

Rules
1. Every change is a record; Persist comes before Publish and before every answer that rests on it.
2. The state follows from the records: a controller that restarts from them has the same state. The time of
   each broker's last heartbeat is not in them, and is lost at a restart.
3. A registration is a new incarnation (KIP-380, KIP-903): it gets a new broker epoch, leaves every ISR of
   which it is not the last member and every leadership, before it is answered.
4. An ISR changes by compare-and-set of leader epoch and partition epoch, and every member must be active and
   the incarnation that the leader has seen catch up.
5. Sessions that end together are ended one by one, the longest silent first, each from the ISR that the one
   before left (KAFKA-13173): the broker heard of last is the ISR's last member.
6. `now_ms` of its events does not count the time in which the controller did not run: that is no broker's
   silence (server/controller_clock.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.cluster_state import (
    Broker,
    ClusterState,
    Partition,
    Record,
    broker_record,
    configs_record,
    partition_record,
    partitions_record,
    producer_ids_record,
    topic_deleted_record,
    topic_record,
)
from floodmark.broker.protocol.elections import elect_leader, elect_named_leader, remove_broker
from floodmark.broker.protocol.messages import (
    NO_LEADER,
    AllocateProducerIds,
    AlterPartition,
    AlterPartitionAnswer,
    AlterTopic,
    ControllerEffect,
    ControllerEvent,
    CreateAnswer,
    CreateTopic,
    DeleteTopic,
    Elect,
    ElectAnswer,
    Expire,
    ExpireAnswer,
    GrowTopic,
    Heartbeat,
    HeartbeatAnswer,
    Persist,
    ProducerIdsAnswer,
    Publish,
    Register,
    Registered,
    Tick,
    TopicAnswer,
)
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata, PartitionInfo, TopicInfo, build_metadata
from floodmark.broker.protocol.rules import KIP_320, Rules
from floodmark.broker.protocol.topic_placement import TopicDefaults, plan_partitions, plan_topic

__all__ = ["BrokerInfo", "Controller", "ControllerConfig", "Metadata", "PartitionInfo", "TopicInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    session_timeout_ms: int = 9_000
    unclean_leader_election: bool = False
    default_replication_factor: int = 1
    default_partitions: int = 1
    producer_id_block: int = 1_000


@dataclass(slots=True, kw_only=True)
class _Session:
    """A broker's session; no record stores it."""

    heard_ms: int
    metadata_version: int = -1  # the version that the broker has applied, by its last heartbeat
    stop_version: int = -1  # the metadata version that took its leaderships away, once it stops


class Controller:
    """The controller's state and its handlers; `records` are those persisted before this start, in order."""

    def __init__(
        self, config: ControllerConfig, records: Iterable[Record] = (), rules: Rules = KIP_320
    ) -> None:
        self._config = config
        self._rules = rules
        self._state = ClusterState()
        for record in records:
            self._state.apply(record)
        self._sessions: dict[int, _Session] = {}
        self._records: list[Record] = []  # of this step
        self._metadata: Metadata | None = None
        self._handlers: dict[type, Callable[[Any], ControllerEffect | None]] = {
            Register: self._register_broker,
            Heartbeat: self._handle_heartbeat,
            AlterPartition: self._alter_partition,
            Elect: self._elect_leaders,
            CreateTopic: self._create_topic,
            AlterTopic: self._alter_topic,
            GrowTopic: self._grow_topic,
            DeleteTopic: self._delete_topic,
            AllocateProducerIds: self._allocate_producer_ids,
            Expire: self._expire_session,
            Tick: self._expire_sessions,
        }

    def step(self, event: ControllerEvent) -> list[ControllerEffect]:
        """Persist, then Publish, then the answer; each only if there is one."""
        self._records = []
        version = self._state.version
        # a session begins at the first step that knows the broker, after a restart too
        for broker in self._state.brokers:
            if broker not in self._sessions:
                self._sessions[broker] = _Session(heard_ms=event.now_ms)
        answer = self._handlers[type(event)](event)
        effects: list[ControllerEffect] = []
        if self._records:
            effects.append(Persist(records=tuple(self._records)))
        if self._state.version != version:
            effects.append(Publish(version=self._state.version))
        if answer is not None:
            effects.append(answer)
        return effects

    def metadata(self) -> Metadata:
        """All metadata, as it is now."""
        if self._metadata is None or self._metadata.version != self._state.version:
            self._metadata = build_metadata(self._state)
        return self._metadata

    # -- brokers ---------------------------------------------------------------------------------------

    def _register_broker(self, event: Register) -> ControllerEffect:
        state = self._state
        known = state.brokers.get(event.broker)
        if known is not None and known.incarnation == event.incarnation:  # asked again: the answer was lost
            self._sessions[event.broker].heard_ms = event.now_ms
            return Registered(token=event.token, error=errors.NONE, broker_epoch=known.epoch)
        bounce_ignored = known is not None and not known.fenced and not self._rules.bounce_is_a_failure
        broker = Broker(
            id=event.broker,
            epoch=state.next_broker_epoch,
            incarnation=event.incarnation,
            host=event.host,
            port=event.port,
            fenced=not bounce_ignored,
            stopping=False,
            registered_version=0,  # the record's own
        )
        self._write_record(broker_record(broker))
        self._sessions[event.broker] = _Session(heard_ms=event.now_ms)
        if not bounce_ignored:
            self._remove_from_partitions(event.broker)
        return Registered(token=event.token, error=errors.NONE, broker_epoch=broker.epoch)

    def _handle_heartbeat(self, event: Heartbeat) -> ControllerEffect:
        broker = self._state.brokers.get(event.broker)
        error = _check_broker_epoch(broker, event.broker_epoch)
        if error or broker is None:
            return HeartbeatAnswer(token=event.token, error=error, fenced=True, may_stop=False)
        session = self._sessions[event.broker]
        session.heard_ms = event.now_ms
        session.metadata_version = max(session.metadata_version, event.metadata_version)
        if event.stopping:
            return self._shut_down_broker(event, broker, session)
        if broker.fenced and not broker.stopping and event.metadata_version >= broker.registered_version:
            broker = replace(broker, fenced=False)
            self._write_record(broker_record(broker))
            self._elect_leaderless()
        return HeartbeatAnswer(token=event.token, error=errors.NONE, fenced=broker.fenced, may_stop=False)

    def _shut_down_broker(self, event: Heartbeat, broker: Broker, session: _Session) -> ControllerEffect:
        """Controlled shutdown: it may stop once it leads nothing and the other brokers know that."""
        if not broker.stopping:
            broker = replace(broker, stopping=True)
            self._write_record(broker_record(broker))
            self._remove_from_partitions(broker.id)
        if session.stop_version < 0:
            session.stop_version = self._state.version
        others_know = all(
            self._sessions[other].metadata_version >= session.stop_version
            for other in self._state.brokers
            if self._state.active(other)
        )
        return HeartbeatAnswer(
            token=event.token, error=errors.NONE, fenced=broker.fenced, may_stop=others_know
        )

    def _expire_sessions(self, event: Tick) -> None:
        late_ms = event.now_ms - self._config.session_timeout_ms
        silent = [
            (self._sessions[broker.id].heard_ms, broker.id)
            for broker in self._state.brokers.values()
            if not broker.fenced and self._sessions[broker.id].heard_ms < late_ms
        ]
        self._fence_brokers(broker for _, broker in sorted(silent))

    def _expire_session(self, event: Expire) -> ControllerEffect:
        broker = self._state.brokers.get(event.broker)
        if broker is None:
            return ExpireAnswer(token=event.token, error=errors.BROKER_ID_NOT_REGISTERED)
        if not broker.fenced:
            self._fence_brokers([event.broker])
        return ExpireAnswer(token=event.token, error=errors.NONE)

    def _fence_brokers(self, brokers: Iterable[int]) -> None:
        """End these brokers' sessions: fence each, and take it out of its ISRs and leaderships."""
        expired = list(brokers)
        stale = None if self._rules.expires_one_by_one else dict(self._all_partitions())
        for broker in expired:
            self._write_record(broker_record(replace(self._state.brokers[broker], fenced=True)))
            self._remove_from_partitions(broker, stale)

    def _remove_from_partitions(
        self, broker: int, stale: Mapping[tuple[str, int], Partition] | None = None
    ) -> None:
        """Remove the broker from every ISR of which it is not the last member, and from every leadership."""
        for (topic, index), partition in list(self._all_partitions()):
            was = partition
            if stale is not None:  # the mutant's rule
                was = replace(stale[topic, index], leader_epoch=partition.leader_epoch)
            change = remove_broker(
                was, broker, self._state.active, self._rules, unclean=self._allows_unclean_election(topic)
            )
            if change is not None:
                change = replace(change, partition_epoch=partition.partition_epoch + 1)
                self._write_record(partition_record(topic, index, change))

    # -- partitions ------------------------------------------------------------------------------------

    def _alter_partition(self, event: AlterPartition) -> ControllerEffect:
        partition = self._state.partition(event.topic, event.partition)
        error = _check_broker_epoch(self._state.brokers.get(event.broker), event.broker_epoch)
        if not error and partition is None:
            error = errors.UNKNOWN_TOPIC_OR_PARTITION
        elif not error and partition is not None:
            error = self._check_alter_partition(event, partition)
        if error or partition is None:
            return AlterPartitionAnswer(
                token=event.token, error=error, leader=NO_LEADER, leader_epoch=-1, isr=(), partition_epoch=-1
            )
        members = {broker for broker, _ in event.isr}
        now = replace(
            partition,
            isr=tuple(broker for broker in partition.replicas if broker in members),
            partition_epoch=partition.partition_epoch + 1,  # always: it voids older requests
        )
        self._write_record(partition_record(event.topic, event.partition, now))
        return AlterPartitionAnswer(
            token=event.token,
            error=errors.NONE,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            isr=now.isr,
            partition_epoch=now.partition_epoch,
        )

    def _check_alter_partition(self, event: AlterPartition, partition: Partition) -> int:
        """Kafka's checks in Kafka's order."""
        if self._rules.alter_compares_epochs:
            if event.leader_epoch > partition.leader_epoch:
                return errors.NOT_CONTROLLER  # KAFKA-14154: the sender knows more than this controller
            if event.partition_epoch > partition.partition_epoch:
                return errors.NOT_CONTROLLER
            if event.leader_epoch < partition.leader_epoch:
                return errors.FENCED_LEADER_EPOCH
            if event.broker != partition.leader:
                return errors.INVALID_REQUEST
            if event.partition_epoch < partition.partition_epoch:
                return errors.INVALID_UPDATE_VERSION
        members = [broker for broker, _ in event.isr]
        if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
            return errors.INVALID_REQUEST
        if event.broker not in members:
            return errors.INVALID_REQUEST
        if not all(self._may_be_member(broker, epoch) for broker, epoch in event.isr):
            return errors.INELIGIBLE_REPLICA
        return errors.NONE

    def _may_be_member(self, broker: int, epoch: int) -> bool:
        known = self._state.brokers.get(broker)
        if known is None:
            return False
        if self._rules.alter_refuses_fenced and (known.fenced or known.stopping):
            return False
        return known.epoch == epoch or not self._rules.checks_broker_epochs

    def _elect_leaders(self, event: Elect) -> ControllerEffect:
        named = event.partitions or tuple(key for key, _ in self._all_partitions())
        results = []
        for topic, index in named:
            if event.leader == NO_LEADER:
                error = self._elect_leader(topic, index, unclean=event.unclean)
            else:
                error = self._elect_named_leader(topic, index, event.leader, unclean=event.unclean)
            if event.partitions or error != errors.ELECTION_NOT_NEEDED:
                results.append((topic, index, error))
        return ElectAnswer(token=event.token, results=tuple(results))

    def _elect_leader(self, topic: str, index: int, *, unclean: bool) -> int:
        partition = self._state.partition(topic, index)
        if partition is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION
        active = self._state.active
        wanted = partition.replicas[0]
        if unclean:
            if partition.leader != NO_LEADER and active(partition.leader):
                return errors.ELECTION_NOT_NEEDED
        elif partition.leader == wanted:
            return errors.ELECTION_NOT_NEEDED
        elif wanted not in partition.isr or not active(wanted):
            return errors.PREFERRED_LEADER_NOT_AVAILABLE
        now = elect_leader(partition, active, self._rules, unclean=unclean, preferred=not unclean)
        if now is None:
            return errors.ELIGIBLE_LEADERS_NOT_AVAILABLE
        self._write_record(partition_record(topic, index, now))
        return errors.NONE

    def _elect_named_leader(self, topic: str, index: int, leader: int, *, unclean: bool) -> int:
        """Elect this replica: an active member of the ISR or, in an unclean election, an active replica."""
        partition = self._state.partition(topic, index)
        if partition is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader == leader:
            return errors.ELECTION_NOT_NEEDED
        eligible = partition.replicas if unclean else partition.isr
        if leader not in eligible or not self._state.active(leader):
            return errors.ELIGIBLE_LEADERS_NOT_AVAILABLE
        self._write_record(partition_record(topic, index, elect_named_leader(partition, leader, self._rules)))
        return errors.NONE

    def _elect_leaderless(self) -> None:
        """Elect leaders for partitions without one: a broker has come back, or a config allows more."""
        for (topic, index), partition in list(self._all_partitions()):
            if partition.leader == NO_LEADER:
                now = elect_leader(
                    partition, self._state.active, self._rules, unclean=self._allows_unclean_election(topic)
                )
                if now is not None:
                    self._write_record(partition_record(topic, index, now))

    # -- topics and producers ----------------------------------------------------------------------------

    def _create_topic(self, event: CreateTopic) -> ControllerEffect:
        defaults = TopicDefaults(
            partitions=self._config.default_partitions,
            replication_factor=self._config.default_replication_factor,
        )
        made = plan_topic(event, self._state, defaults)
        if isinstance(made, CreateAnswer):
            return made
        if not event.validate_only:
            self._write_record(topic_record(made))
        return CreateAnswer(
            token=event.token, error=errors.NONE, message="", topic_id=made.id,
            partitions=len(made.partitions), replication_factor=len(made.partitions[0].replicas),
        )  # fmt: skip

    def _alter_topic(self, event: AlterTopic) -> ControllerEffect:
        if event.topic not in self._state.topics:
            return _unknown_topic_answer(event)
        if self._state.topics[event.topic].configs != event.configs:
            self._write_record(configs_record(event.topic, event.configs))
            self._elect_leaderless()  # unclean elections may be allowed now
        return TopicAnswer(token=event.token, error=errors.NONE, message="")

    def _grow_topic(self, event: GrowTopic) -> ControllerEffect:
        topic = self._state.topics.get(event.topic)
        if topic is None:
            return _unknown_topic_answer(event)
        made = plan_partitions(event, topic, self._state)
        if isinstance(made, TopicAnswer):
            return made
        if not event.validate_only:
            self._write_record(partitions_record(event.topic, made))
        return TopicAnswer(token=event.token, error=errors.NONE, message="")

    def _delete_topic(self, event: DeleteTopic) -> ControllerEffect:
        if event.topic not in self._state.topics:
            return _unknown_topic_answer(event)
        self._write_record(topic_deleted_record(event.topic))
        return TopicAnswer(token=event.token, error=errors.NONE, message="")

    def _allocate_producer_ids(self, event: AllocateProducerIds) -> ControllerEffect:
        error = _check_broker_epoch(self._state.brokers.get(event.broker), event.broker_epoch)
        if error:
            return ProducerIdsAnswer(token=event.token, error=error, first=-1, count=0)
        first, count = self._state.next_producer_id, self._config.producer_id_block
        self._write_record(producer_ids_record(first + count))
        return ProducerIdsAnswer(token=event.token, error=errors.NONE, first=first, count=count)

    # -- records -----------------------------------------------------------------------------------------

    def _write_record(self, record: Record) -> None:
        self._state.apply(record)
        self._records.append(record)

    def _all_partitions(self) -> Iterable[tuple[tuple[str, int], Partition]]:
        for name, topic in self._state.topics.items():
            for index, partition in enumerate(topic.partitions):
                yield (name, index), partition

    def _allows_unclean_election(self, topic: str) -> bool:
        own = self._state.topics[topic].configs.get("unclean.leader.election.enable")
        return self._config.unclean_leader_election if own is None else own.lower() == "true"


def _unknown_topic_answer(event: AlterTopic | GrowTopic | DeleteTopic) -> TopicAnswer:
    error, message = errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {event.topic!r}"
    return TopicAnswer(token=event.token, error=error, message=message)


def _check_broker_epoch(broker: Broker | None, epoch: int) -> int:
    """Kafka's checkBrokerEpoch."""
    if broker is None:
        return errors.BROKER_ID_NOT_REGISTERED
    return errors.NONE if broker.epoch == epoch else errors.STALE_BROKER_EPOCH

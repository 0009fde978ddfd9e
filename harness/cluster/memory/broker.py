"""One node in memory: joins its replicas, requests, fetchers and its registration with the controller.

Rules
1. Logs are recovered before the node registers.
2. A leader-and-isr message counts only for this incarnation (KIP-380), and never for an older version.
3. An orderly stop asks the controller for release, flushes, checkpoints, and only then marks the disk clean.
   Any other end leaves no mark.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import NO_LEADER, LeaderAndIsr, ProposeIsr, Tick
from floodmark.broker.protocol.metadata import Metadata, PartitionInfo
from floodmark.broker.protocol.replica import Replica, ReplicaConfig
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.trace_events import (
    RecoveredLogSummary,
    checkpoint_line,
    start_lines,
    take_snapshot,
)
from floodmark.harness.cluster.memory.clock import Act
from floodmark.harness.cluster.memory.controller import ControllerNode
from floodmark.harness.cluster.memory.disk import Disk, Key, PartitionLog
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.fetcher import Fetcher, FetcherContext
from floodmark.harness.cluster.memory.isr_proposals import IsrProposals, Proposal
from floodmark.harness.cluster.memory.lifecycle import Lifecycle
from floodmark.harness.cluster.memory.network import Call, Network
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.replicas import HostedPartition, Listeners, Replicas
from floodmark.harness.cluster.memory.requests import Requests
from floodmark.harness.cluster.memory.settings import Settings
from floodmark.harness.cluster.memory.trace_file import TraceFile

_TICK_S = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnvironment:
    """What a node needs. `broker` and `controller` return the present incarnations; call them only in their
    process."""

    node: int
    process: Process
    disk: Disk
    trace: TraceFile
    failpoints: Failpoints
    settings: Settings
    network: Network
    process_of: Callable[[int], Process]
    broker: Callable[[int], "BrokerNode"]
    controller: Callable[[], ControllerNode]


class BrokerNode:
    """One incarnation of a node."""

    def __init__(self, environment: NodeEnvironment) -> None:
        self._environment = environment
        self._settings = environment.settings
        self.clean = environment.disk.clean_epoch is not None
        environment.disk.clean_epoch = None
        self.metadata = Metadata(version=0, brokers=(), topics={})
        listeners = Listeners(
            appended=self._appended,
            hw_moved=self._hw_moved,
            role_changed=self._role_changed,
            propose=self._propose,
            resumed=self._role_changed,
        )
        self.replicas = Replicas(
            environment.process, environment.trace, environment.failpoints, listeners,
            self._settings.flush_messages,
        )
        self.requests = Requests(environment.process, self.replicas, self._exists)
        self._fetchers: dict[Key, Fetcher] = {}
        self._proposals = IsrProposals(
            environment.process, self._settings, self.replicas, environment.failpoints, self._ask_alter
        )
        self.lifecycle = Lifecycle(
            environment.process, self._settings, environment.failpoints, clean=self.clean,
            register=self._ask_register, heartbeat=self._ask_heartbeat,
        )  # fmt: skip
        self._fetcher_context = FetcherContext(
            node=environment.node, process=environment.process, settings=self._settings,
            replicas=self.replicas,
            failpoints=environment.failpoints, broker_epoch=lambda: self.lifecycle.broker_epoch,
            ask=self._ask_broker,
        )  # fmt: skip
        environment.trace.read_position = self._position
        environment.process.on_resume = self.replicas.go_on

    def begin(self) -> None:
        """Starts in its process: recovers logs, registers, and sets timers."""
        environment = self._environment
        for log in environment.disk.logs.values():
            if not self._settings.rules.recovery_keeps_last_batch:
                log.drop_last_batch()
            log.flush_if_due(self._settings.flush_messages)
        found = [self._recovered(key, log) for key, log in sorted(environment.disk.logs.items())]
        environment.trace.write_process_lines(start_lines(self.clean, found))
        self.lifecycle.begin()
        self._every(_TICK_S, self._tick)
        self._every(self._settings.hw_checkpoint_interval_ms / 1000, self._checkpoint)

    def stop(self, stopped: Act) -> None:
        """Stops in an orderly way; `stopped` is called last, and ends the process."""

        def end() -> None:
            disk = self._environment.disk
            for log in disk.logs.values():
                log.flush()
            for key, hosted in self.replicas.partitions.items():
                self._trace_checkpoint("recovery", key, hosted.log.recovery_point)
            self._write_high_watermarks()
            disk.clean_epoch = self.lifecycle.broker_epoch
            stopped()

        self.lifecycle.stop(end)

    def _every(self, interval_s: float, act: Act) -> None:
        def run() -> None:
            act()
            self._environment.process.later(interval_s, run)

        self._environment.process.later(interval_s, run)

    def _tick(self) -> None:
        now_ms = self._environment.process.clock.now_ms()
        for hosted in list(self.replicas.partitions.values()):
            self.replicas.post(hosted, Tick(now_ms=now_ms))
        self.requests.tick()
        for fetcher in self._fetchers.values():
            fetcher.send_next()

    def _recovered(self, key: Key, log: PartitionLog) -> RecoveredLogSummary:
        found = log.recover(self._settings.rules, 0)
        hw = max(log.start, min(self._environment.disk.high_watermarks.get(key, 0), log.leo))
        return RecoveredLogSummary(
            topic=key[0], partition=key[1], log_start=log.start, leo=log.leo, hw=hw, batches=found.batches
        )

    def _position(self, topic: str, partition: int) -> tuple[int, int, int] | None:
        hosted = self.replicas.partitions.get((topic, partition))
        if hosted is None:
            return None
        return hosted.replica.leader_epoch, hosted.replica.leo, hosted.visible_hw

    def _exists(self, key: Key) -> bool:
        topic = self.metadata.topics.get(key[0])
        return topic is not None and 0 <= key[1] < len(topic.partitions)

    # -- metadata ----------------------------------------------------------------------------------------

    def leader_and_isr(self, call: Call, broker_epoch: int, metadata: Metadata) -> None:
        """Handles a leader-and-isr message; replies an error code."""
        mine = self.lifecycle.broker_epoch
        if broker_epoch != mine and (self._settings.rules.control_needs_broker_epoch or mine < 0):
            call.reply(errors.STALE_BROKER_EPOCH)
            return
        if metadata.version > self.metadata.version:
            self.metadata = metadata
            self._apply(metadata)
            self.lifecycle.heartbeat_now()
        call.reply(errors.NONE)

    def _apply(self, metadata: Metadata) -> None:
        now_ms, broker_epochs = self._environment.process.clock.now_ms(), metadata.broker_epochs
        for topic in metadata.topics.values():
            for part in topic.partitions:
                if self._environment.node in part.replicas:
                    hosted = self._hosted((topic.name, part.partition), topic.id)
                    self.replicas.post(
                        hosted,
                        LeaderAndIsr(
                            now_ms=now_ms, leader=part.leader, leader_epoch=part.leader_epoch, isr=part.isr,
                            partition_epoch=part.partition_epoch, replicas=part.replicas,
                            broker_epochs=broker_epochs,
                        ),
                    )  # fmt: skip
        for fetcher in self._fetchers.values():
            fetcher.send_next()

    def _hosted(self, key: Key, topic_id: str) -> HostedPartition:
        hosted = self.replicas.partitions.get(key)
        if hosted is not None:
            return hosted
        disk, settings = self._environment.disk, self._settings
        log = disk.logs.setdefault(key, PartitionLog(topic_id=topic_id))
        checkpointed = disk.high_watermarks.get(key, 0)
        config = ReplicaConfig(
            min_insync_replicas=settings.min_insync_replicas,
            replica_lag_time_max_ms=settings.replica_lag_time_max_ms,
        )
        recovered = log.recover(settings.rules, checkpointed)
        replica = Replica(me=self._environment.node, config=config, rules=settings.rules, recovered=recovered)
        hosted = HostedPartition(
            topic=key[0], partition=key[1], log=log, replica=replica, checkpointed_hw=checkpointed
        )
        self.replicas.partitions[key] = hosted
        self._fetchers[key] = Fetcher(self._fetcher_context, hosted)
        return hosted

    def send_metadata(self, call: Call) -> None:
        """Replies (brokers that are not fenced, partitions by topic and number)."""
        live = frozenset(broker.id for broker in self.metadata.brokers if not broker.fenced)
        partitions: dict[Key, PartitionInfo] = {
            (topic.name, part.partition): part
            for topic in self.metadata.topics.values()
            for part in topic.partitions
        }
        call.reply((live, partitions))

    # -- effects of the replicas ---------------------------------------------------------------------

    def _appended(self, key: Key, size: int) -> None:
        self.requests.appended(key, size)

    def _hw_moved(self, key: Key) -> None:
        self.requests.hw_moved(key)

    def _role_changed(self, hosted: HostedPartition) -> None:
        self.requests.role_changed(hosted.key)
        # After the step: the next request depends on the new role.
        self._environment.process.soon(self._fetchers[hosted.key].send_next)

    def _propose(self, hosted: HostedPartition, proposal: ProposeIsr) -> None:
        self._proposals.submit(hosted, proposal, self.lifecycle.broker_epoch)

    # -- checkpoints -------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        self._write_high_watermarks()
        if self._environment.failpoints.armed:
            self._environment.failpoints.meet(FailpointSite(name="D.ckpt_done"), lambda: None)

    def _write_high_watermarks(self) -> None:
        """Writes all HWs; for logs without a role so far, the values written before."""
        disk, before = self._environment.disk, self._environment.disk.high_watermarks
        moved = {key: hosted.checkpointable_hw for key, hosted in self.replicas.partitions.items()}
        offsets = {**before, **moved}
        if not self._settings.rules.checkpoints_every_partition:  # the mutant's: KAFKA-1647
            followed = self.replicas.partitions
            offsets = {key: hw for key, hw in moved.items() if followed[key].replica.leader != NO_LEADER}
        if offsets == before:
            return
        disk.high_watermarks = offsets
        for key, hw in moved.items():
            if hw != before.get(key):
                self._trace_checkpoint("hw", key, hw)
        for key, hw in moved.items():
            hosted = self.replicas.partitions[key]
            hosted.checkpointed_hw = hw
            if self._environment.failpoints.armed and hw != before.get(key):
                epoch = hosted.replica.leader_epoch
                site = FailpointSite(name="D.ckpt", topic=key[0], partition=key[1], epoch=epoch, offset=hw)
                self.replicas.hold_between_steps(hosted, site)

    def _trace_checkpoint(self, kind: str, key: Key, value: int) -> None:
        hosted = self.replicas.partitions[key]
        now = replace(take_snapshot(hosted.replica), hw=hosted.visible_hw)
        self._environment.trace.write_replica_lines(*key, [checkpoint_line(kind, value, now)])

    # -- requests to others ---------------------------------------------------------------------------------

    def _ask_broker(
        self,
        leader: int,
        handle: Callable[[Requests, Call], None],
        answered: Callable[[object], None],
        lost: Callable[[bool], None],
    ) -> Call:
        environment = self._environment
        return environment.network.ask(
            environment.process, environment.process_of(leader), answered=answered, lost=lost,
            handle=lambda call: handle(environment.broker(leader).requests, call),
            timeout_s=self._settings.request_timeout_ms / 1000,
        )  # fmt: skip

    def _ask_controller(
        self,
        handle: Callable[[ControllerNode, Call], None],
        answered: Callable[[Any], None],
        lost: Callable[[bool], None],
        timeout_s: float,
    ) -> None:
        environment = self._environment
        environment.network.ask(
            environment.process, environment.controller().process, answered=answered, lost=lost,
            timeout_s=timeout_s,
            handle=lambda call: handle(environment.controller(), call),
        )  # fmt: skip

    def _ask_alter(
        self, one: Proposal, answered: Callable[[Any], None], lost: Callable[[bool], None], timeout_s: float
    ) -> None:
        node = self._environment.node
        self._ask_controller(
            lambda controller, call: controller.alter_partition(
                call, node, one.broker_epoch, (one.hosted.topic, one.hosted.partition), one.proposal
            ),
            answered, lost, timeout_s,
        )  # fmt: skip

    def _ask_register(
        self,
        incarnation: str,
        clean: bool,
        answered: Callable[[Any], None],
        lost: Callable[[bool], None],
        timeout_s: float,
    ) -> None:
        node = self._environment.node
        self._ask_controller(
            lambda controller, call: controller.register(call, node, incarnation, clean=clean),
            answered, lost, timeout_s,
        )  # fmt: skip

    def _ask_heartbeat(
        self,
        broker_epoch: int,
        stopping: bool,
        answered: Callable[[Any], None],
        lost: Callable[[bool], None],
        timeout_s: float,
    ) -> None:
        node, version = self._environment.node, self.metadata.version
        self._ask_controller(
            lambda controller, call: controller.heartbeat(
                call, node, broker_epoch, version, stopping=stopping
            ),
            answered, lost, timeout_s,
        )  # fmt: skip

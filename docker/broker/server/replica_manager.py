"""Manages the replicas of this broker, each a machine and its log, and carries out their effects.

Rules
1. Events go in through `post` (effect_runner.py has the rules).
2. A disk that refuses ends the process before anything is answered.
3. The purgatory decides which fetch waits for what; the listeners are called when something happened.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from floodmark.broker import runtime
from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol.messages import (
    NO_LEADER,
    Append,
    EndOffsetAnswer,
    FetchAnswer,
    HwMoved,
    LeaderAndIsr,
    ListOffsetsAnswer,
    ProduceAnswer,
    ProposeIsr,
    ReplicaEvent,
    Reset,
    RoleChanged,
    SaveEpochs,
    Tick,
    Truncate,
)
from floodmark.broker.protocol.metadata import Metadata, TopicInfo
from floodmark.broker.protocol.replica import RecoveredState, Replica, ReplicaConfig
from floodmark.broker.protocol.rules import Rules
from floodmark.broker.server.config import LONG_MAX, Config
from floodmark.broker.server.effect_runner import EffectHandlers, EffectRunner, HostedPartition
from floodmark.broker.storage.checkpoint_files import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    CheckpointError,
    ensure_partition_metadata,
    read_offset_checkpoint,
    read_topic_id,
    write_offset_checkpoint,
)
from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.storage.log_directory import DiskError, LogDirectory
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.broker.testing.step_runner import Key
from floodmark.broker.testing.trace import Trace
from floodmark.broker.testing.trace_events import (
    RecoveredLogSummary,
    checkpoint_line,
    start_lines,
    take_snapshot,
)

CLOSE_DELETED_AFTER_MS = 60_000  # as long as Kafka keeps the files of a deleted topic
MIN_INSYNC, FLUSH_MESSAGES, SEGMENT_BYTES = "min.insync.replicas", "flush.messages", "segment.bytes"


def now_ms() -> int:
    """The server's monotonic clock, in milliseconds."""
    return runtime.current.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaListeners:
    """Callbacks for what the replicas do, beside the requesters."""

    appended: Callable[[Key, int], None]  # by a leader, with the number of bytes
    hw_moved: Callable[[Key], None]
    role_changed: Callable[[HostedPartition], None]
    propose: Callable[[HostedPartition, ProposeIsr], None]
    resumed: Callable[[HostedPartition], None]  # a failpoint has released it


@dataclass(slots=True, kw_only=True)
class ReplicaManager:
    """All replicas of a broker, by topic and partition."""

    config: Config
    rules: Rules
    files: LogDirectory
    clean: bool  # the last shutdown was clean
    listeners: ReplicaListeners
    partitions: dict[Key, HostedPartition] = field(default_factory=dict)
    # recovered, and not in any metadata yet
    unassigned_logs: dict[Key, LocalLog] = field(default_factory=dict)
    _checkpointed: dict[Key, int] = field(default_factory=dict)
    _metadata: Metadata = field(default_factory=lambda: Metadata(version=0, brokers=(), topics={}))
    _deleted: list[tuple[int, LocalLog]] = field(default_factory=list)  # (when to close, log), in order
    trace: Trace = field(default_factory=Trace)
    failpoints: Failpoints = field(default_factory=Failpoints)
    _effect_runner: EffectRunner = field(init=False)

    def __post_init__(self) -> None:
        self._checkpointed = read_offset_checkpoint(self.config.log_dir, HIGH_WATERMARKS)
        carry_out: EffectHandlers = {
            Append: self._append_to_log,
            Truncate: self._truncate_log,
            Reset: self._reset_log,
            SaveEpochs: lambda hosted, effect: hosted.log.save_epochs(effect.entries),
            HwMoved: lambda hosted, effect: self.listeners.hw_moved(hosted.key),
            RoleChanged: self._handle_role_change,
            ProduceAnswer: _answer_requester,
            FetchAnswer: _answer_requester,
            EndOffsetAnswer: _answer_requester,
            ListOffsetsAnswer: _answer_requester,
            ProposeIsr: self.listeners.propose,
        }
        self._effect_runner = EffectRunner(carry_out, self.trace, self.failpoints, self._handle_resume)
        self.trace.read_position = self._read_position

    # -- events --------------------------------------------------------------------------------------------

    def post(self, hosted: HostedPartition, event: ReplicaEvent) -> None:
        """Step now or, when called by an effect, after the queued events."""
        self._effect_runner.post(hosted, event)

    def post_together(self, events: Iterable[tuple[HostedPartition, ReplicaEvent]]) -> None:
        """Likewise, and nothing that their effects post comes between them."""
        self._effect_runner.post_together(events)

    def tick(self) -> None:
        now = now_ms()
        while self._deleted and self._deleted[0][0] <= now:
            self._deleted.pop(0)[1].close()
        tick = Tick(now_ms=now)
        for hosted in list(self.partitions.values()):
            self.post(hosted, tick)

    # -- effects -------------------------------------------------------------------------------------------

    def _append_to_log(self, hosted: HostedPartition, effect: Append) -> None:
        hosted.log.append(effect.batches)
        if effect.leading:
            self.listeners.appended(hosted.key, sum([len(batch.data) for batch in effect.batches]))

    def _truncate_log(self, hosted: HostedPartition, effect: Truncate) -> None:
        log(
            "info",
            "truncated",
            topic=hosted.topic,
            partition=hosted.partition,
            to=effect.to,
            was=effect.was,
            why=effect.why,
        )
        hosted.log.truncate(effect.to)

    def _reset_log(self, hosted: HostedPartition, effect: Reset) -> None:
        log("info", "reset", topic=hosted.topic, partition=hosted.partition, start=effect.start)
        hosted.log.reset(effect.start)

    def _handle_role_change(self, hosted: HostedPartition, effect: RoleChanged) -> None:
        replica = hosted.replica
        log(
            "info",
            "leads" if effect.leading else "follows",
            topic=hosted.topic,
            partition=hosted.partition,
            leader=effect.leader,
            epoch=effect.leader_epoch,
            leo=replica.leo,
            hw=replica.hw,
            isr=",".join(map(str, replica.isr)),
        )
        self.listeners.role_changed(hosted)

    # -- partitions ----------------------------------------------------------------------------------------

    def apply_metadata(self, metadata: Metadata) -> None:
        """Post the metadata to every replica here. Create the replicas that are new, or open their logs;
        delete those whose topic was deleted."""
        me, now, broker_epochs = self.config.node_id, now_ms(), metadata.broker_epochs
        self._metadata = metadata
        for hosted in [each for each in self.partitions.values() if self._is_deleted(each)]:
            self._delete_replica(hosted)
        for topic in metadata.topics.values():
            for part in topic.partitions:
                if me not in part.replicas:
                    continue
                hosted = self.partitions.get((topic.name, part.partition)) or self._create_partition(
                    topic, part.partition
                )
                if self._is_deleted(hosted):
                    continue  # an earlier topic of that name, held at a failpoint
                if hosted.configs != topic.configs:
                    self._configure_replica(hosted, topic)
                self.post(
                    hosted,
                    LeaderAndIsr(
                        now_ms=now,
                        leader=part.leader,
                        leader_epoch=part.leader_epoch,
                        isr=part.isr,
                        partition_epoch=part.partition_epoch,
                        replicas=part.replicas,
                        broker_epochs=broker_epochs,
                    ),
                )
        self._delete_stray_logs()

    def _delete_stray_logs(self) -> None:
        """Delete the recovered logs of topics that were deleted while this broker was down (KAFKA-14616)."""
        for key in [each for each in self.unassigned_logs if each[0] not in self._metadata.topics]:
            found = self.unassigned_logs.pop(key)
            log("info", "deleted", topic=key[0], partition=key[1], leo=found.leo)
            self._delete_log(key, found)

    def _configure_replica(self, hosted: HostedPartition, topic: TopicInfo) -> None:
        """Configure a replica by the topic's configs, or else the broker's. Before it has a role: what is not
        flushed yet, and has to be, must not count."""
        flush = _read_setting(topic, FLUSH_MESSAGES, self.config.flush_messages)
        hosted.configs = topic.configs
        hosted.replica.configure(self._replica_config(topic))
        try:
            hosted.log.configure(
                segment_bytes=_read_setting(topic, SEGMENT_BYTES, self.config.segment_bytes),
                flush_messages=None if flush == LONG_MAX else flush,
            )
        except DiskError as error:
            halt_process("log-cannot-be-flushed", error)

    def _replica_config(self, topic: TopicInfo) -> ReplicaConfig:
        return ReplicaConfig(
            min_insync_replicas=_read_setting(topic, MIN_INSYNC, self.config.min_insync_replicas),
            replica_lag_time_max_ms=self.config.replica_lag_time_max_ms,
        )

    # -- deleted topics ------------------------------------------------------------------------------------

    def _is_deleted(self, hosted: HostedPartition) -> bool:
        topic = self._metadata.topics.get(hosted.topic)
        return topic is None or topic.id != hosted.topic_id

    def _handle_resume(self, hosted: HostedPartition) -> None:
        """Tell the listeners that a failpoint has released it; its topic may have been deleted meanwhile."""
        self.listeners.resumed(hosted)
        if self.partitions.get(hosted.key) is hosted and self._is_deleted(hosted):
            self.apply_metadata(self._metadata)

    def _delete_replica(self, hosted: HostedPartition) -> None:
        """Take the replica's role away, which answers all waiting requests, and delete its directory. A
        replica that is held at a failpoint is deleted when it is released."""
        replica = hosted.replica
        self.post(
            hosted,
            LeaderAndIsr(
                now_ms=now_ms(), leader=NO_LEADER, leader_epoch=replica.leader_epoch + 1, isr=replica.isr,
                partition_epoch=replica.partition_epoch + 1, replicas=(), broker_epochs={},
            ),
        )  # fmt: skip
        if hosted.held_step is not None:
            return
        log("info", "deleted", topic=hosted.topic, partition=hosted.partition, leo=replica.leo)
        del self.partitions[hosted.key]
        self._delete_log(hosted.key, hosted.log)

    def _delete_log(self, key: Key, partition_log: LocalLog) -> None:
        """Delete the checkpointed HW first: it must not apply to a log of that name that is created later."""
        try:
            if key in self._checkpointed:
                del self._checkpointed[key]
                write_offset_checkpoint(self.files, HIGH_WATERMARKS, self._checkpointed)
            partition_log.delete()
        except Exception as error:
            halt_process("log-cannot-be-deleted", error)
        self._deleted.append((now_ms() + CLOSE_DELETED_AFTER_MS, partition_log))

    def recover(self) -> None:
        """Open every log that is in the directory, before this broker registers."""
        try:
            for name in sorted(path.name for path in self.config.log_dir.iterdir() if path.is_dir()):
                topic, _, partition = name.rpartition("-")
                topic_id = _find_topic_id(self.files, name) if topic and partition.isdecimal() else None
                if topic_id is not None:
                    self._open_log((topic, int(partition)), topic_id, self.config.segment_bytes)
        except Exception as error:
            halt_process("log-cannot-be-opened", error)
        if self.trace.enabled:
            self.trace.write_process_lines(
                start_lines(self.clean, list(map(self._summarize_recovered_log, self.unassigned_logs)))
            )

    def _summarize_recovered_log(self, key: Key) -> RecoveredLogSummary:
        """Describe a recovered log for the trace."""
        found = self.unassigned_logs[key]
        return RecoveredLogSummary(
            topic=key[0], partition=key[1], log_start=found.log_start, leo=found.leo,
            hw=self._find_recovered_hw(key), batches=found.recovered.batches,
        )  # fmt: skip

    def _find_recovered_hw(self, key: Key) -> int:
        """The HW with which a replica of an unassigned log would begin."""
        found = self.unassigned_logs[key]
        return max(found.log_start, min(self._checkpointed.get(key, 0), found.leo))

    def _read_position(self, topic: str, partition: int) -> tuple[int, int, int] | None:
        hosted = self.partitions.get((topic, partition))
        if hosted is None:
            return None
        return hosted.replica.leader_epoch, hosted.replica.leo, hosted.visible_hw

    def _open_log(self, key: Key, topic_id: str, segment_bytes: int) -> LocalLog:
        opened = LocalLog.open(
            self.files,
            *key,
            topic_id=topic_id,
            segment_bytes=segment_bytes,
            rules=self.rules,
        )
        log(
            "info",
            "log-opened",
            topic=key[0],
            partition=key[1],
            log_start=opened.log_start,
            leo=opened.leo,
            hw=self._checkpointed.get(key, 0),
            cut=opened.recovered.cut,
        )
        self.unassigned_logs[key] = opened
        return opened

    def _get_or_create_log(self, key: Key, topic: TopicInfo) -> LocalLog:
        """Return the log recovered at start, reopened if the topic has its own segment size; or a new log."""
        segment_bytes = _read_setting(topic, SEGMENT_BYTES, self.config.segment_bytes)
        found = self.unassigned_logs.pop(key, None)
        if found is not None and _find_topic_id(self.files, found.folder) not in (topic.id, None):
            log("info", "deleted", topic=key[0], partition=key[1], leo=found.leo)
            self._delete_log(key, found)  # the topic was deleted while this broker was down
            found = None
        if found is not None and segment_bytes == self.config.segment_bytes:
            ensure_partition_metadata(self.files, found.folder, topic.id)
            return found
        if found is not None:
            found.close()
        self._open_log(key, topic.id, segment_bytes)
        return self.unassigned_logs.pop(key)

    def _create_partition(self, topic: TopicInfo, partition: int) -> HostedPartition:
        key = (topic.name, partition)
        try:
            partition_log = self._get_or_create_log(key, topic)
            checkpointed = self._checkpointed.get(key, 0)
            found = partition_log.recovered
            replica = Replica(
                me=self.config.node_id,
                config=self._replica_config(topic),
                rules=self.rules,
                recovered=RecoveredState(
                    log_start=found.log_start, batches=found.batches, epochs=found.epochs, hw=checkpointed
                ),
            )
        except Exception as error:
            halt_process("log-cannot-be-opened", error)
        partition_log.release_recovered_batches()
        hosted = HostedPartition(
            topic=topic.name,
            topic_id=topic.id,
            partition=partition,
            log=partition_log,
            replica=replica,
            checkpointed_hw=checkpointed,
        )
        self._configure_replica(hosted, topic)
        self.partitions[key] = hosted
        return hosted

    def describe_replicas(self) -> list[dict[str, Any]]:
        """Describe each replica for the control socket."""
        return [
            _describe_partition(self.partitions[key], self.clean)
            if key in self.partitions
            else self._describe_unassigned_log(key)
            for key in sorted({**self.partitions, **self.unassigned_logs})
        ]

    def _describe_unassigned_log(self, key: Key) -> dict[str, Any]:
        found = self.unassigned_logs[key]
        return {
            "topic": key[0], "partition": key[1], "leader": -1, "epoch": -1, "log_start": found.log_start,
            "leo": found.leo, "hw": self._find_recovered_hw(key), "isr": [],
            "checkpointed_hw": self._checkpointed.get(key, 0), "clean": self.clean, "proposing": False,
            "epochs": [list(each) for each in found.recovered.epochs] if self.rules.keeps_epochs else None,
        }  # fmt: skip

    # -- checkpoints ---------------------------------------------------------------------------------------

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint, if any HW has moved."""
        self._write_high_watermarks()
        if self.failpoints.armed:
            self.failpoints.meet(FailpointSite(name="D.ckpt_done"), lambda: None)

    def _write_high_watermarks(self) -> None:
        """Write every HW; of unassigned logs the HW that the file had before."""
        moved = {key: hosted.checkpointable_hw for key, hosted in self.partitions.items()}
        offsets = {**self._checkpointed, **moved}
        if not self.rules.checkpoints_every_partition:  # the mutant's: KAFKA-1647
            offsets = {
                key: hw
                for key, hw in moved.items()
                if self.partitions[key].replica.leader != NO_LEADER
            }
        if offsets == self._checkpointed:
            return
        try:
            write_offset_checkpoint(self.files, HIGH_WATERMARKS, offsets)
        except Exception as error:
            halt_process("high-watermarks-not-written", error)
        if self.trace.enabled:
            written = {key: hw for key, hw in moved.items() if hw != self._checkpointed.get(key)}
            self._write_checkpoint_lines("hw", written)
        before, self._checkpointed = self._checkpointed, offsets
        for key, hw in moved.items():
            self.partitions[key].checkpointed_hw = hw
            if self.failpoints.armed and hw != before.get(key):
                epoch = self.partitions[key].replica.leader_epoch
                site = FailpointSite(name="D.ckpt", topic=key[0], partition=key[1], epoch=epoch, offset=hw)
                self._effect_runner.hold_between_steps(self.partitions[key], site)

    def _write_checkpoint_lines(self, what: str, values: Mapping[Key, int]) -> None:
        for key, value in values.items():
            if key in self.partitions:  # an unassigned log has not moved
                now = replace(
                    take_snapshot(self.partitions[key].replica), hw=self.partitions[key].visible_hw
                )
                self.trace.write_replica_lines(*key, [checkpoint_line(what, value, now)])

    def close(self) -> None:
        """The disk's part of a clean shutdown: flush every log, write both checkpoints."""
        logs = {**self.unassigned_logs, **{key: hosted.log for key, hosted in self.partitions.items()}}
        for each in logs.values():
            each.flush()
        recovery_points = {key: each.recovery_point for key, each in logs.items()}
        write_offset_checkpoint(self.files, RECOVERY_POINTS, recovery_points)
        if self.trace.enabled:
            self._write_checkpoint_lines("recovery", recovery_points)
        self.checkpoint_high_watermarks()
        self._effect_runner.close()
        for each in logs.values():
            each.close()


def _find_topic_id(files: LogDirectory, folder: str) -> str | None:
    """The topic id of a partition's folder; None if it cannot be read: the controller's metadata will name
    it."""
    try:
        return read_topic_id(files, folder)
    except (OSError, CheckpointError):
        return None


def _read_setting(topic: TopicInfo, key: str, default: int) -> int:
    """The topic's own value, which the controller has checked to be a number, or the broker's."""
    own = topic.configs.get(key)
    return default if own is None else int(own)


def _answer_requester(hosted: HostedPartition, effect: Any) -> None:
    """Give a waiting request its answer. A token is the request, and the partition's index in it."""
    token, index = effect.token
    token.complete(index, effect)


def _describe_partition(hosted: HostedPartition, clean: bool) -> dict[str, Any]:
    replica = hosted.replica
    epochs = replica.epochs
    return {
        "topic": hosted.topic, "partition": hosted.partition, "leader": replica.leader,
        "epoch": replica.leader_epoch, "log_start": replica.log_start, "leo": replica.leo,
        "hw": hosted.visible_hw,
        "isr": list(replica.isr), "checkpointed_hw": hosted.checkpointed_hw, "clean": clean,
        "proposing": replica.proposing,
        "epochs": None if epochs is None else [list(each) for each in epochs],
    }  # fmt: skip

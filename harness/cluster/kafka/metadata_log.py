"""Reads a KRaft controller's decisions from its metadata log on disk, __cluster_metadata-0, while it grows.
The log has every decision as a record: topics, partitions and their changes, brokers registered, fenced and
unfenced, features finalized (Kafka: metadata/src/main/resources/common/metadata/*.json, all flexible).

Rules
1. Only the needed records are decoded; others are skipped by their key.
2. An incomplete batch at the end is read the next time.
3. A change of a partition without a new leader does not change its leader epoch; every change adds one to the
   partition epoch (Kafka: PartitionRegistration.merge).
4. The log is read from its start, segment by segment. If the next one to read was deleted (Kafka takes a
   snapshot once an hour), the log is refused.
"""

import struct
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from floodmark.harness.client.codec import TopicPartition
from floodmark.harness.cluster.log_extents import METADATA
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.record_batches import HEADER, BatchError, frame, records

SEGMENT = "00000000000000000000.log"  # the first
NO_LEADER = -1
_FENCED = {1: True, -1: False}  # values in BrokerRegistrationChange
_OF_PARTITION_CHANGE = {0: ("isr", "a"), 1: ("leader", "i"), 5: ("recovering", "b"), 6: ("elr", "a")}
_RECOVERING = 1  # the leader was elected uncleanly and has not recovered yet
_MIGRATING = 2  # RegisterBrokerRecord: from this version on
_MAX_TIMESTAMP = 8  # in a batch's header
_UNREADABLE = (BatchError, LookupError, struct.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition's state as the controller, or with ZooKeeper a leader that changed the ISR, wrote it."""

    leader: int  # NO_LEADER: none
    epoch: int
    isr: tuple[int, ...]
    partition_epoch: int  # it counts changes
    elr: tuple[int, ...] = ()  # eligible leaders outside the ISR (KIP-966)
    recovering: bool = False  # its leader was elected uncleanly and has not recovered yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    partitions: Mapping[TopicPartition, PartitionState]
    unfenced: Collection[int]  # registered brokers that it considers alive


@dataclass(slots=True, kw_only=True)
class Decisions:
    topics: dict[bytes, str] = field(default_factory=dict)  # id -> name
    partitions: dict[tuple[bytes, int], PartitionState] = field(default_factory=dict)  # (topic id, partition)
    fenced: dict[int, bool] = field(default_factory=dict)  # broker -> whether it is fenced
    broker_epochs: dict[int, int] = field(default_factory=dict)  # broker -> its epoch, for registered ones
    features: dict[str, int] = field(default_factory=dict)  # name -> finalized level

    def by_name(self) -> dict[TopicPartition, PartitionState]:
        return {(self.topics[topic], partition): state
                for (topic, partition), state in self.partitions.items() if topic in self.topics}


class MetadataLog:
    def __init__(self, log_dir: Path) -> None:
        self._folder = log_dir / METADATA
        self._segment, self._at = SEGMENT, 0
        self._decisions = Decisions()
        self._reading = threading.Lock()

    def decisions(self) -> Decisions:
        with self._reading:
            for _ in self.follow():
                pass
            return self._decisions

    def follow(self) -> Iterator[tuple[int, Decisions]]:
        """Read on to the end of the log so far: after each record, the time of the decision (the controller's
        wall clock, ms since 1970) and the state. FloodmarkError if it cannot be read."""
        while True:  # a segment is whole when there is a later one
            later = min((path.name for path in self._folder.glob("*.log") if path.name > self._segment),
                        default=None)
            yield from self._read_on(later)
            if later is None:
                return
            self._segment, self._at = later, 0

    def _read_on(self, later: str | None) -> Iterator[tuple[int, Decisions]]:
        try:
            with (self._folder / self._segment).open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            if self._at or later or self._segment != SEGMENT:
                raise FloodmarkError(f"{self._folder} no longer begins at offset 0, so the controller's "
                                     "decisions are unknown") from None
            return
        except OSError as error:
            raise FloodmarkError(f"the controller's log {self._folder} cannot be read: {error}") from error
        try:
            stored, size = _records(data)
            for time_ms, value in stored:
                apply_record(self._decisions, value)
                yield time_ms, self._decisions
        except _UNREADABLE as error:
            raise FloodmarkError(f"the controller's log {self._folder} has a record that cannot be read: "
                                 f"{error}") from error
        self._at += size


def _records(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The time and the value of each record in the complete batches, and the size of these."""
    found, at = [], 0
    while (header := frame(data, at)) is not None:
        if not header.control:
            time_ms = HEADER.unpack_from(data, at)[_MAX_TIMESTAMP]  # of all its records
            found += [(time_ms, record.value or b"") for record in records(data, at, header)]
        at += header.size
    return found, at


class _Reader:
    """Reads the fields of one record, in order. IndexError or struct.error if they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, codes: str) -> list[Any]:
        """A field for each code: one of struct's numbers, v: a varint, s: a string, u: a UUID, a: int32s."""
        return [self._read(code) for code in codes]

    def tagged(self) -> dict[int, "_Reader"]:
        return {self._varint(): _Reader(self._bytes(self._varint())) for _ in range(self._varint())}

    def _read(self, code: str) -> Any:
        match code:
            case "v":
                return self._varint()
            case "s":
                return self._bytes(self._varint() - 1).decode()
            case "u":
                return self._bytes(16)
            case "a":
                count = self._varint() - 1
                return struct.unpack(f">{count}i", self._bytes(4 * count))
        return struct.unpack(f">{code}", self._bytes(struct.calcsize(f">{code}")))[0]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _bytes(self, count: int) -> bytes:
        data = self._data[self._at:self._at + count]
        if len(data) < count:
            raise IndexError("a field runs past the end")
        self._at += count
        return data


def apply_record(decisions: Decisions, value: bytes) -> None:
    reader = _Reader(value)
    _, kind, version = reader.read("vvv")  # the first is the frame's version
    match kind:  # later versions add fields, mostly after those that are read
        case 0:  # RegisterBroker: fenced at first (Kafka: ClusterControlManager.registerBroker)
            broker, *_, epoch = reader.read("ibuq" if version >= _MIGRATING else "iuq")
            decisions.broker_epochs[broker], decisions.fenced[broker] = epoch, True
        case 1:  # UnregisterBroker
            (broker,) = reader.read("i")
            decisions.fenced.pop(broker, None)
            decisions.broker_epochs.pop(broker, None)
        case 2:  # Topic
            name, topic = reader.read("su")
            decisions.topics[topic] = name
        case 3:  # Partition, with replicas, isr, and those being removed and added
            number, topic, _, isr, _, _, leader, epoch, partition_epoch = reader.read("iuaaaaiii")
            decisions.partitions[topic, number] = PartitionState(
                isr=isr, leader=leader, epoch=epoch, partition_epoch=partition_epoch)
        case 5:  # PartitionChange
            number, topic = reader.read("iu")
            state = decisions.partitions[topic, number]
            changes: dict[str, Any] = {}
            for tag, field in reader.tagged().items():
                if tag in _OF_PARTITION_CHANGE:
                    key, code = _OF_PARTITION_CHANGE[tag]
                    (changes[key],) = field.read(code)
            if "leader" in changes:
                changes["epoch"] = state.epoch + 1
            if "recovering" in changes:
                changes["recovering"] = changes["recovering"] == _RECOVERING
            decisions.partitions[topic, number] = replace(
                state, **changes, partition_epoch=state.partition_epoch + 1)
        case 7 | 8:  # FenceBroker, UnfenceBroker: of a metadata.version below 3.3-IV2, which -c may set
            (broker,) = reader.read("i")
            decisions.fenced[broker] = kind == 7
        case 9:  # RemoveTopic
            (topic,) = reader.read("u")
            decisions.topics.pop(topic, None)
        case 12:  # FeatureLevel
            name, level = reader.read("sh")
            decisions.features[name] = level
        case 17:  # BrokerRegistrationChange
            broker, _ = reader.read("iq")
            change = reader.tagged().get(0)
            if change is not None and (fenced := _FENCED.get(*change.read("b"))) is not None:
                decisions.fenced[broker] = fenced


def formatted_features(log_dir: Path) -> Mapping[str, int]:
    """The level of each feature (KIP-584) that a folder was formatted with; none before 3.3. The format
    command writes it into the folder itself, from 4.4 on into __cluster_metadata-0."""
    decisions = Decisions()
    for path in sorted((*log_dir.glob("*.checkpoint"), *(log_dir / METADATA).glob("*.checkpoint"))):
        try:
            for _, value in _records(path.read_bytes())[0]:
                apply_record(decisions, value)
        except (OSError, *_UNREADABLE) as error:
            raise FloodmarkError(f"{path}, which Kafka's format wrote, cannot be read: {error}") from error
    return decisions.features


def refuse_other_features(asked: Mapping[str, int], finalized: Mapping[str, int], version: str) -> None:
    """Raises FloodmarkError for another level than the formatted one. Kafka leaves out level 0."""
    wrong = [f"{name} has level {finalized.get(name, 0)}, not {level}"
             for name, level in sorted(asked.items()) if finalized.get(name, 0) != level]
    if wrong:
        raise FloodmarkError(f"this cluster of Kafka {version} does not have the features that its folder "
                             f"was formatted with: {'; '.join(wrong)}")

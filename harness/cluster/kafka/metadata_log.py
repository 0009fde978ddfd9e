"""Reads a KRaft controller's decisions from its metadata log on disk, __cluster_metadata-0, while it grows.
The log has every decision as a record: topics, partitions and their changes, brokers registered, fenced and
unfenced, features finalized (Kafka: metadata/src/main/resources/common/metadata/*.json, all flexible).

Rules
1. Only the needed records are decoded; others are skipped by their key.
2. An incomplete batch at the end is read the next time.
3. A change of a partition without a new leader does not change its leader epoch; every change adds one to the
   partition epoch (Kafka: PartitionRegistration.merge).
4. The log is read from its start. If the start was deleted (Kafka takes a snapshot once an hour), the log is
   refused.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.record_batches import HEADER, BatchError, frame, records

FOLDER = "__cluster_metadata-0"
SEGMENT = "00000000000000000000.log"
NO_LEADER = -1
_FENCE, _UNFENCE = 1, -1  # values in BrokerRegistrationChange
_RECOVERING = 1  # the leader was elected uncleanly and has not recovered yet
_MIGRATING = 2  # RegisterBrokerRecord: from this version on
_MAX_TIMESTAMP = 8  # in a batch's header


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    leader: int  # NO_LEADER: none
    epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    elr: tuple[int, ...] = ()  # eligible leaders outside the ISR (KIP-966)
    recovering: bool = False  # its leader was elected uncleanly and has not recovered yet


@dataclass(slots=True, kw_only=True)
class Decisions:
    """The state after all records so far."""

    topics: dict[bytes, str] = field(default_factory=dict)  # id -> name
    partitions: dict[tuple[bytes, int], PartitionState] = field(default_factory=dict)  # (topic id, partition)
    fenced: dict[int, bool] = field(default_factory=dict)  # broker -> whether it is fenced
    broker_epochs: dict[int, int] = field(default_factory=dict)  # broker -> its epoch, for registered ones
    features: dict[str, int] = field(default_factory=dict)  # name -> finalized level

    def by_name(self) -> dict[tuple[str, int], PartitionState]:
        return {(self.topics[topic], partition): state
                for (topic, partition), state in self.partitions.items() if topic in self.topics}


# Called with the time of a decision (the controller's wall clock, ms since 1970) and the state after it.
OnRecord = Callable[[int, Decisions], None]


class MetadataLog:
    """Follows the metadata log of one controller; `log_dir` is its log.dirs."""

    def __init__(self, log_dir: Path, on_record: OnRecord | None = None) -> None:
        """on_record: called after each record."""
        self._on_record = on_record
        self._folder = log_dir / FOLDER
        self._at = 0
        self._decisions = Decisions()

    def decisions(self) -> Decisions:
        """The state after everything in the log so far. FloodmarkError if it cannot be read."""
        try:
            with (self._folder / SEGMENT).open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            later = [path for path in self._folder.glob("*.log") if path.name != SEGMENT]  # it may come now
            if self._at or later:
                raise FloodmarkError(f"{self._folder} no longer begins at offset 0, so the controller's "
                                     "decisions are unknown") from None
            return self._decisions
        except OSError as error:
            raise FloodmarkError(f"the controller's log {self._folder} cannot be read: {error}") from error
        at = 0
        while (header := frame(data, at)) is not None and header.size:
            if not header.control:
                try:
                    for record in records(data, at, header):
                        apply_record(self._decisions, record.value or b"")
                        if self._on_record is not None:
                            self._on_record(_batch_time_ms(data, at), self._decisions)
                except (BatchError, LookupError, struct.error) as error:
                    raise FloodmarkError(f"the controller's log {self._folder} has a record at offset "
                                         f"{header.base_offset} that cannot be read: {error}") from error
            at += header.size
        self._at += at
        return self._decisions


def _batch_time_ms(data: bytes, at: int) -> int:
    """When the batch was appended: all its records have the same time."""
    time_ms: int = HEADER.unpack_from(data, at)[_MAX_TIMESTAMP]
    return time_ms


# -- records ------------------------------------------------------------------------------------------------

class _Reader:
    """Reads the fields of one record, in order. IndexError or struct.error if they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.version = 0  # of the record

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(f">{code}")
        return int(value)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def bytes_of(self, count: int) -> bytes:
        data = self._data[self._at:self._at + count]
        if len(data) < count:
            raise IndexError("a field runs past the end")
        self._at += count
        return data

    def uuid(self) -> bytes:
        return self.bytes_of(16)

    def string(self) -> str:
        return self.bytes_of(self.uvarint() - 1).decode()

    def int32s(self) -> tuple[int, ...]:
        return tuple(self.number("i") for _ in range(self.uvarint() - 1))

    def tagged(self) -> dict[int, "_Reader"]:
        found = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = _Reader(self.bytes_of(self.uvarint()))
        return found


def apply_record(decisions: Decisions, value: bytes) -> None:
    reader = _Reader(value)
    reader.uvarint()  # the version of the frame
    apply = _APPLY.get(reader.uvarint())
    reader.version = reader.uvarint()  # later versions add fields, mostly after those that are read
    if apply is not None:
        apply(decisions, reader)


def _topic(decisions: Decisions, reader: _Reader) -> None:
    name = reader.string()
    decisions.topics[reader.uuid()] = name


def _remove_topic(decisions: Decisions, reader: _Reader) -> None:
    decisions.topics.pop(reader.uuid(), None)


def _partition(decisions: Decisions, reader: _Reader) -> None:
    number, topic = reader.number("i"), reader.uuid()
    reader.int32s()  # replicas
    isr = reader.int32s()
    reader.int32s()  # being removed
    reader.int32s()  # being added
    decisions.partitions[topic, number] = PartitionState(
        isr=isr, leader=reader.number("i"), epoch=reader.number("i"), partition_epoch=reader.number("i"))


def _partition_change(decisions: Decisions, reader: _Reader) -> None:
    number, topic = reader.number("i"), reader.uuid()
    tags = reader.tagged()
    state = decisions.partitions[topic, number]
    if 0 in tags:
        state = replace(state, isr=tags[0].int32s())
    if 1 in tags:
        state = replace(state, leader=tags[1].number("i"), epoch=state.epoch + 1)
    if 5 in tags:
        state = replace(state, recovering=tags[5].number("b") == _RECOVERING)
    if 6 in tags:
        state = replace(state, elr=tags[6].int32s())
    decisions.partitions[topic, number] = replace(state, partition_epoch=state.partition_epoch + 1)


def _register(decisions: Decisions, reader: _Reader) -> None:
    """Applies a registration; the broker is fenced at first (Kafka: ClusterControlManager.registerBroker)."""
    broker = reader.number("i")
    if reader.version >= _MIGRATING:
        reader.number("b")  # whether it migrates from ZooKeeper
    reader.uuid()  # the incarnation id
    decisions.broker_epochs[broker] = reader.number("q")
    decisions.fenced[broker] = True


def _registration_change(decisions: Decisions, reader: _Reader) -> None:
    broker = reader.number("i")
    reader.number("q")  # its epoch
    tags = reader.tagged()
    change = tags[0].number("b") if 0 in tags else 0
    if change in (_FENCE, _UNFENCE):
        decisions.fenced[broker] = change == _FENCE


def _fence(decisions: Decisions, reader: _Reader) -> None:
    decisions.fenced[reader.number("i")] = True


def _unfence(decisions: Decisions, reader: _Reader) -> None:
    decisions.fenced[reader.number("i")] = False


def _unregister(decisions: Decisions, reader: _Reader) -> None:
    broker = reader.number("i")
    decisions.fenced.pop(broker, None)
    decisions.broker_epochs.pop(broker, None)


def _feature(decisions: Decisions, reader: _Reader) -> None:
    name = reader.string()
    decisions.features[name] = reader.number("h")


_APPLY: dict[int, Callable[[Decisions, _Reader], None]] = {
    0: _register, 1: _unregister, 2: _topic, 3: _partition, 5: _partition_change, 7: _fence, 8: _unfence,
    9: _remove_topic, 12: _feature, 17: _registration_change,
}


# -- features -----------------------------------------------------------------------------------------------

def formatted_features(log_dir: Path) -> Mapping[str, int]:
    """The level of each feature (KIP-584) that a folder was formatted with; empty if there is no checkpoint
    (before 3.3). The format command writes it: into the folder itself up to 4.3, into __cluster_metadata-0
    from 4.4 on."""
    decisions = Decisions()
    for path in sorted((*log_dir.glob("*.checkpoint"), *(log_dir / FOLDER).glob("*.checkpoint"))):
        try:
            data, at = path.read_bytes(), 0
            while (header := frame(data, at)) is not None and header.size:
                for record in () if header.control else records(data, at, header):
                    apply_record(decisions, record.value or b"")
                at += header.size
        except (OSError, BatchError, LookupError, struct.error) as error:
            raise FloodmarkError(f"{path}, which Kafka's format wrote, cannot be read: {error}") from error
    return decisions.features


def refuse_other_features(asked: Mapping[str, int], finalized: Mapping[str, int], version: str) -> None:
    """Raises FloodmarkError if a feature's level is not the formatted one. Kafka leaves out those of level
    0."""
    wrong = [f"{name} has level {finalized.get(name, 0)}, not {level}"
             for name, level in sorted(asked.items()) if finalized.get(name, 0) != level]
    if wrong:
        raise FloodmarkError(f"this cluster of Kafka {version} does not have the features that its folder "
                             f"was formatted with: {'; '.join(wrong)}")

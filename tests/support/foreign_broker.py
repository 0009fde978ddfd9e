"""A small foreign system on Kafka's wire, to hold `floodmark run --bootstrap` against: it keeps records in
memory, and each of its bugs and peculiarities is switched on by name.

All brokers live in one process and share one log of each partition, so every replica has all of it, the high
watermark is its end, and any broker in the ISR may lead. A broker that is down accepts connections and closes
them; its port stays its own.
"""

import asyncio
import json
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from canned_broker import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    REQUESTS,
    api_versions,
    encoded,
    served,
)
from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import ProduceResponse

CREATE, DELETE, CONFIGS, ELECT = 19, 20, 32, 43
_SERVED = {PRODUCE: (3, 9), FETCH: (4, 12), LIST_OFFSETS: (1, 7), METADATA: (1, 9), API_VERSIONS: (0, 0),
           CREATE: (2, 4), DELETE: (1, 3), CONFIGS: (1, 3), ELECT: (1, 1)}
_REQUESTS = {**REQUESTS, CREATE: CreateTopicsRequest, DELETE: DeleteTopicsRequest,
             CONFIGS: DescribeConfigsRequest, ELECT: ElectLeadersRequest}
_OUT_OF_RANGE, _UNKNOWN_TOPIC, _NO_LEADER, _NOT_LEADER, _FEW_REPLICAS, _FENCED_EPOCH = 1, 3, 5, 6, 19, 74
_NOT_PREFERRED = 80
_EARLIEST, _ANY_REPLICA = -2, -2
SETTINGS = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false",
            "broker.session.timeout.ms": "1000", "replica.lag.time.max.ms": "1000"}
_START_S = 120.0
_ASK_CONTROL = ("import socket, sys; control = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
                "control.sendall(' '.join(sys.argv[2:]).encode() + b'\\n'); sys.exit(not control.recv(1))")


class Quirk(Enum):
    """One bug of the system, or (from DELETES_BY_AGE on) what a correct system may show too."""

    BEGINNING_MOVES = "a log begins above its first records, although it keeps everything"
    READS_NOTHING = "a fetch from the beginning returns nothing below the high watermark that it names"
    SKIPS_PREFIX = "a fetch from the beginning skips the first records"
    FORGETS_TOPIC = "after all brokers were down nobody knows any topic"
    BAD_CHECKSUM = "one batch of each partition is damaged"
    NO_ACKS = "from some record on no send is acked"
    DELETES_BY_AGE = "a log begins above its first records, by a retention that the system shows"
    LSO_BELOW_HW = "somebody else's transaction stays open"
    NO_CONTROLLER_YET = "after all brokers were down nobody knows controller or topics for a while"
    LISTS_FEWER = "what FORGETS_TOPIC has, but the last broker is not listed yet"
    ONE_PARTITION = "a topic has one partition, whatever was asked"
    ONE_REMEMBERS = "what FORGETS_TOPIC has, but the first broker knows the topics, without leaders"


@dataclass(slots=True, kw_only=True)
class _Batch:
    base: int
    last: int
    data: bytes


@dataclass(slots=True, kw_only=True)
class _Log:
    """One partition."""

    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    epoch: int = 0
    start: int = 0
    batches: list[_Batch] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def append(self, data: bytes) -> _Batch:
        """Stores a batch as a leader does; offset and epoch are not covered by its checksum."""
        base = self.end
        last = base + struct.unpack_from(">i", data, 23)[0]
        placed = struct.pack(">q", base) + data[8:12] + struct.pack(">i", self.epoch) + data[16:]
        self.batches.append(_Batch(base=base, last=last, data=placed))
        return self.batches[-1]


@dataclass(slots=True)
class ForeignCluster:
    """The system. ports: node id -> port; quirks may be changed while it runs."""

    quirks: set[Quirk]
    ports: dict[int, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    up: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)  # they answer nothing
    unserved: set[int] = field(default_factory=set)  # api keys
    controller: int | None = None  # named in Metadata; None: a broker that is up
    topics: dict[str, list[_Log]] = field(default_factory=dict)
    topic_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    control_port: int = 0
    odd_from: int = 8  # records of a partition, from which on its bug shows
    unready_answers: int = 40  # in Metadata, after all brokers were down
    _forgot: bool = False
    _unready: int = 0  # Metadata answers until controller and topics are known
    _grown: asyncio.Event = field(default_factory=asyncio.Event)
    _open: dict[int, set[asyncio.StreamWriter]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def faults_file(self, file: Path) -> Path:
        """The owner's commands to kill, stop and start brokers."""
        argv = [sys.executable, "-S", "-c", _ASK_CONTROL, str(self.control_port)]
        file.write_text("[commands]\n" + "".join(
            f"{act} = {json.dumps([*argv, act, '{node}'])}\n" for act in ("kill", "stop", "start")))
        return file

    # -- brokers that go and come -------------------------------------------------------------------------

    def end(self, node: int) -> None:
        self.up.discard(node)
        for writer in self._open.pop(node, set()):
            writer.close()
        self._elect()
        if not self.up and Quirk.FORGETS_TOPIC in self.quirks:
            self._forgot = True
        if not self.up and Quirk.NO_CONTROLLER_YET in self.quirks:
            self._unready = self.unready_answers

    def begin(self, node: int) -> None:
        self.up.add(node)
        self._elect()

    def _elect(self) -> None:
        for log in (log for logs in self.topics.values() for log in logs):
            log.isr = tuple(node for node in log.replicas if node in self.up)
            if log.leader not in log.isr:
                log.leader = log.isr[0] if log.isr else -1
                log.epoch += bool(log.isr)

    # -- the wire -----------------------------------------------------------------------------------------

    async def serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def answer(frame: bytes) -> bytes | None:
            if node not in self.up:
                raise ConnectionError
            made = await self._answer(node, frame)
            return None if node in self.paused else made

        if node in self.up:
            self._open.setdefault(node, set()).add(writer)
            await served(reader, writer, answer)
            self._open.get(node, set()).discard(writer)
        writer.close()

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        act, name = (await reader.readline()).decode().split()
        (self.begin if act == "start" else self.end)(int(name[1:]))
        writer.write(b"\n")
        writer.close()

    async def _answer(self, node: int, frame: bytes) -> bytes | None:
        api, version = struct.unpack_from(">hh", frame)
        if api == API_VERSIONS:
            return api_versions({api: span for api, span in _SERVED.items() if api not in self.unserved})
        request = _REQUESTS[api].decode(frame, version=version, header=True)
        if api == FETCH:
            made = await self._fetch(node, request)
        else:
            answers = {PRODUCE: self._produce, LIST_OFFSETS: self._list_offsets, METADATA: self._metadata,
                       CREATE: self._create, DELETE: self._delete, CONFIGS: self._configs,
                       ELECT: self._elect_leaders}
            made = answers[api](node, request)
        if api == PRODUCE and request.acks == 0:
            return None
        return encoded(made, api, version)

    def _log(self, topic: str, partition: int) -> _Log | None:
        logs = [] if self._unready or self._forgot else self.topics.get(topic, [])
        return logs[partition] if partition < len(logs) else None

    def _shown(self, node: int, topic: str) -> list[_Log]:
        """The partitions that a broker's Metadata has."""
        remembers = not self._forgot or (Quirk.ONE_REMEMBERS in self.quirks and node == min(self.ports))
        return self.topics.get(topic, []) if remembers and not self._unready else []

    def _metadata(self, node: int, request: Any) -> Any:
        one = MetadataResponse.MetadataResponseTopic
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        topics = [one(error_code=0 if self._shown(node, name) else _UNKNOWN_TOPIC, name=name,
                      partitions=[one.MetadataResponsePartition(
                          error_code=_NO_LEADER if log.leader < 0 or self._forgot else 0,
                          leader_id=-1 if self._forgot else log.leader, partition_index=index,
                          leader_epoch=log.epoch, replica_nodes=list(log.replicas), isr_nodes=list(log.isr))
                          for index, log in enumerate(self._shown(node, name))])
                  for name in names]
        fewer = {max(self.ports)} if self._forgot and Quirk.LISTS_FEWER in self.quirks else set()
        controller = -1 if self._unready else self.controller or min(self.up)
        self._unready = max(0, self._unready - 1)
        return MetadataResponse(cluster_id="foreign", controller_id=controller, topics=topics, brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=up, host="127.0.0.1", port=self.ports[up])
            for up in sorted(self.up - fewer)])

    # -- topics -------------------------------------------------------------------------------------------

    def _create(self, node: int, request: Any) -> Any:
        for topic in request.topics:
            self.topics[topic.name] = [
                _Log(replicas=tuple(part.broker_ids), leader=part.broker_ids[0], isr=tuple(part.broker_ids))
                for part in sorted(topic.assignments, key=lambda part: part.partition_index)]
            if Quirk.ONE_PARTITION in self.quirks:
                del self.topics[topic.name][1:]
            self.topic_settings[topic.name] = {entry.name: entry.value for entry in topic.configs}
        return CreateTopicsResponse(topics=[
            CreateTopicsResponse.CreatableTopicResult(name=topic.name) for topic in request.topics])

    def _delete(self, node: int, request: Any) -> Any:
        known = {name: self.topics.pop(name, None) is not None for name in request.topic_names}
        return DeleteTopicsResponse(responses=[
            DeleteTopicsResponse.DeletableTopicResult(name=name, error_code=0 if had else _UNKNOWN_TOPIC)
            for name, had in known.items()])

    def _configs(self, node: int, request: Any) -> Any:
        one = DescribeConfigsResponse.DescribeConfigsResult
        aged = {"retention.ms": "1000"} if Quirk.DELETES_BY_AGE in self.quirks else {}
        return DescribeConfigsResponse(results=[
            one(resource_type=asked.resource_type, resource_name=asked.resource_name, configs=[
                one.DescribeConfigsResourceResult(name=name, value=value) for name, value in {
                    **self.settings, **self.topic_settings.get(asked.resource_name, {}), **aged}.items()])
            for asked in request.resources])

    def _elect_leaders(self, node: int, request: Any) -> Any:
        one = ElectLeadersResponse.ReplicaElectionResult
        return ElectLeadersResponse(replica_election_results=[
            one(topic=asked.topic, partition_result=[one.PartitionResult(
                partition_id=index, error_code=self._prefer(self.topics[asked.topic][index]))
                for index in asked.partitions]) for asked in request.topic_partitions])

    def _prefer(self, log: _Log) -> int:
        if log.replicas[0] not in log.isr:
            return _NOT_PREFERRED
        log.epoch += log.leader != log.replicas[0]
        log.leader = log.replicas[0]
        return 0

    # -- records ------------------------------------------------------------------------------------------

    def _produce(self, node: int, request: Any) -> Any:
        one = ProduceResponse.TopicProduceResponse
        made = []
        for topic in request.topic_data:
            parts = [(part.index, *self._appended(node, topic.name, part)) for part in topic.partition_data]
            made.append(one(name=topic.name, partition_responses=[
                one.PartitionProduceResponse(index=index, error_code=error, base_offset=base)
                for index, error, base in parts]))
        self._grown.set()
        self._grown = asyncio.Event()
        return ProduceResponse(responses=made)

    def _appended(self, node: int, topic: str, part: Any) -> tuple[int, int]:
        """The error, and the base offset."""
        log = self._log(topic, part.index)
        if log is None or log.leader != node:
            return _UNKNOWN_TOPIC if log is None else _NOT_LEADER, -1
        odd = log.end >= self.odd_from
        if len(log.isr) < min(len(log.replicas), int(self.settings["min.insync.replicas"])) or (
                odd and Quirk.NO_ACKS in self.quirks):
            return _FEW_REPLICAS, -1
        damaged = any(batch.base >= self.odd_from for batch in log.batches)
        stored = log.append(bytes(part.records))
        if odd and not damaged and Quirk.BAD_CHECKSUM in self.quirks:
            stored.data = stored.data[:-1] + bytes([stored.data[-1] ^ 0xFF])
        if odd and self.quirks & {Quirk.BEGINNING_MOVES, Quirk.DELETES_BY_AGE}:
            log.start = log.batches[len(log.batches) // 4].base
        return 0, stored.base

    async def _fetch(self, node: int, request: Any) -> Any:
        one = FetchResponse.FetchableTopicResponse
        deadline_s = time.monotonic() + request.max_wait_ms / 1000
        while True:
            grown = self._grown
            topics = [one(topic=topic.topic, partitions=[self._fetched(node, topic.topic, part, request)
                                                         for part in topic.partitions])
                      for topic in request.topics]
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or any(part.records or part.error_code for topic in topics
                                  for part in topic.partitions):
                return FetchResponse(responses=topics)
            try:
                await asyncio.wait_for(grown.wait(), left_s)
            except TimeoutError:
                pass

    def _fetched(self, node: int, topic: str, part: Any, request: Any) -> Any:
        one = FetchResponse.FetchableTopicResponse.PartitionData
        log = self._log(topic, part.partition)
        error = _UNKNOWN_TOPIC if log is None else 0
        if log is not None and node not in log.isr:
            error = _NOT_LEADER
        if log is not None and not error and not log.start <= part.fetch_offset <= log.end:
            error = _OUT_OF_RANGE
        if log is not None and -1 < (part.current_leader_epoch or -1) < log.epoch:
            error = _FENCED_EPOCH
        if log is None or error:
            return one(partition_index=part.partition, error_code=error, high_watermark=-1)
        return one(partition_index=part.partition, high_watermark=log.end, last_stable_offset=self._lso(log),
                   log_start_offset=log.start, records=self._records(log, part, self._end(log, request)))

    def _lso(self, log: _Log) -> int:
        return min(log.end, self.odd_from) if Quirk.LSO_BELOW_HW in self.quirks else log.end

    def _end(self, log: _Log, request: Any) -> int:
        """Of what this reader may see."""
        return self._lso(log) if request.isolation_level == 1 else log.end

    def _records(self, log: _Log, part: Any, below: int) -> bytes:
        offset = part.fetch_offset
        if offset == 0 and log.end > self.odd_from:
            if Quirk.READS_NOTHING in self.quirks:
                return b""
            offset = self.odd_from if Quirk.SKIPS_PREFIX in self.quirks else 0
        pieces, size = [], 0
        for batch in (batch for batch in log.batches if batch.last >= offset and batch.base < below):
            if pieces and size + len(batch.data) > part.partition_max_bytes:
                break
            pieces.append(batch.data)
            size += len(batch.data)
        return b"".join(pieces)

    def _list_offsets(self, node: int, request: Any) -> Any:
        one = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(topics=[one(name=topic.name, partitions=[
            one.ListOffsetsPartitionResponse(partition_index=part.partition_index, **dict(zip(
                ("error_code", "offset", "leader_epoch"),
                self._offset(node, topic.name, part, request), strict=True)))
            for part in topic.partitions]) for topic in request.topics])

    def _offset(self, node: int, topic: str, part: Any, request: Any) -> tuple[int, int, int]:
        """The error, the offset, and the leader's epoch."""
        log = self._log(topic, part.partition_index)
        if log is None:
            return _UNKNOWN_TOPIC, -1, -1
        if node not in log.isr or (node != log.leader and request.replica_id != _ANY_REPLICA):
            return _NOT_LEADER, -1, -1
        return 0, log.start if part.timestamp == _EARLIEST else self._end(log, request), log.epoch


@contextmanager
def foreign_cluster(*quirks: Quirk, nodes: int = 3) -> Iterator[ForeignCluster]:
    """Runs the system in a thread."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    cluster = ForeignCluster(set(quirks))
    done = asyncio.Event()

    async def run() -> None:
        servers = [await asyncio.start_server(
            lambda reader, writer, node=node: cluster.serve(node, reader, writer), "127.0.0.1", 0)
            for node in range(1, nodes + 1)]
        servers.append(await asyncio.start_server(cluster.control, "127.0.0.1", 0))
        *ports, cluster.control_port = (server.sockets[0].getsockname()[1] for server in servers)
        cluster.ports.update(enumerate(ports, start=1))
        cluster.up.update(cluster.ports)
        ready.set()
        await done.wait()
        for server in servers:
            server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(_START_S), "the foreign cluster did not start"
        yield cluster
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()

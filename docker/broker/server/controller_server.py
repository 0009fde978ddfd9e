"""The controller's shell: requests become events, records become durable, the metadata is sent to every
broker.

Rules
1. One event at a time; a step's records are on disk (fsync), and told in the trace, before any answer or
   message of that step leaves.
2. Time stands still while this process was away (broker.server.controller_clock).
3. What cannot be persisted ends the process: its next start reads what is on disk.
4. A freeze or an expiry asked for on the control socket passes through the same one queue.
"""

import asyncio
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from broker.process_log import halt_process, log
from broker.protocol import errors
from broker.protocol.controller import Controller, ControllerConfig
from broker.protocol.messages import (
    AllocateProducerIds,
    ControllerEvent,
    CreateTopic,
    Elect,
    Expire,
    Heartbeat,
    Persist,
    Publish,
    Register,
    Tick,
)
from broker.server.altering import alter_partitions
from broker.server.api_versions import NO_TIME, SERVED_BY_CONTROLLER, write_api_versions_response
from broker.server.config import Config
from broker.server.controller_clock import ControllerClock
from broker.server.controller_views import describe_controller, parse_election
from broker.server.metadata_publisher import MetadataPublisher
from broker.server.socket_server import Connection, SocketServer
from broker.server.topic_configs import check_topic_configs
from broker.server.topic_requests import PARTITIONS_MAX, TopicRequests
from broker.storage.controller_journal import Journal
from broker.testing.bugs import rules_for
from broker.testing.control_socket import ControlError, ControlSocket
from broker.testing.controller_trace_events import controller_lines, missing_lines
from broker.testing.failpoint_requests import parse_arms
from broker.testing.failpoints import Failpoints, Fate
from broker.testing.trace import Trace, latest_metadata_version
from broker.wire import api_keys
from broker.wire.codec import (
    RequestHeader,
    WireError,
    error_code,
    make,
    read_request,
    read_request_header,
    response_parts,
    write_response,
)

_TICK_S = 0.025
_TICK_LATE_MS = 200  # a tick later than this: we were away
JOURNAL = "controller.jsonl"
_UNCLEAN = 1  # election type


class ControllerServer:
    """The controller process. `run` returns after SIGTERM."""

    def __init__(self, config: Config) -> None:
        config.log_dir.mkdir(parents=True, exist_ok=True)
        self._config = config
        self._journal = Journal.open(config.log_dir / JOURNAL)
        self._clock = ControllerClock(lambda: time.monotonic_ns() // 1_000_000, _TICK_LATE_MS)
        self._controller = Controller(
            ControllerConfig(
                session_timeout_ms=config.session_timeout_ms,
                unclean_leader_election=config.unclean_leader_election,
                default_replication_factor=config.default_replication_factor,
                default_partitions=config.num_partitions,
            ),
            self._journal.records,
            rules_for(config.rules, config.bugs, config.switches),
        )
        self._trace = self._continue_trace(config)
        self._failpoints = Failpoints(
            config.role,
            parse_arms(config.failpoints, config.role),
            look=self._state,
            tell=self._trace.write_failpoint,
        )
        self._publishers: dict[int, MetadataPublisher] = {}
        self._listener = SocketServer(self._handle_request, config.request_max_bytes)
        self._asked_to_stop = asyncio.Event()
        self._serves: Mapping[int, Callable[[Any, RequestHeader], Any]] = {
            api_keys.BROKER_REGISTRATION: self._register,
            api_keys.BROKER_HEARTBEAT: self._heartbeat,
            api_keys.ALLOCATE_PRODUCER_IDS: self._allocate_producer_ids,
            api_keys.CREATE_TOPICS: self._create_topics,
            api_keys.ELECT_LEADERS: self._elect_leaders,
            **TopicRequests(self._controller.metadata, self._step, self._clock.now_ms).serves,
        }

    async def run(self) -> None:
        config = self._config
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop.set)
        control = ControlSocket(self._state, {"expire": self._expire, "elect": self._elect}, self._failpoints)
        if config.control is not None:
            control.open(config.control, config.control_from)
        await self._listener.open(*config.listen)
        self._publish()
        log(
            "info",
            "started",
            node=config.node_id,
            role="controller",
            rules=config.rules,
            listen=f"{config.listen[0]}:{config.listen[1]}",
            records=len(self._journal.records),
            torn_bytes=self._journal.torn_bytes,
        )
        ticking = asyncio.create_task(self._tick())
        await self._asked_to_stop.wait()
        ticking.cancel()
        self._listener.close()
        for herald in self._publishers.values():
            await herald.close()
        control.close()
        self._journal.close()
        log("info", "stopped")

    # -- steps -----------------------------------------------------------------------------------------------

    def _step(self, event: ControllerEvent) -> Any:
        """One event; what answers it, or None."""
        try:
            answer = None
            before = self._controller.metadata()
            for effect in self._controller.step(event):
                if isinstance(effect, Persist):
                    self._journal.append(effect.records)
                    if self._trace.on:
                        self._trace.write_process_lines(controller_lines(before, event, effect.records))
                    for record in effect.records:
                        log(
                            "info",
                            "record",
                            by=type(event).__name__,
                            **{str(k): v for k, v in record.items()},
                        )
                elif isinstance(effect, Publish):
                    self._publish()
                else:
                    answer = effect
            return answer
        except Exception as error:
            log("error", "step-failed", by=event)
            halt_process("stopped-by-a-broken-invariant-or-disk", error)

    def _continue_trace(self, config: Config) -> Trace:
        """The trace, and in it what became durable just before the last end and was told to nobody yet."""
        trace = Trace(config.trace, config.node_id)
        if config.trace is not None:
            trace.write_process_lines(
                missing_lines(self._journal.records, latest_metadata_version(config.trace))
            )
        return trace

    def _publish(self) -> None:
        for broker in self._controller.metadata().brokers:
            if broker.id not in self._publishers:
                metadata = self._controller.metadata
                self._publishers[broker.id] = MetadataPublisher(
                    self._config, broker.id, metadata, self._failpoints
                )
            self._publishers[broker.id].publish()

    async def _tick(self) -> None:
        away_ms = 0
        while True:
            self._step(Tick(now_ms=self._clock.now_ms()))
            if self._clock.away_ms > away_ms:
                log("warning", "was-away", ms=self._clock.away_ms - away_ms)
                away_ms = self._clock.away_ms
            await asyncio.sleep(_TICK_S)

    # -- the control socket
    # ------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return describe_controller(self._controller.metadata())

    async def _expire(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        broker = request.get("broker")
        if type(broker) is not int:
            raise ControlError("expire wants a broker's id")
        answer = self._step(Expire(now_ms=self._clock.now_ms(), token=None, broker=broker))
        if answer.error:
            raise ControlError(errors.error_name(answer.error))
        return {}

    async def _elect(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        ((_, _, error),) = self._step(parse_election(request, self._clock.now_ms())).results
        return {"error": errors.error_name(error) if error else None}

    # -- requests
    # ----------------------------------------------------------------------------------------------

    def _handle_request(self, connection: Connection, frame: bytes) -> None:
        head = read_request_header(frame)
        if head.key == api_keys.API_VERSIONS:
            if head.version <= SERVED_BY_CONTROLLER[api_keys.API_VERSIONS][1]:
                read_request(frame, head)
            body = write_api_versions_response(head.version, SERVED_BY_CONTROLLER)
        else:
            least, greatest = SERVED_BY_CONTROLLER.get(head.key, (1, 0))
            if not least <= head.version <= greatest:
                raise WireError(f"api key {head.key}, version {head.version} is not served by a controller")
            if head.key == api_keys.ALTER_PARTITION:
                self._alter_partition(connection, read_request(frame, head), head)
                return
            body = self._serves[head.key](read_request(frame, head), head)
        connection.answer(write_response(head.correlation, body))

    def _register(self, request: Any, head: RequestHeader) -> Any:
        if not request.listeners or request.incarnation_id is None:
            raise WireError("a registration without a listener or an incarnation")
        listener = request.listeners[0]
        answer = self._step(
            Register(
                now_ms=self._clock.now_ms(),
                token=None,
                broker=request.broker_id,
                incarnation=request.incarnation_id.hex,
                host=listener.host,
                port=listener.port,
                clean=request.previous_broker_epoch >= 0,
            )
        )
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls,
            throttle_time=NO_TIME,
            error_code=error_code(answer.error),
            broker_epoch=answer.broker_epoch,
        )

    def _heartbeat(self, request: Any, head: RequestHeader) -> Any:
        answer = self._step(
            Heartbeat(
                now_ms=self._clock.now_ms(),
                token=None,
                broker=request.broker_id,
                broker_epoch=request.broker_epoch,
                metadata_version=request.current_metadata_offset,
                stopping=request.want_shut_down,
            )
        )
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls,
            throttle_time=NO_TIME,
            error_code=error_code(answer.error),
            is_caught_up=not answer.fenced,
            is_fenced=answer.fenced,
            should_shut_down=answer.may_stop,
        )

    def _alter_partition(self, connection: Connection, request: Any, head: RequestHeader) -> None:
        body, places = alter_partitions(
            request, head, self._controller.metadata(), self._step, self._clock.now_ms()
        )

        def answer() -> None:
            connection.answer(write_response(head.correlation, body))

        fate = Fate.GO
        if places and self._failpoints.armed:
            fate = self._failpoints.meet(places[0], answer, also=places[1:])
        if fate is Fate.GO:
            answer()

    def _allocate_producer_ids(self, request: Any, head: RequestHeader) -> Any:
        answer = self._step(
            AllocateProducerIds(
                now_ms=self._clock.now_ms(),
                token=None,
                broker=request.broker_id,
                broker_epoch=request.broker_epoch,
            )
        )
        cls, _ = response_parts(head.key, head.version)
        return make(
            cls,
            throttle_time=NO_TIME,
            error_code=error_code(answer.error),
            producer_id_start=answer.first,
            producer_id_len=answer.count,
        )

    def _create_topics(self, request: Any, head: RequestHeader) -> Any:
        cls, parts = response_parts(head.key, head.version)
        results = []
        for topic in request.topics:
            topic_id = uuid.uuid4()
            error, message = self._create_topic(topic, topic_id, validate_only=request.validate_only)
            results.append(
                make(
                    parts.CreatableTopicResult,
                    name=topic.name,
                    error_code=error_code(error),
                    error_message=message,
                    topic_id=None if error else topic_id,
                    configs=(),
                )
            )
        return make(cls, throttle_time=NO_TIME, topics=tuple(results))

    def _create_topic(
        self, topic: Any, topic_id: uuid.UUID, *, validate_only: bool
    ) -> tuple[int, str | None]:
        configs = {each.name: each.value for each in topic.configs if each.value is not None}
        error, problem = check_topic_configs(configs)
        if error:
            return error, problem
        assignment = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
        if sorted(assignment) != list(range(len(topic.assignments))):
            return errors.INVALID_REPLICA_ASSIGNMENT, "partitions are not numbered from 0 without gaps"
        if topic.num_partitions > PARTITIONS_MAX:
            return errors.INVALID_PARTITIONS, f"more than {PARTITIONS_MAX} partitions"
        answer = self._step(
            CreateTopic(
                now_ms=self._clock.now_ms(),
                token=None,
                topic=topic.name,
                topic_id=topic_id.hex,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignment=tuple(assignment[index] for index in sorted(assignment)),
                configs=configs,
                validate_only=validate_only,
            )
        )
        return answer.error, answer.message or None

    def _elect_leaders(self, request: Any, head: RequestHeader) -> Any:
        named = tuple(
            (topic.topic, part) for topic in request.topic_partitions or () for part in topic.partitions
        )
        answer = self._step(
            Elect(
                now_ms=self._clock.now_ms(),
                token=None,
                partitions=named,
                unclean=request.election_type == _UNCLEAN,
            )
        )
        cls, parts = response_parts(head.key, head.version)
        topics: dict[str, list[Any]] = {}
        for topic, partition, error in answer.results:
            topics.setdefault(topic, []).append(
                make(
                    parts.PartitionResult,
                    partition_id=partition,
                    error_code=error_code(error),
                    error_message=errors.error_name(error) if error else None,
                )
            )
        return make(
            cls,
            throttle_time=NO_TIME,
            error_code=error_code(errors.NONE),
            replica_election_results=tuple(
                make(parts.ReplicaElectionResult, topic=topic, partition_result=tuple(results))
                for topic, results in topics.items()
            ),
        )

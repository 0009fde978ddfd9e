"""The broker's shell: listens, registers, takes the controller's news, and joins all the parts.

Rules
1. Logs are recovered before anybody hears that this broker is there.
2. The controller's news counts only for this incarnation (KIP-380) and never goes back to an older version.
3. SIGTERM: be let go by the controller, stop asking and answering, flush, checkpoint, and only then say
   that the stop was orderly. Anything else leaves no such mark.
"""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from broker.process_log import log
from broker.protocol import errors
from broker.protocol.messages import ProposeIsr
from broker.protocol.metadata import Metadata
from broker.server.api_versions import OFFERED, api_versions, metadata_answer, served
from broker.server.broker_lifecycle_manager import UNREGISTERED, Lifecycle
from broker.server.config import Address, Config
from broker.server.controller_client import ProducerIds, Proposals
from broker.server.controller_forwarder import Handed
from broker.server.describe_configs import describe_configs
from broker.server.fetch_requests import Reading, Readings, Wanted
from broker.server.group_requests import Groups
from broker.server.node_connection import Line, Unreachable
from broker.server.offset_requests import asker, list_offsets, offset_for_leader_epoch
from broker.server.produce_requests import produce
from broker.server.replica_fetcher import Fetcher, Fetchers
from broker.server.replica_manager import Host, Hosted, Watchers, now_ms
from broker.server.socket_server import Connection, Listener
from broker.storage.checkpoint_files import (
    UNKNOWN_BROKER_EPOCH,
    ensure_meta_properties,
    take_clean_shutdown_marker,
    write_clean_shutdown_marker,
)
from broker.storage.log_directory import LogDirectory
from broker.testing.bugs import rules_for
from broker.testing.control_socket import ControlSocket
from broker.testing.failpoint_requests import parse_arms
from broker.testing.failpoints import Failpoints
from broker.testing.trace import Trace
from broker.wire import api_keys
from broker.wire.codec import (
    RequestHeader,
    WireError,
    read_request,
    read_request_header,
    write_response,
)
from broker.wire.leader_and_isr_codec import read_leader_and_isr, write_leader_and_isr_response

CLUSTER_ID = "floodmark"
_TICK_S = 0.025
_OLDEST_BY_ID = 13  # from this version a Fetch names topics by id


class Broker:
    """One broker process. `run` returns after an orderly stop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rules = rules_for(config.rules, config.bugs, config.switches)
        self._files = LogDirectory.open(config.log_dir, config.durable)
        ensure_meta_properties(self._files, node_id=config.node_id, cluster_id=CLUSTER_ID)
        clean_epoch = take_clean_shutdown_marker(self._files)
        self._metadata = Metadata(version=0, brokers=(), topics={})
        self._topic_names: dict[str, str] = {}  # by id
        self._readings = Readings()
        trace = Trace(config.trace, config.node_id)
        self._points = Failpoints(
            config.role,
            parse_arms(config.failpoints, config.role),
            look=self._state,
            tell=trace.write_failpoint,
        )
        self._host = self._readings.host = Host(
            config=config,
            rules=self._rules,
            files=self._files,
            clean=clean_epoch is not None,
            watchers=Watchers(
                appended=self._readings.appended,
                hw_moved=self._readings.hw_moved,
                role_changed=self._role_changed,
                propose=self._propose,
                let_go=self._role_changed,
            ),
            trace=trace,
            points=self._points,
        )
        self._clean_epoch = clean_epoch
        self._groups = Groups(config)
        self._listener = Listener(self._serve, config.request_max_bytes)
        self._asked_to_stop = asyncio.Event()
        self._lifecycle: Lifecycle | None = None
        self._stopped = False

    async def run(self) -> None:
        config = self._config
        self._host.recover()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop.set)
        self._proposals = Proposals(config, self._controller_line, lambda: self._host, self._broker_epoch)
        ids = ProducerIds(config, self._controller_line(), self._broker_epoch)
        self._handed = Handed(config, self._controller_line(), ids, self._groups, lambda: self._metadata)
        self._fetchers = Fetchers(self._fetcher, lambda: self._host)
        self._control = ControlSocket(self._state, {}, self._points)
        if config.control is not None:
            self._control.open(config.control, config.control_from)
        await self._listener.open(*config.listen)
        self._lifecycle = Lifecycle(
            config, self._controller_line(), self._clean_epoch, lambda: self._metadata.version, self._points
        )
        self._every(_TICK_S, self._tick)
        self._every(config.hw_checkpoint_interval_ms / 1000, self._host.checkpoint)
        log(
            "info",
            "started",
            node=config.node_id,
            rules=config.rules,
            bugs=",".join(config.bugs) or None,
            listen=f"{config.listen[0]}:{config.listen[1]}",
            clean=self._host.clean,
        )
        await self._asked_to_stop.wait()
        await self._stop()

    async def _stop(self) -> None:
        log("info", "stopping")
        let_go = self._lifecycle is not None and await self._lifecycle.stop()
        broker_epoch = self._broker_epoch()
        self._stopped = True
        await self._fetchers.close()
        await self._proposals.close()
        self._handed.close()
        self._listener.close()
        self._host.close()
        write_clean_shutdown_marker(self._files, broker_epoch if broker_epoch >= 0 else UNKNOWN_BROKER_EPOCH)
        self._control.close()
        self._files.close()
        log("info", "stopped", let_go=let_go)

    # -- parts and timers ------------------------------------------------------------------------------------

    def _controller_line(self) -> Line:
        config = self._config
        address = config.dialled(config.controller_id, config.controller)
        return Line("the controller", lambda: address, f"broker-{config.node_id}")

    def _fetcher(self, leader: int) -> Fetcher:
        def dial() -> Line:
            name = f"broker-{self._config.node_id}"
            return Line(f"broker {leader}", lambda: self._address_of(leader), name)

        return Fetcher(leader, self._host, dial, self._broker_epoch)

    def _address_of(self, node: int) -> Address:
        for broker in self._metadata.brokers:
            if broker.id == node:
                return self._config.dialled(node, (broker.host, broker.port))
        raise Unreachable(f"broker {node} is not registered")

    def _broker_epoch(self) -> int:
        return UNREGISTERED if self._lifecycle is None else self._lifecycle.broker_epoch

    def _every(self, interval_s: float, act: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            if not self._stopped:
                act()
                loop.call_later(interval_s, run)

        loop.call_later(interval_s, run)

    def _tick(self) -> None:
        self._host.tick()
        self._readings.tick()

    def _propose(self, hosted: Hosted, proposal: ProposeIsr) -> None:
        self._proposals.add(hosted, proposal)

    def _role_changed(self, hosted: Hosted) -> None:
        self._readings.role_changed(hosted.key)
        self._fetchers.look()

    def _state(self) -> dict[str, Any]:
        return {
            "node": self._config.node_id,
            "broker_epoch": self._broker_epoch(),
            "metadata_version": self._metadata.version,
            "replicas": self._host.state(),
        }

    # -- requests --------------------------------------------------------------------------------------------

    def _serve(self, connection: Connection, frame: bytes) -> None:
        head = read_request_header(frame)
        if self._stopped:
            connection.close("stopping")
        elif head.key == api_keys.PRODUCE and served(head.key, head.version):
            produce(self._host, self._find, connection, frame, head)
        elif head.key == api_keys.FETCH and served(head.key, head.version):
            self._fetch(connection, frame, head)
        elif head.key == api_keys.LEADER_AND_ISR and head.version == api_keys.LEADER_AND_ISR_VERSION:
            connection.answer(write_leader_and_isr_response(head.correlation, self._take_news(frame, head)))
        elif head.key == api_keys.API_VERSIONS:
            connection.answer(write_response(head.correlation, self._api_versions(frame, head)))
        elif served(head.key, head.version):
            self._serve_others(connection, frame, head)
        else:
            raise WireError(f"api key {head.key}, version {head.version} is not served")

    def _serve_others(self, connection: Connection, frame: bytes, head: RequestHeader) -> None:
        if head.key == api_keys.METADATA:
            connection.answer(write_response(head.correlation, self._metadata_answer(frame, head)))
        elif head.key == api_keys.LIST_OFFSETS:
            list_offsets(self._host, self._find, connection, frame, head)
        elif head.key == api_keys.OFFSET_FOR_LEADER_EPOCH:
            offset_for_leader_epoch(self._host, self._find, connection, frame, head)
        elif head.key in self._groups.serves:
            body = self._groups.serves[head.key](read_request(frame, head), head)
            connection.answer(write_response(head.correlation, body))
        elif head.key == api_keys.DESCRIBE_CONFIGS:
            request = read_request(frame, head)
            body = describe_configs(request, head, self._metadata, self._config)
            connection.answer(write_response(head.correlation, body))
        else:
            self._handed.begin(connection, frame, head)

    def _api_versions(self, frame: bytes, head: RequestHeader) -> Any:
        if head.version <= OFFERED[api_keys.API_VERSIONS][1]:
            read_request(frame, head)
        return api_versions(head.version, OFFERED)

    def _find(self, topic: str, partition: int) -> tuple[Hosted | None, int]:
        """The replica here, or the error that says why there is none."""
        hosted = self._host.hosted.get((topic, partition))
        if hosted is not None:
            return hosted, errors.NONE
        known = self._metadata.topics.get(topic)
        if known is not None and 0 <= partition < len(known.partitions):
            return None, errors.NOT_LEADER_OR_FOLLOWER
        return None, errors.UNKNOWN_TOPIC_OR_PARTITION

    def _fetch(self, connection: Connection, frame: bytes, head: RequestHeader) -> None:
        request = read_request(frame, head)
        by_id = head.version >= _OLDEST_BY_ID
        state = request.replica_state if by_id else None
        wanted = []
        for topic in request.topics:
            told = (topic.topic_id.hex if topic.topic_id else "0" * 32) if by_id else topic.topic
            name = self._topic_names.get(told) if by_id else told
            for part in topic.partitions:
                hosted, error = (
                    (None, errors.UNKNOWN_TOPIC_ID) if name is None else self._find(name, part.partition)
                )
                wanted.append(
                    Wanted(
                        topic=told,
                        partition=part.partition,
                        hosted=hosted,
                        error=error,
                        offset=part.fetch_offset,
                        current_leader_epoch=getattr(part, "current_leader_epoch", -1),
                        last_fetched_epoch=getattr(part, "last_fetched_epoch", -1),
                        max_bytes=part.partition_max_bytes,
                    )
                )
        replica = request.replica_id if state is None else state.replica_id
        wait_ms = int(request.max_wait.total_seconds() * 1000)
        self._readings.begin(
            Reading(
                readings=self._readings,
                connection=connection,
                head=head,
                wanted=wanted,
                replica=asker(replica, self._config.node_id),
                broker_epoch=-1 if state is None else state.replica_epoch,
                min_bytes=request.min_bytes,
                max_bytes=request.max_bytes,
                deadline_ms=now_ms() + max(0, wait_ms),
            )
        )

    # -- the cluster
    # -------------------------------------------------------------------------------------------

    def _take_news(self, frame: bytes, head: RequestHeader) -> int:
        """The controller's metadata; the error it is answered with."""
        broker, broker_epoch, metadata = read_leader_and_isr(frame, head)
        mine = self._broker_epoch()
        meant = broker == self._config.node_id and broker_epoch == mine
        if not meant and (self._rules.control_needs_broker_epoch or mine < 0):
            log("warning", "news-refused", broker=broker, broker_epoch=broker_epoch, mine=mine)
            return errors.STALE_BROKER_EPOCH
        if metadata.version <= self._metadata.version:
            return errors.NONE
        self._metadata = metadata
        self._topic_names = {topic.id: name for name, topic in metadata.topics.items()}
        self._host.take(metadata)
        self._fetchers.look()
        self._handed.news()
        if self._lifecycle is not None:
            self._lifecycle.beat_now()
        return errors.NONE

    def _metadata_answer(self, frame: bytes, head: RequestHeader) -> Any:
        request = read_request(frame, head)
        names = None
        if request.topics is not None and not (head.version == 0 and not request.topics):
            names = [topic.name for topic in request.topics if topic.name is not None]
        may_create = self._config.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)

        def unknown(name: str) -> int:
            if not may_create:
                return errors.UNKNOWN_TOPIC_OR_PARTITION
            self._handed.create_by_itself(name)
            return errors.LEADER_NOT_AVAILABLE

        return metadata_answer(head.version, names, self._metadata, self._config.node_id, unknown)

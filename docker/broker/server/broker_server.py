"""Runs one broker: builds its parts, listens, registers, applies the controller's metadata, routes requests.

Rules
1. Logs are recovered before the broker registers or listens.
2. A leader-and-isr message counts only for this incarnation (KIP-380), and never for an older version.
3. On SIGTERM it asks for a controlled shutdown, stops fetching and answering, flushes, checkpoints, and only
   then writes the marker of a clean shutdown. Any other end leaves no such marker.
4. Until the controller's first metadata has come, no topic is called unknown, because it may exist: clients
   are told to ask again. (A KRaft broker serves nobody before that.)
"""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from floodmark.broker.process_log import log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import NO_EPOCH, ProposeIsr
from floodmark.broker.protocol.metadata import Metadata
from floodmark.broker.server.api_versions import (
    OFFERED,
    answer_api_versions,
    is_served,
    write_metadata_response,
)
from floodmark.broker.server.broker_lifecycle_manager import UNREGISTERED, BrokerLifecycleManager
from floodmark.broker.server.config import CLUSTER_ID, Address, Config
from floodmark.broker.server.controller_client import AlterPartitionManager, ProducerIdManager
from floodmark.broker.server.controller_forwarder import ControllerForwarder
from floodmark.broker.server.describe_configs import describe_configs
from floodmark.broker.server.effect_runner import HostedPartition
from floodmark.broker.server.fetch_requests import DelayedFetch, FetchRequests, RequestedPartition
from floodmark.broker.server.group_requests import GroupRequests
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.server.offset_requests import OffsetRequests, requesting_replica
from floodmark.broker.server.produce_requests import handle_produce
from floodmark.broker.server.replica_fetcher import ReplicaFetcher, ReplicaFetcherManager
from floodmark.broker.server.replica_manager import ReplicaListeners, ReplicaManager, now_ms
from floodmark.broker.server.socket_server import Connection, SocketServer
from floodmark.broker.storage.checkpoint_files import (
    UNKNOWN_BROKER_EPOCH,
    ensure_meta_properties,
    take_clean_shutdown_marker,
    write_clean_shutdown_marker,
)
from floodmark.broker.storage.log_directory import LogDirectory
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.control_socket import ControlSocket
from floodmark.broker.testing.failpoint_requests import parse_arms
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.broker.testing.trace import Trace
from floodmark.broker.wire import api_keys
from floodmark.broker.wire.codec import (
    RequestHeader,
    WireError,
    read_request,
    read_request_header,
    write_response,
)
from floodmark.broker.wire.leader_and_isr_codec import read_leader_and_isr, write_leader_and_isr_response

_TICK_S = 0.025
_FETCH_BY_ID = 13  # from this version on a Fetch names topics by id


class BrokerServer:
    """One broker process. `run` returns after a clean shutdown."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rules = rules_for(config.rules, config.bugs, config.switches)
        self._files = LogDirectory.open(config.log_dir, config.durable)
        ensure_meta_properties(self._files, node_id=config.node_id, cluster_id=CLUSTER_ID)
        clean_epoch = take_clean_shutdown_marker(self._files)
        self._metadata = Metadata(version=0, brokers=(), topics={})
        self._topic_names: dict[str, str] = {}  # by id
        self._fetch_requests = FetchRequests()
        trace = Trace(config.trace, config.node_id)
        self._failpoints = Failpoints(
            config.role,
            parse_arms(config.failpoints, config.role),
            read_state=self._read_state,
            write_trace=trace.write_failpoint,
        )
        self._replica_manager = self._fetch_requests.replica_manager = ReplicaManager(
            config=config,
            rules=self._rules,
            files=self._files,
            clean=clean_epoch is not None,
            listeners=ReplicaListeners(
                appended=self._fetch_requests.appended,
                hw_moved=self._fetch_requests.hw_moved,
                role_changed=self._role_changed,
                propose=self._submit_proposal,
                resumed=self._role_changed,
            ),
            trace=trace,
            failpoints=self._failpoints,
        )
        self._offset_requests = OffsetRequests(self._replica_manager, self._find_partition)
        self._clean_epoch = clean_epoch
        self._groups = GroupRequests(config)
        self._listener = SocketServer(self._handle_request, config.request_max_bytes)
        self._stop_requested = asyncio.Event()
        self._lifecycle_manager: BrokerLifecycleManager | None = None
        self._stopped = False

    async def run(self) -> None:
        config = self._config
        self._replica_manager.recover()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        self._alter_partition_manager = AlterPartitionManager(
            config, self._new_controller_connection, lambda: self._replica_manager, self._broker_epoch
        )
        ids = ProducerIdManager(config, self._new_controller_connection(), self._broker_epoch)
        self._forwarder = ControllerForwarder(
            config, self._new_controller_connection(), ids, self._groups, lambda: self._metadata
        )
        self._fetcher_manager = ReplicaFetcherManager(self._new_fetcher, lambda: self._replica_manager)
        self._control = ControlSocket(self._read_state, {}, self._failpoints)
        if config.control is not None:
            self._control.open(config.control, config.control_from)
        await self._listener.open(*config.listen)
        self._lifecycle_manager = BrokerLifecycleManager(
            config,
            self._new_controller_connection(),
            self._clean_epoch,
            lambda: self._metadata.version,
            self._failpoints,
        )
        self._call_every(_TICK_S, self._run_tick)
        self._call_every(
            config.hw_checkpoint_interval_ms / 1000, self._replica_manager.checkpoint_high_watermarks
        )
        log(
            "info",
            "started",
            node=config.node_id,
            rules=config.rules,
            bugs=",".join(config.bugs) or None,
            listen=f"{config.listen[0]}:{config.listen[1]}",
            clean=self._replica_manager.clean,
        )
        await self._stop_requested.wait()
        await self._stop()

    async def _stop(self) -> None:
        log("info", "stopping")
        agreed = self._lifecycle_manager is not None and await self._lifecycle_manager.stop()
        broker_epoch = self._broker_epoch()
        self._stopped = True
        await self._fetcher_manager.close()
        await self._alter_partition_manager.close()
        self._forwarder.close()
        self._listener.close()
        self._replica_manager.close()
        write_clean_shutdown_marker(self._files, broker_epoch if broker_epoch >= 0 else UNKNOWN_BROKER_EPOCH)
        self._control.close()
        self._files.close()
        log("info", "stopped", agreed=agreed)

    # -- parts and timers ------------------------------------------------------------------------------------

    def _new_controller_connection(self) -> NodeConnection:
        config = self._config
        address = config.address_to_dial(config.controller_id, config.controller)
        return NodeConnection("the controller", lambda: address, f"broker-{config.node_id}")

    def _new_fetcher(self, leader: int) -> ReplicaFetcher:
        def dial() -> NodeConnection:
            name = f"broker-{self._config.node_id}"
            return NodeConnection(f"broker {leader}", lambda: self._address_of(leader), name)

        return ReplicaFetcher(leader, self._replica_manager, dial, self._broker_epoch)

    def _address_of(self, node: int) -> Address:
        for broker in self._metadata.brokers:
            if broker.id == node:
                return self._config.address_to_dial(node, (broker.host, broker.port))
        raise Unreachable(f"broker {node} is not registered")

    def _broker_epoch(self) -> int:
        return UNREGISTERED if self._lifecycle_manager is None else self._lifecycle_manager.broker_epoch

    def _call_every(self, interval_s: float, act: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            if not self._stopped:
                act()
                loop.call_later(interval_s, run)

        loop.call_later(interval_s, run)

    def _run_tick(self) -> None:
        self._replica_manager.tick()
        self._fetch_requests.tick()

    def _submit_proposal(self, hosted: HostedPartition, proposal: ProposeIsr) -> None:
        self._alter_partition_manager.submit(hosted, proposal)

    def _role_changed(self, hosted: HostedPartition) -> None:
        self._fetch_requests.role_changed(hosted.key)
        self._fetcher_manager.refresh()

    def _read_state(self) -> dict[str, Any]:
        return {
            "node": self._config.node_id,
            "broker_epoch": self._broker_epoch(),
            "metadata_version": self._metadata.version,
            "replicas": self._replica_manager.describe_replicas(),
        }

    # -- requests --------------------------------------------------------------------------------------------

    def _handle_request(self, connection: Connection, frame: bytes) -> None:
        head = read_request_header(frame)
        if self._stopped:
            connection.close("stopping")
        elif head.key == api_keys.PRODUCE and is_served(head.key, head.version):
            handle_produce(self._replica_manager, self._find_partition, connection, frame, head)
        elif head.key == api_keys.FETCH and is_served(head.key, head.version):
            self._handle_fetch(connection, frame, head)
        elif head.key == api_keys.LEADER_AND_ISR and head.version == api_keys.LEADER_AND_ISR_VERSION:
            connection.answer(
                write_leader_and_isr_response(head.correlation, self._handle_leader_and_isr(frame, head))
            )
        elif head.key == api_keys.API_VERSIONS:
            connection.answer(answer_api_versions(frame, head, OFFERED))
        elif is_served(head.key, head.version):
            self._handle_other_request(connection, frame, head)
        else:
            raise WireError(f"api key {head.key}, version {head.version} is not served")

    def _handle_other_request(self, connection: Connection, frame: bytes, head: RequestHeader) -> None:
        if head.key == api_keys.METADATA:
            connection.answer(write_response(head.correlation, self._answer_metadata(frame, head)))
        elif head.key == api_keys.LIST_OFFSETS:
            self._offset_requests.handle_list_offsets(connection, frame, head)
        elif head.key == api_keys.OFFSET_FOR_LEADER_EPOCH:
            self._offset_requests.handle_offset_for_leader_epoch(connection, frame, head)
        elif head.key in self._groups.serves:
            body = self._groups.serves[head.key](read_request(frame, head), head)
            connection.answer(write_response(head.correlation, body))
        elif head.key == api_keys.DESCRIBE_CONFIGS:
            request = read_request(frame, head)
            body = describe_configs(request, head, self._metadata, self._config)
            connection.answer(write_response(head.correlation, body))
        else:
            self._forwarder.forward_request(connection, frame, head)

    def _find_partition(self, topic: str, partition: int) -> tuple[HostedPartition | None, int]:
        """Find the replica here, or the error that says why there is none."""
        hosted = self._replica_manager.partitions.get((topic, partition))
        if hosted is not None:
            return hosted, errors.NONE
        known = self._metadata.topics.get(topic)
        exists = known is not None and 0 <= partition < len(known.partitions)
        if exists or not self._metadata.version:  # rule 4
            return None, errors.NOT_LEADER_OR_FOLLOWER
        return None, errors.UNKNOWN_TOPIC_OR_PARTITION

    def _handle_fetch(self, connection: Connection, frame: bytes, head: RequestHeader) -> None:
        request = read_request(frame, head)
        by_id = head.version >= _FETCH_BY_ID
        state = request.replica_state if by_id else None
        wanted = []
        for topic in request.topics:
            topic_key = (topic.topic_id.hex if topic.topic_id else "0" * 32) if by_id else topic.topic
            name = self._topic_names.get(topic_key) if by_id else topic_key
            for part in topic.partitions:
                hosted, error = (
                    (None, errors.UNKNOWN_TOPIC_ID)
                    if name is None
                    else self._find_partition(name, part.partition)
                )
                wanted.append(
                    RequestedPartition(
                        topic=topic_key,
                        partition=part.partition,
                        hosted=hosted,
                        error=error,
                        offset=part.fetch_offset,
                        current_leader_epoch=max(NO_EPOCH, getattr(part, "current_leader_epoch", NO_EPOCH)),
                        last_fetched_epoch=max(NO_EPOCH, getattr(part, "last_fetched_epoch", NO_EPOCH)),
                        max_bytes=part.partition_max_bytes,
                    )
                )
        replica = request.replica_id if state is None else state.replica_id
        wait_ms = int(request.max_wait.total_seconds() * 1000)
        self._fetch_requests.start(
            DelayedFetch(
                fetch_requests=self._fetch_requests,
                connection=connection,
                head=head,
                wanted=wanted,
                replica=requesting_replica(replica, self._config.node_id),
                broker_epoch=-1 if state is None else state.replica_epoch,
                min_bytes=request.min_bytes,
                max_bytes=request.max_bytes,
                deadline_ms=now_ms() + max(0, wait_ms),
            )
        )

    # -- the cluster -----------------------------------------------------------------------------------------

    def _handle_leader_and_isr(self, frame: bytes, head: RequestHeader) -> int:
        """Apply the controller's metadata; returns the error for the response."""
        broker, broker_epoch, metadata = read_leader_and_isr(frame, head)
        mine = self._broker_epoch()
        meant = broker == self._config.node_id and broker_epoch == mine
        if not meant and (self._rules.control_needs_broker_epoch or mine < 0):
            log("warning", "metadata-refused", broker=broker, broker_epoch=broker_epoch, mine=mine)
            return errors.STALE_BROKER_EPOCH
        if metadata.version <= self._metadata.version:
            return errors.NONE
        self._metadata = metadata
        self._topic_names = {topic.id: name for name, topic in metadata.topics.items()}
        self._replica_manager.apply_metadata(metadata)
        self._fetcher_manager.refresh()
        self._forwarder.metadata_changed()
        if self._lifecycle_manager is not None:
            self._lifecycle_manager.heartbeat_now()
        return errors.NONE

    def _answer_metadata(self, frame: bytes, head: RequestHeader) -> Any:
        request = read_request(frame, head)
        names = None
        if request.topics is not None and not (head.version == 0 and not request.topics):
            names = [topic.name for topic in request.topics if topic.name is not None]
        may_create = self._config.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)

        def create_unknown(name: str) -> int:
            if not self._metadata.version:  # rule 4
                return errors.LEADER_NOT_AVAILABLE
            if not may_create:
                return errors.UNKNOWN_TOPIC_OR_PARTITION
            self._forwarder.auto_create_topic(name)
            return errors.LEADER_NOT_AVAILABLE

        node_id = self._config.node_id
        return write_metadata_response(head.version, names, self._metadata, node_id, create_unknown)

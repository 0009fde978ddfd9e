"""Runs the controller: steps the machine, makes its records durable, and publishes its metadata.

Rules
1. One event at a time; a step's records are on disk (fsync), and in the trace, before any answer or
   message of that step leaves.
2. Time in which this process did not run does not count (controller_clock.py).
3. A record that cannot be persisted ends the process: its next start reads what is on disk.
4. An expiry or an election from the control socket is an event like any other.
"""

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from floodmark.broker import runtime
from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.controller import Controller, ControllerConfig
from floodmark.broker.protocol.messages import (
    NO_LEADER,
    ControllerEvent,
    Elect,
    Expire,
    Persist,
    Publish,
    Tick,
)
from floodmark.broker.protocol.metadata import Metadata
from floodmark.broker.server.config import Config
from floodmark.broker.server.controller_apis import ControllerApis
from floodmark.broker.server.controller_clock import ControllerClock
from floodmark.broker.server.metadata_publisher import MetadataPublisher
from floodmark.broker.server.socket_server import SocketServer
from floodmark.broker.storage.controller_journal import Journal
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.control_socket import ControlError, ControlSocket
from floodmark.broker.testing.failpoint_requests import parse_arms
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.broker.testing.trace import Trace, latest_metadata_version
from floodmark.broker.testing.trace_events import controller_lines, missing_lines

_TICK_S = 0.025
_TICK_LATE_MS = 200  # a later tick means that this process did not run
JOURNAL = "controller.jsonl"


class ControllerServer:
    """The controller process. `run` returns after SIGTERM."""

    def __init__(self, config: Config) -> None:
        config.log_dir.mkdir(parents=True, exist_ok=True)
        self._config = config
        self._journal = Journal.open(config.log_dir / JOURNAL)
        self._clock = ControllerClock(lambda: runtime.current.monotonic_ns() // 1_000_000, _TICK_LATE_MS)
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
        self._trace = self._open_trace(config)
        self._failpoints = Failpoints(
            config.role,
            parse_arms(config.failpoints, config.role),
            read_state=self._read_state,
            write_trace=self._trace.write_failpoint,
        )
        self._publishers: dict[int, MetadataPublisher] = {}
        self._apis = ControllerApis(
            self._controller.metadata, self._step, self._clock.now_ms, self._failpoints
        )
        self._listener = SocketServer(self._apis.handle_request, config.request_max_bytes)
        self._stop_requested = asyncio.Event()

    async def run(self) -> None:
        config = self._config
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        acts = {"expire": self._expire_session, "elect": self._elect_leader}
        control = ControlSocket(self._read_state, acts, self._failpoints)
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
        ticking = asyncio.create_task(self._run_ticks())
        await self._stop_requested.wait()
        ticking.cancel()
        self._listener.close()
        for publisher in self._publishers.values():
            await publisher.close()
        control.close()
        self._journal.close()
        log("info", "stopped")

    # -- steps -----------------------------------------------------------------------------------------------

    def _step(self, event: ControllerEvent) -> Any:
        """Step one event; returns the effect that answers it, or None."""
        try:
            answer = None
            before = self._controller.metadata()
            for effect in self._controller.step(event):
                if isinstance(effect, Persist):
                    self._journal.append(effect.records)
                    if self._trace.enabled:
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

    def _open_trace(self, config: Config) -> Trace:
        """Open the trace, and write the lines of durable records that it lacks."""
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

    async def _run_ticks(self) -> None:
        away_ms = 0
        while True:
            self._step(Tick(now_ms=self._clock.now_ms()))
            if self._clock.away_ms > away_ms:
                log("warning", "was-away", ms=self._clock.away_ms - away_ms)
                away_ms = self._clock.away_ms
            await asyncio.sleep(_TICK_S)

    # -- the control socket ----------------------------------------------------------------------------------

    def _read_state(self) -> dict[str, Any]:
        return describe_controller(self._controller.metadata())

    async def _expire_session(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        broker = request.get("broker")
        if type(broker) is not int:
            raise ControlError("expire wants a broker's id")
        answer = self._step(Expire(now_ms=self._clock.now_ms(), token=None, broker=broker))
        if answer.error:
            raise ControlError(errors.error_name(answer.error))
        return {}

    async def _elect_leader(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        ((_, _, error),) = self._step(parse_election(request, self._clock.now_ms())).results
        return {"error": errors.error_name(error) if error else None}


def describe_controller(metadata: Metadata) -> dict[str, Any]:
    """Build the answer to `state`."""
    brokers = [{"id": each.id, "epoch": each.epoch, "fenced": each.fenced} for each in metadata.brokers]
    partitions = [
        {
            "topic": topic.name,
            "partition": each.partition,
            "leader": each.leader,
            "epoch": each.leader_epoch,
            "isr": list(each.isr),
            "partition_epoch": each.partition_epoch,
            "replicas": list(each.replicas),
        }
        for topic in metadata.topics.values()
        for each in topic.partitions
    ]
    return {"metadata_version": metadata.version, "brokers": brokers, "partitions": partitions}


def parse_election(request: Mapping[str, Any], now_ms: int) -> Elect:
    """Parse the control socket's `elect`, for one partition."""
    topic, partition = request.get("topic"), request.get("partition")
    leader, unclean = request.get("leader", NO_LEADER), request.get("unclean", False)
    if not isinstance(topic, str) or type(partition) is not int:
        raise ControlError("elect wants a topic and a partition")
    if type(leader) is not int or type(unclean) is not bool:
        raise ControlError("elect wants a leader's id, and unclean true or false")
    return Elect(
        now_ms=now_ms, token=None, partitions=((topic, partition),), unclean=unclean, leader=leader
    )

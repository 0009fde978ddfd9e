"""What a simulated broker process takes from its surroundings; see floodmark.broker.runtime: Runtime."""

import asyncio
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from floodmark.broker.wire import api_keys, codec
from floodmark.harness.cluster.simulated.network import Address, Network, Transport
from floodmark.harness.cluster.simulated.scheduler import BEGINS_AT_NS, KILLED, Event, Process, Scheduler

# What every run speaks: kio's classes are imported, and made readers and writers, once and not in each child.
for _key, _version in ((api_keys.PRODUCE, 9), (api_keys.FETCH, 12), (api_keys.FETCH, 15),
                       (api_keys.LIST_OFFSETS, 7), (api_keys.METADATA, 9), (api_keys.API_VERSIONS, 0),
                       (api_keys.CREATE_TOPICS, 4), (api_keys.CREATE_TOPICS, 7), (api_keys.ELECT_LEADERS, 2),
                       (api_keys.ALTER_PARTITION, 3), (api_keys.BROKER_REGISTRATION, 4),
                       (api_keys.BROKER_HEARTBEAT, 1)):
    codec.prepare(_key, _version)


class BrokerRuntime:
    """One for all simulated processes: it answers for the one that runs."""

    def __init__(self, scheduler: Scheduler, network: Network) -> None:
        self._scheduler, self._network = scheduler, network
        self.before_effect = scheduler.before_effect

    def monotonic_ns(self) -> int:
        return self._scheduler.now_ns

    def time_ns(self) -> int:
        return BEGINS_AT_NS + self._scheduler.now_ns

    def new_uuid(self) -> uuid.UUID:
        drawn = self._scheduler.streams.of("uuid", self._process.name).getrandbits(128)
        return uuid.UUID(int=drawn, version=4)

    def write_line(self, text: str) -> None:
        self._process.write_line(text)

    def call_before_halt(self, act: Callable[[str], None]) -> None:
        self._process.before_halt.append(act)

    def calls_before_halt(self) -> Sequence[Callable[[str], None]]:
        return self._process.before_halt

    def exit(self, code: int) -> NoReturn:
        self._process.end(code)
        self._scheduler.hub.switch()
        raise AssertionError("a process that has ended goes on")

    def kill(self) -> NoReturn:
        self.exit(KILLED)

    def new_event(self) -> Event:
        return Event(self._scheduler)

    @contextmanager
    def end_at_signals(self) -> Iterator[None]:
        process = self._process
        process.ends_at_signals = True
        yield
        process.ends_at_signals = False

    def serve_lines(self, address: Address, _allows: Callable[[str], bool], answer: Callable[[bytes], bytes]
                    ) -> Callable[[], None]:
        process = self._process
        return self._network.listen(process, lambda: _Lines(process, answer), address, control=True).close

    @property
    def _process(self) -> Process:
        return self._scheduler.running


class _Lines(asyncio.Protocol):
    """A connection of lines; each is answered on a thread of its own, in order."""

    def __init__(self, process: Process, answer: Callable[[bytes], bytes]) -> None:
        self._process, self._answer = process, answer
        self._transport: Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._process.start_thread(lambda line=line: self._serve(line))  # type: ignore[misc]

    def _serve(self, line: bytes) -> None:
        answer = self._answer(line)
        if self._transport is not None:
            self._transport.write(answer)


def terminate(process: Process) -> None:
    """SIGTERM: its handler, or its end where it has none."""
    handler = process.signals.get(signal.SIGTERM)
    if handler is None or process.ends_at_signals:
        process.end(-signal.SIGTERM)
    else:
        process.loop.call_soon(handler)

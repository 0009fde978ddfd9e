"""The network between simulated processes: connections that deliver in order, after a drawn time, and cuts.

Rules
1. The bytes of a direction arrive in the order in which they were sent. Each direction of a connection draws
   its times from a stream of its own, by sender, receiver, the dialer's client (its task's name), and the
   how-manieth connection it is among these.
2. A silent cut holds everything back, in order, closes too, and delivers it at the heal. A connection that is
   opened through a cut is open for its dialer, and the listener learns of it at the heal.
3. A cut by reset resets the connections of the two, existing and new ones.
4. Control connections (the harness's own) are never cut.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Sequence
from math import exp

from floodmark.harness.cluster.simulated.scheduler import Callback, Process, Scheduler

Address = tuple[str, int]
Pair = tuple[str, str]  # (sender, receiver), process names
MEDIAN_S = 1e-4  # of a message's way
_SPREAD = 0.5


def _client() -> str:
    """The name that the running task was given, if any: names by default count all tasks."""
    task = asyncio.current_task()
    name = "" if task is None else task.get_name()
    return "" if name.startswith("Task-") else name


class Listener:
    def __init__(self, network: "Network", process: Process, factory: Callable[[], asyncio.Protocol],
                 address: Address, *, control: bool) -> None:
        self.network, self.process, self.factory = network, process, factory
        self.address, self.control = address, control

    def close(self) -> None:
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]

    async def wait_closed(self) -> None:
        pass


class Transport(asyncio.Transport):
    def __init__(self, network: "Network", process: Process, peer_process: Process, address: Address, *,
                 control: bool, connection: str) -> None:
        super().__init__()
        self.process, self.control = process, control
        self.latency = network.scheduler.streams.of("latency", process.name, peer_process.name, connection)
        self.pair: Pair = (process.name, peer_process.name)
        self.peer: Transport
        self.protocol: asyncio.BaseProtocol | None = None
        self.lost = False
        self._network, self._peer_process, self._address = network, peer_process, address
        self._closing, self._reading = False, True
        self._unread: list[tuple[str, bytes]] = []
        self._arrives_ns = 0
        process.transports[self] = None

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._address if name == "peername" else default

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._closing:
            if not self.control:
                self.process.scheduler.before_effect("send")
            if not self._closing:  # it may have been lost meanwhile
                self._network.carry(self, "data", bytes(data))

    def writelines(self, list_of_data: Sequence[bytes]) -> None:  # type: ignore[override]
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._network.carry(self, "end", b"")
            self.process.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        unread, self._unread = self._unread, []
        for kind, data in unread:
            self.process.loop.call_soon(self._arrive, kind, data)

    def lose(self, error: Exception | None) -> None:
        if not self.lost:
            self.lost = self._closing = True
            self.process.transports.pop(self, None)
            if self.protocol is not None:
                self.protocol.connection_lost(error)

    def die(self) -> None:
        """Its process was killed: the kernel resets the connection."""
        if not self._closing:
            self._closing = True
            self._network.carry(self, "reset", b"")
        self.lost = True

    def reset(self) -> None:
        self._closing = True
        if self.process.alive:
            self.process.loop.call_soon(self.lose, ConnectionResetError("the link was reset"))

    def deliver(self, kind: str, data: bytes) -> None:
        """It arrives after a drawn time, never before what was sent earlier."""
        scheduler, peer = self.process.scheduler, self.peer
        took_ns = int(MEDIAN_S * exp(self.latency.gauss(0, _SPREAD)) * 1e9)
        self._arrives_ns = max(self._arrives_ns, scheduler.now_ns + took_ns)
        receiver = self._peer_process
        if self.control and receiver is not scheduler.harness:  # a thread of its own reads these
            receiver.start_thread(lambda: peer._arrive(kind, data), self._arrives_ns)
        elif receiver.alive:
            handle = Callback(peer._arrive, (kind, data), receiver.loop)
            scheduler.push(self._arrives_ns, receiver, handle)

    def _arrive(self, kind: str, data: bytes) -> None:
        if kind == "open":
            self._network.accepted(self)
        elif self.lost:
            pass
        elif not self._reading:
            self._unread.append((kind, data))
        elif kind == "data":
            if not self._closing:
                assert isinstance(self.protocol, asyncio.Protocol)
                self.protocol.data_received(data)
        elif kind == "reset":
            self.lose(ConnectionResetError("the peer was killed"))
        else:
            if isinstance(self.protocol, asyncio.Protocol):
                self.protocol.eof_received()
            self.lose(None)


class Network:
    def __init__(self, scheduler: Scheduler) -> None:
        self.listeners: dict[Address, Listener] = {}
        self.scheduler = scheduler
        self._dialled: Counter[tuple[str, ...]] = Counter()
        self._held: dict[Pair, list[tuple[Transport, str, bytes]]] = {}  # by silent cuts in force
        self._resets: dict[Pair, None] = {}
        self._factories: dict[Transport, Listener] = {}  # of connections that the listener does not know yet

    def listen(self, process: Process, factory: Callable[[], asyncio.Protocol], address: Address, *,
               control: bool = False) -> Listener:
        if address in self.listeners:
            raise OSError(errno.EADDRINUSE, f"{address[0]}:{address[1]} is in use")
        listener = Listener(self, process, factory, address, control=control)
        self.listeners[address] = listener
        process.listening.append(listener)
        return listener

    async def connect(self, process: Process, factory: Callable[[], asyncio.Protocol], address: Address
                      ) -> tuple[Transport, asyncio.Protocol]:
        listener = self.listeners.get(address)
        to, kind = "nobody", "data"
        if listener is not None:
            to, kind = listener.process.name, "control" if listener.control else "data"
        link = (process.name, to, _client(), kind)
        stream = self.scheduler.streams.of("dial", *link)
        await asyncio.sleep(MEDIAN_S * exp(stream.gauss(0, _SPREAD)))
        listener = self.listeners.get(address)
        if listener is None or not listener.process.alive or (
                not listener.control and {(process.name, to), (to, process.name)} & self._resets.keys()):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {address[0]}:{address[1]}")
        self._dialled[link] += 1
        control, connection = listener.control, f"{'/'.join(link)}/{self._dialled[link]}"
        near = Transport(self, process, listener.process, address, control=control, connection=connection)
        far = Transport(
            self, listener.process, process, ("127.0.0.1", 1), control=control, connection=connection)
        near.peer, far.peer = far, near
        protocol = near.protocol = factory()
        protocol.connection_made(near)
        self._factories[far] = listener
        self.carry(near, "open", b"")
        return near, protocol

    def accepted(self, far: Transport) -> None:
        listener = self._factories.pop(far)
        if not far.lost:
            far.protocol = listener.factory()
            far.protocol.connection_made(far)

    def carry(self, transport: Transport, kind: str, data: bytes) -> None:
        held = None if transport.control else self._held.get(transport.pair)
        if held is None:
            transport.deliver(kind, data)
        else:
            held.append((transport, kind, data))

    def cut(self, pairs: Sequence[Pair], *, reset: bool) -> None:
        if not reset:
            for pair in pairs:
                self._held.setdefault(pair, [])
            return
        self._resets |= dict.fromkeys(pairs)
        self.reset(pairs)

    def reset(self, pairs: Sequence[Pair]) -> int:
        """Reset the connections of these links now, in both directions; returns how many there were."""
        both = {*pairs, *(pair[::-1] for pair in pairs)}
        processes = {listener.process.name: listener.process for listener in self.listeners.values()}
        processes[self.scheduler.harness.name] = self.scheduler.harness
        ends = [transport for name in dict.fromkeys(name for pair in pairs for name in pair)
                if name in processes for transport in list(processes[name].transports)
                if transport.pair in both and not transport.control and not transport.is_closing()]
        for transport in ends:
            transport.reset()
        return len(ends) // 2

    def heal(self) -> None:
        self._resets.clear()
        held, self._held = self._held, {}
        for pair in held:
            for transport, kind, data in held[pair]:
                transport.deliver(kind, data)

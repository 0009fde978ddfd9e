"""Holds packets up: a queue of the kernel's (NFQUEUE) for each kind of slowness, in user space.

For where the kernel has no netem. Started in the network namespace whose firewall hands packets to queues.
Needs NET_ADMIN there, Linux, and nothing but the standard library. Usage:

    python delay.py QUEUE[,delay_ms=N][,jitter_ms=N][,loss=SHARE][,rate_kbit=N][,resend=1] ...

Returns when all queues are bound, and prints the id of the process that serves them: the kernel's table
/proc/net/netfilter/nfnetlink_queue tells it, too. With an error nothing is bound.

Rules
1. Packets of one queue leave in the order they came: none overtakes because its jitter was less.
2. A packet that is let go meets the firewall again from its first rule, with MARK on it: so a cut that came
   meanwhile stops it, and a rule on MARK keeps it from being queued twice.
3. On SIGTERM all that is held is let go at once, and the process ends. When it is killed the kernel drops
   what is held; `--queue-bypass` in the firewall's rule then lets later packets pass.
4. `resend=1` is for packets that leave this namespace (OUTPUT): the packet is dropped at once, and a copy of
   it is sent when it is due. As long as a packet is held its sender takes it for unsent, and TCP sends next
   to nothing more: 0.03 MB/s under 100 ms. Needs NET_RAW, too.
"""

import contextlib
import heapq
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

MARK = 0xF10D
QUEUE_PACKETS = 65536  # beyond it the kernel drops, as any full queue does
LATEST_S = 1.0  # a packet that would wait longer for its turn at a rate is dropped, as of any full queue
SOCKET_BYTES = 8 * 2**20
RECEIVE_BYTES = 2**17
COPY_BYTES = 20  # enough for what the kernel then tells besides: the size
ALL_BYTES = 0xFFFF
READY = "ready"

# linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_queue.h, linux/netfilter.h
NETLINK_NETFILTER = 12
SOL_NETLINK, NETLINK_NO_ENOBUFS = 270, 5
SO_RCVBUFFORCE, SO_MARK = 33, 36
NLMSG_ERROR, NLM_F_REQUEST, NLM_F_ACK = 2, 1, 4
SUBSYSTEM_QUEUE = 3 << 8
MSG_PACKET, MSG_VERDICT, MSG_CONFIG = SUBSYSTEM_QUEUE | 0, SUBSYSTEM_QUEUE | 1, SUBSYSTEM_QUEUE | 2
CFG_CMD, CFG_PARAMS, CFG_MAXLEN, CFG_MASK, CFG_FLAGS = 1, 2, 3, 4, 5
CMD_BIND, COPY_PACKET, FLAG_GSO = 1, 2, 4
PACKET_HDR, VERDICT_HDR, PACKET_MARK, PAYLOAD, CAP_LEN = 1, 2, 3, 10, 13
NF_DROP, NF_REPEAT = 0, 4
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
GENERIC = struct.Struct("!BBH")  # family, version, queue
ATTRIBUTE = struct.Struct("=HH")  # length, type
ATTRIBUTE_TYPE = 0x3FFF  # without the bits for nested and for byte order


@dataclass(slots=True, kw_only=True)
class Slowness:
    """What one queue does to its packets, and since when it has been busy."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0  # evenly spread, at most so much more or less
    loss: float = 0.0  # 0 to 1
    rate_kbit: float = 0.0  # 0: without a limit
    resend: float = 0.0  # 1: rule 4
    free_at_s: float = 0.0  # when the packet before has left, at this rate
    last_due_s: float = 0.0

    def due_s(self, now_s: float, size_bytes: int, chance: Callable[[], float]) -> float | None:
        """When a packet that came now is let go; None: it is lost. `chance` gives 0 to 1."""
        if self.loss and chance() < self.loss:
            return None
        leaves_s = now_s
        if self.rate_kbit:
            begins_s = max(now_s, self.free_at_s)
            if begins_s - now_s > LATEST_S:
                return None
            self.free_at_s = leaves_s = begins_s + size_bytes * 8 / (self.rate_kbit * 1000)
        off_ms = self.jitter_ms * (2 * chance() - 1) if self.jitter_ms else 0.0
        due_s = leaves_s + max(0.0, self.delay_ms + off_ms) / 1000
        self.last_due_s = max(due_s, self.last_due_s)
        return self.last_due_s


WORDS = ("delay_ms", "jitter_ms", "loss", "rate_kbit", "resend")


def told(words: Sequence[str]) -> dict[int, Slowness]:
    """Queue number -> its slowness, from the command line. ValueError with the word that is off."""
    queues: dict[int, Slowness] = {}
    for word in words:
        number, *qualities = word.split(",")
        pairs = [quality.partition("=") for quality in qualities]
        if unknown := [name for name, _, _ in pairs if name not in WORDS]:
            raise ValueError(f"{word!r}: there is no {unknown[0]!r}, only {', '.join(WORDS)}")
        queues[int(number)] = Slowness(**{name: float(value) for name, _, value in pairs})
    if not queues:
        raise ValueError("name at least one queue, as 11,delay_ms=100")
    return queues


# -- what the kernel says and is told ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One that the kernel holds for us."""

    queue: int
    number: int  # the kernel's, in that queue
    size_bytes: int
    copied: bytes  # its first COPY_BYTES, or all of it where the queue resends


def attribute(kind: int, value: bytes) -> bytes:
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def message(kind: int, queue: int, body: bytes, flags: int = NLM_F_REQUEST) -> bytes:
    payload = GENERIC.pack(socket.AF_UNSPEC, 0, queue) + body
    return HEADER.pack(HEADER.size + len(payload), kind, flags, 0, 0) + payload


def verdict(packet: Packet, what: int) -> bytes:
    mark = attribute(PACKET_MARK, struct.pack("!I", MARK)) if what == NF_REPEAT else b""
    judged = attribute(VERDICT_HDR, struct.pack("!II", what, packet.number))
    return message(MSG_VERDICT, packet.queue, judged + mark)


def packets(data: bytes) -> Iterator[Packet]:
    """What the kernel sent. What is no packet is left out."""
    at = 0
    while at + HEADER.size <= len(data):
        length, kind, _, _, _ = HEADER.unpack_from(data, at)
        if kind == MSG_PACKET:
            _, _, queue = GENERIC.unpack_from(data, at + HEADER.size)
            known = dict(attributes(data[at + HEADER.size + GENERIC.size : at + length]))
            copied = known.get(PAYLOAD, b"")
            # Told where less was copied than there is.
            size_bytes = struct.unpack("!I", known[CAP_LEN])[0] if CAP_LEN in known else len(copied)
            (number,) = struct.unpack_from("!I", known[PACKET_HDR])
            yield Packet(queue=queue, number=number, size_bytes=size_bytes, copied=copied)
        at += (length + 3) & ~3


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, at)
        yield kind & ATTRIBUTE_TYPE, data[at + ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def bind(queues: Mapping[int, Slowness]) -> socket.socket:
    """A socket that serves them all. OSError: the kernel has no NFQUEUE, or somebody serves one already."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    netlink.bind((os.getpid(), 0))
    netlink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BYTES)
    netlink.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
    for number, slowness in queues.items():
        # Whole, as segmentation offload made it, up to 64 KB: cheaper, and a hearer's own TCP takes it. What
        # is resent must be as it goes over the wire; at a slow rate one such packet would take seconds.
        flags = 0 if slowness.resend or slowness.rate_kbit else FLAG_GSO
        copied = ALL_BYTES if slowness.resend else COPY_BYTES
        for body in (
            attribute(CFG_CMD, GENERIC.pack(CMD_BIND, 0, socket.AF_UNSPEC)),
            attribute(CFG_PARAMS, struct.pack("!IB", copied, COPY_PACKET))
            + attribute(CFG_FLAGS, struct.pack("!I", flags))
            + attribute(CFG_MASK, struct.pack("!I", FLAG_GSO))
            + attribute(CFG_MAXLEN, struct.pack("!I", QUEUE_PACKETS)),
        ):
            ask(netlink, message(MSG_CONFIG, number, body, NLM_F_REQUEST | NLM_F_ACK), f"queue {number}")
    return netlink


def ask(netlink: socket.socket, request: bytes, what: str) -> None:
    """No rule leads to a queue that is being bound: what comes back is the answer, not a packet."""
    netlink.send(request)
    answer = netlink.recv(RECEIVE_BYTES)
    _, kind, _, _, _ = HEADER.unpack_from(answer)
    (error,) = struct.unpack_from("=i", answer, HEADER.size)
    if kind != NLMSG_ERROR or error:
        raise OSError(-error, f"{what}: {os.strerror(-error)}")


def sender() -> socket.socket:
    """Sends whole IP packets with MARK on them."""
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    except PermissionError as error:
        raise PermissionError(error.errno, "resend needs NET_RAW") from error
    raw.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
    raw.setblocking(False)
    return raw


# -- the work ---------------------------------------------------------------------------------------------


class Delay:
    """Holds packets until they are due."""

    def __init__(self, queues: Mapping[int, Slowness]) -> None:
        self._queues = queues
        self._netlink = bind(queues)
        self._netlink.setblocking(False)
        self._raw = sender() if any(slowness.resend for slowness in queues.values()) else None
        self._held: list[tuple[float, int, Packet]] = []  # a heap: due, how many came before, which
        self._came = 0

    def serve(self, stop: int) -> None:
        """Until a byte comes on the descriptor `stop`; then everything held is let go."""
        while True:
            self._let_go(time.monotonic())
            timeout_s = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
            readable, _, _ = select.select([self._netlink.fileno(), stop], [], [], timeout_s)
            if self._netlink.fileno() in readable:
                self._receive()
            elif stop in readable:  # and no packet is left to be read
                self._let_go(float("inf"))
                return

    def _receive(self) -> None:
        try:
            data = self._netlink.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        now_s = time.monotonic()
        for packet in packets(data):
            slowness = self._queues[packet.queue]
            due_s = slowness.due_s(now_s, packet.size_bytes, random.random)
            if due_s is None or slowness.resend:
                self._netlink.send(verdict(packet, NF_DROP))
            if due_s is not None:
                self._came += 1
                heapq.heappush(self._held, (due_s, self._came, packet))

    def _let_go(self, now_s: float) -> None:
        while self._held and self._held[0][0] <= now_s:
            packet = heapq.heappop(self._held)[2]
            if not self._queues[packet.queue].resend:
                self._netlink.send(verdict(packet, NF_REPEAT))
            elif self._raw is not None:
                # A cut that came meanwhile is EPERM, a full device ENOBUFS: lost, either way.
                with contextlib.suppress(OSError):
                    self._raw.sendto(packet.copied, (socket.inet_ntoa(packet.copied[16:20]), 0))


def main() -> None:
    """The parent waits until its child has bound the queues, and tells how that went."""
    try:
        queues = told(sys.argv[1:])
    except ValueError as error:
        sys.exit(f"delay: {error}")
    hears, says = os.pipe()
    if child := os.fork():
        os.close(says)
        with os.fdopen(hears) as answer:
            why = answer.read()
        if why != READY:
            sys.exit(f"delay: {why or 'it ended at once'}")
        print(child)
        return
    os.setsid()
    stop, stopped = os.pipe()
    os.set_blocking(stopped, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(stopped)
    try:
        delay = Delay(queues)
    except OSError as error:
        os.write(says, (error.strerror or str(error)).encode())
        os._exit(1)
    # Who started us waits for the end of our output.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.write(says, READY.encode())
    os.close(says)
    delay.serve(stop)


if __name__ == "__main__":
    main()

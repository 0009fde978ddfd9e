"""Delays packets in user space: reads them from NFQUEUE queues, one queue for each kind of slowness.

It is used where the kernel has no netem. It runs in the network namespace whose firewall sends packets to the
queues, needs NET_ADMIN there, and uses the standard library alone. Usage:

    python delay.py QUEUE[,delay_ms=N][,jitter_ms=N][,loss=SHARE][,rate_kbit=N][,resend=1] ...

It returns when all queues are bound, and prints the id of the process that serves them (which the kernel's
table /proc/net/netfilter/nfnetlink_queue shows, too). After an error nothing is bound.

Rules
1. The packets of one queue leave in the order in which they came: less jitter never lets one overtake.
2. A released packet passes the firewall again from its first rule, with MARK on it: so a cut that was made
   meanwhile stops it, and a rule on MARK keeps it from being queued twice.
3. On SIGTERM it releases all packets at once and ends. When it is killed, the kernel drops the packets in its
   queues; `--queue-bypass` in the firewall's rule then lets later packets pass.
4. `resend=1` is for packets that leave this namespace (OUTPUT): the packet is dropped at once, and a copy of
   it is sent when it is due. Without it TCP counts a queued packet as not sent yet, and sends almost nothing
   more: 0.03 MB/s at 100 ms. It needs NET_RAW, too.
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
COPY_BYTES = 20  # enough: the kernel then gives the packet's size in an attribute
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
    """The delay, loss and rate of one queue, and until when it is busy."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0  # added or subtracted, at most this much, evenly spread
    loss: float = 0.0  # 0 to 1
    rate_kbit: float = 0.0  # 0: without a limit
    resend: float = 0.0  # 1: rule 4
    free_at_s: float = 0.0  # when the packet before has left, at this rate
    last_due_s: float = 0.0

    def due_s(self, now_s: float, size_bytes: int, chance: Callable[[], float]) -> float | None:
        """When to release a packet that came at now_s; None: it is lost. `chance` returns 0 to 1."""
        if self.loss and chance() < self.loss:
            return None
        leaves_s = now_s
        if self.rate_kbit:
            begins_s = max(now_s, self.free_at_s)
            if begins_s - now_s > LATEST_S:
                return None
            self.free_at_s = leaves_s = begins_s + size_bytes * 8 / (self.rate_kbit * 1000)
        jitter_ms = self.jitter_ms * (2 * chance() - 1) if self.jitter_ms else 0.0
        due_s = leaves_s + max(0.0, self.delay_ms + jitter_ms) / 1000
        self.last_due_s = max(due_s, self.last_due_s)
        return self.last_due_s


WORDS = ("delay_ms", "jitter_ms", "loss", "rate_kbit", "resend")


def parse_queues(words: Sequence[str]) -> dict[int, Slowness]:
    """Parse the command line: queue number -> its slowness. ValueError names the bad word."""
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


# -- netlink messages -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A packet that the kernel holds until its verdict."""

    queue: int
    number: int  # given by the kernel, in that queue
    size_bytes: int
    copied: bytes  # its first COPY_BYTES, or all of it where the queue resends


def attribute(kind: int, value: bytes) -> bytes:
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def message(kind: int, queue: int, body: bytes, flags: int = NLM_F_REQUEST) -> bytes:
    payload = GENERIC.pack(socket.AF_UNSPEC, 0, queue) + body
    return HEADER.pack(HEADER.size + len(payload), kind, flags, 0, 0) + payload


def verdict(packet: Packet, action: int) -> bytes:
    mark = attribute(PACKET_MARK, struct.pack("!I", MARK)) if action == NF_REPEAT else b""
    head = attribute(VERDICT_HDR, struct.pack("!II", action, packet.number))
    return message(MSG_VERDICT, packet.queue, head + mark)


def packets(data: bytes) -> Iterator[Packet]:
    """Parse the packets that the kernel sent; skip other messages."""
    at = 0
    while at + HEADER.size <= len(data):
        length, kind, _, _, _ = HEADER.unpack_from(data, at)
        if kind == MSG_PACKET:
            _, _, queue = GENERIC.unpack_from(data, at + HEADER.size)
            known = dict(attributes(data[at + HEADER.size + GENERIC.size : at + length]))
            copied = known.get(PAYLOAD, b"")
            # The attribute is there only if fewer bytes were copied than the packet has.
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
    """Bind one socket to all queues. OSError: no NFQUEUE in the kernel, or another process serves a queue."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    netlink.bind((os.getpid(), 0))
    netlink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BYTES)
    netlink.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
    for number, slowness in queues.items():
        # GSO: take packets as segmentation offload made them, up to 64 KB, which is cheaper. Not for resent
        # packets, which must be as they go over the wire, and not with a rate: one would take seconds.
        flags = 0 if slowness.resend or slowness.rate_kbit else FLAG_GSO
        copied = ALL_BYTES if slowness.resend else COPY_BYTES
        for body in (
            attribute(CFG_CMD, GENERIC.pack(CMD_BIND, 0, socket.AF_UNSPEC)),
            attribute(CFG_PARAMS, struct.pack("!IB", copied, COPY_PACKET))
            + attribute(CFG_FLAGS, struct.pack("!I", flags))
            + attribute(CFG_MASK, struct.pack("!I", FLAG_GSO))
            + attribute(CFG_MAXLEN, struct.pack("!I", QUEUE_PACKETS)),
        ):
            configure(netlink, message(MSG_CONFIG, number, body, NLM_F_REQUEST | NLM_F_ACK), number)
    return netlink


def configure(netlink: socket.socket, request: bytes, queue: int) -> None:
    """Send one request and check its answer. No firewall rule uses the queue yet, so no packet can come."""
    netlink.send(request)
    answer = netlink.recv(RECEIVE_BYTES)
    _, kind, _, _, _ = HEADER.unpack_from(answer)
    (error,) = struct.unpack_from("=i", answer, HEADER.size)
    if kind != NLMSG_ERROR or error:
        raise OSError(-error, f"queue {queue}: {os.strerror(-error)}")


def open_raw_socket() -> socket.socket:
    """Open a socket that sends complete IP packets with MARK on them."""
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    except PermissionError as error:
        raise PermissionError(error.errno, "resend needs NET_RAW") from error
    raw.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
    raw.setblocking(False)
    return raw


# -- serving the queues -----------------------------------------------------------------------------------


class Delay:
    """Keeps packets until they are due."""

    def __init__(self, queues: Mapping[int, Slowness]) -> None:
        self._queues = queues
        self._netlink = bind(queues)
        self._netlink.setblocking(False)
        self._raw = open_raw_socket() if any(slowness.resend for slowness in queues.values()) else None
        self._waiting: list[tuple[float, int, Packet]] = []  # a heap: due, number of arrival, packet
        self._arrivals = 0

    def serve(self, stop: int) -> None:
        """Serve until a byte comes on the descriptor `stop`; then release all packets."""
        while True:
            self._release_due(time.monotonic())
            timeout_s = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            readable, _, _ = select.select([self._netlink.fileno(), stop], [], [], timeout_s)
            if self._netlink.fileno() in readable:
                self._receive()
            elif stop in readable:  # and no packet is left to be read
                self._release_due(float("inf"))
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
                self._arrivals += 1
                heapq.heappush(self._waiting, (due_s, self._arrivals, packet))

    def _release_due(self, now_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= now_s:
            packet = heapq.heappop(self._waiting)[2]
            if not self._queues[packet.queue].resend:
                self._netlink.send(verdict(packet, NF_REPEAT))
            elif self._raw is not None:
                # EPERM after a cut, ENOBUFS on a full device: the packet is lost in either case.
                with contextlib.suppress(OSError):
                    self._raw.sendto(packet.copied, (socket.inet_ntoa(packet.copied[16:20]), 0))


def main() -> None:
    """Fork a child that serves the queues; the parent waits until they are bound, and reports any error."""
    try:
        queues = parse_queues(sys.argv[1:])
    except ValueError as error:
        sys.exit(f"delay: {error}")
    from_child, to_parent = os.pipe()
    if child := os.fork():
        os.close(to_parent)
        with os.fdopen(from_child) as answer:
            word = answer.read()
        if word != READY:
            sys.exit(f"delay: {word or 'it ended at once'}")
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
        os.write(to_parent, (error.strerror or str(error)).encode())
        os._exit(1)
    # The caller waits for the end of this process's output.
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)
    os.write(to_parent, READY.encode())
    os.close(to_parent)
    delay.serve(stop)


if __name__ == "__main__":
    main()

"""docker/faults/delay.py without the kernel: when a packet is due, and netlink's messages."""

import struct
from types import ModuleType
from typing import Any

import pytest
from fault_programs import fault_program

from floodmark.harness.cluster.containers.network import MARK


@pytest.fixture(scope="module")
def delay() -> ModuleType:
    return fault_program("delay")


def never() -> float:
    raise AssertionError("no random number is needed")


def test_the_mark_is_the_one_that_the_firewall_accepts(delay: ModuleType) -> None:
    """Otherwise a released packet would be queued again, for ever."""
    assert delay.MARK == MARK


def test_when_a_packet_is_due(delay: ModuleType) -> None:
    """Only jitter and loss need a random number. Jitter goes both ways, never below zero, and does not
    reorder: the second packet would be due before the first and leaves with it. At a rate packets leave one
    after the other, 1000 bytes at 800 kbit/s in 10 ms; an idle line accumulates no credit; none queues
    longer than a second, and a dropped one takes no time."""
    def due(slowness: Any, size: int, *sent: tuple[float, float | None]) -> list[float | None]:
        """Of packets sent at these times, with these numbers."""
        return [slowness.due_s(now_s, size, never if number is None else lambda number=number: number)
                for now_s, number in sent]

    make = delay.Slowness
    assert due(make(delay_ms=100), 1500, (10.0, None), (10.5, None)) == [10.1, 10.6]
    assert due(make(delay_ms=100, jitter_ms=50), 1500, (0.0, 1.0), (0.01, 0.0), (1.0, 0.5)) == pytest.approx(
        [0.150, 0.150, 1.100])
    assert due(make(jitter_ms=50), 1500, (3.0, 0.0)) == [3.0]
    assert due(make(loss=0.3), 1500, (1.0, 0.299), (1.0, 0.3)) == [None, 1.0]
    assert due(make(loss=1.0), 1500, (1.0, 0.999)) == [None]
    assert due(make(rate_kbit=800, delay_ms=5), 1000, *((now, None) for now in (1.0, 1.0, 1.001, 9.0))
               ) == pytest.approx([1.015, 1.025, 1.035, 9.015])
    assert due(make(rate_kbit=8), 400, *[(0.0, None)] * 5, (0.5, None)) == pytest.approx(
        [0.4, 0.8, 1.2, None, None, 1.6])


def test_queue_arguments(delay: ModuleType) -> None:
    """One queue each; the error names what is invalid."""
    queues = delay.parse_queues(["100,delay_ms=100,jitter_ms=20", "101,rate_kbit=1e+06,resend=1"])

    assert queues == {100: delay.Slowness(delay_ms=100, jitter_ms=20),
                      101: delay.Slowness(rate_kbit=1e6, resend=1)}
    for words, why in (([], "at least one"), (["11,colour=1"], "there is no 'colour'"), (["x"], "invalid")):
        with pytest.raises(ValueError, match=why):
            delay.parse_queues(words)


def from_kernel(delay: Any, queue: int, number: int, *more: tuple[int, bytes]) -> bytes:
    """A packet as nfnetlink_queue sends it."""
    attributes = ((delay.PACKET_HDR, struct.pack("!IHB", number, 0x0800, 1)), *more)
    return bytes(delay.message(delay.MSG_PACKET, queue, b"".join(
        delay.attribute(kind, value) for kind, value in attributes)))


def test_packets_are_read(delay: ModuleType) -> None:
    """Several at once; unknown attributes and other messages are skipped; the size is the full one."""
    data = b"".join((
        from_kernel(delay, 100, 7, (99, b"odd"), (delay.CAP_LEN, struct.pack("!I", 1500)),
                    (delay.PAYLOAD, b"x" * 20)),
        delay.HEADER.pack(delay.HEADER.size + 4, delay.NLMSG_ERROR, 0, 0, 0) + struct.pack("=i", -2),
        from_kernel(delay, 101, 8, (delay.PAYLOAD, b"abc")),
    ))

    assert list(delay.packets(data)) == [
        delay.Packet(queue=100, number=7, size_bytes=1500, copied=b"x" * 20),
        delay.Packet(queue=101, number=8, size_bytes=3, copied=b"abc")]


def test_a_verdict_has_the_packets_number_and_the_mark(delay: ModuleType) -> None:
    """Only a released packet is marked: it passes the firewall again."""
    packet = delay.Packet(queue=100, number=7, size_bytes=60, copied=b"")
    released, dropped = delay.verdict(packet, delay.NF_REPEAT), delay.verdict(packet, delay.NF_DROP)

    _, kind, _, _, _ = delay.HEADER.unpack_from(released)
    assert kind == delay.MSG_VERDICT
    assert delay.GENERIC.unpack_from(released, delay.HEADER.size)[2] == 100
    body = delay.HEADER.size + delay.GENERIC.size
    assert dict(delay.attributes(released[body:])) == {
        delay.VERDICT_HDR: struct.pack("!II", delay.NF_REPEAT, 7),
        delay.PACKET_MARK: struct.pack("!I", MARK)}
    assert dict(delay.attributes(dropped[body:])) == {
        delay.VERDICT_HDR: struct.pack("!II", delay.NF_DROP, 7)}

"""docker/faults/delay.py without the kernel: when a packet is due, and netlink's messages."""

import importlib.util
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from floodmark.harness.cluster.containers.network import MARK

PROGRAM = Path(__file__).resolve().parents[2] / "docker" / "faults" / "delay.py"


@pytest.fixture(scope="module")
def delay() -> Iterator[ModuleType]:
    """Not part of a package: the program runs alone in a container."""
    spec = importlib.util.spec_from_file_location("delay_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def never() -> float:
    raise AssertionError("no random number is needed")


def test_the_mark_is_the_one_that_the_firewall_accepts(delay: ModuleType) -> None:
    """Otherwise a released packet would be queued again, for ever."""
    assert delay.MARK == MARK


def test_a_delay_is_added(delay: ModuleType) -> None:
    """Without a random number."""
    slowness = delay.Slowness(delay_ms=100)

    assert [slowness.due_s(now_s, 1500, never) for now_s in (10.0, 10.5)] == [10.1, 10.6]


def test_jitter_goes_both_ways_and_does_not_reorder_packets(delay: ModuleType) -> None:
    """The second would be due before the first and leaves with it; a delay is never below zero."""
    slowness = delay.Slowness(delay_ms=100, jitter_ms=50)
    numbers = iter([1.0, 0.0, 0.5])

    due_s = [slowness.due_s(now_s, 1500, lambda: next(numbers)) for now_s in (0.0, 0.01, 1.0)]
    assert due_s == pytest.approx([0.150, 0.150, 1.100])
    assert delay.Slowness(jitter_ms=50).due_s(3.0, 1500, lambda: 0.0) == 3.0


def test_loss_is_below_the_dice(delay: ModuleType) -> None:
    """Loss of 1 drops everything."""
    slowness = delay.Slowness(loss=0.3)

    assert [slowness.due_s(1.0, 1500, lambda: 0.299), slowness.due_s(1.0, 1500, lambda: 0.3)] == [None, 1.0]
    assert delay.Slowness(loss=1.0).due_s(1.0, 1500, lambda: 0.999) is None


def test_a_rate_sends_packets_one_after_the_other(delay: ModuleType) -> None:
    """1000 bytes at 800 kbit/s take 10 ms. An idle line accumulates no credit."""
    slowness = delay.Slowness(rate_kbit=800, delay_ms=5)

    assert [slowness.due_s(now_s, 1000, never) for now_s in (1.0, 1.0, 1.001, 9.0)] == pytest.approx(
        [1.015, 1.025, 1.035, 9.015])


def test_a_full_line_drops(delay: ModuleType) -> None:
    """No packet queues longer than a second; a dropped one takes no time."""
    slowness = delay.Slowness(rate_kbit=8)  # one byte a millisecond

    due_s = [slowness.due_s(0.0, 400, never) for _ in range(5)]
    assert due_s == pytest.approx([0.4, 0.8, 1.2, None, None])
    assert slowness.due_s(0.5, 400, never) == pytest.approx(1.6)


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

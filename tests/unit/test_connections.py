"""Connections with several requests open: how the client gives out their answers, what the broker reads while
one is not answered yet; and how a library's clients are closed."""

import asyncio
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from floodmark.broker.server import socket_server
from floodmark.harness.client.connection import Connection, Lost

LONG = 3 << 20  # longer than what is read ahead


def frame(correlation: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + correlation.to_bytes(4, "big") + body


async def with_two_open(data: Sequence[bytes]) -> list[Any]:
    """What two requests get when this arrives and the connection is then lost."""
    connection = Connection()
    connection.connection_made(Mock(spec=asyncio.Transport, **{"is_closing.return_value": False}))
    tasks = [asyncio.create_task(connection.exchange(bytearray(12), 60.0)) for _ in range(2)]
    await asyncio.sleep(0)
    for piece in data:
        connection.data_received(piece)
    connection.connection_lost(None)
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_answers_in_one_piece_and_in_small_ones_go_to_their_requests_and_none_out_of_turn() -> None:
    both = frame(1, b"one") + frame(2, b"two")
    for pieces in ([both], [both[:9], both[9:]], [both[index:index + 1] for index in range(len(both))]):
        assert asyncio.run(with_two_open(pieces)) == [b"one", b"two"]
    for wrong in (frame(2, b"two"), frame(1, b"one") * 2):
        assert isinstance(asyncio.run(with_two_open([wrong]))[1], Lost)


# -- the broker's side ------------------------------------------------------------------------------------


class Client(asyncio.Transport):
    """The other end of a connection; `sent` is what it still has to send."""

    def __init__(self) -> None:
        super().__init__()
        self.handled: list[bytes] = []
        self.received = b""
        self.sent = b""
        self.reads = True
        self.connection = socket_server.Connection(lambda _, frame: self.handled.append(frame), 100 << 20)
        self.connection.connection_made(self)

    def send(self, *frames: bytes) -> None:
        self.sent += b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        self.deliver()

    def deliver(self) -> None:
        """As much as the broker reads."""
        while self.reads and self.sent:
            piece, self.sent = self.sent[:1 << 16], self.sent[1 << 16:]
            self.connection.data_received(piece)

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.received += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.connection.connection_lost(None)


def test_a_long_request_behind_one_that_waits_is_read_to_its_end(client: Client) -> None:
    client.send(b"waits", b"x" * LONG)
    assert (client.handled, client.reads) == ([b"waits"], False)

    client.connection.answer(b"1")
    client.deliver()

    assert client.handled == [b"waits", b"x" * LONG]
    client.connection.answer(b"2")
    assert (client.received, client.reads) == (b"12", True)


def test_a_client_that_does_not_read_its_answers_is_not_read_either(client: Client) -> None:
    client.connection.pause_writing()
    client.send(*[b"x" * (LONG // 4)] * 4)
    assert (client.handled, client.reads) == ([], False)

    client.connection.resume_writing()
    while len(client.handled) < 4:
        client.connection.answer(b"1")
        client.deliver()
    assert not client.sent


# -- closing: neither the run nor its exit waits for a library that never returns -------------------------


# A client whose close() never returns, in a process that has nothing else to do.
NEVER_CLOSES = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
from floodmark.harness.protocols import WorkloadSettings
from floodmark.workloads import idempotent

class Consumer:
    def close(self):
        threading.Event().wait()

idempotent._CLOSE_TIMEOUT_S = 0.2
one = idempotent.IdempotentSession(WorkloadSettings(
    run_id="0" * 16, seed=1, partitions=(), addresses=dict, acks="all", concurrency=1, first_value=0,
    clients=None), ThreadPoolExecutor(1))
one._consumer = Consumer()
asyncio.run(one.close())
print("closed")
"""


def test_a_library_that_never_closes_blocks_neither_the_run_nor_the_exit() -> None:
    ran = subprocess.run([sys.executable, "-c", NEVER_CLOSES], capture_output=True, text=True, timeout=60,
                         check=False)
    assert (ran.returncode, ran.stdout) == (0, "closed\n"), ran.stderr

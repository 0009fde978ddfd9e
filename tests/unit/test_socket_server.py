"""The broker's side of a connection: what is read while a request is not answered yet."""

import asyncio
import struct
from collections.abc import Iterator

import pytest

from floodmark.broker.server.socket_server import Connection

LONG = 3 << 20  # longer than what is read ahead


class Client(asyncio.Transport):
    """The other end of a connection; `sent` is what it still has to send."""

    def __init__(self) -> None:
        super().__init__()
        self.handled: list[bytes] = []
        self.received = b""
        self.sent = b""
        self.reads = True
        self.connection = Connection(lambda _, frame: self.handled.append(frame), 100 << 20)
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

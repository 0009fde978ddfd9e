"""How a connection with several requests open gives out its answers, and how a library's clients are closed.
What an idempotent producer of ours sends: test_client.py."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from floodmark.harness.client.client import wire_clients
from floodmark.harness.client.connection import Connection, Lost
from floodmark.harness.protocols import WorkloadSettings
from floodmark.workloads.idempotent import IdempotentSession


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


# -- closing: neither the run nor its exit waits for a library that never returns -------------------------


# A client whose close() never returns, in a process that has nothing else to do.
NEVER_CLOSES = """
import asyncio, threading
from floodmark.workloads import idempotent
from test_connections import session

class Consumer:
    def close(self):
        threading.Event().wait()

idempotent._CLOSE_TIMEOUT_S = 0.2
one = session()
one._consumer = Consumer()
asyncio.run(one.close())
print("closed")
"""


def session() -> IdempotentSession:
    settings = WorkloadSettings(
        run_id="0" * 16, seed=1, partitions=(), addresses=lambda: {"n1": ("127.0.0.1", 1)}, acks="all",
        concurrency=1, first_value=0, clients=wire_clients(dict))
    return IdempotentSession(settings, ThreadPoolExecutor(1))


def test_a_library_that_never_closes_blocks_neither_the_run_nor_the_exit() -> None:
    found = [*sys.path, str(Path(__file__).parent)]
    ran = subprocess.run([sys.executable, "-c", f"import sys\nsys.path = {found!r}\n{NEVER_CLOSES}"],
                         capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "closed\n"), ran.stderr


def test_real_clients_without_a_broker_are_closed_and_an_error_is_raised() -> None:
    one = session()
    one._get_producer(0.0)
    one._get_consumer()

    asyncio.run(one.close())

    assert (one._producer, one._consumer) == (None, None)

    class Consumer:
        def close(self) -> None:
            raise RuntimeError("already closed")

    one = session()
    one._consumer = Consumer()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="already closed"):
        asyncio.run(one.close())

"""Closing an idempotent process: neither the run nor its exit waits for a library that never returns."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from floodmark.harness.client.client import wire_clients
from floodmark.harness.protocols import WorkloadSettings
from floodmark.workloads.idempotent import IdempotentSession

# A client whose close() never returns, in a process that has nothing else to do.
NEVER_CLOSES = """
import asyncio, threading
from floodmark.workloads import idempotent
from test_idempotent_close import session

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
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\n"
         f"sys.path.insert(0, {__file__.rpartition('/')[0]!r})\n{NEVER_CLOSES}"],
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

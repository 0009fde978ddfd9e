"""What a process of the broker takes from its surroundings: clocks, ids, its log, its end, what blocks it.

Nothing else of the broker reads a clock or entropy, sets a signal's handler, starts a thread or ends the
process. A simulation runs many brokers in one Python process: it puts one of its own into `current`, which
answers for the simulated process that asks. All of it is one module: one value answers for the process that
runs, and each part is a line or two.
"""

import contextlib
import os
import signal
import socketserver
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Protocol

Address = tuple[str, int]
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Event(Protocol):
    """Of threading.Event, what the broker uses."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None, /) -> bool: ...


class Runtime(Protocol):
    def monotonic_ns(self) -> int: ...
    def time_ns(self) -> int: ...
    def new_uuid(self) -> uuid.UUID: ...
    def before_effect(self, kind: str) -> None: ...  # a write or an fsync follows: a simulation may stop here
    def write_line(self, text: str) -> None: ...  # of this process's log
    def call_before_halt(self, act: Callable[[str], None]) -> None: ...  # with the reason
    def calls_before_halt(self) -> Sequence[Callable[[str], None]]: ...
    def exit(self, code: int) -> NoReturn: ...  # at once: nothing is flushed
    def kill(self) -> NoReturn: ...  # SIGKILL to itself
    def new_event(self) -> Event: ...  # whoever waits for it blocks its thread
    def end_at_signals(self) -> contextlib.AbstractContextManager[None]: ...  # inside, without handlers
    def serve_lines(self, address: Address, allows: Callable[[str], bool], answer: Callable[[bytes], bytes]
                    ) -> Callable[[], None]: ...  # on threads of their own; returns what ends it


class _Process:
    """The real one."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)
    new_uuid = staticmethod(uuid.uuid4)
    new_event = staticmethod(threading.Event)

    def __init__(self) -> None:
        self._before_halt: list[Callable[[str], None]] = []

    def before_effect(self, kind: str) -> None:
        pass

    def write_line(self, text: str) -> None:
        print(text, flush=True)

    def call_before_halt(self, act: Callable[[str], None]) -> None:
        self._before_halt.append(act)

    def calls_before_halt(self) -> Sequence[Callable[[str], None]]:
        return self._before_halt

    def exit(self, code: int) -> NoReturn:
        sys.stdout.flush()
        os._exit(code)

    def kill(self) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a SIGKILL returns to nobody")

    @contextlib.contextmanager
    def end_at_signals(self) -> Iterator[None]:
        handlers = {number: signal.signal(number, signal.SIG_DFL) for number in _END_SIGNALS}
        yield
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def serve_lines(self, address: Address, allows: Callable[[str], bool], answer: Callable[[bytes], bytes]
                    ) -> Callable[[], None]:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    for line in self.rfile:
                        self.wfile.write(answer(line))

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

            def verify_request(self, request: object, client_address: Address) -> bool:
                return allows(f"{client_address[0]}:{client_address[1]}")

        server = Server(address, Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), name="control", daemon=True).start()
        return server.server_close


current: Runtime = _Process()

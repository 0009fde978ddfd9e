"""What the harness takes from its surroundings during a run: clocks, and names for new files.

A simulation puts its own into `current`; whatever acts during a run reads these and no others.
"""

import secrets
import time
from typing import Protocol


class Runtime(Protocol):
    def monotonic_ns(self) -> int: ...
    def time_ns(self) -> int: ...
    def token_hex(self, size: int) -> str: ...


class _Process:
    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)
    token_hex = staticmethod(secrets.token_hex)


current: Runtime = _Process()


def monotonic_s() -> float:
    return current.monotonic_ns() / 1e9

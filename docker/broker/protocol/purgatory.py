"""Keeps delayed fetches and decides which may be tried again, across partitions; pure.

Rules
1. A follower's fetch wakes when enough bytes have been appended, when a role or leader changes, or at its
   deadline; NEVER because a high watermark moved (that early answer of Kafka 2.4-2.5 was KAFKA-9731).
2. A client's fetch wakes when a high watermark it waits on moves, on a role change, or at its deadline.
3. A fetch that wakes has left the purgatory: the server reads again (Fetch.again), then answers the fetch or
   parks it again with its old deadline.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class _WaitingFetch:
    token: object
    keys: tuple[Hashable, ...]
    consumer: bool
    missing_bytes: int  # of a follower's: still to be appended before it is worth an answer
    deadline_ms: int


class DelayedFetchPurgatory:
    """`key` names a partition, `token` a request; both are the server's and hashable."""

    def __init__(self) -> None:
        self._waiting: dict[object, _WaitingFetch] = {}
        self._by_key: dict[Hashable, dict[object, None]] = {}  # dicts, for their order

    def park(
        self,
        token: Hashable,
        keys: Iterable[Hashable],
        *,
        consumer: bool,
        missing_bytes: int,
        deadline_ms: int,
    ) -> None:
        """Let a fetch wait. `missing_bytes` = min_bytes less the bytes it could be answered with already."""
        if token in self._waiting:
            raise ValueError(f"{token!r} is parked already")
        waiting = _WaitingFetch(
            token=token,
            keys=tuple(keys),
            consumer=consumer,
            missing_bytes=missing_bytes,
            deadline_ms=deadline_ms,
        )
        self._waiting[token] = waiting
        for key in waiting.keys:
            self._by_key.setdefault(key, {})[token] = None

    def appended(self, key: Hashable, size: int) -> list[object]:
        """The leader has appended `size` bytes: wake followers' fetches that now have enough."""
        woken = []
        for waiting in self._watching(key):
            if not waiting.consumer:
                waiting.missing_bytes -= size
                if waiting.missing_bytes <= 0:
                    woken.append(waiting)
        return self._wake(woken)

    def hw_moved(self, key: Hashable) -> list[object]:
        """The leader's high watermark has risen: wake clients' fetches only."""
        return self._wake([waiting for waiting in self._watching(key) if waiting.consumer])

    def role_changed(self, key: Hashable) -> list[object]:
        """The leader, the epoch or the role is new: wake every fetch of that partition."""
        return self._wake(self._watching(key))

    def expired(self, now_ms: int) -> list[object]:
        """Wake the fetches whose deadline has passed."""
        return self._wake([waiting for waiting in self._waiting.values() if waiting.deadline_ms <= now_ms])

    def forget(self, token: Hashable) -> bool:
        """Drop a fetch whose client has left; returns whether it was parked."""
        waiting = self._waiting.get(token)
        return bool(waiting and self._wake([waiting]))

    def _watching(self, key: Hashable) -> list[_WaitingFetch]:
        return [self._waiting[token] for token in self._by_key.get(key, ())]

    def _wake(self, woken: list[_WaitingFetch]) -> list[object]:
        for waiting in woken:
            del self._waiting[waiting.token]
            for key in waiting.keys:
                tokens = self._by_key.get(key)
                if tokens is not None:
                    tokens.pop(waiting.token, None)
                    if not tokens:
                        del self._by_key[key]
        return [waiting.token for waiting in woken]

"""Defines a client's settings, for any kind of connection to the brokers."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings of one process's client."""

    run_id: str
    keys: Mapping[int, tuple[str, int]]  # the history's partition -> (topic, partition)
    without_headers: frozenset[int] = frozenset()  # partitions whose message format is v0 or v1
    acks: str = "all"
    request_timeout_s: float = 1.5
    produce_timeout_ms: int = 1000  # how long the leader waits for the ISR
    connect_timeout_s: float = 0.5
    metadata_timeout_s: float = 0.5
    fetch_wait_ms: int = 200
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 32 << 10  # of one partition
    lists_starts: bool = False  # list_offsets asks for the beginnings too
    compression: str = "none"  # of batches sent: none or gzip
    shares_requests: bool = False  # its sends go into Produce requests together with other processes' sends
    in_flight: int = 0  # most Produce requests in flight of an idempotent producer; 0: it is none
    pause_s: tuple[float, float] = (0.02, 0.4)  # after a definite failure: the first wait, the longest

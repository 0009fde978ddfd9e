"""The settings of a node in memory, read from Kafka's keys. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.broker.protocol.rules import Rules
from floodmark.broker.testing.bugs import rules_for

SWITCHES = "floodmark.switches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of every node. Times are milliseconds. Keys about files and sockets (segments, request
    sizes) have no meaning here."""

    rules: Rules
    session_timeout_ms: int
    heartbeat_interval_ms: int
    replica_lag_time_max_ms: int
    fetch_wait_max_ms: int
    fetch_max_bytes: int  # of one partition in one answer to a follower
    fetch_backoff_ms: int
    request_timeout_ms: int  # replica.socket.timeout.ms
    min_insync_replicas: int
    unclean_leader_election: bool
    hw_checkpoint_interval_ms: int
    flush_messages: int | None  # None: never


def read_settings(keys: Mapping[str, str], *, rules: str, bugs: tuple[str, ...]) -> Settings:
    """Reads the settings; ValueError for unknown rules, bugs or switches. The values must have been
    checked."""
    flush = keys.get("log.flush.interval.messages")
    switches = tuple(name for name in keys.get(SWITCHES, "").split(",") if name)
    return Settings(
        rules=rules_for(rules, bugs, switches),
        session_timeout_ms=int(keys.get("broker.session.timeout.ms", 9_000)),
        heartbeat_interval_ms=int(keys.get("broker.heartbeat.interval.ms", 2_000)),
        replica_lag_time_max_ms=int(keys.get("replica.lag.time.max.ms", 30_000)),
        fetch_wait_max_ms=int(keys.get("replica.fetch.wait.max.ms", 500)),
        fetch_max_bytes=int(keys.get("replica.fetch.max.bytes", 1_048_576)),
        fetch_backoff_ms=int(keys.get("replica.fetch.backoff.ms", 1_000)),
        request_timeout_ms=int(keys.get("replica.socket.timeout.ms", 30_000)),
        min_insync_replicas=int(keys.get("min.insync.replicas", 1)),
        unclean_leader_election=keys.get("unclean.leader.election.enable", "false").lower() == "true",
        hw_checkpoint_interval_ms=int(keys.get("replica.high.watermark.checkpoint.interval.ms", 5_000)),
        flush_messages=None if flush is None else int(flush),
    )

"""Reads INFO lines of Apache Kafka's brokers: those that tell of roles, truncations and starts.

Written from lines of 2.8.2, 3.9.2 and 4.3.1 (tests/golden/kafka_lines); jvm.py says how a line begins.

    starts      Loaded N logs in T ms; whether the stop before was orderly stands in a line or two before it
    roles       Leader T starts at leader epoch E from offset LEO with ... high watermark HW, ISR [...]
                Follower T starts at leader epoch E from offset LEO with ... high watermark HW; from 3.x on
                also Current leader is N
    truncations Truncating partition T to local high watermark ..., or with TruncationState(... leader epoch
                ...): why; Truncating to offset TO: it was done. With "has no effect" nothing was cut

A role's line is written while the replica's lock is held, before any of the role's effects leaves the broker,
and the process hands each line to the kernel at once: who was seen in a role has its line, killed or not.
"""

import re
from calendar import timegm
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["clean", "unclean", "loaded", "leader", "follower", "why", "truncated"]
HIGH_WATERMARK = "its own high watermark"
LEADER_EPOCH = "the leader's end offset of an epoch"

_STAMP = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d),(\d{3})\] INFO (.*)", re.DOTALL)
_PLACE = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)"
_FETCHER = r"\[ReplicaFetcher replicaId=\d+, leaderId=\d+, fetcherId=\d+\]"
_ROLE = re.compile(
    rf"\[Broker id=\d+\] (?P<role>Leader|Follower) {_PLACE}(?: with topic id \S+)? "
    r"starts at leader epoch (?P<epoch>\d+) from offset (?P<leo>\d+) with "
    r"(?:partition epoch \d+(?:,| and) )?high watermark (?P<hw>\d+)"
    r"(?:,? ISR \[(?P<isr>[\d,]*)\])?(?P<rest>.*)")
_CURRENT_LEADER = re.compile(r"\. Current leader is (-?\d+)\.")
_WHY = re.compile(rf"{_FETCHER} Truncating partition {_PLACE} "
                  r"(?P<how>to local high watermark|with TruncationState\(.*?\) due to "
                  r"(?:local high watermark|leader epoch))")
_TRUNCATED = re.compile(
    rf"\[(?:Log|UnifiedLog) partition={_PLACE}, dir=.*\] Truncating to offset (?P<to>\d+) ")
_STOPPED = re.compile(r"(?:(?P<unclean>Attempting recovery for all|Recovering \d+)"
                      r"|Skipping recovery (?:for all|of \d+)) logs (?:in|from) .* "
                      r"since (?:no )?clean shutdown file was found")
_LOADED = re.compile(r"Loaded \d+ logs in \d+ ?ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one line tells. What it is not about is None."""

    kind: Kind  # clean, unclean: the stop before; loaded: the process has its logs; why: of a truncation
    time_ms: int  # of the broker's wall clock, since 1970
    topic: str | None = None
    partition: int | None = None
    epoch: int | None = None
    leo: int | None = None  # after a truncation: where it cut
    hw: int | None = None
    isr: tuple[int, ...] | None = None
    leader: int | None = None  # of a follower's role, where its version tells it; -1: nobody
    why: str | None = None


def read_line(line: str) -> Said | None:
    """What the line tells; None: nothing of this."""
    stamped = _STAMP.match(line)
    if stamped is None:
        return None
    text = stamped[8]
    for mark, read in _READERS:
        if mark in text:
            said = read(text, _time_ms(stamped))
            if said is not None:
                return said
    return None


def _time_ms(stamped: re.Match[str]) -> int:
    year, month, day, hour, minute, second, ms = (int(stamped[group]) for group in range(1, 8))
    return timegm((year, month, day, hour, minute, second, 0, 0, 0)) * 1000 + ms


def _role(text: str, time_ms: int) -> Said | None:
    found = _ROLE.match(text)
    if found is None or (found["role"] == "Leader") != (found["isr"] is not None):
        return None
    named = _CURRENT_LEADER.match(found["rest"])
    return Said(
        kind="leader" if found["role"] == "Leader" else "follower", time_ms=time_ms, topic=found["topic"],
        partition=int(found["partition"]), epoch=int(found["epoch"]), leo=int(found["leo"]),
        hw=int(found["hw"]), leader=None if named is None else int(named[1]),
        isr=None if found["isr"] is None else tuple(int(one) for one in found["isr"].split(",") if one))


def _why(text: str, time_ms: int) -> Said | None:
    found = _WHY.match(text)
    if found is None:
        return None
    why = HIGH_WATERMARK if found["how"].endswith("local high watermark") else LEADER_EPOCH
    return Said(kind="why", time_ms=time_ms, topic=found["topic"], partition=int(found["partition"]), why=why)


def _truncated(text: str, time_ms: int) -> Said | None:
    found = _TRUNCATED.match(text)
    return None if found is None else Said(
        kind="truncated", time_ms=time_ms, topic=found["topic"], partition=int(found["partition"]),
        leo=int(found["to"]))


def _stopped(text: str, time_ms: int) -> Said | None:
    found = _STOPPED.match(text)
    return None if found is None else Said(kind="unclean" if found["unclean"] else "clean", time_ms=time_ms)


def _loaded(text: str, time_ms: int) -> Said | None:
    return Said(kind="loaded", time_ms=time_ms) if _LOADED.match(text) else None


_READERS: tuple[tuple[str, Callable[[str, int], Said | None]], ...] = (
    (" starts at leader epoch ", _role), ("Truncating partition ", _why),
    ("Truncating to offset ", _truncated), ("clean shutdown file", _stopped), ("Loaded ", _loaded),
)

"""Parses INFO lines of Apache Kafka's brokers about roles, truncations and starts.
The patterns are made from lines of 2.8.2, 3.9.2 and 4.3.1 (tests/golden/kafka_lines); jvm.py sets their
format.

    starts      Loaded N logs in T ms; one or two lines earlier it says whether the stop before was orderly
    roles       Leader T starts at leader epoch E from offset LEO with ... high watermark HW, ISR [...]
                Follower T starts at leader epoch E from offset LEO with ... high watermark HW; from 3.x on
                also Current leader is N
    truncations Truncating partition T to local high watermark ..., or with TruncationState(... leader epoch
                ... leaderEpoch=E, endOffset=END): the cause, and the leader's answer; Truncating to offset
                TO: done. With "has no effect" nothing was cut

A role's line is written under the replica's lock, before any effect of the role leaves the broker, and each
line is written to the kernel at once: a node that was observed in a role has its line, even if it was killed.
"""

import re
from calendar import timegm
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["clean", "unclean", "loaded", "leader", "follower", "cause", "truncated"]
WHY = {"hw": "its own high watermark", "epoch": "the leader's end offset of an epoch"}  # for people

_STAMP = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d),(\d{3})\] INFO (.*)", re.DOTALL)
_PLACE = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)"
_FETCHER = r"\[ReplicaFetcher replicaId=\d+, leaderId=\d+, fetcherId=\d+\]"
_ROLE = re.compile(
    rf"\[Broker id=\d+\] (?P<role>Leader|Follower) {_PLACE}(?: with topic id \S+)? "
    r"starts at leader epoch (?P<epoch>\d+) from offset (?P<leo>\d+) with "
    r"(?:partition epoch \d+(?:,| and) )?high watermark (?P<hw>\d+)"
    r"(?:,? ISR \[(?P<isr>[\d,]*)\])?(?P<rest>.*)")
_CURRENT_LEADER = re.compile(r"\. Current leader is (-?\d+)\.")
_CAUSE = re.compile(rf"{_FETCHER} Truncating partition {_PLACE} "
                  r"(?:to|with TruncationState\(.*?\) due to) "
                  r"(?P<how>local high watermark|leader epoch)(?P<rest>.*)")
_ANSWER = re.compile(r".*\bleaderEpoch=(-?\d+), endOffset=(-?\d+)")
_TRUNCATED = re.compile(
    rf"\[(?:Log|UnifiedLog) partition={_PLACE}, dir=.*\] Truncating to offset (?P<to>\d+) ")
_STOPPED = re.compile(r"(?:(?P<unclean>Attempting recovery for all|Recovering \d+)"
                      r"|Skipping recovery (?:for all|of \d+)) logs (?:in|from) .* "
                      r"since (?:no )?clean shutdown file was found")
_LOADED = re.compile(r"Loaded \d+ logs in \d+ ?ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """The content of one line. Fields that it does not have are None."""

    kind: Kind  # clean, unclean: the stop before; loaded: it has its logs; cause: of a truncation
    time_ms: int  # of the broker's wall clock, since 1970
    topic: str | None = None
    partition: int | None = None
    epoch: int | None = None
    leo: int | None = None  # of a truncation: the new LEO
    hw: int | None = None
    isr: tuple[int, ...] | None = None
    leader: int | None = None  # of a follower's role, if its version logs it; -1: none
    cause: Literal["hw", "epoch"] | None = None
    answer: tuple[int, int] | None = None  # epoch and its end by the leader, as the cause of a truncation


def read_line(line: str) -> LogLine | None:
    """The content of a line; None: it is about something else."""
    stamped = _STAMP.match(line)
    if stamped is None:
        return None
    text = stamped[8]
    for mark, read in _READERS:
        if mark in text:
            parsed = read(text, _time_ms(stamped))
            if parsed is not None:
                return parsed
    return None


def _time_ms(stamped: re.Match[str]) -> int:
    year, month, day, hour, minute, second, ms = (int(stamped[group]) for group in range(1, 8))
    return timegm((year, month, day, hour, minute, second, 0, 0, 0)) * 1000 + ms


def _role(text: str, time_ms: int) -> LogLine | None:
    found = _ROLE.match(text)
    if found is None or (found["role"] == "Leader") != (found["isr"] is not None):
        return None
    named = _CURRENT_LEADER.match(found["rest"])
    return LogLine(
        kind="leader" if found["role"] == "Leader" else "follower", time_ms=time_ms, topic=found["topic"],
        partition=int(found["partition"]), epoch=int(found["epoch"]), leo=int(found["leo"]),
        hw=int(found["hw"]), leader=None if named is None else int(named[1]),
        isr=None if found["isr"] is None else tuple(int(one) for one in found["isr"].split(",") if one))


def _cause(text: str, time_ms: int) -> LogLine | None:
    found = _CAUSE.match(text)
    if found is None:
        return None
    answer = _ANSWER.match(found["rest"]) if found["how"] == "leader epoch" else None
    return LogLine(kind="cause", time_ms=time_ms, topic=found["topic"], partition=int(found["partition"]),
                   cause="epoch" if found["how"] == "leader epoch" else "hw",
                   answer=None if answer is None else (int(answer[1]), int(answer[2])))


def _truncated(text: str, time_ms: int) -> LogLine | None:
    found = _TRUNCATED.match(text)
    return None if found is None else LogLine(
        kind="truncated", time_ms=time_ms, topic=found["topic"], partition=int(found["partition"]),
        leo=int(found["to"]))


def _stopped(text: str, time_ms: int) -> LogLine | None:
    found = _STOPPED.match(text)
    if found is None:
        return None
    return LogLine(kind="unclean" if found["unclean"] else "clean", time_ms=time_ms)


def _loaded(text: str, time_ms: int) -> LogLine | None:
    return LogLine(kind="loaded", time_ms=time_ms) if _LOADED.match(text) else None


_READERS: tuple[tuple[str, Callable[[str, int], LogLine | None]], ...] = (
    (" starts at leader epoch ", _role), ("Truncating partition ", _cause),
    ("Truncating to offset ", _truncated), ("clean shutdown file", _stopped), ("Loaded ", _loaded),
)

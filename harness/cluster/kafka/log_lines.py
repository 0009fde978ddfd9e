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
from dataclasses import dataclass
from typing import Literal

Kind = Literal["clean", "unclean", "loaded", "leader", "follower", "hw", "epoch", "truncated"]
WHY: dict[Kind, str] = {  # causes of a truncation, for people
    "hw": "its own high watermark", "epoch": "the leader's end offset of an epoch"}

_STAMP = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d),(\d{3})\] INFO ")
_PLACE = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)"
_ROLE = (rf"{_PLACE}(?: with topic id \S+)? starts at leader epoch (?P<epoch>\d+) from offset "
         r"(?P<leo>\d+) with (?:partition epoch \d+(?:,| and) )?high watermark (?P<hw>\d+)")
_CAUSE = (r"\[ReplicaFetcher replicaId=\d+, leaderId=\d+, fetcherId=\d+\] "
          rf"Truncating partition {_PLACE} (?:to|with TruncationState\(.*?\) due to) ")
_SINCE = r" logs (?:in|from) .* since (?:no )?clean shutdown file was found"
# Characters that a line must have, its kind, and its pattern, whose groups are fields of LogLine.
_LINES: tuple[tuple[str, Kind, str], ...] = (
    (" starts at leader epoch ", "leader", rf"\[Broker id=\d+\] Leader {_ROLE},? ISR \[(?P<isr>[\d,]*)\]"),
    (" starts at leader epoch ", "follower", rf"\[Broker id=\d+\] Follower {_ROLE}(?!\d|,? ISR \[)"
                                             r"(?:\. Current leader is (?P<leader>-?\d+)\.)?"),
    ("Truncating partition ", "hw", rf"{_CAUSE}local high watermark"),
    ("Truncating partition ", "epoch",
     rf"{_CAUSE}leader epoch(?:.*\bleaderEpoch=(?P<answer_epoch>-?\d+), endOffset=(?P<answer_end>-?\d+))?"),
    ("Truncating to offset ", "truncated",
     rf"\[(?:Log|UnifiedLog) partition={_PLACE}, dir=.*\] Truncating to offset (?P<leo>\d+) "),
    ("clean shutdown file", "unclean", rf"(?:Attempting recovery for all|Recovering \d+){_SINCE}"),
    ("clean shutdown file", "clean", rf"Skipping recovery (?:for all|of \d+){_SINCE}"),
    ("Loaded ", "loaded", r"Loaded \d+ logs in \d+ ?ms"),
)
_PATTERNS = tuple((mark, kind, re.compile(pattern)) for mark, kind, pattern in _LINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """The content of one line. Fields that it does not have are empty, -1 or None."""

    kind: Kind  # clean, unclean: the stop before; loaded: it has its logs; hw, epoch: why it will truncate
    time_ms: int  # of the broker's wall clock, since 1970
    topic: str = ""
    partition: int = -1
    epoch: int = -1
    leo: int = -1  # of a truncation: the new LEO
    hw: int = -1
    isr: tuple[int, ...] | None = None
    leader: int | None = None  # of a follower's role, if its version logs it; -1: none
    answer_epoch: int | None = None  # the leader's answer that is the cause of a truncation
    answer_end: int | None = None


def read_line(line: str) -> LogLine | None:
    """The content of a line; None: it is about something else."""
    stamped = _STAMP.match(line)
    if stamped is None:
        return None
    for mark, kind, pattern in _PATTERNS:
        if mark in line and (found := pattern.match(line, stamped.end())) is not None:
            *date, ms = map(int, stamped.groups())
            fields = {name: text for name, text in found.groupdict().items() if text is not None}
            topic, isr = fields.pop("topic", ""), fields.pop("isr", None)
            return LogLine(
                kind=kind, time_ms=timegm((*date, 0, 0, 0)) * 1000 + ms, topic=topic,
                isr=None if isr is None else tuple(int(one) for one in isr.split(",") if one),
                **{name: int(text) for name, text in fields.items()})
    return None

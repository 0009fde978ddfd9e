"""Bounds the difference between the brokers' clocks by the time-stamps that they give, without an agent.

A record of a topic with message.timestamp.type=LogAppendTime gets the time of its leader's clock while we
wait for the answer. Between sending (`sent`) and receiving (`received`), both by our clock, the leader's
clock showed
`stamp`, rounded down to the millisecond. So its clock is ahead of ours by at least stamp - received and by
less than stamp + 1 ms - sent. Each request narrows that; the clocks of two brokers differ by at most the
upper bound of one minus the lower bound of the other. The bounds before and after the run are combined to the
lowest and the highest: a clock that drifted steadily was between them. A clock that was set forth and back is
not noticed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MS_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """One request. sent and received by our clock, in nanoseconds since 1970; stamp in milliseconds."""

    sent_ns: int
    received_ns: int
    stamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How far a broker's clock is ahead of ours: the least and the most, in nanoseconds."""

    least_ns: int
    most_ns: int


def ahead(asks: Sequence[Stamped]) -> Ahead | None:
    """The bound by all requests to one broker, which must be close in time; None: there are none, or they
    contradict each other (a clock was set meanwhile)."""
    if not asks:
        return None
    least = max(one.stamp_ms * MS_NS - one.received_ns for one in asks)
    most = min((one.stamp_ms + 1) * MS_NS - one.sent_ns for one in asks)
    return Ahead(least_ns=least, most_ns=most) if least <= most else None


def joined(first: Ahead, second: Ahead) -> Ahead:
    """The bound that covers two times, and a steady drift between them."""
    return Ahead(least_ns=min(first.least_ns, second.least_ns), most_ns=max(first.most_ns, second.most_ns))


def error_ns(clocks: Mapping[str, Ahead]) -> int:
    """The largest possible difference between two of these clocks."""
    if len(clocks) < 2:
        return 0
    return max(one.most_ns - other.least_ns for name, one in clocks.items()
               for other_name, other in clocks.items() if name != other_name)

"""How far the clocks of a cluster's brokers may lie apart, from stamps that they gave, without an agent.

A record of a topic with message.timestamp.type=LogAppendTime is stamped by its leader's clock while we wait
for the answer. Between asking (`sent`) and having it (`received`), both by our clock, the leader's clock
showed `stamp`, to the millisecond below. So its clock is ahead of ours by no less than stamp - received and
by less than stamp + 1 ms - sent. Each ask narrows that; the clocks of two brokers differ by no more than the
upper bound of one less the lower bound of the other. The bounds from before the run and from after it are
joined the other way round, the lowest and the highest: a clock that drifted steadily in between was somewhere
between. One that was set to and fro meanwhile is not seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MS_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """One ask. sent and received by our clock, in nanoseconds since 1970; stamp in milliseconds."""

    sent_ns: int
    received_ns: int
    stamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A broker's clock is ahead of ours by at least `least` and at most `most` nanoseconds."""

    least_ns: int
    most_ns: int


def ahead(asks: Sequence[Stamped]) -> Ahead | None:
    """What all asks of one broker, close together, say of its clock; None: nothing, or they contradict one
    another (a clock was set meanwhile)."""
    if not asks:
        return None
    least = max(one.stamp_ms * MS_NS - one.received_ns for one in asks)
    most = min((one.stamp_ms + 1) * MS_NS - one.sent_ns for one in asks)
    return Ahead(least_ns=least, most_ns=most) if least <= most else None


def joined(first: Ahead, second: Ahead) -> Ahead:
    """Of two times: what holds of both, and of a steady drift between them."""
    return Ahead(least_ns=min(first.least_ns, second.least_ns), most_ns=max(first.most_ns, second.most_ns))


def error_ns(clocks: Mapping[str, Ahead]) -> int:
    """The most by which any two of these clocks can differ."""
    if len(clocks) < 2:
        return 0
    return max(one.most_ns - other.least_ns for name, one in clocks.items()
               for other_name, other in clocks.items() if name != other_name)

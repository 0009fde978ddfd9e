"""What stands where in one partition: the leader's final log or, where nobody knows that, the places of acks.

A value is plain if it was sent once, acked once at the one place where it stands, and read only there and
not before it was sent. Everything else that clients or logs show of the partition is odd. Two values acked at
one place, or one value that stands at two, cannot both be plain: a plain place has exactly one ack, and a
plain value one send. A value that was sent once and not acked is idle: that it was read, or stands somewhere
in force, shows by itself; else no law speaks of it, whether records of it were aborted or not.
"""

from dataclasses import dataclass

import numpy as np

from checkers.chunks import Bools, Ints
from checkers.columns import OK, Items
from checkers.sends import Sends
from checkers.sieve_logs import Log

_SPARSE, _FEW = 4, 1 << 20  # laid out whole: so many places an ack, or so many in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One row an offset, from `start` on."""

    start: int
    value: Ints
    stands: Bools  # a record of ours that is not aborted, or an ack
    shown: Bools  # where a consumer must not jump over: such a record, or what acks and reads prove
    log: bool  # it is the leader's log: what is not in it is lost

    def places(self, offset: Ints) -> tuple[Bools, Ints]:
        """Which of these offsets are inside, and the row of each (0 for the others)."""
        inside = (offset >= self.start) & (offset < self.start + len(self.value))
        return inside, np.where(inside, offset - self.start, 0)

    def holds(self, offset: Ints, value: Ints) -> Bools:
        """Where this value stands at this offset."""
        inside, at = self.places(offset)
        if not len(self.value):
            return inside
        there: Bools = inside & self.stands[at] & (self.value[at] == value)
        return there


def of_log(log: Log) -> Proof:
    stands = log.ours & ~log.aborted
    return Proof(start=log.start, value=log.value, stands=stands, shown=stands, log=True)


def of_acks(sends: Sends, reads: Items) -> Proof | None:
    """The places of acks; None where they and those of the reads lie too far apart."""
    acked = sends.acked
    offset = sends.offset[acked]
    count = len(offset) + len(reads.offset)
    if not count:
        none = np.zeros(0, dtype=np.bool_)
        return Proof(start=0, value=sends.value[:0], stands=none, shown=none, log=False)
    start = min(int(each.min()) for each in (offset, reads.offset) if len(each))
    size = max(int(each.max()) for each in (offset, reads.offset) if len(each)) - start + 1
    if size > max(_SPARSE * count, _FEW):
        return None
    value, stands = np.zeros(size, dtype=sends.value.dtype), np.zeros(size, dtype=np.bool_)
    value[offset - start], stands[offset - start] = sends.value[acked], True
    shown = stands.copy()
    shown[reads.offset - start] = True
    return Proof(start=start, value=value, stands=stands, shown=shown, log=False)


def is_idle(sends: Sends) -> Bools:
    """Which of them were sent once, and not acked."""
    idle: Bools = sends.once & (sends.type != OK)
    return idle


def odd_values(proof: Proof, sends: Sends, reads: Items) -> tuple[Ints, Ints, Bools]:
    """Values that clients show to be odd, the offsets at which they do, and which places are plain."""
    held = sends.acked & proof.holds(sends.offset, sends.value)
    plain = held & sends.once
    at = sends.offset[plain] - proof.start
    alone = np.bincount(at, minlength=len(proof.value)) == 1
    begun = np.zeros(len(proof.value), dtype=sends.invoked.dtype)
    begun[at] = sends.invoked[plain]
    inside, where = proof.places(reads.offset)
    good = inside
    if len(alone):
        good = proof.holds(reads.offset, reads.value) & alone[where] & (reads.line > begun[where])
    # Without the log nothing is lost: what was neither acked nor read anywhere breaks no law.
    wrong = ~plain & ~is_idle(sends) if proof.log else (sends.acked & ~held) | ~sends.once
    crowded = proof.start + np.flatnonzero(proof.stands & ~alone)
    return (
        np.concatenate((sends.value[wrong], reads.value[~good])),
        np.concatenate((reads.offset[~good], crowded)),
        alone,
    )


def lost_by_reads(
    sends: Sends, reads: Items, final: Bools, *, by_final: bool, by_any: bool, in_doubt: bool
) -> bool:
    """Whether, for want of the leader's log, reads show an ok send to be lost, or leave that in doubt;
    `final`: of each read. As values.IS_UNREAD has it, or stricter."""
    if by_final:
        ended = reads.where(final)
        missed = (sends.type == OK) & ~np.isin(sends.value, ended.value)
        if in_doubt and missed.any():
            return True
        offset = sends.offset[missed & sends.acked]
        if len(ended.offset) and ((offset >= ended.offset.min()) & (offset < ended.offset.max())).any():
            return True
    if not by_any or not len(reads.offset):
        return False
    never = sends.acked & ~np.isin(sends.value, reads.value)
    return bool((sends.offset[never] < reads.offset.max()).any())


def unread(proof: Proof, reads: Items, final: Bools, readable: int) -> Ints:
    """Values that a final read should have returned, and none did; `final`: of each read."""
    seen = np.zeros(len(proof.value), dtype=np.bool_)
    ended = reads.where(final)
    good = proof.holds(ended.offset, ended.value)
    seen[ended.offset[good] - proof.start] = True
    missed = proof.stands & ~seen
    missed[max(0, readable - proof.start) :] = False
    return proof.value[missed]

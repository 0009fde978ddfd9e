"""Classifies a produce as ok, fail or info, by its response or the lack of one. Pure.

Rules
1. It is ok only if the error is 0, and fail only if nothing can have been appended. Everything else is info.
2. An error with base_offset >= 0 is info whatever its code: Kafka keeps the offset if the record was appended
   and the leader was deposed before the ack (DelayedProduce changes only the error). The record may survive.
3. A base_offset of -1 proves nothing for codes that can also come after an append (7, 13, 20, 56, -1), nor
   for 46 (the sequence is already in the log).
4. With acks=0 there is no response, so nothing is known once a byte was sent.
"""

from collections.abc import Sequence
from dataclasses import replace

from floodmark.harness.client.error_names import NONE, name_of
from floodmark.harness.op import Outcome, Send, Type

CONNECTION = "CONNECTION"
TIMEOUT = "TIMEOUT"

# With these errors and base_offset -1, the request was refused before the append.
REFUSALS = frozenset({2, 3, 6, 10, 17, 18, 19, 21, 29, 32, 35, 42, 43, 45, 47, 74, 75, 76, 87, 100})


def answered(sends: Sequence[Send], error: int, base_offset: int) -> Outcome:
    """Classify a produce response. The offsets of an info are only hints, never evidence."""
    if base_offset >= 0:
        placed = tuple(replace(send, offset=base_offset + index) for index, send in enumerate(sends))
    else:
        placed = tuple(sends)
    if error == NONE:
        return Outcome(type=Type.OK, sends=placed)
    if base_offset < 0 and error in REFUSALS:
        return Outcome(type=Type.FAIL, sends=placed, error=name_of(error))
    return Outcome(type=Type.INFO, sends=placed, error=name_of(error))


def unanswered(sends: Sequence[Send], *, began: bool, error: str) -> Outcome:
    """Classify a request without a response. `began`: the first byte may have been sent."""
    return Outcome(type=Type.INFO if began else Type.FAIL, sends=tuple(sends), error=error)


def unasked(sends: Sequence[Send]) -> Outcome:
    """Classify a request with acks=0 that was sent: no response will come."""
    return Outcome(type=Type.INFO, sends=tuple(sends))

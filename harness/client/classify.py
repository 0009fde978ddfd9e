"""Names the error codes of Kafka that a client meets; classifies a produce as ok, fail or info, by its answer
or the lack of one. Pure.

Rules
1. It is ok only if the error is 0, and fail only if nothing can have been appended. Everything else is info.
2. An error with base_offset >= 0 is info whatever its code: Kafka keeps the offset if the record was appended
   and the leader was deposed before the ack (DelayedProduce changes only the error). The record may survive.
3. A base_offset of -1 proves nothing for codes that can also come after an append (7, 13, 20, 56, -1), nor
   for 46 (the sequence is already in the log).
4. With acks=0 there is no response, so nothing is known once a byte was sent.
5. A send by an idempotent producer is ok if all of its batches were acked with their offsets. Else it is
   info, as for any library that retries: an earlier try may have been appended.
"""

from collections.abc import Sequence
from dataclasses import replace

from floodmark.harness.op import Outcome, Send, Type

NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
NETWORK_EXCEPTION = 13
UNSUPPORTED_VERSION = 35
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75

_NAMES = {  # where kafka-python has an older name
    -1: "UNKNOWN_SERVER_ERROR", 6: "NOT_LEADER_OR_FOLLOWER", 10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
}
CONNECTION = "CONNECTION"
TIMEOUT = "TIMEOUT"
NO_OFFSET = "NO_OFFSET"  # the batch is said to be in the log, and no ack said where

# With these errors and base_offset -1, the request was refused before the append.
REFUSALS = frozenset({2, 3, 6, 10, 17, 18, 19, 21, 29, 32, 35, 42, 43, 45, 47, 74, 75, 76, 87, 100})
# After these a Kafka producer tries again.
RETRIABLE = frozenset({2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 56, 74, 75, 78, 100})


def name_of(code: int) -> str:
    """Kafka's name of the code, or its number."""
    from kafka.errors import kafka_errors  # imports all of kafka-python: half of floodmark's start

    known = str(kafka_errors[code].message) if code in kafka_errors else f"ERROR_{code}"
    return _NAMES.get(code, known)


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
    """`began`: the first byte may have been sent."""
    return Outcome(type=Type.INFO if began else Type.FAIL, sends=tuple(sends), error=error)


def is_retried(error: int, *, first: bool) -> bool:
    """first: all batches before it were acked; else it may be out of order because of one of them."""
    return error in RETRIABLE or (error == OUT_OF_ORDER_SEQUENCE_NUMBER and not first)


def retried(sends: Sequence[Send], offsets: Sequence[int | None]) -> Outcome:
    """Classify a send of which every batch is in the log. offsets: of its records; None or -1: not known."""
    if any(offset is None or offset < 0 for offset in offsets):
        return Outcome(type=Type.INFO, sends=tuple(sends), error=NO_OFFSET)
    placed = tuple(replace(send, offset=offset) for send, offset in zip(sends, offsets, strict=True))
    return Outcome(type=Type.OK, sends=placed)

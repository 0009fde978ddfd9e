"""Marks the records that a run sends, and recognizes them: by a header, or by the value alone.

In format v2, records have headers: ours have a header `floodmark` with the run's id, and their value is the
decimal digits of the op's value. Formats v0 and v1 have no headers: there a record's value has all of it,

    floodmark 0123456789abcdef 17

Readers accept both in any format. Any other record was not sent by this run.
"""

from collections.abc import Sequence

HEADER = b"floodmark"
DIGITS_AT_MOST = 19  # values are below 2**63


def in_value(run_id: bytes, value: int) -> bytes:
    """The value of a record that cannot have headers."""
    return b"%b %b %d" % (HEADER, run_id, value)


def header_ending(run_id: bytes) -> bytes:
    """The end of a record of format v2 that has our header alone; each length is a zig-zag varint."""
    return b"\x02" + bytes([2 * len(HEADER)]) + HEADER + bytes([2 * len(run_id)]) + run_id


def value_of(value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]], run_id: bytes) -> int | None:
    """The op's value, for a record of this run; None for any other record."""
    if value is None:
        return None
    digits = value
    if (HEADER, run_id) not in headers:
        start = b"%b %b " % (HEADER, run_id)
        if not value.startswith(start):
            return None
        digits = value[len(start):]
    return int(digits) if digits.isdigit() and len(digits) <= DIGITS_AT_MOST else None

"""How a stored record says that this run sent it, and its value: by a header, or by the value alone.

Where records have headers (format v2), ours have a header `floodmark`, which is the run's id, and the value's
decimal digits as their value. Formats v0 and v1 have no headers: there a record's value says all of it,

    floodmark 0123456789abcdef 17

Readers take both, whatever the format. Every other record is somebody else's.
"""

from collections.abc import Sequence

HEADER = b"floodmark"
_DIGITS_AT_MOST = 19  # of a value, which is below 2**63


def in_value(run_id: bytes, value: int) -> bytes:
    """What a record's value is where it cannot have headers."""
    return b"%b %b %d" % (HEADER, run_id, value)


def value_of(value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]], run_id: bytes) -> int | None:
    """The value of a record of this run; None of any other."""
    if value is None:
        return None
    digits = value
    if (HEADER, run_id) not in headers:
        start = b"%b %b " % (HEADER, run_id)
        if not value.startswith(start):
            return None
        digits = value[len(start):]
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_AT_MOST else None

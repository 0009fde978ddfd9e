"""Reads times and sizes as people write them: `90s`, `1h30min`, `20 GB`. Pure."""

import math
import re

_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(?:h|hours?))?\s*(?:(\d+(?:\.\d+)?)\s*(?:m|min|minutes?))?\s*"
                   r"(?:(\d+(?:\.\d+)?)\s*(?:s|seconds?))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M|G|T)?B")
_UNITS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def seconds(text: str) -> float:
    """Read a time; ValueError where it is not a time above 0."""
    found = _TIME.fullmatch(text.strip())
    parts = found.groups() if found is not None else ()
    total = sum(float(part or 0) * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    if not 0 < total < math.inf:
        raise ValueError(f"{text!r} is not a time: write 90s, 20min, 4h or 1h30min")
    return total


def size_bytes(text: str) -> int:
    """Read a size; ValueError where it is not a size above 0."""
    found = _SIZE.fullmatch(text.strip())
    total = float(found[1]) * _UNITS[found[2]] if found is not None else 0.0
    if not 1 <= total < math.inf:
        raise ValueError(f"{text!r} is not a size: write 500 MB or 20 GB")
    return int(total)

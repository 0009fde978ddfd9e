"""Reads and prints times, sizes and counts as people write them: `90s`, `1h30min`, `20 GB`. Pure."""

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
    if not total > 0:
        raise ValueError(f"{text!r} is not a time: write 90s, 20min, 4h or 1h30min")
    return total


def size_bytes(text: str) -> int:
    """Read a size; ValueError where it is not a size above 0."""
    found = _SIZE.fullmatch(text.strip())
    total = int(float(found[1]) * _UNITS[found[2]]) if found is not None else 0
    if not total > 0:
        raise ValueError(f"{text!r} is not a size: write 500 MB or 20 GB")
    return total


def time_text(time_s: float) -> str:
    """Print a time with its two largest units: `3 h 58 min`, `12 min 5 s`, `4.2 s`."""
    if time_s < 60:
        return f"{time_s:.1f} s" if time_s < 10 else f"{time_s:.0f} s"
    minutes, rest_s = divmod(round(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest_s, "s")]
    first = 0 if hours else 1
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def short_time_text(time_s: float) -> str:
    """Print a time with three digits: `0.123 ms`, `12.3 ms`, `1.23 s`, `123 s`."""
    return f"{1000 * time_s:.3g} ms" if time_s < 0.9995 else f"{time_s:.3g} s" if time_s < 999.5 else (
        f"{time_s:.0f} s")


def size_text(size: int) -> str:
    """Print a size: `512 MB`, `2.1 GB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"


def count_text(count: int) -> str:
    """Print a count: `45,605`, and from a million on `1.9 M`."""
    return f"{count:,}" if count < 10**6 else f"{count / 10**6:,.1f} M"

"""Times, sizes and counts as people write them: `90s`, `20min`, `1h30min`; `500 MB`, `20 GB`. Pure."""

import re

_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(?:h|hours?))?\s*(?:(\d+(?:\.\d+)?)\s*(?:m|min|minutes?))?\s*"
                   r"(?:(\d+(?:\.\d+)?)\s*(?:s|seconds?))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M|G|T)?B")
_UNITS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def seconds(words: str) -> float:
    """ValueError for what is no time above 0."""
    found = _TIME.fullmatch(words.strip())
    parts = found.groups() if found is not None else ()
    total = sum(float(part or 0) * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    if not total > 0:
        raise ValueError(f"{words!r} is no time: write 90s, 20min, 4h or 1h30min")
    return total


def size_bytes(words: str) -> int:
    """ValueError for what is no size above 0."""
    found = _SIZE.fullmatch(words.strip())
    total = int(float(found[1]) * _UNITS[found[2]]) if found is not None else 0
    if not total > 0:
        raise ValueError(f"{words!r} is no size: write 500 MB or 20 GB")
    return total


def time_words(time_s: float) -> str:
    """`3 h 58 min`, `12 min 5 s`, `4.2 s`: the two largest units."""
    if time_s < 60:
        return f"{time_s:.1f} s" if time_s < 10 else f"{time_s:.0f} s"
    minutes, rest_s = divmod(round(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest_s, "s")]
    first = 0 if hours else 1
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def brief_words(time_s: float) -> str:
    """`0.123 ms`, `12.3 ms`, `1.23 s`, `123 s`: three digits."""
    return f"{1000 * time_s:.3g} ms" if time_s < 0.9995 else f"{time_s:.3g} s" if time_s < 999.5 else (
        f"{time_s:.0f} s")


def size_words(size: int) -> str:
    """`512 MB`, `2.1 GB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"


def count_words(count: int) -> str:
    """`45,605`; `1.9 M` from a million on."""
    return f"{count:,}" if count < 10**6 else f"{count / 10**6:,.1f} M"

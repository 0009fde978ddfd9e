"""Computes how often something was found: rates with their intervals. Pure. Source: Wilson 1927."""

import math

Z95 = 1.959964  # the normal quantile of a two-sided 95 % interval


def wilson(hits: int, of: int, z: float = Z95) -> tuple[float, float]:
    """The Wilson score interval of a share, which is also valid at 0 of n and n of n."""
    if of == 0:
        return 0.0, 1.0
    share, spread = hits / of, z * z / of
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def per_100(hits: int, of: int) -> str:
    """The rate and its 95 % interval: `12 per 100 runs (7 to 20)`."""
    if of == 0:
        return "no run"
    low, high = (100 * share for share in wilson(hits, of))
    return f"{100 * hits / of:.3g} per 100 runs ({two_digits(low)} to {two_digits(high)})"


def two_digits(number: float) -> str:
    """The number with two digits, or more if it is 100 or more."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"

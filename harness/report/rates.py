"""Computes how often something was found: rates with their intervals, and whether two rates differ. Pure."""


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), which is also valid at 0 of n and n of n."""
    from scipy import stats  # takes a while to import

    if of == 0:
        return 0.0, 1.0
    low, high = stats.binomtest(hits, of).proportion_ci(method="wilson")
    return float(low), float(high)


def per_100(hits: int, of: int) -> str:
    """The rate and its 95 % interval: `12 per 100 runs (7 to 20)`."""
    if of == 0:
        return "no run"
    low, high = (100 * share for share in wilson(hits, of))
    return f"{100 * hits / of:.3g} per 100 runs ({two_digits(low)} to {two_digits(high)})"


def two_digits(number: float) -> str:
    """The number with two digits, or more if it is 100 or more."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def p_same(then: tuple[int, int], now: tuple[int, int]) -> float:
    """The probability of such a difference between equal rates (hits, of): Fisher's exact test, two-sided."""
    from scipy import stats

    return float(stats.fisher_exact([[hits, of - hits] for hits, of in (then, now)]).pvalue)

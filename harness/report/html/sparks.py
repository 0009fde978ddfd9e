"""Draws rates in a table's cells: a bar for a rate with its interval, a line for the rate night by night.
Pure.

Rules
1. All bars of a table have one scale (`scale_of`), all lines one time axis; each line has its own y scale.
2. A night without a run of the system is a gap in the line, not a zero.
3. What is drawn is also written: as text beside the bar, and as the line's label.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from floodmark.harness.report.html.elements import Markup, text
from floodmark.harness.report.night import Point
from floodmark.harness.report.rates import wilson

BAR_WIDTH, BAR_HEIGHT = 120, 12
LINE_WIDTH, LINE_HEIGHT = 104, 30
EDGE = 5  # pixels around a line, for its dots
SCALES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # ends of the bars, per 100 runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`hits` of `of` runs (at least one) as a rate per 100, with its 95 % interval."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return 100 * self.hits / self.of

    @property
    def interval(self) -> tuple[float, float]:
        low, high = wilson(self.hits, self.of)
        return 100 * low, 100 * high


def scale_of(rates: Iterable[Rate]) -> float:
    """The end of the bars' scale: the least of SCALES that no interval exceeds."""
    most = max((rate.interval[1] for rate in rates), default=0.0)
    return next((scale for scale in SCALES if most <= scale), SCALES[-1])


def bar(rate: Rate, scale: float) -> Markup:
    """A bar: the interval as a band, the rate as a mark."""
    low, high = (BAR_WIDTH * min(1.0, value / scale) for value in rate.interval)
    at = min(BAR_WIDTH - 1.0, max(1.0, BAR_WIDTH * rate.value / scale))
    return Markup(
        f'<svg class="bar" aria-hidden="true" width="{BAR_WIDTH}" height="{BAR_HEIGHT}" '
        f'viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT}">'
        f'<rect class="track" y="4" width="{BAR_WIDTH}" height="4" rx="2"/>'
        f'<rect class="range" x="{low:.1f}" y="3" width="{max(2.0, high - low):.1f}" height="6" rx="3"/>'
        f'<rect class="rate" x="{at - 1.5:.1f}" y="0" width="3" height="{BAR_HEIGHT}" rx="1"/></svg>'
    )


def places(points: Sequence[Point]) -> list[tuple[float, float] | None]:
    """The position of each night's dot in pixels: the last night at the right edge, the highest rate at the
    top; None: no run of the system."""
    most = max((one.hits / one.of for one in points if one.of), default=0.0)
    step = (LINE_WIDTH - 2 * EDGE) / max(1, len(points) - 1)
    right, floor = LINE_WIDTH - EDGE, LINE_HEIGHT - EDGE
    found: list[tuple[float, float] | None] = []
    for back, one in zip(range(len(points) - 1, -1, -1), points, strict=True):
        high = (one.hits / one.of / most if most else 0.0) * (LINE_HEIGHT - 2 * EDGE) if one.of else 0.0
        found.append((round(right - back * step, 1), round(floor - high, 1)) if one.of else None)
    return found


def spark(points: Sequence[Point]) -> Markup:
    """A line of the rate night by night, with a dot where it was seen and at the last night."""
    at = places(points)
    lines = "".join(
        '<polyline points="' + " ".join(f"{x:g},{y:g}" for x, y in stretch) + '"/>'
        for stretch in stretches(at)
    )
    dots = "".join(
        f'<circle class="{"seen" if one.hits else "unseen"}" cx="{place[0]:g}" cy="{place[1]:g}" '
        f'r="{3 if number == len(points) - 1 else 2}"><title>{text(night_text(one))}</title></circle>'
        for number, (one, place) in enumerate(zip(points, at, strict=True))
        if place is not None and (one.hits or number == len(points) - 1)
    )
    return Markup(
        f'<svg class="spark" role="img" aria-label="{text(label(points))}" width="{LINE_WIDTH}" '
        f'height="{LINE_HEIGHT}" viewBox="0 0 {LINE_WIDTH} {LINE_HEIGHT}">'
        f'<line class="floor" x1="{EDGE}" x2="{LINE_WIDTH - EDGE}" y1="{LINE_HEIGHT - EDGE}" '
        f'y2="{LINE_HEIGHT - EDGE}"/>{lines}{dots}</svg>'
    )


def stretches(at: Iterable[tuple[float, float] | None]) -> Iterator[list[tuple[float, float]]]:
    """Yields the positions between gaps that form a line, at least two each."""
    stretch: list[tuple[float, float]] = []
    for place in (*at, None):
        if place is not None:
            stretch.append(place)
            continue
        if len(stretch) > 1:
            yield stretch
        stretch = []


def night_text(point: Point) -> str:
    """`2026-11-23 15:58: 3 of 25 runs`."""
    rate = f"{point.hits} of {point.of} runs" if point.of else "not run"
    return f"{point.began[:16].replace('T', ' ')}: {rate}"


def label(points: Sequence[Point]) -> str:
    return "; ".join(night_text(one) for one in points)

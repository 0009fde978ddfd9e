"""The controller's clock stands still while the controller was away."""

from floodmark.broker.server.controller_clock import ControllerClock


def test_time_passes_as_it_passes() -> None:
    """Small steps are counted in full."""
    time = iter([1000, 1000, 1025, 1225])
    clock = ControllerClock(lambda: next(time), 200)

    assert [clock.now_ms() for _ in range(3)] == [1000, 1025, 1225]
    assert clock.away_ms == 0


def test_a_long_absence_counts_for_little() -> None:
    """Of a minute in which nobody looked, the longest gap that is not an absence."""
    time = iter([0, 100, 60_100, 60_150])
    clock = ControllerClock(lambda: next(time), 200)

    assert [clock.now_ms() for _ in range(3)] == [100, 300, 350]
    assert clock.away_ms == 59_800

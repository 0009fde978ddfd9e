"""The controller's clock does not count the time in which the controller was suspended."""

from floodmark.broker.server.controller_clock import ControllerClock


def test_short_steps_are_counted_in_full() -> None:
    """No step is above the limit of 200 ms."""
    time = iter([1000, 1000, 1025, 1225])
    clock = ControllerClock(lambda: next(time), 200)

    assert [clock.now_ms() for _ in range(3)] == [1000, 1025, 1225]
    assert clock.away_ms == 0


def test_a_long_gap_is_counted_as_the_limit() -> None:
    """A gap of a minute counts as 200 ms, the longest gap that is no suspension."""
    time = iter([0, 100, 60_100, 60_150])
    clock = ControllerClock(lambda: next(time), 200)

    assert [clock.now_ms() for _ in range(3)] == [100, 300, 350]
    assert clock.away_ms == 59_800

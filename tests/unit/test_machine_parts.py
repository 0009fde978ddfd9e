"""Parts of a broker alone: purgatory, words of an event, the controller's clock, elections on request."""

import dataclasses

import pytest

from floodmark.broker.protocol import messages
from floodmark.broker.protocol.messages import Elect
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.broker.server.controller_clock import ControllerClock
from floodmark.broker.server.controller_server import parse_election
from floodmark.broker.testing.control_socket import ControlError


def parked() -> DelayedFetchPurgatory:
    purgatory = DelayedFetchPurgatory()
    purgatory.park("follower", ["p0", "p1"], consumer=False, missing_bytes=10, deadline_ms=500)
    purgatory.park("client", ["p0"], consumer=True, missing_bytes=1, deadline_ms=300)
    return purgatory


def test_an_hw_move_completes_no_fetch_of_a_follower() -> None:
    """KAFKA-9731: only that of a client."""
    purgatory = parked()
    assert purgatory.hw_moved("p0") == ["client"]
    assert purgatory.hw_moved("p0") == []
    assert purgatory.expired(500) == ["follower"]


def test_bytes_add_up_over_partitions() -> None:
    """Nine are too few, the tenth completes the fetch; an append does not complete a client's."""
    purgatory = parked()
    assert purgatory.appended("p0", 9) == []
    assert purgatory.appended("p1", 1) == ["follower"]
    assert purgatory.appended("p0", 100) == []


def test_role_changes_and_deadlines_complete_each_fetch_once() -> None:
    """The token is removed from every partition that it waited for."""
    purgatory = parked()
    assert purgatory.expired(299) == []
    assert purgatory.expired(300) == ["client"]
    assert purgatory.role_changed("p1") == ["follower"]
    assert purgatory.appended("p0", 100) == []
    assert purgatory.expired(500) == []


def test_a_fetch_can_be_forgotten() -> None:
    """Whether it was parked or not."""
    purgatory = parked()
    assert purgatory.forget("client")
    assert not purgatory.forget("client")
    with pytest.raises(ValueError, match="parked already"):
        purgatory.park("follower", ["p0"], consumer=False, missing_bytes=1, deadline_ms=1)


def test_a_log_line_on_an_event_names_no_address_in_memory() -> None:
    """A token is an object of the server, which has another address in each process: one seed, one log."""
    shown = [f"{name}.{field.name}" for name, kind in vars(messages).items() if dataclasses.is_dataclass(kind)
             for field in dataclasses.fields(kind) if field.type in ("object", object) and field.repr]

    assert shown == []


# -- the controller's clock does not count the time in which it was suspended ----------------------------


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


def test_an_election_as_the_control_socket_requests_it() -> None:
    """Without a leader the controller chooses; an invalid request is refused with the expected form."""
    request = {"topic": "t", "partition": 0}
    assert parse_election(request, 5) == Elect(now_ms=5, token=None, partitions=(("t", 0),), unclean=False)
    assert parse_election({**request, "leader": 2, "unclean": True}, 5).leader == 2
    for wrong in ({"topic": 1}, {"partition": "0"}, {"leader": None}, {"unclean": "yes"}):
        with pytest.raises(ControlError, match="elect wants"):
            parse_election({**request, **wrong}, 5)

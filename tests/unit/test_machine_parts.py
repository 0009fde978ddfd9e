"""Parts of a broker alone: purgatory, events, clock, elections on request, topics' configs."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from floodmark.broker.protocol import errors, messages
from floodmark.broker.protocol.messages import Elect
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.broker.server.config import Config, parse_config
from floodmark.broker.server.controller_clock import ControllerClock
from floodmark.broker.server.controller_server import parse_election
from floodmark.broker.server.topic_configs import (
    DEFAULT,
    STATIC,
    TOPIC,
    alter_configs,
    check_topic_configs,
    describe_broker_configs,
    describe_topic_configs,
)
from floodmark.broker.testing.control_socket import ControlError


def configured(folder: Path, *more: str) -> Config:
    """Of broker 1."""
    text = ("process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\ncontroller.quorum.voters=100@h:2\n"
            f"log.dirs={folder}\n")
    return parse_config("".join([text, *more]), "f")[0]


@pytest.mark.parametrize("acts", [
    # KAFKA-9731: a move of the HW completes only the fetch of a client.
    [("hw_moved", "p0", ["client"]), ("hw_moved", "p0", []), ("expired", 500, ["follower"])],
    # Nine bytes are too few, the tenth completes the fetch; an append does not complete a client's.
    [("appended", "p0", 9, []), ("appended", "p1", 1, ["follower"]), ("appended", "p0", 100, [])],
    # The token is removed from every partition that it waited for.
    [("expired", 299, []), ("expired", 300, ["client"]), ("role_changed", "p1", ["follower"]),
     ("appended", "p0", 100, []), ("expired", 500, [])],
    [("forget", "client", True), ("forget", "client", False)],
])
def test_each_fetch_is_completed_once(acts: list[tuple[Any, ...]]) -> None:
    purgatory = DelayedFetchPurgatory()
    purgatory.park("follower", ["p0", "p1"], consumer=False, missing_bytes=10, deadline_ms=500)
    purgatory.park("client", ["p0"], consumer=True, missing_bytes=1, deadline_ms=300)
    with pytest.raises(ValueError, match="parked already"):
        purgatory.park("follower", ["p0"], consumer=False, missing_bytes=1, deadline_ms=1)
    for act, *given, completed in acts:
        assert getattr(purgatory, act)(*given) == completed


def test_a_log_line_on_an_event_names_no_address_in_memory() -> None:
    """A token is an object of the server, which has another address in each process: one seed, one log."""
    shown = [f"{name}.{field.name}" for name, kind in vars(messages).items() if dataclasses.is_dataclass(kind)
             for field in dataclasses.fields(kind) if field.type in ("object", object) and field.repr]

    assert shown == []


# -- the controller's clock does not count the time in which it was suspended ----------------------------


@pytest.mark.parametrize(("times", "counted", "away_ms"), [
    ([1000, 1000, 1025, 1225], [1000, 1025, 1225], 0),
    ([0, 100, 60_100, 60_150], [100, 300, 350], 59_800),  # a minute
])
def test_a_long_gap_is_counted_as_the_limit(times: list[int], counted: list[int], away_ms: int) -> None:
    """200 ms, the longest gap that is no suspension; shorter steps are counted in full."""
    time = iter(times)
    clock = ControllerClock(lambda: next(time), 200)

    assert ([clock.now_ms() for _ in range(3)], clock.away_ms) == (counted, away_ms)


def test_an_election_as_the_control_socket_requests_it() -> None:
    """Without a leader the controller chooses; an invalid request is refused with the expected form."""
    request = {"topic": "t", "partition": 0}
    assert parse_election(request, 5) == Elect(now_ms=5, token=None, partitions=(("t", 0),), unclean=False)
    assert parse_election({**request, "leader": 2, "unclean": True}, 5).leader == 2
    for wrong in ({"topic": 1}, {"partition": "0"}, {"leader": None}, {"unclean": "yes"}):
        with pytest.raises(ControlError, match="elect wants"):
            parse_election({**request, **wrong}, 5)


# -- configs of a topic: which are accepted, how they are altered, where each comes from ------------------


@pytest.mark.parametrize(("configs", "error"), [  # more that Kafka refuses too: golden/requests.txt
    ({"flush.messages": "9" * 5_000}, errors.INVALID_CONFIG),  # more digits than int() takes
    ({"cleanup.policy": "compact"}, errors.POLICY_VIOLATION),
    ({"message.timestamp.type": "LogAppendTime"}, errors.POLICY_VIOLATION),
])
def test_configs_of_a_topic_are_checked(configs: dict[str, str], error: int) -> None:
    found, why = check_topic_configs(configs)

    assert (found, bool(why)) == (error, True)


def test_configs_are_altered_one_by_one() -> None:
    """SET, DELETE; there are no lists to append to."""
    configs = {"a": "1", "b": "2"}

    assert alter_configs(configs, [("a", 0, "9"), ("b", 1, None), ("c", 0, "3"), ("d", 1, None)]) == {
        "a": "9", "c": "3"
    }  # fmt: skip
    assert "no list" in alter_configs(configs, [("a", 2, "9")])
    assert "no value" in alter_configs(configs, [("a", 0, None)])
    assert configs == {"a": "1", "b": "2"}


def test_where_a_config_comes_from() -> None:
    """The topic's own overrides the broker's, and the broker's the default."""
    config = configured(Path("/d"), "min.insync.replicas=2\nmessage.max.bytes=1048588\n")
    described = describe_topic_configs({"segment.bytes": "9", "retention.ms": "1"}, config)
    found = {each.name: (each.value, each.source) for each in described}
    brokers = {each.name: each for each in describe_broker_configs(config)}

    assert found.items() >= {
        "segment.bytes": ("9", TOPIC), "retention.ms": ("1", TOPIC), "min.insync.replicas": ("2", STATIC),
        "unclean.leader.election.enable": ("false", DEFAULT), "cleanup.policy": ("delete", DEFAULT)}.items()
    (segment,) = (each for each in described if each.name == "segment.bytes")
    assert segment.synonyms[1:] == (("log.segment.bytes", "1073741824", DEFAULT),)
    assert brokers["listeners"].value == "PLAINTEXT://h:1"
    assert brokers["message.max.bytes"].source == DEFAULT
    assert all(each.read_only for each in brokers.values())
    assert not [name for name in brokers if name.startswith("floodmark.")]

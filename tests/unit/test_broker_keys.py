"""The keys that may be set: the harness's table against the broker's own, and errors for others."""

import pytest

from floodmark.broker import check_config
from floodmark.broker.server import config
from floodmark.harness.broker_config import (
    INT_MAX,
    KEYS,
    LONG_MAX,
    SET_BY_CLUSTER,
    TOPIC_KEYS,
    checked,
    why_not,
)
from floodmark.harness.errors import UsageError

TRIED = ("-1", "0", "1", "2", "100", str(INT_MAX), str(INT_MAX + 1), str(LONG_MAX), str(LONG_MAX + 1), "true",
         "FALSE", "yes", "soon", "two-phase", "", "1.5", "0x10", "5\nlog.dirs=/elsewhere", "1\nlisteners=x:1")


def test_both_tables_have_the_same_keys() -> None:
    """Keys that may be set and keys set by the cluster are all that a broker knows."""
    assert KEYS.keys() | SET_BY_CLUSTER == config._KEYS.keys()
    assert not KEYS.keys() & SET_BY_CLUSTER
    assert set(TOPIC_KEYS.values()) <= KEYS.keys()


@pytest.mark.parametrize("key", sorted(KEYS))
def test_the_harness_accepts_a_value_exactly_if_the_broker_does(key: str) -> None:
    """Single values: types and ranges. Only the broker itself knows which switches exist."""
    parse = config._KEYS[key][1]
    for value in TRIED:
        try:
            parse(value)
            accepted = key != "floodmark.switches" or "\n" not in value
        except ValueError:
            accepted = False
        assert (why_not(key, value) is None) == accepted, (key, value, why_not(key, value))


@pytest.mark.parametrize(("key", "value", "message"), [
    ("min.insync.replica", "2", "min.insync.replica: no broker knows this key; the closest valid key: "
                                "min.insync.replicas"),
    ("replica.lag.max.ms", "2", "the closest valid key: replica.lag.time.max.ms"),
    ("flush.message", "1", "the closest valid key: flush.messages"),
    ("foo", "bar", "valid keys: auto.create.topics.enable, "),
    ("cleanup.policy", "compact", "no broker knows this key"),  # a topic's
    ("linger.ms", "5", "no broker knows this key"),  # a client's
    ("acks", "1", "acks is a setting of clients, not of brokers: use --acks"),
    ("node.id", "7", "node.id=... cannot be set"),
    ("min.insync.replicas", "two", "min.insync.replicas takes a positive integer, not 'two'"),
    ("min.insync.replicas", "0", "min.insync.replicas takes a positive integer, not 0"),
    ("replica.fetch.wait.max.ms", "-1", "takes a whole number, 0 or more, not -1"),
    ("message.max.bytes", "2147483648", "takes at most 2147483647, not 2147483648"),
    ("unclean.leader.election.enable", "1", "takes true or false, not '1'"),
])
def test_a_bad_key_or_value_is_refused_with_the_valid_ones(key: str, value: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        checked({key: value})
    assert message in str(raised.value)
    assert str(raised.value).startswith("-c ")


def test_a_topic_key_is_passed_under_the_brokers_name() -> None:
    assert checked({"flush.messages": "1", "min.insync.replicas": "2"}) == {
        "log.flush.interval.messages": "1", "min.insync.replicas": "2"}


def test_the_broker_reports_values_that_contradict_each_other() -> None:
    """As at its start; a near miss is accepted."""
    wait = "replica.fetch.wait.max.ms=500"
    assert check_config.find_problem([wait, "replica.lag.time.max.ms=499"]) == (
        "replica.fetch.wait.max.ms (500) may not be above replica.lag.time.max.ms (499)")
    assert check_config.find_problem([wait, "replica.lag.time.max.ms=500"]) is None
    assert "no bug 'no-such'" in str(check_config.find_problem(["floodmark.bugs=no-such"]))
    assert "no switch 'no-such'" in str(check_config.find_problem(["floodmark.switches=no-such"]))
    assert check_config.find_problem(["no.such.key=1"]) == "unknown key no.such.key"

"""The keys that may be set: the harness's table, the broker's own, and what its program says about them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from golden_text import refused_as_written

from floodmark.broker import check_config
from floodmark.broker.check_config import find_problem
from floodmark.broker.server import config
from floodmark.harness import catalog
from floodmark.harness.broker_config import (
    INT_MAX,
    KEYS,
    LONG_MAX,
    SET_BY_CLUSTER,
    TOPIC_KEYS,
    checked,
    why_not,
)
from floodmark.harness.commands import broker_questions
from floodmark.harness.commands.broker_questions import refuse_config, refuse_configs, scenario_words
from floodmark.harness.commands.run import own_commit
from floodmark.harness.commands.scenario import Part, parts_that_fit
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Cluster
from floodmark.harness.spec import RULES
from floodmark.nemesis.scenario import shipped

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


def test_a_bad_key_or_value_is_refused_with_the_valid_ones(request: pytest.FixtureRequest) -> None:
    refused_as_written("-c", checked, UsageError, request)


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


# -- asked of the broker's own program: all rows' settings in one process --------------------------------


WAIT = "replica.fetch.wait.max.ms"
LAG = "replica.lag.time.max.ms"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The argv of each process that is run from here on; nothing has been asked yet."""
    calls: list[list[str]] = []
    real = subprocess.run

    def run(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        calls.append(list(argv))
        return real(argv, **options)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(broker_questions, "_refusals", {})
    return calls


def cluster(folder: Path, place: str = "local", **config: str) -> Cluster:
    return catalog.cluster(place, folder, 3, rules=RULES[-1], bugs=(), links="direct", config={
        key.replace("_", "."): value for key, value in config.items()})


def test_many_clusters_are_asked_about_in_one_process(tmp_path: Path, asked: list[list[str]]) -> None:
    """Each has its own answer, whatever the order; and no further process is started for them."""
    fit = [cluster(tmp_path / f"fit-{lag}", replica_lag_time_max_ms=lag) for lag in ("600", "700")]
    slow = cluster(tmp_path / "slow", replica_fetch_wait_max_ms="500", replica_lag_time_max_ms="499")
    slower = cluster(tmp_path / "slower", replica_fetch_wait_max_ms="600", replica_lag_time_max_ms="499")
    with pytest.raises(UsageError, match=r"^the slow one: no broker would start .*500"):
        refuse_configs([("the first", fit[0]), ("the slow one", slow), ("", fit[1]), ("the slower", slower)])
    assert len(asked) == 1
    for one in fit:
        refuse_config(one)
    for one, wait in ((slow, "500"), (slower, "600")):
        with pytest.raises(UsageError) as refused:
            refuse_config(one)
        why = find_problem([f"{WAIT}={wait}", f"{LAG}=499"])
        assert why is not None
        assert wait in why
        assert str(refused.value) == f"no broker would start with these settings: {why}"
    refuse_configs([("", one) for one in fit])
    assert len(asked) == 1


def test_a_simulated_cluster_is_asked_about_in_this_process(tmp_path: Path, asked: list[list[str]]) -> None:
    refuse_config(cluster(tmp_path / "fit", "simulated"))
    slow = cluster(tmp_path / "slow", "simulated", replica_fetch_wait_max_ms="500",
                   replica_lag_time_max_ms="499")
    with pytest.raises(UsageError, match=r"^no broker would start with these settings: .*500"):
        refuse_config(slow)
    assert asked == []


def test_all_rows_are_asked_about_in_one_process(tmp_path: Path, asked: list[list[str]]) -> None:
    scenarios = shipped(scenario_words())
    every = [Part(scenario=scenario, row=row) for scenario in scenarios for row in scenario.rows]
    asked.clear()
    own_commit()
    asked.clear()
    fit = parts_that_fit(every, "local", tmp_path)
    assert len(fit) > 100
    assert [argv[3] for argv in asked] == [catalog.BROKER_CHECK]


def test_a_broker_that_does_not_answer_is_no_refusal(
        tmp_path: Path, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "BROKER_CHECK", "floodmark.broker.no_such_program")
    with pytest.raises(FloodmarkError, match="no_such_program") as error:
        refuse_config(cluster(tmp_path))
    assert "does not say whether it would start" in str(error.value)
    assert not isinstance(error.value, UsageError)
    assert len(asked) == 1

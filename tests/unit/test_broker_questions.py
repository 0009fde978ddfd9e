"""The broker's own program is asked about all rows' settings in one process, and git once in a process."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from floodmark.broker.check_config import find_problem
from floodmark.harness import catalog
from floodmark.harness.commands import broker_questions
from floodmark.harness.commands.broker_questions import refuse_config, refuse_configs, scenario_words
from floodmark.harness.commands.run import own_commit
from floodmark.harness.commands.scenario import Part, parts_that_fit
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Cluster
from floodmark.harness.spec import RULES
from floodmark.nemesis.scenario import shipped

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

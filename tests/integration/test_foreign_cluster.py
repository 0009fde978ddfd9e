"""`run --bootstrap` on a system of others, of which only the wire is seen: its bugs, each beside what a
correct system may show too."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Answer, floodmark
from foreign_broker import ForeignCluster, Quirk, foreign_cluster

from floodmark.harness import runner

pytestmark = pytest.mark.spark
GIVEN_UP_S = 3.0  # more than twice the system's session and lag time
SHORT = ("--partitions", "2", "--concurrency", "4", "--rate", "200", "--duration", "2", "--seed", "1")


@pytest.fixture(autouse=True)
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not settle, or cannot be read, is given up soon."""
    settle = runner.settle
    monkeypatch.setattr(runner, "settle", lambda *given: settle(*given[:-1], GIVEN_UP_S))
    monkeypatch.setattr(runner, "read_all", partial(runner.read_all, stall_s=GIVEN_UP_S))


def run(cluster: ForeignCluster, folder: Path, *words: object) -> Answer:
    return floodmark("run", "--bootstrap", cluster.bootstrap, *SHORT, *words, "--out", folder / "run")


def about(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "run" / "run.json").read_text())
    return data


@pytest.mark.parametrize("quirk", [
    None, Quirk.PARTIAL_LAST_BATCH, Quirk.LSO_BELOW_HW, Quirk.QUIET_FETCH, Quirk.OLD_FETCH], ids=str)
def test_a_correct_foreign_system_is_valid(tmp_path: Path, quirk: Quirk | None) -> None:
    with foreign_cluster(*([quirk] if quirk else [])) as cluster:
        ran = run(cluster, tmp_path, "--strict")

        assert ran.code == 0, ran.err + ran.out
        assert about(tmp_path)["settled"] is True
        assert not cluster.topics


def restarted(cluster: ForeignCluster, folder: Path) -> Answer:
    """A run in which all brokers are killed once, and started when it mends."""
    schedule = folder / "s.json"
    schedule.write_text(json.dumps([{"f": "kill", "nodes": ["n1", "n2", "n3"],
                                     "moment": {"at": "time", "time": 1_500_000_000}}]))
    return run(cluster, folder, "--i-may-break-this", "--faults", cluster.faults_file(folder / "f.toml"),
               "--schedule", schedule, "--strict")


@pytest.mark.parametrize("quirk", [None, Quirk.NO_CONTROLLER_YET], ids=str)
def test_a_restart_of_all_its_brokers_is_valid(tmp_path: Path, quirk: Quirk | None) -> None:
    with foreign_cluster(*([quirk] if quirk else [])) as cluster:
        ran = restarted(cluster, tmp_path)

    assert ran.code == 0, ran.err + ran.out

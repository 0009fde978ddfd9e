"""`run --bootstrap` on a cluster that floodmark did not start, with faults by its owner's commands.

The cluster is a `cluster up` in a process of its own, known only by its address.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster_up import BEGIN, Up, cluster_up
from command_line import floodmark
from confluent_kafka.admin import AdminClient, NewTopic
from real_kafka import quiet
from run_processes import wait_until

from floodmark.harness import runner

pytestmark = pytest.mark.cluster
GIVEN_UP_S = 3.0  # for a cluster that has gone away
BEGUN_S = 60.0
SHORT = ("--partitions", "2", "--concurrency", "4", "--rate", "200")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with cluster_up(tmp_path_factory.mktemp("own")) as cluster:
        yield cluster


def topics(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "logger": quiet()})
    return set(admin.list_topics(timeout=60).topics)


def faults_file(up: Up, file: Path, **others: list[str]) -> Path:
    """The owner's commands: each calls his own cluster, from another process."""
    def asks(*words: str) -> list[str]:
        return [sys.executable, "-c", BEGIN, "cluster", *words, "--folder", str(up.folder)]

    commands = {
        **{act: asks(act, "{node}") for act in ("kill", "stop", "start", "pause", "resume")},
        "fetch_logs": ["cp", "-r", f"{up.folder}/nodes/{{node}}/.", "{folder}"], **others}
    file.write_text("timeout_s = 60\n[commands]\n" + "".join(
        f"{act} = {json.dumps(argv)}\n" for act, argv in commands.items()))
    return file


def about(folder: Path) -> dict[str, object]:
    data: dict[str, object] = json.loads((folder / "run.json").read_text())
    return data


def test_a_healthy_cluster_is_valid_and_left_as_it_was(up: Up, tmp_path: Path) -> None:
    """The owner's topic is still there, and none of ours."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "logger": quiet()})
    for future in admin.create_topics([NewTopic("theirs", num_partitions=1, replication_factor=3)]).values():
        future.result(30)
    folder = tmp_path / "run"
    ran = floodmark("run", "--bootstrap", up.bootstrap, *SHORT, "--duration", "2", "--strict",
                    "--out", folder)

    assert ran.code == 0, ran.err + ran.out
    assert topics(up.bootstrap) == {"theirs"}
    run = about(folder)
    assert run["system"] == {"name": "own", "bootstrap": up.bootstrap, "brokers": dict(zip(
        ("n1", "n2", "n3"), up.bootstrap.split(","), strict=True))}
    assert run["observes"] == {"dumps": False, "replicas": False}
    assert run["settled"] is True


def test_faults_by_commands_and_logs_by_a_command(up: Up, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ran = floodmark("run", "--bootstrap", up.bootstrap, *SHORT, "--duration", "6", "--interval", "1",
                    "--nemesis", "crash,pause", "--i-may-break-this",
                    "--faults", faults_file(up, tmp_path / "f.toml"), "--seed", "3", "--out", folder)

    assert ran.code == 0, ran.err + ran.out
    struck = {json.loads(line)["f"] for line in (folder / "history.jsonl").read_text().splitlines()
              if '"fault"' in line}
    assert struck >= {"kill", "start", "pause", "resume"}
    rows = [(folder / "logs" / f"{node}.jsonl").read_text().count("\n") for node in ("n1", "n2", "n3")]
    assert min(rows) > 100
    assert not any(name.startswith("floodmark-") for name in topics(up.bootstrap))


def test_a_command_that_fails_is_the_harness_trouble_in_its_own_words(up: Up, tmp_path: Path) -> None:
    file = faults_file(up, tmp_path / "f.toml", kill=["sh", "-c", "echo no key for {node} >&2; exit 7"])
    schedule = tmp_path / "s.json"
    schedule.write_text(json.dumps([{"f": "kill", "nodes": ["n2"]}]))
    ran = floodmark("run", "--bootstrap", up.bootstrap, *SHORT, "--duration", "2", "--i-may-break-this",
                    "--faults", file, "--schedule", schedule, "--out", tmp_path / "run")

    assert ran.code == 4
    assert "entry 0 of the schedule (kill n2)" in ran.err
    assert "ended with 7; its output: no key for n2" in ran.err
    assert not any(name.startswith("floodmark-") for name in topics(up.bootstrap))


@pytest.mark.parametrize(("words", "why"), [
    (("--nemesis", "crash"), "--i-may-break-this"),
    (("--nemesis", "crash", "--i-may-break-this"), "no command kill for n1, n2, n3"),
    (("--nemesis", "power", "--i-may-break-this"), "have synced"),
    (("--nodes", "5"), "--nodes cannot be chosen"),
    (("--rules", "kip-101", "--links", "proxied"), "--rules, --links cannot be chosen"),
    (("--replication-factor", "4"), "there are 3"),
    (("-c", "retention.ms=1000"), "-c retention.ms: the topics of a run must keep all acked records"),
])
def test_what_is_refused(up: Up, tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    ran = floodmark("run", "--bootstrap", up.bootstrap, *words, "--out", tmp_path / "run")

    assert ran.code == 2, ran.err
    assert why in ran.err
    assert not (tmp_path / "run").exists()


def test_a_schedule_with_faults_is_refused_too(up: Up, tmp_path: Path) -> None:
    schedule = tmp_path / "s.json"
    schedule.write_text(json.dumps([{"f": "kill", "nodes": ["n2"]}]))
    ran = floodmark("run", "--bootstrap", up.bootstrap, "--schedule", schedule, "--faults",
                    faults_file(up, tmp_path / "f.toml"), "--out", tmp_path / "run")

    assert ran.code == 2
    assert "need --i-may-break-this" in ran.err


def test_an_interrupted_run_removes_its_topics(up: Up, tmp_path: Path) -> None:
    history = tmp_path / "run" / "history.jsonl"

    def interrupt() -> None:
        wait_until("the history to have begun", lambda: history.exists() and bool(history.stat().st_size),
                   BEGUN_S)
        try:
            assert any(name.startswith("floodmark-") for name in topics(up.bootstrap))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    # A Spark session of an earlier test has taken over the signal; in a run there is none yet.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ThreadPoolExecutor(1) as pool:
            interrupting = pool.submit(interrupt)
            ran = floodmark("run", "--bootstrap", up.bootstrap, *SHORT, "--duration", "60",
                            "--out", tmp_path / "run")
            interrupting.result()
    finally:
        signal.signal(signal.SIGINT, before)

    assert ran.code == 4, ran.err + ran.out  # as for any run that ended early; what was recorded is judged
    assert not any(name.startswith("floodmark-") for name in topics(up.bootstrap))


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    ran = floodmark("run", "--bootstrap", "127.0.0.1:1", "--out", tmp_path / "run")

    assert ran.code == 4
    assert "no cluster was found: Metadata to 127.0.0.1:1: nothing answers there" in ran.err
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_goes_away_in_mid_run_is_reported_and_never_invalid(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    with cluster_up(tmp_path / "other") as other:
        folder = tmp_path / "run"

        def end_all() -> None:
            subprocess.run([sys.executable, "-c", BEGIN, "cluster", "kill", "n1", "n2", "n3", "--folder",
                            str(other.folder)], check=True, capture_output=True)

        later = threading.Timer(1.0, end_all)
        settle = runner.settle

        def settle_when_all_have_ended(*args: Any) -> Any:
            later.join()
            return settle(*args[:-1], GIVEN_UP_S)

        monkeypatch.setattr(runner, "settle", settle_when_all_have_ended)
        monkeypatch.setattr(runner, "read_all", partial(runner.read_all, stall_s=GIVEN_UP_S))
        later.start()
        ran = floodmark("run", "--bootstrap", other.bootstrap, *SHORT, "--duration", "3", "--out", folder)

    assert ran.code == 4, ran.err + ran.out
    assert "the cluster no longer answers at 127.0.0.1:" in ran.err
    assert "INVALID" not in ran.out
    assert "could not be removed" in str(about(folder)["ended"])

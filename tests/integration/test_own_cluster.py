"""`run --bootstrap` on a real cluster of somebody else's, with faults and logs by its owner's commands.

The cluster is a `cluster up` in a process of its own, known only by its address. What is refused, and what
goes wrong: test_foreign.py.
"""

import json
import sys
from pathlib import Path

import pytest
from cluster_up import BEGIN, Up, cluster_up
from command_line import floodmark
from confluent_kafka.admin import AdminClient, NewTopic
from real_kafka import quiet

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


def faults_file(up: Up, file: Path) -> Path:
    """The owner's commands: each calls his own cluster, from another process."""
    def asks(*words: str) -> list[str]:
        return [sys.executable, "-c", BEGIN, "cluster", *words, "--folder", str(up.folder)]

    commands = {
        **{act: asks(act, "{node}") for act in ("kill", "stop", "start", "pause", "resume")},
        "fetch_logs": ["cp", "-r", f"{up.folder}/nodes/{{node}}/.", "{folder}"]}
    file.write_text("timeout_s = 60\n[commands]\n" + "".join(
        f"{act} = {json.dumps(argv)}\n" for act, argv in commands.items()))
    return file


def test_a_healthy_cluster_is_valid_and_left_as_it_was(tmp_path: Path) -> None:
    """Under faults; its logs are fetched; the owner's topic is still there, and none of ours."""
    folder = tmp_path / "run"
    with cluster_up(tmp_path) as up:
        admin = AdminClient({"bootstrap.servers": up.bootstrap, "logger": quiet()})
        for future in admin.create_topics([NewTopic("theirs", 1, 3)]).values():
            future.result(30)
        ran = floodmark("run", "--bootstrap", up.bootstrap, "--partitions", 2, "--concurrency", 4,
                        "--rate", 200, "--duration", 6, "--interval", 1, "--nemesis", "crash,pause",
                        "--i-may-break-this", "--faults", faults_file(up, tmp_path / "f.toml"), "--seed", 3,
                        "--out", folder)
        topics = set(admin.list_topics(timeout=60).topics)

    assert ran.code == 0, ran.err + ran.out
    assert topics == {"theirs"}
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert {line["f"] for line in lines if "fault" in line} >= {"kill", "start", "pause", "resume"}
    rows = [(folder / "logs" / f"{node}.jsonl").read_text().count("\n") for node in ("n1", "n2", "n3")]
    assert min(rows) > 0
    about = json.loads((folder / "run.json").read_text())
    assert about["system"] == {"name": "own", "bootstrap": up.bootstrap, "brokers": dict(zip(
        ("n1", "n2", "n3"), up.bootstrap.split(","), strict=True))}
    assert about["observes"] == {"dumps": True, "replicas": False, "trace": []}
    assert about["settled"] is True

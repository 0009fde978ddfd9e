"""Memory clusters recorded as run folders: their traces keep the laws, and the laws find a wrong one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trace_laws
from memory_cluster import MemoryCluster
from memory_trace import attach, write_folder
from random_driver import RandomDriver, random_cluster

from floodmark.broker.protocol.rules import GENERATIONS
from floodmark.checkers.judge.job import SparkJudge

Lines = list[dict[str, Any]]


def failover() -> MemoryCluster:
    """Two leaders, a former one that restarts with a tail to truncate, an ISR that shrinks and grows."""
    cluster = MemoryCluster()
    attach(cluster)
    cluster.send(1, "a", "b")
    cluster.stabilize()
    cluster.stabilize()
    cluster.hold("fetch-answer", sender=1)
    cluster.send(1, "c")
    cluster.crash(1)
    for message in cluster.waiting_messages("fetch-answer"):
        cluster.drop(message)
    cluster.release()
    cluster.expire(1)
    cluster.stabilize()
    cluster.send(2, "d", "e")
    cluster.stabilize()
    cluster.start(1)
    for _ in range(4):
        cluster.stabilize()
        cluster.pass_time(600)
    cluster.read(2)
    for node in cluster.nodes:
        cluster.checkpoint(node)
    return cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(failover(), tmp_path_factory.mktemp("recorded") / "failover")


def test_a_healthy_folder_keeps_the_laws_and_is_complete(folder: Path) -> None:
    assert trace_laws.breaches(folder) == []
    events = {line["event"] for line in trace_laws.rows(folder / "trace.jsonl")}
    assert events >= {"append", "ack", "fetch", "hw", "truncate", "start", "isr", "isr_proposed", "elect"}
    [cut] = [line for line in trace_laws.rows(folder / "trace.jsonl") if line["event"] == "truncate"]
    assert (cut["cause"], cut["answer"]) == ("diverged", {"epoch": 0, "end": cut["to"]})
    about = json.loads((folder / "run.json").read_bytes())
    assert (about["settled"], about["leaders"]["0"]["leader"]) == (True, "n2")


@pytest.mark.spark
def test_the_judge_finds_a_healthy_folder_valid(folder: Path) -> None:
    (verdict,) = SparkJudge().judge([folder])
    assert (verdict.valid, verdict.findings, verdict.unknown) == (True, (), ())


@pytest.mark.parametrize("rules", GENERATIONS)
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_the_trace_of_a_random_schedule_keeps_the_laws(rules: str, seed: int, tmp_path: Path) -> None:
    """With faults and damage: the trace adds up to the logs; tracing changes nothing."""
    cluster, untraced = random_cluster(seed, rules), random_cluster(seed, rules)
    attach(cluster)
    found = [RandomDriver(one, seed).run(500) for one in (cluster, untraced)]
    assert found[0] == found[1]
    assert cluster.journal == untraced.journal
    assert trace_laws.breaches(write_folder(cluster, tmp_path / "run")) == []


def test_a_restarted_controller_traces_what_it_had_not_traced(tmp_path: Path) -> None:
    """Its journal is one record ahead of its trace, as if it had been killed between the two."""
    cluster = MemoryCluster()
    recorder = attach(cluster)
    cluster.expire(3)
    traced = recorder.raw[100]
    removed = [traced.pop() for _ in range(2)]
    assert [line["event"] for line in removed] == ["isr", "fence"]
    cluster.restart_controller()
    assert [line["event"] for line in traced[-2:]] == ["fence", "isr"]
    cluster.send_metadata(cluster.nodes)
    cluster.stabilize()
    assert trace_laws.breaches(write_folder(cluster, tmp_path / "run")) == []


# -- the laws find wrong traces ---------------------------------------------------------------------------


def first(lines: Lines, event: str) -> dict[str, Any]:
    return next(line for line in lines if line["event"] == event)


def dropped(event: str) -> Callable[[Lines], None]:
    """The line is missing, and the seqs of its node are renumbered, so that only the other lines show it."""

    def damage(lines: Lines) -> None:
        gone = first(lines, event)
        lines.remove(gone)
        for line in lines:
            if line["node"] == gone["node"] and line["seq"] > gone["seq"]:
                line["seq"] -= 1

    return damage


def changed(of: str, **fields: Any) -> Callable[[Lines], None]:
    return lambda lines: first(lines, of).update(fields)


def late(lines: Lines) -> None:
    """The ack is in its place but its time is after the client received it."""
    at = next(index for index, line in enumerate(lines) if line["event"] == "ack")
    for line in lines[at:]:
        line["time"] += 1_000_000


def without_seq(lines: Lines) -> None:
    lines.remove(first(lines, "fetch"))


DAMAGES: dict[str, Callable[[Lines], None]] = {
    "append lost": dropped("append"),
    "truncation lost": dropped("truncate"),
    "hw lost": dropped("hw"),
    "ack lost": dropped("ack"),
    "isr lost": lambda lines: lines.remove(next(
        line for line in lines if line["event"] == "isr" and line["node"] == "controller")),
    "seq gap": without_seq,
    "wrong epochs": changed("append", epochs=[[7, 0]]),
    "wrong leo": changed("append", leo=9),
    "hw recorded early": changed("append", hw=1),
    "no acks": lambda lines: first(lines, "ack").pop("acks"),
    "unknown event": changed("fetch", event="fetched"),
    "ack late": late,
    "fetch from a wrong offset": changed("fetch", offset=3),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_laws_find_a_wrong_trace(damage: str, folder: Path, tmp_path: Path) -> None:
    for path in ("run.json", "history.jsonl", "replicas.jsonl", "logs"):
        (tmp_path / path).symlink_to(folder / path)
    lines = trace_laws.rows(folder / "trace.jsonl")
    DAMAGES[damage](lines)
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert trace_laws.breaches(tmp_path)

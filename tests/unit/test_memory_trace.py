"""Memory clusters recorded as run folders: their traces are lawful, and the laws see where one is not."""

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
    """Two leaders, an old one that comes back with a tail to cut, an ISR that shrinks and grows."""
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


def test_a_healthy_folder_is_lawful_and_whole(folder: Path) -> None:
    assert trace_laws.breaches(folder) == []
    events = {line["event"] for line in trace_laws.rows(folder / "trace.jsonl")}
    assert events >= {"append", "ack", "fetch", "hw", "truncate", "start", "isr", "isr_proposed", "elect"}
    about = json.loads((folder / "run.json").read_bytes())
    assert (about["settled"], about["leaders"]["0"]["leader"]) == (True, "n2")


@pytest.mark.spark
def test_the_judge_says_of_a_healthy_folder_that_it_is_valid(folder: Path) -> None:
    (verdict,) = SparkJudge().judge([folder])
    assert (verdict.valid, verdict.findings, verdict.unknown) == (True, (), ())


@pytest.mark.parametrize("rules", GENERATIONS)
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_whatever_happens_is_told_lawfully(rules: str, seed: int, tmp_path: Path) -> None:
    """A random schedule, damage and all: the trace adds up to the logs; being told changes nothing."""
    cluster, alike = random_cluster(seed, rules), random_cluster(seed, rules)
    attach(cluster)
    found = [RandomDriver(one, seed).run(500) for one in (cluster, alike)]
    assert found[0] == found[1]
    assert cluster.journal == alike.journal
    assert trace_laws.breaches(write_folder(cluster, tmp_path / "run")) == []


def test_a_controller_started_again_tells_what_it_had_not_told(tmp_path: Path) -> None:
    """Its journal is ahead of its trace by one record: as if it had been killed between the two."""
    cluster = MemoryCluster()
    recorder = attach(cluster)
    cluster.expire(3)
    told = recorder.raw[100]
    untold = [told.pop() for _ in range(2)]
    assert [line["event"] for line in untold] == ["isr", "fence"]
    cluster.restart_controller()
    assert [line["event"] for line in told[-2:]] == ["fence", "isr"]
    cluster.send_metadata(cluster.nodes)
    cluster.stabilize()
    assert trace_laws.breaches(write_folder(cluster, tmp_path / "run")) == []


# -- the laws see what is wrong ---------------------------------------------------------------------------


def first(lines: Lines, event: str) -> dict[str, Any]:
    return next(line for line in lines if line["event"] == event)


def dropped(event: str) -> Callable[[Lines], None]:
    """The line is missing, and its node's seq closed up so that only the story tells."""

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
    """The ack stands where it belongs and says that it was written after its client had it."""
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
    "hw told early": changed("append", hw=1),
    "no acks": lambda lines: first(lines, "ack").pop("acks"),
    "unknown event": changed("fetch", event="fetched"),
    "ack late": late,
    "unasked fetch": changed("fetch", offset=3),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_laws_see_a_trace_that_is_wrong(damage: str, folder: Path, tmp_path: Path) -> None:
    for path in ("run.json", "history.jsonl", "replicas.jsonl", "logs"):
        (tmp_path / path).symlink_to(folder / path)
    lines = trace_laws.rows(folder / "trace.jsonl")
    DAMAGES[damage](lines)
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert trace_laws.breaches(tmp_path)

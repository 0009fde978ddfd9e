"""The raw trace files: written by broker.testing.trace, read, merged and followed by harness.trace."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from floodmark.broker.process_log import EXIT_BROKEN
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.trace import Trace, latest_metadata_version
from floodmark.harness.trace import Feed, Raw, merge

NAMES = {1: "n1", 2: "n2", 3: "n3", 100: "controller"}
APPEND = {"event": "append", "epoch": 0, "leo": 1, "hw": 0, "role": "leader", "offset": 0, "count": 1,
          "epochs": ((0, 0),)}  # fmt: skip


class Clock:
    """Nanoseconds that rise by one at each call, unless set otherwise."""

    def __init__(self, now_ns: int = 1_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        self.now_ns += 1
        return self.now_ns


def raw(folder: Path, *nodes: int) -> Raw:
    """The files of these nodes; the run has partition 7, which is topic log's 0."""
    return Raw(files={NAMES[node]: folder / f"{node}.trace" for node in nodes}, names=NAMES,
               keys={("log", 0): 7})  # fmt: skip


def writer(folder: Path, node: int = 1, clock: Clock | None = None) -> Trace:
    return Trace(folder / f"{node}.trace", node, clock_ns=clock or Clock())


def merged(of: Raw, origin_ns: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
    problems: list[str] = []
    lines = [json.loads(line) for piece in merge(of, origin_ns, problems) for line in piece.splitlines()]
    return lines, problems


def test_a_merged_line_has_the_names_of_the_run(tmp_path: Path) -> None:
    """Names for ids, the history's key for topic and partition, the run's clock for the monotonic one."""
    ack = {"event": "ack", "epoch": 2, "leo": 5, "hw": 5, "offset": 4, "acks": "all", "isr": (1, 3)}
    follower = {"event": "become_follower", "epoch": 3, "leo": 5, "hw": 5, "leader": -1}
    writer(tmp_path).write_replica_lines("log", 0, [ack, follower])
    at = {"time": -999, "node": "n1", "partition": 7}
    assert merged(raw(tmp_path, 1), origin_ns=2_000) == (
        [{**ack, **at, "seq": 0, "isr": ["n1", "n3"]}, {**follower, **at, "seq": 1, "leader": None}], [])


def test_seq_continues_after_restarts_and_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    """Also of lines that are longer than what is read at a time from the end; without a whole line it begins
    at zero."""
    for node, whole in ((2, b""), (3, b'{"time":1,"no')):
        (tmp_path / f"{node}.trace").write_bytes(whole)
        assert writer(tmp_path, node).seq == 0
    for seq in (0, 1):
        long = writer(tmp_path, 2)
        assert long.seq == seq
        long.write_process_lines([{"event": "crash", "why": "x" * 200_000}])
    one = writer(tmp_path)
    one.write_replica_lines("log", 0, [APPEND, APPEND])
    path = tmp_path / "1.trace"
    whole = path.read_bytes()
    for cut in range(1, len(whole) // 2, 3):  # any part of the second line
        path.write_bytes(whole[:-cut])
        again = writer(tmp_path)
        assert again.seq == 1
        again.write_process_lines([{"event": "start", "clean": False}])
        lines, problems = merged(raw(tmp_path, 1))
        assert [line["seq"] for line in lines] == [0, 1]
        assert not problems


def test_a_merge_is_by_time_and_never_reorders_a_node(tmp_path: Path) -> None:
    """Even where a node's own times should stand still or fall."""
    dice = random.Random(3)
    for node in (1, 2, 3):
        clock = Clock()
        one = writer(tmp_path, node, clock)
        for number in range(200):
            clock.now_ns += dice.choice((-1, 0, 1, 5, 40))
            one.write_replica_lines("log", 0, [{**APPEND, "offset": number}] * dice.choice((1, 1, 2)))
    lines, problems = merged(raw(tmp_path, 1, 2, 3))
    assert not problems
    for node in ("n1", "n2", "n3"):
        own = [line for line in lines if line["node"] == node]
        assert [line["seq"] for line in own] == list(range(len(own)))
        assert [line["offset"] for line in own] == sorted(line["offset"] for line in own)


def test_lines_of_other_partitions_leave_no_gap(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write_process_lines([{"event": "start", "clean": False}])
    for topic, partition in (("other", 0), ("log", 0), ("log", 1), ("log", 0)):
        one.write_replica_lines(topic, partition, [APPEND])
    lines, problems = merged(raw(tmp_path, 1))
    assert not problems
    assert [(line["seq"], line.get("partition")) for line in lines] == [(0, None), (1, 7), (2, 7)]


@pytest.mark.parametrize(("bad", "problem"), [
    (b"", "lacks lines between seq 1 and 2"), (b"{nonsense\n", "1.trace:2: not a line of a trace"),
    (b"7\n", "1.trace:2: not a line of a trace"), (b'{"time":1}\n', "1.trace:2: not a line of a trace")])
def test_a_missing_or_malformed_line_is_reported(bad: bytes, problem: str, tmp_path: Path) -> None:
    writer(tmp_path).write_replica_lines("log", 0, [APPEND, APPEND, APPEND])
    path = tmp_path / "1.trace"
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(rows[0] + bad + rows[2])
    lines, problems = merged(raw(tmp_path, 1))
    assert [line["seq"] for line in lines] == [0, 2]
    assert problem in " ".join(problems)
    assert len(Feed(raw(tmp_path, 1), 0).read_new_lines()) == 2  # during the run it is passed over


def test_a_node_that_was_never_started_is_reported(tmp_path: Path) -> None:
    writer(tmp_path, 1).write_replica_lines("log", 0, [APPEND])
    (tmp_path / "3.trace").write_bytes(b'{"time":')
    lines, problems = merged(raw(tmp_path, 1, 2, 3))
    assert len(lines) == 1
    assert sorted(problem.split(":")[0] for problem in problems) == [
        "the trace of n2 has no line", "the trace of n3 has no line"]  # fmt: skip


def test_a_feed_gives_each_line_once_and_when_it_is_whole(tmp_path: Path) -> None:
    """It follows files that are not there yet, and through restarts; of the requested events only."""
    feed, starts = Feed(raw(tmp_path, 1, 2), 0), Feed(raw(tmp_path, 1, 2), 0, {"start", "ack"})
    assert feed.read_new_lines() == []
    clock = Clock()
    one = writer(tmp_path, 1, clock)
    one.write_replica_lines("log", 0, [APPEND])
    two = writer(tmp_path, 2, clock)
    two.write_replica_lines("log", 0, [APPEND])
    one.write_replica_lines("other", 0, [APPEND])
    one.write_replica_lines("log", 0, [{**APPEND, "offset": 1}])
    found = [(line["node"], line["offset"]) for line in feed.read_new_lines()]
    assert found == [("n1", 0), ("n2", 0), ("n1", 1)]
    assert feed.read_new_lines() == []
    with (tmp_path / "1.trace").open("ab") as file:
        file.write(b'{"time":9,"node":1,"se')
    assert feed.read_new_lines() == []
    again = writer(tmp_path, 1, clock)
    again.write_process_lines([{"event": "start", "clean": False}])
    assert [line["event"] for line in feed.read_new_lines()] == ["start"]
    assert [line["event"] for line in starts.read_new_lines()] == ["start"]
    feed.close()
    starts.close()


def test_a_process_that_halts_traces_the_reason_last_and_ends_where_it_cannot(tmp_path: Path) -> None:
    """A broken invariant, a disk that refuses. A run whose trace is incomplete must not go on: the disk is
    full."""
    head = "from floodmark.broker import process_log; from floodmark.broker.testing import trace\n"
    head += "from pathlib import Path; import sys; traced = trace.Trace(Path(sys.argv[1]), 1)\n"
    for path, code, said in (
        (tmp_path / "1.trace", "process_log.halt_process('disk-refused', OSError('no'))", b"disk-refused"),
        (Path("/dev/full"), "traced.write_process_lines([{'event': 'start'}])", b"trace-not-written"),
    ):
        ended = subprocess.run(
            [sys.executable, "-c", head + code, path], capture_output=True, timeout=60, check=False)
        assert ended.returncode == EXIT_BROKEN
        assert said in ended.stdout
    ((line,), _) = merged(raw(tmp_path, 1))
    assert (line["event"], line["why"]) == ("crash", "disk-refused")


def test_the_latest_metadata_version_of_a_trace_is_its_highest(tmp_path: Path) -> None:
    path = tmp_path / "100.trace"
    assert latest_metadata_version(path) == 0
    one = writer(tmp_path, 100)
    one.write_process_lines([
        {"event": "register", "version": 3, "broker": 1, "broker_epoch": 0, "clean": False}])
    one.write_failpoint(FailpointSite(name="C.elected", topic="log", partition=0), "report")
    assert latest_metadata_version(path) == 3
    lines, _ = merged(raw(tmp_path, 100))
    assert "version" not in lines[0]

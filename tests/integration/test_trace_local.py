"""The trace of real processes lacks nothing that a client or a log shows, whichever process is killed
when."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trace_laws

from floodmark.harness import catalog, runner, trace
from floodmark.harness.catalog import SIMULATED
from floodmark.harness.client.client import wire_clients
from floodmark.harness.protocols import Traces, WorkloadSettings, ability
from floodmark.harness.schedule.entry import Entry, Schedule
from floodmark.harness.schedule.moments import Ack, After
from floodmark.harness.spec import RunPlan, RunSpec


def made(folder: Path, schedule: Schedule = (), *, place: str = "local", traced: bool = True,
         **changes: Any) -> RunPlan:
    """Three brokers, two partitions, as much load as they can take."""
    cluster = catalog.cluster(
        place, folder, 3, rules="kip-320", bugs=(), config={}, links="direct", trace=traced
    )
    partitions = runner.spread(cluster.nodes, "log", 2, 3)
    settings = WorkloadSettings(
        run_id="00c0ffee00c0ffee", seed=5, partitions=partitions, addresses=cluster.addresses, acks="all",
        concurrency=8, first_value=0, clients=wire_clients(cluster.addresses),
    )  # fmt: skip
    plan: dict[str, Any] = {
        "spec": RunSpec(**{"out": folder, "seed": 5, "duration": 0.5, "concurrency": 8, "links": "direct",
                           **changes}),
        "run_id": settings.run_id, "version": "0", "commit": "0", "cluster": cluster,
        "partitions": partitions, "schedule": schedule,
        "schedule_runner": catalog.schedule_runner(cluster, partitions),
        "workload": catalog.workload("log", settings),
    }  # fmt: skip
    return RunPlan(**plan)


def killed(*, node: str, at_ack: int) -> Schedule:
    """Kills the node under load, and starts it again."""
    return (
        Entry(f="kill", nodes=(node,), moment=Ack(partition=0, count=at_ack)),
        Entry(f="start", nodes=("down",), moment=After(after_ns=100_000_000)),
    )


class Follower:
    """Reads the raw files while a run goes on."""

    def __init__(self, plan: RunPlan) -> None:
        traces = ability(plan.cluster, Traces)
        assert traces is not None
        self._traces = traces
        self._feed: trace.Feed | None = None
        self.lines: list[Mapping[str, Any]] = []
        self.looks = 0

    def look(self, progress: runner.Progress | None = None) -> None:
        if self._feed is None:
            if progress is None or progress.phase == "start":
                return
            raw = self._traces.traces()
            assert raw is not None
            self._feed = trace.Feed(raw, 0)
        new = self._feed.read_new_lines()
        self.lines += new
        self.looks += bool(new)

    def close(self) -> None:
        assert self._feed is not None
        self._feed.close()


def per_node(lines: list[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The lines without times, which count from different moments."""
    nodes: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        nodes.setdefault(line["node"], []).append({key: line[key] for key in line if key != "time"})
    return nodes


@pytest.mark.cluster
def test_kills_under_load_lose_no_line_that_anybody_has_seen_the_effect_of(tmp_path: Path) -> None:
    """Leaders, a follower and the controller, by SIGKILL. Every ack that a client got, every record that it
    read and every entry of the final logs was in the trace before; a live reader of the files reads the same.
    """
    folder = tmp_path / "run"
    schedule = tuple(
        entry
        for at_ack, node in enumerate(("leader", "controller", "follower", "leader", "leader"), start=1)
        for entry in killed(node=node, at_ack=100 * at_ack)
    )
    plan = made(folder, schedule)
    follower = Follower(plan)
    result = asyncio.run(runner.carry_out(plan, follower.look))
    follower.look()
    follower.close()

    assert (result.ended, result.about["settled"], result.about["missed"]) == ("done", True, [])
    assert trace_laws.breaches(folder) == []
    lines = trace_laws.rows(folder / "trace.jsonl")
    starts = [line["node"] for line in lines if line["event"] == "start" and "partition" not in line]
    assert len(starts) == 3 + 4  # the controller's are not written: it recovers all it knew
    assert any(line["time"] < 0 for line in lines)  # the first elections
    assert follower.looks > 2
    assert per_node(follower.lines) == per_node(lines)


def test_a_run_without_a_trace_leaves_none(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = made(folder, place=SIMULATED, traced=False, rate=100.0)
    result = asyncio.run(runner.carry_out(plan, lambda progress: None))
    assert (result.ended, result.about["settled"]) == ("done", True)
    assert not (folder / "trace.jsonl").exists()
    assert not list((folder / "work").glob("*.trace"))


def test_a_trace_that_was_taken_away_is_reported(tmp_path: Path) -> None:
    """The run is still carried out, and is not called done."""
    folder = tmp_path / "run"

    def robbed(progress: runner.Progress) -> None:
        if progress.phase == "collect":
            (folder / "work" / "n2.trace").unlink(missing_ok=True)

    result = asyncio.run(runner.carry_out(made(folder, place=SIMULATED, rate=100.0), robbed))
    assert "the trace of n2 has no line" in result.ended
    assert sum(result.about["settle"]["no_leader"]) == 0
    nodes = {line["node"] for line in trace_laws.rows(folder / "trace.jsonl")}
    assert nodes == {"n1", "n3", "controller"}
    assert (folder / "work" / "n1.trace").exists()  # the existing files are kept

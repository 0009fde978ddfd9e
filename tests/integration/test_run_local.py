"""Complete runs on three brokers, and their folders' contents: history, logs, trace."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import here
import orjson
import pytest
import trace_laws

from floodmark.harness import catalog, runner
from floodmark.harness.client.client import wire_clients
from floodmark.harness.history import read
from floodmark.harness.op import Op, Type
from floodmark.harness.protocols import USUAL_LOAD, LoadShape, WorkloadSettings
from floodmark.harness.schedule.moments import Ack, After, Entry, Schedule
from floodmark.harness.spec import RunPlan, RunSpec

LOAD = ("concurrency", "rate", "duration")  # of a spec
RUN_ID, SIMULATED = "00c0ffee00c0ffee", catalog.SIMULATED


def made(folder: Path, *, place: str = "local", workload: str = "log", schedule: Schedule = (),
         load: LoadShape = USUAL_LOAD, topics: Mapping[str, Mapping[str, str]] | None = None,
         library: bool = True, trace: bool = True, **changes: Any) -> RunPlan:
    """A plan for three brokers and two partitions. library: whether workloads may use Kafka's."""
    cluster = catalog.cluster(place, folder, 3, rules="kip-320", bugs=(), config={}, links="direct",
                              topics=topics, trace=trace)
    partitions = runner.spread(cluster.nodes, "log", 2, 3)
    concurrency = changes.get("concurrency", 8)
    return RunPlan(**{
        "run_id": RUN_ID, "version": "0", "commit": "0", "cluster": cluster, "partitions": partitions,
        "schedule": schedule, "spec": RunSpec(**{
            "out": folder, "seed": 5, "duration": 6.0, "concurrency": concurrency, "links": "direct",
            "rate": 500.0 if place == "local" else 100.0,
            **{name: value for name, value in changes.items() if name in LOAD}}),
        "schedule_runner": catalog.schedule_runner(cluster, partitions),
        "workload": catalog.workload(workload, WorkloadSettings(
            run_id=RUN_ID, seed=5, partitions=partitions, acks="all",
            addresses=cluster.addresses if library else None, clients=wire_clients(cluster.addresses),
            concurrency=concurrency, first_value=runner.first_free_value(schedule), load=load)),
        **{name: value for name, value in changes.items() if name not in LOAD},
    })


def killed(node: str, *, at_ack: int, for_s: float = 0.5) -> Schedule:
    """Kills the node under load, and starts it again."""
    return (Entry(f="kill", nodes=(node,), moment=Ack(partition=0, count=at_ack)),
            Entry(f="start", nodes=("down",), moment=After(after_ns=int(for_s * 1e9))))


def carried_out(plan: RunPlan) -> tuple[runner.RunResult, list[runner.Progress]]:
    progress_seen: list[runner.Progress] = []
    return asyncio.run(runner.carry_out(plan, progress_seen.append)), progress_seen


def rows(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def ops_of_valid(folder: Path) -> list[Op]:
    """The ops of a run in which the judge finds nothing, and of which it can tell everything."""
    (verdict,) = here.judge([folder])
    assert (verdict.valid, verdict.findings, verdict.unknown) == (True, (), ())
    return list(read(folder / "history.jsonl"))


@pytest.mark.cluster
@pytest.mark.parametrize(("workload", "schedule"), [
    ("log", ()), ("idempotent", ()), ("idempotent", killed("leader", at_ack=20))])
def test_a_run_settles_and_reads_back_all_it_wrote(
        tmp_path: Path, workload: str, schedule: Schedule) -> None:
    """An application's idempotent producer (librdkafka's) survives the death of a leader."""
    folder = tmp_path / "run"
    result, progress_seen = carried_out(made(folder, workload=workload, schedule=schedule, duration=2.0))
    about = orjson.loads((folder / "run.json").read_bytes())
    assert about == result.about
    assert (about["ended"], about["settled"], about["settle"]["why"]) == ("done", True, None)
    assert (about["died"], about["missed"], about["residue"], about["id"]) == ([], [], None, RUN_ID)
    assert about["guarantees"]["min_insync_replicas"] == 2
    assert sorted(about["leaders"]) == ["0", "1"]
    acked = [op for op in ops_of_valid(folder) if op.type is Type.OK and op.f == "send"]
    assert len(acked) >= (20 if schedule else 1)
    phases = list(dict.fromkeys(progress.phase for progress in progress_seen))
    assert phases == ["start", "main", "mend", "settle", "read", "collect"]


def test_the_idempotent_producer_of_the_client_of_record_repeats_no_value(tmp_path: Path) -> None:
    """Beside a killed leader, with several batches in flight: what it sends again is in the logs once. A
    process is a producer of its own, and ends after as many sends as the load says."""
    folder = tmp_path / "run"
    load = LoadShape(batch_sizes=(5, 10), in_flight=5, producer_lasts=5)
    result, _ = carried_out(made(folder, place=SIMULATED, workload="idempotent", library=False, load=load,
                                 schedule=killed("leader", at_ack=20), duration=4.0))

    about = result.about
    assert (about["ended"], about["settled"], about["missed"]) == ("done", True, [])
    ops = ops_of_valid(folder)
    assert max(Counter(op.process for op in ops if op.type is Type.INVOKE and op.f == "send").values()) == 5
    assert not any(op.type is Type.FAIL for op in ops if op.f == "send"), "it retries, so it never knows"
    values = [row["value"] for row in rows(folder / "logs" / "n1.jsonl")]
    assert len(values) == len(set(values)) > 50


def test_a_topic_has_its_own_settings(tmp_path: Path) -> None:
    """The brokers' min.insync.replicas is 2, the topic's is 3: with one broker down nothing is acked."""
    topics = {"log": {"min.insync.replicas": "3", "unclean.leader.election.enable": "false"}}
    result, _ = carried_out(made(tmp_path / "run", place=SIMULATED, topics=topics, duration=1.0,
                                 schedule=killed("n3", at_ack=5, for_s=3.0)))
    about = result.about
    assert (about["ended"], about["settled"]) == ("done", True)
    assert about["guarantees"]["min_insync_replicas"] == 3
    assert about["guarantees"]["unclean_leader_election"] is False
    assert (about["config"]["n1"]["min.insync.replicas"], about["system"]["topics"]) == (2, topics)
    errors = {op.error for op in read(tmp_path / "run" / "history.jsonl") if op.f == "send"}
    assert errors & {"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}


# -- the trace ----------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_kills_under_load_lose_no_line_that_anybody_has_seen_the_effect_of(tmp_path: Path) -> None:
    """Leaders, a follower and the controller, by SIGKILL. Every ack that a client got, every record that it
    read and every entry of the final logs was in the trace before."""
    folder = tmp_path / "run"
    schedule = tuple(
        entry
        for at_ack, node in enumerate(("leader", "controller", "follower", "leader", "leader"), start=1)
        for entry in killed(node, at_ack=100 * at_ack, for_s=0.1))
    result, _ = carried_out(made(folder, schedule=schedule, duration=0.5, rate=None))

    assert (result.ended, result.about["settled"], result.about["missed"]) == ("done", True, [])
    ops_of_valid(folder)
    assert trace_laws.breaches(folder) == []
    lines = rows(folder / "trace.jsonl")
    starts = [line["node"] for line in lines if line["event"] == "start" and "partition" not in line]
    assert len(starts) == 3 + 4  # the controller's are not written: it recovers all it knew
    assert any(line["time"] < 0 for line in lines)  # the first elections


def test_a_run_without_a_trace_leaves_none(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    about = carried_out(made(folder, place=SIMULATED, trace=False, duration=0.5))[0].about
    assert (about["ended"], about["settled"]) == ("done", True)
    assert about["observes"] == {"trace": []}  # so the verdict names the checks that are not made
    assert not (folder / "trace.jsonl").exists()
    assert not list((folder / "work").glob("*.trace"))


def test_a_trace_that_was_taken_away_is_reported(tmp_path: Path) -> None:
    """The run is still carried out, and is not called done."""
    folder = tmp_path / "run"

    def robbed(progress: runner.Progress) -> None:
        if progress.phase == "collect":
            (folder / "work" / "n2.trace").unlink(missing_ok=True)

    result = asyncio.run(runner.carry_out(made(folder, place=SIMULATED, duration=0.5), robbed))
    assert "the trace of n2 has no line" in result.ended
    assert sum(result.about["settle"]["no_leader"]) == 0
    nodes = {line["node"] for line in rows(folder / "trace.jsonl")}
    assert nodes == {"n1", "n3", "controller"}
    assert (folder / "work" / "n1.trace").exists()  # the existing files are kept

"""Complete runs on three brokers, and their folders' contents, without a judge."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from floodmark.harness import catalog, runner
from floodmark.harness.client.client import wire_clients
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.history import read
from floodmark.harness.op import Op, Type
from floodmark.harness.protocols import USUAL_LOAD, LoadShape, WorkloadSettings
from floodmark.harness.schedule.entry import Entry, Schedule
from floodmark.harness.schedule.moments import Ack, After
from floodmark.harness.spec import RunPlan, RunSpec

LOAD = ("concurrency", "rate", "duration")  # of a spec
RUN_ID, SIMULATED = "00c0ffee00c0ffee", catalog.SIMULATED


def made(folder: Path, *, place: str = "local", workload: str = "log", schedule: Schedule = (),
         load: LoadShape = USUAL_LOAD, topics: Mapping[str, Mapping[str, str]] | None = None,
         library: bool = True, **changes: Any) -> RunPlan:
    """A plan for three brokers and two partitions. library: whether workloads may use Kafka's."""
    cluster = catalog.cluster(place, folder, 3, rules="kip-320", bugs=(), config={}, links="direct",
                              topics=topics)
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


def carried_out(plan: RunPlan) -> tuple[runner.RunResult, list[runner.Progress]]:
    progress_seen: list[runner.Progress] = []
    return asyncio.run(runner.carry_out(plan, progress_seen.append)), progress_seen


def rows(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def assert_a_whole_history(folder: Path, about: Mapping[str, Any]) -> list[Op]:
    """Index, time, one op at a time for each process, nothing after an info; as many lines as history_lines
    says."""
    ops = list(read(folder / "history.jsonl"))
    assert [op.index for op in ops] == list(range(about["history_lines"]))
    assert all(before.time <= after.time for before, after in pairwise(ops))
    last: dict[int, Op] = {}
    for op in (op for op in ops if op.process >= 0):
        before = last.get(op.process)
        if op.type is Type.INVOKE:
            assert before is None or before.type in (Type.OK, Type.FAIL)
        else:
            assert before is not None
            assert (before.type, before.f) == (Type.INVOKE, op.f)
        last[op.process] = op
    values = [send.value for op in ops if op.type is Type.INVOKE for send in op.sends or ()]
    assert len(values) == len(set(values))
    return ops


def assert_final_reads_are_the_logs(folder: Path, about: Mapping[str, Any], ops: list[Op]) -> None:
    """The reads to the end are the leader's dump, and every replica's dump is the leader's."""
    dumps = {node: rows(folder / "logs" / f"{node}.jsonl") for node in about["nodes"]}
    assert about["final_reads"]["partitions"] == sorted(map(int, about["partitions"]))
    readers = set(about["final_reads"]["processes"])
    read_last = sorted((read.partition, read.offset, read.value, read.epoch)
                       for op in ops if op.process in readers for read in op.reads or ())
    for dump in dumps.values():
        assert [(row["partition"], row["offset"], row["value"], row["epoch"]) for row in dump] == read_last
    acked = {(send.partition, send.offset, send.value)
             for op in ops if op.type is Type.OK for send in op.sends or ()}
    assert acked <= {one[:3] for one in read_last}
    assert {(row["node"], row["partition"]): row["leo"] for row in rows(folder / "replicas.jsonl")} == {
        (node, int(key)): sum(row["partition"] == int(key) for row in dumps[node])
        for node in about["nodes"] for key in about["partitions"]}


@pytest.mark.cluster
@pytest.mark.parametrize(("workload", "library"), [
    ("log", True), ("idempotent", True), ("idempotent", False)])
def test_a_run_without_faults_settles_and_reads_back_all_it_wrote(
        tmp_path: Path, workload: str, library: bool) -> None:
    """The folder of a quiet run: complete lines, equal logs, final reads equal to them, settled."""
    folder = tmp_path / "run"
    result, progress_seen = carried_out(made(folder, workload=workload, library=library))
    about = orjson.loads((folder / "run.json").read_bytes())
    assert about == result.about
    assert (about["ended"], about["settled"], about["settle"]["why"]) == ("done", True, None)
    assert (about["died"], about["missed"], about["residue"], about["id"]) == ([], [], None, RUN_ID)
    assert about["guarantees"]["min_insync_replicas"] == 2
    assert sorted(about["leaders"]) == ["0", "1"]
    ops = assert_a_whole_history(folder, about)
    assert sum(op.type is Type.OK and op.f == "send" for op in ops) > 100
    assert_final_reads_are_the_logs(folder, about, ops)
    phases = list(dict.fromkeys(progress.phase for progress in progress_seen))
    assert phases == ["start", "main", "mend", "settle", "read", "collect"]


@pytest.mark.cluster
def test_producers_are_replaced_as_often_as_the_load_says(tmp_path: Path) -> None:
    """A new producer is another process. What the last of them acked is there, too."""
    folder = tmp_path / "run"
    result, _ = carried_out(made(folder, workload="idempotent", load=LoadShape(producer_lasts=20)))
    ops = assert_a_whole_history(folder, result.about)
    sends = Counter(op.process for op in ops if op.type is Type.INVOKE and op.f == "send")
    assert set(sends.values()) - {20}, "the last ones are ended by the run"
    assert max(sends.values()) == 20
    assert sum(count == 20 for count in sends.values()) > 8, "more than there are at a time"
    assert_final_reads_are_the_logs(folder, result.about, ops)


def test_a_run_with_a_killed_leader_mends_and_loses_nothing(tmp_path: Path) -> None:
    """A scripted send among the load, the leader killed at an ack and started again."""
    folder = tmp_path / "run"
    schedule = (
        Entry(f="send", args={"sends": [{"partition": 0, "value": 17}]}),
        Entry(f="kill", nodes=("leader",), moment=Ack(partition=0, count=50)),
        Entry(f="start", nodes=("down",), moment=After(after_ns=500_000_000)),
    )
    result, _ = carried_out(made(folder, place=SIMULATED, schedule=schedule, duration=1.0))
    about = result.about
    assert (about["ended"], about["settled"], about["missed"]) == ("done", True, [])
    ops = assert_a_whole_history(folder, about)
    assert [op.f for op in ops if op.process == -1] == ["kill", "start"]
    assert any(send.value == 17 for op in ops if op.type is Type.OK for send in op.sends or ())
    assert_final_reads_are_the_logs(folder, about, ops)


@pytest.mark.cluster
def test_the_idempotent_producer_of_the_client_of_record_repeats_no_value(tmp_path: Path) -> None:
    """Beside real sockets and a killed leader, with several batches in flight: what it sends again is in the
    logs once, and each process is a producer of its own."""
    folder = tmp_path / "run"
    schedule = (
        Entry(f="kill", nodes=("leader",), moment=Ack(partition=0, count=20)),
        Entry(f="start", nodes=("down",), moment=After(after_ns=500_000_000)),
    )
    load = LoadShape(batch_sizes=(5, 10), in_flight=5, producer_lasts=5)
    result, _ = carried_out(made(
        folder, workload="idempotent", library=False, load=load, schedule=schedule, duration=6.0))

    about = result.about
    assert (about["ended"], about["settled"], about["missed"]) == ("done", True, [])
    ops = assert_a_whole_history(folder, about)
    assert max(Counter(op.process for op in ops if op.type is Type.INVOKE and op.f == "send").values()) == 5
    assert not any(op.type is Type.FAIL for op in ops if op.f == "send"), "it retries, so it never knows"
    assert_final_reads_are_the_logs(folder, about, ops)
    values = [row["value"] for row in rows(folder / "logs" / "n1.jsonl")]
    assert len(values) == len(set(values)) > 50


def test_a_topic_has_its_own_settings(tmp_path: Path) -> None:
    """The brokers' min.insync.replicas is 2, the topic's is 3: with one broker down nothing is acked."""
    schedule = (
        Entry(f="kill", nodes=("n3",), moment=Ack(partition=0, count=5)),
        Entry(f="start", nodes=("n3",), moment=After(after_ns=3_000_000_000)),
    )
    topics = {"log": {"min.insync.replicas": "3", "unclean.leader.election.enable": "false"}}
    result, _ = carried_out(
        made(tmp_path / "run", place=SIMULATED, schedule=schedule, topics=topics, duration=1.0))
    about = result.about
    assert (about["ended"], about["settled"]) == ("done", True)
    assert about["guarantees"]["min_insync_replicas"] == 3
    assert about["guarantees"]["unclean_leader_election"] is False
    assert (about["config"]["n1"]["min.insync.replicas"], about["system"]["topics"]) == (2, topics)
    errors = {op.error for op in read(tmp_path / "run" / "history.jsonl") if op.f == "send"}
    assert errors & {"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}


@pytest.mark.cluster
def test_an_interrupted_run_still_settles_and_collects(tmp_path: Path) -> None:
    """Cancellation in the main phase, as Ctrl-C does it."""
    folder = tmp_path / "run"

    async def interrupted() -> runner.RunResult:
        busy = asyncio.Event()

        def watch(progress: runner.Progress) -> None:
            if progress.phase == "main" and progress.ok > 10:
                busy.set()

        running = asyncio.create_task(runner.carry_out(made(folder, duration=300.0), watch))
        async with asyncio.timeout(60):
            await busy.wait()
        running.cancel()
        return await running

    result = asyncio.run(interrupted())
    assert (result.ended, result.about["settled"]) == ("interrupted", True)
    assert_final_reads_are_the_logs(folder, result.about, assert_a_whole_history(folder, result.about))


RUNS_UNTIL_KILLED = """
import asyncio, runpy, sys
from pathlib import Path
from floodmark.harness import runner

plan = runpy.run_path(sys.argv[1])["made"](Path(sys.argv[2]), duration=300.0)
asyncio.run(runner.carry_out(plan, lambda progress: print(progress.phase, progress.ok, flush=True)))
"""


@pytest.mark.cluster
def test_a_killed_run_leaves_whole_lines_and_says_what_is_missing_by_lacking_it(tmp_path: Path) -> None:
    """SIGKILL of the harness in the main phase."""
    folder = tmp_path / "run"
    harness = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", RUNS_UNTIL_KILLED, __file__, str(folder)],
        stdout=subprocess.PIPE, text=True)
    try:
        assert harness.stdout is not None
        for line in harness.stdout:
            phase, acked = line.split()
            if phase == "main" and int(acked) > 20:
                break
        else:
            pytest.fail("the run ended before it could be killed")
    finally:
        harness.kill()
        harness.communicate(timeout=120)
    about = orjson.loads((folder / "run.json").read_bytes())
    assert not {"settled", "settle", "leaders", "final_reads", "history_lines", "ended"} & about.keys()
    assert (about["missed"], about["died"], about["guarantees"]["acks"]) == ([], [], "all")
    lines = (folder / "history.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) > 40
    assert [orjson.loads(line)["index"] for line in lines if line.endswith(b"\n")][-1] >= len(lines) - 2


@pytest.mark.cluster
def test_a_cluster_that_cannot_start_leaves_a_folder_that_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cluster = catalog.cluster("local", folder, 3, rules="no-such-rules", bugs=(), config={}, links="direct")
    with pytest.raises(FloodmarkError, match=" ended "):
        carried_out(made(folder, cluster=cluster))
    about = orjson.loads((folder / "run.json").read_bytes())
    assert " ended " in about["ended"]
    assert (about["settled"], about["history_lines"], about["settle"]["no_leader"]) == (False, 0, [])

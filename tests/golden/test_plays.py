"""Schedules on the simulated cluster: the steps of plays.txt, and what of them comes into the history.

Above `--` a play has the steps of a scenario (or an entry as JSON); below it a line for each op and fault,
the entries whose moment did not come, and those that a reproduction of the run ties to another moment (acks,
the state then, the entry before). Times are left out; what must hold of them is asserted here.
`pytest --rewrite` writes what now comes out: then read the diff.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from golden_text import case_as_written, cases_of

from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.cluster.simulated.place import SimulatedPlace
from floodmark.harness.commands.reproduce import read_first
from floodmark.harness.commands.run import planned
from floodmark.harness.history import read
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.phases.end_phases import PROBES
from floodmark.harness.report.run_summary import strikes_of, strikes_text
from floodmark.harness.runner import carry_out
from floodmark.harness.schedule import json_form
from floodmark.harness.spec import RunSpec
from floodmark.nemesis import schedule_runner
from floodmark.nemesis.steps import read_step

FILE = "plays.txt"
SCRIPTED = 1_000_000  # the first process of scripted ops; they are numbered from 0 here
TIMES = {"time", "began", "met", "late_ns", "then_ns"}


def played(steps: str, out: Path) -> tuple[Mapping[str, Any], list[Op]]:
    entries = [entry for line in steps.splitlines()
               for entry in ([json.loads(line)] if line.startswith("{") else read_step(line))]
    spec = RunSpec(cluster="simulated", concurrency=0, partitions=2 if "partition 1" in steps else 1,
                   duration=0.1, seed=7, out=out)
    plan = planned(spec, json_form.read(entries), ask_broker=False)
    asyncio.run(carry_out(plan, lambda _: None))
    return json.loads((out / "run.json").read_text()), list(read(out / "history.jsonl"))


def told(folder: Path, about: Mapping[str, Any], ops: list[Op]) -> Iterator[str]:
    for op in ops:
        if op.process == NEMESIS:
            shown = without_times({key: value for key, value in (op.fault or {}).items() if key != "nodes"})
            yield f"{' '.join([op.f, *(op.fault or {})['nodes']])} {json.dumps(shown)}"
        elif op.process < PROBES:
            what = [*(f"{send.value}" for send in op.sends or ()),
                    *(f"{read.value}@{read.offset}" for read in op.reads or ()),
                    *([str(list(op.partitions or ()))] if op.f == "assign" else []), op.error or ""]
            yield f"#{op.process - SCRIPTED} {op.type.value} {op.f} {' '.join(what)}".rstrip()
    for position, words in about["missed_words"].items():
        yield f"missed {position}: {words['waited_for']}"
    strikes = strikes_text(strikes_of([op for op in ops if op.process == NEMESIS], about))
    yield f"ended {about['ended']}; struck by {strikes or 'nothing'}"
    for anchor in read_first(folder, None).anchors:
        if anchor.now != anchor.then:
            (now,) = json_form.write([anchor.now])
            assert json_form.read([now]) == (anchor.now,)
            yield f"again {anchor.position} by {anchor.by}: {json.dumps(rounded(now))}"


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        of_time = value.get("at") == "time"
        return {key: without_times(one) for key, one in value.items() if of_time or key not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def rounded(value: Any) -> Any:
    """Nanoseconds are shown as milliseconds, and no time-outs."""
    if isinstance(value, dict):
        return {key.replace("_ns", "_ms"): one // 1_000_000 if key.endswith("_ns") else rounded(one)
                for key, one in value.items() if key != "timeout_s"}
    return [rounded(one) for one in value] if isinstance(value, list) else value


PLAYS = cases_of(FILE)


@pytest.mark.parametrize("title", PLAYS)
def test_what_a_schedule_brings(title: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    about, ops = played(PLAYS[title][0], tmp_path / "run")
    now = "".join(f"{line}\n" for line in told(tmp_path / "run", about, ops))
    case_as_written(FILE, PLAYS, title, now, request)
    for fault in (op.fault for op in ops if op.fault and op.fault.get("reached")):
        reached = fault["reached"]
        crash = reached.get("action") == "crash"  # it is known after it took effect
        assert reached.get("met", 0) <= (fault["began"] if crash else reached["time"])
        assert fault["began"] <= reached["time"] if crash else reached["time"] <= fault["began"]
    assert [op.index for op in ops] == [*range(len(ops))]
    assert (about["died"], about["residue"]) == ([], None)  # an armed crash is no death


def test_a_delay_counts_from_when_the_moment_came(tmp_path: Path) -> None:
    """At a failpoint from when it was met, which may be long ago."""
    _, ops = played("report n1 at L.acked\nsend 1\nwait 30ms\npause n2 when n1 reaches L.acked then 20ms\n"
                    "pause n3 when ack 1 then 20ms\nkill n3 when ack 1 then 200ms", tmp_path / "run")
    _, at_once, _, later = (op.fault for op in ops if op.fault)

    assert at_once["reached"]["then_ns"] >= 30_000_000
    assert 200_000_000 <= later["began"] - later["reached"]["time"] < 250_000_000


def test_a_strike_on_a_node_that_ended_by_itself_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on. An unhealthy cluster does not prolong it: only the first wait has its time."""
    async def ends(place: SimulatedPlace, node: str) -> None:
        place._processes[node].end(3)

    monkeypatch.setattr(SimulatedPlace, "resume", ends)
    monkeypatch.setattr(schedule_runner, "UNHEALTHY_S", 0.2)
    about, ops = played("resume n3\nwait healthy within 0.4s\nwait healthy within 0.4s\n"
                        "wait healthy within 0.1s\npause n3\nexpire n3", tmp_path / "run")

    assert [about["missed_words"][str(at)]["waited_for"] for at in about["missed"]] == [
        "healthy (0.4 s)", "healthy (0.2 s)", "healthy (0.1 s)", "it could not be carried out"]
    assert [op.f for op in ops if op.process == NEMESIS] == ["resume", "pause", "expire"]


def test_a_process_of_the_load_is_over_after_an_op_of_unknown_outcome(tmp_path: Path) -> None:
    """The next op is by another process in its place."""
    plan = planned(RunSpec(cluster="simulated", concurrency=4, nemesis="pause", interval=0.5, duration=4.0,
                           seed=1, out=tmp_path / "run"), ask_broker=False)
    asyncio.run(carry_out(plan, lambda _: None))
    load = [op for op in read(tmp_path / "run" / "history.jsonl") if 0 <= op.process < SCRIPTED]
    unsure = {op.process for op in load if op.type is Type.INFO}

    assert len(unsure) > 2
    for process in unsure:
        assert [op.type for op in load if op.process == process].index(Type.INFO) == sum(
            op.process == process for op in load) - 1
    assert {process - 4 for process in {op.process for op in load} - {0, 1, 2, 3}} <= unsure


def test_a_crash_that_becomes_known_while_its_node_starts_is_not_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, spawn, crashes = [], SimulatedPlace.spawn, BrokerCluster.crashes

    async def spawns(place: SimulatedPlace, name: str) -> None:
        known.append(name)
        await spawn(place, name)

    monkeypatch.setattr(SimulatedPlace, "spawn", spawns)
    monkeypatch.setattr(BrokerCluster, "crashes", lambda self: crashes(self) if known.count("n2") > 1 else ())
    about, ops = played("crash n2 at F.appended\nsend 1\nstart n2\nwait healthy within 5s", tmp_path / "run")

    assert about["missed"] == []
    assert [op.f for op in ops if op.process == NEMESIS] == ["arm", "start", "kill"]

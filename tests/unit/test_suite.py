"""What the pytest fixtures accept and refuse before anything starts; and that they cost nothing unused."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from judged_runs import judge_by

from floodmark.harness import pipeline
from floodmark.harness.commands import cluster as cluster_server
from floodmark.harness.commands import pytest_support
from floodmark.harness.commands.pytest_support import (
    ClusterUp,
    entries,
    judged_run,
    made,
    scenario_play,
    spec_of,
    with_drawn,
)
from floodmark.harness.commands.run import planned
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import Cluster, Struck
from floodmark.harness.run import DONE, Run
from floodmark.harness.runner import RunResult
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import ACTS, Entry
from floodmark.harness.schedule.views import View
from floodmark.harness.verdict import Finding, Policy, Unknown, Verdict

KILL = {"f": "kill", "nodes": ["n1"]}


@pytest.mark.parametrize(("words", "message"), [
    ({"nodez": 3}, "floodmark_run does not know 'nodez'; valid: cluster, nodes, "),
    ({"scenario": "double-failover", "nodes": 5}, "does not know 'nodes'; valid: scenario, rules"),
    ({"scenario": "nothing"}, "no scenario 'nothing'"),
    ({"scenario": "Z06"}, "Z06 is 2 scenarios"),
    ({"nemesis": "crsh"}, "no nemesis 'crsh'"),
    ({"settings": "draw"}, "settings is 'draw'; valid: fixed, drawn"),
    ({"nemesis": "crash", "schedule": [KILL]}, "exclude each other"),
    ({"schedule": [{**KILL, "nodes": ["n9"]}]}, "n9"),
    ({"allow": ["lost-writes"]}, "no finding is called 'lost-writes'"),
    ({"allow": "lost-writes"}, "no finding is called 'lost-writes'"),
])
def test_invalid_keywords_start_nothing(tmp_path: Path, words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        judged_run(tmp_path / "run", words)
    assert not (tmp_path / "run").exists()


def test_keywords_are_the_options_of_the_command_line(tmp_path: Path) -> None:
    options, schedule = spec_of(tmp_path, {
        "nemesis": ["crash", "cut"], "config": {"min.insync.replicas": 1}, "bugs": ["ack_early"], "nodes": 5})
    assert (options.nemesis, options.config) == ("crash,cut", ("min.insync.replicas=1",))
    assert (options.bugs, options.nodes, options.out, schedule) == (("ack_early",), 5, tmp_path, None)


def test_settings_are_drawn_from_the_seed_except_those_given(tmp_path: Path) -> None:
    """And recorded in run.json; a schedule names nodes that were drawn, the same in floodmark_schedule and
    floodmark_run. Without `drawn` nothing is drawn."""
    words = {"settings": "drawn", "partitions": 3, "duration": 10}
    seed = next(seed for seed in range(50) if with_drawn(spec_of(None, words)[0], seed).nodes == 5)
    given = entries({**words, "seed": seed, "nemesis": "crash", "interval": 0.5})
    assert {node for entry in given for node in entry.get("nodes", ())} >= {"n4", "n5"}
    options, schedule = spec_of(tmp_path / "run", {**words, "seed": seed, "schedule": given})
    plan = planned(options, schedule)
    assert (options.nodes, options.seed, plan.spec.drawn) == (5, seed, options.drawn)
    assert plan.spec.drawn
    assert "partitions" not in plan.spec.drawn
    assert {spec.key for spec in plan.partitions} == {0, 1, 2}
    other = planned(*spec_of(tmp_path / "other", {**words, "seed": seed + 1}))
    assert other.spec.drawn != plan.spec.drawn
    assert planned(*spec_of(tmp_path / "fixed", {"partitions": 3})).spec.drawn is None


def test_a_schedule_is_data_and_the_same_for_the_same_keywords(tmp_path: Path) -> None:
    given = entries({"nemesis": "crash", "duration": 10, "interval": 1})
    assert {entry["f"] for entry in given} - ACTS
    assert given == entries({"nemesis": "crash", "duration": 10, "interval": 1, "seed": 1})
    assert given != entries({"nemesis": "crash", "duration": 10, "interval": 1, "seed": 2})
    _, schedule = spec_of(tmp_path, {"schedule": given})
    assert schedule
    assert pytest_support.json_form.write(schedule) == given
    with pytest.raises(UsageError, match="floodmark_schedule does not know 'schedule'"):
        entries({"schedule": given})


async def test_a_run_inside_an_event_loop_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="plain test functions"):
        judged_run(tmp_path / "run", {"nemesis": "crash"})


COUNTS = {"acked": 5}
LOST = Finding(name="lost-write", klass="bug", permitted_by=None, count=7, examples=({"text": "Gone."},))
MAYBE = Unknown(names=("unseen",), reason="no final reads")


@pytest.mark.parametrize(("verdict", "valid"), [
    (Verdict(valid=True, counts=COUNTS), True),
    (Verdict(valid=False, counts=COUNTS, findings=(LOST,)), False),
    (Verdict(valid="unknown", counts=COUNTS, unknown=(MAYBE,)), False),
    (Verdict(valid="unknown"), None),  # nothing was judged: neither valid nor not
])
def test_a_run_is_valid_or_not_and_a_failure_of_the_harness_is_neither(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, *, valid: bool | None) -> None:
    judge_by(monkeypatch, lambda _: verdict)
    (tmp_path / "run.json").write_text('{"format": 1, "ended": "done", "nodes": ["n1"], "died": []}')
    if valid is None:
        with pytest.raises(FloodmarkError, match="the harness failed: nothing was judged"):
            pytest_support.judged(tmp_path, Policy())
        return
    run = pytest_support.judged(tmp_path, Policy())
    assert run.valid is valid
    assert run.bugs == (() if not verdict.findings else ("lost-write",))
    assert ("lost-write 7" in repr(run)) == bool(verdict.findings)
    assert [one["reason"] for one in run.unknown] == [one.reason for one in verdict.unknown]
    assert pytest_support.judged(tmp_path, Policy(allow=frozenset({"lost-write"}), allow_unknown=True)).valid


def test_a_scenario_whose_moments_do_not_come_is_no_run(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Path] = []

    async def carry_out(plan: Any, _: object) -> RunResult:
        taken.append(plan.folder)
        return RunResult(run=Run(folder=plan.folder), about={"missed": [0], "ended": DONE})

    monkeypatch.setattr(pipeline, "carry_out", carry_out)
    with pytest.raises(FloodmarkError, match="the scenario missed moments 3 times"):
        made(scenario_play(tmp_path / "run", {"scenario": "double-failover"}))
    assert len(set(taken)) == 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingCluster(ClusterUp):
    """A cluster of three nodes that records what it is asked."""

    bootstrap: str = ""
    folder: Path = Path("c")
    asked: list[str] = field(default_factory=list)

    def ask(self, do: str, **_: Any) -> dict[str, Any]:
        self.asked.append(do)
        return {"nodes": ["n1", "n2", "n3"], "struck": ["0.100 s kill n1"], "failure": "n1 does not obey"}


class Strikes:
    """A nemesis that keeps what it is to carry out."""

    answers = frozenset(FAULTS)

    def __init__(self, error: Exception | None = None) -> None:
        self.entries: list[Entry] = []
        self.error = error

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        if self.error is not None:
            raise self.error
        self.entries.append(entry)
        return Struck(nodes=nodes, detail={"grudge": {}, "kept": {node: {} for node in nodes},
                                           "lost_records": dict.fromkeys(nodes, 0)})


class Observed:
    """A cluster of three nodes on which everything is possible."""

    nodes, partitions, abilities = ("n1", "n2", "n3"), (), ()
    lacks: ClassVar[dict[type, str]] = {}

    up = frozenset({"n1"})

    async def observe(self) -> View:
        return View(time_ns=0, running=self.up, unfenced=self.up, partitions={}, replicas={})

    async def mend(self) -> list[str]:
        return []

    def died(self) -> list[str]:
        return []


def served(monkeypatch: pytest.MonkeyPatch, folder: Path, strikes: Strikes) -> cluster_server.ClusterServer:
    """The server of a cluster on which these strikes are made."""
    (folder / "work").mkdir()
    monkeypatch.setattr(cluster_server, "Strikes", lambda _: strikes)
    monkeypatch.setattr("floodmark.nemesis.schedule_runner.refuse_schedule", lambda *_: None)
    monkeypatch.setattr(cluster_server.ClusterServer, "_refuse", lambda *_: None)
    return cluster_server.ClusterServer(cluster=cast(Cluster, Observed()), folder=folder, say=lambda _: None)


async def carried_out(server: cluster_server.ClusterServer, given: list[dict[str, Any]], until: int
                      ) -> Mapping[str, Any]:
    """The server's answer at the end of a nemesis with these entries, after so many strikes or a failure."""
    now = await asked(server, "nemesis", schedule=given)
    while len(now["struck"]) < until and now["failure"] is None:
        await asyncio.sleep(0)
        now = await asked(server, "struck")
    return await asked(server, "end_nemesis")


async def asked(server: cluster_server.ClusterServer, do: str, **besides: Any) -> Mapping[str, Any]:
    return await server.carry_out(cluster_server.Request(id=1, do=do, **besides))


async def test_nemeses_strike_one_after_the_other_with_every_field_of_an_entry(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of a log to keep and the reset of connections too, as in a run; the strikes are listed, and
    recorded, each nemesis in a history of its own. One that has not ended is not replaced."""
    given = entries({"nemesis": "crash,restart,pause,cut,power,expire", "duration": 300, "interval": 1,
                     "seed": 3})
    acts = [replace(entry, moment=None) for entry in json_form.read(given) if entry.f != "wait"]
    assert {"keep_share", "reset", "grudge"} <= {key for entry in acts for key in entry.args}
    strikes = Strikes()
    server = served(monkeypatch, tmp_path, strikes)

    answer = await carried_out(server, json_form.write(acts), len(acts))

    assert answer["failure"] is None
    assert strikes.entries == acts
    assert [line.partition(" s ")[2] for line in answer["struck"]] == [
        " ".join((entry.f, *entry.nodes)) for entry in acts]
    assert (await carried_out(server, [KILL], 1))["failure"] is None
    second, first = ([json.loads(line)["f"] for line in file.read_text().splitlines()]
                     for file in sorted((tmp_path / "work").glob("nemesis*.jsonl")))
    assert (first, second) == ([entry.f for entry in acts], ["kill"])

    waits = [{"f": "wait", "moment": {"at": "after", "after_ns": 10**12}}]
    await asked(server, "nemesis", schedule=waits)
    with pytest.raises(UsageError, match="has not ended"):
        await asked(server, "nemesis", schedule=waits)
    await asked(server, "end_nemesis")


@pytest.mark.parametrize("error", [None, FloodmarkError("n1 does not obey"), KeyError("f")])
async def test_a_nemesis_stops_at_what_it_cannot_do(
        tmp_path: Path, error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in vain for a healthy cluster, or a strike fails: nothing strikes after that."""
    strikes = Strikes(error)
    waits = {"f": "wait", "moment": {"at": "state", "healthy": True}, "timeout_s": 0.01}
    given = [waits, KILL, KILL] if error is None else [KILL, KILL]
    words = "the nemesis stopped after 0 strikes" if error is None else str(error)
    assert words in (await carried_out(served(monkeypatch, tmp_path, strikes), given, 2))["failure"]
    assert strikes.entries == []


def test_a_nemesis_that_stopped_fails_its_test_and_the_cluster_is_mended() -> None:
    """Else it would pass without faults."""
    cluster = RecordingCluster()
    with pytest.raises(FloodmarkError, match="n1 does not obey"), pytest_support.striking(cluster, {}) as now:
        assert now[0] == "0.100 s kill n1"
    assert (cluster.asked[:2], cluster.asked[-2:]) == (["state", "nemesis"], ["end_nemesis", "mend"])


@pytest.mark.parametrize(("up", "dead", "why"), [
    (("n1", "n2", "n3"), (), None), (("n1",), (), "again: n2 is fenced or not registered"),
    (("n1", "n2", "n3"), ("n2",), "n2 died without a fault")])
async def test_a_mended_cluster_is_healthy_or_its_test_fails(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up: tuple[str, ...], dead: tuple[str, ...],
        why: str | None) -> None:
    monkeypatch.setattr(cluster_server, "HEALTHY_WITHIN_S", 0.0)
    monkeypatch.setattr(Observed, "up", frozenset(up))
    monkeypatch.setattr(Observed, "died", lambda _: list(dead))
    server = served(monkeypatch, tmp_path, Strikes())
    if why is None:
        assert await asked(server, "mend") == {}
        return
    with pytest.raises(FloodmarkError, match=why):
        await asked(server, "mend")


@pytest.mark.parametrize(
    ("words", "message"),
    [({"nemesis": "elect"}, "has no 'elect'; it has: crash, restart"), ({"nemesis": "all"}, "has no 'all'"),
     ({"duration": 3}, "does not know 'duration'; valid: nemesis, interval, seed")])
def test_an_unsupported_nemesis_strikes_nothing(words: dict[str, Any], message: str) -> None:
    cluster = RecordingCluster()
    with pytest.raises(UsageError, match=message), pytest_support.striking(cluster, words):
        pass
    assert cluster.asked == []


def test_the_plugin_costs_nothing_before_it_is_used() -> None:
    loaded = subprocess.check_output(
        [sys.executable, "-c", "import sys, pytest; before = set(sys.modules); "
         "import floodmark.harness.pytest_plugin; print(*set(sys.modules) - before)"], text=True).split()
    assert {name for name in loaded if name.startswith("floodmark")} == {
        "floodmark", "floodmark.harness", "floodmark.harness.pytest_plugin"}
    assert {name for name in loaded if "." not in name} <= {"floodmark", "datetime", "_datetime"}

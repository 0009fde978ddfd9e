"""Systems with limited abilities: schedules refused before a run, fields that a system does not show."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from golden_text import refused_as_written
from kafka_batches import batch
from looks import SPEC, look, replica

from floodmark.harness import catalog, runner
from floodmark.harness.cluster.reference.system import ReferenceSystem
from floodmark.harness.commands.run import planned
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.faults import FAULTS
from floodmark.harness.logdir import UNREADABLE, LogState
from floodmark.harness.phases.end_phases import Collected, collect, observes_of
from floodmark.harness.pipeline import record
from floodmark.harness.protocols import (
    Clocks,
    Freezes,
    KeepsLogs,
    Kills,
    PartitionSpec,
    Pauses,
    ReadsLogs,
    ability,
    missing_members,
    why_not,
)
from floodmark.harness.record_batches import MARK
from floodmark.harness.run import Run
from floodmark.harness.schedule.json_form import read
from floodmark.harness.schedule.moments import Entry, read_moment
from floodmark.harness.schedule.views import UNKNOWN, View
from floodmark.harness.spec import RunSpec
from floodmark.nemesis.strikes import Strikes, refuse_schedule, unavailable


class Bare:
    """Only what every cluster has; `looks` are the next views, the last one repeats; attributes override."""

    name = "bare"
    system: Mapping[str, Any] = {"name": "somebody's"}
    nodes = SPEC.replicas
    partitions: tuple[PartitionSpec, ...] = (SPEC,)
    config: Mapping[str, Mapping[str, Any]] = {}
    abilities: Sequence[object] = ()
    lacks: Mapping[type, str] = {}
    not_shown: frozenset[str] = frozenset()

    def __init__(self, *looks: View, **attributes: object) -> None:
        self.looks = list(looks)
        vars(self).update(attributes)

    async def start(self) -> None: ...
    async def create(self, partitions: Sequence[PartitionSpec]) -> None: ...
    async def observe(self) -> View:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    async def mend(self) -> list[str]:
        return []

    async def stop(self) -> None: ...
    def died(self) -> list[str]:
        return []

    def died_words(self) -> Mapping[str, str]:
        return {}

    def died_at(self) -> Mapping[str, Sequence[int]]:
        return {}

    def broken(self) -> Sequence[str]:
        return ()


class CanKillPauseElect(Bare):
    """Its class can kill, pause and elect; `lacks` says what the system cannot."""

    async def kill(self, node: str) -> None: ...
    async def start_node(self, node: str) -> None: ...
    async def stop_node(self, node: str) -> None: ...
    async def pause(self, node: str) -> None: ...
    async def resume(self, node: str) -> None: ...
    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        return {}


class KeepsLogsInMemory(Bare):
    """A cluster that keeps its logs in memory."""

    def log_rows(self, node: str, run_id: str) -> Iterator[dict[str, Any]]:
        yield {"node": node, "partition": 0, "offset": 0, "epoch": 0, "value": 7, "crc": 1}

    def log_state(self, node: str, partition: int) -> LogState:
        return LogState(log_start=0, leo=1, torn_bytes=0, epochs=((0, 0),), checkpointed_hw=1)


# -- abilities ----------------------------------------------------------------------------------------------


NO_SIGNALS = {Pauses: "signals are not ours to send"}


def test_an_ability_in_lacks_is_missing_even_if_the_class_has_it() -> None:
    one = CanKillPauseElect(lacks=NO_SIGNALS)
    assert missing_members(one, Pauses) == []
    assert (ability(one, Pauses), why_not(one, Pauses)) == (None, "signals are not ours to send")
    assert ability(one, Kills) is one
    assert why_not(one, Clocks) == "the bare cluster has no such ability (Clocks)"
    assert Strikes(one).answers == {"kill", "start", "stop", "elect"}
    assert unavailable(one).keys() == FAULTS.keys() - {"kill", "start", "stop", "elect"}
    assert ability(Bare(abilities=(object(), one)), Kills) is one


def test_a_schedule_that_cannot_be_carried_out_is_refused_naming_the_entry(
        request: pytest.FixtureRequest) -> None:
    limited = CanKillPauseElect(lacks=NO_SIGNALS, not_shown={"checkpointed_hw", "epoch"})

    def refuse(entry: dict[str, Any]) -> None:
        refuse_schedule(read([{"f": "kill", "nodes": ["n1"]}, entry]), limited)

    refused_as_written("a schedule of a limited cluster", refuse, UsageError, request)


def test_a_schedule_that_can_be_carried_out_is_not_refused() -> None:
    """The arguments of another distribution's fault are its own; the controller's view of a partition is
    shown by every system."""
    limited = CanKillPauseElect(not_shown={"leo", "leader", "isr", "epoch"})
    for args in ({"point": "L.acked"}, {"point": {"name": "mine"}}, {"leader": 5}, {"keep_share": "all"}):
        refuse_schedule((Entry(f="their_fault", nodes=("n1",), args=args),), limited)
    refuse_schedule((Entry(f="kill", nodes=("n1",), moment=read_moment({
        "at": "state", "partition": 0, "field": "leader", "is": "==", "value": "n1"})),), limited)


# -- the end of a run ---------------------------------------------------------------------------------------


def collect_from(folder: Path, cluster: Bare) -> tuple[Collected, Run]:
    run = Run(folder=folder)
    return asyncio.run(collect(cluster, run, [SPEC], "0" * 16, 0)), run


class CannotStop(KeepsLogsInMemory):
    async def stop(self) -> None:
        raise FloodmarkError("the engine does not answer")


class SilentAtTheEnd(KeepsLogsInMemory):
    async def observe(self) -> View:
        if not self.looks:
            raise FloodmarkError("nobody answers")
        return self.looks.pop()


@pytest.mark.parametrize(("cluster", "problems", "moved"), [
    (CanKillPauseElect(look(*(replica(node, leader=UNKNOWN) for node in SPEC.replicas))), (), None),
    (CannotStop(look()), ("the cluster could not be stopped: the engine does not answer",), None),
    (SilentAtTheEnd(look()), (), "the cluster could not be observed after it was read: nobody answers"),
    (KeepsLogsInMemory(look(), look(epoch=3)), (),
     "the leader, epoch or ISR of partition 0 changed while it was read"),
], ids=lambda one: type(one).__name__)
def test_what_was_read_is_kept_and_what_went_wrong_or_moved_is_reported(
        tmp_path: Path, cluster: Bare, problems: tuple[str, ...], moved: str | None) -> None:
    """If it is silent, nobody knows whether anything moved: the run is not settled."""
    result, run = collect_from(tmp_path, cluster)
    assert (result.problems, result.moved, result.leaders["0"]["leader"]) == (problems, moved, "n1")
    keeps_logs = isinstance(cluster, KeepsLogsInMemory)
    assert any(run.logs_folder.glob("*.jsonl")) == (run.replicas_path.read_bytes() != b"") == keeps_logs


def test_what_a_producer_repeated_itself_is_found_in_the_logs(tmp_path: Path) -> None:
    """Which batches are repeats: test_logdir.py."""
    class KeepsLogFolders(Bare):
        async def log_dir(self, node: str) -> Path:
            return tmp_path

    log = tmp_path / f"{SPEC.topic}-{SPEC.partition}" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(
        batch(0, [b"7"], producer=9, producer_epoch=epoch, headers=[(MARK.decode(), b"0" * 16)])
        for epoch in (0, 1)))

    assert collect_from(tmp_path, KeepsLogFolders(look()))[0].resent == (7,)


@pytest.mark.parametrize(("resent", "retries", "in_run_json"), [((7, 8), 1, [7, 8]), ((), 0, None)])
def test_producers_that_repeated_something_are_not_idempotent_by_run_json(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resent: tuple[int, ...], retries: int,
        in_run_json: list[int] | None) -> None:
    """Others are not said to retry: a duplicate of theirs is permitted by nothing."""
    async def collect_with_repeats(*asked: Any) -> Collected:
        return replace(await collect(*asked), resent=resent)

    monkeypatch.setattr(runner, "collect", collect_with_repeats)
    record(planned(RunSpec(cluster="simulated", rate=100.0, duration=0.5, seed=3, out=tmp_path / "run")))
    about = orjson.loads((tmp_path / "run" / "run.json").read_bytes())

    assert about.get("resent") == in_run_json
    assert about["guarantees"].items() >= {"idempotence": False, "retries": retries}.items()


def test_logs_kept_in_memory_are_dumped_and_an_unreadable_checkpoint_is_named(tmp_path: Path) -> None:
    """n3 is not running: its row is read from its own log. The leader epochs of n1 and n3 cannot be read."""
    class HasUnreadableEpochs(KeepsLogsInMemory):
        def log_state(self, node: str, partition: int) -> LogState:
            return replace(super().log_state(node, partition), epochs=UNREADABLE)

    seen = look(replica("n1", epochs=UNREADABLE), replica("n2"))
    result, run = collect_from(tmp_path, HasUnreadableEpochs(
        replace(seen, running=frozenset({"n1", "n2"}))))

    rows = [orjson.loads(line) for line in run.replicas_path.read_bytes().splitlines()]
    assert result.problems == ()
    assert orjson.loads((run.logs_folder / "n3.jsonl").read_bytes())["value"] == 7
    assert [(row["node"], row["leo"], row.get("running", True), row.get("epochs_unreadable"), row["epoch"],
             row.get("epochs")) for row in rows] == [
        ("n1", 6, True, True, 2, None), ("n2", 6, True, None, 2, [[0, 0], [2, 5]]),
        ("n3", 1, False, True, -1, None)]


def test_observes_of_a_cluster_says_what_it_cannot_show() -> None:
    others = {KeepsLogs: "they are somebody else's"}
    assert observes_of(KeepsLogsInMemory()) == {}
    assert observes_of(Bare(not_shown={"isr"})) == {"observes": {"dumps": False, "replicas": False}}
    assert observes_of(KeepsLogsInMemory(lacks=others)) == {"observes": {"dumps": False, "replicas": True}}
    assert (ability(KeepsLogsInMemory(), Freezes), ability(KeepsLogsInMemory(), ReadsLogs)) == (None, None)


# -- system and cluster -------------------------------------------------------------------------------------


def test_system_and_cluster_are_chosen_separately(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rules": "kip-101", "bugs": (), "config": {}, "links": "direct"}
    local = catalog.cluster("local", tmp_path, 3, **options)
    assert (local.name, local.system) == (
        "local", {"name": "reference", "rules": "kip-101", "flushes_at_recovery": True})
    assert isinstance(ability(local, Freezes), ReferenceSystem)
    assert ability(local, KeepsLogs) is None

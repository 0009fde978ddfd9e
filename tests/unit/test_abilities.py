"""Systems that cannot do everything: abilities, schedules refused before a run, fields nobody can see."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from looks import SPEC, look, replica

from floodmark.harness import catalog
from floodmark.harness.cluster.reference.system import ReferenceSystem
from floodmark.harness.errors import UsageError
from floodmark.harness.faults import FAULTS
from floodmark.harness.logdir import LogState
from floodmark.harness.phases.collect import Collected, collect, observes_of
from floodmark.harness.phases.settle import uneven_replicas, what_moved
from floodmark.harness.protocols import (
    UNKNOWN,
    Clocks,
    Freezes,
    KeepsLogs,
    Kills,
    PartitionSpec,
    Pauses,
    ReadsLogs,
    View,
    ability,
    why_not,
)
from floodmark.harness.run import Run
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.active_faults import ActiveFaults
from floodmark.nemesis.compose import Composed, arsenal, unavailable
from floodmark.nemesis.missed_moments import describe_partition
from floodmark.nemesis.moment_watch import evaluate_state, is_healthy
from floodmark.nemesis.refusals import limits_of, refuse_schedule
from floodmark.nemesis.roles import Stage

STAGE = Stage(replicas={0: SPEC.replicas}, ledger=ActiveFaults())


class Bare:
    """What every cluster has, and nothing besides; `looks` are its next looks, the last for ever."""

    name = "bare"
    system: Mapping[str, Any] = {"name": "somebody's"}
    nodes = SPEC.replicas
    partitions: tuple[PartitionSpec, ...] = (SPEC,)
    config: Mapping[str, Mapping[str, Any]] = {}
    abilities: Sequence[object] = ()
    lacks: Mapping[type, str] = {}
    not_shown: frozenset[str] = frozenset()

    def __init__(self, *looks: View) -> None:
        self.looks = list(looks)
        self.did: list[str] = []

    async def start(self) -> None: ...
    async def create(self, partitions: Sequence[PartitionSpec]) -> None: ...
    async def observe(self) -> View:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    async def mend(self) -> list[str]:
        return []

    async def stop(self) -> None:
        self.did.append("stop")

    def died(self) -> list[str]:
        return []

    def died_words(self) -> Mapping[str, str]:
        return {}

    def broken(self) -> Sequence[str]:
        return ()


class Able(Bare):
    """Its class kills, pauses and elects; whether its system does is another matter."""

    async def kill(self, node: str) -> None:
        self.did.append(f"kill {node}")

    async def start_node(self, node: str) -> None: ...
    async def stop_node(self, node: str) -> None: ...
    async def pause(self, node: str) -> None: ...
    async def resume(self, node: str) -> None: ...
    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        return {}


class Kept(Bare):
    """A cluster that keeps its logs in memory."""

    def log_rows(self, node: str, run_id: str) -> Iterator[dict[str, Any]]:
        yield {"node": node, "partition": 0, "offset": 0, "epoch": 0, "value": 7, "crc": 1}

    def log_state(self, node: str, partition: int) -> LogState:
        return LogState(log_start=0, leo=1, torn_bytes=0, epochs=((0, 0),), checkpointed_hw=1)


# -- abilities ----------------------------------------------------------------------------------------------


def test_what_a_system_lacks_it_has_not_whatever_its_class_has() -> None:
    class NoSignals(Able):
        lacks: Mapping[type, str] = {Pauses: "nobody may send signals to its processes"}

    assert isinstance(NoSignals(), Pauses)
    assert ability(NoSignals(), Pauses) is None
    assert why_not(NoSignals(), Pauses) == "nobody may send signals to its processes"
    assert isinstance(ability(NoSignals(), Kills), NoSignals)
    assert why_not(Bare(), Clocks) == "the bare cluster has no such ability (Clocks)"
    assert Composed(arsenal(NoSignals())).answers == {"kill", "start", "stop", "elect"}
    assert unavailable(NoSignals()).keys() == FAULTS.keys() - {"kill", "start", "stop", "elect"}


def test_an_ability_beside_the_cluster_is_its_own() -> None:
    class Beside(Bare):
        abilities: Sequence[object] = (object(), Able())

    assert isinstance(ability(Beside(), Kills), Able)


# -- schedules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("entry", "words"), [
    (Entry(f="clock", nodes=("n1",), args={"offset_ms": 9}), "this cluster cannot suffer clock: the bare"),
    (Entry(f="pause", nodes=("n1",)), "cannot suffer pause: signals are not ours to send"),
    (Entry(f="arm", nodes=("n2",), args={"point": {"name": "L.acked"}}), "cannot suffer arm"),
    (Entry(f="elect", args={"leader": "n2"}), "no replica can be elected by name: the bare cluster"),
    (Entry(f="disk", nodes=("n1",), args={"kind": "corrupt"}), "cannot suffer disk"),
    (Entry(f="kill", nodes=("n1",), moment={"at": "ack", "partition": 0, "count": 1, "leader": "n1"}),
     "read from the trace: the bare cluster"),
    (Entry(f="kill", nodes=("n1",), moment={"at": "sequence", "of": [{"at": "state", "all": [
        {"partition": 0, "replica": "n1", "field": "checkpointed_hw", "is": "==", "value": 3}]}]}),
     "waits for the checkpointed_hw of a replica, which this system does not show"),
    (Entry(f="kill", nodes=("n1",), moment={"at": "state", "partition": 0, "replica": "n1", "field": "hw",
                                            "is": "==", "value": {"replica": "n2", "field": "epoch"}}),
     "waits for the epoch of a replica"),
])
def test_a_schedule_that_cannot_be_carried_out_is_refused_by_its_step(entry: Entry, words: str) -> None:
    class Poor(Able):
        lacks: Mapping[type, str] = {Pauses: "signals are not ours to send"}
        not_shown = frozenset({"checkpointed_hw", "epoch"})

    limits = limits_of(Poor())
    with pytest.raises(UsageError, match=r"entry 1 of the schedule .* cannot be carried out") as refused:
        refuse_schedule((Entry(f="kill", nodes=("n1",)), entry), limits)
    assert words in str(refused.value)


def test_what_the_controller_says_is_shown_by_every_system() -> None:
    class Poor(Able):
        not_shown = frozenset({"leader", "isr", "epoch"})

    refuse_schedule((Entry(f="kill", nodes=("n1",), moment={
        "at": "state", "partition": 0, "field": "leader", "is": "==", "value": "n1"}),), limits_of(Poor()))


# -- looks --------------------------------------------------------------------------------------------------


def bare_look(**known: Any) -> View:
    """What the wire shows: LEO and HW of each replica, no more."""
    shown = {"leo": 6, "hw": 6, **known}
    unknown = dict.fromkeys(
        ("leader", "epoch", "log_start", "isr", "checkpointed_hw", "epochs", "clean", "proposing"), UNKNOWN)
    return look(*(replica(node, **{**unknown, **shown}) for node in SPEC.replicas))


def test_what_is_unknown_keeps_a_cluster_from_settling_only_where_nothing_else_shows_it() -> None:
    assert uneven_replicas(bare_look(), [SPEC]) == []
    assert uneven_replicas(bare_look(leo=UNKNOWN), [SPEC])[0] == (
        "the LEO and HW of partition 0 on n1 are not visible")
    assert what_moved(bare_look(), bare_look(), [SPEC]) is None
    assert what_moved(bare_look(), bare_look(leo=7), [SPEC]) == "partition 0 changed on n1 while it was read"


def test_an_unknown_field_fulfils_nothing_and_is_no_none() -> None:
    asked = {"partition": 0, "replica": "n2", "field": "leader", "is": "!=", "value": "n1"}
    assert not evaluate_state(asked, bare_look(), STAGE)
    assert evaluate_state(asked, look(replica("n2", leader=None)), STAGE)
    assert is_healthy(bare_look(), STAGE)
    assert "  n2: LEO 6, HW 6" in list(describe_partition(0, bare_look(), STAGE, acks=0))


# -- the end of a run ---------------------------------------------------------------------------------------


def collected(folder: Path, cluster: Bare) -> tuple[Collected, Run]:
    run = Run(folder=folder)
    return asyncio.run(collect(cluster, run, [SPEC], "0" * 16, 0)), run


def test_a_cluster_that_shows_no_logs_and_cannot_freeze_is_collected_all_the_same(tmp_path: Path) -> None:
    told, run = collected(tmp_path, Able(bare_look()))

    assert (told.problems, told.moved) == ((), None)
    assert told.leaders["0"]["leader"] == "n1"
    assert not list(run.logs_folder.glob("*.jsonl"))
    assert run.replicas_path.read_bytes() == b""


def test_what_moves_while_a_cluster_that_cannot_freeze_is_read_is_unsettled(tmp_path: Path) -> None:
    told, _ = collected(tmp_path, Kept(look(), look(epoch=3)))

    assert told.moved == "the leader, epoch or ISR of partition 0 changed while it was read"


def test_the_logs_of_a_cluster_without_files_are_dumped_as_it_keeps_them(tmp_path: Path) -> None:
    """n3 does not run: its own log says how it stands."""
    all_three = look()
    told, run = collected(tmp_path, Kept(replace(all_three, running=frozenset({"n1", "n2"}), replicas={
        place: own for place, own in all_three.replicas.items() if place[0] != "n3"})))

    assert told.problems == ()
    assert orjson.loads((run.logs_folder / "n3.jsonl").read_bytes())["value"] == 7
    rows = [orjson.loads(line) for line in run.replicas_path.read_bytes().splitlines()]
    assert [(row["node"], row["leo"], row.get("running", True)) for row in rows] == [
        ("n1", 6, True), ("n2", 6, True), ("n3", 1, False)]


def test_a_run_says_what_its_system_cannot_show() -> None:
    class Blind(Bare):
        not_shown = frozenset({"isr"})

    class Hidden(Kept):
        lacks: Mapping[type, str] = {KeepsLogs: "they are somebody else's"}

    assert observes_of(Kept()) == {}
    assert observes_of(Blind()) == {"observes": {"dumps": False, "replicas": False}}
    assert observes_of(Hidden()) == {"observes": {"dumps": False, "replicas": True}}
    assert ability(Kept(), Freezes) is None
    assert ability(Kept(), ReadsLogs) is None


# -- what runs, where it lives ------------------------------------------------------------------------------


def test_what_runs_and_where_it_lives_are_two_questions(tmp_path: Path) -> None:
    made: dict[str, Any] = {"rules": "kip-101", "bugs": (), "config": {}, "links": "direct"}
    local = catalog.cluster("local", tmp_path, 3, **made)

    assert (local.name, local.system) == ("local", {"name": "reference", "rules": "kip-101"})
    assert isinstance(ability(local, Freezes), ReferenceSystem)
    assert ability(local, KeepsLogs) is None
    with pytest.raises(UsageError, match="no-such-folder is neither a version of Kafka nor a folder"):
        catalog.cluster("local", tmp_path, 3, kafka="no-such-folder", **made)
    with pytest.raises(UsageError, match="the memory cluster does not run Apache Kafka; containers and"):
        catalog.cluster("memory", tmp_path, 3, kafka="4.3.1", **made)

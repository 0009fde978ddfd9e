"""Repeating a saved run: its settings; how often and how closely a finding was reproduced. The moments of the
repetition: golden/plays.txt."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from floodmark.harness.commands.reproduce import (
    Attempt,
    First,
    distance,
    exit_code,
    faults_table,
    finding_of,
    late_ns,
    moments_text,
    nearness,
    plan_of,
    read_first,
    same_in,
    sought_in,
)
from floodmark.harness.commands.run import planned
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import USUAL_LOAD, LoadShape
from floodmark.harness.report.night import wilson
from floodmark.harness.run import Run, create
from floodmark.harness.runner import _initial_about
from floodmark.harness.saved_run import read_saved
from floodmark.harness.schedule.moments import HEALTHY, Entry, read_moment
from floodmark.harness.schedule.reanchoring import (
    Acks,
    AnchorBasis,
    ReanchoredEntry,
    ScheduleHistory,
    Strike,
)
from floodmark.harness.spec import CLUSTER_OPTIONS, OPTIONS, SAVED, RunSpec, pairs

MS = 1_000_000
ABOUT: dict[str, Any] = {
    "id": "ab", "seed": 7, "cluster": "local", "rules": "high-watermark", "workload": "log",
    "links": "proxied", "nodes": ["n1", "n2"],
    "partitions": {"0": {"topic": "log", "partition": 0, "replicas": ["n2", "n1"], "cleanup": "delete"}},
    "config": {node: {"min.insync.replicas": 1, "unclean.leader.election.enable": False,
                      "floodmark.rules": "high-watermark", "floodmark.bugs": "M01,M02",
                      "floodmark.switches": "two-phase"} for node in ("n1", "n2")},
    "guarantees": {"acks": "1"}, "schedule": [{"f": "kill", "nodes": ["n1"]}],
    "concurrency": 3, "rate": None, "duration_s": 4.5,
}


# -- the settings -------------------------------------------------------------------------------------------


def test_the_settings_of_the_cluster_and_the_load_are_taken_over() -> None:
    """Nodes, assignment, rules, bugs, switches, links, acks and the load."""
    saved = read_saved(ABOUT, "f")
    assert (saved.nodes, saved.spec.rules) == (("n1", "n2"), "high-watermark")
    assert saved.spec.bugs == ("M01", "M02")
    assert saved.spec.assignment[0].replicas == ("n2", "n1")
    assert pairs(saved.spec.config) == {"min.insync.replicas": "1", "unclean.leader.election.enable": "false",
                               "floodmark.switches": "two-phase"}
    assert (saved.spec.links, saved.spec.acks, saved.spec.rate) == ("proxied", "1", None)
    assert (saved.spec.seed, saved.spec.concurrency, saved.spec.duration) == (7, 3, 4.5)
    assert saved.inferred == ()


@pytest.mark.parametrize("trace", [True, False])
def test_a_run_without_a_trace_is_reproduced_without_one(tmp_path: Path, trace: bool) -> None:
    plan = planned(RunSpec(seed=1, trace=trace, out=tmp_path / "run"), ask_broker=False)
    create(plan.folder, _initial_about(plan)).history_path.touch()
    assert plan_of(read_first(plan.folder, None), 1, tmp_path / "again").spec.trace == trace


def test_what_is_saved_of_a_run_is_its_reproductions_and_had_its_default_before_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other options are told by the schedule, the cluster, the drawn settings and the guarantees."""
    assert {*OPTIONS} - {*CLUSTER_OPTIONS} - {*SAVED} == {
        "workload", "partitions", "replication_factor", "acks", "nemesis", "interval", "overspend",
        "schedule_file", "trace", "settings", "seed", "out", "bootstrap", "client_config", "faults_file",
        "may_break"}
    monkeypatch.setitem(cast(dict[str, str], SAVED), "overspend", "overspends")
    spec = RunSpec(seed=1, concurrency=3, rate=40.5, duration=2.5, overspend=True, out=tmp_path / "run")
    about = _initial_about(planned(spec, (), ask_broker=False))
    for one, told in ((spec, about), (replace(spec, overspend=False), {**about, "overspends": False})):
        saved = read_saved(told, "f").spec
        assert [getattr(saved, name) for name in SAVED] == [getattr(one, name) for name in SAVED]
    del about["overspends"]
    assert not read_saved(about, "f").spec.overspend


def test_kafkas_features_and_topics_are_set_again() -> None:
    topics = {"log-0": {"message.format.version": "0.10.2"}}
    saved = read_saved({**ABOUT, "system": {
        "name": "kafka", "version": "4.3.1", "features": {"eligible.leader.replicas.version": "0"},
        "topics": topics}}, "f")
    assert pairs(saved.spec.config)["eligible.leader.replicas.version"] == "0"
    assert pairs(saved.spec.config)["min.insync.replicas"] == "1"
    assert saved.spec.topics == topics


@pytest.mark.parametrize("field", ["seed", "rate", "concurrency", "config", "guarantees"])
def test_a_field_that_is_missing_is_named(field: str) -> None:
    """An old folder is refused with an error, not completed by a guess."""
    about = {name: value for name, value in ABOUT.items() if name != field}
    with pytest.raises(FloodmarkError, match=rf"lacks {field} "):
        read_saved(about, "f")


def test_links_that_are_not_recorded_are_inferred_and_that_is_reported() -> None:
    """A run with a cut had proxied links."""
    about = {name: value for name, value in ABOUT.items() if name != "links"}
    assert read_saved(about, "f").spec.links == "direct"
    cut = read_saved({**about, "schedule": [{"f": "cut", "nodes": ["n1"]}, {"f": "heal"}]}, "f")
    assert cut.spec.links == "proxied"
    assert "proxied" in cut.inferred[0]


def test_nodes_of_different_configuration_are_refused() -> None:
    """A cluster is configured as one."""
    about = {**ABOUT, "config": {"n1": {}, "n2": {"min.insync.replicas": 2}}}
    with pytest.raises(FloodmarkError, match="n1 and n2 were configured differently"):
        read_saved(about, "f")


def test_a_saved_load_is_read_back() -> None:
    load = LoadShape(batch_sizes=(5, 10), compression="zstd", in_flight=5, readers_every=2,
                     idempotent_every=3, rest_for=300, sharing_every=2, producer_lasts=30, acks_1_every=5,
                     timeout_ms=300)
    assert read_saved({**ABOUT, "load": asdict(load)}, "run").spec.load == load
    later = ("idempotent_every", "rest_for", "sharing_every", "producer_lasts", "acks_1_every",
             "timeout_ms")  # older folders lack them
    older = {key: value for key, value in asdict(USUAL_LOAD).items() if key not in later}
    assert read_saved({**ABOUT, "load": older}, "run").spec.load == USUAL_LOAD
    assert read_saved({**ABOUT, "load": None}, "run").spec.load == USUAL_LOAD


@pytest.mark.parametrize("change", [
    {"batch_sizes": []}, {"batch_sizes": [10**6]}, {"batch_sizes": "1"}, {"compression": "gzip\nx=1"},
    {"compression": ["gzip"]}, {"in_flight": 6}, {"in_flight": True}, {"readers_every": 1},
    {"idempotent_every": -1}, {"idempotent_every": "all"}, {"rest_for": -1}, {"rest_for": 0.5},
    {"sharing_every": True}, {"producer_lasts": -1}, {"acks_1_every": -1}, {"timeout_ms": 0},
], ids=repr)
def test_a_load_out_of_bounds_is_refused(change: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be reproduced"):
        read_saved({**ABOUT, "load": {**asdict(USUAL_LOAD), **change}}, "run")


# -- how often and how closely -----------------------------------------------------------------------------

NEVER, STRIKE = Strike(began_ns=0, took_ns=0), Strike(began_ns=50 * MS, took_ns=51 * MS)
POINT = {"at": "failpoint", "node": "n1", "name": "L.acked"}
KILL = Entry(f="kill", nodes=("n1",))
KILLED = ReanchoredEntry(position=1, then=KILL, now=KILL, strike=STRIKE, by="asked", why="")


@pytest.mark.parametrize(("hits", "of", "low", "high"), [
    (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (7, 10, 0.3968, 0.8922), (19, 20, 0.7639, 0.9911),
    (0, 0, 0.0, 1.0),
])
def test_the_interval_of_a_share_is_wilsons(hits: int, of: int, low: float, high: float) -> None:
    """Against values computed by hand from the formula."""
    assert wilson(hits, of) == pytest.approx((low, high), abs=5e-4)


def history_with(strike: Strike = NEVER, acks: tuple[int, ...] = (), before_ns: int | None = None
               ) -> ScheduleHistory:
    """Entry 0 was done at before_ns, entry 1 struck."""
    done = (before_ns, strike.took_ns)
    return ScheduleHistory(strikes={1: strike}, partitions={0: Acks(times=acks, invoked=acks)}, done=done)


def attempt(history: ScheduleHistory, **verdict: Any) -> Attempt:
    return Attempt(number=1, folder=Path("f"), about={"ended": "done", "missed": []}, history=history,
                   verdict={"valid": False, "findings": [], "counts": {"ops": 2}, **verdict})


@pytest.mark.parametrize(("moment", "late_ms"), [
    ({"at": "after", "after_ns": 30 * MS}, 20.0),
    ({"at": "ack", "partition": 0, "count": 2}, 10.0),
    ({"at": "ack", "partition": 0, "count": 2, "then_ns": 4 * MS}, 6.0),
    ({"at": "sequence", "of": [{"at": "after", "after_ns": 45 * MS},
                               {"at": "ack", "partition": 0, "count": 1}]}, 5.0),
    ({"at": "sequence", "of": [{"at": "ack", "partition": 0, "count": 2},
                               {"at": "after", "after_ns": 6 * MS}]}, 4.0),
    ({"at": "time", "time": 20 * MS, "after_ns": 0}, 30.0),
    ({"at": "state", "healthy": True}, 2.0),
    ({"at": "ack", "partition": 0, "count": 9}, 2.0),
    (None, 50.0),
    (POINT, 10.0),
    ({**POINT, "then_ns": 3 * MS}, 7.0),
    ({"at": "sequence", "of": [{"at": "state", "healthy": True}, {**POINT, "then_ns": 4 * MS}]}, 6.0),
])
def test_lateness_counts_from_the_instant_that_the_moment_names(moment: Any, late_ms: float) -> None:
    """If the history does not show that instant, from when the harness saw it; at a failpoint from when the
    broker reached it. A requested delay is no lateness."""
    met_ns = 40 * MS if "failpoint" in str(moment) else None
    strike = replace(STRIKE, reached_ns=48 * MS, met_ns=met_ns)
    history = history_with(strike, acks=(10 * MS, 40 * MS), before_ns=0)
    entry = Entry(f="kill", moment=moment and read_moment(moment))
    assert late_ns(entry, strike, history, 1) == late_ms * MS


def test_acks_apart_are_counted_against_the_first_run() -> None:
    """Three acks then, one now."""
    then = history_with(STRIKE, acks=(1, 2, 3), before_ns=0)
    now = history_with(Strike(began_ns=9 * MS, took_ns=9 * MS, reached_ns=9 * MS), acks=(5,), before_ns=0)
    found = distance(KILLED, attempt(now), AnchorBasis(history=then, partitions=(0,)))
    assert found is not None
    assert found[1] == -2
    assert nearness([found])["acks_worst"] == 2
    assert nearness([]) == {}


@pytest.mark.parametrize(("first", "met"), [(0, True), (1, False), (None, True)])
def test_a_strike_without_its_state_is_not_compared(first: int | None, met: bool) -> None:
    """It struck at its time limit, so that what follows is not delayed; the table shows the missed state."""
    then = history_with(STRIKE, before_ns=0)
    now = history_with(replace(STRIKE, reached_ns=50 * MS, first=first), before_ns=0)
    found = distance(replace(KILLED, by="state"), attempt(now), AnchorBasis(history=then, partitions=(0,)))
    assert (found is not None) == met


def waited(entry: Entry, position: int) -> ReanchoredEntry:
    return replace(KILLED, position=position, then=entry, now=entry, strike=None)


def group(name: str, klass: str = "bug", count: int = 1, **example: Any) -> dict[str, Any]:
    return {"name": name, "class": klass, "permitted_by": "acks" if klass == "permitted" else None,
            "count": count, "examples": [example]}


def test_the_same_finding_has_the_same_name_and_class() -> None:
    """Its partition and its `how` are compared separately."""
    sought = group("lost-write", partition=0, how="gone")
    found = group("lost-write", partition=1, how="gone")
    there = attempt(history_with(), findings=[found])
    assert finding_of(there.verdict, sought) is not None
    assert finding_of(there.verdict, group("lost-write", "permitted")) is None
    assert same_in(sought, there, "how")
    assert not same_in(sought, there, "partition")


# -- the exit code and the table ----------------------------------------------------------------------------


def first(sought: dict[str, Any] | None, *anchors: ReanchoredEntry) -> First:
    """A first run with only what these tests need."""
    nothing: Any = None
    basis = AnchorBasis(history=history_with(), partitions=(0,))
    return First(run=Run(folder=Path("first")), saved=nothing, basis=basis, anchors=anchors, verdict={},
                 sought=sought)


def showing(*names: str, valid: Any = False) -> Attempt:
    return attempt(history_with(), valid=valid, findings=[group(name) for name in names])


@pytest.mark.parametrize(("sought", "attempts", "code"), [
    ("lost-write", [showing(), showing("lost-write")], 0),
    ("lost-write", [showing("phantom"), showing(valid=True)], 1),
    ("lost-write", [showing(valid=True), showing(valid="unknown")], 3),
    ("lost-write", [], 4),
    (None, [showing(valid=True), showing(valid=True)], 0),
    (None, [showing(valid=True), showing(valid="unknown")], 3),
    (None, [showing(valid=True), showing("phantom")], 1),
])
def test_the_exit_code_shows_whether_it_was_reproduced(sought: str | None, attempts: list[Attempt],
                                                       code: int) -> None:
    """0 reproduced, 1 another bug, 3 not found, 4 no run at all."""
    assert exit_code(first(group(sought) if sought else None), attempts) == code


def test_the_worst_or_the_named_finding_is_sought() -> None:
    """A bug before what is permitted, a lost write before all; a name that is not there is refused."""
    bugs = [group("diverged"), group("phantom"), group("lost-write")]
    permitted = [group("diverged"), group("lost-write", "permitted")]
    for findings, named, sought in ((bugs, None, "lost-write"), (permitted, None, "diverged"),
                                    (bugs, "phantom", "phantom"), ([], None, None)):
        found = sought_in({"valid": True, "findings": findings, "unknown": []}, named)
        assert (found and found["name"]) == sought
    with pytest.raises(UsageError, match="it has: diverged, lost-write, phantom"):
        sought_in({"valid": True, "findings": bugs, "unknown": []}, "stuck")


@pytest.mark.parametrize(("kinds", "text"), [
    (["asked", "asked"], "2 as before"),
    (["time", "acks", "asked", "state", "after", "acks"],
     "1 as before, 2 by acks, 1 by leader and ISR, 1 relative to the entry before, 1 by time"),
    ([], "none"),
])
def test_the_moments_are_counted_by_what_replaced_them(kinds: list[str], text: str) -> None:
    """A step that is no fault counts only if its moment is new."""
    anchors = [replace(KILLED, position=0, strike=None, by=by) for by in kinds]
    assert moments_text(first(None, *anchors, waited(Entry(f="wait", moment=HEALTHY), 1))) == text


def test_a_fault_right_after_a_wait_is_described_by_the_wait() -> None:
    """`at once` alone would not help; the row also shows the anchor and how closely it was repeated."""
    wait = Entry(f="wait", moment=read_moment({
        "at": "state", "partition": 0, "replica": "n3", "field": "leo", "is": "==", "value": 4}))
    then = history_with(STRIKE, acks=(1, 2), before_ns=0)
    saved = replace(first(None, waited(wait, 0), KILLED), basis=AnchorBasis(history=then, partitions=(0,)))
    again = attempt(history_with(STRIKE, acks=(1, 2, 3), before_ns=49 * MS))
    row = faults_table(saved, [again]).splitlines()[2]
    assert row.split()[0] == "1"
    for cell in ("kill n1", "once n3.leo == 4", "0.050 s, p0: ack 2", "as asked", "1/1", "1.0 (1.0)",
                 "+1 (+1)"):
        assert cell in row

"""The planned schedule of a run: what strikes, what is left out, and why nothing may strike."""

from dataclasses import replace
from pathlib import Path

import pytest

from floodmark.harness import catalog
from floodmark.harness.commands.run import (
    PlannedSchedule,
    PlanningContext,
    planned,
    random_schedule,
    schedule_of,
)
from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.entry import ACTS
from floodmark.harness.schedule.moments import Time
from floodmark.harness.spec import RunSpec


def plan(words: str, *, duration_s: float = 30.0, links: str | None = None, least_isr: int = 2,
         cluster: str = "local", overspend: bool = False, trace: bool = True,
         flush_every: bool = False) -> PlannedSchedule:
    return random_schedule(PlanningContext(
        spec=RunSpec(nemesis=words, cluster=cluster, partitions=1, links=links, seed=1, duration=duration_s,
                     interval=2.0, overspend=overspend, trace=trace),
        nodes=("n1", "n2", "n3"), min_insync_replicas=least_isr, flush_every=flush_every))


def acts(made: PlannedSchedule) -> set[str]:
    return {entry.f for entry in made.schedule} - ACTS


def test_a_run_too_short_for_its_nemesis_is_reported() -> None:
    made = plan("crash", duration_s=2.0)
    assert made.schedule == ()
    assert made.unstruck == (
        "--nemesis crash: a run of 2 s is too short: the first act comes after 1 to 2 s, and its "
        "faults are mended 1 s before the end: give a longer --duration")


@pytest.mark.parametrize("words", ["none", ""])
def test_without_a_nemesis_nothing_is_reported_as_unstruck(words: str) -> None:
    assert plan(words, duration_s=2.0).unstruck is None


def test_a_schedule_that_strikes_has_no_remark() -> None:
    made = plan("crash")
    assert acts(made) == {"kill", "start"}
    assert (made.unstruck, made.remarks) == (None, ())


def test_a_nemesis_left_out_by_the_budget_is_the_reason_if_it_is_the_only_one() -> None:
    """An ack on one copy may be lost by a power cut. With crash beside it something strikes."""
    alone, beside = plan("power", least_isr=1), plan("power,crash", least_isr=1)
    assert alone.unstruck is not None
    assert "power is left out: with min.insync.replicas=1 an ack may rest on the one copy" in alone.unstruck
    assert (alone.schedule, beside.unstruck) == ((), None)
    assert "power_cut" not in acts(beside)
    assert [remark.split(":")[0] for remark in beside.remarks] == ["power is left out"]
    assert "power_cut" in acts(plan("power", least_isr=1, overspend=True))


def test_all_leaves_out_cuts_where_links_are_direct() -> None:
    """With a remark. Containers cut in another way; links that were not chosen become proxied."""
    made = plan("all", duration_s=300.0, links="direct")
    assert made.remarks == ("cut is left out: direct links cannot be cut (--links proxied can)",)
    assert acts(made) >= {"kill", "pause"}
    assert not acts(made) & {"cut", "heal"}
    for links in (None, "proxied"):
        made = plan("all", duration_s=300.0, links=links)
        assert "cut" in acts(made)
        assert made.remarks == ()


@pytest.mark.parametrize("words", ["cut", "partition", "crash,cut", "all,cut"])
def test_a_named_cut_is_refused_where_links_are_direct(words: str) -> None:
    with pytest.raises(UsageError, match="--nemesis cut needs links that can be cut"):
        plan(words, links="direct")


def test_a_schedule_that_cuts_is_refused_where_links_are_direct(tmp_path: Path) -> None:
    """Before anything is started; with proxied links, or none chosen, it is accepted."""
    file = tmp_path / "schedule.json"
    file.write_text('[{"f":"wait","moment":{"at":"time","time":1}},{"f":"cut","grudge":{"n1":["n2"]}}]')
    with pytest.raises(UsageError, match="entry 1 of the schedule is a cut, and direct links cannot be cut"):
        planned(RunSpec(schedule_file=file, links="direct", out=tmp_path / "run"))
    assert planned(RunSpec(schedule_file=file, out=tmp_path / "run")).spec.links == "proxied"
    assert not (tmp_path / "run").exists()


def test_failpoints_without_a_trace_are_refused(tmp_path: Path) -> None:
    """Before anything is started; `all` leaves out moments, the only nemesis that arms failpoints."""
    file = tmp_path / "schedule.json"
    file.write_text('[{"f":"wait","moment":{"at":"time","time":1}},'
                    '{"f":"arm","nodes":["n1"],"point":{"name":"L.acked","action":"report"}}]')
    options = RunSpec(schedule_file=file, out=tmp_path / "run")
    with pytest.raises(UsageError, match="entry 1 of the schedule arms a failpoint, and they are "
    "observed in the trace: leave out --no-trace"):
        planned(replace(options, trace=False))
    assert planned(options).schedule[1].f == "arm"
    for words in ("moments", "all,moments"):
        with pytest.raises(UsageError, match=r"--nemesis moments arms failpoints, .* or leave out moments"):
            plan(words, trace=False)
    made = plan("all", duration_s=300.0, trace=False)
    assert [remark.split(":")[0] for remark in made.remarks] == ["moments is left out"]
    assert "arm" in acts(plan("all", duration_s=300.0))
    assert "arm" not in acts(made)
    assert "kill" in acts(made)
    assert not (tmp_path / "run").exists()


def test_moments_strike_where_brokers_have_failpoints() -> None:
    """Every cluster of the reference broker has them; another system, or a user's own cluster, has none."""
    assert "moments" in catalog.nemeses("all")
    assert "moments" in catalog.nemeses("all", "simulated")
    context = PlanningContext(
        spec=RunSpec(nemesis="all", partitions=1, seed=1, duration=60.0), nodes=("n1", "n2", "n3"),
        min_insync_replicas=2, unsupported={"moments": "it has no failpoints"})
    planned_all = random_schedule(context)
    assert "moments is left out: it has no failpoints" in planned_all.remarks
    assert not {"arm", "release"} & {entry.f for entry in planned_all.schedule}
    with pytest.raises(UsageError, match="--nemesis moments is impossible here: it has no failpoints"):
        random_schedule(replace(context, spec=replace(context.spec, nemesis="moments")))
    with pytest.raises(UsageError, match="the somebodys cluster has no moments here"):
        catalog.nemeses("moments", "somebodys")
    assert {"arm", "release"} <= acts(plan("moments", duration_s=60.0))


def test_a_wait_for_a_failpoint_or_a_state_has_a_time_limit() -> None:
    """A wait for a failpoint or a state ends at a given time at the latest."""
    waits = [entry.moment for entry in plan("moments", duration_s=600.0).schedule
             if entry.moment is not None and not isinstance(entry.moment, Time)]
    assert waits
    assert all([type(part) for part in moment.of][1:] == [Time] for moment in waits)
    assert {moment.of[0].at for moment in waits} == {"failpoint", "state"}


def test_a_direct_link_is_not_cut_by_any_nemesis() -> None:
    assert not acts(plan("controller,moments", duration_s=900.0, links="direct")) & {"cut", "heal"}
    assert "cut" in acts(plan("controller,moments", duration_s=900.0))


def test_kafka_may_lose_by_a_power_cut_what_it_should_have_flushed() -> None:
    """It credits what a killed broker had written, and flushes it only with the next append."""
    config = ("min.insync.replicas=2", "log.flush.interval.messages=1")

    def struck_at_once(kafka: str | None) -> int:
        planned = schedule_of(RunSpec(kafka=kafka, nemesis="power", duration=300.0, seed=5, config=config))
        return max(len(entry.nodes) for entry in planned.schedule if entry.f == "power_cut")

    assert struck_at_once(None) > struck_at_once("2.8.2") == 1


@pytest.mark.parametrize(("broker", "topic", "together"), [
    ("1", None, True), ("1", "9", False), ("9", "1", True)])
def test_a_topics_own_flush_decides_how_many_nodes_may_lose_power(
        broker: str, topic: str | None, together: bool) -> None:
    made = schedule_of(RunSpec(nemesis="power", duration=60.0, seed=5, config=(f"flush.messages={broker}",),
                               topic_config=() if topic is None else (f"flush.messages={topic}",)))
    assert (max(len(entry.nodes) for entry in made.schedule if entry.f == "power_cut") > 1) is together

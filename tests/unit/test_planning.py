"""The planned schedule of a run: what strikes or is left out (planning.txt), and why nothing may strike."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from golden_text import answered_as_written

from floodmark.harness.commands.run import (
    PlannedSchedule,
    PlanningContext,
    planned,
    random_schedule,
    schedule_of,
)
from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.moments import ACTS, Time
from floodmark.harness.spec import RunSpec


def plan(words: str, *, duration_s: float = 30.0, links: str | None = None, least_isr: int = 2,
         cluster: str = "local", overspend: bool = False, trace: bool = True,
         flush_every: bool = False, lacks: str = "") -> PlannedSchedule:
    return random_schedule(PlanningContext(
        spec=RunSpec(nemesis=words, cluster=cluster, partitions=1, links=links, seed=1, duration=duration_s,
                     interval=2.0, overspend=overspend, trace=trace),
        nodes=("n1", "n2", "n3"), min_insync_replicas=least_isr, flush_every=flush_every,
        unsupported={lacks: "a reason"} if lacks else {}))


def acts(made: PlannedSchedule) -> set[str]:
    return {entry.f for entry in made.schedule} - ACTS


def shown(line: str) -> str:
    """A nemesis with options; the acts of its schedule, what is remarked, and why nothing strikes."""
    words, *options = line.split()
    given = {name: {"yes": True, "no": False}.get(value, int(value) if value.isdigit() else value)
             for name, value in (option.split("=") for option in options)}
    try:
        made = plan("" if words == "-" else words, **given)
    except UsageError as error:
        return f"! {error}"
    told = [" ".join(sorted(acts(made))) or "nothing", *made.remarks]
    return f"= {'; '.join([*told, *filter(None, [made.no_faults_reason])])}"


def test_what_is_planned(request: pytest.FixtureRequest) -> None:
    answered_as_written("planning.txt", shown, request)


@pytest.mark.parametrize(("entry", "options", "why"), [
    ('{"f":"cut","grudge":{"n1":["n2"]}}', {"links": "direct"}, "is a cut, and direct links cannot be cut"),
    ('{"f":"arm","nodes":["n1"],"point":{"name":"L.acked","action":"report"}}', {"trace": False},
     "arms a failpoint, and they are observed in the trace: leave out --no-trace"),
])
def test_a_schedule_that_the_options_make_impossible_is_refused(
        tmp_path: Path, entry: str, options: dict[str, Any], why: str) -> None:
    """Before anything is started: a cut of direct links, a failpoint without a trace. Else it is accepted."""
    file = tmp_path / "schedule.json"
    file.write_text(f'[{{"f":"wait","moment":{{"at":"time","time":1}}}},{entry}]')
    spec = RunSpec(schedule_file=file, out=tmp_path / "run")
    with pytest.raises(UsageError, match=f"entry 1 of the schedule {why}"):
        planned(replace(spec, **options))
    plan = planned(spec)
    assert plan.schedule[1].f in entry
    assert plan.spec.links == ("proxied" if plan.schedule[1].f == "cut" else "direct")
    assert not (tmp_path / "run").exists()


def test_a_wait_for_a_failpoint_or_a_state_has_a_time_limit() -> None:
    """A wait for a failpoint or a state ends at a given time at the latest."""
    waits = [entry.moment for entry in plan("moments", duration_s=600.0).schedule
             if entry.moment is not None and not isinstance(entry.moment, Time)]
    assert waits
    assert all([type(part) for part in moment.of][1:] == [Time] for moment in waits)
    assert {moment.of[0].at for moment in waits} == {"failpoint", "state"}


@pytest.mark.parametrize(("kafka", "broker", "topic", "together"), [
    (None, "1", None, True), (None, "1", "9", False), (None, "9", "1", True), ("2.8.2", "1", None, False)])
def test_a_topics_own_flush_decides_how_many_nodes_may_lose_power(
        kafka: str | None, broker: str, topic: str | None, together: bool) -> None:
    """Kafka may lose what it should have flushed: it credits what a killed broker had written, and flushes it
    only with the next append."""
    made = schedule_of(RunSpec(
        kafka=kafka, nemesis="power", duration=60.0, seed=5,
        config=("min.insync.replicas=2", f"log.flush.interval.messages={broker}"),
        topic_config=() if topic is None else (f"flush.messages={topic}",)))
    assert (max(len(entry.nodes) for entry in made.schedule if entry.f == "power_cut") > 1) is together

"""Plays scenarios on the simulated cluster: the shipped ones, and those of tests/teeth/scenarios, for
known-bad rules that these do not show. Their rows, and their look-alikes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from floodmark.harness import catalog
from floodmark.harness.cluster.log_extents import Lost, partition_folders, segments_of
from floodmark.harness.cluster.simulated.place import SimulatedPlace
from floodmark.harness.commands import scenario as scenario_command
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import Part, play
from floodmark.harness.pipeline import Played
from floodmark.harness.report.run_summary import SCENARIO
from floodmark.harness.schedule.moments import Schedule
from floodmark.harness.spec import RULES, RunPlan, RunSpec
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.scenario import REFERENCE, load, shipped, why_not_played

LOOK_ALIKE = "hw-isr-only"  # before 0.10.2 only the ISR held back the HW: liveness, no bug
AT_ONCE = 2
ENDLESS = "epoch-nobody-wrote-in"  # a follower asks again at once, for ever: no long wait
TORN = "torn-write"  # the scenario whose power cut leaves a torn batch

WORDS = scenario_words()
SHIPPED = shipped(WORDS)
OWN = tuple(load(path, WORDS) for path in sorted(Path(__file__).parents[1].glob("teeth/scenarios/*.toml")))
ALL = tuple(Part(scenario=scenario, row=row) for scenario in (*SHIPPED, *OWN) for row in scenario.rows
            if why_not_played(scenario.schedule, row, REFERENCE) is None)


def look_alikes() -> tuple[Part, ...]:
    """The correct broker of the latest rules in each scenario, with the older rule that is no bug."""
    correct = {
        part.scenario.name: part
        for part in reversed(ALL)
        if part.row.control and part.row.rules == RULES[-1] and not part.row.bugs
    }
    return tuple(
        replace(part, row=replace(part.row, switches=(*part.row.switches, LOOK_ALIKE)))
        for part in reversed(correct.values())
        if LOOK_ALIKE not in part.row.switches
    )


def plays(parts: Sequence[Part], parent: Path) -> list[Played]:
    with patch.object(SimulatedPlace, "power_cut", torn_power_cut), \
            patch.object(scenario_command, "planned", planned_here):
        return play(parts, catalog.SIMULATED, parent, at_once=AT_ONCE)


def played(parts: Sequence[Part], parent: Path) -> list[tuple[Played, Verdict]]:
    """Plays the parts, and judges them all in one call."""
    found = plays(parts, parent)
    return list(zip(found, catalog.judge().judge([one.folder for one in found]), strict=True))


def planned_here(options: RunSpec, schedule: Schedule, *, ask_broker: bool) -> RunPlan:
    plan = planned(options, schedule, ask_broker=ask_broker)
    return replace(plan, settle_timeout_s=0.3) if (options.asked or {})[SCENARIO] == ENDLESS else plan


_power_cut = SimulatedPlace.power_cut


async def torn_power_cut(place: SimulatedPlace, name: str, keep: Mapping[str, int] | None) -> Lost:
    """A power cut; in TORN each log then has one more batch, whose last byte was not written."""
    lost = await _power_cut(place, name, keep)
    log_dir = await place.log_dir(name)
    if any(TORN in part for part in log_dir.parts):
        for folder in partition_folders(log_dir):
            (segment,) = segments_of(log_dir / folder)
            whole = segment.read_bytes()  # one record
            segment.write_bytes(whole + (1).to_bytes(8, "big") + whole[8:-1] + b"\xff")
    return lost

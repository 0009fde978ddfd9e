"""Plays the shipped scenarios on the simulated cluster: their rows, and their look-alikes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from floodmark.harness import catalog
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.scenario_runs import Part, Played, play
from floodmark.harness.verdict import Verdict
from floodmark.nemesis.scenario import shipped
from floodmark.nemesis.systems import REFERENCE, why_not_played

LOOK_ALIKE = "hw-isr-only"  # before 0.10.2 only the ISR held back the HW: liveness, no bug
AT_ONCE = 2

SCENARIOS = shipped(scenario_words())
ALL = tuple(Part(scenario=scenario, row=row) for scenario in SCENARIOS for row in scenario.rows
            if why_not_played(scenario.schedule, row, REFERENCE) is None)


def look_alikes() -> tuple[Part, ...]:
    """The correct broker of the latest rules in each scenario, with the older rule that is no bug."""
    correct = {
        part.scenario.name: part
        for part in reversed(ALL)
        if part.row.control and part.row.rules == catalog.RULES[-1] and not part.row.bugs
    }
    return tuple(
        replace(part, row=replace(part.row, switches=(*part.row.switches, LOOK_ALIKE)))
        for part in reversed(correct.values())
        if LOOK_ALIKE not in part.row.switches
    )


def plays(parts: Sequence[Part], parent: Path) -> list[Played]:
    return play(parts, catalog.SIMULATED, parent, at_once=AT_ONCE, say=lambda _: None)


def played(parts: Sequence[Part], parent: Path) -> list[tuple[Played, Verdict]]:
    """Plays the parts, and judges them all in one call."""
    found = plays(parts, parent)
    return list(zip(found, catalog.judge().judge([one.folder for one in found]), strict=True))

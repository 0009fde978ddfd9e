"""The twin finds in a trace what was planted there, and nothing else; in healthy traces it finds no bug."""

from pathlib import Path
from random import Random
from typing import Any

import damages_trace_isr
import pytest
import twin
from damages import Damage, Expect
from damages_trace import DAMAGES, NEAR_MISSES
from how_many import cases
from traces import traced

FILES = damages_trace_isr.FILES
TRIES = cases(4, few=2)  # folders a damage
HEALTHY, ROUGH = cases(60, few=20), 30


@pytest.mark.parametrize("clock_error_ns", [0, 2_000_000])
def test_a_healthy_trace_has_no_findings(clock_error_ns: int, tmp_path: Path) -> None:
    """Kills, restarts, single power cuts, zombies and elections: valid, in every order the clocks allow."""
    for seed in range(HEALTHY):
        folder = traced(Random(f"healthy {seed}"), clock_error_ns=clock_error_ns)
        verdict = twin.judge(folder.write(tmp_path / str(seed)))
        said = verdict["valid"], verdict["findings"], verdict["unknown"]

        assert said == (True, [], [])


def test_permitted_losses_are_no_bugs(tmp_path: Path) -> None:
    """With unclean elections and too many power cuts records are lost, and every finding names its
    permission."""
    found = set()
    for seed in range(ROUGH):
        folder = traced(Random(f"rough {seed}"), rough=True)
        verdict = twin.judge(folder.write(tmp_path / str(seed)))
        assert verdict["valid"] is True, (seed, verdict["findings"])
        found |= {(one["name"], one["permitted_by"]) for one in verdict["findings"]}

    assert {("leader-incomplete", "unclean.leader.election.enable"), ("leader-incomplete", "fault budget"),
            ("unsafe-truncation", "unclean.leader.election.enable"), ("unsafe-truncation", "fault budget"),
            } <= found


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    """Every planted damage is found under its names and classes, and nothing else is found."""
    planted(DAMAGES[name], name, tmp_path)


@pytest.mark.parametrize("name", sorted(NEAR_MISSES))
def test_a_near_miss_is_passed_over(name: str, tmp_path: Path) -> None:
    """A change that only looks like damage brings no finding."""
    planted(NEAR_MISSES[name], name, tmp_path)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_spoilt_trace_proves_less(name: str, tmp_path: Path) -> None:
    """The checks without an answer are listed, and certain findings remain."""
    planted(FILES[name], name, tmp_path)


def planted(plant: Damage, name: str, tmp_path: Path) -> None:
    """Plants it in several healthy folders, some with a clock error."""
    done = 0
    for seed in range(TRIES):
        random = Random(f"{name} {seed}")
        folder = traced(random, clock_error_ns=500_000 * (seed % 2))
        expect = plant(folder, random)
        if expect is not None:
            holds(expect, twin.judge(folder.write(tmp_path / str(seed))))
            done += 1
    assert done > 0


def holds(expect: Expect, verdict: dict[str, Any]) -> None:
    found = {one["name"]: (one["class"], one["permitted_by"]) for one in verdict["findings"]}
    bug = any(kind[0] == "bug" for kind in expect.must.values())

    assert expect.must == found
    assert sorted(expect.unknown) == verdict["unknown"]
    assert (expect.valid if expect.valid is not None else not bug) == verdict["valid"]

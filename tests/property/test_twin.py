"""The twin finds what was planted, and nothing else; in healthy folders it finds nothing at all."""

from pathlib import Path
from random import Random
from typing import Any

import damages_clients
import damages_files
import damages_logs
import damages_losses
import pytest
import twin
from damages import DAMAGES, FILES, NEAR_MISSES, Damage, Expect

from histories import healthy

ADDED_BY = (damages_clients, damages_files, damages_logs, damages_losses)  # imported for what they add
NOT_SETTLED = ("a_dead_replica_keeps_its_tail", "a_failed_value_above_the_high_watermark")
UNSETTLED = {"diverged", "under-replicated", "unseen"}
TRIES = 12  # folders a damage


@pytest.mark.parametrize("seed", range(150))
def test_a_healthy_run_has_no_findings(seed: int, tmp_path: Path) -> None:
    """Settled: valid. Not settled: unknown, and exactly what cannot be told then."""
    random = Random(f"healthy {seed}")
    settled = random.random() < 0.7
    verdict = twin.judge(healthy(random, settled=settled).write(tmp_path / "run"))

    assert verdict["findings"] == []
    assert settled == (verdict["valid"] is True)
    assert (set() if settled else UNSETTLED) == set(verdict["unknown"])


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    """Every planted damage is found under its name and class, and nothing is found that it does not bring
    along."""
    assert planted(DAMAGES[name], name, tmp_path) > 0


@pytest.mark.parametrize("name", sorted(NEAR_MISSES))
def test_a_near_miss_is_passed_over(name: str, tmp_path: Path) -> None:
    """What looks like damage and is none brings no finding."""
    assert planted(NEAR_MISSES[name], name, tmp_path) > 0


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_spoilt_file_makes_it_unknown(name: str, tmp_path: Path) -> None:
    """A folder that cannot be judged in full says so, by the names of the checks, and is never called
    broken."""
    assert planted(FILES[name], name, tmp_path) > 0


def planted(plant: Damage, name: str, tmp_path: Path) -> int:
    """Plant it in several healthy folders; how many lent themselves to it."""
    done = 0
    for seed in range(TRIES):
        random = Random(f"{name} {seed}")
        settled = plant.__name__ not in NOT_SETTLED
        folder = healthy(random, settled=settled)
        expect = plant(folder, random)
        if expect is not None:
            holds(expect, twin.judge(folder.write(tmp_path / str(seed))), settled=settled)
            done += 1
    return done


def holds(expect: Expect, verdict: dict[str, Any], *, settled: bool) -> None:
    found = {(one["name"], one["class"], one["permitted_by"]) for one in verdict["findings"]}
    must = {(name, *kind) for name, kind in expect.must.items()}
    extra = {one for one in found - must if one[0] not in expect.may}
    unknown = set(verdict["unknown"])
    valid = expect.valid
    if valid is None:
        healthy_one = True if settled else "unknown"
        valid = False if any(kind[0] == "bug" for kind in expect.must.values()) else healthy_one

    assert set() == must - found
    assert set() == extra
    assert expect.unknown <= unknown
    assert valid == verdict["valid"]

"""The twin finds what was planted, and nothing else; in healthy folders it finds nothing."""

from pathlib import Path
from random import Random

import damages_clients
import damages_files
import damages_isolation
import damages_logs
import damages_losses
import damages_orders
import damages_txn
import damages_unread
import pytest
import twin
from damages import DAMAGES, FILES, NEAR_MISSES
from how_many import cases
from planting import UNSETTLED, planted

from histories import healthy

ADDED_BY = (  # imported because they register their damages
    damages_clients, damages_files, damages_isolation, damages_logs, damages_losses, damages_orders,
    damages_txn, damages_unread)
TRIES = 12  # folders a damage


@pytest.mark.parametrize("seed", range(cases(150, few=30)))
def test_a_healthy_run_has_no_findings(seed: int, tmp_path: Path) -> None:
    """Settled: valid. Not settled: unknown, with exactly the checks that have no answer then."""
    random = Random(f"healthy {seed}")
    settled = random.random() < 0.7
    verdict = twin.judge(healthy(random, settled=settled).write(tmp_path / "run"))

    assert verdict["findings"] == []
    assert settled == (verdict["valid"] is True)
    assert (set() if settled else UNSETTLED) == set(verdict["unknown"])


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    """Every planted damage is found under its name and class, with no finding that it does not bring
    along."""
    assert planted(DAMAGES[name], name, tmp_path, healthy, TRIES) > 0


@pytest.mark.parametrize("name", sorted(NEAR_MISSES))
def test_a_near_miss_is_passed_over(name: str, tmp_path: Path) -> None:
    """A change that only looks like damage brings no finding."""
    assert planted(NEAR_MISSES[name], name, tmp_path, healthy, TRIES) > 0


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_spoilt_file_makes_it_unknown(name: str, tmp_path: Path) -> None:
    """A folder that cannot be judged completely lists the checks, and is never called broken."""
    assert planted(FILES[name], name, tmp_path, healthy, TRIES) > 0

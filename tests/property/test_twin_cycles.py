"""The twin on runs with transactions: it finds what was planted, and otherwise only what isolation
permits."""

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
from planting import CYCLES, UNSETTLED, planted
from txn_histories import healthy_txns

ADDED_BY = (  # imported because they register their damages
    damages_clients, damages_files, damages_isolation, damages_logs, damages_losses, damages_orders,
    damages_txn, damages_unread)
OF_TXNS = {damages_txn.__name__, damages_isolation.__name__}
TRIES, TRIES_OF_TXNS = 10, 40  # folders a damage; of those that are about transactions
NOT_WITH_TXNS = {"nothing_acked"}
CATALOGUE = DAMAGES | NEAR_MISSES | FILES


@pytest.mark.parametrize("seed", range(cases(300, few=40)))
def test_a_healthy_run_has_no_bugs(seed: int, tmp_path: Path) -> None:
    """Open transactions interleave and become visible partition by partition; no reads make a cycle."""
    random = Random(f"healthy txns {seed}")
    settled, uncommitted = random.random() < 0.7, random.random() < 0.2
    folder = healthy_txns(random, steps=random.randrange(30, 120), settled=settled, uncommitted=uncommitted)
    verdict = twin.judge(folder.write(tmp_path / "run"))
    names = CYCLES | {"precommitted-read", "G1a"} if uncommitted else CYCLES - {"G1c-realtime"}

    assert {one["permitted_by"] for one in verdict["findings"]} <= {"isolation"}
    assert {one["name"] for one in verdict["findings"]} <= names
    assert settled == (verdict["valid"] is True)
    assert (set() if settled else UNSETTLED) == set(verdict["unknown"])


@pytest.mark.parametrize("name", sorted(CATALOGUE.keys() - NOT_WITH_TXNS))
def test_what_is_planted_is_found(name: str, tmp_path: Path) -> None:
    """Damages, near misses and spoilt files, each as its Expect requires."""
    plant = CATALOGUE[name]
    tries = TRIES_OF_TXNS if plant.__module__ in OF_TXNS else TRIES

    assert planted(plant, name, tmp_path, healthy_txns, tries) > 0

"""Plants damages in healthy folders, and checks the twin against each Expect."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import twin
from damages import Damage, Expect
from how_many import cases

from histories import RunFolder

CYCLES = frozenset({"G0", "G0-process", "G0-realtime", "G1c", "G1c-process", "G1c-realtime"})
NOT_SETTLED = ("a_dead_replica_keeps_its_tail", "a_failed_value_above_the_high_watermark")
UNSETTLED = {"diverged", "under-replicated", "unseen"}


def planted(plant: Damage, name: str, tmp_path: Path, healthy: Callable[..., RunFolder], tries: int) -> int:
    """Plants the damage in so many healthy folders (in `make test` until it fits two); returns how many it
    fitted."""
    done = 0
    for seed in range(tries):
        if done == cases(tries, few=2):
            break
        random = Random(f"{name} {seed}")
        settled = plant.__name__ not in NOT_SETTLED
        folder = healthy(random, settled=settled)
        expect = plant(folder, random)
        if expect is not None:
            path = folder.write(tmp_path / str(seed))
            holds(expect, twin.judge(path), settled=settled, message=f"{name} {seed}: {path}")
            done += 1
    return done


def holds(expect: Expect, verdict: dict[str, Any], *, settled: bool, message: str = "") -> None:
    """Checks that the verdict has every required finding and no other. Findings that the isolation level
    permits are allowed in any run that has transactions."""
    found = {(one["name"], one["class"], one["permitted_by"]) for one in verdict["findings"]}
    must = {(name, *kind) for name, kind in expect.must.items()}
    usual = {(name, "permitted", "isolation") for name in CYCLES}
    extra = {one for one in found - must - usual if one[0] not in expect.may}
    unknown = set(verdict["unknown"])
    valid = expect.valid
    if valid is None:
        healthy_one = True if settled else "unknown"
        valid = False if any(kind[0] == "bug" for kind in expect.must.values()) else healthy_one

    assert set() == must - found, message
    assert set() == extra, message
    assert expect.unknown <= unknown, message
    assert valid == verdict["valid"], message

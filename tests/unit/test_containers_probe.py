"""What the probe's answers mean: the abilities, by what means or why not; what is cached."""

import json
from pathlib import Path
from typing import Any

import pytest
from golden_text import answered_as_written

from floodmark.harness.cluster.containers import ability_probe
from floodmark.harness.cluster.containers.ability_probe import (
    LIMIT,
    NAMES,
    abilities_of,
    offers,
)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def network(*, folder_seen: bool = True, seen: dict[str, Any] | None = None, **errors: str) -> dict[str, Any]:
    """An answer in which everything works except what is given."""
    names = ("cut", "reset", "loss", "netem", "queue", "clock")
    return {
        "can": {name: errors.get(name) for name in names},
        "seen": {"boot_id": BOOT_ID, "memory_limit": LIMIT, "monotonic_ns": 15, **(seen or {})},
        "folder_seen": folder_seen,
        "between_ns": (10, 20),
    }


def disks(**errors: str) -> dict[str, Any]:
    names = {"loops": "loops", "power_cut": "power_cut", "read_only": "read-only"}
    return {"can": {name: errors.get(word) for word, name in names.items()}, "seen": {}}


def meaning(line: str) -> str:
    """Which nemeses are offered, by what means, and what is missing, why, and what to do."""
    if line == "refused":
        answers: dict[str, Any] = {"refused": "rootless"}
        found = abilities_of({**answers, "folder_seen": False, "between_ns": (10, 20)}, answers)
    else:
        given = json.loads(line)
        of_disks = {name: given.pop(name) for name in ("loops", "power_cut", "read_only") if name in given}
        if given.get("seen", {}).get("memory_limit"):
            given["seen"]["memory_limit"] += LIMIT
        found = abilities_of(network(**given), disks(**of_disks))
    assert tuple(found) == NAMES
    means = [f"{name} by {one.how}" for name, one in found.items() if one.can and one.how]
    return "\n".join([
        f"= {'; '.join([', '.join(sorted(offers(found))) or 'nothing', *means])}",
        *(f"! {name}: {one.why} -> {one.todo}" for name, one in found.items() if not one.can)])


def test_what_the_answers_mean(request: pytest.FixtureRequest) -> None:
    answered_as_written("abilities.txt", meaning, request)


# -- the cache -----------------------------------------------------------------------------------------------


def test_abilities_are_cached_for_the_same_engine_alone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not if a loop device is missing, because other runs may have used them all. An unreadable cache is
    ignored: half a file, or one of a version with other names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "floodmark" / "abilities.json"
    ability_probe._cache("this", abilities_of(network(), disks(loops="no device")))
    assert not file.exists()
    found = abilities_of(network(netem="unknown", reset="no REJECT"), disks())
    ability_probe._cache("this", found)
    assert ability_probe._cached("this") == found
    assert ability_probe._cached("that") is None
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    for text in ("", "{", "[]", '{"key": "this"}', '{"key": "this", "abilities": {"flying": {"can": true}}}',
                 '{"key": "this", "abilities": {"cut": {"may": true}}}'):
        file.write_text(text)
        assert ability_probe._cached("this") is None

"""What the probe's answers mean: the abilities, by what means or why not; what is cached."""

from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.cluster.containers import ability_probe
from floodmark.harness.cluster.containers.ability_probe import (
    CLOCK,
    CUT,
    DELAY,
    FOLDER,
    LIMIT,
    LOOPS,
    LOSS,
    MEMORY,
    NAMES,
    ONE_CLOCK,
    RATE,
    READ_ONLY,
    RESET,
    Abilities,
    abilities_of,
    offers,
)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
EVERYTHING = frozenset({"packet", "clock", "disk", "memory"})


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


def missing(found: Abilities) -> dict[str, str]:
    return {name: ability.why for name, ability in found.items() if not ability.can}


def test_all_abilities_are_found() -> None:
    found = abilities_of(network(), disks())

    assert tuple(found) == NAMES
    assert missing(found) == {}
    assert found[LOSS].how == "the firewall"
    assert found[DELAY].how == found[RATE].how == "netem"
    assert offers(found) == EVERYTHING


@pytest.mark.parametrize(("name", "answers", "offered"), [
    (CUT, {"network": network(cut="no rules")}, EVERYTHING),
    (RESET, {"network": network(reset="no REJECT")}, EVERYTHING - {"packet"}),
    (CLOCK, {"network": network(clock="no library")}, EVERYTHING - {"clock"}),
    (MEMORY, {"network": network(seen={"memory_limit": None})}, EVERYTHING - {"memory"}),
    (MEMORY, {"network": network(seen={"memory_limit": LIMIT + 1})}, EVERYTHING - {"memory"}),
    (LOOPS, {"disks": disks(power_cut="all was left")}, EVERYTHING - {"disk"}),
    (LOOPS, {"disks": disks(loops="no device")}, EVERYTHING - {"disk"}),
    (READ_ONLY, {"disks": disks(read_only="no trigger")}, EVERYTHING),
    (ONE_CLOCK, {"network": network(seen={"boot_id": "another"})}, EVERYTHING),
    (ONE_CLOCK, {"network": network(seen={"monotonic_ns": 9})}, EVERYTHING),
    (ONE_CLOCK, {"network": network(seen={"monotonic_ns": 21})}, EVERYTHING),
    (FOLDER, {"network": network(folder_seen=False)}, EVERYTHING),
])
def test_one_error_makes_one_ability_missing(
        name: str, answers: dict[str, Any], offered: frozenset[str]) -> None:
    """With the reason and what to do."""
    found = abilities_of(**{"network": network(), "disks": disks(), **answers})

    assert set(missing(found)) == {name}
    assert found[name].why
    assert found[name].todo
    assert offers(found) == offered


@pytest.mark.parametrize(("errors", "lacking", "how"), [
    ({"netem": "unknown", "loss": "no dice"}, {}, {LOSS: "packet queues", DELAY: "packet queues"}),
    ({"netem": "unknown", "queue": "forbidden"},
     dict.fromkeys((DELAY, RATE), "netem: unknown; packet queues: forbidden"), {LOSS: "the firewall"}),
    ({"netem": "unknown", "queue": "forbidden", "loss": "no dice"}, {
        LOSS: "the firewall: no dice; netem: unknown; packet queues: forbidden",
        **dict.fromkeys((DELAY, RATE), "netem: unknown; packet queues: forbidden")}, {}),
])
def test_another_means_is_used_or_all_reasons_are_named(
        errors: dict[str, str], lacking: dict[str, str], how: dict[str, str]) -> None:
    found = abilities_of(network(**errors), disks())

    assert missing(found) == lacking
    assert {name: found[name].how for name in how} == how
    assert offers(found) == (EVERYTHING - {"packet"} if lacking else EVERYTHING)


def test_an_engine_that_refuses_such_containers() -> None:
    """None of their abilities is there, for the engine's own reason."""
    refused = {"refused": "rootless"}
    found = abilities_of({**refused, "folder_seen": False, "between_ns": (10, 20)}, refused)

    assert set(missing(found)) == set(NAMES)
    assert found[LOOPS].why == "the engine refuses such a container: rootless"
    assert offers(found) == frozenset()


# -- the cache -----------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "floodmark" / "abilities.json"


def test_abilities_are_cached_for_the_same_engine_alone(file: Path) -> None:
    found = abilities_of(network(netem="unknown", reset="no REJECT"), disks())
    ability_probe._cache("this", found)

    assert ability_probe._cached("this") == found
    assert ability_probe._cached("that") is None
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_missing_loop_device_is_not_cached(file: Path) -> None:
    """Other runs may have used them all."""
    ability_probe._cache("this", abilities_of(network(), disks(loops="no device")))

    assert not file.exists()


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"key": "this"}', '{"key": "this", "abilities": {"flying": {"can": true}}}',
    '{"key": "this", "abilities": {"cut": {"may": true}}}'])
def test_an_unreadable_cache_is_ignored(file: Path, text: str) -> None:
    """Half a file, or one of a version with other names."""
    file.parent.mkdir()
    file.write_text(text)

    assert ability_probe._cached("this") is None

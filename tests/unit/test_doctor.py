"""The doctor's findings: how they determine the exit code and are printed; a machine without an engine."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from golden_text import as_written

from floodmark.harness.cluster.containers.ability_probe import DELAY, LOOPS, NAMES, Ability, Facts
from floodmark.harness.commands import doctor
from floodmark.harness.commands.doctor import (
    Engine,
    FaultRow,
    Row,
    engine_rows,
    examine_machine,
    fault_rows,
    lacking,
    tables,
)
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import DISKS_BAD, DISKS_DAMAGED, FAULTS
from floodmark.harness.report.terminal import WIDTH
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_VALID

ABLE = Engine(rows=(), abilities=dict.fromkeys(NAMES, Ability(can=True)))
UNABLE = Engine(rows=(), abilities=dict.fromkeys(NAMES, Ability(can=False, why="no kernel", todo="get one")))
UNKNOWN = Engine(rows=(), abilities=None, why_unknown="there is no container engine")
BOTH = ("containers", "local", "simulated")
SOME = Engine(rows=(), abilities={  # where there are several means, the one that is used is shown
    **ABLE.abilities, DELAY: Ability(can=True, how="netem"), LOOPS: Ability(can=False, why="none")})
ROWS = (
    Row(part="this machine", item="Python", can=True, detail="3.11.7", needed_by=BOTH),
    Row(part="this machine", item="judge", can=False, detail="no java on PATH", todo="install it",
        needed_by=BOTH),
    Row(part="containers", item="engine", can=False, detail="nobody answers", todo="start it",
        needed_by=("containers",)),
    Row(part="containers", item="image", can=None, detail="not built", todo="build it"),
)


def facts(**changes: object) -> Facts:
    known = {"name": "Docker 20.10", "storage": "overlay2", "tools": "floodmark-tools:1", "base": "base:1",
             "wanted_base": "base:1", "base_available": None, "base_why_not": ""}
    return Facts(**{**known, **changes})  # type: ignore[arg-type]


NO_IMAGES = {"tools": None, "base": None, "base_available": True}
OFFLINE = {**NO_IMAGES, "base_why_not": "no such host"}


def machines() -> dict[str, tuple[Sequence[Row], Sequence[FaultRow]]]:
    return {
        "rows of each kind": (ROWS, ()),
        "an engine that can do everything": (engine_rows(facts()), fault_rows(ABLE)),
        "one that can do what needs no right: what is left are faults of brokers": ((), fault_rows(UNABLE)),
        "one that has no loop devices, and delays by netem": ((), fault_rows(SOME)),
        "none": ((), fault_rows(UNKNOWN)),
        "images that can be fetched": (engine_rows(facts(**NO_IMAGES)), ()),
        "images that can be made of Debian's packages": (engine_rows(facts(**OFFLINE)), ()),
        "images that cannot be had": (engine_rows(facts(**{**OFFLINE, "base_available": False})), ()),
    }


def test_what_is_found_is_printed_with_what_to_do_beneath(
        request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """golden/doctor.txt: for the cluster in containers, and what that lacks."""
    now = ""
    monkeypatch.setenv("DOCKER_HOST", "unix:///engine.sock")
    for title, (rows, faults) in machines().items():
        printed = "\n\n".join(tables(rows, faults, chosen="containers"))
        now += f"== {title}; lacks {', '.join(lacking(rows, 'containers')) or 'nothing'}\n{printed}\n"
    as_written("doctor.txt", "\n".join(map(str.rstrip, now.splitlines())) + "\n", request)


def test_what_only_another_cluster_needs_is_not_missing_and_a_long_detail_has_its_own_line() -> None:
    assert lacking(ROWS, "local") == ["judge"]
    assert "no engine nobody answers" in " ".join("\n".join(tables(ROWS, [], chosen="local")).split())
    (rows,) = tables([replace(ROWS[0], detail="x" * 300)], [], chosen="local")[:1]
    assert len(rows.splitlines()[1]) <= WIDTH < len(rows.splitlines()[2]), "the line under the heads"


def test_every_fault_is_listed_but_no_undo() -> None:
    listed = {row.fault for row in fault_rows(ABLE)}
    undo = {fault.undone_by for fault in FAULTS.values()}
    assert {name.split(maxsplit=1)[0] for name in listed} == set(FAULTS) - undo
    assert {f"disk {kind}" for kind in DISKS_DAMAGED} | {f"bad_disk {kind}" for kind in DISKS_BAD} < listed


# -- the whole doctor -------------------------------------------------------------------------------------


@pytest.fixture
def _no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")


@pytest.mark.usefixtures("_no_engine")
def test_without_an_engine_the_local_cluster_can_run(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "doctor.json"

    assert examine_machine(json_file=file) == EXIT_VALID
    output = capsys.readouterr().out
    assert "?: what containers can suffer here is not known, for there is no container engine" in output
    assert "no container engine answers" in output
    assert "DOCKER_HOST" in output
    assert "the local cluster can run here" in output
    assert "the containers cluster cannot run here: see engine" in output
    findings = json.loads(file.read_text())
    assert findings["clusters"]["local"] == {"fit": True, "lacks": []}
    assert findings["clusters"]["containers"] == {"fit": False, "lacks": ["engine"]}
    assert {row["containers"] for row in findings["faults"]} == {None}
    assert examine_machine(cluster="containers") == EXIT_HARNESS
    assert "NO engine" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("_no_engine")
def test_without_java_no_cluster_can_run(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert examine_machine() == EXIT_HARNESS
    output = " ".join(capsys.readouterr().out.split())
    assert "NO judge" in output
    assert "there is no bin/java in it" in output
    assert "the local cluster cannot run here: see judge" in output


def test_a_machine_without_room_shows_its_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "DISK_AT_LEAST", 1 << 60)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: SimpleNamespace(available=300 << 20))

    def broken() -> None:
        raise FloodmarkError("the broker does not say which rules it knows: it is not there")

    monkeypatch.setattr(doctor, "scenario_words", broken)
    rows = {row.item: row for row in doctor.machine_rows(tmp_path)}

    assert lacking(list(rows.values()), "local") == ["memory", "disk", "broker"]
    assert rows["memory"].detail == "315 MB available"
    assert "--out" in rows["disk"].todo
    assert rows["ports"].can

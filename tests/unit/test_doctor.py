"""The doctor's findings: how they determine the exit code and are printed; a machine without an engine."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

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
ROWS = (
    Row(part="this machine", item="Python", can=True, detail="3.11.7", needed_by=BOTH),
    Row(part="this machine", item="judge", can=False, detail="no java on PATH", todo="install it",
        needed_by=BOTH),
    Row(part="containers", item="engine", can=False, detail="nobody answers", todo="start it",
        needed_by=("containers",)),
    Row(part="containers", item="image", can=None, detail="not built", todo="build it"),
)
FAULT_ROWS = (
    FaultRow(fault="kill", does="SIGKILL", local=True, simulated=True, containers=True),
    FaultRow(fault="packet delay", does="late", local=False, simulated=False, containers=True,
             detail="by netem"),
    FaultRow(fault="memory", does="limit", local=False, simulated=False, containers=False,
             detail="no group", todo="boot so"),
)


def shown(chosen: str = "local") -> list[str]:
    """The lines with text, their words one space apart."""
    lines = "\n".join(tables(ROWS, FAULT_ROWS, chosen=chosen)).splitlines()
    return [" ".join(line.split()) for line in lines if set(line) - {"-", " "}]


# -- printing --------------------------------------------------------------------------------------------


def test_findings_are_a_line_each_with_what_to_do_beneath() -> None:
    assert shown() == [
        "this machine",
        "yes Python 3.11.7",
        "NO judge no java on PATH",
        "-> install it",
        "containers",
        "no engine nobody answers",
        "-> start it",
        "? image not built",
        "-> build it",
        "faults local simul. containers",
        "kill yes yes yes SIGKILL",
        "packet delay no no yes late (by netem)",
        "memory no no no no group",
        "-> boot so",
    ]
    assert "NO engine nobody answers" in shown(chosen="containers")  # what the chosen cluster is missing
    (rows,) = tables([replace(ROWS[0], detail="x" * 300)], [], chosen="local")[:1]
    assert len(rows.splitlines()[1]) <= WIDTH < len(rows.splitlines()[2]), "the line under the heads"


# -- decisions -------------------------------------------------------------------------------------------


def test_a_cluster_is_missing_what_it_needs_and_the_machine_has_not() -> None:
    """What only another cluster needs does not count, nor what is unknown."""
    assert lacking(ROWS, "local") == ["judge"]
    assert lacking(ROWS, "containers") == ["judge", "engine"]


def test_every_fault_is_listed_but_no_undo() -> None:
    listed = {row.fault for row in fault_rows(ABLE)}
    undo = {fault.undone_by for fault in FAULTS.values()}

    assert {name.split(maxsplit=1)[0] for name in listed} == set(FAULTS) - undo
    assert {f"disk {kind}" for kind in DISKS_DAMAGED} | {f"bad_disk {kind}" for kind in DISKS_BAD} < listed
    assert all(row.containers for row in fault_rows(ABLE))


def test_the_local_and_the_simulated_cluster_have_the_faults_they_implement() -> None:
    rows = fault_rows(UNKNOWN)
    local = {"kill", "stop", "pause", "cut", "power_cut", "expire", "elect", "disk wiped", "arm"}

    assert {row.fault for row in rows if row.local} == local
    assert {row.fault for row in rows if row.simulated} == local | {"reset"}


def test_an_engine_without_abilities_leaves_the_faults_of_brokers() -> None:
    """A power cut is simulated on files then, and the detail says so. Where there are several means, the
    one that is used is shown; full and failing disks need loop devices, for they must not be the machine's
    own."""
    rows = {row.fault: row for row in fault_rows(UNABLE)}

    assert {name for name, row in rows.items() if row.containers} == {
        "kill", "stop", "pause", "power_cut", "expire", "elect", "disk wiped", "disk corrupt",
        "disk truncated", "arm"}
    assert "on files" in rows["power_cut"].detail
    assert "no kernel" in rows["power_cut"].detail
    assert (rows["cut"].detail, rows["cut"].todo) == ("no kernel", "get one")

    abilities = {**dict.fromkeys(NAMES, Ability(can=True)), DELAY: Ability(can=True, how="netem"),
                 LOOPS: Ability(can=False, why="none")}
    rows = {row.fault: row for row in fault_rows(Engine(rows=(), abilities=abilities))}
    assert (rows["packet delay"].detail, rows["cut"].detail) == ("by netem", "")
    assert [kind for kind in DISKS_BAD if not rows[f"bad_disk {kind}"].containers] == ["full", "failing"]


# -- the engine ------------------------------------------------------------------------------------------


def facts(**changes: object) -> Facts:
    known = {"name": "Docker 20.10", "storage": "overlay2", "tools": "floodmark-tools:1", "base": "base:1",
             "wanted_base": "base:1", "base_available": None, "base_why_not": ""}
    return Facts(**{**known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("changes", "missing", "detail", "todo"), [
    ({}, [], "", ""),
    ({"tools": None, "base": None, "base_available": True}, [], "fetched", "--build"),
    ({"tools": None, "base": None, "base_available": True, "base_why_not": "no such host"}, [],
     "made of Debian's packages", "--build"),
    ({"tools": None, "base": None, "base_available": False, "base_why_not": "no such host"}, ["base image"],
     "no such host", "FLOODMARK_BASE_IMAGE"),
])
def test_images_that_can_be_fetched_or_built_are_not_missing(
        changes: dict[str, object], missing: list[str], detail: str, todo: str) -> None:
    rows = engine_rows(facts(**changes))

    assert lacking(rows, "containers") == missing
    if changes:
        of = {row.item: row for row in rows}
        assert of["base image"].can is (False if missing else None)
        assert detail in of["base image"].detail
        assert todo in of["base image" if missing else "image"].todo


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

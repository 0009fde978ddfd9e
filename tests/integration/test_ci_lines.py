"""The files for CI servers in harness/campaign/README.md: their script lines run as written, with a small
campaign, in an empty folder and an environment of its own."""

import os
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest
import yaml
from command_line import floodmark
from installed import environment_in, wheel_in
from namesakes import COMPLAINT, planted
from readme import block

from floodmark.harness.campaign.plan import preset_text, presets, read
from floodmark.harness.cluster.own.fault_commands import read_fault_commands
from floodmark.harness.commands import run as run_command

GITHUB, GITLAB = "# .github/workflows/floodmark.yml", "# .gitlab-ci.yml"
OWN, FAULTS = "# the steps for a cluster by compose", "# floodmark-faults.toml"
LINES_S = 600.0


def github() -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load(block(GITHUB))["jobs"]["campaign"]
    return job


def gitlab() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(block(GITLAB))
    return jobs


def github_step(name: str) -> str:
    (step,) = [step for step in github()["steps"] if step.get("name") == name]
    return str(step["run"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_in(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment, after the files' own line has installed floodmark there."""
    programs = environment_in(tmp_path_factory.mktemp("environment"), with_pip=True).parent
    folder = tmp_path_factory.mktemp("install")
    answer = ran(github_step("install"), folder, programs, FLOODMARK=str(wheel), PIP_NO_DEPS="1")
    assert answer.returncode == 0, answer.stderr
    assert (programs / "floodmark").exists()
    return programs


def ran(lines: str, folder: Path, programs: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs them as both servers do: by bash, which ends with the first line that fails. Packages of our names
    are in the folder, first on the path, as a user's checkout may have them."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", lines], cwd=folder, capture_output=True, text=True, timeout=LINES_S,
        check=False, env={**planted(folder), "PATH": path, "FLOODMARK_RUNS": "1", "KNOWN": "", "REASON": "",
                          "KAFKA": "", **variables})


def is_red(folder: Path) -> bool:
    (suite,) = ElementTree.parse(folder / "junit.xml").getroot()
    return int(suite.attrib["failures"]) + int(suite.attrib["errors"]) > 0


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("kafka", ["", pytest.param("4.3.1", marks=pytest.mark.kafka)])
def test_the_lines_run_as_they_stand(installed: Path, tmp_path: Path, kafka: str) -> None:
    """GitHub's lines, which GitLab's repeat (below); with the preset of a push, because a night's run takes
    longer."""
    answer = ran(github_step("run and gate"), tmp_path, installed, PRESET="smoke", KAFKA=kafka)
    assert answer.returncode in (0, 1, 3), answer.stderr
    assert COMPLAINT not in answer.stdout + answer.stderr
    assert is_red(tmp_path) == (answer.returncode != 0), answer.stdout
    assert (tmp_path / "summary.md").read_text().startswith("## floodmark: ")
    ledger = orjson.loads((tmp_path / "ledger" / "ledger.json").read_bytes())
    (night,) = ledger["campaigns"].values()
    assert [*night["runs"]] == [f"kafka-{kafka}+kip-320" if kafka else "kip-320"]
    assert answer.stdout.splitlines()[-1] == "histories/runs/campaign"
    assert (tmp_path / "histories" / "runs" / "campaign" / "index.html").exists()
    shown = ran(github_step("the page"), tmp_path, installed, GITHUB_STEP_SUMMARY=str(tmp_path / "page"))
    assert (shown.returncode, (tmp_path / "page").read_text()) == (0, (tmp_path / "summary.md").read_text())


@pytest.mark.long
def test_marking_by_hand(installed: Path, tmp_path: Path) -> None:
    """An unknown signature ends the job: a mark that fails is not ignored."""
    answer = ran(github_step("mark what is known"), tmp_path, installed, KNOWN="0123456789", REASON="KAFKA-1")
    assert (answer.returncode, "no signature '0123456789'" in answer.stderr) == (4, True), answer.stderr


def test_both_servers_do_the_same_for_a_push_and_a_night() -> None:
    assert [github_step("run and gate")] == gitlab()[".campaign"]["script"]
    assert [github_step("mark what is known")] == gitlab()["known"]["script"]
    assert github_step("install") in gitlab()[".floodmark"]["before_script"]
    kafka = github()["env"]["KAFKA"]
    assert gitlab()[".floodmark"]["variables"]["KAFKA"] == kafka
    asked = [gitlab()[name]["variables"]["PRESET"] for name in ("gate", "night")]
    assert asked == ["smoke", "nightly"]
    for preset in asked:
        assert preset in {*presets()} & {*presets(kafka)}
        assert f"'{preset}'" in github()["env"]["PRESET"]
    for version in (None, kafka):
        smoke, nightly = (read(preset_text(preset, version), preset).budget_s or 0 for preset in asked)
        assert smoke < 600
        assert nightly < 60 * github()["timeout-minutes"]
        assert smoke < 60 * int(gitlab()["gate"]["timeout"].rstrip("m"))
        assert nightly < 3600 * int(gitlab()["night"]["timeout"].rstrip("h"))


def test_the_steps_for_an_own_cluster_are_valid(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options, and the file of faults; nothing is run."""
    monkeypatch.chdir(tmp_path)
    Path(FAULTS.removeprefix("# ")).write_text(block(FAULTS))
    read_fault_commands(Path(FAULTS.removeprefix("# ")))
    assert tomllib.loads(block(FAULTS))["commands"].keys() >= {"kill", "start", "pause", "resume"}
    asked = []
    monkeypatch.setattr(run_command, "run_and_judge", lambda spec, **_: asked.append(spec) or 0)
    (step,) = yaml.safe_load(block(OWN))
    up, run = step["run"].strip().splitlines()
    assert up.startswith("docker compose up")
    assert floodmark(*shlex.split(run)[1:]).code == 0
    (spec,) = asked
    assert (spec.bootstrap, spec.may_break) == ("localhost:9092", True)
    assert spec.faults_file == Path(FAULTS.removeprefix("# "))

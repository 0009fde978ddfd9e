"""The files for CI servers in harness/campaign/README.md: their script lines run as written, with a small
campaign."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest
import yaml
from namesakes import COMPLAINT, planted
from readme import block

from floodmark.harness.campaign.plan import PRESETS, load, presets

GITHUB, GITLAB = "# .github/workflows/floodmark.yml", "# .gitlab-ci.yml"
LINES_S = 300.0


def github() -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load(block(GITHUB))["jobs"]["campaign"]
    return job


def gitlab() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(block(GITLAB))
    return jobs


def github_step(name: str) -> str:
    (step,) = [step for step in github()["steps"] if step.get("name") == name]
    return str(step["run"])


def ran(lines: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs them as both servers do: by bash, which ends with the first line that fails. Packages of our names
    are in the folder, first on the path, as a user's checkout may have them."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", lines], cwd=folder, capture_output=True, text=True, timeout=LINES_S,
        check=False, env={**planted(folder), "PATH": path, "FLOODMARK_RUNS": "1", "KNOWN": "", "REASON": "",
                          **variables})


def is_red(folder: Path) -> bool:
    (suite,) = ElementTree.parse(folder / "junit.xml").getroot()
    return int(suite.attrib["failures"]) + int(suite.attrib["errors"]) > 0


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
def test_the_lines_run_as_they_stand(tmp_path: Path) -> None:
    """GitHub's lines, which GitLab's repeat (below); with the preset of a push, because a night's run takes
    longer."""
    answer = ran(github_step("run and gate"), tmp_path, PRESET="smoke")
    assert answer.returncode in (0, 1, 3), answer.stderr
    assert COMPLAINT not in answer.stdout + answer.stderr
    assert is_red(tmp_path) == (answer.returncode != 0), answer.stdout
    assert (tmp_path / "summary.md").read_text().startswith("## floodmark: ")
    assert orjson.loads((tmp_path / "ledger" / "ledger.json").read_bytes())["campaigns"]
    assert answer.stdout.splitlines()[-1] == "histories/runs/campaign"
    shown = ran(github_step("the page"), tmp_path, GITHUB_STEP_SUMMARY=str(tmp_path / "page"))
    assert (shown.returncode, (tmp_path / "page").read_text()) == (0, (tmp_path / "summary.md").read_text())


def test_what_is_known_is_marked_before_the_night() -> None:
    """An unknown signature ends the job: a mark that fails is not ignored."""
    for lines in (github_step("run and gate"), "\n".join(gitlab()[".campaign"]["script"])):
        first, second, *rest = lines.strip().splitlines()
        assert rest == []
        assert shlex.split(first)[6:10] == ["floodmark", "campaign", "mark", "$KNOWN"]
        assert shlex.split(second)[:3] == ["floodmark", "campaign", "run"]


def test_marking_by_hand(tmp_path: Path) -> None:
    first = github_step("run and gate").splitlines()[0]
    assert ran(first, tmp_path).returncode == 0
    assert not (tmp_path / "ledger").exists()
    answer = ran(first, tmp_path, KNOWN="0123456789", REASON="KAFKA-1")
    assert (answer.returncode, "no signature '0123456789'" in answer.stderr) == (4, True), answer.stderr


def test_both_servers_do_the_same_for_a_push_and_a_night() -> None:
    assert github_step("run and gate").splitlines() == gitlab()[".campaign"]["script"]
    installs = [step["run"] for step in github()["steps"] if "pip install" in step.get("run", "")]
    assert installs == [line for line in gitlab()[".campaign"]["before_script"] if "pip" in line]
    asked = [gitlab()[name]["variables"]["PRESET"] for name in ("gate", "night")]
    assert asked == ["smoke", "nightly"]
    for preset in asked:
        assert preset in presets()
        assert f"'{preset}'" in github()["env"]["PRESET"]
    smoke, nightly = (load(PRESETS / f"{preset}.toml").budget_s or 0 for preset in asked)
    assert smoke < 600
    assert nightly < 60 * github()["timeout-minutes"]
    assert smoke < 60 * int(gitlab()["gate"]["timeout"].rstrip("m"))
    assert nightly < 3600 * int(gitlab()["night"]["timeout"].rstrip("h"))


def test_what_is_written_is_what_is_kept() -> None:
    """Ledger, runs and reports, with the names that the lines use."""
    words = shlex.split(github_step("run and gate").splitlines()[1])
    out, ledger, junit, page = (words[words.index(name) + 1] for name in (
        "--out", "--ledger", "--junit", "--markdown"))
    folder = str(Path(ledger).parent)
    (kept,) = [step["with"]["path"].split() for step in github()["steps"] if "upload" in step.get("uses", "")]
    assert kept == [out, folder, junit]
    cached = [step["with"]["path"] for step in github()["steps"] if "cache" in step.get("uses", "")]
    assert cached == [folder, folder]
    artifacts = gitlab()[".campaign"]["artifacts"]
    assert [path.rstrip("/") for path in artifacts["paths"]] == [out, folder, page]
    assert artifacts["reports"] == {"junit": junit}
    assert [gitlab()[name]["cache"]["paths"] for name in ("gate", "night")] == [[f"{folder}/"]] * 2

"""The wheel: built, installed by pip into an environment that has no floodmark; one import name for all.

In use next to a user's own folders of our short names: test_ci_lines.py, test_pytest_plugin.py.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installed import FOLDERS, ROOT, environment_in, wheel_in
from namesakes import OURS

NAMES = {"docker/broker": "broker", ".tree/main": "."}


@pytest.fixture(name="wheel", scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_in(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(name="command", scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script of the new environment."""
    python = environment_in(tmp_path_factory.mktemp("environment"))
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps",
                    "--disable-pip-version-check", wheel], check=True, timeout=120)
    return python.with_name("floodmark")


def test_all_files_of_the_packages_are_in_it(wheel: Path) -> None:
    """And floodmark is its only package."""
    there = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    left_out = {"prepare.sh"}  # it sets up a checkout
    ours = {str(Path("floodmark", NAMES.get(folder, folder), file.relative_to(ROOT / folder)))
            for folder in FOLDERS for file in (ROOT / folder).rglob("*")
            if file.is_file() and file.suffix != ".pyc" and file.name not in left_out
            and (file.suffix != ".md" or file.parent.name == "templates")}
    assert there == ours


def test_its_package_is_a_command(command: Path, tmp_path: Path) -> None:
    """As the script: `python -m floodmark`."""
    python = command.with_name("python")
    answers = [subprocess.run([*words, "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              check=False) for words in ([command], [python, "-m", "floodmark"])]
    assert [(one.returncode, one.stdout) for one in answers] == [(0, answers[0].stdout)] * 2


def test_no_module_is_loaded_under_two_names() -> None:
    """Neither here nor in a command that is started at the root of a checkout, where the folders are."""
    code = ("import runpy, sys\nsys.argv = ['floodmark', 'scenario', 'list']\n"
            "try:\n    runpy.run_module('floodmark.harness', run_name='__main__')\n"
            "finally:\n    print('loaded', *sys.modules)\n")
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
                         check=False)
    loaded = ran.stdout.rpartition("loaded")[2].split()
    assert "floodmark.harness.cli" in loaded, ran.stdout + ran.stderr
    assert [name for name in (*loaded, *sys.modules) if name.split(".")[0] in OURS] == []

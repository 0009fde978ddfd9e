"""floodmark as a user has it: a wheel, installed by pip into an environment that has no floodmark.

floodmark's dependencies are not fetched again, because they are half a gigabyte: the new environment finds
them where this one has them. test_declared.py checks that all of them are declared.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDERS = (".tree/main", "harness", "nemesis", "checkers", "workloads", "docker/broker")


def wheel_in(folder: Path) -> Path:
    """A wheel, built from a copy, without the files of other builds."""
    copy, out = folder / "copy", folder / "dist"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "--wheel-dir", out, copy], check=True, timeout=120)
    (wheel,) = out.glob("floodmark-*.whl")
    return wheel


def environment_in(folder: Path, *, with_pip: bool = False) -> Path:
    """A new environment with all dependencies and without floodmark: its python."""
    venv.create(folder, with_pip=with_pip)
    python = folder / "bin" / "python"
    site = output_of(python, "import sysconfig; print(sysconfig.get_path('purelib'))")
    # A folder that a .pth file adds comes last, and its own .pth files are not read: so the editable
    # floodmark of this environment is not found.
    Path(site, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def output_of(python: Path, code: str, **where: Any) -> str:
    ran = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, **where)
    return ran.stdout.strip()

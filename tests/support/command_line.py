"""Runs `floodmark ...` in this process, so that all tests of the command line share one Spark session."""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from floodmark.harness.cli import main

GOLDEN = Path(__file__).parents[2] / "histories" / "golden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line on stdout."""
        return self.out.splitlines()[-1] if self.out else ""

    def about(self, folder: Path) -> str:
        """The output of `check` for one folder: from its name to its path."""
        lines = self.out.splitlines()
        end = lines.index(str(folder))
        begin = max(place for place, line in enumerate(lines[:end]) if line.startswith(f"{folder.name}: "))
        return "\n".join(lines[begin:end])


def floodmark(*words: object) -> Answer:
    """Runs one command. Checks that it ended by exit code and showed no traceback and no bug of its own."""
    ran = CliRunner().invoke(main, [str(word) for word in words], prog_name="floodmark")
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    assert "Traceback" not in ran.output
    assert "a bug of floodmark's own" not in ran.output, ran.output
    return Answer(code=ran.exit_code, out=ran.stdout, err=ran.stderr)


def golden(parent: Path, name: str, *, called: str | None = None) -> Path:
    """A copy of a saved run, to judge or to damage."""
    return Path(shutil.copytree(GOLDEN / name, parent / (called or name), ignore=shutil.ignore_patterns(
        "verdict.json")))


def edit_run(folder: Path, **changes: Any) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def edit_lines(path: Path, edit: Callable[[list[str]], Iterable[str]]) -> None:
    """Replaces the lines of a file; `edit` gives them without LF."""
    path.write_text("".join(f"{line}\n" for line in edit(path.read_text().splitlines())))


def verdict(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    return data

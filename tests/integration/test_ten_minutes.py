"""The page that builds a scenario from nothing: its files are played as written, and their output is
compared."""

import re
from pathlib import Path

import pytest
from command_line import floodmark
from run_processes import wait_until_gone

from floodmark.nemesis.scenario import FOLDER

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.spark]

PAGE = FOLDER / "TEN_MINUTES.md"
BLOCK = re.compile(r"^```(toml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = "$ floodmark scenario run mine.toml"
# These differ from run to run: seconds, and the width of the columns next to them.
VARIES = ((re.compile(r"\b\d+\.\d\b"), "S"), (re.compile(r" {2,}"), "  "))


def normalize(line: str) -> str:
    """The line without what differs from run to run."""
    for pattern, by in VARIES:
        line = pattern.sub(by, line)
    return line.strip()


def plays() -> list[tuple[str, list[str]]]:
    """(file, the lines of output that the page shows under it), in the page's order."""
    found: list[tuple[str, list[str]]] = []
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "toml":
            found.append((text, []))
            continue
        command, *lines = text.splitlines()
        assert command == COMMAND
        found[-1][1].extend(lines)
    return found


def test_each_file_does_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line and in that order; between them there may be more."""
    monkeypatch.chdir(tmp_path)
    pages = plays()
    assert len(pages) == 4
    for number, (text, shown) in enumerate(pages):
        assert shown, f"file {number} of the page shows nothing"
        Path("mine.toml").write_text(text, encoding="utf-8")
        answer = floodmark("scenario", "run", "mine.toml", "--out", f"out-{number}")
        lines = iter([normalize(line) for line in (answer.err + answer.out).splitlines()])
        for line in shown:
            assert normalize(line) in lines, f"file {number}: {line}\n{answer.err}{answer.out}"
        assert answer.code == {0: 0, 1: 4, 2: 1, 3: 0}[number]
        wait_until_gone(tmp_path / f"out-{number}")

"""Folders written by other programs get the verdict of floodmark's own."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import here
from how_many import cases

from floodmark.checkers.judge.report import as_json

HISTORIES = Path(__file__).parents[2] / "histories"
GOLDEN = sorted(path.parent for path in HISTORIES.glob("golden/*/run.json"))[::cases(1, few=2)]
LINES = ("history.jsonl", "trace.jsonl", "logs/*.jsonl")


def extended(value: Any, top: bool = True) -> Any:
    """With more fields in every object."""
    if isinstance(value, list):
        return [extended(each, top=False) for each in value]
    if not isinstance(value, dict):
        return value
    more = {"\N{SNOWMAN}": "h-1", "load": 0.25} if top else {"age_ms": None}
    return {**more, **{name: extended(each, top=False) for name, each in value.items()}}


def in_cyrillic(text: str) -> str:
    """With node names and errors in Cyrillic."""
    text = re.sub(r"\bn([0-9])\b", "\N{CYRILLIC SMALL LETTER EN}\\1", text)
    return re.sub('"error":"', '"error":"\N{CYRILLIC SMALL LETTER O}: ', text)


WRITERS: dict[str, Callable[[Any], str]] = {
    "sorted": lambda row: json.dumps(row, sort_keys=True),
    "spaced": lambda row: json.dumps(row, separators=(" , ", " : ")),
    "extended": lambda row: json.dumps(extended(row), ensure_ascii=False),
    "UTF-8": lambda row: in_cyrillic(json.dumps(row, separators=(",", ":"))),
    "escaped": lambda row: json.dumps(json.loads(in_cyrillic(json.dumps(row, separators=(",", ":"))))),
}


def rewritten(folder: Path, to: Path, writer: str) -> Path:
    """A copy of the folder with each JSON line rewritten; other lines stay."""
    shutil.copytree(folder, to)
    if writer in ("UTF-8", "escaped"):
        for path in [*to.glob("*.json"), *to.glob("*.jsonl")]:
            path.write_text(in_cyrillic(path.read_text()))
        for path in to.glob("logs/*"):
            path.rename(path.with_name(in_cyrillic(path.name)))
    for path in (path for each in LINES for path in to.glob(each)):
        lines = path.read_text(errors="surrogateescape").split("\n")
        text = "\n".join(line_of(line, writer) for line in lines)
        path.write_text(text, errors="surrogateescape")
    return to


def line_of(line: str, writer: str) -> str:
    try:
        return WRITERS[writer](json.loads(line))
    except ValueError:
        return line


def judged(folders: list[Path]) -> list[str]:
    return [json.dumps({name: each for name, each in as_json(verdict).items() if name != "timings_s"},
                       ensure_ascii=False) for verdict in here.judge(folders)]


def test_the_verdict_is_the_same(tmp_path: Path) -> None:
    """Every second saved run by one of the writers, in `make soak` every one by each, all in one call."""
    names, some = list(WRITERS), cases(len(WRITERS), few=1)
    pairs = [(names[(number + more) % len(names)], folder, verdict)
             for number, (folder, verdict) in enumerate(zip(GOLDEN, judged(GOLDEN), strict=True))
             for more in range(some)]
    folders = [rewritten(folder, tmp_path / writer / folder.name, writer) for writer, folder, _ in pairs]
    for (writer, folder, verdict), found in zip(pairs, judged(folders), strict=True):
        expected = in_cyrillic(verdict) if writer in ("UTF-8", "escaped") else verdict
        assert json.loads(found) == json.loads(expected), (writer, folder)

"""run.json and replicas.jsonl with anything anywhere: it is opened or refused, and nothing is raised."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import here
import pytest
from command_line import GOLDEN

from floodmark.checkers.judge.preconditions import Preconditions
from floodmark.checkers.judge.runs import run_of
from floodmark.checkers.read.folder import open_folder

GONE = object()
ODD = (
    GONE, None, True, False, 0, -1, 1.5, 1e300, 2**62, 2**63, 10**30, "", "5", "\N{SNOWMAN}", "\0",
    [], [None], [1], ["n1"], [["n1"]], [[{"a": None}]], {}, {"a": [1]},
)  # fmt: skip
Place = tuple[str | int, ...]


def places(told: Any, at: Place = ()) -> Iterator[Place]:
    """Of every value in it, itself too."""
    yield at
    items = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for key, value in items:
        yield from places(value, (*at, key))


def with_odd(told: Any, at: Place, odd: object) -> Any:
    """A copy in which something else stands there."""
    if not at:
        return None if odd is GONE else odd
    changed = holder = copy.deepcopy(told)
    for key in at[:-1]:
        holder = holder[key]
    if odd is GONE:
        del holder[at[-1]]
    else:
        holder[at[-1]] = odd
    return changed


def leaderless(about: Any) -> Any:
    """run.json of a run whose controller named nobody: then other files are asked."""
    for led in about["leaders"].values():
        led["leader"] = None
    return about


def rows_first(folder: Path) -> tuple[Any, list[str]]:
    """The first row, and the lines behind it."""
    first, *behind = (folder / "replicas.jsonl").read_text().splitlines()
    return json.loads(first), behind


RUNS = "a-kill-loses-the-tail", "no-ack-after-mending"


@pytest.mark.parametrize("golden", RUNS)
@pytest.mark.parametrize("what", ["run.json", "leaderless", "replicas.jsonl"])
def test_nothing_that_is_odd_breaks_it(tmp_path: Path, golden: str, what: str) -> None:
    """At each place every second of them, in the one run the even ones and in the other the odd ones."""
    folder = Path(shutil.copytree(GOLDEN / golden, tmp_path / "run"))
    rows = None if what == "replicas.jsonl" else here.rows_of(open_folder(folder))
    file, behind = folder / ("replicas.jsonl" if what == "replicas.jsonl" else "run.json"), list[str]()
    if what == "replicas.jsonl":
        told, behind = rows_first(folder)
    else:
        about = json.loads(file.read_text())
        told = leaderless(about) if what == "leaderless" else about
    judged = 0
    for number, at in enumerate(places(told), RUNS.index(golden)):
        for odd in ODD[number % 2 :: 2]:
            file.write_text("\n".join((json.dumps(with_odd(told, at, odd)), *behind)))
            opened = open_folder(folder)
            assert opened.judged or opened.reasons
            if opened.judged:
                run_of(opened, Preconditions(), here.rows_of(opened) if rows is None else rows)
            judged += opened.judged
    assert judged > len(ODD)

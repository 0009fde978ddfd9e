"""run.json and replicas.jsonl with any value anywhere: opened or refused, without an exception."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import here
import pytest
from command_line import GOLDEN
from how_many import cases

from floodmark.checkers.judge.preconditions import preconditions_of
from floodmark.checkers.judge.runs import run_of
from floodmark.checkers.read.folder import open_folder

GONE = object()
ODD = (
    GONE, None, True, False, 0, -1, 1.5, 1e300, 2**62, 2**63, 10**30, "", "5", "\N{SNOWMAN}", "\0",
    [], [None], [1], ["n1"], [["n1"]], [[{"a": None}]], {}, {"a": [1]},
)  # fmt: skip
Place = tuple[str | int, ...]


def places(content: Any, at: Place = ()) -> Iterator[Place]:
    """The place of every value in it, and of itself."""
    yield at
    items = (content.items() if isinstance(content, dict)
             else enumerate(content) if isinstance(content, list) else ())
    for key, value in items:
        yield from places(value, (*at, key))


def with_odd(content: Any, at: Place, odd: object) -> Any:
    """A copy with another value at this place."""
    if not at:
        return None if odd is GONE else odd
    changed = holder = copy.deepcopy(content)
    for key in at[:-1]:
        holder = holder[key]
    if odd is GONE:
        del holder[at[-1]]
    else:
        holder[at[-1]] = odd
    return changed


RUNS = "a-kill-loses-the-tail", "no-ack-after-mending"
STEP = cases(2, few=8)


@pytest.mark.parametrize("golden", RUNS)
@pytest.mark.parametrize("kind", ["run.json", "leaderless", "replicas.jsonl"])
def test_any_value_anywhere_raises_nothing(tmp_path: Path, golden: str, kind: str) -> None:
    """At each place every second value, in one run the even ones and in the other the odd ones; in
    `make test` a fourth of these, others at the next place. Leaderless: the controller named no leader, and
    other files are read for it."""
    folder = Path(shutil.copytree(GOLDEN / golden, tmp_path / "run"))
    rows = None if kind == "replicas.jsonl" else here.rows_of(open_folder(folder))
    file, rest = folder / "run.json", list[str]()
    if kind == "replicas.jsonl":
        file = folder / kind
        first, *rest = file.read_text().splitlines()
    content = json.loads(first if rest else file.read_text())
    if kind == "leaderless":
        content["leaders"] = {key: one | {"leader": None} for key, one in content["leaders"].items()}
    judged = 0
    for at in places(content):
        number = crc32(repr(at).encode()) + RUNS.index(golden)
        for odd in ODD[number % STEP :: STEP]:
            file.write_text("\n".join((json.dumps(with_odd(content, at, odd)), *rest)))
            opened = open_folder(folder)
            assert opened.judged or opened.reasons
            if opened.judged:
                run_of(opened, preconditions_of(0, []), here.rows_of(opened) if rows is None else rows)
            judged += opened.judged
    assert judged > len(ODD)

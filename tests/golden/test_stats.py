"""What a fault cost: the figures of the runs of stats.txt, each told by its ops and faults in seconds
(stories.py).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import edit_lines
from golden_text import as_written, text_of
from stories import in_seconds, ns

from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.stats.measures import measured
from floodmark.checkers.stats.seen import seen
from floodmark.checkers.stats.tables import KEPT
from floodmark.harness.errors import FloodmarkError


def shown(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={round(value, 6) if isinstance(value, float) else value}".replace(", ", ",")
                    for name, value in row.items() if value is not None)


def figures(story: list[str], folder: Path) -> Iterator[str]:
    row = measured(open_folder(in_seconds(folder, *story)))
    assert row.keys() == set(KEPT.names)
    faults = row.pop("of_faults")
    yield f"= {shown(row)}"
    for fault in map(dict, faults):
        windows = [{name: fault.pop(name) for name in [*fault] if name.startswith(when)}
                   for when in ("before_", "during_", "after_")]
        yield from (f"* {shown(one)}" for one in (fault, *windows))


def test_the_figures_of_each_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    now = ""
    for number, part in enumerate(text_of("stats.txt").removeprefix("== ").split("\n== ")):
        given = [line for line in part.splitlines() if line[:2] not in ("= ", "* ")]
        story = [line for line in given[1:] if not line.startswith(("#", " "))]
        now += "\n".join([f"== {given[0]}", *given[1:], *figures(story, tmp_path / str(number)), ""])
    as_written("stats.txt", now, request)


def test_a_broken_line_is_counted_and_a_torn_last_one_is_not(tmp_path: Path) -> None:
    folder = in_seconds(tmp_path / "run", "1 8-9")
    with (folder / "history.jsonl").open("a") as history:
        history.write('{"index": 20}\n{"ind')
    row = measured(open_folder(folder))
    assert (row["broken_lines"], row["ok"]) == (1, 1)
    (folder / "history.jsonl").unlink()
    with pytest.raises(FloodmarkError, match=r"^history\.jsonl: No such file"):
        measured(open_folder(folder))


# -- what a page draws of a run's clients: each op once, by hand ---------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return in_seconds(tmp_path / "run", "partitions 2; 11 1-3; 12 2-4 fail p1; 13 2.5-5 info; poll 14 2-6",
                      "11 7-; 15 7.5-9; kill n1 5-5.5")


def test_every_op_is_drawn_by_its_beginning(folder: Path) -> None:
    drawn = seen(folder, [], 100)

    assert drawn.ops == 6
    assert drawn.columns == {
        "began": [1_000_000, 1_000_000, 0, 500_000, 4_500_000, 500_000],
        "lasted": [2_000_000, 2_000_000, 4_000_000, 2_500_000, 2_000_000, 1_500_000],
        "what": [0, 1, 3, 2, 2, 0],  # ok, fail, an ok poll, info, without an answer, ok
        "records": [1, 0, 0, 0, 0, 1],
    }  # fmt: skip
    assert drawn.last_ns == ns("9")
    assert [row["kind"] for row in drawn.faults] == ["kill"]
    first = seen(folder, [], 2)  # above the limit only the first are drawn
    assert (first.ops, first.columns["began"], first.columns["what"]) == (6, [1_000_000, 1_000_000], [0, 1])


def test_acked_records_near_a_finding_have_their_times(folder: Path) -> None:
    def at_offset_7(line: str) -> str:
        op = json.loads(line)
        for send in op.get("sends", ()) if op["type"] == "ok" else ():
            send["offset"] = 7
        return json.dumps(op)

    edit_lines(folder / "history.jsonl", lambda lines: list(map(at_offset_7, lines)))

    assert seen(folder, [(0, 7, 8)], 100).acked == [
        (0, 7, 1, ns("1"), ns("3")), (0, 7, 5, ns("7.5"), ns("9"))]
    assert seen(folder, [(0, 0, 7), (0, 8, 9), (1, 7, 8)], 100).acked == []


def test_of_a_damaged_folder_is_drawn_what_is_there(folder: Path) -> None:
    """Broken lines, no readable run.json, no line, no history."""
    edit_lines(folder / "history.jsonl", lambda lines: ["{", *lines, '{"time": "x"}'])
    drawn = seen(folder, [], 100)
    assert (drawn.ops, len(drawn.columns["what"])) == (6, 6)
    assert drawn.problems == ["history.jsonl: 2 line(s) are not in format 1 and were skipped"]

    run_json = (folder / "run.json").read_text()
    (folder / "run.json").write_text("{")
    drawn = seen(folder, [], 100)
    assert (drawn.ops, drawn.faults, "run.json" in drawn.unmeasured) == (6, (), True)

    (folder / "run.json").write_text(run_json)
    (folder / "history.jsonl").write_bytes(b"")
    assert (seen(folder, [], 100).ops, seen(folder, [], 100).faults) == (0, [])
    (folder / "history.jsonl").unlink()
    assert seen(folder, [], 100).problems == ("there is no history.jsonl",)

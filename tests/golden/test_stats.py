"""What a fault cost: the figures of the runs of stats.txt, each told by its ops and faults in seconds.

`1 9-13` is a send of process 1 that is acked after four seconds; `fail` and `info` may follow, and `p1`, its
partition; `11-` has no answer. `kill n1 10-10.5` is a fault, down from 10.5 s on. Below a run `=` has its own
figures, `*` those of a fault; what is null is left out. `pytest --rewrite` writes them; then read the diff.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_text import GOLDEN, as_written
from timed_runs import TimedRun

from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.stats.measures import measured
from floodmark.checkers.stats.tables import KEPT
from floodmark.harness.errors import FloodmarkError


def steady(run: TimedRun, until_s: float) -> None:
    """Two processes send in turn, every 0.1 s each, and are acked after 0.01 s; until a cut at 10 s, and from
    its end."""
    for tenth in [*range(50, 100), *range(round(10 * until_s), 200)]:
        for process in (1, 2):
            run.sent(process, tenth / 10, tenth / 10 + 0.01, partition=process - 1)
    run.fault("cut", 10, 10).fault("heal", until_s, until_s)


def add(run: TimedRun, statement: str) -> None:
    name, *words = statement.split()
    match name:
        case "partitions":
            run.partitions = int(words[0])
        case "about":
            run.about = json.loads(statement.removeprefix("about"))
        case "trace":
            time_s, event, more = statement.removeprefix("trace ").split(" ", 2)
            run.traced(float(time_s), event, **json.loads(more))
        case "steady":
            steady(run, float(words[0]))
        case "uninvoked":
            run.lines = [line for line in run.lines
                         if (line["process"], line["type"]) != (int(words[0]), "invoke")]
        case "poll":
            began_s, ended_s = words[1].split("-")
            run.polled(int(words[0]), float(began_s), float(ended_s))
        case _ if name.isdigit():
            began_s, ended_s = words[0].split("-")
            kind = next((word for word in words[1:] if not word.startswith("p")), "ok")
            partition = next((int(word[1:]) for word in words[1:] if word.startswith("p")), 0)
            run.sent(int(name), float(began_s), float(ended_s) if ended_s else None, kind,
                     partition=partition)
        case _:
            (time,) = (word for word in words if re.match(r"\d", word))
            began_s, _, effect_s = time.partition("-")
            more = dict(word.split("=") for word in words if "=" in word)
            run.fault(name, float(began_s), float(effect_s or began_s),
                      *(word for word in words if word.startswith("n")), **more)


def shown(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={round(value, 6) if isinstance(value, float) else value}".replace(", ", ",")
                    for name, value in row.items() if value is not None)


def figures(run: TimedRun, folder: Path) -> Iterator[str]:
    row = measured(open_folder(run.write(folder)))
    assert row.keys() == set(KEPT.names)
    faults = row.pop("of_faults")
    yield f"= {shown(row)}"
    yield from (f"* {shown(dict(fault))}" for fault in faults)


def test_the_figures_of_each_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    now = list[str]()
    run = TimedRun()
    given = [line for line in (GOLDEN / "stats.txt").read_text().splitlines() if line[:2] not in ("= ", "* ")]
    for number, (line, after) in enumerate(zip(given, [*given[1:], "=="], strict=True)):
        now.append(line)
        if line.startswith("=="):
            run = TimedRun()
        elif not line.startswith(("#", " ")):
            for statement in line.split("; "):
                add(run, statement)
        if after.startswith("=="):
            now += figures(run, tmp_path / str(number))
    as_written("stats.txt", "".join(f"{line}\n" for line in now), request)


def test_a_broken_line_is_counted_and_a_torn_last_one_is_not(tmp_path: Path) -> None:
    folder = TimedRun().sent(1, 8, 9).write(tmp_path / "run")
    with (folder / "history.jsonl").open("a") as history:
        history.write('{"index": 20}\n{"ind')
    row = measured(open_folder(folder))
    assert (row["broken_lines"], row["ok"]) == (1, 1)
    (folder / "history.jsonl").unlink()
    with pytest.raises(FloodmarkError, match=r"^history\.jsonl: No such file"):
        measured(open_folder(folder))

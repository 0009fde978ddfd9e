"""The new judge in this process, without Spark: folders in, verdicts out, with the families of laws given.

python tests/support/here.py FOLDER...          what it finds, beside the verdict.json of the folder
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plain_read
import pyarrow as pa
import ranged_read

from checkers import names
from checkers.folder import Folder, open_folder
from checkers.guilt import lines_of
from checkers.judging.preconditions import Preconditions
from checkers.judging.run_tables import run_tables
from checkers.judging.runs import Run, driver_findings, run_of
from checkers.judging.told import worst
from checkers.laws import FAMILIES
from checkers.laws.cycles import unsearched
from checkers.laws.transactions import transactions
from checkers.laws.unit import Family, asked, opened
from checkers.read.ranges import RANGE_BYTES
from checkers.survey import Survey
from checkers.verdicts import verdict_of
from harness.verdict import Verdict


def judge(
    folders: Sequence[Path], families: Sequence[Family] = FAMILIES, range_bytes: int | None = RANGE_BYTES
) -> list[Verdict]:
    """A verdict a folder, all in one unit. range_bytes: read in ranges of so many (checkers.read); None: by
    the plain reader."""
    opened_folders = [open_folder(folder) for folder in folders]
    tables, runs, surveys = tables_of(opened_folders, range_bytes)
    with opened(tables) as unit:
        rows = worst(unit, pa.concat_tables([asked(unit, families), driver_findings(runs)]))
        for number, reason in unsearched(unit) if transactions in families else ():
            opened_folders[number].reasons.append((names.CYCLES, reason))
    verdicts = []
    for number, (folder, survey) in enumerate(zip(opened_folders, surveys, strict=True)):
        mine = [row for row in rows if row["run"] == number]
        told = lines_of(folder.trace, mine)
        verdicts.append(verdict_of(folder, survey, mine, {}, told))
    return verdicts


def tables_of(
    folders: Sequence[Folder], range_bytes: int | None = RANGE_BYTES
) -> tuple[dict[str, pa.Table], list[Run], list[Survey | Preconditions]]:
    """The tables of one unit with all of these."""
    surveys, parts = list[Survey | Preconditions](), dict[str, list[pa.Table]]()
    for run, folder in enumerate(folders):
        tables, survey = read_run(folder, run, range_bytes) if folder.judged else ({}, Survey())
        surveys.append(survey)
        for name, table in tables.items():
            parts.setdefault(name, []).append(table)
    runs = [run_of(folder, survey) for folder, survey in zip(folders, surveys, strict=True)]
    made = {name: pa.concat_tables(each) for name, each in parts.items()} | run_tables(runs)
    return made, runs, surveys


def read_run(
    folder: Folder, run: int, range_bytes: int | None
) -> tuple[dict[str, pa.Table], Survey | Preconditions]:
    """The tables of its big files, and what must be known of these."""
    if range_bytes is None:
        return plain_read.read_run(folder, run)
    return ranged_read.read_run(folder, run, range_bytes)


def groups(verdict: dict[str, Any]) -> list[tuple[str, str, str | None, int]]:
    return sorted(
        (one["name"], one["class"], str(one["permitted_by"]), one["count"]) for one in verdict["findings"]
    )


def main() -> None:
    from checkers.report import as_json

    folders = [Path(name) for name in sys.argv[1:]]
    for folder, verdict in zip(folders, judge(folders), strict=True):
        there = [folder / name for name in ("verdict.json", "expected.json") if (folder / name).exists()]
        saved = json.loads(there[0].read_text()) if there else None
        mine = as_json(verdict)
        same = saved is not None and groups(mine) == groups(saved)
        print(
            "same" if same else "DIFFERS",
            folder,
            groups(mine),
            "" if same or saved is None else groups(saved),
        )


if __name__ == "__main__":
    main()

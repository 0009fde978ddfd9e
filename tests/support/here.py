"""Runs the judge in this process, without Spark: folders in, verdicts out, with the given families of laws.

python tests/support/here.py FOLDER...          prints its findings next to the folder's verdict.json
"""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from floodmark.checkers.judge.failures import Failure
from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.judge.passes import judged_bag
from floodmark.checkers.judge.run_tables import FACTS
from floodmark.checkers.judge.verdicts import failed, not_judged
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.laws.unit import Family, Unit
from floodmark.checkers.read.folder import Folder, open_folder
from floodmark.checkers.read.ranges import RANGE_BYTES, cut
from floodmark.checkers.read.replica_rows import REPLICA_ROWS, SCHEMA
from floodmark.checkers.read.tables import read_range
from floodmark.harness.verdict import Verdict


def judge(
    folders: Sequence[Path], families: Sequence[Family] = FAMILIES, range_bytes: int = RANGE_BYTES
) -> list[Verdict]:
    """One verdict for each folder, all in one unit. range_bytes: the size of the ranges in which files are
    read."""
    opened = [open_folder(folder) for folder in folders]
    bag = [RunWork.of(run, folder, range_bytes) for run, folder in enumerate(opened) if folder.judged]
    judged = judged_bag(bag, families)
    verdicts = [judged[run] if folder.judged else not_judged(folder) for run, folder in enumerate(opened)]
    return [failed(one, {}) if isinstance(one, Failure) else one for one in verdicts]


def tables_of(folders: Sequence[Folder]) -> dict[str, pa.Table]:
    """The tables of one unit with all of these runs, and what they are made from."""
    tables: dict[str, pa.Table] = {}

    def noting(unit: Unit) -> None:
        tables.update({name: unit.table(name) for name in (*TABLES, *FACTS, REPLICA_ROWS)})
        raise Noted

    with suppress(Noted):
        judged_bag([RunWork.of(run, folder) for run, folder in enumerate(folders)], [noting])
    return tables


class Noted(BaseException):
    """Ends a judgement whose tables are all that is wanted. After a failure it would go on run by run."""


def rows_of(folder: Folder) -> pa.Table | None:
    """The rows of replicas.jsonl, if it can be read."""
    if folder.rows is None:
        return None
    ranges = cut(0, "replicas", None, folder.rows)
    return pa.concat_tables([SCHEMA.empty_table(), *(read_range(one).tables[REPLICA_ROWS] for one in ranges)])


def main() -> None:
    """Prints what is found beside what was kept, of each folder."""
    folders = [Path(name) for name in sys.argv[1:]]
    for folder, verdict in zip(folders, judge(folders), strict=True):
        mine = sorted((one.name, one.klass, str(one.permitted_by), one.count) for one in verdict.findings)
        kept = [folder / name for name in ("verdict.json", "expected.json") if (folder / name).exists()]
        saved = sorted((one["name"], one["class"], str(one["permitted_by"]), one["count"])
                       for file in kept[:1] for one in json.loads(file.read_text())["findings"])
        print("same" if kept and mine == saved else "DIFFERS", folder, mine, "" if mine == saved else saved)


if __name__ == "__main__":
    main()

"""A run folder read by ranges (checkers.read), as plain_read gives it: tables of the laws, and what must be
known of its files first.

tables, preconditions = ranged_read.read_run(open_folder(path), run=0, range_bytes=1 << 20)
"""

from collections import defaultdict

import orjson
import pyarrow as pa

from checkers.folder import Folder
from checkers.judging.preconditions import Preconditions, preconditions_of
from checkers.read import pairing, repeats
from checkers.read.facts import Facts, as_plain, from_plain
from checkers.read.ranges import RANGE_BYTES, ranges_of
from checkers.read.tables import read_range


def read_run(
    folder: Folder, run: int, range_bytes: int = RANGE_BYTES
) -> tuple[dict[str, pa.Table], Preconditions]:
    """All tables that come from the big files, and what the facts of the ranges come to."""
    parts, told = defaultdict[str, list[pa.Table]](list), list[Facts]()
    for one in ranges_of(run, folder, range_bytes):
        parsed = read_range(one, folder.settle_processes)
        told.append(from_plain(orjson.loads(orjson.dumps(as_plain(parsed.facts)))))
        for name, table in parsed.tables.items():
            parts[name].append(table)
    tables = {name: pa.concat_tables(each) for name, each in parts.items()}
    if "lines" not in tables:
        return tables, preconditions_of(run + 1, told, [], [])[run]
    tables["answers"] = pairing.answers(tables["lines"])
    tables["repeated"], values = repeats.repeats(tables["sends"])
    return tables, preconditions_of(run + 1, told, pairing.pairing(tables["lines"]), values)[run]

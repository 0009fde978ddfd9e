"""A run folder read by ranges (checkers.read), as plain_read gives it: tables of the laws, and the survey.

tables, survey = ranged_read.read_run(open_folder(path), run=0, range_bytes=1 << 20)
"""

from collections import defaultdict
from typing import Any

import orjson
import plain_read
import pyarrow as pa

from checkers.folder import Folder
from checkers.read.facts import (
    DumpFacts,
    Facts,
    HistoryFacts,
    TraceFacts,
    as_plain,
    each_of,
    from_plain,
    joined,
    size,
)
from checkers.read.ranges import RANGE_BYTES, ranges_of
from checkers.read.tables import read_range
from checkers.survey import Block, Survey
from checkers.traces import Lines, Traced


def read_run(folder: Folder, run: int, range_bytes: int = RANGE_BYTES) -> tuple[dict[str, pa.Table], Survey]:
    """All tables that come from the big files, and the survey of them."""
    parts, told = defaultdict[str, list[pa.Table]](list), list[Facts]()
    for one in ranges_of(run, folder, range_bytes):
        parsed = read_range(one, folder.settle_processes)
        told.append(from_plain(orjson.loads(orjson.dumps(as_plain(parsed.facts)))))
        for name, table in parsed.tables.items():
            parts[name].append(table)
    tables = {name: pa.concat_tables(each) for name, each in parts.items()}
    return tables, survey_of(folder, tables, told)


def survey_of(folder: Folder, tables: dict[str, pa.Table], told: list[Facts]) -> Survey:
    """The facts of all ranges in one."""
    survey, traced, seqs = Survey(), Traced(), defaultdict[str, list[Any]](list)
    before = 0
    for facts in told:
        assert not isinstance(facts, DumpFacts) or facts.flaw is None, facts
        if isinstance(facts, HistoryFacts):
            survey.blocks.append(block_of(facts, before, survey))
            before += facts.lines
            for name in ("ok", "fail", "info", "txns", "acked"):
                setattr(survey, name, getattr(survey, name) + getattr(facts, name))
            survey.used.update(each_of(facts.used))
            survey.partitions.update(each_of(joined(facts.used, facts.held)))
            survey.nemesis += map(orjson.loads, facts.nemesis)
        elif isinstance(facts, DumpFacts):
            survey.entries[facts.node] = survey.entries.get(facts.node, 0) + facts.lines
            survey.bad_entries[facts.node] = survey.bad_entries.get(facts.node, 0) + facts.broken
            survey.used.update(each_of(facts.partitions))
        elif isinstance(facts, TraceFacts):
            traced.bad += facts.broken
            traced.told += [dict(each) for each in facts.rulings]
            for node, lines in facts.nodes.items():
                seqs[node].append(lines)
    survey.entries = {node: lines for node, lines in survey.entries.items() if lines}
    survey.bad_entries = {node: survey.bad_entries[node] for node in survey.entries}
    for node, each in seqs.items():
        union = joined(*(one.seqs for one in each))
        traced.nodes[node] = Lines(lines=sum(one.lines for one in each), seqs=size(union),
                                   first=union[0][0], last=union[-1][1])  # fmt: skip
    if folder.trace is not None:
        survey.traced = traced
    if "lines" in tables:
        pair(tables, survey)
    return survey


def block_of(facts: HistoryFacts, before: int, survey: Survey) -> Block:
    """As the survey has it. Its first and last are the lowest and highest index there."""
    latest = max((block.times[1] for block in survey.blocks if block.times), default=0)
    at_once = facts.first_time is not None and facts.first_time < latest
    times = None
    if facts.first_time is not None:
        # The survey takes a range's lowest index for the first that falls, if any does.
        times = max(latest, facts.least_time or 0), facts.highest_time or 0
    return Block(
        block=facts.number, lines=facts.lines, bad=facts.broken, first=facts.least_index,
        last=facts.highest_index, in_step=facts.shift == before, times=times,
        falls=facts.first_index if at_once else facts.falls, rising=facts.rises,
    )  # fmt: skip


def pair(tables: dict[str, pa.Table], survey: Survey) -> None:
    """What needs the rows themselves."""
    rows = defaultdict(list, {name: tables[name].to_pylist() for name in ("sends", "lines")})
    plain_read.pair(rows["lines"], survey)
    plain_read.repeat(rows, survey)
    run = rows["lines"][0]["run"] if rows["lines"] else 0
    tables["repeated"] = plain_read.table_of("repeated", run, rows["repeated"])
    del tables["lines"]

"""Prints the replicas' final logs side by side around an offset, and marks where they differ.

A dump is read line by line and only the wanted rows are kept: a log of a million records costs no memory.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report.safe_text import harmless, harmless_data, is_plain
from floodmark.harness.run import Run
from floodmark.harness.run_location import is_named, is_safe_name

AROUND = 3  # offsets before and after the one asked for
HEAD = 12  # width of the first column
NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One replica's entry at one offset."""

    offset: int
    text: str  # epoch/value, and its flaws
    crc: object


def check_partition(about: Mapping[str, Any], partition: int | None) -> int:
    """The partition to show; UsageError if the run lacks it, or if none is named and the run has several."""
    there = sorted(int(key) for key in about.get("partitions") or () if str(key).isdecimal())
    if partition is None and len(there) == 1:
        return there[0]
    valid = f"this run has: {', '.join(map(str, there)) or 'none'}"
    if partition is None:
        raise UsageError(f"--offset needs --partition; {valid}")
    if partition not in there:
        raise UsageError(f"no partition {partition}; {valid}")
    return partition


def show_logs(run: Run, about: Mapping[str, Any], partition: int, offset: int) -> None:
    """Prints a line for each offset and a column for each node; then each replica's own LEO and HW."""
    described = (about.get("partitions") or {}).get(str(partition))
    nodes = [str(node) for node in described.get("replicas") or ()] if isinstance(described, dict) else []
    wanted = range(max(0, offset - AROUND), offset + AROUND + 1)
    columns = {node: {cell.offset: cell for cell in cells_of(run, node, partition, wanted)} for node in nodes}
    leader = ((about.get("leaders") or {}).get(str(partition)) or {}).get("leader")
    rows = {str(row.get("node")): row for row in replica_rows(run) if row.get("partition") == partition}
    width = max([12, *(len(cell.text) + 2 for log in columns.values() for cell in log.values())])
    starred = "; * leads" if leader in nodes else ""
    click.echo(f"  final logs of partition {partition}, as epoch/value{starred}:")
    titles = [node + ("*" if node == leader else "") for node in nodes]
    click.echo(line(" ", "offset", titles, width))
    for at in wanted:
        cells = {node: columns[node].get(at) for node in nodes}
        if at == offset or any(cells.values()):
            texts = [cell.text if cell else NOTHING for cell in cells.values()]
            click.echo(line(">" if at == offset else " ", str(at), texts, width) + difference_remark(cells))
    for name in ("LEO", "HW"):
        click.echo(line(" ", name, [str(rows.get(node, {}).get(name.lower(), "?")) for node in nodes], width))
    if not any(offset in log for log in columns.values()):
        click.echo(f"  no replica's dump has offset {offset}")


def line(mark: str, head: str, cells: Sequence[str], width: int) -> str:
    return f"  {mark} {head:>{HEAD - 4}}" + "".join(f"{cell:>{width}}" for cell in cells)


def difference_remark(cells: Mapping[str, Cell | None]) -> str:
    """A remark if the replicas differ at an offset; also if only the bytes differ."""
    there = {node: cell for node, cell in cells.items() if cell is not None}
    remarks: list[str] = []
    if len({cell.text for cell in there.values()}) > 1:
        remarks.append("they differ")
    elif len({cell.crc for cell in there.values()}) > 1:
        crcs = ", ".join(f"{node} {cell.crc}" for node, cell in there.items())
        remarks.append(f"their CRCs differ: {crcs}")
    lacking = [node for node in cells if node not in there]
    remarks += [f"not in {', '.join(lacking)}"] if lacking and there else []
    return click.style(f"   <- {'; '.join(remarks)}", fg="red") if remarks else ""


# -- reading ------------------------------------------------------------------------------------------------


def cells_of(run: Run, node: str, partition: int, wanted: Collection[int]) -> Iterator[Cell]:
    """Yields the entries of one node's dump at the wanted offsets."""
    for row in dump_rows(run, node, wanted):
        if row.get("partition") == partition and row.get("offset") in wanted:
            value = "control" if row.get("value") is None else row["value"]
            remarks = [word for word, is_so in (
                ("bad crc", row.get("crc_ok") is False), ("aborted", row.get("aborted") is True)) if is_so]
            yield Cell(offset=row["offset"], text=" ".join([f"{row.get('epoch')}/{value}", *remarks]),
                       crc=row.get("crc"))


def dump_rows(run: Run, node: str, wanted: Collection[int]) -> Iterable[Mapping[str, Any]]:
    """The rows of a dump, JSON lines or Parquet; one that cannot be read is reported on stderr and is
    empty."""
    if not is_safe_name(node):
        click.echo(f"floodmark: no file can be named for the replica {node[:60]!a}", err=True)
        return
    lines, parquet = run.logs_folder / f"{node}.jsonl", run.logs_folder / f"{node}.parquet"
    try:
        if is_named(lines):
            yield from json_rows(run, lines)
        elif is_named(parquet):
            from pyarrow import ArrowInvalid
            from pyarrow.parquet import read_table

            try:
                with run.open(parquet) as file:
                    rows = read_table(file, filters=[("offset", "in", set(wanted))]).to_pylist()
                yield from map(harmless_data, rows)
            except ArrowInvalid as error:
                click.echo(harmless(f"floodmark: cannot read {parquet}: {error}"), err=True)
        else:
            click.echo(f"floodmark: {lines} is missing", err=True)
    except OSError as error:
        click.echo(f"floodmark: cannot read {lines}: {error.strerror}", err=True)


def json_rows(run: Run, path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the lines that are JSON objects; the judge reports the others."""
    with run.open(path) as file:
        for text in file:
            try:
                row = orjson.loads(text)
            except orjson.JSONDecodeError:
                continue
            if isinstance(row, dict):
                yield row if is_plain(text) else harmless_data(row)


def replica_rows(run: Run) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of replicas.jsonl: what each replica believed at the end."""
    try:
        yield from json_rows(run, run.replicas_path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FloodmarkError(f"cannot read {run.replicas_path}: {error.strerror}") from error

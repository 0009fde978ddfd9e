"""Shows the replicas' final logs side by side around an offset, and marks where they differ."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report.finding_evidence import leader_of, replicas_of
from floodmark.harness.report.model import Json
from floodmark.harness.report.run_files import RunFiles, fields_of
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run_location import is_named, is_safe_name

AROUND = 3  # offsets before and after the one asked for
HEAD = 12  # width of the first column
NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One replica's entry at one offset."""

    text: str  # epoch/value, and its flaws
    crc: object


def check_partition(about: Json, partition: int | None) -> int:
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


def logs_text(files: RunFiles, about: Json, partition: int, offset: int) -> Iterator[str]:
    """Yields a line for each offset, with a column for each node; then each replica's own LEO and HW."""
    nodes, leader = replicas_of(about, partition), leader_of(about, partition)
    wanted = range(max(0, offset - AROUND), offset + AROUND + 1)
    columns = {node: cells_of(files, node, partition, wanted) for node in nodes}
    width = max([12, *(len(cell.text) + 2 for log in columns.values() for cell in log.values())])
    starred = "; * leads" if leader in nodes else ""
    rows, trouble = files.replicas, files.replicas_file.trouble
    if trouble is not None and not isinstance(trouble, FileNotFoundError):
        raise FloodmarkError(f"cannot read {files.run.replicas_path}: {trouble.strerror}")
    yield f"  final logs of partition {partition}, as epoch/value{starred}:"
    yield line(" ", "offset", [node + ("*" if node == leader else "") for node in nodes], width)
    for at in wanted:
        cells = {node: columns[node].get(at) for node in nodes}
        if at == offset or any(cells.values()):
            texts = [cell.text if cell else NOTHING for cell in cells.values()]
            yield line(">" if at == offset else " ", str(at), texts, width) + difference_remark(cells)
    for name in ("LEO", "HW"):
        yield line(" ", name, [str(rows.get((node, partition), {}).get(name.lower(), "?")) for node in nodes],
                   width)
    if not any(offset in log for log in columns.values()):
        yield f"  no replica's dump has offset {offset}"


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


def cells_of(files: RunFiles, node: str, partition: int, wanted: Collection[int]) -> dict[int, Cell]:
    """The entries of one node's dump at the wanted offsets."""
    cells: dict[int, Cell] = {}
    for row in dump_rows(files, node, wanted):
        if row.get("partition") == partition and row.get("offset") in wanted:
            value = "control" if row.get("value") is None else row["value"]
            remarks = [word for word, is_so in (
                ("bad crc", row.get("crc_ok") is False), ("aborted", row.get("aborted") is True)) if is_so]
            text = " ".join([f"{row.get('epoch')}/{value}", *remarks])
            cells[row["offset"]] = Cell(text=text, crc=row.get("crc"))
    return cells


def dump_rows(files: RunFiles, node: str, wanted: Collection[int]) -> Iterator[Json]:
    """Yields the rows of a dump that may be wanted; one that cannot be read is reported on stderr."""

    def complain(message: str) -> None:
        click.echo(harmless(f"floodmark: {message}"), err=True)

    if not is_safe_name(node):
        complain(f"no file can be named for the replica {node[:60]!a}")
        return
    dump, parquet = files.dump(node), files.run.logs_folder / f"{node}.parquet"
    if is_named(dump.path):
        offsets = re.compile(rb'"offset": ?(?:%b)\b' % b"|".join(str(each).encode() for each in wanted))
        yield from (row for found in dump.containing(offsets) if (row := fields_of(found.line)) is not None)
        if dump.trouble is not None:
            complain(f"cannot read {dump.path}: {dump.trouble.strerror}")
    elif is_named(parquet):
        yield from files.parquet_rows(
            node, wanted, lambda error: complain(
                f"cannot read {dump.path}: {error.strerror}" if isinstance(error, OSError) else
                f"cannot read {parquet}: {error}"))
    else:
        complain(f"{dump.path} is missing")

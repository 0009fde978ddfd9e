"""Mutations of files of a run folder: files as units, the fields of run.json, and dumps as Parquet.

The rules are those of soak_mutations.py.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import twin_observes
from pyarrow import parquet
from soak_legal import HARMLESS, QUIET, ROWS, RUN, TAMPERING, TRACE, UNREADABLE
from soak_mutations import Files, mutation, text_file
from twin_folder import Line

DUMP = pa.schema([
    ("node", pa.string()), ("partition", pa.int64()), ("offset", pa.int64()), ("epoch", pa.int64()),
    ("value", pa.int64()), ("crc", pa.int64()), ("crc_ok", pa.bool_()), ("aborted", pa.bool_())])


def dumps(files: Files, ending: str = "") -> list[str]:
    return sorted(name for name in files if name.startswith("logs/") and name.endswith(ending))


# -- files as units -----------------------------------------------------------------------------------------

def gone(name: str) -> str:
    """Without a trace its checks are not made."""
    return QUIET if name == TRACE else UNREADABLE


@mutation(gone)
def a_file_goes(files: Files, random: Random) -> str | None:
    name = random.choice(sorted(files))
    if lies_twice(files, name):
        return None
    del files[name]
    return name


@mutation(gone)
def a_folder_stands_there(files: Files, random: Random) -> str | None:
    name = random.choice(sorted(files))
    if lies_twice(files, name):
        return None
    files[name] = None
    return name


def lies_twice(files: Files, name: str) -> bool:
    """Whether a dump is there as lines and as Parquet; either will do."""
    stem = name.rpartition(".")[0]
    return name.startswith("logs/") and f"{stem}.jsonl" in files and f"{stem}.parquet" in files


def is_stray(files: Files, name: str) -> bool:
    """The dump of a node that no partition is assigned to: it has stray copies, which no check reads."""
    run, node = about(files), Path(name).stem
    if run is None or not name.startswith("logs/"):
        return False
    partitions = run.get("partitions")
    return isinstance(partitions, dict) and not any(node in one["replicas"] for one in partitions.values())


def is_not_promised(files: Files, name: str) -> bool:
    """A dump, or the replicas' rows, of a system that shows none: no check reads them."""
    run = about(files)
    kind = "replicas" if name == ROWS else "dumps" if name.startswith("logs/") else None
    return run is not None and kind is not None and not twin_observes.shows(run, kind)


def is_spare(files: Files, name: str) -> bool:
    """Whether a judge need not read this file."""
    return lies_twice(files, name) or is_stray(files, name) or is_not_promised(files, name)


@mutation(UNREADABLE)
def all_dumps_go(files: Files, random: Random) -> str | None:
    for name in dumps(files):
        del files[name]
    return "logs/"


def emptied(name: str) -> str:
    """An empty dump is that of an empty log."""
    return TAMPERING if name.startswith("logs/") else UNREADABLE


@mutation(emptied)
def a_file_is_empty(files: Files, random: Random) -> str | None:
    picked = text_file(files, random)
    if picked is None:
        return None
    files[picked[0]] = random.choice((b"", b"\n", b"   \n\n"))
    return picked[0]


@mutation(UNREADABLE)
def a_file_is_something_else(files: Files, random: Random) -> str | None:
    """An archive, a picture, random bytes, text."""
    picked = text_file(files, random)
    if picked is None:
        return None
    files[picked[0]] = random.choice((
        b"PK\3\4" + random.randbytes(600), b"\x89PNG\r\n\x1a\n" + bytes(300), random.randbytes(2000) + b"\n",
        b"PAR1" + random.randbytes(40) + b"PAR1", b"<html>\n<body>\n</html>\n"))
    return picked[0]


@mutation(UNREADABLE)
def two_dumps_change_places(files: Files, random: Random) -> str | None:
    names = dumps(files, ".jsonl")
    if len(names) < 2 or dumps(files, ".parquet"):
        return None
    one, other = random.sample(names, 2)
    if not (files[one] or b"").strip() or not (files[other] or b"").strip():
        return None  # one of them would be the legal dump of an empty log
    files[one], files[other] = files[other], files[one]
    return "logs/"


@mutation(QUIET)
def a_mark_of_byte_order(files: Files, random: Random) -> str | None:
    """A byte order mark, which Windows' editors put in front; JSON does not allow it."""
    picked = text_file(files, random)
    if picked is None:
        return None
    files[picked[0]] = b"\xef\xbb\xbf" + picked[1]
    return picked[0]


@mutation(QUIET)
def line_ends_of_windows(files: Files, random: Random) -> str | None:
    picked = text_file(files, random)
    if picked is None:
        return None
    files[picked[0]] = picked[1].replace(b"\n", b"\r\n")
    return picked[0]


@mutation(HARMLESS)
def files_that_nobody_asked_for(files: Files, random: Random) -> str | None:
    files["verdict.json"] = b'{"format":1,"valid":true}'
    files["logs/.n1.jsonl.fresh"] = random.randbytes(20)
    files["logs/n9.jsonl"] = b"nonsense\n"
    files["nodes/n1/log-0/00000000000000000000.log"] = random.randbytes(60)
    return "verdict.json"


# -- run.json -----------------------------------------------------------------------------------------------

def about(files: Files) -> Line | None:
    try:
        data = json.loads(files.get(RUN) or b"")
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def says(files: Files, data: Line) -> str:
    files[RUN] = json.dumps(data).encode()
    return RUN


# Without these fields something is unknown; the others concern permissions, or are for people.
NEEDED = ("format", "nodes", "partitions", "settled", "final_reads", "history_lines")
UNNEEDED = ("version", "commit", "seed", "cluster", "rules", "workload", "schedule", "ended", "config")


@mutation(UNREADABLE)
def run_lacks_what_it_needs(files: Files, random: Random) -> str | None:
    """Final reads of no process count as none, with the field or without. A number of lines that says that
    some are missing is all that says so."""
    data, lines = about(files), (files.get("history.jsonl") or b"").count(b"\n")
    fields = [name for name in NEEDED if data and name in data and data[name] != {}
              and (name != "history_lines" or data[name] == lines)]
    if data is None or not fields:
        return None
    del data[random.choice(fields)]
    return says(files, data)


@mutation(HARMLESS)
def run_lacks_what_nobody_needs(files: Files, random: Random) -> str | None:
    """If lines of the history are missing, the plan says whether an unclean election may have been
    requested."""
    data = about(files)
    if data is None:
        return None
    missing = data.get("history_lines") != len((files.get("history.jsonl") or b"").splitlines())
    fields = [name for name in UNNEEDED[:-2] if name in data and not (missing and name == "schedule")]
    if not fields:
        return None
    data[random.choice(fields)] = random.choice((None, 5, "x", [], {"a": 1}))
    return says(files, data)


def mistypes(data: Line) -> list[tuple[str, Callable[[Any], None]]]:
    """Every place of run.json that a check uses, with a function that sets it."""
    def inside(*path: str) -> Callable[[Any], None]:
        def put(value: Any) -> None:
            holder = data
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value
        return put

    keys = [str(key) for key in data.get("partitions") or ()]
    paths: list[tuple[str, ...]] = [
        ("format",), ("nodes",), ("partitions",), ("settled",), ("history_lines",), ("final_reads",),
        ("final_reads", "processes"), ("final_reads", "partitions"), ("settle",), ("leaders",),
        ("clock_error_ns",), ("guarantees",), ("died",), ("died_words",)]
    for key in keys:
        paths += [("partitions", key), ("partitions", key, "replicas"), ("leaders", key),
                  ("leaders", key, "leader"), ("leaders", key, "isr")]
    return [(path[0], inside(*path)) for path in paths]


@mutation(QUIET)
def run_is_mistyped(files: Files, random: Random) -> str | None:
    """A field of run.json has another type: it then says nothing, and nothing may be blamed on it."""
    data = about(files)
    if data is None:
        return None
    name, put = random.choice(mistypes(data))
    value = random.choice(("5", 5.5, {"a": [1]}, [["x"]], [None], "", 1e300))
    if name in ("settle", "leaders", "guarantees", "final_reads") and random.random() < 0.3:
        value = None
    try:
        put(value)
    except (KeyError, TypeError):
        return None
    return says(files, data)


@mutation(TAMPERING)
def run_says_something_else(files: Files, random: Random) -> str | None:
    """Any field of run.json, at any depth, gets any value."""
    data = about(files)
    if data is None:
        return None
    holder: Any = data
    key: Any = random.choice(sorted(data))
    while isinstance(holder[key], dict | list) and holder[key] and random.random() < 0.7:
        holder = holder[key]
        key = random.choice(sorted(holder)) if isinstance(holder, dict) else random.randrange(len(holder))
    if random.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = random.choice((2**62, 2**63, -1, 1e300, True, "5", "", None, [], {}, [[{"a": None}]], 0,
                                     "../../etc", "\0", "n1", ["n1", "n1"], ["n\N{SNOWMAN}"], "compact"))
    return says(files, data)


# -- Parquet ------------------------------------------------------------------------------------------------

def in_parquet(files: Files, random: Random) -> None:
    """The dumps as Parquet, alone or with the lines; dumps that are no lines stay as they are."""
    beside = random.random() < 0.5
    for name in dumps(files, ".jsonl"):
        try:
            rows = [json.loads(line) for line in (files[name] or b"").split(b"\n") if line.strip()]
            table = pa.Table.from_pylist(rows, schema=DUMP)
        except (ValueError, TypeError, AttributeError, pa.ArrowException):
            continue
        files[f"{name.removesuffix('.jsonl')}.parquet"] = written(table)
        if not beside:
            del files[name]


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


def some_parquet(files: Files, random: Random) -> tuple[str, bytes] | None:
    names = dumps(files, ".parquet")
    if not names:
        return None
    name = random.choice(names)
    return name, files[name] or b""


@mutation(QUIET)
def a_parquet_is_cut(files: Files, random: Random) -> str | None:
    picked = some_parquet(files, random)
    if picked is None:
        return None
    name, data = picked
    files[name] = random.choice((data[:random.randrange(len(data))], data[:-20] + b"PAR1", data[4:], b""))
    return name


@mutation(TAMPERING)
def bits_of_a_parquet_flip(files: Files, random: Random) -> str | None:
    picked = some_parquet(files, random)
    if picked is None:
        return None
    data = bytearray(picked[1])
    for _ in range(random.choice((1, 3, 20))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    files[picked[0]] = bytes(data)
    return picked[0]


@mutation(QUIET)
def a_parquet_of_other_types(files: Files, random: Random) -> str | None:
    """A column has another type, is missing, or holds lists."""
    picked = some_parquet(files, random)
    if picked is None:
        return None
    table = parquet.read_table(io.BytesIO(picked[1]))
    column = random.choice(("partition", "offset", "epoch", "value", "crc"))
    at = table.schema.get_field_index(column)
    data = table[column].to_pylist()
    other = random.choice((
        pa.string(), pa.float64(), pa.int8(), pa.list_(pa.int64()), pa.timestamp("ns"), None))
    if other is None:
        table = table.remove_column(at)
    else:
        values = [[one] for one in data] if pa.types.is_list(other) else data
        if other == pa.string():
            values = [None if one is None else f"x{one}" for one in data]
        try:
            table = table.set_column(at, column, pa.array(values, type=other, safe=False))
        except (pa.ArrowException, OverflowError):
            return None
    files[picked[0]] = written(table)
    return picked[0]


@mutation(QUIET)
def a_parquet_of_something_else(files: Files, random: Random) -> str | None:
    picked = some_parquet(files, random)
    if picked is None:
        return None
    files[picked[0]] = written(pa.table({"a": [1, 2], "b": ["x", None]}))
    return picked[0]


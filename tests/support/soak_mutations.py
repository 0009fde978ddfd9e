"""Mutations of the files of a run folder: bytes, lines, fields, whole files, run.json, dumps as Parquet.

Rules kept here: a mutation changes one file and returns the file's name; where it has nothing to change it
raises Unfit. soak_laws classifies the change, unless the mutation is registered with a kind, because only the
mutation itself shows it.
"""

import io
import json
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import twin_observes
from pyarrow import parquet
from random_runs import Unfit, one
from soak_laws import HARMLESS, HISTORY, QUIET, ROWS, RUN, TAMPERING, TRACE, UNREADABLE, Files
from twin_folder import Line

Change = Callable[[Files, Random], str]
Kind = Callable[[str], str]  # by the name of the changed file
DEEP = 5_000  # more than any reader of JSON follows
HUGE = 1 << 20
JUNK = (b"\0", b"\xff\xfe", b"\xc3\x28", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\r",
        b"\xe2\x80\xa8", b"nonsense", b"null", b"-", b"e", b".",
        "\N{ZERO WIDTH SPACE}".encode(), "\N{GRINNING FACE}".encode())
ODD = ("4611686018427387904", "9223372036854775808", "-1", "1e400", "1.5", "5.0", "true", '"5"', "null", "[]",
       "{}", '[[{"a":[null]}]]', "-9223372036854775808", "18446744073709551616", "0", "1", "NaN", '"\\u0000"',
       '"\\ud800"', '"\N{SNOWMAN}"', "007", "9223372036854775807")
HERE = "\0here\0"  # marks the place of text that json cannot write
DUMP = pa.schema([
    ("node", pa.string()), ("partition", pa.int64()), ("offset", pa.int64()), ("epoch", pa.int64()),
    ("value", pa.int64()), ("crc", pa.int64()), ("crc_ok", pa.bool_()), ("aborted", pa.bool_())])
MUTATIONS: dict[str, tuple[Change, Kind | None]] = {}  # without a kind soak_laws decides it


def mutation(kind: Kind | str | None = None, of: Callable[[Any], Change] | None = None
             ) -> Callable[[Any], Any]:
    """of: what it is a change of; None: it changes the files itself."""
    def register(change: Any) -> Any:
        assert change.__name__ not in MUTATIONS
        MUTATIONS[change.__name__] = of(change) if of else change, (
            lambda _: kind) if isinstance(kind, str) else kind
        return change

    return register


def of_bytes(change: Callable[[bytes, Random], bytes]) -> Change:
    """Of the bytes of some file."""
    def of_file(files: Files, random: Random) -> str:
        name = text_file(files, random)
        files[name] = change(files[name] or b"", random)
        return name

    return of_file


def of_lines(change: Callable[[list[bytes], int, Random], list[bytes]]) -> Change:
    """Of a file of lines: its lines, and the index of one that is not blank."""
    def of_file(files: Files, random: Random) -> str:
        name, lines, spot = some_line(files, random)
        files[name] = b"\n".join(change(lines, spot, random))
        return name

    return of_file


def of_objects(change: Callable[[Line, Random], str]) -> Change:
    """Of one line's object; run.json is one line."""
    def of_file(files: Files, random: Random) -> str:
        is_run = random.random() < 0.2 and files.get(RUN)
        name, lines, spot = (RUN, [files[RUN] or b""], 0) if is_run else some_line(files, random)
        lines[spot] = change(object_of(lines[spot]), random).encode()
        files[name] = b"\n".join(lines)
        return name

    return of_file


def of_run(change: Callable[[Line, Random], None]) -> Change:
    def of_file(files: Files, random: Random) -> str:
        data = object_of(files.get(RUN) or b"")
        change(data, random)
        files[RUN] = json.dumps(data).encode()
        return RUN

    return of_file


def of_parquet(change: Callable[[bytes, Random], bytes]) -> Change:
    def of_file(files: Files, random: Random) -> str:
        name = one(random, dumps(files, ".parquet"))
        files[name] = change(files[name] or b"", random)
        return name

    return of_file


def text_file(files: Files, random: Random, *without: str) -> str:
    """Some file that is not empty; the history as often as all others together."""
    names = sorted(name for name, data in files.items()
                   if data and not name.endswith(".parquet") and name not in without)
    return HISTORY if HISTORY in names and random.random() < 0.4 else one(random, names)


def some_line(files: Files, random: Random) -> tuple[str, list[bytes], int]:
    name = text_file(files, random, RUN)
    lines = (files[name] or b"").split(b"\n")
    return name, lines, one(random, [spot for spot, line in enumerate(lines) if line.strip()])


def object_of(line: bytes) -> Line:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise Unfit from None
    if not isinstance(data, dict) or not data:
        raise Unfit
    return data


def objects_of(files: Files, name: str) -> tuple[list[bytes], dict[int, Line]]:
    """The lines of a file, and those that are objects, by their index."""
    lines, objects = (files.get(name) or b"").split(b"\n"), {}
    for spot, line in enumerate(lines):
        try:
            objects[spot] = object_of(line)
        except Unfit:
            continue
    return lines, objects


def write(files: Files, name: str, lines: list[bytes], changed: dict[int, Line]) -> str:
    for spot, data in changed.items():
        lines[spot] = json.dumps(data).encode()
    files[name] = b"\n".join(lines)
    return name


# -- bytes --------------------------------------------------------------------------------------------------

@mutation(of=of_bytes)
def bits_flip(data: bytes, random: Random) -> bytes:
    return flipped(data, random, random.choice((1, 1, 1, 2, 5)))


def flipped(data: bytes, random: Random, bits: int) -> bytes:
    changed = bytearray(data)
    for _ in range(bits):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


@mutation(of=of_lines)
def a_line_feed_flips(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    """A line feed becomes another byte."""
    if spot + 1 >= len(lines):
        raise Unfit
    return [*lines[:spot], lines[spot] + bytes([10 ^ 1 << random.randrange(8)]) + lines[spot + 1],
            *lines[spot + 2:]]


@mutation(of=of_bytes)
def bytes_go(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data))
    return data[:start] + data[start + random.choice((1, 1, 2, 9, 80)):]


@mutation(of=of_bytes)
def bytes_come(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + random.choice(JUNK) * random.choice((1, 1, 3)) + data[start:]


@mutation(of=of_bytes)
def the_end_is_cut(data: bytes, random: Random) -> bytes:
    return data[:random.randrange(len(data))]


@mutation(of=of_bytes)
def a_piece_of_nothing(data: bytes, random: Random) -> bytes:
    """As after a crash: some bytes are zeros."""
    start = random.randrange(len(data))
    size = min(random.choice((1, 16, 512)), len(data) - start)
    return data[:start] + bytes(size) + data[start + size:]


# -- lines --------------------------------------------------------------------------------------------------

@mutation(of=of_lines)
def a_line_goes(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    return lines[:spot] + lines[spot + 1:]


def twice(name: str) -> str:
    """Lines are known by the index in a history, by the name in rows, by seq in a trace; in a dump it is
    damage."""
    return UNREADABLE if name in (HISTORY, ROWS, TRACE) else TAMPERING


@mutation(twice, of_lines)
def a_line_comes_twice(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    again = random.choice((spot, spot, random.randrange(len(lines)))) + 1
    return [*lines[:again], lines[spot], *lines[again:]]


def swapped(name: str) -> str:
    """Rows and events may be in any order; in a history the index is then wrong."""
    return {HISTORY: UNREADABLE, ROWS: HARMLESS, TRACE: HARMLESS}.get(name, TAMPERING)


@mutation(swapped, of_lines)
def lines_change_places(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    other = one(random, [at for at, line in enumerate(lines) if line.strip() and line != lines[spot]])
    lines[spot], lines[other] = lines[other], lines[spot]
    return lines


@mutation(of=of_lines)
def lines_are_glued(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    if spot + 1 >= len(lines) or not lines[spot + 1].strip():
        raise Unfit
    glue = random.choice((b"", b" ", b",", b", ", b"\t", b"\r", b"\0", b";", b"\xff"))
    return [*lines[:spot], lines[spot] + glue + lines[spot + 1], *lines[spot + 2:]]


@mutation()
def a_line_of_something_else(files: Files, random: Random) -> str:
    name, lines, spot = some_line(files, random)
    others = [line for other in files if other != name and not other.endswith(".parquet")
              for line in (files[other] or b"").split(b"\n")[:3]]
    line = random.choice([b"nonsense", b"[1]", b"17", b"null", b'"x"', b"{}", b"[" * DEEP, b'{"a":' * DEEP,
                          b"x" * HUGE, b'{"a":"' + b"y" * HUGE + b'"}', b"\xff\xfe\0", *others])
    end = spot if random.random() < 0.5 else spot + 1  # in place of a line, or before it
    return write(files, name, [*lines[:spot], line, *lines[end:]], {})


@mutation(HARMLESS, of_lines)
def blank_lines_come(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    return [*lines[:spot], *random.choice(([b""], [b"   "], [b"", b"", b""])), *lines[spot:]]


@mutation(of=of_bytes)
def the_last_line_feed_goes(data: bytes, random: Random) -> bytes:
    return data.rstrip(b"\n")


# -- fields -------------------------------------------------------------------------------------------------

def places(value: Any, without: Collection[str] = ()) -> list[tuple[Any, Any]]:
    """Every (container, key) in it, without those below some keys."""
    every = [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    keys = [key for key in every if key not in without]
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key], without)]


@mutation(of=of_objects)
def a_value_is_another(data: Line, random: Random) -> str:
    holder, key = random.choice(places(data))
    holder[key] = HERE
    return json.dumps(data).replace(json.dumps(HERE), random.choice(ODD))


@mutation(of=of_objects)
def a_field_goes(data: Line, random: Random) -> str:
    holder, key = random.choice(places(data))
    del holder[key]
    return json.dumps(data)


@mutation(of=of_objects)
def a_field_comes_twice(data: Line, random: Random) -> str:
    """A field a second time at the front or the end, with the same value or another."""
    key = random.choice(sorted(data))
    value = json.dumps(data[key]) if random.random() < 0.3 else random.choice(ODD)
    text, again = json.dumps(data), f"{json.dumps(key)}:{value}"
    return "{" + again + "," + text[1:] if random.random() < 0.5 else text[:-1] + "," + again + "}"


@mutation(HARMLESS, of_objects)
def it_is_said_in_other_words(data: Line, random: Random) -> str:
    """Fields in another order, spaces, escapes, and unknown fields."""
    fields = list(data.items())
    random.shuffle(fields)
    fields.insert(random.randrange(len(fields) + 1), ("comment", random.choice(
        ({"why": [1, None]}, "\N{SNOWMAN}", "\u0000", [[]], "a" * 3000, 2**70, 1.5, "\\\"'"))))
    text = json.dumps(dict(fields), separators=random.choice(((",", ":"), (" , ", " : "))),
                      ensure_ascii=random.random() < 0.5)
    if random.random() < 0.3:
        text = text.replace('"index"', '"\\u0069ndex"').replace('"offset"', '"o\\u0066fset"')
    return random.choice(("", " ", "\t")) + text + random.choice(("", "  "))


@mutation(UNREADABLE)
def the_clock_goes_back(files: Files, random: Random) -> str:
    """A line of the history is older than the one before."""
    return smaller(files, random, "time", random.randrange)


@mutation(UNREADABLE)
def an_index_comes_twice(files: Files, random: Random) -> str:
    """A line of the history has the index of an earlier one."""
    return smaller(files, random, "index", lambda before: random.randrange(before + 1))


def smaller(files: Files, random: Random, field: str, draw: Callable[[int], int]) -> str:
    """Sets a field of a line of the history to a smaller value than on the line before."""
    lines, objects = objects_of(files, HISTORY)
    spot = one(random, [spot for spot in objects if spot - 1 in objects])
    try:
        value = draw(objects[spot - 1][field])
    except (ValueError, KeyError, TypeError):
        raise Unfit from None
    return write(files, HISTORY, lines, {spot: objects[spot] | {field: value}})


# -- the trace's lines on clients and on restarts -----------------------------------------------------------

def is_number(value: object) -> bool:
    return type(value) is int and 0 < value < 1 << 62


@mutation(TAMPERING)
def a_start_finds_less(files: Files, random: Random) -> str:
    """A replica starts with a shorter log than it did: recovery-loss, if it surely had more."""
    lines, objects = objects_of(files, TRACE)
    spot = one(random, [spot for spot, data in objects.items()
                        if data.get("event") == "start" and is_number(data.get("leo"))])
    leo = random.randrange(objects[spot]["leo"])
    return write(files, TRACE, lines, {spot: objects[spot] | {"leo": leo}})


@mutation(TAMPERING)
def no_hw_is_that_high(files: Files, random: Random) -> str:
    """All lines of a partition have an HW below its highest: read-above-hw, end-offset-ahead."""
    lines, objects = objects_of(files, TRACE)
    data = {spot: line for spot, line in objects.items() if is_number(line.get("hw"))}
    partition = one(random, list(data.values())).get("partition")
    mine = {spot: line for spot, line in data.items() if line.get("partition") == partition}
    most = random.randrange(max(line["hw"] for line in mine.values()))
    return write(files, TRACE, lines,
                 {spot: line | {"hw": min(line["hw"], most)} for spot, line in mine.items()})


@mutation(TAMPERING)
def an_end_is_higher(files: Files, random: Random) -> str:
    """A client got a higher end offset: end-offset-ahead."""
    lines, objects = objects_of(files, HISTORY)
    ends = [(spot, end) for spot, data in objects.items()
            if (data.get("f"), data.get("type")) == ("list_offsets", "ok")
            and isinstance(data.get("offsets"), list) for end in data["offsets"]
            if isinstance(end, dict) and is_number(end.get("offset"))]
    spot, end = one(random, ends)
    end["offset"] += random.randrange(1, 9)
    return write(files, HISTORY, lines, {spot: objects[spot]})


# -- files as units -----------------------------------------------------------------------------------------

def dumps(files: Files, ending: str = "") -> list[str]:
    return sorted(name for name in files if name.startswith("logs/") and name.endswith(ending))


def gone(name: str) -> str:
    """Without a trace its checks are not made."""
    return QUIET if name == TRACE else UNREADABLE


@mutation(gone)
def a_file_goes(files: Files, random: Random) -> str:
    name = one(random, [name for name in sorted(files) if not lies_twice(files, name)])
    del files[name]
    return name


@mutation(gone)
def a_folder_stands_there(files: Files, random: Random) -> str:
    name = one(random, [name for name in sorted(files) if not lies_twice(files, name)])
    files[name] = None
    return name


def lies_twice(files: Files, name: str) -> bool:
    """Whether a dump is there as lines and as Parquet; either will do."""
    stem = name.rpartition(".")[0]
    return name.startswith("logs/") and f"{stem}.jsonl" in files and f"{stem}.parquet" in files


def is_spare(files: Files, name: str) -> bool:
    """Whether a judge need not read this file: a dump that lies twice, or of a node that no partition is
    assigned to (stray copies, which no check reads); a dump, or the rows, of a system that shows none."""
    kind = "replicas" if name == ROWS else "dumps" if name.startswith("logs/") else None
    try:
        run = object_of(files.get(RUN) or b"")
    except Unfit:
        run = {}
    partitions = run.get("partitions")
    return kind is not None and (
        lies_twice(files, name) or (bool(run) and not twin_observes.shows(run, kind))
        or (kind == "dumps" and isinstance(partitions, dict)
        and not any(Path(name).stem in each["replicas"] for each in partitions.values())))


@mutation(UNREADABLE)
def all_dumps_go(files: Files, random: Random) -> str:
    for name in dumps(files):
        del files[name]
    return "logs/"


def emptied(name: str) -> str:
    """An empty dump is that of an empty log."""
    return TAMPERING if name.startswith("logs/") else UNREADABLE


@mutation(emptied, of_bytes)
def a_file_is_empty(data: bytes, random: Random) -> bytes:
    return random.choice((b"", b"\n", b"   \n\n"))


@mutation(UNREADABLE, of_bytes)
def a_file_is_something_else(data: bytes, random: Random) -> bytes:
    """An archive, a picture, random bytes, text."""
    return random.choice((
        b"PK\3\4" + random.randbytes(600), b"\x89PNG\r\n\x1a\n" + bytes(300), random.randbytes(2000) + b"\n",
        b"PAR1" + random.randbytes(40) + b"PAR1", b"<html>\n<body>\n</html>\n"))


@mutation(UNREADABLE)
def two_dumps_change_places(files: Files, random: Random) -> str:
    # The dump of an empty log would be legal in any place.
    names = [name for name in dumps(files, ".jsonl") if (files[name] or b"").strip()]
    if len(names) < 2 or dumps(files, ".parquet"):
        raise Unfit
    one, other = random.sample(names, 2)
    files[one], files[other] = files[other], files[one]
    return "logs/"


@mutation(QUIET, of_bytes)
def a_mark_of_byte_order(data: bytes, random: Random) -> bytes:
    """A byte order mark, which Windows' editors put in front; JSON does not allow it."""
    return b"\xef\xbb\xbf" + data


@mutation(QUIET, of_bytes)
def line_ends_of_windows(data: bytes, random: Random) -> bytes:
    return data.replace(b"\n", b"\r\n")


@mutation(HARMLESS)
def files_that_nobody_asked_for(files: Files, random: Random) -> str:
    files["verdict.json"] = b'{"format":1,"valid":true}'
    files["logs/.n1.jsonl.fresh"] = random.randbytes(20)
    files["logs/n9.jsonl"] = b"nonsense\n"
    files["nodes/n1/log-0/00000000000000000000.log"] = random.randbytes(60)
    return "verdict.json"


# -- run.json -----------------------------------------------------------------------------------------------

# Without these fields something is unknown; the others concern permissions, or are for people.
NEEDED = ("format", "nodes", "partitions", "settled", "final_reads", "history_lines")
UNNEEDED = ("version", "commit", "seed", "cluster", "rules", "workload", "schedule")


@mutation(UNREADABLE)
def run_lacks_what_it_needs(files: Files, random: Random) -> str:
    """Final reads of no process count as none, with the field or without. A number of lines that says that
    some are missing is all that says so."""
    data, lines = object_of(files.get(RUN) or b""), (files.get(HISTORY) or b"").count(b"\n")
    del data[one(random, [name for name in NEEDED if data.get(name, {}) != {}
                          and (name != "history_lines" or data[name] == lines)])]
    return write(files, RUN, [b""], {0: data})


@mutation(HARMLESS)
def run_lacks_what_nobody_needs(files: Files, random: Random) -> str:
    """If lines of the history are missing, the plan says whether an unclean election may have been
    requested."""
    data, lines = object_of(files.get(RUN) or b""), len((files.get(HISTORY) or b"").splitlines())
    missing = data.get("history_lines") != lines
    name = one(random, [name for name in UNNEEDED if name in data and not (missing and name == "schedule")])
    data[name] = random.choice((None, 5, "x", [], {"a": 1}))
    return write(files, RUN, [b""], {0: data})


@mutation(QUIET, of_run)
def run_is_mistyped(data: Line, random: Random) -> None:
    """A field of run.json that a check uses has another type: it then says nothing, and nothing may be
    blamed on it."""
    paths: list[tuple[str, ...]] = [
        ("format",), ("nodes",), ("partitions",), ("settled",), ("history_lines",), ("final_reads",),
        ("final_reads", "processes"), ("final_reads", "partitions"), ("settle",), ("leaders",),
        ("clock_error_ns",), ("guarantees",), ("died",), ("died_words",)]
    for key in map(str, data.get("partitions") or ()):
        paths += [("partitions", key), ("partitions", key, "replicas"), ("leaders", key),
                  ("leaders", key, "leader"), ("leaders", key, "isr")]
    *way, last = path = random.choice(paths)
    value = random.choice(("5", 5.5, {"a": [1]}, [["x"]], [None], "", 1e300))
    if path[0] in ("settle", "leaders", "guarantees", "final_reads") and random.random() < 0.3:
        value = None
    try:
        holder = data
        for key in way:
            holder = holder[key]
        holder[last] = value
    except (KeyError, TypeError):
        raise Unfit from None


@mutation(TAMPERING, of_run)
def run_says_something_else(data: Line, random: Random) -> None:
    """Any field of run.json, at any depth, gets any value."""
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


@mutation(QUIET, of_parquet)
def a_parquet_is_cut(data: bytes, random: Random) -> bytes:
    return random.choice((data[:random.randrange(len(data))], data[:-20] + b"PAR1", data[4:], b""))


@mutation(TAMPERING, of_parquet)
def bits_of_a_parquet_flip(data: bytes, random: Random) -> bytes:
    return flipped(data, random, random.choice((1, 3, 20)))


@mutation(QUIET, of_parquet)
def a_parquet_of_other_types(data: bytes, random: Random) -> bytes:
    """A column has another type, is missing, or holds lists."""
    table = parquet.read_table(io.BytesIO(data))
    column = random.choice(("partition", "offset", "epoch", "value", "crc"))
    at, values = table.schema.get_field_index(column), table[column].to_pylist()
    other = random.choice((
        pa.string(), pa.float64(), pa.int8(), pa.list_(pa.int64()), pa.timestamp("ns"), None))
    if other is None:
        return written(table.remove_column(at))
    if pa.types.is_list(other):
        values = [[each] for each in values]
    if other == pa.string():
        values = [None if each is None else f"x{each}" for each in values]
    try:
        return written(table.set_column(at, column, pa.array(values, type=other, safe=False)))
    except (pa.ArrowException, OverflowError):
        raise Unfit from None


@mutation(QUIET, of_parquet)
def a_parquet_of_something_else(data: bytes, random: Random) -> bytes:
    return written(pa.table({"a": [1, 2], "b": ["x", None]}))


# -- one value of another type ------------------------------------------------------------------------------

GONE = object()
OF_ANY_TYPE: tuple[Any, ...] = (
    GONE, None, True, 1.5, 1e300, 10**30, 7, "7", "", "\N{SNOWMAN}", [], [None], [1], ["n1"], [[1]], {},
    {"a": [1]})
# Files that the twin reads line by line, and how often one is changed.
SHARES = {HISTORY: 4, ROWS: 1, TRACE: 6, "logs/n1.jsonl": 1, "logs/n2.jsonl": 1}
# These are read by people only, or reported whatever their type.
LEFT_ALONE = frozenset({"acks", "error", "follower", "fault", "why", "cause", "moment"})


def mistype(folder: Path, random: Random) -> str:
    """Changes the type of one value in one line of a run's files, or removes it, and nothing else: a value of
    the right type cannot be doubted. Returns what was done."""
    names = [name for name in SHARES if (folder / name).is_file() and (folder / name).stat().st_size]
    if not names:  # an earlier damage has emptied or removed them all
        return "nothing: no file has a line"
    (name,) = random.choices(names, [SHARES[name] for name in names])
    files: Files = {name: (folder / name).read_bytes()}
    lines, objects = objects_of(files, name)
    found = [(spot, data) for spot, data in objects.items() if places(data, LEFT_ALONE)]
    if not found:
        return f"nothing to {name}"
    spot, data = random.choice(found)
    holder, key = random.choice(places(data, LEFT_ALONE))
    was = holder[key]
    odd = random.choice([odd for odd in OF_ANY_TYPE if type(odd) is not type(was)])
    if odd is GONE:
        del holder[key]
    else:
        holder[key] = odd
    (folder / write(files, name, lines, {spot: data})).write_bytes(files[name] or b"")
    said = "gone" if odd is GONE else json.dumps(odd)
    return f"{name}:{spot + 1} {key} was {json.dumps(was)[:40]}, is {said}"

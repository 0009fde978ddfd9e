"""The twin's reader: a run folder as plain dicts, with everything that is wrong with its files.

Rules kept here: a line is valid or not as a unit (one mistyped field, and the line is no evidence); blank
lines are ignored; a last line of the history that has no line feed and is no JSON is torn, and ignored; a
missing file is never an empty one.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import twin_observes

Line = dict[str, Any]

CLIENT_FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")
LIMIT = 2**63


@dataclass(slots=True, kw_only=True)
class Folder:
    """A run folder as read. The booleans say what is wrong with it."""

    run: Line | None = None  # None: run.json missing, unreadable or of another format
    lines: list[Line] = field(default_factory=list)  # the good lines of the history, each with its "position"
    positions: int = 0  # complete lines of the history, good and bad
    breach: bool = False  # some line of the history breaks the field table
    disordered: bool = False  # indexes that do not rise from line to line
    time_falls: bool = False
    strange: list[str] = field(default_factory=list)  # invalid lines of the history, as written
    torn: int = 0
    rows: list[Line] = field(default_factory=list)
    rows_damaged: bool = False
    dumps: dict[str, list[Line]] = field(default_factory=dict)  # without nodes that have no readable file
    damaged: set[str] = field(default_factory=set)  # nodes whose dump is missing, torn or damaged
    trace: list[Line] | None = None  # its readable part, which proves what it shows
    # It has no gap and lacks no node, nor a controller: a missing event proves something too.
    trace_complete: bool = False
    shows_elections: bool = False  # ... and it shows which leaders were elected from which copies
    shows_cleanness: bool = False  # ... and which elections were clean


def read(path: Path) -> Folder:
    """Reads the folder; raises nothing for its contents."""
    folder = Folder(run=read_run(path / "run.json"))
    if folder.run is None:
        return folder
    read_history(path / "history.jsonl", folder)
    if twin_observes.shows(folder.run, "replicas"):
        read_rows(path / "replicas.jsonl", folder)
    else:
        folder.rows_damaged = True  # they are not reliable
    if twin_observes.shows(folder.run, "dumps"):
        for node in folder.run["nodes"]:
            read_dump(path / "logs", node, folder)
        replicas = {node for spec in folder.run["partitions"].values() for node in spec["replicas"]}
        folder.damaged |= replicas - {*folder.run["nodes"]}  # nobody reads their logs
    else:
        folder.damaged |= set(folder.run["nodes"])
    if twin_observes.events(folder.run) != []:
        read_trace(path / "trace.jsonl", folder)
    return folder


def read_run(path: Path) -> Line | None:
    try:
        run = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return run if isinstance(run, dict) and run.get("format") == 1 else None


def parse_lines(path: Path) -> tuple[list[Line | None], bool]:
    """Every line that is not blank, parsed (None: no JSON object), and whether the file's last byte is a
    LF."""
    data = path.read_bytes()
    parsed = [object_of(raw) for raw in data.split(b"\n") if raw.strip()]
    return parsed, data.endswith(b"\n") or not data


def object_of(line: bytes) -> Line | None:
    """The line's JSON object, or None; a number of very many digits is some number, and no integer."""
    try:
        value = json.loads(line.decode(), parse_constant=refuse,
                           parse_int=lambda digits: int(digits) if len(digits) < 25 else 0.5)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def refuse(word: str) -> None:
    raise ValueError(word)


# -- the types of fields ----------------------------------------------------------------------------------

def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LIMIT <= value < LIMIT


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_offset(value: object) -> bool:
    return is_int(value) and value >= 0  # type: ignore[operator]


def clock_error(run: Line) -> int:
    """How far two stamps may be apart; if the field is not understood, more than any two are."""
    value: Any = run.get("clock_error_ns", 0)
    return value if is_offset(value) else 1 << 62


def is_optional(kind: Callable[[object], bool], value: object) -> bool:
    return value is None or kind(value)


def is_send(value: object) -> bool:
    return (isinstance(value, dict) and is_offset(value.get("partition")) and is_int(value.get("value"))
            and is_optional(is_offset, value.get("offset")) and is_optional(is_int, value.get("epoch")))


def is_read(value: object) -> bool:
    return is_send(value) and value.get("offset") is not None  # type: ignore[attr-defined]


def is_end(value: object) -> bool:
    return is_start(value) and is_optional(is_int, value.get("epoch"))  # type: ignore[attr-defined]


def is_start(value: object) -> bool:
    return isinstance(value, dict) and is_offset(value.get("partition")) and is_offset(value.get("offset"))


def is_list(kind: Callable[[object], bool], value: object) -> bool:
    return isinstance(value, list) and all(kind(one) for one in value)


# Of any line: what its lists have; and what an op that is ok must have.
LISTS = {"sends": is_send, "reads": is_read, "partitions": is_offset, "offsets": is_end, "starts": is_start}
NEEDED = {"assign": "partitions", "subscribe": "partitions", "poll": "reads", "list_offsets": "offsets"}


# -- history.jsonl ------------------------------------------------------------------------------------------

def read_history(path: Path, folder: Folder) -> None:
    """Fills lines, positions, breach and torn. A missing file is a breach: its lines are missing."""
    assert folder.run is not None
    try:
        parsed, ends_well = parse_lines(path)
    except OSError:
        folder.breach = True
        return
    if parsed and parsed[-1] is None and not ends_well:
        parsed.pop()
        folder.torn = 1
    folder.positions = len(parsed)
    texts = [raw for raw in path.read_bytes().split(b"\n") if raw.strip()]
    before, highest = 0, -1
    for position, line in enumerate(parsed):
        if line is None or not fits_field_table(line):
            folder.breach = True
            folder.strange.append(texts[position].decode(errors="replace"))
            continue
        folder.disordered |= line["index"] <= highest
        folder.time_falls |= line["time"] < before
        folder.breach |= line["index"] != position or folder.time_falls
        before, highest = line["time"], max(highest, line["index"])
        folder.lines.append({**line, "position": position})
    promised = folder.run.get("history_lines")
    if promised is not None and folder.positions < promised:
        folder.breach = True


def fits_field_table(line: Line) -> bool:
    """Whether the line has every field that its type and f require, each of its type."""
    f, process = line.get("f"), line.get("process")
    if not (is_offset(line.get("index")) and is_offset(line.get("time")) and is_int(process) and process >= -1
            and is_text(f) and line.get("type") in ("invoke", "ok", "fail", "info")
            and is_optional(is_text, line.get("error")) and all(
                is_optional(lambda items, kind=kind: is_list(kind, items), line.get(name))
                for name, kind in LISTS.items())):
        return False
    if process == -1:
        return line["type"] == "info" and isinstance(line.get("fault"), dict)
    if f == "send" and not line.get("sends"):
        return False
    return f in CLIENT_FS and (line["type"] != "ok" or f not in NEEDED or line.get(NEEDED[f]) is not None)


# -- replicas.jsonl, logs/, trace.jsonl ---------------------------------------------------------------------

def read_rows(path: Path, folder: Folder) -> None:
    """Reads the good rows, and whether any row is bad, or any replica of run.json has none."""
    assert folder.run is not None
    try:
        parsed, _ = parse_lines(path)
    except OSError:
        folder.rows_damaged = True
        return
    good = [row for row in parsed if row is not None and is_row(row)]
    there = {(row["node"], row["partition"]): row for row in reversed(good)}  # of two the first
    folder.rows = [*there.values()]
    asked = {(node, int(key)) for key, spec in folder.run["partitions"].items() for node in spec["replicas"]}
    folder.rows_damaged = len(folder.rows) < len(parsed) or not asked <= there.keys()


def is_row(row: Line) -> bool:
    """Whether this is one replica's row: its name, its place, its three offsets; the rest may be null if the
    node was not running."""
    def is_boundary(value: object) -> bool:
        return isinstance(value, list) and len(value) == 2 and all(is_int(one) for one in value)

    return (is_text(row.get("node")) and all(is_offset(row.get(key)) for key in
                                              ("partition", "log_start", "leo", "hw"))
            and is_optional(is_text, row.get("leader")) and is_int(row.get("epoch"))
            and is_optional(lambda value: is_list(is_text, value), row.get("isr"))
            and is_optional(lambda value: is_list(is_boundary, value), row.get("epochs"))
            and is_optional(is_flag, row.get("running"))
            and is_optional(is_flag, row.get("epochs_unreadable"))
            and is_optional(is_offset, row.get("lso")))


def read_dump(logs: Path, node: str, folder: Folder) -> None:
    """Reads one node's dump: JSON lines, or Parquet if there is nothing else."""
    try:
        if (logs / f"{node}.jsonl").exists():
            parsed, _ = parse_lines(logs / f"{node}.jsonl")
        else:
            parsed = read_parquet(logs / f"{node}.parquet")
    except OSError:
        folder.damaged.add(node)
        return
    good = [entry for entry in parsed if entry is not None and is_entry(entry, node)]
    folder.dumps[node] = good
    if len(good) < len(parsed):
        folder.damaged.add(node)


def read_parquet(path: Path) -> list[Line | None]:
    from pyarrow import ArrowInvalid, parquet
    try:
        return list(parquet.read_table(path).to_pylist())
    except ArrowInvalid as error:
        raise OSError(str(error)) from error


def is_entry(entry: Line, node: str) -> bool:
    return (entry.get("node") == node and is_offset(entry.get("partition")) and is_offset(entry.get("offset"))
            and is_int(entry.get("epoch")) and entry["epoch"] >= -1
            and "value" in entry and is_optional(is_int, entry["value"]) and is_int(entry.get("crc"))
            and is_optional(is_flag, entry.get("crc_ok")) and is_optional(is_flag, entry.get("aborted")))


def read_trace(path: Path, folder: Folder) -> None:
    """Reads the trace's events by time. It is complete if every line is valid, each node has each seq once
    from its first to its last, and every node is in it."""
    assert folder.run is not None
    try:
        parsed, _ = parse_lines(path)
    except OSError:
        return
    good = [event for event in parsed if event is not None and is_int(event.get("time"))
            and is_text(event.get("node")) and is_offset(event.get("seq")) and is_text(event.get("event"))]
    seqs: dict[str, list[int]] = {}
    for event in good:
        seqs.setdefault(event["node"], []).append(event["seq"])
    # seq starts at 0; starting at 1 is no gap. The order of lines in the file does not matter.
    gap = any(sorted(numbers) not in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))
              for numbers in seqs.values())
    folder.trace = sorted(good, key=lambda event: event["time"])
    folder.trace_complete = len(good) == len(parsed) and not gap and nobody_is_silent(folder.run, set(seqs))
    folder.shows_elections = folder.trace_complete and twin_observes.promises(
        folder.run, *twin_observes.WHAT_EXCUSES)
    folder.shows_cleanness = folder.trace_complete and twin_observes.promises(folder.run, "elect")


def nobody_is_silent(run: Line, heard: set[str]) -> bool:
    """Every broker and some controller have lines, if the promises require them."""
    brokers, roles = set(run["nodes"]), ("become_leader", "become_follower")
    lives = any(twin_observes.promises(run, *events) for events in (("start",), ("append",), roles))
    return (brokers <= heard or not lives) and (
        bool(heard - brokers) or not twin_observes.promises(run, "register"))

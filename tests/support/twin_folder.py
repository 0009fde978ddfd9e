"""The twin's eyes: a run folder read into plain dicts, with everything that is wrong with its files noted.

Rules kept here: a line is judged whole (one mistyped field and the line is no evidence at all); blank
lines are nothing; a last line of the history without its line feed and without sense is torn, and ignored;
a missing file is never an empty one.
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
    """A run folder as found. The booleans say what is wrong with it."""

    run: Line | None = None  # None: run.json missing, unreadable or of another format
    lines: list[Line] = field(default_factory=list)  # the good lines of the history, each with its "position"
    positions: int = 0  # whole lines of the history, good and bad
    breach: bool = False  # some line of the history breaks the field table
    disordered: bool = False  # indexes that do not rise from line to line
    time_falls: bool = False
    strange: list[str] = field(default_factory=list)  # lines of the history that are none, as they stand
    torn: int = 0
    rows: list[Line] = field(default_factory=list)
    rows_damaged: bool = False
    dumps: dict[str, list[Line]] = field(default_factory=dict)  # a node without a readable file is not here
    damaged: set[str] = field(default_factory=set)  # nodes whose dump is missing, torn or damaged
    trace: list[Line] | None = None  # what can be read of it; it may prove what it shows
    # It has no gap and lacks no node, nor a controller: it may prove what it does not show.
    trace_whole: bool = False
    elections_told: bool = False  # ... and it shows who was chosen from which copies
    cleanness_told: bool = False  # ... and which elections were clean


def read(path: Path) -> Folder:
    """Read the whole folder; nothing is raised for what is in it."""
    folder = Folder(run=read_run(path / "run.json"))
    if folder.run is None:
        return folder
    read_history(path / "history.jsonl", folder)
    if twin_observes.shows(folder.run, "replicas"):
        read_rows(path / "replicas.jsonl", folder)
    else:
        folder.rows_damaged = True  # nobody can rely on them
    if twin_observes.shows(folder.run, "dumps"):
        for node in folder.run["nodes"]:
            read_dump(path / "logs", node, folder)
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


def whole_lines(path: Path) -> tuple[list[Line | None], bool]:
    """Every line that is not blank, parsed (None: no JSON object), and whether the file's last byte is a
    LF."""
    data = path.read_bytes()
    parsed: list[Line | None] = []
    for raw in data.split(b"\n"):
        if raw.strip():
            try:
                value = json.loads(raw.decode())
            except ValueError:
                value = None
            parsed.append(value if isinstance(value, dict) else None)
    return parsed, data.endswith(b"\n") or not data


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
    """How far two stamps may be apart; more than any two are, where nobody understands what is told."""
    told: Any = run.get("clock_error_ns", 0)
    return told if is_offset(told) else 1 << 62


def is_optional(kind: Callable[[object], bool], value: object) -> bool:
    return value is None or kind(value)


def is_send(value: object) -> bool:
    return (isinstance(value, dict) and is_offset(value.get("partition")) and is_int(value.get("value"))
            and is_optional(is_offset, value.get("offset")) and is_optional(is_int, value.get("epoch")))


def is_read(value: object) -> bool:
    return is_send(value) and value.get("offset") is not None  # type: ignore[attr-defined]


def is_end(value: object) -> bool:
    return isinstance(value, dict) and is_offset(value.get("partition")) and is_offset(value.get("offset"))


def is_list(kind: Callable[[object], bool], value: object) -> bool:
    return isinstance(value, list) and all(kind(one) for one in value)


# -- history.jsonl ------------------------------------------------------------------------------------------

def read_history(path: Path, folder: Folder) -> None:
    """Fill lines, positions, breach and torn. A file that is not there is a breach: its lines are missing."""
    assert folder.run is not None
    try:
        parsed, ends_well = whole_lines(path)
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
    """Does one line have every field its type and f ask for, each of its type?"""
    if not (is_offset(line.get("index")) and is_offset(line.get("time")) and is_int(line.get("process"))
            and isinstance(line.get("f"), str) and line["process"] >= -1):
        return False
    if line.get("type") not in ("invoke", "ok", "fail", "info"):
        return False
    if line["process"] == -1:
        return line["type"] == "info" and is_fault(line.get("fault"))
    return line["f"] in CLIENT_FS and has_its_fields(line)


def is_fault(value: object) -> bool:
    """What a nemesis says of its act: an object, whose nodes (where it has them) are names."""
    if value is None:
        return True
    return isinstance(value, dict) and is_optional(lambda nodes: is_list(is_text, nodes), value.get("nodes"))


def has_its_fields(line: Line) -> bool:
    f, ok = line["f"], line["type"] == "ok"
    required = {"send": ["sends"], "assign": ["partitions"] if ok else [],
                "subscribe": ["partitions"] if ok else [], "poll": ["reads"] if ok else [],
                "list_offsets": ["offsets"] if ok else []}.get(f, [])
    kinds = {"sends": is_send, "reads": is_read, "partitions": is_offset, "offsets": is_end}
    return all(line.get(name) is not None for name in required) and all(
        is_list(kind, line[name]) for name, kind in kinds.items() if line.get(name) is not None)


# -- replicas.jsonl, logs/, trace.jsonl ---------------------------------------------------------------------

def read_rows(path: Path, folder: Folder) -> None:
    """The good rows, and whether any row is bad, or any replica that run.json names has none."""
    assert folder.run is not None
    try:
        parsed, _ = whole_lines(path)
    except OSError:
        folder.rows_damaged = True
        return
    folder.rows = [row for row in parsed if row is not None and is_row(row)]
    there = {(row["node"], row["partition"]) for row in folder.rows}
    asked = {(node, int(key)) for key, spec in folder.run["partitions"].items() for node in spec["replicas"]}
    folder.rows_damaged = len(folder.rows) < len(parsed) or not asked <= there


def is_row(row: Line) -> bool:
    """One replica's row: who, where, its three offsets; the rest may be null where the node was not
    running."""
    def is_boundary(value: object) -> bool:
        return isinstance(value, list) and len(value) == 2 and all(is_int(one) for one in value)

    return (is_text(row.get("node")) and all(is_offset(row.get(key)) for key in
                                              ("partition", "log_start", "leo", "hw"))
            and is_optional(is_text, row.get("leader")) and is_int(row.get("epoch"))
            and is_optional(lambda value: is_list(is_text, value), row.get("isr"))
            and is_optional(lambda value: is_list(is_boundary, value), row.get("epochs"))
            and is_optional(is_flag, row.get("running"))
            and is_optional(is_offset, row.get("lso")))


def read_dump(logs: Path, node: str, folder: Folder) -> None:
    """One node's dump: JSON lines, or Parquet where that stands alone."""
    try:
        if (logs / f"{node}.jsonl").exists():
            parsed, _ = whole_lines(logs / f"{node}.jsonl")
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
            and is_int(entry.get("epoch")) and "value" in entry and is_optional(is_int, entry["value"])
            and is_int(entry.get("crc")) and is_optional(is_flag, entry.get("crc_ok"))
            and is_optional(is_flag, entry.get("aborted")))


def read_trace(path: Path, folder: Folder) -> None:
    """The trace's events by time; whole if every line is one, each node has each seq once from its first
    to its last, and every node is in it."""
    assert folder.run is not None
    try:
        parsed, _ = whole_lines(path)
    except OSError:
        return
    good = [event for event in parsed if event is not None and is_int(event.get("time"))
            and is_text(event.get("node")) and is_int(event.get("seq")) and is_text(event.get("event"))]
    seqs: dict[str, list[int]] = {}
    for event in good:
        seqs.setdefault(event["node"], []).append(event["seq"])
    # From 0; that it is counted from 1 is no gap. In which order the file has the lines is no matter.
    gap = any(sorted(told) not in (list(range(len(told))), list(range(1, len(told) + 1)))
              for told in seqs.values())
    folder.trace = sorted(good, key=lambda event: event["time"])
    folder.trace_whole = len(good) == len(parsed) and not gap and nobody_is_silent(folder.run, set(seqs))
    folder.elections_told = folder.trace_whole and twin_observes.tells(
        folder.run, *twin_observes.WHAT_EXCUSES)
    folder.cleanness_told = folder.trace_whole and twin_observes.tells(folder.run, "elect")


def nobody_is_silent(run: Line, heard: set[str]) -> bool:
    """Every broker and some controller have lines, where they must have by what is promised."""
    brokers, roles = set(run["nodes"]), ("become_leader", "become_follower")
    lives = any(twin_observes.tells(run, *told) for told in (("start",), ("append",), roles))
    return (brokers <= heard or not lives) and (
        bool(heard - brokers) or not twin_observes.tells(run, "register"))

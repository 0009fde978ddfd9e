"""The twin's reader: a run folder as rows, with everything that is wrong with its files.

Rules kept here: a line is valid or not as a unit (one mistyped field, and the line is no evidence); blank
lines are ignored; a last line of the history that has no line feed and is no JSON is torn, and ignored; a
missing file is never an empty one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import twin_observes

Kind = Callable[[Any], bool]
LIMIT = 2**63
CLIENT_FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")


class Row(dict[str, Any]):
    """An object of a file, or a fact: its fields are attributes, and one that it has not is None."""

    __getattr__ = dict.get

    def __init__(self, *fields: Any, **more: Any) -> None:
        super().__init__(*fields, **more)
        self.__dict__ = self


Line = Row | dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Folder:
    """A run folder as read. The booleans say what is wrong with it."""

    run: Row
    lines: list[Row] = field(default_factory=list)  # the good lines of the history, each with its "position"
    positions: int = 0  # complete lines of the history, good and bad
    breach: bool = False  # some line of the history breaks the field table
    disordered: bool = False  # indexes that do not rise from line to line
    time_falls: bool = False
    strange: list[str] = field(default_factory=list)  # invalid lines of the history, as written
    rows: list[Row] = field(default_factory=list)
    rows_damaged: bool = False
    dumps: dict[str, list[Row]] = field(default_factory=dict)  # without nodes that have no readable file
    damaged: set[str] = field(default_factory=set)  # nodes whose dump is missing, torn or damaged
    trace: list[Row] | None = None  # its readable events by time, which prove what they show; None: no trace
    # No line is missing or unreadable, nor a node, nor a controller: a missing event proves something too.
    trace_complete: bool = False
    shows_elections: bool = False  # ... and it shows which leaders were elected from which copies
    shows_cleanness: bool = False  # ... and which elections were clean


def read(path: Path) -> Folder | None:
    """Reads the folder, whatever is in it. None: run.json is missing, unreadable or of another format."""
    try:
        run = json.loads((path / "run.json").read_bytes(), object_hook=Row)
    except (OSError, ValueError):
        return None
    if not isinstance(run, Row) or run.format != 1:
        return None
    folder = Folder(run=run)
    read_history(path / "history.jsonl", folder)
    read_rows(path / "replicas.jsonl", folder)
    read_dumps(path / "logs", folder)
    if twin_observes.events(run) != []:
        read_trace(path / "trace.jsonl", folder)
    return folder


def lines_of(path: Path) -> list[bytes] | None:
    """Every line that is not blank. None: there is no such file."""
    try:
        return [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except OSError:
        return None


def object_of(line: bytes) -> Row | None:
    """The line's JSON object, or None; a number of very many digits is some number, and no integer."""
    try:
        value = json.loads(line.decode(), object_hook=Row, parse_constant=refuse,
                           parse_int=lambda digits: int(digits) if len(digits) < 25 else 0.5)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Row) else None


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


def is_epoch(value: object) -> bool:
    return is_int(value) and value >= -1  # type: ignore[operator]


def list_of(kind: Kind) -> Kind:
    return lambda value: isinstance(value, list) and all(kind(one) for one in value)


def is_pair(value: object) -> bool:
    return list_of(is_int)(value) and len(value) == 2  # type: ignore[arg-type]


def one_of(*words: str) -> Kind:
    return lambda value: value in words


def fits(row: Any, needed: Mapping[str, Kind], optional: Mapping[str, Kind]) -> bool:
    """Whether the object has all that it needs, and what it may have is right; null is as good as missing."""
    return (isinstance(row, dict) and all(kind(row.get(name)) for name, kind in needed.items()) and all(
        row.get(name) is None or kind(row[name]) for name, kind in optional.items()))


NAMES = list_of(is_text)
PLACE: dict[str, Kind] = {"partition": is_offset, "offset": is_offset}
VALUE: dict[str, Kind] = {"partition": is_offset, "value": is_int}
LINE: dict[str, Kind] = {"index": is_offset, "time": is_offset, "process": is_epoch, "f": is_text,
                         "type": one_of("invoke", "ok", "fail", "info")}
OF_LINES: dict[str, Kind] = {
    "error": is_text, "partitions": list_of(is_offset), "starts": list_of(lambda one: fits(one, PLACE, {})),
    "sends": list_of(lambda one: fits(one, VALUE, {"offset": is_offset, "epoch": is_int})),
    "reads": list_of(lambda one: fits(one, PLACE | VALUE, {"epoch": is_int})),
    "offsets": list_of(lambda one: fits(one, PLACE, {"epoch": is_int})),
}
NEEDED = {"assign": "partitions", "subscribe": "partitions", "poll": "reads", "list_offsets": "offsets"}
REPLICA: dict[str, Kind] = {
    "node": is_text, "epoch": is_int, **dict.fromkeys(("partition", "log_start", "leo", "hw"), is_offset)}
OF_REPLICAS = {"leader": is_text, "isr": NAMES, "epochs": list_of(is_pair), "running": is_flag,
               "epochs_unreadable": is_flag, "lso": is_offset}
ENTRY: dict[str, Kind] = {**PLACE, "epoch": is_epoch, "crc": is_int}
OF_ENTRIES: dict[str, Kind] = {"value": is_int, "crc_ok": is_flag, "aborted": is_flag}


def fits_field_table(line: Line) -> bool:
    """Whether the line has every field that its type and f require, each of its type."""
    f, kind = line.get("f"), line.get("type")
    if not fits(line, LINE, OF_LINES):
        return False
    if line["process"] == -1:
        return kind == "info" and isinstance(line.get("fault"), dict)
    return (f in CLIENT_FS and (f != "send" or bool(line.get("sends")))
            and (kind != "ok" or f not in NEEDED or line.get(NEEDED[f]) is not None))


def is_row(row: Line) -> bool:
    return fits(row, REPLICA, OF_REPLICAS)


def is_entry(entry: Line, node: str) -> bool:
    return fits(entry, ENTRY, OF_ENTRIES) and "value" in entry and entry.get("node") == node


# -- the files --------------------------------------------------------------------------------------------

def read_history(path: Path, folder: Folder) -> None:
    """A missing file is a breach: its lines are missing."""
    texts = lines_of(path)
    if texts is None:
        folder.breach = True
        return
    if texts and object_of(texts[-1]) is None and not path.read_bytes().endswith(b"\n"):
        texts.pop()
    time = index = -1
    for position, text in enumerate(texts):
        line = object_of(text)
        if line is None or not fits_field_table(line):
            folder.strange.append(text.decode(errors="replace"))
            continue
        folder.disordered |= line.index <= index
        folder.time_falls |= line.time < time
        folder.breach |= line.index != position
        time, index = line.time, max(index, line.index)
        folder.lines.append(Row(line, position=position))
    folder.positions = len(texts)
    folder.breach |= bool(folder.strange) or folder.time_falls or (
        folder.positions < (folder.run.history_lines or 0))


def read_rows(path: Path, folder: Folder) -> None:
    """The good rows, of two for one replica the first; it is damage if a row is bad or doubled, or a replica
    of run.json has none."""
    texts = lines_of(path) if twin_observes.shows(folder.run, "replicas") else None
    rows: dict[Any, Row] = {}
    for row in map(object_of, texts or []):
        if row is not None and is_row(row):
            rows.setdefault((row.node, row.partition), row)
    folder.rows = [*rows.values()]
    asked = {(node, int(key)) for key, spec in folder.run.partitions.items() for node in spec.replicas}
    folder.rows_damaged = texts is None or len(rows) < len(texts) or not asked <= rows.keys()


def read_dumps(logs: Path, folder: Folder) -> None:
    """Each node's dump: JSON lines, or Parquet if there is nothing else."""
    folder.damaged |= {*folder.run.nodes}
    if not twin_observes.shows(folder.run, "dumps"):
        return
    for node in folder.run.nodes:
        path = logs / f"{node}.jsonl"
        entries = parquet_rows(logs / f"{node}.parquet") if not path.exists() else lines_of(path)
        if entries is not None:
            rows = [row if isinstance(row, Row) else object_of(row) for row in entries]
            folder.dumps[node] = [row for row in rows if row is not None and is_entry(row, node)]
            folder.damaged -= {node} if len(folder.dumps[node]) == len(rows) else set()
    replicas = {node for spec in folder.run.partitions.values() for node in spec.replicas}
    folder.damaged |= replicas - {*folder.run.nodes}  # nobody reads their logs


def parquet_rows(path: Path) -> list[Row] | None:
    from pyarrow import ArrowInvalid, parquet
    try:
        return [Row(row) for row in parquet.read_table(path).to_pylist()]
    except (OSError, ArrowInvalid):
        return None


# What a line of the trace must have besides time, node, seq and event to be evidence: of a replica, of the
# controller; and what is wrong in any line, whatever its event.
EVENT: dict[str, Kind] = {"time": is_int, "node": is_text, "seq": is_offset, "event": is_text}
STATE: dict[str, Kind] = {"partition": is_offset, "epoch": is_int, "leo": is_offset, "hw": is_int}
ROLE = {"role": one_of("leader", "follower")}
CAUSES = (None, "hw", "epoch", "diverged", "recovery", "other")
EVENTS: dict[str, dict[str, Kind]] = {
    "append": {**ROLE, "offset": is_offset, "count": lambda value: is_offset(value) and value > 0},
    "truncate": {"cause": lambda value: value in CAUSES},
    "hw": ROLE, "become_leader": {"isr": NAMES}, "become_follower": {}, "fetch": {},
    "ack": {"offset": is_offset, "acks": lambda value: value is not None, "isr": NAMES},
    "isr_proposed": {"isr": NAMES}, "isr": {"isr": NAMES}, "crash": {}, "start": {},
}
BROKER: dict[str, Kind] = {"broker": is_text}
DECIDED: dict[str, Kind] = {"partition": is_offset, "epoch": is_int, "isr": NAMES}
RULINGS: dict[str, dict[str, Kind]] = {
    "isr": DECIDED, "elect": DECIDED, "register": BROKER, "fence": BROKER, "unfence": BROKER}
OF_EVENTS: dict[str, Kind] = {
    "epochs": list_of(is_pair), "start": is_int, "clean": is_flag, "partition": is_offset, "broker": is_text,
    "follower": is_text, "leader": is_text, "isr": NAMES,
    "answer": lambda value: fits(value, {"epoch": is_epoch, "end": is_offset}, {}),
    **dict.fromkeys(("epoch", "leo", "hw", "offset", "count", "from", "to", "partition_epoch"), is_int),
}


def read_trace(path: Path, folder: Folder) -> None:
    """The events of interest by time. The trace is complete if every line is valid, each node has each seq
    once from its first (0 or 1) to its last, and every node is in it, if the promises require that."""
    texts, run, seqs = lines_of(path), folder.run, dict[str, list[int]]()
    if texts is None:
        return
    folder.trace, whole = [], True
    for event in map(object_of, texts):
        if event is None or not fits(event, EVENT, OF_EVENTS):
            whole = False
            continue
        seqs.setdefault(event.node, []).append(event.seq)
        whole &= event.node not in run.nodes or event.event != "elect"  # only a controller elects
        needed = fields_of(event, run.nodes)
        named = event.partition is None or str(event.partition) in run.partitions
        if needed is not None and named and fits(event, needed, {}):
            folder.trace.append(event)
        elif needed is not None and named:
            whole = False
    folder.trace.sort(key=lambda event: (event.time, event.node, event.seq))
    counted = all(sorted(each) == [*range(min(each), len(each) + min(each))] and min(each) < 2
                  for each in seqs.values())
    brokers, roles = {*run.nodes}, ("become_leader", "become_follower")
    lives = any(twin_observes.promises(run, *events) for events in (("start",), ("append",), roles))
    ruled = twin_observes.promises(run, "register")
    folder.trace_complete = whole and counted and (brokers <= {*seqs} or not lives) and (
        bool({*seqs} - brokers) or not ruled)
    folder.shows_cleanness = folder.trace_complete and twin_observes.promises(run, "elect")
    folder.shows_elections = folder.trace_complete and twin_observes.promises(
        run, *twin_observes.WHAT_EXCUSES)


def fields_of(event: Row, nodes: list[str]) -> dict[str, Kind] | None:
    """The fields that this line must have; None: it is of no interest to any check."""
    if event.node not in nodes:
        return RULINGS.get(event.event)
    if event.event in ("crash", "start") and event.partition is None:
        return {}  # of the node, and of no partition
    return EVENTS[event.event] | STATE if event.event in EVENTS else None

"""The twin's reader: a run folder as rows, with everything that is wrong with its files.

Rules kept here: a line is valid or not as a unit (one mistyped field, and the line is no evidence); blank
lines are ignored; a last line of the history that has no line feed and is no JSON is torn, and ignored; a
missing file is never an empty one.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import twin_observes

Kind = Callable[[Any], bool]
Ident = tuple[int, int]
LIMIT = 2**63
FOREVER = 2**62
CLIENT_FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")


class Row(dict[str, Any]):
    """An object of a file, or a fact: its fields are attributes, and one that it has not is None."""

    __getattr__ = dict.get

    def __init__(self, *fields: Any, **more: Any) -> None:
        super().__init__(*fields, **more)
        self.__dict__ = self


class World:
    """A run folder as read, and all that a finding may use of it.

    An op: process, f, type (info also if it never completed), `invoked` and `completed` (positions in the
    history, None: not there), `answer` (the line), `sends`, `reads`.
    A send: partition, value, `ident` (both), process, f, type, `offset` (of an ok send's ack), `place` in its
    op, `invoked`, `since` (the same, or before all), `invoked_time`, `completed`, `home` (its partition),
    `twice`, `read_at` (offsets), `acks` (all offsets that acks of the value have), `lost`, `gone` (it or a
    record of it that was read; None: nobody knows).
    A read, of a poll of any outcome: partition, offset, value, `ident`, process, `index` (its line), `place`.
    """

    def __init__(self, run: Row) -> None:
        self.run = run
        # The files, and what is wrong with them.
        self.lines: list[Row] = []  # the good lines of the history, each with its "position"
        self.positions = 0  # complete lines of the history, good and bad
        self.breach = False  # some line of the history breaks the field table
        self.disordered = False  # indexes that do not rise from line to line
        self.time_falls = False
        self.strange: list[str] = []  # invalid lines of the history, as written
        self.rows: list[Row] = []
        self.rows_damaged = False
        self.dumps: dict[str, list[Row]] = {}  # without nodes that have no readable file
        self.damaged = {*run.nodes}  # nodes whose dump is missing, torn or damaged
        self.trace: list[Row] | None = None  # its readable events by time; None: no trace
        # No line of it is missing or unreadable, nor a node, nor a controller: a missing event proves
        # something too; and it shows which leaders were elected from which copies; and which cleanly.
        self.trace_complete = self.shows_elections = self.shows_cleanness = False
        # The facts.
        self.given = Row(twin_observes.weakened(run))  # the guarantees, the weakest of those nobody knows
        self.unclear = twin_observes.strange_guarantees(run)
        error = run.get("clock_error_ns", 0)
        self.clock_error = error if is_offset(error) else FOREVER  # how far two stamps may be apart
        self.flushes = isinstance(run.system, dict) and run.system.get("flushes_at_recovery") is True
        self.mended = integers(run.mended) or [FOREVER]  # when mending began, and was over
        self.died = (run.died or []) if list_of(is_text)(run.died or []) else None  # None: nobody knows
        self.probers, self.readers = self.named("processes"), self.named("processes", "final_reads")
        known = self.readers and list_of(is_int)(self.readers)
        self.read_to_the_end = self.named("partitions", "final_reads") if known else []
        self.acts: list[Row] = []  # the nemesis's lines, with `nodes`, `began` and `lost`
        self.ops: list[Row] = []
        self.sends: list[Row] = []
        self.oks: list[Row] = []  # ok sends whose value can be followed
        self.reads: list[Row] = []
        self.returned: set[Ident] = set()  # by the final reads
        self.partitions: dict[int, Row] = {}
        self.overlapping: set[int] = set()  # processes with two ops open, or with an op after an info
        self.repeated: set[int] = set()  # values that were sent twice
        # Faults that missing or unreadable lines may have been; "end": one after which nothing was flushed.
        self.hidden: set[str] = set()
        self.txns = self.settled = self.complete = False  # complete: no line is missing or bad, and it ended
        self.acked: list[Row] = []  # micro-sends of ok ops, without the settling's probes

    def named(self, what: str, phase: str = "settle") -> list[Any]:
        """A list in the words on settling, or on the final reads."""
        named = (self.run.get(phase) or {}).get(what)
        return named if isinstance(named, list) else []

    def answers(self, process: int) -> list[Row]:
        """The completions of a process."""
        return [line for line in self.lines if line.process == process and line.type != "invoke"]

    def configured(self, node: str, *keys: str) -> list[int]:
        """The numbers that the node's configuration has for these."""
        own = self.run.config.get(node) if isinstance(self.run.config, dict) else None
        return integers([own.get(key) for key in keys]) if isinstance(own, dict) else []

    def names_all_nodes(self, what: str) -> bool:
        return bool(self.run.nodes) and {*self.run.nodes} <= {*self.named(what)}


def read(path: Path) -> World | None:
    """Reads the folder, whatever is in it. None: run.json is missing, unreadable or of another format."""
    try:
        run = json.loads((path / "run.json").read_bytes(), object_hook=Row)
    except (OSError, ValueError):
        return None
    if not isinstance(run, Row) or run.format != 1:
        return None
    world = World(run)
    read_history(path / "history.jsonl", world)
    read_rows(path / "replicas.jsonl", world)
    read_dumps(path / "logs", world)
    if twin_observes.events(run) != []:
        read_trace(path / "trace.jsonl", world)
    return world


def lines_of(path: Path) -> list[bytes] | None:
    """Every line that is not blank. None: there is no such file."""
    try:
        return [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except OSError:
        return None


def object_of(line: bytes) -> Row | None:
    """The line's JSON object, or None; a number of very many digits is some number, and no integer.
    NaN is refused (as int refuses it)."""
    try:
        value = json.loads(line.decode(), object_pairs_hook=row_of, parse_constant=int,
                           parse_int=lambda digits: int(digits) if len(digits) < 25 else 0.5)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Row) else None


def row_of(pairs: list[tuple[str, Any]]) -> Row:
    """Of a name that comes twice the last value counts; the first (in `None`) has to be of its type."""
    row = Row(pairs)
    return row if len(row) == len(pairs) else Row([*pairs, (None, Row(reversed(pairs)))])


# -- the types of fields ----------------------------------------------------------------------------------

def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LIMIT <= value < LIMIT


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_offset(value: object) -> bool:
    return is_int(value) and value >= 0  # type: ignore[operator]


def list_of(kind: Kind) -> Kind:
    return lambda value: isinstance(value, list) and all(kind(one) for one in value)


def fits(row: Any, needed: Mapping[str, Kind], optional: Mapping[str, Kind]) -> bool:
    """Whether the object has all that it needs, and what it may have is right; null is as good as missing."""
    return (isinstance(row, dict) and all(kind(row.get(name)) for name, kind in needed.items()) and all(
        row.get(name) is None or kind(row[name]) for name, kind in optional.items())
        and (None not in row or fits(row[None], needed, optional)))


def integers(values: Any) -> list[int]:
    return [value for value in values if type(value) is int] if isinstance(values, list) else []


KINDS: dict[str, Kind] = {
    "int": is_int, "offset": is_offset, "text": is_text, "flag": lambda value: isinstance(value, bool),
    "epoch": lambda value: is_int(value) and value >= -1, "count": lambda value: is_int(value) and value > 0,
    "ids": list_of(is_offset), "names": list_of(is_text), "given": lambda value: value is not None,
    "pairs": list_of(lambda value: list_of(is_int)(value) and len(value) == 2),
    "outcome": lambda value: value in ("invoke", "ok", "fail", "info"),
    "role": lambda value: value in ("leader", "follower"),
    "cause": lambda value: value in (None, "hw", "epoch", "diverged", "recovery", "other"),
    "answer": lambda value: fits(value, fields("epoch:epoch end:offset"), {}),
    "sends": list_of(lambda one: fits(one, fields("partition:offset value:int"),
                                      fields("offset:offset epoch:int"))),
    "reads": list_of(lambda one: fits(one, fields("partition:offset offset:offset value:int"),
                                      fields("epoch:int"))),
    "ends": list_of(lambda one: fits(one, fields("partition:offset offset:offset"), fields("epoch:int"))),
    "spots": list_of(lambda one: fits(one, fields("partition:offset offset:offset"), {})),
}


@cache
def fields(words: str) -> dict[str, Kind]:
    return {name: KINDS[kind] for name, kind in (word.split(":") for word in words.split())}


# What a line must have, and what it may have.
LINE = fields("index:offset time:offset process:epoch f:text type:text")
OF_LINES = fields("error:text partitions:ids sends:sends reads:reads offsets:ends starts:spots corrupt:spots")
NEEDED = {"assign": "partitions", "subscribe": "partitions", "poll": "reads", "list_offsets": "offsets"}
REPLICA = fields("node:text epoch:int partition:offset log_start:offset leo:offset hw:offset isr:names")
OF_REPLICAS = fields("leader:text epochs:pairs running:flag epochs_unreadable:flag lso:int")
ENTRY = fields("partition:offset offset:offset epoch:epoch crc:int")
OF_ENTRIES = fields("value:int crc_ok:flag aborted:flag")
EVENT = fields("time:int node:text seq:offset event:text")
OF_EVENTS = fields(
    "epoch:int leo:int hw:int offset:int count:int from:int to:int partition_epoch:int start:int "
    "epochs:pairs clean:flag partition:offset broker:text follower:text leader:text isr:names answer:answer")
# Of a replica, and of the controller, by the event.
STATE = fields("partition:offset epoch:int leo:offset hw:int")
EVENTS = {
    "append": fields("role:role offset:offset count:count"), "hw": fields("role:role"),
    "truncate": fields("cause:cause from:int to:int"), "become_leader": fields("isr:names start:int"),
    "ack": fields("offset:offset acks:given isr:names"), "isr_proposed": fields("isr:names"),
    "isr": fields("isr:names"), "become_follower": {}, "fetch": {}, "crash": {}, "start": {},
}
RULINGS = {"isr": fields("partition:offset epoch:int isr:names"),
           "elect": fields("partition:offset epoch:int isr:names clean:flag"),
           **dict.fromkeys(("register", "fence", "unfence"), fields("broker:text"))}


def fits_field_table(line: Row) -> bool:
    """Whether the line has every field that its type and f require, each of its type."""
    if not fits(line, LINE, OF_LINES) or not KINDS["outcome"](line.type):
        return False
    if line.process == -1:
        return line.type == "info" and isinstance(line.fault, dict)
    return (line.f in CLIENT_FS and (line.f != "send" or bool(line.sends))
            and (line.type != "ok" or line.f not in NEEDED or line.get(NEEDED[line.f]) is not None))


# -- the files --------------------------------------------------------------------------------------------

def read_history(path: Path, world: World) -> None:
    """A missing file is a breach: its lines are missing."""
    texts = lines_of(path)
    if texts is None:
        world.breach = True
        return
    if texts and object_of(texts[-1]) is None and not path.read_bytes().endswith(b"\n"):
        texts.pop()
    time = index = -1
    for position, text in enumerate(texts):
        line = object_of(text)
        if line is None or not fits_field_table(line):
            world.strange.append(text.decode(errors="replace"))
            continue
        world.disordered |= line.index <= index
        world.time_falls |= line.time < time
        world.breach |= line.index != position
        time, index = line.time, max(index, line.index)
        world.lines.append(Row(line, position=position))
    world.positions = len(texts)
    world.breach |= bool(world.strange) or world.time_falls or (
        world.positions < (world.run.history_lines or 0))


def read_rows(path: Path, world: World) -> None:
    """The good rows, of two for one replica the first; it is damage if a row is bad or doubled, or a replica
    of run.json has none."""
    texts = lines_of(path) if twin_observes.shows(world.run, "replicas") else None
    rows: dict[Any, Row] = {}
    for row in map(object_of, texts or []):
        if row is not None and fits(row, REPLICA, OF_REPLICAS):
            rows.setdefault((row.node, row.partition), row)
    world.rows = [*rows.values()]
    asked = {(node, int(key)) for key, spec in world.run.partitions.items() for node in spec.replicas}
    world.rows_damaged = texts is None or len(rows) < len(texts) or not asked <= rows.keys()


def read_dumps(logs: Path, world: World) -> None:
    """Each node's dump: JSON lines, or Parquet if there is nothing else."""
    if not twin_observes.shows(world.run, "dumps"):
        return
    for node in world.run.nodes:
        lines = lines_of(logs / f"{node}.jsonl")
        entries = parquet_rows(logs / f"{node}.parquet") if lines is None else lines
        if entries is not None:
            rows = [row if isinstance(row, Row) else object_of(row) for row in entries]
            world.dumps[node] = [row for row in rows if row is not None and "value" in row
                                 and row.node == node and fits(row, ENTRY, OF_ENTRIES)]
            world.damaged -= {node} if len(world.dumps[node]) == len(rows) else set()
    world.damaged |= unnamed(world.run)  # nobody reads their logs


def unnamed(run: Row) -> set[str]:
    """The nodes that have replicas, and are not in `nodes`."""
    return {node for spec in run.partitions.values() for node in spec.replicas} - {*run.nodes}


def parquet_rows(path: Path) -> list[Row] | None:
    from pyarrow import ArrowInvalid, parquet
    try:
        return [Row(row) for row in parquet.read_table(path).to_pylist()]
    except (OSError, ArrowInvalid):
        return None


def fields_of(event: Row, nodes: list[str]) -> dict[str, Kind] | None:
    """The fields that it must have; None: it is of no interest to any check."""
    if event.node not in nodes:
        return RULINGS.get(event.event)
    state = {} if event.event in ("crash", "start") and event.partition is None else STATE
    return EVENTS[event.event] | state if event.event in EVENTS else None


def read_trace(path: Path, world: World) -> None:
    """The events of interest by time. The trace is complete if every line is valid, each node has each seq
    once from its first (0 or 1) to its last, and every node is in it, if the promises require that."""
    texts, run, seqs = lines_of(path), world.run, dict[str, list[int]]()
    if texts is None:
        return
    world.trace, whole = [], not unnamed(run)
    for event in map(object_of, texts):
        if event is None or not fits(event, EVENT, OF_EVENTS):
            whole = False
            continue
        event.pop(None, None)
        seqs.setdefault(event.node, []).append(event.seq)
        whole &= event.node not in run.nodes or event.event != "elect"  # only a controller elects
        needed = fields_of(event, run.nodes)
        if needed is not None and str(event.partition) in (*run.partitions, "None"):
            fit = fits(event, needed, {})
            world.trace += [event] if fit else []
            whole &= fit
    world.trace.sort(key=lambda event: (event.time, event.node, event.seq))
    heard, brokers, roles = {*seqs}, {*run.nodes}, ("become_leader", "become_follower")
    whole &= all(sorted(each) in ([*range(len(each))], [*range(1, len(each) + 1)]) for each in seqs.values())
    lives = any(twin_observes.promises(run, *events) for events in (("start",), ("append",), roles))
    world.trace_complete = whole and (brokers <= heard or not lives) and (
        bool(heard - brokers) or not twin_observes.promises(run, "register"))
    world.shows_cleanness = world.trace_complete and twin_observes.promises(run, "elect")
    world.shows_elections = world.trace_complete and twin_observes.promises(
        run, *twin_observes.WHAT_EXCUSES)

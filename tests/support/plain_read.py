"""Reads a run folder line by line with orjson, into the tables of checkers.laws.tables: slow and simple.

tables, survey = plain_read.read_run(open_folder(path), run=0)
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import orjson
import plain_lines
import pyarrow as pa
import pyarrow.parquet as pq
from plain_survey import REPEATED_SHOWN, Block, Lines, Survey, Traced

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read import pairing
from floodmark.checkers.read.folder import Folder, is_int

Row = dict[str, Any]
LOOKED_AT = (
    "append", "truncate", "hw", "become_leader", "become_follower", "ack", "fetch", "isr_proposed", "isr",
    "elect", "register", "fence", "unfence", "start",
)  # fmt: skip


def lines_of(place: Any) -> Iterator[tuple[int, bytes]]:
    with place.open("rb") as file:
        for at, line in enumerate(file):
            if line.strip():
                yield at, line


def good(line: bytes, law: plain_lines.Law) -> Row | None:
    row = object_of(line)
    return row if row is not None and law(row) else None


def object_of(line: bytes) -> Row | None:
    """The line's JSON object, or None. orjson refuses some valid ones: half a surrogate pair, numbers that do
    not fit; these are read by the json module."""
    try:
        text = line.decode()
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError:
            row = json.loads(text, parse_constant=refused, parse_float=lambda _: 0.5,
                             parse_int=lambda digits: int(digits) if len(digits) < 25 else 0.5)  # fmt: skip
            row = json.loads(json.dumps(row, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def refused(word: str) -> None:
    raise ValueError(word)


def read_run(folder: Folder, run: int) -> tuple[dict[str, pa.Table], Survey]:
    """All tables that come from the big files, and the survey of them."""
    rows: dict[str, list[Row]] = defaultdict(list)
    survey = Survey()
    history = read_history(folder, rows, survey)
    read_dumps(folder, rows, survey)
    read_trace(folder, rows, survey)
    pair(history, survey)
    repeat(rows, survey)
    idents: dict[tuple[tuple[int, int], ...], int] = {}
    for row in history:
        if row["process"] >= 0:
            number = idents.setdefault(ident(row), len(idents)) if ident(row) else None
            rows["lines"].append({**{key: row.get(key) for key in TABLES["lines"].names}, "ident": number})
    tables = {
        name: pa.Table.from_pylist([{**row, "run": run} for row in rows_of_table], schema=TABLES[name])
        for name, rows_of_table in rows.items()
    }
    if "lines" in tables:
        tables["answers"] = pairing.answers(tables["lines"])
    return tables, survey


def read_history(folder: Folder, rows: dict[str, list[Row]], survey: Survey) -> list[Row]:
    history: list[Row] = []
    lines = bad = 0
    for at, line in lines_of(folder.history) if folder.history else ():
        lines += 1
        row = good(line, plain_lines.is_op)
        if row is None:
            bad += 1
        else:
            history.append({**row, "at": at, "place": lines - 1})
    probes = set(folder.special.settling)
    for row in history:
        keys = ("at", "index", "time", "process", "type")
        base = {**{key: row[key] for key in keys}, "f": row["f"]}
        if row["process"] == -1:
            survey.nemesis.append({key: row.get(key) for key in row if key not in ("at", "place")})
            continue
        setattr(survey, row["type"], getattr(survey, row["type"]) + 1) if row["type"] != "invoke" else None
        survey.txns += row["f"] == "txn"
        asks_ends = row["f"] == "list_offsets" and row["type"] == "invoke"
        if row["f"] in ("assign", "subscribe", "crash") or asks_ends:
            rows["moves"].append(base)
        is_empty = row["type"] == "ok" and row.get("reads") == [] and not row.get("corrupt")
        if is_empty and row["f"] == "poll" and row["process"] in folder.special.final:
            rows["empty_polls"].append({"at": row["at"], "process": row["process"]})
        carried = {
            "sends": row["f"] in ("send", "txn"),
            "reads": row["f"] in ("poll", "txn") and row["type"] != "invoke",
            "offsets": row["f"] == "list_offsets",
            "starts": row["f"] == "list_offsets",
            "partitions": row["f"] in ("assign", "subscribe"),
        }
        for name, table in (("sends", "sends"), ("reads", "reads"), ("offsets", "ends"), ("starts", "starts"),
                            ("partitions", "assigned")):  # fmt: skip
            for pos, item in enumerate((row.get(name) or ()) if carried[name] else ()):
                item = {"partition": item} if name == "partitions" else item
                wanted = {key: item.get(key) for key in ("partition", "value", "offset", "epoch")
                          if key in TABLES[table].names}  # fmt: skip
                rows[table].append({**base, "pos": pos, **wanted})
                survey.partitions.add(wanted["partition"])
                if table != "assigned":
                    survey.used.add(wanted["partition"])
        if row["type"] == "ok" and carried["sends"] and row["process"] not in probes:
            survey.acked += len(row.get("sends") or ())
            if not survey.nemesis:
                survey.acked_at_first |= {send["partition"] for send in row.get("sends") or ()}
    blocks(history, lines, bad, survey)
    return history


def blocks(history: list[Row], lines: int, bad: int, survey: Survey) -> None:
    index, time = [row["index"] for row in history], [row["time"] for row in history]
    highest, fell = -1, []
    for row in history:
        if row["time"] < highest:
            fell.append(row["index"])
        highest = max(highest, row["time"])
    away = {row["place"] - row["index"] for row in history}
    rising = all(later > max_before for max_before, later in zip(_running(index), index[1:], strict=False))
    if lines:
        survey.blocks.append(Block(
            block=0, lines=lines, bad=bad, first=min(index, default=None), last=max(index, default=None),
            in_step=len(away) <= 1, times=(min(time), max(time)) if time else None,
            falls=min(fell, default=None), rising=rising,
        ))  # fmt: skip


def _running(numbers: list[int]) -> Iterator[int]:
    highest = -1
    for number in numbers:
        highest = max(highest, number)
        yield highest


def pair(history: list[Row], survey: Survey) -> None:
    """Finds, for each process by index, the first completion without an invocation, and the first op that
    overlaps."""
    by_process: dict[int, list[Row]] = defaultdict(list)
    for row in history:
        if row["process"] >= 0:
            by_process[row["process"]].append(row)
    unmatched = []
    for process, rows in by_process.items():
        rows.sort(key=lambda row: row["index"])
        opened, over, last = 0, False, None
        for row in rows:
            invoke = row["type"] == "invoke"
            if invoke and (over or (last is not None and last["type"] == "invoke")):
                survey.overlapping.setdefault(process, row["index"])
            if not invoke:
                other = last is not None and last["type"] == "invoke" and (
                    row["f"] != last["f"] or (row["f"] in ("send", "txn") and ident(row) != ident(last))
                )  # fmt: skip
                if opened <= 0 or (opened == 1 and other):
                    unmatched.append(row["index"])
            opened += 1 if invoke else -1
            over = over or row["type"] == "info"
            last = row
    survey.unmatched = min(unmatched, default=None)


def ident(row: Row) -> tuple[tuple[int, int], ...]:
    sends = row.get("sends") or () if row["f"] in ("send", "txn") else ()
    return tuple((item["partition"], item["value"]) for item in sends)


def repeat(rows: dict[str, list[Row]], survey: Survey) -> None:
    asked, answered, last = Counter[int](), Counter[int](), dict[int, int]()
    for row in rows["sends"]:
        (asked if row["type"] == "invoke" else answered)[row["value"]] += 1
        last[row["value"]] = max(last.get(row["value"], -1), row["index"])
    twice = sorted(value for value, count in asked.items() if count > 1)
    survey.repeated = twice[:REPEATED_SHOWN]
    rows["repeated"] = [{"value": value} for value in twice]
    strange = [last[value] for value, count in answered.items() if count > asked[value]]
    survey.unmatched = min((one for one in (*strange, survey.unmatched) if one is not None), default=None)


def read_dumps(folder: Folder, rows: dict[str, list[Row]], survey: Survey) -> None:
    for node, dump in folder.dumps.items():
        lines = bad = 0
        if dump.suffix == ".parquet":
            with dump.open("rb") as file:
                every = [orjson.dumps({"node": node, **row}) for row in pq.read_table(file).to_pylist()]
            coming: Any = enumerate(every)
        else:
            coming = lines_of(dump)
        for at, line in coming:
            lines += 1
            row = good(line, plain_lines.is_entry(node))
            if row is None:
                bad += 1
                continue
            survey.used.add(row["partition"])
            kept = {key: row[key] for key in ("partition", "offset", "epoch", "value", "crc")}
            flags = {"crc_ok": row.get("crc_ok") is not False, "aborted": row.get("aborted") is True}
            rows["entries"].append({"node": node, "at": at, **kept, **flags})
        if lines:
            survey.entries[node], survey.bad_entries[node] = lines, bad


_INTEGERS = ("partition", "epoch", "leo", "hw", "offset", "count", "from", "to", "start", "partition_epoch")
_RULING = ("time", "node", "seq", "event", "partition", "epoch", "isr", "leader", "broker", "clean")
_ROLES = ("leader", "follower")
_CAUSES = (None, "hw", "epoch", "diverged", "recovery", "other")


def fits(row: Row) -> bool:
    """Whether a line of the trace has what its event needs (format.md's table)."""
    event = row.get("event")
    if not (is_int(row.get("time")) and isinstance(row.get("node"), str) and isinstance(event, str)
            and is_int(row.get("seq")) and row["seq"] >= 0):  # fmt: skip
        return False
    if any(row.get(name) is not None and not is_int(row[name]) for name in _INTEGERS):
        return False
    for name in ("leader", "broker", "follower"):  # role, acks and why are harmless whatever their values
        if row.get(name) is not None and not isinstance(row[name], str):
            return False
    if row.get("clean") is not None and not isinstance(row["clean"], bool):
        return False
    isr = row.get("isr")
    if isr is not None and not (isinstance(isr, list) and all(isinstance(one, str) for one in isr)):
        return False
    answer = row.get("answer")
    if answer is not None and not (
        isinstance(answer, dict)
        and is_int(answer.get("epoch")) and answer["epoch"] >= -1
        and is_int(answer.get("end")) and answer["end"] >= 0
    ):
        return False
    epochs = row.get("epochs")
    if epochs is not None and not (
        isinstance(epochs, list)
        and all(isinstance(one, list) and len(one) == 2 and all(map(is_int, one)) for one in epochs)
    ):
        return False

    def has(*names: str) -> bool:
        return all(row.get(name) is not None for name in names)

    def state() -> bool:
        return has("partition", "epoch", "leo", "hw") and row["partition"] >= 0 and row["leo"] >= 0

    match event:
        case "append":
            return (state() and row.get("role") in _ROLES and has("offset", "count")
                    and row["offset"] >= 0 < row["count"])  # fmt: skip
        case "truncate":
            return state() and has("from", "to") and row.get("cause") in _CAUSES
        case "hw":
            return state() and row.get("role") in _ROLES
        case "become_leader":
            return state() and has("isr", "start")
        case "become_follower" | "fetch":
            return state()
        case "ack":
            return state() and has("offset", "acks", "isr") and row["offset"] >= 0
        case "isr_proposed":
            return state() and has("isr")
        case "isr":
            return has("partition", "epoch", "isr") and row["partition"] >= 0 and has("leo") == has("hw")
        case "elect":
            return has("partition", "epoch", "isr", "clean") and row["partition"] >= 0
        case "register" | "fence" | "unfence":
            return has("broker")
        case "start":
            return row.get("partition") is None or state()
    return True


def read_trace(folder: Folder, rows: dict[str, list[Row]], survey: Survey) -> None:
    if folder.trace is None:
        return
    survey.traced = traced = Traced()
    seqs: dict[str, list[int]] = defaultdict(list)
    for at, line in lines_of(folder.trace):
        row = good(line, fits)
        if row is None:
            traced.bad += 1
            continue
        seqs[row["node"]].append(row["seq"])
        event = row["event"]
        if event in ("elect", "register", "fence", "unfence", "start") or (
            event == "isr" and row.get("leo") is None
        ):
            traced.rulings.append({key: row.get(key) for key in _RULING})
        if event in LOOKED_AT and not (event == "hw" and row.get("role") == "follower"):
            kept = {name: row.get(name) for name in TABLES["trace"].names
                    if name not in ("run", "at", "cut_from", "cut_to")}  # fmt: skip
            rows["trace"].append({**kept, "at": at, "cut_from": row.get("from"), "cut_to": row.get("to")})
    for node, numbers in seqs.items():
        traced.nodes[node] = Lines(
            lines=len(numbers), seqs=len(set(numbers)), first=min(numbers), last=max(numbers)
        )

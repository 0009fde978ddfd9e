"""A history as arrays, one row a line, parsed chunk by chunk; what the lines mean is not looked at.

Rules
1. A line that breaks the field table is counted and gives nothing; a list that its f does not carry gives
   nothing either.
2. Integers that may be missing are MISSING, which no offset is.
3. A `line` is a row of the history, not a position in the file: broken lines have none.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers import chunks
from checkers.chunks import Lines, narrow, refuse_if, table_of

Ints = chunks.Ints
Bools = chunks.Bools

MISSING = -1
TYPES = ("invoke", "ok", "fail", "info")
FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")
INVOKE, OK, FAIL, INFO = range(4)
SEND, POLL, TXN, ASSIGN, SUBSCRIBE, CRASH, LIST_OFFSETS = range(7)
NEMESIS_F = len(FS)
LISTS = ("sends", "reads", "offsets", "partitions")
_CARRIED_BY = {  # as frames.py has it: elsewhere a field is unknown
    "sends": (SEND, TXN),
    "reads": (POLL, TXN),  # but for invocations
    "offsets": (LIST_OFFSETS,),
    "partitions": (ASSIGN, SUBSCRIBE),
}
_LF = 10

_ITEM = pa.struct([(name, pa.int64()) for name in ("partition", "value", "offset", "epoch")])
_INTEGERS = [(name, pa.int64()) for name in ("index", "time", "process")]
_WORDS = [(name, pa.string()) for name in ("type", "f", "error")]
_ITEMS = [(name, pa.list_(_ITEM)) for name in ("sends", "reads", "offsets")]
HISTORY = pa.schema([*_INTEGERS, *_WORDS, *_ITEMS, ("partitions", pa.list_(pa.int64()))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What lines carry, one row an item, in file order. value and offset: MISSING where they do not apply."""

    line: Ints
    partition: Ints
    value: Ints
    offset: Ints

    def where(self, kept: Any) -> "Items":
        return Items(
            line=self.line[kept],
            partition=self.partition[kept],
            value=self.value[kept],
            offset=self.offset[kept],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A history, one row a line that is not broken, and the items of its lines."""

    index: Ints | None  # None: it is the row
    time: Ints
    process: Ints
    type: Ints  # position in TYPES
    f: Ints  # position in FS, NEMESIS_F of the nemesis
    sends: Items
    reads: Items
    ends: Items
    held: Items
    nemesis: list[str]  # its lines
    broken: int  # lines

    @property
    def disordered(self) -> bool:
        """Indexes do not rise from line to line."""
        return self.index is not None and bool((self.index[1:] <= self.index[:-1]).any())

    def indexes(self, rows: Ints) -> Ints:
        return rows if self.index is None else self.index[rows]


def history_of(lines: Lines) -> History:
    """The whole history, of its pieces."""
    refuse_if(not lines.pieces, "no lines")
    time, starts = lines.take("time"), np.cumsum([0, *(len(piece["type"]) for piece in lines.pieces)])
    index = lines.take("index")
    there = (index != np.arange(len(index))).any()
    return History(
        index=index if there else None, time=time, process=lines.take("process"), type=lines.take("type"),
        f=lines.take("f"), nemesis=lines.take("nemesis").tolist(), broken=lines.broken,
        **{name: items_of(lines, field, starts)
           for name, field in zip(("sends", "reads", "ends", "held"), LISTS, strict=True)},
    )  # fmt: skip


def items_of(lines: Lines, name: str, starts: npt.NDArray[np.int64]) -> Items:
    """The items of one list; `starts`: the row of the history at which each piece begins."""
    for piece, start in zip(lines.pieces, starts, strict=False):
        piece[f"{name}.line"] = narrow(piece[f"{name}.line"] + start)
    line, partition = lines.take(f"{name}.line"), lines.take(f"{name}.partition")
    none = np.broadcast_to(np.int32(MISSING), len(line))
    return Items(
        line=line,
        partition=partition,
        value=lines.take(f"{name}.value") if name in LISTS[:2] else none,
        offset=lines.take(f"{name}.offset") if name in LISTS[:3] else none,
    )


# -- one piece --------------------------------------------------------------------------------------------


def read_piece(chunk: bytes) -> dict[str, npt.NDArray[Any]]:
    """Some whole lines."""
    table = table_of(chunk, HISTORY)
    return piece_of(table, nemesis_lines(chunk, nemesis_rows(table)))


def piece_of(table: pa.Table, texts: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Lines as rows of HISTORY; `texts`: those of the nemesis, as they stand."""
    kinds, fs = coded(table, "type", TYPES), coded(table, "f", FS)
    process = numbers(table, "process", least=-1)
    nemesis = process == -1
    refuse_if((kinds < 0).any(), "a type that is none")
    refuse_if((fs[~nemesis] < 0).any(), "an f for the checks")
    refuse_if((kinds[nemesis] != INFO).any(), "a nemesis's line that is no info")
    refuse_if(table["f"].null_count, "f is missing")
    fs[nemesis] = NEMESIS_F
    told = {
        "index": numbers(table, "index"), "time": numbers(table, "time"), "process": process, "type": kinds,
        "f": fs, "nemesis": texts,
        **items(table, "sends", fs == SEND, need_offset=False),
        **items(table, "reads", (kinds == OK) & (fs == POLL)),
        **items(table, "offsets", (kinds == OK) & (fs == LIST_OFFSETS), need_value=False),
        **held(table, (kinds == OK) & ((fs == ASSIGN) | (fs == SUBSCRIBE))),
    }  # fmt: skip
    for name, by in _CARRIED_BY.items():
        line = told[f"{name}.line"]
        carried = np.isin(fs[line], by) & ((name != "reads") | (kinds[line] != INVOKE))
        if not carried.all():
            told |= {key: told[key][carried] for key in told if key.startswith(f"{name}.")}
    return told


def numbers(table: pa.Table, name: str, least: int | None = 0) -> Ints:
    """A column of integers that must all be there."""
    refuse_if(table[name].null_count, f"{name} is missing")
    column = table[name].to_numpy()
    refuse_if(least is not None and len(column) and column.min() < least, f"{name} is too low")
    return narrow(column)


def coded(table: pa.Table, name: str, words: Sequence[str]) -> Ints:
    """Positions in the words; MISSING where it is none of them."""
    found = pc.index_in(table[name], value_set=pa.array(words))
    codes: Ints = pc.fill_null(found, MISSING).to_numpy().astype(np.int8)
    return codes


def items(
    table: pa.Table, name: str, needed: Bools, *, need_value: bool = True, need_offset: bool = True
) -> dict[str, npt.NDArray[Any]]:
    """The items of a list column; `needed` lines must have the list, and a send at least one item."""
    column = table[name].combine_chunks()
    there = column.is_valid().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    refuse_if(
        (needed & ~there).any() or (not need_offset and (sizes[needed] == 0).any()), f"{name} are missing"
    )
    flat = column.flatten()
    refuse_if(flat.null_count, f"null among {name}")
    told = {
        "line": np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        "partition": field(flat, "partition", required=True, least=0),
        "offset": field(flat, "offset", required=need_offset, least=0),
    }
    if need_value:
        told["value"] = field(flat, "value", required=True, least=None)
    return {f"{name}.{key}": told[key] for key in told}


def field(flat: pa.StructArray, name: str, *, required: bool, least: int | None) -> Ints:
    """One field of the items; MISSING where it may be and is."""
    column = flat.field(name)
    refuse_if(required and column.null_count, f"an item without {name}")
    there = column.is_valid().to_numpy(zero_copy_only=False)
    filled = pc.fill_null(column, MISSING).to_numpy()
    refuse_if(least is not None and (filled[there] < least).any(), f"{name} is too low")
    return narrow(filled)


def held(table: pa.Table, needed: Bools) -> dict[str, npt.NDArray[Any]]:
    """The partitions of assign and subscribe."""
    column = table["partitions"].combine_chunks()
    there = column.is_valid().to_numpy(zero_copy_only=False)
    refuse_if((needed & ~there).any(), "partitions are missing")
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    flat = column.flatten()
    refuse_if(flat.null_count, "null among partitions")
    partition = flat.to_numpy()
    refuse_if((partition < 0).any(), "a partition that is none")
    line = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return {"partitions.line": line, "partitions.partition": narrow(partition)}


def nemesis_rows(table: pa.Table) -> npt.NDArray[np.int64]:
    return np.flatnonzero(table["process"].to_numpy() == -1)


def nemesis_lines(chunk: bytes, which: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The text of these lines, each with a fault that is one."""
    texts: list[str] = []
    if len(which):
        ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == _LF)
        for line in which:
            text = chunk[int(ends[line - 1]) + 1 if line else 0 : int(ends[line])].decode()
            refuse_if(not isinstance(json.loads(text).get("fault"), dict), "a fault that is none")
            texts.append(text)
    return np.array(texts, dtype=object)

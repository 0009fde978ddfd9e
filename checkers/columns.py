"""The big files of one run as arrays: parsed whole, by Arrow, or refused. What they mean is not looked at.

Rules
1. A file that is not exactly as the format says in every line is refused (Blemished); the judge then reads it
   line by line, where each fault is found and told. So this reader may be quick and blunt.
2. Integers that may be missing come with a mask or as MISSING, which no offset is.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from harness.places import Place

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MISSING = -1
TYPES = ("invoke", "ok", "fail", "info")
FS = ("send", "poll", "assign", "subscribe", "crash", "list_offsets")  # transactions are left to the checks
INVOKE, OK, FAIL, INFO = range(4)
SEND, POLL, ASSIGN, SUBSCRIBE, CRASH, LIST_OFFSETS = range(6)
NEMESIS_F = len(FS)
BLOCK_BYTES = 1 << 24
_LF, _OPEN, _CLOSE = b"\n{}"

_ITEM = pa.struct([(name, pa.int64()) for name in ("partition", "value", "offset", "epoch")])
_INTEGERS = [(name, pa.int64()) for name in ("index", "time", "process")]
_WORDS = [(name, pa.string()) for name in ("type", "f", "error")]
_LISTS = [(name, pa.list_(_ITEM)) for name in ("sends", "reads", "offsets")]
_HISTORY = pa.schema([*_INTEGERS, *_WORDS, *_LISTS, ("partitions", pa.list_(pa.int64()))])
_DUMP = pa.schema([
    ("node", pa.string()), ("partition", pa.int64()), ("offset", pa.int64()), ("epoch", pa.int64()),
    ("value", pa.int64()), ("crc", pa.int64()), ("crc_ok", pa.bool_()), ("aborted", pa.bool_()),
])  # fmt: skip


class Blemished(Exception):
    """Not for the sieve: this run goes to the checks whole."""


def refuse_if(broken: Any, why: str) -> None:
    if broken:
        raise Blemished(why)


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
    """A history, one row a line, and the items of its lines."""

    time: Ints
    process: Ints
    type: Ints  # position in TYPES
    f: Ints  # position in FS, NEMESIS_F of the nemesis
    sends: Items
    reads: Items
    ends: Items
    held: Items
    nemesis: list[str]  # its lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One node's dump, in file order."""

    partition: Ints
    offset: Ints
    epoch: Ints
    value: Ints  # 0 where not ours
    ours: Bools
    crc: Ints
    crc_ok: Bools
    aborted: Bools

    def where(self, kept: Any) -> "Dump":
        return Dump(**{name: getattr(self, name)[kept] for name in Dump.__slots__})


# -- reading ----------------------------------------------------------------------------------------------


def lines_of(path: Place) -> tuple[bytes, Ints]:
    """The file and where its lines begin; every line must look like one object."""
    data = path.read_bytes()
    refuse_if(not data or data[-1] != _LF, "no lines, or half of one")
    buffer = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(buffer == _LF)
    starts = np.concatenate(([0], ends[:-1] + 1))
    refuse_if((ends == starts).any(), "blank lines")
    refuse_if(
        (buffer[starts] != _OPEN).any() or (buffer[ends - 1] != _CLOSE).any(), "lines that are no objects"
    )
    return data, starts


def parse(data: bytes, schema: pa.Schema, lines: int) -> pa.Table:
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise Blemished(str(error)) from error
    refuse_if(table.num_rows != lines, "several objects on a line")
    return table


def read_history(path: Place) -> History:
    """The whole history."""
    data, starts = lines_of(path)
    table = parse(data, _HISTORY, len(starts))
    index = numbers(table, "index")
    refuse_if((index != np.arange(len(starts))).any(), "index is not the position")
    kinds, fs = coded(table, "type", TYPES), coded(table, "f", FS)
    process = numbers(table, "process")
    nemesis = process == -1
    refuse_if((kinds < 0).any() or (process < -1).any(), "a type or process that is none")
    refuse_if((fs[~nemesis] < 0).any(), "an f for the checks")
    refuse_if((kinds[nemesis] != INFO).any(), "a nemesis's line that is no info")
    fs[nemesis] = NEMESIS_F
    history = History(
        time=numbers(table, "time"), process=process, type=kinds, f=fs,
        sends=items(table, "sends", fs == SEND, need_offset=False),
        reads=items(table, "reads", (kinds == OK) & (fs == POLL)),
        ends=items(table, "offsets", (kinds == OK) & (fs == LIST_OFFSETS), need_value=False),
        held=held(table, (kinds == OK) & ((fs == ASSIGN) | (fs == SUBSCRIBE))),
        nemesis=list(nemesis_lines(data, starts, np.flatnonzero(nemesis))),
    )  # fmt: skip
    for items_of_it, f in ((history.sends, SEND), (history.reads, POLL), (history.ends, LIST_OFFSETS)):
        refuse_if((fs[items_of_it.line] != f).any(), "items that another f carries")
    return history


def read_dump(path: Place, node: str) -> Dump:
    """A whole dump in JSON lines, all of it this node's; an empty file is an empty log."""
    if path.stat().st_size == 0:
        none = np.zeros(0, dtype=np.int64)
        flags = np.zeros(0, dtype=np.bool_)
        return Dump(
            partition=none,
            offset=none,
            epoch=none,
            value=none,
            ours=flags,
            crc=none,
            crc_ok=flags,
            aborted=flags,
        )
    data, starts = lines_of(path)
    table = parse(data, _DUMP, len(starts))
    refuse_if(not pc.all(pc.equal(table["node"], node), min_count=0).as_py(), "another node's entry")
    refuse_if(table["node"].null_count, "an entry of nobody")
    value = table["value"].combine_chunks()
    ours = value.is_valid().to_numpy(zero_copy_only=False)
    refuse_if(not ours.all() and data.count(b'"value"') != len(starts), "an entry without a value")
    return Dump(
        partition=numbers(table, "partition"),
        offset=numbers(table, "offset"),
        epoch=numbers(table, "epoch", least=-1),
        value=value.fill_null(0).to_numpy(),
        ours=ours,
        crc=numbers(table, "crc", least=None),
        crc_ok=flag(table, "crc_ok", default=True),
        aborted=flag(table, "aborted", default=False),
    )


def numbers(table: pa.Table, name: str, least: int | None = 0) -> Ints:
    """A column of integers that must all be there."""
    refuse_if(table[name].null_count, f"{name} is missing")
    column: Ints = table[name].to_numpy()
    if name == "process":
        least = -1
    refuse_if(least is not None and len(column) and column.min() < least, f"{name} is too low")
    return column


def flag(table: pa.Table, name: str, *, default: bool) -> Bools:
    column: Bools = pc.fill_null(table[name], default).to_numpy()
    return column


def coded(table: pa.Table, name: str, words: Sequence[str]) -> Ints:
    """Positions in the words; MISSING where it is none of them."""
    found = pc.index_in(table[name], value_set=pa.array(words))
    codes: Ints = pc.fill_null(found, MISSING).to_numpy().astype(np.int64)
    return codes


def items(
    table: pa.Table, name: str, needed: Bools, *, need_value: bool = True, need_offset: bool = True
) -> Items:
    """The items of a list column; `needed` lines must have the list, and a send at least one item."""
    column = table[name].combine_chunks()
    there = column.is_valid().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    refuse_if(
        (needed & ~there).any() or (not need_offset and (sizes[needed] == 0).any()), f"{name} are missing"
    )
    flat = column.flatten()
    refuse_if(flat.null_count, f"null among {name}")
    return Items(
        line=np.repeat(np.arange(len(sizes)), sizes),
        partition=field(flat, "partition", required=True, least=0),
        value=field(flat, "value", required=need_value, least=None),
        offset=field(flat, "offset", required=need_offset, least=0),
    )


def field(flat: pa.StructArray, name: str, *, required: bool, least: int | None) -> Ints:
    """One field of the items; MISSING where it may be and is."""
    column = flat.field(name)
    refuse_if(required and column.null_count, f"an item without {name}")
    there = column.is_valid().to_numpy(zero_copy_only=False)
    filled: Ints = pc.fill_null(column, MISSING).to_numpy()
    refuse_if(least is not None and (filled[there] < least).any(), f"{name} is too low")
    return filled


def held(table: pa.Table, needed: Bools) -> Items:
    """The partitions of assign and subscribe."""
    column = table["partitions"].combine_chunks()
    there = column.is_valid().to_numpy(zero_copy_only=False)
    refuse_if((needed & ~there).any(), "partitions are missing")
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    flat = column.flatten()
    refuse_if(flat.null_count, "null among partitions")
    partition: Ints = flat.to_numpy()
    refuse_if((partition < 0).any(), "a partition that is none")
    none = np.full(len(partition), MISSING)
    return Items(line=np.repeat(np.arange(len(sizes)), sizes), partition=partition, value=none, offset=none)


def nemesis_lines(data: bytes, starts: Ints, which: Ints) -> Iterator[str]:
    for line in which:
        end = int(starts[line + 1]) if line + 1 < len(starts) else len(data)
        text = data[int(starts[line]) : end].decode()
        refuse_if(not isinstance(json.loads(text).get("fault"), dict), "a fault that is none")
        yield text

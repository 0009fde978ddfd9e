"""Declares which fields a line of each file has (histories/README.md): their types, which are required, and
what lines of some kind need besides.

Rules
1. A field that is not declared is ignored, whatever its value. null counts as absent; a field without a
   default must be there, even if it may be null.
2. An integer has 64 bits; 1.0 and true are no integers. A list contains no null.
3. If a name comes twice, all its values must be allowed, and the last counts.
4. Fields are declared in the order in which floodmark writes them: so its lines are usual ones (Table.usual).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from operator import and_
from typing import Annotated, Any

import msgspec
import pyarrow.compute as pc
from msgspec import Meta, Raw, inspect

from floodmark.harness.op import NEMESIS

HIGHEST = (1 << 63) - 1
LOWEST = -(1 << 63)
Integer = Annotated[int, Meta(ge=LOWEST, le=HIGHEST)]
Natural = Annotated[int, Meta(ge=0, le=HIGHEST)]
FromMinusOne = Annotated[int, Meta(ge=-1, le=HIGHEST)]
# Raw: any value, as its text. Names that only people read, or that checks compare with their own.
NULL = Raw(b"null")
EpochStart = Annotated[list[Integer], Meta(min_length=2, max_length=2)]

_NATURAL = "(?:0|[1-9][0-9]{0,17})"
_INTEGERS = {LOWEST: f"-?{_NATURAL}", -1: f"(?:-1|{_NATURAL})", 0: _NATURAL}  # by the least
_TEXT = r'"[ !#-\[\]-~]*"'  # of ASCII, without escapes

TYPES = ("invoke", "ok", "fail", "info")
CLIENT_FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")
CAUSES = ("hw", "epoch", "diverged", "recovery", "other")  # of a truncation


class _Fields(msgspec.Struct, omit_defaults=True, gc=False):
    """An object in JSON."""


class Send(_Fields):
    """A micro-send."""

    partition: Natural
    value: Integer
    offset: Natural | None = None
    epoch: Integer | None = None


class Read(_Fields):
    """A record that a poll returned."""

    partition: Natural
    offset: Natural
    value: Integer
    epoch: Integer | None = None


class Unreadable(_Fields):
    """A place that a poll could not read."""

    partition: Natural
    offset: Natural
    why: Raw = NULL


class Start(_Fields):
    """The beginning of a partition."""

    partition: Natural
    offset: Natural


class End(Start):
    """The end of a partition."""

    epoch: Integer | None = None


class Op(_Fields):
    """A line of history.jsonl."""

    index: Natural
    time: Natural
    process: FromMinusOne
    type: str
    f: str
    sends: list[Send] | None = None
    reads: list[Read] | None = None
    corrupt: list[Unreadable] | None = None
    offsets: list[End] | None = None
    starts: list[Start] | None = None
    partitions: list[Natural] | None = None
    error: str | None = None
    fault: dict[str, Raw] | None = None


class Entry(_Fields):
    """A line of a dump."""

    node: str
    partition: Natural
    offset: Natural
    epoch: FromMinusOne
    value: Integer | None
    crc: Integer
    crc_ok: bool | None = None
    aborted: bool | None = None


class Replica(_Fields):
    """A line of replicas.jsonl."""

    node: str
    partition: Natural
    epoch: Integer
    log_start: Natural
    leo: Natural
    hw: Natural
    isr: list[str]
    leader: str | None = None
    running: bool | None = None
    epochs: list[EpochStart] | None = None
    epochs_unreadable: bool | None = None
    lso: Integer | None = None


class Answer(_Fields):
    """What a leader answered about the end of an epoch."""

    epoch: FromMinusOne
    end: Natural


class Event(_Fields, kw_only=True):
    """A line of trace.jsonl."""

    time: Integer
    node: str
    seq: Natural
    partition: Integer | None = None
    event: str
    epoch: Integer | None = None
    leo: Integer | None = None
    hw: Integer | None = None
    role: Raw = NULL
    follower: str | None = None
    offset: Integer | None = None
    follower_epoch: Raw = NULL
    count: Integer | None = None
    epochs: list[EpochStart] | None = None
    acks: Raw = NULL
    cut_from: Integer | None = msgspec.field(default=None, name="from")
    cut_to: Integer | None = msgspec.field(default=None, name="to")
    cause: Raw = NULL
    why: Raw = NULL
    answer: Answer | None = None
    leader: str | None = None
    isr: list[str] | None = None
    start: Integer | None = None
    partition_epoch: Integer | None = None
    broker: str | None = None
    clean: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A kind of file: the fields of its lines; those that no check reads; the rules of a good line."""

    line: type[msgspec.Struct]
    rules: tuple[pc.Expression, ...] = ()
    unused: tuple[str, ...] = ()

    @cached_property
    def decode(self) -> Any:
        return msgspec.json.Decoder(self.line).decode

    @cached_property
    def fields(self) -> Mapping[str, inspect.Type]:
        """The type of each field."""
        found = inspect.type_info(self.line)
        assert isinstance(found, inspect.StructType)
        return {each.encode_name: each.type for each in found.fields}

    @cached_property
    def columns(self) -> Mapping[str, Any]:
        """The columns, as DuckDB's from_json expects them."""
        return {name: _column(kind) for name, kind in self.fields.items() if name not in self.unused}

    @cached_property
    def usual(self) -> str:
        """A regular expression of RE2 for lines with fields of the right types that every JSON reader reads
        alike: no name comes twice, because each has its place; no text has escapes; numbers have fewer digits
        than 64 bits hold."""
        return rf"^{_usual(inspect.type_info(self.line))}\n?$"


def _column(kind: inspect.Type) -> Any:
    match kind:
        case inspect.UnionType(types=(some, inspect.NoneType())):
            return _column(some)
        case inspect.StructType(fields=fields):
            return {each.encode_name: _column(each.type) for each in fields}
        case inspect.ListType(item_type=item):
            return [_column(item)]
        case inspect.IntType():
            return "BIGINT"
        case inspect.BoolType():
            return "BOOLEAN"
        case _:
            return "VARCHAR"


def _usual(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType(types=(some, inspect.NoneType())):
            return f"(?:{_usual(some)}|null)"
        case inspect.StructType(fields=(first, *others)):
            return rf"\{{{_member(first)}" + "".join(
                f", ?{_member(each)}" if each.required else f"(?:, ?{_member(each)})?" for each in others
            ) + r"\}"
        case inspect.ListType(item_type=item, min_length=length):
            items = ", ?".join([_usual(item)] * (length or 1))
            return rf"\[{items}\]" if length else rf"\[(?:{items}(?:, ?{items})*)?\]"
        case inspect.IntType(ge=int(least)):
            return _INTEGERS[least]
        case inspect.BoolType():
            return "(?:true|false)"
        case inspect.RawType():
            return rf"(?:{_TEXT}|-?{_NATURAL}|null)"
        case inspect.StrType():
            return _TEXT
        case _:
            return r"\{\}"


def _member(field: inspect.Field) -> str:
    return f'"{field.encode_name}": ?{_usual(field.type)}'


def _there(*names: str) -> pc.Expression:
    return reduce(and_, (pc.field(name).is_valid() for name in names))


def _of(name: str, *words: str) -> pc.Expression:
    return pc.field(name).isin(words)


def _if(condition: pc.Expression, *needs: pc.Expression) -> pc.Expression:
    return reduce(and_, needs, pc.scalar(True)) | ~condition


_CLIENT, _OK = pc.field("process") > NEMESIS, _of("type", "ok")
HISTORY = Table(line=Op, unused=("error",), rules=(
    _of("type", *TYPES),
    _if(~_CLIENT, _of("type", "info"), _there("fault")),
    _if(_CLIENT, _of("f", *CLIENT_FS)),
    _if(_CLIENT & _of("f", "send"), pc.list_value_length(pc.field("sends")) > 0),
    _if(_CLIENT & _OK & _of("f", "poll"), _there("reads")),
    _if(_CLIENT & _OK & _of("f", "list_offsets"), _there("offsets")),
    _if(_CLIENT & _OK & _of("f", "assign", "subscribe"), _there("partitions")),
))

# Which fields the f of a client's line may have; with another f the field is undeclared.
CARRIED_BY: Mapping[str, tuple[str, ...]] = {
    "sends": ("send", "txn"),
    "reads": ("poll", "txn"),  # but not in invocations
    "corrupt": ("poll",),  # the same
    "offsets": ("list_offsets",),
    "starts": ("list_offsets",),
    "partitions": ("assign", "subscribe"),
}

REPLICAS = Table(line=Replica)

_PLACED = pc.field("partition") >= 0
_STATE = _PLACED & _there("epoch", "hw") & (pc.field("leo") >= 0)
_RULED = _PLACED & _there("epoch", "isr")
_ROLE = _of("role", "leader", "follower")
_OFFSET = pc.field("offset") >= 0
TRACE = Table(line=Event, unused=("follower_epoch",), rules=(
    _if(_of("event", "append"), _STATE, _ROLE, _OFFSET, pc.field("count") >= 1),
    _if(_of("event", "truncate"), _STATE, _there("from", "to"), _of("cause", *CAUSES) | ~_there("cause")),
    _if(_of("event", "hw"), _STATE, _ROLE),
    _if(_of("event", "become_leader"), _STATE, _there("isr", "start")),
    _if(_of("event", "become_follower", "fetch"), _STATE),
    _if(_of("event", "ack"), _STATE, _OFFSET, _there("acks", "isr")),
    _if(_of("event", "isr_proposed"), _STATE, _there("isr")),
    _if(_of("event", "isr"), _RULED),  # the controller's, without leo and hw, and the leader's
    _if(_of("event", "isr") & (_there("leo") | _there("hw")), _there("leo", "hw")),
    _if(_of("event", "elect"), _RULED, _there("clean")),
    _if(_of("event", "register", "fence", "unfence"), _there("broker")),
    _if(_of("event", "start") & _there("partition"), _STATE),  # else it is the start of the node
))


@cache
def dump_of(node: str) -> Table:
    """The table of a dump, which has the entries of its own node only."""
    return Table(line=Entry, rules=(_of("node", node),))

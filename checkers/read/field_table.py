"""The one field table: which fields a line of each file has, of what type, and what it cannot do without.

format.md's tables, declared once. `Table.is_good` judges one line, as Python's objects; `Table.good` judges
many at once, as Arrow's columns. Both are made of the same declarations, and a test holds them together on
lines that break anything (tests/unit/test_field_table.py).

Rules
1. A field that nobody declares is nobody's business, whatever it holds. null is as good as absent, but where
   `named` asks that a field be there, null or not.
2. An integer has 64 bits; 1.0 is none, nor is true. A text is a text, a list holds no null.
3. A type says what a value may be wherever it stands; a Rule says what lines of some sort must have besides.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.op import NEMESIS

Mask = npt.NDArray[np.bool_]
Row = Mapping[str, Any]

HIGHEST = (1 << 63) - 1
LOWEST = -(1 << 63)


# -- what a value may be ------------------------------------------------------------------------------------


class Type(Protocol):
    """What values a field may have, null aside."""

    @property
    def arrow(self) -> pa.DataType | None:
        """As Arrow parses it; None: Arrow does not, and whoever needs it looks at the line."""
        ...

    def fits(self, value: Any) -> bool:
        """Whether it may be this, of those that json knows."""
        ...

    def misfits(self, column: pa.Array) -> Mask | None:
        """Which rows of such a column hold what may not be; None: no row."""
        ...

    def as_arrow(self, value: Any) -> Any:
        """One that fits, as Arrow's parser takes it."""
        ...


@dataclass(frozen=True, slots=True)
class Int:
    """An integer of 64 bits."""

    least: int = LOWEST

    @property
    def arrow(self) -> pa.DataType:
        return pa.int64()

    def fits(self, value: Any) -> bool:
        return type(value) is int and self.least <= value <= HIGHEST

    def misfits(self, column: pa.Array) -> Mask | None:
        if self.least == LOWEST or len(column) == column.null_count:
            return None
        if pc.min(column).as_py() >= self.least:
            return None
        return values(column, self.least) < self.least

    def as_arrow(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    @property
    def arrow(self) -> pa.DataType:
        return pa.bool_()

    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def misfits(self, column: pa.Array) -> Mask | None:
        return None

    def as_arrow(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """A text. Half of a surrogate pair, which JSON's escapes can say and UTF-8 cannot, becomes a ?."""

    @property
    def arrow(self) -> pa.DataType:
        return pa.string()

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)

    def misfits(self, column: pa.Array) -> Mask | None:
        return None

    def as_arrow(self, value: Any) -> Any:
        return value.encode(errors="replace").decode()


@dataclass(frozen=True, slots=True)
class Word(Text):
    """What is a text, and would do no harm if it were something else: a name that only people read, or that
    checks compare with theirs."""

    def fits(self, value: Any) -> bool:
        return True

    def as_arrow(self, value: Any) -> Any:
        return Text.as_arrow(self, value if isinstance(value, str) else json.dumps(value))


@dataclass(frozen=True, slots=True)
class Object:
    """An object of whatever fields."""

    @property
    def arrow(self) -> None:
        return None

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def misfits(self, column: pa.Array) -> Mask | None:
        raise NotImplementedError("a line's object is looked at by itself")

    def as_arrow(self, value: Any) -> Any:
        raise NotImplementedError("Arrow parses none")


@dataclass(frozen=True, slots=True)
class List:
    """A list of such, of which none is null; of so many, where `length` is told."""

    of: Type
    length: int | None = None

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.of.arrow)

    def fits(self, value: Any) -> bool:
        of = self.of.fits
        return (
            isinstance(value, list)
            and (self.length is None or len(value) == self.length)
            and all(each is not None and of(each) for each in value)
        )

    def misfits(self, column: pa.Array) -> Mask | None:
        bad: Mask | None = None
        if self.length is not None:
            bad = values(pc.list_value_length(column), self.length) != self.length
        flat = column.flatten()
        wrong = self.of.misfits(flat)
        if flat.null_count:
            null = flat.is_null().to_numpy(zero_copy_only=False)
            wrong = null if wrong is None else wrong | null
        if wrong is not None and wrong.any():
            bad = np.zeros(len(column), dtype=np.bool_) if bad is None else bad
            bad[pc.list_parent_indices(column).to_numpy()[wrong]] = True
        return bad

    def as_arrow(self, value: Any) -> Any:
        return [self.of.as_arrow(each) for each in value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a line, or of an item of a list. needed: not null; named: there, and perhaps null."""

    name: str
    type: Type
    needed: bool = False
    named: bool = False


@dataclass(frozen=True)
class Item:
    """An object with these fields."""

    fields: Sequence[Field]

    @cached_property
    def _fields(self) -> "Fields":
        return Fields(self.fields)

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([(each.name, each.type.arrow) for each in self.fields])

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict) and self._fields.fit(value)

    def misfits(self, column: pa.StructArray) -> Mask | None:
        bad: Mask | None = None
        for each in self.fields:
            part = column.field(each.name)
            wrong = each.type.misfits(part)
            if each.needed and part.null_count:
                null = part.is_null().to_numpy(zero_copy_only=False)
                wrong = null if wrong is None else wrong | null
            if wrong is not None:
                bad = wrong if bad is None else bad | wrong
        return bad

    def as_arrow(self, value: Any) -> Any:
        return written(self.fields, value)


class Twice(dict[str, Any]):
    """An object in which names came twice; the last of each counts. `before`: the others."""

    before: Sequence[tuple[str, Any]] = ()


class Fields:
    """The fields of an object, to judge one by."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fits = {each.name: each.type.fits for each in fields}
        self._needed = [each.name for each in fields if each.needed]
        self._named = [each.name for each in fields if each.named]

    def fit(self, row: Row) -> bool:
        """Whether every field is what it may be. Of a name that comes twice all that it is given must be."""
        for name in self._needed:
            if row.get(name) is None:
                return False
        for name in self._named:
            if name not in row:
                return False
        if not self._all_fit(row.items()):
            return False
        return not isinstance(row, Twice) or self._all_fit(row.before)

    def _all_fit(self, items: Iterable[tuple[str, Any]]) -> bool:
        for name, value in items:
            if value is not None and name in self._fits and not self._fits[name](value):
                return False
        return True


def written(fields: Sequence[Field], row: Row) -> dict[str, Any]:
    """What is declared of a good line, as Arrow's parser takes it."""
    return {
        each.name: None if row[each.name] is None else each.type.as_arrow(row[each.name])
        for each in fields
        if each.name in row and each.type.arrow is not None
    }


# -- what lines of some sort must have ----------------------------------------------------------------------


class Ask(Protocol):
    """A question about one field of a line; null is never a yes."""

    def of(self, value: Any) -> bool: ...
    def rows(self, column: pa.Array) -> Mask: ...


@dataclass(frozen=True, slots=True)
class There:
    """It is there."""

    def of(self, value: Any) -> bool:
        return value is not None

    def rows(self, column: pa.Array) -> Mask:
        return validity(column)


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """A list with something in it."""

    def of(self, value: Any) -> bool:
        return bool(value)

    def rows(self, column: pa.Array) -> Mask:
        return values(pc.list_value_length(column), 0) > 0


@dataclass(frozen=True, slots=True)
class Between:
    """An integer that is not below or above these."""

    least: int
    most: int = HIGHEST

    def of(self, value: Any) -> bool:
        return value is not None and bool(self.least <= value <= self.most)

    def rows(self, column: pa.Array) -> Mask:
        numbers = values(column, 0)
        asked = numbers >= self.least
        if self.most < HIGHEST:
            asked &= numbers <= self.most
        return asked & validity(column) if column.null_count else asked


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these texts."""

    words: Sequence[str]

    def of(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.words

    def rows(self, column: pa.DictionaryArray) -> Mask:
        right = pc.is_in(column.dictionary, value_set=pa.array(self.words)).to_numpy(zero_copy_only=False)
        if not len(right):
            return np.zeros(len(column), dtype=np.bool_)
        asked: Mask = right[values(column.indices, 0)]
        return asked & validity(column) if column.null_count else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Lines that answer every question of `where` with yes must answer those of `needs` so."""

    where: Mapping[str, Ask] = field(default_factory=dict)
    needs: Mapping[str, Ask]


_Asks = Sequence[tuple[str, Callable[[Any], bool]]]


def _are_so(asks: _Asks, row: Row) -> bool:
    return all([is_so(row.get(name)) for name, is_so in asks])  # noqa: C419 (a generator takes longer)


def _as_tuples(rule: Rule) -> tuple[_Asks, _Asks]:
    where, needs = ([(name, ask.of) for name, ask in asks.items()] for asks in (rule.where, rule.needs))
    return where, needs


class Table:
    """The fields and rules of a kind of file. `sort`: the field by which most rules are chosen."""

    def __init__(self, fields: Sequence[Field], rules: Sequence[Rule], sort: str) -> None:
        self.fields = fields
        self.rules = rules
        self.schema = pa.schema([
            (each.name, each.type.arrow) for each in fields if each.type.arrow is not None
        ])
        self._sort = sort
        self._fields = Fields(fields)
        words = {word for rule in rules for word in self._words(rule) or ()}
        self._rules = {
            word: [_as_tuples(rule) for rule in rules if word in (self._words(rule) or words)]
            for word in words
        }
        self._other_rules = [_as_tuples(rule) for rule in rules if self._words(rule) is None]

    def _words(self, rule: Rule) -> Sequence[str] | None:
        """Those of the lines that it speaks of; None: of all."""
        ask = rule.where.get(self._sort)
        return ask.words if isinstance(ask, OneOf) else None

    def is_good(self, row: Row) -> bool:
        """Whether an object that json has read is a line of this file."""
        if not self._fields.fit(row):
            return False
        sort = row.get(self._sort)
        rules = self._rules.get(sort, self._other_rules) if isinstance(sort, str) else self._other_rules
        return all(_are_so(needs, row) for where, needs in rules if _are_so(where, row))

    def encoded(self, table: pa.Table) -> dict[str, pa.Array]:
        """The columns of a table of this schema, texts as dictionaries."""
        columns = {}
        for name in self.schema.names:
            column = one_array(table[name])
            columns[name] = column.dictionary_encode() if column.type == pa.string() else column
        return columns

    def good(self, columns: Mapping[str, pa.Array]) -> Mask:
        """Which rows are good lines, as far as the columns tell: of a field that is an Object nothing is
        asked here, nor whether one is `named`."""
        size = len(next(iter(columns.values())))
        good = np.ones(size, dtype=np.bool_)
        for each in self.fields:
            if each.type.arrow is None:
                continue
            column = columns[each.name]
            if each.needed and column.null_count:
                good &= validity(column)
            misfits = each.type.misfits(column)
            if misfits is not None:
                good &= ~misfits
        asked: dict[tuple[str, Ask], Mask] = {}

        def answer(name: str, ask: Ask) -> Mask:
            if (name, ask) not in asked:
                asked[name, ask] = ask.rows(columns[name])
            return asked[name, ask]

        for rule in self.rules:
            where = [answer(name, ask) for name, ask in rule.where.items()]
            needs = [answer(name, ask) for name, ask in rule.needs.items() if name in columns]
            if needs:
                there = np.logical_and.reduce(where) if where else np.ones(size, dtype=np.bool_)
                good &= ~there | np.logical_and.reduce(needs)
        return good


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, without a copy where it is one."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [
        pa.array([], type=column.type)
    ])


def values(column: pa.Array, none: int) -> npt.NDArray[Any]:
    """As numpy has them; `none` stands for null."""
    return (column.fill_null(none) if column.null_count else column).to_numpy()  # type: ignore[no-any-return]


def validity(column: pa.Array) -> Mask:
    return column.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


# -- the tables ---------------------------------------------------------------------------------------------

TYPES = ("invoke", "ok", "fail", "info")
CLIENT_FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")
PLACE = Int(0)

_PARTITION = Field(name="partition", type=PLACE, needed=True)
_VALUE = Field(name="value", type=Int(), needed=True)
_EPOCH = Field(name="epoch", type=Int())
_SEND = Item((_PARTITION, _VALUE, Field(name="offset", type=PLACE), _EPOCH))
_READ = Item((_PARTITION, _VALUE, Field(name="offset", type=PLACE, needed=True), _EPOCH))
_END = Item((_PARTITION, Field(name="offset", type=PLACE, needed=True)))

_CLIENT: Mapping[str, Ask] = {"process": Between(0)}
_OK: Mapping[str, Ask] = {**_CLIENT, "type": OneOf(("ok",))}

HISTORY = Table(
    fields=(
        Field(name="index", type=PLACE, needed=True),
        Field(name="time", type=PLACE, needed=True),
        Field(name="process", type=Int(NEMESIS), needed=True),
        Field(name="type", type=Text(), needed=True),
        Field(name="f", type=Text(), needed=True),
        Field(name="sends", type=List(_SEND)),
        Field(name="reads", type=List(_READ)),
        Field(name="offsets", type=List(_END)),
        Field(name="partitions", type=List(PLACE)),
        Field(name="error", type=Text()),
        Field(name="fault", type=Object()),
    ),
    rules=(
        Rule(needs={"type": OneOf(TYPES)}),
        Rule(
            where={"process": Between(NEMESIS, NEMESIS)}, needs={"type": OneOf(("info",)), "fault": There()}
        ),
        Rule(where=_CLIENT, needs={"f": OneOf(CLIENT_FS)}),
        Rule(where={**_CLIENT, "f": OneOf(("send",))}, needs={"sends": NotEmpty()}),
        Rule(where={**_OK, "f": OneOf(("poll",))}, needs={"reads": There()}),
        Rule(where={**_OK, "f": OneOf(("list_offsets",))}, needs={"offsets": There()}),
        Rule(where={**_OK, "f": OneOf(("assign", "subscribe"))}, needs={"partitions": There()}),
    ),
    sort="f",
)

# What the f of a client's line carries; elsewhere the field is one that nobody knows.
CARRIED_BY: Mapping[str, Sequence[str]] = {
    "sends": ("send", "txn"),
    "reads": ("poll", "txn"),  # but for invocations
    "offsets": ("list_offsets",),
    "partitions": ("assign", "subscribe"),
}

_ENTRY = (
    Field(name="node", type=Text(), needed=True),
    _PARTITION,
    Field(name="offset", type=PLACE, needed=True),
    Field(name="epoch", type=Int(-1), needed=True),
    Field(name="value", type=Int(), named=True),
    Field(name="crc", type=Int(), needed=True),
    Field(name="crc_ok", type=Flag()),
    Field(name="aborted", type=Flag()),
)


@cache
def dump_of(node: str) -> Table:
    """A dump holds the entries of its own node."""
    return Table(fields=_ENTRY, rules=(Rule(needs={"node": OneOf((node,))}),), sort="node")


_STATE: Mapping[str, Ask] = {"partition": Between(0), "epoch": There(), "leo": Between(0), "hw": There()}
_ROLE = OneOf(("leader", "follower"))
_RULED: Mapping[str, Ask] = {"partition": Between(0), "epoch": There(), "isr": There()}


def _of(*events: str, **more: Ask) -> dict[str, Ask]:
    return {"event": OneOf(events), **more}


TRACE = Table(
    fields=(
        Field(name="time", type=Int(), needed=True),
        Field(name="node", type=Text(), needed=True),
        Field(name="seq", type=PLACE, needed=True),
        Field(name="event", type=Text(), needed=True),
        *(Field(name=name, type=Int()) for name in ("partition", "epoch", "leo", "hw", "offset", "count")),
        Field(name="role", type=Word()),
        Field(name="epochs", type=List(List(Int(), length=2))),
        *(Field(name=name, type=Int()) for name in ("from", "to", "start", "partition_epoch")),
        Field(name="why", type=Word()),
        Field(name="isr", type=List(Text())),
        Field(name="leader", type=Text()),
        Field(name="acks", type=Word()),
        Field(name="broker", type=Text()),
        Field(name="clean", type=Flag()),
    ),
    rules=(
        Rule(where=_of("append"), needs={**_STATE, "role": _ROLE, "offset": Between(0), "count": Between(1)}),
        Rule(where=_of("truncate"), needs={**_STATE, "from": There(), "to": There()}),
        Rule(where=_of("hw"), needs={**_STATE, "role": _ROLE}),
        Rule(where=_of("become_leader"), needs={**_STATE, "isr": There(), "start": There()}),
        Rule(where=_of("become_follower", "fetch"), needs=_STATE),
        Rule(where=_of("ack"), needs={**_STATE, "offset": Between(0), "acks": There(), "isr": There()}),
        Rule(where=_of("isr_proposed"), needs={**_STATE, "isr": There()}),
        Rule(where=_of("isr"), needs=_RULED),  # of the controller, without leo and hw, and of the leader
        Rule(where=_of("isr", leo=There()), needs={"hw": There()}),
        Rule(where=_of("isr", hw=There()), needs={"leo": There()}),
        Rule(where=_of("elect"), needs={**_RULED, "clean": There()}),
        Rule(where=_of("register", "fence", "unfence"), needs={"broker": There()}),
        Rule(where=_of("start", partition=There()), needs=_STATE),  # without: of the node as a whole
    ),
    sort="event",
)

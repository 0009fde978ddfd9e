"""Defines, in one table, which fields a line of each file has, their types, and which are required.

It declares the tables of format.md once. From these declarations are made: `Table.is_good`, which checks one
line as Python objects; `Table.usual`, a regular expression for lines whose fields all have their types, in
the order that the file's own lines show; `Table.keeps_rules`, which checks many of these at once as Arrow
columns. A test compares them on broken lines of every kind (tests/unit/test_field_table.py).

Rules
1. A field that is not declared is ignored, whatever its value. null counts as absent, except where `named`
   requires the field to be there, null or not.
2. An integer has 64 bits; 1.0 and true are no integers. A list contains no null.
3. A type says which values a field may have in any line; a Rule says what lines of some kind need besides.
4. Not every good line is a usual one, but every JSON reader reads a usual line alike, whichever lines the
   expression was made from: no name comes twice, because each has one place, also those of undeclared fields;
   no name has escapes, texts are valid UTF-8, numbers have fewer digits than 64 bits hold.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.harness.op import NEMESIS

Mask = npt.NDArray[np.bool_]
Row = Mapping[str, Any]

HIGHEST = (1 << 63) - 1
LOWEST = -(1 << 63)
_NATURAL = "(?:0|[1-9][0-9]{0,17})"
_FLAG = "(?:true|false)"
_TAIL = r"[\x80-\xbf]"
_UTF_8 = "|".join((  # beyond ASCII, byte by byte (table 3-7 of the Unicode standard)
    rf"[\xc2-\xdf]{_TAIL}", rf"\xe0[\xa0-\xbf]{_TAIL}", rf"[\xe1-\xec\xee\xef]{_TAIL}{{2}}",
    rf"\xed[\x80-\x9f]{_TAIL}", rf"\xf0[\x90-\xbf]{_TAIL}{{2}}", rf"[\xf1-\xf3]{_TAIL}{{3}}",
    rf"\xf4[\x80-\x8f]{_TAIL}{{2}}",
))  # fmt: skip
_HEX = "[0-9A-Fa-f]"
_ESCAPE = "|".join((  # of surrogates those in pairs
    r'\\["\\/bfnrt]', rf"\\u[0-9A-CE-Fa-ce-f]{_HEX}{{3}}", rf"\\u[Dd][0-7]{_HEX}{{2}}",
    rf"\\u[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}",
))  # fmt: skip
_TEXT = rf'"(?:[ !#-\[\]-~]|{_UTF_8}|{_ESCAPE})*"'
_COMMA = " *, *"
_PLAIN = rf"(?:{_TEXT}|-?{_NATURAL}(?:\.[0-9]{{1,17}})?(?:[Ee][+-]?[0-9]{{1,2}})?|{_FLAG})"
_NAME = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]*')  # without escapes
_MOST_UNKNOWN = 16  # undeclared fields in an object of a usual line
_FIRST = 8  # items of a list whose form is taken for the others


# -- what a value may be ------------------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The values that a field may have, apart from null."""

    fits: Callable[[Any], bool]  # whether it may have this value, of those that json returns
    # A regular expression of RE2 over bytes for most of these values, in the form that these examples show.
    # None: a usual line has no such field.
    usual: Callable[[Sequence[Any]], str] | None = None
    arrow: pa.DataType | None = None  # of the column; None: no check uses the value, and it has no column
    as_column: Callable[[Any], Any] = _same  # converts a valid value for its column
    least: int | None = None  # of integers


def integer(least: int = LOWEST) -> Type:
    """An integer of 64 bits."""
    usual = {0: _NATURAL, -1: f"(?:-1|{_NATURAL})", LOWEST: f"-?{_NATURAL}"}[least]
    return Type(
        fits=lambda value: type(value) is int and least <= value <= HIGHEST,
        usual=lambda _: usual, arrow=pa.int64(), least=least,
    )  # fmt: skip


def _without_halves(text: str) -> str:
    """Replace half of a surrogate pair, which JSON escapes allow and UTF-8 does not, by a ?."""
    return text.encode(errors="replace").decode()


FLAG = Type(fits=lambda value: isinstance(value, bool), usual=lambda _: _FLAG, arrow=pa.bool_())
TEXT = Type(
    fits=lambda value: isinstance(value, str),
    usual=lambda _: _TEXT,
    arrow=pa.string(),
    as_column=_without_halves,
)
# Texts that would do no harm if they were something else: names that only people read, or that checks compare
# with their own.
WORD = replace(
    TEXT,
    fits=lambda _: True,
    as_column=lambda value: _without_halves(value if isinstance(value, str) else json.dumps(value)),
)
# An object with any fields. Code that needs it parses the line.
OBJECT = Type(fits=lambda value: isinstance(value, dict))
UNKNOWN = Type(fits=lambda _: True, usual=lambda _: _PLAIN)  # of an undeclared field


def unasked(of: Type) -> Type:
    """A value of this type that no check uses."""
    return Type(fits=of.fits, usual=of.usual)


def list_of(of: Type, length: int | None = None) -> Type:
    """A list of such values without null; of this many, if `length` is given."""
    assert of.usual is not None
    usual_item = of.usual

    def usual(lists: Sequence[Any]) -> str:
        each = usual_item([one for some in lists if isinstance(some, list) for one in some[:_FIRST]])
        items = f"(?:{each}(?:{_COMMA}{each})*)?" if length is None else _COMMA.join([each] * length)
        return rf"\[ *{items} *\]"

    return Type(
        fits=lambda value: (
            isinstance(value, list)
            and (length is None or len(value) == length)
            and all(each is not None and of.fits(each) for each in value)
        ),
        usual=usual,
        arrow=pa.list_(of.arrow),
        as_column=lambda value: [of.as_column(each) for each in value],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a line, or of an item of a list. needed: not null; named: present, possibly null."""

    name: str
    type: Type
    needed: bool = False
    named: bool = False


class Twice(dict[str, Any]):
    """An object in which names came twice; the last of each counts. `before`: the earlier ones."""

    before: Sequence[tuple[str, Any]] = ()


class Fields:
    """The fields of an object, to check it. The first is a required one."""

    def __init__(self, fields: Sequence[Field]) -> None:
        assert fields[0].needed
        self._fields = fields
        self._by_name = {each.name: each for each in fields}
        self._fits = {each.name: each.type.fits for each in fields}
        self._needed = [each.name for each in fields if each.needed]
        self._named = [each.name for each in fields if each.named]

    @property
    def columns(self) -> list[tuple[str, pa.DataType]]:
        return [(each.name, each.type.arrow) for each in self._fields if each.type.arrow is not None]

    def usual(self, objects: Sequence[Any]) -> str:
        """A regular expression for objects whose fields come in the order of these examples."""
        rows = [each for each in objects if isinstance(each, dict)]
        usual, begun = "", False  # begun: some field comes before, even if others are left out
        for name in self._order(rows):
            each = self._by_name.get(name, Field(name=name, type=UNKNOWN))
            assert each.type.usual is not None
            value = each.type.usual([row[name] for row in rows if name in row])
            member = f'"{re.escape(name)}" *: *' + (value if each.needed else f"(?:{value}|null)")
            if each.needed or each.named:
                usual += _COMMA + member if begun else member
                begun = True
            else:
                usual += f"(?:{_COMMA}{member})?" if begun else f"(?:{member}{_COMMA})?"
        return rf"\{{ *{usual} *\}}"

    def _order(self, rows: Sequence[Row]) -> Sequence[str]:
        """The order of fields in usual objects: that of most examples if they contradict each other; that of
        the declarations where they say nothing."""
        unknown = Counter(name for row in rows for name in row if name not in self._by_name)
        declared = [each.name for each in self._fields if each.type.usual is not None]
        found = [name for name, _ in unknown.most_common(_MOST_UNKNOWN) if _NAME.fullmatch(name)]
        names = dict.fromkeys([*declared, *found])
        agree = Counter(dict.fromkeys(pairwise(declared), 0))
        for row in rows:
            agree.update(pairwise(filter(names.__contains__, row)))
        while True:
            order: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(names, ()))
            for name, following in agree:
                order.add(following, name)
            try:
                return tuple(order.static_order())
            except CycleError as error:
                del agree[min(pairwise(error.args[1]), key=agree.__getitem__)]

    def fit(self, row: Row) -> bool:
        """Whether every field has an allowed value. If a name comes twice, all its values must be allowed."""
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

    def as_columns(self, row: Row) -> dict[str, Any]:
        """The values of an object that fits, by column."""
        return {
            each.name: None if row[each.name] is None else each.type.as_column(row[each.name])
            for each in self._fields
            if each.name in row and each.type.arrow is not None
        }


def item(*several: Field) -> Type:
    """An object with these fields."""
    fields = Fields(several)
    return Type(
        fits=lambda value: isinstance(value, dict) and fields.fit(value),
        usual=fields.usual,
        arrow=pa.struct(fields.columns),
        as_column=fields.as_columns,
    )


# what lines of some kind must have


class Ask(Protocol):
    """A condition on one field of a line; null never meets it."""

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
    """A list that is not empty."""

    def of(self, value: Any) -> bool:
        return bool(value)

    def rows(self, column: pa.Array) -> Mask:
        return values(pc.list_value_length(column), 0) > 0


@dataclass(frozen=True, slots=True)
class Between:
    """An integer within these bounds."""

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
    """Lines that meet all conditions of `where` must meet those of `needs`."""

    where: Mapping[str, Ask] = field(default_factory=dict)
    needs: Mapping[str, Ask]


_Asks = Sequence[tuple[str, Callable[[Any], bool]]]


def _are_so(asks: _Asks, row: Row) -> bool:
    return all([is_so(row.get(name)) for name, is_so in asks])  # noqa: C419 (a generator takes longer)


def _as_tuples(rule: Rule) -> tuple[_Asks, _Asks]:
    where, needs = ([(name, ask.of) for name, ask in asks.items()] for asks in (rule.where, rule.needs))
    return where, needs


class Table:
    """The fields and rules of a kind of file. `sort`: the field that selects most rules."""

    def __init__(self, fields: Sequence[Field], rules: Sequence[Rule], sort: str) -> None:
        self.fields = fields
        self.rules = rules
        self._fields = Fields(fields)
        self.schema = pa.schema(self._fields.columns)
        self._sort = sort
        words = {word for rule in rules for word in self._words(rule) or ()}
        self._rules = {
            word: [_as_tuples(rule) for rule in rules if word in (self._words(rule) or words)]
            for word in words
        }
        self._other_rules = [_as_tuples(rule) for rule in rules if self._words(rule) is None]

    def _words(self, rule: Rule) -> Sequence[str] | None:
        """The values of `sort` for which the rule holds; None: for all lines."""
        ask = rule.where.get(self._sort)
        return ask.words if isinstance(ask, OneOf) else None

    def is_good(self, row: Row) -> bool:
        """Whether a parsed object is a valid line of this file."""
        if not self._fields.fit(row):
            return False
        sort = row.get(self._sort)
        rules = self._rules.get(sort, self._other_rules) if isinstance(sort, str) else self._other_rules
        return all(_are_so(needs, row) for where, needs in rules if _are_so(where, row))

    def usual(self, rows: Sequence[Any]) -> str:
        """A regular expression for lines written like these, the line feed included."""
        return rf"^ *{self._fields.usual(rows)}[ \t\r\n]*$"

    def encoded(self, table: pa.Table) -> dict[str, pa.Array]:
        """The columns of a table of this schema, with texts as dictionaries."""
        columns = {}
        for name in self.schema.names:
            column = one_array(table[name])
            columns[name] = column.dictionary_encode() if column.type == pa.string() else column
        return columns

    def as_columns(self, row: Row) -> dict[str, Any]:
        """The values of a good line, by column."""
        return self._fields.as_columns(row)

    def keeps_rules(self, columns: Mapping[str, pa.Array]) -> Mask:
        """Which rows keep all rules, if they have only these columns."""
        size = len(next(iter(columns.values())))
        good = np.ones(size, dtype=np.bool_)
        asked: dict[tuple[str, Ask], Mask] = {}

        def answer(name: str, ask: Ask) -> Mask:
            if (name, ask) not in asked:
                asked[name, ask] = (
                    ask.rows(columns[name]) if name in columns else np.zeros(size, dtype=np.bool_)
                )
            return asked[name, ask]

        for rule in self.rules:
            where = [answer(name, ask) for name, ask in rule.where.items()]
            needs = np.logical_and.reduce([answer(name, ask) for name, ask in rule.needs.items()])
            good &= needs | ~np.logical_and.reduce(where) if where else needs
        return good


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy where it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [
        pa.array([], type=column.type)
    ])


def values(column: pa.Array, none: int) -> npt.NDArray[Any]:
    """The column as a numpy array; `none` replaces null."""
    return (column.fill_null(none) if column.null_count else column).to_numpy()  # type: ignore[no-any-return]


def validity(column: pa.Array) -> Mask:
    return column.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


# -- the tables ---------------------------------------------------------------------------------------------

TYPES = ("invoke", "ok", "fail", "info")
CLIENT_FS = ("send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets")
PLACE = integer(0)

_PARTITION = Field(name="partition", type=PLACE, needed=True)
_VALUE = Field(name="value", type=integer(), needed=True)
_OFFSET = Field(name="offset", type=PLACE, needed=True)
_EPOCH = Field(name="epoch", type=integer())
_SEND = item(_PARTITION, _VALUE, Field(name="offset", type=PLACE), _EPOCH)
_READ = item(_PARTITION, _OFFSET, _VALUE, _EPOCH)
_END = item(_PARTITION, _OFFSET, _EPOCH)
_START = item(_PARTITION, _OFFSET)
_UNREADABLE = item(_PARTITION, _OFFSET, Field(name="why", type=WORD))

_CLIENT: Mapping[str, Ask] = {"process": Between(0)}
_OK: Mapping[str, Ask] = {**_CLIENT, "type": OneOf(("ok",))}

HISTORY = Table(
    fields=(
        Field(name="index", type=PLACE, needed=True),
        Field(name="time", type=PLACE, needed=True),
        Field(name="process", type=integer(NEMESIS), needed=True),
        Field(name="type", type=TEXT, needed=True),
        Field(name="f", type=TEXT, needed=True),
        Field(name="sends", type=list_of(_SEND)),
        Field(name="reads", type=list_of(_READ)),
        Field(name="corrupt", type=list_of(_UNREADABLE)),
        Field(name="offsets", type=list_of(_END)),
        Field(name="starts", type=list_of(_START)),
        Field(name="partitions", type=list_of(PLACE)),
        Field(name="error", type=unasked(TEXT)),
        Field(name="fault", type=OBJECT),
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

# Which fields the f of a client's line may have; with another f the field is undeclared.
CARRIED_BY: Mapping[str, Sequence[str]] = {
    "sends": ("send", "txn"),
    "reads": ("poll", "txn"),  # but not in invocations
    "corrupt": ("poll",),  # the same
    "offsets": ("list_offsets",),
    "starts": ("list_offsets",),
    "partitions": ("assign", "subscribe"),
}

_ENTRY = (
    Field(name="node", type=TEXT, needed=True),
    _PARTITION,
    _OFFSET,
    Field(name="epoch", type=integer(-1), needed=True),
    Field(name="value", type=integer(), named=True),
    Field(name="crc", type=integer(), needed=True),
    Field(name="crc_ok", type=FLAG),
    Field(name="aborted", type=FLAG),
)


@cache
def dump_of(node: str) -> Table:
    """The table of a dump, which has the entries of its own node only."""
    return Table(fields=_ENTRY, rules=(Rule(needs={"node": OneOf((node,))}),), sort="node")


REPLICAS = Table(
    fields=(
        Field(name="node", type=TEXT, needed=True),
        _PARTITION,
        Field(name="leader", type=TEXT),
        Field(name="epoch", type=integer(), needed=True),
        *(Field(name=name, type=PLACE, needed=True) for name in ("log_start", "leo", "hw")),
        Field(name="isr", type=list_of(TEXT), needed=True),
        Field(name="running", type=FLAG),
        Field(name="epochs", type=list_of(list_of(integer(), length=2))),
        Field(name="epochs_unreadable", type=FLAG),
        Field(name="lso", type=integer()),
    ),
    rules=(),
    sort="node",
)

_STATE: Mapping[str, Ask] = {"partition": Between(0), "epoch": There(), "leo": Between(0), "hw": There()}
_ROLE = OneOf(("leader", "follower"))
CAUSES = ("hw", "epoch", "diverged", "recovery", "other")  # of a truncation
_RULED: Mapping[str, Ask] = {"partition": Between(0), "epoch": There(), "isr": There()}


def _of(*events: str, **more: Ask) -> dict[str, Ask]:
    return {"event": OneOf(events), **more}


TRACE = Table(
    fields=(
        Field(name="time", type=integer(), needed=True),
        Field(name="node", type=TEXT, needed=True),
        Field(name="seq", type=PLACE, needed=True),
        Field(name="partition", type=integer()),
        Field(name="event", type=TEXT, needed=True),
        *(Field(name=name, type=integer()) for name in ("epoch", "leo", "hw")),
        Field(name="role", type=WORD),
        Field(name="offset", type=integer()),
        Field(name="count", type=integer()),
        Field(name="epochs", type=list_of(list_of(integer(), length=2))),
        Field(name="acks", type=WORD),
        *(Field(name=name, type=integer()) for name in ("from", "to")),
        *(Field(name=name, type=WORD) for name in ("cause", "why")),
        Field(name="answer", type=item(
            Field(name="epoch", type=integer(-1), needed=True), Field(name="end", type=PLACE, needed=True))),
        Field(name="leader", type=TEXT),
        Field(name="isr", type=list_of(TEXT)),
        *(Field(name=name, type=integer()) for name in ("start", "partition_epoch")),
        Field(name="broker", type=TEXT),
        Field(name="follower", type=TEXT),
        Field(name="clean", type=FLAG),
    ),
    rules=(
        Rule(where=_of("append"), needs={**_STATE, "role": _ROLE, "offset": Between(0), "count": Between(1)}),
        Rule(where=_of("truncate"), needs={**_STATE, "from": There(), "to": There()}),
        Rule(where=_of("truncate", cause=There()), needs={"cause": OneOf(CAUSES)}),
        Rule(where=_of("hw"), needs={**_STATE, "role": _ROLE}),
        Rule(where=_of("become_leader"), needs={**_STATE, "isr": There(), "start": There()}),
        Rule(where=_of("become_follower", "fetch"), needs=_STATE),
        Rule(where=_of("ack"), needs={**_STATE, "offset": Between(0), "acks": There(), "isr": There()}),
        Rule(where=_of("isr_proposed"), needs={**_STATE, "isr": There()}),
        Rule(where=_of("isr"), needs=_RULED),  # the controller's, without leo and hw, and the leader's
        Rule(where=_of("isr", leo=There()), needs={"hw": There()}),
        Rule(where=_of("isr", hw=There()), needs={"leo": There()}),
        Rule(where=_of("elect"), needs={**_RULED, "clean": There()}),
        Rule(where=_of("register", "fence", "unfence"), needs={"broker": There()}),
        # without a partition it is the start of the node
        Rule(where=_of("start", partition=There()), needs=_STATE),
    ),
    sort="event",
)

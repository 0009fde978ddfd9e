"""Reads the partitions of run.json (a run may have 100,000), and finds their leaders and ISRs.

    partitions = partitions_of(about["partitions"], about.get("leaders") or {})
    partitions = with_leaders(partitions, replicas)     where run.json does not name them
    partitions.led_by("n1")                             those that n1 leads

The leader and its ISR are those in run.json's `leaders`; where it names none, the leader on which all
replicas agree. A leader that is none of the partition's replicas does not count.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodmark.checkers.read.arrays import Bools, Ints
from floodmark.checkers.read.replica_rows import Replicas

Said = TypeVar("Said", bound=Hashable)
NOBODY = frozenset[str]()
# Of each partition that is asked for: its leader and the ISR. It is stated by run.json, or the one that
# the highest epoch among its replicas' rows names, if all of them have a row with a known epoch and the
# leader's own row agrees. (The epoch of a node that was stopped is that of its cache.)
_LEADERS = """
    with assigned as (select place, partition, unnest(list_distinct(replicas)) as node from asked),
    rows as (
        select place, node, leader, isr, coalesce(epoch, 0) as epoch, b.partition is not null
            and not (coalesce(epochs_unreadable, false) and not coalesce(running, true)) as is_known,
            max(coalesce(epoch, 0)) filter (b.partition is not null) over (partition by place) as highest
        from assigned left join believed b using (partition, node)),
    agreed as (
        select place, any_value(leader) filter (epoch = highest) as leader from rows group by place
        having bool_and(is_known) and count(distinct leader) filter (epoch = highest) = 1
            and bool_or(node = leader and epoch = highest)),
    led as (
        select place, if(asks, leader, stated) as leader from asked left join agreed using (place))
    select led.leader, rows.isr
    from led left join rows on rows.place = led.place and rows.node = led.leader order by led.place
"""


class Assignment(NamedTuple):
    """All that is known of a partition, except its number. Copies of it on nodes outside `replicas` are stray
    copies: no check uses them, and such a node neither leads nor is in the ISR."""

    replicas: tuple[str, ...]
    compact: bool
    keeps_all: bool  # nothing deletes its records
    # Where run.json lacks them, the replicas must show the leader and its ISR, or the ISR alone.
    asks_leader: bool
    asks_isr: bool
    leader: str | None = None  # None: nobody knows
    isr: frozenset[str] = NOBODY  # the final leader's; empty if it is not known
    led_by_none: bool = False  # run.json's leader is none of its replicas

    def led_by(self, leader: str | None, isr: Iterable[str]) -> "Assignment":
        """The same with this leader and ISR, as far as they are replicas."""
        led_by_none = self.led_by_none or (leader is not None and leader not in self.replicas)
        return self._replace(leader=leader if leader in self.replicas else None, led_by_none=led_by_none,
                             isr=NOBODY if led_by_none else frozenset(isr).intersection(self.replicas))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partitions:
    """Rows in the order of run.json. Few assignments differ: each is stored once, with a number for each
    row."""

    keys_there: Ints  # the number of each
    codes: npt.NDArray[np.int32]  # the place of its assignment
    assignments: tuple[Assignment, ...]

    @staticmethod
    def of(keys: Ints, said: Iterable[Said], make: Callable[[Said], Assignment]) -> "Partitions":
        """From what is said of each; `make` is called once for all of whom the same is said."""
        seen = dict[Said, int]()
        codes = np.fromiter((seen.setdefault(one, len(seen)) for one in said), np.int32)
        return Partitions(keys_there=keys, codes=codes, assignments=tuple(map(make, seen)))

    def __len__(self) -> int:
        return len(self.keys_there)

    def at(self, row: int) -> Assignment:
        return self.assignments[int(self.codes[row])]

    def where(self, is_so: Callable[[Assignment], bool]) -> Bools:
        """Those for whose assignment `is_so` is true; it is called once for each assignment."""
        flags: Bools = np.fromiter(map(is_so, self.assignments), np.bool_)[self.codes]
        return flags

    @property
    def compact(self) -> Bools:
        return self.where(lambda one: one.compact)

    @property
    def asks_isr(self) -> Bools:
        return self.where(lambda one: one.asks_isr)

    def led_by(self, node: str | None) -> Bools:
        return self.where(lambda one: one.leader == node)

    def on(self, node: str) -> Bools:
        """Those of which the node has a replica."""
        return self.where(lambda one: node in one.replicas)

    def column(self, make: Callable[[Assignment], object], kind: pa.DataType) -> pa.Array:
        """`make(assignment)` of each, as an Arrow column."""
        return pa.array(list(map(make, self.assignments)), type=kind).take(pa.array(self.codes))

    def numbers(self, those: Bools) -> list[int]:
        """The numbers of those partitions."""
        found: list[int] = self.keys_there[those].tolist()
        return found

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that have a replica."""
        return tuple(sorted({node for one in self.assignments for node in one.replicas}))


def partitions_of(named: Mapping[str, Mapping[str, Any]], leaders: Mapping[str, Any]) -> Partitions:
    """From `partitions` of run.json, which was checked, and `leaders`, which was not."""
    by_key = {int(key): assignment for key, assignment in named.items()}
    said = ((tuple(one["replicas"]), "compact" in str(one.get("cleanup", "delete")),
             one.get("keeps_all") is True, *_led(leaders.get(str(key)))) for key, one in by_key.items())

    def made(one: Any) -> Assignment:
        replicas, compact, keeps_all, is_named, leader, isr = one
        assigned = Assignment(replicas, compact, keeps_all, not is_named, isr is None)
        return assigned.led_by(leader, isr or ())

    return Partitions.of(np.fromiter(by_key, np.int64, len(by_key)), said, made)


def _led(word: Any) -> tuple[bool, str | None, tuple[str, ...] | None]:
    """Whether run.json says anything about the leader; who it is; the ISR, None if that is no list."""
    if not isinstance(word, dict):
        return False, None, None
    leader, isr = word.get("leader"), word.get("isr")
    return (True, leader if isinstance(leader, str) else None,
            tuple(node for node in isr if isinstance(node, str)) if isinstance(isr, list) else None)


def with_leaders(partitions: Partitions, replicas: Replicas) -> Partitions:
    """Fill in what run.json lacks by the replicas: the leader, if all agree, and its ISR."""
    asked = np.flatnonzero(partitions.asks_isr)
    if not len(asked):
        return partitions
    from floodmark.checkers.read.json_lines import database

    theirs = Partitions(keys_there=partitions.keys_there[asked], codes=partitions.codes[asked],
                        assignments=partitions.assignments)
    cursor = database().cursor()
    cursor.register("believed", replicas.table)
    cursor.register("asked", pa.table({
        "place": asked, "partition": theirs.keys_there,
        "asks": theirs.column(lambda one: one.asks_leader, pa.bool_()),
        "replicas": theirs.column(lambda one: one.replicas, pa.list_(pa.string())),
        "stated": theirs.column(lambda one: one.leader, pa.string())}))
    found = cursor.sql(_LEADERS).to_arrow_table()
    shown = (tuple(isr or ()) for isr in found["isr"].to_pylist())
    said = zip(theirs.codes.tolist(), found["leader"].to_pylist(), shown, strict=True)
    led = Partitions.of(theirs.keys_there, said, lambda one: theirs.assignments[one[0]].led_by(*one[1:]))
    codes = partitions.codes.copy()
    codes[asked] = led.codes + len(theirs.assignments)
    return Partitions(keys_there=partitions.keys_there, codes=codes,
                      assignments=(*theirs.assignments, *led.assignments))

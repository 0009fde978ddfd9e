"""Reads the partitions of run.json into columns (a run may have 100,000), and finds their leaders and ISRs.

    partitions = partitions_of(about["partitions"], about.get("leaders") or {})
    partitions = with_leaders(partitions, replicas)     where run.json does not name them
    partitions.leader.where(lambda node: node == "n1")  those that n1 leads

The leader and its ISR are those in run.json's `leaders`; where it names none, the leader on which all
replicas agree. A leader that is none of the partition's replicas does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.checkers.read.columns import Coded, Flags, Ints
from floodmark.checkers.read.replica_rows import Replicas

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partitions:
    """Rows in the order of run.json. Copies of a partition on nodes outside `replicas` are stray copies: no
    check uses them, and such a node neither leads nor is in the ISR."""

    keys_there: Ints  # the number of each
    replicas: Coded[tuple[str, ...]]
    compact: Flags
    keeps_all: Flags  # nothing deletes its records
    leader: Coded[str | None]  # None: nobody knows
    isr: Coded[frozenset[str]]  # the final leader's; empty if it is not known
    # Where run.json lacks them, the replicas must show the leader and its ISR, or the ISR alone.
    asks_leader: Flags
    asks_isr: Flags
    led_by_none: Flags  # run.json's leader is none of its replicas

    def __len__(self) -> int:
        return len(self.keys_there)

    def numbers(self, those: Flags) -> list[int]:
        """The numbers of those partitions."""
        found: list[int] = self.keys_there[those].tolist()
        return found

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that have a replica."""
        return tuple(sorted({node for nodes in self.replicas.values for node in nodes}))


def partitions_of(named: Mapping[str, Mapping[str, Any]], leaders: Mapping[str, Any]) -> Partitions:
    """From `partitions` of run.json, which was checked, and `leaders`, which was not."""
    by_key = {int(key): assignment for key, assignment in named.items()}
    words = [leaders.get(str(key)) for key in by_key]
    unnamed = np.fromiter((not isinstance(word, dict) for word in words), np.bool_, len(words))
    said = [word if isinstance(word, dict) else {} for word in words]
    del words
    leader = Coded.of(_text(word.get("leader")) for word in said)
    isr = Coded.of(_texts(word.get("isr")) for word in said)
    cleanup = Coded.of(str(assignment.get("cleanup", "delete")) for assignment in by_key.values())
    partitions = Partitions(
        keys_there=np.fromiter(by_key, np.int64, len(by_key)),
        replicas=Coded.of(tuple(assignment["replicas"]) for assignment in by_key.values()),
        compact=cleanup.where(lambda word: "compact" in word),
        keeps_all=np.fromiter(
            (one.get("keeps_all") is True for one in by_key.values()), np.bool_, len(by_key)),
        leader=leader,
        isr=isr.mapped(lambda nodes: frozenset(nodes or ())),
        asks_leader=unnamed,
        asks_isr=unnamed | isr.where(lambda nodes: nodes is None),
        led_by_none=np.zeros(len(by_key), dtype=np.bool_),
    )
    return without_strays(partitions)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    """The names in a list; None if the value is no list of names."""
    return tuple(node for node in value if isinstance(node, str)) if isinstance(value, list) else None


def without_strays(partitions: Partitions) -> Partitions:
    """Drop leaders that are no replica of their partition, and ISR members that are none."""
    replicas_and_leader = partitions.replicas.joined(partitions.leader)
    strays = replicas_and_leader.where(lambda each: each[1] is not None and each[1] not in each[0])
    led_by_none = partitions.led_by_none | strays
    unled = Coded(led_by_none.astype(np.int32), (False, True))
    known = partitions.replicas.joined(partitions.isr).joined(unled)
    return replace(
        partitions,
        leader=replicas_and_leader.mapped(lambda each: each[1] if each[1] in each[0] else None),
        isr=known.mapped(lambda each: NOBODY if each[1] else each[0][1].intersection(each[0][0])),
        led_by_none=led_by_none,
    )


def with_leaders(partitions: Partitions, replicas: Replicas) -> Partitions:
    """Fill in what run.json lacks by the replicas: the leader, if all agree, and its ISR."""
    asked = np.flatnonzero(partitions.asks_isr)
    if not len(asked):
        return partitions
    from floodmark.checkers.read.json_lines import database

    cursor = database().cursor()
    cursor.register("believed", replicas.table)
    cursor.register("asked", pa.table({
        "place": asked, "partition": partitions.keys_there[asked], "asks": partitions.asks_leader[asked],
        "replicas": partitions.replicas.taken(asked).made(list, pa.list_(pa.string())),
        "stated": partitions.leader.taken(asked).made(lambda node: node, pa.string())}))
    found = cursor.sql(_LEADERS).to_arrow_table()
    leader = Coded.of(found["leader"].to_pylist())
    isr = Coded.of(frozenset(nodes or ()) for nodes in found["isr"].to_pylist())
    return without_strays(replace(partitions, leader=partitions.leader.replaced(asked, leader),
                                  isr=partitions.isr.replaced(asked, isr)))

"""The trace, partition by partition: what the other nodes had recorded before a line (`views`, `moments` and
`members`, see __init__.py).

A line that may have come before or after another counts as neither: no law makes a claim at a crowded line,
unless the claim needs no line of another node, or holds whichever came first (appended_epoch). The lines of a
cluster, none of which is surely apart from the one before, have no order; after all of them, until the next
line of any node, the state of each replica is known: that is a moment.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.laws.trace.so_far import (
    Flags,
    Rows,
    as_of,
    changes,
    codes,
    column_at,
    ends_of,
    first_rows,
    flags,
    highest_row,
    last_not_after,
    last_rows,
    numbers,
)
from floodmark.checkers.laws.unit import Unit

ANY_EPOCH = 2**63 - 1
# A start that found more than the node's lines say may have appended it in any epoch.
_APPENDED = f"""case when event = 'append' then coalesce(nullif(epochs[-1][1], -1), epoch)
    when event = 'start' and len(epochs) > 0 then coalesce(nullif(epochs[-1][1], -1), {ANY_EPOCH})
    when event = 'start' and epochs is null and leo > coalesce(last_leo, 0) then {ANY_EPOCH} end"""
_APPENDED_TO = f"""case event when 'append'
    then cast(least("offset"::hugeint + "count", {2**63 - 1}) as bigint) when 'start' then leo end"""
_PLACES = """select row_number() over (order by run, partition) - 1 as place, run, partition, replicas,
    unfenced, clock_error from traced"""
_LINES = f"""
    select line, place, node, seq, time, timeline.clock_error, event, epoch, leo, hw, leads, ruling,
        log_known, found_empty, epoch_start, commits_to, had_committed, leo > coalesce(last_leo, 0) as rises,
        list_position(replicas, node) as replica, {_APPENDED} as appended_epoch, {_APPENDED_TO} as appended_to
    from timeline join traced_places using (run, partition)
    where event not in ('fetch', 'isr_proposed') or hw > last_hw or commits_to is not null"""
_OF_LINE = ["node", "seq", "time", "clock_error"]
_ASKS = ["ack", "truncate", "become_leader", "become_follower"]
_NO_MEMBERS = pa.schema([
    ("line", pa.int64()), ("run", pa.int32()), ("partition", pa.int64()), ("moment", pa.bool_()),
    ("node", pa.dictionary(pa.int64(), pa.string())), ("leo", pa.int64()), ("log_known", pa.bool_()),
    ("found_empty", pa.bool_()), ("reach", pa.int64()), ("appended_epoch", pa.int64()),
    ("appended_to", pa.int64()),
]).empty_table()  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InTime:
    """Lines by partition and time, and how near they are: a row is identified by its position here."""

    lines: pa.Table
    first: Rows  # for every row the first row of its partition
    surely: Rows  # the last row that is surely before; -1: none
    perhaps: Rows  # the last row that is before, or near
    crowded: Flags  # a row of another node is near


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """For every row the row up to it, itself included, that has the highest value of its kind; -1: none."""

    commits: Rows  # by commits_to
    leads: Rows  # by the epoch and HW of the leader
    opened: Rows  # by epoch and where it began
    ruling: Rows  # the controller's last line


def cluster_views(unit: Unit) -> None:
    """Make `views`, `moments` and `members`."""
    unit.make("traced_places", _PLACES)
    places = unit.rows("select * from traced_places order by place").combine_chunks()
    isrs = unit.rows("select line, isr from timeline where ruling order by line").combine_chunks()
    order = in_time(unit.rows(_LINES))
    so_far, moments = so_far_of(order), moments_of(order, places)
    asks = pc.or_(order.lines["commits_to"].is_valid(), order.lines["ruling"])
    asks = pc.or_(asks, pc.is_in(order.lines["event"], pa.array(_ASKS)))
    rows = np.flatnonzero(flags(asks))
    unit.load("views", views_of(order, so_far, rows, places, isrs))
    unit.load("moments", moments_table(order, so_far, moments, places, isrs))
    unit.load("members", members_of(order, rows, moments, places))


def in_time(lines: pa.Table) -> InTime:
    """The lines, sorted."""
    keys = numbers(lines["line"]), numbers(lines["time"]), numbers(lines["place"])
    lines = lines.take(pa.array(np.lexsort(keys))).combine_chunks()
    place, time, node = numbers(lines["place"]), numbers(lines["time"]), codes(lines["node"])
    error = numbers(lines["clock_error"])
    surely = last_not_after(place, time, place, time - error - 1)
    perhaps = last_not_after(place, time, place, time + error)
    first, of_node = first_rows(changes(place)), changes(place, node)
    nearest = np.where(surely >= 0, surely + 1, first)
    crowded = (first_rows(of_node) > nearest) | (last_rows(of_node) < perhaps)
    return InTime(lines=lines, first=first, surely=surely, perhaps=perhaps, crowded=crowded)


def so_far_of(order: InTime) -> SoFar:
    """Compute what the lines up to each one show."""
    lines, first = order.lines, order.first
    epoch, time, seq = (numbers(lines[name]) for name in ("epoch", "time", "seq"))
    upto, hw, start = (numbers(lines[name]) for name in ("commits_to", "hw", "epoch_start"))
    return SoFar(
        commits=highest_row(flags(lines["commits_to"].is_valid()), first, upto),
        leads=highest_row(flags(lines["leads"]), first, epoch, hw),
        opened=highest_row(flags(lines["epoch_start"].is_valid()), first, epoch, start),
        ruling=highest_row(flags(lines["ruling"]), first, time, seq, epoch),
    )


def of_lines(order: InTime, rows: Rows, places: pa.Table, *names: str) -> dict[str, Any]:
    """The columns with which every table here begins, and the named ones."""
    taken, place = (
        order.lines.select(["line", *names]).take(pa.array(rows)),
        numbers(order.lines["place"])[rows],
    )
    keys = {name: places[name].take(pa.array(place)) for name in ("run", "partition")}
    return keys | {name: taken[name] for name in taken.column_names}


def isr_at(order: InTime, isrs: pa.Table, rulings: Rows) -> Any:
    """The ISR of these rows, which are rulings or -1."""
    lines = as_of(numbers(order.lines["line"]), rulings)
    return column_at(isrs["isr"], np.where(rulings >= 0, np.searchsorted(numbers(isrs["line"]), lines), -1))


def views_of(order: InTime, so_far: SoFar, rows: Rows, places: pa.Table, isrs: pa.Table) -> pa.Table:
    """`views` for these rows: what the lines surely before each one show."""
    lines, surely = order.lines, order.surely[rows]
    commits = as_of(so_far.commits, surely)
    own, others = lines["had_committed"].take(pa.array(rows)), column_at(lines["commits_to"], commits)
    leads, opened = as_of(so_far.leads, surely), as_of(so_far.opened, surely)
    ruling = np.where(flags(lines["ruling"])[rows], rows, as_of(so_far.ruling, surely))
    return pa.table(
        of_lines(order, rows, places, *_OF_LINE, "event", "epoch", "leo", "ruling", "commits_to")
        | {
            "crowded": pa.array(order.crowded[rows]),
            "committed": pc.max_element_wise(own, others),
            "leader_epoch": column_at(lines["epoch"], leads),
            "leader_hw": column_at(lines["hw"], leads),
            "opened_epoch": column_at(lines["epoch"], opened),
            "opened_start": column_at(lines["epoch_start"], opened),
            "isr_epoch": column_at(lines["epoch"], ruling),
            "isr": isr_at(order, isrs, ruling),
            "ruling_near": pa.array(as_of(so_far.ruling, order.perhaps[rows]) != ruling),
        }
    )


def moments_of(order: InTime, places: pa.Table) -> Rows:
    """The last row of each cluster that ends crowded, or in which a broker was unfenced. The unfencing
    belongs to the lines after which it may have come."""
    place, time = numbers(order.lines["place"]), numbers(order.lines["time"])
    begins = changes(place)
    begins[1:] |= time[1:] - time[:-1] > numbers(order.lines["clock_error"])[1:]
    starts, ends = np.flatnonzero(begins), ends_of(begins)
    begun = np.zeros(len(starts), dtype=np.bool_)
    unfenced = numbers(pc.list_flatten(places["unfenced"]))
    of_place = numbers(pc.list_parent_indices(places["unfenced"]))
    error = numbers(places["clock_error"])[of_place]
    clusters = last_not_after(place[starts], time[starts], of_place, unfenced + error)
    begun[clusters[clusters >= 0]] = True
    rows: Rows = ends[begun | order.crowded[ends]]
    return rows


def moments_table(order: InTime, so_far: SoFar, rows: Rows, places: pa.Table, isrs: pa.Table) -> pa.Table:
    """`moments` for these rows: what they and all lines before them show."""
    lines, perhaps = order.lines, order.perhaps[rows]
    place, time = numbers(lines["place"]), lines["time"]
    after = np.minimum(rows + 1, len(place) - 1)
    ends = np.where((after > rows) & (place[after] == place[rows]), after, -1)
    return pa.table(
        of_lines(order, rows, places, *_OF_LINE)
        | {
            "ends": column_at(time, ends),
            "committed": column_at(lines["commits_to"], as_of(so_far.commits, perhaps)),
            "isr": isr_at(order, isrs, as_of(so_far.ruling, perhaps)),
        }
    )


def members_of(order: InTime, rows: Rows, moments: Rows, places: pa.Table) -> pa.Table:
    """Every replica of the partition for each of these rows: as it was before the row (the line's own node:
    as it is after it), or, for a moment, after it."""
    lines, place = order.lines, numbers(order.lines["place"])
    replicas = places["replicas"].combine_chunks()
    sizes, offsets = numbers(pc.list_value_length(replicas)), numbers(replicas.offsets)
    replica, line = numbers(lines["replica"]) - 1, numbers(lines["line"])
    appends, epoch = flags(lines["appended_epoch"].is_valid()), numbers(lines["appended_epoch"])
    rises = flags(lines["rises"])
    tables = []
    for number in range(int(sizes.max(initial=0))):
        mine = replica == number
        last, risen = (highest_row(of, order.first, line) for of in (mine, mine & rises))
        longest = highest_row(mine, order.first, numbers(lines["leo"]))
        appended = highest_row(mine & appends, order.first, epoch, numbers(lines["appended_to"]))
        for moment, asked in ((False, rows), (True, moments)):
            at = asked[sizes[place[asked]] > number]
            latest = as_of(last, order.perhaps[at] if moment else order.surely[at])
            latest = latest if moment else np.where(mine[at], at, latest)
            grown = as_of(appended, order.perhaps[at])
            node = pa.DictionaryArray.from_arrays(offsets[place[at]] + number, replicas.values)
            states = {
                "moment": pa.array(np.full(len(at), moment)),
                "node": node,
                "leo": column_at(lines["leo"], latest),
                "log_known": pc.fill_null(column_at(lines["log_known"], latest), False),
                "found_empty": pc.fill_null(column_at(lines["found_empty"], latest), False),
                "reach": column_at(lines["leo"], np.where(
                    as_of(risen, order.surely[at]) == as_of(risen, order.perhaps[at]), latest,
                    as_of(longest, order.perhaps[at]))),
                "appended_epoch": column_at(lines["appended_epoch"], grown),
                "appended_to": column_at(lines["appended_to"], grown),
            }
            tables.append(pa.table(of_lines(order, at, places) | states))
    return pa.concat_tables(tables or [_NO_MEMBERS])

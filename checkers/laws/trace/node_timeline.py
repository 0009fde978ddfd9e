"""The trace, node by node: each line with the earlier values of its node (`timeline`, see __init__.py).

A process that starts has no log except those for which it writes a line right after: so a start of the node
alone is a line of each of its partitions, with an empty log, and is dropped where the partition's own start
follows.

If the first line of such a partition is its role, with an empty log (`found_empty`), the log was empty from
the start of the process on: a log changes only by lines, and there were none between.

A process that ends between its trace and its disk leaves lines of an append that never happened, and of an HW
and an ack that rested on it and never left the process. Such a step is the last of its process, it appends,
and the next start finds a log that ends in that append, or where it began: what the step committed above that
is void.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.laws.trace.so_far import (
    Flags,
    Rows,
    before,
    changes,
    codes,
    column_at,
    first_rows,
    flags,
    highest_row,
    last_row,
    nullable,
    numbers,
)
from floodmark.checkers.laws.unit import Unit

FAR = 1 << 61  # ns: times further away are replaced by this one, so that a clock error may be added to them


def near(time: str) -> str:
    """The time, an expression, or FAR."""
    return f"greatest(least({time}, {FAR}), -{FAR})"


_AS_WRITTEN = f"""t.run, p.partition, t.node, t.seq, t.event, t.epoch, t.role, t."offset", t."count",
    t.cut_from, t.cut_to, t.cause, t.answer, t.isr, t.leader, t.partition_epoch, t.acks, t.follower,
    t.clean, t.start, t."at", {near("t.time")} as time, p.clock_error"""
# The controller is no broker of the run; other lines with a name that no broker has are ignored.
_LINES = f"""
    select {_AS_WRITTEN}, t.leo, t.hw, t.epochs, false as node_start,
        not list_contains(p.nodes, t.node) as ruling, coalesce(t.role = 'leader' or t.event in
            ('become_leader', 'ack', 'fetch', 'isr_proposed', 'isr'), false) and not ruling as leads
    from trace t join traced p using (run, partition)
    where ruling = (t.event = 'elect' or (t.event = 'isr' and t.leo is null))
    union all by name
    select {_AS_WRITTEN}, 0 as leo, 0 as hw, cast([] as bigint[][]) as epochs,
        true as node_start, false as ruling, false as leads
    from trace t join traced p using (run)
    where t.event = 'start' and t.partition is null and list_contains(p.replicas, t.node)"""
_GONE = ["start", "at", "clean"]  # not needed once the timeline is made


def node_timeline(unit: Unit) -> None:
    """Make `timeline` and `recoveries`."""
    lines = in_order(unit.rows(_LINES))
    unit.load("recoveries", recoveries(lines))
    unit.load("timeline", with_earlier_lines(lines))


def in_order(lines: pa.Table) -> pa.Table:
    """Sort by run, partition, node and seq; drop a node's start where the partition's own follows."""
    keys = [numbers(lines["run"]), numbers(lines["partition"]), codes(lines["node"])]
    order = np.lexsort((numbers(lines["at"]), numbers(lines["seq"]), *reversed(keys)))
    starts, of_node = flags(pc.equal(lines["event"], "start"))[order], flags(lines["node_start"])[order]
    begins = changes(*(key[order] for key in keys))
    follows = np.zeros(len(order), dtype=np.bool_)
    follows[:-1] = starts[1:] & ~begins[1:]
    return lines.take(pa.array(order[~(of_node & follows)]))


def with_earlier_lines(lines: pa.Table) -> pa.Table:
    """The timeline, from all lines in their order."""
    first = first_rows(changes(numbers(lines["run"]), numbers(lines["partition"]), codes(lines["node"])))
    event, node_start = lines["event"], flags(lines["node_start"])
    leads, ruling, starts = flags(lines["leads"]), flags(lines["ruling"]), flags(pc.equal(event, "start"))
    takes_role = flags(pc.is_in(event, pa.array(["become_leader", "become_follower"])))
    last = before(last_row(~node_start, first), first)
    led = before(last_row(leads, first), first)
    ruled = before(last_row(ruling, first), first)
    top = before(highest_row(takes_role, first, numbers(lines["epoch"])), first)
    role = last_row(takes_role | starts, first)
    empty = node_start & followed_by(takes_role & flags(pc.equal(lines["leo"], 0)), first)
    elected = last_row(flags(pc.equal(event, "become_leader")), first)
    epoch = numbers(lines["epoch"])
    is_own = (elected >= 0) & (epoch[elected] == epoch) & flags(lines["epoch"].is_valid())
    earlier = {
        "line": pa.array(np.arange(len(lines))),
        "last_hw": column_at(lines["hw"], last),
        "last_leo": column_at(lines["leo"], last),
        "log_known": pa.array((role >= 0) & ~node_start[role]),
        "found_empty": pa.array((role >= 0) & empty[role]),
        "top_epoch": column_at(lines["epoch"], top),
        "led_epoch": column_at(lines["epoch"], led),
        "led_hw": column_at(lines["hw"], led),
        "ruled_isr": column_at(lines["isr"], ruled),
        "ruled_partition_epoch": column_at(lines["partition_epoch"], ruled),
        "epoch_start": column_at(lines["start"], np.where(is_own, elected, -1)),
    }
    for name, column in earlier.items():
        lines = lines.append_column(name, column)
    for name, column in commits(lines, first).items():
        lines = lines.append_column(name, column)
    return lines.drop_columns(_GONE)


def followed_by(asked: Flags, first: Rows) -> Flags:
    """Whether the next line of the same node and partition is one of those asked for."""
    following = np.zeros(len(first), dtype=np.bool_)
    following[:-1] = asked[1:] & (first[1:] == first[:-1])
    return following


def recoveries(lines: pa.Table) -> pa.Table:
    """A row for each replica's own start whose log is shorter than in its line before."""
    first = first_rows(changes(numbers(lines["run"]), numbers(lines["partition"]), codes(lines["node"])))
    leo, starts = numbers(lines["leo"]), flags(pc.equal(lines["event"], "start"))
    last = before(np.arange(len(lines)), first)
    falls = (last >= 0) & (leo < leo[last])
    rows = np.flatnonzero(falls & starts & ~flags(lines["node_start"]))
    peaks = np.append(falls[1:], False)[: len(lines)]
    highest = before(highest_row(peaks, first, leo), first)  # before a line; a fall at the line itself counts
    earlier = before(last_row(starts, first), first)
    follows = flags(pc.equal(lines["event"], "become_follower"))
    role = before(last_row(follows | flags(pc.equal(lines["event"], "become_leader")), first), first)
    appended = before(last_row(flags(pc.equal(lines["event"], "append")), first), first)
    truncating = follows[role] & (role > np.maximum(earlier, appended))  # role -1 is above nothing
    found = lines.select(["run", "partition", "node", "seq", "time", "clock_error", "leo", "clean"]).take(
        pa.array(rows)
    )
    peak = highest[last[rows]]
    for name, column in {
        "last_leo": pa.array(leo[last[rows]]),
        "last_time": lines["time"].take(pa.array(last[rows])),
        "max_leo_before": column_at(lines["leo"], peak),
        "earlier_time": column_at(lines["time"], earlier[rows]),
        "truncating": pa.array(truncating[rows]),
    }.items():
        found = found.append_column(name, column)
    return found


def commits(lines: pa.Table, first: Rows) -> dict[str, pa.Array]:
    """The commits of each line, as columns of the timeline."""
    # An HW above the LEO commits what there is; the rest once it is appended.
    hw = np.minimum(numbers(lines["hw"]), numbers(lines["leo"]))
    last_hw = np.minimum(numbers(lines["last_hw"]), numbers(lines["last_leo"]))
    # A node that becomes leader shows what is below its HW, whoever moved the HW so far.
    begins = flags(pc.equal(lines["event"], "become_leader"))
    moves = flags(lines["leads"]) & (hw > last_hw)
    is_move = moves | (begins & (hw > 0))
    low = np.where(begins, 0, last_hw)
    upto = np.minimum(hw, recovered(lines, first, is_move))
    started, start = flags(lines["epoch_start"].is_valid()), numbers(lines["epoch_start"])
    fresh = np.where(started, np.maximum(low, start), upto)  # where no line shows the start, the log decides
    older = np.where(started, np.minimum(upto, start), upto)
    is_fresh, is_inherited = is_move & (upto > fresh), is_move & (older > low)
    commits_to = nullable(upto, is_move)
    return {
        "commits_from": nullable(low, is_move),
        "commits_to": commits_to,
        "had_committed": column_at(commits_to, highest_row(is_move, first, upto)),
        "fresh_from": nullable(fresh, is_fresh),
        "fresh_to": nullable(upto, is_fresh),
        "inherited_from": nullable(low, is_inherited),
        "inherited_to": nullable(older, is_inherited),
    }


def recovered(lines: pa.Table, first: Rows, asked: Flags) -> Rows:
    """For the requested lines, the end of the log at the next start, if they are of a step that never reached
    the disk; else the highest number."""
    leo, time = numbers(lines["leo"]), numbers(lines["time"])
    starts = flags(pc.equal(lines["event"], "start"))
    appends = flags(pc.equal(lines["event"], "append")) & flags(lines["leads"])
    last = before(last_row(~starts, first), first)
    appended = before(last_row(appends, first), first)
    lost = starts & (last >= 0) & (appended >= 0) & (leo < leo[last]) & (time[appended] == time[last])
    lost &= leo >= numbers(lines["offset"])[appended]
    ends: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(lost).tolist():
        step = int(first[row]), int(time[last[row]])
        ends[step] = max(int(leo[row]), ends.get(step, 0))
    found = np.full(len(first), np.iinfo(np.int64).max)
    near = np.flatnonzero(asked & np.isin(time, time[last[lost]]))
    for row in near.tolist():
        found[row] = ends.get((int(first[row]), int(time[row])), found[row])
    return found

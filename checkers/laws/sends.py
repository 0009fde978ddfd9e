"""The laws about the order of sends: an ok send whose offset is lower than that of one that came before it.

    realtime-order          the earlier one was ok before this one was invoked, whoever sent it
    nonmonotonic-send       the same process sent the earlier one, in an earlier op
    int-nonmonotonic-send   the earlier one came earlier in the same op, also a transaction's

A send is one finding of a name, however many came before it. It is permitted if the loss of its own record is
permitted, or the losses of all earlier records that were higher: then the broken order follows from that
loss. So besides the highest offset so far, the law keeps the highest one whose record nothing excuses.

realtime-order uses acks alone. Within one process or op, the offset of a send that was acked without one is
the offset at which its value was read, if it was read at one offset only.

Uses by_value (values.py). Tables made:

    placed_sends    a row an ok send of a value that was sent once, and whose offset is known: run, partition,
                    value, process, line, pos, invoked, done, ack, place (the offset), excuse, retried,
                    overlapping (its process had two ops open: their order is not known)
    unordered_senders   run, partition, process: processes whose sends there do not all rise
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.permits import RETRIES
from floodmark.checkers.laws.unit import Unit


def sends(unit: Unit) -> None:
    unit.make("placed_sends", PLACED_SENDS)
    unit.make("unordered_senders", UNORDERED_SENDERS)
    unit.find(finding_names.REALTIME_ORDER, REALTIME_ORDER)
    unit.find(finding_names.NONMONOTONIC_SEND, NONMONOTONIC_SEND)
    unit.find(finding_names.INT_NONMONOTONIC_SEND, INT_NONMONOTONIC_SEND)


PLACED_SENDS = """
select run, partition, value, v.process, line, pos, invoked, done, ack, excuse,
    coalesce(ack, case when read_low = read_high then read_low end) as place,
    coalesce(retried, false) as retried, coalesce(p.overlaps, false) as overlapping
from by_value v left join partitions using (run, partition)
    left join processes p using (run, process)
where type = 'ok' and not repeated and (ack is not null or read_low = read_high)
"""

# Most processes are not among these, and their sends need no further check.
UNORDERED_SENDERS = """
select distinct run, partition, process from (
    select *, lag(place) over (partition by run, partition, process order by done, line, pos) as last_place
    from placed_sends)
where last_place > place
"""

# The highest offset of the sends before, and the highest one whose record nothing excuses.
SO_FAR = """max({offset}) over before as highest,
    max({offset}) filter (excuse is null) over before as unexcused"""
# If every higher record is excused, all of them follow from losses: the highest one's excuse is named, or the
# send's own if that comes first.
OF_LOSSES = "least(excuse, case when unexcused > place then null else highest_excuse end)"
# For each highest offset that a send was below, the first of these sends that got it. (It came before that
# send, because some send with that offset did.)
HIGHEST_SENDS = """
select {key}, {place} as highest, min(done) as highest_done,
    arg_min(excuse, (done, line, pos)) as highest_excuse
from {sends} semi join (select {key}, highest as {place} from lower) using ({key}, {place}) group by all"""

# Indexes are those of lines, and lines have an order. (Where two lines have one index the history breaks its
# table, and nothing is claimed. A send that was acked without an offset is higher or lower than none.)
REALTIME_ORDER = f"""
with acked as not materialized (from placed_sends where not overlapping),
    -- invoked after a send with an equal or higher offset was ok: none in most partitions
    late as materialized (
        select * from acked window above as (partition by run, partition order by ack desc)
        qualify invoked >= min(done) over above),
    answered as (
        select run, partition, done as invoked, {SO_FAR.format(offset="ack")}
        from acked semi join late using (run, partition)
        window before as (partition by run, partition order by done)),
    lower as materialized (
        -- at or after the line in which the last of those was answered
        from late asof join answered using (run, partition, invoked) where highest > ack),
    highest_sends as ({HIGHEST_SENDS.format(key="run, partition", place="ack", sends="acked")})
select run, partition, ack as "offset", value, highest as seen, process,
    [highest_done, invoked, done] as ops, {OF_LOSSES} as permit
from lower join highest_sends using (run, partition, highest)
"""

# Each send that is lower than one before it, which {before} says. key: within which sends are compared.
_LOWER = f"""
with ordered as (
        from placed_sends semi join unordered_senders using (run, partition, process) where {{which}}),
    lower as materialized (
        from (
            select *, {SO_FAR.format(offset="place")}
            from ordered window before as (partition by {{key}} order by {{before}}))
        where highest > place),
    highest_sends as ({HIGHEST_SENDS.format(key="{key}", place="place", sends="ordered")})
select run, partition, place as "offset", value, highest as seen, process,
    list_filter([{{ops}}], lambda index: index is not null) as ops,
    coalesce({OF_LOSSES}, case when retried then {RETRIES} end) as permit
from lower join highest_sends using ({{key}}, highest)
"""
# Compared with earlier ops only: the sends of one op have one index.
NONMONOTONIC_SEND = _LOWER.format(
    which="not overlapping", key="run, partition, process", ops="highest_done, invoked, done",
    before="done rows between unbounded preceding and current row exclude group")
# An op is identified by its line, because two ops may have the same index. Its requests may go to two leaders
# with a loss in between.
INT_NONMONOTONIC_SEND = _LOWER.format(
    which="true", key="run, partition, line", ops="done, invoked",
    before="pos rows between unbounded preceding and 1 preceding")

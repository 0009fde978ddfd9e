"""What became of every value: one row a (run, partition, value), from sends, reads and the final logs
together.

Columns: run partition value; sent (invocations to this partition), repeated (sent more than once in the run);
invoked, invoked_time, sender (of its send); type, done and line (index of the first completion, and where it
stood), process, f, pos, ack (offset of an ok); read_at (offsets read), read_by, reader (index and process of
the first), own_read (index of its sender's first), final (some final read returned it); held, live (offsets
in the leader's log; live: not aborted), others (how many other replicas hold it), nodes (all that do); lost
(an ok or doubtful send whose record is not where it was); unread (it is lost by what reads show, for want of
the leader's log) and beyond (how far those went); gone (the same, and of a value that was sent more
than once any record of it); acks (of such a value: every offset of an ok); cause (what permits that loss and
what follows from it), excuse (the same, and acks where nobody read it); and the partition's facts.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.agreement import named
from checkers.facts import Facts
from checkers.faults import NEVER
from checkers.findings import ACKS, BUDGET, BUDGET_MAYBE, UNCLEAN, UNCLEAN_MAYBE, kept, together
from checkers.frames import Frames

_SEEN = [
    "run",
    "partition",
    "value",
    "tag",
    "offset",
    "block",
    "at",
    "index",
    "time",
    "process",
    "f",
    "pos",
    "type",
    "node",
    "leads",
    "aborted",
]


def values_of(frames: Frames, entries: DataFrame, facts: Facts) -> DataFrame:
    """The frame described above; kept, for most checks begin with it."""
    seen = gathered(frames, entries, facts)
    rows = seen.groupBy("run", "partition", "value").agg(*gathered_as(facts))
    repeated = F.sum("sent").over(Window.partitionBy("run", "value")) > 1 if facts.repeated else F.lit(False)
    told = rows.select("*", repeated.alias("repeated"), *named(**_UNPACKED))
    told = told.drop("begun", "ended", "shown")
    joined = with_ranges(told.join(facts.partitions, ["run", "partition"], "left"), seen, facts)
    judged = joined.select("*", *named(unread=IS_UNREAD, beyond=BEYOND))
    lost = judged.select("*", *named(lost=IS_LOST, gone=IS_GONE, covered=COVERED, blind=BLIND))
    causes = lost.select("*", cause().alias("cause"))
    excuse = f"if(weak_acks and size(read_at) = 0 and (gone or blind), {ACKS}, cause)"
    return kept(causes.select("*", F.expr(excuse).alias("excuse")))


def gathered_as(facts: Facts) -> list[Column]:
    """All that was seen of one value, as one row."""
    acked = "tag = 'done' and type = 'ok'" if facts.repeated else "false"
    return named(
        sent="count_if(tag = 'invoke')",
        begun="min(if(tag = 'invoke', struct(index, time, process), null))",
        ended="min(if(tag = 'done', struct(block, at, pos, index, type, offset, process, f), null))",
        read_at="collect_set(if(tag in ('read', 'final'), offset, null))",
        shown="collect_list(if(tag in ('read', 'final'), struct(index, process), null))",
        acks=f"collect_set(if({acked}, offset, null))",
        final="max(tag = 'final')",
        held="collect_set(if(leads, offset, null))",
        live="collect_set(if(leads and not aborted, offset, null))",
        others="count_if(tag = 'entry' and not leads)",
        nodes="array_sort(collect_set(node))",
    )


_SENDER = "coalesce(begun.process, ended.process)"
_UNPACKED = {
    "invoked": "begun.index",
    "invoked_time": "begun.time",
    "type": "ended.type",
    "done": "ended.index",
    "line": "ended.at",
    "process": "ended.process",
    "f": "ended.f",
    "pos": "ended.pos",
    "ack": "if(ended.type = 'ok', ended.offset, null)",
    "sender": _SENDER,
    "read_by": "array_min(shown).index",
    "reader": "array_min(shown).process",
    "own_read": f"array_min(filter(shown, one -> one.process = {_SENDER})).index",
}
# Without the leader's log: a record acked at an offset which the final reads passed, and did not return; or,
# in a history from elsewhere, which some read passed, and none ever returned. What is left of that log may
# still show that it is there.
IS_UNREAD = """coalesce(not repeated and type = 'ok' and ack is not null and not array_contains(held, ack)
    and (by_final_reads and not final and final_low <= ack and final_high > ack
        or by_any_read and size(read_at) = 0 and highest > ack), false)"""
BEYOND = "if(by_final_reads and final_high > ack, final_high, highest)"
# An acked record that is not at its place in the leader's log; a doubtful one that was read and is not there.
IS_LOST = """unread or coalesce(lost_judged and not repeated and case
    when type = 'ok' and ack is not null then ack >= log_start and not array_contains(held, ack)
    when type = 'ok' then size(held) = 0 and log_start = 0
    when type = 'fail' then false
    when sent > 0 then (size(held) = 0 and log_start = 0)
        or exists(read_at, o -> o >= log_start and not array_contains(held, o)) end, false)"""
# Which send wrote which record of a value that was sent more than once nobody knows, nor which came first.
IS_GONE = f"""({IS_LOST}) or coalesce(lost_judged and repeated and sent > 0, false) and (
    (size(held) = 0 and log_start = 0)
    or exists(array_union(read_at, acks), o -> o >= log_start and not array_contains(held, o)))"""
STILL_SENT = "sent > 0 and (repeated or coalesce(type, 'info') != 'fail')"
BLIND = f"not coalesce(lost_judged, false) and {STILL_SENT}"
# A send whose invocation is missing may have been invoked at any time.
_INVOKED_AT = f"coalesce(invoked_time, {NEVER}L)"
COVERED = f"""case
    when coalesce(invoked, -1) < unclean_index or {_INVOKED_AT} < unclean_time then {UNCLEAN}
    when unclean_maybe or {_INVOKED_AT} < unclean_maybe_time then {UNCLEAN_MAYBE}
    when coalesce(invoked, -1) < budget_index then {BUDGET}
    when coalesce(invoked, -1) < budget_maybe_index then {BUDGET_MAYBE} end"""


def with_ranges(values: DataFrame, seen: DataFrame, facts: Facts) -> DataFrame:
    """With the lowest and highest offset that final reads returned of the partition (final_low, final_high),
    and the highest of any read."""
    if not facts.by_reads:
        none = dict.fromkeys(("final_low", "final_high", "highest"), "cast(null as bigint)")
        return values.select("*", *named(**none))
    final = "if(tag = 'final', offset, null)"
    ranges = seen.where("tag in ('read', 'final')").groupBy("run", "partition").agg(
        *named(final_low=f"min({final})", final_high=f"max({final})", highest="max(offset)")
    )
    few = ranges.hint("shuffle_hash" if facts.small else "broadcast")
    return values.join(few, ["run", "partition"], "left")


def cause() -> Column:
    """What covers the loss. Where the leader's log is not known, a record that a cause covers may be lost: a
    maybe."""
    maybe = (
        f"case when covered in ({UNCLEAN}, {UNCLEAN_MAYBE}) then {UNCLEAN_MAYBE} "
        f"when covered is not null then {BUDGET_MAYBE} end"
    )
    return F.expr(f"case when gone then covered when blind then {maybe} end")


def gathered(frames: Frames, entries: DataFrame, facts: Facts) -> DataFrame:
    """Sends, reads and entries under one another."""
    clients = frames.history.where("kind in ('send', 'read')")
    final = "false"
    if facts.final is not None:
        marked = facts.final.select("run", "process", F.lit(True).alias("is_final"))
        clients, final = clients.join(marked, ["run", "process"], "left"), "is_final is not null"
    send = "if(type = 'invoke', 'invoke', 'done')"
    tag = f"case when kind = 'send' then {send} when {final} then 'final' else 'read' end"
    none = {"node": "cast(null as string)", "leads": "false", "aborted": "false"}
    asked = clients.select(*named(**{name: name for name in _SEEN} | none | {"tag": tag}))
    longs = dict.fromkeys(("block", "at", "index", "time", "process"), "cast(null as bigint)")
    none = {"f": "cast(null as string)", "type": "cast(null as string)", "pos": "cast(null as int)", **longs}
    ours = entries.where("value is not null")
    logged = ours.select(*named(**{name: name for name in _SEEN} | none | {"tag": "'entry'"}))
    return together([asked, logged], facts.small)

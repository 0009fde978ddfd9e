"""What each replica held when, as few rows: a log is a stack of epochs, and only what changes it is walked.

Theory of operation. The appends of one replica, between two cuts, in one epoch, without a gap, are one piece
of log; pieces, cuts and starts are the events of a walk over a stack, one walk a replica. Its events are few:
epochs and truncations, not records. Spark copies what a walk carries with each event, so it carries no more
than it must: what a leader's HW covers is looked up in its rows afterwards. A start that tells the epochs of
what it found replaces the stack; one that does not cuts it, and what it found beyond is of an unknown (null)
epoch, from which nothing is claimed.

Rows of `lineage_of`: run node partition seq kind(cut|left|stands|inherited) epoch lo hi (offsets) last (tick
by which all of it was there) born (tick and seq of the line that began it) gone (tick at which it went; null:
never; of inherited: at which it was committed) by (of inherited: the epoch of the leader that did it). A cut
is a truncation; left is what a start no longer found, or what a truncation inside recovery took; inherited is
what a leader's HW covers of earlier epochs.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.agreement import named
from checkers.findings import kept, together

_PIECE = "struct<epoch:bigint,lo:bigint,hi:bigint,last:bigint,born:struct<tick:bigint,seq:bigint>>"
_OUT = (
    "struct<kind:string,seq:bigint,epoch:bigint,lo:bigint,hi:bigint,last:bigint,gone:bigint,"
    "born:struct<tick:bigint,seq:bigint>,by:bigint>"
)
_EVENT = "seq", "pos", "kind", "epoch", "lo", "hi", "last", "tick", "found"
# An append without epochs: a leader's records have its epoch; so have a follower's from where it begins.
_OWN = "if(role = 'leader' or offset >= epoch_start, epoch, null)"
_PIECES = f"""if(size(epochs) > 0,
    transform(epochs, (e, i) -> struct(nullif(e[0], -1L) as epoch, e[1] as lo,
        coalesce(get(epochs, i + 1)[1], offset + count) as hi)),
    array(struct({_OWN} as epoch, offset as lo, offset + count as hi)))"""


def lineage_of(steps: DataFrame, small: bool) -> DataFrame:
    """The rows described above; kept."""
    starts = steps.where("event = 'become_leader'").groupBy("run", "partition", "epoch").agg(
        F.min("start").alias("epoch_start")
    )  # fmt: skip
    events = together([pieces(steps, starts, small), turns(steps)], small)
    walked = events.groupBy("run", "node", "partition").agg(
        F.sort_array(F.collect_list(F.struct(*_EVENT))).alias("events")
    )
    logs = kept(walked.select("run", "node", "partition", F.inline(F.expr(walk()))))
    return kept(together([logs, inherited(steps, logs, small)], small))


def inherited(steps: DataFrame, logs: DataFrame, small: bool) -> DataFrame:
    """Which epochs a leader's HW has newly covered: what its log held then, in which range."""
    asks = steps.where("inherited is not null").select(
        "run", "node", "partition",
        *named(asked="seq", asker="epoch", low="inherited.lo", high="inherited.hi", at="tick"),
    )  # fmt: skip
    held = "born.seq < asked and (seq is null or seq > asked) and hi > low and lo < high"
    told = {"kind": "'inherited'", "seq": "asked", "lo": "greatest(lo, low)", "hi": "least(hi, high)"}
    told |= {"last": "at", "gone": "at", "by": "asker"}
    return (
        logs.join(asks.hint("shuffle_hash" if small else "broadcast"), ["run", "node", "partition"])
        .where(held)
        .select(*named(**{name: told.get(name, name) for name in logs.columns}))
    )


def pieces(steps: DataFrame, starts: DataFrame, small: bool) -> DataFrame:
    """Runs of appends: the same epoch, no gap, nothing else between."""
    hint = "shuffle_hash" if small else "broadcast"
    changes = steps.where("event in ('append', 'truncate', 'start')")
    dated = changes.join(starts.hint(hint), ["run", "partition", "epoch"], "left")
    none = "array(cast(null as struct<epoch:bigint,lo:bigint,hi:bigint>))"
    told = dated.select(
        "run", "node", "partition", "seq", "tick", "event",
        F.posexplode(F.expr(f"if(event = 'append', {_PIECES}, {none})")).alias("pos", "piece"),
    )  # fmt: skip
    replica = Window.partitionBy("run", "node", "partition").orderBy("seq", "pos")
    goes_on = (
        "event = 'append' and last.event = 'append' and last.piece.epoch <=> piece.epoch "
        "and last.piece.hi = piece.lo"
    )
    apart = told.select("*", F.lag(F.struct("event", "piece")).over(replica).alias("last")).select(
        "*", F.count_if(F.expr(f"not coalesce({goes_on}, false)")).over(replica).alias("number")
    )
    return (
        apart.where("event = 'append'")
        .groupBy("run", "node", "partition", "number")
        .agg(
            *named(
                seq="min(seq)", pos="min_by(pos, struct(seq, pos))", kind="'piece'",
                epoch="first(piece.epoch)", lo="min(piece.lo)", hi="max(piece.hi)", last="max(tick)",
                tick="min(tick)", found="cast(null as array<array<bigint>>)",
            )
        )
        .drop("number")
    )  # fmt: skip


def turns(steps: DataFrame) -> DataFrame:
    """Truncations and starts."""
    recovers = "lower(coalesce(why, '')) like '%recover%'"
    reset = "cut_to > cut_from"  # the log begins anew where its leader's begins: nothing of it stays
    rows = steps.where("event in ('truncate', 'start')")
    kind = f"case when event = 'start' then 'start' when {recovers} then 'lose' else 'cut' end"
    low = f"case when event = 'start' then leo when {reset} then 0 else cut_to end"
    none = "cast(null as bigint)"
    return rows.select(
        "run", "node", "partition",
        *named(
            seq="seq", pos="0", kind=kind, epoch=none, lo=low, hi=none, last=none, tick="tick",
            found="if(event = 'start', epochs, null)",
        ),
    )  # fmt: skip


def walk() -> str:
    """The walk over one replica's events, as an expression that gives an array of rows."""
    taken = f"""transform(filter(acc.log, s -> s.hi > x.lo), s -> cast(struct(
        case x.kind when 'cut' then 'cut' else 'left' end, x.seq, s.epoch, greatest(s.lo, x.lo), s.hi, s.last,
        x.tick, s.born, null) as {_OUT}))"""
    left = f"""transform(acc.log, s -> cast(struct('left', x.seq, s.epoch, s.lo, s.hi, s.last, x.tick, s.born,
        null) as {_OUT}))"""
    stays = f"""transform(filter(acc.log, s -> s.lo < x.lo),
        s -> cast(struct(s.epoch, s.lo, least(s.hi, x.lo), s.last, s.born) as {_PIECE}))"""
    end = "coalesce(array_max(transform(acc.log, s -> s.hi)), 0L)"
    beyond = f"""if(x.lo > {end}, array(cast(struct(cast(null as bigint), {end}, x.lo, x.tick,
        struct(x.tick, x.seq)) as {_PIECE})),
        cast(array() as array<{_PIECE}>))"""
    found = f"""transform(x.found, (e, i) -> cast(struct(nullif(e[0], -1L), e[1],
        coalesce(get(x.found, i + 1)[1], x.lo), x.tick, struct(x.tick, x.seq)) as {_PIECE}))"""
    log = f"""case when x.kind = 'piece' then concat(acc.log, array(cast(struct(
            x.epoch, x.lo, x.hi, x.last, struct(x.tick, x.seq)) as {_PIECE})))
        when x.kind = 'start' and x.found is not null then {found}
        when x.kind = 'start' then concat({stays}, {beyond})
        else {stays} end"""
    out = f"""case when x.kind = 'piece' then acc.out
        when x.kind = 'start' and x.found is not null then concat(acc.out, {left})
        else concat(acc.out, {taken}) end"""
    zero = f"struct(cast(array() as array<{_PIECE}>) as log, cast(array() as array<{_OUT}>) as out)"
    stands = f"""transform(acc.log, s -> cast(struct('stands', cast(null as bigint), s.epoch, s.lo, s.hi,
        s.last, cast(null as bigint), s.born, null) as {_OUT}))"""
    return (
        f"aggregate(events, {zero}, (acc, x) -> struct({log} as log, {out} as out), "
        f"acc -> concat(acc.out, {stands}))"
    )

"""What was committed, and who lacks it: leader-incomplete, candidate-incomplete, unsafe-truncation.

Of a node that is none of the partition's replicas nothing is claimed but what it did as a leader: nobody
tells when its copy became a stray one, with which it may do what it likes.

A record is known by its offset and its own epoch. It is committed once a leader's HW has passed it.

Why a correct broker is never accused, with clean elections. A leader of epoch e moves its HW over what all of
the ISR that it counts have fetched in e, and the controller elects from no larger one; so whoever is elected
next held it before it took the new role, and keeps it, for a leader cuts nothing; and everybody else cuts
only what the leader of his epoch does not hold. That is true of what an old leader commits late, too, by
fetches that were under way. Hence all that was ever committed in earlier epochs is in a leader's log
(leader-incomplete; who hears late of its epoch is not asked for what later ones committed), in the log of
every member of the ISR that has its role from the controller (candidate-incomplete; a replica joins no
earlier than it has it, see quorums.py), and cut by nobody (unsafe-truncation). A node that was started again
is not the controller's candidate, whatever it lost and whatever role it takes, until it is registered anew (a
word to the old process may reach the new one before that); one that is fenced is none.

What permits. A record lost by an unclean election that was allowed, or by copies struck beyond the budget, is
excused from that election on, of its candidates before that too, if it was written in an epoch before it
(facts.traced, `excuses`); and a record that is lost in the end with leave is excused wherever it is met
(values.cause).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers import names
from checkers.agreement import named
from checkers.facts import Facts
from checkers.findings import (
    BUDGET,
    BUDGET_MAYBE,
    UNCLEAN,
    UNCLEAN_MAYBE,
    finding,
    gathered,
    kept,
    spread,
    together,
)

# One tick apart may be the other way round; but a line in the epoch that was elected comes after it.
_ALWAYS = f"name = '{names.CANDIDATE_INCOMPLETE}'"
_EXCUSED = f"""array_min(transform(
    filter(excuses, x -> (x.tick <= tick + 1 or {_ALWAYS}) and coalesce(x.epoch >= written, true)),
    x -> case when {_ALWAYS} or x.tick <= tick - 2 or coalesce(led >= x.elected, false) then x.by
        when x.by = {UNCLEAN} then {UNCLEAN_MAYBE} when x.by = {BUDGET} then {BUDGET_MAYBE} else x.by end))"""
# What was lost at an offset may have been another epoch's: that of the record is none that the cause covers.
_SURE = {
    by: f"case {by} when {UNCLEAN_MAYBE} then {UNCLEAN} when {BUDGET_MAYBE} then {BUDGET} else {by} end"
    for by in ("x.by", "cause")
}
_OLD = f"""not exists(excuses, x -> {_SURE["x.by"]} = {_SURE["cause"]})
    or exists(excuses, x -> coalesce(x.epoch >= written, true))"""
_LINE = "run", "partition", "node", "seq", "tick"
_CASE = (
    "run", "name", "partition", "node", "seq", "tick", "led", "who", "offset", "upto", "written",
    "how", "seen",
)  # fmt: skip


def incomplete(
    steps: DataFrame,
    standings: DataFrame,
    lineage: DataFrame,
    values: DataFrame,
    *,
    entries: DataFrame,
    facts: Facts,
) -> list[DataFrame]:
    """All three checks, as findings."""
    committed = kept(pieces_of(steps, lineage, facts))
    epochs = kept(committed.groupBy("run", "partition", "written").agg(
        *named(lo="min(lo)", hi="max(hi)", first="min(tick)", last="max(tick)")
    ))  # fmt: skip
    cases = together(
        [
            leaders(standings, committed, facts),
            candidates(standings, epochs, committed, facts),
            strangers(lineage, epochs, committed, steps, facts),
            truncations(lineage, committed, steps, facts),
        ],
        facts.small,
    )
    return [classed(cases, values, entries, facts)]


def pieces_of(steps: DataFrame, lineage: DataFrame, facts: Facts) -> DataFrame:
    """Every range of records of one epoch that a leader's HW (by: of which epoch) has newly covered."""
    moved = steps.where("fresh is not null").select(
        "run", "partition", "node", "seq", "tick",
        *named(by="epoch", written="epoch", lo="fresh.lo", hi="fresh.hi"),
    )  # fmt: skip
    of_others = lineage.where("kind = 'inherited'").select(
        "run", "partition", "node", "seq", *named(tick="gone", by="by", written="epoch", lo="lo", hi="hi")
    )
    return together([moved, of_others], facts.small)


def first_lacked(rows: DataFrame, epochs: DataFrame, committed: DataFrame, facts: Facts) -> DataFrame:
    """Which record each row lacks first, of every epoch of which it lacks any: `has` is its LEO. Only what
    was committed of that epoch by then is lacked: an offset may have been committed before in another."""
    lost = rows.join(epochs, ["run", "partition"], "left").where(
        "first is null or (hi > has and first <= tick and greatest(lo, has) < goal)"
    )
    asked = lost.select(*rows.columns, *named(written="written", offset="greatest(lo, has)"))
    by_then = Window.partitionBy("run", "partition", "written").orderBy("tick").rangeBetween(
        Window.unboundedPreceding, Window.currentRow
    )  # fmt: skip
    reached = committed.select("run", "partition", "written", "tick", "hi").unionByName(
        asked.withColumn("asks", F.lit(True)), allowMissingColumns=True
    )
    told = gathered(reached, facts.small).select("*", F.max("hi").over(by_then).alias("reached"))
    return told.where("asks and (written is null or reached > offset)").drop("asks", "hi", "reached")


def leaders(standings: DataFrame, committed: DataFrame, facts: Facts) -> DataFrame:
    """A leader that begins with a LEO below what was committed, in its own epoch or an earlier one."""
    hint = "shuffle_hash" if facts.small else "broadcast"
    rows = standings.where("event = 'become_leader' and goal > leo and not crowded").select(
        "run", "partition", "goal",
        *named(node="node", seq="seq", tick="tick", who="node", has="leo", mine="epoch", last="goal_epoch"),
    )  # fmt: skip
    moves = committed.select(
        "run", "partition", "by", "written", "lo", "hi", *named(mover="node", moved="seq", at="tick")
    )
    lacked = "by <= mine and hi > has and (at <= tick - 2 or mover = node and moved < seq)"
    told = rows.join(moves.hint(hint), ["run", "partition"], "left").where(
        f"{lacked} or by is null and last <= mine"
    )
    firsts = told.groupBy(*rows.columns, "written").agg(
        *named(offset="min(greatest(lo, has))", reached="max(hi)")
    )
    seen = F.expr("if(last <= mine, goal, reached)")
    return firsts.withColumn("goal", seen).select(*case(names.LEADER_INCOMPLETE, "'short'", led="mine"))


def case(name: str, how: str, led: str = "cast(null as bigint)") -> list[Column]:
    """The common columns of what is found, before it is classed; `led`: the epoch in which the line's node
    was, where that matters."""
    own = {"name": f"'{name}'", "how": how, "upto": "cast(null as bigint)", "seen": "goal", "led": led}
    return named(**{column: own.get(column, column) for column in _CASE})


def candidates(standings: DataFrame, epochs: DataFrame, committed: DataFrame, facts: Facts) -> DataFrame:
    """A member of the controller's ISR whose log ends below what was committed: after a line, after all of
    those that are in no order, or when it is unfenced."""
    turns = "commits is not null or ruling or event in ('truncate', 'become_leader', 'become_follower')"
    single = standings.where(f"({turns}) and not crowded").select(
        *_LINE, "members", "goal", *named(in_sync="if(ruling, isr, ctl.isr)", ends="cast(null as bigint)")
    )
    several = standings.where("after is not null").select(*_LINE, *named(
        members="after.members", goal="after.goal", in_sync="after.ctl.isr", ends="after.ends"
    ))  # fmt: skip
    lacking = "filter(members, m -> m.known and m.leo < goal and array_contains(in_sync, m.node))"
    turned = together([single, several], facts.small)
    short = turned.select(*_LINE, "goal", "ends", F.explode(F.expr(lacking)).alias("member"))
    told = named(who="member.node", has="member.leo")
    timed = short.select("*", *told).where("ends is null or tick + 2 <= ends")
    alive = only_active(timed, facts, latest="coalesce(ends, tick)", least=2)
    line = "struct(tick, seq, node, goal)"
    ends = alive.groupBy("run", "partition", "who", "has").agg(
        *named(first=f"min({line})", last=f"max({line})")
    )  # of all the times that its log ended there: by the last, another epoch may have been committed beyond
    times = ends.select(
        "run", "partition", "who", "has", F.inline(F.expr("array_distinct(array(first, last))"))
    )
    return first_lacked(times, epochs, committed, facts).select(*case(names.CANDIDATE_INCOMPLETE, "'short'"))


def only_active(rows: DataFrame, facts: Facts, latest: str = "tick", least: int = 4) -> DataFrame:
    """Rows of which `who` was surely registered and not fenced at some moment from `tick` to `latest`, for so
    many ticks at `least`. Whether it was is the highest end of all the times that had begun by then: rows and
    times are sorted together, not held against one another."""
    assert facts.active is not None
    none = {field.name: F.lit(None).cast(field.dataType).alias(field.name) for field in rows.schema}
    keys = {"run": F.col("run"), "who": F.col("node").alias("who")}
    times = facts.active.where(f"until - since >= {least}").select(
        *(keys.get(name, none[name]) for name in rows.columns), "since", "until"
    )
    asked = rows.select("*", *named(since=f"{latest} - 2", until="cast(null as bigint)"))
    begun = Window.partitionBy("run", "who").orderBy("since").rangeBetween(
        Window.unboundedPreceding, Window.currentRow
    )  # fmt: skip
    both = asked.unionByName(times).select("*", F.max("until").over(begun).alias("ended"))
    return both.where("until is null and ended >= tick + 2").drop("since", "until", "ended")


def strangers(
    lineage: DataFrame, epochs: DataFrame, committed: DataFrame, steps: DataFrame, facts: Facts
) -> DataFrame:
    """A member of the controller's ISR that holds another epoch's record where one is committed."""
    words = steps.where("ruling").groupBy("run", "partition").agg(
        F.sort_array(F.collect_list(F.struct("tick", "seq", "isr"))).alias("rulings")
    )  # fmt: skip
    assert facts.traced is not None
    assigned = facts.traced.select("run", "partition", "replicas")
    held = (
        lineage.where("kind in ('cut', 'left', 'stands') and epoch is not null")
        .join(assigned, ["run", "partition"])
        .where("array_contains(replicas, node)")
        .drop("replicas")
        .withColumnRenamed("node", "who")
    )
    theirs = epochs.where("written is not null").withColumnsRenamed(
        {"lo": "low", "hi": "top", "last": "told"}
    )
    other = held.join(theirs, ["run", "partition"]).where("epoch != written and lo < top and hi > low")
    # All of both is there from `both` on; some word of the controller, in force then or later, has it in.
    timed = other.join(words, ["run", "partition"]).select(
        "*", *named(both="greatest(last, told) + 2", offset="greatest(lo, low)", upto="least(hi, top)")
    )
    inside = f"""filter(
        transform(rulings, (r, i) -> struct(greatest(r.tick + 2, both) as tick,
            least(get(rulings, i + 1).tick, gone, {1 << 62}L) - 2 as latest, r.isr as isr)),
        r -> array_contains(r.isr, who) and r.tick <= r.latest)"""
    both = timed.select("*", F.explode(F.expr(inside)).alias("in")).withColumn("tick", F.col("in.tick"))
    alive = only_active(both, facts, latest="in.latest").select(
        "run", "partition", "who", "written", "offset", "upto", *named(seen="epoch", began="born")
    )
    return blamed(alive, committed, facts)


def blamed(rows: DataFrame, committed: DataFrame, facts: Facts) -> DataFrame:
    """With the line by which it came about: that which committed the one record, or appended the other."""
    hint = "shuffle_hash" if facts.small else "broadcast"
    lines = committed.join(rows.hint(hint), ["run", "partition", "written"]).where("hi > offset")
    own = ["run", "partition", "who", "written", "offset", "upto", "seen", "began"]
    first = lines.groupBy(*own).agg(F.min(F.struct(committed["tick"], "node", "seq")).alias("moved"))
    line = "greatest(moved, struct(began.tick as tick, who as node, began.seq as seq))"
    told = {"name": f"'{names.CANDIDATE_INCOMPLETE}'", "how": "'other'", "led": "cast(null as bigint)"}
    told |= {name: f"line.{name}" for name in ("tick", "seq", "node")}
    return first.select("*", F.expr(line).alias("line")).select(
        *named(**{name: told.get(name, name) for name in _CASE})
    )


def truncations(lineage: DataFrame, committed: DataFrame, steps: DataFrame, facts: Facts) -> DataFrame:
    """What a truncation has cut of an epoch of which, by then, a part at or above that was committed."""
    hint = "shuffle_hash" if facts.small else "broadcast"
    cuts = lineage.where("kind = 'cut' and epoch is not null").select(
        "run",
        "partition",
        *named(written="epoch", who="node", cut_seq="seq", cut="gone", low="lo", high="hi"),
    )
    over = (
        committed.join(cuts.hint(hint), ["run", "partition", "written"])
        .where("hi > low and (tick <= cut - 2 or (node = who and seq < cut_seq))")
        .groupBy("run", "partition", "written", "who", "cut_seq", "cut", "low", "high")
        .agg(F.max("hi").alias("reached"))
    )
    lines = steps.where("event = 'truncate'").select(
        "run", "partition", *named(who="node", cut_seq="seq", goal="cut_to", led="epoch")
    )
    assert facts.traced is not None
    bottoms = facts.traced.select("run", "partition", "bottom", "replicas")
    told = over.join(lines, ["run", "partition", "who", "cut_seq"]).join(bottoms, ["run", "partition"])
    told = told.where("array_contains(replicas, who)")
    ranged = told.select("*", *named(offset="greatest(low, bottom)", upto="least(reached, high)"))
    own = {
        "name": f"'{names.UNSAFE_TRUNCATION}'",
        "how": "'cut'",
        "seen": "goal",
        "node": "who",
        "seq": "cut_seq",
        "tick": "cut",
    }
    columns = named(**{column: own.get(column, column) for column in _CASE})
    return ranged.where("offset < upto").select(*columns)


def classed(cases: DataFrame, values: DataFrame, entries: DataFrame, facts: Facts) -> DataFrame:
    """The findings: a bug if any record of it is not excused. What is in the final log of the leader, or was
    written after what lost the others, was not lost, whatever else was lost at its offset. Of two causes
    the first that applies is told, a sure one before a doubtful: what no final log shows, a trace may."""
    assert facts.traced is not None
    excuses = facts.traced.select("run", "partition", "excuses")
    gone = values.where("cause is not null and ack is not null").groupBy(
        "run", "partition", F.col("ack").alias("offset")
    ).agg(F.min("cause").alias("cause"))  # fmt: skip
    kept_there = entries.where("leads").select("run", "partition", "offset", F.col("epoch").alias("final"))
    lost = gone.join(kept_there, ["run", "partition", "offset"], "left")
    told = (
        cases.join(excuses, ["run", "partition"], "left")
        .join(lost, ["run", "partition", "offset"], "left")
        .withColumn("cause", F.expr(f"if(coalesce(final = written, false) or not ({_OLD}), null, cause)"))
        .select("*", F.expr(f"least(cause, {_EXCUSED})").alias("by"))
    )
    # All that a candidate lacks of one epoch is one finding, else all that one line shows: the worst is told.
    candidate = f"name = '{names.CANDIDATE_INCOMPLETE}'"
    one = ["run", "name", "partition", "who"]
    apart = named(of=f"if({candidate}, written, null)", line=f"if({candidate}, null, struct(node, seq))")
    first = "offset", "tick", "node", "seq", "by", "written", "how", "seen"
    worst = F.min(F.struct(F.expr("coalesce(by, 0)"), *first)).alias("worst")
    upto = F.expr("if(count(upto) < count(*), null, max(upto))").alias("upto")  # null: to the end of the log
    grouped = told.select("*", *apart).groupBy(*one, "of", "line").agg(worst, upto)
    rows = grouped.select(*one, "worst.*", "upto")
    laws = (names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION)
    return spread(rows, *(
        finding(
            name, f"name = '{name}'", offset="offset", upto="upto", how="how", seen="seen", value="null",
            epoch="written", nodes="array(who)", node="node", seq="seq", tick="tick", by="by",
        )
        for name in laws
    ))  # fmt: skip

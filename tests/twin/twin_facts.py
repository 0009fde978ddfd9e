"""Facts that the twin derives before it judges: sends and reads with their outcomes, the leaders, the losses.

Rules kept here: an op is matched with its completion by process, f and the names in it; an op still open at
the end is info; a value that was sent twice proves nothing, and any missing record may be it; only what the
leader's final log shows is lost, or, without that log, what the final reads show.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import twin_observes
from twin_folder import Row, World, is_int, is_text

HARMLESS = ("kill", "stop", "start", "pause", "resume", "cut", "heal", "expire", "packet", "reset",
            "mend_disk", "clock", "reset_clock", "memory", "free_memory", "arm", "release")
GRAVE = ("power_cut", "disk", "bad_disk")
KNOWN = (*HARMLESS, *GRAVE, "elect")
LONG_AGO = -(1 << 70)  # further than any clock error
ENDING = ("kill", "disk", "bad_disk", "mend_disk", "memory")  # processes end with writes unflushed, or may


def facts(world: World) -> None:
    """Derives all facts of a world."""
    run, closed = world.run, world.run.history_lines is not None
    for act in (line for line in world.lines if line.process == -1):
        began, nodes = act.fault.began, act.fault.nodes if isinstance(act.fault.nodes, list) else []
        world.acts.append(Row(act, nodes=[*filter(is_text, nodes)], lost=act.fault.lost is True,
                              began=began if is_int(began) else act.time))
    match_ops(world)
    world.complete = closed and not world.breach
    world.txns = any(line.f == "txn" and line.process >= 0 for line in world.lines)
    undecided = world.txns and any(row.lso is not None and row.lso < row.leo for row in world.rows)
    world.settled = run.settled is True and closed and not undecided
    world.reads = [read for op in world.ops for read in op.reads]
    world.returned = {read.ident for read in world.reads if read.process in world.readers}
    world.acked = [send for line in world.lines if line.type == "ok" and line.process not in world.probers
                   for send in sends_of(line)]
    world.partitions = {int(key): partition_of(world, int(key), spec) for key, spec in run.partitions.items()}
    for home in world.partitions.values():
        home |= without_its_log(world, home)
    world.hidden = hidden(world)
    world.sends = fates(world)
    world.oks = [send for send in world.sends if send.type == "ok" and not send.twice]
    for send in world.sends:
        send["lost"] = is_lost(world, send)
        send["gone"] = is_gone(world, send)


# -- the history ------------------------------------------------------------------------------------------

def grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, set[Any]]:
    """The values of each key."""
    found = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return found


def reads_of(line: Row) -> list[Row]:
    """The records in a completion of a poll or transaction, of any outcome."""
    given = (line.reads or []) if line.f in ("poll", "txn") and line.type != "invoke" else []
    return [Row(read, ident=(read.partition, read.value), process=line.process, index=line.position,
                place=place) for place, read in enumerate(given)]


def sends_of(line: Row) -> list[Row]:
    given = (line.sends or []) if line.f in ("send", "txn") and line.process >= 0 else []
    fate = "info" if line.type == "invoke" else line.type
    return [Row(ident=(send.partition, send.value), partition=send.partition, value=send.value,
                process=line.process, f=line.f, type=fate, offset=send.offset if fate == "ok" else None,
                invoked_time=LONG_AGO, completed=None if line.type == "invoke" else line.position,
                place=place) for place, send in enumerate(given)]


def match_ops(world: World) -> None:
    """Pairs invocations with completions in one walk over the history; notes breaches and overlaps."""
    open_ops: list[Row] = []
    matched: list[tuple[Any, Any]] = []
    over: set[int] = set()  # processes with an info, or a completion that fits no invocation
    seen: set[int] = set()

    def what(line: Row) -> tuple[Any, ...]:
        return (line.process, line.f, [send.ident for send in sends_of(line)])

    for line in world.lines:
        if line.process < 0:
            continue
        if line.type == "invoke":
            if line.process in over or any(other.process == line.process for other in open_ops):
                world.overlapping.add(line.process)
            for send in sends_of(line):
                (world.repeated if send.value in seen else seen).add(send.value)
            open_ops.append(line)
            continue
        opened = next((other for other in open_ops if what(other) == what(line)), None)
        if opened is not None:
            open_ops.remove(opened)
        world.breach |= opened is None
        over |= {line.process} if opened is None or line.type == "info" else set()
        matched.append((opened, line))
    for opened, closed in [*matched, *((line, None) for line in open_ops)]:
        line = closed or opened
        world.ops.append(Row(
            process=line.process, f=line.f, type="info" if closed is None else closed.type, answer=closed,
            invoked=opened and opened.position, completed=closed and closed.position,
            sends=sends_of(line), reads=reads_of(line)))


def fates(world: World) -> list[Row]:
    """Every value that was sent to a partition, once: with its first completion, and its first invocation."""
    asked: dict[tuple[int, int], Row] = {}
    answered: dict[tuple[int, int], Row] = {}
    for line in world.lines:
        for send in sends_of(line):
            send |= {"invoked": line.position, "invoked_time": line.time} if line.type == "invoke" else {}
            (asked if line.type == "invoke" else answered).setdefault(send.ident, send)
    for key, send in answered.items():
        send |= {name: asked[key][name] for name in ("invoked", "invoked_time") if key in asked}
    read_at = grouped((read.ident, read.offset) for read in world.reads)
    acks = grouped((send.ident, send.offset) for op in world.ops for send in op.sends
                   if send.offset is not None)
    for key, send in (asked | answered).items():
        send |= {"since": -1 if send.invoked is None else send.invoked, "twice": key[1] in world.repeated,
                 "home": world.partitions.get(key[0], UNNAMED), "acks": acks[key], "read_at": read_at[key]}
    return list((asked | answered).values())


# -- the freeze -------------------------------------------------------------------------------------------

# A partition that run.json does not name.
UNNAMED = Row(named=False, blind=True, usable=False, log_start=0, logs={}, rows={}, leader_log=[],
              places=defaultdict(set))


def partition_of(world: World, key: int, spec: Row) -> Row:
    """One partition at the freeze: `leader` and `isr` (None: unknown); `rows` and `logs` by node, a log being
    a readable dump's entries in the file's order; `usable`: the leader, its row and all of its dump are here;
    `blind`: the leader's log does not show what is lost; `leader_log`: the readable part, which proves the
    records in it, and only if usable the missing ones; `places`: the offsets of each value there; `hw` and
    `log_start`: the leader's; `decided_end`: of the records that are committed and in no open transaction.
    """
    rows = {row.node: row for row in world.rows if row.partition == key and row.node in spec.replicas}
    logs = {node: [entry for entry in world.dumps[node] if entry.partition == key]
            for node in spec.replicas if node in world.dumps}
    leader, isr = leader_of(world, key, spec.replicas, rows)
    compact, own = "compact" in (spec.cleanup or ""), rows.get(str(leader))
    usable = own is not None and leader in logs and leader not in world.damaged
    hw = 0 if own is None else own.hw
    bounds = [own] if own is not None else [*rows.values()]
    leader_log = logs.get(str(leader), [])
    return Row(
        named=True, key=key, replicas=spec.replicas, compact=compact, keeps_all=spec.keeps_all is True,
        leader=leader, isr=isr, rows=rows, logs=logs, usable=usable, blind=compact or not usable,
        leader_log=leader_log, row=own,
        places=grouped((entry.value, entry.offset) for entry in leader_log),
        log_start=max((row.log_start for row in bounds), default=0),
        deleted_to=max((row.log_start for row in rows.values()), default=0),  # by some replica
        # Whether no row that is missing may have a higher one; a system without rows deletes nothing.
        log_start_known=not twin_observes.shows(world.run, "replicas") or own is not None or (
            leader is None and all(node in rows for node in spec.replicas)),
        hw=hw, decided_end=hw if own is None or own.lso is None else min(hw, own.lso))


def leader_of(world: World, key: int, replicas: list[str], rows: dict[str, Row]
              ) -> tuple[str | None, list[str] | None]:
    """The controller's leader; without it the leader of the highest epoch, if every replica has a row and the
    named one agrees."""
    word = (world.run.leaders or {}).get(str(key))
    if word is not None:  # other nodes have stray copies
        own = rows.get(str(word.leader), Row())  # it knows the ISR, if the word lacks it
        isr = word.isr if isinstance(word.isr, list) else own.isr
        return (word.leader, isr) if word.leader in replicas else (None, None)
    if {*rows} != {*replicas} or any(row.running is False and row.epochs_unreadable
                                     for row in rows.values()):
        return None, None  # the epoch of a node that does not run is the last of its cache
    epoch = max((row.epoch for row in rows.values()), default=None)
    named = {row.leader for row in rows.values() if row.epoch == epoch and row.leader}
    own = rows.get(min(named)) if len(named) == 1 else None
    if own is None or own.leader != own.node or own.epoch != epoch:
        return None, None
    return own.node, own.isr


def without_its_log(world: World, home: Row) -> dict[str, bool]:
    """What shows losses of a partition whose leader's log does not, if no read is missing: final reads to its
    end; in an imported history any reads; or all nodes denied the topic while they settled, there is no
    leader, and nothing that the nemesis did deletes topics or data."""
    imported = world.run.imported
    is_imported = isinstance(imported, dict)
    left_out = is_imported and (home.key in imported["blind"] if "blind" in imported else any(
        what.startswith("read ") for what in imported.get("left_out") or {}))
    here = world.complete and not left_out and not home.usable and not home.compact
    read = world.settled and home.key in world.read_to_the_end
    denied = world.names_all_nodes("topic_unknown") and home.leader is None and not any(
        act.f not in KNOWN or act.lost for act in world.acts)
    return {"read_to_the_end": here and read, "inferred": here and is_imported, "topic_gone": here and denied}


# -- faults that the history does not show ----------------------------------------------------------------

def hidden(world: World) -> set[str]:
    """A line that mentions more faults than it names may be any. A fault that names no node may have struck
    any: "fault" if it lost data, and is none of those that do."""
    found = spoken(world)
    ended = found & {*ENDING}
    if lacks_lines(world):
        found = found | lacking(world, is_grave)
        ended |= lacking(world, lambda act: act.f in ENDING)
    for act in world.acts:
        if not act.nodes:
            found |= {act.f if act.f in GRAVE else "fault"} if act.lost else set()
            ended |= {act.f} if act.f in (*ENDING, "start") or act.f not in KNOWN else set()
    return found | ({"end"} if ended else set())


def graves(world: World) -> set[str]:
    """The hidden faults that lost data, or that nobody knows."""
    return world.hidden - {*HARMLESS, "elect", "end"}


def lacks_lines(world: World) -> bool:
    """Whether lines are missing or unreadable."""
    return bool(world.strange) or world.positions < (world.run.history_lines or 0)


def spoken(world: World) -> set[str]:
    """The faults that unreadable lines may be which mention the nemesis."""
    found = set()
    for text in world.strange:
        known = [f for f in re.findall(r'"f"\s*:\s*"(\w+)"', text) if f in KNOWN]
        clean = re.search(r'"unclean"\s*:\s*false', text)
        if re.search(r'"fault"|"lost"|"process"\s*:\s*-', text):
            found |= {f for f in known if f != "elect" or not clean}
            if len(known) < max(1, text.count('"fault"')):
                found |= {*GRAVE, *HARMLESS} | ({"elect"} if "unclean" in text else set())
    return found


def lacking(world: World, counts: Callable[[Row], bool]) -> set[str]:
    """Acts of the schedule, among those that count, that the history has fewer times than planned."""
    schedule = world.run.schedule if isinstance(world.run.schedule, list) else []
    asked = Counter(act.f for place, act in enumerate(schedule) if isinstance(act, Row) and is_text(act.f)
                    and place not in (world.run.missed or []) and counts(act))
    return {*(asked - Counter(act.f for act in world.acts))}


def is_grave(act: Row) -> bool:
    """Whether an act of the schedule may lose records, as one that is not floodmark's own may."""
    return (act.f in GRAVE and act.kind != "full") or (act.f == "elect" and act.unclean is True) or (
        act.f not in (*KNOWN, "send", "poll", "list_offsets", "wait"))


# -- what is lost -----------------------------------------------------------------------------------------

def is_lost(world: World, send: Row) -> bool:
    """An ok send missing at its offset (without one: anywhere) in the leader's log, at or above its start; an
    info send that is nowhere in it. Fails are never lost (but of a value that was sent twice nobody knows
    which send failed)."""
    home = send.home
    if not home.named or (send.type == "fail" and not send.twice):
        return False
    if home.blind or is_below_the_beginning(world, send):
        return is_below_the_beginning(world, send) or is_unread(world, send) or is_denied(world, send)
    if send.type == "ok" and send.offset is not None and not send.twice:
        return is_missing(send, {send.offset})
    shown = send.read_at | send.acks if send.twice else send.read_at
    # Without an offset, a missing record may have been below log_start.
    return ((send.twice or send.type == "info") and is_missing(send, shown)) or (
        not home.places[send.value] and home.log_start == 0)


def is_missing(send: Row, offsets: set[int]) -> bool:
    """Whether the leader's log lacks it at one of these."""
    return any(offset >= send.home.log_start and offset not in send.home.places[send.value]
               for offset in offsets)


def is_gone(world: World, send: Row) -> bool | None:
    """It is lost, or one of its records is that was read where the leader's log does not have it. None:
    nobody can see whether it is; there is no leader's log, or it begins above."""
    home = send.home
    if send.lost or (send.type == "fail" and not send.twice):
        return bool(send.lost)
    if home.blind:
        return None
    if is_missing(send, send.read_at):
        return True
    places = send.acks if send.twice else {send.offset} - {None}
    below = not home.places[send.value] or any(place < home.log_start for place in places)
    return None if home.log_start > 0 and below else False


def is_below_the_beginning(world: World, send: Row) -> bool:
    """The log keeps everything, and now begins above this acked record: by its leader's row or, without one,
    by what the final readers were told."""
    home = send.home
    if not (home.keeps_all and world.settled and is_followed(send)) or home.compact:
        return False
    begins = home.log_start if home.row else max(beginnings(world, home.key), default=0)
    return bool(send.offset < begins)


def is_followed(send: Row) -> bool:
    """An ack that the readable part of the leader's log does not bear out."""
    return (send.type == "ok" and send.offset is not None and not send.twice
            and send.offset not in send.home.places[send.value])


def is_unread(world: World, send: Row) -> bool:
    """There is no leader's log, and reads alone show that the record of this ok send is lost: the final
    readers returned a record at or below its offset, one above it, and not this one; or, in an imported
    history, no read returned it, though one returned a higher offset."""
    home = send.home
    if not is_followed(send):
        return False
    reads = [read for read in world.reads if read.partition == send.partition]
    if home.read_to_the_end and send.ident not in world.returned:
        told = beginnings(world, home.key)
        places = [read.offset for read in reads if read.process in world.readers]
        begun = max(told, default=0) <= send.offset
        if begun and places and min(places) <= send.offset < max(places):
            return True
        surely = begun and home.log_start <= send.offset and (told or home.keeps_all or home.row)
        if surely and sum(was_told(world, reader, send) for reader in {*world.readers}) >= 3:
            return True
    return bool(home.inferred) and not send.read_at and any(read.offset > send.offset for read in reads)


def beginnings(world: World, key: int) -> list[int]:
    """What the final readers were told about where the log begins."""
    return [start.offset for line in world.lines if line.process in world.readers
            and (line.f, line.type) == ("list_offsets", "ok")
            for start in line.starts or [] if start.partition == key]


def was_told(world: World, reader: int, send: Row) -> bool:
    """This process was told, before it read anything, that the log ends above the offset; and then it read on
    above it, or a poll was answered with nothing."""
    told = has_read = False
    for line in world.answers(reader):
        if (line.f, line.type) == ("list_offsets", "ok") and not has_read:
            told |= any(end.partition == send.partition and end.offset > send.offset for end in line.offsets)
        mine = [read.offset for read in reads_of(line) if read.partition == send.partition]
        has_read |= bool(mine)
        is_empty = line.f == "poll" and line.reads == [] and not line.corrupt
        if told and line.type == "ok" and (is_empty or any(read > send.offset for read in mine)):
            return True
    return False


def is_denied(world: World, send: Row) -> bool:
    """The topic is gone, and neither a log nor a final reader has anything that says otherwise."""
    held = any(entry.value == send.value for log in send.home.logs.values() for entry in log)
    read = any(read.partition == send.partition and read.process in world.readers for read in world.reads)
    return bool(send.home.topic_gone) and send.type == "ok" and not (send.twice or held or read)

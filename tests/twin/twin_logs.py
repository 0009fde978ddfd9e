"""The twin's findings in what the freeze shows: logs, replicas' rows, what did not come back, who died.

Rules kept here: every pair of replicas, every entry against every other; a damaged dump proves the records in
it and never that one is missing; a function yields (partition, cause) pairs, one for each finding.

A death is explained if, from some moment of the node's life on and for a whole time-out of its own, it could
not reach a majority of the controllers; or, from its start on, any other broker. It must have followed within
a time-out after that was over, if anybody knows when it was. Or its node was harmed.
"""

from collections.abc import Iterator
from itertools import chain, combinations, pairwise
from typing import Any

import twin_observes
from twin_facts import KNOWN, graves, grouped, spoken
from twin_folder import FOREVER, Row, World, integers, is_text
from twin_permits import DOUBT, Found, asks, struck_by, unclean_elections

DOWN = ("kill", "stop", "power_cut", "disk")
MENDS = {"bad_disk": "mend_disk", "memory": "free_memory"}


def face(partition: Row, entry: Row) -> tuple[Any, ...]:
    """What must be equal in two entries at one offset of the same record; compaction rewrites batches."""
    return (entry.epoch, entry.value, None if partition.compact else entry.crc)


def diverged(world: World) -> Iterator[Found]:
    """Two replicas differ in (epoch, value, crc) at an offset: between members of the final leader's ISR
    below both high watermarks, or anywhere once settled; with a replica outside it below both high
    watermarks, unless data was lost or an unclean election took place, which leaves it unknown."""
    for partition in world.partitions.values():
        differing: set[int] = set()
        excusable: set[int] = set()
        for one, other in combinations(sorted(partition.logs), 2):
            inside = {one, other} <= {*(partition.isr or [])}
            mine, yours = ({(entry.offset, face(partition, entry)) for entry in partition.logs[node]}
                           for node in (one, other))  # a log may have an offset twice
            for offset in {at for at, _ in mine ^ yours} & {at for at, _ in mine} & {at for at, _ in yours}:
                committed = all(node in partition.rows and offset < partition.rows[node].hw
                                for node in (one, other))
                if world.settled or (committed and (inside or not struck(world, partition))):
                    differing.add(offset)
                elif committed:
                    excusable.add(offset)
        yield from ((partition.key, None) for _ in differing)
        yield from ((partition.key, DOUBT) for _ in excusable - differing)


def struck(world: World, partition: Row) -> bool:
    """Whether a data-losing fault or an unclean election hit it, or may have if no trace shows it."""
    guessed = not world.shows_cleanness and (world.given.unclean_leader_election
                                             or asks(world, partition.key) or "elect" in world.hidden)
    return bool(struck_by(world, partition) or unclean_elections(world, partition.key) or guessed
                or graves(world))


def under_replicated(world: World) -> Iterator[Found]:
    """Settled, but another ISR member lacks a record at an offset where the leader has one, at or above both
    log_starts and below the leader's high watermark."""
    for partition in world.partitions.values():
        if not world.settled or partition.blind:
            continue
        lacking = set()
        for node in {*(partition.isr or [])} & {*partition.rows} - {partition.leader, *world.damaged}:
            start = max(partition.log_start, partition.rows[node].log_start)
            there = {entry.offset for entry in partition.logs[node]}
            lacking |= {entry.offset for entry in partition.leader_log
                        if start <= entry.offset < partition.hw} - there
        yield from ((partition.key, None) for _ in lacking)


def epoch_lineage(world: World) -> Iterator[Found]:
    """One (epoch, offset) has two records; or an epoch is lower than the one before it in a log; or a running
    node's cache contradicts an entry (its first entry may start at or below log_start), or has an epoch that
    would start above LEO (one at LEO is right: elected, and nothing written yet)."""
    for partition in world.partitions.values():
        named = grouped(((entry.epoch, entry.offset), face(partition, entry))
                        for log in partition.logs.values() for entry in log if entry.epoch != -1)
        wrong = sum(len(faces) > 1 for faces in named.values())
        for node, log in partition.logs.items():
            dated = [entry for entry in log if entry.epoch != -1]
            wrong += sum(entry.epoch < before.epoch for before, entry in pairwise(dated))
            for entry in dated if cache_of(partition, node) is not None else []:
                said = [epoch for start, epoch in sorted((start, epoch) for epoch, start in
                                                         cache_of(partition, node) or [])
                        if start <= entry.offset]
                wrong += said[-1:] != [entry.epoch]
        wrong += sum(start > row.leo for node, row in partition.rows.items()
                     for _, start in cache_of(partition, node) or [])
        yield from ((partition.key, None) for _ in range(wrong))


def cache_of(partition: Row, node: str) -> list[list[int]] | None:
    row = partition.rows.get(node, Row(running=False))
    reliable = row.running is not False and not partition.compact and row.epochs_unreadable is not True
    return row.epochs if reliable else None


def malformed_log(world: World) -> Iterator[Found]:
    """A hole, a doubled offset, an offset out of order, a checksum that does not match; a running node's high
    watermark above its LEO; a LEO or log_start that its entries contradict."""
    for partition in world.partitions.values():
        wrong = sum(row.running is not False and row.hw > row.leo for row in partition.rows.values())
        for node, log in partition.logs.items():
            full = node not in world.damaged and not partition.compact
            steps = [entry.offset - before.offset for before, entry in pairwise(log)]
            wrong += sum(step <= 0 or (step > 1 and full) for step in steps)
            wrong += sum(entry.crc_ok is False for entry in log)
            if node in partition.rows:
                wrong += broken_bounds(partition.rows[node], [entry.offset for entry in log], full=full)
        yield from ((partition.key, None) for _ in range(wrong))
    yield from unreadable(world)


def broken_bounds(row: Row, offsets: list[int], *, full: bool) -> int:
    """A log is inside [log_start, LEO), and a complete one without compaction fills it to both ends."""
    if not offsets:
        return int(full and row.log_start != row.leo)
    first, end = min(offsets), max(offsets) + 1
    return (first < row.log_start or (full and first != row.log_start)) + (
        end > row.leo or (full and end != row.leo))


def unreadable(world: World) -> Iterator[Found]:
    """Places that a final reader could not read, of partitions without the leader's log, unless the nemesis
    damaged a disk."""
    damaged = any(act.lost for act in world.acts if act.f != "power_cut")
    places = {(place.partition, place.offset) for line in world.lines
              if line.process in world.readers and line.f == "poll" and line.type != "invoke"
              for place in line.corrupt or [] if place.why in ("checksum", "magic", "length")}
    for key, _ in places:
        if key in world.partitions and not world.partitions[key].usable and not damaged:
            yield key, DOUBT if may_lack_a_fault(world) else None


def may_lack_a_fault(world: World) -> bool:
    """A fault may be among the missing or unreadable lines, or times are not what they seem."""
    missing = world.run.history_lines is None or world.positions < world.run.history_lines
    return missing or world.disordered or world.time_falls or bool(spoken(world) - {"elect"})


def stuck(world: World) -> Iterator[Found]:
    """Mended, every node up, none died by itself and no fault left behind, and still no leader or no ack in
    time. A node without rows may not be up; where no rows are promised, every node answered all the time and
    the partition had worked before."""
    if world.died is None:
        yield None, DOUBT
    if world.died != [] or world.run.residue is not None:
        return
    first = min((act.position for act in world.acts), default=FOREVER)
    for key in {*integers(world.named("no_leader")), *integers(world.named("no_ack"))}:
        if not twin_observes.shows(world.run, "replicas"):
            worked = not world.breach and any(
                send.partition == key and send.completed < first for send in world.acked)
            yield key, None if worked and world.names_all_nodes("answering") else DOUBT
        elif all(row.running is not False for row in world.rows):
            yield key, DOUBT if world.rows_damaged else None


def broker_died(world: World) -> Iterator[Found]:
    """Each node of run.json's `died`, once, if the schedule does not explain its death."""
    if world.died is None:
        yield None, DOUBT
    for node in {*(world.died or [])}:
        times = world.run.died_at.get(node) if isinstance(world.run.died_at, dict) else []
        deaths = integers(times)
        ends = [act.time for act in world.acts if act.f in DOWN and node in act.nodes]
        began = starts(world, node, [*deaths, *ends])
        lives = [(max(start for start in began if start < max(death, 1)), death) for death in deaths] or [
            (start, min((end for end in ends if end > start), default=FOREVER)) for start in began]
        explained = [gave_up(world, node, start, end, known=bool(deaths))
                     or was_harmed(world, node, end, known=bool(deaths)) for start, end in lives]
        if not (all(explained) if deaths else any(explained)):
            yield None, DOUBT if may_lack_a_fault(world) else None


def starts(world: World, node: str, ends: list[int]) -> list[int]:
    """When it was started: by the run, by the nemesis, by the mending if it was down by then."""
    found = [0, *(act.began for act in world.acts if act.f == "start" and node in act.nodes)]
    first = world.mended[0]
    before = [end for end in ends if end <= first < FOREVER]
    return [*found, first] if before and not any(max(before) < start <= first for start in found) else found


def was_harmed(world: World, node: str, death: int, *, known: bool) -> bool:
    """Whether its disk was bad or its memory limited when it died, or somebody else's fault struck it, or
    within a session before."""
    for act in world.acts:
        undone = [other.time for other in world.acts if other.position > act.position
                  and other.f == MENDS.get(act.f) and "error" not in other.fault
                  and (node in other.nodes or not other.nodes)]
        end = min(undone, default=world.mended[-1]) if act.f in KNOWN else act.time
        harmed = node in act.nodes if act.f in MENDS else act.f not in KNOWN and (
            node in act.nodes or not act.nodes)
        if harmed and act.began <= death and (
                not known or death <= end + time_out(world, node, starting=False)):
            return True
    return False


def gave_up(world: World, node: str, start: int, end: int, *, known: bool) -> bool:
    named = {name for act in world.acts for name in (*act.nodes, *chain(*grudge_of(act)))}
    brokers, alone = {*world.run.nodes}, named - {*world.run.nodes, "clients", node}
    spans = outages(world, node, alone, least=len(alone) / 2)
    spans += [span for span in outages(world, node, brokers - {node}, least=len(brokers) - 1)
              if span[0] <= start]
    for begin, until in spans:
        timeout = time_out(world, node, starting=begin <= start)
        if min(until, end) - max(begin, start) >= timeout and (not known or end <= until + timeout):
            return True
    return False


def outages(world: World, node: str, needed: set[str], *, least: float) -> list[tuple[int, int]]:
    """The spans in which at least so many of them were out of the node's reach."""
    spans, since = [], None
    moments = {0, FOREVER, *world.mended, *(time for act in world.acts for time in (act.began, act.time))}
    for time in sorted(moments) if needed else []:
        lacks = sum(is_away(world, node, name, time) for name in needed) >= least
        if since is not None and not lacks:
            spans.append((since, time))
            since = None
        elif lacks and since is None:
            since = time
    return spans


def is_away(world: World, node: str, name: str, time: int) -> bool:
    down = paused = cut = False
    for act in world.acts:
        if act.began <= time:
            down |= act.f in DOWN and name in act.nodes
            paused |= act.f == "pause" and name in act.nodes
            cut |= bool(grudge_of(act) & {(node, name), (name, node)})
        if act.time <= time and "error" not in act.fault:
            mine = name in act.nodes or not act.nodes
            down &= not (act.f == "start" and mine)
            paused &= not (act.f in ("start", "resume") and mine)
            cut &= act.f != "heal"
    return time < world.mended[-1] and (down or paused or cut)


def grudge_of(act: Row) -> set[tuple[str, str]]:
    """Who does not hear whom, by this act."""
    grudge = act.fault.grudge if act.f in ("cut", "packet") else None
    return {(node, name) for node, names in (grudge.items() if isinstance(grudge, dict) else ())
            if isinstance(names, list) for name in names if is_text(name)}


def time_out(world: World, node: str, *, starting: bool) -> int:
    """Nanoseconds: of a registration or of a session."""
    keys = (["zookeeper.connection.timeout.ms", "initial.broker.registration.timeout.ms"] if starting
            else ["zookeeper.session.timeout.ms", "broker.session.timeout.ms"])
    return [*world.configured(node, *keys), 60_000 if starting else 9_000][0] * 10**6

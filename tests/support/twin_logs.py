"""The twin's findings in the logs, from the dumps and the replicas' rows, one function for each.

Rules kept here: every pair of replicas, every entry against every other; a damaged dump proves the records in
it and never that one is missing; a function yields (key, cause) pairs, one for each finding.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import twin_deaths
import twin_observes
from twin_classes import (
    Cause,
    final_readers,
    is_nameless,
    names_all_nodes,
    names_of,
    speaking,
    struck_by,
    unclean_elections,
    unseen_strike,
    untold_election,
)
from twin_facts import Partition, World, sends_of
from twin_folder import Line

Found = tuple[tuple[Any, ...], Cause | None]
STUCK, DIVERGED, UNDER, LINEAGE, MALFORMED = (
    "stuck", "diverged", "under-replicated", "epoch-lineage", "malformed-log")


def face(entry: Line, *, compact: bool) -> tuple[Any, ...]:
    """What must be equal in two entries at one offset of the same record; compaction rewrites batches."""
    return (entry["epoch"], entry["value"], None if compact else entry["crc"])


def diverged(world: World, guessing: list[str]) -> Iterator[Found]:
    """Two replicas differ in (epoch, value, crc) at an offset: between members of the final leader's ISR
    below both high watermarks, or anywhere once settled; with a replica outside it below both high
    watermarks, unless data was lost or an unclean election took place, which leaves it unknown (then it goes
    into guessing)."""
    for partition in world.partitions.values():
        differing: set[int] = set()
        excusable: set[int] = set()
        for one, other in combinations(sorted(partition.logs), 2):
            inside = partition.isr is not None and one in partition.isr and other in partition.isr
            for offset in differences(partition, one, other):
                committed = below_both(partition, one, other, offset)
                if world.settled or (inside and committed):
                    differing.add(offset)
                elif not inside and committed:
                    (excusable if struck(world, partition) else differing).add(offset)
        if excusable - differing:
            guessing.append(DIVERGED)
        for offset in differing:
            yield (partition.key, offset), None


def differences(partition: Partition, one: str, other: str) -> set[int]:
    """Where both have something, and not the same. (A log may have an offset twice.)"""
    mine, yours = ({(entry["offset"], face(entry, compact=partition.compact))
                    for entry in partition.logs[node]} for node in (one, other))
    return {offset for offset, _ in mine ^ yours} & {offset for offset, _ in mine} & {
        offset for offset, _ in yours}


def below_both(partition: Partition, one: str, other: str, offset: int) -> bool:
    """Below both high watermarks; a replica without a row has none."""
    return all(node in partition.rows and offset < partition.rows[node]["hw"] for node in (one, other))


def struck(world: World, partition: Partition) -> bool:
    """Whether a data-losing fault or an unclean election hit it (or may have, if there is no trace to show
    it)."""
    allowed = bool(world.run["guarantees"].get("unclean_leader_election"))
    may_be_unclean = allowed and not world.folder.shows_cleanness
    seen = bool(struck_by(world, partition)) or unclean_elections(world, partition.key)
    return seen or may_be_unclean or unseen_strike(world) or untold_election(world)


def under_replicated(world: World) -> Iterator[Found]:
    """Settled, but another ISR member lacks a record at an offset where the leader has one, at or above both
    log_starts and below the leader's high watermark."""
    for partition in world.partitions.values():
        if not world.settled or not partition.usable or partition.compact:
            continue
        leader_row = partition.rows[str(partition.leader)]
        lacking = set()
        for node in partition.isr or []:
            if node == partition.leader or node not in partition.rows or node in world.damaged:
                continue
            start = max(leader_row["log_start"], partition.rows[node]["log_start"])
            there = {entry["offset"] for entry in partition.logs[node]}
            lacking |= {entry["offset"] for entry in partition.leader_log
                        if start <= entry["offset"] < leader_row["hw"] and entry["offset"] not in there}
        for offset in lacking:
            yield (partition.key, offset), None


def epoch_lineage(world: World) -> Iterator[Found]:
    """One (epoch, offset) has two records; or an epoch is lower than the one before it in a log; or a running
    node's cache contradicts an entry, or has an epoch that would start above LEO."""
    for partition in world.partitions.values():
        for epoch, offset in two_records(partition):
            yield ("two records", partition.key, offset, epoch), None
        for node, log in partition.logs.items():
            dated = [entry for entry in log if entry["epoch"] != -1]
            for before, entry in pairwise(dated):
                if entry["epoch"] < before["epoch"]:
                    yield ("epoch falls", partition.key, entry["offset"], node), None
            if has_cache(partition, node):
                yield from cache_says_otherwise(partition, node, dated)
        for node in partition.rows:  # that needs no dump
            if has_cache(partition, node):
                yield from cache_above_leo(partition, node)


def has_cache(partition: Partition, node: str) -> bool:
    row = partition.rows.get(node)
    has_cache = row is not None and row.get("epochs") is not None and row.get("running") is not False
    return has_cache and not partition.compact and not lost_cache(partition, node)


def lost_cache(partition: Partition, node: str) -> bool:
    """Whether the node was running and its cache could not be read."""
    row = partition.rows.get(node, {})
    return row.get("epochs_unreadable") is True and row.get("running") is not False


def two_records(partition: Partition) -> set[tuple[int, int]]:
    named: dict[tuple[int, int], set[tuple[Any, ...]]] = {}
    for log in partition.logs.values():
        for entry in log:
            if entry["epoch"] != -1:
                face_of = face(entry, compact=partition.compact)
                named.setdefault((entry["epoch"], entry["offset"]), set()).add(face_of)
    return {place for place, faces in named.items() if len(faces) > 1}


def cache_says_otherwise(partition: Partition, node: str, dated: list[Line]) -> Iterator[Found]:
    """The cache contradicts the log. Its first entry may start at or below log_start."""
    cache: list[list[int]] = partition.rows[node]["epochs"]
    for entry in dated:
        said = [epoch for epoch, start in sorted(cache, key=lambda pair: (pair[1], pair[0]))
                if start <= entry["offset"]]
        if not said or said[-1] != entry["epoch"]:
            yield ("cache", partition.key, entry["offset"], node), None


def cache_above_leo(partition: Partition, node: str) -> Iterator[Found]:
    """An entry starts above LEO. One at LEO is right: elected, and nothing written yet."""
    for epoch, start in partition.rows[node]["epochs"]:
        if start > partition.rows[node]["leo"]:
            yield ("cache above LEO", partition.key, start, node, epoch), None


def malformed_log(world: World) -> Iterator[Found]:
    """A hole, a doubled offset, an offset out of order, a checksum that does not match; a running node's high
    watermark above its LEO; a LEO or log_start that its entries contradict."""
    for partition in world.partitions.values():
        for node, log in partition.logs.items():
            complete = node not in world.damaged
            for what, offset in broken_sequence(log, holes_count=complete and not partition.compact):
                yield (what, partition.key, offset, node), None
            if node in partition.rows:
                for what in broken_bounds(partition, node, log, complete=complete):
                    yield (what, partition.key, node), None
        for node, row in partition.rows.items():
            if row.get("running") is not False and row["hw"] > row["leo"]:
                yield ("hw above LEO", partition.key, node), None
    if not may_lack_a_fault(world):
        yield from unreadable(world)


def unreadable(world: World) -> Iterator[Found]:
    """Places that a final reader could not read, of partitions without the leader's log, unless the nemesis
    damaged a disk."""
    damaged = any((line.get("fault") or {}).get("lost") is True for line in world.lines
                  if line["process"] == -1 and line["f"] != "power_cut")
    places = {(place["partition"], place["offset"]) for line in world.lines
              if line["process"] in final_readers(world) and line["f"] == "poll" and line["type"] != "invoke"
              for place in line.get("corrupt") or [] if place.get("why") in ("checksum", "magic", "length")}
    for key, offset in sorted(places):
        if key in world.partitions and not world.partitions[key].usable and not damaged:
            yield ("unreadable", key, offset), None


def broken_sequence(log: list[Line], *, holes_count: bool) -> Iterator[tuple[str, int]]:
    for before, entry in pairwise(log):
        step = entry["offset"] - before["offset"]
        if step <= 0:
            yield ("doubled" if step == 0 else "disordered"), entry["offset"]
        elif step > 1 and holes_count:
            yield "gap", before["offset"] + 1
    for entry in log:
        if entry.get("crc_ok") is False:
            yield "crc", entry["offset"]


def broken_bounds(partition: Partition, node: str, log: list[Line], *, complete: bool) -> Iterator[str]:
    """A log is inside [log_start, LEO), and a complete one without compaction fills it to both ends."""
    row = partition.rows[node]
    offsets = [entry["offset"] for entry in log]
    full = complete and not partition.compact
    first, end = (min(offsets), max(offsets) + 1) if offsets else (row["log_start"], row["log_start"])
    if first < row["log_start"] or (full and first != row["log_start"]):
        yield "log_start"
    if (offsets and end > row["leo"]) or (full and end != row["leo"]):
        yield "leo"


def stuck(world: World) -> Iterator[Found]:
    """Mended, every node up, none died by itself and no fault left behind, and still no leader or no ack in
    time. A node without rows may not be up; where no rows are promised, every node answered all the time and
    the partition had worked before."""
    for partition in waiting(world):
        if was_up(world, partition):
            yield (partition,), None


def perhaps_stuck(world: World) -> bool:
    return any(was_up(world, partition) is None for partition in waiting(world))


def was_up(world: World, partition: int) -> bool | None:
    """Whether the partition had all that it needs; None: unknown."""
    if twin_observes.shows(world.run, "replicas"):
        if not all(row.get("running") is not False for row in world.folder.rows):
            return False
        return None if world.folder.rows_damaged else True
    acts = [line["position"] for line in world.lines if line["process"] == -1]
    probers = (world.run.get("settle") or {}).get("processes") or []
    worked = not world.folder.breach and any(
        send.partition == partition for line in world.lines
        if line["type"] == "ok" and line["process"] not in [*probers, -1]
        and not any(position < line["position"] for position in acts)
        for send in sends_of(None, line))
    return True if worked and names_all_nodes(world, "answering") else None


def waiting(world: World) -> set[int]:
    settle = world.run.get("settle") or {}
    if world.run.get("died") or world.run.get("residue") is not None:
        return set()
    return {*(settle.get("no_leader") or []), *(settle.get("no_ack") or [])}


def broker_died(world: World) -> Iterator[Found]:
    """Each node of run.json's `died`, once, if the schedule does not explain its death."""
    if is_list_of_names(world.run.get("died") or []) and not may_lack_a_fault(world):
        for node in twin_deaths.unexplained(world):
            yield (node,), None


def may_lack_a_fault(world: World) -> bool:
    """A fault may be among the missing or unreadable lines, or times are not what they seem."""
    promised, folder = world.run.get("history_lines"), world.folder
    none = folder.breach and not folder.positions
    missing = promised is not None and folder.positions < promised
    return none or missing or folder.disordered or folder.time_falls or any(
        is_nameless(text) or names_of(text) - {"elect"} for text in speaking(world))


def is_list_of_names(nodes: object) -> bool:
    return isinstance(nodes, list) and all(isinstance(node, str) for node in nodes)

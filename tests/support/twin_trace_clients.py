"""The twin's findings that need the trace and the history: recovery-loss, read-above-hw, end-offset-ahead.

Readings that had to be chosen:
- recovery-loss counts a replica's own `start` lines. Its lines before are walked backwards: a length that a
  leader's `fetch` of it, certainly before the start, or its own `ack` proves counts only if an earlier line
  of the replica, from before its LEO last fell, has no LEO as high; and not if it is above its last LEO.
- An ack at the time of the process's last line may never have been: that step may not have reached the disk.
- A follower that ends before it has appended anything may have been truncating: nothing but an orderly stop
  proves its length then.
- A fault is in between if it may have been in force after the start before (of node or replica).
- Every line of a broker's replica except a follower's `hw` gives the HW; one within the clock error after an
  op counts as well. read-above-hw counts records of polls and txns, of any outcome.
- A breach of the history leaves all three unknown, and none is claimed; in a run that was killed
  recovery-loss is not claimed.
"""

import math
from collections.abc import Callable, Iterator

from twin_facts import World, reads_of
from twin_folder import Line, is_int
from twin_logs import Found
from twin_trace_lines import Event, Trace, lives


def recovery_loss(world: World, trace: Trace) -> Iterator[Found]:
    """A start that finds less than the replica surely had."""
    for key, partition in world.partitions.items():
        for node in partition.replicas:
            mine = lives(trace, key, node)
            for place, start in enumerate(mine):
                if start.name == "start" and start["partition"] is not None and (
                        lost_by_itself(world, trace, key, start, mine[:place])):
                    yield (key, node, start.seq), None


def length(event: Event) -> int:
    """The log's length after this line; after a node's start it is 0 until the replica has a line."""
    return 0 if event["partition"] is None else int(event["leo"])


def lost_by_itself(world: World, trace: Trace, key: int, start: Event, before: list[Event]) -> bool:
    """Whether the log was surely longer than this start found it, without a fault that explains it."""
    if not before or start["leo"] >= length(before[-1]):
        return False
    begun = [event.time for event in before if event.name == "start"]
    if any(struck(world, trace, start, fault, begun) for fault in world.lines):
        return False
    if start["clean"] is True:
        return True
    for event in reversed(before):
        if event.name == "become_follower":
            return False
        if event.name in ("start", "append", "become_leader"):
            break
    fallen = [place for place in range(1, len(before)) if length(before[place]) < length(before[place - 1])]
    outgrown = max((length(event) for event in before[:fallen[-1]]), default=0) if fallen else 0
    ends = [event["offset"] for event in trace.of(key) if event.name == "fetch"
            and event["follower"] == start.node and event["offset"] is not None
            and event.time + trace.clock_error_ns < start.time]
    ends += [event["offset"] + 1 for event in before if event.name == "ack"
             and event.time < before[-1].time]
    return any(max(start["leo"], outgrown) < end <= length(before[-1]) for end in ends)


def struck(world: World, trace: Trace, start: Event, line: Line, begun: list[int]) -> bool:
    """Whether this line of the nemesis may be a fault that lost data of the node, since its start before."""
    fault = line.get("fault") or {}
    if line["process"] != -1 or fault.get("lost") is not True or start.node not in (fault.get("nodes") or []):
        return False
    since = fault["began"] if is_int(fault.get("began")) else line["time"]
    return since <= start.time + trace.clock_error_ns and (
        not begun or line["time"] + trace.clock_error_ns >= begun[-1])


# -- clients ------------------------------------------------------------------------------------------------

def highest_hw(trace: Trace, key: int, line: Line) -> float:
    """The highest HW of this partition when the op was over, or perhaps was; infinite before the first HW."""
    return max((event["hw"] for event in trace.of(key) if event["hw"] is not None
                and not (event.name == "hw" and event["role"] == "follower")
                and event.time <= line["time"] + trace.clock_error_ns), default=math.inf)


def completions(world: World) -> Iterator[Line]:
    return (line for line in world.lines if line["type"] != "invoke" and line["process"] >= 0)


def read_above_hw(world: World, trace: Trace) -> Iterator[Found]:
    """A poll returned a record that no HW had passed."""
    for line in completions(world):
        for place, read in enumerate(reads_of(line)):
            if read.partition in world.partitions and (
                    read.offset >= highest_hw(trace, read.partition, line)):
                yield (line["position"], place), None


def end_offset_ahead(world: World, trace: Trace) -> Iterator[Found]:
    """list_offsets answered an end that no HW had reached."""
    for line in completions(world):
        if line["f"] == "list_offsets" and line["type"] == "ok":
            for place, end in enumerate(line["offsets"]):
                if end["partition"] in world.partitions and (
                        end["offset"] > highest_hw(trace, end["partition"], line)):
                    yield (line["position"], place), None


CHECKS: dict[str, Callable[[World, Trace], Iterator[Found]]] = {
    "recovery-loss": recovery_loss, "read-above-hw": read_above_hw, "end-offset-ahead": end_offset_ahead,
}


def in_doubt(world: World) -> set[str]:
    """The findings that a history with missing or unreadable lines cannot decide."""
    killed = {"recovery-loss"} if world.run.get("history_lines") is None else set()
    return killed | (set(CHECKS) if world.folder.breach else set())


def claimed(world: World) -> dict[str, Callable[[World, Trace], Iterator[Found]]]:
    """The findings of a trace without gaps."""
    return {name: check for name, check in CHECKS.items() if name not in in_doubt(world)}

"""The twin's law of nodes that ended by themselves: which of those deaths the schedule explains.

A death is explained if, from some moment of the node's life on and for a whole time-out of its own, it could
not reach a majority of the controllers; or, from its start on, any other broker. It must have followed within
a time-out after that was over, if anybody knows when it was. Every moment is looked at by going through the
whole history again.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from twin_facts import World
from twin_folder import Line

FOREVER = 2**62
DOWN = ("kill", "stop", "power_cut", "disk")


def unexplained(world: World) -> Iterator[str]:
    for node in sorted({*(world.run.get("died") or [])}):
        died_at = world.run.get("died_at")
        deaths = whole(died_at.get(node)) if is_map(died_at) else []
        if deaths:
            explained = all(gave_up(world, node, last_start(world, node, death, deaths), death, known=True)
                            or harmed(world, node, death) for death in deaths)
        else:
            explained = harmed(world, node, None) or any(
                gave_up(world, node, start, end_of_life(world, node, start), known=False)
                for start in starts(world, node, deaths))
        if not explained:
            yield node


def harmed(world: World, node: str, death: int | None) -> bool:
    """Whether its disk was bad or its memory limited when it died, or within a session before."""
    for f, mend in (("bad_disk", "mend_disk"), ("memory", "free_memory")):
        for act in acts(world):
            if act["f"] == f and node in nodes_of(act):
                ends = [other["time"] for other in acts(world) if other["position"] > act["position"]
                        and other["f"] == mend and "error" not in (other.get("fault") or {})
                        and node in (nodes_of(other) or [node])]
                end = min(ends, default=mended(world)[-1] if mended(world) else FOREVER)
                if death is None or began(act) <= death <= end + time_out(world, node, starting=False):
                    return True
    return False


def gave_up(world: World, node: str, start: int, end: int, *, known: bool) -> bool:
    moments = sorted({0, FOREVER, *mended(world), *(time for act in acts(world)
                                                   for time in (began(act), act["time"]))})
    brokers = {*world.run["nodes"]} - {node}
    for begin, until in combinations(moments, 2):
        between = [time for time in moments if begin <= time < until]
        alone = all(lacks(world, node, controllers(world) - {node}, time, half=True) for time in between)
        forsaken = begin <= start and all(lacks(world, node, brokers, time, half=False) for time in between)
        # A longer outage is looked at as a whole, so what was mended is known.
        if (alone and is_whole(world, node, begin, until, moments, half=True)) or (
                forsaken and is_whole(world, node, begin, until, moments, half=False)):
            timeout = time_out(world, node, starting=begin <= start)
            if min(until, end) - max(begin, start) >= timeout and (not known or end <= until + timeout):
                return True
    return False


def is_whole(world: World, node: str, begin: int, until: int, moments: list[int], *, half: bool) -> bool:
    """Nothing lacked just before it, and nothing lacks from its end on."""
    needed = controllers(world) - {node} if half else {*world.run["nodes"]} - {node}
    earlier = [time for time in moments if time < begin]
    return (not earlier or not lacks(world, node, needed, earlier[-1], half=half)) and (
        until == FOREVER or not lacks(world, node, needed, until, half=half))


def lacks(world: World, node: str, needed: set[str], time: int, *, half: bool) -> bool:
    """Whether at this moment at least half of them, or all, were out of the node's reach."""
    away = [name for name in needed if is_away(world, node, name, time)]
    return bool(needed) and (2 * len(away) >= len(needed) if half else len(away) == len(needed))


def is_away(world: World, node: str, name: str, time: int) -> bool:
    if mended(world) and time >= mended(world)[-1]:
        return False
    down, paused, cuts = False, False, False
    for act in acts(world):
        f, nodes = act["f"], (act.get("fault") or {}).get("nodes") or []
        failed = "error" in (act.get("fault") or {})
        if began(act) <= time:
            down |= f in DOWN and name in nodes
            paused |= f == "pause" and name in nodes
            cuts |= f in ("cut", "packet") and is_between(act["fault"].get("grudge"), node, name)
        if act["time"] <= time and not failed:
            down &= not (f == "start" and (name in nodes or not nodes))
            paused &= not (f in ("start", "resume") and (name in nodes or not nodes))
            cuts &= f != "heal"
    return down or paused or cuts


def is_between(grudge: Any, one: str, other: str) -> bool:
    return is_map(grudge) and (other in listed(grudge.get(one)) or one in listed(grudge.get(other)))


def controllers(world: World) -> set[str]:
    """Every process that the nemesis names and that is no broker."""
    found: set[str] = set()
    for act in acts(world):
        fault = act.get("fault") or {}
        if act["f"] in ("cut", "packet") and is_map(fault.get("grudge")):
            for node, others in fault["grudge"].items():
                found |= {node, *listed(others)} if listed(others) else set()
        found |= {*(fault.get("nodes") or [])}
    return found - {*world.run["nodes"], "clients"}


def starts(world: World, node: str, deaths: list[int]) -> list[int]:
    """When it was started: by the run, by the nemesis, by the mending if it was down by then."""
    found = [0, *(began(act) for act in acts(world) if act["f"] == "start" and node in nodes_of(act))]
    if mended(world):
        first = mended(world)[0]
        ends = [time for time in [*deaths, *ends_of(world, node)] if time <= first]
        if ends and not any(max(ends) < start <= first for start in found):
            found.append(first)
    return found


def last_start(world: World, node: str, death: int, deaths: list[int]) -> int:
    return max(start for start in starts(world, node, deaths) if start <= max(death, 0))


def end_of_life(world: World, node: str, start: int) -> int:
    return min((time for time in ends_of(world, node) if time > start), default=FOREVER)


def ends_of(world: World, node: str) -> list[int]:
    return [act["time"] for act in acts(world) if act["f"] in DOWN and node in nodes_of(act)]


def time_out(world: World, node: str, *, starting: bool) -> int:
    """Nanoseconds: of a registration or of a session."""
    keys = (["zookeeper.connection.timeout.ms", "initial.broker.registration.timeout.ms"] if starting
            else ["zookeeper.session.timeout.ms", "broker.session.timeout.ms"])
    config = world.run.get("config")
    own = config.get(node) if is_map(config) else None
    for key in keys:
        if is_map(own) and type(own.get(key)) is int:
            return int(own[key]) * 10**6
    return (60_000 if starting else 9_000) * 10**6


def acts(world: World) -> list[Line]:
    return [line for line in world.lines if line["process"] == -1]


def began(act: Line) -> int:
    time = (act.get("fault") or {}).get("began")
    return time if type(time) is int else int(act["time"])


def nodes_of(act: Line) -> list[str]:
    return (act.get("fault") or {}).get("nodes") or []


def mended(world: World) -> list[int]:
    return whole(world.run.get("mended"))


def whole(values: Any) -> list[int]:
    return [value for value in values if type(value) is int] if isinstance(values, list) else []


def listed(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def is_map(value: Any) -> bool:
    return isinstance(value, dict)

"""Draws the fault patterns of a random nemesis: each fault with the act that undoes it, and the time between.

Rules
1. Patterns use names, never roles, and times, except `healthy`: their moments always come on a live cluster.
2. A pattern mends everything that it breaks, in its own last steps.
3. The order of draws is fixed: the same Random gives the same patterns.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from floodmark.harness.faults import NEMESES
from floodmark.harness.schedule.patterns import DrawPattern, FaultPattern, PatternScope, Step, act
from floodmark.harness.schedule.views import CONTROLLER
from floodmark.nemesis.grudges import KINDS
from floodmark.nemesis.moment_patterns import moments

RECOVERY_S = 3.0  # what a plan allows a node to return to every ISR; the schedule waits for it in any case
HEALTHY_TIMEOUT_S = 60.0


def crash(scope: PatternScope) -> FaultPattern:
    """Kill one node, and start it sometimes before its session ends (KIP-380); or all nodes, for a moment."""
    drawn = scope.random.random()
    if drawn < 0.15 and len(scope.free) == len(scope.nodes):
        down_s = scope.while_s(0.2, 1.5)
        return pair("kill", "start", scope.nodes, down_s, alone=True)
    down_s = scope.while_s(0.1, 0.6) if drawn < 0.4 else scope.while_s()
    return pair("kill", "start", (scope.victim(),), down_s)


def restart(scope: PatternScope) -> FaultPattern:
    """Stop one node in order, or all in turn, each back in every ISR before the next stops. It runs alone,
    because a broker that cannot pass on its leaderships does not stop in time."""
    if scope.random.random() < 0.6:
        return pair("stop", "start", (scope.victim(),), scope.while_s(0.1, 2.0), alone=True)
    order = list(scope.nodes)
    scope.random.shuffle(order)
    steps: list[Step] = []
    at_s = 0.0
    for node in order:
        down_s = scope.while_s(0.1, 0.6)
        steps += [act(at_s, "stop", node), act(at_s + down_s, "start", node),
                  act(at_s + down_s + 1.0, "wait", healthy=True)]
        at_s = steps[-1].at_s
    return FaultPattern(steps=tuple(steps), touches=scope.nodes, alone=True)


def pause(scope: PatternScope) -> FaultPattern:
    """Pause a node, for less or more time than its session."""
    return pair("pause", "resume", (scope.victim(),), scope.while_s())


def cut(scope: PatternScope) -> FaultPattern:
    """A grudge of any kind; half of the time the controller is among the nodes that may be cut off."""
    kind = scope.random.choice(sorted(KINDS))
    named = scope.nodes
    if kind in ("one-node", "halves", "one-way", "random") and scope.random.random() < 0.5:
        named = (*named, CONTROLLER)
    grudge = KINDS[kind](scope.random, named)
    if not grudge:  # too few nodes for a ring: only the clients can be cut off
        kind = "clients"
        grudge = KINDS[kind](scope.random, scope.nodes)
    args: dict[str, Any] = {"kind": kind, "grudge": grudge}
    if scope.random.random() < 0.2:
        args["reset"] = True
    heal = act(scope.while_s(1.0), "heal")
    return FaultPattern(steps=(act(0.0, "cut", **args), heal), touches=_cut_off(grudge, scope))


def power(scope: PatternScope) -> FaultPattern:
    """One node loses its unsynced data, all or part of it, and nothing else happens until it is back in every
    ISR, except that it sometimes does not hear its peers for a while after its start. With overspend several
    lose it together, whatever else is going on. If every write is fsynced it is a kill, of any nodes at any
    time."""
    args: dict[str, Any] = {}
    if scope.random.random() < 0.5:
        args["keep_share"] = round(scope.random.random(), 3)
    down_s = scope.while_s(0.2, 2.0)
    if scope.flush_every and not scope.overspend:
        return _power_of_some(scope, args, down_s)
    nodes: tuple[str, ...] = (scope.victim(),)
    if scope.overspend and len(scope.nodes) > 1:
        nodes = tuple(sorted(scope.random.sample(scope.nodes, scope.random.randint(2, len(scope.nodes)))))
    struck = act(0.1, "power_cut", *nodes, healthy=not scope.overspend, **args)
    start = act(0.1 + down_s, "start", *nodes)
    steps = [act(0.0, "wait"), struck, start]
    may_cut = not scope.overspend and scope.links_cut and len(scope.nodes) > 1
    if may_cut and scope.random.random() < 0.7:
        # It asks for what it lacks, and hears nothing for a while.
        grudge = {nodes[0]: [node for node in scope.nodes if node != nodes[0]]}
        cut = act(0.1 + down_s / 2, "cut", kind="slow-return", grudge=grudge)
        heal = act(start.at_s + scope.while_s(0.3, 1.5 * scope.session_s), "heal")
        steps = [*steps[:2], cut, start, heal]
    steps.append(act(steps[-1].at_s + RECOVERY_S, "wait", healthy=True))
    return FaultPattern(touches=scope.nodes, alone=True, steps=tuple(steps))


def _power_of_some(scope: PatternScope, args: Mapping[str, Any], down_s: float) -> FaultPattern:
    """One node, some or all. Only when all lose power together is unsynced data lost everywhere."""
    drawn = scope.random.random()
    if drawn < 0.4 and len(scope.free) == len(scope.nodes):
        return pair("power_cut", "start", scope.nodes, down_s, args=args, alone=True)
    victims = (scope.victim(),) if drawn < 0.7 else tuple(sorted(scope.victims(len(scope.free) - 1)))
    return pair("power_cut", "start", victims, down_s, args=args)


def expire(scope: PatternScope) -> FaultPattern:
    """A session ends though its broker lives."""
    return FaultPattern(steps=(act(0.0, "expire", scope.victim()),))


def elect(scope: PatternScope) -> FaultPattern:
    """Elect the preferred leaders. With overspend: an unclean election after all but one node were killed."""
    partitions = list(scope.partitions)
    if len(partitions) > 1 and scope.random.random() < 0.5:
        partitions = [scope.random.choice(partitions)]
    if not scope.overspend:
        return FaultPattern(steps=(act(0.0, "elect", partitions=partitions),))
    victims = tuple(sorted(scope.random.sample(scope.free, max(1, len(scope.free) - 1))))
    down_s = scope.while_s(2.5)
    return FaultPattern(touches=victims, steps=(
        act(0.0, "kill", *victims),
        act(down_s - 0.3, "elect", partitions=partitions, unclean=True),
        act(down_s, "start", *victims)))


def packet(scope: PatternScope) -> FaultPattern:
    """Some nodes get packets from others badly: lost, late or few at a time; or connections are reset,
    once."""
    kind = scope.random.choice(_AMONG_NODES)
    grudge = KINDS[kind](scope.random, (*scope.nodes, CONTROLLER))
    args: dict[str, Any] = {"kind": kind, "grudge": grudge}
    drawn = scope.random.random()
    if drawn < 0.2:
        return FaultPattern(steps=(act(0.0, "reset", **args),))
    if drawn < 0.5:
        args["loss"] = round(scope.random.uniform(0.05, 0.4), 2)
    elif drawn < 0.8:
        args["delay_ms"] = scope.random.randint(20, 300)
        args["jitter_ms"] = scope.random.randint(0, args["delay_ms"] // 2)
    else:
        args["rate_kbit"] = scope.random.choice((256, 512, 1024, 4096))
    touched = tuple(node for node in scope.nodes if node in grudge)
    heal = act(scope.while_s(1.0), "heal")
    return FaultPattern(steps=(act(0.0, "packet", **args), heal), touches=touched)


def clock(scope: PatternScope) -> FaultPattern:
    """One wall clock jumps, by milliseconds or by hours, either way, and back."""
    node = scope.victim()
    most_ms = scope.random.choice((200, 5_000, 60_000, 3 * 3_600_000))
    offset_ms = scope.random.choice((-1, 1)) * scope.random.randint(most_ms // 4, most_ms)
    return pair("clock", "reset_clock", (node,), scope.while_s(), args={"offset_ms": offset_ms})


def disk(scope: PatternScope) -> FaultPattern:
    """A disk is full for a while. A broker that ends because of it is started."""
    return _until_mended("bad_disk", {"kind": "full"}, "mend_disk", scope)


def memory(scope: PatternScope) -> FaultPattern:
    """A broker has little memory for a while. One that the kernel ends is started."""
    return _until_mended("memory", {"limit_mb": scope.random.choice((16, 32, 48))}, "free_memory", scope)


def controller(scope: PatternScope) -> FaultPattern:
    """Kill, pause or restart the controller, or cut it from brokers, for less or more than a session. A
    restart runs alone, like a broker's."""
    on, drawn = (CONTROLLER,), scope.random.random()
    if drawn < 0.3:
        return pair("kill", "start", on, scope.while_s(0.1, 1.0) if drawn < 0.15 else scope.while_s())
    if drawn < 0.4:
        return pair("stop", "start", on, scope.while_s(0.1, 2.0), alone=True)
    if drawn < 0.65 or not scope.links_cut:
        return pair("pause", "resume", on, scope.while_s())
    unheard = sorted(scope.random.sample(scope.nodes, scope.random.randint(1, len(scope.nodes))))
    to_it, from_it = {node: [CONTROLLER] for node in unheard}, {CONTROLLER: unheard}
    grudge = scope.random.choice((to_it, from_it, {**to_it, **from_it}))
    cut_off = tuple(unheard) if len(unheard) < len(scope.nodes) else ()
    return FaultPattern(touches=cut_off, steps=(
        act(0.0, "cut", kind="controller", grudge=grudge),
        act(scope.while_s(), "heal")))


MAKERS: dict[str, DrawPattern] = {name: {**globals(), "moments": moments}[name] for name in NEMESES}
# kinds of grudges that are possible with two nodes
_AMONG_NODES = ("halves", "one-node", "one-way", "random")


def _cut_off(grudge: Mapping[str, Sequence[str]], scope: PatternScope) -> tuple[str, ...]:
    """The nodes that hear less than half of the others, or not the controller. The others work on, and may be
    struck meanwhile."""
    others = len(scope.nodes) - 1
    return tuple(node for node in scope.nodes
                 if CONTROLLER in grudge.get(node, ())
                 or 2 * len({*grudge.get(node, ())} & {*scope.nodes}) > others)


def _until_mended(harm: str, args: Mapping[str, Any], mend: str, scope: PatternScope) -> FaultPattern:
    on = (scope.victim(),)
    until_s = scope.while_s()
    return FaultPattern(touches=on, steps=(
        act(0.0, harm, *on, **args), act(until_s, mend, *on),
        act(until_s + 0.1, "start", *on)))


def pair(harm: str, mend: str, nodes: Sequence[str], length_s: float, *,
         args: Mapping[str, Any] = MappingProxyType({}), alone: bool = False) -> FaultPattern:
    """A fault and the act that undoes it after this time."""
    on = tuple(nodes)
    return FaultPattern(touches=on, alone=alone, steps=(
        act(0.0, harm, *on, **args), act(length_s, mend, *on)))

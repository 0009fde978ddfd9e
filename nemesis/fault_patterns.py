"""Draws the fault patterns of a random nemesis: each fault with the act that undoes it, and the time between.

Rules
1. Patterns use names, never roles, and times, except `healthy`: their moments always come on a live cluster.
2. A pattern mends everything that it breaks, in its own last steps.
3. The order of draws is fixed: the same Random gives the same patterns.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from floodmark.harness.protocols import CONTROLLER
from floodmark.harness.schedule.patterns import DrawPattern, FaultPattern, PatternScope, Step
from floodmark.nemesis.grudges import KINDS
from floodmark.nemesis.moment_patterns import moments

RECOVERY_S = 3.0  # what a plan allows a node for coming back into every ISR; it waits for it in any case
HEALTHY_TIMEOUT_S = 60.0
HEALTHY = {"at": "state", "healthy": True}


def crash(scene: PatternScope) -> FaultPattern:
    """Kill one node, and start it sometimes before its session ends (KIP-380); or all nodes, for a moment."""
    drawn = scene.random.random()
    if drawn < 0.15 and len(scene.free) == len(scene.nodes):
        down_s = scene.while_s(0.2, 1.5)
        return pair("kill", "start", scene.nodes, down_s, alone=True)
    down_s = scene.while_s(0.1, 0.6) if drawn < 0.4 else scene.while_s()
    return pair("kill", "start", (scene.victim(),), down_s)


def restart(scene: PatternScope) -> FaultPattern:
    """Stop one node in order, or all in turn, each back in every ISR before the next stops. Alone, because a
    broker that cannot pass on its leadership does not stop in time."""
    if scene.random.random() < 0.6:
        return pair("stop", "start", (scene.victim(),), scene.while_s(0.1, 2.0), alone=True)
    order = list(scene.nodes)
    scene.random.shuffle(order)
    steps: list[Step] = []
    at_s = 0.0
    for node in order:
        down_s = scene.while_s(0.1, 0.6)
        steps += [Step(at_s=at_s, f="stop", nodes=(node,)),
                  Step(at_s=at_s + down_s, f="start", nodes=(node,)),
                  Step(at_s=at_s + down_s + 1.0, f="wait", healthy=True)]
        at_s = steps[-1].at_s
    return FaultPattern(steps=tuple(steps), touches=scene.nodes, alone=True)


def pause(scene: PatternScope) -> FaultPattern:
    """Pause a node, for less or more time than its session."""
    return pair("pause", "resume", (scene.victim(),), scene.while_s())


def cut(scene: PatternScope) -> FaultPattern:
    """A grudge of any kind; the controller is among those who may be snubbed, half of the time."""
    kind = scene.random.choice(sorted(KINDS))
    named = scene.nodes
    if kind in ("one-node", "halves", "one-way", "random") and scene.random.random() < 0.5:
        named = (*named, CONTROLLER)
    grudge = KINDS[kind](scene.random, named)
    if not grudge:  # too few nodes for a ring: nobody to snub but the clients
        kind = "clients"
        grudge = KINDS[kind](scene.random, scene.nodes)
    args: dict[str, Any] = {"kind": kind, "grudge": grudge}
    if scene.random.random() < 0.2:
        args["reset"] = True
    heal = Step(at_s=scene.while_s(1.0), f="heal")
    return FaultPattern(steps=(Step(at_s=0.0, f="cut", args=args), heal), touches=_cut_off(grudge, scene))


def power(scene: PatternScope) -> FaultPattern:
    """One node loses what it had not fsynced, all or part of it, and nothing else happens until it is back in
    every ISR. Overspending: several lose it together, whatever else there is. Where every write is fsynced
    it is a kill, of any nodes at any time."""
    args: dict[str, Any] = {}
    if scene.random.random() < 0.5:
        args["keep_share"] = round(scene.random.random(), 3)
    down_s = scene.while_s(0.2, 2.0)
    if scene.flush_every and not scene.overspend:
        return _power_of_some(scene, args, down_s)
    nodes: tuple[str, ...] = (scene.victim(),)
    if scene.overspend and len(scene.nodes) > 1:
        nodes = tuple(sorted(scene.random.sample(scene.nodes, scene.random.randint(2, len(scene.nodes)))))
    struck = Step(at_s=0.1, f="power_cut", nodes=nodes, args=args, healthy=not scene.overspend)
    return FaultPattern(touches=scene.nodes, alone=True, steps=(
        Step(at_s=0.0, f="wait"), struck, Step(at_s=0.1 + down_s, f="start", nodes=nodes),
        Step(at_s=0.1 + down_s + RECOVERY_S, f="wait", healthy=True)))


def _power_of_some(scene: PatternScope, args: Mapping[str, Any], down_s: float) -> FaultPattern:
    """One node, some or all. Only the loss of all together finds what nobody had fsynced."""
    drawn = scene.random.random()
    if drawn < 0.4 and len(scene.free) == len(scene.nodes):
        return pair("power_cut", "start", scene.nodes, down_s, args=args, alone=True)
    victims = (scene.victim(),) if drawn < 0.7 else tuple(sorted(scene.victims(len(scene.free) - 1)))
    return pair("power_cut", "start", victims, down_s, args=args)


def expire(scene: PatternScope) -> FaultPattern:
    """A session ends though its broker lives."""
    return FaultPattern(steps=(Step(at_s=0.0, f="expire", nodes=(scene.victim(),)),))


def elect(scene: PatternScope) -> FaultPattern:
    """Elect the preferred leaders. Overspending: an unclean election after all but one node were killed."""
    partitions = list(scene.partitions)
    if len(partitions) > 1 and scene.random.random() < 0.5:
        partitions = [scene.random.choice(partitions)]
    if not scene.overspend:
        return FaultPattern(steps=(Step(at_s=0.0, f="elect", args={"partitions": partitions}),))
    victims = tuple(sorted(scene.random.sample(scene.free, max(1, len(scene.free) - 1))))
    down_s = scene.while_s(2.5)
    return FaultPattern(touches=victims, steps=(
        Step(at_s=0.0, f="kill", nodes=victims),
        Step(at_s=down_s - 0.3, f="elect", args={"partitions": partitions, "unclean": True}),
        Step(at_s=down_s, f="start", nodes=victims)))


def packet(scene: PatternScope) -> FaultPattern:
    """Some hear others badly: packets lost, late or few at a time; or connections are reset, and no more."""
    kind = scene.random.choice(_AMONG_NODES)
    grudge = KINDS[kind](scene.random, (*scene.nodes, CONTROLLER))
    args: dict[str, Any] = {"kind": kind, "grudge": grudge}
    drawn = scene.random.random()
    if drawn < 0.2:
        return FaultPattern(steps=(Step(at_s=0.0, f="reset", args=args),))
    if drawn < 0.5:
        args["loss"] = round(scene.random.uniform(0.05, 0.4), 2)
    elif drawn < 0.8:
        args["delay_ms"] = scene.random.randint(20, 300)
        args["jitter_ms"] = scene.random.randint(0, args["delay_ms"] // 2)
    else:
        args["rate_kbit"] = scene.random.choice((256, 512, 1024, 4096))
    touched = tuple(node for node in scene.nodes if node in grudge)
    heal = Step(at_s=scene.while_s(1.0), f="heal")
    return FaultPattern(steps=(Step(at_s=0.0, f="packet", args=args), heal), touches=touched)


def clock(scene: PatternScope) -> FaultPattern:
    """One wall clock jumps, by milliseconds or by hours, either way, and back."""
    node = scene.victim()
    most_ms = scene.random.choice((200, 5_000, 60_000, 3 * 3_600_000))
    offset_ms = scene.random.choice((-1, 1)) * scene.random.randint(most_ms // 4, most_ms)
    return FaultPattern(touches=(node,), steps=(
        Step(at_s=0.0, f="clock", nodes=(node,), args={"offset_ms": offset_ms}),
        Step(at_s=scene.while_s(), f="reset_clock", nodes=(node,))))


def disk(scene: PatternScope) -> FaultPattern:
    """A disk is full for a while. A broker that ended of it is started."""
    return _until_mended("bad_disk", {"kind": "full"}, "mend_disk", scene)


def memory(scene: PatternScope) -> FaultPattern:
    """A broker must do with little memory for a while. One that the kernel ended is started."""
    return _until_mended("memory", {"limit_mb": scene.random.choice((16, 32, 48))}, "free_memory", scene)


def controller(scene: PatternScope) -> FaultPattern:
    """Kill, pause or restart the controller, or cut it from brokers, for less or more than a session.
    A restart comes alone, as that of a broker does."""
    on, drawn = (CONTROLLER,), scene.random.random()
    if drawn < 0.3:
        return pair("kill", "start", on, scene.while_s(0.1, 1.0) if drawn < 0.15 else scene.while_s())
    if drawn < 0.4:
        return pair("stop", "start", on, scene.while_s(0.1, 2.0), alone=True)
    if drawn < 0.65 or not scene.links_cut:
        return pair("pause", "resume", on, scene.while_s())
    unheard = sorted(scene.random.sample(scene.nodes, scene.random.randint(1, len(scene.nodes))))
    to_it, from_it = {node: [CONTROLLER] for node in unheard}, {CONTROLLER: unheard}
    grudge = scene.random.choice((to_it, from_it, {**to_it, **from_it}))
    cut_off = tuple(unheard) if len(unheard) < len(scene.nodes) else ()
    return FaultPattern(touches=cut_off, steps=(
        Step(at_s=0.0, f="cut", args={"kind": "controller", "grudge": grudge}),
        Step(at_s=scene.while_s(), f="heal")))


MAKERS: dict[str, DrawPattern] = {
    "crash": crash, "restart": restart, "pause": pause, "cut": cut, "power": power, "expire": expire,
    "elect": elect, "controller": controller, "moments": moments, "packet": packet, "clock": clock,
    "disk": disk, "memory": memory,
}
_AMONG_NODES = ("halves", "one-node", "one-way", "random")  # kinds of grudges that also two nodes have


def _cut_off(grudge: Mapping[str, Sequence[str]], scene: PatternScope) -> tuple[str, ...]:
    """The nodes that hear less than half of the others, or not the controller. The rest goes on, and may be
    struck meanwhile."""
    others = len(scene.nodes) - 1
    return tuple(node for node in scene.nodes
                 if CONTROLLER in grudge.get(node, ())
                 or 2 * len({*grudge.get(node, ())} & {*scene.nodes}) > others)


def _until_mended(harm: str, args: Mapping[str, Any], mend: str, scene: PatternScope) -> FaultPattern:
    on = (scene.victim(),)
    until_s = scene.while_s()
    return FaultPattern(touches=on, steps=(
        Step(at_s=0.0, f=harm, nodes=on, args=args), Step(at_s=until_s, f=mend, nodes=on),
        Step(at_s=until_s + 0.1, f="start", nodes=on)))


def pair(harm: str, mend: str, nodes: Sequence[str], length_s: float, *,
         args: Mapping[str, Any] = MappingProxyType({}), alone: bool = False) -> FaultPattern:
    """A fault and what undoes it so much later."""
    on = tuple(nodes)
    return FaultPattern(touches=on, alone=alone, steps=(
        Step(at_s=0.0, f=harm, nodes=on, args=args), Step(at_s=length_s, f=mend, nodes=on)))

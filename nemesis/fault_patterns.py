"""Draws the fault patterns of random nemeses: each fault with the acts that undo it, and the time between;
and those that several nemeses make together, for states that one fault alone hardly causes.

Rules
1. Patterns use names, never roles, and times, except `healthy`: their moments always come on a live cluster.
2. A pattern mends everything that it breaks, in its own last steps.
3. The order of draws is fixed: the same Random gives the same patterns.
4. A mixture is drawn only if all nemeses whose faults it uses were asked for. At least one broker stays
   undisturbed, so a mixture that needs two victims strikes only one if no two are free.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from floodmark.harness.faults import NEMESES
from floodmark.harness.schedule.moments import Failpoint, WhenState
from floodmark.harness.schedule.patterns import (
    DrawPattern,
    FaultPattern,
    PatternScope,
    Step,
    act,
    pair,
    pattern,
)
from floodmark.harness.schedule.states import Condition, Observation
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER
from floodmark.nemesis.grudges import KINDS, Grudge, apart
from floodmark.nemesis.moment_patterns import moments

RECOVERY_S = 3.0  # what a plan allows a node to return to every ISR; the schedule waits for it in any case
HEALTHY_TIMEOUT_S = 60.0
STILL_S = 0.02  # between two steps that should follow immediately
_LEADS_AFTER_S = (0.1, 0.4)  # after the request for an election a node leads, and has records of its own
# kinds of grudges that are possible with two nodes
_AMONG_NODES = ("halves", "one-node", "one-way", "random")


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
    if scope.drawn(0.6):
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
    return pattern(*steps, touches=scope.nodes, alone=True)


def pause(scope: PatternScope) -> FaultPattern:
    """Pause a node, for less or more time than its session."""
    return pair("pause", "resume", (scope.victim(),), scope.while_s())


def cut(scope: PatternScope) -> FaultPattern:
    """A grudge of any kind; half of the time the controller is among the nodes that may be cut off."""
    kind = scope.random.choice(sorted(kind for kind in KINDS if kind != CLIENTS or scope.clients_cut))
    named = scope.nodes
    if kind in _AMONG_NODES and scope.drawn(0.5):
        named = (*named, CONTROLLER)
    grudge = KINDS[kind](scope.random, named)
    if not grudge:  # too few nodes for a ring: only the clients can be cut off, or the controller
        kind, named = (CLIENTS, scope.nodes) if scope.clients_cut else ("halves", (*scope.nodes, CONTROLLER))
        grudge = KINDS[kind](scope.random, named)
    args: dict[str, Any] = {"reset": True} if scope.cuts_reset and scope.drawn(0.2) else {}
    # Those that hear less than half of the others, or not the controller. The others may be struck meanwhile.
    cut_off = tuple(node for node in scope.nodes if CONTROLLER in grudge.get(node, ())
                    or 2 * len({*grudge.get(node, ())} & {*scope.nodes}) > len(scope.nodes) - 1)
    return pattern(act(0.0, "cut", kind=kind, grudge=grudge, **args), act(scope.while_s(1.0), "heal"),
                   touches=cut_off)


def power(scope: PatternScope) -> FaultPattern:
    """One node loses its unsynced data, all or part of it, and nothing else happens until it is back in every
    ISR, except that it sometimes does not hear its peers for a while after its start. With overspend several
    lose it together, whatever else is going on. If every write is fsynced it is a kill, of any nodes at any
    time."""
    args: dict[str, Any] = {"keep_share": round(scope.random.random(), 3)} if scope.drawn(0.5) else {}
    down_s = scope.while_s(0.2, 2.0)
    if scope.flush_every and not scope.overspend:
        drawn = scope.random.random()
        if drawn < 0.4 and len(scope.free) == len(scope.nodes):
            return pair("power_cut", "start", scope.nodes, down_s, alone=True, **args)
        some = (scope.victim(),) if drawn < 0.7 else tuple(sorted(scope.victims(len(scope.free) - 1)))
        return pair("power_cut", "start", some, down_s, **args)
    nodes: tuple[str, ...] = (scope.victim(),)
    if scope.overspend and len(scope.nodes) > 1:
        nodes = tuple(sorted(scope.random.sample(scope.nodes, scope.random.randint(2, len(scope.nodes)))))
    struck = act(0.1, "power_cut", *nodes, healthy=not scope.overspend, **args)
    start = act(0.1 + down_s, "start", *nodes)
    steps = [act(0.0, "wait"), struck, start]
    may_cut = not scope.overspend and scope.links_cut and len(scope.nodes) > 1
    if may_cut and scope.drawn(0.7):  # it asks for what it lacks, and hears nothing for a while
        grudge = {nodes[0]: scope.others(nodes[0])}
        cut = act(0.1 + down_s / 2, "cut", kind="slow-return", grudge=grudge)
        heal = act(start.at_s + scope.while_s(0.3, 1.5 * scope.session_s), "heal")
        steps = [*steps[:2], cut, start, heal]
    recovered = act(steps[-1].at_s + RECOVERY_S, "wait", healthy=True)
    return pattern(*steps, recovered, touches=scope.nodes, alone=True)


def expire(scope: PatternScope) -> FaultPattern:
    """A session ends though its broker lives."""
    return pattern(act(0.0, "expire", scope.victim()))


def elect(scope: PatternScope) -> FaultPattern:
    """Elect the preferred leaders. With overspend: an unclean election after all but one node were killed."""
    partitions = list(scope.partitions)
    if len(partitions) > 1 and scope.drawn(0.5):
        partitions = [scope.random.choice(partitions)]
    if not scope.overspend:
        return pattern(act(0.0, "elect", partitions=partitions))
    victims = tuple(sorted(scope.random.sample(scope.free, max(1, len(scope.free) - 1))))
    down_s = scope.while_s(2.5)
    return pattern(act(0.0, "kill", *victims),
                   act(down_s - 0.3, "elect", partitions=partitions, unclean=True),
                   act(down_s, "start", *victims), touches=victims)


def packet(scope: PatternScope) -> FaultPattern:
    """Some nodes get packets from others badly: lost, late, few at a time; or connections are reset."""
    kind = scope.random.choice(_AMONG_NODES)
    grudge = KINDS[kind](scope.random, (*scope.nodes, CONTROLLER))
    args: dict[str, Any] = {"kind": kind, "grudge": grudge}
    drawn = scope.random.random()
    if drawn < 0.2:
        return pattern(act(0.0, "reset", **args))
    if drawn < 0.5:
        args["loss"] = round(scope.random.uniform(0.05, 0.4), 2)
    elif drawn < 0.8:
        args["delay_ms"] = scope.random.randint(20, 300)
        args["jitter_ms"] = scope.random.randint(0, args["delay_ms"] // 2)
    else:
        args["rate_kbit"] = scope.random.choice((256, 512, 1024, 4096))
    return pattern(act(0.0, "packet", **args), act(scope.while_s(1.0), "heal"),
                   touches=[node for node in scope.nodes if node in grudge])


def clock(scope: PatternScope) -> FaultPattern:
    """One wall clock jumps, by milliseconds or by hours, either way, and back."""
    node = scope.victim()
    most_ms = scope.random.choice((200, 5_000, 60_000, 3 * 3_600_000))
    offset_ms = scope.random.choice((-1, 1)) * scope.random.randint(most_ms // 4, most_ms)
    return pair("clock", "reset_clock", (node,), scope.while_s(), offset_ms=offset_ms)


def disk(scope: PatternScope) -> FaultPattern:
    """A disk is full for a while. A broker that ends because of it is started."""
    return _until_mended("bad_disk", "mend_disk", scope, kind="full")


def memory(scope: PatternScope) -> FaultPattern:
    """A broker has little memory for a while. One that the kernel ends is started."""
    limit_mb = scope.random.choice((16, 32, 48))
    return _until_mended("memory", "free_memory", scope, limit_mb=limit_mb)


def _until_mended(harm: str, mend: str, scope: PatternScope, **args: Any) -> FaultPattern:
    node, until_s = scope.victim(), scope.while_s()
    return pattern(act(0.0, harm, node, **args), act(until_s, mend, node),
                   act(until_s + 0.1, "start", node), touches=[node])


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
    return pattern(act(0.0, "cut", kind="controller", grudge=grudge), act(scope.while_s(), "heal"),
                   touches=unheard if len(unheard) < len(scope.nodes) else ())


# -- mixtures -----------------------------------------------------------------------------------------------

def elections(scope: PatternScope) -> FaultPattern:
    """Elections right after one another: sessions end in turn and preferred leaders return, before a replica
    can have followed any of them for long."""
    steps, at_s = [], 0.0
    for _ in range(scope.random.randint(3, 7)):
        steps.append(act(at_s, "expire", scope.victim()) if scope.drawn(0.6)
                     else _return_leaderships(scope, at_s))
        at_s += scope.random.choice((STILL_S, scope.while_s(0.05, 0.3), scope.while_s(0.3, 0.8)))
    return pattern(*steps)


def severed(scope: PatternScope) -> FaultPattern:
    """One node is cut from its peers and the controller for longer than its session, while clients still
    reach it and go on writing. Sometimes it is cut from the one first and from the other within the session;
    sometimes one peer still hears it: then its proposals to the controller decide what is acked."""
    node, random = scope.victim(), scope.random
    peers = scope.others(node)
    if len(peers) > 1 and scope.drawn(0.4):
        peers.remove(random.choice(peers))
    from_peers, from_controller = apart([node], peers), apart([node], [CONTROLLER])
    grudges: list[Grudge] = [apart([node], [*peers, CONTROLLER])]
    if from_peers and scope.drawn(0.5):
        grudges = [from_peers, from_controller]
        random.shuffle(grudges)
    args: dict[str, Any] = {"reset": True} if scope.cuts_reset and scope.drawn(0.2) else {}
    steps, at_s = _lead_first(scope)
    steps.append(act(at_s, "cut", kind="severed", grudge=grudges[0], **args))
    if len(grudges) > 1:
        at_s += scope.while_s(0.1, scope.session_s)
        steps.append(act(at_s, "cut", kind="severed", grudge=grudges[1], **args))
    heal_s = at_s + scope.while_s(1.2 * scope.session_s, max(scope.longest_s, 3 * scope.session_s))
    return pattern(*steps, act(heal_s, "heal"), touches=[node])


def laggard(scope: PatternScope) -> FaultPattern:
    """A follower is cut from its peers and falls far behind; another dies when it catches up, or before."""
    victims = scope.victims(2)
    if len(victims) < 2:
        return crash(scope)
    behind, dying = victims
    steps, cut_s = _lead_first(scope)
    heal_s = cut_s + scope.while_s(0.5 * scope.session_s, max(scope.longest_s, 2 * scope.session_s))
    kill_s = max(cut_s, heal_s + scope.random.choice((-0.3, -STILL_S, STILL_S, scope.while_s(0.02, 0.5))))
    return pattern(
        *steps, act(cut_s, "cut", kind="laggard", grudge=apart([behind], scope.nodes)),
        act(heal_s, "heal"), act(kill_s, "kill", dying),
        act(max(heal_s, kill_s) + scope.while_s(0.1, 1.5 * scope.session_s), "start", dying), touches=victims)


def ahead(scope: PatternScope) -> FaultPattern:
    """A leader appends what no follower fetches, and dies, until another leader has appended more."""
    node = scope.victim()
    others = scope.others(node)
    if not others:
        return crash(scope)
    cut_s = scope.while_s(*_LEADS_AFTER_S)
    kill_s = cut_s + scope.while_s(0.05, 0.4)
    start_s = kill_s + scope.while_s(0.3, 1.2 * scope.session_s)
    return pattern(
        _return_leaderships(scope),
        act(cut_s, "cut", kind="ahead", grudge={one: [node] for one in others}),
        act(kill_s, "kill", node), act(kill_s + STILL_S, "expire", node),
        act(kill_s + 2 * STILL_S, "heal"), act(start_s, "start", node), touches=[node])


def upheaval(scope: PatternScope) -> FaultPattern:
    """Partitions with different leaders lose them at once: by ended sessions, or all nodes but one die."""
    drawn = scope.random.random()
    if drawn < 0.5:
        nodes = scope.free if drawn < 0.2 else scope.victims(len(scope.nodes))
        return pattern(act(0.0, "expire", *nodes))
    victims = scope.victims(len(scope.nodes))
    starts = [act(scope.while_s(0.1, 1.5 * scope.session_s), "start", node) for node in victims]
    return pattern(act(0.0, "kill", *victims), *starts, touches=victims)


def cascade(scope: PatternScope) -> FaultPattern:
    """A leader dies and is fenced at once, and so is its successor a moment later."""
    victims = scope.victims(2)
    steps, at_s = [], 0.0
    for node in victims:
        steps += [act(at_s, "kill", node), act(at_s + STILL_S, "expire", node)]
        at_s += scope.random.choice((2 * STILL_S, scope.while_s(0.1, 0.6)))
    for node in scope.random.sample(victims, len(victims)):
        at_s += scope.while_s(0.05, scope.session_s)
        steps.append(act(at_s, "start", node))
    return pattern(*steps, touches=victims)


def relapse(scope: PatternScope) -> FaultPattern:
    """A leader appends records that nobody fetches, is deposed and truncates them. Right after that, or a
    moment later, it dies, or all die, by a power cut sometimes if every write is fsynced: the truncated
    records must not come back from the disk. Sometimes the clients reach nobody in that moment, so that
    little is written in their place."""
    node, report = scope.victim(), {"name": "F.truncated", "action": "report", "times": 0}
    later_ns = scope.random.randint(20, 600) * 1_000_000 if scope.drawn(0.5) else None  # in the ISR again
    cut_s = scope.while_s(*_LEADS_AFTER_S)
    deposed_s = cut_s + scope.while_s(0.2, scope.session_s)
    healed_s = deposed_s + scope.while_s(0.05, 0.5)
    dies_s = healed_s + scope.while_s(0.6, 1.2)
    quiet = []
    if scope.drawn(0.5):
        quiet = [act(healed_s + STILL_S, "cut", kind="relapse", grudge=apart([CLIENTS], scope.nodes)),
                 act(dies_s + STILL_S, "heal")]
    fsynced = scope.flush_every and not scope.overspend
    of_all = len(scope.free) == len(scope.nodes) and (fsynced or scope.drawn(0.5))
    dying = scope.nodes if of_all else (node,)
    return pattern(
        act(0.0, "arm", node, point=report), _return_leaderships(scope),
        act(cut_s, "cut", kind="relapse", grudge=apart([node], [*scope.nodes, CONTROLLER])),
        act(deposed_s, "expire", node), act(healed_s, "heal"), *quiet,
        act(dies_s, "power_cut" if of_all and fsynced else "kill", *dying,
            sooner=Failpoint(node=node, name="F.truncated", then_ns=later_ns)),
        act(dies_s + STILL_S, "release", node),
        *_starts(scope, dying, dies_s + scope.while_s(0.1, 1.0)), touches=dying, alone=of_all)


def orphans(scope: PatternScope) -> FaultPattern:
    """A leader dies while the controller is down: nobody is elected until that is back, maybe after it."""
    node, harm, mend = scope.victim(), *scope.random.choice((("kill", "start"), ("pause", "resume")))
    at_s = scope.while_s(0.0, 0.5)
    return pattern(
        act(0.0, harm, CONTROLLER), act(at_s, "kill", node),
        act(at_s + scope.while_s(0.1, scope.session_s), "start", node),
        act(at_s + scope.while_s(0.1, 1.5 * scope.session_s), mend, CONTROLLER), touches=[node])


def detour(scope: PatternScope) -> FaultPattern:
    """The clients reach one node only. It is deposed while it has records that nobody fetched, and is elected
    again after it has truncated them: what an idempotent producer sends again comes to the node that had
    it."""
    node = scope.victim()
    others = scope.others(node)
    if not others:
        return expire(scope)
    cut_s = scope.while_s(*_LEADS_AFTER_S)
    deposed_s = cut_s + scope.while_s(0.1, 0.5 * scope.session_s)
    healed_s = deposed_s + scope.while_s(0.05, 0.4)
    elected_s = healed_s + scope.while_s(0.3, 0.5 * scope.session_s)
    return pattern(
        _return_leaderships(scope),
        act(cut_s, "cut", kind="detour", grudge=apart([node], [*others, CONTROLLER])),
        act(deposed_s, "expire", node), act(healed_s, "heal"),
        act(healed_s + STILL_S, "cut", kind="detour", grudge=apart([CLIENTS], others)),
        _return_leaderships(scope, elected_s),
        act(elected_s + scope.while_s(0.1, 0.8), "heal"), touches=[node])


def decision(scope: PatternScope) -> FaultPattern:
    """A follower is cut from its peers until an ISR lacks it; the controller dies right after that decision,
    and another node once the controller is back. It must still know what it told the brokers."""
    victims = scope.victims(2)
    if len(victims) < 2:
        return orphans(scope)
    behind, dying = victims
    isr = Observation(partition=scope.random.choice(scope.partitions), field="isr")
    lacks = WhenState(state=Condition(seen=isr, how="lacks", value=behind))
    down_s = scope.while_s(scope.session_s, max(scope.longest_s, 2 * scope.session_s))
    back_s = down_s + scope.while_s(0.05, 0.4)
    dies_s = back_s + scope.while_s(0.05, 0.4)
    healed_s = dies_s + scope.while_s(0.1, 0.5)
    return pattern(
        act(0.0, "cut", kind="decision", grudge=apart([behind], scope.nodes)),
        act(down_s, "kill", CONTROLLER, sooner=lacks), act(back_s, "start", CONTROLLER),
        act(dies_s, "kill", dying), act(dies_s + STILL_S, "expire", dying), act(healed_s, "heal"),
        act(healed_s + scope.while_s(0.1, scope.session_s), "start", dying), touches=victims)


def unheard(scope: PatternScope) -> FaultPattern:
    """One node does not hear the controller, for about its session, while the others lose their leaderships
    to it. It must learn that it is the leader once it hears again."""
    node = scope.victim()
    others = [one for one in scope.free if one != node]
    if not others:
        return expire(scope)
    expire_s = scope.while_s(STILL_S, 0.2 * scope.session_s)
    return pattern(
        act(0.0, "cut", kind="unheard", grudge={node: [CONTROLLER]}), act(expire_s, "expire", *others),
        act(expire_s + scope.while_s(0.6 * scope.session_s, 1.2 * scope.session_s), "heal"), touches=[node])


def blackout(scope: PatternScope) -> FaultPattern:
    """All brokers go down together, and the controller often with them; they come back one by one. It is a
    power cut sometimes, if every write is fsynced."""
    harm = "power_cut" if scope.flush_every and not scope.overspend and scope.drawn(0.7) else "kill"
    down = scope.nodes
    steps = [act(0.0, harm, *scope.nodes)]
    if scope.drawn(0.7):
        down = (*down, CONTROLLER)
        steps.insert(scope.random.randint(0, 1), act(0.0, "kill", CONTROLLER))
    starts = _starts(scope, down, scope.while_s(0.1, 0.6 * scope.session_s))
    return pattern(*steps, *starts, touches=scope.nodes, alone=True)


def _again_and_again(harm: str, mend: str, scope: PatternScope) -> FaultPattern:
    """One node is killed and started, or paused, several times, each time for less than its session."""
    node = scope.victim()
    steps: list[Step] = []
    at_s = 0.0
    for _ in range(scope.random.randint(2, 4)):
        mended_s = at_s + scope.while_s(0.05, 0.6 * scope.session_s)
        steps += [act(at_s, harm, node), act(mended_s, mend, node)]
        at_s = mended_s + scope.while_s(0.3, 0.7 * scope.session_s)
    return pattern(*steps, touches=[node])


bounces = partial(_again_and_again, "kill", "start")  # the broker is back within its session (KIP-380)
stalls = partial(_again_and_again, "pause", "resume")
MAKERS: dict[str, DrawPattern] = {name: {**globals(), "moments": moments}[name] for name in NEMESES}
ENDINGS: tuple[DrawPattern, ...] = (blackout, unheard)
MIXTURES: Mapping[DrawPattern, frozenset[str]] = {  # the nemeses that each needs
    draw: frozenset(needs.split()) for draw, needs in (
        (bounces, "crash"), (stalls, "pause"), (elections, "expire elect"), (severed, "cut"),
        (laggard, "cut crash"), (ahead, "cut crash expire elect"), (upheaval, "expire crash"),
        (cascade, "expire crash"), (relapse, "cut crash expire elect power moments"),
        (orphans, "controller crash pause"), (detour, "cut expire elect"),
        (decision, "cut crash expire pause controller"), (unheard, "cut expire controller"),
        (blackout, "crash controller power"))}


def _return_leaderships(scope: PatternScope, at_s: float = 0.0) -> Step:
    """Every node that is in the ISR leads its share again: earlier faults may have left a node none."""
    return act(at_s, "elect", partitions=list(scope.partitions))


def _lead_first(scope: PatternScope) -> tuple[list[Step], float]:
    """(the steps, their time) after which every node leads its share, if elections may be requested."""
    return ([_return_leaderships(scope)], scope.while_s(*_LEADS_AFTER_S)) if scope.elects else ([], 0.0)


def _starts(scope: PatternScope, nodes: Sequence[str], at_s: float) -> list[Step]:
    """The nodes start one by one, in any order."""
    steps = []
    for node in scope.random.sample(nodes, len(nodes)):
        steps.append(act(at_s, "start", node))
        at_s += scope.while_s(STILL_S, 0.3)
    return steps

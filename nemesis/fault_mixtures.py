"""Draws the fault patterns that several random nemeses make together, for states that one fault alone hardly
causes.

Rules
1. Those of fault_patterns.py. A mixture is drawn only if all nemeses whose faults it uses were asked for.
2. At least one broker stays undisturbed. So a mixture that needs two victims strikes only one if no two are
   free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.harness.schedule.patterns import DrawPattern, FaultPattern, PatternScope, Step, act
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER
from floodmark.nemesis.fault_patterns import crash, expire, pair
from floodmark.nemesis.grudges import Grudge, apart

_LEADS_AFTER_S = (0.1, 0.4)  # after the request for an election a node leads, and has records of its own
STILL_S = 0.02  # between two steps that should follow immediately


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    needs: frozenset[str]  # nemeses
    draw: DrawPattern


def bounces(scope: PatternScope) -> FaultPattern:
    """One node is killed and started several times, each time within its session (KIP-380)."""
    return _again_and_again("kill", "start", scope)


def stalls(scope: PatternScope) -> FaultPattern:
    """One node is paused several times, each time for less than its session."""
    return _again_and_again("pause", "resume", scope)


def elections(scope: PatternScope) -> FaultPattern:
    """Elections right after one another: sessions end in turn and preferred leaders return, before a replica
    can have followed any of them for long."""
    steps, at_s = [], 0.0
    for _ in range(scope.random.randint(3, 7)):
        if scope.random.random() < 0.6:
            steps.append(act(at_s, "expire", scope.victim()))
        else:
            steps.append(_return_leaderships(scope, at_s))
        at_s += scope.random.choice((STILL_S, scope.while_s(0.05, 0.3), scope.while_s(0.3, 0.8)))
    return FaultPattern(steps=tuple(steps))


def severed(scope: PatternScope) -> FaultPattern:
    """One node is cut from its peers and the controller for longer than its session, while clients still
    reach it and go on writing. Sometimes it is cut from the one first and from the other within the session;
    sometimes one peer still hears it: then its proposals to the controller decide what is acked."""
    node, random = scope.victim(), scope.random
    peers = [one for one in scope.nodes if one != node]
    if len(peers) > 1 and random.random() < 0.4:
        peers.remove(random.choice(peers))
    from_peers, from_controller = apart([node], peers), apart([node], [CONTROLLER])
    grudges: list[Grudge] = [apart([node], [*peers, CONTROLLER])]
    if from_peers and random.random() < 0.5:
        grudges = [from_peers, from_controller]
        random.shuffle(grudges)
    args: dict[str, Any] = {"reset": True} if random.random() < 0.2 else {}
    steps, at_s = _lead_first(scope)
    steps.append(act(at_s, "cut", kind="severed", grudge=grudges[0], **args))
    if len(grudges) > 1:
        at_s += scope.while_s(0.1, scope.session_s)
        steps.append(act(at_s, "cut", kind="severed", grudge=grudges[1], **args))
    heal_s = at_s + scope.while_s(1.2 * scope.session_s, max(scope.longest_s, 3 * scope.session_s))
    return FaultPattern(steps=(*steps, act(heal_s, "heal")), touches=(node,))


def laggard(scope: PatternScope) -> FaultPattern:
    """A follower is cut from its peers and falls far behind; another node dies while it catches up, or just
    before."""
    victims = scope.victims(2)
    if len(victims) < 2:
        return crash(scope)
    behind, dying = victims
    steps, cut_s = _lead_first(scope)
    heal_s = cut_s + scope.while_s(0.5 * scope.session_s, max(scope.longest_s, 2 * scope.session_s))
    kill_s = max(cut_s, heal_s + scope.random.choice((-0.3, -STILL_S, STILL_S, scope.while_s(0.02, 0.5))))
    steps += [
        act(cut_s, "cut", kind="laggard", grudge=apart([behind], scope.nodes)),
        act(heal_s, "heal"), act(kill_s, "kill", dying),
        act(max(heal_s, kill_s) + scope.while_s(0.1, 1.5 * scope.session_s), "start", dying),
    ]
    return FaultPattern(steps=tuple(sorted(steps, key=lambda step: step.at_s)), touches=victims)


def ahead(scope: PatternScope) -> FaultPattern:
    """A leader appends records that its followers do not fetch, and dies. It comes back when another leader
    has appended more than that."""
    node = scope.victim()
    others = [one for one in scope.nodes if one != node]
    if not others:
        return crash(scope)
    cut_s = scope.while_s(*_LEADS_AFTER_S)
    kill_s = cut_s + scope.while_s(0.05, 0.4)
    start_s = kill_s + scope.while_s(0.3, 1.2 * scope.session_s)
    steps = (
        _return_leaderships(scope),
        act(cut_s, "cut", kind="ahead", grudge={one: [node] for one in others}),
        act(kill_s, "kill", node), act(kill_s + STILL_S, "expire", node),
        act(kill_s + 2 * STILL_S, "heal"), act(start_s, "start", node),
    )
    return FaultPattern(steps=steps, touches=(node,))


def upheaval(scope: PatternScope) -> FaultPattern:
    """Partitions with different leaders lose them at once: the sessions of several nodes end together, or all
    nodes but one die."""
    drawn = scope.random.random()
    if drawn < 0.5:
        nodes = scope.free if drawn < 0.2 else scope.victims(len(scope.nodes))
        return FaultPattern(steps=(act(0.0, "expire", *nodes),))
    victims = scope.victims(len(scope.nodes))
    starts = sorted((act(scope.while_s(0.1, 1.5 * scope.session_s), "start", node)
                     for node in victims), key=lambda step: step.at_s)
    return FaultPattern(steps=(act(0.0, "kill", *victims), *starts), touches=victims)


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
    return FaultPattern(steps=tuple(steps), touches=victims)


def orphans(scope: PatternScope) -> FaultPattern:
    """A leader dies while the controller is down: nobody is elected until the controller is back, before or
    after the leader."""
    node, harm, mend = scope.victim(), *scope.random.choice((("kill", "start"), ("pause", "resume")))
    at_s = scope.while_s(0.0, 0.5)
    steps = [
        act(0.0, harm, CONTROLLER), act(at_s, "kill", node),
        act(at_s + scope.while_s(0.1, scope.session_s), "start", node),
        act(at_s + scope.while_s(0.1, 1.5 * scope.session_s), mend, CONTROLLER),
    ]
    return FaultPattern(steps=tuple(sorted(steps, key=lambda step: step.at_s)), touches=(node,))


def relapse(scope: PatternScope) -> FaultPattern:
    """A leader appends records that nobody fetches, is deposed and truncates them. Right after that, or a
    moment later, it dies, or all die, by a power cut sometimes if every write is fsynced: the truncated
    records must not come back from the disk. Sometimes the clients reach nobody in that moment, so that
    little is written in their place."""
    node, random = scope.victim(), scope.random
    report = {"name": "F.truncated", "action": "report", "times": 0}
    truncated: dict[str, Any] = {"at": "failpoint", "node": node, "name": "F.truncated"}
    if random.random() < 0.5:
        truncated["then_ns"] = random.randint(20, 600) * 1_000_000  # it may be in the ISR again
    cut_s = scope.while_s(*_LEADS_AFTER_S)
    deposed_s = cut_s + scope.while_s(0.2, scope.session_s)
    healed_s = deposed_s + scope.while_s(0.05, 0.5)
    dies_s = healed_s + scope.while_s(0.6, 1.2)
    quiet = []
    if random.random() < 0.5:
        quiet = [act(healed_s + STILL_S, "cut", kind="relapse", grudge=apart([CLIENTS], scope.nodes)),
                 act(dies_s + STILL_S, "heal")]
    fsynced = scope.flush_every and not scope.overspend
    of_all = len(scope.free) == len(scope.nodes) and (fsynced or random.random() < 0.5)
    dying = scope.nodes if of_all else (node,)
    steps = [
        act(0.0, "arm", node, point=report),
        _return_leaderships(scope),
        act(cut_s, "cut", kind="relapse", grudge=apart([node], [*scope.nodes, CONTROLLER])),
        act(deposed_s, "expire", node), act(healed_s, "heal"), *quiet[:1],
        act(dies_s, "power_cut" if of_all and fsynced else "kill", *dying, sooner=truncated),
        *quiet[1:], act(dies_s + STILL_S, "release", node),
        *_starts(scope, dying, dies_s + scope.while_s(0.1, 1.0)),
    ]
    return FaultPattern(steps=tuple(steps), touches=dying, alone=of_all)


def detour(scope: PatternScope) -> FaultPattern:
    """The clients reach one node only. It is deposed while it has records that nobody fetched, and is elected
    again after it has truncated them: what an idempotent producer sends again comes to the node that had
    it."""
    node = scope.victim()
    others = [one for one in scope.nodes if one != node]
    if not others:
        return expire(scope)
    cut_s = scope.while_s(*_LEADS_AFTER_S)
    deposed_s = cut_s + scope.while_s(0.1, 0.5 * scope.session_s)
    healed_s = deposed_s + scope.while_s(0.05, 0.4)
    elected_s = healed_s + scope.while_s(0.3, 0.5 * scope.session_s)
    steps = [
        _return_leaderships(scope),
        act(cut_s, "cut", kind="detour", grudge=apart([node], [*others, CONTROLLER])),
        act(deposed_s, "expire", node), act(healed_s, "heal"),
        act(healed_s + STILL_S, "cut", kind="detour", grudge=apart([CLIENTS], others)),
        _return_leaderships(scope, elected_s),
        act(elected_s + scope.while_s(0.1, 0.8), "heal"),
    ]
    return FaultPattern(steps=tuple(steps), touches=(node,))


def decision(scope: PatternScope) -> FaultPattern:
    """A follower is cut from its peers until an ISR lacks it; the controller dies right after that decision,
    and another node once the controller is back. It must still know what it told the brokers."""
    victims = scope.victims(2)
    if len(victims) < 2:
        return orphans(scope)
    behind, dying = victims
    random = scope.random
    lacks = {"at": "state", "partition": random.choice(scope.partitions), "field": "isr", "is": "lacks",
             "value": behind}
    down_s = scope.while_s(scope.session_s, max(scope.longest_s, 2 * scope.session_s))
    back_s = down_s + scope.while_s(0.05, 0.4)
    dies_s = back_s + scope.while_s(0.05, 0.4)
    steps = [
        act(0.0, "cut", kind="decision", grudge=apart([behind], scope.nodes)),
        act(down_s, "kill", CONTROLLER, sooner=lacks), act(back_s, "start", CONTROLLER),
        act(dies_s, "kill", dying), act(dies_s + STILL_S, "expire", dying),
        act(dies_s + scope.while_s(0.1, 0.5), "heal"),
    ]
    start_s = steps[-1].at_s + scope.while_s(0.1, scope.session_s)
    return FaultPattern(steps=(*steps, act(start_s, "start", dying)), touches=victims)


def unheard(scope: PatternScope) -> FaultPattern:
    """One node does not hear the controller, for about its session, while the others lose their leaderships
    to it. It must learn that it is the leader once it hears again."""
    node = scope.victim()
    others = [one for one in scope.free if one != node]
    if not others:
        return expire(scope)
    expire_s = scope.while_s(STILL_S, 0.2 * scope.session_s)
    steps = [
        act(0.0, "cut", kind="unheard", grudge={node: [CONTROLLER]}), act(expire_s, "expire", *others),
        act(expire_s + scope.while_s(0.6 * scope.session_s, 1.2 * scope.session_s), "heal"),
    ]
    return FaultPattern(steps=tuple(steps), touches=(node,))


def blackout(scope: PatternScope) -> FaultPattern:
    """All brokers go down together, and the controller often with them; they come back one by one. It is a
    power cut sometimes, if every write is fsynced."""
    random = scope.random
    harm = "power_cut" if scope.flush_every and not scope.overspend and random.random() < 0.7 else "kill"
    down = scope.nodes
    steps = [act(0.0, harm, *scope.nodes)]
    if random.random() < 0.7:
        down = (*down, CONTROLLER)
        steps.insert(random.randint(0, 1), act(0.0, "kill", CONTROLLER))
    steps += _starts(scope, down, scope.while_s(0.1, 0.6 * scope.session_s))
    return FaultPattern(steps=tuple(steps), touches=scope.nodes, alone=True)


BLACKOUT = Mixture(needs=frozenset({"crash", "controller", "power"}), draw=blackout)
UNHEARD = Mixture(needs=frozenset({"cut", "expire", "controller"}), draw=unheard)
ENDINGS = (BLACKOUT, UNHEARD)
MIXTURES: Mapping[str, Mixture] = {
    "bounces": Mixture(needs=frozenset({"crash"}), draw=bounces),
    "stalls": Mixture(needs=frozenset({"pause"}), draw=stalls),
    "elections": Mixture(needs=frozenset({"expire", "elect"}), draw=elections),
    "severed": Mixture(needs=frozenset({"cut"}), draw=severed),
    "laggard": Mixture(needs=frozenset({"cut", "crash"}), draw=laggard),
    "ahead": Mixture(needs=frozenset({"cut", "crash", "expire", "elect"}), draw=ahead),
    "upheaval": Mixture(needs=frozenset({"expire", "crash"}), draw=upheaval),
    "cascade": Mixture(needs=frozenset({"expire", "crash"}), draw=cascade),
    "relapse": Mixture(needs=frozenset({"cut", "crash", "expire", "elect", "power", "moments"}),
                       draw=relapse),
    "orphans": Mixture(needs=frozenset({"controller", "crash", "pause"}), draw=orphans),
    "detour": Mixture(needs=frozenset({"cut", "expire", "elect"}), draw=detour),
    "decision": Mixture(needs=frozenset({"cut", "crash", "expire", "pause", "controller"}), draw=decision),
    "unheard": UNHEARD, "blackout": BLACKOUT,
}


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


def _again_and_again(harm: str, mend: str, scope: PatternScope) -> FaultPattern:
    node = scope.victim()
    steps: list[Step] = []
    at_s = 0.0
    for _ in range(scope.random.randint(2, 4)):
        one = pair(harm, mend, (node,), scope.while_s(0.05, 0.6 * scope.session_s))
        steps += (act(at_s + step.at_s, step.f, *step.nodes) for step in one.steps)
        at_s = steps[-1].at_s + scope.while_s(0.3, 0.7 * scope.session_s)
    return FaultPattern(steps=tuple(steps), touches=(node,))

"""Draws faults at moments inside the protocol: failpoints that hold, crash, delay, drop or double, and
strikes when one is reached or when the cluster is seen in a state.

A pattern arms one failpoint or two, causes something that passes them (an election, an ISR change), strikes
again when the first is reached or a state is seen, and then releases everything.

Rules
1. Those of fault_patterns.py. A moment that may never come is combined with a time, whichever comes first. So
   no moment is missed, and the plan keeps its pace.
2. A node that may have crashed at a failpoint is not paused, and is started at the end, where failpoints are
   released too. A controller that may have crashed gets no request before it was started.
3. Metadata that a failpoint drops is never sent again (C.elected), which a correct controller does not
   expect: the pattern ends sessions at its end, so that later metadata goes to every broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.schedule.failpoints import CRASH, DELAY, DROP, DUPLICATE, HOLD, POINTS, REPORT
from floodmark.harness.schedule.patterns import FaultPattern, PatternScope, Step
from floodmark.harness.schedule.views import CONTROLLER
from floodmark.nemesis.grudges import apart

ELECTION, ISR, TRAFFIC, REGISTRATION = "election", "isr", "traffic", "registration"
# Failpoints by the event that passes them; each group is drawn as often as it is listed in _GROUPS.
_POINTS: Mapping[str, tuple[str, ...]] = {
    ELECTION: ("F.followed", "F.truncated", "F.epoch_req", "L.elected", "C.elected"),
    ISR: ("L.alter_sent", "L.alter_answer", "C.alter_applied"),
    TRAFFIC: ("F.appended", "F.before_refetch", "F.fetch_resp", "L.acked", "L.hw", "P.parked", "D.ckpt",
              "D.ckpt_done", "D.fsync"),
    REGISTRATION: ("B.registered",),
}
assert {*POINTS} == {name for names in _POINTS.values() for name in names}, "a failpoint that is never drawn"
_GROUPS = (ELECTION, ELECTION, ELECTION, ISR, ISR, TRAFFIC, TRAFFIC, REGISTRATION)
_OF_NO_PARTITION = frozenset({"D.ckpt_done", "B.registered"})


@dataclass(slots=True, kw_only=True)
class _Scene:
    """One pattern while it is drawn. at: the node that is armed; other: the node that is struck with it (the
    same if no other is free)."""

    scope: PatternScope
    at: str
    other: str
    arms: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)  # node, point
    steps: list[Step] = field(default_factory=list)
    down: set[str] = field(default_factory=set)  # killed by a step
    paused: set[str] = field(default_factory=set)
    cut: bool = False

    @property
    def may_ask_controller(self) -> bool:
        return not any(node == CONTROLLER and point["action"] == CRASH for node, point in self.arms)

    def may_take_down(self, node: str) -> bool:
        """Whether a broker stays undisturbed if this node, too, is killed or paused."""
        return not (self.down | self.paused) or (
            len(self.scope.free) > 2 and node not in self.down | self.paused)

    def add(self, at_s: float, f: str, nodes: Sequence[str] = (), sooner: Mapping[str, Any] | None = None,
            **args: Any) -> None:
        self.steps.append(Step(at_s=round(at_s, 3), f=f, nodes=tuple(nodes), args=args, sooner=sooner))


def moments(scope: PatternScope) -> FaultPattern:
    """One failpoint or a pair, an event that passes it, and a strike at that moment."""
    random = scope.random
    at = scope.victim()
    other = random.choice([node for node in scope.free if node != at] or [at])
    scene = _Scene(scope=scope, at=at, other=other)
    group = random.choice(_GROUPS)
    _arm(scene, group, at, 0.0)
    if random.random() < 0.4:
        _arm(scene, random.choice(_GROUPS), random.choice((at, other)), 0.01)
    at_s = scope.while_s(0.02, 0.4)
    if group != TRAFFIC or random.random() < 0.4:
        _cause(scene, group, at_s)
    strikes = random.choice((0, 1, 1, 2))
    for _ in range(strikes):
        at_s += scope.while_s(0.1, scope.session_s)
        _strike(scene, at_s)
    _mend_all(scene, at_s + scope.while_s(0.5, max(scope.longest_s, scope.session_s)))
    return FaultPattern(steps=tuple(scene.steps), touches=tuple(sorted({at, other})))


def _arm(scene: _Scene, group: str, node: str, at_s: float) -> None:
    """Arm a failpoint of the group. A second one at the same place is left out, because it would be
    refused."""
    random, scope = scene.scope.random, scene.scope
    name = random.choice(_POINTS[group])
    on = CONTROLLER if POINTS[name].of_controller else node
    action = random.choice([action for action in POINTS[name].actions if action != REPORT])
    point: dict[str, Any] = {"name": name, "action": action}
    if name == "C.elected":
        point["peer"] = random.choice((scene.at, scene.other))
    elif name not in _OF_NO_PARTITION and random.random() < 0.1:
        point["partition"] = random.choice(scope.partitions)
    if skipped := random.choice((0, 0, 0, 0, 0, 1, 4)):
        point["skip"] = skipped
    if action == DELAY:
        point["for_ms"] = random.randint(20, round(1500 * scope.session_s))
    if action in (HOLD, DELAY, DROP, DUPLICATE) and (times := random.choice((1, 1, 3, 0))) != 1:
        point["times"] = times
    if action in (HOLD, DELAY) and on != CONTROLLER and random.random() < 0.2:
        point["scope"] = "broker"
    if not any(armed == on and other["name"] == name for armed, other in scene.arms):
        scene.arms.append((on, point))
        scene.add(at_s, "arm", (on,), point=point)


def _cause(scene: _Scene, group: str, at_s: float) -> None:
    """Cause an event of the protocol that passes the failpoint."""
    random, partitions = scene.scope.random, list(scene.scope.partitions)
    ways = ["kill"] if scene.may_take_down(scene.other) and scene.other != scene.at else []
    ways += ["expire", "expire at", "elect"] if scene.may_ask_controller else []
    if group == REGISTRATION and scene.may_ask_controller:
        ways = ["expire at"]
    if not ways:
        return
    way = random.choice(ways)
    if way == "kill":
        scene.down.add(scene.other)
        scene.add(at_s, "kill", (scene.other,))
        # otherwise its session would have to end first
        if random.random() < 0.5 and scene.may_ask_controller:
            scene.add(at_s + 0.01, "expire", (scene.other,))
    elif way == "elect":
        scene.add(at_s, "elect", partitions=partitions)
    else:
        scene.add(at_s, "expire", (scene.at if way == "expire at" else scene.other,))


def _strike(scene: _Scene, latest_s: float) -> None:
    """Strike at a moment, or at latest_s if that comes first."""
    random, scope = scene.scope.random, scene.scope
    sooner = _state(scene) if random.random() < 0.3 else _met(scene)
    node = random.choice((scene.at, scene.other))
    ways = ["expire", "expire", "elect"] if scene.may_ask_controller else []
    if scene.may_take_down(node):
        ways.append("kill")
        ways += [] if any(armed == node for armed, _ in scene.arms) else ["pause"]
    if scope.links_cut and not scene.cut:
        ways.append("cut")
    if not ways:
        return
    way = random.choice(ways)
    if way == "elect":
        scene.add(latest_s, "elect", sooner=sooner, partitions=list(scope.partitions))
    elif way == "cut":
        scene.cut = True
        scene.add(latest_s, "cut", sooner=sooner, kind="severed",
                  grudge=apart([node], [*scope.nodes, *random.choice(([], [CONTROLLER]))])
                  or apart([node], [CONTROLLER]))
    else:
        scene.add(latest_s, way, (node,), sooner=sooner)
        scene.down |= {node} if way == "kill" else set()
        scene.paused |= {node} if way == "pause" else set()


def _met(scene: _Scene) -> Mapping[str, Any]:
    node, point = scene.scope.random.choice(scene.arms)
    return {"at": "failpoint", "node": node, "name": point["name"]}


def _state(scene: _Scene) -> Mapping[str, Any]:
    """A state of one partition that elections and ISR changes cause now and then."""
    random, node = scene.scope.random, scene.scope.random.choice((scene.at, scene.other))
    partition = random.choice(scene.scope.partitions)
    behind = {"replica": node, "field": "leo", "is": "<", "value": {"replica": "leader", "field": "leo"}}
    return {"at": "state", "partition": partition, **random.choice((
        {"field": "leader", "is": "==", "value": node}, {"field": "leader", "is": "!=", "value": node},
        {"field": "isr", "is": "lacks", "value": node}, {"field": "isr", "is": "contains", "value": node},
        behind, {**behind, "field": "hw", "value": {"replica": "leader", "field": "hw"}},
        {**behind, "field": "epoch", "value": {"replica": "leader", "field": "epoch"}}))}


def _mend_all(scene: _Scene, at_s: float) -> None:
    """Release, resume, heal, start, in this order."""
    armed = sorted({node for node, _ in scene.arms})
    scene.add(at_s, "release", armed)
    if scene.paused:
        scene.add(at_s + 0.01, "resume", sorted(scene.paused))
    if scene.cut:
        scene.add(at_s + 0.02, "heal")
    may_be_down = scene.down | {node for node, point in scene.arms if point["action"] == CRASH}
    if may_be_down:
        scene.add(at_s + scene.scope.while_s(0.03, 1.0), "start", sorted(may_be_down))
    if any(point["name"] == "C.elected" and point["action"] == DROP for _, point in scene.arms):
        scene.add(scene.steps[-1].at_s + 0.1, "expire", sorted({scene.at, scene.other}))

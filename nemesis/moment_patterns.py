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

from collections.abc import Mapping
from typing import Any

from floodmark.harness.faults import CRASH, DELAY, DROP, DUPLICATE, HOLD, POINTS, REPORT
from floodmark.harness.schedule.moments import Failpoint, Moment, WhenState
from floodmark.harness.schedule.patterns import FaultPattern, PatternScope, Step, act, pattern
from floodmark.harness.schedule.states import Condition, Observation
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


class _Scene:
    """One pattern while it is drawn. at: the armed node; other: that struck with it (maybe the same)."""

    def __init__(self, scope: PatternScope) -> None:
        self.scope, self.random = scope, scope.random
        self.at = scope.victim()
        self.other = self.random.choice([node for node in scope.free if node != self.at] or [self.at])
        self.arms: list[tuple[str, Mapping[str, Any]]] = []  # node, point
        self.steps: list[Step] = []
        self.down: set[str] = set()  # killed by a step
        self.paused: set[str] = set()
        self.cut = False

    @property
    def may_ask_controller(self) -> bool:
        return not any(node == CONTROLLER and point["action"] == CRASH for node, point in self.arms)

    def may_take_down(self, node: str) -> bool:
        """Whether a broker stays undisturbed if this node, too, is killed or paused."""
        return not (self.down | self.paused) or (
            len(self.scope.free) > 2 and node not in self.down | self.paused)

    def add(self, at_s: float, f: str, *nodes: str, **args: Any) -> None:
        self.steps.append(act(round(at_s, 3), f, *nodes, **args))

    def arm(self, group: str, node: str, at_s: float) -> None:
        """Arm a failpoint of the group, except a second one at the same place, which would be refused."""
        random, scope = self.random, self.scope
        name = random.choice(_POINTS[group])
        on = CONTROLLER if POINTS[name].of_controller else node
        action = random.choice([action for action in POINTS[name].actions if action != REPORT])
        point: dict[str, Any] = {"name": name, "action": action}
        if name == "C.elected":
            point["peer"] = random.choice((self.at, self.other))
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
        if not any(armed == on and other["name"] == name for armed, other in self.arms):
            self.arms.append((on, point))
            self.add(at_s, "arm", on, point=point)

    def cause(self, group: str, at_s: float) -> None:
        ways = ["kill"] if self.may_take_down(self.other) and self.other != self.at else []
        ways += ["expire", "expire at", "elect"] if self.may_ask_controller else []
        if group == REGISTRATION and self.may_ask_controller:
            ways = ["expire at"]
        way = self.random.choice(ways) if ways else None
        if way == "kill":
            self.down.add(self.other)
            self.add(at_s, "kill", self.other)
            # otherwise its session would have to end first
            if self.random.random() < 0.5 and self.may_ask_controller:
                self.add(at_s + 0.01, "expire", self.other)
        elif way == "elect":
            self.add(at_s, "elect", partitions=list(self.scope.partitions))
        elif way is not None:
            self.add(at_s, "expire", self.at if way == "expire at" else self.other)

    def strike(self, latest_s: float) -> None:
        """Strike at a moment, or at latest_s if that comes first."""
        random, scope = self.random, self.scope
        sooner = self.state() if random.random() < 0.3 else self.met()
        node = random.choice((self.at, self.other))
        ways = ["expire", "expire", "elect"] if self.may_ask_controller else []
        if self.may_take_down(node):
            ways.append("kill")
            ways += [] if any(armed == node for armed, _ in self.arms) else ["pause"]
        if scope.links_cut and not self.cut:
            ways.append("cut")
        way = random.choice(ways) if ways else None
        if way == "elect":
            self.add(latest_s, "elect", sooner=sooner, partitions=list(scope.partitions))
        elif way == "cut":
            self.cut = True
            grudge = apart([node], [*scope.nodes, *random.choice(([], [CONTROLLER]))])
            self.add(latest_s, "cut", sooner=sooner, kind="severed",
                     grudge=grudge or apart([node], [CONTROLLER]))
        elif way is not None:
            self.add(latest_s, way, node, sooner=sooner)
            self.down |= {node} if way == "kill" else set()
            self.paused |= {node} if way == "pause" else set()

    def met(self) -> Moment:
        node, point = self.random.choice(self.arms)
        return Failpoint(node=node, name=point["name"])

    def state(self) -> Moment:
        """A state of one partition that elections and ISR changes cause now and then."""
        node = self.random.choice((self.at, self.other))
        partition = self.random.choice(self.scope.partitions)
        field, how = self.random.choice((
            ("leader", "=="), ("leader", "!="), ("isr", "lacks"), ("isr", "contains"),
            ("leo", "<"), ("hw", "<"), ("epoch", "<")))
        of_replica = how == "<"
        seen = Observation(partition=partition, replica=node if of_replica else None, field=field)
        value = Observation(replica="leader", field=field) if of_replica else node
        return WhenState(state=Condition(seen=seen, how=how, value=value))

    def mend_all(self, at_s: float) -> None:
        """Release, resume, heal, start, in this order."""
        self.add(at_s, "release", *sorted({node for node, _ in self.arms}))
        if self.paused:
            self.add(at_s + 0.01, "resume", *sorted(self.paused))
        if self.cut:
            self.add(at_s + 0.02, "heal")
        if may_be_down := self.down | {node for node, point in self.arms if point["action"] == CRASH}:
            self.add(at_s + self.scope.while_s(0.03, 1.0), "start", *sorted(may_be_down))
        if any(point["name"] == "C.elected" and point["action"] == DROP for _, point in self.arms):
            self.add(self.steps[-1].at_s + 0.1, "expire", *sorted({self.at, self.other}))


def moments(scope: PatternScope) -> FaultPattern:
    """One failpoint or a pair, an event that passes it, and a strike at that moment."""
    random, scene = scope.random, _Scene(scope)
    group = random.choice(_GROUPS)
    scene.arm(group, scene.at, 0.0)
    if random.random() < 0.4:
        scene.arm(random.choice(_GROUPS), random.choice((scene.at, scene.other)), 0.01)
    at_s = scope.while_s(0.02, 0.4)
    if group != TRAFFIC or random.random() < 0.4:
        scene.cause(group, at_s)
    for _ in range(random.choice((0, 1, 1, 2))):
        at_s += scope.while_s(0.1, scope.session_s)
        scene.strike(at_s)
    scene.mend_all(at_s + scope.while_s(0.5, max(scope.longest_s, scope.session_s)))
    return pattern(*scene.steps, touches=sorted({scene.at, scene.other}))

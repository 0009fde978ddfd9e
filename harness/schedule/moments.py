"""Entries, of which schedules are made (run.json's `schedule`, scenario steps and random plans), and moments,
at which they strike: a class for each kind, which says all about it.

A moment's fields are its JSON form, read strictly; its methods are its text, what it waits for and whether
that has come, why it can never come on a cluster, and what is said of it when it was missed. To add a kind,
write its class, list it in KINDS, say in _READERS what reads a new field, and give it words: a line of
nemesis/steps.lark, with a method in nemesis/steps.py.

Rules
1. A field that is None is left out of the JSON.
2. `time` and `after` always come; the time-out of an entry applies to the others.
3. `then_ns` counts from when the moment came (at a failpoint: by the broker's clock), not from when it was
   noticed.
4. A moment does not wait, it only looks, so this module needs no event loop (nemesis/schedule_runner.py).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self

from floodmark.harness.faults import POINTS
from floodmark.harness.schedule import fields as read_as
from floodmark.harness.schedule import states
from floodmark.harness.schedule.fields import ANYTHING, Known, Read, fields_of, one_of, refuse
from floodmark.harness.schedule.views import (
    UNKNOWN,
    FailpointHit,
    FaultContext,
    RunObserver,
    View,
    needs_view,
    nodes_with_role,
)

POLL_S = 0.01  # between two views of the cluster
EAGER_S = 0.003  # between two readings of failpoints and the trace
CONDITIONS = ("partition", "epoch", "peer", "offset")  # of a failpoint
_THEN = "then_ns"
Acked = Callable[[int], Sequence[int]]  # the times of a partition's acks in a saved run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """When a moment came, and the evidence for the op's `fault`."""

    time_ns: int  # when it was noticed
    came_ns: int  # when it came: the requested time, or by the broker's clock; else the same
    detail: Mapping[str, Any] = field(default_factory=dict)
    view: View | None = None  # that met a state: roles are resolved with it

    def describe(self) -> dict[str, Any]:
        return {"time": self.time_ns, **self.detail}


def reached_now(observer: RunObserver, *, view: View | None = None, **detail: Any) -> Reached:
    now_ns = observer.now_ns()
    return Reached(time_ns=now_ns, came_ns=now_ns, detail=detail, view=view)


def time_text(time_ns: int) -> str:
    """`200ms`, `2.5s`."""
    return f"{time_ns / 1e9:g}s" if time_ns >= 10**9 else f"{time_ns / 1e6:g}ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What all kinds have, and what a kind is that says no more than it must: it looks, and has words."""

    at: ClassVar[str]
    looks_every_s: ClassVar[float] = EAGER_S
    then_ns: int | None = None  # a further delay

    # -- JSON

    @classmethod
    def read(cls, place: str, given: Mapping[str, Any], known: Known) -> Self:
        """Check the fields of this kind, and read them. UsageError names the bad one."""
        own = {one.name: one.default for one in fields(cls) if one.name != _THEN}
        readers = {name: _READERS[name] for name in ("at", *own, _THEN)}
        found = fields_of(place, given, readers, known,
                          needs=[name for name, default in own.items() if default is MISSING])
        return cls(**{key: part for key, part in found.items() if key != "at"})

    def to_json(self) -> dict[str, Any]:
        then = {} if self.then_ns is None else {_THEN: self.then_ns}
        return {"at": self.at, **self._fields_to_json(), **then}

    def _fields_to_json(self) -> dict[str, Any]:
        return {one.name: value for one in fields(self)
                if one.name != _THEN and (value := getattr(self, one.name)) is not None}

    # -- text

    def words(self) -> str:
        """Without `then`, in the language of steps."""
        raise NotImplementedError

    def text(self) -> str:
        """In the language of steps: `n1.leo == 3 and leader == n2 then 5ms`."""
        return self.words() + ("" if self.then_ns is None else f" then {time_text(self.then_ns)}")

    def asked(self) -> str:
        """For a line of the history: `asked at ack 5 of p0`; empty if the line itself says it."""
        return ""

    # -- waiting

    def due_ns(self, done_ns: int) -> int | None:
        """When it comes, if it always comes. done_ns: when the entry before was done."""
        return None

    async def look(self, observer: RunObserver, context: Callable[[], FaultContext]) -> Reached | None:
        """Whether it has come, by one look."""
        raise NotImplementedError

    @property
    def woken_by_acks(self) -> bool:  # it need not look again before the next ack
        return False

    # -- time

    @property
    def planned_ns(self) -> int:  # how long it waits by its own times
        return (self.due_ns(0) or 0) + (self.then_ns or 0)

    @property
    def delay_ns(self) -> int:  # how long after its last event it is due
        return self.then_ns or 0

    def came_ns(self, acks: Acked, done_ns: int | None) -> int | None:
        """When it came in a saved run, without `then`. done_ns: when the entry before was. None: unknown."""
        return None

    # -- parts, and what is said of them

    def parts(self) -> Iterator["Moment"]:  # the single moments in it
        yield self

    def partitions(self) -> frozenset[int]:  # every one that it names
        own = getattr(self, "partition", None)
        return frozenset() if own is None else frozenset({own})

    def conditions(self) -> Sequence[states.Condition]:  # for which it waits
        return ()

    # whose replicas or failpoints it is about
    def nodes(self, view: View, context: FaultContext) -> Iterable[str]:
        return ()

    def refusals(self, untraced: str | None, not_shown: Collection[str]) -> Iterator[str]:
        """Why it can never come on a cluster. untraced: why one leader's acks cannot be counted there; None:
        they can. not_shown: fields of a replica that it does not show."""
        yield from ()

    def reasons(self, context: FaultContext) -> Iterator[str]:
        """Why it may not have come, with the step that would help."""
        yield from ()

    @property
    def saw_healthy(self) -> bool:
        """Whether the cluster was healthy when it came; not if other time passes after that."""
        return False


# -- times --------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Time(Moment):
    """`time` ns since the run began; with `after_ns`: not earlier than that after the entry before it."""

    at: ClassVar[str] = "time"
    time: int
    after_ns: int | None = None

    def words(self) -> str:
        after = "" if self.after_ns is None else f", {time_text(self.after_ns)} after the one before"
        return f"time {time_text(self.time)}{after}"

    def due_ns(self, done_ns: int) -> int:
        return max(self.time, 0 if self.after_ns is None else done_ns + self.after_ns)

    def came_ns(self, acks: Acked, done_ns: int | None) -> int | None:
        return max(self.time, (done_ns or 0) + (self.after_ns or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class After(Moment):
    """`after_ns` after the entry before it was done."""

    at: ClassVar[str] = "after"
    after_ns: int

    def words(self) -> str:
        return time_text(self.after_ns)

    def due_ns(self, done_ns: int) -> int:
        return done_ns + self.after_ns

    def came_ns(self, acks: Acked, done_ns: int | None) -> int | None:
        return None if done_ns is None else self.due_ns(done_ns)


# -- events -------------------------------------------------------------------------------------------------

def _of_partition(partition: int | None) -> str:
    return f" partition {partition}" if partition else ""


async def _nodes_of(name: str, partition: int, observer: RunObserver, context: Callable[[], FaultContext]
                    ) -> tuple[str, ...]:
    view = await observer.view() if needs_view([name]) else None
    return nodes_with_role(name, partition, view, context())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Moment):
    """The `count`-th acked micro-send of the partition in this run; with `leader` (a node or a role): of
    those that this node acked, by its own trace (before it sent the response)."""

    at: ClassVar[str] = "ack"
    partition: int
    count: int
    leader: str | None = None

    def words(self) -> str:
        return f"ack {self.count}{self._by}{_of_partition(self.partition)}"

    def asked(self) -> str:
        return f"asked at ack {self.count} of p{self.partition}{self._by}"

    @property
    def _by(self) -> str:
        return "" if self.leader is None else f" by {self.leader}"

    async def look(self, observer: RunObserver, context: Callable[[], FaultContext]) -> Reached | None:
        if self.leader is None:
            count = observer.acks(self.partition)
            return reached_now(observer, count=count) if count >= self.count else None
        for node in await _nodes_of(self.leader, self.partition, observer, context):
            if (count := observer.acks_given(self.partition, node)) >= self.count:
                return reached_now(observer, count=count, leader=node)
        return None

    @property
    def woken_by_acks(self) -> bool:
        return self.leader is None  # one leader's acks are read from the trace, before a client has them

    def came_ns(self, acks: Acked, done_ns: int | None) -> int | None:
        times = acks(self.partition)
        return times[self.count - 1] if self.leader is None and self.count <= len(times) else None

    def refusals(self, untraced: str | None, not_shown: Collection[str]) -> Iterator[str]:
        if self.leader is not None and untraced is not None:
            yield f"one leader's acks are read from the trace: {untraced}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint(Moment):
    """The node (or role) meets the point `name`, which an earlier entry has armed, for the `count`-th time
    since then (1); `partition`, `epoch`, `peer` and `offset` must match where they are given."""

    at: ClassVar[str] = "failpoint"
    node: str
    name: str
    partition: int | None = None
    epoch: int | None = None
    peer: str | None = None
    offset: int | None = None
    count: int | None = None

    @property
    def asked_for(self) -> dict[str, Any]:
        """The name and conditions of the point that it waits for."""
        named = {key: getattr(self, key) for key in ("name", *CONDITIONS)}
        return {key: value for key, value in named.items() if value is not None}

    def may_be(self, point: Mapping[str, Any]) -> bool:
        """Whether this armed point can be the one: the same name, and no contradictory condition."""
        return point.get("name") == self.name and all(
            point.get(key, value) == value for key, value in self.asked_for.items())

    def words(self) -> str:
        where = "".join(f" {key} {value}" for key in ("epoch", "peer", "offset")
                        if (value := getattr(self, key)) is not None)
        often = f" {self.count} times" if (self.count or 1) > 1 else ""
        return f"{self.node} reaches {self.name}{where}{often}{_of_partition(self.partition)}"

    def asked(self) -> str:
        return f"asked at failpoint {self.name} of {self.node}"

    async def look(self, observer: RunObserver, context: Callable[[], FaultContext]) -> Reached | None:
        count = self.count or 1
        for node in await _nodes_of(self.node, self.partition or 0, observer, context):
            found = self.matches(node, await observer.met(node), context())
            if len(found) >= count:
                met = found[count - 1]
                detail = describe_met(met, count)
                return Reached(time_ns=observer.now_ns(), came_ns=met.time_ns, detail=detail)
        return None

    def matches(self, node: str, met: Sequence[FailpointHit], context: FaultContext) -> list[FailpointHit]:
        """The times that the node reached the point, since it was last armed for that."""
        since_ns = max((one.began_ns for one in context.faults.armed
                        if one.node == node and self.may_be(one.point)), default=None)
        return sorted((one for one in met if since_ns is not None and one.time_ns >= since_ns
                       and all(getattr(one, key) == value for key, value in self.asked_for.items())),
                      key=lambda one: one.time_ns)

    def nodes(self, view: View, context: FaultContext) -> Iterable[str]:
        return (self.node,) if self.node in context.nodes else ()

    def reasons(self, context: FaultContext) -> Iterator[str]:
        node, name = self.node, self.name
        arms = [one for one in context.faults.armed if one.node == node and self.may_be(one.point)]
        if not arms:
            yield (f"nothing is armed at {name} in {node}: a step such as `hold {node} at {name}` must come "
                   "before")
        elif not any(one.live for one in arms):
            yield f"what was armed at {name} in {node} was released, or {node} ended, before it got there"


def describe_met(met: FailpointHit, count: int) -> dict[str, Any]:
    """Describe it for the op's `reached`: `met` is when the node reached the point, by its own clock."""
    where = {key: getattr(met, key) for key in (*CONDITIONS, "action") if getattr(met, key) is not None}
    return {"node": met.node, "name": met.name, "met": met.time_ns, "count": count, **where}


# -- states -------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class WhenState(Moment):
    """The cluster is seen in a state, whose keys are the moment's."""

    at: ClassVar[str] = "state"
    looks_every_s: ClassVar[float] = POLL_S
    state: states.State

    @classmethod
    def read(cls, place: str, given: Mapping[str, Any], known: Known) -> Self:
        own = {key: part for key, part in given.items() if key not in ("at", _THEN)}
        then = read_as.number(f"{place}.{_THEN}", given[_THEN], known) if _THEN in given else None
        return cls(state=states.read_state(place, own, known), then_ns=then)

    def _fields_to_json(self) -> dict[str, Any]:
        return self.state.to_json()

    def words(self) -> str:
        keys = sorted(self.partitions())
        return self.state.text() + "".join(f" partition {key}" for key in keys if keys != [0])

    def asked(self) -> str:
        healthy = isinstance(self.state, states.Healthy)
        return "asked when the cluster is healthy" if healthy else "asked at an observed state"

    async def look(self, observer: RunObserver, context: Callable[[], FaultContext]) -> Reached | None:
        view, now = await observer.view(), context()
        if not self.state.holds(view, now):
            return None
        seen = [
            {**({} if node is None else {"replica": node}), "field": one.field,
             "value": None if value is UNKNOWN else list(value) if isinstance(value, tuple) else value}
            for one in self.observations() for node, value in one.observe(view, now)
        ]
        return reached_now(observer, view=view, **({"seen": seen} if seen else {}))

    def partitions(self) -> frozenset[int]:
        return frozenset(one.seen.partition for one in self.conditions() if one.seen.partition is not None)

    def conditions(self) -> Sequence[states.Condition]:
        return states.conditions_of(self.state)

    def observations(self) -> list[states.Observation]:
        return [one for condition in self.conditions() for one in condition.observations()]

    def nodes(self, view: View, context: FaultContext) -> Iterable[str]:
        return [node for one in self.observations() if one.needs_answer for node in one.nodes(view, context)]

    def refusals(self, untraced: str | None, not_shown: Collection[str]) -> Iterator[str]:
        for one in self.observations():
            if one.needs_answer and one.field in not_shown:
                yield f"its moment waits for the {one.field} of a replica, which this system does not show"

    @property
    def saw_healthy(self) -> bool:
        return self.then_ns is None and states.implies_healthy(self.state)


HEALTHY = WhenState(state=states.Healthy())


# -- several ------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Several(Moment):
    """What sequence and first have in common."""

    join: ClassVar[str]
    join_asked: ClassVar[str]
    of: tuple[Moment, ...]

    def _fields_to_json(self) -> dict[str, Any]:
        return {"of": [one.to_json() for one in self.of]}

    def words(self) -> str:
        return self.join.join(one.text() for one in self.of)

    def asked(self) -> str:
        return self.join_asked.join(filter(None, (one.asked() for one in self.of)))

    @property
    def planned_ns(self) -> int:
        return sum(one.planned_ns for one in self.of) + (self.then_ns or 0)

    def parts(self) -> Iterator[Moment]:
        for one in self.of:
            yield from one.parts()

    def partitions(self) -> frozenset[int]:
        return frozenset().union(*(one.partitions() for one in self.of))


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn(Several):
    """The moments in `of` one after the other, within one time-out."""

    at: ClassVar[str] = "sequence"
    join: ClassVar[str] = " then "
    join_asked: ClassVar[str] = " and then "

    @property
    def delay_ns(self) -> int:
        return (self.then_ns or 0) + (self.of[-1].then_ns or 0)

    def came_ns(self, acks: Acked, done_ns: int | None) -> int | None:
        came_ns = done_ns
        for one in self.of:
            part_ns = one.came_ns(acks, came_ns)
            if part_ns is None or came_ns is None:
                return None
            came_ns = max(came_ns, part_ns) + (one.then_ns or 0)
        return came_ns

    @property
    def saw_healthy(self) -> bool:
        return self.then_ns is None and self.of[-1].saw_healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOf(Several):
    """Whichever of the moments in `of` comes first."""

    at: ClassVar[str] = "first"
    join: ClassVar[str] = " or "
    join_asked: ClassVar[str] = " or "

    @property
    def saw_healthy(self) -> bool:
        return self.then_ns is None and all(one.saw_healthy for one in self.of)


KINDS: Mapping[str, type[Moment]] = {
    kind.at: kind for kind in (Time, Ack, After, Failpoint, WhenState, InTurn, FirstOf)}


# -- reading ------------------------------------------------------------------------------------------------

def read_moment(value: object, place: str = "moment", known: Known = ANYTHING) -> Moment:
    """Check a moment in its JSON form, and read it. UsageError names the bad part."""
    given = read_as.an_object(place, value, known)
    kind = KINDS[one_of(*KINDS)(f"{place}.at", given.get("at"), known)]
    return kind.read(place, given, known)


def _count(place: str, value: Any, known: Known) -> int:
    if read_as.number(place, value, known) == 0:
        refuse(place, "is 0, should be at least 1: the first is number 1")
    return int(value)


_OF = read_as.several(lambda at, item, known: read_moment(item, at, known), "moments")
_READERS: Mapping[str, Read] = {  # of the fields of all kinds
    "at": read_as.anything, "of": lambda *given: tuple(_OF(*given)), "count": _count,
    "partition": read_as.partition, "name": one_of(*POINTS), "node": read_as.node_or_role,
    "leader": read_as.node_or_role, "peer": read_as.node,
    **dict.fromkeys(("time", "after_ns", _THEN, "epoch", "offset"), read_as.number)}


# -- entries ------------------------------------------------------------------------------------------------

ACTS = frozenset({"send", "poll", "list_offsets", "wait"})  # entries that are no faults
MOMENT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a schedule. `nodes`: names, or roles, which are resolved when it strikes."""

    f: str
    nodes: tuple[str, ...] = ()
    moment: Moment | None = None  # None: at once
    timeout_s: float = MOMENT_TIMEOUT_S  # of the moment
    args: Mapping[str, Any] = field(default_factory=dict)  # grudge, unclean, sends, keep, ...: by f

    def text(self) -> str:
        """`kill n1 n2`."""
        return " ".join((self.f, *self.nodes))

    @property
    def partition(self) -> int:
        """The partition for which roles are resolved: the entry's, that of its ops or its point, else 0."""
        named = [self.args, *self.args.get("sends", ()), self.args.get("point", {})]
        partitions = (one["partition"] for one in named if "partition" in one)
        return int(next(partitions, next(iter(self.args.get("partitions", ())), 0)))


Schedule = tuple[Entry, ...]

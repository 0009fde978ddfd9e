"""States of a cluster that a moment can wait for: conditions on what one view shows, joined by all and any.

Rules
1. A field that is not visible meets no condition, not even !=.
2. A state is read strictly: an error names the place, and what is allowed there.

nemesis/README.md describes the JSON form, and nemesis/steps.lark the text.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.schedule import fields as read_as
from floodmark.harness.schedule.fields import Known, Read, fields_of, one_of, refuse, value_that
from floodmark.harness.schedule.views import EVERY, UNKNOWN, FaultContext, View, nodes_with_role

NUMBERS = ("leo", "hw", "epoch", "checkpointed_hw")
OF_BROKER = ("running", "unfenced")  # of a broker, not of its replicas; always visible
REPLICA_FIELDS = (*NUMBERS, "leader", "isr", *OF_BROKER)
CONTROLLER_FIELDS = ("leader", "epoch", "isr")
SAMENESS = ("==", "!=")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "contains": operator.contains, "lacks": lambda seen, value: value not in seen,
}


def operators_of(field: str) -> tuple[str, ...]:
    if field in NUMBERS:
        return (*SAMENESS, "<", "<=", ">", ">=")
    return (*SAMENESS, "contains", "lacks") if field == "isr" else SAMENESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A field of a replica (by a node, a role or every), or of the partition as the controller sees it."""

    field: str
    partition: int | None = None
    replica: str | None = None  # None: as the controller sees it

    def to_json(self) -> dict[str, Any]:
        named = {"partition": self.partition, "replica": self.replica, "field": self.field}
        return {key: value for key, value in named.items() if value is not None}

    def text(self) -> str:
        return self.field if self.replica is None else f"{self.replica}.{self.field}"

    def observe(self, view: View, context: FaultContext) -> Iterator[tuple[str | None, Any]]:
        """Yield (node, value) for each replica that it names; (None, value): the controller's."""
        key = -1 if self.partition is None else self.partition
        if self.replica is None:
            yield None, getattr(view.partitions.get(key), self.field, UNKNOWN)
        for node in self.nodes(view, context):
            if self.field in OF_BROKER:
                yield node, node in getattr(view, self.field)
            else:
                yield node, getattr(view.replicas.get((node, key)), self.field, UNKNOWN)

    def nodes(self, view: View, context: FaultContext) -> tuple[str, ...]:
        replica, partition = self.replica, self.partition or 0
        return () if replica is None else nodes_with_role(replica, partition, view, context)

    @property
    def needs_answer(self) -> bool:
        """Whether only the replica's broker can tell."""
        return self.replica is not None and self.field not in OF_BROKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """An observation, and what it is compared with: a literal (an ISR is a tuple) or another observation,
    which is of the same partition unless it names one."""

    seen: Observation
    how: str  # one of operators_of(seen.field)
    value: Observation | tuple[str, ...] | str | int | None

    def to_json(self) -> dict[str, Any]:
        value = self.value
        written = (value.to_json() if isinstance(value, Observation)
                   else list(value) if isinstance(value, tuple) else value)
        return {**self.seen.to_json(), "is": self.how, "value": written}

    def text(self) -> str:
        value = self.value
        shown = (value.text() if isinstance(value, Observation) else ", ".join(value)
                 if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else value)
        return f"{self.seen.text()} {self.how} {'nobody' if shown is None else shown}"

    def observations(self) -> tuple[Observation, ...]:
        other = self.value
        if not isinstance(other, Observation):
            return (self.seen,)
        return self.seen, replace(self.seen if other.partition is None else other,
                                  field=other.field, replica=other.replica)

    def holds(self, view: View, context: FaultContext) -> bool:
        seen, *other = ([value for _, value in one.observe(view, context)] for one in self.observations())
        wanted = other[0] if other else [self.value]
        return len(wanted) == 1 and bool(seen) and all(self._compare(one, wanted[0]) for one in seen)

    def _compare(self, seen: Any, value: Any) -> bool:
        if UNKNOWN in (seen, value):
            return False
        if isinstance(seen, tuple) and self.how in SAMENESS:  # an ISR
            seen, value = set(seen), set(value)
        return _COMPARE[self.how](seen, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """All of these states in one view, or any of them."""

    by: str  # all or any
    states: tuple["State", ...]

    def to_json(self) -> dict[str, Any]:
        return {self.by: [state.to_json() for state in self.states]}

    def text(self) -> str:
        if self.by == "any":
            return " or ".join(state.text() for state in self.states)
        return " and ".join(f"({state.text()})" if isinstance(state, Joined) and state.by == "any"
                            else state.text() for state in self.states)

    def holds(self, view: View, context: FaultContext) -> bool:
        return (all if self.by == "all" else any)(state.holds(view, context) for state in self.states)


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """Every broker is up and unfenced, every ISR full and known to its members, and no fault in force."""

    def to_json(self) -> dict[str, Any]:
        return {"healthy": True}

    def text(self) -> str:
        return "healthy"

    def holds(self, view: View, context: FaultContext) -> bool:
        return (not context.faults.lasting and {*context.nodes} <= view.running & view.unfenced
                and all(_isr_is_stable(partition, replicas, view)
                        for partition, replicas in context.replicas.items()))


State = Condition | Joined | Healthy


def _isr_is_stable(partition: int, replicas: tuple[str, ...], view: View) -> bool:
    """Whether the ISR is full, no change of it is proposed, and every member knows its leader. A broker that
    was bounced within its session is still in the ISR and unfenced until it registers (KIP-380), but it knows
    no leader. A proposed shrink may yet leave the leader alone: a power cut then loses acked records."""
    truth = view.partitions.get(partition)
    if truth is None or truth.leader is None or set(truth.isr) != set(replicas):
        return False
    own = [view.replicas.get((node, partition)) for node in replicas]
    return all(
        one is not None and one.leader in (truth.leader, UNKNOWN) and one.epoch in (truth.epoch, UNKNOWN)
        and one.proposing is not True
        for one in own
    )


def conditions_of(state: State) -> tuple[Condition, ...]:
    if isinstance(state, Joined):
        return tuple(one for part in state.states for one in conditions_of(part))
    return (state,) if isinstance(state, Condition) else ()


def implies_healthy(state: State) -> bool:
    if isinstance(state, Joined):
        return (any if state.by == "all" else all)(implies_healthy(part) for part in state.states)
    return isinstance(state, Healthy)


# -- reading ------------------------------------------------------------------------------------------------

def read_state(at: str, value: object, known: Known) -> State:
    given = read_as.an_object(at, value, known)
    if by := next((by for by in ("all", "any", "healthy") if by in given), None):
        found = fields_of(at, given, {by: _WHOLES[by]}, known)[by]
        return Healthy() if by == "healthy" else Joined(by=by, states=tuple(found))
    if missing := [key for key in ("field", "is", "value") if key not in given]:
        refuse(at, f"has no `{missing[0]}` (nor is it all, any or healthy)")
    seen = _read_observation(at, given, known, besides=("is", "value"))
    how = one_of(*operators_of(seen.field))(f"{at}.is", given["is"], known)
    literal, place = given["value"], f"{at}.value"
    if not isinstance(literal, dict):
        return Condition(seen=seen, how=how, value=_read_literal(place, seen.field, how, literal, known))
    if literal.get("replica") == EVERY:
        refuse(f"{place}.replica", "is every, should be one replica")
    same = {} if seen.partition is None else {"partition": seen.partition}
    other = _read_observation(place, {**same, **literal}, known)
    wanted = ("leader",) if how in ("contains", "lacks") else NUMBERS if seen.field in NUMBERS else (
        seen.field,)
    if other.field not in wanted:
        refuse(f"{place}.field",
               f"is {other.field}, with which {seen.field} cannot be compared; valid: {', '.join(wanted)}")
    return Condition(seen=seen, how=how, value=replace(other, partition=literal.get("partition")))


def _read_observation(at: str, given: Mapping[str, Any], known: Known, besides: tuple[str, ...] = ()
                      ) -> Observation:
    replica = given.get("replica")
    allowed = CONTROLLER_FIELDS if replica is None else REPLICA_FIELDS
    if replica is None and given.get("field") in REPLICA_FIELDS and given["field"] not in allowed:
        refuse(at, f"has no `replica`; the controller knows only {', '.join(allowed)}")
    readers: dict[str, Read] = {
        "partition": read_as.partition, "replica": _replica, "field": one_of(*allowed),
        **dict.fromkeys(besides, read_as.anything)}
    found = fields_of(at, {"field": None, **given}, readers, known)
    if found["field"] not in OF_BROKER and "partition" not in found:
        refuse(at, "has no `partition`")
    return Observation(partition=found.get("partition"), replica=replica, field=found["field"])


def _replica(at: str, value: Any, known: Known) -> Any:
    return value if value in (None, EVERY) else read_as.node_or_role(at, value, known)


def _read_literal(at: str, field: str, how: str, value: Any, known: Known
                  ) -> tuple[str, ...] | str | int | None:
    if field == "leader" and value is None:
        return None  # no leader
    if field == "isr" and how in SAMENESS:
        return tuple(read_as.names(read_as.node)(at, value, known))
    read = _NUMBER if field in NUMBERS else read_as.flag if field in OF_BROKER else read_as.node
    found: str | int = read(at, value, known)
    return found


_NUMBER = value_that(lambda value: isinstance(value, int) and not isinstance(value, bool),
                     "a number or an observation")
_WHOLES: Mapping[str, Read] = {
    **dict.fromkeys(("all", "any"), read_as.several(read_state, "states")),
    "healthy": value_that(lambda value: value is True, "true")}

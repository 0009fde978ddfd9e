"""States of a cluster that a moment can wait for: conditions on what one view shows, joined by all and any.

Rules
1. A field that is not visible meets no condition, not even !=.
2. A state is read strictly: an error names the place, and what is allowed there.

The JSON form; nemesis/steps.lark has the text:
  {"partition": p, "replica": who, "field": FIELD, "is": OP, "value": v}
                              a node's name, a role, or every: it must be true for each replica
  {"partition": p, "field": leader|epoch|isr, ...}       no replica: as the controller sees it
  {"all": [state, ...]}       all of them in one view; {"any": [state, ...]}: one of them
  {"healthy": true}
`value` may be another observation: {"replica": who, "field": ...}, and `partition` if it differs. FIELD is
one of leo, hw, epoch, checkpointed_hw, leader, isr, running, unfenced. OP is one of == != < <= > >=, or for
isr: == != (as sets), contains, lacks. `running` and `unfenced` (the controller considers it alive) belong to
brokers, are always visible, and need no partition.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from floodmark.harness.schedule import fields as read
from floodmark.harness.schedule.fields import Known, check_keys, fields_of, one_of, quoted, refuse
from floodmark.harness.schedule.roles import EVERY, Stage, players
from floodmark.harness.schedule.views import UNKNOWN, View

NUMBERS = ("leo", "hw", "epoch", "checkpointed_hw")
OF_BROKER = ("running", "unfenced")  # of a broker, not of its replicas; always visible
REPLICA_FIELDS = (*NUMBERS, "leader", "isr", *OF_BROKER)
CONTROLLER_FIELDS = ("leader", "epoch", "isr")
ORDERS = ("==", "!=", "<", "<=", ">", ">=")
SAMENESS = ("==", "!=")
MEMBERSHIPS = ("==", "!=", "contains", "lacks")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "contains": operator.contains, "lacks": lambda seen, value: value not in seen,
}
SHORT_CONDITIONS = 2  # of a state in short


def operators_of(field: str) -> tuple[str, ...]:
    """How this field can be compared."""
    return ORDERS if field in NUMBERS else MEMBERSHIPS if field == "isr" else SAMENESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A field of a replica (by a node's name, a role or every), or of the partition as the controller sees
    it."""

    field: str
    partition: int | None = None
    replica: str | None = None  # None: as the controller sees it

    def to_json(self) -> dict[str, Any]:
        named = {"partition": self.partition, "replica": self.replica, "field": self.field}
        return {key: value for key, value in named.items() if value is not None}

    def text(self) -> str:
        return self.field if self.replica is None else f"{self.replica}.{self.field}"

    def observe(self, view: View, stage: Stage) -> Iterator[tuple[str | None, Any]]:
        """Yield (node, value) for each replica that it names; (None, value): the controller's."""
        if self.replica is None:
            seen = None if self.partition is None else view.partitions.get(self.partition)
            yield None, UNKNOWN if seen is None else getattr(seen, self.field)
            return
        for node in self.nodes(view, stage):
            if self.field in OF_BROKER:
                yield node, node in getattr(view, self.field)
                continue
            own = None if self.partition is None else view.replicas.get((node, self.partition))
            yield node, UNKNOWN if own is None else getattr(own, self.field)

    def nodes(self, view: View, stage: Stage) -> tuple[str, ...]:
        """The nodes whose replicas it names."""
        return () if self.replica is None else players(self.replica, self.partition or 0, view, stage)

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
    keys: tuple[str, ...] = field(default=(), compare=False, repr=False)  # of the JSON that it was read from

    def to_json(self) -> dict[str, Any]:
        value = self.value
        written = (value.to_json() if isinstance(value, Observation)
                   else list(value) if isinstance(value, tuple) else value)
        found = {**self.seen.to_json(), "is": self.how, "value": written}
        return {key: found[key] for key in dict.fromkeys([*self.keys, *found]) if key in found}

    def text(self) -> str:
        match self.value:
            case Observation():
                value = self.value.text()
            case tuple():
                value = ", ".join(self.value)
            case bool():
                value = str(self.value).lower()
            case _:
                value = "nobody" if self.value is None else str(self.value)
        return f"{self.seen.text()} {self.how} {value}"

    def short(self) -> str:
        """As in a table: `n3 leo == leader's leo`."""
        value: object = self.value
        if isinstance(value, Observation):
            value = f"{value.replica or 'the controller'}'s {value.field}"
        elif isinstance(value, tuple):
            value = " ".join(value)
        whose = "" if self.seen.replica is None else f"{self.seen.replica} "
        return f"{whose}{self.seen.field} {self.how} {'nobody' if value is None else value}"

    def observations(self) -> tuple[Observation, ...]:
        """What it looks at, with its partition."""
        if not isinstance(self.value, Observation):
            return (self.seen,)
        other = self.value
        return self.seen, other if other.partition is not None else replace(
            other, partition=self.seen.partition)

    def holds(self, view: View, stage: Stage) -> bool:
        found = [value for _, value in self.seen.observe(view, stage)]
        value: Any = self.value
        if isinstance(value, Observation):
            wanted = [one for _, one in self.observations()[1].observe(view, stage)]
            if len(wanted) != 1 or wanted[0] is UNKNOWN:
                return False
            value = wanted[0]
        return bool(found) and all(_compare(seen, self.how, value) for seen in found)

    def conditions(self) -> Iterator["Condition"]:
        yield self

    @property
    def implies_healthy(self) -> bool:
        return False


def _compare(seen: Any, how: str, value: Any) -> bool:
    if seen is UNKNOWN:
        return False
    if isinstance(seen, tuple) and how in SAMENESS:  # an ISR
        seen, value = set(seen), set(value)
    return _COMPARE[how](seen, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """All of these states in one view, or any of them."""

    by: Literal["all", "any"]
    states: tuple["State", ...]

    def to_json(self) -> dict[str, Any]:
        return {self.by: [state.to_json() for state in self.states]}

    def text(self) -> str:
        if self.by == "any":
            return " or ".join(state.text() for state in self.states)
        return " and ".join(f"({state.text()})" if isinstance(state, Joined) and state.by == "any"
                            else state.text() for state in self.states)

    def short(self) -> str:
        shown = [state.short() if isinstance(state, Condition) else "..."
                 for state in self.states[:SHORT_CONDITIONS]]
        return "; ".join([*shown, "..."] if len(self.states) > SHORT_CONDITIONS else shown)

    def holds(self, view: View, stage: Stage) -> bool:
        return (all if self.by == "all" else any)(state.holds(view, stage) for state in self.states)

    def conditions(self) -> Iterator[Condition]:
        for state in self.states:
            yield from state.conditions()

    @property
    def implies_healthy(self) -> bool:
        return (any if self.by == "all" else all)(state.implies_healthy for state in self.states)


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """Every broker is up and unfenced, every ISR full and known to its members, and no fault in force."""

    def to_json(self) -> dict[str, Any]:
        return {"healthy": True}

    def text(self) -> str:
        return "healthy"

    def short(self) -> str:
        return self.text()

    def holds(self, view: View, stage: Stage) -> bool:
        return (
            not stage.ledger.lasting
            and all(node in view.running and node in view.unfenced for node in stage.nodes)
            and all(_isr_is_stable(partition, replicas, view)
                    for partition, replicas in stage.replicas.items())
        )

    def conditions(self) -> Iterator[Condition]:
        return iter(())

    @property
    def implies_healthy(self) -> bool:
        return True


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


# -- reading ------------------------------------------------------------------------------------------------


def read_state(at: str, value: object, known: Known) -> State:
    """Check a state, and read it."""
    fields = fields_of(at, value)
    by: Literal["all", "any"]
    for by in ("all", "any"):
        if by in fields:
            check_keys(at, fields, (by,))
            if not isinstance(fields[by], list) or not fields[by]:
                refuse(f"{at}.{by}", f"is {quoted(fields[by])}, should be an array of states")
            return Joined(by=by, states=tuple(read_state(f"{at}.{by}[{position}]", item, known)
                                              for position, item in enumerate(fields[by])))
    if "healthy" in fields:
        check_keys(at, fields, ("healthy",))
        if fields["healthy"] is not True:
            refuse(f"{at}.healthy", f"is {quoted(fields['healthy'])}, should be true")
        return Healthy()
    return _read_condition(at, fields, known)


def _read_condition(at: str, fields: Mapping[str, Any], known: Known) -> Condition:
    check_keys(at, fields, ("partition", "replica", "field", "is", "value"))
    for needed in ("field", "is", "value"):
        if needed not in fields:
            refuse(at, f"has no `{needed}` (nor is it all, any or healthy)")
    seen = _read_observation(at, fields, known)
    how = one_of(f"{at}.is", fields["is"], operators_of(seen.field))
    value, place = fields["value"], f"{at}.value"
    if not isinstance(value, dict):
        return Condition(seen=seen, how=how, keys=tuple(fields),
                         value=_read_literal(place, seen.field, how, value, known))
    check_keys(place, value, ("partition", "replica", "field"))
    if value.get("replica") == EVERY:
        refuse(f"{place}.replica", "is every, should be one replica")
    other = _read_observation(place, {"partition": seen.partition, **value}, known)
    wanted = NUMBERS if seen.field in NUMBERS else (seen.field,)
    if how in ("contains", "lacks"):
        wanted = ("leader",)
    if other.field not in wanted:
        refuse(f"{place}.field",
               f"is {other.field}, with which {seen.field} cannot be compared; valid: {', '.join(wanted)}")
    return Condition(seen=seen, how=how, keys=tuple(fields),
                     value=other if "partition" in value else replace(other, partition=None))


def _read_observation(at: str, fields: Mapping[str, Any], known: Known) -> Observation:
    replica, partition = fields.get("replica"), fields.get("partition")
    allowed = CONTROLLER_FIELDS if replica is None else REPLICA_FIELDS
    if replica is None and fields.get("field") in REPLICA_FIELDS and fields["field"] not in allowed:
        refuse(at, f"has no `replica`; the controller knows only {', '.join(allowed)}")
    field = one_of(f"{at}.field", fields.get("field"), allowed)
    if replica is not None and replica != EVERY:
        read.node_or_role(f"{at}.replica", replica, known)
    if field not in OF_BROKER and partition is None:
        refuse(at, "has no `partition`")
    if partition is not None:
        read.partition(f"{at}.partition", partition, known)
    return Observation(partition=partition, replica=replica, field=field)


def _read_literal(at: str, field: str, how: str, value: Any, known: Known
                  ) -> tuple[str, ...] | str | int | None:
    if field in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(at, f"is {quoted(value)}, should be a number or an observation")
        return value
    if field in OF_BROKER:
        return read.flag(at, value, known)
    if field == "isr" and how in SAMENESS:
        return tuple(read.names(at, value, known, roles=False))
    if field == "leader" and value is None:
        return None  # no leader
    return read.name(at, value, known, roles=False)

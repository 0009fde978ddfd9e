"""Writes a moment in the words of a scenario's steps; step_moments.py reads them. Pure."""

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]


def asked_words(moment: Fields) -> str:
    """`n1.leo == 3 and leader == n2 then 5ms`."""
    if moment["at"] in _JOINS:
        return _later(_JOINS[moment["at"]].join(map(asked_words, moment["of"])), moment)
    return _later(_ASKED[moment["at"]](moment), moment)


def _later(told: str, moment: Fields) -> str:
    return f"{told} then {time_words(moment['then_ns'])}" if "then_ns" in moment else told


def time_words(time_ns: int) -> str:
    """`200ms`, `2.5s`."""
    return f"{time_ns / 1e9:g}s" if time_ns >= 10**9 else f"{time_ns / 1e6:g}ms"


def _time(moment: Fields) -> str:
    told = f"time {time_words(moment.get('time', 0))}"
    return f"{told}, {time_words(moment['after_ns'])} after the one before" if "after_ns" in moment else told


def _after(moment: Fields) -> str:
    return time_words(moment["after_ns"])


def _ack(moment: Fields) -> str:
    by = f" by {moment['leader']}" if "leader" in moment else ""
    return f"ack {moment['count']}{by}{_of(moment)}"


def _failpoint(moment: Fields) -> str:
    where = "".join(f" {key} {moment[key]}" for key in ("epoch", "peer", "offset") if key in moment)
    often = f" {moment['count']} times" if moment.get("count", 1) > 1 else ""
    return f"{moment['node']} reaches {moment['name']}{where}{often}{_of(moment)}"


def _state(moment: Fields) -> str:
    partitions = sorted(partitions_of(moment))
    return _condition(moment) + "".join(f" partition {key}" for key in partitions if partitions != [0])


def _condition(state: Fields) -> str:
    if "all" in state:
        return " and ".join(f"({_condition(part)})" if "any" in part else _condition(part)
                            for part in state["all"])
    if "any" in state:
        return " or ".join(map(_condition, state["any"]))
    if "healthy" in state:
        return "healthy"
    return f"{_observation(state)} {state['is']} {_value(state['value'])}"


def _observation(fields: Fields) -> str:
    return f"{fields['replica']}.{fields['field']}" if "replica" in fields else str(fields["field"])


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return _observation(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "nobody" if value is None else str(value)


def _of(moment: Fields) -> str:
    return f" partition {moment['partition']}" if moment.get("partition", 0) else ""


def partitions_of(moment: Fields) -> set[int]:
    """Every partition that a moment names."""
    parts = [part for group in ("all", "any", "of") for part in moment.get(group, ())]
    own = {moment["partition"]} if moment.get("partition") is not None else set()
    return own.union(*map(partitions_of, parts))


_JOINS = {"sequence": " then ", "first": " or "}
_ASKED = {"time": _time, "after": _after, "ack": _ack, "failpoint": _failpoint, "state": _state}

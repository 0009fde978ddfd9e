"""Writes a moment as text, in the language of a scenario's steps, which step_moments.py reads. Pure."""

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]


def write_moment(moment: Fields) -> str:
    """`n1.leo == 3 and leader == n2 then 5ms`."""
    if moment["at"] in _JOINS:
        return _append_delay(_JOINS[moment["at"]].join(map(write_moment, moment["of"])), moment)
    return _append_delay(_WRITERS[moment["at"]](moment), moment)


def _append_delay(text: str, moment: Fields) -> str:
    return f"{text} then {write_time(moment['then_ns'])}" if "then_ns" in moment else text


def write_time(time_ns: int) -> str:
    """`200ms`, `2.5s`."""
    return f"{time_ns / 1e9:g}s" if time_ns >= 10**9 else f"{time_ns / 1e6:g}ms"


def _write_time_moment(moment: Fields) -> str:
    text = f"time {write_time(moment.get('time', 0))}"
    return f"{text}, {write_time(moment['after_ns'])} after the one before" if "after_ns" in moment else text


def _write_after(moment: Fields) -> str:
    return write_time(moment["after_ns"])


def _write_ack(moment: Fields) -> str:
    by = f" by {moment['leader']}" if "leader" in moment else ""
    return f"ack {moment['count']}{by}{_write_partition(moment)}"


def _write_failpoint(moment: Fields) -> str:
    where = "".join(f" {key} {moment[key]}" for key in ("epoch", "peer", "offset") if key in moment)
    often = f" {moment['count']} times" if moment.get("count", 1) > 1 else ""
    return f"{moment['node']} reaches {moment['name']}{where}{often}{_write_partition(moment)}"


def _write_state(moment: Fields) -> str:
    partitions = sorted(partitions_of(moment))
    return _write_condition(moment) + "".join(f" partition {key}" for key in partitions if partitions != [0])


def _write_condition(state: Fields) -> str:
    if "all" in state:
        return " and ".join(f"({_write_condition(part)})" if "any" in part else _write_condition(part)
                            for part in state["all"])
    if "any" in state:
        return " or ".join(map(_write_condition, state["any"]))
    if "healthy" in state:
        return "healthy"
    return f"{_write_observation(state)} {state['is']} {_write_value(state['value'])}"


def _write_observation(fields: Fields) -> str:
    return f"{fields['replica']}.{fields['field']}" if "replica" in fields else str(fields["field"])


def _write_value(value: object) -> str:
    if isinstance(value, Mapping):
        return _write_observation(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "nobody" if value is None else str(value)


def _write_partition(moment: Fields) -> str:
    return f" partition {moment['partition']}" if moment.get("partition", 0) else ""


def partitions_of(moment: Fields) -> set[int]:
    """Every partition that a moment names."""
    parts = [part for group in ("all", "any", "of") for part in moment.get(group, ())]
    own = {moment["partition"]} if moment.get("partition") is not None else set()
    return own.union(*map(partitions_of, parts))


_JOINS = {"sequence": " then ", "first": " or "}
_WRITERS = {
    "time": _write_time_moment, "after": _write_after, "ack": _write_ack, "failpoint": _write_failpoint,
    "state": _write_state,
}  # fmt: skip

"""Schedules to and from JSON (run.json's `schedule`, `--schedule FILE`), read strictly; faults told by place.

Rules
1. A key, an f, a role, a field, a failpoint or an OP that is not known is refused, and the refusal lists the
   valid ones.
2. write() then read() gives the same schedule; what read() takes, the striker can carry out.
3. The form itself is described where it is defined: harness/schedule/entry.py. Moments are read by
   schedule_moments.py, failpoints by schedule_points.py, words by schedule_words.py.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.faults import DISKS_BAD, DISKS_DAMAGED, FAULTS
from harness.run_location import read_at_most
from harness.schedule.entry import ACTS, MOMENT_TIMEOUT_S, Entry, Schedule
from harness.schedule.failpoint_fields import armed, every_moment_is_armed, fits, released
from harness.schedule.fields import (
    Known,
    fields_of,
    flag,
    is_number,
    name,
    names,
    number,
    one_of,
    only,
    partition,
    partitions,
    player,
    refuse,
    share,
    shown,
    whole,
    word,
)
from harness.schedule.moments import (
    CONTROLLER_FIELDS,
    MEMBERSHIPS,
    NUMBERS,
    ORDERS,
    REPLICA_FIELDS,
    SAMENESS,
    Read,
    moment,
)

__all__ = [
    "CONTROLLER_FIELDS", "MEMBERSHIPS", "NUMBERS", "ORDERS", "REPLICA_FIELDS", "SAMENESS", "load", "read",
    "write",
]  # fmt: skip
ACKS = ("all", "1", "0")
BYTES_AT_MOST = 1 << 30  # of a file: the run.json of a million partitions has a third of this
QUALITIES = ("loss", "delay_ms", "jitter_ms", "rate_kbit")
_COMMON = ("f", "nodes", "moment", "timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What an f takes."""

    nodes: str  # must, may, none
    args: Mapping[str, Read] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


# -- the front door -----------------------------------------------------------------------------------------

def load(path: Path, *, nodes: Sequence[str] | None = None,
         partitions: Sequence[int] | None = None) -> Schedule:
    """The schedule in a file: a JSON array of entries, or TOML with `[[schedule]]` tables (by its suffix)."""
    try:
        with path.open("rb") as file:  # a pipe may be meant; what never ends is not waited for
            data = read_at_most(file, BYTES_AT_MOST)
        if data is None:
            raise UsageError(f"the schedule {path} is larger than {BYTES_AT_MOST >> 20} MiB")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the schedule {path} cannot be read: {error}") from error
    try:
        told = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"the schedule {path} does not parse: {error}") from error
    if isinstance(told, dict) and "schedule" in told:  # TOML holds no bare array; a whole run.json
        told = told["schedule"]
    return read(told, source=str(path), nodes=nodes, partitions=partitions)


def read(data: object, *, source: str = "schedule", nodes: Sequence[str] | None = None,
         partitions: Sequence[int] | None = None) -> Schedule:
    """From JSON values to a schedule. Names are checked against `nodes` and `partitions` where given."""
    if not isinstance(data, list):
        refuse(source, f"is {shown(data)}, should be an array of entries")
    known = Known(nodes=None if nodes is None else tuple(nodes),
                  partitions=None if partitions is None else tuple(partitions))
    schedule = tuple(_entry(f"{source}: entry {position}", item, known) for position, item in enumerate(data))
    every_moment_is_armed(source, schedule)
    return schedule


def write(schedule: Schedule) -> list[dict[str, Any]]:
    """A schedule as JSON values: what need not be said is left out."""
    return [_written(entry) for entry in schedule]


def _written(entry: Entry) -> dict[str, Any]:
    line: dict[str, Any] = {"f": entry.f}
    if entry.nodes:
        line["nodes"] = list(entry.nodes)
    line.update(entry.args)
    if entry.moment is not None:
        line["moment"] = dict(entry.moment)
    if entry.timeout_s != MOMENT_TIMEOUT_S:
        line["timeout_s"] = entry.timeout_s
    return line


# -- one entry ----------------------------------------------------------------------------------------------

def _entry(at: str, item: object, known: Known) -> Entry:
    fields = fields_of(at, item)
    if "f" not in fields:
        refuse(at, "has no `f`: what is to be done")
    f = one_of(f"{at}: f", fields["f"], sorted(_FORMS))
    form, at = _FORMS[f], f"{at} ({f})"
    only(at, fields, (*_COMMON, *form.args), needs=form.needs)
    nodes = tuple(names(f"{at}: nodes", fields.get("nodes", []), known, roles=True))
    if form.nodes == "must" and not nodes:
        refuse(at, "has no `nodes`: who is meant, names or roles")
    if form.nodes == "none" and nodes:
        refuse(at, "takes no `nodes`")
    args = {key: form.args[key](f"{at}: {key}", fields[key], known) for key in fields if key not in _COMMON}
    _together(at, f, nodes, args)
    raw = fields.get("moment")
    when = None if raw is None else moment(f"{at}: moment", raw, known)
    timeout_s = fields.get("timeout_s", MOMENT_TIMEOUT_S)
    if not is_number(timeout_s) or not 0 < timeout_s <= 3600:
        refuse(f"{at}: timeout_s", f"is {shown(timeout_s)}, should be seconds, more than 0, at most 3600")
    return Entry(f=f, nodes=nodes, moment=when, timeout_s=float(timeout_s), args=args)


def _together(at: str, f: str, nodes: tuple[str, ...], args: Mapping[str, Any]) -> None:
    """What must, or must not, stand beside one another."""
    if f in ("cut", "packet", "reset") and bool(nodes) == ("grudge" in args):
        refuse(at, "needs either `grudge` (whom each node does not hear) or `nodes` (to be set apart)")
    if f == "packet":
        _qualities(at, args)
    if f == "power_cut" and "keep" in args and "keep_share" in args:
        refuse(at, "takes `keep` or `keep_share`, not both")
    if f in ("arm", "release"):
        fits(at, f, nodes, args.get("point", {}))


def _grudge(at: str, value: object, known: Known) -> dict[str, list[str]]:
    pairs = fields_of(at, value)
    if not pairs:
        refuse(at, "is empty: nothing would be cut")
    for hearer in pairs:
        name(at, hearer, known, roles=True, pseudo=True)
    return {hearer: names(f"{at}.{hearer}", unheard, known, roles=True, pseudo=True)
            for hearer, unheard in pairs.items()}


def _keep(at: str, value: object, known: Known) -> dict[str, int]:
    kept = fields_of(at, value)
    for key in kept:
        if not key.isdecimal():
            refuse(at, f"has the key {shown(key)}, should be a partition")
        partition(at, int(key), known)
    return {key: whole(f"{at}.{key}", leo) for key, leo in kept.items()}


def _sends(at: str, value: object, known: Known) -> list[dict[str, int]]:
    if not isinstance(value, list) or not value:
        refuse(at, f"is {shown(value)}, should be an array of micro-sends, at least one")
    sends = []
    for position, item in enumerate(value):
        place = f"{at}[{position}]"
        micro = fields_of(place, item)
        only(place, micro, ("partition", "value"), needs=("partition", "value"))
        sends.append({"partition": partition(f"{place}.partition", micro["partition"], known),
                      "value": whole(f"{place}.value", micro["value"])})
    if len({micro["partition"] for micro in sends}) > 1:
        refuse(at, "name several partitions: an op sends to one")
    return sends


def _acks(at: str, value: object, _: Known) -> str:
    return one_of(at, value, ACKS)


def _damaged(at: str, value: object, _: Known) -> str:
    return one_of(at, value, DISKS_DAMAGED)


def _bad(at: str, value: object, _: Known) -> str:
    return one_of(at, value, DISKS_BAD)


def _positive(at: str, value: object, _: Known) -> int:
    return whole(at, value, 1)


def _offset(at: str, value: object, _: Known) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < abs(value) < 2**40:
        refuse(at, f"is {shown(value)}, should be milliseconds, more or less than 0")
    return value


def _qualities(at: str, args: Mapping[str, Any]) -> None:
    """What packets suffer, at least one of them."""
    if not any(key in args for key in QUALITIES):
        refuse(at, f"says not what packets suffer: {', '.join(QUALITIES)}")
    if args.get("jitter_ms", 0) > args.get("delay_ms", 0):
        refuse(f"{at}: jitter_ms", "is more than `delay_ms`: nothing arrives before it was sent")


_ON_NODES = _Form(nodes="must", args={"partition": partition})
_FORMS: dict[str, _Form] = {
    **dict.fromkeys(("kill", "stop", "start", "pause", "resume", "expire"), _ON_NODES),
    "cut": _Form(nodes="may", args={"grudge": _grudge, "kind": word, "reset": flag, "partition": partition}),
    "heal": _Form(nodes="none"),
    "power_cut": _Form(nodes="must", args={"keep": _keep, "keep_share": share, "partition": partition}),
    "elect": _Form(nodes="none", args={"partitions": partitions, "unclean": flag, "leader": player}),
    "packet": _Form(nodes="may", args={"grudge": _grudge, "kind": word, "loss": share, "delay_ms": number,
                                       "jitter_ms": number, "rate_kbit": _positive, "partition": partition}),
    "reset": _Form(nodes="may", args={"grudge": _grudge, "kind": word, "partition": partition}),
    "disk": _Form(nodes="must", args={"kind": _damaged, "partition": partition}, needs=("kind",)),
    "bad_disk": _Form(nodes="must", args={"kind": _bad, "partition": partition}, needs=("kind",)),
    "clock": _Form(nodes="must", args={"offset_ms": _offset, "partition": partition}, needs=("offset_ms",)),
    "memory": _Form(nodes="must", args={"limit_mb": _positive, "partition": partition}, needs=("limit_mb",)),
    **dict.fromkeys(("mend_disk", "reset_clock", "free_memory"), _ON_NODES),
    "arm": _Form(nodes="must", args={"point": armed, "partition": partition}, needs=("point",)),
    "release": _Form(nodes="must", args={"point": released, "partition": partition}),
    "send": _Form(nodes="none", args={"sends": _sends, "acks": _acks, "to": player, "nowait": flag,
                                        "client": number}, needs=("sends",)),
    "poll": _Form(nodes="none", args={"partitions": partitions, "from": player, "offset": number,
                                      "client": number}, needs=("partitions",)),
    "list_offsets": _Form(nodes="none", args={"partitions": partitions, "from": player, "client": number},
                          needs=("partitions",)),
    "wait": _Form(nodes="none", needs=("moment",)),
}
assert set(_FORMS) == set(FAULTS) | ACTS, "an f that is a fault has no form here, or the other way round"

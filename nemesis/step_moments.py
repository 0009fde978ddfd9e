"""Parses the moments in a scenario's steps, such as `when ack 4 by n1 then 5ms`.

nemesis/scenario.py describes the language; the result is the JSON form of harness/schedule/entry.py.
"""

from typing import Any

from floodmark.harness.schedule.roles import EVERY, ROLES
from floodmark.harness.schedule.states import (
    CONTROLLER_FIELDS,
    MEMBERSHIPS,
    NUMBERS,
    OF_BROKER,
    ORDERS,
    REPLICA_FIELDS,
    SAMENESS,
)
from floodmark.nemesis.step_tokenizer import Cursor, is_name, is_number, is_time, refuse

FORMS = "ack K, healthy, 200ms, time 200ms, NODE reaches POINT, or a state (n1.leo == 3, leader == n2)"
_TRUTHS = {"true": True, "false": False}
Moment = dict[str, Any]


def read_moment(cursor: Cursor, partition: int) -> Moment:
    """Read one moment, or with `then` a sequence of them; `then 5ms`: this much after the one before."""
    found = [_read_alternatives(cursor, partition)]
    while cursor.skip("then"):
        if is_time(cursor.next):
            found[-1]["then_ns"] = found[-1].get("then_ns", 0) + cursor.time_ns("a time")
        else:
            found.append(_read_alternatives(cursor, partition))
    return found[0] if len(found) == 1 else {"at": "sequence", "of": found}


def _read_alternatives(cursor: Cursor, partition: int) -> Moment:
    """Read moments joined by `or`: the first of them that comes. If all are states, they are one state."""
    found = [_read_single(cursor, partition)]
    while cursor.skip("or"):
        found.append(_read_single(cursor, partition))
    if len(found) == 1:
        return found[0]
    if all(one["at"] == "state" for one in found):
        return {"at": "state", "any": [{k: v for k, v in one.items() if k != "at"} for one in found]}
    return {"at": "first", "of": found}


def _read_single(cursor: Cursor, partition: int) -> Moment:
    if cursor.next is None:
        refuse(f"has no moment: {FORMS}")
    if is_time(cursor.next) or is_number(cursor.next):
        return {"at": "after", "after_ns": cursor.time_ns("the moment")}
    if cursor.skip("time"):
        return {"at": "time", "time": cursor.time_ns("a time")}
    if cursor.next == "ack" and is_number(cursor.after):
        return _read_ack(cursor, partition)
    if cursor.after == "reaches":
        return _read_failpoint(cursor)
    return {"at": "state", **_read_conjunction(cursor, partition)}


def _read_ack(cursor: Cursor, partition: int) -> Moment:
    cursor.expect("ack")
    fields: Moment = {"at": "ack", "partition": partition, "count": cursor.number("the count of acks")}
    if cursor.skip("by"):
        fields["leader"] = cursor.name("the node that acks")
    return fields


def _read_failpoint(cursor: Cursor) -> Moment:
    fields: Moment = {"at": "failpoint", "node": cursor.name("the node that reaches it")}
    cursor.expect("reaches")
    fields["name"] = cursor.name("the failpoint")
    while (word := cursor.next) in ("epoch", "peer", "offset"):
        cursor.take("a condition")
        assert word is not None
        fields[word] = cursor.name(word) if word == "peer" else cursor.number(word)
    if is_number(cursor.next):
        fields["count"] = cursor.number("how often")
        cursor.expect("times")
    return fields


# -- states -------------------------------------------------------------------------------------------------

def _read_conjunction(cursor: Cursor, partition: int) -> Moment:
    parts = [_read_state(cursor, partition)]
    while cursor.skip("and"):
        parts.append(_read_state(cursor, partition))
    return parts[0] if len(parts) == 1 else {"all": parts}


def _read_state(cursor: Cursor, partition: int) -> Moment:
    if cursor.skip("healthy"):
        return {"healthy": True}
    seen = _read_observation(cursor.name(f"a moment ({FORMS})"))
    field = seen["field"]
    orders = ORDERS if field in NUMBERS else MEMBERSHIPS if field == "isr" else SAMENESS
    seen["is"] = cursor.one_of(f"what follows {field}", orders)
    if field not in OF_BROKER or seen.get("replica") in (*ROLES, EVERY):
        seen["partition"] = partition
    return {**seen, "value": _read_value(cursor, field, seen["is"])}


def _read_observation(word: str) -> Moment:
    """Read an observation: `n1.leo` is a replica's field, `leader` the controller's."""
    who, dot, field = word.partition(".")
    if not dot:
        if word not in CONTROLLER_FIELDS:
            refuse(f"does not know the moment {word!r}; there are: {FORMS}; the controller knows "
                   f"{', '.join(CONTROLLER_FIELDS)}, a node {', '.join(REPLICA_FIELDS)}")
        return {"field": word}
    if field not in REPLICA_FIELDS:
        refuse(f"does not know the field {field!r} of {who}; valid: {', '.join(REPLICA_FIELDS)}")
    return {"replica": who, "field": field}


def _read_value(cursor: Cursor, field: str, how: str) -> object:
    if is_number(cursor.next):
        return cursor.number("a number")
    if field in OF_BROKER:
        return _TRUTHS[cursor.one_of(f"what {field} is", _TRUTHS)]
    token = cursor.next
    if is_name(token) and (token in CONTROLLER_FIELDS or "." in (token or "")):
        return _read_observation(cursor.name("an observation"))
    if field in NUMBERS:
        refuse(f"compares {field} with {token!r}, should be a number, or an observation (n1.leo, epoch)")
    if field == "leader" and cursor.skip("nobody"):
        return None
    if field == "isr" and how in SAMENESS:
        return cursor.names("a member of the ISR")
    return cursor.name("a node")

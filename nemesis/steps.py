"""Parses a scenario's steps by the grammar in steps.lark: each line is one act, and becomes entries of a
schedule in their JSON form.

This module only parses; harness/schedule/json_form.py checks the names: nodes, partitions, failpoints and
their actions. Errors list the valid words. Importing lark takes its time: only who reads steps imports this.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken
from lark.exceptions import VisitError

from floodmark.harness.errors import refuse
from floodmark.harness.faults import ACTIONS, FAULTS
from floodmark.harness.schedule.states import (
    CONTROLLER_FIELDS,
    NUMBERS,
    OF_BROKER,
    REPLICA_FIELDS,
    SAMENESS,
    operators_of,
)
from floodmark.harness.schedule.views import EVERY, ROLES

Json = dict[str, Any]
Parts = list[Any]  # what the parts of a rule gave
GRAMMAR = Path(__file__).with_name("steps.lark")
MOMENTS = "ack K, healthy, 200ms, time 200ms, NODE reaches POINT, or a state (n1.leo == 3, leader == n2)"
_NS = {"ms": 1_000_000, "s": 1_000_000_000}
_TRUTHS = {"true": True, "false": False}
_OF_POINT = "peer NODE, epoch E, offset O, times K, skip K, for TIME, broker"
VERBS: Mapping[str, str] = {  # what each takes besides `when MOMENT` and `within TIME`
    "send": "to NODE, acks all|1|0, nowait, client K, together", "poll": "from NODE, offset O, client K",
    "list_offsets": "from NODE, client K", "wait": "",
    **{f: fault.step for f, fault in FAULTS.items() if fault.step is not None},
    **dict.fromkeys(ACTIONS, _OF_POINT),
}
_AFTER = {"within": "the time-out", "peer": "the peer", "to": "the node to send to",
          "by": "the node that acks"}  # what should follow these words
_NAMED = {"NODE": "a node", "POINT": "the failpoint"}
_COUNTED = {"VALUE": "the value to send", "LAST": "the last value", "LEO": "the LEO to keep",
            "COUNT": "the count of acks", "TIMES": "times", "SKIP": "skip", "EPOCH": "epoch",
            "OFFSET": "offset", "CLIENT": "the client's number", "OFTEN": "how often", "NUMBER": "a number"}


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR.read_text(encoding="utf-8"), parser="lalr")


def read_step(line: str) -> list[Json]:
    """Parse one line; an empty line, or a comment alone, gives no entries. Raises Refused."""
    text = line.partition("#")[0].strip()
    if re.search(r"(?<![=!<>])=(?!=)", text):
        state = re.search(r"\b(wait|when)\b", text)
        should = "comparison should be, which is ==" if state else "space should be"
        refuse(f"has = where a {should}: {text}")
    named = re.search(r"\bpartition\b(?:\s+(\d+)\b)?", text)
    if named is not None and named[1] is None:
        refuse("has partition without a number after it")
    partition = None if named is None else int(named[1])
    text = text if named is None else text[:named.start()] + text[named.end():]
    if not text.strip():
        return []
    verb = re.split(r"[\s,]", text.lstrip(), maxsplit=1)[0]
    if verb not in VERBS:
        refuse(f"the verb is {verb!r}; valid: {', '.join(VERBS)}")
    try:
        return _Step(partition).transform(_parser().parse(text))
    except UnexpectedCharacters as error:
        refuse(f"unknown character {error.char!r}: {text}")
    except UnexpectedToken as error:
        _refuse_token(error, verb, text)
    except VisitError as error:
        raise error.orig_exc from None


class _Step(Transformer[Token, list[Json]]):
    """Makes the entries of one parsed line. Each rule gives a part of them; a rule that has no method here is
    an act, or a key of the JSON form with its value, or true. partition: that of the line, if it names
    one."""

    VALUE = LAST = LEO = COUNT = OFTEN = TIMES = SKIP = EPOCH = OFFSET = CLIENT = NUMBER = int
    NODE = POINT = HOW = ACKS = STRIKE = ARM = str

    def __init__(self, partition: int | None) -> None:
        super().__init__()
        self._named = {} if partition is None else {"partition": partition}
        self._partition = partition or 0

    def __default__(self, data: str, children: Parts, meta: object) -> list[Json] | Json:
        f = str(data)
        if f in ("poll", "list_offsets", "elect"):
            return [{"f": f, "partitions": [self._partition], **_joined(children)}]
        if f in VERBS:
            kind = {"kind": FAULTS[f].args["kind"][0]} if FAULTS[f].needs == ("kind",) else {}
            where = {} if FAULTS[f].on == "cluster" else self._named
            return [{"f": f, **kind, **_joined(children), **where}]
        return {f: children[0] if children else True}

    def TIME(self, token: Token) -> int:
        """In ns."""
        unit = "ms" if token.endswith("ms") else "s"
        return round(float(token.removesuffix(unit)) * _NS[unit])

    def start(self, parts: Parts) -> list[Json]:
        found = parts.pop(0) if isinstance(parts[0], list) else [{"f": "wait"}]
        found[0].update(_joined(parts))
        return found

    def within(self, parts: Parts) -> Json:
        return {"timeout_s": parts[0] / 1e9}

    # -- acts

    def send(self, parts: Parts) -> list[Json]:
        values, options = parts[0], _joined(parts[1:])
        together = options.pop("together", False)
        sends = [{"partition": self._partition, "value": value} for value in values]
        return [{"f": "send", "sends": op, **options}
                for op in ([sends] if together else [[one] for one in sends])]

    def values(self, parts: Parts) -> list[int]:
        return [value for part in parts for value in part]

    def range(self, parts: Parts) -> range:
        first, last = parts[0], parts[-1]
        if last < first:
            refuse(f"sends {first}..{last}, which is empty: the lower value comes first")
        return range(first, last + 1)

    def list_offsets(self, parts: Parts) -> list[Json]:
        if "offset" in _joined(parts):
            refuse("list_offsets takes no offset: it asks for the end")
        return self.__default__("list_offsets", parts, None)  # type: ignore[return-value]

    def strike(self, parts: Parts) -> list[Json]:
        return [{"f": parts[0], **parts[1], **self._named}]

    def nodes(self, parts: Parts) -> Json:
        return {"nodes": parts}

    def one_way(self, parts: Parts, word: str = "hears not") -> Json:
        ones, others = (part["nodes"] for part in parts)
        return {"kind": f"{' '.join(ones)} {word} {' '.join(others)}", "grudge": dict.fromkeys(ones, others)}

    def both_ways(self, parts: Parts) -> Json:
        one_way, back = self.one_way(parts, "from"), self.one_way(parts[::-1])
        return {**one_way, "grudge": {**one_way["grudge"], **back["grudge"]}}

    def keep_leos(self, parts: Parts) -> Json:
        return {"keep": {str(key): leo for key, leo in enumerate(parts, start=self._partition)}}

    def arm(self, parts: Parts) -> list[Json]:
        action, nodes, name, *options = parts
        point = {"name": name, "action": action, **_joined(options), **self._named}
        return [{"f": "arm", **nodes, "point": point, **self._named}]

    def for_ms(self, parts: Parts) -> Json:
        return {"for_ms": parts[0] // _NS["ms"]}

    def scope(self, parts: Parts) -> Json:
        return {"scope": "broker"}

    def release(self, parts: Parts) -> list[Json]:
        point = {**_joined(parts[1:]), **self._named}
        return [{"f": "release", **parts[0], **({"point": point} if point else {}), **self._named}]

    # -- moments

    def moment(self, parts: Parts) -> Json:
        found: list[Json] = []
        for one in parts:
            if found and one["at"] == "after":  # `then TIME`
                found[-1]["then_ns"] = found[-1].get("then_ns", 0) + one["after_ns"]
            else:
                found.append(one)
        return {"moment": found[0] if len(found) == 1 else {"at": "sequence", "of": found}}

    def either(self, parts: Parts) -> Json:
        """The first that comes; if all are states, they are one state."""
        if len(parts) == 1:
            return dict(parts[0])
        if all(one["at"] == "state" for one in parts):
            return {"at": "state", "any": [{k: v for k, v in one.items() if k != "at"} for one in parts]}
        return {"at": "first", "of": parts}

    def after(self, parts: Parts) -> Json:
        return {"at": "after", "after_ns": parts[0]}

    def time(self, parts: Parts) -> Json:
        return {"at": "time", "time": parts[0]}

    def ack(self, parts: Parts) -> Json:
        return {"at": "ack", "partition": self._partition, "count": parts[0], **_joined(parts[1:])}

    def failpoint(self, parts: Parts) -> Json:
        node, name, *conditions = parts
        return {"at": "failpoint", "node": node, "name": name, **_joined(conditions), **self._named}

    def states(self, parts: Parts) -> Json:
        return {"at": "state", **(parts[0] if len(parts) == 1 else {"all": parts})}

    def condition(self, parts: Parts) -> Json:
        seen, how = _observation(parts[0]), parts[1]
        field = seen["field"]
        if how not in operators_of(field):
            refuse(f"what follows {field} is {how!r}; valid: {', '.join(operators_of(field))}")
        of_replica = field not in OF_BROKER or seen.get("replica") in (*ROLES, EVERY)
        where = {"partition": self._partition} if of_replica else {}
        return {**seen, "is": how, **where, "value": _compared(parts[2], field, how)}

    def value(self, parts: Parts) -> Any:
        return parts[0]


def _joined(parts: Iterable[Json]) -> Json:
    return {key: value for part in parts for key, value in part.items()}


def _compared(value: Json | int, field: str, how: str) -> object:
    """What the field is compared with."""
    if isinstance(value, int):
        return value
    words = value["nodes"]
    if len(words) > 1 and not (field == "isr" and how in SAMENESS):
        refuse(f"compares {field} with {', '.join(words)}, should be one")
    if field in OF_BROKER:
        if words[0] not in _TRUTHS:
            refuse(f"what {field} is is {words[0]!r}; valid: {', '.join(_TRUTHS)}")
        return _TRUTHS[words[0]]
    if words[0] in CONTROLLER_FIELDS or "." in words[0]:
        return _observation(words[0])
    if field in NUMBERS:
        refuse(f"compares {field} with {words[0]!r}, should be a number, or an observation (n1.leo, epoch)")
    if field == "leader" and words[0] == "nobody":
        return None
    return words if field == "isr" and how in SAMENESS else words[0]


def _observation(word: str) -> Json:
    """Read an observation: `n1.leo` is a replica's field, `leader` the controller's."""
    who, dot, field = word.partition(".")
    if not dot:
        if word not in CONTROLLER_FIELDS:
            refuse(f"does not know the moment {word!r}; there are: {MOMENTS}; the controller knows "
                   f"{', '.join(CONTROLLER_FIELDS)}, a node {', '.join(REPLICA_FIELDS)}")
        return {"field": word}
    if field not in REPLICA_FIELDS:
        refuse(f"does not know the field {field!r} of {who}; valid: {', '.join(REPLICA_FIELDS)}")
    return {"replica": who, "field": field}


# -- what is wrong ------------------------------------------------------------------------------------------

def _refuse_token(error: UnexpectedToken, verb: str, text: str) -> NoReturn:
    """Say what is wrong with the first token that the grammar does not allow there."""
    word = None if error.token.type == "$END" else str(error.token)
    shown = "nothing" if word is None else repr(word)
    before = text[:error.token.start_pos] if word is not None else text
    allowed = error.accepts or error.expected
    if "HEALTHY" in allowed:
        if word is None:
            refuse(f"has no moment: {MOMENTS}")
        refuse(f"the moment is {word!r}, should be a time: 200ms or 2.5s" if word.isdecimal()
               else f"a moment ({MOMENTS}) is {word!r}, should be a name")
    if "HOW" in allowed:
        field = _observation(before.split()[-1])["field"]
        refuse(f"ends where what follows {field} should be" if word is None else
               f"what follows {field} is {word!r}; valid: {', '.join(operators_of(field))}")
    if allowed == {"NODE"} and before.strip() == verb:
        refuse(f"has no node to {verb}: names or roles ({', '.join(sorted(ROLES))})")
    compared = re.search(r"([A-Za-z][\w.-]*)\s*([=!<>]+|contains|lacks)\s*$", before)
    if "NUMBER" in allowed and compared:
        refuse(f"compares {compared[1]} with {shown}, should be a number, a name, or an observation "
               "(n1.leo, epoch)")
    slots = {**_NAMED, **_COUNTED, "TIME": "a time", "ACKS": "acks"}
    for slot in sorted(allowed & slots.keys()) if "$END" not in allowed else ():
        should = {"ACKS": "; valid: all, 1, 0", "TIME": ", should be a time: 200ms or 2.5s"}.get(
            slot, ", should be a name" if slot in _NAMED else ", should be a whole number")
        what = _AFTER.get(before.split()[-1], slots[slot])
        refuse(f"ends where {what} should be" if word is None else f"{what} is {word!r}{should}")
    names = re.search(r"([A-Za-z][\w.-]*(\s*,\s*[A-Za-z][\w.-]*)*)\s*$", before)
    if names and "COMMA" in allowed and word is not None and (word in ROLES or re.fullmatch(r"n\d+", word)):
        found = [*re.split(r"\s*,\s*", names[1]), word]
        refuse(f"has {found[-2]!r} and {word!r} without a comma between them: {', '.join(found)}")
    if "$END" not in allowed:
        wanted = _parser().get_terminal(min(allowed - {"COMMA"})).pattern.value
        refuse(f"has {shown} where {wanted!r} should be")
    valid = [] if verb == "wait" else ["when MOMENT", "within TIME", *filter(None, [VERBS[verb]])]
    refuse(f"has {shown} at a wrong place" + (f"; valid there: {', '.join(valid)}" if valid else ""))

"""Parses a scenario's steps by the grammar in steps.lark: each line is one act, and becomes entries of a
schedule in their JSON form.

This module only parses; harness/schedule/json_form.py checks the names: nodes, partitions, failpoints and
their actions. Errors list the valid words. Importing lark takes its time: only who reads steps imports this.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

from floodmark.harness.schedule.roles import EVERY, ROLES
from floodmark.harness.schedule.states import (
    CONTROLLER_FIELDS,
    NUMBERS,
    OF_BROKER,
    REPLICA_FIELDS,
    SAMENESS,
    operators_of,
)
from floodmark.nemesis.refused import refuse

Json = dict[str, Any]
Node = Tree[Token]
GRAMMAR = Path(__file__).with_name("steps.lark")
MOMENTS = "ack K, healthy, 200ms, time 200ms, NODE reaches POINT, or a state (n1.leo == 3, leader == n2)"
_NS = {"ms": 1_000_000, "s": 1_000_000_000}
_TRUTHS = {"true": True, "false": False}
_OF_POINT = "peer NODE, epoch E, offset O, times K, skip K, for TIME, broker"
VERBS: Mapping[str, str] = {  # what each takes besides `when MOMENT` and `within TIME`
    "send": "to NODE, acks all|1|0, nowait, client K, together", "poll": "from NODE, offset O, client K",
    "list_offsets": "from NODE, client K", "wait": "",
    "kill": "", "stop": "", "start": "", "pause": "", "resume": "", "expire": "",
    "cut": "from NODES, hears-not NODES, reset", "heal": "", "power_cut": "keep LEO, ...", "disk": "",
    "elect": "unclean",
    "report": _OF_POINT, "crash": _OF_POINT, "hold": _OF_POINT, "delay": _OF_POINT, "drop": _OF_POINT,
    "duplicate": _OF_POINT, "release": "at POINT, peer NODE, through epoch E, keep",
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
        return _Step(partition).entries(_parser().parse(text))
    except UnexpectedCharacters as error:
        refuse(f"unknown character {error.char!r}: {text}")
    except UnexpectedToken as error:
        _refuse_token(error, verb, text)


class _Step:
    """Makes the entries of one parsed line. partition: that of the line, if it names one."""

    def __init__(self, partition: int | None) -> None:
        self._named = {} if partition is None else {"partition": partition}
        self._partition = partition or 0

    def entries(self, line: Node) -> list[Json]:
        found: list[Json] = [{"f": "wait"}]
        waits: Json = {}
        for part in map(_tree, line.children):
            if part.data == "moment":
                waits["moment"] = self._moment(part)
            elif part.data == "within":
                waits["timeout_s"] = _value(part.children[0]) / 1e9
            else:
                found = self._act(part)
        found[0].update(waits)
        return found

    # -- acts -----------------------------------------------------------------------------------------------

    def _act(self, act: Node) -> list[Json]:
        f, words = str(act.data), [_value(child) for child in act.children if isinstance(child, Token)]
        parts = {str(part.data): part for part in act.children if isinstance(part, Tree)}
        nodes = {"nodes": _values(parts.pop("nodes"))} if "nodes" in parts else {}
        if f == "send":
            return self._sends(_ranges(parts.pop("values")), _options(parts))
        if f == "cut":
            return [{"f": f, **_cut(nodes["nodes"], parts), **self._named}]
        if f == "power_cut":
            leos = enumerate(_values(parts["keep_leo"]) if parts else (), start=self._partition)
            keep = {str(key): leo for key, leo in leos}
            return [{"f": f, **nodes, **({"keep": keep} if keep else {}), **self._named}]
        if f == "elect":
            led = {"leader": words[0]} if words else {}
            return [{"f": f, "partitions": [self._partition], **led, **_options(parts)}]
        if f in ("poll", "list_offsets"):
            if f == "list_offsets" and "offset" in parts:
                refuse("list_offsets takes no offset: it asks for the end")
            return [{"f": f, "partitions": [self._partition], **_options(parts)}]
        if f == "disk":
            return [{"f": f, **nodes, "kind": "wiped", **self._named}]
        if f == "strike":
            return [{"f": words[0], **nodes, **self._named}]
        if f == "arm":
            point = {"name": words[1], "action": words[0], **_options(parts), **self._named}
            return [{"f": f, **nodes, "point": point, **self._named}]
        if f == "heal":
            return [{"f": f}]
        assert f == "release", f
        point = {**_options(parts), **self._named}
        return [{"f": f, **nodes, **({"point": point} if point else {}), **self._named}]

    def _sends(self, values: Sequence[int], options: Json) -> list[Json]:
        together = options.pop("together", False)
        sends = [{"partition": self._partition, "value": value} for value in values]
        return [{"f": "send", "sends": op, **options}
                for op in ([sends] if together else [[one] for one in sends])]

    # -- moments --------------------------------------------------------------------------------------------

    def _moment(self, moment: Node) -> Json:
        found: list[Json] = []
        for part in map(_tree, moment.children):
            one = self._either(part)
            if found and one["at"] == "after":  # `then TIME`
                found[-1]["then_ns"] = found[-1].get("then_ns", 0) + one["after_ns"]
            else:
                found.append(one)
        return found[0] if len(found) == 1 else {"at": "sequence", "of": found}

    def _either(self, either: Node) -> Json:
        """The first that comes; if all are states, they are one state."""
        found = [self._single(_tree(part)) for part in either.children]
        if len(found) == 1:
            return found[0]
        if all(one["at"] == "state" for one in found):
            return {"at": "state", "any": [{k: v for k, v in one.items() if k != "at"} for one in found]}
        return {"at": "first", "of": found}

    def _single(self, single: Node) -> Json:
        at, words = str(single.data), [_value(child) for child in single.children if isinstance(child, Token)]
        if at == "states":
            states = [self._state(_tree(part)) for part in single.children]
            return {"at": "state", **(states[0] if len(states) == 1 else {"all": states})}
        if at == "failpoint":
            conditions = {str(part.data): part for part in map(_tree, single.children[2:])}
            count = {"count": _value(conditions.pop("often").children[0])} if "often" in conditions else {}
            return {"at": at, "node": words[0], "name": words[1], **_options(conditions), **count,
                    **self._named}
        if at == "ack":
            return {"at": at, "partition": self._partition, "count": words[0],
                    **({"leader": words[1]} if words[1:] else {})}
        return {"at": at, {"after": "after_ns", "time": "time"}[at]: words[0]}

    def _state(self, state: Node) -> Json:
        if state.data == "healthy":
            return {"healthy": True}
        seen, how = _observation(str(state.children[0])), str(state.children[1])
        field = seen["field"]
        if how not in operators_of(field):
            _refuse_operator(field, how)
        if field not in OF_BROKER or seen.get("replica") in (*ROLES, EVERY):
            seen["partition"] = self._partition
        return {**seen, "is": how, "value": _compared(_tree(state.children[2]).children[0], field, how)}


def _compared(value: Token | Node, field: str, how: str) -> object:
    """What the field is compared with."""
    if isinstance(value, Token):
        return _value(value)
    words = _values(value)
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


def _cut(nodes: list[str], parts: Mapping[str, Node]) -> Json:
    reset = {"reset": True} if "reset" in parts else {}
    if "both_ways" in parts:
        others = _values(_tree(parts["both_ways"].children[0]))
        return {"kind": f"{' '.join(nodes)} from {' '.join(others)}",
                "grudge": {**dict.fromkeys(nodes, others), **dict.fromkeys(others, nodes)}, **reset}
    if "one_way" in parts:
        others = _values(_tree(parts["one_way"].children[0]))
        return {"kind": f"{' '.join(nodes)} hears not {' '.join(others)}",
                "grudge": dict.fromkeys(nodes, others), **reset}
    return {"nodes": nodes, **reset}


def _options(parts: Mapping[str, Node]) -> Json:
    """The options of an act, or the conditions of a failpoint, by the names that they have in JSON."""
    found = {name: _value(part.children[0]) if part.children else True for name, part in parts.items()}
    if "for" in found:
        found = {**found, "for_ms": found["for"] // _NS["ms"]}
    named = {"at": "name", "broker": "scope"}
    return {named.get(name, name): "broker" if name == "broker" else value
            for name, value in found.items() if name != "for"}


def _ranges(values: Node) -> list[int]:
    found: list[int] = []
    for one in map(_tree, values.children):
        first, last = _value(one.children[0]), _value(one.children[-1])
        if last < first:
            refuse(f"sends {first}..{last}, which is empty: the lower value comes first")
        found += range(first, last + 1)
    return found


def _tree(part: Token | Node) -> Node:
    assert isinstance(part, Tree), part
    return part


def _values(part: Node) -> list[Any]:
    return [_value(child) for child in part.children]


def _value(token: Token | Node) -> Any:
    """A number, a time in ns, or a word."""
    assert isinstance(token, Token), token
    if token.type in _COUNTED:
        return int(token)
    if token.type != "TIME":
        return str(token)
    unit = "ms" if token.endswith("ms") else "s"
    return round(float(token.removesuffix(unit)) * _NS[unit])


# -- what is wrong ------------------------------------------------------------------------------------------


def _refuse_operator(field: str, how: str) -> NoReturn:
    refuse(f"what follows {field} is {how!r}; valid: {', '.join(operators_of(field))}")


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
        if word is None:
            refuse(f"ends where what follows {field} should be")
        _refuse_operator(field, word)
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

"""Reads a scenario's steps: one line, one act; each becomes entries of a schedule (JSON values).

The language is described where scenarios are: nemesis/scenario.py. This reads the words;
harness/schedule/json_form.py checks what they name: nodes, partitions, failpoints and what each may do.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from floodmark.harness.schedule.entry import ROLES
from floodmark.harness.schedule.failpoints import ACTIONS
from floodmark.nemesis.step_moments import moment
from floodmark.nemesis.step_tokenizer import Cursor, is_name, is_number, refuse, tokens

Entry = dict[str, Any]
ON_NODES = ("kill", "stop", "start", "pause", "resume", "expire")


def entries(line: str) -> list[Entry]:
    """What one line means; an empty line, or only a comment: nothing. Refused says what is off."""
    words, partition = _without_partition(tokens(line))
    if not words:
        return []
    cursor = Cursor(words)
    verb = cursor.one_of("the verb", VERBS)
    found = VERBS[verb](verb, cursor, 0 if partition is None else partition)
    if partition is not None and verb in (*ON_NODES, "power_cut", "cut"):
        found[0]["partition"] = partition  # for whose roles
    if partition is not None and verb in (*ACTIONS, "release"):
        found[0].setdefault("point", {})["partition"] = partition
    told: Entry = {}
    if verb == "wait":
        told["moment"] = _in(partition, found[0]["moment"])
    elif cursor.skip("when"):
        told["moment"] = _in(partition, moment(cursor, partition or 0))
    if cursor.skip("within"):
        told["timeout_s"] = cursor.time_ns("the time-out") / 1e9
    cursor.end(() if verb == "wait" else ("when MOMENT", "within TIME", *_AFTER.get(verb, ())))
    found[0].update(told)
    return found


def _without_partition(words: Sequence[str]) -> tuple[list[str], int | None]:
    """`partition P`, wherever it stands, is of the whole line."""
    if "partition" not in words:
        return list(words), None
    at = list(words).index("partition")
    if not is_number(words[at + 1] if at + 1 < len(words) else None):
        refuse("says partition and not which: a number should follow")
    return [*words[:at], *words[at + 2 :]], int(words[at + 1])


def _in(partition: int | None, told: Entry) -> Entry:
    """The failpoints of a moment are of the line's partition, where it names one."""
    if partition is None:
        return told
    if told["at"] == "failpoint":
        return {**told, "partition": partition}
    if told["at"] in ("sequence", "first"):
        return {**told, "of": [_in(partition, part) for part in told["of"]]}
    return told


# -- acts ---------------------------------------------------------------------------------------------------

def _on_nodes(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    return [{"f": verb, "nodes": _whom(cursor, verb)}]


def _whom(cursor: Cursor, verb: str) -> list[str]:
    if not is_name(cursor.next) or cursor.next in ("when", "within", "at", "from", "for"):
        refuse(f"does not say whom to {verb}: names or roles ({', '.join(sorted(ROLES))})")
    return cursor.names("a node")


def _send(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    values = _values(cursor)
    told: Entry = {}
    together = False
    while (word := cursor.next) in ("to", "acks", "nowait", "client", "together"):
        cursor.take("an option")
        if word == "to":
            told["to"] = cursor.name("whom to send to")
        elif word == "acks":
            told["acks"] = cursor.one_of("acks", ("all", "1", "0"))
        elif word == "nowait":
            told["nowait"] = True
        elif word == "client":
            told["client"] = cursor.number("the client's number")
        else:
            together = True
    sends = [{"partition": partition, "value": value} for value in values]
    return [{"f": verb, "sends": op, **told} for op in ([sends] if together else [[one] for one in sends])]


def _values(cursor: Cursor) -> list[int]:
    found: list[int] = []
    while True:
        first = cursor.number("the value to send")
        last = cursor.number("the last value") if cursor.skip("..") else first
        if last < first:
            refuse(f"sends {first}..{last}, which is nothing: the first value comes first")
        found += range(first, last + 1)
        if not cursor.skip(","):
            return found


def _read(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    told: Entry = {"f": verb, "partitions": [partition]}
    while (word := cursor.next) in ("from", "offset", "client"):
        cursor.take("an option")
        if word == "from":
            told["from"] = cursor.name("whom to ask")
        elif word == "client":
            told["client"] = cursor.number("the client's number")
        elif verb != "poll":
            refuse("list_offsets takes no offset: it asks for the end")
        else:
            told["offset"] = cursor.number("the offset")
    return [told]


def _wait(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    return [{"f": verb, "moment": moment(cursor, partition)}]


def _cut(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    ones = _whom(cursor, verb)
    if cursor.skip("from"):
        others = cursor.names("whom from")
        told = f"{' '.join(ones)} from {' '.join(others)}"
        grudge = {**dict.fromkeys(ones, others), **dict.fromkeys(others, ones)}
        entry: Entry = {"f": verb, "kind": told, "grudge": grudge}
    elif cursor.skip("hears-not"):
        others = cursor.names("whom it does not hear")
        entry = {"f": verb, "kind": f"{' '.join(ones)} hears not {' '.join(others)}",
                 "grudge": dict.fromkeys(ones, others)}
    else:
        entry = {"f": verb, "nodes": ones}
    if cursor.skip("reset"):
        entry["reset"] = True
    return [entry]


def _heal(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    return [{"f": verb}]


def _power_cut(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "nodes": _whom(cursor, verb)}
    if cursor.skip("keep"):
        entry["keep"] = {str(partition): cursor.number("the LEO to keep")}
    return [entry]


def _elect(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "partitions": [partition]}
    if is_name(cursor.next) and cursor.next not in ("unclean", "when", "within"):
        entry["leader"] = cursor.name("who is to lead")
    if cursor.skip("unclean"):
        entry["unclean"] = True
    return [entry]


def _disk(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "nodes": _whom(cursor, verb), "kind": "wiped"}
    cursor.skip("wiped")
    return [entry]


# -- failpoints ---------------------------------------------------------------------------------------------

def _arm(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    nodes = _whom(cursor, verb)
    cursor.expect("at")
    point: Entry = {"name": cursor.name("the failpoint"), "action": verb}
    while (word := cursor.next) in (*_CONDITIONS, "for", "broker"):
        cursor.take("a condition")
        if word == "for":
            point["for_ms"] = cursor.time_ns("how long") // 1_000_000
        elif word == "broker":
            point["scope"] = "broker"
        elif word == "peer":
            point["peer"] = cursor.name("the peer")
        else:
            assert word is not None
            point[word] = cursor.number(word)
    if (verb == "delay") != ("for_ms" in point):
        refuse("delay needs `for TIME`" if verb == "delay" else f"{verb} takes no `for`: only delay does")
    return [{"f": "arm", "nodes": nodes, "point": point}]


def _release(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "nodes": _whom(cursor, verb)}
    point: Entry = {}
    if cursor.skip("at"):
        point["name"] = cursor.name("the failpoint")
    if cursor.skip("peer"):
        point["peer"] = cursor.name("the peer")
    if cursor.skip("through"):
        cursor.expect("epoch")
        point["through_epoch"] = cursor.number("the epoch")
    if cursor.skip("keep"):
        point["keep"] = True
    return [{**entry, "point": point} if point else entry]


_CONDITIONS = ("peer", "epoch", "offset", "times", "skip")
VERBS: Mapping[str, Callable[[str, Cursor, int], list[Entry]]] = {
    "send": _send, "poll": _read, "list_offsets": _read, "wait": _wait,
    **dict.fromkeys(ON_NODES, _on_nodes),
    "cut": _cut, "heal": _heal, "power_cut": _power_cut, "disk": _disk, "elect": _elect,
    **dict.fromkeys(ACTIONS, _arm), "release": _release,
}  # fmt: skip
_AFTER: Mapping[str, Sequence[str]] = {
    "send": ("to NODE", "acks all|1|0", "nowait", "client K", "together"),
    "poll": ("from NODE", "offset O", "client K"), "list_offsets": ("from NODE", "client K"),
    "cut": ("from NODES", "hears-not NODES", "reset"), "power_cut": ("keep LEO",), "elect": ("unclean",),
    **dict.fromkeys(ACTIONS, ("peer NODE", "epoch E", "offset O", "times K", "skip K", "for TIME", "broker")),
    "release": ("at POINT", "peer NODE", "through epoch E", "keep"),
}  # fmt: skip

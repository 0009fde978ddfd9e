"""Parses a scenario's steps: each line is one act, and becomes entries of a schedule (JSON values).

nemesis/scenario.py describes the language. This module only parses; harness/schedule/json_form.py checks the
names: nodes, partitions, failpoints and their actions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from floodmark.harness.schedule.failpoints import ACTIONS
from floodmark.harness.schedule.roles import ROLES
from floodmark.nemesis.step_moments import read_moment
from floodmark.nemesis.step_tokenizer import Cursor, is_name, is_number, refuse, split_tokens

Entry = dict[str, Any]
ON_NODES = ("kill", "stop", "start", "pause", "resume", "expire")


def read_step(line: str) -> list[Entry]:
    """Parse one line; an empty line, or a comment alone, gives no entries. Raises Refused."""
    words, partition = _take_partition(split_tokens(line))
    if not words:
        return []
    cursor = Cursor(words)
    verb = cursor.one_of("the verb", VERBS)
    found = VERBS[verb](verb, cursor, 0 if partition is None else partition)
    if partition is not None and found[0].keys() & {"nodes", "grudge"}:
        found[0]["partition"] = partition  # the partition of the roles
    if partition is not None and verb in (*ACTIONS, "release"):
        found[0].setdefault("point", {})["partition"] = partition
    waits: Entry = {}
    if verb == "wait":
        waits["moment"] = _set_partition(partition, found[0]["moment"])
    elif cursor.skip("when"):
        waits["moment"] = _set_partition(partition, read_moment(cursor, partition or 0))
    if cursor.skip("within"):
        waits["timeout_s"] = cursor.time_ns("the time-out") / 1e9
    cursor.end(() if verb == "wait" else ("when MOMENT", "within TIME", *_OPTIONS.get(verb, ())))
    found[0].update(waits)
    return found


def _take_partition(words: Sequence[str]) -> tuple[list[str], int | None]:
    """Take `partition P`, which applies to the whole line, out of the words: (other words, P or None)."""
    if "partition" not in words:
        return list(words), None
    at = list(words).index("partition")
    if not is_number(words[at + 1] if at + 1 < len(words) else None):
        refuse("has partition without a number after it")
    return [*words[:at], *words[at + 2 :]], int(words[at + 1])


def _set_partition(partition: int | None, fields: Entry) -> Entry:
    """Set the line's partition, if it names one, in the failpoints of a moment."""
    if partition is None:
        return fields
    if fields["at"] == "failpoint":
        return {**fields, "partition": partition}
    if fields["at"] in ("sequence", "first"):
        return {**fields, "of": [_set_partition(partition, part) for part in fields["of"]]}
    return fields


# -- acts ---------------------------------------------------------------------------------------------------

def _read_node_fault(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    return [{"f": verb, "nodes": _read_nodes(cursor, verb)}]


def _read_nodes(cursor: Cursor, verb: str) -> list[str]:
    if not is_name(cursor.next) or cursor.next in ("when", "within", "at", "from", "for"):
        refuse(f"has no node to {verb}: names or roles ({', '.join(sorted(ROLES))})")
    return cursor.names("a node")


def _read_send(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    values = _read_values(cursor)
    options: Entry = {}
    together = False
    while (word := cursor.next) in ("to", "acks", "nowait", "client", "together"):
        cursor.take("an option")
        if word == "to":
            options["to"] = cursor.name("the node to send to")
        elif word == "acks":
            options["acks"] = cursor.one_of("acks", ("all", "1", "0"))
        elif word == "nowait":
            options["nowait"] = True
        elif word == "client":
            options["client"] = cursor.number("the client's number")
        else:
            together = True
    sends = [{"partition": partition, "value": value} for value in values]
    return [{"f": verb, "sends": op, **options} for op in ([sends] if together else [[one] for one in sends])]


def _read_values(cursor: Cursor) -> list[int]:
    found: list[int] = []
    while True:
        first = cursor.number("the value to send")
        last = cursor.number("the last value") if cursor.skip("..") else first
        if last < first:
            refuse(f"sends {first}..{last}, which is empty: the lower value comes first")
        found += range(first, last + 1)
        if not cursor.skip(","):
            return found


def _read_poll(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "partitions": [partition]}
    while (word := cursor.next) in ("from", "offset", "client"):
        cursor.take("an option")
        if word == "from":
            entry["from"] = cursor.name("the node to ask")
        elif word == "client":
            entry["client"] = cursor.number("the client's number")
        elif verb != "poll":
            refuse("list_offsets takes no offset: it asks for the end")
        else:
            entry["offset"] = cursor.number("the offset")
    return [entry]


def _read_wait(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    return [{"f": verb, "moment": read_moment(cursor, partition)}]


def _read_cut(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    ones = _read_nodes(cursor, verb)
    if cursor.skip("from"):
        others = cursor.names("the nodes to cut from")
        kind = f"{' '.join(ones)} from {' '.join(others)}"
        grudge = {**dict.fromkeys(ones, others), **dict.fromkeys(others, ones)}
        entry: Entry = {"f": verb, "kind": kind, "grudge": grudge}
    elif cursor.skip("hears-not"):
        others = cursor.names("the nodes that it does not hear")
        entry = {"f": verb, "kind": f"{' '.join(ones)} hears not {' '.join(others)}",
                 "grudge": dict.fromkeys(ones, others)}
    else:
        entry = {"f": verb, "nodes": ones}
    if cursor.skip("reset"):
        entry["reset"] = True
    return [entry]


def _read_heal(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    return [{"f": verb}]


def _read_power_cut(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "nodes": _read_nodes(cursor, verb)}
    if cursor.skip("keep"):
        keep = [cursor.number("the LEO to keep")]
        while cursor.skip(","):
            keep.append(cursor.number("the next partition's LEO to keep"))
        entry["keep"] = {str(partition + index): leo for index, leo in enumerate(keep)}
    return [entry]


def _read_elect(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "partitions": [partition]}
    if is_name(cursor.next) and cursor.next not in ("unclean", "when", "within"):
        entry["leader"] = cursor.name("the new leader")
    if cursor.skip("unclean"):
        entry["unclean"] = True
    return [entry]


def _read_disk(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "nodes": _read_nodes(cursor, verb), "kind": "wiped"}
    cursor.skip("wiped")
    return [entry]


# -- failpoints ---------------------------------------------------------------------------------------------

def _read_arm(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    nodes = _read_nodes(cursor, verb)
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
    return [{"f": "arm", "nodes": nodes, "point": point}]


def _read_release(verb: str, cursor: Cursor, partition: int) -> list[Entry]:
    entry: Entry = {"f": verb, "nodes": _read_nodes(cursor, verb)}
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
    "send": _read_send, "poll": _read_poll, "list_offsets": _read_poll, "wait": _read_wait,
    **dict.fromkeys(ON_NODES, _read_node_fault),
    "cut": _read_cut, "heal": _read_heal, "power_cut": _read_power_cut, "disk": _read_disk,
    "elect": _read_elect,
    **dict.fromkeys(ACTIONS, _read_arm), "release": _read_release,
}  # fmt: skip
_OPTIONS: Mapping[str, Sequence[str]] = {
    "send": ("to NODE", "acks all|1|0", "nowait", "client K", "together"),
    "poll": ("from NODE", "offset O", "client K"), "list_offsets": ("from NODE", "client K"),
    "cut": ("from NODES", "hears-not NODES", "reset"), "power_cut": ("keep LEO, ...",), "elect": ("unclean",),
    **dict.fromkeys(ACTIONS, ("peer NODE", "epoch E", "offset O", "times K", "skip K", "for TIME", "broker")),
    "release": ("at POINT", "peer NODE", "through epoch E", "keep"),
}  # fmt: skip

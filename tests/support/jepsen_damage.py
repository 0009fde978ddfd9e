"""Jepsen histories with damage: a legal history as ops, changed at random, and written as text again.

A change makes some clients see what they must not; the oracle says which anomaly it is. Every op keeps its
invocation, and values stay unique, so that all checks of the clients' side run.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from jepsen_runs import history

from floodmark.harness.importers.edn import Keyword, forms

Op = dict[str, Any]


def ops_of(text: str) -> list[Op]:
    """The ops, with sends as (send, key, value or (offset, value)) and polls as [poll, {key: pairs}]."""
    ops: list[Op] = []
    opened: dict[int, int] = {}
    for _, form in forms(text.encode()):
        fields = {key.name: plain(value) for key, value in form.items()}  # type: ignore[attr-defined]
        log = fields.get("rebalance-log") or []
        op = {name: fields[name] for name in ("process", "type", "f")} | {
            "value": fields["value"] or [], "seek": bool(fields.get("seek-to-beginning?")), "invoked": None,
            "rebalanced": {key for one in log for key in one["keys"]}}
        if op["type"] == "invoke":
            opened[op["process"]] = len(ops)
        else:
            op["invoked"] = opened.pop(op["process"], None)
        ops.append(op)
    return ops


def plain(form: Any) -> Any:
    """Lists for vectors, except for a send's pair; words for keywords."""
    if isinstance(form, Keyword):
        return form.name
    if isinstance(form, dict):
        return {plain(key): plain(value) for key, value in form.items()}
    if not isinstance(form, tuple):
        return form
    parts = [plain(part) for part in form]
    if parts and parts[0] == "send" and isinstance(parts[2], list):
        parts[2] = tuple(parts[2])
    return parts


def text_of(ops: list[Op]) -> str:
    lines = []
    for index, op in enumerate(ops):
        more = ", :seek-to-beginning? true" if op["seek"] else ""
        if op["rebalanced"]:
            more += f", :rebalance-log [{{:keys {edn(sorted(op['rebalanced']))}}}]"
        value = edn([[Word(mop[0]), *mop[1:]] if isinstance(mop, list) else mop for mop in op["value"]])
        who = f":process {op['process']}, :type :{op['type']}, :f :{op['f']}"
        lines.append(f"{{:index {index}, :time {index * 1000}, {who}, :value {value}{more}}}")
    return "\n".join(lines)


class Word(str):
    """A keyword's name."""


def edn(form: Any) -> str:
    if form is None:
        return "nil"
    if isinstance(form, Word):
        return f":{form}"
    if isinstance(form, dict):
        return f"{{{', '.join(f'{edn(key)} {edn(value)}' for key, value in form.items())}}}"
    return f"[{' '.join(map(edn, form))}]" if isinstance(form, list | tuple) else str(form)


# -- damage -------------------------------------------------------------------------------------------------


def polls(ops: list[Op], least: int = 1) -> list[tuple[int, list[list[int]]]]:
    """The lists of at least so many pairs, all with offsets, that some op returned for one key."""
    return [(number, pairs) for number, op in enumerate(ops)
            if op["type"] != "invoke" and op["f"] in ("poll", "txn")
            for mop in op["value"] if mop[0] == "poll" and len(mop) > 1
            for pairs in mop[1].values() if len(pairs) >= least and None not in {pair[0] for pair in pairs}]


def acked(ops: list[Op]) -> list[tuple[int, list[Any]]]:
    return [(number, mop) for number, op in enumerate(ops)
            if op["type"] == "ok" and op["f"] in ("send", "txn")
            for mop in op["value"] if mop[0] == "send" and isinstance(mop[2], tuple)
            and mop[2][0] is not None]


def skip_one(ops: list[Op], random: Random) -> None:
    _, pairs = random.choice(polls(ops, 3))
    del pairs[random.randrange(1, len(pairs) - 1)]


def skip_at_the_edge(ops: list[Op], random: Random) -> None:
    _, pairs = random.choice(polls(ops, 2))
    del pairs[random.choice((0, -1))]


def lose(ops: list[Op], random: Random) -> None:
    """Removes an acked value from all reads."""
    _, mop = random.choice(acked(ops))
    for op in ops:
        for other in op["value"] if op["type"] != "invoke" and op["f"] in ("poll", "txn") else ():
            if other[0] == "poll" and len(other) > 1 and mop[1] in other[1]:
                other[1][mop[1]] = [pair for pair in other[1][mop[1]] if pair[1] != mop[2][1]]


def swap(ops: list[Op], random: Random) -> None:
    _, pairs = random.choice(polls(ops, 2))
    place = random.randrange(len(pairs) - 1)
    pairs[place], pairs[place + 1] = pairs[place + 1], pairs[place]


def again(ops: list[Op], random: Random) -> None:
    _, pairs = random.choice(polls(ops))
    pairs.insert(random.randrange(len(pairs) + 1), random.choice(pairs))


def repeat_another_poll(ops: list[Op], random: Random) -> None:
    """A poll returns again what another poll of the process returned."""
    number, pairs = random.choice(polls(ops))
    others = [other for place, other in polls(ops) if ops[place]["process"] == ops[number]["process"]]
    pairs[:0] = random.choice(others)


def other_value(ops: list[Op], random: Random) -> None:
    _, pairs = random.choice(polls(ops, 2))
    one, other = random.sample(range(len(pairs)), 2)
    pairs[one] = [pairs[one][0], pairs[other][1]]


def other_place(ops: list[Op], random: Random) -> None:
    _, pairs = random.choice(polls(ops))
    place = random.randrange(len(pairs))
    pairs[place] = [pairs[place][0] + random.choice((-1, 1, 5)) if pairs[place][0] else 7, pairs[place][1]]


def move_an_ack(ops: list[Op], random: Random) -> None:
    _, mop = random.choice(acked(ops))
    mop[2] = (max(0, mop[2][0] + random.choice((-3, -1, 1, 9))), mop[2][1])


def swap_acks(ops: list[Op], random: Random) -> None:
    """Swaps two acks of one process whose values no read returned: their offsets are then those of the
    acks."""
    number, mop = random.choice(acked(ops))
    others = [other for place, other in acked(ops)
              if ops[place]["process"] == ops[number]["process"] and other[1] == mop[1] and other is not mop]
    other = random.choice(others)
    mop[2], other[2] = (other[2][0], mop[2][1]), (mop[2][0], other[2][1])
    for _, pairs in polls(ops):
        pairs[:] = [pair for pair in pairs if pair[1] not in (mop[2][1], other[2][1])]


def call_it_failed(ops: list[Op], random: Random) -> None:
    number, _ = random.choice(acked(ops))
    ops[number]["type"] = "fail"


def read_its_own(ops: list[Op], random: Random) -> None:
    number, mop = random.choice([one for one in acked(ops) if ops[one[0]]["f"] == "txn"])
    ops[number]["value"].append(["poll", {mop[1]: [list(mop[2])]}])
    ops[ops[number]["invoked"]]["value"].append(["poll"])


def read_before_it_was_sent(ops: list[Op], random: Random) -> None:
    _, mop = random.choice(acked(ops)[len(acked(ops)) // 2:])
    early = [pairs for _, pairs in polls(ops)]
    early[random.randrange(len(early) // 3 or 1)].append(list(mop[2]))


def forget_a_rebalance(ops: list[Op], random: Random) -> None:
    random.choice([op for op in ops if op["rebalanced"]])["rebalanced"] = set()


def rebalance_another(ops: list[Op], random: Random) -> None:
    """Only one key is exempt."""
    random.choice([op for op in ops if op["rebalanced"]])["rebalanced"] = {random.randrange(3)}


DAMAGES: tuple[Callable[[list[Op], Random], None], ...] = (
    skip_one, skip_at_the_edge, lose, swap, again, repeat_another_poll, other_value, other_place, move_an_ack,
    swap_acks, call_it_failed, read_its_own, read_before_it_was_sent, forget_a_rebalance, rebalance_another,
)


def damaged(seed: int, ops: int = 70) -> tuple[str, list[Op]]:
    """The name of the damage, and the ops."""
    random = Random(f"damage {seed}")
    made = ops_of(history(seed, txn=bool(seed % 2), subscribe=bool(seed // 2 % 3 == 0), ops=ops, blind=0.0))
    done = []
    for change in [DAMAGES[seed % len(DAMAGES)], *random.sample(DAMAGES, random.choice((0, 0, 1, 2)))]:
        try:
            change(made, random)
        except (IndexError, ValueError):
            continue  # this damage does not fit these ops
        done.append(change.__name__)
    return ", ".join(done) or "nothing", made

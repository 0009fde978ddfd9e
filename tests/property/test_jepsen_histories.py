"""Jepsen's histories of a log, made and damaged at random: in what is imported of them, judge and twin find
the same, and nothing where nothing is wrong.

Without damage everything is correct: sends that end in doubt, aborted transactions whose offsets stay empty,
consumers that seek, crash, and lose and regain their partitions, reads without an offset. Damage keeps every
invocation and the values' uniqueness.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import here
import twin
from how_many import cases
from twin_compare import as_dict, spoken

from floodmark.harness.commands.import_jepsen import import_history

JUDGED = cases(int(os.environ.get("FLOODMARK_SOAK", "150")), few=48)
FIRST = int(os.environ.get("FLOODMARK_SEED", "0")) * 100_000
PERMITTED = {"poll-skip", "nonmonotonic-poll",  # by subscribe
             "G0"}  # by isolation, and no finding of Jepsen's
ALL = {"duplicate", "inconsistent-offsets", "lost-write", "G1a", "precommitted-read", "int-poll-skip",
       "int-nonmonotonic-poll", "int-nonmonotonic-send", "poll-skip", "nonmonotonic-poll",
       "nonmonotonic-send", "G1c-realtime"}  # fmt: skip
KEYS = 3
CLIENTS = 5
# process, type, f, value, seek, rebalanced (keys), invoked (the invocation's place). A value has
# ["send", key, value or (offset, value)] and ["poll", {key: [[offset, value], ...]}], or an assign's keys.
Op = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Consumer:
    process: int
    at: dict[int, int] = field(default_factory=dict)  # key -> position, of the keys that it has
    asked: Op | None = None  # its open op


@dataclass(slots=True, kw_only=True)
class World:
    random: Random
    txn: bool  # every op is a transaction; its end takes an offset
    subscribe: bool
    blind: float  # share of polls that lack some offset
    logs: list[list[int | None]] = field(default_factory=lambda: [[] for _ in range(KEYS)])
    sent: list[int] = field(default_factory=lambda: [0] * KEYS)
    ops: list[Op] = field(default_factory=list)

    def write(self, consumer: Consumer, kind: str, f: str, value: list[Any], **more: Any) -> Op:
        before = consumer.asked
        op = {"process": consumer.process, "type": kind, "f": f, "value": value, "rebalanced": set(),
              "seek": before is not None and before["seek"],
              "invoked": None if before is None else before["place"], "place": len(self.ops), **more}
        self.ops.append(op)
        consumer.asked = op if kind == "invoke" else None
        return op

    def ask(self, consumer: Consumer) -> None:
        """Chooses an op, and writes its invocation."""
        random = self.random
        f = random.choices(["send", "poll", "txn", "move", "crash"], [6, 6, 3 if self.txn else 0, 2, 0.3])[0]
        if f == "move":
            keys = random.sample(range(KEYS), random.randint(1, KEYS))
            self.write(consumer, "invoke", "subscribe" if self.subscribe else "assign", keys,
                       seek=not self.subscribe and random.random() < 0.3)
        else:
            count = 0 if f == "crash" else random.randint(1, 3) if self.txn else 1
            self.write(consumer, "invoke", f, [self.mop(f) for _ in range(count)])

    def mop(self, f: str) -> list[Any]:
        if f == "poll" or (f == "txn" and self.random.random() < 0.5):
            return ["poll"]
        key = self.random.randrange(KEYS)
        self.sent[key] += 1
        return ["send", key, self.sent[key]]

    def answer(self, consumer: Consumer) -> bool:
        """Carries the op out, and writes its completion; False: the process has ended."""
        asked = consumer.asked
        assert asked is not None
        f = asked["f"]
        if f == "crash":
            self.write(consumer, "info", f, [])
            return False
        if f in ("assign", "subscribe"):
            kept = {} if asked["seek"] else consumer.at
            consumer.at = {key: kept.get(key, 0 if asked["seek"] else self.anywhere(key))
                           for key in asked["value"]}
            self.write(consumer, "ok", f, asked["value"])
            return True
        kind = self.random.choices(["ok", "fail", "info"], [8, 1, 1])[0]
        done = kind == "ok" or (kind == "info" and self.random.random() < 0.5)
        before, rebalanced = dict(consumer.at), set[int]()
        visible = [len(log) for log in self.logs]  # an op does not read what it writes itself
        results = [self.poll(consumer, visible, rebalanced) if mop[0] == "poll"
                   else self.send(*mop[1:], kind, done=done) for mop in asked["value"]]
        if self.txn:
            for key in {mop[1] for mop in asked["value"] if mop[0] == "send"}:
                self.logs[key].append(None)  # commit or abort, it takes an offset
        if kind != "ok":  # what it read will be read again
            consumer.at.update((key, before[key]) for key in consumer.at if key in before)
        self.write(consumer, kind, f, results, rebalanced=rebalanced)
        return kind != "info"

    def read_to_the_end(self, consumer: Consumer) -> None:
        """The final polls of a new consumer, from the beginning, so that every acked value was read."""
        found = {key: [[offset, value] for offset, value in enumerate(log) if value is not None]
                 for key, log in enumerate(self.logs)}
        keys = list(range(KEYS))
        for f, asked, answer, seek in (("assign", keys, keys, True), ("poll", [["poll"]], [["poll", {
                key: pairs for key, pairs in found.items() if pairs}]], False)):
            self.write(consumer, "invoke", f, asked, seek=seek)
            self.write(consumer, "ok", f, answer)

    def anywhere(self, key: int) -> int:
        """An offset where a consumer with a new key may begin: any committed one."""
        return self.random.randint(0, len(self.logs[key]))

    def send(self, key: int, value: int, kind: str, *, done: bool) -> list[Any]:
        """A send's entry. Aborted records take offsets too; outside a transaction a fail took none."""
        log, offset = self.logs[key], len(self.logs[key])
        if done or (self.txn and self.random.random() < 0.5):
            log.append(value if done else None)
        shown = self.random.random() < 0.9 and len(log) > offset
        return ["send", key, (offset if shown else None, value) if kind == "ok" or shown else value]

    def poll(self, consumer: Consumer, visible: list[int], rebalanced: set[int]) -> list[Any]:
        """The next values of each key that it has; in a group its keys may change first."""
        random, found = self.random, {}
        if self.subscribe and consumer.at and random.random() < 0.3:
            rebalanced.update(range(KEYS))
            consumer.at = {key: self.anywhere(key) for key in random.sample(range(KEYS), 2)}
        for key, position in consumer.at.items():
            log = self.logs[key]
            end = max(position, min(visible[key], position + random.randint(0, 4)))
            consumer.at[key] = end
            blind = random.random() < self.blind
            pairs = [[None if blind and random.random() < 0.5 else offset, log[offset]]
                     for offset in range(position, end) if log[offset] is not None]
            found |= {key: pairs} if pairs else {}
        return ["poll", found]


def history(seed: int, *, txn: bool, subscribe: bool, ops: int = 120, blind: float = 0.03) -> list[Op]:
    world = World(random=Random(seed), txn=txn, subscribe=subscribe, blind=blind)
    clients = [Consumer(process=number) for number in range(CLIENTS)]
    for _ in range(2 * ops):
        place = world.random.randrange(CLIENTS)
        consumer = clients[place]
        if consumer.asked is None:
            world.ask(consumer)
        elif not world.answer(consumer):
            clients[place] = Consumer(process=consumer.process + CLIENTS)
    world.read_to_the_end(Consumer(process=len(world.ops)))
    return world.ops


def text_of(ops: list[Op]) -> str:
    lines = []
    for index, op in enumerate(ops):
        more = ", :seek-to-beginning? true" if op["seek"] else ""
        more += f", :rebalance-log [{{:keys {edn(sorted(op['rebalanced']))}}}]" if op["rebalanced"] else ""
        value = "nil" if op["f"] == "crash" else edn(op["value"])
        who = f":process {op['process']}, :type :{op['type']}, :f :{op['f']}"
        lines.append(f"{{:index {index}, :time {index * 1000}, {who}, :value {value}{more}}}")
    return "\n".join(lines)


def edn(form: Any) -> str:
    if isinstance(form, dict):
        return f"{{{', '.join(f'{edn(key)} {edn(value)}' for key, value in form.items())}}}"
    if isinstance(form, list | tuple):
        return f"[{' '.join(map(edn, form))}]"
    return "nil" if form is None else f":{form}" if isinstance(form, str) else str(form)


# -- damage -------------------------------------------------------------------------------------------------

def returned(ops: list[Op]) -> list[tuple[Op, int, list[Any]]]:
    """Each list of pairs, all with offsets, that an op returned for a key."""
    return [(op, key, pairs) for op in ops if op["type"] != "invoke" for mop in op["value"]
            if op["f"] in ("poll", "txn") and mop[0] == "poll" and len(mop) > 1
            for key, pairs in mop[1].items() if pairs and None not in {pair[0] for pair in pairs}]


def acked(ops: list[Op]) -> list[tuple[Op, list[Any]]]:
    return [(op, mop) for op in ops if op["type"] == "ok" and op["f"] in ("send", "txn")
            for mop in op["value"] if mop[0] == "send" and mop[2][0] is not None]


def skip_some(ops: list[Op], random: Random) -> None:
    _, _, pairs = random.choice(returned(ops))
    del pairs[random.randrange(len(pairs))]


def lose(ops: list[Op], random: Random) -> None:
    """Removes an acked value from all reads."""
    _, (_, lost, place) = random.choice(acked(ops))
    for _, key, pairs in returned(ops):
        pairs[:] = [pair for pair in pairs if (key, pair[1]) != (lost, place[1])]


def swap(ops: list[Op], random: Random) -> None:
    random.shuffle(random.choice(returned(ops))[2])


def again(ops: list[Op], random: Random) -> None:
    """What a poll of this or of another process returned."""
    _, key, pairs = random.choice(returned(ops))
    others = [other for _, of, other in returned(ops) if of == key]
    pairs[:0] = random.choice((pairs[:1], random.choice(others)))


def other_value(ops: list[Op], random: Random) -> None:
    _, _, pairs = random.choice(returned(ops))
    one, other = (random.randrange(len(pairs)) for _ in range(2))
    pairs[one] = [pairs[one][0], pairs[other][1]]


def other_place(ops: list[Op], random: Random) -> None:
    _, _, pairs = random.choice(returned(ops))
    place = random.randrange(len(pairs))
    pairs[place] = [max(0, pairs[place][0] + random.choice((-1, 1, 5))), pairs[place][1]]


def move_an_ack(ops: list[Op], random: Random) -> None:
    _, mop = random.choice(acked(ops))
    mop[2] = (max(0, mop[2][0] + random.choice((-3, -1, 1, 9))), mop[2][1])


def swap_acks(ops: list[Op], random: Random) -> None:
    """Of one process, of values that no read returned: their offsets are then those of the acks."""
    op, mop = random.choice(acked(ops))
    other = random.choice([other for by, other in acked(ops) if by["process"] == op["process"]
                           and other[1] == mop[1] and other is not mop])
    mop[2], other[2] = (other[2][0], mop[2][1]), (mop[2][0], other[2][1])
    for _, key, pairs in returned(ops):
        pairs[:] = [pair for pair in pairs if key != mop[1] or pair[1] not in (mop[2][1], other[2][1])]


def call_it_failed(ops: list[Op], random: Random) -> None:
    random.choice(acked(ops))[0]["type"] = "fail"


def read_its_own(ops: list[Op], random: Random) -> None:
    op, mop = random.choice([one for one in acked(ops) if one[0]["f"] == "txn"])
    op["value"].append(["poll", {mop[1]: [list(mop[2])]}])
    ops[op["invoked"]]["value"].append(["poll"])


def read_before_it_was_sent(ops: list[Op], random: Random) -> None:
    _, (_, late, place) = random.choice(acked(ops)[len(acked(ops)) // 2:])
    early = [pairs for _, key, pairs in returned(ops) if key == late]
    early[random.randrange(len(early) // 3 or 1)].append(list(place))


def rebalance_another(ops: list[Op], random: Random) -> None:
    """One key is exempt, or none."""
    random.choice([op for op in ops if op["rebalanced"]])["rebalanced"] = {*range(random.choice((0, 1)))}


DAMAGES: tuple[Callable[[list[Op], Random], None], ...] = (
    skip_some, lose, swap, again, other_value, other_place, move_an_ack, swap_acks, call_it_failed,
    read_its_own, read_before_it_was_sent, rebalance_another)


def damaged(seed: int) -> list[Op]:
    random = Random(f"damage {seed}")
    made = history(seed, txn=bool(seed % 2), subscribe=seed // 2 % 3 == 0, ops=70, blind=0.0)
    for change in [DAMAGES[seed % len(DAMAGES)], *random.sample(DAMAGES, random.choice((0, 0, 1, 2)))]:
        try:
            change(made, random)
        except IndexError:
            continue  # this damage does not fit these ops
    return made


# -- the property -------------------------------------------------------------------------------------------

def test_judge_and_twin_find_the_same_and_nothing_where_nothing_is(tmp_path: Path) -> None:
    """Every anomaly that Jepsen names is among what is found in the damaged ones."""
    legal = [history(FIRST + number, txn=bool(number % 2), subscribe=bool(number // 2 % 2))
             for number in range(JUDGED // 3)]
    folders = []
    for number, ops in enumerate([*map(damaged, range(FIRST, FIRST + JUDGED)), *legal]):
        (tmp_path / f"{number}.edn").write_text(text_of(ops))
        folders.append(tmp_path / str(number))
        assert import_history(tmp_path / f"{number}.edn", out=folders[-1]) == 0
    verdicts = [spoken(as_dict(verdict)) for verdict in here.judge(folders)]

    different = [f"{folder}:\n  twin  {wanted}\n  judge {judged}"
                 for folder, judged in zip(folders, verdicts, strict=True)
                 if (wanted := spoken(twin.judge(folder))) != judged]
    assert different == [], "\n".join(different)
    assert {name for _, findings, *_ in verdicts for name, *_ in findings} >= ALL
    for folder, (_, findings, *_) in list(zip(folders, verdicts, strict=True))[JUDGED:]:
        assert {name for name, *_ in findings} <= PERMITTED, folder
        assert "bug" not in {klass for _, klass, *_ in findings}, folder

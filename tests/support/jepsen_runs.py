"""Makes Jepsen histories of a log without errors from a seed, as its clients could see them.

Everything here is correct: sends that end in doubt, aborted transactions whose offsets stay empty, consumers
that seek, crash, and lose and regain their partitions, reads without an offset. So such a history has no bug,
and a finding in it is a false alarm.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

KEYS = 3
CLIENTS = 5


@dataclass(slots=True, kw_only=True)
class Consumer:
    process: int
    subscribed: bool = False
    at: dict[int, int] = field(default_factory=dict)  # key -> position, of the keys that it has
    rebalanced: list[int] = field(default_factory=list)  # in the current op


@dataclass(slots=True, kw_only=True)
class Asked:
    """An op that is open."""

    f: str
    mops: list[tuple[str, int, int]]  # send, key, value; or poll
    more: str = ""


@dataclass(slots=True, kw_only=True)
class World:
    random: Random
    txn: bool  # every op is a transaction; its end takes an offset
    subscribe: bool
    blind: float = 0.03  # share of polls that lack some offset
    logs: list[list[int | None]] = field(default_factory=lambda: [[] for _ in range(KEYS)])
    sent: list[int] = field(default_factory=lambda: [0] * KEYS)
    # The ends of the logs when the op began: an op does not read what it writes itself.
    visible: list[int] = field(default_factory=lambda: [0] * KEYS)
    lines: list[str] = field(default_factory=list)

    def write(self, consumer: Consumer, kind: str, asked: Asked, value: str, more: str = "") -> None:
        index = len(self.lines)
        self.lines.append(
            f"{{:index {index}, :time {index * 1000}, :process {consumer.process}, :type :{kind}, "
            f":f :{asked.f}, :value {value}{asked.more}{more}}}")

    def ask(self, consumer: Consumer) -> Asked:
        """Chooses an op, and writes its invocation."""
        random = self.random
        f = random.choices(["send", "poll", "txn", "move", "crash"], [6, 6, 3 if self.txn else 0, 2, 0.3])[0]
        if f == "crash":
            asked = Asked(f="crash", mops=[])
        elif f == "move":
            keys = random.sample(range(KEYS), random.randint(1, KEYS))
            seek = not self.subscribe and random.random() < 0.3
            asked = Asked(
                f="subscribe" if self.subscribe else "assign", mops=[("hold", key, 0) for key in keys],
                more=", :seek-to-beginning? true" if seek else "")
        else:
            asked = Asked(f=f, mops=[self.mop(f) for _ in range(random.randint(1, 3) if self.txn else 1)])
        self.write(consumer, "invoke", asked, self.as_asked(asked))
        return asked

    def mop(self, f: str) -> tuple[str, int, int]:
        if f == "poll" or (f == "txn" and self.random.random() < 0.5):
            return "poll", 0, 0
        key = self.random.randrange(KEYS)
        self.sent[key] += 1
        return "send", key, self.sent[key]

    @staticmethod
    def as_asked(asked: Asked) -> str:
        if asked.f in ("assign", "subscribe"):
            return f"[{' '.join(str(key) for _, key, _ in asked.mops)}]"
        micro_ops = (f"[:send {key} {value}]" if f == "send" else "[:poll]" for f, key, value in asked.mops)
        return f"[{' '.join(micro_ops)}]" if asked.f != "crash" else "nil"

    def answer(self, consumer: Consumer, asked: Asked) -> bool:
        """Carries the op out, and writes its completion; False: the process has ended."""
        if asked.f == "crash":
            self.write(consumer, "info", asked, "nil")
            return False
        if asked.f in ("assign", "subscribe"):
            consumer.subscribed = asked.f == "subscribe"
            seeks = bool(asked.more)
            kept = {} if seeks else consumer.at
            consumer.at = {
                key: kept.get(key, 0 if seeks else self.anywhere(key)) for _, key, _ in asked.mops}
            self.write(consumer, "ok", asked, self.as_asked(asked))
            return True
        kind = self.random.choices(["ok", "fail", "info"], [8, 1, 1])[0]
        done = kind == "ok" or (kind == "info" and self.random.random() < 0.5)
        before, consumer.rebalanced = dict(consumer.at), []
        self.visible = [len(log) for log in self.logs]
        results = [self.poll(consumer) if f == "poll" else self.send(key, value, kind, done=done)
                   for f, key, value in asked.mops]
        if self.txn:
            for key in {key for f, key, _ in asked.mops if f == "send"}:
                self.logs[key].append(None)  # commit or abort, it takes an offset
        if kind != "ok":  # what it read will be read again
            consumer.at.update((key, before[key]) for key in consumer.at if key in before)
        log = f", :rebalance-log [{{:keys {consumer.rebalanced}}}]" if consumer.rebalanced else ""
        self.write(consumer, kind, asked, f"[{' '.join(results)}]", log)
        return kind != "info"

    def read_to_the_end(self, consumer: Consumer) -> None:
        """The final polls of a new consumer, from the beginning, so that every acked value was read."""
        holds = Asked(f="assign", mops=[("hold", key, 0) for key in range(KEYS)],
                      more=", :seek-to-beginning? true")
        poll = Asked(f="poll", mops=[("poll", 0, 0)])
        pairs = [[f"[{offset} {value}]" for offset, value in enumerate(log) if value is not None]
                 for log in self.logs]
        found = ", ".join(f"{key} [{' '.join(of_key)}]" for key, of_key in enumerate(pairs) if of_key)
        for asked, answer in ((holds, self.as_asked(holds)), (poll, f"[[:poll {{{found}}}]]")):
            self.write(consumer, "invoke", asked, self.as_asked(asked))
            self.write(consumer, "ok", asked, answer)

    def anywhere(self, key: int) -> int:
        """An offset where a consumer with a new key may begin: any committed one."""
        return self.random.randint(0, len(self.logs[key]))

    def send(self, key: int, value: int, kind: str, *, done: bool) -> str:
        """A send's entry. Aborted records take offsets too; outside a transaction a fail took none."""
        log, offset = self.logs[key], len(self.logs[key])
        if done or (self.txn and self.random.random() < 0.5):
            log.append(value if done else None)
        shown = self.random.random() < 0.9 and len(log) > offset
        return f"[:send {key} [{offset if shown else 'nil'} {value}]]" if kind == "ok" or shown else (
            f"[:send {key} {value}]")

    def poll(self, consumer: Consumer) -> str:
        """The next values of each key that it has; in a group its keys may change first."""
        random, found = self.random, []
        if consumer.subscribed and random.random() < 0.3:
            consumer.rebalanced = sorted({*consumer.rebalanced, *range(KEYS)})
            consumer.at = {key: self.anywhere(key) for key in random.sample(range(KEYS), 2)}
        for key, position in consumer.at.items():
            log = self.logs[key]
            end = max(position, min(self.visible[key], position + random.randint(0, 4)))
            consumer.at[key] = end
            blind = random.random() < self.blind
            pairs = [f"[{'nil' if blind and random.random() < 0.5 else offset} {log[offset]}]"
                     for offset in range(position, end) if log[offset] is not None]
            found += [f"{key} [{' '.join(pairs)}]"] if pairs else []
        return f"[:poll {{{', '.join(found)}}}]"


def history(seed: int, *, txn: bool, subscribe: bool, ops: int = 120, blind: float = 0.03) -> str:
    """The text of one history."""
    world = World(random=Random(seed), txn=txn, subscribe=subscribe, blind=blind)
    clients: list[Consumer] = [Consumer(process=number) for number in range(CLIENTS)]
    opened: dict[int, Asked] = {}
    for _ in range(2 * ops):
        place = world.random.randrange(CLIENTS)
        consumer: Any = clients[place]
        if place not in opened:
            opened[place] = world.ask(consumer)
        elif not world.answer(consumer, opened.pop(place)):
            clients[place] = Consumer(process=consumer.process + CLIENTS)
    world.read_to_the_end(Consumer(process=len(world.lines)))
    return "\n".join(world.lines)

"""Builds a trace step by step: three nodes, one partition, a correct broker unless the story says otherwise.

    story = Story(); story.begin(); story.produce(2); story.elect("n2", "n2", "n3")

Every step stamps its lines 1000 ns apart and keeps each node's state, so that a test changes one thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Line = dict[str, Any]
NODES = ("n1", "n2", "n3")
ALL = list(NODES)


@dataclass(slots=True)
class Story:
    """The lines so far, and each node's epoch, LEO and HW."""

    lines: list[Line] = field(default_factory=list)
    time: int = 0
    leader: str = "n1"
    epoch: int = 0
    isr: list[str] = field(default_factory=ALL.copy)
    partition_epoch: int = 0
    epochs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    leo: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    hw: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))

    def say(self, node: str, event: str, **fields: Any) -> "Story":
        """Adds one line, with the node's state."""
        self.time = fields.get("time", self.time + 1000)
        for key, kept in (("epoch", self.epochs), ("leo", self.leo), ("hw", self.hw)):
            if node in NODES and key in fields:
                kept[node] = fields[key]
        state = (
            {"epoch": self.epochs[node], "leo": self.leo[node], "hw": self.hw[node]} if node in NODES else {}
        )
        seq = sum(line["node"] == node for line in self.lines)
        place = {} if fields.pop("alone", False) else {"partition": 0, **state}
        self.lines.append({"time": self.time, "node": node, "seq": seq, "event": event, **place, **fields})
        return self

    def ruling(self, event: str, isr: Sequence[str], **fields: Any) -> "Story":
        self.partition_epoch += 1
        self.isr = list(isr)
        word = {
            "leader": self.leader if self.leader in NODES else None,
            "epoch": self.epoch,
            "isr": self.isr,
            "partition_epoch": self.partition_epoch,
        }
        return self.say("controller", event, **word, **fields)

    def begin(self) -> "Story":
        """All three start empty and register, and n1 is elected."""
        for node in NODES:
            self.say(node, "start", clean=False, alone=True)
            self.say("controller", "register", broker=node, broker_epoch=1, clean=False, alone=True)
            self.say("controller", "unfence", broker=node, broker_epoch=1, alone=True)
        self.epoch = -1
        return self.elect("n1", *NODES)

    def elect(
        self, leader: str, *isr: str, clean: bool = True, learners: Sequence[str] | None = None
    ) -> "Story":
        """Begin a new epoch; the members of the ISR (or `learners`) take their roles, the leader first."""
        self.epoch, self.leader = self.epoch + 1, leader
        self.ruling("elect", isr, clean=clean)
        for node in isr if learners is None else learners:
            self.take_role(node)
        return self

    def take_role(self, node: str) -> "Story":
        self.epochs[node] = self.epoch
        if node == self.leader:
            return self.say(node, "become_leader", isr=self.isr, start=self.leo[node])
        return self.say(node, "become_follower", leader=self.leader)

    def append(self, node: str, count: int = 1, epoch: int | None = None, epochs: bool = True) -> "Story":
        first = self.leo[node]
        self.leo[node] += count
        role = "leader" if node == self.leader else "follower"
        parts = {"epochs": [[self.epochs[node] if epoch is None else epoch, first]]} if epochs else {}
        return self.say(node, "append", role=role, offset=first, count=count, **parts)

    def commit(self, node: str | None = None, to: int | None = None) -> "Story":
        node = node or self.leader
        self.hw[node] = self.leo[node] if to is None else to
        return self.say(node, "hw", role="leader")

    def ack(
        self, offset: int, node: str | None = None, acks: str = "all", isr: Sequence[str] | None = None
    ) -> "Story":
        isr = self.isr if isr is None else list(isr)
        return self.say(node or self.leader, "ack", offset=offset, acks=acks, isr=isr)

    def produce(self, count: int = 1, by: Sequence[str] | None = None, epochs: bool = True) -> "Story":
        """A record that the leader and the ISR (or `by`) append, committed and acked."""
        self.append(self.leader, count, epochs=epochs)
        for node in self.isr if by is None else by:
            if node != self.leader:
                self.append(node, count, epochs=epochs)
        return self.commit().ack(self.leo[self.leader] - 1)

    def truncate(self, node: str, to: int, cause: str = "hw", **fields: Any) -> "Story":
        was, self.leo[node] = self.leo[node], to
        self.hw[node] = min(self.hw[node], to)
        return self.say(node, "truncate", cause=cause, **{"from": was, "to": to}, **fields)

    def restart(self, node: str, leo: int | None = None, hw: int = 0, **fields: Any) -> "Story":
        """The node is killed and started again; `leo`: the log that it finds."""
        self.leo[node] = self.leo[node] if leo is None else leo
        self.hw[node] = min(hw, self.leo[node])
        return self.say(node, "start", clean=False, **fields)

    def register(self, node: str) -> "Story":
        """A new incarnation: fenced, out of the ISR and the lead, then unfenced; it learns its role if it has
        one."""
        self.say("controller", "register", broker=node, broker_epoch=2, clean=False, alone=True)
        led = node == self.leader
        if led:
            self.epoch, self.leader = self.epoch + 1, "nobody"
        if led or (node in self.isr and len(self.isr) > 1):
            self.ruling("isr", [each for each in self.isr if each != node] or [node], cause="registration")
        self.say("controller", "unfence", broker=node, broker_epoch=2, alone=True)
        return self if led else self.take_role(node)

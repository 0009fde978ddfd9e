"""Stories of the machines as text: commands to a memory cluster, and after each block its outcome.

A story is comments (`#`), then blocks: command lines, a line `----`, the outcome, an empty line. The outcome
of a block is every effect that matters, then the numbers in the seeds' drawings: the leader's LEO, HW and
what it knows of the others' LEO; the followers' LEO and HW. Errors of the machine are text like any other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memory_cluster import MemoryCluster
from memory_node import CONTROLLER, Message, Sent
from oracles import damage

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import (
    Append,
    HwMoved,
    ProduceAnswer,
    ProposeIsr,
    ReplicaEffect,
    Reset,
    RoleChanged,
    SaveEpochs,
    Truncate,
)

RULE = "----"


def _node(word: str) -> int:
    return CONTROLLER if word == "controller" else int(word.removeprefix("n"))


def _name(node: int) -> str:
    return "controller" if node == CONTROLLER else f"n{node}"


def describe(node: int, effect: ReplicaEffect) -> str | None:
    """One effect as a line; None for effects that the numbers show."""
    match effect:
        case Append():
            records = " ".join(f"{b.data.decode()}@{b.base_offset}/e{b.epoch}" for b in effect.batches)
            return f"n{node} appends {records}"
        case Truncate():
            return f"n{node} truncates {effect.was} -> {effect.to}: {effect.why}"
        case Reset():
            return f"n{node} begins anew at {effect.start}"
        case SaveEpochs():
            entries = " ".join(f"e{epoch}:{start}" for epoch, start in effect.entries)
            return f"n{node} saves epochs {entries or 'none'}"
        case RoleChanged():
            role = (
                "leads"
                if effect.leading
                else f"follows {_name(effect.leader) if effect.leader >= 0 else 'nobody'}"
            )
            return f"n{node} {role} in epoch {effect.leader_epoch}"
        case ProduceAnswer():
            assert isinstance(effect.token, Sent)
            values = ",".join(effect.token.values)
            error = errors.error_name(effect.error)
            return f"n{node} answers send({values}): {error} offset {effect.base_offset}"
        case ProposeIsr():
            members = " ".join(f"n{broker}/b{epoch}" for broker, epoch in effect.isr)
            return f"n{node} proposes ISR {members} on partition epoch {effect.partition_epoch}"
        case HwMoved():
            return f"n{node} moves its HW to {effect.hw}"
    return None


class Story:
    """Plays commands: one method for each command, its words as arguments."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.lines: list[str] = []

    def play(self, commands: Sequence[str]) -> str:
        """Plays one block and returns its outcome."""
        self.lines = []
        for command in commands:
            words = command.split()
            plain = [word for word in words[1:] if "=" not in word]
            named = dict(word.split("=", 1) for word in words[1:] if "=" in word)
            getattr(self, "do_" + words[0].replace("-", "_"))(*plain, **named)
        return "\n".join([*self.lines, *self._numbers()])

    def _numbers(self) -> list[str]:
        return ["  " + line for line in self.cluster.numbers().split(" | ")]

    def _describe(self, node: int, effect: ReplicaEffect) -> None:
        line = describe(node, effect)
        if line:
            self.lines.append(line)

    def do_cluster(self, rules: str = "kip-320", **options: str) -> None:
        bugs, switches = (
            [name for name in options.pop(kind, "").split(",") if name] for kind in ("bugs", "switches")
        )
        numbers: dict[str, Any] = {name: int(value) for name, value in options.items()}
        self.cluster = MemoryCluster(rules, bugs, switches=switches, **numbers)
        self.cluster.on_effect = self._describe

    def do_send(self, node: str, *values: str, acks: str = "all") -> None:
        self.cluster.send(_node(node), *values, acks=-1 if acks == "all" else int(acks))

    def do_ask(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.ask(_node(node))

    def do_deliver(self, kind: str, **ends: str) -> None:
        messages = self._messages(kind, **ends)
        self.lines += [] if messages else [f"no {kind} is under way"]
        for message in messages:
            self.lines.append(_under_way(message))
            self.cluster.deliver(message)

    def do_hears(self, node: str, number: str = "0") -> None:
        """Delivers this one of the leader-and-isr messages on their way to a node."""
        message = self._messages("metadata", to=node)[int(number)]
        event = message.body[2]
        self.lines.append(f"{_under_way(message)}: {_name(event.leader)} leads epoch {event.leader_epoch}")
        self.cluster.deliver(message)

    def do_drop(self, kind: str, **ends: str) -> None:
        for message in self._messages(kind, **ends):
            self.lines.append(f"lost: {_under_way(message)}")
            self.cluster.drop(message)

    def _messages(self, kind: str, **ends: str) -> list[Message]:
        return self.cluster.waiting_messages(kind, **{end: _node(node) for end, node in ends.items()})

    def do_hold(self, kind: str | None = None, **ends: str) -> None:
        self.cluster.hold(kind, **{end: _node(node) for end, node in ends.items()})

    def do_release(self) -> None:
        self.cluster.release()

    def do_stabilize(self) -> None:
        self.cluster.stabilize()

    def do_pass(self, duration_ms: str) -> None:
        self.cluster.pass_time(int(duration_ms))

    def do_heartbeat(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.heartbeat(_node(node))

    def do_crash(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.crash(_node(node))

    def do_power_cut(self, node: str, keep: str = "0") -> None:
        self.cluster.power_cut(_node(node), int(keep))

    def do_start(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.start(_node(node))

    def do_flush(self, node: str) -> None:
        self.cluster.flush(_node(node))

    def do_checkpoint(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.checkpoint(_node(node))

    def do_expire(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.expire(_node(node))

    def do_lead(self, node: str) -> None:
        self.cluster.lead(_node(node))

    def do_read(self, node: str, offset: str = "0") -> None:
        error, records = self.cluster.read(_node(node), int(offset))
        self.lines.append(
            f"read: {errors.error_name(error)} {' '.join(f'{v}@{o}' for o, v in records)}".rstrip()
        )

    def do_partition(self) -> None:
        info = self.cluster.partition
        isr = ",".join(f"n{node}" for node in info.isr)
        leader = _name(info.leader) if info.leader >= 0 else "nobody"
        self.lines.append(f"controller: leader {leader} epoch {info.leader_epoch} isr {{{isr}}}")

    def do_logs(self) -> None:
        for node in self.cluster.nodes:
            entries = [
                f"{value}@{offset}/e{epoch}" for offset, (value, epoch) in self.cluster.log(node).items()
            ]
            self.lines.append(f"log of n{node}: {' '.join(entries)}".rstrip())

    def do_damage(self) -> None:
        self.lines += damage(self.cluster) or ["no damage"]


def _under_way(message: Message) -> str:
    return f"{message.kind} {_name(message.sender)} -> {_name(message.to)}"


def blocks(text: str) -> Iterator[tuple[list[str], list[str], str]]:
    """(comments, commands, outcome as written) of each block."""
    comments: list[str] = []
    commands: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line == RULE:
            outcome = []
            for below in lines:
                if not below:
                    break
                outcome.append(below)
            yield comments, commands, "\n".join(outcome)
            comments, commands = [], []
        elif line.startswith("#") or not line:
            comments.append(line)
        else:
            commands.append(line)
    if commands:
        yield comments, commands, ""


def played(text: str, story: Callable[[], Story] = Story) -> str:
    """The story with the outcomes that the machines give now."""
    teller, parts = story(), []
    for comments, commands, _ in blocks(text):
        parts.append("\n".join([*comments, *commands, RULE, teller.play(commands)]))
    return "\n\n".join(parts) + "\n"

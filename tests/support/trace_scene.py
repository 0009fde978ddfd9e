"""Adds lines to the end of a run's trace, one at a time.

    scene = Scene(folder, random)       some partition, in its state at the end: all equal, all in the ISR
    scene.append(scene.leader)          one record more at the leader
    scene.copy(scene.one)               ... and at a follower
    scene.commit()                      the leader's HW moves to its end
    scene.word("isr", isr=[...])        the controller has changed something

Rules kept here: every line is a step of its own, later than the one before by more than the clock error; the
state of a line is kept for the node's next one.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from histories import Line, RunFolder

CONTROLLER = "controller"


@dataclass(slots=True, kw_only=True)
class State:
    """A replica's state in its last line."""

    epoch: int
    leo: int
    hw: int


class Scene:
    def __init__(self, folder: RunFolder, random: Random, key: int | None = None) -> None:
        assert folder.trace is not None
        self.folder, self.random = folder, random
        self.trace = folder.trace
        self.key = int(random.choice(sorted(folder.run["partitions"]))) if key is None else key
        self.nodes = list(folder.run["nodes"])
        lines = [line for line in self.trace if line.get("partition") == self.key]
        last = next(line for line in reversed(lines) if line["event"] in ("elect", "isr")
                    and line["node"] == CONTROLLER)
        self.epoch, self.partition_epoch = last["epoch"], last["partition_epoch"]
        self.isr: list[str] = list(last["isr"])
        self.leader: str = last["leader"] or random.choice(self.isr)
        self.one, self.other = random.sample([node for node in self.nodes if node != self.leader], 2)
        self.states = {node: state_of(lines, node) for node in self.nodes}
        self.time = max(line["time"] for line in [*self.trace, *folder.lines])
        self.step = 1_000 + 2 * (folder.run.get("clock_error_ns") or 0)

    @property
    def leo(self) -> int:
        return self.states[self.leader].leo

    # -- lines -----------------------------------------------------------------------------------------------

    def node_line(self, node: str, event: str, *, at: int | None = None, **besides: Any) -> Line:
        """Adds a line of a node; `at`: at this time, not a moment later."""
        self.time = self.time + self.step if at is None else at
        seq = 1 + max((line["seq"] for line in self.trace if line["node"] == node), default=-1)
        self.trace.append({"time": self.time, "node": node, "seq": seq, "event": event} | besides)
        return self.trace[-1]

    def say(self, node: str, event: str, *, at: int | None = None, epoch: int | None = None,
            leo: int | None = None, hw: int | None = None, **besides: Any) -> Line:
        """Adds a line of a replica, whose state is as before except for the given values."""
        state = self.states[node]
        state.epoch = state.epoch if epoch is None else epoch
        state.leo = state.leo if leo is None else leo
        state.hw = min(state.hw if hw is None else hw, state.leo)
        return self.node_line(node, event, at=at, partition=self.key, epoch=state.epoch, leo=state.leo,
                              hw=state.hw, **besides)

    def word(self, event: str, *, isr: list[str] | None = None, **besides: Any) -> Line:
        """Adds a controller's line on the partition."""
        self.isr = sorted(self.isr if isr is None else isr)
        self.partition_epoch += 1
        ruling = {"leader": self.leader, "epoch": self.epoch, "isr": self.isr,
                  "partition_epoch": self.partition_epoch}
        return self.node_line(CONTROLLER, event, partition=self.key, **ruling | besides)

    def broker(self, event: str, node: str) -> Line:
        """Adds a controller's line on a broker."""
        return self.node_line(CONTROLLER, event, broker=node, broker_epoch=1000 + len(self.trace))

    # -- events of replicas ---------------------------------------------------------------------------------

    def append(self, node: str, count: int = 1, role: str = "leader", at: int | None = None) -> Line:
        """The node appends a record of its current epoch."""
        state = self.states[node]
        appended = {"offset": state.leo, "count": count, "epochs": [[state.epoch, state.leo]]}
        return self.say(node, "append", at=at, leo=state.leo + count, role=role, **appended)

    def copy(self, *nodes: str, at: int | None = None) -> None:
        """Each of these appends up to the leader's end, with records of its current epoch, and fetches from
        there. One that was started again gets its role before."""
        for node in nodes:
            if self.states[node].epoch == -1:
                self.obey(node)
            if self.states[node].leo < self.leo:
                self.append(node, self.leo - self.states[node].leo, role="follower", at=at)
            self.fetch(node)

    def fetch(self, node: str) -> Line:
        return self.say(self.leader, "fetch", follower=node, offset=self.states[node].leo,
                        follower_epoch=self.epoch)

    def commit(self, *, at: int | None = None) -> Line:
        return self.say(self.leader, "hw", at=at, hw=self.leo, role="leader")

    def ack(self, isr: list[str] | None = None, *, acks: str = "all", at: int | None = None) -> Line:
        """Acks the leader's last record."""
        return self.say(self.leader, "ack", at=at, offset=self.leo - 1, acks=acks,
                        isr=sorted(self.isr if isr is None else isr))

    def elect(self, node: str, *, isr: list[str] | None = None, clean: bool = True) -> Line:
        """Only the controller's line. ValueError if no controller would write it."""
        if node not in (self.isr if isr is None else isr):
            raise ValueError(f"{node} is not in the ISR {self.isr}")
        self.leader, self.epoch = node, self.epoch + 1
        return self.word("elect", isr=isr, clean=clean)

    def lead(self, node: str, epoch: int | None = None) -> Line:
        return self.say(node, "become_leader", epoch=self.epoch if epoch is None else epoch, isr=self.isr,
                        start=self.states[node].leo)

    def obey(self, *nodes: str) -> None:
        for node in nodes:
            self.say(node, "become_follower", epoch=self.epoch, leader=self.leader)

    def change(self, node: str, *, isr: list[str] | None = None) -> None:
        """A clean election with all of its lines."""
        self.elect(node, isr=isr)
        self.lead(node)
        self.obey(*[other for other in self.nodes if other != node])

    def shrink(self, *nodes: str) -> None:
        """These leave the ISR correctly."""
        rest = sorted({*self.isr} - {*nodes})
        self.say(self.leader, "isr_proposed", isr=rest, partition_epoch=self.partition_epoch)
        self.word("isr", isr=rest, cause="alter")
        self.learn()

    def propose(self, *nodes: str) -> None:
        self.say(self.leader, "isr_proposed", isr=sorted({*self.isr, *nodes}),
                 partition_epoch=self.partition_epoch)

    def learn(self) -> None:
        self.say(self.leader, "isr", leader=self.leader, isr=self.isr, partition_epoch=self.partition_epoch,
                 cause="learnt")

    def outgrow(self) -> None:
        """All get one record more than any replica ever had, and followers fetch from behind it: so they
        surely wrote it, and a start with less is a recovery-loss."""
        most = max(line["leo"] for line in self.trace if line.get("partition") == self.key and "leo" in line)
        self.append(self.leader, most + 1 - self.leo)
        self.copy(*[node for node in self.nodes if node != self.leader])
        self.commit()

    def start(self, node: str, leo: int) -> Line:
        """The node starts again with so much of its log."""
        self.node_line(node, "start", clean=False)
        return self.say(node, "start", epoch=-1, leo=leo, clean=False)

    def cut(self, node: str, to: int, cause: str = "epoch") -> Line:
        was = self.states[node].leo
        return self.say(node, "truncate", leo=to, **{"from": was, "to": to, "cause": cause})


def state_of(lines: list[Line], node: str) -> State:
    last = next(line for line in reversed(lines) if line["node"] == node and "leo" in line)
    return State(epoch=last["epoch"], leo=last["leo"], hw=last["hw"])

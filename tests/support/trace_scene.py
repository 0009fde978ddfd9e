"""More of the same run: what happens after the last line of a trace, told line by line.

    scene = Scene(folder, random)       some partition, as it stood at the end: all equal, all in the ISR
    scene.append(scene.leader)          one record more at the leader
    scene.copy(scene.one)               ... and at a follower
    scene.commit()                      the leader's HW moves to its end
    scene.word("isr", isr=[...])        the controller has changed something

Rules kept here: every line is a step of its own, further from the one before than the clocks may err; the
state that a line tells is kept for the node's next one.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from trace_controller import CONTROLLER

from histories import Line, RunFolder


@dataclass(slots=True, kw_only=True)
class Stand:
    """A replica as its last line tells it."""

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
        told = [line for line in self.trace if line.get("partition") == self.key]
        last = next(line for line in reversed(told) if line["event"] in ("elect", "isr")
                    and line["node"] == CONTROLLER)
        self.epoch, self.partition_epoch = last["epoch"], last["partition_epoch"]
        self.isr: list[str] = list(last["isr"])
        self.leader: str = last["leader"] or random.choice(self.isr)
        self.one, self.other = random.sample([node for node in self.nodes if node != self.leader], 2)
        self.stands = {node: stand_of(told, node) for node in self.nodes}
        self.time = max(line["time"] for line in [*self.trace, *folder.lines])
        self.step = 1_000 + 2 * (folder.run.get("clock_error_ns") or 0)

    @property
    def leo(self) -> int:
        return self.stands[self.leader].leo

    # -- lines -----------------------------------------------------------------------------------------------

    def tell(self, node: str, event: str, *, at: int | None = None, **besides: Any) -> Line:
        """A line of a node; `at`: not a moment later, but at this time."""
        self.time = self.time + self.step if at is None else at
        seq = 1 + max((line["seq"] for line in self.trace if line["node"] == node), default=-1)
        self.trace.append({"time": self.time, "node": node, "seq": seq, "event": event} | besides)
        return self.trace[-1]

    def say(self, node: str, event: str, *, at: int | None = None, epoch: int | None = None,
            leo: int | None = None, hw: int | None = None, **besides: Any) -> Line:
        """A line of a replica, whose state is as before but for what is given."""
        stand = self.stands[node]
        stand.epoch = stand.epoch if epoch is None else epoch
        stand.leo = stand.leo if leo is None else leo
        stand.hw = min(stand.hw if hw is None else hw, stand.leo)
        return self.tell(node, event, at=at, partition=self.key, epoch=stand.epoch, leo=stand.leo,
                         hw=stand.hw, **besides)

    def word(self, event: str, *, isr: list[str] | None = None, **besides: Any) -> Line:
        """The controller's, of the partition."""
        self.isr = sorted(self.isr if isr is None else isr)
        self.partition_epoch += 1
        told = {"leader": self.leader, "epoch": self.epoch, "isr": self.isr,
                "partition_epoch": self.partition_epoch}
        return self.tell(CONTROLLER, event, partition=self.key, **told | besides)

    def broker(self, event: str, node: str) -> Line:
        """The controller's, of a broker."""
        return self.tell(CONTROLLER, event, broker=node, broker_epoch=1000 + len(self.trace))

    # -- what replicas do ------------------------------------------------------------------------------------

    def append(self, node: str, count: int = 1, role: str = "leader", at: int | None = None) -> Line:
        """Of its own, in the epoch that it is in."""
        stand = self.stands[node]
        told = {"offset": stand.leo, "count": count, "epochs": [[stand.epoch, stand.leo]]}
        return self.say(node, "append", at=at, leo=stand.leo + count, role=role, **told)

    def copy(self, *nodes: str, at: int | None = None) -> None:
        """Each of these gets to the leader's end, with records of the epoch that it is in, and says so."""
        for node in nodes:
            if self.stands[node].leo < self.leo:
                self.append(node, self.leo - self.stands[node].leo, role="follower", at=at)
            self.fetch(node)

    def fetch(self, node: str) -> Line:
        return self.say(self.leader, "fetch", follower=node, offset=self.stands[node].leo,
                        follower_epoch=self.epoch)

    def commit(self, *, at: int | None = None) -> Line:
        return self.say(self.leader, "hw", at=at, hw=self.leo, role="leader")

    def ack(self, isr: list[str] | None = None, *, acks: str = "all", at: int | None = None) -> Line:
        """Of the leader's last record."""
        return self.say(self.leader, "ack", at=at, offset=self.leo - 1, acks=acks,
                        isr=sorted(self.isr if isr is None else isr))

    def elect(self, node: str, *, isr: list[str] | None = None, clean: bool = True) -> Line:
        """The controller's word alone. ValueError where no controller would say it."""
        if node not in (self.isr if isr is None else isr):
            raise ValueError(f"{node} is not in the ISR {self.isr}")
        self.leader, self.epoch = node, self.epoch + 1
        return self.word("elect", isr=isr, clean=clean)

    def lead(self, node: str, epoch: int | None = None) -> Line:
        return self.say(node, "become_leader", epoch=self.epoch if epoch is None else epoch, isr=self.isr,
                        start=self.stands[node].leo)

    def obey(self, *nodes: str) -> None:
        for node in nodes:
            self.say(node, "become_follower", epoch=self.epoch, leader=self.leader)

    def change(self, node: str, *, isr: list[str] | None = None) -> None:
        """A clean election from beginning to end."""
        self.elect(node, isr=isr)
        self.lead(node)
        self.obey(*[other for other in self.nodes if other != node])

    def shrink(self, *nodes: str) -> None:
        """These leave the ISR, as it should be."""
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
        """All have one record more than any replica ever had, and followers ask for what comes behind it: so
        they surely wrote it, and a start with less is a recovery-loss."""
        most = max(line["leo"] for line in self.trace if line.get("partition") == self.key and "leo" in line)
        self.append(self.leader, most + 1 - self.leo)
        self.copy(*[node for node in self.nodes if node != self.leader])
        self.commit()

    def start(self, node: str, leo: int) -> Line:
        """It is up again, with that much of its log."""
        self.tell(node, "start", clean=False)
        return self.say(node, "start", epoch=-1, leo=leo, clean=False)

    def cut(self, node: str, to: int, why: str = "to what the leader has") -> Line:
        was = self.stands[node].leo
        return self.say(node, "truncate", leo=to, **{"from": was, "to": to, "why": why})


def stand_of(told: list[Line], node: str) -> Stand:
    last = next(line for line in reversed(told) if line["node"] == node and "leo" in line)
    return Stand(epoch=last["epoch"], leo=last["leo"], hw=last["hw"])

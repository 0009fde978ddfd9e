"""Drives a memory cluster by a random schedule from a seed: clients, faults, a network that delays and loses.

Faults stay within what the guarantees allow: elections are clean; a power cut happens only while every node
runs and is in the ISR, and no leader is about to shrink it (the request would outlive its sender, and the ISR
might become the one node that lost its data: KIP-966 solves that); until that node is back in the ISR, no
other node crashes or loses its session.
"""

from collections.abc import Sequence
from random import Random

from memory_cluster import MemoryCluster
from memory_node import CONTROLLER
from oracles import damage, incomplete_members

ACTIONS = {
    "send": 10, "ask": 16, "deliver": 40, "drop": 2, "time_out": 1, "heartbeat": 8, "pass_time": 3,
    "crash": 1, "start": 3, "power_cut": 1, "expire": 1, "lead": 1, "elect": 1, "flush": 2,
    "checkpoint": 2, "read": 3, "restart_controller": 0.3, "stop": 0.5, "stopped": 1, "settle": 0.6,
    "cut": 0.7,
    "heal": 1,
}  # fmt: skip

DISTURBING = (
    "drop",
    "time_out",
    "crash",
    "power_cut",
    "expire",
    "lead",
    "elect",
    "restart_controller",
    "stop",
    "cut",
)


def random_cluster(
    seed: int, rules: str = "kip-320", bugs: Sequence[str] = (), switches: Sequence[str] = ()
) -> MemoryCluster:
    """Mostly three nodes; lags long and short; min.insync.replicas two or (harmless with kills) one."""
    random = Random(seed)
    return MemoryCluster(
        rules,
        bugs,
        switches=switches,
        nodes=random.choice((2, 3, 3, 3, 4)),
        min_insync=random.choice((1, 2, 2, 2)),
        lag_ms=random.choice((600, 1_500, 10_000)),
        session_ms=random.choice((1_500, 6_000)),
    )


class RandomDriver:
    """Steps a cluster; `damaged` is the first damage, with the number of its step."""

    def __init__(self, cluster: MemoryCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.recovering: int | None = None  # the node whose power was cut
        self.stopping: list[int] = []  # asked to stop, still running
        self.stopped: dict[int, int] = {}  # node -> its incarnation that was asked to stop, and cannot lead
        self.sent = 0
        self.counts = dict.fromkeys(ACTIONS, 0)
        self.history: list[str] = []

    def run(self, steps: int, look_every: int = 10) -> list[str]:
        """Runs so many steps; returns the first damage, or nothing. Mends and settles the cluster at the
        end."""
        names = list(ACTIONS)
        calm = self.random.choice((0.2, 0.5, 1.0))  # schedules differ in how often they are disturbed
        weights = [ACTIONS[name] * (calm if name in DISTURBING else 1) for name in names]
        for step in range(steps):
            name = self.random.choices(names, weights)[0]
            self.counts[name] += 1
            getattr(self, "_" + name)()
            if step % look_every == 0:
                found = damage(self.cluster) + incomplete_members(self.cluster)
                if found:
                    return [f"step {step}: {one}" for one in found]
        self.mend()
        return [
            f"settled: {one}"
            for one in damage(self.cluster) + incomplete_members(self.cluster) + self._unlike()
        ]

    def mend(self) -> None:
        """Starts every node, delivers every message, brings every node back into the ISR."""
        cluster = self.cluster
        cluster.release()
        for node in self.stopping:
            cluster.crash(node)
        for node in cluster.nodes:
            if node not in cluster.running:
                cluster.start(node)
        for _ in range(6):
            cluster.stabilize()
            cluster.pass_time(600)
        cluster.stabilize()

    def _unlike(self) -> list[str]:
        """Differences between the logs after mending; every log must be the same to its end."""
        cluster = self.cluster
        logs = {node: cluster.log(node) for node in cluster.nodes}
        isr = sorted(cluster.partition.isr)
        unlike = [f"log of n{node} differs from n1's" for node in logs if logs[node] != logs[1]]
        return unlike + ([] if isr == sorted(logs) else [f"ISR {isr}"])

    # -- actions -----------------------------------------------------------------------------------------

    def _pick(self, nodes: list[int]) -> int | None:
        return self.random.choice(nodes) if nodes else None

    def _send(self) -> None:
        leading = [node for node in self.cluster.running if self.cluster.replica(node).leading]
        node = self._pick(leading)
        if node is not None and self.sent < 400:
            values = [f"v{self.sent + k}" for k in range(self.random.choice((1, 1, 1, 2, 3)))]
            self.sent += len(values)
            self.cluster.send(node, *values, acks=self.random.choice((-1, -1, -1, 1)), timeout_ms=5_000)

    def _read(self) -> None:
        node = self._pick([node for node in self.cluster.running if self.cluster.replica(node).leading])
        if node is not None:
            self.cluster.read(node)

    def _ask(self) -> None:
        node = self._pick(self.cluster.running)
        if node is not None:
            self.cluster.ask(node)

    def _deliver(self) -> None:
        free = self.cluster.deliverable()
        if free:
            first = min(4, len(free)) if self.random.random() < 0.8 else len(free)
            self.cluster.deliver(free[self.random.randrange(first)])

    def _cut(self) -> None:
        """Cuts one direction of one link (or of one to the controller) until it is healed."""
        ends = [*self.cluster.nodes, CONTROLLER]
        sender, to = self.random.sample(ends, 2)
        self.cluster.hold(sender=sender, to=to)

    def _heal(self) -> None:
        self.cluster.release()

    def _drop(self) -> None:
        if self.cluster.messages:
            message = self.random.choice(self.cluster.messages)
            self.cluster.drop(message)
            if message.kind == "metadata":  # it is sent again until it is answered
                self.cluster.send_metadata([message.to])

    def _time_out(self) -> None:
        asked = [m for m in self.cluster.messages if m.kind != "metadata"]
        if asked:
            self.cluster.time_out(self.random.choice(asked))

    def _heartbeat(self) -> None:
        node = self._pick(self.cluster.running)
        if node is not None:
            self.cluster.heartbeat(node)

    def _pass_time(self) -> None:
        self._recovered()
        left_ms = self.random.choice((10, 100, 500, 500, 2_000))
        while left_ms > 0:
            if self.recovering is not None:
                for node in self.cluster.running:
                    self.cluster.heartbeat(node)
            self.cluster.pass_time(min(left_ms, 500))
            left_ms -= 500

    def _crash(self) -> None:
        node = self._pick(self.cluster.running)
        if node is not None and self._free(node):
            self.cluster.crash(node)
            self.stopping = [other for other in self.stopping if other != node]

    def _stop(self) -> None:
        """Controlled shutdown."""
        node = self._pick(self.cluster.running)
        if node is not None and self._free(node):
            self.cluster.heartbeat(node, stopping=True)
            self.stopping.append(node)
            self.stopped[node] = self.cluster.nodes[node].incarnation

    def _stopped(self) -> None:
        if self.stopping:
            node = self.stopping.pop()
            if node in self.cluster.running:
                self.cluster.checkpoint(node)
                self.cluster.flush(node)
                self.cluster.crash(node)

    def _start(self) -> None:
        node = self._pick([node for node in self.cluster.nodes if node not in self.cluster.running])
        if node is not None:
            self.cluster.start(node)

    def _power_cut(self) -> None:
        cluster = self.cluster
        full = sorted(cluster.partition.isr) == cluster.running == sorted(cluster.nodes)
        proposing = any(cluster.replica(node).proposing for node in cluster.running)
        if full and not proposing and self._free(0):
            node = self.random.choice(cluster.running)
            disk = cluster.nodes[node].disk
            cluster.power_cut(node, self.random.randint(disk.flushed, len(disk.batches)))
            self.recovering = node

    def _expire(self) -> None:
        node = self.random.choice(list(self.cluster.nodes))
        if self._free(node):
            self.cluster.expire(node)

    def _lead(self) -> None:
        info = self.cluster.partition
        known = {broker.id for broker in self.cluster.controller.metadata().brokers if not broker.fenced}
        active = [node for node in known if self.stopped.get(node) != self.cluster.nodes[node].incarnation]
        node = self._pick([node for node in info.isr if node in active])
        if node is not None and node != info.leader:
            self.cluster.lead(node)

    def _elect(self) -> None:
        self.cluster.elect()

    def _flush(self) -> None:
        self.cluster.flush(self.random.choice(list(self.cluster.nodes)))

    def _checkpoint(self) -> None:
        node = self._pick(self.cluster.running)
        if node is not None:
            self.cluster.checkpoint(node)

    def _restart_controller(self) -> None:
        self.cluster.restart_controller()

    def _settle(self) -> None:
        """A quiet time, so that schedules reach a full ISR again and again."""
        self.cluster.release()
        for _ in range(2):
            self.cluster.stabilize()
            self.cluster.pass_time(500)
        self._recovered()

    def _recovered(self) -> None:
        if self.recovering in self.cluster.partition.isr and self.recovering in self.cluster.running:
            info = {broker.id: broker.epoch for broker in self.cluster.controller.metadata().brokers}
            if info[self.recovering] == self.cluster.nodes[self.recovering].broker_epoch:
                self.recovering = None

    def _free(self, node: int) -> bool:
        """Whether a fault may hit this node now."""
        self._recovered()
        return self.recovering is None or self.recovering == node

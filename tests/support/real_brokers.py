"""Real brokers for tests that ask them themselves, by broker ids: the local cluster with direct connections.

Between a test's calls the cluster's event loop stands still. Apache Kafka's can do what needs no `ask`; they
have no ELR (KIP-966), which the reference broker lacks.
"""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from cluster_stage import Stage
from raw import Raw, batch
from run_processes import wait_until

from floodmark.harness.cluster.layout import HOST
from floodmark.harness.errors import FloodmarkError

CONTROLLER = 100
# No clock takes a broker out of an ISR while a test works: `expire` does.
KEYS = {
    "broker.session.timeout.ms": "10000",
    "broker.heartbeat.interval.ms": "100",
    "replica.lag.time.max.ms": "60000",
    "replica.fetch.backoff.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}
OF_KAFKA = {"eligible.leader.replicas.version": "0"}


class RealBrokers(Stage):
    """Brokers 1..n and the controller; they run in its context."""

    def __init__(self, folder: Path, brokers: int = 3, *, kafka: str | None = None, trace: bool = True,
                 **keys: str) -> None:
        super().__init__(folder, brokers, place="local", kafka=kafka, links="direct", trace=trace,
                         **{**(OF_KAFKA if kafka else KEYS), **keys})
        self.brokers = tuple(range(1, brokers + 1))
        self.name = {number: name for name, number in self.cluster.runs.ids.items()}

    def __enter__(self) -> Self:
        try:
            self.play(self.cluster.start())
        except BaseException:
            self.close()
            raise
        places = self.cluster.place.layout.places
        self.port = {node: places[name].listens[1] for node, name in self.name.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.port[node]}" for node in self.brokers)

    def log_dir(self, node: int) -> Path:
        return self.cluster.place.layout.of(self.name[node]).log_dir

    # -- processes -----------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Returns when it answers."""
        self.play(self.cluster.start_node(self.name[node]))

    def end(self, node: int, by: signal.Signals = signal.SIGKILL) -> None:
        """Returns when it is gone."""
        self.play((self.cluster.kill if by is signal.SIGKILL else self.cluster.stop_node)(self.name[node]))

    def pid(self, node: int) -> int:
        return self.cluster.place.processes.alive[self.name[node]].pid

    def pause(self, node: int) -> None:
        self.play(self.cluster.pause(self.name[node]))

    def resume(self, node: int) -> None:
        self.play(self.cluster.resume(self.name[node]))

    def running(self, node: int) -> bool:
        self.play(asyncio.sleep(0.01))  # in which it hears of an end
        return self.cluster.place.lives(self.name[node])

    def answers(self, node: int) -> bool:
        return self.running(node) and not self.cluster.place.paused(self.name[node])

    def last_words(self, node: int) -> str:
        """Of one that ended though nobody asked the cluster for it."""
        wait_until(f"the end of {node}", lambda: not self.running(node))
        return next(one.words for one in self.cluster.place.deaths if one.name == self.name[node])

    # -- topics --------------------------------------------------------------------------------------------

    def create(self, topic: str, *assignment: tuple[int, ...], **configs: str) -> str:
        """A topic that is in sync, of one partition on all three if not said."""
        assignment = assignment or ((1, 2, 3),)
        with Raw(self.port[1]) as raw:
            assert raw.create(topic, *assignment, **configs) == 0
        self.wait_isr(topic, *assignment[0])
        return topic

    def produce(self, topic: str, value: bytes, *, node: int = 1, **how: int) -> tuple[int, int]:
        """(error, offset)."""
        with Raw(self.port[node]) as raw:
            return raw.produce(topic, batch(value), **how)

    # -- what they say ---------------------------------------------------------------------------------------

    def ask(self, node: int, do: str, **besides: Any) -> Mapping[str, Any]:
        return self.play(self.cluster.runs._sockets.ask(self.name[node], do, **besides))

    def expire(self, *nodes: int) -> None:
        """Ends their sessions, as the controller does when it hears nothing from them for long."""
        for node in nodes:
            self.ask(CONTROLLER, "expire", broker=node)

    def seen(self, node: int) -> Mapping[str, Any]:
        """The state, or {} while the node does not answer."""
        try:
            return self.ask(node, "state")
        except FloodmarkError:
            return {}

    def partition(self, topic: str, index: int = 0) -> Mapping[str, Any]:
        """The controller's view of the partition; {} while there is none."""
        return one_of(self.seen(CONTROLLER).get("partitions", ()), topic, index)

    def replica(self, node: int, topic: str, index: int = 0) -> Mapping[str, Any]:
        return one_of(self.seen(node).get("replicas", ()), topic, index)

    def wait_isr(self, topic: str, *nodes: int) -> Mapping[str, Any]:
        """Waits until the controller has this ISR and its leader has taken its role."""

        def full() -> Mapping[str, Any]:
            part = self.partition(topic)
            if not part or set(part["isr"]) != set(nodes) or part["leader"] < 0:
                return {}
            leader = self.replica(part["leader"], topic)
            return part if leader.get("epoch") == part["epoch"] and set(leader["isr"]) == set(nodes) else {}

        return wait_until(f"the ISR of {topic} to be {nodes}", full)


def one_of(rows: Any, topic: str, index: int) -> Mapping[str, Any]:
    return next((each for each in rows if (each["topic"], each["partition"]) == (topic, index)), {})

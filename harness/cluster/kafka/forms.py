"""The protocol Form: what differs between Apache Kafka in KRaft mode and with ZooKeeper.
KafkaSystem (kafka_system.py) has what both share. The process `controller` is the quorum's controller in
KRaft mode and ZooKeeper in the other; in both, what it wrote decides who leads and is the truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from floodmark.harness.cluster.layout import Layout
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """The controller's decisions so far."""

    partitions: Mapping[int, PartitionView]  # by the history's key
    unfenced: frozenset[str]  # registered nodes that it considers alive


class Form(Protocol):
    @property
    def name(self) -> str: ...  # zookeeper or kraft: run.json's `system.form`
    @property
    def about(self) -> Mapping[str, Any]: ...  # further keys of run.json's `system`
    @property
    def settings(self) -> Mapping[str, str]: ...  # Kafka's keys of every broker, without addresses and paths
    @property
    def decides_alone(self) -> bool: ...  # whether the process `controller` decides; else a broker does
    @property
    def waiting_line(self) -> str: ...  # what a broker logs while it waits for its controller
    @property
    def stranger_line(self) -> str: ...  # what it logs if its log directory is another cluster's
    @property
    def lacks(self) -> Mapping[type, str]: ...  # abilities that this form does not have, and why

    def write_files(self, layout: Layout) -> None: ...  # all files that its processes read at start
    def before(self, name: str) -> Sequence[str]: ...  # a command that execs its arguments; may be empty
    def main(self, name: str) -> tuple[str, Path]: ...  # the main class, and its settings file
    async def starting(self, name: str) -> None: ...  # its process is about to start
    async def controller_is_up(self) -> bool: ...
    async def expire(self, node: str, partitions: Sequence[PartitionSpec], awake: Sequence[str]) -> None: ...
    async def admin(self, running: Sequence[str]) -> str | None: ...  # who takes admin requests; None: nobody
    async def controller_state(self, partitions: Sequence[PartitionSpec]) -> ControllerState | None: ...
    async def close(self) -> None: ...  # safe twice, and before write_files

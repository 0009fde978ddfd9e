"""The seam inside Apache Kafka: what its two forms, KRaft and ZooKeeper, do each in its own way.

KafkaSystem (kafka_system.py) holds what both share. `controller`, the process, is the quorum's controller in
the one form and ZooKeeper in the other; in both it is what decides who leads, and what it wrote is the truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from floodmark.harness.cluster.layout import Layout
from floodmark.harness.protocols import PartitionSpec, PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """What the controller has decided by now."""

    partitions: Mapping[int, PartitionView]  # by the history's key
    unfenced: frozenset[str]  # nodes that are registered and alive to it


class Form(Protocol):
    @property
    def name(self) -> str: ...  # zookeeper or kraft: run.json's `system.form`
    @property
    def about(self) -> Mapping[str, Any]: ...  # what else run.json's `system` says of it
    @property
    def settings(self) -> Mapping[str, str]: ...  # Kafka's keys, of every broker, without its place
    @property
    def decides_alone(self) -> bool: ...  # the process `controller`; else a broker does
    @property
    def waiting_line(self) -> str: ...  # what a broker logs while it waits for its controller to be there
    @property
    def lacks(self) -> Mapping[type, str]: ...  # abilities that this form has not, and why

    def write_files(self, layout: Layout) -> None: ...  # all that its processes read when they start
    def before(self, name: str) -> Sequence[str]: ...  # a command that execs what follows it; or nothing
    def main(self, name: str) -> tuple[str, Path]: ...  # the class to be started, and its file
    async def starting(self, name: str) -> None: ...  # its process is about to begin
    async def controller_is_up(self) -> bool: ...
    async def expire(self, node: str, partitions: Sequence[PartitionSpec], awake: Sequence[str]) -> None: ...
    async def admin(self, running: Sequence[str]) -> str | None: ...  # who takes admin requests; None: nobody
    async def controller_state(self, partitions: Sequence[PartitionSpec]) -> ControllerState | None: ...
    async def close(self) -> None: ...  # safe twice, and before write_files

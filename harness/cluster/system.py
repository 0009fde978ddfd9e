"""The seam between a cluster and what runs in it: System. Where it lives is hosts.py's question.

The reference broker (reference/) is a system, Apache Kafka another, somebody's own a third. Who drives a
cluster asks its system for settings, for the command of each process and for looks. What not every system can
do (end a session, freeze, elect, arm failpoints, trace) is an ability of harness.protocols that the system
itself has; the cluster lists it among its abilities.

Rules
1. A system belongs to one cluster. What it is, and what it can and cannot do, is known before that starts.
2. `attach` comes once, when the place is laid out and before any process begins; before it nothing can be
   asked.
3. Names are the history's; ids are the system's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from floodmark.harness.cluster.hosts import Disks, Hosts
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.protocols import Met, PartitionSpec, View


class PowerLoss(Protocol):
    """How the loss of power, or of a disk, is played on the files of a dead broker: by its own account of
    what is durable (a side file), or by cutting its logs."""

    def power_cut(
        self, durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None
    ) -> Lost: ...
    def wipe(self, durable_file: Path, log_dir: Path) -> Lost: ...
    def start_anew(self, durable_file: Path) -> None: ...  # from here on all that lies there is durable
    def fsynced(self, durable_file: Path) -> Mapping[str, int] | None: ...  # file -> bytes; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaSoftware:
    """What a system's processes are made of where they are no Python. An image has it elsewhere, and what is
    `mounted` in a Layout says where."""

    version: str
    java: Path
    jars: tuple[Path, ...]  # in one folder
    needs_java: int  # or newer
    image: str | None = None  # an image by name that has as much; None: one is built of the jars


class System(Protocol):
    """What runs in one cluster."""

    partitions: tuple[PartitionSpec, ...]  # those that have a key in the history, by now

    @property
    def about(self) -> Mapping[str, Any]: ...  # run.json's `system`: {"name": ..., what else says which}
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def ids(self) -> Mapping[str, int]: ...  # of each node and of CONTROLLER
    @property
    def dials_by_name(self) -> bool: ...  # its processes dial one another where they are advertised
    @property
    def config(self) -> Mapping[str, Mapping[str, Any]]: ...  # run.json's `config`
    @property
    def lacks(self) -> Mapping[type, str]: ...  # abilities of the place that it does not bear, and why
    @property
    def not_shown(self) -> frozenset[str]: ...  # fields of ReplicaView that its looks leave UNKNOWN
    @property
    def read_from_files(self) -> frozenset[str]: ...  # likewise where brokers' files are not at hand
    @property
    def software(self) -> JavaSoftware | None: ...  # None: the reference broker's own
    @property
    def power(self) -> PowerLoss: ...
    @property
    def frozen(self) -> bool: ...  # all its processes stand still for good: nothing is mended any more

    def attach(self, layout: Layout, hosts: Hosts, disks: Disks) -> None: ...  # writes all settings
    def command(self, name: str) -> Sequence[str]: ...  # a program's name (hosts.PYTHON), then its arguments
    def number(self, partitions: Sequence[PartitionSpec]) -> None: ...  # they have these keys from now on
    async def create_topics(self, partitions: Sequence[PartitionSpec]) -> None: ...  # exactly so assigned
    async def look(self) -> View: ...

    # -- a process's life
    async def starting(self, name: str) -> None: ...  # its process is about to begin
    async def is_up(self, name: str) -> bool: ...  # it answers, or it has ended as it was armed to
    def started(self, name: str) -> None: ...  # it has read its settings, or ended
    def foreseen(self, name: str, code: int) -> bool: ...  # whether it was armed to end so
    def crashes(self) -> Sequence[Met]: ...  # the foreseen ends so far
    async def hang_up(self, name: str) -> None: ...  # the process is gone
    async def let_go(self, names: Sequence[str]) -> list[str]: ...  # undoes what it holds there; what is left
    async def close(self) -> None: ...  # when all processes have ended; safe twice, and without attach

"""The protocol System: what runs in a cluster. place.py has the protocol of the place it runs in.

The reference broker (reference/) and Apache Kafka (kafka/) are systems. A system gives the settings and
commands of its processes and observes them. What not every system can do (end a session, freeze, elect, arm
failpoints, trace) is an ability of harness.protocols that the system itself has; the cluster lists the system
among its abilities.

Rules
1. A system belongs to one cluster. What it is, and what it can do, is known before the cluster starts.
2. `attach` is called once, after the place is open and before any process starts; before that nothing can be
   asked.
3. Names are the history's; ids are the system's own.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from floodmark.harness.cluster.log_extents import Lost, partition_folders, records_in
from floodmark.harness.cluster.place import Place
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import Met, View


class PowerLoss(Protocol):
    """On the files of a dead broker: by its side file of what is durable, or by cutting its logs."""

    def power_cut(
        self, durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None) -> Lost: ...
    def mark_all_durable(  # everything is durable now; ends: where the logs end, if that was measured
        self, durable_file: Path, ends: Mapping[str, int] = ...) -> None: ...
    def fsynced(self, durable_file: Path) -> Mapping[str, int] | None: ...  # file -> bytes; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaSoftware:
    """The Java and the jars of a system's processes. In an image they have other paths: `mounted` in the
    Layout maps them."""

    version: str
    java: Path
    jars: tuple[Path, ...]  # absolute paths in one folder, in an order that does not change
    needs_java: int = 0  # or newer; 0: not determined
    image: str | None = None  # a named image that has them; None: one is built from the jars


def wipe(power: PowerLoss, durable_file: Path, log_dir: Path) -> Lost:
    """Empties the log directory of a dead broker, as if it were on a new disk."""
    records = {name: records_in(log_dir / name) for name in partition_folders(log_dir)}
    for path in sorted(log_dir.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    power.mark_all_durable(durable_file)
    return Lost(kept={}, records={name: count for name, count in records.items() if count})


class System(Protocol):
    """What runs in one cluster: its settings and commands, and how to observe it."""

    partitions: tuple[PartitionSpec, ...]  # those with a key in the history, so far

    about: Mapping[str, Any]  # run.json's `system`: {"name": ..., its version or rules}
    nodes: tuple[str, ...]
    ids: Mapping[str, int]  # of each node and of CONTROLLER
    dials_by_name: bool  # its processes connect to each other's advertised addresses
    config: Mapping[str, Mapping[str, Any]]  # run.json's `config`
    lacks: Mapping[type, str]  # abilities that it cannot have in any place, and why
    not_shown: frozenset[str]  # fields of ReplicaView that are always UNKNOWN
    read_from_files: frozenset[str]  # UNKNOWN too, if files are out of reach
    software: JavaSoftware | None  # None: the reference broker's own
    module: str | None  # its processes are `python -m` this: a place may import it only once
    power: PowerLoss
    starts_by_controller: bool  # a broker can start only while the controller answers
    frozen: bool  # all its processes are stopped for good: nothing is mended any more

    def attach(self, place: Place) -> None: ...  # writes all settings
    def command(self, name: str) -> Sequence[str]: ...  # a program's name (place.PYTHON), then its arguments
    async def create_topics(self, partitions: Sequence[PartitionSpec]) -> None: ...
    async def look(self) -> View: ...

    # -- a process's life
    async def starting(self, name: str) -> None: ...  # its process is about to start
    async def is_up(self, name: str) -> bool: ...  # it answers, or ended at an armed failpoint
    def started(self, name: str) -> None: ...  # it has read its settings, or ended
    def expects_exit(self, name: str, code: int) -> bool: ...  # whether an armed failpoint explains this end
    def crashes(self) -> Sequence[Met]: ...  # the expected ends so far
    async def release_holds(self, names: Sequence[str]) -> list[str]: ...  # what is left
    async def close(self) -> None: ...  # when all processes have ended; safe twice, and without attach

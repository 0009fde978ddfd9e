"""The desk of a cluster that is up: a socket at which other terminals ask for faults and looks.

Rules
1. The process that runs the cluster carries out what is asked, one request at a time.
2. A fault is asked by its name in harness.faults, and refused where this cluster lacks the ability.
3. The desk says where it is in FOLDER/work/cluster.json, and in a pointer to the latest cluster; both go when
   it closes.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harness.cluster.ports import private_folder
from harness.errors import FloodmarkError
from harness.protocols import Cluster, Cuts, Expires, Kills, Pauses, PowerCuts, View


@runtime_checkable
class Adopts(Protocol):
    """Learns of partitions that applications made."""

    async def adopt(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where the desk of a cluster is found."""

    folder: Path
    socket: Path
    pid: int


@dataclass(slots=True, kw_only=True)
class Desk:
    """Serves one cluster. `say` tells the terminal in which the cluster runs what others asked."""

    cluster: Cluster
    say: Callable[[str], None]
    _cuts: list[str] = field(default_factory=list)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One terminal, until it hangs up."""
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                request = json.loads(line)
                try:
                    async with self._turn:
                        told: Mapping[str, Any] = {"ok": await self._carry_out(request)}
                except FloodmarkError as error:
                    told = {"error": str(error)}
                writer.write(json.dumps({"id": request["id"], **told}).encode() + b"\n")
        writer.close()

    async def _carry_out(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        f = request["do"]
        if f == "state":
            return await self._state()
        if f == "cut":
            done = await self._cut(request)
        elif f == "heal":
            await self._cutting().heal()
            self._cuts.clear()
            done = "healed"
        else:
            strike = self._strike(f)
            results = [await strike(node) for node in request["nodes"]]
            done = f"{f} {' '.join(request['nodes'])}" + "".join(
                f": {result}" for result in results if result
            )
        self.say(done)
        return {"done": done}

    def _strike(self, f: str) -> Callable[[str], Awaitable[Any]]:
        cluster, acts = self.cluster, dict[str, Callable[[str], Awaitable[Any]]]()
        if isinstance(cluster, Kills):
            acts |= {"kill": cluster.kill, "start": cluster.start_node, "stop": cluster.stop_node}
        if isinstance(cluster, Pauses):
            acts |= {"pause": cluster.pause, "resume": cluster.resume}
        if isinstance(cluster, Expires):
            acts["expire"] = cluster.expire
        if isinstance(cluster, PowerCuts):
            acts["power_cut"] = cluster.power_cut
        if f not in acts:
            raise FloodmarkError(f"this cluster cannot {f!r}; it can {', '.join(sorted(acts))}")
        return acts[f]

    def _cutting(self) -> Cuts:
        if not isinstance(self.cluster, Cuts):
            raise FloodmarkError("this cluster's links cannot be cut")
        return self.cluster

    async def _cut(self, request: Mapping[str, Any]) -> str:
        nodes: Sequence[str] = request["nodes"]
        others = request["others"] or [node for node in self.cluster.nodes if node not in nodes]
        if not nodes or not others or set(nodes) & set(others):
            raise FloodmarkError("a cut lies between two sides: name nodes on one, others on the other")
        grudge = {node: list(others) for node in nodes}
        if not request["one_way"]:
            grudge |= {other: list(nodes) for other in others}
        await self._cutting().cut(grudge, reset=request["reset"])
        verb = "no longer hear" if request["one_way"] else "are cut from"
        done = f"{' '.join(nodes)} {verb} {' '.join(others)}{' (by reset)' if request['reset'] else ''}"
        self._cuts.append(done)
        return done

    async def _state(self) -> Mapping[str, Any]:
        if isinstance(self.cluster, Adopts):
            await self.cluster.adopt()
        return told(self.cluster, await self.cluster.observe(), self._cuts)


def told(cluster: Cluster, look: View, cuts: Sequence[str]) -> dict[str, Any]:
    """A look, as JSON."""
    return {
        "bootstrap": bootstrap(cluster),
        "nodes": list(cluster.nodes),
        "running": sorted(look.running),
        "unfenced": sorted(look.unfenced),
        "died": cluster.died(),
        "cuts": list(cuts),
        "partitions": [
            {
                "key": spec.key,
                "topic": spec.topic,
                "partition": spec.partition,
                "replicas": list(spec.replicas),
                "truth": asdict(look.partitions[spec.key]) if spec.key in look.partitions else None,
                "views": {
                    node: asdict(look.replicas[node, spec.key])
                    for node in spec.replicas
                    if (node, spec.key) in look.replicas
                },
            }
            for spec in cluster.partitions
        ],
    }


def bootstrap(cluster: Cluster) -> str:
    return ",".join(f"{host}:{port}" for host, port in cluster.addresses().values())


@contextlib.asynccontextmanager
async def opened(desk: Desk, folder: Path) -> AsyncIterator[None]:
    """The desk open, and to be found."""
    socket = private_folder() / f"{os.getpid()}.sock"  # short: a socket's path has at most 107 bytes
    socket.unlink(missing_ok=True)
    notice = folder / "work" / "cluster.json"
    latest = private_folder() / "latest"
    server = await asyncio.start_unix_server(desk.answer, socket)
    try:
        notice.write_text(json.dumps({"socket": str(socket), "pid": os.getpid()}) + "\n", encoding="utf-8")
        latest.write_text(str(folder.resolve()), encoding="utf-8")
        yield
    finally:
        server.close()
        socket.unlink(missing_ok=True)
        notice.unlink(missing_ok=True)
        if latest.exists() and latest.read_text(encoding="utf-8") == str(folder.resolve()):
            latest.unlink()


def find(folder: Path | None) -> Whereabouts:
    """The desk of the cluster in `folder`, or of the one started last. FloodmarkError if there is none."""
    if folder is None:
        latest = private_folder() / "latest"
        if not latest.exists():
            raise FloodmarkError("no cluster is up: start one with 'floodmark cluster up'")
        folder = Path(latest.read_text(encoding="utf-8"))
    notice = folder / "work" / "cluster.json"
    try:
        told = json.loads(notice.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise FloodmarkError(f"no cluster is up in {folder}") from None
    return Whereabouts(folder=folder, socket=Path(told["socket"]), pid=told["pid"])

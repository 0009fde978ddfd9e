"""Serves a cluster that is up: a socket at which other terminals ask for faults and looks.

Rules
1. The process that runs the cluster carries out what is asked, one request at a time.
2. A fault is asked by its name in harness.faults, and refused where this cluster lacks the ability. What
   cannot be done to a node as it stands (a kill of the dead) is refused before anything is done to another.
3. The desk says where it is in FOLDER/work/cluster.json, and in a pointer to the latest cluster; both go when
   it closes.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.cluster.ports import private_folder
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.faults import ends_pause
from floodmark.harness.protocols import (
    CLIENTS,
    CONTROLLER,
    UNKNOWN,
    Ability,
    Addressed,
    Adopts,
    Cluster,
    Cuts,
    Expires,
    Kills,
    Pauses,
    PowerCuts,
    ReplicaView,
    View,
    ability,
    why_not,
)
from floodmark.harness.reports.phrases import many

_WANTS_IT_UP = ("kill", "stop", "pause", "resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where the desk of a cluster is found."""

    folder: Path
    socket: Path
    pid: int


@dataclass(slots=True, kw_only=True)
class ClusterServer:
    """Serves one cluster. `say` tells the terminal in which the cluster runs what others asked."""

    cluster: Cluster
    say: Callable[[str], None]
    _cuts: list[str] = field(default_factory=list)
    _paused: set[str] = field(default_factory=set)
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
                    told = {"error": str(error), "usage": isinstance(error, UsageError)}
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
            done = await self._strike_all(f, request["nodes"])
        self.say(done)
        return {"done": done}

    async def _strike_all(self, f: str, nodes: Sequence[str]) -> str:
        strike = self._strike(f)
        look = await self.cluster.observe()
        for node in nodes:
            self._refuse(f, node, look)
        said = []
        for node in dict.fromkeys(nodes):
            if f == "power_cut":
                await self._adopt()  # what is lost is told by partition
            result = await strike(node)
            self._paused -= {node} if ends_pause(f) else set()
            self._paused |= {node} if f == "pause" else set()
            said.append(self._lost(node, result) if f == "power_cut" else f"{f} {node}")
        return "; ".join(said)

    def _refuse(self, f: str, node: str, look: View) -> None:
        """UsageError where this cannot be done to the node as it stands."""
        known = self.cluster.nodes
        if node == CONTROLLER and f not in ("expire", "power_cut"):
            return  # whether it runs no look tells
        if node not in known:
            raise UsageError(f"no node {node!r}: there are {', '.join(known)}")
        paused, up = node in self._paused, node in look.running
        if f in _WANTS_IT_UP and not up:
            raise UsageError(f"{node} is not running: there is nothing to {f}")
        if f == "start" and up:
            raise UsageError(f"{node} is paused: resume it" if paused else f"{node} is running already")
        if f == "pause" and paused:
            raise UsageError(f"{node} is paused already")
        if f == "resume" and not paused:
            raise UsageError(f"{node} is not paused: there is nothing to resume")
        if f == "stop" and paused:
            raise UsageError(f"{node} is paused and cannot stop in order: resume it, or kill it")

    def _lost(self, node: str, result: Mapping[str, Any]) -> str:
        """What a power cut took, in words."""
        count = result["lost_records"]
        names = {spec.key: f"{spec.topic}-{spec.partition}" for spec in self.cluster.partitions}
        ends = [f"{names[key]} at {leo}" for key, leo in result["keep"].items() if key in names]
        gone = "lost nothing: all that it had written was fsynced" if count == 0 else (
            f"lost {many(count, 'record')} that it had not fsynced")
        told = f"power-cut {node}: it is down and {gone}"
        return f"{told}; its logs now end: {', '.join(ends)}" if ends else told

    def _strike(self, f: str) -> Callable[[str], Awaitable[Any]]:
        """How it is done; FloodmarkError with the reason where this cluster has not the ability."""
        if f in ("kill", "start", "stop"):
            kills = self._able(f, Kills)
            return {"kill": kills.kill, "start": kills.start_node, "stop": kills.stop_node}[f]
        if f in ("pause", "resume"):
            pauses = self._able(f, Pauses)
            return pauses.pause if f == "pause" else pauses.resume
        if f == "expire":
            return self._able(f, Expires).expire
        if f == "power_cut":
            return self._able(f, PowerCuts).power_cut
        raise FloodmarkError(f"a cluster that is up cannot {f!r}")

    def _cutting(self) -> Cuts:
        return self._able("cut", Cuts)

    def _able(self, f: str, kind: type[Ability]) -> Ability:
        able = ability(self.cluster, kind)
        if able is None:
            raise FloodmarkError(f"this cluster cannot suffer {f}: {why_not(self.cluster, kind)}")
        return able

    async def _adopt(self) -> None:
        adopts = ability(self.cluster, Adopts)
        if adopts is not None:
            await adopts.adopt()

    async def _cut(self, request: Mapping[str, Any]) -> str:
        if "grudge" in request:
            await self._cutting().cut(request["grudge"], reset=False)
            self._cuts += (told := [f"{node} no longer hears {', '.join(others)}"
                                    for node, others in request["grudge"].items() if others])
            return "; ".join(told)
        nodes: Sequence[str] = request["nodes"]
        others = request["others"] or [node for node in self.cluster.nodes if node not in nodes]
        valid = (*self.cluster.nodes, CONTROLLER, CLIENTS)
        for name in (*nodes, *others):
            if name not in valid:
                raise UsageError(f"no node {name!r}: there are {', '.join(valid)}")
        if not nodes or not others or set(nodes) & set(others):
            raise UsageError("a cut lies between two sides: name nodes on one, others on the other")
        grudge = {node: list(others) for node in nodes}
        if not request["one_way"]:
            grudge |= {other: list(nodes) for other in others}
        await self._cutting().cut(grudge, reset=request["reset"])
        one = len(nodes) == 1 and list(nodes) != [CLIENTS]
        verb = ("no longer hears" if one else "no longer hear") if request["one_way"] else (
            "is cut from" if one else "are cut from")
        done = f"{', '.join(nodes)} {verb} {', '.join(others)}{' (by reset)' if request['reset'] else ''}"
        self._cuts.append(done)
        return done

    async def _state(self) -> Mapping[str, Any]:
        await self._adopt()
        return describe_cluster(self.cluster, await self.cluster.observe(), self._cuts, self._paused)


def describe_cluster(cluster: Cluster, look: View, cuts: Sequence[str], paused: Collection[str] = ()
                    ) -> dict[str, Any]:
    """A look, as JSON."""
    return {
        "bootstrap": bootstrap(cluster),
        "nodes": list(cluster.nodes),
        "running": sorted(look.running),
        "unfenced": sorted(look.unfenced),
        "paused": sorted(look.running & set(paused)),
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
                    node: _shown(look.replicas[node, spec.key])
                    for node in spec.replicas
                    if (node, spec.key) in look.replicas
                },
            }
            for spec in cluster.partitions
            if spec.key in look.partitions or not look.unfenced  # else its topic was deleted
        ],
    }


def _shown(replica: ReplicaView) -> dict[str, Any]:
    return {name: value for name, value in asdict(replica).items() if value is not UNKNOWN}


def bootstrap(cluster: Cluster) -> str:
    """Where Kafka's clients reach it; FloodmarkError where the wire does not."""
    addressed = ability(cluster, Addressed)
    if addressed is None:
        raise FloodmarkError(f"no Kafka client reaches this cluster: {why_not(cluster, Addressed)}")
    return ",".join(f"{host}:{port}" for host, port in addressed.addresses().values())


@contextlib.asynccontextmanager
async def open_server(desk: ClusterServer, folder: Path) -> AsyncIterator[None]:
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


def find_cluster(folder: Path | None) -> Whereabouts:
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

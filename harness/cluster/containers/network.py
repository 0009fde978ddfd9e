"""Cuts, degrades and resets connections of a cluster in containers, in the namespaces of its net containers.

Rules
1. Each node's firewall, queueing and packet queues are computed together (packet_rules.py) and loaded
   together, by one command in its net container (docker/faults/network.sh). Nodes whose rules change are
   loaded in parallel, the others not at all.
2. Cuts and qualities add up until the heal. A node whose load failed is loaded again at the next change.
3. Only a net container's table `filter` and its device's queueing are written; its other tables are not (the
   engine's name service has rules in `nat`).
4. The state before the first change is read then, and compared with the state after mending.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.harness.cluster.containers import packet_rules as packets
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.packet_rules import QUIET, NetworkFaults, Pair, WantedRules
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import gather_all
from floodmark.harness.schedule.views import CLIENTS

PROGRAM = ("sh", "/opt/floodmark/faults/network.sh")
PROGRAM_S = 20.0  # it may start a queue's program and end another
QUEUES_FROM = (100, 200)  # used alternately: new queues start before the old ones end

Sections = dict[str, list[str]]  # the program's output: heading -> its lines


@dataclass(frozen=True, slots=True, kw_only=True)
class EngagedRules:
    """The rules loaded in a node's namespace."""

    wanted: WantedRules = QUIET
    sure: bool = True  # False: a load did not finish
    turn: int = 0  # index into QUEUES_FROM


class Rules:
    """See harness.protocols: Cuts, Packets and Resets."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._force = NetworkFaults()
        self._ways: frozenset[str] | None = None  # None: not known yet
        self._loaded: dict[str, EngagedRules] = {}
        self._before: dict[str, frozenset[str]] = {}
        self._ended: set[str] = set()  # nodes whose delay program ended before the heal
        self._changing = asyncio.Lock()

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        """Cuts links. grudge: node -> the nodes it receives nothing from. reset: connections end at both
        ends."""
        pairs = packets.pairs_of(grudge, self._lab.names)
        async with self._changing:
            self._force = replace(self._force, cuts={**self._force.cuts, **dict.fromkeys(pairs, reset)})
            await self._load_all()
            if reset:
                await self._reset(pairs)

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None:
        """For one quality between the same two nodes, the last value counts."""
        pairs = packets.pairs_of(grudge, self._lab.names)
        async with self._changing:
            if self._ways is None:
                self._ways = await _ways(self._lab)
            if why := packets.refusal(pairs, quality, self._ways):
                raise FloodmarkError(why)
            worse = {pair: {**self._force.qualities.get(pair, {}), **quality} for pair in pairs}
            self._force = replace(self._force, qualities={**self._force.qualities, **worse})
            await self._load_all()

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        pairs = packets.pairs_of(grudge, self._lab.names)
        async with self._changing:
            return await self._reset(pairs)

    async def heal(self) -> None:
        async with self._changing:
            self._force = NetworkFaults()
            await self._load_all()

    async def mend(self) -> list[str]:
        """Heals every node that ever had rules, and compares it with its state before; returns what
        differs."""
        async with self._changing:
            self._force = NetworkFaults()
            mended = await gather_all(map(self._mend, sorted(self._loaded)))
            residue = [line for lines in mended for line in lines]
            residue += [f"the program that delays packets in the network of {name} ended before the heal"
                        for name in sorted(self._ended)]
            self._ended.clear()
            return residue

    # -- loading ------------------------------------------------------------------------------------------

    async def _load_all(self) -> None:
        await gather_all(map(self._load, self._lab.names))

    async def _load(self, name: str, *, reload: bool = False) -> Sections:
        """Loads a node's rules. A cancelled caller waits for the load's end, because the load would go on in
        the container and could undo what mends it."""
        task = asyncio.ensure_future(self._load_now(name, reload=reload))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _load_now(self, name: str, *, reload: bool) -> Sections:
        loaded = self._loaded.get(name, EngagedRules())
        wanted, turn = self._wanted(name, loaded.turn), loaded.turn
        reload = reload or not loaded.sure
        if wanted == loaded.wanted and not reload:
            return {}
        requeue = reload or wanted.queues != loaded.wanted.queues
        if requeue:
            turn = 1 - turn
            wanted = self._wanted(name, turn)
        self._loaded[name] = replace(loaded, sure=False)
        sections = await _run(self._lab, name, {
            "LOOK": "after" if reload and name in self._before else "" if name in self._before else "before",
            "RULES": wanted.rules,
            "RESHAPE": "1" if reload or wanted.shaping != loaded.wanted.shaping else "",
            "SHAPING": wanted.shaping,
            "REQUEUE": "1" if requeue else "",
            "QUEUES": " ".join(wanted.queues),
            "SERVED": " ".join(queue.split(",")[0] for queue in loaded.wanted.queues if loaded.sure),
        })
        if "before" in sections:
            self._before[name] = packets.found(sections["before"])
        if "unserved" in sections:
            self._ended.add(name)
        _raise_if_failed(name, sections)
        self._loaded[name] = EngagedRules(wanted=wanted, turn=turn)
        return sections

    async def _mend(self, name: str) -> list[str]:
        """Heals a node; returns what differs from before. If its first load failed, it is loaded twice,
        because the state before is unknown."""
        try:
            sections = await self._load(name, reload=True)
            if "after" not in sections:
                sections = await self._load(name, reload=True)
        except FloodmarkError as error:
            return [f"the network of {name} cannot be healed: {error}"]
        before, after = self._before[name], packets.found(sections["after"])
        return [f"the network of {name} still has: {line}" for line in sorted(after - before)] + [
            f"the network of {name} lacks what it had before: {line}" for line in sorted(before - after)]

    def _wanted(self, name: str, turn: int) -> WantedRules:
        return packets.wanted_rules(name, self._force, self._lab.address, ways=self._ways or frozenset(),
                              first_queue=QUEUES_FROM[turn])

    async def _reset(self, pairs: Iterable[Pair]) -> int:
        """Resets connections at both ends: if a cut is in force, one end's reset would not reach the
        other."""
        concerned = {name: {one for pair in pairs if name in pair for one in pair} - {name}
                     for name in sorted({name for pair in pairs for name in pair} - {CLIENTS})}
        sections = await gather_all(
            _run(self._lab, name, {"RESET": packets.connections(peers, self._lab.address)})
            for name, peers in concerned.items())
        for name, one in zip(concerned, sections, strict=True):
            _raise_if_failed(name, one)
        there, was_reset, kept = (
            {end for one in sections for end in map(packets.ends, one.get(heading, ()))}
            for heading in ("there", "reset", "kept"))
        if stays := (there & kept) - was_reset:
            raise FloodmarkError(f"the connection {' - '.join(sorted(min(stays, key=sorted)))} could not be "
                                 "reset: the kernel needs CONFIG_INET_DIAG_DESTROY")
        return len(was_reset)


async def _ways(lab: EngineResources) -> frozenset[str]:
    sections = await _run(lab, lab.names[0], {"WAYS": "1"})
    _raise_if_failed(lab.names[0], sections)
    return frozenset(sections["ways"])


async def _run(lab: EngineResources, name: str, env: Mapping[str, str]) -> Sections:
    given = {key: value for key, value in env.items() if value}
    return _sections(await lab.exec(lab.net(name), PROGRAM, env=given, timeout_s=PROGRAM_S))


def _raise_if_failed(name: str, sections: Sections) -> None:
    if "failed" in sections:
        raise FloodmarkError(f"the network of {name} cannot be changed: {' '.join(sections['failed'])}")


def _sections(text: str) -> Sections:
    sections: Sections = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("== "):
            heading = line.removeprefix("== ")
            sections.setdefault(heading, [])
        else:
            sections.setdefault(heading, []).append(line)
    return sections

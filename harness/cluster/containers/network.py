"""Cuts, degrades and resets connections of a cluster in containers, in its net containers' namespaces.

Rules
1. Each node's firewall, queueing and packet queues are wanted as a whole (packet_rules.py) and loaded
   as a whole, by one command in its net container (docker/faults/network.sh); nodes where something is to
   change are loaded all at once, the others not at all.
2. Cuts and qualities add up until the heal. A node whose load failed is loaded anew at the next change.
3. A net container's table `filter` and its device's queueing are ours; its other tables (the engine's own
   name service is rules in `nat`) are never written.
4. What was there before the first change is read then, and compared with what is there after mending.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.harness.cluster.containers import packet_rules as packets
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.packet_rules import QUIET, NetworkFaults, Pair, WantedRules
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.gathering import gather_all
from floodmark.harness.protocols import CLIENTS
from floodmark.harness.schedule.json_form import QUALITIES

PROGRAM = ("sh", "/opt/floodmark/faults/network.sh")
PROGRAM_S = 20.0  # it may start a queue's program and end another
QUEUES_FROM = (100, 200)  # in turn: the next are served before the last end

Told = dict[str, list[str]]  # what the program said: heading -> its lines


@dataclass(frozen=True, slots=True, kw_only=True)
class EngagedRules:
    """What a node's namespace holds."""

    wanted: WantedRules = QUIET
    sure: bool = True  # False: a load did not come to its end
    turn: int = 0  # of QUEUES_FROM


class Rules:
    """See harness.cluster.hosts: Network. `abilities` are what else can be done with the same rules."""

    why_not: str | None = None

    def __init__(self, lab: EngineResources) -> None:
        self.abilities: tuple[object, ...] = (BadLines(self), Resetting(self))
        self._lab = lab
        self._force = NetworkFaults()
        self._ways: frozenset[str] | None = None  # None: not asked yet
        self._held: dict[str, EngagedRules] = {}
        self._before: dict[str, frozenset[str]] = {}
        self._ended: set[str] = set()  # nodes where what held packets up ended before the heal
        self._changing = asyncio.Lock()

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None:
        """grudge: who hears -> whom it does not hear. reset: what is connected ends, at both ends."""
        pairs = packets.pairs_of(grudge, self._lab.names)
        async with self._changing:
            self._force = replace(self._force, cuts={**self._force.cuts, **dict.fromkeys(pairs, reset)})
            await self._load_all()
            if reset:
                await self._reset(pairs)

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None:
        """See harness.protocols: Packets. Of one quality between the same two, the last word holds."""
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
        """See harness.protocols: Resets."""
        pairs = packets.pairs_of(grudge, self._lab.names)
        async with self._changing:
            return await self._reset(pairs)

    async def heal(self) -> None:
        async with self._changing:
            self._force = NetworkFaults()
            await self._load_all()

    async def mend(self) -> list[str]:
        """Every node that was ever touched is healed, whatever we believe of it, and compared with before."""
        async with self._changing:
            self._force = NetworkFaults()
            mended = await gather_all(map(self._mend, sorted(self._held)))
            residue = [line for lines in mended for line in lines]
            residue += [f"what held packets up in the network of {name} ended before the heal"
                        for name in sorted(self._ended)]
            self._ended.clear()
            return residue

    async def close(self) -> None:
        """Nothing: the rules end with the containers."""

    # -- loading ------------------------------------------------------------------------------------------

    async def _load_all(self) -> None:
        await gather_all(map(self._load, self._lab.names))

    async def _load(self, name: str, *, anew: bool = False) -> Told:
        """A load that nobody waits for any more would go on in the container, and undo what mends it: so a
        caller who is cancelled waits for its end."""
        task = asyncio.ensure_future(self._load_through(name, anew=anew))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _load_through(self, name: str, *, anew: bool) -> Told:
        held = self._held.get(name, EngagedRules())
        wanted, turn = self._wanted(name, held.turn), held.turn
        anew = anew or not held.sure
        if wanted == held.wanted and not anew:
            return {}
        requeue = anew or wanted.queues != held.wanted.queues
        if requeue:
            turn = 1 - turn
            wanted = self._wanted(name, turn)
        self._held[name] = replace(held, sure=False)
        told = await _run(self._lab, name, {
            "LOOK": "after" if anew and name in self._before else "" if name in self._before else "before",
            "RULES": wanted.rules,
            "RESHAPE": "1" if anew or wanted.shaping != held.wanted.shaping else "",
            "SHAPING": wanted.shaping,
            "REQUEUE": "1" if requeue else "",
            "QUEUES": " ".join(wanted.queues),
            "SERVED": " ".join(words.split(",")[0] for words in held.wanted.queues if held.sure),
        })
        if "before" in told:
            self._before[name] = packets.found(told["before"])
        if "unserved" in told:
            self._ended.add(name)
        _raise_if_failed(name, told)
        self._held[name] = EngagedRules(wanted=wanted, turn=turn)
        return told

    async def _mend(self, name: str) -> list[str]:
        """What differs from before. A node whose first load failed has no before: it is looked at twice."""
        try:
            told = await self._load(name, anew=True)
            if "after" not in told:
                told = await self._load(name, anew=True)
        except FloodmarkError as error:
            return [f"the network of {name} cannot be healed: {error}"]
        before, after = self._before[name], packets.found(told["after"])
        return [f"the network of {name} still has: {line}" for line in sorted(after - before)] + [
            f"the network of {name} lacks what it had before: {line}" for line in sorted(before - after)]

    def _wanted(self, name: str, turn: int) -> WantedRules:
        return packets.wanted_rules(name, self._force, self._lab.address, ways=self._ways or frozenset(),
                              first_queue=QUEUES_FROM[turn])

    async def _reset(self, pairs: Iterable[Pair]) -> int:
        """At both ends: where a cut is in force, the one end's reset would not reach the other."""
        concerned = {name: {one for pair in pairs if name in pair for one in pair} - {name}
                     for name in sorted({name for pair in pairs for name in pair} - {CLIENTS})}
        told = await gather_all(
            _run(self._lab, name, {"RESET": packets.connections(peers, self._lab.address)})
            for name, peers in concerned.items())
        for name, one in zip(concerned, told, strict=True):
            _raise_if_failed(name, one)
        there, was_reset, kept = (
            {end for one in told for end in map(packets.ends, one.get(heading, ()))}
            for heading in ("there", "reset", "kept"))
        if stays := (there & kept) - was_reset:
            raise FloodmarkError(f"the connection {' - '.join(sorted(min(stays, key=sorted)))} could not be "
                                 "reset: the kernel needs CONFIG_INET_DIAG_DESTROY")
        return len(was_reset)


class BadLines:
    """See harness.protocols: Packets."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None:
        await self._rules.degrade(grudge, quality)


class Resetting:
    """See harness.protocols: Resets."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        return await self._rules.reset(grudge)


async def packets_possible(lab: EngineResources) -> Mapping[str, str | None]:
    """Quality -> None, or why packets between nodes cannot suffer it here. The net containers run already."""
    ways = await _ways(lab)
    between = [(lab.names[0], lab.names[-1])]
    return {quality: packets.refusal(between, {quality: 1}, ways) for quality in QUALITIES}


async def _ways(lab: EngineResources) -> frozenset[str]:
    told = await _run(lab, lab.names[0], {"WAYS": "1"})
    _raise_if_failed(lab.names[0], told)
    return frozenset(told["ways"])


async def _run(lab: EngineResources, name: str, env: Mapping[str, str]) -> Told:
    given = {key: value for key, value in env.items() if value}
    return _sections(await lab.exec(lab.net(name), PROGRAM, env=given, timeout_s=PROGRAM_S))


def _raise_if_failed(name: str, told: Told) -> None:
    if "failed" in told:
        raise FloodmarkError(f"the network of {name} cannot be changed: {' '.join(told['failed'])}")


def _sections(text: str) -> Told:
    told: Told = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("== "):
            heading = line.removeprefix("== ")
            told.setdefault(heading, [])
        else:
            told.setdefault(heading, []).append(line)
    return told

"""A user's own cluster, which floodmark did not start and may not change: any that speaks Kafka's wire.

Rules
1. Only topics of our own are touched, whose names begin with the run's prefix. stop(), which every run calls
   however it ends, removes them; one that cannot be removed is reported.
2. A fault is always a command of the owner's (fault_commands.py), and needs the owner's permission
   (may_break). What the commands broke they mend, in mend() or at the latest in stop().
3. A node is a broker that Metadata names: n and its id. It runs if it answers; processes cannot be observed,
   so no node is ever said to have died.
4. Leader, epoch and ISR are those with the highest epoch in the brokers' Metadata; among equal epochs those
   of the leader itself, which knows its ISR first. LEO and HW are asked of each replica. If a member of the
   ISR does not show its LEO, and its leader shows LEO = HW, it has that LEO: in a correct cluster the HW is
   the lowest LEO of the ISR, and no follower is ahead of its leader. So a correct cluster never counts as
   settled too early, and nothing is claimed about a follower's HW.
5. A cluster that no longer answers is a failure of the run, never a finding.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from floodmark.harness import logdir, protocols, record_batches
from floodmark.harness.client.brokers import SharedRequests
from floodmark.harness.client.client import Client
from floodmark.harness.client.codec import ClusterMetadata, PartitionMetadata
from floodmark.harness.client.connection import Dial, Lost, Unsent
from floodmark.harness.client.security import Security
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.cluster import broker_requests
from floodmark.harness.cluster.broker_cluster import healthy
from floodmark.harness.cluster.broker_requests import KEPT, Address, Brokers
from floodmark.harness.cluster.fault_commands import ABILITIES, FaultCommands
from floodmark.harness.cluster.layout import host_port
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.event_loop import wait_until
from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, UNKNOWN, PartitionView, ReplicaView, View

NAME = "own"
START_S = 5.0  # for a broker to answer at the start
LOOK_S = 1.0  # for a broker to answer while observing
CREATE_S = 60.0
TOPIC_S = 30.0  # for one topic to be created or deleted
UP_S = 90.0  # for a broker that was started, resumed or healed to answer
GONE_S = 20.0  # for one that was killed, stopped or paused to stop answering
ASKS_OF_A_CLOCK = 8
UNKNOWN_CLOCKS_NS = 60_000_000_000  # if no broker gives time-stamps: an error that any maintained clock keeps
CLIENT_CONNECT_S = 2.0  # a handshake of TLS and SASL takes several round trips
_BREAK = "faults on your own cluster need --i-may-break-this"
_NOT_SHOWN = frozenset({"leader", "epoch", "log_start", "isr", "checkpointed_hw", "epochs", "clean",
                        "proposing"})
_NO_RESET = "the owner's commands cut links, they do not reset connections"
_NO_CONTROLLER = "the controller of your own cluster is no node of it: no command kills or pauses it"
_NEVER: Mapping[Any, str] = {  # what it never suffers, see Cluster.lacks
    protocols.BadDisks: "floodmark does not damage the disks of your own cluster",
    protocols.Clocks: "floodmark does not set the clocks of your own cluster",
    protocols.ElectsReplica: "that needs a reassignment, which floodmark does not do on your own cluster",
    protocols.Expires: "Kafka's wire has no request that ends a broker's session",
    protocols.Failpoints: "only the reference broker has failpoints",
    protocols.Freezes: "your own cluster is not frozen: changes while it is read are noticed",
    protocols.MemoryLimits: "floodmark does not limit the memory of your own cluster",
    protocols.Packets: "the owner's commands cut links, they do not degrade them",
    protocols.PowerCuts: "it is unknown what the disks of your own cluster have synced",
    protocols.Resets: _NO_RESET,
    protocols.Traces: "its processes write no trace for floodmark",
    protocols.Wipes: "floodmark does not empty the disks of your own cluster",
    "cut reset": _NO_RESET,
    **{f"{f} {CONTROLLER}": _NO_CONTROLLER for f, fault in FAULTS.items() if fault.on == "nodes"},
}
_ELECT, _NOT_CONTROLLER = "ElectLeaders", "NOT_CONTROLLER"
_OPTIONAL = (_ELECT, "DescribeConfigs")  # requests: settings may be told by -c
MS_NS = 1_000_000
_OF_TOPIC = ("min.insync.replicas", "unclean.leader.election.enable")  # of a topic


# -- the brokers' clocks ------------------------------------------------------------------------------------
#
# A record of a topic with message.timestamp.type=LogAppendTime gets the time of its leader's clock while we
# wait for the answer. Between sending (`sent`) and receiving (`received`), both by our clock, the leader's
# clock showed `stamp`, rounded down to the millisecond. So it is ahead of ours by at least stamp - received
# and by less than stamp + 1 ms - sent; each request narrows that. The bounds before and after the run are
# combined: a clock that drifted steadily was between them. One that was set forth and back is not noticed.


class Stamped(NamedTuple):
    """sent and received by our clock, in nanoseconds since 1970; stamp in milliseconds."""

    sent_ns: int
    received_ns: int
    stamp_ms: int


class Ahead(NamedTuple):
    """How far a broker's clock is ahead of ours, in nanoseconds."""

    least_ns: int
    most_ns: int


def ahead(asks: Sequence[Stamped]) -> Ahead | None:
    """By requests to one broker, close in time. None: there are none, or they contradict each other."""
    if not asks:
        return None
    least = max(one.stamp_ms * MS_NS - one.received_ns for one in asks)
    most = min((one.stamp_ms + 1) * MS_NS - one.sent_ns for one in asks)
    return Ahead(least_ns=least, most_ns=most) if least <= most else None


def joined(first: Ahead, second: Ahead) -> Ahead:
    """The bound that covers two times, and a steady drift between them."""
    return Ahead(least_ns=min(first.least_ns, second.least_ns), most_ns=max(first.most_ns, second.most_ns))


def error_ns(clocks: Mapping[str, Ahead]) -> int:
    """The largest possible difference between two of these clocks."""
    return max((one.most_ns - other.least_ns for one, other in permutations(clocks.values(), 2)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """settings: by id, as far as brokers show them. no_elections: why none is made when asked."""

    ids: Mapping[str, int]
    addresses: Mapping[str, Address]
    settings: Sequence[Mapping[str, str]] = ()
    no_elections: str | None = None


async def find(bootstrap: Sequence[Address], security: Security) -> Found:
    """By the first address that answers. FloodmarkError if no run is possible, with the reasons."""
    brokers, silent = Brokers(security.dial()), list[str]()
    try:
        for address in bootstrap:
            try:
                metadata = await brokers.metadata(address, ())
            except FloodmarkError as error:
                silent.append(str(error))
                continue
            if metadata.brokers:
                break
            silent.append(f"{address[0]}:{address[1]} names no broker")
        else:
            raise FloodmarkError(f"no cluster was found: {'; '.join(silent)}")
        addresses = {f"n{number}": metadata.brokers[number] for number in sorted(metadata.brokers)}
        settings: dict[str, Mapping[str, str]] = {node: {} for node in addresses}
        unserved: dict[str, str] = {}  # request -> the first broker that does not serve it, in a sentence
        for node, to in addresses.items():
            with suppress(FloodmarkError):  # some users may read a topic's settings but not a broker's
                settings[node] = await broker_requests.settings(
                    brokers.to(to), broker_requests.BROKER, node.removeprefix("n"))
            with suppress(Unsent, Lost):  # start() says which one does not answer
                lacks = await brokers.unserved(to)
                unserved = {request: f"{node} {lack}" for request, lack in lacks.items()} | unserved
        if needed := [why for request, why in unserved.items() if request not in _OPTIONAL]:
            raise FloodmarkError(f"no run is possible on this cluster: {'; '.join(needed)}")
        return Found(ids={node: int(node.removeprefix("n")) for node in addresses}, addresses=addresses,
                     settings=tuple(settings.values()), no_elections=unserved.get(_ELECT))
    finally:
        brokers.close()


class OwnCluster:
    """A user's own cluster. See harness.protocols: Cluster, Addressed, MakesClients, BoundsClocks; by the
    owner's commands ReadsLogs, Kills, Pauses, Cuts; with permission to break it also Elects, for our
    partitions."""

    name = NAME
    abilities: tuple[object, ...] = ()
    not_shown = _NOT_SHOWN

    def __init__(self, found: Found, folder: Path, *, prefix: str, bootstrap: str = "",
                 security: Security | None = None, commands: FaultCommands | None = None,
                 may_break: bool = False, topic_settings: Mapping[str, str] | None = None) -> None:
        """prefix: of our topics' names. topic_settings: of our topics; all others are the cluster's."""
        self.nodes = tuple(found.ids)
        self.partitions: tuple[PartitionSpec, ...] = ()
        self.config: Mapping[str, Mapping[str, Any]] = {node: {} for node in self.nodes}
        self.system = {"name": NAME, "bootstrap": bootstrap, "brokers": {
            node: host_port(address) for node, address in found.addresses.items()}}
        self.clock_error_ns = UNKNOWN_CLOCKS_NS
        self.keeps_all = False  # before the topics are created
        self._found, self._folder, self._prefix = found, folder, prefix
        self._clocks_topic = f"{prefix}clocks"
        self._topic_settings = {**KEPT, **(topic_settings or {})}
        if changed := sorted(key for key in KEPT if self._topic_settings[key] != KEPT[key]):
            raise UsageError(f"-c {changed[0]}: the topics of a run must keep all acked records, or a "
                             "loss would mean nothing")
        self._commands = commands or FaultCommands()
        self._commands.known(self.nodes)
        self.lacks = _lacks(self._commands, found, may_break=may_break)
        self._dial: Dial = (security or Security()).dial()
        self._shared = SharedRequests(self._dial)
        self._brokers = Brokers(self._dial)
        self._looks = Brokers(self._dial)
        self._topics: set[str] = set()  # our topics, which must be removed
        self._clocks: dict[str, Ahead] = {}
        self._down: set[str] = set()  # by our commands, like the next three
        self._starting: set[str] = set()  # of those that are down: the start command was given
        self._paused: set[str] = set()
        self._cut: set[str] = set()  # nodes with a cut link
        self._silent: str | None = None  # a sentence, if nobody answered the last observation
        self._not_removed: list[str] = []

    async def start(self) -> None:
        """Checks that every node of the running cluster answers; then compares the clocks."""
        for node, address in self._found.addresses.items():
            try:
                await self._brokers.metadata(address, (), START_S)
            except FloodmarkError as error:
                raise FloodmarkError(f"{node} does not answer at the address that the cluster advertises: "
                                     f"{error}") from error
        with suppress(FloodmarkError):  # then the bound is UNKNOWN_CLOCKS_NS
            await self._create_topic(self._clocks_topic, [[self._found.ids[node]] for node in self.nodes],
                                     {"message.timestamp.type": "LogAppendTime"})
            await self._compare_clocks()

    async def create(self, partitions: Sequence[PartitionSpec]) -> None:
        """Returns when each partition has a leader and a full ISR, and their settings are known."""
        topics = broker_requests.assignments(partitions, self._found.ids)
        if strange := [topic for topic in topics if not topic.startswith(self._prefix)]:
            raise UsageError(f"{strange[0]} is no topic of this run: its name begins with {self._prefix}")
        for topic, replicas in topics.items():
            await self._create_topic(topic, replicas, self._topic_settings)
        self.partitions = (*self.partitions, *partitions)

        async def unready() -> str | None:
            try:
                why = healthy(await self.observe(), partitions, self.nodes)
            except FloodmarkError as error:
                return str(error)
            if why is not None:
                for topic, replicas in topics.items():
                    await self._refuse_fewer(topic, len(replicas))
            return why

        await wait_until(unready, "the new partitions to have a leader and a full ISR", CREATE_S)
        settings = [await self._topic_settings_of(topic) for topic in topics]
        self.keeps_all = broker_requests.keep_all(settings)
        weakest: dict[str, Any] = {  # of the guarantees of our topics, by the brokers' keys
            "min.insync.replicas": min((int(one["min.insync.replicas"]) for one in settings), default=1),
            "unclean.leader.election.enable": any(
                one["unclean.leader.election.enable"].lower() == "true" for one in settings)}
        if {one.get("flush.messages") for one in settings} == {"1"}:
            weakest["log.flush.interval.messages"] = 1
        self.config = {node: dict(weakest) for node in self.nodes}

    async def observe(self) -> View:
        topics = sorted({spec.topic for spec in self.partitions})
        answers = await self._brokers.metadata_of_each(self._found.addresses, topics, LOOK_S)
        if not answers:
            self._silent = "the cluster no longer answers at " + ", ".join(
                map(host_port, self._found.addresses.values()))
            raise FloodmarkError(self._silent)
        self._silent = None
        names = {number: node for node, number in self._found.ids.items()}
        truth = {spec.key: state for spec in self.partitions
                 if (state := _latest(answers, spec.place, names)) is not None}
        ends = await self._looks.replica_ends(
            {node: self._found.addresses[node] for node in answers}, self.partitions, LOOK_S)
        alive = frozenset.intersection(*(frozenset(answer.brokers) for answer in answers.values()))
        answering = {node: answer for node, answer in answers.items() if answer.controller >= 0}
        return View(
            time_ns=time.monotonic_ns(), replicas=self._replicas(answers, truth, ends, names),
            partitions={key: PartitionView(
                partition=key, leader=names.get(state.leader), epoch=state.epoch,
                isr=tuple(names[number] for number in state.isr if number in names), partition_epoch=-1)
                for key, state in truth.items()},
            running=frozenset(answers),
            unfenced=frozenset(names[number] for number in alive if number in names),
            answering=frozenset(answering),
            topic_unknown=frozenset(
                node for node, answer in answering.items()
                if names.keys() <= answer.brokers.keys() and topics and answer.unknown.issuperset(topics)))

    async def mend(self) -> list[str]:
        """Mends by the owner's commands what they broke."""
        residue = []
        for act in (self.heal, *(lambda node=node: self.resume(node) for node in sorted(self._paused)),
                    *(lambda node=node: self.start_node(node) for node in sorted(self._down))):
            try:
                await act()
            except FloodmarkError as error:
                residue.append(str(error))
        residue += [f"{node} does not answer" for node in self.nodes if not await self._answers(node)]
        return residue

    async def stop(self) -> None:
        """Mends what is still broken, and removes our topics, whatever happens."""
        try:
            if self._down or self._paused or self._cut:
                self._not_removed += [f"not mended: {one}" for one in await self.mend()]
            elif self._clocks and self._topics:
                with suppress(FloodmarkError):
                    await self._compare_clocks()
        finally:
            for topic in sorted(self._topics):
                try:
                    await broker_requests.delete_topic(await self._controller(), topic, timeout_s=TOPIC_S)
                except FloodmarkError as error:
                    self._not_removed.append(
                        f"the topic {topic} could not be removed, please remove it: {error}")
            self._topics.clear()
            self._looks.close()
            self._brokers.close()

    def died(self) -> list[str]:
        return []

    def died_words(self) -> Mapping[str, str]:
        return {}

    def died_at(self) -> Mapping[str, Sequence[int]]:
        return {}

    def broken(self) -> Sequence[str]:
        return [*([self._silent] if self._silent else []), *self._not_removed]

    def addresses(self) -> Mapping[str, Address]:
        return self._found.addresses

    def client(self, settings: ClientSettings, random: Random) -> Client:
        patient = replace(settings, connect_timeout_s=max(CLIENT_CONNECT_S, settings.connect_timeout_s))
        return Client(patient, self.addresses, random, dial=self._dial, shared=self._shared)

    async def kill(self, node: str) -> None:
        await self._end(node, "kill")

    async def stop_node(self, node: str) -> None:
        await self._end(node, "stop")

    async def start_node(self, node: str) -> None:
        """Returns when it answers. After an interrupted start it only waits."""
        if not await self._answers(node):
            try:
                if node not in self._starting:
                    self._starting.add(node)
                    await self._run(node, "start")
                await self._wait(node, "started by its command", up=True)
            except FloodmarkError:
                self._starting.discard(node)
                raise
        self._starting.discard(node)
        self._down.discard(node)
        self._paused.discard(node)

    async def pause(self, node: str) -> None:
        self._address(node)
        self._paused.add(node)
        await self._run(node, "pause")
        await self._wait(node, "paused", up=False)

    async def resume(self, node: str) -> None:
        if node in self._paused:
            await self._run(node, "resume")
            if node not in self._down:
                await self._wait(node, "resumed by its command", up=True)
            self._paused.discard(node)

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        """By a command for each pair (node, peer), except those of a controller without commands."""
        assert not reset, "refused before the run"
        pairs = [(node, peer) for node in sorted(grudge) for peer in sorted(grudge[node])]
        for node, peer in pairs:
            if CONTROLLER in (node, peer) and not self._commands.has(CONTROLLER, "cut"):
                continue
            self._cut.add(node)
            await self._run(node, "cut", peer)

    async def heal(self) -> None:
        """Heals each node that can be healed, before it raises the errors of all."""
        errors = []
        for node in sorted(self._cut):
            try:
                await self._run(node, "heal")
                self._cut.discard(node)
            except FloodmarkError as error:
                errors.append(str(error))
        if errors:
            raise FloodmarkError("; ".join(errors))

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        """Asks the controller, then other brokers as long as one is silent or is not the controller."""
        specs = broker_requests.chosen(self.partitions, partitions)
        errors: dict[int, str | None] = {spec.key: "no broker answers" for spec in specs}
        for address in await self._controllers():
            try:
                found = await broker_requests.elect(
                    self._brokers.to(address), specs, unclean=unclean, timeout_s=broker_requests.ASK_S)
            except FloodmarkError as error:
                errors = dict.fromkeys(errors, str(error))
                continue
            errors = {key: error and error.partition(" ")[0] for key, error in found.items()}
            if _NOT_CONTROLLER not in errors.values():
                break
        return broker_requests.election_result(errors)

    async def log_dir(self, node: str) -> Path:
        """A copy, fetched by the owner's command. FloodmarkError if it is no log folder of Kafka with our
        partitions in it: such a folder would be read as an empty log."""
        folder = self._folder.absolute() / "nodes" / node
        folder.mkdir(parents=True, exist_ok=True)
        await self._run(node, "fetch_logs", folder=folder)
        for spec in (spec for spec in self.partitions if node in spec.replicas):
            why = logdir.why_no_log(folder / f"{spec.topic}-{spec.partition}")
            if why is not None:
                raise FloodmarkError(f"what fetch_logs copied to {folder} is no log folder of Kafka's: {why}")
        return folder

    async def _run(self, node: str, act: str, peer: str | None = None, folder: Path | None = None) -> None:
        hosts = {name: address[0] for name, address in self._found.addresses.items()}
        fields = {"prefix": self._prefix, "host": hosts.get(node), "peer": peer,
                  "peer_host": hosts.get(peer or ""), "folder": None if folder is None else str(folder)}
        await self._commands.run(node, act, {name: one for name, one in fields.items() if one is not None})

    async def _end(self, node: str, act: str) -> None:
        if not await self._answers(node) and node not in self._paused:
            return
        self._down.add(node)
        self._starting.discard(node)
        await self._run(node, act)
        self._paused.discard(node)
        await self._wait(node, f"ended by {act}", up=False)

    def _address(self, node: str) -> Address:
        if node not in self._found.addresses:
            raise FloodmarkError(f"no node {node!r}: there are {', '.join(self.nodes)}")
        return self._found.addresses[node]

    async def _answers(self, node: str) -> bool:
        return await self._brokers.is_up(self._address(node), LOOK_S)

    async def _wait(self, node: str, how: str, *, up: bool) -> None:
        async def unmet() -> str | None:
            if await self._answers(node) == up:
                return None
            return f"{node} does not answer" if up else f"{node} still answers"

        await wait_until(unmet, f"{node}, {how}, to answer{'' if up else ' no more'}", UP_S if up else GONE_S)

    async def _controllers(self) -> Sequence[Address]:
        """The brokers that answer, the controller first: with ZooKeeper only it takes such requests."""
        answers = await self._brokers.metadata_of_each(self._found.addresses, (), LOOK_S)
        named = {f"n{answer.controller}" for answer in answers.values()}
        return [self._found.addresses[node] for node in sorted(answers, key=lambda node: node not in named)]

    async def _controller(self) -> broker_requests.Ask:
        if not (answering := await self._controllers()):
            raise FloodmarkError("no broker answers")
        return self._brokers.to(answering[0])

    async def _create_topic(self, topic: str, replicas: Sequence[Sequence[int]],
                            settings: Mapping[str, str]) -> None:
        self._topics.add(topic)  # before: the answer may be lost although the topic was created
        await broker_requests.create_topics(
            await self._controller(), {topic: replicas}, configs={topic: settings}, timeout_s=TOPIC_S)

    async def _refuse_fewer(self, topic: str, asked: int) -> None:
        answers = await self._brokers.metadata_of_each(self._found.addresses, [topic], LOOK_S)
        counts = {len(answers[node].partitions) if node in answers else 0 for node in self.nodes}
        if len(counts) == 1 and 0 < (count := counts.pop()) < asked:
            raise FloodmarkError(f"the topic {topic} was made with {count} of the {asked} partitions that "
                                 f"were asked for: give --partitions {count}")

    async def _topic_settings_of(self, topic: str) -> Mapping[str, Any]:
        """The settings in force, as the cluster shows them; where it does not, as its owner told them."""
        shown: Mapping[str, str] = {}
        why = "allow DescribeConfigs to this user"
        try:
            shown = await broker_requests.settings(await self._controller(), broker_requests.TOPIC, topic)
        except FloodmarkError as error:
            why = f"{error}; {why}"
        settings = {**self._topic_settings, **shown}
        if lacking := [key for key in _OF_TOPIC if key not in settings]:
            tell = " ".join(f"-c {key}=VALUE" for key in lacking)
            raise FloodmarkError(f"the cluster does not show the {', '.join(lacking)} of {topic}, so its "
                                 f"guarantees are unknown: {why}, or tell it by {tell}")
        return settings

    def _replicas(self, answers: Mapping[str, ClusterMetadata], truth: Mapping[int, PartitionMetadata],
                  ends: Mapping[tuple[str, int], tuple[int, int]], names: Mapping[int, str]
                  ) -> Mapping[tuple[str, int], ReplicaView]:
        """Of the nodes that answer. See rule 4 for a LEO that is not shown."""
        views = {}
        for spec in self.partitions:
            state = truth.get(spec.key)
            led = ends.get((names.get(state.leader, ""), spec.key)) if state is not None else None
            for node in spec.replicas:
                if node not in answers:
                    continue
                view = ReplicaView(node=node, partition=spec.key)
                if (own := ends.get((node, spec.key))) is not None:
                    view = replace(view, leo=own[0], hw=own[1])
                elif (state is not None and led is not None and led[0] == led[1]
                      and self._found.ids[node] in state.isr):
                    view = replace(view, leo=led[0], hw=UNKNOWN)
                views[node, spec.key] = view
        return views

    async def _compare_clocks(self) -> None:
        clocks = {}
        for partition, node in enumerate(self.nodes):
            if (seen := ahead(await self._stamps(node, partition))) is None:
                raise FloodmarkError(f"the clock of {node} was set while it was measured")
            clocks[node] = joined(self._clocks.get(node, seen), seen)
        self._clocks, self.clock_error_ns = clocks, error_ns(clocks)

    async def _stamps(self, node: str, partition: int) -> list[Stamped]:
        asks: list[Stamped] = []
        deadline_s = time.monotonic() + CREATE_S / 6
        while len(asks) < ASKS_OF_A_CLOCK:
            data = record_batches.encode([len(asks)], self._prefix, time.time_ns() // 1_000_000)
            sent_ns = time.time_ns()
            try:
                stamp_ms = await self._brokers.stamp(
                    self._found.addresses[node], (self._clocks_topic, partition), data)
            except FloodmarkError:  # a new partition has no leader at once
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(0.1)
            else:
                if stamp_ms is None:
                    raise FloodmarkError(f"{node} gives records no time")
                asks.append(Stamped(sent_ns, time.time_ns(), stamp_ms))
        return asks


def _latest(answers: Mapping[str, ClusterMetadata], place: tuple[str, int], names: Mapping[int, str]
            ) -> PartitionMetadata | None:
    """A partition's state by rule 4; None: no broker has it."""
    states = [(state.epoch, names.get(state.leader) == node, node, state)
            for node, answer in answers.items() if (state := answer.partitions.get(place)) is not None]
    return max(states, key=lambda one: one[:3])[3] if states else None


def _lacks(commands: FaultCommands, found: Found, *, may_break: bool) -> Mapping[Any, str]:
    """What this cluster cannot suffer although its class has the methods, and why; see Cluster.lacks."""
    nodes = tuple(found.ids)
    needed_acts = {kind: [f for f in FAULTS if protocols.needed_for(f) is kind] for kind in ABILITIES}
    lacks: dict[Any, str] = {kind: why for kind, acts in needed_acts.items()
             if (why := _BREAK if not may_break else commands.lacking(acts, nodes)) is not None}
    lacks |= _NEVER
    if (why := commands.lacking(("cut",), (CLIENTS,))) is not None:
        lacks[f"cut {CLIENTS}"] = why
    if (no_elections := found.no_elections if may_break else _BREAK) is not None:
        lacks[protocols.Elects] = no_elections
    if (why := commands.lacking(("fetch_logs",), nodes)) is not None:
        lacks[protocols.ReadsLogs] = why
    return lacks

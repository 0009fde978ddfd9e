"""Apache Kafka as what runs: what its KRaft form (kraft.py) and its ZooKeeper form (zookeeper.py) share.

No agent runs inside. What can be seen is what a broker says by Kafka's wire (LEO and HW of its replicas, and
leader, epoch and ISR as its metadata has them), its checkpoints on disk, and the controller's own records.

Freezing, and why what is then read is true
1. The controller is stopped first (SIGSTOP). From then on nobody can be elected and no ISR can change, for
   only the controller decides that. What it has decided is in its records, which are read once it stands.
2. Then the brokers are looked at until SAME_LOOKS looks in a row agree: what the controller had sent has come
   through, and what replicas had still to fetch has been fetched. Looks that never agree are no reason to
   fail: whatever moves is found by the comparison with the look before the final reads (settle.what_moved).
3. Then every broker is stopped. Its files stay as they are, also those that only the page cache has. LEO and
   log start are taken from the files, so what replicas.jsonl says of a log is what its dump holds, whatever
   happened after the last look.
4. HW is that of the last look. It never falls while no role changes, and none does after 1. So it is at most
   the HW at the stop: what is below it was committed, and every check that asks about records below the HW
   claims too little at worst. A HW above the LEO on disk is impossible, for the LEO only grows likewise.
5. The leader-epoch cache is that of its checkpoint. Kafka writes some truncations of it a moment late, in the
   background; so it is left out of the row of a replica whose last looks did not agree.
6. With ZooKeeper a broker decides, and 1 would take its replicas out of the looks. So all brokers are
   stopped at once, and what ZooKeeper has then is compared with the last look: of a partition about which
   anything was decided in between no HW is known.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from floodmark.harness import logdir
from floodmark.harness.cluster import admin_requests
from floodmark.harness.cluster.elections import election_result
from floodmark.harness.cluster.hosts import Disks, Hosts
from floodmark.harness.cluster.kafka import kafka_trace
from floodmark.harness.cluster.kafka.broker_metadata import Believed, BrokerMetadata
from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.kafka.forms import Form
from floodmark.harness.cluster.kafka.hosts_files import write_hosts
from floodmark.harness.cluster.kafka.jvm import java_command, write_logging
from floodmark.harness.cluster.kafka.kafka_trace import Clock
from floodmark.harness.cluster.kafka.log_lines import read_line
from floodmark.harness.cluster.kafka.settings import effective
from floodmark.harness.cluster.kafka.wire_looks import Ends, WireLooks
from floodmark.harness.cluster.layout import Address, Layout
from floodmark.harness.cluster.system import JavaSoftware, PowerLoss
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.logdir.segments import segments_of
from floodmark.harness.protocols import (
    CONTROLLER,
    UNKNOWN,
    Clocks,
    Failpoints,
    Met,
    PartitionSpec,
    PartitionView,
    ReplicaView,
    Unknown,
    View,
)
from floodmark.harness.trace import Raw

NAME = "kafka"
CONTROLLER_ID = 100
LOOK_S = 2.0  # for one broker to answer a look
ASK_S = 15.0
FREEZE_S = 10.0  # for the looks of a freeze to agree
SAME_LOOKS = 3
CHECKPOINT_EVERY_S = 1.0  # a file that is not at hand is asked for so often at most
NO_CLOCKS = ("under libfaketime a Java process takes ten times the processor time to start, and would be "
             "struck by that more than by its clock")
HWS = "replication-offset-checkpoint"
CONTROLLER_S = 3.0  # longer than a controller that can be reached takes to acknowledge a broker
BETWEEN_LOOKS_S = 0.2


@dataclass(slots=True, kw_only=True)
class _Start:
    """One start of a process."""

    log_bytes: int  # how long its log was before
    clean: bool | None = None  # whether the stop before was orderly; None: it has not loaded its logs
    waits_since_s: float | None = None  # monotonic, when it was seen to wait for its controller
    hws: Mapping[tuple[str, int], int] | None = None  # its checkpoint, where that is no file at hand
    hws_at_s: float = 0.0  # monotonic

    def checkpointed(self, place: tuple[str, int]) -> int | Unknown:
        return UNKNOWN if self.hws is None else self.hws.get(place, 0)


class KafkaSystem:
    """See harness.cluster.system: System; and its Freezes, Expires, Elects, ElectsReplica and Traces."""

    def __init__(self, kafka: Distribution, form: Form, ids: Mapping[str, int], *, power: PowerLoss,
                 topic_config: Mapping[str, str] | None = None,
                 topics: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """ids: of each node and of the controller. topic_config: Kafka's keys of every topic created; topics:
        of single ones by name, over those."""
        self.nodes = tuple(node for node in ids if node != CONTROLLER)
        self.ids = ids
        self.about: Mapping[str, Any] = {
            "name": NAME, "version": kafka.version, "form": form.name, **form.about,
            **({"image": kafka.image} if kafka.image is not None else {}),
            **({"topic_config": dict(topic_config)} if topic_config else {}),
            **({"topics": {name: dict(keys) for name, keys in topics.items()}} if topics else {})}
        self.config = {node: effective(form.settings, topic_config or {}) for node in self.nodes}
        self.dials_by_name = True
        self.lacks: Mapping[type, str] = {
            Failpoints: "stock Apache Kafka has no failpoints", Clocks: NO_CLOCKS, **form.lacks}
        self.not_shown = frozenset({"proposing"})
        self.read_from_files = frozenset({"epochs"})
        self.traced_events: frozenset[str] | None = kafka_trace.TRACED_EVENTS
        self.power = power
        self.partitions: tuple[PartitionSpec, ...] = ()
        self.frozen = False
        self._kafka, self._form, self._topic_config = kafka, form, dict(topic_config or {})
        self._topics = topics or {}
        self._names = {number: node for node, number in ids.items()}
        self._ends, self._metadata = WireLooks(), BrokerMetadata()
        self._starts: dict[str, _Start] = {}  # of each process, the last
        self._attached: tuple[Layout, Hosts, Disks] | None = None
        self._clock = Clock.now()

    # -- System -------------------------------------------------------------------------------------------

    @property
    def software(self) -> JavaSoftware:
        kafka = self._kafka
        return JavaSoftware(version=kafka.version, java=kafka.java, jars=kafka.jars, image=kafka.image,
                            needs_java=kafka.needs_java)

    def attach(self, layout: Layout, hosts: Hosts, disks: Disks) -> None:
        if "," in str(layout.folder):
            raise FloodmarkError("Kafka takes a comma in log.dirs for the end of a folder's name: choose a "
                                 f"folder without one, not {layout.folder}")
        self._attached = layout, hosts, disks
        self._form.write_files(layout)
        write_hosts(layout)
        write_logging(layout.work(""))

    def command(self, name: str) -> Sequence[str]:
        main, file = self._form.main(name)
        flags = (f"-Djdk.net.hosts.file={self._layout.hosts_of(name)}",) if self._layout.link_hosts else ()
        java = java_command(self._kafka, self._layout.places[name], main, [file],
                            logging=self._layout.work(""), flags=flags)
        return [*self._form.before(name), *java]

    def number(self, partitions: Sequence[PartitionSpec]) -> None:
        self.partitions += tuple(partitions)

    async def create_topics(self, partitions: Sequence[PartitionSpec]) -> None:
        topics: dict[str, list[list[int]]] = {}
        for spec in sorted(partitions, key=lambda one: (one.topic, one.partition)):
            assignment = topics.setdefault(spec.topic, [])
            if spec.partition != len(assignment):
                raise FloodmarkError(f"topic {spec.topic!r} lacks partition {len(assignment)}")
            assignment.append([self.ids[node] for node in spec.replicas])
        configs = {topic: {**self._topic_config, **self._topics.get(topic, {})} for topic in topics}
        await admin_requests.create_topics(await self._admin(), topics, timeout_s=ASK_S, configs=configs)

    async def look(self) -> View:
        """All brokers at once."""
        reached = {node: self._asked(node) for node in self._answering()}
        ends, believed, state = await asyncio.gather(
            self._ends.replica_ends(reached, self.partitions, LOOK_S),
            self._metadata.of_each(reached, self.partitions, LOOK_S),
            self._form.controller_state(self.partitions))
        starts: Mapping[tuple[str, int], int] = {}
        if not self._files_at_hand:
            starts = await self._ends.log_starts(reached, self.partitions, LOOK_S)
            await asyncio.gather(*map(self._look_at_checkpoint, {node for node, _ in ends}))
        return View(
            time_ns=time.monotonic_ns(), replicas=self._replicas(ends, believed, starts),
            partitions=state.partitions if state is not None else {}, running=self._running(),
            unfenced=frozenset(node for node in believed if state is not None and node in state.unfenced))

    async def starting(self, name: str) -> None:
        await self._form.starting(name)
        log = self._layout.log_of(name)
        self._starts[name] = _Start(log_bytes=log.stat().st_size if log.exists() else 0,
                                    clean=None if name in self._starts else True)

    async def is_up(self, name: str) -> bool:
        """A broker opens its listeners when its controller has acknowledged it. One that has got as far as to
        wait for that, and waits on, has started: its controller is down, or cut off from it."""
        if name == CONTROLLER:
            return await self._form.controller_is_up()
        reached = {name: self._asked(name)}
        return bool(await self._metadata.of_each(reached, self.partitions, LOOK_S)) or self._waits(name)

    def _waits(self, name: str) -> bool:
        start = self._starts[name]
        if start.waits_since_s is None and self._form.waiting_line in self._said(name):
            start.waits_since_s = time.monotonic()
        return start.waits_since_s is not None and time.monotonic() - start.waits_since_s > CONTROLLER_S

    def _stopped_cleanly(self, name: str) -> bool:
        """Whether the stop before its last start was orderly, as it says when it loads its logs."""
        start = self._starts[name]
        if start.clean is None:
            kinds = [said.kind for line in self._said(name).splitlines(keepends=True)
                     if (said := read_line(line)) is not None]
            if "loaded" not in kinds:
                return False
            start.clean = "clean" in kinds
        return start.clean

    def _said(self, name: str) -> str:
        """What its process has logged since it was started last."""
        try:
            with self._layout.log_of(name).open("rb") as log:
                log.seek(self._starts[name].log_bytes)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def started(self, name: str) -> None:
        pass

    def foreseen(self, name: str, code: int) -> bool:
        return False

    def crashes(self) -> Sequence[Met]:
        return ()

    async def hang_up(self, name: str) -> None:
        pass  # connections to it are found broken at the next look

    async def let_go(self, names: Sequence[str]) -> list[str]:
        return []

    async def close(self) -> None:
        self._ends.close()
        self._metadata.close()
        await self._form.close()

    # -- abilities ----------------------------------------------------------------------------------------

    async def freeze(self) -> View:
        """See the module's docstring. A broker that is silent is killed."""
        self.frozen = True
        if self._form.decides_alone and self._hosts.lives(CONTROLLER):
            await self._hosts.pause(CONTROLLER)
        looks = [await self.look()]
        deadline_s = time.monotonic() + FREEZE_S
        while len({_standing(look) for look in looks[-SAME_LOOKS:]}) > 1 or len(looks) < SAME_LOOKS:
            if time.monotonic() > deadline_s:
                break
            await asyncio.sleep(BETWEEN_LOOKS_S)
            looks.append(await self.look())
        answering = {node for node, _ in looks[-1].replicas}
        await asyncio.gather(*(
            self._hosts.pause(node) if node in answering else self._hosts.kill(node)
            for node in self.nodes if self._hosts.lives(node)))
        state = await self._form.controller_state(self.partitions)
        if self._hosts.lives(CONTROLLER):
            await self._hosts.pause(CONTROLLER)
        decided = state.partitions if state else {}
        nodes = sorted({node for node, _ in looks[-1].replicas})
        found = await asyncio.gather(*map(self._attachment[2].log_dir, nodes))
        log_dirs = dict(zip(nodes, found, strict=True))
        replicas = await asyncio.to_thread(self._as_on_disk, looks[-SAME_LOOKS:], decided, log_dirs)
        return replace(looks[-1], replicas=replicas, partitions=decided)

    async def expire(self, node: str) -> None:
        self._layout.known(node)
        await self._form.expire(node, self.partitions, self._answering())

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        """Ask for the preferred leaders, or unclean ones. Empty: of all partitions. A controller that does
        not answer has refused."""
        specs = self._specs(partitions)
        try:
            return election_result(await self._elected(specs, unclean=unclean))
        except FloodmarkError as error:
            return election_result({spec.key: str(error) for spec in specs})

    async def elect_replica(self, partitions: Sequence[int], leader: str, *, unclean: bool = False
                            ) -> Mapping[str, Any]:
        """Puts the replica first by a reassignment that moves nothing but the order, elects the preferred
        leader, and puts the order back."""
        specs = self._specs(partitions)
        if unclean:
            return {"elected": [], "refused": {
                str(spec.key): "Kafka elects uncleanly whichever live replica comes first in the assignment, "
                               "and none that is named" for spec in specs}}
        able = [spec for spec in specs if leader in spec.replicas]
        errors: dict[int, str | None] = {
            spec.key: f"{leader} has no replica of it" for spec in specs if spec not in able}
        if not able:
            return election_result(errors)
        try:
            errors |= await self._reordered(able, first=leader)
            moved = [spec for spec in able if errors[spec.key] is None]
            errors |= await self._elected(moved, unclean=False) if moved else {}
            await self._reordered(able, first=None)
        except FloodmarkError as error:
            errors |= {spec.key: str(error) for spec in able if spec.key not in errors}
        return election_result(errors)

    def traces(self) -> Raw | None:
        """Of the partitions there are by now, and of all that was logged so far."""
        files = {name: place.trace for name, place in self._layout.places.items() if place.trace is not None}
        if not files:
            return None
        if self._form.name != "kraft":
            files.pop(CONTROLLER, None)  # it is ZooKeeper's
        for name, file in files.items():
            self._write_trace(name, file)
        return Raw(files=files, names=self._names,
                   keys={(spec.topic, spec.partition): spec.key for spec in self.partitions},
                   clock_error_ns=kafka_trace.clock_error_ns(self._clock, Clock.now()))

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _attachment(self) -> tuple[Layout, Hosts, Disks]:
        if self._attached is None:
            raise FloodmarkError("the cluster was not started")
        return self._attached

    @property
    def _layout(self) -> Layout:
        return self._attachment[0]

    @property
    def _hosts(self) -> Hosts:
        return self._attachment[1]

    def _write_trace(self, name: str, file: Path) -> None:
        """No file where there is nothing to be read: the merge says then that the node's trace is missing."""
        file.unlink(missing_ok=True)
        place = self._layout.places[name]
        if name != CONTROLLER:
            kafka_trace.write_broker_trace(
                self._layout.log_of(name), file, node_id=place.node_id, clock=self._clock)
            return
        with suppress(FloodmarkError):
            kafka_trace.write_controller_trace(
                place.log_dir, file, node_id=place.node_id, clock=self._clock)

    @property
    def _files_at_hand(self) -> bool:
        return not any(place.log_dir_copied for place in self._layout.places.values())

    def _asked(self, node: str) -> Address:
        """Where a broker is asked: at the listener of the other brokers, which no cut of clients is about."""
        return self._layout.places[node].asked

    def _running(self) -> frozenset[str]:
        return frozenset(node for node in self.nodes if self._hosts.lives(node))

    def _answering(self) -> list[str]:
        """Nodes that can be asked anything: others would only be waited for."""
        return [node for node in self.nodes if self._hosts.lives(node) and not self._hosts.paused(node)]

    async def _admin(self) -> admin_requests.Address:
        broker = await self._form.admin(self._answering())
        if broker is None:
            raise FloodmarkError("no broker runs that could be asked for this")
        return self._asked(broker)

    def _specs(self, partitions: Sequence[int]) -> list[PartitionSpec]:
        """Of these keys; none: all."""
        specs = [spec for spec in self.partitions if not partitions or spec.key in partitions]
        if unknown := sorted(set(partitions) - {spec.key for spec in specs}):
            raise FloodmarkError(f"there is no partition {unknown[0]} to elect a leader for")
        return specs

    async def _elected(self, specs: Sequence[PartitionSpec], *, unclean: bool) -> dict[int, str | None]:
        asked = {(spec.topic, spec.partition): spec.key for spec in specs}
        results = await admin_requests.elect_leaders(
            await self._admin(), list(asked), unclean=unclean, timeout_s=ASK_S)
        return {asked[where]: error for where, error in results.items() if where in asked}

    async def _reordered(self, specs: Sequence[PartitionSpec], *, first: str | None) -> dict[int, str | None]:
        """The same replicas in another order; first None: in the order of the assignment."""
        orders = {
            (spec.topic, spec.partition): [
                self.ids[node] for node in sorted(spec.replicas, key=lambda node: node != first)]
            for spec in specs}
        results = await admin_requests.reassign(await self._admin(), orders, timeout_s=ASK_S)
        keys = {(spec.topic, spec.partition): spec.key for spec in specs}
        return {keys[where]: error for where, error in results.items() if where in keys}

    def _replicas(self, ends: Ends, believed: Mapping[str, Believed],
                  starts: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], ReplicaView]:
        """starts: of logs whose files are not at hand; the others' say themselves where they begin."""
        places = {spec.key: (spec.topic, spec.partition) for spec in self.partitions}
        found = {}
        for (node, key), (leo, hw) in ends.items():
            belief = believed.get(node, {}).get(places[key])
            if belief is not None:
                found[node, key] = ReplicaView(
                    node=node, partition=key, leo=leo, hw=hw, epoch=belief.epoch,
                    leader=self._names.get(belief.leader),
                    isr=tuple(self._names[number] for number in belief.isr if number in self._names),
                    clean=self._stopped_cleanly(node),
                    **(self._checkpoints(node, places[key]) if self._files_at_hand
                       else {"log_start": starts.get((node, key), UNKNOWN),
                             "checkpointed_hw": self._starts[node].checkpointed(places[key])}))
        return found

    async def _look_at_checkpoint(self, node: str) -> None:
        start = self._starts[node]
        if time.monotonic() - start.hws_at_s < CHECKPOINT_EVERY_S:
            return
        start.hws_at_s = time.monotonic()
        with suppress(FloodmarkError):  # it is being replaced, or its container ends
            start.hws = logdir.offsets_in(await self._attachment[2].read(node, HWS) or "", HWS)

    def _checkpoints(self, node: str, place: tuple[str, int]) -> dict[str, Any]:
        """What a node's files say of one replica; nothing while they are being replaced."""
        log_dir = self._layout.places[node].log_dir
        folder = log_dir / f"{place[0]}-{place[1]}"
        try:
            starts = logdir.read_offsets(log_dir / "log-start-offset-checkpoint")
            hws = logdir.read_offsets(log_dir / HWS)
            segments = segments_of(folder)
            epochs = logdir.read_epochs(folder)
        except FloodmarkError:
            return {}
        first = segments[0].base_offset if segments else 0
        return {"log_start": max(first, starts.get(place, 0)), "checkpointed_hw": hws.get(place, 0),
                "epochs": epochs}

    def _as_on_disk(self, looks: Sequence[View], decided: Mapping[int, PartitionView],
                    log_dirs: Mapping[str, Path]) -> dict[tuple[str, int], ReplicaView]:
        """The last look's replicas with LEO and log start as their files have them, all standing still.
        decided: each partition as it stands; of one that the last look saw otherwise no HW is known."""
        specs = {spec.key: spec for spec in self.partitions}
        found = {}
        for (node, key), seen in looks[-1].replicas.items():
            state = logdir.describe(log_dirs[node], specs[key], running=True)
            steady = all(look.replicas.get((node, key)) == seen for look in looks)
            found[node, key] = replace(
                seen, leo=state.leo, log_start=state.log_start, checkpointed_hw=state.checkpointed_hw,
                hw=seen.hw if looks[-1].partitions.get(key) == decided.get(key) else UNKNOWN,
                epochs=state.epochs if steady else UNKNOWN)
        return found


def _standing(look: View) -> tuple[object, ...]:
    """All that a look shows but its time."""
    return (tuple(sorted(look.replicas.items(), key=lambda item: item[0])),
            tuple(sorted(look.partitions.items())), look.unfenced)


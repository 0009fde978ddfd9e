"""Apache Kafka as a System: what its KRaft mode (kraft.py) and its ZooKeeper mode (zookeeper.py) share.

No agent runs inside. The sources are Kafka's wire (LEO and HW of a broker's replicas; leader, epoch and ISR
by its metadata), the checkpoints on disk, and the controller's own records.

Freezing, and why what is read afterwards is true
1. The controller is stopped first (SIGSTOP). From then on no leader can be elected and no ISR can change,
   because only the controller decides that. Its decisions are in its records, which are read after it has
   stopped.
2. Then the brokers are observed until SAME_LOOKS views in a row agree and all that run answer: what the
   controller had sent has arrived, and replicas have fetched what they lacked. Views that never agree are no
   failure: the comparison with the view before the final reads finds what moves (end_phases.what_moved).
3. Then every broker is stopped. Its files stay as they are, also those that only the page cache has. LEO and
   log start are read from the files, so that replicas.jsonl agrees with the dumps, whatever happened after
   the last view.
4. HW is that of the last view. It never falls while no role changes, and none changes after 1. So it is at
   most the HW at the stop: what is below it was committed, and a check of records below the HW can only claim
   too little. A follower that truncates only after that view has a lower LEO on disk: its HW is unknown.
5. The leader-epoch cache is that of its checkpoint. Kafka writes some truncations of it later, in the
   background; so it is left out of the row of a replica whose last views did not agree.
6. With ZooKeeper a broker is the controller, and stopping it first would remove its replicas from the views.
   So all brokers are stopped at once, and ZooKeeper's state is compared with the last view: the HW of a
   partition with a decision in between is unknown.
"""
import asyncio
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from floodmark.harness import logdir
from floodmark.harness.client.codec import ClusterMetadata
from floodmark.harness.cluster import broker_requests, log_extents
from floodmark.harness.cluster.broker_cluster import JavaSoftware, Place
from floodmark.harness.cluster.broker_requests import Ask, Brokers, Ends, chosen, election_result, once
from floodmark.harness.cluster.kafka import distribution, kafka_trace, settings
from floodmark.harness.cluster.kafka.kafka_trace import Clock, read_line
from floodmark.harness.cluster.kafka.kraft import KRaft
from floodmark.harness.cluster.layout import Address, Layout, ids_of, node_names
from floodmark.harness.cluster.log_extents import Lost, PowerLoss, segments_of
from floodmark.harness.errors import FloodmarkError, UsageError, WrongDisk
from floodmark.harness.protocols import Clocks, Failpoints, PartitionSpec, Traces
from floodmark.harness.schedule.views import (
    CONTROLLER,
    UNKNOWN,
    FailpointHit,
    PartitionView,
    ReplicaView,
    View,
)
from floodmark.harness.trace import Raw

if TYPE_CHECKING:
    from floodmark.harness.cluster.kafka.zookeeper import ZooKeeper  # it needs an optional package

NAME = "kafka"
LATEST_RULES = "kip-320"  # older generations are protocol versions that only ZooKeeper mode supports
FLUSH, BROKERS_FLUSH = "flush.messages", "log.flush.interval.messages"  # a topic's key, its broker's
LOOK_S = 2.0  # for one broker to answer while observing
ASK_S = 30.0
ELECT_S = 10.0  # for one broker to answer an election or a reassignment; then the next is asked
FREEZE_S = 10.0  # for the views of a freeze to agree
SAME_LOOKS = 3
CHECKPOINT_EVERY_S = 1.0  # at most this often is a checkpoint read from a container
NO_CLOCKS = ("under libfaketime a Java process takes ten times the processor time to start, which would "
             "disturb it more than its clock")
HWS = "replication-offset-checkpoint"
CONTROLLER_S = 3.0  # a reachable controller acknowledges a broker sooner than this
BETWEEN_LOOKS_S = 0.2


@dataclass(slots=True, kw_only=True)
class _Start:
    log_bytes: int  # the length of its log before it
    clean: bool | None = None  # whether the previous stop was orderly; None: it has not loaded its logs yet
    waits_since_s: float | None = None  # monotonic, when its log first said that it waits for its controller
    hws: Mapping[tuple[str, int], int] | None = None  # its HW checkpoint, if it is read from a container
    hws_at_s: float = 0.0  # monotonic, when that was read


class KafkaSystem:
    """Apache Kafka. See harness.cluster.broker_cluster: System, and harness.protocols: Freezes, Expires,
    Elects, ElectsReplica, KeepsRecords and Traces."""

    def __init__(self, kafka: distribution.Distribution, mode: "KRaft | ZooKeeper", ids: Mapping[str, int], *,
                 power: PowerLoss, topic_config: Mapping[str, str] | None = None,
                 topics: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """topic_config: Kafka's keys of every created topic; topics: of single topics, overriding those."""
        self.nodes = tuple(node for node in ids if node != CONTROLLER)
        self.ids = ids
        self.about: Mapping[str, Any] = {
            "name": NAME, "version": kafka.version, "form": mode.name, **mode.about,
            **({"image": kafka.image} if kafka.image is not None else {}),
            **({"topic_config": dict(topic_config)} if topic_config else {}),
            **({"topics": {name: dict(keys) for name, keys in topics.items()}} if topics else {})}
        self.config: Mapping[str, Mapping[str, Any]] = {
            node: settings.effective(mode.settings, topic_config or {}) for node in self.nodes}
        self.keeps_all = settings.keeps_all(mode.settings, topic_config or {}, *(topics or {}).values())
        self.dials_by_name = True
        self.lacks: Mapping[type, str] = {
            Failpoints: "stock Apache Kafka has no failpoints", Clocks: NO_CLOCKS, **mode.lacks}
        if distribution.release_of(kafka.version) < distribution.FIRST_TRACED:
            self.lacks = {**self.lacks, Traces: f"Kafka {kafka.version} is older than 2.8, the oldest from "
                                                "whose log a trace is made"}
        self.not_shown = frozenset({"proposing"})
        self.read_from_files = frozenset({"epochs"})
        self.traced_events: frozenset[str] | None = kafka_trace.TRACED_EVENTS
        self.power = power
        self.partitions: tuple[PartitionSpec, ...] = ()
        self.frozen = False
        self.starts_by_controller = not mode.controller_decides
        self.module: str | None = None
        self.software: JavaSoftware | None = kafka
        self._kafka, self._mode, self._topic_config = kafka, mode, dict(topic_config or {})
        self._topics = topics or {}
        self._names = {number: node for node, number in ids.items()}
        self._looks, self._metadata = Brokers(), Brokers()
        self._starts: dict[str, _Start] = {}  # of each process, the last
        self._attached: Place | None = None
        self._clock = Clock.now()

    def attach(self, place: Place) -> None:
        layout = place.layout
        if "," in str(layout.folder):
            raise FloodmarkError("Kafka reads a comma in log.dirs as the end of a folder's name: choose a "
                                 f"folder without one, not {layout.folder}")
        self._attached = place
        self._mode.write_files(layout)
        settings.write_hosts(layout)
        settings.write_logging(layout.work(""))

    def command(self, name: str) -> Sequence[str]:
        hosts = self._layout.work(f"{name}.hosts")
        flags = (f"-Djdk.net.hosts.file={hosts}",) if self._layout.link_hosts else ()
        java = settings.java_command(self._kafka, self._layout.places[name], self._mode.main(name),
                            [self._layout.properties_of(name)], logging=self._layout.work(""), flags=flags)
        return [*self._mode.before(name), *java]

    async def create_topics(self, partitions: Sequence[PartitionSpec]) -> None:
        topics = broker_requests.assignments(partitions, self.ids)
        configs = {topic: {**self._topic_config, **self._topics.get(topic, {})} for topic in topics}
        await broker_requests.create_topics(await self._admin(), topics, timeout_s=ASK_S, configs=configs)

    async def look(self) -> View:
        reached = {node: self._asked(node) for node in self._answering()}
        ends, metadata, (decided, unfenced) = await asyncio.gather(
            self._looks.replica_ends(reached, self.partitions, LOOK_S),
            self._metadata.metadata_of_each(reached, self._topic_names(), LOOK_S), self._decisions())
        log_starts: Mapping[tuple[str, int], int] = {}
        if self._place.read is not None:
            log_starts = await self._looks.log_starts(reached, self.partitions, LOOK_S)
            await asyncio.gather(*map(self._look_at_checkpoint, {node for node, _ in ends}))
        return View(
            time_ns=time.monotonic_ns(), replicas=self._replicas(ends, metadata, log_starts),
            partitions=decided or {},
            running=frozenset(node for node in self.nodes if self._place.lives(node)),
            unfenced=unfenced.intersection(metadata))

    async def _decisions(self) -> tuple[Mapping[int, PartitionView] | None, frozenset[str]]:
        """Those about our partitions, and the nodes considered alive; None and no nodes: not known."""
        places = {spec.place: spec.key for spec in self.partitions}
        if (state := await self._mode.controller_state([*places])) is None:
            return None, frozenset()
        views = {key: PartitionView(
            partition=key, epoch=one.epoch, partition_epoch=one.partition_epoch,
            leader=self._names.get(one.leader), isr=tuple(self._names[broker] for broker in one.isr),
            elr=tuple(self._names[broker] for broker in one.elr))
            for place, key in places.items() if (one := state.partitions.get(place)) is not None}
        return views, frozenset(self._names[broker] for broker in state.unfenced if broker in self._names)

    async def starting(self, name: str) -> None:
        await self._mode.starting(name)
        log = self._layout.log_of(name)
        self._starts[name] = _Start(log_bytes=log.stat().st_size if log.exists() else 0,
                                    clean=None if name in self._starts else True)

    async def is_up(self, name: str) -> bool:
        """Whether the broker answers, or has waited for its controller for CONTROLLER_S: it opens its
        listeners only when the controller has acknowledged it, and that may be down or cut off.
        WrongDisk if its log directory is another cluster's: in KRaft mode it would go on asking."""
        if name == CONTROLLER:
            return await self._mode.controller_is_up()
        reached = {name: self._asked(name)}
        answers = await self._metadata.metadata_of_each(reached, self._topic_names(), LOOK_S)
        if answers:
            return True
        start, said = self._starts[name], self._said(name)
        if self._mode.other_cluster_line in said:
            raise WrongDisk(f"{name} cannot join: the cluster.id in its log directory is that of another "
                            f"cluster ({self._mode.other_cluster_line}); see {self._layout.log_of(name)}")
        if start.waits_since_s is None and self._mode.waiting_line in said:
            start.waits_since_s = time.monotonic()
        return start.waits_since_s is not None and time.monotonic() - start.waits_since_s > CONTROLLER_S

    def _stopped_cleanly(self, name: str) -> bool:
        """Whether the stop before its last start was orderly, by its log lines about loading its logs."""
        start = self._starts[name]
        if start.clean is None:
            kinds = [line.kind for line in map(read_line, self._said(name).splitlines(keepends=True)) if line]
            if "loaded" not in kinds:
                return False
            start.clean = "clean" in kinds
        return start.clean

    def _said(self, name: str) -> str:
        try:
            with self._layout.log_of(name).open("rb") as log:
                log.seek(self._starts[name].log_bytes)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def started(self, name: str) -> None: ...

    def expects_exit(self, name: str, code: int) -> bool:
        return False

    def crashes(self) -> Sequence[FailpointHit]:
        return ()

    async def release_holds(self, names: Sequence[str]) -> list[str]:
        return []

    async def close(self) -> None:
        self._looks.close()
        self._metadata.close()
        await self._mode.close()

    async def freeze(self) -> View:
        """Freezes the cluster, see the module's docstring. A silent broker is killed."""
        place, self.frozen = self._place, True
        if self._mode.controller_decides and place.lives(CONTROLLER):
            await place.pause(CONTROLLER)
        looks = [await self.look()]
        deadline_s = time.monotonic() + FREEZE_S
        while time.monotonic() < deadline_s and not (
                len(looks) >= SAME_LOOKS
                and all((node, spec.key) in looks[-1].replicas  # on a busy machine brokers may be slow
                        for spec in self.partitions for node in spec.replicas if node in self._answering())
                and all(replace(one, time_ns=0) == replace(looks[-1], time_ns=0)
                        for one in looks[-SAME_LOOKS:])):
            await asyncio.sleep(BETWEEN_LOOKS_S)
            looks.append(await self.look())
        nodes = sorted({node for node, _ in looks[-1].replicas})
        await asyncio.gather(*(place.pause(node) if node in nodes else place.kill(node)
                               for node in self.nodes if place.lives(node)))
        decided = await self._last_decisions()
        if place.lives(CONTROLLER):
            await place.pause(CONTROLLER)
        log_dirs = dict(zip(nodes, await asyncio.gather(*map(place.log_dir, nodes)), strict=True))
        replicas = await asyncio.to_thread(self._replicas_on_disk, looks[-SAME_LOOKS:], decided, log_dirs)
        return replace(looks[-1], replicas=replicas, partitions=decided)

    async def _last_decisions(self) -> Mapping[int, PartitionView]:
        """Once every broker is stopped; none: not known. A busy ZooKeeper may not answer at once."""
        deadline_s = time.monotonic() + FREEZE_S
        while True:
            decided, _ = await self._decisions()
            answers = self._place.lives(CONTROLLER) and not self._place.paused(CONTROLLER)
            if decided is not None or not answers or time.monotonic() > deadline_s:
                return decided or {}
            await asyncio.sleep(BETWEEN_LOOKS_S)

    async def expire(self, node: str) -> None:
        self._layout.of(node)
        places = [spec.place for spec in self.partitions]
        await self._mode.expire(node, places, self._answering())

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        """A controller that does not answer counts as a refusal."""
        specs = chosen(self.partitions, partitions)
        try:
            return election_result(await broker_requests.elect(
                await self._admin(), specs, unclean=unclean, timeout_s=ELECT_S))
        except FloodmarkError as error:
            return election_result({spec.key: str(error) for spec in specs})

    async def elect_replica(self, partitions: Sequence[int], leader: str, *, unclean: bool = False
                            ) -> Mapping[str, Any]:
        """Elects this replica: a reassignment that only changes the order puts it first, the preferred leader
        is elected, and the order is restored, or the partition counts as refused."""
        specs = chosen(self.partitions, partitions)
        if unclean:
            return {"elected": [], "refused": {
                str(spec.key): "an unclean election takes the first live replica of the assignment, not a "
                                   "named one" for spec in specs}}
        errors: dict[int, str | None] = {
            spec.key: f"{leader} has no replica of it" for spec in specs if leader not in spec.replicas}
        if moved := [spec for spec in specs if leader in spec.replicas]:
            try:
                errors |= await self._reorder(moved, first=leader)
                if moved := [spec for spec in moved if errors[spec.key] is None]:
                    errors |= await broker_requests.elect(
                        await self._admin(), moved, unclean=False, timeout_s=ELECT_S)
            except FloodmarkError as error:
                errors |= dict.fromkeys((spec.key for spec in moved), str(error))
            finally:
                errors |= await self._restored(moved)
        return election_result(errors)

    async def _restored(self, specs: Sequence[PartitionSpec]) -> dict[int, str | None]:
        """Returns an error for each partition where that failed."""
        try:
            errors = await self._reorder(specs, first=None) if specs else {}
        except FloodmarkError as error:
            errors = dict.fromkeys((spec.key for spec in specs), str(error))
        return {key: f"the order of its replicas is not restored: {error}"
                for key, error in errors.items() if error is not None}

    def traces(self) -> Raw | None:
        files = {}
        for name, place in self._layout.places.items():
            if place.trace is None or (name == CONTROLLER and self._mode.name != "kraft"):  # it is ZooKeeper
                continue
            files[name] = place.trace
            place.trace.unlink(missing_ok=True)  # without a file the merge reports a missing trace
            write, source = ((kafka_trace.write_controller_trace, place.log_dir) if name == CONTROLLER
                             else (kafka_trace.write_broker_trace, self._layout.log_of(name)))
            with suppress(FloodmarkError):
                write(source, place.trace, node_id=place.node_id, clock=self._clock)
        if not files:
            return None
        return Raw(files=files, names=self._names, keys={spec.place: spec.key for spec in self.partitions},
                   clock_error_ns=kafka_trace.clock_error_ns(self._clock, Clock.now()))

    @property
    def _place(self) -> Place:
        if self._attached is None:
            raise FloodmarkError("the cluster was not started")
        return self._attached

    @property
    def _layout(self) -> Layout:
        return self._place.layout

    def _asked(self, node: str) -> Address:
        """The listener for the other brokers, because a cut of clients does not affect it."""
        return self._layout.places[node].asked

    def _topic_names(self) -> list[str]:
        return sorted({spec.topic for spec in self.partitions})

    def _answering(self) -> list[str]:
        """Nodes that can answer; asking others would only wait."""
        return [node for node in self.nodes if self._place.lives(node) and not self._place.paused(node)]

    async def _admin(self) -> Ask:
        """A function that asks the first broker that answers."""
        if not (brokers := await self._mode.admin(self._answering())):
            raise FloodmarkError("no broker runs that could do this")

        async def ask(kind: Any, timeout_s: float, **fields: Any) -> Any:
            for broker in brokers[:-1]:
                with suppress(FloodmarkError):
                    return await once(self._asked(broker))(kind, timeout_s, **fields)
            return await once(self._asked(brokers[-1]))(kind, timeout_s, **fields)

        return ask

    async def _reorder(self, specs: Sequence[PartitionSpec], *, first: str | None) -> dict[int, str | None]:
        """first: the new first replica; None: the order of the assignment."""
        orders = {
            spec.place: [
                self.ids[node] for node in sorted(spec.replicas, key=lambda node: node != first)]
            for spec in specs}
        results = await broker_requests.reassign(await self._admin(), orders, timeout_s=ELECT_S)
        keys = {spec.place: spec.key for spec in specs}
        return {keys[where]: error for where, error in results.items() if where in keys}

    def _replicas(self, ends: Ends, metadata: Mapping[str, ClusterMetadata],
                  log_starts: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], ReplicaView]:
        """log_starts: of the brokers in containers; those of others are read from their files."""
        places = {spec.key: spec.place for spec in self.partitions}
        clean = {node: self._stopped_cleanly(node) for node in {node for node, _ in ends} & metadata.keys()}
        found = {}
        for (node, key), (leo, hw) in ends.items():
            own_metadata = metadata[node].partitions.get(places[key]) if node in metadata else None
            if own_metadata is not None:
                found[node, key] = ReplicaView(
                    node=node, partition=key, leo=leo, hw=hw, epoch=own_metadata.epoch,
                    leader=self._names.get(own_metadata.leader),
                    isr=tuple(self._names[number] for number in own_metadata.isr if number in self._names),
                    clean=clean[node],
                    **(self._checkpoints(node, places[key]) if self._place.read is None
                       else {"log_start": log_starts.get((node, key), UNKNOWN),
                             "checkpointed_hw": UNKNOWN if (hws := self._starts[node].hws) is None
                             else hws.get(places[key], 0)}))
        return found

    async def _look_at_checkpoint(self, node: str) -> None:
        start, read = self._starts[node], self._place.read
        if read is None or time.monotonic() - start.hws_at_s < CHECKPOINT_EVERY_S:
            return
        start.hws_at_s = time.monotonic()
        with suppress(FloodmarkError):  # Kafka is replacing the file, or the container ends
            start.hws = logdir.offsets_in(await read(node, HWS) or "", HWS)

    def _checkpoints(self, node: str, place: tuple[str, int]) -> dict[str, Any]:
        """What a node's files say about one replica; empty while they are being replaced."""
        log_dir = self._layout.places[node].log_dir
        folder = log_dir / f"{place[0]}-{place[1]}"
        try:
            return {"log_start": logdir.log_start(log_dir, place, logdir.segments_of(folder)),
                    "checkpointed_hw": logdir.read_offsets(log_dir / HWS).get(place, 0),
                    "epochs": logdir.read_epochs(folder)}
        except FloodmarkError:
            return {}

    def _replicas_on_disk(self, looks: Sequence[View], decided: Mapping[int, PartitionView],
                          log_dirs: Mapping[str, Path]) -> dict[tuple[str, int], ReplicaView]:
        """The last view's replicas, with LEO and log start from the logs in log_dirs of processes that are
        stopped. decided: the final state of each partition; if it differs from the last view, or the
        LEO has fallen since, the HW is unknown."""
        specs = {spec.key: spec for spec in self.partitions}
        found = {}
        for (node, key), seen in looks[-1].replicas.items():
            state = logdir.describe(log_dirs[node], specs[key], running=True)
            steady = all(look.replicas.get((node, key)) == seen for look in looks)
            is_last = looks[-1].partitions.get(key) == decided.get(key) and seen.leo in range(state.leo + 1)
            found[node, key] = replace(
                seen, leo=state.leo, log_start=state.log_start, checkpointed_hw=state.checkpointed_hw,
                hw=seen.hw if is_last else UNKNOWN, epochs=state.epochs if steady else UNKNOWN)
        return found


# -- power cuts ---------------------------------------------------------------------------------------------
# Kafka records what it has fsynced only in recovery-point-offset-checkpoint: below a log's recovery point
# everything is durable; above it the operating system writes back at any time. So each log is cut at the end
# of a batch that is drawn evenly between its recovery point and its end.
# 1. A log is not cut below its recovery point, nor below the end that an earlier power cut left; a log that
#    fsyncs every message (flush.messages=1) is not cut at all: its recovery point is checkpointed later.
# 2. Later segments and producer snapshots are removed, and the indexes of the cut segment, which Kafka
#    rebuilds when it recovers an unclean log. Checkpoints are not cut: Kafka fsyncs them, and lowers offsets
#    that are gone when it loads the logs.
# 3. The harness records what a cut has left in a file next to the broker's folder. A log that was not written
#    since is durable as it is.

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HOW_CUT = "logs cut at a batch boundary above the recovery point"
NO_ENDS: Mapping[str, int] = {}
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_SNAPSHOT = ".snapshot"


class CutLogs:
    """See harness.cluster.log_extents: PowerLoss. durable_file is the file of rule 3."""

    def __init__(self, flushes_every: Callable[[str], bool] = lambda topic: False) -> None:
        self._flushes_every = flushes_every  # whether a topic's messages are fsynced before they are acked
        self._cuts: dict[str, int] = {}  # number of cuts of each node: seeds the next one's draw

    def power_cut(self, durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None) -> Lost:
        number = self._cuts[log_dir.name] = self._cuts.get(log_dir.name, 0) + 1
        random = Random(f"{log_dir.name} {number}")
        before = log_extents.log_extents(log_dir)
        points = logdir.read_offsets(log_dir / RECOVERY_POINTS)
        for name in log_extents.partition_folders(log_dir):
            topic, _, partition = name.rpartition("-")
            if not partition.isdecimal() or self._flushes_every(topic):
                continue
            floor = max(points.get((topic, int(partition)), 0), _left_by_cut(durable_file, log_dir / name))
            _cut(log_dir / name, floor, None if keep is None else keep.get(name), random)
        lost = log_extents.records_between(before, log_extents.log_extents(log_dir))
        self.mark_all_durable(durable_file, lost.kept)
        return replace(lost, how=HOW_CUT)

    def mark_all_durable(self, durable_file: Path, ends: Mapping[str, int] = NO_ENDS) -> None:
        durable_file.write_text(json.dumps({**ends}), encoding="utf-8")

    def fsynced(self, durable_file: Path) -> Mapping[str, int] | None:
        return {}  # of no file anything is known: a recovery point is an offset


def _left_by_cut(durable_file: Path, folder: Path) -> int:
    """The end of the log that an earlier power cut left, if it was not written since; else 0."""
    try:
        noted_ns = durable_file.stat().st_mtime_ns
        noted: Mapping[str, int] = json.loads(durable_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0
    if all(path.stat().st_mtime_ns <= noted_ns for path in segments_of(folder)):
        return log_extents.log_end_offset(folder)
    return noted.get(folder.name, 0)


def _cut(folder: Path, floor: int, keep: int | None, random: Random) -> None:
    """Cuts one log at the highest end of a batch that is not above `keep`; without it, at a drawn one."""
    segments = segments_of(folder)
    ends = [(number, end) for number, path in enumerate(segments)
            for end in (log_extents.BatchEnd(byte=0, leo=log_extents.base_offset(path)),
                        *log_extents.batch_ends(path))]
    possible = [one for one in ends if one[1].leo >= floor]
    if not possible:
        return  # the log ends below its recovery point: it is damaged already, and is not cut
    chosen = random.choice(possible)
    if keep is not None:
        chosen = max((one for one in possible if one[1].leo <= keep), default=possible[0],
                     key=lambda one: (one[1].leo, one[0]))
    number, end = chosen
    cut = segments[number]
    if number == len(segments) - 1 and end.byte == cut.stat().st_size:
        return
    for path in (*segments[number + 1:], cut):
        for suffix in _INDEX_SUFFIXES:
            path.with_suffix(suffix).unlink(missing_ok=True)
    for path in segments[number + 1:]:
        path.unlink()
    for path in folder.glob(f"*{_SNAPSHOT}"):
        if path.stem.isdecimal() and int(path.stem) > end.leo:
            path.unlink()
    os.truncate(cut, end.byte)


# -- making one ----------------------------------------------------------------------------------------------


def kafka_system(nodes: int, *, version_or_dir: str, rules: str, bugs: Sequence[str],
                 config: Mapping[str, str], topic_config: Mapping[str, str],
                 topics: Mapping[str, Mapping[str, str]] | None = None) -> KafkaSystem:
    """Nothing is started. Missing jars are fetched, with progress on standard error."""
    settings.refuse_ours(config, "-c")
    settings.refuse_ours(topic_config, "-t")
    if bugs:
        raise UsageError(f"--bug {bugs[0]} is a bug of the reference broker, which Apache Kafka does not "
                         "have: leave out --bug or --kafka")
    version, _ = distribution.named(version_or_dir)
    if rules != LATEST_RULES and distribution.mode_of(version) == "kraft":
        raise UsageError(f"--rules {rules} needs a Kafka that runs with ZooKeeper, such as 2.8.2; "
                         f"{version} has only {LATEST_RULES}")
    kafka = ready_kafka(version_or_dir)
    ids = ids_of(node_names(nodes))
    mode = _mode(kafka, config, ids, rules)

    def flushes_every(topic: str) -> bool:
        given = {**topic_config, **(topics or {}).get(topic, {})}
        return given.get(FLUSH, mode.settings.get(BROKERS_FLUSH)) == "1"

    return KafkaSystem(kafka, mode, ids, power=CutLogs(flushes_every), topic_config=topic_config,
                       topics=topics)


def _mode(kafka: distribution.Distribution, config: Mapping[str, str], ids: Mapping[str, int], rules: str
          ) -> "KRaft | ZooKeeper":
    if kafka.mode == "kraft":
        return KRaft(kafka, config, ids)
    from floodmark.harness.cluster.kafka.zookeeper import ZooKeeper

    return ZooKeeper(config, ids, rules=rules)


@functools.cache
def ready_kafka(version_or_dir: str) -> distribution.Distribution:
    """The distribution, with its class-data archive; cached, because every jar's checksum is verified."""
    say = functools.partial(print, file=sys.stderr, flush=True)
    kafka = distribution.distribution(version_or_dir, say)
    distribution.make_archive(kafka, say)
    return kafka

"""A cluster in memory: the pure machines, stepped by hand; storage, network and time are lists and numbers.

Rules
1. Nothing happens by itself: a message waits in `messages` until it is delivered or dropped, time stands until
   `pass_time`. `stabilize` plays an undisturbed network until nothing moves any more.
2. A message is for one incarnation of its receiver; for another it is lost. Leader-and-isr messages are the
   exception: the receiver itself refuses them (or not, if its rules have that bug).
3. A crash loses what is in memory; a power cut also what was not flushed. Epoch checkpoints are durable at once.
One partition, topic "t"; node k is broker k; values are strings without commas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from broker import errors
from broker.controller import Controller, ControllerConfig, PartitionInfo
from broker.messages import (
    CONSUMER,
    Append,
    AlterAnswer,
    AlterAnswered,
    AlterPartition,
    Batch,
    ControllerEffect,
    ControllerEvent,
    CreateTopic,
    Elect,
    Expire,
    Fetch,
    FetchAnswered,
    FetchWish,
    Heartbeat,
    HwMoved,
    LeaderAndIsr,
    LogEndsAnswered,
    LogEndsWish,
    OffsetAnswer,
    OffsetAsked,
    Persist,
    Produce,
    ProduceAnswer,
    ProposeIsr,
    Publish,
    ReadAnswer,
    Register,
    Registered,
    ReplicaEffect,
    ReplicaEvent,
    Reset,
    RoleChanged,
    SaveEpochs,
    Tick,
    Truncate,
    Wish,
)
from broker.purgatory import Purgatory
from broker.replica import Recovered, Replica, ReplicaConfig
from broker.rules import rules_for

CONTROLLER = 100
FETCH_WAIT_MS = 500


@dataclass(slots=True, kw_only=True)
class Disk:
    """What survives a crash; what is above `flushed` batches does not survive a power cut."""

    log_start: int = 0
    batches: list[Batch] = field(default_factory=list)
    flushed: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    hw: int = 0  # as checkpointed


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message under way. `incarnation` is the receiver's when it was sent."""

    kind: str  # metadata, fetch, fetch-answer, ends, ends-answer, alter, alter-answer
    sender: int
    to: int
    incarnation: int
    body: object


@dataclass(slots=True, kw_only=True)
class Sent:
    """One produce and its fate."""

    values: tuple[str, ...]
    node: int
    acks: int
    error: int | None = None  # None: no answer yet
    offset: int = -1

    @property
    def acked(self) -> bool:
        return self.error == errors.NONE and self.acks == -1


@dataclass(slots=True, kw_only=True)
class Node:
    id: int
    disk: Disk = field(default_factory=Disk)
    replica: Replica | None = None  # None: not running
    incarnation: int = 0
    broker_epoch: int = -1
    metadata_version: int = -1
    purgatory: Purgatory = field(default_factory=Purgatory)
    asked: Wish | None = None  # what it waits for an answer to
    waiting: dict[object, tuple[Fetch, Message]] = field(default_factory=dict)  # fetches at this node


class MemoryCluster:
    """Started, with every node in the ISR and node 1 (the first replica) leading."""

    def __init__(
        self,
        rules: str = "kip-320",
        bugs: Sequence[str] = (),
        *,
        nodes: int = 3,
        min_insync: int = 2,
        lag_ms: int = 10_000,
        session_ms: int = 6_000,
        unclean: bool = False,
    ) -> None:
        self.rules = rules_for(rules, bugs)
        self.now_ms = 0
        self.config = ReplicaConfig(min_insync_replicas=min_insync, replica_lag_time_max_ms=lag_ms)
        self.journal: list[object] = []
        self.controller_config = ControllerConfig(session_timeout_ms=session_ms, unclean_leader_election=unclean)
        self.controller = Controller(self.controller_config, (), self.rules)
        self.messages: list[Message] = []
        self.held: list[Callable[[Message], bool]] = []
        self.sends: list[Sent] = []
        self.reads: list[tuple[int, str]] = []
        self.on_effect: Callable[[int, ReplicaEffect], None] | None = None
        self._tokens = 0
        self.nodes = {node: Node(id=node) for node in range(1, nodes + 1)}
        for node in self.nodes:
            self.start(node)
        self.stabilize()
        self._ask_controller(
            CreateTopic(
                now_ms=0, token=0, topic="t", topic_id="0" * 32, partitions=1, replication_factor=nodes,
                assignment=(tuple(self.nodes),), configs={},
            )
        )  # fmt: skip
        self.stabilize()

    # -- what can be seen --------------------------------------------------------------------------------

    @property
    def partition(self) -> PartitionInfo:
        """The controller's word."""
        return self.controller.metadata().topics["t"].partitions[0]

    @property
    def running(self) -> list[int]:
        return [node.id for node in self.nodes.values() if node.replica is not None]

    def replica(self, node: int) -> Replica:
        found = self.nodes[node].replica
        assert found is not None, f"node {node} is not running"
        return found

    def log(self, node: int) -> dict[int, tuple[str, int]]:
        """offset -> (value, epoch) on this node's disk."""
        entries = {}
        for batch in self.nodes[node].disk.batches:
            for index, value in enumerate(batch.data.decode().split(",")):
                entries[batch.base_offset + index] = (value, batch.epoch)
        return entries

    def numbers(self) -> str:
        """The leader's LEO, HW and what it knows of the others; the followers' LEO and HW."""
        parts = []
        for node in self.nodes.values():
            replica = node.replica
            if replica is None:
                parts.append(f"n{node.id} down")
                continue
            text = f"n{node.id} LEO {replica.leo} HW {replica.hw}"
            if replica.leading:
                remotes = ", ".join(f"n{k}: {leo}" for k, leo in replica.remote_leos.items())
                isr = ",".join(f"n{k}" for k in replica.effective_isr)
                text = f"n{node.id}* epoch {replica.leader_epoch} LEO {replica.leo} HW {replica.hw} "
                text += f"remotes {{{remotes}}} isr {{{isr}}}"
            parts.append(text)
        return " | ".join(parts)

    # -- clients -----------------------------------------------------------------------------------------

    def send(
        self, node: int, *values: str, acks: int = -1, timeout_ms: int = 60_000, producer: tuple[int, int, int] = (-1, -1, -1)
    ) -> Sent:
        """Produce one batch; `producer` is (id, epoch, first sequence)."""
        sent = Sent(values=values, node=node, acks=acks)
        self.sends.append(sent)
        batch = Batch(
            base_offset=0, last_offset=len(values) - 1, epoch=-1, data=",".join(values).encode(),
            producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2],
        )  # fmt: skip
        self.step(
            node, Produce(now_ms=self.now_ms, token=sent, acks=acks, timeout_ms=timeout_ms, batches=(batch,))
        )
        return sent

    def read(self, node: int, offset: int = 0) -> tuple[int, list[tuple[int, str]]]:
        """Poll as a client would: (error, [(offset, value)])."""
        answer: list[ReadAnswer] = []
        fetch = Fetch(
            now_ms=self.now_ms, token=answer, replica=CONSUMER, broker_epoch=-1, offset=offset,
            current_leader_epoch=-1, last_fetched_epoch=-1,
        )  # fmt: skip
        self.step(node, fetch)
        batches = self._batches(node, answer[0].start, answer[0].end)
        records = []
        for batch in batches:
            for index, value in enumerate(batch.data.decode().split(",")):
                if offset <= batch.base_offset + index < answer[0].end:
                    records.append((batch.base_offset + index, value))
        self.reads.extend(records)
        return answer[0].error, records

    def end_offset(self, node: int) -> tuple[int, int]:
        """ListOffsets(latest) as a client: (error, offset)."""
        answer: list[OffsetAnswer] = []
        asked = OffsetAsked(now_ms=self.now_ms, token=answer, replica=CONSUMER, current_leader_epoch=-1, latest=True)
        self.step(node, asked)
        return answer[0].error, answer[0].offset

    # -- faults and the controller -------------------------------------------------------------------------

    def crash(self, node: int) -> None:
        """kill -9."""
        it = self.nodes[node]
        it.replica, it.asked = None, None
        broken = [message for _, message in it.waiting.values()]
        it.waiting.clear()
        for message in broken:
            self._lost(message)
        it.purgatory = Purgatory()

    def power_cut(self, node: int, keep: int | None = None) -> None:
        """Crash and lose the batches that were not flushed, or all above `keep` of them."""
        self.crash(node)
        disk = self.nodes[node].disk
        kept = disk.flushed if keep is None else max(keep, disk.flushed)
        del disk.batches[kept:]

    def start(self, node: int) -> None:
        """Start and register; unfencing takes a heartbeat that has seen the metadata."""
        it = self.nodes[node]
        assert it.replica is None, f"node {node} is running"
        it.incarnation += 1
        it.metadata_version = -1
        disk = it.disk
        frames = [replace(batch, data=b"") for batch in disk.batches]
        recovered = Recovered(log_start=disk.log_start, batches=frames, epochs=disk.epochs, hw=disk.hw)
        it.replica = Replica(me=node, config=self.config, rules=self.rules, recovered=recovered)
        effects = self._ask_controller(
            Register(
                now_ms=self.now_ms, token=node, broker=node, incarnation=f"{node}/{it.incarnation}",
                host=f"n{node}", port=9092, clean=False,
            )
        )  # fmt: skip
        it.broker_epoch = next(effect.broker_epoch for effect in effects if isinstance(effect, Registered))
        self._send_metadata([node])

    def flush(self, node: int) -> None:
        disk = self.nodes[node].disk
        disk.flushed = len(disk.batches)

    def checkpoint(self, node: int) -> None:
        """Write replication-offset-checkpoint."""
        self.nodes[node].disk.hw = self.replica(node).hw

    def expire(self, node: int) -> None:
        self._ask_controller(Expire(now_ms=self.now_ms, token=0, broker=node))

    def elect(self, *, unclean: bool = False) -> None:
        self._ask_controller(Elect(now_ms=self.now_ms, token=0, partitions=(), unclean=unclean))

    def lead(self, node: int) -> None:
        """A clean election of this ISR member, as a reassignment's preferred election would make it."""
        info = self.partition
        record = {
            "type": "partition", "topic": "t", "partition": 0, "replicas": list(info.replicas), "leader": node,
            "leader_epoch": info.leader_epoch + int(self.rules.election_bumps_epoch), "isr": list(info.isr),
            "partition_epoch": info.partition_epoch + 1,
        }  # fmt: skip
        assert node in info.isr, f"{node} is not in the ISR {info.isr}"
        self.journal.append(record)
        self.restart_controller()
        self._send_metadata(self.nodes)

    def heartbeat(self, node: int, *, stopping: bool = False) -> list[ControllerEffect]:
        it = self.nodes[node]
        return self._ask_controller(
            Heartbeat(
                now_ms=self.now_ms, token=0, broker=node, broker_epoch=it.broker_epoch,
                metadata_version=it.metadata_version, stopping=stopping,
            )
        )  # fmt: skip

    # -- network and time ----------------------------------------------------------------------------------

    def ask(self, node: int) -> None:
        """The follower sends what it wishes for, unless it waits for an answer."""
        it = self.nodes[node]
        wish = it.replica.wish() if it.replica is not None else None
        if wish is None or it.asked is not None or self.nodes[wish.leader].replica is None:
            return  # nothing to ask, still waiting, or nobody there to connect to
        it.asked = wish
        self._post("fetch" if isinstance(wish, FetchWish) else "ends", node, wish.leader, (wish, it.broker_epoch))

    def waiting_messages(self, kind: str | None = None, to: int | None = None, sender: int | None = None) -> list[Message]:
        return [
            message
            for message in self.messages
            if kind in (None, message.kind) and to in (None, message.to) and sender in (None, message.sender)
        ]

    def deliverable(self) -> list[Message]:
        """What is under way and not held."""
        return [message for message in self.messages if not self._is_held(message)]

    def hold(self, kind: str | None = None, *, to: int | None = None, sender: int | None = None) -> None:
        """From now on `stabilize` and `deliver_all` leave such messages where they are."""
        self.held.append(
            lambda message: kind in (None, message.kind)
            and to in (None, message.to)
            and sender in (None, message.sender)
        )

    def release(self) -> None:
        self.held.clear()

    def deliver(self, message: Message) -> None:
        self.messages.remove(message)
        if message.to == CONTROLLER:
            self._at_controller(message)
            return
        it = self.nodes[message.to]
        if it.replica is None or (message.incarnation != it.incarnation and message.kind != "metadata"):
            self._lost(message)
            return
        _DELIVER[message.kind](self, it, message)

    def drop(self, message: Message) -> None:
        self.messages.remove(message)
        self._lost(message)

    def time_out(self, message: Message) -> None:
        """The asker gives up; the message is still under way."""
        self._lost(message)

    def restart_controller(self) -> None:
        """From its journal; it has not heard of anybody yet."""
        self.controller = Controller(self.controller_config, self.journal, self.rules)  # type: ignore[arg-type]

    def deliver_all(self, kind: str | None = None, *, to: int | None = None, sender: int | None = None) -> None:
        """Deliver what is under way and not held, in order; what that brings about is left waiting."""
        for message in self.waiting_messages(kind, to, sender):
            if not self._is_held(message) and message in self.messages:
                self.deliver(message)

    def stabilize(self, *, must: bool = True) -> None:
        """Heartbeats, fetches and deliveries, none lost, until only parked fetches wait (or, unless it `must` come
        to that, for long enough)."""
        for _ in range(200 if must else 20):
            for node in self.running:
                self.heartbeat(node)
                self.ask(node)
            if not any(not self._is_held(message) for message in self.messages):
                return
            self.deliver_all()
        assert not must, f"does not settle: {self.messages}"

    def stabilize_until_proposed(self, member: int) -> None:
        """As `stabilize`, but stop when an ISR with this member is on its way to the controller."""
        for _ in range(200):
            for node in self.running:
                self.heartbeat(node)
                self.ask(node)
            for message in self.deliverable():
                if message.kind == "alter":
                    proposal, _ = message.body  # type: ignore[misc]
                    if member in dict(proposal.isr):
                        return
                if message in self.messages:
                    self.deliver(message)
        raise AssertionError(f"nobody proposes n{member}")

    def pass_time(self, duration_ms: int) -> None:
        """Ticks for everybody until then; parked fetches whose time is up are answered."""
        step_ms = self.controller_config.session_timeout_ms // 3
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.now_ms = min(self.now_ms + step_ms, until_ms)
            self._tick()

    def _tick(self) -> None:
        self._ask_controller(Tick(now_ms=self.now_ms))
        for node in list(self.running):
            self.step(node, Tick(now_ms=self.now_ms))
            self._wake(self.nodes[node], self.nodes[node].purgatory.expired(self.now_ms))

    def step(self, node: int, event: ReplicaEvent) -> None:
        """Step one replica and carry out its effects."""
        for effect in self.replica(node).step(event):
            if self.on_effect is not None:
                self.on_effect(node, effect)
            _CARRY_OUT[type(effect)](self, self.nodes[node], effect)

    # -- effects of replicas -------------------------------------------------------------------------------

    def _append(self, it: Node, effect: Append) -> None:
        it.disk.batches.extend(effect.batches)
        if effect.leading:
            self._wake(it, it.purgatory.appended("t", len(effect.batches)))

    def _truncate(self, it: Node, effect: Truncate) -> None:
        it.disk.batches[:] = [batch for batch in it.disk.batches if batch.base_offset < effect.to]
        it.disk.flushed = min(it.disk.flushed, len(it.disk.batches))

    def _reset(self, it: Node, effect: Reset) -> None:
        it.disk.batches.clear()
        it.disk.flushed, it.disk.log_start = 0, effect.start

    def _save_epochs(self, it: Node, effect: SaveEpochs) -> None:
        it.disk.epochs = effect.entries

    def _hw_moved(self, it: Node, _effect: HwMoved) -> None:
        self._wake(it, it.purgatory.hw_moved("t"))

    def _role_changed(self, it: Node, _effect: RoleChanged) -> None:
        it.asked = None
        self._wake(it, it.purgatory.role_changed("t"))

    def _produce_answer(self, _it: Node, effect: ProduceAnswer) -> None:
        sent = effect.token
        assert isinstance(sent, Sent)
        assert sent.error is None, f"answered twice: {sent}"
        sent.error, sent.offset = effect.error, effect.base_offset

    def _read_answer(self, it: Node, effect: ReadAnswer) -> None:
        if isinstance(effect.token, list):  # a client's
            effect.token.append(effect)
            return
        fetch, message = it.waiting.pop(effect.token)
        empty = effect.start == effect.end and not effect.error and effect.diverging is None
        if empty and not fetch.again:
            it.waiting[effect.token] = (fetch, message)
            it.purgatory.park(
                effect.token, ["t"], consumer=False, missing_bytes=1, deadline_ms=self.now_ms + FETCH_WAIT_MS
            )
            return
        wish, _ = message.body  # type: ignore[misc]
        answer = FetchAnswered(
            now_ms=self.now_ms, leader=it.id, asked=wish, error=effect.error, hw=effect.hw,
            log_start=effect.log_start, diverging=effect.diverging,
            batches=() if effect.error else tuple(self._batches(it.id, effect.start, effect.end)),
        )  # fmt: skip
        self._post("fetch-answer", it.id, message.sender, answer)

    def _offset_answer(self, _it: Node, effect: OffsetAnswer) -> None:
        assert isinstance(effect.token, list)
        effect.token.append(effect)

    def _propose(self, it: Node, effect: ProposeIsr) -> None:
        self._post("alter", it.id, CONTROLLER, (effect, it.broker_epoch))

    def _wake(self, it: Node, tokens: Sequence[object]) -> None:
        for token in tokens:
            fetch, message = it.waiting[token]
            again = replace(fetch, again=True, now_ms=self.now_ms)
            it.waiting[token] = (again, message)
            self.step(it.id, again)

    def _batches(self, node: int, start: int, end: int) -> list[Batch]:
        return [b for b in self.nodes[node].disk.batches if b.last_offset >= start and b.base_offset < end]

    # -- messages --------------------------------------------------------------------------------------------

    def _post(self, kind: str, sender: int, to: int, body: object) -> None:
        incarnation = self.nodes[to].incarnation if to in self.nodes else 0
        self.messages.append(Message(kind=kind, sender=sender, to=to, incarnation=incarnation, body=body))

    def _is_held(self, message: Message) -> bool:
        return any(held(message) for held in self.held)

    def _lost(self, message: Message) -> None:
        """The asker's connection breaks, if it still waits for that answer."""
        asker = message.sender if message.kind in ("fetch", "ends", "alter") else message.to
        it = self.nodes[asker]
        if message.kind in ("alter", "alter-answer") and it.replica is not None:
            proposal = message.body[0]  # type: ignore[index]
            self._alter_answered(it, proposal, errors.NETWORK_EXCEPTION, None)
        elif message.kind in ("fetch", "fetch-answer", "ends", "ends-answer"):
            body = message.body
            wish = body.asked if isinstance(body, FetchAnswered | LogEndsAnswered) else body[0]  # type: ignore[index]
            if it.asked == wish:
                it.asked = None

    def _fetch_arrives(self, it: Node, message: Message) -> None:
        wish, broker_epoch = message.body  # type: ignore[misc]
        self._tokens += 1
        fenced = self.rules.fences_followers or not self.rules.truncates_to_hw
        fetch = Fetch(
            now_ms=self.now_ms, token=self._tokens, replica=message.sender, broker_epoch=broker_epoch,
            offset=wish.offset, current_leader_epoch=wish.leader_epoch if fenced else -1,
            last_fetched_epoch=wish.last_fetched_epoch,
        )  # fmt: skip
        it.waiting[self._tokens] = (fetch, message)
        self.step(it.id, fetch)

    def _fetch_answer_arrives(self, it: Node, message: Message) -> None:
        answer = message.body
        assert isinstance(answer, FetchAnswered)
        if it.asked == answer.asked:
            it.asked = None
        self.step(it.id, replace(answer, now_ms=self.now_ms))

    def _ends_arrives(self, it: Node, message: Message) -> None:
        wish, _ = message.body  # type: ignore[misc]
        assert isinstance(wish, LogEndsWish)
        offsets = []
        for latest in (False, True):
            answer: list[OffsetAnswer] = []
            self.step(
                it.id,
                OffsetAsked(
                    now_ms=self.now_ms, token=answer, replica=message.sender,
                    current_leader_epoch=wish.leader_epoch, latest=latest,
                ),
            )  # fmt: skip
            offsets.append(answer[0])
        body = LogEndsAnswered(
            now_ms=self.now_ms, leader=it.id, asked=wish, error=offsets[0].error or offsets[1].error,
            log_start=offsets[0].offset, log_end=offsets[1].offset,
        )  # fmt: skip
        self._post("ends-answer", it.id, message.sender, body)

    def _ends_answer_arrives(self, it: Node, message: Message) -> None:
        answer = message.body
        assert isinstance(answer, LogEndsAnswered)
        if it.asked == answer.asked:
            it.asked = None
        self.step(it.id, replace(answer, now_ms=self.now_ms))

    def _metadata_arrives(self, it: Node, message: Message) -> None:
        version, broker_epoch, event = message.body  # type: ignore[misc]
        if self.rules.control_needs_broker_epoch and broker_epoch != it.broker_epoch:
            return
        if version < it.metadata_version:
            return
        it.metadata_version = version
        if event is not None:
            self.step(it.id, replace(event, now_ms=self.now_ms))

    def _alter_answer_arrives(self, it: Node, message: Message) -> None:
        proposal, answer = message.body  # type: ignore[misc]
        self._alter_answered(it, proposal, answer.error, answer)

    def _alter_answered(self, it: Node, proposal: ProposeIsr, error: int, answer: AlterAnswer | None) -> None:
        event = AlterAnswered(
            now_ms=self.now_ms, proposal=proposal, error=error,
            leader_epoch=answer.leader_epoch if answer else -1, isr=answer.isr if answer else (),
            partition_epoch=answer.partition_epoch if answer else -1,
        )  # fmt: skip
        self.step(it.id, event)

    # -- the controller ----------------------------------------------------------------------------------------

    def _ask_controller(self, event: ControllerEvent) -> list[ControllerEffect]:
        effects = self.controller.step(event)
        for effect in effects:
            if isinstance(effect, Persist):
                self.journal.extend(effect.records)
            elif isinstance(effect, Publish):
                self._send_metadata(self.nodes)
        return effects

    def _send_metadata(self, to: Sequence[int] | dict[int, Node]) -> None:
        metadata = self.controller.metadata()
        event = None
        if "t" in metadata.topics:
            info = metadata.topics["t"].partitions[0]
            event = LeaderAndIsr(
                now_ms=self.now_ms, leader=info.leader, leader_epoch=info.leader_epoch, isr=info.isr,
                partition_epoch=info.partition_epoch, replicas=info.replicas, broker_epochs=metadata.broker_epochs,
            )  # fmt: skip
        epochs = {broker.id: broker.epoch for broker in metadata.brokers}
        for node in to:
            if node in epochs:
                self._post("metadata", CONTROLLER, node, (metadata.version, epochs[node], event))

    def _at_controller(self, message: Message) -> None:
        proposal, broker_epoch = message.body  # type: ignore[misc]
        effects = self._ask_controller(
            AlterPartition(
                now_ms=self.now_ms, token=0, topic="t", partition=0, broker=message.sender,
                broker_epoch=broker_epoch, leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch, isr=proposal.isr,
            )
        )  # fmt: skip
        answer = next(effect for effect in effects if isinstance(effect, AlterAnswer))
        self._post("alter-answer", CONTROLLER, message.sender, (proposal, answer))


_CARRY_OUT: dict[type, Callable[..., None]] = {
    Append: MemoryCluster._append,
    Truncate: MemoryCluster._truncate,
    Reset: MemoryCluster._reset,
    SaveEpochs: MemoryCluster._save_epochs,
    HwMoved: MemoryCluster._hw_moved,
    RoleChanged: MemoryCluster._role_changed,
    ProduceAnswer: MemoryCluster._produce_answer,
    ReadAnswer: MemoryCluster._read_answer,
    OffsetAnswer: MemoryCluster._offset_answer,
    ProposeIsr: MemoryCluster._propose,
}

_DELIVER: dict[str, Callable[..., None]] = {
    "fetch": MemoryCluster._fetch_arrives,
    "fetch-answer": MemoryCluster._fetch_answer_arrives,
    "ends": MemoryCluster._ends_arrives,
    "ends-answer": MemoryCluster._ends_answer_arrives,
    "metadata": MemoryCluster._metadata_arrives,
    "alter-answer": MemoryCluster._alter_answer_arrives,
}

"""A cluster in memory: the pure machines, stepped by hand; storage, network and time are lists and numbers.

Rules
1. Nothing happens by itself: a message waits in `messages` until it is delivered or dropped, and time stops
   until `pass_time`. `stabilize` plays an undisturbed network until nothing changes any more.
2. A message is for one incarnation of its receiver; for another it is lost. Leader-and-isr messages are the
   exception: the receiver itself refuses them (or not, if its rules have that bug).
3. A crash loses what is in memory; a power cut also what was not flushed. Epoch checkpoints are durable.
One partition, topic "t"; node k is broker k; values are strings without commas.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory_node import CONTROLLER, DAMAGED, Message, Node, Sent, values
from memory_plumbing import CARRY_OUT, DELIVER, at_controller, lost, wake

from floodmark.broker.protocol.controller import Controller, ControllerConfig, PartitionInfo
from floodmark.broker.protocol.messages import (
    CONSUMER,
    NO_LEADER,
    Batch,
    ControllerEffect,
    ControllerEvent,
    CreateTopic,
    Elect,
    ElectAnswer,
    EndOffsetRequest,
    Expire,
    Fetch,
    FetchAnswer,
    FetchRequest,
    Heartbeat,
    LeaderAndIsr,
    ListOffsets,
    ListOffsetsAnswer,
    LogEndsRequest,
    Persist,
    Produce,
    Publish,
    Register,
    Registered,
    ReplicaEffect,
    ReplicaEvent,
    Tick,
)
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.broker.protocol.replica import Replica, ReplicaConfig
from floodmark.broker.testing.bugs import rules_for


class MemoryCluster:
    """A started cluster, with every node in the ISR and node 1 (the first replica) as leader."""

    def __init__(
        self,
        rules: str = "kip-320",
        bugs: Sequence[str] = (),
        *,
        switches: Sequence[str] = (),
        nodes: int = 3,
        min_insync: int = 2,
        lag_ms: int = 10_000,
        session_ms: int = 6_000,
        unclean: bool = False,
        flush_every: bool = False,
        fetch_batches: int | None = None,
    ) -> None:
        self.rules = rules_for(rules, bugs, switches)
        self.now_ms = 0
        self.steps = 0  # events stepped, of replicas and of the controller
        self.flush_every = flush_every  # flush.messages=1
        self.fetch_batches = fetch_batches  # at most so many in one answer
        self.config = ReplicaConfig(min_insync_replicas=min_insync, replica_lag_time_max_ms=lag_ms)
        self.journal: list[Mapping[str, Any]] = []
        self.controller_config = ControllerConfig(
            session_timeout_ms=session_ms, unclean_leader_election=unclean
        )
        self.controller = Controller(self.controller_config, (), self.rules)
        self.messages: list[Message] = []
        self.held: list[Callable[[Message], bool]] = []
        self.sends: list[Sent] = []
        self.reads: list[tuple[int, str]] = []
        self.ends: list[int] = []  # end offsets that clients got
        self.unacked = ""  # why, after mending, a probe was not acked; empty: it was, or none was sent
        self.on_effect: Callable[[int, ReplicaEffect], None] | None = None
        self.on_step: Callable[[], None] | None = None  # after every event stepped
        self._tokens = 0
        self.nodes = {node: Node(id=node) for node in range(1, nodes + 1)}
        for node in self.nodes:
            self.start(node)
        self.stabilize()
        self.ask_controller(
            CreateTopic(
                now_ms=0, token=0, topic="t", topic_id="0" * 32, partitions=1, replication_factor=nodes,
                assignment=(tuple(self.nodes),), configs={},
            )
        )  # fmt: skip
        self.stabilize()

    # -- lookups --------------------------------------------------------------------------------------------

    @property
    def partition(self) -> PartitionInfo:
        """The controller's view of the partition."""
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
        return values(self.nodes[node].disk.batches)

    def numbers(self) -> str:
        """The leader's LEO, HW and what it knows of the others; the followers' LEO and HW."""
        return " | ".join(node.numbers() for node in self.nodes.values())

    # -- clients -----------------------------------------------------------------------------------------

    def send(
        self,
        node: int,
        *values: str,
        acks: int = -1,
        timeout_ms: int = 60_000,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> Sent:
        """Produce one batch; `producer` is (id, epoch, first sequence)."""
        sent = Sent(values=values, node=node, acks=acks, producer=producer)
        self.sends.append(sent)
        self._produce(node, sent, sent, timeout_ms)
        return sent

    def retry(self, sent: Sent, node: int) -> None:
        """Sends the same batch again: a client's retry, or, once it has been answered, a late duplicate."""
        self._produce(node, sent, sent if sent.error is None else None, 60_000)

    def _produce(self, node: int, sent: Sent, token: Sent | None, timeout_ms: int) -> None:
        event = Produce(
            now_ms=self.now_ms, token=token, acks=sent.acks, timeout_ms=timeout_ms, batches=(sent.batch,)
        )
        self.step(node, event)

    def read(
        self, node: int, offset: int = 0, *, reader: int | None = None
    ) -> tuple[int, list[tuple[int, str]]]:
        """Polls as a client does: (error, [(offset, value)]). Reads of one `reader` are those of one
        consumer."""
        answer: list[FetchAnswer] = []
        fetch = Fetch(
            now_ms=self.now_ms, token=answer, replica=CONSUMER, broker_epoch=-1, offset=offset,
            current_leader_epoch=-1, last_fetched_epoch=-1,
        )  # fmt: skip
        self.step(node, fetch)
        found = values(self.batches(node, answer[0].start, answer[0].end))
        records = [(at, found[at][0]) for at in sorted(found) if offset <= at < answer[0].end]
        self.reads.extend(records)
        return answer[0].error, records

    def end_offset(self, node: int) -> tuple[int, int]:
        """ListOffsets(latest) as a client: (error, offset)."""
        answer: list[ListOffsetsAnswer] = []
        asked = ListOffsets(
            now_ms=self.now_ms, token=answer, replica=CONSUMER, current_leader_epoch=-1, latest=True
        )
        self.step(node, asked)
        if not answer[0].error:
            self.ends.append(answer[0].offset)
        return answer[0].error, answer[0].offset

    # -- faults and the controller -------------------------------------------------------------------------

    def crash(self, node: int) -> None:
        """kill -9."""
        it = self.nodes[node]
        it.replica, it.asked = None, None
        broken = [message for _, message in it.waiting.values()]
        it.waiting.clear()
        for message in broken:
            lost(self, message)
        it.purgatory = DelayedFetchPurgatory()

    def power_cut(self, node: int, keep: int | None = None) -> None:
        """Crashes the node and loses the batches that were not flushed, or all above `keep` of them."""
        self.crash(node)
        disk = self.nodes[node].disk
        kept = disk.flushed if keep is None else max(keep, disk.flushed)
        del disk.batches[kept:]

    def tear(self, node: int) -> None:
        """Power fails while a batch is written after the flushed ones: some of its bytes are on disk."""
        self.power_cut(node)
        disk = self.nodes[node].disk
        base = disk.batches[-1].last_offset + 1 if disk.batches else disk.log_start
        epoch = disk.batches[-1].epoch if disk.batches else 0
        disk.batches.append(Batch(base_offset=base, last_offset=base, epoch=epoch, data=DAMAGED))

    def start(self, node: int) -> None:
        """Starts and registers; to be unfenced it needs a heartbeat that has seen the metadata."""
        it = self.nodes[node]
        assert it.replica is None, f"node {node} is running"
        it.incarnation += 1
        it.metadata_version = -1
        recovered = it.disk.recovered(self.rules)
        it.replica = Replica(me=node, config=self.config, rules=self.rules, recovered=recovered)
        effects = self.ask_controller(
            Register(
                now_ms=self.now_ms, token=node, broker=node, incarnation=f"{node}/{it.incarnation}",
                host=f"n{node}", port=9092, clean=False,
            )
        )  # fmt: skip
        it.broker_epoch = next(effect.broker_epoch for effect in effects if isinstance(effect, Registered))
        self.send_metadata([node])

    def flush(self, node: int) -> None:
        disk = self.nodes[node].disk
        disk.flushed = len(disk.batches)

    def checkpoint(self, node: int) -> None:
        """Write replication-offset-checkpoint."""
        replica = self.replica(node)
        omitted = replica.leader == NO_LEADER and not self.rules.checkpoints_every_partition
        self.nodes[node].disk.hw = 0 if omitted else replica.hw

    def expire(self, node: int) -> None:
        self.ask_controller(Expire(now_ms=self.now_ms, token=0, broker=node))

    def elect(self, *, unclean: bool = False) -> None:
        self.ask_controller(Elect(now_ms=self.now_ms, token=0, partitions=(), unclean=unclean))

    def lead(self, node: int, *, unclean: bool = False) -> None:
        """Elects this node, which must be eligible."""
        elect = Elect(
            now_ms=self.now_ms, token=0, partitions=(("t", 0),), unclean=unclean, leader=node
        )
        answer = self.ask_controller(elect)[-1]
        assert isinstance(answer, ElectAnswer)
        assert not answer.results[0][2], f"n{node} cannot be elected: {answer}, {self.partition}"

    def heartbeat(self, node: int, *, stopping: bool = False) -> list[ControllerEffect]:
        it = self.nodes[node]
        return self.ask_controller(
            Heartbeat(
                now_ms=self.now_ms, token=0, broker=node, broker_epoch=it.broker_epoch,
                metadata_version=it.metadata_version, stopping=stopping,
            )
        )  # fmt: skip

    # -- network and time ----------------------------------------------------------------------------------

    def ask(self, node: int) -> None:
        """The follower sends the request that it wants to send, unless it waits for an answer."""
        it = self.nodes[node]
        wish = it.replica.next_request() if it.replica is not None else None
        if wish is None or it.asked is not None or self.nodes[wish.leader].replica is None:
            return  # no request to send, still waiting, or the other node does not run
        it.asked = wish
        kind = {FetchRequest: "fetch", EndOffsetRequest: "epoch", LogEndsRequest: "ends"}[type(wish)]
        self.post(kind, node, wish.leader, (wish, it.broker_epoch))

    def waiting_messages(
        self, kind: str | None = None, to: int | None = None, sender: int | None = None
    ) -> list[Message]:
        return [
            message
            for message in self.messages
            if kind in (None, message.kind) and to in (None, message.to) and sender in (None, message.sender)
        ]

    def deliverable(self) -> list[Message]:
        """The messages under way that are not held back."""
        return [message for message in self.messages if not self._is_held(message)]

    def hold(self, kind: str | None = None, *, to: int | None = None, sender: int | None = None) -> None:
        """From now on `stabilize` and `deliver_all` leave these messages waiting."""
        self.held.append(
            lambda message: (
                kind in (None, message.kind)
                and to in (None, message.to)
                and sender in (None, message.sender)
            )
        )

    def release(self) -> None:
        self.held.clear()

    def deliver(self, message: Message) -> None:
        self.messages.remove(message)
        if message.to == CONTROLLER:
            at_controller(self, message)
            return
        it = self.nodes[message.to]
        if it.replica is None or (message.incarnation != it.incarnation and message.kind != "metadata"):
            lost(self, message)
            return
        DELIVER[message.kind](self, it, message)

    def drop(self, message: Message) -> None:
        self.messages.remove(message)
        lost(self, message)

    def time_out(self, message: Message) -> None:
        """The sender stops waiting for the answer; the message is still under way."""
        lost(self, message)

    def restart_controller(self) -> None:
        """From its journal; it has no heartbeat of any broker yet."""
        self.controller = Controller(self.controller_config, self.journal, self.rules)

    def deliver_all(
        self, kind: str | None = None, *, to: int | None = None, sender: int | None = None
    ) -> None:
        """Delivers the messages under way that are not held back, in order; new messages stay waiting."""
        for message in self.waiting_messages(kind, to, sender):
            if not self._is_held(message) and message in self.messages:
                self.deliver(message)

    def stabilize(self, *, must: bool = True) -> None:
        """Plays heartbeats, fetches and deliveries, without losses, until only parked fetches wait. If that
        does not happen for long enough it stops, or fails if it `must`."""
        for _ in range(200 if must else 20):
            for node in self.running:
                self.heartbeat(node)
                self.ask(node)
            if not any(not self._is_held(message) for message in self.messages):
                return
            self.deliver_all()
        assert not must, f"does not settle: {self.messages}"

    def pass_time(self, duration_ms: int) -> None:
        """Plays the ticks of all nodes until then; parked fetches whose time is over are answered."""
        step_ms = self.controller_config.session_timeout_ms // 3
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.now_ms = min(self.now_ms + step_ms, until_ms)
            self._tick()

    def _tick(self) -> None:
        self.ask_controller(Tick(now_ms=self.now_ms))
        for node in list(self.running):
            self.step(node, Tick(now_ms=self.now_ms))
            wake(self, self.nodes[node], self.nodes[node].purgatory.expired(self.now_ms))

    def step(self, node: int, event: ReplicaEvent) -> None:
        """Steps one replica and carries out its effects."""
        self.steps += 1
        for effect in self.replica(node).step(event):
            if self.on_effect is not None:
                self.on_effect(node, effect)
            CARRY_OUT[type(effect)](self, self.nodes[node], effect)
        if self.on_step is not None:
            self.on_step()

    # -- for the plumbing ----------------------------------------------------------------------------------

    def batches(self, node: int, start: int, end: int) -> list[Batch]:
        return [b for b in self.nodes[node].disk.batches if b.last_offset >= start and b.base_offset < end]

    def post(self, kind: str, sender: int, to: int, body: object) -> None:
        incarnation = self.nodes[to].incarnation if to in self.nodes else 0
        self.messages.append(Message(kind=kind, sender=sender, to=to, incarnation=incarnation, body=body))

    def _is_held(self, message: Message) -> bool:
        return any(held(message) for held in self.held)

    # -- the controller --------------------------------------------------------------------------------

    def ask_controller(self, event: ControllerEvent) -> list[ControllerEffect]:
        self.steps += 1
        effects = self.controller.step(event)
        for effect in effects:
            if isinstance(effect, Persist):
                self.journal.extend(effect.records)
            elif isinstance(effect, Publish):
                self.send_metadata(self.nodes)
        return effects

    def send_metadata(self, to: Sequence[int] | dict[int, Node]) -> None:
        metadata = self.controller.metadata()
        event = None
        if "t" in metadata.topics:
            info = metadata.topics["t"].partitions[0]
            event = LeaderAndIsr(
                now_ms=self.now_ms, leader=info.leader, leader_epoch=info.leader_epoch, isr=info.isr,
                partition_epoch=info.partition_epoch, replicas=info.replicas,
                broker_epochs=metadata.broker_epochs,
            )  # fmt: skip
        epochs = {broker.id: broker.epoch for broker in metadata.brokers}
        for node in to:
            if node in epochs:
                self.post("metadata", CONTROLLER, node, (metadata.version, epochs[node], event))

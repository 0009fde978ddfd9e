"""Carries out effects and delivers messages in a memory cluster: one function for each kind."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_node import CONTROLLER, DAMAGED, Message, Node, Sent

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    AlterPartitionResponse,
    Append,
    Batch,
    EndOffsetAnswer,
    EndOffsetRequest,
    EndOffsetResponse,
    Fetch,
    FetchAnswer,
    FetchResponse,
    FollowerRequest,
    HwMoved,
    ListOffsets,
    ListOffsetsAnswer,
    LogEndsRequest,
    LogEndsResponse,
    OffsetsForLeaderEpoch,
    ProduceAnswer,
    ProposeIsr,
    Reset,
    RoleChanged,
    SaveEpochs,
    Truncate,
)

if TYPE_CHECKING:
    from memory_cluster import MemoryCluster

FETCH_WAIT_MS = 500


def append(cluster: "MemoryCluster", it: Node, effect: Append) -> None:
    it.disk.batches.extend(effect.batches)
    if cluster.flush_every:
        it.disk.flushed = len(it.disk.batches)
    if effect.leading:
        wake(cluster, it, it.purgatory.appended("t", len(effect.batches)))


def truncate(cluster: "MemoryCluster", it: Node, effect: Truncate) -> None:
    it.disk.batches[:] = [batch for batch in it.disk.batches if batch.base_offset < effect.to]
    it.disk.flushed = min(it.disk.flushed, len(it.disk.batches))


def reset(cluster: "MemoryCluster", it: Node, effect: Reset) -> None:
    it.disk.batches.clear()
    it.disk.flushed, it.disk.log_start = 0, effect.start


def save_epochs(cluster: "MemoryCluster", it: Node, effect: SaveEpochs) -> None:
    it.disk.epochs = effect.entries


def hw_moved(cluster: "MemoryCluster", it: Node, _effect: HwMoved) -> None:
    wake(cluster, it, it.purgatory.hw_moved("t"))


def role_changed(cluster: "MemoryCluster", it: Node, _effect: RoleChanged) -> None:
    it.asked = None
    wake(cluster, it, it.purgatory.role_changed("t"))


def produce_answer(cluster: "MemoryCluster", _it: Node, effect: ProduceAnswer) -> None:
    sent = effect.token
    if sent is None:  # no client waits for it any more
        return
    assert isinstance(sent, Sent)
    assert sent.error is None, f"answered twice: {sent}"
    sent.error, sent.offset = effect.error, effect.base_offset


def read_answer(cluster: "MemoryCluster", it: Node, effect: FetchAnswer) -> None:
    if isinstance(effect.token, list):  # a client's
        effect.token.append(effect)
        return
    fetch, message = it.waiting.pop(effect.token)
    empty = effect.start == effect.end and not effect.error and effect.diverging is None
    if empty and not fetch.again:
        it.waiting[effect.token] = (fetch, message)
        it.purgatory.park(
            effect.token, ["t"], consumer=False, missing_bytes=1, deadline_ms=cluster.now_ms + FETCH_WAIT_MS
        )
        return
    wish, _ = message.body
    answer = FetchResponse(
        now_ms=cluster.now_ms, leader=it.id, asked=wish, error=effect.error, hw=effect.hw,
        log_start=effect.log_start, diverging=effect.diverging,
        batches=() if effect.error else _batches(cluster, it, effect),
    )  # fmt: skip
    cluster.post("fetch-answer", it.id, message.sender, answer)


def _batches(cluster: "MemoryCluster", it: Node, effect: FetchAnswer) -> tuple[Batch, ...]:
    if effect.start == effect.end:
        return ()
    return tuple(cluster.batches(it.id, effect.start, effect.end)[: cluster.fetch_batches])


def offset_answer(cluster: "MemoryCluster", _it: Node, effect: ListOffsetsAnswer) -> None:
    assert isinstance(effect.token, list)
    effect.token.append(effect)


def end_offset_answer(cluster: "MemoryCluster", _it: Node, effect: EndOffsetAnswer) -> None:
    assert isinstance(effect.token, list)
    effect.token.append(effect)


def propose(cluster: "MemoryCluster", it: Node, effect: ProposeIsr) -> None:
    cluster.post("alter", it.id, CONTROLLER, (effect, it.broker_epoch))


def wake(cluster: "MemoryCluster", it: Node, tokens: Sequence[object]) -> None:
    for token in tokens:
        fetch, message = it.waiting[token]
        again = replace(fetch, again=True, now_ms=cluster.now_ms)
        it.waiting[token] = (again, message)
        cluster.step(it.id, again)


def lost(cluster: "MemoryCluster", message: Message) -> None:
    """Breaks the sender's connection, if it still waits for that answer."""
    asker = message.sender if message.kind in ("fetch", "ends", "epoch", "alter") else message.to
    it = cluster.nodes[asker]
    if message.kind in ("alter", "alter-answer") and it.replica is not None:
        proposal = message.body[0]
        alter_answered(cluster, it, proposal, errors.NETWORK_EXCEPTION, None)
    elif message.kind != "metadata":
        body = message.body
        answered = isinstance(body, FetchResponse | LogEndsResponse | EndOffsetResponse)
        wish = body.asked if answered else body[0]
        if it.asked == wish:
            it.asked = None


def current_epoch(cluster: "MemoryCluster", wish: FollowerRequest) -> int:
    """The epoch that generations without fencing could not send."""
    fenced = cluster.rules.fences_followers or cluster.rules.credits_this_epoch_only
    return wish.leader_epoch if fenced else -1


def fetch_arrives(cluster: "MemoryCluster", it: Node, message: Message) -> None:
    wish, broker_epoch = message.body
    cluster._tokens += 1
    fetch = Fetch(
        now_ms=cluster.now_ms, token=cluster._tokens, replica=message.sender, broker_epoch=broker_epoch,
        offset=wish.offset, current_leader_epoch=current_epoch(cluster, wish),
        last_fetched_epoch=wish.last_fetched_epoch,
    )  # fmt: skip
    it.waiting[cluster._tokens] = (fetch, message)
    cluster.step(it.id, fetch)


def fetch_answer_arrives(cluster: "MemoryCluster", it: Node, message: Message) -> None:
    answer = message.body
    assert isinstance(answer, FetchResponse)
    if it.asked == answer.asked:
        it.asked = None
    if not any(batch.data == DAMAGED for batch in answer.batches):  # else the same fetch would fail again
        cluster.step(it.id, replace(answer, now_ms=cluster.now_ms))


def epoch_arrives(cluster: "MemoryCluster", it: Node, message: Message) -> None:
    wish, _ = message.body
    assert isinstance(wish, EndOffsetRequest)
    answers: list[EndOffsetAnswer] = []
    asked = OffsetsForLeaderEpoch(
        now_ms=cluster.now_ms, token=answers, replica=message.sender,
        current_leader_epoch=current_epoch(cluster, wish), epoch=wish.epoch,
    )  # fmt: skip
    cluster.step(it.id, asked)
    body = EndOffsetResponse(
        now_ms=cluster.now_ms, leader=it.id, asked=wish, error=answers[0].error, end=answers[0].end
    )
    cluster.post("epoch-answer", it.id, message.sender, body)


def ends_arrives(cluster: "MemoryCluster", it: Node, message: Message) -> None:
    wish, _ = message.body
    assert isinstance(wish, LogEndsRequest)
    offsets = []
    for latest in (False, True):
        answer: list[ListOffsetsAnswer] = []
        cluster.step(
            it.id,
            ListOffsets(
                now_ms=cluster.now_ms, token=answer, replica=message.sender,
                current_leader_epoch=current_epoch(cluster, wish), latest=latest,
            ),
        )  # fmt: skip
        offsets.append(answer[0])
    body = LogEndsResponse(
        now_ms=cluster.now_ms, leader=it.id, asked=wish, error=offsets[0].error or offsets[1].error,
        log_start=offsets[0].offset, log_end=offsets[1].offset,
    )  # fmt: skip
    cluster.post("ends-answer", it.id, message.sender, body)


def wish_answer_arrives(cluster: "MemoryCluster", it: Node, message: Message) -> None:
    answer = message.body
    assert isinstance(answer, LogEndsResponse | EndOffsetResponse)
    if it.asked == answer.asked:
        it.asked = None
    cluster.step(it.id, replace(answer, now_ms=cluster.now_ms))


def metadata_arrives(cluster: "MemoryCluster", it: Node, message: Message) -> None:
    version, broker_epoch, event = message.body
    if cluster.rules.control_needs_broker_epoch and broker_epoch != it.broker_epoch:
        return
    if version < it.metadata_version:
        return
    it.metadata_version = version
    if event is not None:
        cluster.step(it.id, replace(event, now_ms=cluster.now_ms))


def alter_answer_arrives(cluster: "MemoryCluster", it: Node, message: Message) -> None:
    proposal, answer = message.body
    alter_answered(cluster, it, proposal, answer.error, answer)


def alter_answered(
    cluster: "MemoryCluster", it: Node, proposal: ProposeIsr, error: int, answer: AlterPartitionAnswer | None
) -> None:
    event = AlterPartitionResponse(
        now_ms=cluster.now_ms, proposal=proposal, error=error,
        leader_epoch=answer.leader_epoch if answer else -1, isr=answer.isr if answer else (),
        partition_epoch=answer.partition_epoch if answer else -1,
    )  # fmt: skip
    cluster.step(it.id, event)


def at_controller(cluster: "MemoryCluster", message: Message) -> None:
    proposal, broker_epoch = message.body
    effects = cluster.ask_controller(
        AlterPartition(
            now_ms=cluster.now_ms, token=0, topic="t", partition=0, broker=message.sender,
            broker_epoch=broker_epoch, leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch, isr=proposal.isr,
        )
    )  # fmt: skip
    answer = next(effect for effect in effects if isinstance(effect, AlterPartitionAnswer))
    cluster.post("alter-answer", CONTROLLER, message.sender, (proposal, answer))


CARRY_OUT: dict[type, Callable[..., None]] = {
    Append: append,
    Truncate: truncate,
    Reset: reset,
    SaveEpochs: save_epochs,
    HwMoved: hw_moved,
    RoleChanged: role_changed,
    ProduceAnswer: produce_answer,
    FetchAnswer: read_answer,
    ListOffsetsAnswer: offset_answer,
    EndOffsetAnswer: end_offset_answer,
    ProposeIsr: propose,
}

DELIVER: dict[str, Callable[..., None]] = {
    "fetch": fetch_arrives,
    "fetch-answer": fetch_answer_arrives,
    "ends": ends_arrives,
    "ends-answer": wish_answer_arrives,
    "epoch": epoch_arrives,
    "epoch-answer": wish_answer_arrives,
    "metadata": metadata_arrives,
    "alter-answer": alter_answer_arrives,
}

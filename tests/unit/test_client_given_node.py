"""Scripted requests to a given node, whoever leads, by the client of record on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from canned_broker import (
    FETCH,
    LIST_OFFSETS,
    PRODUCE,
    RUN,
    TOPIC,
    Act,
    CannedBroker,
    Ended,
    Produced,
    run_story,
)
from canned_broker import canned_broker as canned

from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.op import Intent, LogOffset, Send, Type
from floodmark.harness.protocols import PartitionSpec, WorkloadSettings
from floodmark.workloads.log import LogSession

SENDS = (Send(partition=7, value=17), Send(partition=7, value=18))


def to_n2(story: Callable[[CannedBroker, Client], Awaitable[None]]) -> None:
    """n1 leads, according to its metadata, and is asked nothing; n2 gets the requests."""
    async def told(leader: CannedBroker, client: Client) -> None:
        async with canned() as target:
            leader.beside = {"n2": target.port}
            await story(target, client)
            assert leader.asked == []

    run_story(told)


def test_a_send_to_a_given_node_goes_there_once_and_is_classified_as_usual() -> None:
    """No metadata is requested: that is how a stale client behaves."""
    async def story(target: CannedBroker, client: Client) -> None:
        target.produce = [Produced(error=6, base_offset=4)]
        assert (await client.send(SENDS, node="n2", acks="1")).type is Type.INFO
        assert [(api, request.acks) for api, _, request in target.asked] == [(PRODUCE, 1)]

    to_n2(story)


def test_reads_from_a_given_node_begin_at_the_offset_of_the_seek() -> None:
    """Without a leader epoch, because none was fetched: a zombie answers."""
    async def story(target: CannedBroker, client: Client) -> None:
        client.assign([7])
        client.seek([7], 5)
        await client.poll(node="n2")
        target.ends = [Ended(offset=9)]
        assert (await client.list_offsets([7], node="n2")).offsets == (LogOffset(7, 9, 0),)
        [fetch], [listed] = target.of(FETCH), target.of(LIST_OFFSETS)
        partition = fetch.topics[0].partitions[0]
        assert (partition.fetch_offset, partition.current_leader_epoch) == (5, -1)
        assert listed.topics[0].partitions[0].current_leader_epoch == -1

    to_n2(story)


def test_patience_raises_the_time_outs_of_client_and_broker() -> None:
    """The answer may come long after the usual time-out, and the broker waits as much longer."""
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.produce = [Act.STALL, Produced(base_offset=2)]
        short = await client.send(SENDS)
        long = await client.send(SENDS, patience_s=7.05)
        assert (short.type, short.error, long.type) == (Type.INFO, "TIMEOUT", Type.OK)
        assert [request.timeout_ms for request in broker.of(PRODUCE)] == [40, 7040]

    run_story(story, request_timeout_s=0.05, produce_timeout_ms=40)


@pytest.mark.parametrize(("run_acks", "send_acks", "expected"), [
    ("all", None, Type.OK), ("all", "all", Type.OK), ("all", "1", Type.INFO), ("1", "1", Type.OK),
    ("1", "all", Type.OK), ("all", "0", Type.INFO),
])
def test_an_ack_that_means_less_than_the_guarantees_of_the_run_is_no_ok(
        run_acks: str, send_acks: str | None, expected: Type) -> None:
    """The judge assumes that every ok of a run has its guarantees."""
    async def story() -> None:
        async with canned() as broker:
            def addresses() -> dict[str, tuple[str, int]]:
                return {"n2": ("127.0.0.1", broker.port)}

            session = LogSession(WorkloadSettings(
                run_id=RUN, seed=1, addresses=addresses, acks=run_acks, concurrency=1, first_value=0,
                clients=wire_clients(addresses),
                partitions=(PartitionSpec(key=7, topic=TOPIC, partition=0, replicas=("n2",)),)), 3)
            outcome = await session.apply(Intent(f="send", sends=SENDS, node="n2", acks=send_acks))
            await session.close()
            assert outcome.type is expected

    asyncio.run(story())

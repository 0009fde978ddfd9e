"""Scripted requests to a given node, whoever leads, by the client of record on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from canned_broker import FETCH, LIST_OFFSETS, METADATA, PRODUCE, TOPIC, Act, CannedBroker, Ended, Produced
from canned_broker import canned_broker as canned

from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.op import Intent, LogOffset, Send, Type
from floodmark.harness.protocols import PartitionSpec, WorkloadSettings
from floodmark.workloads.log import LogSession

RUN = "0123456789abcdef"
SENDS = (Send(partition=7, value=17), Send(partition=7, value=18))


@dataclass(frozen=True, kw_only=True)
class Two:
    """n1 leads, according to its metadata; n2 gets the requests."""

    leader: CannedBroker
    target: CannedBroker

    def addresses(self) -> dict[str, tuple[str, int]]:
        return {"n1": ("127.0.0.1", self.leader.port), "n2": ("127.0.0.1", self.target.port)}


def run_story(story: Callable[[Two], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with canned() as leader, canned() as target:
            target.ports = {1: leader.port}
            return await story(Two(leader=leader, target=target))

    return asyncio.run(run())


def client(two: Two, **changes: Any) -> Client:
    settings = ClientSettings(run_id=RUN, keys={7: (TOPIC, 0)}, pause_s=(0.0, 0.0),
                              **{"request_timeout_s": 5.0, **changes})
    return Client(settings, two.addresses, Random(1))


@pytest.mark.parametrize(("answer", "expected"), [
    (Produced(base_offset=4), Type.OK),
    (Produced(error=6, base_offset=-1), Type.FAIL),
    (Produced(error=6, base_offset=4), Type.INFO),
    (Act.DROP, Type.INFO),
])
def test_a_send_to_a_given_node_goes_there_once_and_is_classified_as_usual(
        answer: Any, expected: Type) -> None:
    """No metadata is requested: that is how a stale client behaves."""
    async def story(two: Two) -> Any:
        two.target.produce = [answer]
        one = client(two)
        outcome = await one.send(SENDS, node="n2", acks="1")
        await one.close()
        assert [len(broker.of(PRODUCE)) for broker in (two.leader, two.target)] == [0, 1]
        assert two.target.of(PRODUCE)[0].acks == 1
        assert two.leader.of(METADATA) == two.target.of(METADATA) == []
        return outcome

    assert run_story(story).type is expected


def test_a_node_whose_port_is_closed_is_a_definite_failure() -> None:
    """No byte was sent."""
    async def story(two: Two) -> Any:
        async with canned() as gone:
            pass
        two.target.port = gone.port
        return await client(two).send(SENDS, node="n2")

    outcome = run_story(story)
    assert (outcome.type, outcome.error) == (Type.FAIL, "CONNECTION")


def test_patience_raises_the_time_outs_of_client_and_broker() -> None:
    """The answer may come long after the usual time-out, and the broker waits as much longer."""
    async def story(two: Two) -> Any:
        one = client(two, request_timeout_s=0.05, produce_timeout_ms=40)
        two.leader.produce = [Act.STALL]
        short = await one.send(SENDS)
        two.leader.produce = [Produced(base_offset=2)]
        long = await one.send(SENDS, patience_s=7.05)
        await one.close()
        return short, long, [request.timeout_ms for request in two.leader.of(PRODUCE)]

    short, long, waits_ms = run_story(story)
    assert (short.type, short.error, long.type) == (Type.INFO, "TIMEOUT", Type.OK)
    assert waits_ms == [40, 7040]


def test_reads_from_a_given_node_begin_at_the_offset_of_the_seek() -> None:
    """Without a leader epoch, because none was fetched: a zombie answers."""
    async def story(two: Two) -> Any:
        one = client(two)
        one.assign([7])
        one.seek([7], 5)
        await one.poll(node="n2")
        two.target.ends = [Ended(offset=9)]
        ends = await one.list_offsets([7], node="n2")
        await one.close()
        [fetch], [listed] = two.target.of(FETCH), two.target.of(LIST_OFFSETS)
        partition = fetch.topics[0].partitions[0]
        assert (partition.fetch_offset, partition.current_leader_epoch) == (5, -1)
        assert listed.topics[0].partitions[0].current_leader_epoch == -1
        assert two.leader.asked == []
        return ends

    assert run_story(story).offsets == (LogOffset(7, 9, 0),)


@pytest.mark.parametrize(("run_acks", "send_acks", "expected"), [
    ("all", None, Type.OK), ("all", "all", Type.OK), ("all", "1", Type.INFO), ("1", "1", Type.OK),
    ("1", "all", Type.OK), ("all", "0", Type.INFO),
])
def test_an_ack_that_means_less_than_the_guarantees_of_the_run_is_no_ok(
        run_acks: str, send_acks: str | None, expected: Type) -> None:
    """The judge assumes that every ok of a run has its guarantees."""
    async def story(two: Two) -> Any:
        session = LogSession(WorkloadSettings(
            run_id=RUN, seed=1, addresses=two.addresses, acks=run_acks, concurrency=1, first_value=0,
            clients=wire_clients(two.addresses),
            partitions=(PartitionSpec(key=7, topic=TOPIC, partition=0, replicas=("n1",)),)), 3)

        outcome = await session.apply(Intent(f="send", sends=SENDS, node="n2", acks=send_acks))
        await session.close()
        return outcome

    assert run_story(story).type is expected

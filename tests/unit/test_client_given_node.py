"""Scripted asks of a given node, whoever leads, by the client of record on real sockets; what they prove."""

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
from floodmark.harness.op import Intent, Send, Type
from floodmark.harness.protocols import PartitionSpec, WorkloadSettings
from floodmark.workloads.log import LogSession

RUN = "0123456789abcdef"
SENDS = (Send(partition=7, value=17), Send(partition=7, value=18))


@dataclass(frozen=True, kw_only=True)
class Two:
    """n1 leads, as it says in its metadata; n2 is asked."""

    leads: CannedBroker
    asked: CannedBroker

    def addresses(self) -> dict[str, tuple[str, int]]:
        return {"n1": ("127.0.0.1", self.leads.port), "n2": ("127.0.0.1", self.asked.port)}


def told(story: Callable[[Two], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with canned() as leads, canned() as asked:
            asked.ports = {1: leads.port}
            return await story(Two(leads=leads, asked=asked))

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
def test_a_send_to_a_given_node_goes_there_once_and_is_judged_like_any(answer: Any, expected: Type) -> None:
    """No metadata is asked for: that is what a stale client is."""
    async def story(two: Two) -> Any:
        two.asked.produce = [answer]
        one = client(two)
        outcome = await one.send(SENDS, node="n2", acks="1")
        await one.close()
        assert [len(broker.of(PRODUCE)) for broker in (two.leads, two.asked)] == [0, 1]
        assert two.asked.of(PRODUCE)[0].acks == 1
        assert two.leads.of(METADATA) == two.asked.of(METADATA) == []
        return outcome

    assert told(story).type is expected


def test_a_node_that_nobody_listens_for_is_a_definite_failure() -> None:
    """Nothing left."""
    async def story(two: Two) -> Any:
        async with canned() as gone:
            pass
        two.asked.port = gone.port
        return await client(two).send(SENDS, node="n2")

    outcome = told(story)
    assert (outcome.type, outcome.error) == (Type.FAIL, "CONNECTION")


def test_patience_is_the_leaders_and_the_clients() -> None:
    """The answer may come long after the usual time-out, and the broker is told to wait as much longer."""
    async def story(two: Two) -> Any:
        one = client(two, request_timeout_s=0.05, produce_timeout_ms=40)
        two.leads.produce = [Act.STALL]
        short = await one.send(SENDS)
        two.leads.produce = [Produced(base_offset=2)]
        long = await one.send(SENDS, patience_s=7.05)
        await one.close()
        return short, long, [request.timeout_ms for request in two.leads.of(PRODUCE)]

    short, long, waits_ms = told(story)
    assert (short.type, short.error, long.type) == (Type.INFO, "TIMEOUT", Type.OK)
    assert waits_ms == [40, 7040]


def test_reads_of_a_given_node_begin_where_they_are_told_to() -> None:
    """Without a leader epoch, for none was learnt: a zombie answers."""
    async def story(two: Two) -> Any:
        one = client(two)
        one.assign([7])
        one.seek([7], 5)
        await one.poll(node="n2")
        two.asked.ends = [Ended(offset=9)]
        ends = await one.list_offsets([7], node="n2")
        await one.close()
        [fetch], [listed] = two.asked.of(FETCH), two.asked.of(LIST_OFFSETS)
        partition = fetch.topics[0].partitions[0]
        assert (partition.fetch_offset, partition.current_leader_epoch) == (5, -1)
        assert listed.topics[0].partitions[0].current_leader_epoch == -1
        assert two.leads.asked == []
        return ends

    assert told(story).offsets == ((7, 9),)


@pytest.mark.parametrize(("promised", "asked", "expected"), [
    ("all", None, Type.OK), ("all", "all", Type.OK), ("all", "1", Type.INFO), ("1", "1", Type.OK),
    ("1", "all", Type.OK), ("all", "0", Type.INFO),
])
def test_an_ack_that_means_less_than_the_run_promises_is_no_ok(promised: str, asked: str | None,
                                                              expected: Type) -> None:
    """A judge takes every ok of a run for as good as its guarantees."""
    async def story(two: Two) -> Any:
        session = LogSession(WorkloadSettings(
            run_id=RUN, seed=1, addresses=two.addresses, acks=promised, concurrency=1, first_value=0,
            clients=wire_clients(two.addresses),
            partitions=(PartitionSpec(key=7, topic=TOPIC, partition=0, replicas=("n1",)),)), 3)

        outcome = await session.apply(Intent(f="send", sends=SENDS, node="n2", acks=asked))
        await session.close()
        return outcome

    assert told(story).type is expected

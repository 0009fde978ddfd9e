"""Clients that share Produce requests: what travels together, and what each is told of its own partition."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from canned_broker import PRODUCE, RUN, TOPIC, Act, CannedBroker, Produced, canned_broker

from floodmark.harness import record_batches
from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.op import Outcome, Send, Type

Story = Callable[[CannedBroker, list[Client]], Awaitable[Any]]


def run_story(story: Story, clients: int, **changes: Any) -> Any:
    """Partition 7 of the history is partition 0 of the topic, 8 is partition 1."""
    settings = ClientSettings(**{
        "run_id": RUN, "keys": {7: (TOPIC, 0), 8: (TOPIC, 1)}, "pause_s": (0.0, 0.0),
        "request_timeout_s": 5.0, "shares_requests": True, **changes})

    async def run() -> Any:
        async with canned_broker() as broker:
            broker.partitions = 2
            make = wire_clients(lambda: {"n1": ("127.0.0.1", broker.port)})
            made: list[Client] = [make(settings, Random(1)) for _ in range(clients)]  # type: ignore[misc]
            try:
                return await story(broker, made)
            finally:
                for one in made:
                    await one.close()

    return asyncio.run(run())


def sent(partition: int, value: int) -> tuple[Send, ...]:
    return (Send(partition=partition, value=value),)


async def all_send(clients: list[Client], *partitions: int) -> list[Outcome]:
    """Each client one value, the partition's number times ten, at once; each knows the leader already."""
    for client in clients:
        await client._brokers.find_leader(partitions[0])
    return await asyncio.gather(*(
        client.send(sent(partition, 10 * partition))
        for client, partition in zip(clients, partitions, strict=True)))


def places(broker: CannedBroker) -> list[dict[int, list[int | None]]]:
    """Of each request: partition -> the values sent to it."""
    return [{part.index: [value for one in record_batches.decode(bytes(part.records), RUN)
                          for _, value in one.values]
             for topic in request.topic_data for part in topic.partition_data}
            for request in broker.of(PRODUCE)]


def test_sends_to_two_partitions_travel_in_one_request_and_each_gets_its_own_offset() -> None:
    async def story(broker: CannedBroker, clients: list[Client]) -> None:
        broker.produce = [Produced(base_offset=40)]
        first, second = await all_send(clients, 7, 8)
        assert places(broker) == [{0: [70], 1: [80]}]
        assert (first.type, first.sends[0].offset) == (Type.OK, 40)
        assert (second.type, second.sends[0].offset) == (Type.OK, 1040)

    run_story(story, 2)


def test_a_request_has_one_batch_of_a_partition_and_clients_may_send_alone() -> None:
    async def shared(broker: CannedBroker, clients: list[Client]) -> None:
        outcomes = await all_send(clients, 7, 7, 8)
        assert sorted(places(broker), key=len) == [{0: [70]}, {0: [70], 1: [80]}]
        assert {one.type for one in outcomes} == {Type.OK}

    async def alone(broker: CannedBroker, clients: list[Client]) -> None:
        await all_send(clients, 7, 8)
        assert sorted(map(str, places(broker))) == ["{0: [70]}", "{1: [80]}"]

    run_story(shared, 3)
    run_story(alone, 2, shares_requests=False)


@pytest.mark.parametrize(("answer", "expected"), [
    (Produced(error=6, base_offset=-1001), [Type.FAIL, Type.FAIL]),
    (Act.DROP, [Type.INFO, Type.INFO]),
    (Act.GARBAGE, [Type.INFO, Type.INFO]),
    (Act.STALL, [Type.INFO, Type.INFO]),
    (Produced(lacking=(1,)), [Type.OK, Type.INFO]),  # it may have been appended
])
def test_what_is_known_without_an_ack(answer: Produced | Act, expected: list[Type]) -> None:
    async def story(broker: CannedBroker, clients: list[Client]) -> None:
        broker.produce = [answer, Produced(base_offset=3)]
        assert [one.type for one in await all_send(clients, 7, 8)] == expected
        assert len(broker.of(PRODUCE)) == 1
        assert (await clients[0].send(sent(7, 71))).type is Type.OK

    run_story(story, 2, request_timeout_s=0.3)


def test_a_broker_that_cannot_be_reached_has_got_nothing() -> None:
    async def story(broker: CannedBroker, clients: list[Client]) -> None:
        for client in clients:
            await client._brokers.find_leader(7)
        broker.greets = False
        outcomes = await asyncio.gather(clients[0].send(sent(7, 1)), clients[1].send(sent(8, 2)))
        assert [(one.type, one.error) for one in outcomes] == [(Type.FAIL, "CONNECTION")] * 2
        assert not broker.of(PRODUCE)

    run_story(story, 2)


def test_a_send_that_is_given_up_in_time_is_not_sent() -> None:
    """A process that ended in the meantime: nothing of it may reach the log later."""
    async def story(broker: CannedBroker, clients: list[Client]) -> None:
        for client in clients:
            await client._brokers.find_leader(7)
        given_up = asyncio.create_task(clients[0].send(sent(7, 1)))
        other = asyncio.create_task(clients[1].send(sent(8, 2)))
        await asyncio.sleep(0)
        given_up.cancel()
        assert (await other).type is Type.OK
        assert places(broker) == [{1: [2]}]

    run_story(story, 2)

"""The client of record and a broker of canned answers on a real socket: requests and outcomes."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from canned_broker import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    TOPIC,
    Act,
    CannedBroker,
    Ended,
    Fetched,
    Led,
    Produced,
)
from canned_broker import canned_broker as canned

from floodmark.harness.client import batch
from floodmark.harness.client.client import Client
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.op import LogOffset, Outcome, Read, Send, Type, Unreadable

RUN = "0123456789abcdef"
SENDS = (Send(partition=7, value=17), Send(partition=7, value=18))
Story = Callable[[CannedBroker, Client], Awaitable[Any]]


def new_client(broker: CannedBroker, **changes: Any) -> Client:
    """Partition 7 of the history is partition 0 of the topic."""
    settings = ClientSettings(**{
        "run_id": RUN, "keys": {7: (TOPIC, 0)}, "pause_s": (0.0, 0.0), "request_timeout_s": 5.0, **changes})
    return Client(settings, lambda: {"n1": ("127.0.0.1", broker.port)}, Random(1))


def run_story(story: Story, **changes: Any) -> Any:
    async def run() -> Any:
        async with canned() as broker:
            client = new_client(broker, **changes)
            try:
                return await story(broker, client)
            finally:
                await client.close()

    return asyncio.run(run())


def stamped(values: list[int], base_offset: int, epoch: int) -> bytes:
    data = batch.encode(values, RUN, 1)
    return base_offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]


# -- sends --------------------------------------------------------------------------------------------------

def test_an_acked_send_is_ok_with_its_offsets_and_the_request_has_its_values() -> None:
    async def story(broker: CannedBroker, client: Client) -> Outcome:
        broker.produce = [Produced(base_offset=40)]
        outcome = await client.send(SENDS)
        [request] = broker.of(PRODUCE)
        assert (request.acks, request.timeout_ms) == (-1, 1000)
        [partition] = request.topic_data[0].partition_data
        assert (request.topic_data[0].name, partition.index) == (TOPIC, 0)
        [sent] = batch.decode(bytes(partition.records), RUN)
        assert [value for _, value in sent.values] == [17, 18]
        return outcome

    outcome = run_story(story)
    assert outcome.type is Type.OK
    assert [(send.partition, send.value, send.offset) for send in outcome.sends] == [(7, 17, 40), (7, 18, 41)]


@pytest.mark.parametrize(("answer", "expected"), [
    (Produced(error=6, base_offset=-1), Type.FAIL),
    (Produced(error=6, base_offset=40), Type.INFO),  # appended, then the leader was deposed
    (Produced(error=19, base_offset=-1), Type.FAIL),
    (Produced(error=20, base_offset=40), Type.INFO),
    (Produced(error=7, base_offset=40), Type.INFO),
    (Act.DROP, Type.INFO),
    (Act.GARBAGE, Type.INFO),
])
def test_what_an_answer_to_a_send_proves(answer: Produced | Act, expected: Type) -> None:
    async def story(broker: CannedBroker, client: Client) -> Outcome:
        broker.produce = [answer]
        return await client.send(SENDS)

    assert run_story(story).type is expected


def test_a_send_is_attempted_once_whatever_the_answer() -> None:
    async def story(broker: CannedBroker, client: Client) -> int:
        broker.produce = [Produced(error=6, base_offset=-1)]
        await client.send(SENDS)
        return len(broker.of(PRODUCE))

    assert run_story(story) == 1


def test_a_send_without_an_answer_in_time_is_info_and_its_connection_is_given_up() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.produce = [Act.STALL, Produced(base_offset=3)]
        outcome = await client.send(SENDS)
        assert (outcome.type, outcome.error) == (Type.INFO, "TIMEOUT")
        before = broker.connections
        assert (await client.send(SENDS)).type is Type.OK
        assert broker.connections > before

    run_story(story, request_timeout_s=0.2)


def test_a_connection_that_closes_before_its_handshake_is_a_definite_failure() -> None:
    """As with a proxy in front of a dead broker: it accepts, and closes at once."""

    async def story(broker: CannedBroker, client: Client) -> Outcome:
        async with canned() as dead:
            dead.greets = False
            broker.ports = {2: dead.port}
            broker.metadata = [Led(leader=2)]
            outcome = await client.send(SENDS)
            assert not dead.of(PRODUCE)
            return outcome

    outcome = run_story(story)
    assert (outcome.type, outcome.error) == (Type.FAIL, "CONNECTION")


def test_a_leader_whose_port_is_closed_is_a_definite_failure() -> None:
    async def story(broker: CannedBroker, client: Client) -> Outcome:
        async with canned() as gone:
            broker.ports = {2: gone.port}
        broker.metadata = [Led(leader=2)]
        return await client.send(SENDS)

    outcome = run_story(story)
    assert (outcome.type, outcome.error) == (Type.FAIL, "CONNECTION")


def test_without_a_leader_nothing_is_sent_and_metadata_is_requested_once_per_op() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.metadata = [Led(error=5, leader=-1)]
        for count in (1, 2, 3):
            outcome = await client.send(SENDS)
            assert (outcome.type, outcome.error) == (Type.FAIL, "LEADER_NOT_AVAILABLE")
            assert len(broker.of(METADATA)) == count
        assert not broker.of(PRODUCE)

    run_story(story)


def test_after_a_refusal_metadata_is_requested_again_and_the_new_leader_gets_the_next_send() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        async with canned() as other:
            broker.ports = {2: other.port}
            other.ports = {1: broker.port, 2: other.port}
            broker.metadata = [Led(leader=1, epoch=4), Led(leader=2, epoch=5)]
            other.metadata = [Led(leader=2, epoch=5)]
            broker.produce = [Produced(error=6, base_offset=-1)]
            assert (await client.send(SENDS)).type is Type.FAIL
            assert (await client.send(SENDS)).type is Type.OK
            assert len(other.of(PRODUCE)) == 1

    run_story(story)


def test_a_lower_leader_epoch_than_seen_is_never_followed() -> None:
    """A broker with old metadata cannot send a process back to a zombie leader."""

    async def story(broker: CannedBroker, client: Client) -> None:
        broker.metadata = [Led(leader=1, epoch=5), Led(leader=1, epoch=4)]
        broker.produce = [Produced(error=6, base_offset=-1)]
        await client.send(SENDS)
        outcome = await client.send(SENDS)
        assert (outcome.type, outcome.error) == (Type.FAIL, "LEADER_NOT_AVAILABLE")
        assert len(broker.of(PRODUCE)) == 1

    run_story(story)


def test_a_send_with_acks_0_is_never_answered_and_is_info() -> None:
    async def story(broker: CannedBroker, client: Client) -> Outcome:
        outcome = await client.send(SENDS)
        await client.close()
        async with asyncio.timeout(5):
            while not broker.of(PRODUCE):
                await asyncio.sleep(0)
        assert broker.of(PRODUCE)[0].acks == 0
        return outcome

    outcome = run_story(story, acks="0")
    assert (outcome.type, outcome.error) == (Type.INFO, None)


def test_an_older_broker_gets_requests_in_versions_it_serves() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.served = {PRODUCE: (0, 5), FETCH: (0, 6), LIST_OFFSETS: (0, 2), METADATA: (0, 4)}
        broker.produce = [Produced(base_offset=2)]
        broker.fetch = [Fetched(records=stamped([17], 0, 0))]
        broker.ends = [Ended(offset=9)]
        outcome = await client.send(SENDS)
        assert (outcome.type, outcome.sends[0].offset) == (Type.OK, 2)
        client.assign([7])
        assert [read.value for read in (await client.poll()).reads] == [17]
        assert (await client.list_offsets([7])).offsets == (LogOffset(7, 9),)
        assert [(api, version) for api, version, _ in broker.asked] == [
            (METADATA, 4), (PRODUCE, 5), (FETCH, 6), (LIST_OFFSETS, 2)]

    run_story(story)


def test_a_broker_too_old_for_batches_of_format_2_is_refused_before_a_byte_is_sent() -> None:
    async def story(broker: CannedBroker, client: Client) -> Outcome:
        broker.served = {**broker.served, PRODUCE: (0, 2)}
        return await client.send(SENDS)

    outcome = run_story(story)
    assert (outcome.type, outcome.error) == (Type.FAIL, "UNSUPPORTED_VERSION")


# -- reads --------------------------------------------------------------------------------------------------

def test_polls_advance_from_zero_and_send_the_epochs_they_know() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.metadata = [Led(epoch=3)]
        broker.fetch = [
            Fetched(records=stamped([10, 11], 0, 2)),
            Fetched(records=stamped([10, 11], 0, 2) + stamped([12], 2, 3)),  # begins below the fetch offset
            Fetched(),
        ]
        client.assign([7])
        first, second, third = [await client.poll() for _ in range(3)]
        assert first.reads == (Read(partition=7, offset=0, value=10, epoch=2),
                               Read(partition=7, offset=1, value=11, epoch=2))
        assert second.reads == (Read(partition=7, offset=2, value=12, epoch=3),)
        assert (third.type, third.reads) == (Type.OK, ())
        fetches = [request.topics[0].partitions[0] for request in broker.of(FETCH)]
        assert [(one.fetch_offset, one.current_leader_epoch, one.last_fetched_epoch) for one in fetches] == [
            (0, 3, -1), (2, 3, 2), (3, 3, 3)]

    run_story(story)


def test_a_partition_assigned_anew_is_read_from_zero_and_a_kept_one_continues() -> None:
    async def story(broker: CannedBroker, client: Client) -> list[int]:
        broker.fetch = [Fetched(records=stamped([10], 0, 0)), Fetched()]
        client.assign([7])
        await client.poll()
        client.assign([7])
        await client.poll()
        client.assign([])
        client.assign([7])
        await client.poll()
        return [request.topics[0].partitions[0].fetch_offset for request in broker.of(FETCH)]

    assert run_story(story) == [0, 1, 0]


@pytest.mark.parametrize("answer", [Fetched(error=1), Fetched(diverging=(1, 4))])
def test_a_log_that_diverged_from_what_was_read_ends_the_process(answer: Fetched) -> None:
    async def story(broker: CannedBroker, client: Client) -> bool:
        broker.fetch = [answer]
        client.assign([7])
        outcome = await client.poll()
        assert (outcome.type, outcome.error) == (Type.FAIL, "OFFSET_OUT_OF_RANGE")
        return client.over

    assert run_story(story)


@pytest.mark.parametrize(
    "answer", [Fetched(error=74), Fetched(error=75), Fetched(error=6), Act.DROP, Act.GARBAGE])
def test_other_errors_fail_a_poll_and_the_process_continues(answer: Fetched | Act) -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.fetch = [answer, Fetched(records=stamped([10], 0, 0))]
        client.assign([7])
        assert (await client.poll()).type is Type.FAIL
        assert not client.over
        assert [read.value for read in (await client.poll()).reads] == [10]

    run_story(story)


@pytest.mark.parametrize(("answer", "error"), [
    (Fetched(throttled_ms=50), "THROTTLING_QUOTA_EXCEEDED"), (Fetched(elsewhere=2), "REPLICA_NOT_AVAILABLE"),
    (Fetched(records=stamped([10], 0, 0)[:-3]), "CORRUPT_MESSAGE"),
])
def test_an_answer_that_withholds_records_is_no_empty_one(answer: Fetched, error: str) -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.fetch = [answer, Fetched(records=stamped([10], 0, 0), throttled_ms=50)]
        client.assign([7])
        outcome = await client.poll()
        assert (outcome.type, outcome.error) == (Type.FAIL, error)
        assert [read.value for read in (await client.poll()).reads] == [10]

    run_story(story)


def test_a_poll_reads_on_over_records_that_are_not_ours() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        theirs = batch.encode([5], "another run", 0)
        broker.fetch = [Fetched(records=theirs), Fetched(records=stamped([10], 1, 0)), Fetched()]
        client.assign([7])
        assert [(read.offset, read.value) for read in (await client.poll()).reads] == [(1, 10)]

    run_story(story)


def test_the_beginnings_are_listed_where_the_settings_say_so() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.ends = [Ended(offset=9), Ended(offset=4), Ended(offset=9), Ended(error=78, offset=-1)]
        assert (await client.list_offsets([7])).starts == (LogOffset(7, 4),)
        assert [one.topics[0].partitions[0].timestamp for one in broker.of(LIST_OFFSETS)] == [-1, -2]
        outcome = await client.list_offsets([7])
        assert (outcome.offsets, outcome.starts) == ((LogOffset(7, 9, 0),), ())

    run_story(story, lists_starts=True)


def test_a_damaged_batch_is_an_error_and_not_an_empty_answer() -> None:
    async def story(broker: CannedBroker, client: Client) -> Outcome:
        data = bytearray(stamped([10], 0, 0))
        data[-1] ^= 1
        broker.fetch = [Fetched(records=bytes(data))]
        client.assign([7])
        return await client.poll()

    outcome = run_story(story)
    assert (outcome.type, outcome.error) == (Type.FAIL, "CORRUPT_MESSAGE")


def damaged(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1:]


@pytest.mark.parametrize(("at", "byte", "why"), [(-1, 0xEE, "checksum"), (16, 9, "magic"), (11, 3, "length")])
def test_a_first_batch_that_cannot_be_read_is_tried_three_times_and_then_passed(
        at: int, byte: int, why: str) -> None:
    """On new connections. Only the batch's length leads to the one behind it: a wrong one leads nowhere."""
    first = stamped([10, 11], 0, 0)
    first = damaged(first, at % len(first), byte)

    async def story(broker: CannedBroker, client: Client) -> None:
        broker.fetch = [Fetched(hw=3, records=first + stamped([12], 2, 0))] * 3 + [
            Fetched(hw=3, records=stamped([12], 2, 0))]
        client.assign([7])
        for _ in range(2):
            before, outcome = broker.connections, await client.poll()
            assert (outcome.type, outcome.error, outcome.corrupt) == (Type.FAIL, "CORRUPT_MESSAGE", ())
        outcome = await client.poll()
        assert broker.connections > before
        assert (outcome.type, outcome.reads) == (Type.OK, ())
        assert outcome.corrupt == (Unreadable(partition=7, offset=0, why=why),)
        outcome = await client.poll()
        assert [read.value for read in outcome.reads] == [12]
        offsets = [request.topics[0].partitions[0].fetch_offset for request in broker.of(FETCH)]
        assert offsets == [0, 0, 0, 0 if why == "length" else 2]

    run_story(story)


def test_a_later_batch_that_cannot_be_read_hides_none_before_it() -> None:
    """It may be the rest of an answer that was cut off; it is the first of the next answer."""
    async def story(broker: CannedBroker, client: Client) -> None:
        second = damaged(stamped([12], 2, 0), 16, 9)
        broker.fetch = [Fetched(hw=3, records=stamped([10, 11], 0, 0) + second),
                        Fetched(hw=3, records=second)]
        client.assign([7])
        outcome = await client.poll()
        assert (outcome.type, [read.value for read in outcome.reads]) == (Type.OK, [10, 11])
        polls = [await client.poll() for _ in range(4)]
        assert [one.error for one in polls] == ["CORRUPT_MESSAGE"] * 2 + [None, "CORRUPT_MESSAGE"]
        assert [one.corrupt for one in polls if one.corrupt] == [
            (Unreadable(partition=7, offset=2, why="magic"),)]

    run_story(story)


def test_a_good_answer_in_between_is_no_damage() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        whole = stamped([10], 0, 0)
        broker.fetch = [Fetched(records=damaged(whole, len(whole) - 1, 0xEE))] * 2 + [Fetched(records=whole)]
        client.assign([7])
        polls = [await client.poll() for _ in range(3)]
        assert [read.value for read in polls[-1].reads] == [10]
        assert not any(one.corrupt for one in polls)

    run_story(story)


def test_list_offsets_sends_the_epoch_and_is_ok_only_if_answered() -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        broker.metadata = [Led(epoch=3)]
        broker.ends = [Ended(error=78, offset=-1), Ended(offset=9)]
        refused = await client.list_offsets([7])
        assert (refused.type, refused.error) == (Type.FAIL, "OFFSET_NOT_AVAILABLE")
        assert (await client.list_offsets([7])).offsets == (LogOffset(7, 9, 0),)
        requested = broker.of(LIST_OFFSETS)[0].topics[0].partitions[0]
        assert (requested.current_leader_epoch, requested.timestamp) == (3, -1)

    run_story(story)

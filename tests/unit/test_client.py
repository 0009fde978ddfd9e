"""The client of record and a broker of canned answers on a real socket: requests and outcomes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from canned_broker import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    RUN,
    TOPIC,
    Act,
    CannedBroker,
    Ended,
    Fetched,
    Led,
    Produced,
    run_story,
    stamped,
    talking,
)
from canned_broker import canned_broker as canned

from floodmark.harness import record_batches
from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.op import Intent, LogOffset, Outcome, Read, Send, Type, Unreadable
from floodmark.harness.protocols import PartitionSpec, WorkloadSettings
from floodmark.workloads.log import LogSession

SENDS = (Send(partition=7, value=17), Send(partition=7, value=18))
Answers = list[Fetched | Act]


# -- sends --------------------------------------------------------------------------------------------------

async def test_an_acked_send_is_ok_with_its_offsets_and_the_request_has_its_values() -> None:
    async with talking() as (broker, client):
        broker.produce = [Produced(base_offset=40)]
        outcome = await client.send(SENDS)
        [request] = broker.of(PRODUCE)
        [partition] = request.topic_data[0].partition_data
        [sent] = record_batches.decode(bytes(partition.records), RUN)
        assert (request.acks, request.timeout_ms) == (-1, 1000)
        assert (request.topic_data[0].name, partition.index) == (TOPIC, 0)
        assert [value for _, value in sent.values] == [17, 18]
        assert (outcome.type, [(send.partition, send.value, send.offset) for send in outcome.sends]) == (
            Type.OK, [(7, 17, 40), (7, 18, 41)])


@pytest.mark.parametrize(("answer", "expected"), [
    (Produced(error=6, base_offset=-1), Type.FAIL),
    (Produced(error=6, base_offset=40), Type.INFO),  # appended, then the leader was deposed
    (Act.DROP, Type.INFO),
    (Act.GARBAGE, Type.INFO),
])
async def test_a_send_is_attempted_once_whatever_the_answer(answer: Produced | Act, expected: Type) -> None:
    """What each error proves: test_classify.py."""
    async with talking() as (broker, client):
        broker.produce = [answer]
        assert (await client.send(SENDS)).type is expected
        assert len(broker.of(PRODUCE)) == 1


async def test_a_send_without_an_answer_in_time_is_info_and_its_connection_is_given_up() -> None:
    async with talking(request_timeout_s=0.2) as (broker, client):
        broker.produce = [Act.STALL, Produced(base_offset=3)]
        outcome = await client.send(SENDS)
        assert (outcome.type, outcome.error) == (Type.INFO, "TIMEOUT")
        before = broker.connections
        assert (await client.send(SENDS)).type is Type.OK
        assert broker.connections > before


@pytest.mark.parametrize(("trouble", "error"), [
    ("a proxy before a dead broker", "CONNECTION"), ("a closed port", "CONNECTION"),
    ("no leader", "LEADER_NOT_AVAILABLE"), ("no batches of format 2", "UNSUPPORTED_VERSION")])
async def test_where_nothing_can_be_sent_it_is_a_definite_failure(trouble: str, error: str) -> None:
    """A proxy accepts, and closes before the handshake. Metadata is requested once per op."""
    async def outcome_of(client: Client) -> tuple[Type, str | None]:
        outcome = await client.send(SENDS)
        return outcome.type, outcome.error

    async with talking() as (broker, client):
        async with canned() as dead:
            dead.greets = False
            if trouble == "no leader":
                broker.metadata = [Led(error=5, leader=-1)]
            elif trouble == "no batches of format 2":
                broker.served = {**broker.served, PRODUCE: (0, 2)}
            else:
                broker.ports, broker.metadata = {2: dead.port}, [Led(leader=2)]
            if trouble != "a closed port":
                assert await outcome_of(client) == (Type.FAIL, error)
        assert await outcome_of(client) == (Type.FAIL, error)
        assert broker.of(PRODUCE) == dead.of(PRODUCE) == []
        assert trouble != "no leader" or len(broker.of(METADATA)) == 2


async def test_after_a_refusal_metadata_is_requested_again_and_the_new_leader_gets_the_next_send() -> None:
    async with talking() as (broker, client), canned() as other:
        broker.ports = {2: other.port}
        other.ports = {1: broker.port, 2: other.port}
        broker.metadata = [Led(leader=1, epoch=4), Led(leader=2, epoch=5)]
        other.metadata = [Led(leader=2, epoch=5)]
        broker.produce = [Produced(error=6, base_offset=-1)]
        assert [(await client.send(SENDS)).type for _ in range(2)] == [Type.FAIL, Type.OK]
        assert len(other.of(PRODUCE)) == 1


async def test_a_lower_leader_epoch_than_seen_is_never_followed() -> None:
    """A broker with old metadata cannot send a process back to a zombie leader."""
    async with talking() as (broker, client):
        broker.metadata = [Led(leader=1, epoch=5), Led(leader=1, epoch=4)]
        broker.produce = [Produced(error=6, base_offset=-1)]
        assert [(await client.send(SENDS)).error for _ in range(2)] == [
            "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE"]
        assert len(broker.of(PRODUCE)) == 1


async def test_a_send_with_acks_0_is_never_answered_and_is_info() -> None:
    async with talking(acks='0') as (broker, client):
        outcome = await client.send(SENDS)
        await client.close()
        async with asyncio.timeout(5):
            while not broker.of(PRODUCE):
                await asyncio.sleep(0)
        assert (broker.of(PRODUCE)[0].acks, outcome.type, outcome.error) == (0, Type.INFO, None)


async def test_an_older_broker_gets_requests_in_versions_it_serves() -> None:
    async with talking() as (broker, client):
        broker.served = {PRODUCE: (0, 5), FETCH: (0, 6), LIST_OFFSETS: (0, 2), METADATA: (0, 4)}
        broker.produce, broker.ends = [Produced(base_offset=2)], [Ended(offset=9)]
        broker.fetch = [Fetched(records=stamped([17], 0, 0))]
        assert (await client.send(SENDS)).sends[0].offset == 2
        client.assign([7])
        assert [read.value for read in (await client.poll()).reads] == [17]
        assert (await client.list_offsets([7])).offsets == (LogOffset(7, 9),)
        assert [(api, version) for api, version, _ in broker.asked] == [
            (METADATA, 4), (PRODUCE, 5), (FETCH, 6), (LIST_OFFSETS, 2)]


# -- reads --------------------------------------------------------------------------------------------------

def polled(answers: Answers, count: int, **changes: Any) -> tuple[list[Outcome], list[Any], bool]:
    """The outcomes of so many polls, the partitions of the requests, and whether the process is over."""
    async def story(broker: CannedBroker, client: Client) -> tuple[list[Outcome], list[Any], bool]:
        broker.metadata, broker.fetch = [Led(epoch=3)], list(answers)
        client.assign([7])
        outcomes = [await client.poll() for _ in range(count)]
        return outcomes, [one.topics[0].partitions[0] for one in broker.of(FETCH)], client.over

    found: tuple[list[Outcome], list[Any], bool] = run_story(story, **changes)
    return found


def test_polls_advance_from_zero_and_send_the_epochs_they_know() -> None:
    """Also over records that are not ours, and from within a batch."""
    (first, second, third, fourth), fetches, _ = polled([
        Fetched(records=stamped([10, 11], 0, 2)),
        Fetched(records=stamped([10, 11], 0, 2) + stamped([12], 2, 3)),  # begins below the fetch offset
        Fetched(),
        Fetched(records=(theirs := record_batches.encode([5], "another run", 0))[:7] + b"\x03" + theirs[8:]),
        Fetched(records=stamped([14], 4, 3)),
    ], 4)
    assert first.reads == (Read(partition=7, offset=0, value=10, epoch=2),
                           Read(partition=7, offset=1, value=11, epoch=2))
    assert second.reads == (Read(partition=7, offset=2, value=12, epoch=3),)
    assert (third.type, third.reads) == (Type.OK, ())
    assert [(read.offset, read.value) for read in fourth.reads] == [(4, 14)]
    assert [(one.fetch_offset, one.current_leader_epoch, one.last_fetched_epoch) for one in fetches[:3]] == [
        (0, 3, -1), (2, 3, 2), (3, 3, 3)]


def test_a_partition_assigned_anew_is_read_from_zero_and_a_kept_one_continues() -> None:
    async def story(broker: CannedBroker, client: Client) -> list[int]:
        broker.fetch = [Fetched(records=stamped([10], 0, 0)), Fetched()]
        for keys in ([7], [7], [], [7]):
            client.assign(keys)
            if keys:
                await client.poll()
        return [request.topics[0].partitions[0].fetch_offset for request in broker.of(FETCH)]

    assert run_story(story) == [0, 1, 0]


RECORDS = stamped([10], 0, 0)


@pytest.mark.parametrize(("answer", "error", "over"), [
    (Fetched(error=1), "OFFSET_OUT_OF_RANGE", True),
    (Fetched(diverging=(1, 4)), "OFFSET_OUT_OF_RANGE", True),  # of what was read before
    (Fetched(error=74), "FENCED_LEADER_EPOCH", False), (Fetched(error=75), "UNKNOWN_LEADER_EPOCH", False),
    (Fetched(error=6), "NOT_LEADER_OR_FOLLOWER", False),
    (Act.DROP, "CONNECTION", False), (Act.GARBAGE, "CONNECTION", False),
    (Fetched(throttled_ms=50), "THROTTLING_QUOTA_EXCEEDED", False),
    (Fetched(elsewhere=2), "REPLICA_NOT_AVAILABLE", False),
    (Fetched(records=RECORDS[:-3]), "CORRUPT_MESSAGE", False),
    (Fetched(records=RECORDS[:-1] + bytes([RECORDS[-1] ^ 1])), "CORRUPT_MESSAGE", False),
])
def test_an_error_or_withheld_records_fail_a_poll_and_only_another_log_ends_the_process(
        answer: Fetched | Act, error: str, over: bool) -> None:
    """An answer that withholds records is no empty one."""
    outcomes, _, is_over = polled([answer, Fetched(records=RECORDS, throttled_ms=50)], 1 if over else 2)

    assert (outcomes[0].type, outcomes[0].error, is_over) == (Type.FAIL, error, over)
    assert over or [read.value for read in outcomes[1].reads] == [10]
    assert not any(one.corrupt for one in outcomes)


def damaged(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1:]


@pytest.mark.parametrize(("at", "byte", "why"), [(-1, 0xEE, "checksum"), (16, 9, "magic"), (11, 3, "length")])
async def test_a_first_batch_that_cannot_be_read_is_tried_three_times_and_then_passed(
        at: int, byte: int, why: str) -> None:
    """On new connections. Only the batch's length leads to the one behind it: a wrong one leads nowhere."""
    first = stamped([10, 11], 0, 0)
    first = damaged(first, at % len(first), byte)

    async with talking() as (broker, client):
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


def test_a_later_batch_that_cannot_be_read_hides_none_before_it_and_a_good_answer_in_between_is_no_damage(
) -> None:
    """It may be the rest of an answer that was cut off; it is the first of the next answer."""
    second = damaged(stamped([12], 2, 0), 16, 9)
    (first, *polls), _, _ = polled([Fetched(hw=3, records=stamped([10, 11], 0, 0) + second),
                                    Fetched(hw=3, records=second)], 5)
    assert (first.type, [read.value for read in first.reads]) == (Type.OK, [10, 11])
    assert [one.error for one in polls] == ["CORRUPT_MESSAGE"] * 2 + [None, "CORRUPT_MESSAGE"]
    assert [one.corrupt for one in polls if one.corrupt] == [
        (Unreadable(partition=7, offset=2, why="magic"),)]

    bad = damaged(RECORDS, len(RECORDS) - 1, 0xEE)
    polls, _, _ = polled([Fetched(records=bad)] * 2 + [Fetched(records=RECORDS)], 3)
    assert [read.value for read in polls[-1].reads] == [10]
    assert not any(one.corrupt for one in polls)


@pytest.mark.parametrize("starts", [False, True])
async def test_list_offsets_sends_the_epoch_and_is_ok_only_if_answered(starts: bool) -> None:
    """The beginnings too, where the settings say so; those that no broker tells are left out."""
    async with talking(lists_starts=starts) as (broker, client):
        broker.metadata = [Led(epoch=3)]
        first = [Ended(offset=4)] if starts else []
        unknown = Ended(error=78, offset=-1)
        broker.ends = [unknown, Ended(offset=9), *first, Ended(offset=9), unknown]
        refused = await client.list_offsets([7])
        assert (refused.type, refused.error) == (Type.FAIL, "OFFSET_NOT_AVAILABLE")
        for known in (True, False):
            outcome = await client.list_offsets([7])
            assert outcome.offsets == (LogOffset(7, 9, 0),)
            assert outcome.starts == ((LogOffset(7, 4),) if starts and known else ())
        requested = [one.topics[0].partitions[0] for one in broker.of(LIST_OFFSETS)]
        assert {one.current_leader_epoch for one in requested} == {3}
        assert [one.timestamp for one in requested] == [-1, -1, -2, -1, -2] if starts else [-1, -1, -1]


# -- scripted requests to a given node, whoever leads ----------------------------------------------------


@asynccontextmanager
async def asking_n2() -> AsyncIterator[tuple[CannedBroker, Client]]:
    """n1 leads, according to its metadata, and is asked nothing; n2 gets the requests."""
    async with talking() as (leader, client), canned() as target:
        leader.beside = {"n2": target.port}
        yield target, client
        assert leader.asked == []


async def test_a_send_to_a_given_node_goes_there_once_and_is_classified_as_usual() -> None:
    """No metadata is requested: that is how a stale client behaves."""
    async with asking_n2() as (target, client):
        target.produce = [Produced(error=6, base_offset=4)]
        assert (await client.send(SENDS, node="n2", acks="1")).type is Type.INFO
        assert [(api, request.acks) for api, _, request in target.asked] == [(PRODUCE, 1)]


async def test_reads_from_a_given_node_begin_at_the_offset_of_the_seek() -> None:
    """Without a leader epoch, because none was fetched: a zombie answers."""
    async with asking_n2() as (target, client):
        client.assign([7])
        client.seek([7], 5)
        await client.poll(node="n2")
        target.ends = [Ended(offset=9)]
        assert (await client.list_offsets([7], node="n2")).offsets == (LogOffset(7, 9, 0),)
        [fetch], [listed] = target.of(FETCH), target.of(LIST_OFFSETS)
        partition = fetch.topics[0].partitions[0]
        assert (partition.fetch_offset, partition.current_leader_epoch) == (5, -1)
        assert listed.topics[0].partitions[0].current_leader_epoch == -1


@pytest.mark.parametrize("reads", [False, True])
async def test_an_end_offset_by_an_old_leader_is_none_after_a_later_epoch(reads: bool) -> None:
    """Of records, or of another answer: a leader that was deposed, and does not know it, tells of an earlier
    time. One of the same epoch, or a later one, counts."""
    async with asking_n2() as (target, client):
        target.fetch, client_epoch = [Fetched(records=stamped([10], 0, 2), hw=1)], 0 if reads else 2
        target.ends = [Ended(offset=9, epoch=client_epoch), Ended(offset=3, epoch=1),
                       Ended(offset=9, epoch=2), Ended(offset=8, epoch=3)]
        if reads:
            client.assign([7])
            await client.poll(node="n2")
        found = [await client.list_offsets([7], node="n2") for _ in range(4)]

        assert [outcome.type for outcome in found] == [
            Type.FAIL if reads else Type.OK, Type.FAIL, Type.OK, Type.OK]
        assert (found[1].error, found[3].offsets) == ("UNKNOWN_LEADER_EPOCH", (LogOffset(7, 8, 3),))


async def test_patience_raises_the_time_outs_of_client_and_broker() -> None:
    """The answer may come long after the usual time-out, and the broker waits as much longer."""
    async with talking(request_timeout_s=0.05, produce_timeout_ms=40) as (broker, client):
        broker.produce = [Act.STALL, Produced(base_offset=2)]
        short = await client.send(SENDS)
        long = await client.send(SENDS, patience_s=7.05)
        assert (short.type, short.error, long.type) == (Type.INFO, "TIMEOUT", Type.OK)
        assert [request.timeout_ms for request in broker.of(PRODUCE)] == [40, 7040]


@pytest.mark.parametrize(("run_acks", "send_acks", "expected"), [
    ("all", None, Type.OK), ("all", "all", Type.OK), ("all", "1", Type.INFO), ("1", "1", Type.OK),
    ("1", "all", Type.OK), ("all", "0", Type.INFO),
])
async def test_an_ack_that_means_less_than_the_guarantees_of_the_run_is_no_ok(
        run_acks: str, send_acks: str | None, expected: Type) -> None:
    """The judge assumes that every ok of a run has its guarantees."""
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

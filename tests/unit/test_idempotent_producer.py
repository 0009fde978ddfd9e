"""Idempotent producers: that of the client of record against canned answers, and how a library's is
closed."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from canned_broker import (
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TOPIC,
    Act,
    CannedBroker,
    Identified,
    Produced,
    run_story,
    talking,
)
from kafka.record.default_records import DefaultRecordBatch

from floodmark.harness.client import idempotent_producer
from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.client.connection import Connection, Lost
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import Outcome, Send, Type
from floodmark.harness.protocols import WorkloadSettings
from floodmark.workloads.idempotent import IdempotentSession

SENDS = (Send(partition=7, value=17), Send(partition=7, value=18))
SEVERAL = tuple(Send(partition=7, value=value) for value in range(10))
OK = Produced(base_offset=40)
Sent = tuple[int, int, int, tuple[int, ...]]  # producer id, epoch, first sequence, values


def sent(broker: CannedBroker) -> list[Sent]:
    """What each Produce request had."""
    batches = [DefaultRecordBatch(bytes(request.topic_data[0].partition_data[0].records))
               for request in broker.of(PRODUCE)]
    return [(one.producer_id, one.producer_epoch, one.base_sequence, tuple(int(row.value) for row in one))
            for one in batches]


def outcome_of(answers: Sequence[Produced | Act], sends: Sequence[Send] = SENDS, in_flight: int = 1, *,
               patience_s: float | None = None, **changes: Any) -> tuple[Outcome, list[Sent], bool]:
    """The outcome of a send, what was sent for it, and whether the process is over."""
    async def story(broker: CannedBroker, client: Client) -> tuple[Outcome, list[Sent], bool]:
        broker.produce = list(answers)
        outcome = await client.send(tuple(sends), patience_s=patience_s)
        return outcome, sent(broker), client.over

    found: tuple[Outcome, list[Sent], bool] = run_story(story, in_flight=in_flight, **changes)
    return found


@pytest.mark.parametrize("answer", [
    Produced(error=6, base_offset=-1), Produced(error=6, base_offset=40), Produced(error=56, base_offset=-1),
    Act.DROP, Act.GARBAGE], ids=repr)
def test_it_sends_again_with_the_same_sequence(answer: Produced | Act) -> None:
    """And asks for the leader first."""
    async def story(broker: CannedBroker, client: Client) -> Outcome:
        broker.produce = [answer, answer, OK]
        outcome = await client.send(SENDS)
        assert sent(broker) == 3 * [(500, 3, 0, (17, 18))]
        assert len({bytes(one.topic_data[0].partition_data[0].records) for one in broker.of(PRODUCE)}) == 1
        assert (len(broker.of(METADATA)), len(broker.of(INIT_PRODUCER_ID)), client.over) == (3, 1, False)
        return outcome

    outcome = run_story(story, in_flight=1)
    assert (outcome.type, [one.offset for one in outcome.sends]) == (Type.OK, [40, 41])


@pytest.mark.parametrize(("error", "name"), [
    (46, "NO_OFFSET"),  # it is in the log; but no ack says that the ISR has it
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER"), (47, "INVALID_PRODUCER_EPOCH"), (59, "UNKNOWN_PRODUCER_ID"),
    (10, "MESSAGE_TOO_LARGE"), (-1, "UNKNOWN_SERVER_ERROR")])
def test_what_it_does_not_send_again_is_info_and_its_last_send(error: int, name: str) -> None:
    """An error may be the answer to a repetition, so that no error is a definite failure."""
    for answers in ([Produced(error=error, base_offset=-1)],
                    [Produced(error=6, base_offset=-1), Produced(error=error, base_offset=-1)]):
        outcome, requests, over = outcome_of(answers)
        assert (outcome.type, outcome.error, over, len(requests)) == (Type.INFO, name, True, len(answers))
        assert [one.offset for one in outcome.sends] == [None, None]


def test_several_batches_are_in_flight_and_those_behind_a_refused_one_follow_it_again() -> None:
    """Five at most; a batch is out of order only because the one before it was refused. A lost connection
    loses all answers on it."""
    refused, behind = Produced(error=6, base_offset=-1), Produced(error=45, base_offset=-1)
    outcome, requests, over = outcome_of(
        [Produced(base_offset=70), refused, behind, Produced(error=7, base_offset=80), behind,
         *(Produced(base_offset=offset) for offset in (72, 74, 76, 78, 90))],
        [*SEVERAL, *SENDS], in_flight=5)

    pairs = [(500, 3, 2 * index, (2 * index, 2 * index + 1)) for index in range(5)]
    last = (500, 3, 10, (17, 18))
    assert requests == [*pairs, *pairs[1:], last]
    assert (outcome.type, over) == (Type.OK, False)
    assert [one.offset for one in outcome.sends] == [*range(70, 80), 90, 91]

    outcome, requests, _ = outcome_of(
        [Produced(base_offset=70), Act.DROP, *(Produced(base_offset=offset) for offset in (72, 74, 76, 78))],
        SEVERAL, in_flight=5)
    assert [one.offset for one in outcome.sends] == [*range(70, 80)]
    assert [first for _, _, first, _ in requests] == [0, 2, 2, 4, 6, 8]


def test_a_batch_out_of_order_behind_acked_ones_only_ends_the_process() -> None:
    outcome, requests, over = outcome_of(
        [Produced(base_offset=70), Produced(error=45, base_offset=-1), Produced(base_offset=74)],
        SEVERAL, in_flight=5)

    assert (outcome.type, outcome.error, over) == (Type.INFO, "OUT_OF_ORDER_SEQUENCE_NUMBER", True)
    assert len(requests) == 5


async def test_each_partition_has_its_own_sequence_which_goes_on_with_the_next_send() -> None:
    async with talking(in_flight=1, keys={7: (TOPIC, 0), 8: (TOPIC, 1)}) as (broker, client):
        broker.partitions = 2
        for partition, values in ((7, (1, 2)), (8, (3,)), (7, (4,)), (8, (5,))):
            await client.send(tuple(Send(partition=partition, value=value) for value in values))
        assert sent(broker) == [(500, 3, 0, (1, 2)), (500, 3, 0, (3,)), (500, 3, 2, (4,)), (500, 3, 1, (5,))]
        assert len(broker.of(INIT_PRODUCER_ID)) == 1


@pytest.mark.parametrize("answer", [Act.STALL, Produced(error=19, base_offset=-1)], ids=repr)
def test_it_gives_up_when_its_time_is_over_unless_it_is_patient(
        answer: Act | Produced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotent_producer, "DELIVERY_TIMEOUT_S", 0.1)
    outcome, requests, over = outcome_of([answer])

    assert (outcome.type, outcome.error, over) == (Type.INFO, "TIMEOUT", True)
    assert {*requests} == {(500, 3, 0, (17, 18))}
    refused = Produced(error=19, base_offset=-1)
    assert outcome_of([refused, refused, OK], patience_s=30.0)[0].type is Type.OK


@pytest.mark.parametrize(("ids", "kind", "error", "requests"), [
    ([Identified(error=15, producer_id=-1, epoch=-1), Act.DROP, Identified()], Type.OK, None, 1),
    ([Identified(error=31, producer_id=-1, epoch=-1)], Type.INFO, "CLUSTER_AUTHORIZATION_FAILED", 0),
], ids=["later", "refused"])
async def test_nothing_is_sent_before_there_is_a_producer_id(
        ids: list[Identified | Act], kind: Type, error: str | None, requests: int) -> None:
    async with talking(in_flight=1) as (broker, client):
        broker.ids = ids.copy()
        outcome = await client.send(SENDS)
        assert (outcome.type, outcome.error, len(broker.of(PRODUCE))) == (kind, error, requests)


@pytest.mark.parametrize("highest", [0, 1, 2, 4, None])
def test_an_older_broker_gets_the_request_for_an_id_in_a_version_that_it_serves(highest: int | None) -> None:
    async def story(broker: CannedBroker, client: Client) -> None:
        if highest is None:
            del broker.served[INIT_PRODUCER_ID]
            outcome = await client.send(SENDS)
            assert (outcome.type, outcome.error, broker.of(PRODUCE)) == (Type.INFO, "UNSUPPORTED_VERSION", [])
            return
        broker.served[INIT_PRODUCER_ID] = (0, highest)
        assert (await client.send(SENDS)).type is Type.OK
        assert [version for api, version, _ in broker.asked if api == INIT_PRODUCER_ID] == [highest]
        assert sent(broker) == [(500, 3, 0, (17, 18))]

    run_story(story, in_flight=1)


@pytest.mark.parametrize("asked", [{"node": "n1"}, {"acks": "1"}], ids=repr)
async def test_it_sends_to_the_leader_alone_with_acks_all(asked: dict[str, Any]) -> None:
    async with talking(in_flight=1) as (_broker, client):
        with pytest.raises(FloodmarkError, match="needs the log workload"):
            await client.send(SENDS, **asked)


# -- the connection with several requests open --------------------------------------------------------------

def frame(correlation: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + correlation.to_bytes(4, "big") + body


async def with_two_open(data: Sequence[bytes]) -> list[Any]:
    """What two requests get when this arrives and the connection is then lost."""
    connection = Connection()
    connection.connection_made(Mock(spec=asyncio.Transport, **{"is_closing.return_value": False}))
    tasks = [asyncio.create_task(connection.exchange(bytearray(12), 60.0)) for _ in range(2)]
    await asyncio.sleep(0)
    for piece in data:
        connection.data_received(piece)
    connection.connection_lost(None)
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_answers_in_one_piece_and_in_small_ones_go_to_their_requests_and_none_out_of_turn() -> None:
    both = frame(1, b"one") + frame(2, b"two")
    for pieces in ([both], [both[:9], both[9:]], [both[index:index + 1] for index in range(len(both))]):
        assert asyncio.run(with_two_open(pieces)) == [b"one", b"two"]
    for wrong in (frame(2, b"two"), frame(1, b"one") * 2):
        assert isinstance(asyncio.run(with_two_open([wrong]))[1], Lost)


# -- closing: neither the run nor its exit waits for a library that never returns -------------------------


# A client whose close() never returns, in a process that has nothing else to do.
NEVER_CLOSES = """
import asyncio, threading
from floodmark.workloads import idempotent
from test_idempotent_producer import session

class Consumer:
    def close(self):
        threading.Event().wait()

idempotent._CLOSE_TIMEOUT_S = 0.2
one = session()
one._consumer = Consumer()
asyncio.run(one.close())
print("closed")
"""


def session() -> IdempotentSession:
    settings = WorkloadSettings(
        run_id="0" * 16, seed=1, partitions=(), addresses=lambda: {"n1": ("127.0.0.1", 1)}, acks="all",
        concurrency=1, first_value=0, clients=wire_clients(dict))
    return IdempotentSession(settings, ThreadPoolExecutor(1))


def test_a_library_that_never_closes_blocks_neither_the_run_nor_the_exit() -> None:
    found = [*sys.path, str(Path(__file__).parent)]
    ran = subprocess.run([sys.executable, "-c", f"import sys\nsys.path = {found!r}\n{NEVER_CLOSES}"],
                         capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "closed\n"), ran.stderr


def test_real_clients_without_a_broker_are_closed_and_an_error_is_raised() -> None:
    one = session()
    one._get_producer(0.0)
    one._get_consumer()

    asyncio.run(one.close())

    assert (one._producer, one._consumer) == (None, None)

    class Consumer:
        def close(self) -> None:
            raise RuntimeError("already closed")

    one = session()
    one._consumer = Consumer()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="already closed"):
        asyncio.run(one.close())

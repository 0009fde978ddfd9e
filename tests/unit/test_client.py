"""The client of record and its idempotent producer, with brokers of canned answers on real sockets; what an
answer, or none, proves.

Below an op of golden/client.txt: what the brokers were asked, and what came of it. `pytest --rewrite` writes
it; then read the diff.
"""

import asyncio
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from canned_broker import (
    ACTS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    TOPIC,
    CannedBroker,
    canned_broker,
)
from kafka.record.default_records import DefaultRecordBatch
from machine_text import happened_as_written

from floodmark.harness import record_batches
from floodmark.harness.client import classify
from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import Outcome, Send, Type

RUN = "0123456789abcdef"
APIS = {"Produce": PRODUCE, "Fetch": FETCH, "ListOffsets": LIST_OFFSETS, "Metadata": METADATA,
        "InitProducerId": INIT_PRODUCER_ID}
NAMES = {api: name for name, api in APIS.items()}


def error_and(answer: int | str) -> tuple[int, int]:
    """6@40: error 6 with offset 40."""
    error, _, offset = str(answer).rpartition("@")
    return int(error or 0), int(offset)


def records(answer: str) -> bytes:
    """0e2:10,11: the values 10 and 11 from offset 0 on, of epoch 2; !cut, !theirs, or what is damaged."""
    place, _, rest = answer.partition(":")
    offset, epoch = map(int, place.split("e"))
    values, _, damage = rest.partition("!")
    data = bytearray(record_batches.encode([*map(int, values.split(","))], RUN, 1))
    data[:8], data[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")  # as in a leader's log
    if damage == "theirs":
        return offset.to_bytes(8, "big") + record_batches.encode([5], "another run", 0)[8:]
    for at, byte in {"checksum": [(-1, 0xEE)], "magic": [(16, 9)], "length": [(11, 3)], "long": [(9, 3)]
                     }.get(damage, ()):
        data[at] = byte
    return bytes(data[:-3] if damage == "cut" else data)


def told(one: Outcome) -> str:
    return " ".join([one.type, *([one.error] if one.error else []), *(
        str(send.value) if send.offset is None else f"{send.value}@{send.offset}" for send in one.sends), *(
        f"{read.offset}e{read.epoch}:{read.value}" for read in one.reads), *(
        f"unreadable {place.offset}: {place.why}" for place in one.corrupt), *(
        f"end {end.offset}e{end.epoch}" for end in one.offsets), *(
        f"start {start.offset}e{start.epoch}" for start in one.starts)])


class Player:
    """Plays the events of one story after another. Broker 1 is the leader, unless the metadata say otherwise;
    answers are given in order, and the last one again and again, until others are given after an op."""

    client_: Client
    clients_: list[Client]

    def __init__(self, runner: asyncio.Runner, patch: pytest.MonkeyPatch) -> None:
        self.runner, self.patch = runner, patch
        self.brokers: dict[int, CannedBroker] = {}
        self.open: dict[int, AsyncExitStack] = {}
        self.given: set[tuple[int, int]] = set()
        self.sent: set[bytes] = set()

    def happens(self, event: str, *given: Any, times: int = 1, **named: Any) -> Iterator[str]:
        for _ in range(times):
            outcome = self.runner.run(getattr(self, event)(*given, **named))
            if outcome is not None:
                self.given.clear()
                parts = [self.asked(*one) + (f" (to {number})" if number > 1 else "")
                         for number, broker in self.brokers.items() for one in broker.asked]
                parts = sorted(parts) if event == "together" else parts
                parts += [f"= {outcome}{', over' if self.client_.over else ''}"]
                for line in textwrap.wrap("; ".join(part.replace(" ", "\xa0") for part in parts), 106):
                    yield f"~ {line}".replace("\xa0", " ")
            for broker in self.brokers.values():
                broker.asked.clear()

    def asked(self, api: int, version: int, request: Any) -> str:
        words = [f"{NAMES[api]}-{version}"]
        if api == PRODUCE:
            words += [f"acks={request.acks} {request.timeout_ms}ms"]
            for part in request.topic_data[0].partition_data:
                data, name = bytes(part.records), f"{request.topic_data[0].name}-{part.index}"
                [sent], one = record_batches.decode(data, RUN), DefaultRecordBatch(data)
                words += [f"{name}:", *(str(value) for _, value in sent.values)]
                if one.producer_id >= 0:
                    words.append(f"by {one.producer_id}:{one.producer_epoch} from {one.base_sequence} on")
                    words += ["again"] * (data in self.sent)
                self.sent.add(data)
        elif api in (FETCH, LIST_OFFSETS):
            one = request.topics[0].partitions[0]
            words += [f"from {one.fetch_offset} epochs {one.last_fetched_epoch}" if api == FETCH
                      else f"at {one.timestamp} epoch", str(one.current_leader_epoch)]
        return " ".join(words)

    async def end(self) -> None:
        for one in [*self.open.values()][::-1]:
            await one.aclose()

    async def client(self, delivery_s: float = 30.0, number: int = 1, **settings: Any) -> None:
        """Partition 7 of the history is partition 0 of the topic. Of several clients, which know the leader
        already, the first is meant, unless they act together."""
        await self.end()
        self.patch.setattr("floodmark.harness.client.client.DELIVERY_TIMEOUT_S", delivery_s)
        self.open, self.brokers, self.given, self.sent = {}, {}, set(), set()
        await self.broker(1)
        broker, beside = self.brokers[1], self.brokers[1].beside
        made = ClientSettings(**{
            "run_id": RUN, "keys": {7: (TOPIC, 0)}, "pause_s": (0.0, 0.0), "request_timeout_s": 5.0,
            "metadata_timeout_s": 5.0, "connect_timeout_s": 5.0, **settings})
        broker.partitions = len(made.keys)
        clients = wire_clients(lambda: {node: ("127.0.0.1", port) for node, port in {
            "n1": broker.port, **beside}.items()})
        self.clients_ = [clients(made, Random(1)) for _ in range(number)]
        self.client_ = self.clients_[0]
        for one in self.clients_:
            self.open[1].push_async_callback(one.close)
            one.assign([7])
            if number > 1:
                await one.list_offsets([7])

    async def broker(self, number: int, greets: bool = True) -> None:
        self.open[number] = AsyncExitStack()
        self.brokers[number] = await self.open[number].enter_async_context(canned_broker())
        self.brokers[number].greets = greets
        for one in self.brokers.values():
            one.ports = {number: broker.port for number, broker in self.brokers.items()}

    async def beside(self, number: int) -> None:
        """The client knows its address, and no metadata have it."""
        await self.broker(number)
        self.brokers[1].beside[f"n{number}"] = self.brokers[number].port

    async def gone(self, number: int) -> None:
        await self.open.pop(number).aclose()

    async def connections(self) -> str:
        return str(self.brokers[1].connections)

    async def serves(self, **highest: int | None) -> None:
        for name, version in highest.items():
            self.brokers[1].served[APIS[name]] = (0, version or 0)
            if version is None:
                del self.brokers[1].served[APIS[name]]

    async def deaf(self) -> None:
        """To whoever connects from now on."""
        self.brokers[1].greets = False

    def answer(self, api: int, answers: Iterable[Any], by: int = 1) -> None:
        """In place of the usual answers, or behind those that were given."""
        before = self.brokers[by].answers[api] if (by, api) in self.given else []
        self.given.add((by, api))
        self.brokers[by].answers[api] = [*before, *answers]

    async def produces(self, *answers: int | str, by: int = 1, **more: int) -> None:
        self.answer(PRODUCE, (one if one in ACTS else {"error": error_and(one)[0], "base_offset": error_and(
            one)[1], **more} for one in answers), by)

    async def leaders(self, *leaders: str, by: int = 1) -> None:
        """NODE:EPOCH, or ERROR@NODE:EPOCH."""
        for one in leaders:
            node, _, epoch = one.partition(":")
            error, leader = error_and(node)
            self.answer(METADATA, [{"error": error, "leader": leader, "epoch": int(epoch)}], by)

    async def fetched(self, *batches: str, by: int = 1, **fields: Any) -> None:
        act = "".join(batches)
        self.answer(FETCH, [act if act in ACTS else {
            "records": b"".join(map(records, batches)), **fields}], by)

    async def ends(self, *answers: int | str, by: int = 1) -> None:
        """OFFSET, OFFSET:EPOCH or ERROR@OFFSET."""
        for one in answers:
            words, _, epoch = str(one).partition(":")
            error, offset = error_and(words)
            self.answer(LIST_OFFSETS, [{"error": error, "offset": offset, "epoch": int(epoch or 0)}], by)

    async def identifies(self, *answers: int | str) -> None:
        """Errors."""
        self.answer(INIT_PRODUCER_ID, (one if one in ACTS else {"error": one} for one in answers))

    async def together(self, *partitions: int, gives_up: int = -1) -> str:
        """Each client sends one value, its partition's number. One of them is not waited for."""
        tasks = [asyncio.create_task(client.send((Send(partition=partition, value=partition),)))
                 for client, partition in zip(self.clients_, partitions, strict=True)]
        await asyncio.sleep(0)
        if gives_up >= 0:
            tasks.pop(gives_up).cancel()
        return " & ".join(told(one) for one in await asyncio.gather(*tasks))

    async def send(self, *values: int, to: int = 7, **more: Any) -> str:
        try:
            return told(await self.client_.send(
                tuple(Send(partition=to, value=value) for value in values), **more))
        except FloodmarkError as error:
            return f"refused: {error}"

    async def assign(self, *partitions: int) -> None:
        self.client_.assign(partitions)

    async def seek(self, offset: int) -> None:
        self.client_.seek([7], offset)

    async def poll(self, **more: Any) -> str:
        return told(await self.client_.poll(**more))

    async def list_offsets(self, **more: Any) -> str:
        return told(await self.client_.list_offsets([7], **more))

    async def close(self) -> str:
        """What was sent before arrives."""
        await self.client_.close()
        async with asyncio.timeout(5):
            while not self.brokers[1].asked:
                await asyncio.sleep(0)
        return "closed"


def test_what_a_client_does(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    with asyncio.Runner() as runner:
        player = Player(runner, monkeypatch)
        try:
            happened_as_written("client.txt", player.happens, request)
        finally:
            runner.run(player.end())


# -- what an answer proves -----------------------------------------------------------------------------------

SENDS = (Send(partition=3, value=10), Send(partition=3, value=11))
REFUSED = (2, 3, 6, 10, 17, 18, 19, 21, 29, 32, 35, 42, 43, 45, 47, 74, 75, 76, 87, 100)
ERRORS = sorted({*range(-1, 130), 4711} - {0})  # known or not
RETRIED = (2, 3, 5, 6, 7, 13, 15, 19, 20, 56, 74)


@pytest.mark.parametrize("error", ERRORS)
def test_only_a_refusal_without_an_offset_is_a_definite_failure(error: int) -> None:
    """With one it was appended and may survive; 0 is an offset like any other."""
    outcome = classify.answered(SENDS, error, -1)
    assert outcome.type is (Type.FAIL if error in REFUSED else Type.INFO)
    assert (outcome.error, [one.offset for one in outcome.sends]) == (classify.name_of(error), [None, None])
    outcome = classify.answered(SENDS, error, 0)
    assert (outcome.type, outcome.error, [one.offset for one in outcome.sends]) == (
        Type.INFO, classify.name_of(error), [0, 1])


def test_a_code_without_a_name_is_reported_by_number() -> None:
    assert classify.name_of(4711) == "ERROR_4711"


@pytest.mark.parametrize(("base", "offsets"), [(40, [40, 41]), (-1, [None, None])])
def test_error_zero_is_ok_with_an_offset_for_each_value_if_it_names_one(
        base: int, offsets: list[int | None]) -> None:
    outcome = classify.answered(SENDS, 0, base)
    assert (outcome.type, outcome.error) == (Type.OK, None)
    assert [(one.partition, one.value, one.offset) for one in outcome.sends] == [
        (3, 10, offsets[0]), (3, 11, offsets[1])]


@pytest.mark.parametrize("error", [*RETRIED, -1, 0, 10, 22, 31, 35, 46, 47, 59, 87, 90])
def test_an_idempotent_producer_repeats_what_may_succeed_later_and_nothing_else(error: int) -> None:
    assert {classify.is_retried(error, first=first) for first in (True, False)} == {error in RETRIED}


def test_it_repeats_a_batch_out_of_order_only_behind_another_that_it_repeats() -> None:
    assert [classify.is_retried(45, first=first) for first in (True, False)] == [False, True]

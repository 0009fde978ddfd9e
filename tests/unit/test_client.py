"""The client of record and its idempotent producer, with brokers of canned answers on real sockets.

Below an op of golden/client.txt: what the brokers were asked, and what came of it. `pytest --rewrite` writes
it; then read the diff.
"""

import asyncio
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from canned_broker import (
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    RUN,
    TOPIC,
    Act,
    CannedBroker,
    Ended,
    Fetched,
    Identified,
    Led,
    Produced,
    canned_broker,
    stamped,
    talking,
)
from kafka.record.default_records import DefaultRecordBatch
from machine_text import happened_as_written

from floodmark.harness import record_batches
from floodmark.harness.client.client import Client, wire_clients
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import Intent, Outcome, Send, Type
from floodmark.harness.protocols import PartitionSpec, WorkloadSettings
from floodmark.workloads.log import LogSession

APIS = {"Produce": PRODUCE, "Fetch": FETCH, "ListOffsets": LIST_OFFSETS, "Metadata": METADATA,
        "InitProducerId": INIT_PRODUCER_ID}
NAMES = {api: name for name, api in APIS.items()}
ACTS = {act.name.lower(): act for act in Act}


def error_and(answer: int | str) -> tuple[int, int]:
    """6@40: error 6 with offset 40."""
    error, _, offset = str(answer).rpartition("@")
    return int(error or 0), int(offset)


def records(answer: str) -> bytes:
    """0e2:10,11: the values 10 and 11 from offset 0 on, of epoch 2; !cut, !theirs, or what is damaged."""
    place, _, rest = answer.partition(":")
    offset, epoch = map(int, place.split("e"))
    values, _, damage = rest.partition("!")
    data = bytearray(stamped([*map(int, values.split(","))], offset, epoch))
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

    def __init__(self, runner: asyncio.Runner, patch: pytest.MonkeyPatch) -> None:
        self.runner, self.patch = runner, patch
        self.brokers: dict[int, CannedBroker] = {}
        self.open: dict[int, AsyncExitStack] = {}
        self.given: set[tuple[int, str]] = set()
        self.sent: set[bytes] = set()

    def happens(self, event: str, *given: Any, times: int = 1, **named: Any) -> Iterator[str]:
        for _ in range(times):
            outcome = self.runner.run(getattr(self, event)(*given, **named))
            if outcome is not None:
                self.given.clear()
                parts = [self.asked(*one) + (f" (to {number})" if number > 1 else "")
                         for number, broker in self.brokers.items() for one in broker.asked]
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

    async def client(self, delivery_s: float = 30.0, **settings: Any) -> None:
        await self.end()
        self.patch.setattr("floodmark.harness.client.client.DELIVERY_TIMEOUT_S", delivery_s)
        self.open, self.given, self.sent = {1: AsyncExitStack()}, set(), set()
        settings = {"metadata_timeout_s": 5.0, "connect_timeout_s": 5.0, **settings}
        broker, self.client_ = await self.open[1].enter_async_context(talking(**settings))
        self.brokers = {1: broker}
        broker.partitions = len(settings.get("keys", "1"))
        self.client_.assign([7])

    async def broker(self, number: int, greets: bool = True) -> None:
        self.open[number] = AsyncExitStack()
        self.brokers[number] = await self.open[number].enter_async_context(canned_broker())
        self.brokers[number].greets = greets
        for one in self.brokers.values():
            one.ports = {number: broker.port for number, broker in self.brokers.items()}

    async def beside(self, number: int) -> None:
        """The client knows its address, and no metadata have it."""
        await self.broker(number)
        self.brokers[1].beside = {f"n{number}": self.brokers[number].port}

    async def gone(self, number: int) -> None:
        await self.open.pop(number).aclose()

    async def connections(self) -> str:
        return str(self.brokers[1].connections)

    async def serves(self, **highest: int | None) -> None:
        for name, version in highest.items():
            self.brokers[1].served[APIS[name]] = (0, version or 0)
            if version is None:
                del self.brokers[1].served[APIS[name]]

    def answer(self, kind: str, answers: Iterable[Any], by: int) -> None:
        """In place of the usual answers, or behind those that were given."""
        before = getattr(self.brokers[by], kind) if (by, kind) in self.given else []
        self.given.add((by, kind))
        setattr(self.brokers[by], kind, [*before, *answers])

    async def produces(self, *answers: int | str, by: int = 1) -> None:
        self.answer("produce", (ACTS.get(str(one)) or Produced(error=error_and(one)[0], base_offset=error_and(
            one)[1]) for one in answers), by)

    async def leaders(self, *leaders: str, by: int = 1) -> None:
        """NODE:EPOCH."""
        self.answer("metadata", (Led(error=5, leader=-1) if one == "none" else Led(
            leader=int(one.split(":")[0]), epoch=int(one.split(":")[1])) for one in leaders), by)

    async def fetched(self, *batches: str, by: int = 1, **fields: Any) -> None:
        self.answer("fetch", [ACTS.get("".join(batches)) or Fetched(
            records=b"".join(map(records, batches)), **fields)], by)

    async def ends(self, *answers: int | str, by: int = 1) -> None:
        """OFFSET, OFFSET:EPOCH or ERROR@OFFSET."""
        for one in answers:
            words, _, epoch = str(one).partition(":")
            error, offset = error_and(words)
            self.answer("ends", [Ended(error=error, offset=offset, epoch=int(epoch or 0))], by)

    async def identifies(self, *answers: int | str) -> None:
        """Errors."""
        self.answer("ids", (ACTS.get(str(one)) or Identified(error=int(one), producer_id=-1 if one else 500,
                                                             epoch=-1 if one else 3) for one in answers), 1)

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


@pytest.mark.parametrize(("run_acks", "send_acks", "expected"), [
    ("all", None, Type.OK), ("all", "all", Type.OK), ("all", "1", Type.INFO), ("1", "1", Type.OK),
    ("1", "all", Type.OK), ("all", "0", Type.INFO),
])
async def test_an_ack_that_means_less_than_the_guarantees_of_the_run_is_no_ok(
        run_acks: str, send_acks: str | None, expected: Type) -> None:
    """The judge assumes that every ok of a run has its guarantees."""
    async with canned_broker() as broker:
        def addresses() -> dict[str, tuple[str, int]]:
            return {"n2": ("127.0.0.1", broker.port)}

        session = LogSession(WorkloadSettings(
            run_id=RUN, seed=1, addresses=addresses, acks=run_acks, concurrency=1, first_value=0,
            clients=wire_clients(addresses),
            partitions=(PartitionSpec(key=7, topic=TOPIC, partition=0, replicas=("n2",)),)), 3)
        sends = (Send(partition=7, value=17),)
        outcome = await session.apply(Intent(f="send", sends=sends, node="n2", acks=send_acks))
        await session.close()
        assert outcome.type is expected

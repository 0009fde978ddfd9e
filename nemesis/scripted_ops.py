"""Runs the scripted ops of a schedule: sends, polls, questions for end offsets; some stay open meanwhile."""

import asyncio

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import Intent, Outcome, Send
from floodmark.harness.protocols import Sender
from floodmark.harness.schedule.entry import Entry

NOWAIT_PATIENCE_S = 10.0  # of an op that stays open: what answers it may first have to be let go
DRAIN_TIMEOUT_S = 3.0  # what only mending would answer stays open


class Scripted:
    """Asks what entries say. Ops asked with `nowait` are open until `drain`."""

    def __init__(self, send: Sender) -> None:
        self._send = send
        self._open: set[asyncio.Task[Outcome]] = set()

    async def ask(self, entry: Entry) -> None:
        intent = intent_of(entry)
        if not entry.args.get("nowait"):
            await self._send(intent)
            return
        asked: asyncio.Event = asyncio.Event()

        async def opened() -> Outcome:
            asked.set()
            return await self._send(intent)

        self._open.add(asyncio.create_task(opened(), name=f"scripted {entry.f}"))
        await asked.wait()

    async def drain(self) -> None:
        """Waits for what is open; what is not answered stays open in the history."""
        if not self._open:
            return
        done, late = await asyncio.wait(self._open, timeout=DRAIN_TIMEOUT_S)
        self._open = late
        for task in done:
            if isinstance(error := task.exception(), FloodmarkError):
                raise FloodmarkError(f"an op that the schedule left open: {error}") from error
            task.result()

    async def end(self) -> None:
        """Nothing goes on after this."""
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)
        self._open = set()


def intent_of(entry: Entry) -> Intent:
    args = entry.args
    return Intent(
        f=entry.f,
        partitions=tuple(args.get("partitions", ())),
        sends=tuple(Send(partition=one["partition"], value=one["value"]) for one in args.get("sends", ())),
        node=args.get("to", args.get("from")),
        acks=args.get("acks"),
        offset=args.get("offset"),
        client=args.get("client"),
        patience_s=NOWAIT_PATIENCE_S if args.get("nowait") else None,
    )

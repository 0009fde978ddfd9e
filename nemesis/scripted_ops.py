"""Runs the ops of a schedule: sends, polls and list_offsets; those with `nowait` stay open meanwhile."""

import asyncio

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import Intent, Outcome, Send
from floodmark.harness.protocols import Sender
from floodmark.harness.schedule.entry import Entry

NOWAIT_PATIENCE_S = 10.0  # of an op that stays open: a later step may have to release its leader first
DRAIN_TIMEOUT_S = 3.0  # an op that gets its answer only after mending stays open


class Scripted:
    """Runs entries as ops. Ops with `nowait` are open until `drain`."""

    def __init__(self, send: Sender) -> None:
        self._send = send
        self._open: set[asyncio.Task[Outcome]] = set()

    async def run_op(self, entry: Entry) -> None:
        intent = build_intent(entry)
        if not entry.args.get("nowait"):
            await self._send(intent)
            return
        begun: asyncio.Event = asyncio.Event()

        async def send_op() -> Outcome:
            begun.set()
            return await self._send(intent)

        self._open.add(asyncio.create_task(send_op(), name=f"scripted {entry.f}"))
        await begun.wait()

    async def drain(self) -> None:
        """Wait for the open ops; one without an answer stays open in the history."""
        if not self._open:
            return
        done, late = await asyncio.wait(self._open, timeout=DRAIN_TIMEOUT_S)
        self._open = late
        for task in done:
            if isinstance(error := task.exception(), FloodmarkError):
                raise FloodmarkError(f"an op that the schedule left open: {error}") from error
            task.result()

    async def cancel_open(self) -> None:
        """Cancel the ops that are still open."""
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)
        self._open = set()


def build_intent(entry: Entry) -> Intent:
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

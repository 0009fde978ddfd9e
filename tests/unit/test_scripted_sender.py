"""Scripted ops through the recorder: asked again while a leader is on its way, but of a given node once."""

import asyncio
from pathlib import Path

import pytest

from harness.history import Recorder, read
from harness.load import scripted_sender
from harness.op import Intent, Op, Outcome, Send, Type
from harness.protocols import Session, Written

SENDS = (Send(partition=0, value=5),)


class Leaderless:
    """A session that is refused twice before anything is done; and the workload it comes from."""

    over = False

    def __init__(self) -> None:
        self.asked: list[Intent] = []

    def session(self, process: int) -> Session:
        return self

    async def apply(self, process: int, intent: Intent, written: Written) -> Outcome:
        await written()
        self.asked.append(intent)
        if intent.f == "assign":
            return Outcome(type=Type.OK, partitions=intent.partitions)
        if len(self.asked) <= 2:
            return Outcome(type=Type.FAIL, sends=intent.sends, error="NOT_LEADER_OR_FOLLOWER")
        return Outcome(type=Type.OK, sends=intent.sends)

    async def close(self) -> None:
        return None


def recorded(folder: Path, intent: Intent, leaderless: Leaderless) -> list[Op]:
    async def run() -> None:
        recorder = Recorder(folder / "history.jsonl")
        await scripted_sender(leaderless, recorder)(intent)  # type: ignore[arg-type]
        recorder.close()

    asyncio.run(run())
    return list(read(folder / "history.jsonl"))


@pytest.mark.parametrize(("node", "times", "outcome"), [(None, 3, Type.OK), ("n2", 1, Type.FAIL)])
def test_what_a_given_node_answers_is_what_was_asked_for(tmp_path: Path, node: str | None, times: int,
                                                        outcome: Type) -> None:
    """One op in any case."""
    leaderless = Leaderless()
    lines = recorded(tmp_path, Intent(f="send", sends=SENDS, node=node), leaderless)

    assert len(leaderless.asked) == times
    assert [op.type for op in lines] == [Type.INVOKE, outcome]


def test_a_poll_of_a_given_node_is_assigned_first(tmp_path: Path) -> None:
    """By the process that polls: a reader of the history knows where it began."""
    leaderless = Leaderless()
    lines = recorded(tmp_path, Intent(f="poll", partitions=(0,), node="n2", offset=4), leaderless)

    assert [(op.f, op.type, op.partitions) for op in lines] == [
        ("assign", Type.INVOKE, (0,)), ("assign", Type.OK, (0,)), ("poll", Type.INVOKE, None),
        ("poll", Type.FAIL, None)]
    assert len({op.process for op in lines}) == 1

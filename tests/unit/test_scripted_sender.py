"""Ops of the main phase through the recorder: scripted ones, retried while there is no leader yet, but not on
a given node; and those of the load, whose processes end with an info."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from floodmark.harness.history import Recorder, read
from floodmark.harness.op import Intent, Op, Outcome, Send, Type
from floodmark.harness.phases import main_phase
from floodmark.harness.phases.main_phase import ScriptedClients, ask
from floodmark.harness.protocols import Session

SENDS = (Send(partition=0, value=5),)


class Leaderless:
    """A session that is refused twice before anything is done; and the workload it comes from."""

    over = False

    def __init__(self) -> None:
        self.intents: list[Intent] = []

    def session(self, process: int) -> Session:
        return self

    async def apply(self, intent: Intent) -> Outcome:
        self.intents.append(intent)
        if intent.f == "assign":
            return Outcome(type=Type.OK, partitions=intent.partitions)
        if len(self.intents) <= 2:
            return Outcome(type=Type.FAIL, sends=intent.sends, error="NOT_LEADER_OR_FOLLOWER")
        return Outcome(type=Type.OK, sends=intent.sends)

    async def close(self) -> None:
        return None


def recorded(folder: Path, intent: Intent, leaderless: Leaderless) -> list[Op]:
    async def run() -> None:
        recorder = Recorder(folder / "history.jsonl")
        await ScriptedClients(leaderless, recorder).send(intent)  # type: ignore[arg-type]
        recorder.close()

    asyncio.run(run())
    return list(read(folder / "history.jsonl"))


@pytest.mark.parametrize(("node", "times", "outcome"), [(None, 3, Type.OK), ("n2", 1, Type.FAIL)])
def test_an_op_on_a_given_node_is_not_retried(tmp_path: Path, node: str | None, times: int,
                                                        outcome: Type) -> None:
    """One op in any case."""
    leaderless = Leaderless()
    lines = recorded(tmp_path, Intent(f="send", sends=SENDS, node=node), leaderless)

    assert len(leaderless.intents) == times
    assert [op.type for op in lines] == [Type.INVOKE, outcome]


def test_a_poll_of_a_given_node_is_assigned_first(tmp_path: Path) -> None:
    """By the process that polls: a reader of the history knows where it began."""
    leaderless = Leaderless()
    lines = recorded(tmp_path, Intent(f="poll", partitions=(0,), node="n2", offset=4), leaderless)

    assert [(op.f, op.type, op.partitions) for op in lines] == [
        ("assign", Type.INVOKE, (0,)), ("assign", Type.OK, (0,)), ("poll", Type.INVOKE, None),
        ("poll", Type.FAIL, None)]
    assert len({op.process for op in lines}) == 1


class Counting:
    """A workload whose sessions answer every op, send 13 with info."""

    def __init__(self) -> None:
        self.closed: list[int] = []

    def session(self, process: int) -> Session:
        return _Counted(self, process)


class _Counted:
    over = False

    def __init__(self, counting: Counting, process: int) -> None:
        self._counting, self._process = counting, process

    async def apply(self, intent: Intent) -> Outcome:
        unlucky = any(send.value == 13 for send in intent.sends)
        return Outcome(type=Type.INFO if unlucky else Type.OK, sends=intent.sends,
                       partitions=intent.partitions)

    async def close(self) -> None:
        self._counting.closed.append(self._process)


def sent(value: int, client: int | None) -> Intent:
    return Intent(f="send", sends=(Send(partition=0, value=value),), client=client)


def test_a_numbered_client_is_one_process_until_an_op_of_unknown_outcome(tmp_path: Path) -> None:
    """An info ends it; ops without a number are always by new ones; at the end all are closed."""
    counting = Counting()
    intents = [sent(1, 7), sent(2, None), sent(3, 7), sent(13, 7), sent(4, 7), sent(5, 8)]

    async def run() -> None:
        recorder = Recorder(tmp_path / "history.jsonl")
        clients = ScriptedClients(counting, recorder)  # type: ignore[arg-type]
        for intent in intents:
            await clients.send(intent)
        await clients.close()
        recorder.close()

    asyncio.run(run())
    processes = {op.sends[0].value: op.process for op in read(tmp_path / "history.jsonl") if op.sends}
    assert processes[1] == processes[3] == processes[13]
    assert len({processes[value] for value in (1, 2, 4, 5)}) == 4
    assert sorted(counting.closed) == sorted(set(processes.values()))


class Loading(Counting):
    """It sends 11, 12 and so on, and stops the phase at 16."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self.values, self.stop = iter(range(11, 17)), stop

    def intents(self, process: int, random: Random) -> Iterator[Intent]:
        for value in self.values:
            if value == 16:
                self.stop.set()
            yield sent(value, None)


def test_a_process_of_the_load_is_over_after_an_op_of_unknown_outcome(tmp_path: Path) -> None:
    """The next op is by another process in its place."""
    async def run() -> None:
        recorder, stop = Recorder(tmp_path / "history.jsonl"), asyncio.Event()
        loading = Loading(stop)
        plan = SimpleNamespace(workload=loading, seed=1, spec=SimpleNamespace(concurrency=4))
        pace = main_phase._Pace(None)
        await main_phase._place(plan, 2, recorder, pace, stop)  # type: ignore[arg-type]
        recorder.close()
        assert loading.closed == [2, 6]

    asyncio.run(run())
    processes = {op.sends[0].value: op.process for op in read(tmp_path / "history.jsonl") if op.sends}
    assert processes == {11: 2, 12: 2, 13: 2, 14: 6, 15: 6}


def test_a_numbered_client_reads_on_from_its_position(tmp_path: Path) -> None:
    """It is assigned its partitions once, and has one op at a time."""
    counting = Counting()
    poll = Intent(f="poll", partitions=(0,), client=1)

    async def run() -> None:
        recorder = Recorder(tmp_path / "history.jsonl")
        clients = ScriptedClients(counting, recorder)  # type: ignore[arg-type]
        await asyncio.gather(clients.send(poll), clients.send(poll))
        await clients.close()
        recorder.close()

    asyncio.run(run())
    assert [(op.f, op.type) for op in read(tmp_path / "history.jsonl")] == [
        ("assign", Type.INVOKE), ("assign", Type.OK), ("poll", Type.INVOKE), ("poll", Type.OK),
        ("poll", Type.INVOKE), ("poll", Type.OK)]


class _Reading:
    """A session that counts the lines of the history file at each op."""

    over = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines: list[int] = []

    def session(self, process: int) -> Session:
        return self

    async def apply(self, intent: Intent) -> Outcome:
        self.lines.append(self._path.read_bytes().count(b"\n"))
        return Outcome(type=Type.OK, sends=intent.sends)

    async def close(self) -> None:
        return None


def test_the_line_of_an_invocation_is_written_before_its_session_is_called(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    reading = _Reading(path)

    async def run() -> None:
        recorder = Recorder(path)
        await ask(reading, 0, sent(1, None), recorder)
        await ScriptedClients(reading, recorder).send(sent(2, None))  # type: ignore[arg-type]
        recorder.close()

    asyncio.run(run())
    assert reading.lines == [1, 3]

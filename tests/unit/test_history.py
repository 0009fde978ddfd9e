"""The recorder's guarantees (whole lines, no gap, no request before its line), and the reader's."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from disk import files_no_larger_than
from golden_text import refused_as_written

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.history import Recorder, read
from floodmark.harness.op import Intent, LogOffset, Outcome, Read, Send, Type, Unreadable
from floodmark.harness.phases.main_phase import AcksGiven
from floodmark.harness.schedule.reanchoring import read_schedule_history


def send(value: int) -> Intent:
    return Intent(f="send", sends=(Send(partition=0, value=value),))


def ticking(*times_ns: int) -> Iterator[int]:
    yield from times_ns
    while True:
        yield times_ns[-1]


async def test_lines_are_exactly_format_1(tmp_path: Path) -> None:
    """A completion has the sends and partitions also where the outcome has none."""
    clock = ticking(100, 1142, 9477, 9500, 9510, 10000)
    recorder = Recorder(tmp_path / "h", clock_ns=lambda: next(clock))
    sent = recorder.invoke(3, send(17))
    recorder.complete(sent, Outcome(type=Type.OK, sends=(Send(partition=0, value=17, offset=5),)))
    recorder.strike("kill", {"nodes": ["n1"], "moment": {"at": "ack", "partition": 0, "count": 1}})
    polled = recorder.invoke(4, Intent(f="poll"))
    recorder.complete(polled, Outcome(type=Type.OK, reads=(Read(partition=0, offset=5, value=17),)))
    recorder.complete(sent, Outcome(type=Type.FAIL, error="CONNECTION"))
    recorder.complete(recorder.invoke(5, Intent(f="assign", partitions=(1, 2))), Outcome(type=Type.OK))
    listed = recorder.invoke(5, Intent(f="list_offsets", partitions=(1,)))
    recorder.complete(
        listed, Outcome(type=Type.OK, offsets=(LogOffset(1, 9, 3),), starts=(LogOffset(1, 2),)))
    unreadable = Unreadable(partition=0, offset=7, why="magic")
    recorder.complete(polled, Outcome(type=Type.OK, corrupt=(unreadable,)))
    assert recorder.close() == 11
    lines = (tmp_path / "h").read_text().splitlines()
    assert lines[:5] == [
        '{"index":0,"time":1042,"process":3,"type":"invoke","f":"send","sends":[{"partition":0,"value":17}]}',
        '{"index":1,"time":9377,"process":3,"type":"ok","f":"send",'
        '"sends":[{"partition":0,"value":17,"offset":5}]}',
        '{"index":2,"time":9400,"process":-1,"type":"info","f":"kill",'
        '"fault":{"nodes":["n1"],"moment":{"at":"ack","partition":0,"count":1}}}',
        '{"index":3,"time":9410,"process":4,"type":"invoke","f":"poll"}',
        '{"index":4,"time":9900,"process":4,"type":"ok","f":"poll",'
        '"reads":[{"partition":0,"offset":5,"value":17}]}',
    ]
    assert [line.partition('"type":')[2] for line in lines[5:]] == [
        '"fail","f":"send","sends":[{"partition":0,"value":17}],"error":"CONNECTION"}',
        '"invoke","f":"assign","partitions":[1,2]}', '"ok","f":"assign","partitions":[1,2]}',
        '"invoke","f":"list_offsets"}',
        '"ok","f":"list_offsets","offsets":[{"partition":1,"offset":9,"epoch":3}],'
        '"starts":[{"partition":1,"offset":2}]}',
        '"ok","f":"poll","reads":[],"corrupt":[{"partition":0,"offset":7,"why":"magic"}]}',
    ]


async def test_only_an_ok_send_is_an_ack_and_ends_a_wait_for_one(tmp_path: Path) -> None:
    """Moments wait for the k-th ack: an info may be one, and a fail is not. Also of a txn, and read back."""
    recorder = Recorder(tmp_path / "h")
    wait = asyncio.ensure_future(recorder.ack_or(60))
    for kind in Type.INFO, Type.FAIL, Type.OK:
        await asyncio.sleep(0)
        assert not wait.done()
        recorder.complete(recorder.invoke(3, send(17)), Outcome(type=kind))
        assert recorder.acks(0) == (kind is Type.OK)
    await wait
    await recorder.ack_or(0)
    recorder.complete(recorder.invoke(3, replace(send(18), f="txn")), Outcome(type=Type.OK))
    recorder.close()
    assert len(read_schedule_history(read(tmp_path / "h"), ()).acks(0).times) == recorder.acks(0) == 2


def test_a_repeated_send_is_acked_once() -> None:
    """Its leader answers the repetition too, and traces that."""
    append = {"event": "append", "partition": 0, "node": "n1", "role": "leader", "offset": 0, "count": 2}
    ack = {"event": "ack", "partition": 0, "node": "n1", "offset": 1}
    feed: Any = SimpleNamespace(read_new_lines=lambda: [append, ack, {**append, "node": "n2"}, ack])
    assert AcksGiven(feed).count(0, "n1") == 2


async def test_time_does_not_go_back_when_the_clock_does(tmp_path: Path) -> None:
    clock = ticking(0, 50, 30, 60)
    recorder = Recorder(tmp_path / "h", clock_ns=lambda: next(clock))
    for value in range(3):
        recorder.invoke(value, send(value))
    recorder.close()
    assert [op.time for op in read(tmp_path / "h")] == [50, 50, 60]


async def test_lines_of_one_tick_are_written_together_and_written_waits_for_them(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "h")
    for value in range(20):
        recorder.invoke(value, send(value))
    assert (tmp_path / "h").read_bytes() == b""
    await recorder.written()
    assert (tmp_path / "h").read_bytes().count(b"\n") == 20
    recorder.close()


async def test_a_cancelled_wait_does_not_affect_others(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "h")

    async def invoke_and_wait(process: int) -> None:
        recorder.invoke(process, send(process))
        await recorder.written()

    waits = [asyncio.ensure_future(invoke_and_wait(process)) for process in range(2)]
    await asyncio.sleep(0)
    waits[0].cancel()
    await asyncio.wait(waits)
    assert waits[0].cancelled()
    assert waits[1].exception() is None
    recorder.close()


async def test_a_full_disk_ends_the_recording_and_leaves_whole_lines(tmp_path: Path) -> None:
    """Simulated by the limit on file sizes: first a short write, then an error."""
    recorder = Recorder(tmp_path / "h")
    recorder.invoke(0, send(0))
    await recorder.written()
    whole = (tmp_path / "h").stat().st_size
    with files_no_larger_than(whole + 10):
        recorder.invoke(1, send(1))
        with pytest.raises(FloodmarkError, match="cannot write the history"):
            await recorder.written()
    with pytest.raises(FloodmarkError):
        recorder.invoke(2, send(2))
    with pytest.raises(FloodmarkError):
        recorder.close()
    assert [op.index for op in read(tmp_path / "h")] == [0]


def test_an_existing_history_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("mine")
    with pytest.raises(FloodmarkError, match="cannot begin the history"):
        Recorder(tmp_path / "h")


SENDS_FOR_EVER = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome, Send, Type
from floodmark.harness.phases.main_phase import ScriptedClients, ask

async def process(recorder, number, port):
    _, writer = await asyncio.open_connection("127.0.0.1", port)

    async def apply(intent):
        writer.write(b"%d\\n" % intent.sends[0].value)
        await writer.drain()
        return Outcome(type=Type.OK)

    async def close():
        pass

    session = SimpleNamespace(apply=apply, close=close, over=False)
    scripted = ScriptedClients(SimpleNamespace(session=lambda process: session), recorder)
    for value in range(number, 10**9, 20):
        intent = Intent(f="send", sends=(Send(partition=0, value=value),))
        await (scripted.send(intent) if number % 2 else ask(session, number, intent, recorder))

async def main():
    recorder = Recorder(Path(sys.argv[1]))
    await asyncio.gather(*(process(recorder, number, int(sys.argv[2])) for number in range(20)))

asyncio.run(main())
"""


@pytest.mark.parametrize("kill_after_bytes", [1, 5_000, 60_000])
def test_a_killed_recorder_leaves_whole_lines_and_an_invocation_for_every_value_sent(
        tmp_path: Path, kill_after_bytes: int) -> None:
    """A peer receives the values of the load and of scripted ops; after SIGKILL each of them has its
    invocation on disk."""
    path = tmp_path / "history.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        port = str(server.getsockname()[1])
        sender = subprocess.Popen([sys.executable, "-c", SENDS_FOR_EVER, str(path), port])
        try:
            peers = [server.accept()[0] for _ in range(20)]
            seen = [bytearray() for _ in peers]
            while sum(map(len, seen)) < kill_after_bytes:
                for peer, bytes_seen in zip(peers, seen, strict=True):
                    peer.settimeout(30)
                    bytes_seen += peer.recv(1 << 16)
        finally:
            sender.send_signal(signal.SIGKILL)
            sender.wait(120)
        for peer, bytes_seen in zip(peers, seen, strict=True):
            with contextlib.closing(peer), contextlib.suppress(ConnectionError):
                while more := peer.recv(1 << 16):
                    bytes_seen += more
    lines = path.read_bytes().split(b"\n")
    invoked = {
        op["sends"][0]["value"] for op in map(orjson.loads, lines[:-1]) if op["type"] == "invoke"
    }
    assert [orjson.loads(line)["index"] for line in lines[:-1]] == list(range(len(lines) - 1))
    for bytes_seen in seen:
        whole = bytes_seen[:bytes_seen.rfind(b"\n") + 1].split()
        assert {int(value) for value in whole} <= invoked


# -- reading ------------------------------------------------------------------------------------------------

GOOD = b'{"index":0,"time":1,"process":0,"type":"invoke","f":"send","sends":[{"partition":0,"value":1}]}\n'


UNKNOWN = GOOD.replace(b'"index":0', b'"index":1,"colour":"red"')


@pytest.mark.parametrize(("lines", "indexes"), [
    ([GOOD, b"\n", UNKNOWN, GOOD[:40]], [0, 1]),  # a torn last line, a blank one, an unknown field
    ([GOOD[:-1]], [0]),  # a whole last line without its line feed
])
def test_what_is_skipped(tmp_path: Path, lines: list[bytes], indexes: list[int]) -> None:
    (tmp_path / "h").write_bytes(b"".join(lines))
    assert [op.index for op in read(tmp_path / "h")] == indexes


def test_a_bad_line_is_reported_with_file_and_line(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A text is the line; an object has the fields that are changed, or removed (null)."""
    def read_with(bad: str | dict[str, object]) -> None:
        if isinstance(bad, dict):
            changed = {**orjson.loads(GOOD), **bad}
            bad = orjson.dumps({key: value for key, value in changed.items() if value is not None}).decode()
        path = tmp_path / "history.jsonl"
        path.write_bytes(GOOD + f"{bad}\n".encode() + GOOD)
        reported: list[str] = []
        assert len(list(read(path, on_bad=reported.append))) == 2
        assert len(reported) == 1
        list(read(path))

    refused_as_written("history.jsonl", read_with, FloodmarkError, request, f"{tmp_path}/")

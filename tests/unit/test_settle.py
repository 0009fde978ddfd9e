"""Settling and final reads: when they are done or given up, what is reported (a look: golden/states.txt)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jumping_clock import run_with_jumps
from looks import SPEC, look

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.history import Recorder, read
from floodmark.harness.op import Intent, LogOffset, Outcome, Read, Type
from floodmark.harness.phases.end_phases import Reach, read_all, reading_text, settle
from floodmark.harness.pipeline import progress_line
from floodmark.harness.runner import Progress
from floodmark.harness.schedule.views import View
from floodmark.workloads.log import send

# -- final reads --------------------------------------------------------------------------------------------


class Log:
    """A workload over one log from `start` to `end`, whose readers get the records from `first` up to
    `given`, then nothing, or an error."""

    def __init__(self, *, end: int | None, given: int, start: int = 0, first: int | None = None,
                 error: str | None = None) -> None:
        self.end, self.given, self.start, self.error = end, given, start, error
        self.first = start if first is None else first

    def final_session(self, process: int) -> Any:
        return Reader(self)


class Reader:
    over = False

    def __init__(self, log: Log) -> None:
        self.log, self.at = log, 0

    async def apply(self, intent: Intent) -> Outcome:
        await asyncio.sleep(0.001)  # as a response over the network takes
        match intent.f:
            case "assign":
                return Outcome(type=Type.OK, partitions=intent.partitions)
            case "list_offsets" if self.log.end is None:
                return Outcome(type=Type.FAIL, error="LEADER_NOT_AVAILABLE")
            case "list_offsets":
                return Outcome(type=Type.OK, offsets=(LogOffset(0, self.log.end),),
                               starts=(LogOffset(0, self.log.start),))
        self.at = max(self.at if intent.offset is None else intent.offset, self.log.first)
        at, self.at = self.at, min(self.at + 1, max(self.at, self.log.given))
        if at == self.at and self.log.error is not None:
            return Outcome(type=Type.FAIL, error=self.log.error)
        reads = (Read(partition=0, offset=at, value=at),) if at < self.at else ()
        return Outcome(type=Type.OK, reads=reads)

    async def close(self) -> None:
        pass


def final_reads(tmp_path: Path, log: Any, *, timeout_s: float = 60.0, **limits: float
                ) -> tuple[dict[str, Any], dict[int, Reach]]:
    recorder = Recorder(tmp_path / "history.jsonl")
    recorder.begin()
    reaches: dict[int, Reach] = {}
    reported = run_with_jumps(read_all(log, recorder, [SPEC], timeout_s, reaches=reaches, **limits))
    recorder.close()
    return dict(reported), reaches


@pytest.mark.parametrize(("log", "offsets", "processes"), [
    (Log(end=5, given=5), [0, 1, 2, 3, 4], 1),
    (Log(end=9, given=9, start=4), [4, 5, 6, 7, 8], 1),
    (Log(end=0, given=0), [], 1),
    (Log(end=4, given=4, start=4), [], 1),
    (Log(end=9, given=9, first=6), [6, 7, 8, 6, 6], 3),  # is there really nothing before?
], ids=["whole", "begins above 0", "new", "deleted", "the first reader skips"])
def test_a_read_to_the_end_is_reported_with_nothing_lacking(
        tmp_path: Path, log: Log, offsets: list[int], processes: int) -> None:
    reported, _ = final_reads(tmp_path, log)
    assert reported == {"processes": [3_000_000 + at for at in range(processes)], "partitions": [0]}
    ops = list(read(tmp_path / "history.jsonl"))
    assert [one.offset for op in ops for one in op.reads or ()] == offsets
    assert {op.starts for op in ops if op.starts} == {(LogOffset(0, log.start),)}


@pytest.mark.parametrize(("log", "how_far"), [
    (Log(end=12, given=5, error="THROTTLING_QUOTA_EXCEEDED"), "at 5 of 12, without progress for 0.2 s"),
    (Log(end=None, given=5), "its end offset is unknown, without progress for 0.2 s"),
], ids=["short", "no-leader"])
def test_a_read_without_progress_is_given_up_and_reported(tmp_path: Path, log: Log, how_far: str) -> None:
    """Long before the time-out of all; the progress shows it meanwhile."""
    so_far = how_far.removesuffix(", without progress for 0.2 s")
    reported, reaches = final_reads(tmp_path, log, stall_s=0.2)
    assert (reported["partitions"], reported["lacking"]) == ([], {"0": how_far})
    assert reading_text(reaches) == f"partition 0 {so_far}"
    shown = progress_line(Progress(phase="read", elapsed_s=33.0, ok=1, fail=0, info=0, ops_per_s=2.0,
                                   in_force=(), reading=reading_text(reaches)))
    assert shown.endswith(f"2 op/s  partition 0 {so_far}")
    assert list(read(tmp_path / "history.jsonl"))  # what was read counts


def test_three_readers_that_are_answered_with_nothing_have_read_to_the_end(tmp_path: Path) -> None:
    reported, _ = final_reads(tmp_path, Log(end=12, given=5), stall_s=3.0)
    assert (reported["partitions"], "lacking" in reported) == ([0], False)
    assert len(reported["processes"]) >= 3


def test_a_slow_read_with_progress_is_not_given_up_before_its_timeout(tmp_path: Path) -> None:
    """1000 records, each a poll, over a longer time than the one allowed without progress."""
    (tmp_path / "whole").mkdir()
    reported, _ = final_reads(tmp_path / "whole", Log(end=1000, given=1000), stall_s=0.5)
    assert reported["partitions"] == [0]
    reported, _ = final_reads(tmp_path, Log(end=10**9, given=10**9), stall_s=60.0, timeout_s=0.2)
    assert reported["partitions"] == []
    assert reported["lacking"]["0"].endswith("of 1000000000 after 0.2 s")


# -- the controller is away -------------------------------------------------------------------------------


class Away:
    """A cluster, and its workload: the controller answers from the n-th look on, and sends are acked half a
    second later."""

    over = False

    def __init__(self, *, looks_away: int) -> None:
        self.looks_away, self.looks = looks_away, 0

    async def observe(self) -> View:
        self.looks += 1
        return look() if self.looks > self.looks_away else replace(look(), partitions={})

    def probe(self, partition: int) -> Intent:
        return send(partition, [1])

    def final_session(self, process: int) -> Any:
        return self

    async def apply(self, intent: Intent) -> Outcome:
        await asyncio.sleep(0.01)
        acks = self.looks > self.looks_away + 5
        return Outcome(type=Type.OK if acks else Type.FAIL, sends=intent.sends)

    async def close(self) -> None:
        pass


def settled_in_a_second(tmp_path: Path, cluster: Any) -> dict[str, Any]:
    recorder = Recorder(tmp_path / "history.jsonl")
    recorder.begin()
    return run_with_jumps(settle(cluster, cluster, recorder, [SPEC], 1.0))


@pytest.mark.parametrize(("looks_away", "settles"), [(0, True), (7, True), (100, False)])
def test_the_time_counts_from_the_controllers_return(tmp_path: Path, looks_away: int, settles: bool) -> None:
    """One second: a controller that answers after 0.7 s leaves a whole one; one that stays away does not."""
    settled = settled_in_a_second(tmp_path, Away(looks_away=looks_away))
    assert (settled["why"] is None, settled["no_leader"], settled["no_ack"]) == (
        settles, [], [] if settles else [0])


# -- only the wire is seen --------------------------------------------------------------------------------

ALL = frozenset({"n1", "n2", "n3"})


class Wire(Away):
    """A cluster of which only the wire is seen, and which never acks. Each look's nodes that answer, and that
    do not know our topics; the last one stays. A look without anybody is one that fails."""

    def __init__(self, *seen: tuple[frozenset[str], frozenset[str]]) -> None:
        super().__init__(looks_away=10**9)
        self.seen = seen

    async def observe(self) -> View:
        answering, unknown = self.seen[min(self.looks, len(self.seen) - 1)]
        self.looks += 1
        if not answering:
            raise FloodmarkError("nobody answers")
        return replace(look(), partitions={}, answering=answering, topic_unknown=unknown)


@pytest.mark.parametrize(("seen", "said"), [
    (((ALL, ALL),), (ALL, ALL)),
    (((ALL - {"n3"}, frozenset()), (ALL, ALL)), (ALL, ALL)),  # each node's time counts from its first answer
    (((ALL, ALL), (ALL - {"n2"}, ALL - {"n2"}), (ALL, ALL)), (ALL - {"n2"}, ALL - {"n2"})),
    (((ALL, ALL), (ALL, ALL - {"n1"})), (ALL, ALL - {"n1"})),
    (((ALL, ALL), (frozenset(), frozenset()), (ALL, ALL)), (frozenset(), frozenset())),
    ((*[(frozenset({"n1"}), frozenset({"n1"}))] * 13, (ALL, ALL)), ({"n1"}, {"n1"})),  # two came too late
], ids=["throughout", "late", "once-silent", "once-known", "once-nobody", "too-late"])
def test_who_answered_throughout(tmp_path: Path, seen: Any, said: Any) -> None:
    about = settled_in_a_second(tmp_path, Wire(*seen))
    assert (about["answering"], about["topic_unknown"]) == tuple(sorted(nodes) for nodes in said)


def test_a_system_that_shows_more_says_nothing_of_that(tmp_path: Path) -> None:
    about = settled_in_a_second(tmp_path, Away(looks_away=100))
    assert not {"answering", "topic_unknown"} & about.keys()

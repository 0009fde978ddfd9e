"""One broker in a container on a real engine: its disk, its clock and its memory go wrong.

The records left by a power cut are counted on both sides; the broker reports full, failing, read-only and
damaged disks as such; clocks are seen in what the broker writes, memory in the kernel's numbers.
"""

import asyncio
import datetime
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_stage import WAIT_S, Stage, begun
from confluent_kafka import Producer

from floodmark.harness.cluster.containers import disks
from floodmark.harness.cluster.containers.disks import Volumes
from floodmark.harness.cluster.containers.place import HIGHEST, WHY
from floodmark.harness.cluster.log_extents import log_extents
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER

pytestmark = pytest.mark.docker

HOUR_MS = 3_600_000
NEAR_S = 60.0  # how close a clock must be: far from an hour, with time for a busy machine
SPECS = (PartitionSpec(key=0, topic="log", partition=0, replicas=("n1",)),)
FOURS = {"flush.messages": "4"}  # of ten records sent one by one the broker fsyncs eight
# Appends lines, the first so many with an fsync after every tenth; prints how many of both it has written.
WRITER = """
import os, sys
synced, unsynced = map(int, sys.argv[1:])
file = os.open("/data/probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for number in range(synced):
    os.write(file, b"synced %06d\\n" % number)
    if number % 10 == 9:
        os.fsync(file)
for number in range(unsynced):
    os.write(file, b"lost   %06d\\n" % number)
print(synced, unsynced)
"""


@contextmanager
def one_broker(folder: Path) -> Iterator[Stage]:
    with begun(Stage(folder / "run", 1, **FOURS), SPECS) as stage:
        yield stage


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with one_broker(tmp_path_factory.mktemp("broker")) as stage:
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Stage:
    """One broker that runs, on an empty disk; nothing is known of it yet."""
    shared.play(anew(shared))
    return shared


async def anew(stage: Stage) -> None:
    assert await stage.cluster.mend() == []
    if await leo(stage):
        await stage.cluster.wipe("n1")
        await stage.cluster.start_node("n1")
        assert await leo(stage) == 0
    for seen in (stage.place.deaths, stage.place.faulted_exits, stage.lab.past_faults):
        seen.clear()  # type: ignore[attr-defined]


async def leo(stage: Stage) -> int:
    return (await stage.all_in_sync()).replicas["n1", 0].leo


async def ends_of_writing(stage: Stage) -> None:
    """Sends to n1 until it has ended."""
    host, port = stage.cluster.addresses()["n1"]
    producer = Producer({"bootstrap.servers": f"{host}:{port}", "acks": "1", "log_level": 0})
    deadline = time.monotonic() + WAIT_S
    while stage.place.lives("n1"):
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for n1 to end of writing"
        producer.produce("log", bytes(900_000), partition=0)
        await asyncio.to_thread(producer.flush, 0.1)
    producer.purge()
    producer.flush(0)


def ahead_s(on: Stage, name: str) -> float:
    """How far ahead the clock was that stamped the last line of its log; now, if the line is new."""
    text = (on.folder / "work" / f"{name}.log").read_text()
    stamps = re.findall(r"^(\d{4}-\S+) ", text, re.MULTILINE)
    return datetime.datetime.fromisoformat(f"{stamps[-1]}+00:00").timestamp() - time.time()


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        await asyncio.sleep(0.02)


async def says_something(on: Stage, name: str) -> None:
    """Makes the living broker write a line: it learns that its session has ended."""
    log = on.folder / "work" / f"{name}.log"
    before = log.stat().st_size
    await on.cluster.runs.expire("n1")
    await until(lambda: log.stat().st_size > before, f"{name} to write into its log")


async def kernels(on: Stage, *files: str) -> str:
    """The first of these files on n1's memory that exists: of control groups v1, or v2."""
    cat = f"cd /sys/fs/cgroup; for file in {' '.join(files)}; do cat $file 2>/dev/null && exit; done"
    return (await on.lab.exec(on.lab.broker("n1"), ["sh", "-c", cat])).strip()


async def kernel_limit(on: Stage) -> int:
    limit = await kernels(on, "memory/memory.limit_in_bytes", "memory.max")
    return HIGHEST if limit == "max" else int(limit)


# -- power cuts -------------------------------------------------------------------------------------------


async def test_a_power_cut_keeps_exactly_what_was_fsynced(stage: Stage) -> None:
    """A program's bytes, and the broker's records, by its own account of its fsyncs."""
    volumes = stage.place.disks
    assert volumes.own
    lab = stage.lab
    said = await lab.exec(lab.broker("n1"), ["python3", "-c", WRITER, "1000", "500"], user=lab.user)
    assert said.split() == ["1000", "500"]
    await stage.write(10)

    report = await stage.cluster.power_cut("n1")

    assert report == {"keep": {0: 8}, "lost_records": 2, "how": "disk"}
    left_there = (await volumes.log_dir("n1") / "probe").read_bytes()
    # The last block may have its new size before its bytes: ext4 then shows zeros there.
    assert left_there.rstrip(b"\0") == b"".join(b"synced %06d\n" % number for number in range(1000))
    await stage.cluster.start_node("n1")
    assert await leo(stage) == 8

    assert (await stage.cluster.power_cut("n1"))["lost_records"] == 0, "what was left is durable"
    await stage.cluster.start_node("n1")
    await stage.write(3)
    assert await leo(stage) == 11


async def test_a_power_cut_may_spare_what_was_not_fsynced_and_finds_a_dead_broker(
        stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Then it is done on files: a kernel cannot be asked what to keep, and it has synced what a dead broker
    left. It is the same if a disk cannot be cut off."""
    await stage.write(10)
    assert await stage.cluster.power_cut("n1", keep={0: 9}) == {
        "keep": {0: 9}, "lost_records": 1, "how": "files"}
    await stage.cluster.start_node("n1")
    assert await leo(stage) == 9

    await stage.write(3)  # 12, of which 9 are durable: the fourth would have been fsynced with these
    await stage.cluster.kill("n1")
    assert await stage.cluster.power_cut("n1") == {"keep": {0: 9}, "lost_records": 3, "how": "files"}
    await stage.cluster.start_node("n1")
    await stage.write(1)
    assert await leo(stage) == 10

    monkeypatch.setitem(stage.place.disks._loops.devices, "n1", "/dev/null")  # which cannot be shut down
    assert await stage.cluster.power_cut("n1") == {"keep": {0: 9}, "lost_records": 1, "how": "files"}
    assert "cannot be shut down, its power cut is simulated on files" in capsys.readouterr().err


def test_without_disks_of_their_own_brokers_lose_the_same_and_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(disks, "DISK_BYTES", 4096)  # no file system is so small

    async def story(stage: Stage, volumes: Volumes) -> None:
        await stage.write(10)
        assert await stage.cluster.power_cut("n1") == {"keep": {0: 8}, "lost_records": 2, "how": "files"}
        await stage.cluster.start_node("n1")
        assert await leo(stage) == 8
        with pytest.raises(FloodmarkError, match="cannot be full on this engine; it can be corrupt, trunc"):
            await volumes.harm("n1", "full")
        report = await volumes.harm("n1", "truncated")
        end = log_extents(stage.folder / "nodes" / "n1")["log-0"][1]  # of the copy in which it was found
        file = f"log-0/{0:020d}.log"
        assert report == {"lost_records": 1, "log": "log-0", "file": file, "position": end - 7}

    with one_broker(tmp_path) as stage:
        assert not stage.place.disks.own
        assert "have no disks of their own here, power cuts are simulated on files" in capsys.readouterr().err
        stage.play(story(stage, stage.place.disks))


# -- bad disks --------------------------------------------------------------------------------------------


async def test_a_full_disk_ends_its_broker_and_keeps_what_it_had(stage: Stage) -> None:
    volumes = stage.place.disks
    await stage.write(10)
    assert await volumes.harm("n1", "full") == {"lost_records": 0}

    await ends_of_writing(stage)
    assert "No space left on device" in stage.place.last_words("n1")
    copied = await volumes.log_dir("n1")
    assert sum(path.stat().st_size for path in copied.rglob("*")) < 10 << 20, "without what fills it"
    held = log_extents(copied)["log-0"][0]
    assert held >= 10

    assert await stage.cluster.mend() == []
    assert stage.cluster.died() == []
    assert await leo(stage) >= held
    assert len(await stage.write(5)) == 5


async def test_a_failing_disk_and_a_read_only_one_lose_what_was_not_fsynced(stage: Stage) -> None:
    """One broker notices it itself, the repair ends the other; for us neither has died by itself."""
    volumes = stage.place.disks
    await stage.write(10)
    assert await volumes.harm("n1", "failing") == {"lost_records": 2, "how": "disk"}
    await ends_of_writing(stage)
    assert "Input/output error" in stage.place.last_words("n1")
    await volumes.repair("n1")
    await stage.cluster.start_node("n1")
    assert await leo(stage) == 8

    await stage.write(2)
    await stage.place.pause("n1")  # so that it does not notice
    assert await volumes.harm("n1", "read-only") == {"lost_records": 2, "how": "disk"}
    (wrong,) = await volumes._loops.check_mounts()
    assert wrong.startswith("the disk of n1, /dev/loop")
    await volumes.repair("n1")
    assert not stage.place.lives("n1")
    await stage.cluster.start_node("n1")
    assert await leo(stage) == 8
    assert await volumes.mend() == []
    await stage.write(1)
    assert stage.cluster.died() == []
    assert stage.lab.excused == set()


# -- damage, wiping, reading ------------------------------------------------------------------------------


async def test_a_damaged_tail_is_cut_by_the_broker_and_a_wiped_disk_is_empty(stage: Stage) -> None:
    volumes = stage.place.disks
    await stage.write(10)
    report = await volumes.harm("n1", "corrupt")
    assert (report["lost_records"], report["log"]) == (1, "log-0")
    assert not stage.place.lives("n1")
    await stage.cluster.start_node("n1")
    assert await leo(stage) == 9, "its checksum no longer fits"

    assert (await volumes.harm("n1", "truncated"))["lost_records"] == 1
    await stage.cluster.start_node("n1")
    assert await leo(stage) == 8, "its end is gone"

    assert await stage.cluster.wipe("n1") == {"lost_records": 8}
    await stage.cluster.start_node("n1")
    assert await leo(stage) == 0
    await stage.write(2)
    assert await leo(stage) == 2


async def test_logs_are_read_of_brokers_that_run_stand_still_or_are_dead(stage: Stage) -> None:
    await stage.write(10)
    (stage.folder / "nodes" / "n1" / "stale").touch()
    runs = log_extents(await stage.place.log_dir("n1"))
    assert not (stage.folder / "nodes" / "n1" / "stale").exists()
    await stage.place.pause("n1")
    paused = log_extents(await stage.place.log_dir("n1"))
    await stage.cluster.kill("n1")
    dead = log_extents(await stage.place.log_dir("n1"))
    assert runs == paused == dead
    assert dead["log-0"][0] == 10


# -- clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset_ms", [3 * HOUR_MS, -3 * HOUR_MS])
async def test_a_living_brokers_clock_jumps_and_only_that(stage: Stage, offset_ms: int) -> None:
    """Its log is stamped with the wrong time at once; its trace, by the monotonic clock, is not; no broker is
    fenced for it; a restart does not mend it, and mending does."""
    assert abs(ahead_s(stage, "n1")) < NEAR_S
    await stage.place.clocks.bump("n1", offset_ms)
    await says_something(stage, "n1")
    assert ahead_s(stage, "n1") == pytest.approx(offset_ms / 1000, abs=NEAR_S)
    assert abs(ahead_s(stage, CONTROLLER)) < NEAR_S

    times = [int(found) for found in re.findall(
        r'"time":(\d+)', (stage.folder / "work" / "n1.trace").read_text())]
    assert times == sorted(times)
    assert time.monotonic_ns() - times[-1] < NEAR_S * 1e9

    await stage.cluster.kill("n1")
    await stage.cluster.start_node("n1")
    assert ahead_s(stage, "n1") == pytest.approx(offset_ms / 1000, abs=NEAR_S)

    assert await stage.place.clocks.mend() == []
    await says_something(stage, "n1")
    assert abs(ahead_s(stage, "n1")) < NEAR_S
    assert stage.cluster.died() == []


async def test_the_controllers_clock_jumps_and_no_session_ends(stage: Stage) -> None:
    await stage.place.clocks.bump(CONTROLLER, HOUR_MS)
    await asyncio.sleep(1.0)  # some heartbeats
    assert (await stage.cluster.observe()).unfenced == {"n1"}
    await says_something(stage, CONTROLLER)
    assert ahead_s(stage, CONTROLLER) == pytest.approx(3600, abs=NEAR_S)


async def lazy(*_: object) -> None:
    """Mends nothing."""


async def test_mending_looks_at_the_clock_itself(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the clock is still off, mending reports it; for a dead broker, that it will be off."""
    await stage.place.clocks.bump("n1", HOUR_MS)
    monkeypatch.setattr(stage.place.clocks, "bump", lazy)
    (line,) = await stage.place.clocks.mend()
    assert re.fullmatch(r"the clock of n1 is off by 3[56]\d{5} ms", line)
    await stage.cluster.kill("n1")
    assert await stage.place.clocks.mend() == ["the clock of n1 is off by 3600000 ms"]
    monkeypatch.undo()
    assert await stage.place.clocks.mend() == []


# -- memory ----------------------------------------------------------------------------------------------


async def test_a_limit_that_suffices_is_in_force_and_lifted(
        stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The excuse ends with it; a limit that is left after mending is reported; one that no engine accepts is
    refused before it is set."""
    before = await kernel_limit(stage)
    with pytest.raises(FloodmarkError, match="n1 cannot be limited to 2 MB: 6 MB is the least"):
        await stage.place.limits.limit("n1", 2)
    await stage.place.limits.limit("n1", 256)
    assert await kernel_limit(stage) == 256 << 20
    assert stage.lab.excused == {("n1", WHY)}
    monkeypatch.setattr(stage.place.limits, "_free", lazy)
    assert await stage.place.limits.mend() == ["the memory of n1 is limited to 256 MB"]
    monkeypatch.undo()
    assert await stage.place.limits.mend() == []
    assert await kernel_limit(stage) == before
    assert stage.lab.excused == set()
    stage.lab.client.api.kill(stage.lab.broker("n1"), "SIGABRT")
    await until(lambda: not stage.place.lives("n1"), "n1 to end")
    assert stage.cluster.died() == ["n1"]
    assert stage.place.faulted_exits == []


async def test_the_kernel_ends_a_broker_that_comes_to_need_more(stage: Stage) -> None:
    """No one sends a signal: what it must take in does not fit."""
    usage = int(await kernels(stage, "memory/memory.usage_in_bytes", "memory.current"))
    await stage.place.limits.limit("n1", (usage >> 20) + 2)
    assert stage.place.lives("n1")
    await ends_of_writing(stage)
    assert [(one.node, one.name) for one in stage.place.faulted_exits] == [("n1", WHY)]
    assert stage.cluster.died() == []
    assert "lack of memory" in stage.place.last_words("n1")

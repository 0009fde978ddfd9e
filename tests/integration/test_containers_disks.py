"""Brokers' disks in containers, on a real engine.

The records left by a power cut are counted on both sides; the broker reports full, failing, read-only and
damaged disks as such, and nothing is left of them.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stage import WAIT_S, Stage, stage_of_one
from confluent_kafka import Producer

from floodmark.harness.cluster.containers import disks
from floodmark.harness.cluster.containers.disks import Volumes
from floodmark.harness.cluster.log_extents import log_extents
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec

pytestmark = pytest.mark.docker

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


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_of_one(tmp_path, SPECS, **FOURS) as one:
        yield one


async def leo(stage: Stage) -> int:
    return (await stage.all_in_sync()).replicas["n1", 0].leo


async def ends_of_writing(stage: Stage) -> None:
    """Sends to n1 until the writes end it."""
    host, port = stage.cluster.addresses()["n1"]
    producer = Producer({"bootstrap.servers": f"{host}:{port}", "acks": "1", "log_level": 0})
    deadline = time.monotonic() + WAIT_S
    while stage.place.lives("n1"):
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for n1 to end of writing"
        producer.produce("log", bytes(10_000), partition=0)
        await asyncio.to_thread(producer.flush, 0.1)
    producer.purge()
    producer.flush(0)


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


def test_a_power_cut_may_spare_what_was_not_fsynced_and_finds_a_dead_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it is done on files: a kernel cannot be asked what to keep, and it has synced what a dead broker
    left. It is the same if a disk cannot be cut off."""

    async def story(stage: Stage, volumes: Volumes) -> None:
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

        volumes._loops.devices["n1"] = "/dev/null"  # this one cannot be shut down
        assert await stage.cluster.power_cut("n1") == {"keep": {0: 9}, "lost_records": 1, "how": "files"}
        assert "cannot be shut down, its power cut is simulated on files" in capsys.readouterr().err

    with stage_of_one(tmp_path, SPECS, **FOURS) as stage:
        stage.play(story(stage, stage.place.disks))


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

    with stage_of_one(tmp_path, SPECS, **FOURS) as stage:
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

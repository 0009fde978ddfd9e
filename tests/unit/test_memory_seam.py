"""The cluster in memory behind its seam: what each fault does to it, and which faults it refuses."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from floodmark.harness import catalog
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.cluster.memory.cluster import MemoryCluster, memory_cluster
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import UnfitCluster, UsageError
from floodmark.harness.op import Send, Type
from floodmark.harness.protocols import CLIENTS, CONTROLLER, LogClient, PartitionSpec
from floodmark.harness.schedule.entry import Entry

KEY = 7
SPEC = PartitionSpec(key=KEY, topic="log", partition=0, replicas=("n1", "n2", "n3"))
RUN = "0123456789abcdef"
Story = Callable[[MemoryCluster, LogClient], Awaitable[Any]]


def made(folder: Path, **config: str) -> MemoryCluster:
    return memory_cluster(folder, 3, rules="kip-320", bugs=(), config=config, links="direct")


def run_story(folder: Path, story: Story, **config: str) -> Any:
    """The result of a story with a cluster that has one partition, led by n1, and a client."""

    async def run() -> Any:
        cluster = made(folder, **config)
        await cluster.start()
        await cluster.create([SPEC])
        settings = ClientSettings(run_id=RUN, keys={KEY: (SPEC.topic, 0)}, pause_s=(0.0, 0.0))
        try:
            return await story(cluster, cluster.client(settings, Random(1)))
        finally:
            await cluster.stop()

    return asyncio.run(run())


def one(value: int) -> tuple[Send, ...]:
    return (Send(partition=KEY, value=value),)


async def led(cluster: MemoryCluster, node: str) -> None:
    async def not_led() -> str | None:
        truth = (await cluster.observe()).partitions[KEY]
        return None if truth.leader == node else f"{truth}"

    await wait_until(not_led, f"{node} to lead", 5.0)


def test_an_acked_record_is_in_every_log_and_is_read(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        assert (await client.send(one(41))).type is Type.OK
        client.assign([KEY])
        read = await client.poll()
        assert [(each.offset, each.value) for each in read.reads] == [(0, 41)]
        assert (await client.list_offsets([KEY])).offsets == ((KEY, 1),)
        rows = {node: list(cluster.log_rows(node, RUN)) for node in cluster.nodes}
        assert {(each["offset"], each["value"]) for row in rows.values() for each in row} == {(0, 41)}
        assert len({row[0]["crc"] for row in rows.values()}) == 1

    run_story(tmp_path, story)


def test_a_paused_node_does_not_answer_until_it_is_resumed(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        assert (await client.send(one(1))).type is Type.OK
        await cluster.pause("n1")
        view = await cluster.observe()
        assert ("n1", KEY) not in view.replicas
        assert "n1" in view.running
        send = asyncio.create_task(client.send(one(2), patience_s=8.0))
        await asyncio.sleep(0.05)
        assert not send.done()
        await cluster.resume("n1")
        assert (await send).type is Type.OK

    run_story(tmp_path, story)


def test_a_cut_holds_messages_and_the_heal_delivers_them(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        assert (await client.send(one(1))).type is Type.OK
        await cluster.cut({"n1": [CLIENTS]})
        send = asyncio.create_task(client.send(one(2), patience_s=8.0))
        await asyncio.sleep(0.05)
        assert not send.done()
        await cluster.heal()
        assert (await send).type is Type.OK

    run_story(tmp_path, story)


def test_a_request_broken_by_a_reset_may_have_arrived(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        assert (await client.send(one(1))).type is Type.OK
        await cluster.pause("n1")
        send = asyncio.create_task(client.send(one(2)))
        await asyncio.sleep(0.05)
        assert await cluster.reset({"n1": [CLIENTS]}) == 1
        assert (await send).type is Type.INFO

    run_story(tmp_path, story)


def test_a_killed_node_refuses_at_once_and_loses_leadership(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        assert (await client.send(one(1))).type is Type.OK
        await cluster.kill("n1")
        assert (await client.send(one(2), node="n1")).type is Type.FAIL
        await cluster.expire("n1")
        await led(cluster, "n2")
        assert (await client.send(one(3))).type is Type.OK
        assert cluster.died() == []

    run_story(tmp_path, story)


def test_a_power_cut_keeps_what_is_given_and_a_wipe_nothing(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        for value in range(4):
            assert (await client.send(one(value))).type is Type.OK
        assert await cluster.power_cut("n3", keep={KEY: 2}) == {"keep": {KEY: 2}, "lost_records": 2}
        assert cluster.log_state("n3", KEY).leo == 2
        assert await cluster.wipe("n3") == {"lost_records": 2}
        assert list(cluster.log_rows("n3", RUN)) == []
        await cluster.start_node("n3")

        async def behind() -> str | None:
            return None if len(list(cluster.log_rows("n3", RUN))) == 4 else "n3 has less than n1"

        await wait_until(behind, "n3 to have fetched everything", 5.0)

    run_story(tmp_path, story)


def test_a_node_flushes_what_it_had_only_written_when_it_was_killed(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        for value in range(4):
            assert (await client.send(one(value))).type is Type.OK
        await cluster.kill("n3")
        cluster._members["n3"].disk.logs["log", 0].recovery_point = 3  # as between the write and the fsync
        await cluster.start_node("n3")

        async def apart() -> str | None:
            return None if "n3" in (await cluster.observe()).partitions[KEY].isr else "n3 is not in the ISR"

        await wait_until(apart, "n3 to be in the ISR", 5.0)
        assert await cluster.power_cut("n3") == {"keep": {KEY: 4}, "lost_records": 0}

    run_story(tmp_path, story, **{"flush.messages": "1"})


def test_an_orderly_stop_hands_leadership_over_and_is_clean(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        assert (await client.send(one(1))).type is Type.OK
        await cluster.stop_node("n1")
        await led(cluster, "n2")
        await cluster.start_node("n1")
        assert (await cluster.observe()).replicas["n1", KEY].clean

    run_story(tmp_path, story)


def test_a_failpoint_holds_a_step_and_its_node_continues(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        await cluster.arm("n1", {"name": "L.acked", "action": "hold", "partition": KEY})
        assert (await client.send(one(1))).type is Type.OK
        (met,) = await cluster.met("n1")
        assert (met.name, met.action, met.partition, met.offset) == ("L.acked", "hold", KEY, 0)
        assert await cluster.release("n1", {"name": "L.acked"}) == 1
        assert (await client.send(one(2))).type is Type.OK

    run_story(tmp_path, story)


def test_an_armed_crash_is_no_death_and_a_broken_invariant_is(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        await cluster.arm("n1", {"name": "L.acked", "action": "crash"})
        await client.send(one(1))
        assert [met.node for met in cluster.crashes()] == ["n1"]
        assert cluster.died() == []
        cluster._failed("n2", AssertionError("a leader's HW fell"))
        assert cluster.died() == ["n2"]
        assert "a leader's HW fell" in cluster.died_words()["n2"]

    run_story(tmp_path, story)


def test_a_killed_controller_does_not_answer_and_restarts_with_its_journal(tmp_path: Path) -> None:
    async def story(cluster: MemoryCluster, client: LogClient) -> None:
        before = (await cluster.observe()).partitions
        await cluster.kill(CONTROLLER)
        assert (await cluster.observe()).partitions == {}
        await cluster.start_node(CONTROLLER)
        assert (await cluster.observe()).partitions == before
        assert (await client.send(one(1))).type is Type.OK

    run_story(tmp_path, story)


@pytest.mark.parametrize("entry", [
    Entry(f="packet", nodes=("n1",), args={"loss": 0.1}),
    Entry(f="clock", nodes=("n1",), args={"offset_ms": 5}),
    Entry(f="memory", nodes=("n1",), args={"limit_mb": 64}),
    Entry(f="disk", nodes=("n1",), args={"kind": "corrupt"}),
    Entry(f="bad_disk", nodes=("n1",), args={"kind": "full"}),
], ids=lambda entry: entry.f)  # fmt: skip
def test_an_unsupported_fault_is_refused_with_the_reason(entry: Entry, tmp_path: Path) -> None:
    runner = catalog.schedule_runner(made(tmp_path), [SPEC])

    with pytest.raises(UnfitCluster, match="the cluster in memory has no"):
        runner.refuse([entry])


def test_unknown_bugs_and_ports_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no bug 'nonsense'"):
        memory_cluster(tmp_path, 3, rules="kip-320", bugs=("nonsense",), config={}, links="direct")
    with pytest.raises(UsageError, match="no ports"):
        memory_cluster(
            tmp_path, 3, rules="kip-320", bugs=(), config={}, links="direct", first_port=9092
        )

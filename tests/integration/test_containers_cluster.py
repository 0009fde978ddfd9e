"""The cluster in containers: every ability of its hosts once, seen in the brokers' and the engine's answers.

The stories of the module's one cluster leave it complete for the next one; other tests have a cluster of
their own.
"""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import cluster_stories
import pytest
from cluster_stories import NODES, SPECS, isr
from container_stage import LONG, Stage, left

from floodmark.harness import logdir
from floodmark.harness.cluster.containers import place as containers_place
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CONTROLLER

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    one = Stage(tmp_path_factory.mktemp("containers") / "run", **LONG)
    try:
        one.play(one.begin())
        yield one
    finally:
        one.close()


async def test_a_started_cluster_is_led_and_every_replica_is_seen(stage: Stage) -> None:
    """The preferred leader leads, as assigned; the processes write into the run's folder."""
    await cluster_stories.a_started_cluster_is_led_and_every_replica_is_seen(stage.cluster)
    for name in (*NODES, CONTROLLER):
        assert "started" in (stage.folder / "work" / f"{name}.log").read_text()
        assert (stage.folder / "work" / f"{name}.trace").stat().st_size > 0


def test_a_broker_has_no_rights_and_its_ports_are_on_loopback_alone(stage: Stage) -> None:
    """Only the net container may change its network; all processes are in the keeper's namespace."""
    lab = stage.lab
    for name in (*NODES, CONTROLLER):
        broker, net = stage.of_engine(lab.broker(name)), stage.of_engine(lab.net(name))
        assert broker["HostConfig"]["CapDrop"] == ["ALL"]
        assert not broker["HostConfig"]["CapAdd"]
        assert broker["Config"]["User"].split(":")[0] not in ("", "0")
        assert broker["HostConfig"]["NetworkMode"] == f"container:{net['Id']}"
        assert net["HostConfig"]["CapAdd"] == ["NET_ADMIN"]
        bindings = [one for bound in net["NetworkSettings"]["Ports"].values() for one in bound or ()]
        assert {one["HostIp"] for one in bindings} == {"127.0.0.1"}
        assert len(bindings) == 2
        keeper = f"container:{stage.of_engine(lab.keeper)['Id']}"
        assert broker["HostConfig"]["PidMode"] == net["HostConfig"]["PidMode"] == keeper


async def test_a_control_socket_is_for_the_engines_machine_alone(stage: Stage) -> None:
    """It listens on the container's one address; it hangs up on another container of the cluster."""
    lab = stage.lab
    dial = (
        "import socket, sys\n"
        "with socket.create_connection((sys.argv[1], 9090), 10) as connection:\n"
        "    try: print(len(connection.recv(9)))\n"
        "    except ConnectionError: print(0)\n"
    )
    shut = "import socket; s = socket.socket(); s.settimeout(10); print(s.connect_ex(('127.0.0.1', 9090)))"
    await stage.all_in_sync()  # the harness gets answers
    for name in ("n1", CONTROLLER):
        output = await lab.exec(lab.net("n2"), ["python", "-c", dial, lab.address(name)])
        assert output.strip() == "0"
        refused = await lab.exec(lab.net(name), ["python", "-c", shut])
        assert int(refused) == errno.ECONNREFUSED
        log = (stage.folder / "work" / f"{name}.log").read_text()
        assert f"control-refused peer={lab.address('n2')}:" in log


async def test_what_is_written_is_on_every_brokers_disk(stage: Stage) -> None:
    """Written by the client of record; read back by it, and from copies of running brokers' log
    directories."""
    await stage.as_in_the_beginning()
    values = await stage.write(20)
    assert await stage.read(len(values)) == values
    await stage.seen(lambda look: len({look.replicas[node, 0].leo for node in NODES}) == 1,
                     "all to have the records")
    for node in NODES:
        folder = await stage.place.log_dir(node)
        rows = logdir.dump(folder, SPECS, "0" * 16, node, running=True)
        assert [row["value"] for row in rows if row["partition"] == 0] == values
    assert len(values) == 20


async def test_an_expired_leader_is_succeeded_and_a_dead_one_comes_back(stage: Stage) -> None:
    """Killed means gone: the engine has no process of it any more."""
    one = stage.cluster
    await stage.as_in_the_beginning()
    await one.kill("n1")
    assert stage.of_engine(stage.lab.broker("n1"))["State"]["Running"] is False
    await one.start_node("n1")
    with pytest.raises(FloodmarkError, match="cannot start n1: it is running"):
        await stage.place.spawn("n1")
    await stage.as_in_the_beginning()
    await cluster_stories.an_expired_leader_is_succeeded_and_a_dead_one_comes_back(one)


def test_an_orderly_stop_hands_leadership_over(stage: Stage) -> None:
    stage.begin_again(cluster_stories.an_orderly_stop_hands_leadership_over)


async def test_a_paused_broker_stands_still_and_resumes(
        stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says so, here and in the keeper; it runs, shows no replicas, leaves the ISR, and comes back.
    A paused broker can be killed."""
    one = stage.cluster
    await stage.as_in_the_beginning()
    await one.place.pause("n2")
    assert await stage.place.is_stopped("n2")
    assert not await stage.place.is_stopped("n1")
    with monkeypatch.context() as elsewhere:  # as if the harness did not see the engine's processes
        elsewhere.setattr(containers_place, "Path", lambda path: Path("/nowhere") / path.lstrip("/"))
        assert await stage.place.is_stopped("n2")
        assert not await stage.place.is_stopped("n1")
    await one.place.pause("n2")
    await stage.write(3)
    look = await stage.seen(lambda look: isr(look) == {"n1", "n3"}, "n2 to leave the ISR")
    assert "n2" in look.running
    assert ("n2", 0) not in look.replicas
    with pytest.raises(FloodmarkError, match="n2 is paused and cannot be stopped"):
        await one.stop_node("n2")
    await one.place.resume("n2")
    await one.place.resume("n2")
    assert not await stage.place.is_stopped("n2")
    assert ("n2", 0) in (await stage.all_in_sync()).replicas

    await one.place.pause("n2")
    await one.kill("n2")
    assert not stage.of_engine(stage.lab.broker("n2"))["State"]["Running"]
    assert not stage.place.paused("n2")
    with pytest.raises(FloodmarkError, match="cannot pause n2: it is not running"):
        await one.place.pause("n2")
    await one.start_node("n2")
    await stage.all_in_sync()


async def test_who_ends_at_an_armed_failpoint_has_not_died_by_himself(stage: Stage) -> None:
    """Armed while up, and armed while down; both times the trace shows where it ended."""
    one = stage.cluster
    await stage.as_in_the_beginning()
    await one.runs.arm("n3", {"name": "F.appended", "action": "crash"})
    await stage.write(1)
    await stage.seen(lambda look: "n3" not in look.running, "n3 to end")
    await one.runs.arm("n3", {"name": "B.registered", "action": "crash"})
    await one.start_node("n3")
    await stage.seen(lambda look: "n3" not in look.running, "n3 to end at its start")
    assert [met.name for met in one.crashes()] == ["F.appended", "B.registered"]
    await one.start_node("n3")
    await stage.all_in_sync()
    assert one.died() == []


def test_mending_undoes_everything_and_leaves_nothing_behind(stage: Stage) -> None:
    stage.begin_again(cluster_stories.mending_undoes_everything_and_leaves_nothing_behind)


async def test_a_broker_that_ends_by_itself_is_reported_with_its_last_words(stage: Stage) -> None:
    """Here the engine aborts it, without a request of ours."""
    await stage.lab.call("abort n2", stage.lab.client.api.kill, stage.lab.broker("n2"), "SIGABRT")
    await stage.seen(lambda look: "n2" not in look.running, "n2 to end")
    assert stage.cluster.died() == ["n2"]
    log = (stage.folder / "work" / "n2.log").read_text().splitlines()
    assert log[-1] in stage.place.last_words("n2")
    await stage.cluster.start_node("n2")
    await stage.all_in_sync()


def test_a_freeze_holds_all_and_the_end_leaves_nothing(stage: Stage) -> None:
    """The last story: logs of frozen and dead brokers are read; then nothing of the run is on the engine."""

    async def story() -> None:
        one = stage.cluster
        await stage.as_in_the_beginning()
        look = await cluster_stories.a_freeze_stops_all_and_a_silent_broker_counts_as_not_running(one)
        for node in NODES:
            state = logdir.describe(await one.place.log_dir(node), SPECS[0], running=node != "n3")
            assert state.leo == look.replicas["n1", 0].leo
        await one.stop()
        await one.stop()

    run = stage.lab.run
    stage.play(story())
    assert left(run) == {}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("docker-")]

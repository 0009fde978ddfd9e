"""Clusters of real brokers, as processes on loopback and in containers: every ability of theirs once, seen
in the answers of brokers, kernel and engine.

All tests of one place share one cluster, whose sessions end only on request; each begins with all in sync
behind the preferred leaders, except after the last of a place, which freezes it.
"""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stage import LONG, NODES, SPECS, Stage, isr, left

from floodmark.harness import logdir
from floodmark.harness.cluster.containers import place as containers_place
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CONTROLLER

LOCAL = pytest.param("local", marks=pytest.mark.cluster)
CONTAINERS = pytest.param("containers", marks=pytest.mark.docker)
everywhere = pytest.mark.parametrize("stage", [LOCAL, CONTAINERS], indirect=True)
local = pytest.mark.parametrize("stage", [LOCAL], indirect=True)
containers = pytest.mark.parametrize("stage", [CONTAINERS], indirect=True)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    one = Stage(tmp_path_factory.mktemp(request.param) / "run", place=request.param, **LONG)
    try:
        one.play(one.begin())
        yield one
    finally:
        one.close()


@everywhere
async def test_a_started_cluster_is_led_and_every_replica_is_seen(stage: Stage) -> None:
    """The preferred leaders lead, as assigned; the processes write into the run's folder."""
    look = await stage.all_in_sync()
    assert look.unfenced == look.running == set(NODES)
    assert [look.partitions[spec.key].leader for spec in SPECS] == ["n1", "n2"]
    assert set(look.replicas) == {(node, key) for node in NODES for key in (0, 1)}
    assert stage.cluster.died() == []
    for name in (*NODES, CONTROLLER):
        assert "started" in (stage.folder / "work" / f"{name}.log").read_text()
        assert (stage.folder / "work" / f"{name}.trace").stat().st_size > 0


@containers
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


@containers
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


@everywhere
async def test_what_is_written_is_on_every_brokers_disk(stage: Stage) -> None:
    """Written by the client of record; read back by it, and from copies of running brokers' log
    directories."""
    await stage.as_in_the_beginning()
    values = await stage.write(20)
    assert await stage.read(len(values)) == values
    await stage.seen(lambda look: len({look.replicas[node, 0].leo for node in NODES}) == 1,
                     "all to have the records")
    for node in NODES:
        folder = await stage.cluster.place.log_dir(node)
        rows = logdir.dump(folder, SPECS, "0" * 16, node, running=True)
        assert [row["value"] for row in rows if row["partition"] == 0] == values
    assert len(values) == 20


@everywhere
async def test_an_expired_leader_is_succeeded_and_a_dead_one_comes_back(stage: Stage) -> None:
    """Expire returns when the controller has fenced the broker; a start brings it back into the ISR. A second
    kill and a second start do nothing. Killed means gone: the engine has no process of it any more."""
    one = stage.cluster
    await stage.as_in_the_beginning()
    await one.kill("n1")
    await one.kill("n1")
    look = await one.observe()
    assert look.running == {"n2", "n3"}
    assert look.partitions[0].leader == "n1", "its session goes on"
    await one.runs.expire("n1")
    look = await one.observe()
    if "n1" in look.unfenced:  # a heartbeat that it had sent before it was killed arrived after the expiry
        await one.runs.expire("n1")
        look = await one.observe()
    assert look.partitions[0].leader in {"n2", "n3"}
    assert "n1" not in look.unfenced | isr(look)
    await one.start_node("n1")
    await one.start_node("n1")
    assert ("n1", 0) in (await stage.all_in_sync()).replicas
    assert one.died() == []


@everywhere
async def test_an_orderly_stop_hands_leadership_over(stage: Stage) -> None:
    """Leadership moves before the process ends; and its next start knows that the stop was orderly."""
    one = stage.cluster
    await stage.as_in_the_beginning()
    await one.stop_node("n1")
    look = await one.observe()
    assert look.running == {"n2", "n3"}
    assert look.partitions[0].leader in {"n2", "n3"}
    await one.start_node("n1")
    assert (await stage.all_in_sync()).replicas["n1", 0].clean
    assert one.died() == []


@everywhere
async def test_a_paused_broker_stands_still_and_resumes(
        stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says so, here and in the engine's keeper; it runs, shows no replicas, leaves the ISR, and
    comes back. A paused broker can be killed."""
    one, place = stage.cluster, stage.cluster.place
    await stage.as_in_the_beginning()
    await place.pause("n2")
    await place.pause("n2")
    assert (await place.is_stopped("n2"), await place.is_stopped("n1")) == (True, False)
    with monkeypatch.context() as elsewhere:  # as if the harness did not see the engine's processes
        elsewhere.setattr(containers_place, "Path", lambda path: Path("/nowhere") / path.lstrip("/"))
        assert (await place.is_stopped("n2"), await place.is_stopped("n1")) == (True, False)
    await stage.write(3)
    look = await stage.seen(lambda look: isr(look) == {"n1", "n3"}, "n2 to leave the ISR")
    assert "n2" in look.running
    assert ("n2", 0) not in look.replicas
    with pytest.raises(FloodmarkError, match="n2 is paused and cannot be stopped"):
        await one.stop_node("n2")
    await place.resume("n2")
    await place.resume("n2")
    assert not await place.is_stopped("n2")
    assert ("n2", 0) in (await stage.all_in_sync()).replicas

    await place.pause("n2")
    await one.kill("n2")
    assert not place.paused("n2")
    with pytest.raises(FloodmarkError, match="cannot pause n2: it is not running"):
        await place.pause("n2")
    await one.start_node("n2")
    await stage.all_in_sync()


@containers
async def test_the_engine_has_no_process_of_a_killed_broker_and_starts_none_twice(stage: Stage) -> None:
    await stage.as_in_the_beginning()
    await stage.cluster.kill("n1")
    assert stage.of_engine(stage.lab.broker("n1"))["State"]["Running"] is False
    await stage.cluster.start_node("n1")
    with pytest.raises(FloodmarkError, match="cannot start n1: it is running"):
        await stage.place.spawn("n1")


@everywhere
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


@local
async def test_a_follower_that_does_not_hear_its_leader_leaves_the_isr_until_the_heal(stage: Stage) -> None:
    """All brokers stay alive for the controller: only bytes from n1 to n3 are stopped."""
    one, base = stage.cluster, (await stage.as_in_the_beginning()).replicas["n1", 0].leo
    await one.place.cut({"n3": ["n1"]})
    await stage.write(5, batch=5)  # acked when n3 has left: a replica that lacks nothing stays, as in Kafka
    look = await stage.seen(lambda look: isr(look) == {"n1", "n2"}, "n3 to leave the ISR")
    assert isr(look, 1) == set(NODES), "n3 hears n2"
    assert look.unfenced == set(NODES)
    await one.place.heal()
    await stage.all_in_sync()
    await stage.seen(lambda look: look.replicas["n3", 0].leo == look.replicas["n1", 0].leo >= base + 5,
                     "n3 to have the records")


@local
async def test_a_power_cut_loses_what_was_not_fsynced_and_the_others_give_it_back(stage: Stage) -> None:
    """Or it keeps records up to the requested batch; the result says how much was lost."""
    one, base = stage.cluster, (await stage.as_in_the_beginning()).replicas["n1", 0].leo
    await stage.write(3, batch=3)
    await stage.write(4, batch=4)
    await stage.seen(lambda look: look.replicas["n3", 0].leo == base + 7, "n3 to have the records")
    report = await one.power_cut("n3", keep={0: base + 5})
    assert report == {"keep": {0: base + 3, 1: 0}, "lost_records": 4}
    assert (await one.observe()).running == {"n1", "n2"}
    await one.start_node("n3")
    look = await stage.all_in_sync()
    assert look.replicas["n3", 0].leo == base + 7
    assert not look.replicas["n3", 0].clean

    assert (await one.power_cut("n3"))["keep"][0] == base + 3, "what a power cut leaves is durable"


@everywhere
async def test_mending_undoes_everything_and_leaves_nothing_behind(stage: Stage) -> None:
    """A cut, a pause, a kill and a dead controller at once, then mended twice."""
    one = stage.cluster
    await stage.as_in_the_beginning()
    await one.place.cut({"n1": ["n2"]})
    await one.place.pause("n2")
    await one.kill("n3")
    await one.kill(CONTROLLER)
    assert (await one.observe()).partitions == {}
    assert await one.mend() == []
    await stage.all_in_sync()
    assert await one.mend() == []
    assert one.died() == []


@containers
async def test_a_broker_that_ends_by_itself_is_reported_with_its_last_words(stage: Stage) -> None:
    """Here the engine aborts it, without a request of ours."""
    await stage.lab.call("abort n2", stage.lab.client.api.kill, stage.lab.broker("n2"), "SIGABRT")
    await stage.seen(lambda look: "n2" not in look.running, "n2 to end")
    assert stage.cluster.died() == ["n2"]
    log = (stage.folder / "work" / "n2.log").read_text().splitlines()
    assert log[-1] in stage.place.last_words("n2")
    await stage.cluster.start_node("n2")
    await stage.all_in_sync()


@everywhere
def test_a_freeze_holds_all_and_the_end_leaves_nothing(stage: Stage) -> None:
    """The last story of a place: mending does not end a freeze, and a silent broker counts as not running.
    Logs of frozen and dead brokers are read; then nothing of the run is on the engine."""

    async def story() -> None:
        one = stage.cluster
        await stage.as_in_the_beginning()
        await one.place.pause("n3")
        look = await one.runs.freeze()
        assert look.running == {"n1", "n2"}
        assert set(look.replicas) == {(node, key) for node in ("n1", "n2") for key in (0, 1)}
        assert (await one.observe()).replicas == look.replicas
        assert await one.mend() == []
        assert (await one.observe()).running == {"n1", "n2"}
        for node in NODES:
            state = logdir.describe(await one.place.log_dir(node), SPECS[0], running=node != "n3")
            assert state.leo == look.replicas["n1", 0].leo
        await one.stop()
        await one.stop()

    in_containers = isinstance(stage.cluster.place, containers_place.ContainersPlace)
    run = stage.lab.run if in_containers else None
    stage.play(story())
    if run is not None:
        assert left(run) == {}
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("docker-")]

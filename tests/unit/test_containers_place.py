"""What the exit of a container means, from the engine's events alone; which runs are dead."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from floodmark.harness.cluster.broker_cluster import System
from floodmark.harness.cluster.containers.engine_resources import EngineResources, PastFault, Remains, dead
from floodmark.harness.cluster.containers.place import Clocks, ContainersPlace
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.reference import power_loss
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CONTROLLER

NODES = ("n1", "n2")


@pytest.fixture
def place(tmp_path: Path) -> ContainersPlace:
    """Of two brokers and a controller, all alive."""
    (tmp_path / "work").mkdir()
    system = SimpleNamespace(nodes=NODES, lacks={}, power=power_loss, expects_exit=lambda _name, _code: False)
    one = ContainersPlace(tmp_path, cast(System, system), links="direct")
    places = dict.fromkeys((*NODES, CONTROLLER))
    one.layout = Layout(folder=tmp_path, nodes=NODES, places=places, links={})  # type: ignore[arg-type]
    for name in one.layout.names:
        one.processes.begin(name, one.layout.log_of(name))
    return one


def ended(place: ContainersPlace, container: str, code: int = 137) -> None:
    place._on_event({"Action": "die", "Actor": {"Attributes": {"name": container, "exitCode": str(code)}}})


def of_kernel(place: ContainersPlace, name: str) -> None:
    place._on_event({"Action": "oom", "Actor": {"Attributes": {"name": place._lab.broker(name)}}})


def test_an_expected_exit_is_reported_with_its_signal_and_is_no_death(
        place: ContainersPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process's exit: minus the signal's number. An exit without a signal is its code. A requested
    exit is no death, nor that of a helper's container."""
    ended(place, place._lab.broker("disks"))
    place.processes.alive[CONTROLLER].wanted = True
    ended(place, place._lab.broker(CONTROLLER))
    reported: list[tuple[str, int]] = []

    def expects_exit(name: str, code: int) -> bool:
        reported.append((name, code))
        return code == -9

    monkeypatch.setattr(place._system, "expects_exit", expects_exit)
    ended(place, place._lab.broker("n1"), 137)
    ended(place, place._lab.broker("n2"), 70)
    assert reported[-2:] == [("n1", -9), ("n2", 70)]
    assert [one.name for one in place.deaths] == ["n2"]


def test_an_excused_exit_is_kept_with_its_reason(place: ContainersPlace) -> None:
    """It is no death; its last words include the kernel's kill for lack of memory."""
    place._lab.excused.add(("n1", "memory limit"))
    of_kernel(place, "n1")
    ended(place, place._lab.broker("n1"))
    [found] = place.faulted_exits
    assert (found.node, found.name, [one.name for one in place.deaths]) == ("n1", "memory limit", [])
    place.layout.log_of("n1").write_text("the end\n")
    assert place.last_words("n1") == "the end | the kernel killed it for lack of memory"


NO_SPACE = "ERROR java.io.IOException: No space left on device\n"


@pytest.mark.parametrize(("logged", "by_kernel", "healed_s_ago", "excused_by"), [
    (NO_SPACE, False, 0, ["disk full"]),
    (NO_SPACE, False, 60, []),
    ("ERROR an error of its own\n", False, 0, []),
    ("", True, 0, ["memory limit"]),
    ("", True, 60, []),
])
def test_an_exit_that_a_healed_fault_has_caused_is_excused_for_a_while(
        place: ContainersPlace, logged: str, by_kernel: bool, healed_s_ago: int,
        excused_by: list[str]) -> None:
    """Kafka logs the error, closes, and exits; of the kernel's kill the engine may tell late."""
    for name, sign in (("memory limit", None), ("disk full", "No space left on device")):
        place._lab.past_faults["n1", name] = PastFault(
            sign=sign, until_s=time.monotonic() + 30 - healed_s_ago)
    place.layout.log_of("n1").write_text(f"{logged}ERROR Shutdown broker because all log dirs have failed\n")
    if by_kernel:
        of_kernel(place, "n1")
    ended(place, place._lab.broker("n1"))
    assert [one.name for one in place.faulted_exits] == excused_by
    assert [one.name for one in place.deaths] == ([] if excused_by else ["n1"])


@pytest.mark.parametrize("lost", ["keeper", "net", "stream"])
def test_without_keeper_net_or_event_stream_everything_is_lost(place: ContainersPlace, lost: str) -> None:
    """The logs give the reason; further commands fail, and waiters are released."""
    waiting: Any = place.processes.alive["n1"].has_ended
    if lost == "stream":
        place._lose("the Docker engine ended its stream of events")
    else:
        ended(place, place._lab.keeper if lost == "keeper" else place._lab.net("n2"))
    assert [one.name for one in place.deaths] == []  # none by itself
    assert place.lost is not None
    assert not any(map(place.lives, (*NODES, CONTROLLER)))
    assert waiting.is_set()
    assert "counts as dead" in place.last_words("n1")
    with pytest.raises(FloodmarkError, match=r"cannot start n1: .* counts as dead"):
        asyncio.run(place.spawn("n1"))
    with pytest.raises(FloodmarkError, match=r"cannot pause n1: .* counts as dead"):
        asyncio.run(place.pause("n1"))


def test_a_run_without_a_keeper_is_given_time() -> None:
    """It may be only beginning; one whose keeper has ended is dead."""
    begins = Remains(networks=["one"], newest_s=100.0)
    assert [dead(begins, 101.0), dead(begins, 161.0)] == [False, True]
    assert dead(Remains(begun=True, newest_s=100.0), 101.0)
    assert not dead(Remains(begun=True, alive=True, newest_s=100.0), 161.0)


def test_during_teardown_no_exit_is_a_death(place: ContainersPlace) -> None:
    """Neither of brokers nor of the containers under them."""
    place.processes.ending = True
    ended(place, place._lab.keeper)
    ended(place, place._lab.broker("n1"))
    place._lose("the Docker engine ended its stream of events")
    assert [one.name for one in place.deaths] == []


def test_a_part_that_cannot_be_mended_keeps_no_other_fault(
        place: ContainersPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = AsyncMock(side_effect=FloodmarkError("the engine has no such container: n1"))
    others = AsyncMock(return_value=[])
    monkeypatch.setattr(place.clocks, "mend", fail)
    for part in (place.limits, place.network, place.disks):
        monkeypatch.setattr(part, "mend", others)
    assert asyncio.run(place.mend()) == ["the engine has no such container: n1"]
    assert others.await_count == 3


def test_a_cluster_without_the_library_says_so(tmp_path: Path) -> None:
    clocks = Clocks(EngineResources(tmp_path, ("n1",), clocks=False))

    with pytest.raises(FloodmarkError, match="n1 cannot be shifted: the cluster has no libfaketime"):
        asyncio.run(clocks.bump("n1", 5))
    assert asyncio.run(clocks.mend()) == []

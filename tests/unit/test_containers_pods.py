"""What the exit of a container means, from the engine's events alone; no engine needed."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.cluster.containers.engine_resources import EngineResources, PastFault
from floodmark.harness.cluster.containers.pods import Pod, Pods
from floodmark.harness.cluster.exit_reports import Start
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import CONTROLLER

NODES = ("n1", "n2")


@pytest.fixture
def pods(tmp_path: Path) -> Pods:
    """Of two brokers and a controller, all alive."""
    (tmp_path / "work").mkdir()
    places = dict.fromkeys((*NODES, CONTROLLER))
    layout = Layout(folder=tmp_path, nodes=NODES, places=places, links={})  # type: ignore[arg-type]
    one = Pods(EngineResources(tmp_path / "work", NODES), layout)
    one._alive.update({name: Pod(begun=Start.now(layout.log_of(name))) for name in layout.names})
    return one


def ended(pods: Pods, container: str, code: int = 137) -> None:
    pods._on_event({"Action": "die", "Actor": {"Attributes": {"name": container, "exitCode": str(code)}}})


def of_kernel(pods: Pods, name: str) -> None:
    pods._on_event({"Action": "oom", "Actor": {"Attributes": {"name": pods._lab.broker(name)}}})


def test_an_unrequested_exit_is_a_death(pods: Pods) -> None:
    """A requested one is not."""
    ended(pods, pods._lab.broker("n1"), 70)
    pods._alive["n2"].wanted = True
    ended(pods, pods._lab.broker("n2"))
    assert [one.name for one in pods.deaths] == ["n1"]
    assert [pods.lives(name) for name in ("n1", "n2", CONTROLLER)] == [False, False, True]


def test_an_expected_exit_is_reported_with_its_signal_and_is_no_death(pods: Pods) -> None:
    """As a process's exit: minus the signal's number. An exit without a signal is its code."""
    reported: list[tuple[str, int]] = []

    def expects_exit(name: str, code: int) -> bool:
        reported.append((name, code))
        return code == -9

    pods.expects_exit = expects_exit
    ended(pods, pods._lab.broker("n1"), 137)
    ended(pods, pods._lab.broker("n2"), 70)
    assert reported == [("n1", -9), ("n2", 70)]
    assert [one.name for one in pods.deaths] == ["n2"]


def test_an_excused_exit_is_kept_with_its_reason(pods: Pods) -> None:
    """It is no death; its last words include the kernel's kill for lack of memory."""
    pods.excused["n1"] = "memory limit"
    of_kernel(pods, "n1")
    ended(pods, pods._lab.broker("n1"))
    [(name, why, _)] = pods.faulted_exits
    assert (name, why, [one.name for one in pods.deaths]) == ("n1", "memory limit", [])
    pods._layout.log_of("n1").write_text("the end\n")
    assert pods.last_words("n1") == "the end | the kernel killed it for lack of memory"


@pytest.mark.parametrize(("logged", "ago_s", "excused"), [
    ("ERROR java.io.IOException: No space left on device\n", 0, True),
    ("ERROR java.io.IOException: No space left on device\n", 1, False),  # too long ago
    ("ERROR an error of its own\n", 0, False),
])
def test_an_exit_by_a_full_disk_is_excused_after_the_heal(
        pods: Pods, logged: str, ago_s: float, excused: bool) -> None:
    """Kafka logs the error, closes, and exits: the disk may have been healed in the meantime."""
    pods._lab.past_faults["n1"] = PastFault(
        why="disk full", sign="No space left on device", until_s=time.monotonic() + 30 - 60 * ago_s)
    pods._layout.log_of("n1").write_text(f"{logged}ERROR Shutdown broker because all log dirs have failed\n")
    ended(pods, pods._lab.broker("n1"))
    assert [(name, why) for name, why, _ in pods.faulted_exits] == ([("n1", "disk full")] if excused else [])
    assert [one.name for one in pods.deaths] == ([] if excused else ["n1"])


@pytest.mark.parametrize("by_kernel", [True, False])
def test_a_kill_by_the_memory_limit_may_be_reported_after_the_limit(pods: Pods, by_kernel: bool) -> None:
    pods._lab.past_faults["n1"] = PastFault(why="memory limit", sign=None, until_s=time.monotonic() + 30)
    if by_kernel:
        of_kernel(pods, "n1")
    ended(pods, pods._lab.broker("n1"))
    assert [one.name for one in pods.deaths] == ([] if by_kernel else ["n1"])


def test_other_containers_of_the_run_may_exit(pods: Pods) -> None:
    """Helper containers do."""
    ended(pods, pods._lab.broker("disks"))
    assert [one.name for one in pods.deaths] == []
    assert pods.lives("n1")


@pytest.mark.parametrize("lost", ["keeper", "net", "stream"])
def test_without_keeper_net_or_event_stream_everything_is_lost(pods: Pods, lost: str) -> None:
    """The logs give the reason; further commands fail, and waiters are released."""
    waiting: Any = pods._alive["n1"].ended
    if lost == "stream":
        pods._lose("the Docker engine ended its stream of events")
    else:
        ended(pods, pods._lab.keeper if lost == "keeper" else pods._lab.net("n2"))
    assert [one.name for one in pods.deaths] == []  # none by itself
    assert pods.lost is not None
    assert not any(map(pods.lives, (*NODES, CONTROLLER)))
    assert waiting.is_set()
    assert "counts as dead" in pods.last_words("n1")
    with pytest.raises(FloodmarkError, match=r"cannot start n1: .* counts as dead"):
        asyncio.run(pods.spawn("n1"))
    with pytest.raises(FloodmarkError, match=r"cannot pause n1: .* counts as dead"):
        asyncio.run(pods.pause("n1"))


def test_during_teardown_no_exit_is_a_death(pods: Pods) -> None:
    """Neither of brokers nor of the containers under them."""
    pods._ending = True
    ended(pods, pods._lab.keeper)
    ended(pods, pods._lab.broker("n1"))
    pods._lose("the Docker engine ended its stream of events")
    assert [one.name for one in pods.deaths] == []

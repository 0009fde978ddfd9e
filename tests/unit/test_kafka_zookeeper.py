"""Kafka with ZooKeeper, without a ZooKeeper: settings, starts while it is away, and a client that opens one
session and leaves none."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from kazoo.exceptions import ConnectionLoss

from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.cluster.kafka import zookeeper
from floodmark.harness.cluster.kafka.zookeeper import (
    ZooKeeper,
    ZooKeeperClient,
    ZooKeeperSilent,
    session_password,
)
from floodmark.harness.schedule.views import CONTROLLER


class Slow:
    """A client of kazoo that connects when it may, and answers nothing."""

    def __init__(self, may_connect: threading.Event) -> None:
        self.connecting, self.open, self._may_connect = threading.Event(), False, may_connect

    def start(self, timeout: float) -> None:
        self.connecting.set()
        assert self._may_connect.wait(120)
        self.open = True

    def stop(self) -> None:
        self.open = False

    def close(self) -> None:
        assert not self.open

    def get_async(self, path: str) -> Any:
        raise ConnectionLoss(path)


@pytest.fixture
def may_connect() -> threading.Event:
    return threading.Event()


@pytest.fixture
def made(may_connect: threading.Event, monkeypatch: pytest.MonkeyPatch) -> list[Slow]:
    """The clients of kazoo so far."""
    made: list[Slow] = []
    monkeypatch.setattr(zookeeper, "_client", lambda *_, **__: made.append(Slow(may_connect)) or made[-1])
    return made


async def test_one_session_is_opened_however_many_ask_and_a_silent_zookeeper_holds_up_no_other(
        made: list[Slow], may_connect: threading.Event) -> None:
    """Other threads of the process are there for others."""
    client = ZooKeeperClient(("127.0.0.1", 1))
    asked = [asyncio.ensure_future(client.look(())) for _ in range(40)]
    await until(lambda: bool(made) and made[0].connecting.is_set())
    other = asyncio.ensure_future(asyncio.to_thread(lambda: "answered"))
    await asyncio.wait([other, *asked], return_when=asyncio.FIRST_COMPLETED)
    assert other.done()
    assert not any(one.done() for one in asked)
    may_connect.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(answer) for answer in answers} == {ZooKeeperSilent}
    assert [one.open for one in made] == [True]
    await client.close()
    await client.close()
    assert [one.open for one in made] == [False]


async def test_a_session_that_is_being_opened_is_closed_too(
        made: list[Slow], may_connect: threading.Event) -> None:
    """And none is opened afterwards."""
    client = ZooKeeperClient(("127.0.0.1", 1))
    asked = asyncio.ensure_future(client.look(()))
    await until(lambda: bool(made) and made[0].connecting.is_set())
    closing = asyncio.ensure_future(client.close())
    await asyncio.sleep(0)
    may_connect.set()
    with pytest.raises(ZooKeeperSilent):
        await asked
    await closing
    with pytest.raises(ZooKeeperSilent):
        await client.look(())
    assert [one.open for one in made] == [False]


@pytest.mark.parametrize("silent", [1, 99])
async def test_a_session_is_ended_though_zookeeper_was_silent_once(
        monkeypatch: pytest.MonkeyPatch, silent: int) -> None:
    """Not if it stays silent."""
    asked: list[int] = []

    def close_session(hosts: str, session: int) -> None:
        asked.append(session)
        if len(asked) <= silent:
            raise ConnectionLoss
    monkeypatch.setattr(zookeeper, "_close_session", close_session)
    client = ZooKeeperClient(("127.0.0.1", 1))
    registration = SimpleNamespace(get=lambda timeout: (b"", SimpleNamespace(ephemeralOwner=7)))
    monkeypatch.setattr(client, "_connected", lambda: Mock(get_async=lambda path: registration))
    if silent == 1:
        assert await client.expire(1)
    else:
        with pytest.raises(ZooKeeperSilent, match=r"does not answer \(ConnectionLoss\)"):
            await client.expire(1)
    await client.close()
    assert asked == [7] * (2 if silent == 1 else zookeeper.EXPIRE_TRIES)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


# -- the mode: the protocol's generations as settings, the password of a session -------------------------


@pytest.mark.parametrize(("rules", "version", "given"), [
    ("high-watermark", "0.11.0-IV1", "broker"), ("kip-101", "1.1", "zookeeper"),
    ("kip-279", "2.0", "zookeeper"), ("kip-320", None, "broker")])
def test_rules_are_versions_of_the_protocol_and_the_session_timeout_is_set_by_either_name(
        rules: str, version: str | None, given: str) -> None:
    told = {f"{given}.session.timeout.ms": "700"}
    settings = ZooKeeper(told, {"n1": 1, "controller": 100}, rules=rules).settings
    assert settings.get("inter.broker.protocol.version") == version
    assert settings.get("log.message.format.version") == version
    assert settings["zookeeper.session.timeout.ms"] == "700"


def test_the_session_password_is_that_of_zookeeper() -> None:
    """As a ZooKeeper 3.5.9 gave it to a client."""
    known = b"*.\xee@o\x950j\x18&F\x89\xd0\x10\xda\xfc"
    assert session_password(72061673038938112) == known


# -- starts while ZooKeeper is away --------------------------------------------------------------------------

NAMES = ("n1", "n2", CONTROLLER)


def played(*acts: str) -> str:
    """The processes in the order of their starts after these acts on a cluster that runs."""
    alive, paused, spawned = {*NAMES}, set[str](), list[str]()

    async def spawn(name: str) -> None:
        assert name == CONTROLLER or (CONTROLLER in alive and CONTROLLER not in paused)
        alive.add(name)
        spawned.append(name)

    place = SimpleNamespace(
        name="local", cannot={}, can=(), read=None, spawn=spawn, lives=alive.__contains__,
        paused=paused.__contains__, kill=AsyncMock(side_effect=alive.discard),
        pause=AsyncMock(side_effect=paused.add), resume=AsyncMock(side_effect=paused.discard),
        is_stopped=AsyncMock(return_value=False), mend=AsyncMock(return_value=[]),
        layout=SimpleNamespace(names=NAMES, places=NAMES, of=Mock()))
    system = SimpleNamespace(
        nodes=NAMES[:2], config={}, about={}, not_shown=frozenset(), read_from_files=frozenset(), lacks={},
        frozen=False, starts_by_controller=True, starting=AsyncMock(), started=Mock(),
        is_up=AsyncMock(return_value=True), release_holds=AsyncMock(return_value=[]))

    async def play() -> None:
        cluster = BrokerCluster(cast(Any, system), cast(Any, place))
        for act in acts:
            f, *names = act.split()
            assert await getattr(cluster, f)(*names) in (None, [])

    asyncio.run(play())
    return " ".join(spawned)


@pytest.mark.parametrize(("acts", "spawned"), [
    (("kill controller", "kill n1", "start_node n1", "start_node controller"), "controller n1"),
    (("pause controller", "kill n1", "start_node n1", "resume n2", "pause n1", "resume controller"), "n1"),
    (("kill controller", "kill n1", "start_node n1", "kill n1", "start_node controller"), "controller"),
    (("kill n1", "kill n2", "kill controller", "start_node n2", "mend"), "controller n1 n2"),
    (("kill n1", "start_node n1"), "n1"),
])
def test_a_broker_starts_only_while_zookeeper_answers(acts: tuple[str, ...], spawned: str) -> None:
    assert played(*acts) == spawned


def test_a_start_waits_for_a_zookeeper_that_starts() -> None:
    mode = ZooKeeper({}, {"n1": 1, "controller": 100}, rules="kip-320")
    expire = AsyncMock(side_effect=[ZooKeeperSilent("it starts"), True])
    mode._client, mode._started = cast(Any, SimpleNamespace(expire=expire)), {"n1"}
    asyncio.run(mode.starting("n1"))
    assert expire.await_count == 2

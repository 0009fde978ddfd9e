"""Cuts, bad lines and resets in real net containers, seen in what arrives and in the kernel's numbers.

The network is as a cluster in containers has it; the net containers run net_peer.py.
"""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import net_peer
import pytest
from docker.types import EndpointConfig
from run_processes import wait_until

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.network import PROGRAM, Rules
from floodmark.harness.cluster.layout import HOST, Ports
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

pytestmark = pytest.mark.docker

NODES = ("n1", "n2", "n3")
WAIT_S = 20.0
LOST_S = 0.15  # datagrams that have not arrived by then are lost: they pass between two namespaces at once
OTHERS = {name: [other for other in (*NODES, CONTROLLER) if other != name] for name in (*NODES, CONTROLLER)}


class Rig:
    """The containers' ports on loopback, by name: of the broker (9092) and of the control socket (9090)."""

    def __init__(self, folder: Path, ports: Ports) -> None:
        self.lab = EngineResources(folder / "work", NODES)
        self.broker = {name: ports.choose() for name in self.lab.names}
        self.control = {name: ports.choose() for name in self.lab.names}

    async def open(self) -> None:
        await self.lab.open()
        await asyncio.gather(*(self.lab.call(f"start {name}", self._start, name) for name in self.lab.names))
        for name in self.lab.names:
            wait_until(f"{name} to answer", partial(self._answers, name), WAIT_S)

    def _answers(self, name: str) -> bool:
        with suppress(OSError, ValueError):
            return self.request(name, "heard") is not None
        return False

    def request(self, name: str, do: str, **what: Any) -> Any:
        """Sends a request through the published port of its control socket."""
        with socket.create_connection((HOST, self.control[name]), 2.0) as connection:
            connection.settimeout(WAIT_S)
            connection.sendall(json.dumps({"do": do, **what}).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
        assert "error" not in answer, answer
        return answer["ok"]

    def address(self, name: str) -> str:
        return self.lab.address(name)

    def passed(self, says: str, hears: str, count: int = 20) -> int:
        """How many of so many datagrams arrived."""
        before = self.request(hears, "heard").get(self.address(says), 0)
        self.request(says, "say", to=self.address(hears), count=count)
        deadline = time.monotonic() + LOST_S
        while True:
            arrived: int = self.request(hears, "heard").get(self.address(says), 0) - before
            if arrived == count or time.monotonic() > deadline:
                return arrived
            time.sleep(0.01)

    def ask(self, says: str, hears: str, text: str = "hello", load: int = 0) -> Any:
        """Sends a line over TCP, with so many bytes after it; returns the answer."""
        return self.request(says, "ask", to=self.address(hears), text=text, load=load)

    @asynccontextmanager
    async def rules(self) -> AsyncIterator[Rules]:
        """New rules, which are mended in the end."""
        net = Rules(self.lab)
        try:
            async with asyncio.timeout(60):
                yield net
        finally:
            residue = await net.mend()
        assert residue == []

    def _start(self, name: str) -> None:
        lab, api = self.lab, self.lab.client.api
        endpoint = EndpointConfig(api.api_version, ipv4_address=lab.address(name))
        made = api.create_container(
            lab.image, ["-c", Path(net_peer.__file__).read_text(encoding="utf-8")], entrypoint=["python"],
            name=lab.net(name), labels=lab.labels("net"), user="0", ports=[9092, 9090],
            networking_config=api.create_networking_config({lab.network: endpoint}),  # type: ignore[arg-type]
            host_config=api.create_host_config(
                network_mode=lab.network, cap_add=["NET_ADMIN"], pid_mode=f"container:{lab.keeper}",
                port_bindings={9092: (HOST, self.broker[name]), 9090: (HOST, self.control[name])}))["Id"]
        api.start(made)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    ports = Ports()
    made = Rig(tmp_path_factory.mktemp("net"), ports)
    try:
        asyncio.run(made.open())
        yield made
    finally:
        asyncio.run(made.lab.close())
        ports.close()


@pytest.fixture(autouse=True)
def quiet(net: Rig) -> Iterator[None]:
    """Every test begins and ends with lines without faults."""
    yield
    assert net.passed("n1", "n2") == 20
    for name in net.lab.names:
        net.request(name, "drop")


def client_asks(net: Rig, name: str, timeout_s: float = 0.5) -> str:
    """A client's answer from the broker's published port."""
    with socket.create_connection((HOST, net.broker[name]), timeout_s) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.sendall(b"hello\n")
            answer = connection.recv(100)
        except TimeoutError:
            return "silence"
        except ConnectionError:
            return "reset"
    return answer.decode().strip() or "closed"


# -- cuts ------------------------------------------------------------------------------------------------


async def test_a_one_way_cut_is_one_way_and_cuts_add_up(net: Rig) -> None:
    """n2 gets nothing from n1, n1 gets everything from n2; other nodes notice nothing. A later cut leaves the
    earlier one in force, and reaches the controller; the heal ends both."""
    async with net.rules() as rules:
        await rules.cut({"n2": ["n1"]}, reset=False)
        assert (net.passed("n1", "n2"), net.passed("n2", "n1")) == (0, 20)
        assert (net.passed("n3", "n2"), net.passed("n1", "n3")) == (20, 20)
        assert net.ask("n1", "n3")["answer"] == "hello"
        assert client_asks(net, "n2") == "hello"
        await rules.cut({CONTROLLER: ["n2"], "n2": [CONTROLLER]}, reset=False)
        assert [net.passed(says, "n2") for says in ("n1", "n3", CONTROLLER)] == [0, 20, 0]
        assert net.passed("n2", CONTROLLER) == 0
        await rules.heal()
        assert [net.passed(says, "n2") for says in ("n1", "n3", CONTROLLER)] == [20, 20, 20]
        assert net.ask("n1", "n2")["answer"] == "hello"


@pytest.mark.parametrize("grudge", [{"n2": [CLIENTS]}, {CLIENTS: ["n2"]}], ids=["requests", "answers"])
async def test_clients_are_cut_off_either_way(net: Rig, grudge: dict[str, list[str]]) -> None:
    """Silence, as if the broker hung: the port is the engine's and accepts connections. Nodes reach n2 as
    before, and its control socket answers."""
    async with net.rules() as rules:
        with socket.create_connection((HOST, net.broker["n2"]), 2.0) as old:
            old.sendall(b"before\n")
            assert old.recv(100) == b"before\n"
            await rules.cut(grudge, reset=False)
            assert client_asks(net, "n2") == "silence"
            assert client_asks(net, "n1") == "hello"
            assert net.ask("n1", "n2")["answer"] == "hello"
            assert net.request("n2", "heard") is not None
            old.sendall(b"within\n")
            old.settimeout(0.5)
            with pytest.raises(TimeoutError):
                old.recv(100)
            await rules.heal()
            old.settimeout(10.0)
            assert old.recv(100) == b"within\n"


async def test_the_control_socket_answers_through_everything(net: Rig) -> None:
    """All nodes and clients are cut from each other, and the lines are bad as well."""
    async with net.rules() as rules:
        everybody = {name: [*others, CLIENTS] for name, others in OTHERS.items()}
        await rules.degrade(everybody, {"loss": 1.0, "delay_ms": 500})
        await rules.cut(everybody, reset=False)
        assert [net.passed(says, hears) for hears in OTHERS for says in OTHERS[hears]] == [0] * 12
        await rules.cut(everybody, reset=True)
        assert all(net.request(name, "heard") is not None for name in net.lab.names)


async def test_a_cut_by_reset_ends_both_ends_and_refuses_dials(net: Rig) -> None:
    """Whichever side connected, though the cut was requested one way; other nodes stay connected. A reset
    alone is of a connection, which both its nodes know, and counted once."""
    async with net.rules() as rules:
        net.request("n2", "hold", to=net.address("n3"))
        assert await rules.reset({"n3": ["n2"]}) == 1
        net.request("n1", "hold", to=net.address("n2"))
        net.request("n2", "hold", to=net.address("n1"))
        net.request("n3", "hold", to=net.address("n1"))
        await rules.cut({"n2": ["n1"]}, reset=True)
        n1, n2 = net.request("n1", "held"), net.request("n2", "held")
        ended = {"ConnectionResetError", "ConnectionAbortedError"}
        assert set(n1["dialled"].values()) | set(n2["dialled"].values()) <= ended
        assert sorted(end in ended for end in n1["taken"]) == [False, True]
        assert set(n2["taken"]) <= ended
        assert list(net.request("n3", "held")["dialled"].values()) == ["alive"]
        for dialer, listener in (("n1", "n2"), ("n2", "n1")):
            refused = net.ask(dialer, listener)
            assert (refused["error"], refused["after_ms"] < 500) == ("ConnectionRefusedError", True)
        assert net.passed("n1", "n2") == 0
        await rules.heal()
        assert net.ask("n1", "n2")["answer"] == net.ask("n2", "n1")["answer"] == "hello"


async def test_a_load_that_fails_is_reported_and_made_up_for(net: Rig) -> None:
    """The other nodes are loaded nevertheless. (The program that loads rules is away.)"""
    async def move(source: str, target: str) -> None:
        await net.lab.exec(net.lab.net("n2"), ["mv", source, target])

    async with net.rules() as rules:
        await move(PROGRAM[1], "/tmp/away")
        try:
            with pytest.raises(FloodmarkError, match=f"in {net.lab.net('n2')} ended with code"):
                await rules.cut({"n1": ["n3"], "n2": ["n3"]}, reset=False)
            assert net.passed("n3", "n1") == 0
            (why,) = await rules.mend()
        finally:
            await move("/tmp/away", PROGRAM[1])
        assert why.startswith("the network of n2 cannot be healed: ")
        assert net.passed("n3", "n1") == 20
        with pytest.raises(FloodmarkError, match="is invalid: loss is 0 to 1"):
            await rules.degrade({"n2": ["n1"]}, {"loss": 1.5})
        await rules.cut({"n2": ["n1"]}, reset=False)
        assert (net.passed("n1", "n2"), net.passed("n3", "n2")) == (0, 20)


async def test_a_cut_is_made_although_its_caller_is_cancelled(net: Rig) -> None:
    """Otherwise it would undo the mend that follows."""
    async with net.rules() as rules:
        cut = asyncio.create_task(rules.cut({"n2": ["n1"]}, reset=False))
        while not net.lab._open_calls:
            await asyncio.sleep(0)
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        assert net.passed("n1", "n2") == 0


async def test_clients_are_reset(net: Rig) -> None:
    """An open connection ends; the engine's port accepts a new one, which ends at once."""
    async with net.rules() as rules:
        with socket.create_connection((HOST, net.broker["n2"]), 2.0) as old:
            old.sendall(b"before\n")
            assert old.recv(100) == b"before\n"
            await rules.cut({CLIENTS: ["n2"]}, reset=True)
            try:
                assert old.recv(100) == b""
            except ConnectionError:
                pass
        assert client_asks(net, "n2") in ("closed", "reset")
        assert client_asks(net, "n1") == "hello"
        await rules.heal()
        assert client_asks(net, "n2") == "hello"


# -- bad lines -------------------------------------------------------------------------------------------


async def test_loss_is_about_as_asked_and_one_way(net: Rig) -> None:
    """A thousand datagrams, 30 %: five standard deviations are 7 %."""
    async with net.rules() as rules:
        await rules.degrade({"n2": ["n1"]}, {"loss": 0.3})
        assert 1000 * 0.63 <= net.passed("n1", "n2", 1000) <= 1000 * 0.77
        assert net.passed("n2", "n1") == net.passed("n3", "n2") == 20


def answer_ms(net: Rig, says: str, hears: str) -> float:
    """The fastest of some answers: a busy machine makes answers late, but none early."""
    return min(float(net.ask(says, hears)["answer_ms"]) for _ in range(4))


async def test_delay_is_as_asked(net: Rig) -> None:
    """Only of what n2 gets from n1, whichever side connected; a delay that is added later leaves it. The heal
    ends both, and delayed packets arrive."""
    async with net.rules() as rules:
        await rules.degrade({"n2": ["n1"]}, {"delay_ms": 100})
        assert 100 <= answer_ms(net, "n1", "n2") < 170
        assert 100 <= answer_ms(net, "n2", "n1") < 170
        assert answer_ms(net, "n3", "n2") < 60
        await rules.degrade({"n2": ["n3"]}, {"delay_ms": 200, "jitter_ms": 20})
        assert 100 <= answer_ms(net, "n1", "n2") < 170
        assert 180 <= answer_ms(net, "n3", "n2") < 290
        await rules.degrade({"n2": ["n3"]}, {"delay_ms": 20_000, "jitter_ms": 0})
        net.request("n3", "say", to=net.address("n2"), count=7)
        begun = time.monotonic()
        await rules.heal()
        assert time.monotonic() - begun < 10
        assert net.request("n2", "heard") == {net.address("n3"): 7}
        assert answer_ms(net, "n1", "n2") < 60


async def test_a_cut_stops_what_was_held_up(net: Rig) -> None:
    """A cut means that no byte passes any more: not even a delayed one."""
    async with net.rules() as rules:
        await rules.degrade({"n2": ["n1"], CLIENTS: ["n2"]}, {"delay_ms": 1000})
        with socket.create_connection((HOST, net.broker["n2"]), 3.0) as client:
            time.sleep(1.2)  # its connection is answered late, too
            client.sendall(b"hello\n")
            net.request("n1", "say", to=net.address("n2"), count=7)
            await asyncio.sleep(0.1)
            await rules.cut({"n2": ["n1"], CLIENTS: ["n2"]}, reset=False)
            client.settimeout(1.5)
            with pytest.raises(TimeoutError):
                client.recv(100)
        assert net.request("n2", "heard").get(net.address("n1"), 0) == 0


@pytest.mark.parametrize("grudge", [{"n2": [CLIENTS]}, {CLIENTS: ["n2"]}], ids=["requests", "answers"])
async def test_clients_wait(net: Rig, grudge: dict[str, list[str]]) -> None:
    """Either way, and a long answer does not take a round trip for every few packets."""
    async with net.rules() as rules:
        await rules.degrade(grudge, {"delay_ms": 100})
        dial = socket.create_connection((HOST, net.broker["n2"]), 5.0)
        with dial as client, client.makefile("rb") as answers:
            client.sendall(b"first\n")
            answers.readline()
            took_s = []
            for _ in range(4):
                begun = time.monotonic()
                client.sendall(b"hello\n")
                assert answers.readline() == b"hello\n"
                took_s.append(time.monotonic() - begun)
            assert 0.1 <= min(took_s) < 0.2
            begun = time.monotonic()
            client.sendall(b"get 1000000\n")
            assert len(answers.read(1_000_000)) == 1_000_000
            assert time.monotonic() - begun < 10


@pytest.mark.parametrize("says", ["n1", CLIENTS])
async def test_a_rate_is_about_as_asked(net: Rig, says: str) -> None:
    """100 KB at 800 kbit/s are one second."""
    async with net.rules() as rules:
        await rules.degrade({"n2": [says]}, {"rate_kbit": 800})
        begun = time.monotonic()
        if says == CLIENTS:
            with socket.create_connection((HOST, net.broker["n2"]), 5.0) as client:
                client.settimeout(20.0)
                client.sendall(b"put 100000\n" + b"x" * 100_000)
                assert client.recv(100) == b"put 100000\n"
        else:
            assert net.ask(says, "n2", "put 100000", load=100_000)["answer"] == "put 100000"
        assert 0.7 <= time.monotonic() - begun < 8


# -- residue -------------------------------------------------------------------------------------------------


async def test_the_heal_leaves_nothing_and_other_tables_were_never_touched(net: Rig) -> None:
    """The engine's own rules in nat are the same, line by line, in and after it."""

    async def look(name: str) -> tuple[str, str, str]:
        run = net.lab.exec
        container = net.lab.net(name)
        nat = await run(container, ["iptables-save", "-t", "nat"])
        table = await run(container, ["sh", "-c", "cat /proc/net/netfilter/nfnetlink_queue 2>/dev/null || :"])
        return ("\n".join(line for line in nat.splitlines() if line[:2] == "-A"),
                await run(container, ["tc", "qdisc", "show"]), table)

    async with net.rules() as rules:
        before = [await look(name) for name in NODES]
        assert all("127.0.0.11" in nat for nat, _, _ in before)
        await rules.cut({"n2": ["n1"], "n1": [CLIENTS]}, reset=False)
        await rules.degrade(OTHERS, {"delay_ms": 20, "loss": 0.1})
        within = [await look(name) for name in NODES]
        assert [nat for nat, _, _ in within] == [nat for nat, _, _ in before]
        assert within != before
        assert await rules.mend() == []
        assert [await look(name) for name in NODES] == before
        assert await rules.mend() == []


async def test_what_is_left_is_named(net: Rig) -> None:
    """A rule in another table, a qdisc that cannot be ours, and a delay that died."""
    async with net.rules() as rules:
        container = net.lab.net("n2")
        await rules.degrade({"n2": ["n1"]}, {"delay_ms": 20})
        assert net.passed("n1", "n2") >= 0
        await net.lab.exec(container, ["sh", "-c", "iptables -t mangle -A INPUT -s 192.0.2.1 -j DROP;"
                                       "tc qdisc add dev lo root pfifo limit 10;"
                                       "kill -9 $(cut -c 6-13 /proc/net/netfilter/nfnetlink_queue)"])
        residue = await rules.mend()
        await net.lab.exec(container, ["sh", "-c", "iptables -t mangle -F; tc qdisc del dev lo root"])
        assert [line.partition(": ")[2].split()[0] for line in residue[:-1]] == ["mangle", "qdisc", "qdisc"]
        assert residue[0].endswith("has: mangle -A INPUT -s 192.0.2.1/32 -j DROP")
        assert residue[-1] == "the program that delays packets in the network of n2 ended before the heal"

"""Which nodes' rules are loaded, when, and how the output is read; the kernel is a fake."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from floodmark.harness.cluster.containers.network import Rules
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

ADDRESSES = {"n1": "10.9.0.11", "n2": "10.9.0.12", "n3": "10.9.0.13", CONTROLLER: "10.9.0.14",
             CLIENTS: "10.9.0.1"}
EMPTY = "*filter\n-F INPUT\n-F FORWARD\n-F OUTPUT\nCOMMIT\n"
BEFORE = ["*nat", "-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT", "COMMIT", "qdisc noqueue 0: dev eth0 root"]


class FakeLab(SimpleNamespace):
    """Records each command and answers as a net container with the rules that were loaded last."""

    def __init__(self, ways: str = "statistic\nqueue") -> None:
        super().__init__(names=("n1", "n2", "n3", CONTROLLER), ways=ways)
        self.ran: list[tuple[str, dict[str, str]]] = []
        self.table: dict[str, list[str]] = {}
        self.fails: set[str] = set()
        self.more: dict[str, str] = {}  # node -> further output

    def net(self, name: str) -> str:
        return name

    def address(self, name: str) -> str:
        return ADDRESSES[name]

    async def exec(self, container: str, argv: Sequence[str], *, env: Mapping[str, str],
                   timeout_s: float) -> str:
        self.ran.append((container, dict(env)))
        await asyncio.sleep(0)
        if container in self.fails:
            raise FloodmarkError("the engine is gone")
        look = "\n".join(["*filter", *self.table.get(container, []), *BEFORE])
        if env.get("RULES"):
            self.table[container] = [line for line in env["RULES"].splitlines() if line[:2] == "-A"]
        after = "\n".join(["*filter", *self.table.get(container, []), *BEFORE])
        return "\n".join([
            *(["== before", look] if env.get("LOOK") == "before" else []),
            *(["== ways", self.ways] if env.get("WAYS") else []),
            self.more.get(container, "== nothing"),
            *(["== after", after] if env.get("LOOK") == "after" else [])])

    def since(self) -> dict[str, dict[str, str]]:
        """node -> its environment in the commands since the last call; at most one command for each node."""
        by_node = dict(self.ran)
        assert len(by_node) == len(self.ran)
        self.ran.clear()
        return by_node


@pytest.fixture
def lab() -> FakeLab:
    return FakeLab()


@pytest.fixture
def net(lab: FakeLab) -> Rules:
    return Rules(lab)  # type: ignore[arg-type]


def test_a_failed_load_is_reported_and_retried(lab: FakeLab, net: Rules) -> None:
    """The other nodes are loaded nevertheless; the wanted rules stay in force until the heal."""

    async def story() -> None:
        lab.fails = {"n2"}
        with pytest.raises(FloodmarkError, match="the engine is gone"):
            await net.cut({"n1": ["n3"], "n2": ["n3"]}, reset=False)
        assert set(lab.since()) == {"n1", "n2"}
        assert await net.mend() == ["the network of n2 cannot be healed: the engine is gone"]
        lab.since()
        lab.fails = set()
        assert await net.mend() == []
        assert [name for name, env in lab.ran if env["RULES"] == EMPTY] == ["n1", "n2", "n2"]

    asyncio.run(story())


def test_an_error_in_the_output_is_raised_and_residue_reported(lab: FakeLab, net: Rules) -> None:
    """With the node's name; and what the mend has left there."""

    async def story() -> None:
        lab.more["n2"] = "== failed\ndelay: queue 200: Operation not permitted"
        with pytest.raises(FloodmarkError, match="the network of n2 cannot be changed: delay: queue 200: Op"):
            await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
        lab.more["n2"] = "== unserved\n100\n== after\nqdisc htb 1: dev eth0 root"
        assert await net.mend() == [
            "the network of n2 still has: qdisc htb 1: dev eth0 root",
            "the program that delays packets in the network of n2 ended before the heal"]
        lab.more.clear()
        assert await net.mend() == []

    asyncio.run(story())


def test_a_refused_quality_is_not_kept() -> None:
    """The next cut succeeds."""
    lab = FakeLab(ways="statistic")
    net = Rules(lab)  # type: ignore[arg-type]

    async def story() -> None:
        with pytest.raises(FloodmarkError, match="is impossible here"):
            await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
        lab.since()
        await net.cut({"n2": ["n1"]}, reset=False)
        assert "NFQUEUE" not in lab.since()["n2"]["RULES"]

    asyncio.run(story())


def test_resets_are_made_at_both_ends_and_counted_once(lab: FakeLab, net: Rules) -> None:
    """Each connection is listed at both nodes. One that survives is an error."""

    async def story() -> None:
        lab.more = {"n1": "== there\nESTAB 0 0 10.9.0.11:40 10.9.0.12:9092\n"
                          "== reset\nESTAB 0 0 10.9.0.11:40 10.9.0.12:9092\n== kept",
                    "n2": "== there\n0 0 10.9.0.12:9092 10.9.0.11:40\n== reset\n== kept"}
        assert await net.reset({"n2": ["n1"]}) == 1
        assert lab.since() == {"n1": {"RESET": "dst 10.9.0.12"}, "n2": {"RESET": "dst 10.9.0.11"}}
        stays = "0 0 1.1.1.1:1 2.2.2.2:2"
        lab.more["n1"] = lab.more["n2"] = f"== there\n{stays}\n== reset\n== kept\n{stays}"
        with pytest.raises(FloodmarkError, match=r"1\.1\.1\.1:1 - 2\.2\.2\.2:2 could not be reset"):
            await net.reset({"n2": ["n1"]})

    asyncio.run(story())


def test_a_load_completes_although_its_caller_is_cancelled(lab: FakeLab, net: Rules) -> None:
    """Otherwise it would undo the mend that follows."""

    async def story() -> None:
        cut = asyncio.create_task(net.cut({"n2": ["n1"]}, reset=False))
        while not lab.ran:
            await asyncio.sleep(0)
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        assert lab.table["n2"] == ["-A INPUT -s 10.9.0.11 -j DROP"]
        assert await net.mend() == []

    asyncio.run(story())

"""Which nodes' networks are loaded, when, and what is made of what they tell; the kernel is played."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from floodmark.harness.cluster.containers.network import Rules
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import CLIENTS, CONTROLLER, Cuts, Packets, Resets

ADDRESSES = {"n1": "10.9.0.11", "n2": "10.9.0.12", "n3": "10.9.0.13", CONTROLLER: "10.9.0.14",
             CLIENTS: "10.9.0.1"}
EMPTY = "*filter\n-F INPUT\n-F FORWARD\n-F OUTPUT\nCOMMIT\n"
BEFORE = ["*nat", "-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT", "COMMIT", "qdisc noqueue 0: dev eth0 root"]


class FakeLab(SimpleNamespace):
    """Notes each command, answers as a net container whose rules are as they were loaded last."""

    def __init__(self, ways: str = "statistic\nqueue") -> None:
        super().__init__(names=("n1", "n2", "n3", CONTROLLER), ways=ways)
        self.ran: list[tuple[str, dict[str, str]]] = []
        self.table: dict[str, list[str]] = {}
        self.fails: set[str] = set()
        self.more: dict[str, str] = {}  # node -> what it tells besides

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
        """node -> what it was told since the last time somebody asked; each at most once."""
        told = dict(self.ran)
        assert len(told) == len(self.ran)
        self.ran.clear()
        return told


@pytest.fixture
def lab() -> FakeLab:
    return FakeLab()


@pytest.fixture
def net(lab: FakeLab) -> Rules:
    return Rules(lab)  # type: ignore[arg-type]


def test_only_nodes_that_change_are_loaded(lab: FakeLab, net: Rules) -> None:
    """Cuts add up until the heal; the first load of a node looks at it first."""

    async def story() -> None:
        await net.cut({"n2": ["n1"]}, reset=False)
        assert set(first := lab.since()) == {"n2"}
        assert first["n2"]["LOOK"] == "before"
        await net.cut({"n2": ["n3"], "n1": ["n3"]}, reset=False)
        assert set(second := lab.since()) == {"n1", "n2"}
        assert "LOOK" not in second["n2"]
        assert second["n2"]["RULES"].count("DROP") == 2
        await net.cut({"n2": ["n3"]}, reset=False)
        assert lab.since() == {}
        await net.heal()
        healed = lab.since()
        assert {name: told["RULES"] for name, told in healed.items()} == {"n1": EMPTY, "n2": EMPTY}
        assert await net.mend() == []
        assert set(lab.since()) == {"n1", "n2"}

    asyncio.run(story())


def test_a_failed_load_is_done_again_and_named(lab: FakeLab, net: Rules) -> None:
    """The others are loaded all the same; what is wanted stands until the heal."""

    async def story() -> None:
        lab.fails = {"n2"}
        with pytest.raises(FloodmarkError, match="the engine is gone"):
            await net.cut({"n1": ["n3"], "n2": ["n3"]}, reset=False)
        assert set(lab.since()) == {"n1", "n2"}
        assert await net.mend() == ["the network of n2 cannot be healed: the engine is gone"]
        lab.since()
        lab.fails = set()
        assert await net.mend() == []
        assert [name for name, told in lab.ran if told["RULES"] == EMPTY] == ["n1", "n2", "n2"]

    asyncio.run(story())


def test_what_a_load_complains_of_is_told(lab: FakeLab, net: Rules) -> None:
    """With the node's name; what it told before it failed is kept."""

    async def story() -> None:
        lab.more["n2"] = "== failed\ndelay: queue 200: Operation not permitted"
        with pytest.raises(FloodmarkError, match="the network of n2 cannot be changed: delay: queue 200: Op"):
            await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
        lab.more.clear()
        assert await net.mend() == []
        assert "LOOK" in lab.ran[-1][1]

    asyncio.run(story())


def test_residue_is_named(lab: FakeLab, net: Rules) -> None:
    """What is there and was not, what was there and is not, and a delay that ended by itself."""

    async def story() -> None:
        await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
        lab.more["n2"] = "== unserved\n100\n== after\nqdisc htb 1: dev eth0 root"
        told = await net.mend()
        assert told == ["the network of n2 still has: qdisc htb 1: dev eth0 root",
                        "the program that delays packets in the network of n2 ended before the heal"]
        lab.more.clear()
        assert await net.mend() == []

    asyncio.run(story())


def test_queues_are_replaced_by_others_and_kept_when_they_are_the_same(lab: FakeLab, net: Rules) -> None:
    """New numbers, so that the new program can serve before the old one ends; a cut leaves it alone."""

    async def story() -> None:
        await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
        asked, first = lab.ran[0][1], lab.ran[1][1]
        assert asked == {"WAYS": "1"}
        assert (first["QUEUES"], first["REQUEUE"]) == ("200,delay_ms=10", "1")
        assert "SERVED" not in first
        lab.ran.clear()
        await net.cut({"n2": ["n3"]}, reset=False)
        told = lab.since()["n2"]
        assert "REQUEUE" not in told
        assert "--queue-num 200" in told["RULES"]
        await net.degrade({"n2": ["n1"]}, {"jitter_ms": 5})
        told = lab.since()["n2"]
        assert (told["QUEUES"], told["SERVED"]) == ("100,delay_ms=10,jitter_ms=5", "200")
        await net.heal()
        told = lab.since()["n2"]
        assert "QUEUES" not in told
        assert (told["REQUEUE"], told["SERVED"]) == ("1", "100")

    asyncio.run(story())


def test_what_cannot_be_is_not_wanted_afterwards() -> None:
    """A refused quality does not stand in the way of the next cut."""
    lab = FakeLab(ways="statistic")
    net = Rules(lab)  # type: ignore[arg-type]

    async def story() -> None:
        with pytest.raises(FloodmarkError, match="is impossible here"):
            await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
        lab.since()
        await net.cut({"n2": ["n1"]}, reset=False)
        assert "NFQUEUE" not in lab.since()["n2"]["RULES"]

    asyncio.run(story())


def test_resets_are_counted_once_and_at_both_ends(lab: FakeLab, net: Rules) -> None:
    """Each connection is seen twice. One that stays is an error."""

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


def test_a_load_goes_to_its_end_when_its_caller_is_cancelled(lab: FakeLab, net: Rules) -> None:
    """Else it would undo the mend that comes next."""

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


def test_abilities_are_the_narrow_ones(net: Rules) -> None:
    """Not Cuts as well: that is the cluster's own."""
    able = [[isinstance(one, seam) for seam in (Packets, Resets, Cuts)] for one in net.abilities]

    assert able == [[True, False, False], [False, True, False]]

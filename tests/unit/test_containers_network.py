"""The rules of each node's network for the faults in force, as text; when they are loaded, and how the
output is read."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from floodmark.harness.cluster.containers import network as packets
from floodmark.harness.cluster.containers.network import (
    NETEM,
    QUEUE,
    STATISTIC,
    NetworkFaults,
    Pair,
    Rules,
    WantedRules,
)
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

ADDRESSES = {"n1": "10.9.0.11", "n2": "10.9.0.12", "n3": "10.9.0.13", CONTROLLER: "10.9.0.14",
             CLIENTS: "10.9.0.1"}
HERE = frozenset({STATISTIC, QUEUE})
EMPTY = "*filter\n-F INPUT\n-F FORWARD\n-F OUTPUT\nCOMMIT\n"
CHAINS = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"


def wanted(node: str, *, ways: frozenset[str] = HERE, cuts: Mapping[Pair, bool] | None = None,
           qualities: Mapping[Pair, Mapping[str, float]] | None = None) -> WantedRules:
    return packets.wanted_rules(node, NetworkFaults(cuts=cuts or {}, qualities=qualities or {}),
                                ADDRESSES.__getitem__,
                          ways=ways, first_queue=100)


def rules(node: str, **force: Any) -> list[str]:
    """The lines that were added."""
    lines = wanted(node, **force).rules.splitlines()
    assert [line for line in lines if line[:2] != "-A"] == EMPTY.splitlines()
    assert lines[-1] == "COMMIT"
    return lines[4:-1]


# -- the wanted rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("node", "cuts", "lines"), [
    ("n1", {}, []),
    ("n2", {("n1", "n2"): False}, ["-A INPUT -s 10.9.0.11 -j DROP"]),
    ("n1", {("n1", "n2"): False}, []),  # the sender's namespace is not touched
    # never the control socket, which the same address uses
    ("n2", {(CLIENTS, "n2"): False}, ["-A INPUT -s 10.9.0.1 -p tcp --dport 9092 -j DROP"]),
    ("n2", {("n2", CLIENTS): False}, ["-A OUTPUT -d 10.9.0.1 -p tcp --sport 9092 -j DROP"]),
    # both directions, at both ends; the answer itself may leave, and enter through lo
    *((node, {("n1", "n2"): True, ("n2", "n1"): False}, [
        f"-A INPUT -s {other} ! -i lo -p tcp -j REJECT --reject-with tcp-reset",
        f"-A INPUT -s {other} ! -i lo -j DROP",
        f"-A OUTPUT -d {other} -p tcp --tcp-flags RST RST -j ACCEPT",
        f"-A OUTPUT -d {other} -p tcp -j REJECT --reject-with tcp-reset",
    ]) for node, other in (("n1", "10.9.0.12"), ("n2", "10.9.0.11"))),
    *(("n2", {pair: True}, [
        "-A INPUT -s 10.9.0.1 ! -i lo -p tcp --dport 9092 -j REJECT --reject-with tcp-reset",
        "-A OUTPUT -d 10.9.0.1 -p tcp --sport 9092 --tcp-flags RST RST -j ACCEPT",
        "-A OUTPUT -d 10.9.0.1 -p tcp --sport 9092 -j REJECT --reject-with tcp-reset",
    ]) for pair in ((CLIENTS, "n2"), ("n2", CLIENTS))),
])
def test_cuts(node: str, cuts: Mapping[Pair, bool], lines: list[str]) -> None:
    """Silent ones are rules of the receiver alone, in one direction."""
    assert rules(node, cuts=cuts) == lines
    assert lines or wanted(node, cuts=cuts) == packets.QUIET


def test_slowness_without_netem_uses_queues_at_the_receiver() -> None:
    """One for each sender; loss alone needs none. A released packet passes no queue again, but cuts, which
    come first; one to clients is sent again, for queued in its own namespace TCP would hardly send."""
    node = wanted("n2", cuts={("n3", "n2"): False}, qualities={
        ("n1", "n2"): {"delay_ms": 100, "jitter_ms": 20, "loss": 0.1},
        (CONTROLLER, "n2"): {"loss": 0.25},
        ("n2", CLIENTS): {"delay_ms": 50},
        (CLIENTS, "n2"): {"rate_kbit": 256},
        ("n2", "n1"): {"delay_ms": 7},
    })

    assert node.rules.splitlines()[4:-1] == [
        "-A INPUT -s 10.9.0.13 -j DROP",
        "-A INPUT -m mark --mark 0xf10d -j ACCEPT",
        "-A OUTPUT -m mark --mark 0xf10d -j ACCEPT",
        "-A INPUT -s 10.9.0.1 -p tcp --dport 9092 -j NFQUEUE --queue-num 100 --queue-bypass",
        "-A INPUT -s 10.9.0.14 -m statistic --mode random --probability 0.25 -j DROP",
        "-A INPUT -s 10.9.0.11 -m statistic --mode random --probability 0.1 -j DROP",
        "-A INPUT -s 10.9.0.11 -j NFQUEUE --queue-num 101 --queue-bypass",
        "-A OUTPUT -d 10.9.0.1 -p tcp --sport 9092 -j NFQUEUE --queue-num 102 --queue-bypass",
    ]
    assert node.queues == ("100,rate_kbit=256", "101,delay_ms=100,jitter_ms=20", "102,delay_ms=50,resend=1")
    assert node.shaping == ""


def test_netem_shapes_at_the_sender() -> None:
    """A class for each receiver. No netem for clients, either way: a cut could not stop its packets."""
    qualities: dict[Pair, dict[str, float]] = {
        ("n2", "n1"): {"delay_ms": 100, "jitter_ms": 20, "loss": 0.1},
        ("n2", "n3"): {"rate_kbit": 256},
        ("n2", CLIENTS): {"rate_kbit": 512},
        (CLIENTS, "n2"): {"delay_ms": 5},
    }
    node = wanted("n2", ways=HERE | {NETEM}, qualities=qualities)

    assert node.shaping.splitlines() == [
        "qdisc add dev eth0 root handle 1: htb default 0 direct_qlen 1000",
        "class add dev eth0 parent 1: classid 1:1 htb rate 10gbit quantum 60000",
        "qdisc add dev eth0 parent 1:1 netem limit 10000 delay 100ms 20ms",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.9.0.11/32 flowid 1:1",
        "class add dev eth0 parent 1: classid 1:2 htb rate 10gbit quantum 60000",
        "qdisc add dev eth0 parent 1:2 netem limit 10000 rate 256kbit",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst 10.9.0.13/32 flowid 1:2",
    ]
    assert node.queues == ("100,delay_ms=5", "101,rate_kbit=512,resend=1")
    assert wanted("n1", ways=HERE | {NETEM}, qualities=qualities).rules.splitlines()[4:-1] == [
        "-A INPUT -s 10.9.0.12 -m statistic --mode random --probability 0.1 -j DROP"]


def test_without_the_statistic_match_loss_is_done_like_slowness() -> None:
    """By the queue or by netem."""
    lossy = {("n1", "n2"): {"loss": 0.5}}

    assert wanted("n2", ways=frozenset({QUEUE}), qualities=lossy).queues == ("100,loss=0.5",)
    assert "netem limit 10000 loss 50%" in wanted("n1", ways=frozenset({NETEM}), qualities=lossy).shaping


# -- what is refused -------------------------------------------------------------------------------------


def test_what_the_kernel_is_missing_is_named() -> None:
    """Where there is another means, nothing is refused."""
    nodes, from_clients = [("n1", "n2")], [(CLIENTS, "n2")]
    late = {"delay_ms": 10.0}

    assert packets.refusal(nodes, late, HERE) is None
    assert packets.refusal(nodes, late, frozenset({NETEM})) is None
    assert packets.refusal(nodes, {"loss": 0.1}, frozenset({STATISTIC})) is None
    assert packets.refusal(nodes, {"delay_ms": 0}, frozenset()) is None
    assert "netem (NET_SCH_NETEM) and packet queues" in str(packets.refusal(nodes, late, frozenset()))
    why = str(packets.refusal(from_clients, late, frozenset({NETEM})))
    assert "delay_ms from clients to n2" in why
    assert "lacks packet queues" in why
    for name, value, word in (("colour", 1, "'colour'"), ("loss", 1.5, "loss=1.5"),
                              ("delay_ms", -1, "delay_ms=-1")):
        assert word in str(packets.refusal(nodes, {name: value}, HERE))


def test_pairs_of_a_grudge() -> None:
    """(sender, receiver), sorted, each once; unknown names are refused."""
    names = ("n1", "n2", "n3", CONTROLLER)

    assert packets.pairs_of({"n2": ["n3", "n1", "n1"], CLIENTS: ["n2"]}, names) == [
        ("n1", "n2"), ("n2", CLIENTS), ("n3", "n2")]
    with pytest.raises(FloodmarkError, match="no node 'n9'"):
        packets.pairs_of({"n2": ["n9"]}, names)
    with pytest.raises(FloodmarkError, match="n2 cannot be cut off from itself"):
        packets.pairs_of({"n2": ["n2"]}, names)


# -- reading the output ----------------------------------------------------------------------------------

BEFORE = """\
# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 22 01:35:39 2026
*nat
:OUTPUT ACCEPT [0:0]
:DOCKER_OUTPUT - [0:0]
-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
COMMIT
# Completed on Sun Nov 22 01:35:39 2026
qdisc noqueue 0: dev lo root refcnt 2
qdisc noqueue 0: dev eth0 root refcnt 2
""".splitlines()


def test_an_empty_table_and_other_counts_are_no_difference() -> None:
    """Times, packet counts and reference counts are ignored."""
    after = [line.replace("[0:0]", "[12:840]").replace("01:35", "02:00").replace("refcnt 2", "refcnt 9")
             for line in BEFORE]

    assert packets.found([*CHAINS.splitlines(), *after]) == packets.found(BEFORE)
    assert len(packets.found(BEFORE)) == 4


@pytest.mark.parametrize(("line", "reported"), [
    ("*filter\n-A INPUT -s 10.9.0.11/32 -j DROP", "filter -A INPUT -s 10.9.0.11/32 -j DROP"),
    ("*filter\n:INPUT DROP [0:0]", "filter :INPUT DROP"),
    ("*filter\n:floodmark-ways - [0:0]", "filter :floodmark-ways -"),
    ("qdisc htb 1: dev eth0 root refcnt 3 r2q 10 default 0", "qdisc htb 1: dev eth0 root"),
    ("  100     16     0 2    20     0     0        0  1", "queue 100 served by process 16"),
])
def test_residue_is_reported(line: str, reported: str) -> None:
    """Rules, chains, policies, qdiscs, queues."""
    assert packets.found([*BEFORE, *line.splitlines()]) - packets.found(BEFORE) == {reported}


def test_a_connection_is_the_same_from_both_ends() -> None:
    """With or without a state before, mapped into IPv6 or not."""
    one = packets.ends("ESTAB 0      0      10.9.0.12:9092 10.9.0.11:48564")
    other = packets.ends("0 36 [::ffff:10.9.0.11]:48564 [::ffff:10.9.0.12]:9092")

    assert one == other == {"10.9.0.12:9092", "10.9.0.11:48564"}
    assert packets.connections({CLIENTS, "n1"}, ADDRESSES.__getitem__) == (
        "( dst 10.9.0.1 and sport = :9092 ) or dst 10.9.0.11")


# -- which nodes' rules are loaded, when; the kernel is a fake -------------------------------------------


AT_FIRST = ["*nat", "-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT", "COMMIT", "qdisc noqueue 0: dev eth0 root"]


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
        look = "\n".join(["*filter", *self.table.get(container, []), *AT_FIRST])
        if env.get("RULES"):
            self.table[container] = [line for line in env["RULES"].splitlines() if line[:2] == "-A"]
        after = "\n".join(["*filter", *self.table.get(container, []), *AT_FIRST])
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


async def test_a_failed_load_is_reported_and_retried(lab: FakeLab, net: Rules) -> None:
    """The other nodes are loaded nevertheless; the wanted rules stay in force until the heal."""
    lab.fails = {"n2"}
    with pytest.raises(FloodmarkError, match="the engine is gone"):
        await net.cut({"n1": ["n3"], "n2": ["n3"]}, reset=False)
    assert set(lab.since()) == {"n1", "n2"}
    assert await net.mend() == ["the network of n2 cannot be healed: the engine is gone"]
    lab.since()
    lab.fails = set()
    assert await net.mend() == []
    assert [name for name, env in lab.ran if env["RULES"] == EMPTY] == ["n1", "n2", "n2"]


async def test_an_error_in_the_output_is_raised_and_residue_reported(lab: FakeLab, net: Rules) -> None:
    """With the node's name; and what the mend has left there."""
    lab.more["n2"] = "== failed\ndelay: queue 200: Operation not permitted"
    with pytest.raises(FloodmarkError, match="the network of n2 cannot be changed: delay: queue 200: Op"):
        await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
    lab.more["n2"] = "== unserved\n100\n== after\nqdisc htb 1: dev eth0 root"
    assert await net.mend() == [
        "the network of n2 still has: qdisc htb 1: dev eth0 root",
        "the program that delays packets in the network of n2 ended before the heal"]
    lab.more.clear()
    assert await net.mend() == []


async def test_changed_queues_get_new_numbers_and_unchanged_ones_are_kept(lab: FakeLab, net: Rules) -> None:
    """With new numbers the new program can serve before the old one ends; a cut leaves it alone."""
    await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
    probe, first = lab.ran[0][1], lab.ran[1][1]
    assert probe == {"WAYS": "1"}
    assert (first["QUEUES"], first["REQUEUE"]) == ("200,delay_ms=10", "1")
    assert "SERVED" not in first
    lab.ran.clear()
    await net.cut({"n2": ["n3"]}, reset=False)
    env = lab.since()["n2"]
    assert "REQUEUE" not in env
    assert "--queue-num 200" in env["RULES"]
    await net.degrade({"n2": ["n1"]}, {"jitter_ms": 5})
    env = lab.since()["n2"]
    assert (env["QUEUES"], env["SERVED"]) == ("100,delay_ms=10,jitter_ms=5", "200")
    await net.heal()
    env = lab.since()["n2"]
    assert "QUEUES" not in env
    assert (env["REQUEUE"], env["SERVED"]) == ("1", "100")


async def test_a_refused_quality_is_not_kept() -> None:
    """The next cut succeeds."""
    lab = FakeLab(ways="statistic")
    net = Rules(lab)  # type: ignore[arg-type]
    with pytest.raises(FloodmarkError, match="is impossible here"):
        await net.degrade({"n2": ["n1"]}, {"delay_ms": 10})
    lab.since()
    await net.cut({"n2": ["n1"]}, reset=False)
    assert "NFQUEUE" not in lab.since()["n2"]["RULES"]


async def test_resets_are_made_at_both_ends_and_counted_once(lab: FakeLab, net: Rules) -> None:
    """Each connection is listed at both nodes. One that survives is an error."""
    lab.more = {"n1": "== there\nESTAB 0 0 10.9.0.11:40 10.9.0.12:9092\n"
                      "== reset\nESTAB 0 0 10.9.0.11:40 10.9.0.12:9092\n== kept",
                "n2": "== there\n0 0 10.9.0.12:9092 10.9.0.11:40\n== reset\n== kept"}
    assert await net.reset({"n2": ["n1"]}) == 1
    assert lab.since() == {"n1": {"RESET": "dst 10.9.0.12"}, "n2": {"RESET": "dst 10.9.0.11"}}
    stays = "0 0 1.1.1.1:1 2.2.2.2:2"
    lab.more["n1"] = lab.more["n2"] = f"== there\n{stays}\n== reset\n== kept\n{stays}"
    with pytest.raises(FloodmarkError, match=r"1\.1\.1\.1:1 - 2\.2\.2\.2:2 could not be reset"):
        await net.reset({"n2": ["n1"]})


async def test_a_load_completes_although_its_caller_is_cancelled(lab: FakeLab, net: Rules) -> None:
    """Otherwise it would undo the mend that follows."""
    cut = asyncio.create_task(net.cut({"n2": ["n1"]}, reset=False))
    while not lab.ran:
        await asyncio.sleep(0)
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    assert lab.table["n2"] == ["-A INPUT -s 10.9.0.11 -j DROP"]
    assert await net.mend() == []

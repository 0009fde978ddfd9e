"""Writes what one node's network must do to packets, as text for the kernel's tools. Pure.

Rules
1. What a node does not hear, or hears badly, is stopped, lost or queued in its own network namespace, as the
   packets come in. Clients have no namespace of ours: what they do not hear is stopped as it leaves the node.
2. Only what comes from a peer's address, or goes there, is touched; of clients' only the broker's own port.
   The control socket is asked from the clients' address at another port, and so is never cut off.
3. By reset, both ends of a connection are reset whichever of them speaks, as TCP has it: a reset of one
   direction is of both, and wins over silence.
4. A cut stands before what holds packets up: what was held when the cut came meets it when it is let go.
5. Slowness (all but loss) between nodes is netem's at the speaker, where the kernel has it. Else, and with
   clients, it is a queue's of our own (docker/faults/delay.py), in the namespace of rule 1.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from floodmark.harness.cluster.containers.addresses import LISTENER
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import CLIENTS
from floodmark.harness.schedule.json_form import QUALITIES

Pair = tuple[str, str]  # (says, hears)
Address = Callable[[str], str]  # a name's IPv4; CLIENTS': where published ports come from

DEVICE = "eth0"
MARK = 0xF10D  # delay.py's, on what it lets go

# What the kernel may have.
STATISTIC = "statistic"  # the firewall's dice
QUEUE = "queue"  # NFQUEUE, for delay.py
NETEM = "netem"
LACKS = {
    STATISTIC: "the firewall's statistic match (NETFILTER_XT_MATCH_STATISTIC)",
    QUEUE: "packet queues (NETFILTER_NETLINK_QUEUE)",
    NETEM: "netem (NET_SCH_NETEM)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """What is in force in the whole cluster."""

    cuts: Mapping[Pair, bool] = field(default_factory=dict)  # -> by reset
    qualities: Mapping[Pair, Mapping[str, float]] = field(default_factory=dict)

    @property
    def resets(self) -> frozenset[Pair]:
        """Both ways, whichever was asked."""
        asked = {pair for pair, by_reset in self.cuts.items() if by_reset}
        return frozenset(asked | {(hears, says) for says, hears in asked})

    @property
    def silent(self) -> frozenset[Pair]:
        return frozenset(self.cuts) - self.resets


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRules:
    """What one node's namespace is to hold."""

    rules: str  # for iptables-restore --noflush: the whole table `filter`
    queues: tuple[str, ...] = ()  # delay.py's words
    shaping: str = ""  # for tc -batch


def _table(lines: Iterable[str]) -> str:
    flushed = (f"-F {chain}" for chain in ("INPUT", "FORWARD", "OUTPUT"))
    return "".join(f"{line}\n" for line in ("*filter", *flushed, *lines, "COMMIT"))


QUIET = WantedRules(rules=_table(()))  # what every namespace begins with


def pairs_of(grudge: Mapping[str, Iterable[str]], names: Iterable[str]) -> list[Pair]:
    """A grudge's pairs, sorted. FloodmarkError for names that are none."""
    pairs = sorted({(says, hears) for hears, unheard in grudge.items() for says in unheard})
    known = {*names, CLIENTS}
    for pair in pairs:
        if unknown := set(pair) - known:
            raise FloodmarkError(f"no node {unknown.pop()!r}: there are {', '.join(sorted(known))}")
        if pair[0] == pair[1]:
            raise FloodmarkError(f"{pair[0]} cannot be cut off from itself")
    return pairs


def place_of(pair: Pair) -> str:
    """The node in whose namespace bytes of this pair are stopped, lost or queued."""
    says, hears = pair
    return says if hears == CLIENTS else hears


def refusal(pairs: Iterable[Pair], quality: Mapping[str, float], ways: frozenset[str]) -> str | None:
    """Why these pairs cannot suffer this on a kernel that has these ways; None: they can."""
    if unknown := sorted(set(quality) - set(QUALITIES)):
        return f"packets have no quality {unknown[0]!r}; there are: {', '.join(QUALITIES)}"
    if wrong := [name for name, value in quality.items() if value < 0 or (name == "loss" and value > 1)]:
        return f"{wrong[0]}={quality[wrong[0]]:g} cannot be: loss is 0 to 1, the others are not negative"
    for pair in pairs:
        slow = _slow(quality, ways)
        if slow and not _by_netem(pair, ways) and QUEUE not in ways:
            lacks = [QUEUE] if NETEM in ways else [NETEM, QUEUE]
            lacks += [STATISTIC] if "loss" in slow else []
            return (f"{' and '.join(slow)} from {pair[0]} to {pair[1]} cannot be had here: the kernel lacks "
                    f"{' and '.join(LACKS[way] for way in lacks)}; see floodmark doctor")
    return None


def wanted_rules(node: str, force: NetworkFaults, address: Address, *, ways: frozenset[str],
                 first_queue: int) -> WantedRules:
    """What this node's namespace is to hold. first_queue: its queues are numbered from there."""
    cuts = _silences(node, force, address) + _resets(node, force, address)
    bad, queues = _bad(node, force, address, ways, first_queue)
    return WantedRules(rules=_table((*cuts, *bad)), queues=tuple(queues),
                  shaping=_shaping(node, force, address, ways))


def connections(peers: Iterable[str], address: Address) -> str:
    """ss's filter for a node's connections with these peers."""
    with_clients = f"( dst {address(CLIENTS)} and sport = :{LISTENER} )"
    return " or ".join(with_clients if peer == CLIENTS else f"dst {address(peer)}" for peer in sorted(peers))


def ends(line: str) -> frozenset[str]:
    """Both ends of a connection, from a line of ss: the same whichever end was asked."""
    addresses = [word for word in line.split() if word.rpartition(":")[2].isdecimal() and ":" in word]
    return frozenset(word.replace("[::ffff:", "").replace("]", "") for word in addresses[:2])


def found(lines: Iterable[str]) -> frozenset[str]:
    """What a namespace holds, from what iptables-save, tc and the kernel's table of queues say: lines that
    mean the same are the same, and what means nothing (an empty chain that accepts) is not there."""
    holds = set()
    table = ""
    for line in lines:
        words = line.split()
        if not words or words[0].startswith("#") or words[0] == "COMMIT":
            continue
        if words[0].startswith("*"):
            table = words[0][1:]
        elif words[0].startswith(":"):
            if words[1] != "ACCEPT":
                holds.add(f"{table} {words[0]} {words[1]}")
        elif words[0] == "qdisc":
            holds.add(" ".join(line.partition(" refcnt ")[0].split()))
        elif words[0].isdecimal():
            holds.add(f"queue {words[0]} served by process {words[1]}")
        else:
            holds.add(f"{table} {line}")
    return frozenset(holds)


def _silences(node: str, force: NetworkFaults, address: Address) -> list[str]:
    return [f"-A {_match(pair, address)} -j DROP"
            for pair in sorted(force.silent) if place_of(pair) == node]


def _resets(node: str, force: NetworkFaults, address: Address) -> list[str]:
    """A reset sent in answer to what came in must get out; one that we send ourselves comes in through lo."""
    lines = []
    for peer in sorted(says for says, hears in force.resets if hears == node):
        ours = f" --dport {LISTENER}" if peer == CLIENTS else ""
        theirs = f" --sport {LISTENER}" if peer == CLIENTS else ""
        came, goes = f"-A INPUT -s {address(peer)} ! -i lo", f"-A OUTPUT -d {address(peer)} -p tcp{theirs}"
        lines.append(f"{came} -p tcp{ours} -j REJECT --reject-with tcp-reset")
        lines += [] if peer == CLIENTS else [f"{came} -j DROP"]
        lines.append(f"{goes} --tcp-flags RST RST -j ACCEPT")
        lines.append(f"{goes} -j REJECT --reject-with tcp-reset")
    return lines


def _bad(
    node: str, force: NetworkFaults, address: Address, ways: frozenset[str], first_queue: int
) -> tuple[list[str], list[str]]:
    """Rules for what is lost or queued, and the queues."""
    rules: list[str] = []
    queues: list[str] = []
    chains = set()
    for pair, quality in sorted(force.qualities.items()):
        if place_of(pair) != node:
            continue
        match = _match(pair, address)
        if quality.get("loss") and STATISTIC in ways:
            rules.append(f"-A {match} -m statistic --mode random --probability {quality['loss']:g} -j DROP")
        slow = _slow(quality, ways)
        if slow and not _by_netem(pair, ways):
            number = first_queue + len(queues)
            resend = {"resend": 1.0} if pair[1] == CLIENTS else {}
            words = [f"{name}={value:g}" for name, value in {**slow, **resend}.items()]
            queues.append(",".join((str(number), *words)))
            rules.append(f"-A {match} -j NFQUEUE --queue-num {number} --queue-bypass")
            chains.add(match.split()[0])
    let_go = [f"-A {chain} -m mark --mark {MARK:#x} -j ACCEPT" for chain in sorted(chains)]
    return [*let_go, *rules], queues


def _shaping(node: str, force: NetworkFaults, address: Address, ways: frozenset[str]) -> str:
    """What the node says goes by a class of its own for each hearer, and there through netem; the rest, by
    none, at once. htb is only what tells them apart: its rate is never reached."""
    hearers = {pair[1]: _slow(quality, ways) for pair, quality in sorted(force.qualities.items())
               if pair[0] == node and _by_netem(pair, ways)}
    lines = []
    for number, (hearer, slow) in enumerate(((hearer, slow) for hearer, slow in hearers.items() if slow), 1):
        minor = f"1:{number:x}"
        lines += [
            f"class add dev {DEVICE} parent 1: classid {minor} htb rate 10gbit quantum 60000",
            f"qdisc add dev {DEVICE} parent {minor} netem limit 10000 {_netem(slow)}",
            f"filter add dev {DEVICE} parent 1: protocol ip prio 1 u32 "
            f"match ip dst {address(hearer)}/32 flowid {minor}",
        ]
    root = f"qdisc add dev {DEVICE} root handle 1: htb default 0 direct_qlen 1000"
    return "".join(f"{line}\n" for line in (root, *lines)) if lines else ""


def _netem(slow: Mapping[str, float]) -> str:
    words = []
    if slow.keys() & {"delay_ms", "jitter_ms"}:
        words.append(f"delay {slow.get('delay_ms', 0):g}ms {slow.get('jitter_ms', 0):g}ms")
    if "loss" in slow:
        words.append(f"loss {slow['loss'] * 100:g}%")
    if "rate_kbit" in slow:
        words.append(f"rate {slow['rate_kbit']:g}kbit")
    return " ".join(words)


def _slow(quality: Mapping[str, float], ways: frozenset[str]) -> dict[str, float]:
    """What the firewall alone cannot do."""
    return {name: quality[name] for name in QUALITIES
            if quality.get(name) and not (name == "loss" and STATISTIC in ways)}


def _by_netem(pair: Pair, ways: frozenset[str]) -> bool:
    """Not to clients: what netem holds has left the node's firewall, and a cut would not stop it."""
    return NETEM in ways and CLIENTS not in pair


def _match(pair: Pair, address: Address) -> str:
    """Chain and match of what the pair's one says and its other hears."""
    says, hears = pair
    if hears == CLIENTS:
        return f"OUTPUT -d {address(CLIENTS)} -p tcp --sport {LISTENER}"
    port = f" -p tcp --dport {LISTENER}" if says == CLIENTS else ""
    return f"INPUT -s {address(says)}{port}"

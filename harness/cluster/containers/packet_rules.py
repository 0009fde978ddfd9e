"""Writes the packet rules of one node's network, as text for the kernel's tools. Pure.

Rules
1. Packets that a node must not receive, or receive badly, are dropped or queued in its own network namespace,
   as they come in. Clients have no namespace of ours: packets to them are stopped as they leave the node.
2. The rules only match peers' addresses; for clients also the broker's port. The control socket is asked from
   the clients' address at another port, and is therefore never cut.
3. A cut by reset resets both ends of a connection, whichever of them sends: it affects both directions, and
   takes precedence over a silent cut.
4. The cut's rules come before the delaying ones: packets delayed when the cut came are dropped when released.
5. Delays and rates between nodes are made by netem at the sender, if the kernel has it. Otherwise, and with
   clients, a queue of our own makes them (docker/faults/delay.py), in the namespace of rule 1.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from floodmark.harness.cluster.containers.addresses import LISTENER
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import QUALITIES
from floodmark.harness.schedule.views import CLIENTS

Pair = tuple[str, str]  # (sender, receiver)
Address = Callable[[str], str]  # a name's IPv4; for CLIENTS, the gateway's

DEVICE = "eth0"
MARK = 0xF10D  # set by delay.py on packets that it releases

# Features that the kernel may have.
STATISTIC = "statistic"  # random drops in the firewall
QUEUE = "queue"  # NFQUEUE, for delay.py
NETEM = "netem"
MISSING = {
    STATISTIC: "the firewall's statistic match (NETFILTER_XT_MATCH_STATISTIC)",
    QUEUE: "packet queues (NETFILTER_NETLINK_QUEUE)",
    NETEM: "netem (NET_SCH_NETEM)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """The faults in force in the cluster."""

    cuts: Mapping[Pair, bool] = field(default_factory=dict)  # -> whether by reset
    qualities: Mapping[Pair, Mapping[str, float]] = field(default_factory=dict)

    @property
    def resets(self) -> frozenset[Pair]:
        """The pairs that are cut by reset, in both directions."""
        asked = {pair for pair, by_reset in self.cuts.items() if by_reset}
        return frozenset(asked | {(receiver, sender) for sender, receiver in asked})

    @property
    def silent(self) -> frozenset[Pair]:
        return frozenset(self.cuts) - self.resets


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRules:
    """The rules that one node's namespace should have."""

    rules: str  # for iptables-restore --noflush: the complete table `filter`
    queues: tuple[str, ...] = ()  # arguments of delay.py
    shaping: str = ""  # for tc -batch


def _table(lines: Iterable[str]) -> str:
    flushed = (f"-F {chain}" for chain in ("INPUT", "FORWARD", "OUTPUT"))
    return "".join(f"{line}\n" for line in ("*filter", *flushed, *lines, "COMMIT"))


QUIET = WantedRules(rules=_table(()))  # the rules of every new namespace


def pairs_of(grudge: Mapping[str, Iterable[str]], names: Iterable[str]) -> list[Pair]:
    """A grudge's pairs, sorted. FloodmarkError for unknown names."""
    pairs = sorted({(sender, receiver) for receiver, senders in grudge.items() for sender in senders})
    known = {*names, CLIENTS}
    for pair in pairs:
        if unknown := set(pair) - known:
            raise FloodmarkError(f"no node {unknown.pop()!r}: there are {', '.join(sorted(known))}")
        if pair[0] == pair[1]:
            raise FloodmarkError(f"{pair[0]} cannot be cut off from itself")
    return pairs


def place_of(pair: Pair) -> str:
    """The node in whose namespace packets of this pair are dropped or queued."""
    sender, receiver = pair
    return sender if receiver == CLIENTS else receiver


def refusal(pairs: Iterable[Pair], quality: Mapping[str, float], ways: frozenset[str]) -> str | None:
    """Why this quality is impossible for these pairs on a kernel with these features; None: it is
    possible."""
    if unknown := sorted(set(quality) - set(QUALITIES)):
        return f"packets have no quality {unknown[0]!r}; there are: {', '.join(QUALITIES)}"
    if wrong := [name for name, value in quality.items() if value < 0 or (name == "loss" and value > 1)]:
        return f"{wrong[0]}={quality[wrong[0]]:g} is invalid: loss is 0 to 1, the others are not negative"
    for pair in pairs:
        remaining = _without_firewall(quality, ways)
        if remaining and not _by_netem(pair, ways) and QUEUE not in ways:
            lacks = [QUEUE] if NETEM in ways else [NETEM, QUEUE]
            lacks += [STATISTIC] if "loss" in remaining else []
            return (f"{' and '.join(remaining)} from {pair[0]} to {pair[1]} is impossible here: the kernel "
                    f"lacks {' and '.join(MISSING[way] for way in lacks)}; see floodmark doctor")
    return None


def wanted_rules(node: str, force: NetworkFaults, address: Address, *, ways: frozenset[str],
                 first_queue: int) -> WantedRules:
    """The rules that this node's namespace should have. first_queue: its queues are numbered from there."""
    cuts = _drop_rules(node, force, address) + _reset_rules(node, force, address)
    bad, queues = _quality_rules(node, force, address, ways, first_queue)
    return WantedRules(rules=_table((*cuts, *bad)), queues=tuple(queues),
                  shaping=_shaping(node, force, address, ways))


def connections(peers: Iterable[str], address: Address) -> str:
    """ss's filter for a node's connections with these peers."""
    with_clients = f"( dst {address(CLIENTS)} and sport = :{LISTENER} )"
    return " or ".join(with_clients if peer == CLIENTS else f"dst {address(peer)}" for peer in sorted(peers))


def ends(line: str) -> frozenset[str]:
    """Both ends of a connection, from a line of ss: the same set at either end."""
    addresses = [word for word in line.split() if word.rpartition(":")[2].isdecimal() and ":" in word]
    return frozenset(word.replace("[::ffff:", "").replace("]", "") for word in addresses[:2])


def found(lines: Iterable[str]) -> frozenset[str]:
    """The rules in a namespace, from the output of iptables-save, tc and the kernel's table of queues,
    normalised: rules with the same meaning are equal, and those without effect (an empty chain that accepts)
    are left out."""
    found_rules = set()
    table = ""
    for line in lines:
        arguments = line.split()
        if not arguments or arguments[0].startswith("#") or arguments[0] == "COMMIT":
            continue
        if arguments[0].startswith("*"):
            table = arguments[0][1:]
        elif arguments[0].startswith(":"):
            if arguments[1] != "ACCEPT":
                found_rules.add(f"{table} {arguments[0]} {arguments[1]}")
        elif arguments[0] == "qdisc":
            found_rules.add(" ".join(line.partition(" refcnt ")[0].split()))
        elif arguments[0].isdecimal():
            found_rules.add(f"queue {arguments[0]} served by process {arguments[1]}")
        else:
            found_rules.add(f"{table} {line}")
    return frozenset(found_rules)


def _drop_rules(node: str, force: NetworkFaults, address: Address) -> list[str]:
    return [f"-A {_match(pair, address)} -j DROP"
            for pair in sorted(force.silent) if place_of(pair) == node]


def _reset_rules(node: str, force: NetworkFaults, address: Address) -> list[str]:
    """The rules of cuts by reset. Resets that answer incoming packets must get out; resets that the node
    sends to itself come in through lo."""
    lines = []
    for peer in sorted(sender for sender, receiver in force.resets if receiver == node):
        ours = f" --dport {LISTENER}" if peer == CLIENTS else ""
        theirs = f" --sport {LISTENER}" if peer == CLIENTS else ""
        incoming = f"-A INPUT -s {address(peer)} ! -i lo"
        outgoing = f"-A OUTPUT -d {address(peer)} -p tcp{theirs}"
        lines.append(f"{incoming} -p tcp{ours} -j REJECT --reject-with tcp-reset")
        lines += [] if peer == CLIENTS else [f"{incoming} -j DROP"]
        lines.append(f"{outgoing} --tcp-flags RST RST -j ACCEPT")
        lines.append(f"{outgoing} -j REJECT --reject-with tcp-reset")
    return lines


def _quality_rules(
    node: str, force: NetworkFaults, address: Address, ways: frozenset[str], first_queue: int
) -> tuple[list[str], list[str]]:
    """The rules for lost and queued packets, and the queues."""
    rules: list[str] = []
    queues: list[str] = []
    chains = set()
    for pair, quality in sorted(force.qualities.items()):
        if place_of(pair) != node:
            continue
        match = _match(pair, address)
        if quality.get("loss") and STATISTIC in ways:
            rules.append(f"-A {match} -m statistic --mode random --probability {quality['loss']:g} -j DROP")
        remaining = _without_firewall(quality, ways)
        if remaining and not _by_netem(pair, ways):
            number = first_queue + len(queues)
            resend = {"resend": 1.0} if pair[1] == CLIENTS else {}
            arguments = [f"{name}={value:g}" for name, value in {**remaining, **resend}.items()]
            queues.append(",".join((str(number), *arguments)))
            rules.append(f"-A {match} -j NFQUEUE --queue-num {number} --queue-bypass")
            chains.add(match.split()[0])
    accept_released = [f"-A {chain} -m mark --mark {MARK:#x} -j ACCEPT" for chain in sorted(chains)]
    return [*accept_released, *rules], queues


def _shaping(node: str, force: NetworkFaults, address: Address, ways: frozenset[str]) -> str:
    """tc's commands: packets to each receiver go through a class of its own with netem, all others without
    delay. htb only separates them: its rate is never reached."""
    receivers = {pair[1]: _without_firewall(quality, ways)
                 for pair, quality in sorted(force.qualities.items())
                 if pair[0] == node and _by_netem(pair, ways)}
    lines = []
    slow = ((receiver, remaining) for receiver, remaining in receivers.items() if remaining)
    for number, (receiver, remaining) in enumerate(slow, 1):
        minor = f"1:{number:x}"
        lines += [
            f"class add dev {DEVICE} parent 1: classid {minor} htb rate 10gbit quantum 60000",
            f"qdisc add dev {DEVICE} parent {minor} netem limit 10000 {_netem(remaining)}",
            f"filter add dev {DEVICE} parent 1: protocol ip prio 1 u32 "
            f"match ip dst {address(receiver)}/32 flowid {minor}",
        ]
    root = f"qdisc add dev {DEVICE} root handle 1: htb default 0 direct_qlen 1000"
    return "".join(f"{line}\n" for line in (root, *lines)) if lines else ""


def _netem(remaining: Mapping[str, float]) -> str:
    arguments = []
    if remaining.keys() & {"delay_ms", "jitter_ms"}:
        arguments.append(f"delay {remaining.get('delay_ms', 0):g}ms {remaining.get('jitter_ms', 0):g}ms")
    if "loss" in remaining:
        arguments.append(f"loss {remaining['loss'] * 100:g}%")
    if "rate_kbit" in remaining:
        arguments.append(f"rate {remaining['rate_kbit']:g}kbit")
    return " ".join(arguments)


def _without_firewall(quality: Mapping[str, float], ways: frozenset[str]) -> dict[str, float]:
    """The part of a quality that the firewall alone cannot make."""
    return {name: quality[name] for name in QUALITIES
            if quality.get(name) and not (name == "loss" and STATISTIC in ways)}


def _by_netem(pair: Pair, ways: frozenset[str]) -> bool:
    """Whether netem delays this pair. Not to clients: delayed packets have passed the firewall, so that a cut
    would not stop them."""
    return NETEM in ways and CLIENTS not in pair


def _match(pair: Pair, address: Address) -> str:
    """Chain and match of the packets from sender to receiver."""
    sender, receiver = pair
    if receiver == CLIENTS:
        return f"OUTPUT -d {address(CLIENTS)} -p tcp --sport {LISTENER}"
    port = f" -p tcp --dport {LISTENER}" if sender == CLIENTS else ""
    return f"INPUT -s {address(sender)}{port}"

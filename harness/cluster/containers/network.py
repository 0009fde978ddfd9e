"""Cuts, degrades and resets connections of a cluster in containers, in the namespaces of its net containers.

Rules
1. Each node's firewall, queueing and packet queues are computed together (wanted_rules) and loaded together,
   by one command in its net container (docker/faults/network.sh). Nodes whose rules change are loaded in
   parallel, the others not at all.
2. Cuts and qualities add up until the heal. A node whose load failed is loaded again at the next change.
3. Only a net container's table `filter` and its device's queueing are written; its other tables are not (the
   engine's name service has rules in `nat`).
4. The state before the first change is read then, and compared with the state after mending.
5. Packets that a node must not receive, or receive badly, are dropped or queued in its own network namespace,
   as they come in. Clients have no namespace of ours: packets to them are stopped as they leave the node.
6. The rules only match peers' addresses; for clients also the broker's port. The control socket is asked from
   the clients' address at another port, and is therefore never cut.
7. A cut by reset resets both ends of a connection, whichever of them sends, and takes precedence over a
   silent cut.
8. The cut's rules come before the delaying ones: packets delayed when the cut came are dropped when released.
9. Delays and rates between nodes are made by netem at the sender, if the kernel has it. Otherwise, and with
   clients, a queue of our own makes them (docker/faults/delay.py), in the namespace of rule 5.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodmark.harness.cluster.containers.engine_resources import LISTENER, EngineResources
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import gather_all
from floodmark.harness.faults import QUALITIES
from floodmark.harness.schedule.views import CLIENTS

PROGRAM = ("sh", "/opt/floodmark/faults/network.sh")
PROGRAM_S = 20.0  # it may start a queue's program and end another
QUEUES_FROM = (100, 200)  # used alternately: new queues start before the old ones end

Sections = dict[str, list[str]]  # the program's output: heading -> its lines
Pair = tuple[str, str]  # (sender, receiver)
Address = Callable[[str], str]  # a name's IPv4; for CLIENTS, the gateway's

DEVICE = "eth0"
MARK = 0xF10D  # set by delay.py on packets that it releases

# Features that the kernel may have: random drops in the firewall; NFQUEUE, for delay.py.
STATISTIC, QUEUE, NETEM = "statistic", "queue", "netem"
KERNEL_OPTIONS = {
    STATISTIC: "the firewall's statistic match (NETFILTER_XT_MATCH_STATISTIC)",
    QUEUE: "packet queues (NETFILTER_NETLINK_QUEUE)",
    NETEM: "netem (NET_SCH_NETEM)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    cuts: Mapping[Pair, bool] = field(default_factory=dict)  # -> whether by reset
    qualities: Mapping[Pair, Mapping[str, float]] = field(default_factory=dict)

    @property
    def resets(self) -> frozenset[Pair]:
        """The pairs that are cut by reset, in both directions."""
        asked = {pair for pair, by_reset in self.cuts.items() if by_reset}
        return frozenset(asked | {pair[::-1] for pair in asked})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRules:
    """The rules loaded in a node's namespace."""

    wanted: WantedRules = QUIET
    sure: bool = True  # False: a load did not finish
    turn: int = 0  # index into QUEUES_FROM


class Rules:
    """See harness.protocols: Cuts, Packets and Resets."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._faults = NetworkFaults()
        self._features: frozenset[str] | None = None  # None: not known yet
        self._loaded: dict[str, LoadedRules] = {}
        self._before: dict[str, frozenset[str]] = {}
        self._ended: set[str] = set()  # nodes whose delay program ended before the heal
        self._changing = asyncio.Lock()

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        pairs = pairs_of(grudge, self._lab.names)
        async with self._changing:
            await self._load_all(replace(
                self._faults, cuts={**self._faults.cuts, **dict.fromkeys(pairs, reset)}))
            if reset:
                await self._reset(pairs)

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None:
        """For one quality between the same two nodes, the last value counts."""
        pairs = pairs_of(grudge, self._lab.names)
        async with self._changing:
            if self._features is None:
                sections = await _run(self._lab, self._lab.names[0], {"FEATURES": "1"})
                _raise_if_failed(self._lab.names[0], sections)
                self._features = frozenset(sections["features"])
            if why := refusal(pairs, quality, self._features):
                raise FloodmarkError(why)
            worse = {pair: {**self._faults.qualities.get(pair, {}), **quality} for pair in pairs}
            await self._load_all(replace(self._faults, qualities={**self._faults.qualities, **worse}))

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        pairs = pairs_of(grudge, self._lab.names)
        async with self._changing:
            return await self._reset(pairs)

    async def heal(self) -> None:
        async with self._changing:
            await self._load_all(NetworkFaults())

    async def mend(self) -> list[str]:
        """Heals every node that ever had rules; returns what differs from its state before."""
        async with self._changing:
            self._faults = NetworkFaults()
            mended = await gather_all(map(self._mend, sorted(self._loaded)))
            residue = [line for lines in mended for line in lines]
            residue += [f"the program that delays packets in the network of {name} ended before the heal"
                        for name in sorted(self._ended)]
            self._ended.clear()
            return residue

    async def _load_all(self, faults: NetworkFaults) -> None:
        self._faults = faults
        await gather_all(map(self._load, self._lab.names))

    async def _load(self, name: str, *, reload: bool = False) -> Sections:
        """If the caller is cancelled, waits for the load's end, which could undo what mends it."""
        task = asyncio.ensure_future(self._load_now(name, reload=reload))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _load_now(self, name: str, *, reload: bool) -> Sections:
        loaded = self._loaded.get(name, LoadedRules())
        wanted, turn = self._wanted(name, loaded.turn), loaded.turn
        reload = reload or not loaded.sure
        if wanted == loaded.wanted and not reload:
            return {}
        requeue = reload or wanted.queues != loaded.wanted.queues
        if requeue:
            turn = 1 - turn
            wanted = self._wanted(name, turn)
        self._loaded[name] = replace(loaded, sure=False)
        sections = await _run(self._lab, name, {
            "LOOK": "after" if reload and name in self._before else "" if name in self._before else "before",
            "RULES": wanted.rules,
            "RESHAPE": "1" if reload or wanted.shaping != loaded.wanted.shaping else "",
            "SHAPING": wanted.shaping,
            "REQUEUE": "1" if requeue else "", "QUEUES": " ".join(wanted.queues),
            "SERVED": " ".join(queue.split(",")[0] for queue in loaded.wanted.queues if loaded.sure)})
        if "before" in sections:
            self._before[name] = net_state(sections["before"])
        if "unserved" in sections:
            self._ended.add(name)
        _raise_if_failed(name, sections)
        self._loaded[name] = LoadedRules(wanted=wanted, turn=turn)
        return sections

    async def _mend(self, name: str) -> list[str]:
        """If the first load failed, it is loaded twice, because the state before is unknown."""
        try:
            sections = await self._load(name, reload=True)
            if "after" not in sections:
                sections = await self._load(name, reload=True)
        except FloodmarkError as error:
            return [f"the network of {name} cannot be healed: {error}"]
        before, after = self._before[name], net_state(sections["after"])
        return [f"the network of {name} still has: {line}" for line in sorted(after - before)] + [
            f"the network of {name} lacks what it had before: {line}" for line in sorted(before - after)]

    def _wanted(self, name: str, turn: int) -> WantedRules:
        return wanted_rules(name, self._faults, self._lab.address, features=self._features or frozenset(),
                            first_queue=QUEUES_FROM[turn])

    async def _reset(self, pairs: Iterable[Pair]) -> int:
        """At both ends: if a cut is in force, one end's reset would not reach the other."""
        concerned = {name: {one for pair in pairs if name in pair for one in pair} - {name}
                     for name in sorted({name for pair in pairs for name in pair} - {CLIENTS})}
        sections = await gather_all(
            _run(self._lab, name, {"RESET": connections(peers, self._lab.address)})
            for name, peers in concerned.items())
        for name, one in zip(concerned, sections, strict=True):
            _raise_if_failed(name, one)
        there, was_reset, kept = (
            {end for one in sections for end in map(ends, one.get(heading, ()))}
            for heading in ("there", "reset", "kept"))
        if stays := (there & kept) - was_reset:
            raise FloodmarkError(f"the connection {' - '.join(sorted(min(stays, key=sorted)))} could not be "
                                 "reset: the kernel needs CONFIG_INET_DIAG_DESTROY")
        return len(was_reset)


async def _run(lab: EngineResources, name: str, env: Mapping[str, str]) -> Sections:
    given = {key: value for key, value in env.items() if value}
    return _sections(await lab.exec(lab.net(name), PROGRAM, env=given, timeout_s=PROGRAM_S))


def _raise_if_failed(name: str, sections: Sections) -> None:
    if "failed" in sections:
        raise FloodmarkError(f"the network of {name} cannot be changed: {' '.join(sections['failed'])}")


def _sections(text: str) -> Sections:
    sections: Sections = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("== "):
            heading = line.removeprefix("== ")
            sections.setdefault(heading, [])
        else:
            sections.setdefault(heading, []).append(line)
    return sections


# -- the rules as text for the kernel's tools; pure ---------------------------------------------------------

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


def enforcing_node(pair: Pair) -> str:
    """The node in whose namespace packets of this pair are dropped or queued."""
    sender, receiver = pair
    return sender if receiver == CLIENTS else receiver


def refusal(pairs: Iterable[Pair], quality: Mapping[str, float], features: frozenset[str]) -> str | None:
    """Why this quality is impossible for these pairs on a kernel with these features; None: it is not."""
    if unknown := sorted(set(quality) - set(QUALITIES)):
        return f"packets have no quality {unknown[0]!r}; there are: {', '.join(QUALITIES)}"
    if wrong := [name for name, value in quality.items() if value < 0 or (name == "loss" and value > 1)]:
        return f"{wrong[0]}={quality[wrong[0]]:g} is invalid: loss is 0 to 1, the others are not negative"
    for pair in pairs:
        remaining = _beyond_firewall(quality, features)
        if remaining and not _by_netem(pair, features) and QUEUE not in features:
            lacks = [QUEUE] if NETEM in features else [NETEM, QUEUE]
            lacks += [STATISTIC] if "loss" in remaining else []
            return (f"{' and '.join(remaining)} from {pair[0]} to {pair[1]} is impossible here: the kernel "
                    f"lacks {' and '.join(KERNEL_OPTIONS[one] for one in lacks)}; see floodmark doctor")
    return None


def wanted_rules(node: str, faults: NetworkFaults, address: Address, *, features: frozenset[str],
                 first_queue: int) -> WantedRules:
    cuts = [f"-A {_match(pair, address)} -j DROP"
            for pair in sorted(faults.cuts.keys() - faults.resets) if enforcing_node(pair) == node]
    bad, queues = _quality_rules(node, faults, address, features, first_queue)
    return WantedRules(rules=_table((*cuts, *_reset_rules(node, faults, address), *bad)),
                       queues=tuple(queues), shaping=_shaping(node, faults, address, features))


def connections(peers: Iterable[str], address: Address) -> str:
    """ss's filter for a node's connections with these peers."""
    with_clients = f"( dst {address(CLIENTS)} and sport = :{LISTENER} )"
    return " or ".join(with_clients if peer == CLIENTS else f"dst {address(peer)}" for peer in sorted(peers))


def ends(line: str) -> frozenset[str]:
    """Both ends of a connection, from a line of ss: the same set at either end."""
    addresses = [word for word in line.split() if word.rpartition(":")[2].isdecimal() and ":" in word]
    return frozenset(word.replace("[::ffff:", "").replace("]", "") for word in addresses[:2])


def net_state(lines: Iterable[str]) -> frozenset[str]:
    """From iptables-save, tc and the kernel's table of queues: rules with the same meaning are equal, and
    those without effect (an empty chain that accepts) are left out."""
    state = set()
    table = ""
    for line in lines:
        arguments = line.split()
        if not arguments or arguments[0].startswith("#") or arguments[0] == "COMMIT":
            continue
        if arguments[0].startswith("*"):
            table = arguments[0][1:]
        elif arguments[0].startswith(":"):
            if arguments[1] != "ACCEPT":
                state.add(f"{table} {arguments[0]} {arguments[1]}")
        elif arguments[0] == "qdisc":
            state.add(" ".join(line.partition(" refcnt ")[0].split()))
        elif arguments[0].isdecimal():
            state.add(f"queue {arguments[0]} served by process {arguments[1]}")
        else:
            state.add(f"{table} {line}")
    return frozenset(state)


def _reset_rules(node: str, faults: NetworkFaults, address: Address) -> list[str]:
    """Resets that answer packets must get out; those that the node sends to itself come in through lo."""
    lines = []
    for peer in sorted(sender for sender, receiver in faults.resets if receiver == node):
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
    node: str, faults: NetworkFaults, address: Address, features: frozenset[str], first_queue: int
) -> tuple[list[str], list[str]]:
    rules: list[str] = []
    queues: list[str] = []
    chains = set()
    for pair, quality in sorted(faults.qualities.items()):
        if enforcing_node(pair) != node:
            continue
        match = _match(pair, address)
        if quality.get("loss") and STATISTIC in features:
            rules.append(f"-A {match} -m statistic --mode random --probability {quality['loss']:g} -j DROP")
        remaining = _beyond_firewall(quality, features)
        if remaining and not _by_netem(pair, features):
            number = first_queue + len(queues)
            resend = {"resend": 1.0} if pair[1] == CLIENTS else {}
            arguments = [f"{name}={value:g}" for name, value in {**remaining, **resend}.items()]
            queues.append(",".join((str(number), *arguments)))
            rules.append(f"-A {match} -j NFQUEUE --queue-num {number} --queue-bypass")
            chains.add(match.split()[0])
    accept_released = [f"-A {chain} -m mark --mark {MARK:#x} -j ACCEPT" for chain in sorted(chains)]
    return [*accept_released, *rules], queues


def _shaping(node: str, faults: NetworkFaults, address: Address, features: frozenset[str]) -> str:
    """tc's commands: packets to each receiver go through a class with netem. htb only separates them."""
    receivers = {pair[1]: _beyond_firewall(quality, features)
                 for pair, quality in sorted(faults.qualities.items())
                 if pair[0] == node and _by_netem(pair, features)}
    lines = []
    slow = ((receiver, remaining) for receiver, remaining in receivers.items() if remaining)
    for number, (receiver, remaining) in enumerate(slow, 1):
        minor, arguments = f"1:{number:x}", []
        if remaining.keys() & {"delay_ms", "jitter_ms"}:
            arguments.append(f"delay {remaining.get('delay_ms', 0):g}ms {remaining.get('jitter_ms', 0):g}ms")
        if "loss" in remaining:
            arguments.append(f"loss {remaining['loss'] * 100:g}%")
        if "rate_kbit" in remaining:
            arguments.append(f"rate {remaining['rate_kbit']:g}kbit")
        lines += [
            f"class add dev {DEVICE} parent 1: classid {minor} htb rate 10gbit quantum 60000",
            f"qdisc add dev {DEVICE} parent {minor} netem limit 10000 {' '.join(arguments)}",
            f"filter add dev {DEVICE} parent 1: protocol ip prio 1 u32 "
            f"match ip dst {address(receiver)}/32 flowid {minor}"]
    root = f"qdisc add dev {DEVICE} root handle 1: htb default 0 direct_qlen 1000"
    return "".join(f"{line}\n" for line in (root, *lines)) if lines else ""


def _beyond_firewall(quality: Mapping[str, float], features: frozenset[str]) -> dict[str, float]:
    """The part of a quality that the firewall alone cannot make."""
    return {name: quality[name] for name in QUALITIES
            if quality.get(name) and not (name == "loss" and STATISTIC in features)}


def _by_netem(pair: Pair, features: frozenset[str]) -> bool:
    """Not to clients: delayed packets have passed the firewall, so that a cut would not stop them."""
    return NETEM in features and CLIENTS not in pair


def _match(pair: Pair, address: Address) -> str:
    """Chain and match of the packets from sender to receiver."""
    sender, receiver = pair
    if receiver == CLIENTS:
        return f"OUTPUT -d {address(CLIENTS)} -p tcp --sport {LISTENER}"
    port = f" -p tcp --dport {LISTENER}" if sender == CLIENTS else ""
    return f"INPUT -s {address(sender)}{port}"

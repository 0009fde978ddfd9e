"""Finds the nodes of run.json's `died` whose deaths the schedule explains: what a node cannot do without was
unavailable for at least the node's own time-out; or a fault was in force on it that may end a process.

Rules
1. A node cannot do without a majority of the controllers (or ZooKeeper): the processes that the nemesis names
   and run.json's `nodes` does not. A node that is starting may need another broker too.
2. A process is unavailable to a node while it is killed, stopped or paused, cut from it in one direction, or
   their packets are lost or late, until that is undone or the cluster is mended.
3. The node's last life before the death counts. If a process was unavailable when the node started, the
   time-out is that of a registration; else that of a session. What had been available again for longer than
   the time-out explains nothing: by then the node had a new session.
4. If run.json does not say when a node died, it may have been in any of its lives.
5. A bad disk or too little memory explains a death from when it was begun until a session's time-out after it
   was undone: nobody knows how long a death went unnoticed. So does another package's fault, which ends with
   its line; if it names no node, on any.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from floodmark.checkers.judge.preconditions import Preconditions, faults_in_broken, is_cut_short
from floodmark.checkers.read.folder import Folder, ints, is_int, names
from floodmark.harness.faults import FAULTS, OF_LINKS, undoes

NEVER = 1 << 62  # ns; later than every line
CLIENTS = "clients"  # in a grudge; no process of the cluster
MS = 1_000_000
# A broker's time-outs: Kafka's keys, of which the first in its config counts; and the value without any, ms.
AT_START = ("zookeeper.connection.timeout.ms", "initial.broker.registration.timeout.ms"), 60_000
IN_SESSION = ("zookeeper.session.timeout.ms", "broker.session.timeout.ms"), 9_000

HARMS = frozenset(f for f, fault in FAULTS.items()
                  if fault.may_end and fault.undone_by and not fault.of_process)  # fmt: skip

Of = str | frozenset[str]  # whom a fault concerns: a process, or the two ends of a cut


class Span(NamedTuple):
    """A stretch of time, in ns."""

    begin: int
    end: int


class Act(NamedTuple):
    """An act of the nemesis. A fault counts from when it was begun, what mends it when it was done."""

    f: str
    nodes: Sequence[str]
    lasting: frozenset[Of]  # those to whom a process is unavailable, or who are, until this is undone
    began: int
    time: int
    failed: bool


def died(folder: Folder) -> list[str] | None:
    """The nodes whose process ended by itself after it had been ready, sorted; None: run.json has no list of
    them."""
    nodes = folder.about.get("died") or []
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        return None
    return sorted(set(nodes))


def unexplained(folder: Folder, seen: Preconditions) -> list[str]:
    nodes = died(folder) or []
    return sorted({*nodes} - {*explained(folder, nodes, seen.history.nemesis)})


def may_have_been_struck(folder: Folder, seen: Preconditions) -> bool:
    """Whether the history may lack a fault, or its time may be wrong."""
    missing = folder.killed or is_cut_short(folder, seen)
    may_be = faults_in_broken(folder, seen) - {"elect"}
    return bool(missing or may_be or seen.disordered or seen.falls is not None)


def explained(folder: Folder, nodes: Sequence[str], nemesis: Sequence[Mapping[str, Any]]) -> Collection[str]:
    """Those of the nodes whose deaths are explained. nemesis: its lines, in order."""
    acts = [act_of(line) for line in nemesis]
    named = {name for act in acts for each in (act.nodes, *act.lasting)
             for name in ([each] if isinstance(each, str) else each)}
    controllers = named - {*folder.nodes, CLIENTS}
    return [node for node in nodes if is_explained(folder, node, acts, controllers - {node})]


def act_of(line: Mapping[str, Any]) -> Act:
    f, fault = line["f"], line["fault"]
    nodes, grudge, began = names(fault.get("nodes")), fault.get("grudge"), fault.get("began")
    lasting: Iterable[Of] = nodes if f in FAULTS and FAULTS[f].of_process else ()
    if f in OF_LINKS and isinstance(grudge, dict):
        lasting = (frozenset((node, other)) for node, unheard in grudge.items() for other in names(unheard))
    return Act(f=f, nodes=nodes, lasting=frozenset(lasting), began=began if is_int(began) else line["time"],
               time=line["time"], failed="error" in fault)  # fmt: skip


def is_explained(folder: Folder, node: str, acts: Sequence[Act], controllers: Collection[str]) -> bool:
    mended, died_at = ints(folder.about.get("mended")), folder.about.get("died_at")
    deaths = ints(died_at.get(node)) if isinstance(died_at, dict) else ()
    until, brokers = mended[-1] if mended else NEVER, {*folder.nodes} - {node}
    outages = [*outages_of(node, controllers, (len(controllers) + 1) // 2, acts, until)]
    of_brokers = [*outages_of(node, brokers, len(brokers), acts, until)]
    at_start, in_session = timeout_of(folder, node, *AT_START), timeout_of(folder, node, *IN_SESSION)

    harms = [*harms_of(node, acts, until)]

    def is_excused(life: Span) -> bool:
        if any(one.begin <= life.end and (not deaths or life.end <= one.end + in_session) for one in harms):
            return True
        for outage in (*outages, *(one for one in of_brokers if one.begin <= life.begin)):
            timeout = at_start if outage.begin <= life.begin else in_session
            lasted = min(outage.end, life.end) - max(outage.begin, life.begin)
            if lasted >= timeout and (not deaths or life.end <= outage.end + timeout):
                return True
        return False

    lives = map(is_excused, lives_of(node, acts, deaths, mended))
    return all(lives) if deaths else any(lives)


def timeout_of(folder: Folder, node: str, keys: Sequence[str], default_ms: int) -> int:
    """The node's time-out, in ns."""
    config = folder.about.get("config")
    own = config.get(node) if isinstance(config, dict) else None
    given = [own[key] for key in keys if is_int(own.get(key))] if isinstance(own, dict) else []
    return (given[0] if given else default_ms) * MS


def outages_of(node: str, needed: Collection[str], enough: int, acts: Sequence[Act], until: int
               ) -> Iterator[Span]:
    """When at least `enough` of the needed processes were unavailable to the node; some spans are empty."""
    in_force, since = set[tuple[str, Of]](), NEVER
    for act in acts:
        if not act.failed:
            in_force = {(f, of) for f, of in in_force
                        if not undoes(act.f, act.nodes, f, of if isinstance(of, str) else None)}
        in_force |= {(act.f, of) for of in act.lasting}
        away = [name for name in needed if any(of in (name, {name, node}) for _, of in in_force)]
        if 0 < enough <= len(away):
            since = min(since, act.began)
        else:
            yield Span(since, act.time)
            since = NEVER
    yield Span(since, until)


def harms_of(node: str, acts: Sequence[Act], until: int) -> Iterator[Span]:
    """When a fault that may end a process was in force on the node."""
    for at, act in enumerate(acts):
        if act.f not in FAULTS and node in (act.nodes or (node,)):
            yield Span(act.began, act.time)
        elif act.f in HARMS and node in act.nodes:
            undone = (other.time for other in acts[at:]
                      if not other.failed and undoes(other.f, other.nodes, act.f, node))
            yield Span(act.began, next(undone, until))


def lives_of(node: str, acts: Sequence[Act], deaths: Sequence[int], mended: Sequence[int]) -> Iterator[Span]:
    """The node's lives that these deaths ended; all of its lives, if nobody knows when it died."""
    starts = [0, *(act.began for act in acts if act.f == "start" and node in act.nodes)]
    ends = [*deaths, *(act.time for act in acts if node in act.lasting and act.f != "pause")]
    before = [end for end in ends if mended and end <= mended[0]]
    if before and not any(max(before) < start <= mended[0] for start in starts):
        starts.append(mended[0])  # it was down, and mending started it
    if deaths:
        # No life is without length: at the very time of a start, an earlier life ended.
        yield from (Span(max(start for start in starts if start < max(end, 1)), end) for end in deaths)
    else:
        yield from (Span(start, min((end for end in ends if end > start), default=NEVER)) for start in starts)

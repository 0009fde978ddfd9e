"""The one table of faults: for each its words, whom it strikes, what it takes, what ends it, what it loses,
and what it needs of a cluster; the table of nemeses, which draw faults at random; and the table of the
broker's failpoints: where each is, and the actions that it allows. (The broker has a list of its own, on
purpose, like the codecs; a contract test compares the two.)

Everything else reads it: schedules, the planner, refusals, commands, reports and the judge. A new fault is an
entry here and a method of this name in a place or a system (`method`); nemesis/strikes.py has what some do
besides calling it on each node, and nemesis/steps.lark the form of those with a `step`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from floodmark.harness.errors import UsageError
from floodmark.harness.registered import owner_of_fault

# What an argument is, as schedule/json_form.py reads it; or a tuple: one of these words.
Kind = tuple[str, ...] | Literal["arm", "flag", "grudge", "keep", "node or role", "number", "offset",
                                 "partitions", "positive", "release", "share", "word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, by the name `f` that schedules and histories use. Others' have the first four fields."""

    f: str
    does: str
    undone_by: str | None = None  # the f that mends it; None: its effect does not last
    loses: bool = False  # written data may be lost ("lost": true in the history)
    # whom it strikes: named nodes; links (by a grudge, or of named nodes); the cluster; else as it likes
    on: Literal["nodes", "links", "cluster", "any"] = "any"
    args: Mapping[str, Kind] = field(default_factory=dict)  # besides the `partition` of all but "cluster"
    needs: tuple[str, ...] = ()  # arguments that it cannot do without
    kinds: Mapping[str, str] = field(default_factory=dict)  # if it has several kinds: what each does
    ability: str | None = None  # the protocol in protocols.py that a cluster needs; None: `method` alone
    by: str | None = None  # the method of whatever has the ability, if it is not called f
    passes: tuple[Any, ...] = ()  # what it gets after the node: arguments by name, or values that are no str
    by_role: bool = False  # a reproduction may strike whoever leads then
    may_end: bool = False  # the process ends, or may end, without flushing what it has written
    spares_flushed: bool = False  # it loses only what was not flushed
    loses_what: str = "all their data"  # of the nodes that it strikes, in words
    of_brokers: bool = False  # the controller has nothing that it could strike
    asks_controller: bool = False  # it is a request, which a controller that is down does not answer
    command: bool = False  # `floodmark cluster F`, with NODE... if it is on nodes
    step: str | None = None  # what a scenario's step with this verb takes besides nodes; None: there is none

    @property
    def method(self) -> str:
        return self.by or self.f

    @property
    def takes_down(self) -> bool:
        """Whether the process has ended until it is started."""
        return self.undone_by == "start"

    @property
    def of_process(self) -> bool:
        """Whether it lasts no longer than the process, and strikes by a node's name."""
        return self.undone_by in MENDS_ROLE


MENDS_ROLE = {"start": "down", "resume": "paused"}  # the role of the nodes that each of these mends
_DAMAGED = {"wiped": "kill, and empty the disk", "corrupt": "kill, and change a byte at a log's end",
            "truncated": "kill, and cut off bytes at a log's end"}
_BAD = {"full": "no space left, until mended", "read-only": "nothing can be written, until mended",
        "failing": "nothing can be read or written, until mended"}
_WORSE_PACKETS = {"loss": "packets between nodes are lost at random",
                  "delay": "packets between nodes are delayed, with jitter",
                  "rate": "packets between nodes have a limited rate"}
# Kinds of disk faults. DISKS_DAMAGED take the node down; DISKS_BAD last until the disk is mended.
DISKS_DAMAGED = tuple(_DAMAGED)
DISKS_BAD = tuple(_BAD)
QUALITIES: Mapping[str, Kind] = {  # of packets
    "loss": "share", "delay_ms": "number", "jitter_ms": "number", "rate_kbit": "positive"}

FAULTS: dict[str, Fault] = {
    fault.f: fault
    for fault in (
        Fault(f="kill", does="SIGKILL to the broker", undone_by="start", on="nodes", ability="Kills",
              by_role=True, may_end=True, command=True, step=""),
        Fault(f="start", does="start a broker that is not running", on="nodes", ability="Kills",
              by="start_node", command=True, step=""),
        Fault(f="stop", does="SIGTERM: an orderly stop, which moves leadership away first",
              undone_by="start", on="nodes", ability="Kills", by="stop_node", by_role=True, command=True,
              step=""),
        Fault(f="pause", does="SIGSTOP to the broker", undone_by="resume", on="nodes", ability="Pauses",
              by_role=True, command=True, step=""),
        Fault(f="resume", does="SIGCONT to the broker", on="nodes", ability="Pauses", command=True, step=""),
        Fault(f="cut", does="drop bytes between nodes, by direction", undone_by="heal", on="links",
              args={"grudge": "grudge", "kind": "word", "reset": "flag"}, ability="Cuts",
              step="from NODES, hears-not NODES, reset"),
        Fault(f="heal", does="let every byte pass again", on="cluster", ability="Cuts", command=True,
              step=""),
        Fault(f="power_cut", does="kill and lose what was not fsynced", undone_by="start", loses=True,
              on="nodes", args={"keep": "keep", "keep_share": "share"}, ability="PowerCuts", by_role=True,
              of_brokers=True, spares_flushed=True, loses_what="what they had not fsynced", command=True,
              step="keep LEO, ..."),
        Fault(f="expire", does="the controller ends the broker's session now", on="nodes", ability="Expires",
              by_role=True, of_brokers=True, asks_controller=True, command=True, step=""),
        Fault(f="elect", does="ask the controller for a preferred or unclean election, or for one leader",
              on="cluster", args={"partitions": "partitions", "unclean": "flag", "leader": "node or role"},
              ability="Elects", asks_controller=True, step="unclean"),
        Fault(f="packet", does="drop, delay or throttle packets between nodes", undone_by="heal", on="links",
              args={"grudge": "grudge", "kind": "word", **QUALITIES}, kinds=_WORSE_PACKETS, ability="Packets",
              by="degrade"),
        Fault(f="reset", does="reset the connections between nodes, once", on="links",
              args={"grudge": "grudge", "kind": "word"}, ability="Resets"),
        Fault(f="disk", does="kill, and wipe or damage what the disk held", undone_by="start", loses=True,
              on="nodes", args={"kind": DISKS_DAMAGED}, needs=("kind",), kinds=_DAMAGED, ability="Wipes",
              by="wipe", by_role=True, of_brokers=True, may_end=True, step=""),
        Fault(f="bad_disk", does="fill the disk, or make it fail", undone_by="mend_disk", loses=True,
              on="nodes", args={"kind": DISKS_BAD}, needs=("kind",), kinds=_BAD, ability="BadDisks",
              by="harm", of_brokers=True, may_end=True, loses_what="what they had not fsynced"),
        Fault(f="mend_disk", does="give the broker a healthy disk again; what was lost stays lost",
              on="nodes", ability="BadDisks", by="repair", of_brokers=True, may_end=True),
        Fault(f="clock", does="set the broker's wall clock wrong", undone_by="reset_clock", on="nodes",
              args={"offset_ms": "offset"}, needs=("offset_ms",), ability="Clocks", by="bump",
              passes=("offset_ms",)),
        Fault(f="reset_clock", does="set the broker's wall clock right again", on="nodes", ability="Clocks",
              by="bump", passes=(0,)),
        Fault(f="memory", does="limit the broker's memory", undone_by="free_memory", on="nodes",
              args={"limit_mb": "positive"}, needs=("limit_mb",), ability="MemoryLimits", by="limit",
              passes=("limit_mb",), may_end=True),
        Fault(f="free_memory", does="remove the limit on the broker's memory", on="nodes",
              ability="MemoryLimits", by="limit", passes=(None,)),
        Fault(f="arm", does="arm a failpoint in a process", undone_by="release", on="nodes",
              args={"point": "arm"}, needs=("point",), ability="Failpoints", passes=("point",)),
        Fault(f="release", does="release what a failpoint holds, and disarm it", on="nodes",
              args={"point": "release"}, ability="Failpoints",
              step="at POINT, peer NODE, through epoch E, keep"),
    )
}
LOSES = frozenset(f for f, fault in FAULTS.items() if fault.loses)
SPARES_FLUSHED = frozenset(f for f, fault in FAULTS.items() if fault.spares_flushed)
MENDING = frozenset(fault.undone_by for fault in FAULTS.values() if fault.undone_by)
COMMANDS = tuple(f for f, fault in FAULTS.items() if fault.command)
BY_ROLE = frozenset(f for f, fault in FAULTS.items() if fault.by_role)
LASTING = frozenset(f for f, fault in FAULTS.items() if fault.undone_by is not None)
OF_LINKS = frozenset(f for f, fault in FAULTS.items() if fault.undone_by == "heal")
# A failpoint has no effect until a node reaches it.
UNSEEN = frozenset(f for f, fault in FAULTS.items() if fault.ability == "Failpoints")


# Random nemeses, each with what a cluster must be able to suffer: F, or `F KIND`, the most needed first.
# nemesis/fault_patterns.py has a function of each name, which draws its strikes.
NEMESES: Mapping[str, tuple[str, ...]] = {
    "crash": ("kill",), "restart": ("stop",), "pause": ("pause",), "cut": ("cut",), "power": ("power_cut",),
    "expire": ("expire",), "elect": ("elect",), "controller": ("kill",), "moments": ("arm",),
    "packet": ("packet loss", "packet delay", "packet rate", "reset"), "clock": ("clock",),
    "disk": ("bad_disk full",), "memory": ("memory",),
}  # fmt: skip
MORE_NEMESES = ("packet", "clock", "disk", "memory")  # only some clusters offer them, on some machines


def loses(f: str, args: Mapping[str, Any]) -> bool:
    """Whether this strike can lose written data. A full disk keeps what it had."""
    fault = FAULTS.get(f) or registered_fault(f)
    return fault is not None and fault.loses and args.get("kind") != "full"


@cache
def registered_fault(f: str) -> Fault | None:
    """The fault of this name of another distribution's nemesis; None: none has it. UsageError: a bad one."""
    owner = owner_of_fault(f)
    theirs = getattr(owner.load(), "faults", ()) if owner is not None else ()
    fault = next((fault for fault in theirs if fault.f == f), None)
    if fault is not None and fault.undone_by is not None:
        raise UsageError(f"the {owner} has the fault {f!r}, undone by {fault.undone_by!r}: a fault of its "
                         "own is over when its strike returns, so undone_by must be None")
    return fault


def undoes(f: str, nodes: Sequence[str], of: str, node: str | None) -> bool:
    """Whether the act `f` on these nodes (none: on all nodes) undoes the fault `of` on `node` (None: the
    fault is not on a single node). A process that is started again is no longer paused."""
    fault = FAULTS.get(of)
    if fault is None or (fault.undone_by != f and not (f == "start" and fault.of_process)):
        return False
    return not nodes or node is None or node in nodes


# -- failpoints ---------------------------------------------------------------------------------------------

REPORT, CRASH, HOLD, DELAY, DROP, DUPLICATE = "report", "crash", "hold", "delay", "drop", "duplicate"
STOP_ACTIONS = (REPORT, CRASH, HOLD, DELAY)
MESSAGE_ACTIONS = (*STOP_ACTIONS, DROP)  # for a message that can be dropped
ACTIONS = (*MESSAGE_ACTIONS, DUPLICATE)  # for a message that can also be duplicated
SCOPES = ("partition", "broker")
BROKER_SCOPE_ACTIONS = (HOLD, DELAY)  # actions that scope broker allows


@dataclass(frozen=True, slots=True)
class Point:
    """A failpoint, which is a place between two steps of the protocol."""

    name: str
    when: str  # the moment that it marks, for messages
    actions: tuple[str, ...] = STOP_ACTIONS
    of_controller: bool = False


POINTS: dict[str, Point] = {
    point.name: point
    for point in (
        Point("F.appended", "a follower has appended and not moved its HW yet"),
        Point("F.before_refetch", "a follower has not sent its next fetch yet", MESSAGE_ACTIONS),
        Point("F.truncated", "a follower has truncated and not fetched again yet"),
        Point("F.epoch_req", "a replica has not sent its first request for a leader epoch yet",
              MESSAGE_ACTIONS),
        Point("F.fetch_resp", "a follower has not processed a fetch response yet", ACTIONS),
        Point("F.followed", "a replica has become follower"),
        Point("L.elected", "a replica has become leader and done nothing yet"),
        Point("L.acked", "the leader has acked, and its followers' HW is lower"),
        Point("L.hw", "the leader's HW has moved"),
        Point("P.parked", "a produce waits for the ISR"),
        Point("L.alter_sent", "the leader has not sent its proposal of an ISR yet", ACTIONS),
        Point("L.alter_answer", "the leader has not processed the response to a proposal yet", ACTIONS),
        Point("D.ckpt", "the HW checkpoint is written"),
        Point("D.ckpt_done", "all HWs were checked, and written if one had moved", (REPORT, CRASH)),
        Point("D.fsync", "a log is fsynced"),
        Point("B.registered", "the broker is registered"),
        Point("C.elected", "the controller has not sent a new leader to a broker yet", ACTIONS,
              of_controller=True),
        Point("C.alter_applied", "the controller has applied an ISR and not sent the response yet",
              MESSAGE_ACTIONS, of_controller=True),
    )
}

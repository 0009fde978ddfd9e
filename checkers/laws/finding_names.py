"""The record of each finding that this judge can make, and its name as a constant.

A record says by which rows of the format's table "What makes checks unknown" (`If`) its check is unknown, by
which of them it claims nothing at all, and what it needs to see. judge/reasons.py decides which rows hold in
a run. The words of a finding are in text/words.ini, its SELECT is in the family of its law, both by its name.
A check that is not made has no record, and so is nowhere in a verdict.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Flag, auto


class If(Flag):
    """The rows of "What makes checks unknown"; words.ini has the sentence of each."""

    REPEATED = auto()
    OVERLAPPING = auto()
    BREACHED = auto()  # a line of history.jsonl may be missing or wrong: it may excuse, so some claim nothing
    DISORDERED = auto()  # ... and indexes do not rise: nobody knows which of two lines came first
    KILLED = auto()
    LOG = auto()  # a dump, or replicas.jsonl
    LEADERS_LOG = auto()
    LOSS_HIDDEN = auto()  # neither the leader's log nor reads show what a partition lost
    LOG_START = auto()  # only what would be found there: it may be below the log start
    EPOCHS = auto()
    LEADERLESS = auto()
    UNSETTLED = auto()
    UNREAD = auto()
    COMPACT = auto()
    TRACE = auto()  # a line that is missing may excuse, so some claim nothing
    CLOCKS = auto()  # the times of two nodes cannot be compared
    OBSERVES = auto()  # nobody knows what could be seen
    UNACKED = auto()
    DIED = auto()
    ACKS = auto()  # from here on: the guarantee is unknown, and it can permit these
    MIN_INSYNC = auto()
    UNCLEAN = auto()
    FLUSH = auto()
    RETRIES = auto()
    ISOLATION = auto()
    UNFIT = auto()  # the run did not do what was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """needs: dumps, replicas.jsonl, events of the trace: those that show what it looks for, and those that
    excuse it."""

    unknown: If
    silent: If  # the rows of `unknown` by which it claims nothing
    needs: frozenset[str]
    imports_show: bool  # an imported history shows it too, without its needs


FILES = frozenset({"dumps", "replicas.jsonl"})
LAWS: dict[str, Law] = {}
_NEVER = If(0)
_HISTORY = If.REPEATED | If.BREACHED
_POSITION = _HISTORY | If.LOG_START
_LOSSES = If.MIN_INSYNC | If.UNCLEAN | If.FLUSH  # what permits losses, and what follows from them
_TRACE = If.REPEATED | If.TRACE | If.CLOCKS | If.OBSERVES
_LOG = If.LOG | If.OBSERVES
# The events that show what was committed, who had it, and what permits its loss; where a HW first appears.
_COMMITTED = {"append", "truncate", "hw", "become_leader", "become_follower", "start", "elect", "isr"}
_LIVES = {"register", "fence", "unfence"}
_HIGH_WATERMARKS = {"hw", "become_leader", "become_follower", "start"}


def _law(
    name: str, unknown: If, needs: Iterable[str] = (), *, silent: If = _NEVER, imports_show: bool = False
) -> str:
    """Record the law of a finding; return the finding's name."""
    LAWS[name] = Law(
        unknown=unknown | silent, silent=silent, needs=frozenset(needs), imports_show=imports_show)
    return name


LOST_WRITE = _law(
    "lost-write", _HISTORY | If.LOSS_HIDDEN | If.COMPACT | If.UNACKED | If.OBSERVES | If.ACKS | _LOSSES)
UNDER_REPLICATED = _law("under-replicated", _LOG | If.LEADERLESS | If.UNSETTLED | If.COMPACT, FILES)
UNSEEN = _law(
    "unseen", If.REPEATED | If.LEADERS_LOG | If.LEADERLESS | If.UNSETTLED | If.UNREAD | If.UNACKED
    | If.OBSERVES | If.ISOLATION, FILES, silent=If.BREACHED | If.KILLED)
DIVERGED = _law("diverged", _LOG | If.UNSETTLED, FILES)
EPOCH_LINEAGE = _law("epoch-lineage", _LOG | If.EPOCHS | If.COMPACT, FILES)
MALFORMED_LOG = _law("malformed-log", _LOG, FILES)
INCONSISTENT_OFFSETS = _law("inconsistent-offsets", _HISTORY | If.ACKS | _LOSSES)
DUPLICATE = _law("duplicate", _HISTORY | If.RETRIES | _LOSSES)
PHANTOM = _law("phantom", If.REPEATED, silent=If.BREACHED | If.KILLED)
G1A = _law("G1a", _HISTORY | If.ISOLATION | _LOSSES)
SAW_THEN_LOST = _law(
    "saw-then-lost", _HISTORY | If.LEADERS_LOG | If.LEADERLESS | If.COMPACT | If.OBSERVES | _LOSSES, FILES)
TORN_TRANSACTION = _law(
    "torn-transaction", If.REPEATED | If.OBSERVES | If.ACKS | If.ISOLATION | _LOSSES, FILES,
    silent=If.BREACHED, imports_show=True)
NONMONOTONIC_SEND = _law(
    "nonmonotonic-send", _HISTORY | If.OVERLAPPING | If.ACKS | If.RETRIES | _LOSSES, silent=If.DISORDERED)
INT_NONMONOTONIC_SEND = _law("int-nonmonotonic-send", _HISTORY | If.RETRIES)
REALTIME_ORDER = _law("realtime-order", If.REPEATED | If.OVERLAPPING | If.ACKS | _LOSSES, silent=If.BREACHED)
NONMONOTONIC_POLL = _law(
    "nonmonotonic-poll", _POSITION | If.OVERLAPPING | _LOSSES, silent=If.BREACHED | If.KILLED)
# Where acks may be weak, they do not prove a record that a poll passed over.
POLL_SKIP = _law(
    "poll-skip", _POSITION | If.OVERLAPPING | If.ACKS | _LOSSES, silent=If.BREACHED | If.KILLED)
INT_NONMONOTONIC_POLL = _law("int-nonmonotonic-poll", _POSITION)
INT_POLL_SKIP = _law("int-poll-skip", _POSITION | If.ACKS | _LOSSES)
END_OFFSET_REGRESSED = _law("end-offset-regressed", If.BREACHED | _LOSSES, silent=If.DISORDERED)
STUCK = _law("stuck", If.REPEATED | If.DIED)
BROKER_DIED = _law("broker-died", If.REPEATED | If.DIED)
HW_REGRESSED = _law("hw-regressed", _TRACE, {"hw"})
LEADER_INCOMPLETE = _law(
    "leader-incomplete", _TRACE | _LOSSES, {*_COMMITTED, "replicas.jsonl"}, silent=If.TRACE)
CANDIDATE_INCOMPLETE = _law(
    "candidate-incomplete", _TRACE | _LOSSES, {*_COMMITTED, *_LIVES, "replicas.jsonl"}, silent=If.TRACE)
TWO_LEADERS = _law("two-leaders", _TRACE, {"append", "hw"})
ACK_RULE = _law("ack-rule", _TRACE | If.MIN_INSYNC, {"ack", "append", "start", "become_leader"})
UNSAFE_TRUNCATION = _law(
    "unsafe-truncation", _TRACE | If.LOG_START | _LOSSES, {*_COMMITTED, "replicas.jsonl"}, silent=If.TRACE)
UNSAFE_ISR = _law("unsafe-isr", _TRACE, {*_COMMITTED, *_LIVES, "ack"}, silent=If.TRACE)
EPOCH_REGRESSED = _law("epoch-regressed", _TRACE, {"become_leader", "become_follower"})
UNCLEAN_ELECTION = _law("unclean-election", _TRACE | If.UNCLEAN, {"elect"})
# From the trace and the history: the line of a fault that lost data may be missing, and times may be wrong.
RECOVERY_LOSS = _law(
    "recovery-loss", _TRACE, {"start", "append", "truncate", "fetch", "ack"},
    silent=If.TRACE | If.BREACHED | If.KILLED)
READ_ABOVE_HW = _law("read-above-hw", _TRACE, _HIGH_WATERMARKS, silent=If.TRACE | If.BREACHED)
END_OFFSET_AHEAD = _law("end-offset-ahead", _TRACE, _HIGH_WATERMARKS, silent=If.TRACE | If.BREACHED)
PRECOMMITTED_READ = _law("precommitted-read", _HISTORY | If.ISOLATION)
G0 = _law("G0", _HISTORY | If.ISOLATION)
G0_PROCESS = _law("G0-process", If.REPEATED | If.OVERLAPPING | If.ISOLATION, silent=If.BREACHED)
G0_REALTIME = _law("G0-realtime", If.REPEATED | If.ISOLATION, silent=If.BREACHED)
G1C = _law("G1c", _HISTORY | If.ISOLATION)
G1C_PROCESS = _law("G1c-process", If.REPEATED | If.OVERLAPPING | If.ISOLATION, silent=If.BREACHED)
G1C_REALTIME = _law("G1c-realtime", If.REPEATED | If.ISOLATION, silent=If.BREACHED)
MADE = tuple(sorted(LAWS))
UNFIT = _law("unfit", If.UNFIT)  # never a finding: listed under unknown
WITHDRAWN = ("G-single", "G2-item")  # nobody looks for them; gates of before still allow them

CYCLES = (G0, G1C, G0_PROCESS, G1C_PROCESS, G0_REALTIME, G1C_REALTIME)
OF_THE_TRACE = tuple(name for name, law in LAWS.items() if law.needs - FILES)
# Findings that may be to blame for the loss of a record.
GUILTY = (UNSAFE_TRUNCATION, LEADER_INCOMPLETE, CANDIDATE_INCOMPLETE, UNSAFE_ISR, ACK_RULE, RECOVERY_LOSS)
LOSSES = (LOST_WRITE, SAW_THEN_LOST, INCONSISTENT_OFFSETS, DIVERGED, UNDER_REPLICATED, EPOCH_LINEAGE)


# What makes checks unknown: a row, or the checks themselves; and why they may have missed something.
Reason = tuple[If | tuple[str, ...], str]


def unknown_if(rows: If, *, traced: bool = False) -> tuple[str, ...]:
    """The checks that these rows make unknown; those of a trace that is not there only by its own rows."""
    own = rows if traced else rows & (If.TRACE | If.CLOCKS | If.OBSERVES)
    return tuple(name for name, law in LAWS.items()
                 if law.unknown & (own if name in OF_THE_TRACE else rows))


def silent_if(rows: If) -> tuple[str, ...]:
    """The checks that claim nothing by any of these rows."""
    return tuple(name for name, law in LAWS.items() if law.silent & rows)

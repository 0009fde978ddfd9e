"""The record of each finding that this judge can make, and its name as a constant.

A record says by which rows of the format's table "What makes checks unknown" (`If`) its check is unknown, by
which of them it claims nothing at all, and what it needs to see. judge/reasons.py decides which rows hold in
a run. The words of a finding are in text/words.ini, its SELECT is in the family of its law, both by its name.
A check that is not made has no record, and so is nowhere in a verdict.
"""

from dataclasses import dataclass
from enum import Flag, auto
from functools import reduce
from operator import or_


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
    HISTORY = REPEATED | BREACHED
    LOSSES = MIN_INSYNC | UNCLEAN | FLUSH  # what permits losses, and what follows from them
    ANY_TRACE = REPEATED | TRACE | CLOCKS | OBSERVES


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
# The events that show what was committed, who had it, and what permits its loss; where a HW first appears.
_COMMITTED = "append truncate hw become_leader become_follower start elect isr"
_LIVES = "register fence unfence"
_HIGH_WATERMARKS = "hw become_leader become_follower start"


def _law(name: str, unknown: str, *needs: str, silent: str = "", imports_show: bool = False) -> str:
    """Record the law of a finding; return the finding's name. A row that is not in `If` is a KeyError. What
    its needs make unknown goes without saying."""
    needed = frozenset(" ".join(needs).split())
    by_needs = If.ANY_TRACE if needed - FILES else If.OBSERVES if needed else If(0)
    LAWS[name] = Law(unknown=_rows(f"{unknown} {silent}") | by_needs, silent=_rows(silent), needs=needed,
                     imports_show=imports_show)  # fmt: skip
    return name


def _rows(words: str) -> If:
    return reduce(or_, (If[word.upper()] for word in words.split()), If(0))


LOST_WRITE = _law("lost-write", "history loss_hidden compact unacked observes acks losses")
UNDER_REPLICATED = _law("under-replicated", "log leaderless unsettled compact", *FILES)
UNSEEN = _law("unseen", "repeated leaders_log leaderless unsettled unread unacked isolation", *FILES,
              silent="breached killed")  # fmt: skip
DIVERGED = _law("diverged", "log unsettled", *FILES)
EPOCH_LINEAGE = _law("epoch-lineage", "log epochs compact", *FILES)
MALFORMED_LOG = _law("malformed-log", "log", *FILES)
INCONSISTENT_OFFSETS = _law("inconsistent-offsets", "history acks losses")
DUPLICATE = _law("duplicate", "history retries losses")
PHANTOM = _law("phantom", "repeated", silent="breached killed")
G1A = _law("G1a", "history isolation losses")
SAW_THEN_LOST = _law("saw-then-lost", "history leaders_log leaderless compact losses", *FILES)
TORN_TRANSACTION = _law("torn-transaction", "repeated acks isolation losses", *FILES,
                        silent="breached", imports_show=True)  # fmt: skip
NONMONOTONIC_SEND = _law("nonmonotonic-send", "history overlapping acks retries losses", silent="disordered")
INT_NONMONOTONIC_SEND = _law("int-nonmonotonic-send", "history acks retries losses")
REALTIME_ORDER = _law("realtime-order", "repeated overlapping acks losses", silent="breached")
NONMONOTONIC_POLL = _law(
    "nonmonotonic-poll", "repeated overlapping log_start losses", silent="breached killed")
# Where acks may be weak, they do not prove a record that a poll passed over.
POLL_SKIP = _law("poll-skip", "repeated overlapping log_start acks losses", silent="breached killed")
INT_NONMONOTONIC_POLL = _law("int-nonmonotonic-poll", "history log_start")
INT_POLL_SKIP = _law("int-poll-skip", "history log_start acks losses")
END_OFFSET_REGRESSED = _law("end-offset-regressed", "breached losses", silent="disordered")
STUCK = _law("stuck", "repeated died")
BROKER_DIED = _law("broker-died", "repeated died")
HW_REGRESSED = _law("hw-regressed", "", "hw")
LEADER_INCOMPLETE = _law(
    "leader-incomplete", "log_start losses", _COMMITTED, "replicas.jsonl", silent="trace")
CANDIDATE_INCOMPLETE = _law(
    "candidate-incomplete", "log_start losses", _COMMITTED, _LIVES, "replicas.jsonl", silent="trace")
TWO_LEADERS = _law("two-leaders", "", "append hw")
ACK_RULE = _law("ack-rule", "min_insync", "ack append start become_leader")
UNSAFE_TRUNCATION = _law(
    "unsafe-truncation", "log_start losses", _COMMITTED, "replicas.jsonl", silent="trace")
UNSAFE_ISR = _law("unsafe-isr", "", _COMMITTED, _LIVES, "ack", silent="trace")
EPOCH_REGRESSED = _law("epoch-regressed", "", "become_leader become_follower")
UNCLEAN_ELECTION = _law("unclean-election", "unclean", "elect")
# From the trace and the history: the line of a fault that lost data may be missing, and times may be wrong.
RECOVERY_LOSS = _law(
    "recovery-loss", "", "start append truncate fetch ack", silent="trace breached killed")
READ_ABOVE_HW = _law("read-above-hw", "", _HIGH_WATERMARKS, silent="trace breached")
END_OFFSET_AHEAD = _law("end-offset-ahead", "", _HIGH_WATERMARKS, silent="trace breached")
PRECOMMITTED_READ = _law("precommitted-read", "history isolation")
G0 = _law("G0", "history isolation")
G0_PROCESS = _law("G0-process", "repeated overlapping isolation", silent="breached")
G0_REALTIME = _law("G0-realtime", "repeated isolation", silent="breached")
G1C = _law("G1c", "history isolation")
G1C_PROCESS = _law("G1c-process", "repeated overlapping isolation", silent="breached")
G1C_REALTIME = _law("G1c-realtime", "repeated isolation", silent="breached")
MADE = tuple(sorted(LAWS))
UNFIT = _law("unfit", "unfit")  # never a finding: listed under unknown
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

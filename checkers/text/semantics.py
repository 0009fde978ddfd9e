"""What Kafka promises and what it does not: the facts behind a finding, its law, and what permits it.

Rules
1. A fact has a number, by which reports name it (`floodmark explain S8` tells it): what people think, and
   what holds. A law is what every correct cluster keeps; each finding breaks one.
2. What permits a finding is told as what the setting means, never as an excuse for what it does not cover.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from checkers.laws import finding_names as names


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing about replicated logs that is often got wrong."""

    thought: str
    holds: str


def _fact(thought: str, holds: str) -> Fact:
    return Fact(thought=thought, holds=holds)


FACTS: Mapping[str, Fact] = {
    "S1": _fact(
        "acks=all waits for all replicas.",
        "It waits for those in the ISR at that moment, which may be the leader alone: the ack goes out when "
        "the HW passes the record.",
    ),
    "S2": _fact(
        "min.insync.replicas=2 means that two copies are enough for an ack.",
        "It is a gate, looked at before the append and again at the ack. Whoever is in the ISR must have the "
        "record, however many they are.",
    ),
    "S3": _fact(
        "min.insync.replicas protects every write.",
        "It is asked for writes with acks=all only. With acks=1 or 0 a leader that is all alone takes them.",
    ),
    "S4": _fact(
        "The defaults are safe.",
        "By default a topic has one replica and min.insync.replicas is 1; producers before 3.0 sent with "
        "acks=1, and brokers up to 0.10.2 elected uncleanly.",
    ),
    "S5": _fact(
        "Three replicas survive two failures.",
        "An acked record survives one lasting loss less than min.insync.replicas says. If the ISR had shrunk "
        "to one member, and that one loses its data, a single loss is enough.",
    ),
    "S6": _fact(
        "An error means that nothing was written.",
        "After a time-out, a lost connection, a changed leader or NOT_ENOUGH_REPLICAS_AFTER_APPEND the "
        "record is in some log, and may be read, kept or truncated. Few errors are a certain no.",
    ),
    "S7": _fact(
        "A retry is harmless.",
        "Without idempotence the first try may have been appended: then the record is there twice, and, with "
        "several requests under way, out of order.",
    ),
    "S8": _fact(
        "What was acked is on the disk.",
        "It is in the memory of the operating system, unless flush.messages=1: a killed process loses "
        "nothing, a power cut whatever was not fsynced. The other replicas are what makes it durable.",
    ),
    "S9": _fact(
        "Without unclean elections nothing is ever lost.",
        "It also takes acks=all, enough replicas and a correct protocol: old generations lose acked records "
        "by clean elections alone.",
    ),
    "S10": _fact(
        "An unclean election may corrupt the logs.",
        "It may lose records. But since KIP-279 it leaves no two logs that differ: logs that part are a bug, "
        "whatever the election was.",
    ),
    "S11": _fact(
        "An unclean election needs an operator.",
        "Where the setting allows it the controller makes one by itself: at once, or at its next look.",
    ),
    "S12": _fact(
        "A member of the ISR has everything.",
        "It has all below the HW, and may lag behind above it, for a while. Its own HW is older still.",
    ),
    "S13": _fact(
        "There is one high watermark.",
        "Each replica has its own. Only the leader's, and only within one epoch, never falls; a follower's "
        "is a fetch behind, and so is that of a new leader.",
    ),
    "S14": _fact(
        "A consumer sees what was appended.",
        "It sees what is below the HW; under read_committed, below the first open transaction.",
    ),
    "S15": _fact(
        "An end offset never shrinks.",
        "Before KIP-207 a new leader might answer less than the old one had; since then it answers that it "
        "does not know yet, until its HW has reached the start of its epoch.",
    ),
    "S16": _fact(
        "A consumer notices that the log was truncated.",
        "Only if it sends the epoch of its position (KIP-320, clients from 2.3 on). Else it goes on, and "
        "skips or reads twice without a word.",
    ),
    "S17": _fact(
        "Committed offsets are safe.",
        "They are records of an internal topic, under the same rules and with the same losses.",
    ),
    "S18": _fact(
        "Transactions are isolated from one another.",
        "Their writes may interleave. An abort only hides records, and only from read_committed readers.",
    ),
    "S19": _fact(
        "Two brokers are enough to see a clean loss on any old version.",
        "Only if a restart goes unnoticed or the leadership goes to and fro; else it takes three replicas "
        "and two failures.",
    ),
    "S20": _fact(
        "To restart a broker is harmless.",
        "Where followers truncate to their HW (before KIP-101), each new leader makes all of them throw away "
        "what is above a HW that is always a fetch old, committed or not. A second failure makes it a loss.",
    ),
}

# -- what permits a finding ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a cause means, and the facts it rests on."""

    means: str
    facts: tuple[str, ...]


PERMISSIONS: Mapping[str, Permission] = {
    "acks": Permission(
        means="with acks=1 the leader answers as soon as it has the record itself, with acks=0 nobody waits "
        "at all, and min.insync.replicas is not asked: if the leader goes before a follower has fetched it, "
        "the record goes with it",
        facts=("S3", "S1"),
    ),
    "unclean.leader.election.enable": Permission(
        means="the setting lets a replica lead that was not in the ISR, so that the partition is back "
        "sooner; what only the ISR had is gone then, acked or not",
        facts=("S10", "S9", "S11"),
    ),
    "fault budget": Permission(
        means="an ack is no fsync: a power cut or a bad disk takes what was not flushed, and a leader was "
        "then chosen from copies that had suffered so. An acked record survives fewer such losses than "
        "min.insync.replicas says, and none where the ISR had shrunk to the one that was struck",
        facts=("S8", "S5"),
    ),
    "retries": Permission(
        means="a producer that retries and is not idempotent cannot know whether its first try was appended: "
        "the record may be there twice, or late",
        facts=("S7",),
    ),
    "subscribe": Permission(
        means="a member of a consumer group takes over partitions, and their positions, from other members "
        "whenever the group changes",
        facts=("S17", "S16"),
    ),
    "isolation": Permission(
        means="this isolation level does not keep transactions apart: their writes may interleave, and under "
        "read_uncommitted a reader sees what is open or aborted",
        facts=("S18",),
    ),
}

# -- the law that each finding breaks, and the facts to read besides ----------------------------------------

_CYCLE = "What transactions read and wrote fits some order, one after the other: no cycle of them"

LAWS: Mapping[str, str] = {
    names.LOST_WRITE: "Whoever is in the ISR had the record when it was acked, and the next leader comes "
    "from the ISR: neither kills nor pauses, cuts or clean elections may cost it",
    names.UNDER_REPLICATED: "A member of the ISR has all that the leader's HW has passed; an election could "
    "give it the partition at any time",
    names.UNSEEN: "A reader that reads to the end is shown every committed record",
    names.DIVERGED: "Where two logs have the same offset below the HW they have the same record",
    names.EPOCH_LINEAGE: "An epoch has one leader, and only that leader writes its records: epoch and offset "
    "name one record, and epochs only rise along a log",
    names.MALFORMED_LOG: "A log has each offset once, in order and with whole bytes, and says truly where it "
    "begins and ends",
    names.INCONSISTENT_OFFSETS: "An offset that a client was shown belongs to that record for good",
    names.DUPLICATE: "A record that was sent once stands in the log once",
    names.PHANTOM: "A log holds what was sent to it and nothing else",
    names.G1A: "What was refused for certain is not there; where it may have been appended, the answer must "
    "leave it in doubt",
    names.SAW_THEN_LOST: "Readers are shown only what is committed, and what is committed stays",
    names.NONMONOTONIC_SEND: "What a client sends later comes later in the log",
    names.INT_NONMONOTONIC_SEND: "The records of one send keep their order",
    names.REALTIME_ORDER: "What was acked before another send began stands before it",
    names.NONMONOTONIC_POLL: "A consumer goes forward until it is told to go elsewhere",
    names.INT_NONMONOTONIC_POLL: "Within one answer offsets rise",
    names.POLL_SKIP: "A consumer is shown every record between two that it was shown",
    names.INT_POLL_SKIP: "Within one answer no record of the log is left out",
    names.END_OFFSET_REGRESSED: "The end of a log, as one client is told it, never falls",
    names.STUCK: "When all nodes are back, every partition finds a leader and takes writes again",
    names.BROKER_DIED: "A broker that has come up goes on until somebody ends it: an error of its own is "
    "answered, not died of",
    names.HW_REGRESSED: "Within one epoch a leader's HW never falls: clients were shown what is below it",
    names.UNCLEAN_ELECTION: "A leader is elected from the ISR, unless the setting or whoever runs the "
    "cluster says that any replica will do",
    names.LEADER_INCOMPLETE: "A leader begins with all that was ever committed: else it gives those offsets "
    "to other records",
    names.CANDIDATE_INCOMPLETE: "Whoever the controller may choose has all that was committed: the next "
    "election would lose it",
    names.TWO_LEADERS: "The controller gives an epoch to one node",
    names.ACK_RULE: "An acks=all ack says that the HW has passed the record, that every member of the ISR "
    "has it, and that they are as many as min.insync.replicas asks",
    names.UNSAFE_TRUNCATION: "A follower cuts only what its leader does not have, and a leader has all that "
    "was committed",
    names.UNSAFE_ISR: "A replica joins the ISR when it has come up to the HW and to the start of the "
    "leader's epoch, and the leader counts whomever the controller counts",
    names.EPOCH_REGRESSED: "A node takes a role only in an epoch above its last, restarts or not",
    names.PRECOMMITTED_READ: "Nobody reads a transaction's writes before it is committed, itself included",
    names.G0: "The writes of two transactions do not run into each other",
    names.G1C: _CYCLE,
    names.G_SINGLE: f"{_CYCLE}, not even by what one of them had not seen yet",
    names.G2_ITEM: f"{_CYCLE}, not even by what they had not seen yet",
    **dict.fromkeys(names.BY_PROCESS, f"{_CYCLE}, the order in which each client asked included"),
    **dict.fromkeys(names.BY_TIME, f"{_CYCLE}, the order of real time included"),
    names.UNFIT: "A run does what its schedule asked",
}

FACTS_OF: Mapping[str, tuple[str, ...]] = {
    names.LOST_WRITE: ("S1", "S5", "S8", "S9"),
    names.UNDER_REPLICATED: ("S12",),
    names.UNSEEN: ("S14",),
    names.DIVERGED: ("S10",),
    names.EPOCH_LINEAGE: ("S10",),
    names.MALFORMED_LOG: ("S13",),
    names.INCONSISTENT_OFFSETS: ("S9", "S16"),
    names.DUPLICATE: ("S7",),
    names.PHANTOM: ("S6",),
    names.G1A: ("S6",),
    names.SAW_THEN_LOST: ("S14", "S16"),
    names.NONMONOTONIC_SEND: ("S7",),
    names.INT_NONMONOTONIC_SEND: ("S7",),
    names.REALTIME_ORDER: ("S9",),
    names.NONMONOTONIC_POLL: ("S16",),
    names.INT_NONMONOTONIC_POLL: ("S16",),
    names.POLL_SKIP: ("S16",),
    names.INT_POLL_SKIP: ("S14",),
    names.END_OFFSET_REGRESSED: ("S15",),
    names.STUCK: ("S11",),
    names.BROKER_DIED: (),
    names.HW_REGRESSED: ("S13",),
    names.UNCLEAN_ELECTION: ("S9", "S11"),
    names.LEADER_INCOMPLETE: ("S9", "S12", "S20"),
    names.CANDIDATE_INCOMPLETE: ("S12", "S20"),
    names.TWO_LEADERS: ("S9",),
    names.ACK_RULE: ("S2", "S1"),
    names.UNSAFE_TRUNCATION: ("S20", "S12"),
    names.UNSAFE_ISR: ("S12",),
    names.EPOCH_REGRESSED: ("S20",),
    **dict.fromkeys((names.PRECOMMITTED_READ, *names.CYCLES), ("S18",)),
    names.UNFIT: (),
}

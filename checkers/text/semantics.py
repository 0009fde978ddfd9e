"""What Kafka promises and what it does not: the facts behind findings, and what permits some of them.

Rules
1. A fact has a number, by which reports name it (`floodmark explain S8` prints it): what people think, and
   what is true.
2. The meaning of a setting explains what it permits; it excuses nothing that it does not cover.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A common misunderstanding about replicated logs, and the facts."""

    thought: str
    holds: str


FACTS: Mapping[str, Fact] = {
    "S1": Fact(
        thought="acks=all waits for all replicas.",
        holds="It waits for those in the ISR at that moment, which may be the leader alone: the ack goes "
        "out when the HW passes the record.",
    ),
    "S2": Fact(
        thought="min.insync.replicas=2 means that two copies are enough for an ack.",
        holds="It is a gate, looked at before the append and again at the ack. Whoever is in the ISR must "
        "have the record, however many they are.",
    ),
    "S3": Fact(
        thought="min.insync.replicas protects every write.",
        holds="It is asked for writes with acks=all only. With acks=1 or 0 a leader that is all alone takes "
        "them.",
    ),
    "S4": Fact(
        thought="The defaults are safe.",
        holds="By default a topic has one replica and min.insync.replicas is 1; producers before 3.0 sent "
        "with acks=1, and brokers up to 0.10.2 elected uncleanly.",
    ),
    "S5": Fact(
        thought="Three replicas survive two failures.",
        holds="An acked record survives one lasting loss less than min.insync.replicas says. If the ISR had "
        "shrunk to one member, and that one loses its data, a single loss is enough.",
    ),
    "S6": Fact(
        thought="An error means that nothing was written.",
        holds="After a time-out, a lost connection, a changed leader or NOT_ENOUGH_REPLICAS_AFTER_APPEND "
        "the record is in some log, and may be read, kept or truncated. Few errors are a certain no.",
    ),
    "S7": Fact(
        thought="A retry is harmless.",
        holds="Without idempotence the first try may have been appended: then the record is there twice, "
        "and, with several requests under way, out of order.",
    ),
    "S8": Fact(
        thought="What was acked is on the disk.",
        holds="It is in the memory of the operating system, unless flush.messages=1: a killed process loses "
        "nothing, a power cut whatever was not fsynced. The other replicas are what makes it durable.",
    ),
    "S9": Fact(
        thought="Without unclean elections nothing is ever lost.",
        holds="It also takes acks=all, enough replicas and a correct protocol: old generations lose acked "
        "records by clean elections alone.",
    ),
    "S10": Fact(
        thought="An unclean election may corrupt the logs.",
        holds="It may lose records. But since KIP-279 it leaves no two logs that differ: logs that part are "
        "a bug, whatever the election was.",
    ),
    "S11": Fact(
        thought="An unclean election needs an operator.",
        holds="Where the setting allows it the controller makes one by itself: at once, or at its next "
        "look.",
    ),
    "S12": Fact(
        thought="A member of the ISR has everything.",
        holds="It has all below the HW, and may lag behind above it, for a while. Its own HW is older "
        "still.",
    ),
    "S13": Fact(
        thought="There is one high watermark.",
        holds="Each replica has its own. Only the leader's, and only within one epoch, never falls; a "
        "follower's is a fetch behind, and so is that of a new leader.",
    ),
    "S14": Fact(
        thought="A consumer sees what was appended.",
        holds="It sees what is below the HW; under read_committed, below the first open transaction.",
    ),
    "S15": Fact(
        thought="An end offset never shrinks.",
        holds="Before KIP-207 a new leader might answer less than the old one had; since then it answers "
        "that it does not know yet, until its HW has reached the start of its epoch.",
    ),
    "S16": Fact(
        thought="A consumer notices that the log was truncated.",
        holds="Only if it sends the epoch of its position (KIP-320, clients from 2.3 on). Else it goes on, "
        "and skips or reads twice without a word.",
    ),
    "S17": Fact(
        thought="Committed offsets are safe.",
        holds="They are records of an internal topic, under the same rules and with the same losses.",
    ),
    "S18": Fact(
        thought="Transactions are isolated from one another.",
        holds="Their writes may interleave. An abort only hides records, and only from read_committed "
        "readers.",
    ),
    "S19": Fact(
        thought="Two brokers are enough to see a clean loss on any old version.",
        holds="Only if a restart goes unnoticed or the leadership goes to and fro; else it takes three "
        "replicas and two failures.",
    ),
    "S20": Fact(
        thought="To restart a broker is harmless.",
        holds="Where followers truncate to their HW (before KIP-101), each new leader makes all of them "
        "throw away what is above a HW that is always a fetch old, committed or not. A second failure "
        "makes it a loss.",
    ),
}

# -- what permits a finding ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a cause means, in a few words (short), in a clause (allows) and at length, and the facts it rests
    on."""

    short: str
    allows: str
    means: str
    facts: tuple[str, ...]


PERMISSIONS: Mapping[str, Permission] = {
    "acks": Permission(
        short="fewer acks than all of the ISR",
        allows="with these acks a record need not survive its leader",
        means="with acks=1 the leader answers as soon as it has the record itself, with acks=0 nobody waits "
        "at all, and min.insync.replicas is not asked: if the leader goes before a follower has fetched it, "
        "the record goes with it",
        facts=("S3", "S1"),
    ),
    "unclean.leader.election.enable": Permission(
        short="a leader from outside the ISR",
        allows="an unclean election may lose what was acked",
        means="the setting lets a replica lead that was not in the ISR, so that the partition is back "
        "sooner; what only the ISR had is gone then, acked or not",
        facts=("S10", "S9", "S11"),
    ),
    "fault budget": Permission(
        short="power cuts and bad disks on too many copies",
        allows="more copies lost their data to faults than min.insync.replicas covers",
        means="an ack is no fsync: a power cut or a bad disk takes what was not flushed, and a leader was "
        "then chosen from copies that had suffered so. An acked record survives fewer such losses than "
        "min.insync.replicas says, and none where the ISR had shrunk to the one that was struck",
        facts=("S8", "S5"),
    ),
    "retries": Permission(
        short="retries without idempotence",
        allows="retries without idempotence may append a record twice, or late",
        means="a producer that retries and is not idempotent cannot know whether its first try was appended: "
        "the record may be there twice, or late",
        facts=("S7",),
    ),
    "subscribe": Permission(
        short="a consumer group that moves partitions",
        allows="a group member's position moves with its partitions",
        means="a member of a consumer group takes over partitions, and their positions, from other members "
        "whenever the group changes",
        facts=("S17", "S16"),
    ),
    "isolation": Permission(
        short="an isolation level that does not separate transactions",
        allows="the isolation level allows it",
        means="this isolation level does not keep transactions apart: their writes may interleave, and under "
        "read_uncommitted a reader sees what is open or aborted. It permits only what transactions do",
        facts=("S18",),
    ),
    "internal topics": Permission(
        short="losses of what the transactions' coordinator knew",
        allows="faults may have lost what the transactions' coordinator knew",
        means="what a transaction wrote and whether it was committed are records too, of __transaction_state "
        "and of each partition (its markers): the same faults and unclean elections that may lose other "
        "records may lose these",
        facts=("S17", "S8"),
    ),
}


def allowed_by(cause: object) -> str:
    """The clause that says why a permitted finding is no bug."""
    return PERMISSIONS[str(cause)].allows if cause in PERMISSIONS else "the configuration allows it"

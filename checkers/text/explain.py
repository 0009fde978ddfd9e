"""What each finding means, its near miss, and what permits it: the data behind `floodmark explain NAME`."""

from collections.abc import Mapping
from dataclasses import dataclass

from checkers.laws import finding_names as names
from checkers.laws.registry import registered_checks

_NOTHING = "nothing"
_ALWAYS = "isolation, always: Kafka does not promise it."
_IF_WW = "isolation, where the order of records in a log is needed to close it; read_uncommitted."
_DOUBT = "What an op in doubt (info) wrote may land later than anything: only its reads were over by then."
_LOSS = (
    "an unclean election or data-losing faults beyond the budget, where a record concerned was lost to them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    means: str
    near_miss: str
    permitted: str


def finding_names() -> list[str]:
    """Of this judge's findings and of those that other distributions' checks make here."""
    return sorted({*EXPLANATIONS, *(check.name for check in registered_checks())})


def _told(means: str, near_miss: str, permitted: str) -> Explanation:
    return Explanation(means=means, near_miss=near_miss, permitted=permitted)


EXPLANATIONS: Mapping[str, Explanation] = {
    names.LOST_WRITE: _told(
        "A send was acked and its record is not in the leader's final log at the offset that was acked. "
        "`how` says "
        "where it is: moved (elsewhere in that log), overwritten (another record is there), orphaned (only "
        "other replicas hold it), gone. Where nobody has that log, reads may show it: the final readers were "
        "shown a record at or below its offset, one above it, and never this one (unread); or, in an "
        "imported history, no poll ever showed it, and one showed a higher offset.",
        "A send that timed out (info) and is gone: nobody promised anything. A record below the log start: "
        "deleted, "
        "not lost. A record that only a follower lacks: that is under-replicated.",
        "acks other than all; an unclean election after the send, by the setting or asked for; "
        "min.insync.replicas nodes or more struck by data-losing faults after the send, unless "
        "flush.messages=1 promised better. min.insync.replicas=1 alone permits nothing.",
    ),
    names.UNDER_REPLICATED: _told(
        "The cluster had settled, and a member of the ISR lacks a record that the leader holds below its HW.",
        "Before settling, a follower is one fetch behind: that is how replication works.",
        _NOTHING,
    ),
    names.UNSEEN: _told(
        "An acked record is in the leader's log, below what readers may see, and none of the final reads "
        "returned it.",
        "A record that is not in the leader's log: that one is lost, not unseen.",
        _NOTHING,
    ),
    names.DIVERGED: _told(
        "Two replicas hold different records (epoch, value or CRC) at one offset: below both HWs, or "
        "anywhere once "
        "the cluster has settled.",
        "Different tails above the HW before settling: the next truncation mends them.",
        _NOTHING,
    ),
    names.EPOCH_LINEAGE: _told(
        "One epoch and offset name two records, or epochs fall inside a log, or the leader-epoch cache says "
        "another "
        "epoch of an offset than the record there.",
        "A cache entry at LEO: a leader was elected and nothing was written yet.",
        _NOTHING,
    ),
    names.MALFORMED_LOG: _told(
        "A replica's log is none: a gap, an offset twice or out of order, bytes that do not fit their CRC, a "
        "HW above "
        "LEO, or a LEO or log start that the entries contradict.",
        "Gaps in a compacted partition; a HW above the LEO of a node that was not running.",
        _NOTHING,
    ),
    names.INCONSISTENT_OFFSETS: _told(
        "Clients saw two values at one offset, in acks of ok sends or in reads.",
        "An offset that came with a send nobody knows the fate of (info): a remark, never evidence.",
        f"acks other than all, where the lost value was never read; {_LOSS}.",
    ),
    names.DUPLICATE: _told(
        "One value stands at two offsets of the leader's final log, or clients were told two: by reads, or "
        "by a read and its own ack.",
        "A second copy that belongs to an aborted transaction.",
        f"retries without idempotence; {_LOSS}.",
    ),
    names.PHANTOM: _told(
        "A value was read, or stands in a log, that nobody sent to that partition.",
        "A value whose send is open or in doubt: it was sent. With lines of the history missing nothing is "
        "claimed.",
        _NOTHING,
    ),
    names.G1A: _told(
        "A send failed for certain, and its value was read, or stands in the leader's log below the HW.",
        "A send in doubt (info) that turns out to have happened; a failed value in an aborted entry nobody "
        "read.",
        "isolation read_uncommitted, where it was only read.",
    ),
    names.SAW_THEN_LOST: _told(
        "A reader was shown a value at an offset, and the leader's final log does not hold it there.",
        "An offset below the final log start: it was deleted.",
        f"{_LOSS}. acks permits none of it: what was read had been committed.",
    ),
    names.NONMONOTONIC_SEND: _told(
        "A process's later ok send got a lower offset of the partition than an earlier one. Where its ack "
        "told none, the only offset at which its value was read counts.",
        "Two sends inside one op (int-nonmonotonic-send); sends of two processes (realtime-order).",
        f"retries without idempotence; acks other than all, where the lost value was never read; {_LOSS}.",
    ),
    names.INT_NONMONOTONIC_SEND: _told(
        "Inside one op, a later send to a partition got a lower offset than an earlier one.",
        "A transaction's send and its read, which have no order between them.",
        "retries without idempotence.",
    ),
    names.REALTIME_ORDER: _told(
        "A send was acked before another was invoked, yet the other got the lower offset of the partition.",
        "Sends that overlap in time: either order is right.",
        f"acks other than all, where the lost value was never read; {_LOSS}.",
    ),
    names.NONMONOTONIC_POLL: _told(
        "A consumer's next poll of a partition began at or below where its last ok poll had ended.",
        "After an assign that gave the partition up, or a crash: the position is forgotten. After a poll "
        "that failed: it is where it was before.",
        f"group management (subscribe); {_LOSS}.",
    ),
    names.INT_NONMONOTONIC_POLL: _told(
        "Inside one poll, an offset of a partition is not above the one before.",
        "A transaction's read and its send, which have no order between them.",
        _NOTHING,
    ),
    names.POLL_SKIP: _told(
        "A consumer's next poll of a partition passed over records that the leader's final log holds.",
        "Control records and aborted ones between. What a failed poll showed excuses nothing: it was given "
        "back.",
        f"group management (subscribe); {_LOSS}.",
    ),
    names.INT_POLL_SKIP: _told(
        "Inside one poll, records that the leader's final log holds were passed over.",
        "Control records and aborted ones between.",
        _NOTHING,
    ),
    names.END_OFFSET_REGRESSED: _told(
        "The end offset of a partition fell for one client, or was below what it had already read.",
        "Two clients that ask two leaders at about the same time.",
        f"{_LOSS}.",
    ),
    names.STUCK: _told(
        "After mending, with every node up, none dead by itself and nothing left behind by a fault, a "
        "partition had no "
        "leader or acked no write within the time-out.",
        "A replica that only had not come back into the ISR: that is not settled, and some checks are "
        "unknown.",
        _NOTHING,
    ),
    names.BROKER_DIED: _told(
        "A broker was ready, and then its process ended by itself: nobody had killed or stopped it, and no "
        "fault that was in force explains its end (a full disk, too little memory, a failpoint armed to "
        "crash). A broken invariant of its own is such an end. All else of the run is judged as ever.",
        "A broker that never became ready: that is the harness's trouble, and exit code 4. One that was "
        "killed, stopped, or struck by a fault that ends processes.",
        _NOTHING,
    ),
    names.HW_REGRESSED: _told(
        "A leader's HW fell inside one epoch of its leadership.",
        "A follower's HW, which may fall, and a new leader's, which begins where its own had been.",
        _NOTHING,
    ),
    names.UNCLEAN_ELECTION: _told(
        "The controller elected a leader uncleanly, from outside the ISR, although "
        "unclean.leader.election.enable is off and no act of the nemesis had asked for an unclean election "
        "of that partition. What such an election loses is no permitted loss.",
        "With the setting on, or after the nemesis had asked for one, it is no finding, and what it loses is "
        "permitted. Where nobody can say which came first, the ask or the election, the name is unknown.",
        _NOTHING,
    ),
    names.LEADER_INCOMPLETE: _told(
        "A replica became the leader while its log ended below what a leader before it had committed.",
        "A HW that lags behind its log: a new leader holds more than it knows to be committed.",
        f"{_LOSS}.",
    ),
    names.CANDIDATE_INCOMPLETE: _told(
        "A registered, unfenced member of the controller's ISR lacks a committed record, or holds another in "
        "its place: elected now, it would lose it. Nobody need have noticed yet.",
        "A broker that was started again and has not been given a role yet; one that is fenced.",
        f"{_LOSS}.",
    ),
    names.TWO_LEADERS: _told(
        "Two nodes appended, acked or moved the HW as leader of one epoch.",
        "An old leader that goes on in its own, older epoch.",
        _NOTHING,
    ),
    names.ACK_RULE: _told(
        "A send with acks=all was acked with a HW not above it, with fewer in the ISR than "
        "min.insync.replicas, or before every member of the ISR had appended the record.",
        "A member that had the record and has truncated it since; an ack with acks=1.",
        _NOTHING,
    ),
    names.UNSAFE_TRUNCATION: _told(
        "A replica truncated, other than in recovery, and cut a committed record that it held: by offset and "
        "epoch.",
        "A truncation of records that no HW had passed; the same offset in another epoch; what a power cut "
        "takes.",
        f"{_LOSS}.",
    ),
    names.UNSAFE_ISR: _told(
        "An ISR took in a replica below the leader's HW or the start of its epoch, left out its leader, went "
        "back in its own order, or was counted by its leader without a member that the controller has in it.",
        "A leader that counts more than the controller: it has proposed them.",
        _NOTHING,
    ),
    names.EPOCH_REGRESSED: _told(
        "A node became leader or follower in an epoch below one it had had a role in, over restarts too.",
        "The same epoch once more, after a restart.",
        _NOTHING,
    ),
    names.PRECOMMITTED_READ: _told(
        "A transaction read a value that it itself sends: a reader was shown what was not committed yet.",
        "A transaction that reads what another one of its process had sent.",
        "isolation read_uncommitted.",
    ),
    names.G0: _told(
        "A cycle of ops by the order of their records: each wrote a record before one of the next op's.",
        "Two transactions that wrote to two partitions in the same order.",
        _ALWAYS,
    ),
    names.G0_PROCESS: _told(
        "A cycle of ops by the order of their records and the order in which a process asked for them.",
        f"{_DOUBT} Where a process had two ops open, nothing is made of its order.",
        _ALWAYS,
    ),
    names.G0_REALTIME: _told(
        "A cycle of ops by the order of their records and by time: one was over before the next one began.",
        f"{_DOUBT} Ops that overlap in time.",
        _ALWAYS,
    ),
    names.G1C: _told(
        "A cycle of ops, each of which read what the one before had sent; or whose record stood before its "
        "own, where that is needed to close the cycle.",
        "A send that failed for certain and was read: that is G1a.",
        _IF_WW,
    ),
    names.G1C_PROCESS: _told(
        "A cycle of ops by who read whose value and by the order of a process. A process that read a value "
        "before it asked to send it is one.",
        f"{_DOUBT} Where a process had two ops open, nothing is made of its order.",
        _IF_WW,
    ),
    names.G1C_REALTIME: _told(
        "A cycle of ops by who read whose value and by time: one was over before the next one began. A "
        "value that was read before its send was invoked is one.",
        f"{_DOUBT} Two transactions, open at once, that read each other's values are no matter of time: G1c.",
        _IF_WW,
    ),
    names.G_SINGLE: _told(
        "A cycle of ops that is closed by one of them having read a partition up to just before another's "
        "record, while it depends on that other one: it saw one half of a transaction and not the other.",
        "A reader that only lags behind. With the order of a process or of time this is never put together.",
        _ALWAYS,
    ),
    names.G2_ITEM: _told(
        "A cycle of ops that takes two or more who read a partition up to just before the next one's "
        "record.",
        "One such reader is enough to close the cycle: G-single.",
        _ALWAYS,
    ),
    names.UNFIT: _told(
        "Not a finding of the cluster: the run did not do what was asked, for moments of its schedule never "
        "came, or a nemesis was asked for and had nothing that could strike. It is listed under unknown.",
        "A schedule whose every moment came, though a fault found nothing to strike.",
        "it is never a bug.",
    ),
}

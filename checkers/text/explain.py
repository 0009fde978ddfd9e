"""The data of `floodmark explain NAME`: what each finding means, its near miss, its law, and what permits
it."""

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.checkers.laws import finding_names
from floodmark.harness.registered import CHECK, registered

_ALWAYS = "isolation, always: Kafka does not promise it."
_IF_WW = "isolation, where the order of records in a log is needed to close it; read_uncommitted."
_DOUBT = "What an op in doubt (info) wrote may land later than anything: only its reads were over by then."
_LOSS = (
    "an unclean election or data-losing faults beyond the budget, where a record concerned was lost to them"
)
_CYCLE = "What transactions read and wrote fits some order, one after the other: no cycle of them"
_CYCLE_BY_PROCESS = f"{_CYCLE}, the order in which each client asked included"
_CYCLE_BY_TIME = f"{_CYCLE}, the order of real time included"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    short: str  # its meaning on one line, at most 82 columns
    means: str
    near_miss: str
    permitted: str = "nothing"
    law: str  # what every correct cluster keeps, and the finding shows broken
    facts: tuple[str, ...] = ()  # further reading: keys of semantics.FACTS


def known_findings() -> list[str]:
    """The names of this judge's findings and of the registered checks."""
    return sorted({*EXPLANATIONS, *(check.name for check in registered(CHECK))})


EXPLANATIONS: Mapping[str, Explanation] = {
    finding_names.LOST_WRITE: Explanation(
        short="a send was acked and its record is not in the leader's final log",
        means="A send was acked and its record is not in the leader's final log at the offset that was "
        "acked. `how` says where it is: moved (elsewhere in that log), overwritten (another record "
        "is there), orphaned (only other replicas hold it), gone; or the log, which keeps everything, now "
        "begins above it (log-start). Where only the wire is seen, it is gone "
        "too if no node knew its topic all the time that the cluster had to settle, although each named a "
        "controller and all brokers, and no act of the run deleted it. Where nobody has that log, reads "
        "may show it: the final readers were shown a record at or below its offset, one above it, "
        "and never this one, or three of them were told that the log ends above it, and read on or got "
        "nothing (unread); or, in an imported history, no poll ever showed it, and one "
        "showed a higher offset.",
        near_miss="A send that timed out (info) and is gone: nobody promised anything. A record below the "
        "log start of a topic with retention: deleted, not lost. An answer that a quota withholds. A record "
        "that only a follower lacks: that is "
        "under-replicated.",
        permitted="acks other than all; an unclean election after the send, by the setting or asked for; "
        "min.insync.replicas nodes or more struck by data-losing faults after the send, power cuts aside "
        "where flush.messages=1 and no kill came between. min.insync.replicas=1 alone permits nothing.",
        law="Whoever is in the ISR had the record when it was acked, and the next leader comes from the ISR: "
        "neither kills nor pauses, cuts or clean elections may cost it",
        facts=("S1", "S5", "S8", "S9"),
    ),
    finding_names.UNDER_REPLICATED: Explanation(
        short="a member of the ISR lacks a record below the leader's HW",
        means="The cluster had settled, and a member of the ISR lacks a record that the leader holds "
        "below its HW.",
        near_miss="Before settling, a follower is one fetch behind: that is how replication works.",
        law="A member of the ISR has all that the leader's HW has passed; an election could give it the "
        "partition at any time",
        facts=("S12",),
    ),
    finding_names.UNSEEN: Explanation(
        short="an acked record is in the log, and no final read returned it",
        means="An acked record is in the leader's log, below what readers may see, and none of the final "
        "reads returned it.",
        near_miss="A record that is not in the leader's log: that one is lost, not unseen.",
        law="A reader that reads to the end is shown every committed record",
        facts=("S14",),
    ),
    finding_names.DIVERGED: Explanation(
        short="two replicas hold different records at one offset",
        means="Two replicas hold different records (epoch, value or CRC) at one offset: below both HWs, or "
        "anywhere once the cluster has settled.",
        near_miss="Different tails above the HW before settling: the next truncation mends them.",
        law="Where two logs have the same offset below the HW they have the same record",
        facts=("S10",),
    ),
    finding_names.EPOCH_LINEAGE: Explanation(
        short="an epoch and an offset name two records, or epochs fall, or the epoch cache is wrong",
        means="One epoch and offset name two records, or epochs fall inside a log, or the leader-epoch cache "
        "says another epoch of an offset than the record there.",
        near_miss="A cache entry at LEO: a leader was elected and nothing was written yet.",
        law="An epoch has one leader, and only that leader writes its records: epoch and offset name one "
        "record, and epochs only rise along a log",
        facts=("S10",),
    ),
    finding_names.MALFORMED_LOG: Explanation(
        short="a log has a gap, a doubled offset, bad bytes, or contradicts its own ends",
        means="A replica's log is malformed: a gap, an offset twice or out of order, bytes that do not fit "
        "their CRC, a HW above LEO, or a LEO or log start that the entries contradict. Without logs: the "
        "first batch of an answer that a final reader could not read three times, on new connections "
        "(checksum, magic or length).",
        near_miss="Gaps in a compacted partition; a HW above the LEO of a node that was not running; a last "
        "batch that an answer cuts off (KIP-74); a batch that cannot be read after the nemesis damaged a "
        "disk.",
        law="A log has each offset once, in order and with whole bytes, and says truly where it begins and "
        "ends",
        facts=("S13",),
    ),
    finding_names.INCONSISTENT_OFFSETS: Explanation(
        short="clients saw two values at one offset",
        means="Clients saw two values at one offset, in acks of ok sends or in reads.",
        near_miss="An offset that came with a send nobody knows the fate of (info): a remark, never "
        "evidence.",
        permitted=f"acks other than all, where the lost value was never read; {_LOSS}.",
        law="An offset that a client was shown belongs to that record for good",
        facts=("S9", "S16"),
    ),
    finding_names.DUPLICATE: Explanation(
        short="one value is, or was read, at two offsets",
        means="One value is at two offsets of the leader's final log, or clients saw two offsets for it: by "
        "reads, or by a read and its own ack.",
        near_miss="A second copy that belongs to an aborted transaction.",
        permitted=f"retries without idempotence; {_LOSS}.",
        law="A record that was sent once is in the log once",
        facts=("S7",),
    ),
    finding_names.PHANTOM: Explanation(
        short="a value that nobody sent was read, or is in a log",
        means="A value was read, or is in a log, that nobody sent to that partition.",
        near_miss="A value whose send is open or in doubt: it was sent. With lines of the history missing "
        "nothing is claimed.",
        law="A log holds what was sent to it and nothing else",
        facts=("S6",),
    ),
    finding_names.G1A: Explanation(
        short="a send certainly failed, and its value was read or is in the log",
        means="A send certainly failed, and its value was read, or is in the leader's log below the HW. Or a "
        "reader of committed records got a transaction's value from where that log has it only as aborted, "
        "whatever the client was told.",
        near_miss="A send in doubt (info) that turns out to have happened; a failed value in an aborted "
        "entry nobody read.",
        permitted="In a run with transactions isolation read_uncommitted, where it was only read; internal "
        "topics, of an aborted one.",
        law="What was refused for certain is not there; where it may have been appended, the answer must "
        "leave it in doubt",
        facts=("S6",),
    ),
    finding_names.TORN_TRANSACTION: Explanation(
        short="one record of a transaction is committed, and another is not",
        means="One transaction took effect in part, and its client was not told ok: the cluster had settled, "
        "and one of its records is committed while another is aborted, or not in its leader's log. In an "
        "imported history: a reader of committed records got one of them, and another, whose send was acked "
        "inside the transaction, was passed over by readers and read by nobody. Only of txn ops, whose "
        "clients commit when every send was acked, and abort else.",
        near_miss="A transaction whose records are all committed, or none, whatever its client was told. A "
        "send of several records without a transaction: it may be half written.",
        permitted="internal topics: unclean elections or data-losing faults after the transaction began.",
        law="A transaction is committed as a whole or not at all",
        facts=("S18", "S17"),
    ),
    finding_names.SAW_THEN_LOST: Explanation(
        short="a reader got a record that is not in the final log",
        means="A reader was shown a value at an offset, and the leader's final log does not hold it there.",
        near_miss="An offset below the final log start: it was deleted.",
        permitted=f"{_LOSS}. acks permits none of it: what was read had been committed.",
        law="Readers are shown only what is committed, and what is committed stays",
        facts=("S14", "S16"),
    ),
    finding_names.NONMONOTONIC_SEND: Explanation(
        short="a process's later send got a lower offset than an earlier one",
        means="A process's later ok send got a lower offset of the partition than an earlier one. Where "
        "its ack had none, the only offset at which its value was read counts.",
        near_miss="Two sends inside one op (int-nonmonotonic-send); sends of two processes (realtime-order).",
        permitted="retries without idempotence; acks other than all, where the lost value was never read; "
        f"{_LOSS}.",
        law="What a client sends later comes later in the log",
        facts=("S7",),
    ),
    finding_names.INT_NONMONOTONIC_SEND: Explanation(
        short="a later send of one op got a lower offset",
        means="Inside one op, a later send to a partition got a lower offset than an earlier one.",
        near_miss="A transaction's send and its read, which have no order between them.",
        permitted="retries without idempotence.",
        law="The records of one send keep their order",
        facts=("S7",),
    ),
    finding_names.REALTIME_ORDER: Explanation(
        short="a send after an ack got a lower offset than the acked record",
        means="A send was acked before another was invoked, yet the other got the lower offset of the "
        "partition.",
        near_miss="Sends that overlap in time: either order is right.",
        permitted=f"acks other than all, where the lost value was never read; {_LOSS}.",
        law="A record that was acked before another send began comes before it",
        facts=("S9",),
    ),
    finding_names.NONMONOTONIC_POLL: Explanation(
        short="a consumer got records again that it had got before",
        means="A consumer's next poll of a partition began at or below where its last ok poll had ended.",
        near_miss="After an assign that gave the partition up, or a crash: the position is forgotten. "
        "After a poll that failed: it is where it was before.",
        permitted=f"group management (subscribe); {_LOSS}.",
        law="A consumer goes forward until it is assigned or seeks elsewhere",
        facts=("S16",),
    ),
    finding_names.INT_NONMONOTONIC_POLL: Explanation(
        short="the offsets of a partition do not rise within one poll",
        means="Inside one poll, an offset of a partition is not above the one before.",
        near_miss="A transaction's read and its send, which have no order between them.",
        law="Within one answer offsets rise",
        facts=("S16",),
    ),
    finding_names.POLL_SKIP: Explanation(
        short="a consumer's next poll skipped records that are in the log",
        means="A consumer's next poll of a partition passed over records that the leader's final log holds.",
        near_miss="Control records and aborted ones between. What a failed poll showed excuses nothing: "
        "it was given back.",
        permitted=f"group management (subscribe); {_LOSS}.",
        law="A consumer is shown every record between two that it was shown",
        facts=("S16",),
    ),
    finding_names.INT_POLL_SKIP: Explanation(
        short="one poll skipped records that are in the log",
        means="Inside one poll, records that the leader's final log holds were passed over.",
        near_miss="Control records and aborted ones between.",
        law="Within one answer no record of the log is left out",
        facts=("S14",),
    ),
    finding_names.END_OFFSET_REGRESSED: Explanation(
        short="one client saw the end of a partition fall",
        means="The end offset of a partition fell for one client, was below what it had already read, or was "
        "at or below a record that had been acked before it asked, in the epoch of the leader that answered "
        "(behind-ack).",
        near_miss="Two clients that ask two leaders at about the same time. A new leader that does not know "
        "yet how far the one before had acked. The ack of a record that was sent again: it may be a later "
        "leader's. The last stable offset, below the HW.",
        permitted=f"{_LOSS}.",
        law="The end offset that one client gets never falls",
        facts=("S15",),
    ),
    finding_names.STUCK: Explanation(
        short="after mending, a partition had no leader or acked nothing",
        means="After mending, with every node up, none dead by itself and nothing left behind by a fault, a "
        "partition had no leader or acked no write within the time-out. Where only the wire is seen, a "
        "node is up if it answered Metadata and named a controller all that time.",
        near_miss="A partition of such a system that had acked nothing before the first fault: it may be "
        "set up wrongly, which is unknown. A replica that only had not come back into the ISR: that is not "
        "settled, and some checks are unknown.",
        law="When all nodes are back, every partition finds a leader and takes writes again",
        facts=("S11",),
    ),
    finding_names.BROKER_DIED: Explanation(
        short="a broker that had been ready ended by itself",
        means="A broker was ready, and then its process ended by itself: nobody had killed or stopped it, "
        "and no fault explains its end (a full disk, too little memory, a failpoint armed to crash). A "
        "broken invariant of its own is such an end. All else of the run is judged as ever.",
        near_miss="A broker that never became ready: that is the harness's trouble, and exit code 4. One "
        "that was killed, stopped, or struck by a fault that ends processes. One that gave up after its "
        "time-out because the nemesis had taken away what it cannot do without: a majority of the "
        "controllers, ZooKeeper, or, as it started, every other broker.",
        law="A broker that has started runs until somebody ends it: it answers errors, and does not end "
        "because of them",
    ),
    finding_names.HW_REGRESSED: Explanation(
        short="a leader's HW fell inside one epoch",
        means="A leader's HW fell inside one epoch of its leadership.",
        near_miss="A follower's HW, which may fall, and a new leader's, which begins where its own had been.",
        law="Within one epoch a leader's HW never falls: clients were shown what is below it",
        facts=("S13",),
    ),
    finding_names.UNCLEAN_ELECTION: Explanation(
        short="a leader from outside the ISR, which no setting allowed and nobody asked for",
        means="The controller elected a leader uncleanly, from outside the ISR, although "
        "unclean.leader.election.enable is off and no act of the nemesis had asked for an unclean "
        "election of that partition. What such an election loses is no permitted loss.",
        near_miss="With the setting on, or after the nemesis had asked for one, it is no finding, and "
        "what it loses is permitted. Where nobody can say which came first, the ask or the "
        "election, the name is unknown.",
        law="A leader is elected from the ISR, unless the setting or whoever runs the cluster says that any "
        "replica will do",
        facts=("S9", "S11"),
    ),
    finding_names.LEADER_INCOMPLETE: Explanation(
        short="a leader began without records that were committed before",
        means="A replica became the leader while its log ended below what a leader before it had committed.",
        near_miss="A HW that lags behind its log: a new leader holds more than it knows to be committed.",
        permitted=f"{_LOSS}.",
        law="A leader begins with all that was ever committed: else it gives those offsets to other records",
        facts=("S9", "S12", "S20"),
    ),
    finding_names.CANDIDATE_INCOMPLETE: Explanation(
        short="a node that could be elected lacks a committed record",
        means="A registered, unfenced member of the controller's ISR lacks a committed record, or holds "
        "another in its place: elected now, it would lose it. Nobody need have noticed yet.",
        near_miss="A broker that was started again and has not been registered since; one that is fenced.",
        permitted=f"{_LOSS}.",
        law="Whoever the controller may choose has all that was committed: the next election would lose it",
        facts=("S12", "S20"),
    ),
    finding_names.TWO_LEADERS: Explanation(
        short="two nodes acted as leader of one epoch",
        means="Two nodes appended, acked or moved the HW as leader of one epoch.",
        near_miss="An old leader that goes on in its own, older epoch.",
        law="The controller gives an epoch to one node",
        facts=("S9",),
    ),
    finding_names.ACK_RULE: Explanation(
        short="an acks=all send was acked before the ISR had it, or with too small an ISR",
        means="A send with acks=all was acked with a HW not above it, with fewer in the ISR than "
        "min.insync.replicas, or before every member of the ISR had appended the record.",
        near_miss="A member that had the record and has truncated it since; an ack with acks=1.",
        law="An acks=all ack says that the HW has passed the record, that every member of the ISR has it, "
        "and that they are as many as min.insync.replicas asks",
        facts=("S2", "S1"),
    ),
    finding_names.UNSAFE_TRUNCATION: Explanation(
        short="a replica truncated a committed record that it had",
        means="A replica truncated, other than in recovery, and cut a committed record that it held: by "
        "offset and epoch.",
        near_miss="A truncation of records that no HW had passed; the same offset in another epoch; what "
        "a power cut takes.",
        permitted=f"{_LOSS}.",
        law="A follower cuts only what its leader does not have, and a leader has all that was committed",
        facts=("S20", "S12"),
    ),
    finding_names.UNSAFE_ISR: Explanation(
        short="a replica joined the ISR too early, or leader and controller disagree about it",
        means="An ISR took in a replica below the leader's HW or the start of its epoch, left out its "
        "leader, went back in its own order, or was counted by its leader without a member that the "
        "controller has in it.",
        near_miss="A leader that counts more than the controller: it has proposed them.",
        law="A replica joins the ISR when it has come up to the HW and to the start of the leader's epoch, "
        "and the leader counts whomever the controller counts",
        facts=("S12",),
    ),
    finding_names.EPOCH_REGRESSED: Explanation(
        short="a node took a role in an epoch below an earlier one",
        means="A node became leader or follower in an epoch below one it had had a role in, over restarts "
        "too.",
        near_miss="The same epoch once more, after a restart.",
        law="A node takes a role only in an epoch above its last, restarts or not",
        facts=("S20",),
    ),
    finding_names.RECOVERY_LOSS: Explanation(
        short="a replica started without records that it certainly had on disk",
        means="A replica started with a LEO below what it surely held before: after an orderly stop its last "
        "LEO; after any other end the highest offset below which its fetch in a leader's trace, or "
        "its own ack, proves its records. No fault that loses data had struck the node since its "
        "start before, and its trace has no truncation.",
        near_miss="A broker that was killed with an append under way: its trace has the append before it is "
        "on disk, and nothing proves that it was. Records that a power cut, a wiped disk or a truncation "
        "removed.",
        permitted="nothing: where data were lost by a fault it is no finding.",
        law="A kill loses nothing that was written: recovery keeps every record that is whole",
        facts=("S8", "S20"),
    ),
    finding_names.READ_ABOVE_HW: Explanation(
        short="a reader got a record above every HW",
        means="A poll returned a record at an offset that was not below any HW of the partition in the trace "
        "by the time the poll was over.",
        near_miss="A record just below a HW that is traced at the same moment, or within the error of the "
        "clocks. A reader far behind.",
        law="Readers are shown only what lies below the HW: anything above may still be cut",
        facts=("S14",),
    ),
    finding_names.END_OFFSET_AHEAD: Explanation(
        short="a client got an end of the partition that is above its HW",
        means="list_offsets returned an end above every HW of the partition in the trace by the time the op "
        "was over.",
        near_miss="An end that equals the HW, or the last stable offset below it.",
        law="The end of a log that clients get is its HW: the records above are not committed yet",
        facts=("S14", "S15"),
    ),
    finding_names.PRECOMMITTED_READ: Explanation(
        short="a transaction read a record of its own before it committed",
        means="A transaction read a value that it itself sends: a reader was shown what was not committed "
        "yet.",
        near_miss="A transaction that reads what another one of its process had sent.",
        permitted="isolation read_uncommitted.",
        law="Nobody reads a transaction's writes before it is committed, itself included",
        facts=("S18",),
    ),
    finding_names.G0: Explanation(
        short="the writes of two transactions overwrite or interleave with each other",
        means="A cycle of ops by the order of their records: each wrote a record before one of the next "
        "op's.",
        near_miss="Two transactions that wrote to two partitions in the same order.",
        permitted=_ALWAYS,
        law="The writes of two transactions do not run into each other",
        facts=("S18",),
    ),
    finding_names.G0_PROCESS: Explanation(
        short="the order of records contradicts the order of a process's ops",
        means="A cycle of ops by the order of their records and the order in which a process asked for them.",
        near_miss=f"{_DOUBT} Where a process had two ops open, its order is not used.",
        permitted=_ALWAYS,
        law=_CYCLE_BY_PROCESS,
        facts=("S18",),
    ),
    finding_names.G0_REALTIME: Explanation(
        short="the order of records contradicts the order in time",
        means="A cycle of ops by the order of their records and by time: one was over before the next one "
        "began.",
        near_miss=f"{_DOUBT} Ops that overlap in time.",
        permitted=_ALWAYS,
        law=_CYCLE_BY_TIME,
        facts=("S18",),
    ),
    finding_names.G1C: Explanation(
        short="ops read each other's records in a cycle",
        means="A cycle of ops, each of which read what the one before had sent; or whose record stood before "
        "its own, where that is needed to close the cycle.",
        near_miss="A send that failed for certain and was read: that is G1a.",
        permitted=_IF_WW,
        law=_CYCLE,
        facts=("S18",),
    ),
    finding_names.G1C_PROCESS: Explanation(
        short="who read whose value contradicts the order of a process's ops",
        means="A cycle of ops by who read whose value and by the order of a process. A process that read a "
        "value before it asked to send it is one.",
        near_miss=f"{_DOUBT} Where a process had two ops open, its order is not used.",
        permitted=_IF_WW,
        law=_CYCLE_BY_PROCESS,
        facts=("S18",),
    ),
    finding_names.G1C_REALTIME: Explanation(
        short="who read whose value contradicts the order in time",
        means="A cycle of ops by who read whose value and by time: one was over before the next one began. A "
        "value that was read before its send was invoked is one.",
        near_miss=f"{_DOUBT} Two transactions, open at once, that read each other's values: that is "
        "G1c.",
        permitted=_IF_WW,
        law=_CYCLE_BY_TIME,
        facts=("S18",),
    ),
    finding_names.G_SINGLE: Explanation(
        short="a transaction saw one half of another and not the other half; Kafka permits it",
        means="A cycle of ops that is closed by one of them having read a partition up to just before "
        "another's record, while it depends on that other one: it saw one half of a transaction and "
        "not the other.",
        near_miss="A reader that only lags behind. With the order of a process or of time this is never put "
        "together.",
        permitted=_ALWAYS,
        law=f"{_CYCLE}, not even by what one of them had not seen yet",
        facts=("S18",),
    ),
    finding_names.G2_ITEM: Explanation(
        short="transactions missed one another's records in a cycle; Kafka permits it",
        means="A cycle of ops that takes two or more who read a partition up to just before the next one's "
        "record.",
        near_miss="One such reader is enough to close the cycle: G-single.",
        permitted=_ALWAYS,
        law=f"{_CYCLE}, not even by what they had not seen yet",
        facts=("S18",),
    ),
    finding_names.UNFIT: Explanation(
        short="no finding: the run did not do what was asked",
        means="Not a finding of the cluster: the run did not do what was asked, for moments of its schedule "
        "never came, or a nemesis was asked for and had nothing that could strike. It is listed under "
        "unknown.",
        near_miss="A schedule whose every moment came, though a fault found nothing to strike.",
        permitted="it is never a bug.",
        law="A run does what its schedule asked",
    ),
}

"""The names of the findings that this judge can make, grouped by source and by what makes them unknown.

Sources are the logs, the history and the trace; the groups IF_... and SILENT_IF_... are the rows of the table
"What makes checks unknown". A check that is not made is not named here, and so nowhere in a verdict.
"""

LOST_WRITE = "lost-write"
UNDER_REPLICATED = "under-replicated"
UNSEEN = "unseen"
DIVERGED = "diverged"
EPOCH_LINEAGE = "epoch-lineage"
MALFORMED_LOG = "malformed-log"
INCONSISTENT_OFFSETS = "inconsistent-offsets"
DUPLICATE = "duplicate"
PHANTOM = "phantom"
G1A = "G1a"
SAW_THEN_LOST = "saw-then-lost"
TORN_TRANSACTION = "torn-transaction"
NONMONOTONIC_SEND = "nonmonotonic-send"
INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
REALTIME_ORDER = "realtime-order"
NONMONOTONIC_POLL = "nonmonotonic-poll"
POLL_SKIP = "poll-skip"
INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
INT_POLL_SKIP = "int-poll-skip"
END_OFFSET_REGRESSED = "end-offset-regressed"
STUCK = "stuck"
BROKER_DIED = "broker-died"
HW_REGRESSED = "hw-regressed"
LEADER_INCOMPLETE = "leader-incomplete"
CANDIDATE_INCOMPLETE = "candidate-incomplete"
TWO_LEADERS = "two-leaders"
ACK_RULE = "ack-rule"
UNSAFE_TRUNCATION = "unsafe-truncation"
UNSAFE_ISR = "unsafe-isr"
EPOCH_REGRESSED = "epoch-regressed"
RECOVERY_LOSS = "recovery-loss"
READ_ABOVE_HW = "read-above-hw"
END_OFFSET_AHEAD = "end-offset-ahead"
UNCLEAN_ELECTION = "unclean-election"
PRECOMMITTED_READ = "precommitted-read"
G0 = "G0"
G0_PROCESS = "G0-process"
G0_REALTIME = "G0-realtime"
G1C = "G1c"
G1C_PROCESS = "G1c-process"
G1C_REALTIME = "G1c-realtime"
UNFIT = "unfit"  # never a finding: listed under unknown
WITHDRAWN = ("G-single", "G2-item")  # nobody looks for them; gates of before still allow them

OF_THE_LOGS = (DIVERGED, UNDER_REPLICATED, EPOCH_LINEAGE, MALFORMED_LOG)
OF_THE_LOG_ALONE = (UNSEEN, SAW_THEN_LOST)  # the leader's log; losses may also show in reads
OF_THE_LEADERS_LOG = (LOST_WRITE, *OF_THE_LOG_ALONE)
BY_PROCESS = (G0_PROCESS, G1C_PROCESS)
BY_TIME = (G0_REALTIME, G1C_REALTIME)
CYCLES = (G0, G1C, *BY_PROCESS, *BY_TIME)
OF_THE_HISTORY = (
    LOST_WRITE,
    UNSEEN,
    INCONSISTENT_OFFSETS,
    DUPLICATE,
    PHANTOM,
    G1A,
    TORN_TRANSACTION,
    SAW_THEN_LOST,
    NONMONOTONIC_SEND,
    INT_NONMONOTONIC_SEND,
    REALTIME_ORDER,
    NONMONOTONIC_POLL,
    POLL_SKIP,
    INT_NONMONOTONIC_POLL,
    INT_POLL_SKIP,
    END_OFFSET_REGRESSED,
    PRECOMMITTED_READ,
    *CYCLES,
)
OF_THE_TRACE = (
    HW_REGRESSED,
    LEADER_INCOMPLETE,
    CANDIDATE_INCOMPLETE,
    TWO_LEADERS,
    ACK_RULE,
    UNSAFE_TRUNCATION,
    UNSAFE_ISR,
    EPOCH_REGRESSED,
    UNCLEAN_ELECTION,
    RECOVERY_LOSS,
    READ_ABOVE_HW,
    END_OFFSET_AHEAD,
)
GUILTY = (  # findings that may be to blame for the loss of a record
    UNSAFE_TRUNCATION,
    LEADER_INCOMPLETE,
    CANDIDATE_INCOMPLETE,
    UNSAFE_ISR,
    ACK_RULE,
    RECOVERY_LOSS,
)
LOSSES = (LOST_WRITE, SAW_THEN_LOST, INCONSISTENT_OFFSETS, DIVERGED, UNDER_REPLICATED, EPOCH_LINEAGE)
MADE = tuple(sorted({*OF_THE_LOGS, *OF_THE_HISTORY, *OF_THE_TRACE, STUCK, BROKER_DIED}))

# The table "What makes checks unknown", row by row.
IF_VALUES_REPEAT = tuple(sorted(set(MADE) - {*OF_THE_LOGS, *OF_THE_TRACE, END_OFFSET_REGRESSED}))
IF_OPS_OVERLAP = (NONMONOTONIC_SEND, NONMONOTONIC_POLL, POLL_SKIP, REALTIME_ORDER, *BY_PROCESS)
# From the history and the trace together: a breach of either leaves them unknown.
OF_TRACE_AND_HISTORY = (RECOVERY_LOSS, READ_ABOVE_HW, END_OFFSET_AHEAD)
IF_BREACHED = OF_THE_HISTORY
SILENT_IF_BREACHED = (
    PHANTOM,
    UNSEEN,
    POLL_SKIP,
    NONMONOTONIC_POLL,
    REALTIME_ORDER,
    TORN_TRANSACTION,
    *BY_PROCESS,
    *BY_TIME,
    *OF_TRACE_AND_HISTORY,  # the line of a fault that lost data may be missing, and times may be wrong
)
# With indexes that do not rise from line to line nobody knows which of two lines came first.
SILENT_IF_DISORDERED = (NONMONOTONIC_SEND, END_OFFSET_REGRESSED)
IF_KILLED = (PHANTOM, UNSEEN, POLL_SKIP, NONMONOTONIC_POLL)
IF_LEADER_UNKNOWN = (LOST_WRITE, UNSEEN, SAW_THEN_LOST, UNDER_REPLICATED)
IF_NOT_SETTLED = (DIVERGED, UNDER_REPLICATED, UNSEEN)
IF_COMPACT = (LOST_WRITE, SAW_THEN_LOST, UNDER_REPLICATED, EPOCH_LINEAGE)
IF_NOTHING_ACKED = (LOST_WRITE, UNSEEN)
# If nobody knows whether losses are permitted: they, and what follows from them.
IF_LOSSES_PERMITTED = (
    LOST_WRITE,
    INCONSISTENT_OFFSETS,
    DUPLICATE,
    G1A,
    TORN_TRANSACTION,
    SAW_THEN_LOST,
    NONMONOTONIC_SEND,
    REALTIME_ORDER,
    NONMONOTONIC_POLL,
    POLL_SKIP,
    INT_POLL_SKIP,
    END_OFFSET_REGRESSED,
    LEADER_INCOMPLETE,
    CANDIDATE_INCOMPLETE,
    UNSAFE_TRUNCATION,
)
# Where acks may be weak, they do not prove a record that a poll passed over.
IF_ACKS_UNKNOWN = (
    LOST_WRITE, TORN_TRANSACTION, INCONSISTENT_OFFSETS, NONMONOTONIC_SEND, REALTIME_ORDER, POLL_SKIP,
    INT_POLL_SKIP,
)  # fmt: skip
IF_ISOLATION_UNKNOWN = (UNSEEN, G1A, TORN_TRANSACTION, PRECOMMITTED_READ, *CYCLES)
# Not claimed below the final log start. Where that is unknown, they are too, if there would be any.
ABOVE_LOG_START = (
    NONMONOTONIC_POLL,
    POLL_SKIP,
    INT_NONMONOTONIC_POLL,
    INT_POLL_SKIP,
    UNSAFE_TRUNCATION,
)
# A missing line may excuse these; the others rest on the lines that are there.
SILENT_IF_TRACE_TORN = (
    LEADER_INCOMPLETE,
    CANDIDATE_INCOMPLETE,
    UNSAFE_TRUNCATION,
    UNSAFE_ISR,
    *OF_TRACE_AND_HISTORY,
)

"""Says on one line what a finding means, for lists and tables; the long form is `floodmark explain NAME`."""

import textwrap
from collections.abc import Mapping

from floodmark.checkers.text.explain import EXPLANATIONS

LINE = 82  # of a meaning in the list, whose names take 30
IN_SHORT: Mapping[str, str] = {
    "G-single": "a transaction saw one half of another and not the other half; Kafka permits it",
    "G0": "the writes of two transactions run into each other",
    "G0-process": "the order of records goes against the order in which a process asked",
    "G0-realtime": "the order of records goes against the order in time",
    "G1a": "a send failed for certain, and its value was read or stands in the log",
    "G1c": "ops read from one another in a cycle",
    "G1c-process": "who read whose value goes against the order in which a process asked",
    "G1c-realtime": "who read whose value goes against the order in time",
    "G2-item": "transactions missed one another's records in a cycle; Kafka permits it",
    "ack-rule": "an acks=all send was acked before the ISR had it, or with too small an ISR",
    "broker-died": "a broker that had been ready ended by itself",
    "candidate-incomplete": "a node that could be elected lacks a committed record",
    "diverged": "two replicas hold different records at one offset",
    "duplicate": "one value stands, or was read, at two offsets",
    "end-offset-ahead": "a client was told an end of the partition above its HW",
    "end-offset-regressed": "the end of a partition fell for one client",
    "epoch-lineage": "an epoch and an offset name two records, or epochs fall, or the epoch cache is wrong",
    "epoch-regressed": "a node took a role in an epoch below an earlier one",
    "hw-regressed": "a leader's HW fell inside one epoch",
    "inconsistent-offsets": "clients saw two values at one offset",
    "int-nonmonotonic-poll": "inside one poll the offsets of a partition do not rise",
    "int-nonmonotonic-send": "inside one op a later send got a lower offset",
    "int-poll-skip": "one poll passed over records that the log holds",
    "leader-incomplete": "a leader began without records that were committed before",
    "lost-write": "a send was acked and its record is not in the leader's final log",
    "malformed-log": "a log has a gap, a doubled offset, bad bytes, or contradicts its own ends",
    "nonmonotonic-poll": "a consumer was shown again what it had been shown",
    "nonmonotonic-send": "a process's later send got a lower offset than an earlier one",
    "phantom": "a value that nobody sent was read, or stands in a log",
    "poll-skip": "a consumer's next poll passed over records that the log holds",
    "precommitted-read": "a transaction read what it had not committed yet",
    "read-above-hw": "a reader was shown a record that no HW had passed yet",
    "realtime-order": "what was sent after an ack got a lower offset than what was acked",
    "recovery-loss": "a replica started without records that it surely had on disk",
    "saw-then-lost": "a reader was shown a record that the final log does not hold",
    "stuck": "after mending a partition had no leader, or acked nothing",
    "two-leaders": "two nodes acted as leader of one epoch",
    "unclean-election": "a leader from outside the ISR, which no setting and nobody had asked for",
    "under-replicated": "a member of the ISR lacks a record below the leader's HW",
    "unfit": "no finding: the run did not do what was asked",
    "unsafe-isr": "an ISR took in a replica too early, or lost track of its members",
    "unsafe-truncation": "a replica cut off a committed record that it held",
    "unseen": "an acked record is in the log, and no final read returned it",
}


def in_short(name: str) -> str:
    """The meaning of a finding on one line."""
    whole = EXPLANATIONS[name].means
    return IN_SHORT.get(name) or textwrap.shorten(whole.split(". ")[0], LINE, placeholder=" ...")

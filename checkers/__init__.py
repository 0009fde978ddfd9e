"""Judges run folders in PySpark; it never touches a cluster.

Where the format leaves a choice, this judge has chosen as follows.

Counting. Findings about an offset across replicas (diverged, under-replicated, two records under one epoch)
are counted once for each offset; findings about one log (malformed-log, falling epochs, a wrong cache) once
for each place in it; lost-write, unseen, duplicate, phantom and G1a once for each value; saw-then-lost for
each value and offset; inconsistent-offsets for each offset; realtime-order and nonmonotonic-send for each
send that has a lower offset than some earlier one; stuck for each partition; broker-died for each node;
unclean-election for each election; recovery-loss for each start; read-above-hw for each record of a poll;
end-offset-ahead for each place of an answer; precommitted-read for each transaction.

Cycles. Each strongly connected component of ops is one finding, at the weakest kinds of edges that make it
one; a larger component that contains it is not reported at kinds that include those. The order of a process
is part of real time here. In a run without transactions only a value that was read before its send was
invoked counts: one finding for each value, by the first process that read it. When an op with an unknown
outcome (info), or one that failed, completes, only its reads are over, and what precedes its writes does not
precede its reads. An offset whose record has no known sender, or whose send failed, separates the records on
both sides of it: neither is next to the other. An op whose invocation is ambiguous (its process had two ops
open) may have begun at any time.

Losses. An ok send without an offset is lost only where the log start is 0: otherwise its record may have been
below the log start. With acks other than all every lost-write is permitted; its consequences only where the
lost value was never read. A broken order is permitted if the loss of the send's own record is permitted, or
the loss of the records of all the higher sends before it. Where the leader's log is not known, a record that
a cause covers counts as possibly lost: the consequences are permitted, and the name is unknown too.

Lines. A line that breaks the field table counts for nothing. Of an op that completes twice the first
completion counts; of a value that a completion names twice, the first place. No check uses a value that was
sent twice. Fields that the f does not have, and an invocation's reads, are unknown fields. Time that falls is
a breach. Half a last line is a line without LF that is no JSON object. Blank lines do not count as lines.
Where indexes do not rise from line to line, nothing is claimed about the order of sends and ends
(nonmonotonic-send, end-offset-regressed), and an act that permits a loss may have come after any send. A
fault that permits a loss may be among the lines that cannot be read or, if the schedule has it and the
history does not, among the missing ones: then the loss is possibly permitted (acts.py). The same holds
where a permission depends on two times that differ by no more than the clock error (equal times included),
and for an unclean election when nobody knows whether it was allowed; such an election is no finding, and
unclean-election is unknown.

Transactions. Records at or above the leader's last stable offset are undecided, and give no G1a in the log.

Dumps. The entries of a damaged dump still count as evidence against it (crc, order, records outside its
bounds); missing entries do not. A replica without a row is compared like any other once the cluster has
settled.

Polls. A skipped record is excused if a poll of the process returned it after the position was set, up to and
including the poll that jumped. Nothing excuses an error inside one poll.
"""

"""Judges: they read run folders, in PySpark, and never touch a cluster.

Where the format leaves a choice, this judge chose:

Counting. What is said of an offset across replicas (diverged, under-replicated, two records under one epoch)
is one finding an offset; what is said of one log (malformed-log, epochs that fall, a wrong cache) one a
place of it; lost-write, unseen, duplicate, phantom and G1a one a value; saw-then-lost one a value and offset;
inconsistent-offsets one an offset; realtime-order and nonmonotonic-send one a send that has a lower offset
than some earlier one; stuck one a partition; broker-died one a node; unclean-election one an election;
recovery-loss one a start; read-above-hw one a record of a poll; end-offset-ahead one a place of an answer;
precommitted-read one a transaction.

Cycles. One finding a strong component of ops, at the weakest kinds of edges that make it one; a wider one
that contains it is not told at kinds that include those. The order of a process is part of real time here.
In a run without any transaction only a value that was read before its send was invoked counts, one finding
a value, by the first who read it. Of an op in doubt (info) or of one that failed only the reads are over with
its completion, and what precedes its writes does not precede its reads. A place in a log whose record nobody
is known to have sent, or whose send failed, parts the records on both sides of it: neither is next to the
other. An op whose invocation nobody can tell, in a process with two ops open, may have begun at any time.

Losses. An ok send without an offset is lost only where the log start is 0: else it may have been below.
Under acks other than all every lost-write is permitted; what comes of it only where the lost value was never
read. An order that was broken is permitted if the send's own record, or those of all the higher ones before
it, were lost with leave. Where the leader's log is not known, a record that a cause covers is taken as lost
perhaps: what follows is permitted, and the name unknown too.

Lines. A line that breaks the field table gives nothing at all; of an op that completes twice the first
completion counts, of a value that it names twice the first place. A value that was sent twice is followed by
no check. A field that the f does not have, or an invocation's reads, are unknown fields. Time that falls is a
breach. Half a last line is one without LF that is no JSON object. Blank lines are no lines. Where indexes do
not rise from line to line nothing is claimed of the order of sends and ends (nonmonotonic-send, end-offset-
regressed), and whatever permits a loss may have come after any send. A fault that permits one may be among
the lines that cannot be read, or, if the schedule has it and the history has not, among those that are
missing: such a loss is permitted perhaps (unread.py). So is one whose permission stands on two times that lie
no further apart than the clocks' error, the same time included, and one by an unclean election of which
nobody knows whether it was allowed; such an election is no finding, and unclean-election is unknown.

Transactions. What stands at or above the leader's last stable offset is undecided, and no G1a by standing.

Dumps. Of a damaged dump what is there still counts against it (crc, order, records outside its bounds), what
is missing does not. A replica without a row is compared like any other once the cluster has settled.

Polls. A skipped record is excused if a poll of the process showed it after the position was taken, up to and
with the poll that jumped. Nothing excuses what one poll shows in itself.
"""

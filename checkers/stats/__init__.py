"""The measures of runs: what a fault cost the clients, and what the brokers did meanwhile, as rows.

One row for each run, one row for each fault; RUN and FAULT in tables.py have every column. Exact definitions:

Clock. The harness's, in seconds since the run began: of history.jsonl and of trace.jsonl alike. Latencies are
in milliseconds.

Load. The ops of all clients except those that settle the cluster and those of the final reads. It ends with
its last line. An op is its invocation and its completion: two lines of one process with no other line of it
between. A completion without such an invocation counts as an ack, and has no latency of its own.

Ops without an answer. An op that never completes is waited for until the load ends. It counts as failed at no
time. An op whose completion is info has failed (its client got no confirmation).

Faults. One row for each line of the nemesis that does not mend; an armed failpoint has no row, because it
harms nobody before it is reached, and no line says when that is. began_s: when the act was begun; effect_s:
when it had taken effect; mended_s: when the last of its nodes was mended, null if one never was, or if there
is nothing to mend (expire, elect, reset). A fault is in force from began_s until it was mended; one that
never was until the load ends; one with nothing to mend until effect_s; and each for at least a second. If two
overlap each is measured by itself, and what both caused counts for both.

Waiting. A partition is waited for from the first send to it that has no ack yet. If nobody sends, nobody
knows whether a send would be acked, and that time does not count.

first_failed_s: from began_s to the first completion (fail or info) of an op that was open then, or was
invoked while the fault was in force. null: none failed.

gap_s: the longest time without an ack of a partition, the worst of all partitions: from the last ack before
(if nobody waited then, from the first send after it) to the next ack, in full, if any part of it is in the
time in force. If no further ack comes it ends with the load. null: nobody waited.

recovery_s: from the mending (if there is nothing to mend, from effect_s) to the next ack of a partition, the
worst of all partitions; if nobody waited at the mending, from the first send after it. If no further ack
comes, to the end of the load, and `recovered` is false. null: never mended, or nobody waited.

before_, during_, after_: latency of the sends that were due in the time in force, in as long a time before
it, and in as long a time after it: p50, p99, p99.9, each the lowest latency that this share of them does not
exceed; and how many these were (`sends`). null: none was due. A send is due when it is invoked. A process
that waits does not hide what it would have sent: if it waits for more than two usual intervals (the median of
the run, from one invocation of a process to its next), a send is due at each of them meanwhile, the last one
interval before the end of the wait. The latency goes from the time at which a send was due to its ack; after
a fail or an info to the next ack of its partition, because a client that sends again is served then at the
earliest; without an answer, and if no further ack came, to the end of the load.

elections, unclean_elections, isr_changes, truncations: how many lines of the trace in the time in force.
null: the system does not show them.

Of a run: acked, ok, fail, info as the verdict counts them; elections of a leader since the run began (without
those of a new partition) and how many of them were unclean; changes of an ISR by the controller, requested by
the leader or of its own (if the trace has the cause); truncations that removed records, and the largest, in
records. max_unavailable_s, max_recovery_s: the highest gap_s and recovery_s of its faults.
"""

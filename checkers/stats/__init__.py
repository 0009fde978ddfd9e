"""The measures of runs: what a fault cost their clients, and what the brokers did meanwhile, as rows.

One row a run, one row a fault; RUN and FAULT in tables.py have every column. What each says, exactly:

Clock. The harness's, in seconds since the run began: of history.jsonl and of trace.jsonl alike. Latencies are
in milliseconds.

Load. The ops of all clients but those that settle the cluster and those of the final reads. It ends with its
last line. An op is its invocation and its completion: two lines of one process with nothing of it between.
What completes without such an invocation counts as an ack, and in no latency.

Without an answer. An op that never completes is waited for until the load ends. It has failed at no time, and
has no latency. An op whose completion is info has failed (nobody told its client that it was done).

Faults. One row each line of the nemesis that mends nothing; an armed failpoint is none, for it harms nobody
before it is met, and nobody tells when that is. began_s: when it was set about; effect_s: when it had taken
effect; mended_s: when the last of its nodes was mended, null where one never was, or where there is nothing
to mend (expire, elect, reset). It is in force from began_s until it was mended; one that never was until
the load ends; one with nothing to mend until effect_s; and each for a second at least. Where two overlap
each is measured by itself, and what both brought about is told of both.

Waiting. A partition is waited for from the first send to it that no ack has answered yet. Where nobody sends,
nobody can tell whether it would be acked, and that time counts for nothing.

first_failed_s  From began_s to the first completion (fail or info) of an op that was open then, or was
                invoked while the fault was in force. null: none failed.
gap_s           The longest time without an ack of a partition, the worst of all partitions: from the last ack
                before (where nobody waited then, from the first send after it) to the next ack, in full, if
                any of it lies in the time in force. Where no ack comes any more it ends with the load. null:
                nobody waited.
recovery_s      From the mending (where there is nothing to mend, from effect_s) to the next ack of a
                partition, the worst of all partitions; where nobody waited at the mending, from the first
                send after it. Where no ack comes any more, to the end of the load, and `recovered` is false.
                null: never mended, or nobody waited.
before_, during_, after_
                Latency of the acked sends that were invoked in the time in force, in as long a time before
                it, and in as long a time after it: p50, p99, p99.9, each the least latency that so many
                percent do not exceed. null: none was acked.
elections, unclean_elections, isr_changes, truncations
                How many lines of the trace in the time in force. null: the system does not show them.

Of a run: acked, ok, fail, info as the verdict counts them; elections of a leader since the run began (those
that a new partition begins with aside) and which of them were unclean; changes of an ISR as the controller
made them, asked for by the leader or of its own (where the trace tells the cause); truncations that took
something, and the largest, in records. max_unavailable_s, max_recovery_s: the highest gap_s and recovery_s of
its faults.
"""

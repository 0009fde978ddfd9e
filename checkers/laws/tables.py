"""The tables that every law uses: a contract, for the laws here and for your own checks.

A unit of work is a bag of complete partitions, of one run or of many. It is a DuckDB database with these
tables; all of them are there, empty where a run has nothing of the kind. Every key begins with `run`, the
position of the run's folder in the call: a law must never join two runs, nor two partitions.

Units: times are ns; an `index` is that of a line of history.jsonl; `at` rises from line to line of a file and
identifies a line even where its index is wrong. Times of two nodes that differ by no more than the run's
clock error have no known order. Lines and entries that break the format have no row (they are counted
elsewhere). A number may be any 64-bit integer: cast it to HUGEINT before adding to it. `offset`, `at` and
`overlaps` are keywords of SQL (the latter two from DuckDB 2 on) and must be quoted. checkers/README.md has
the same on one page, and how to write a check.
"""

from collections.abc import Mapping

import pyarrow as pa

INT, TEXT, FLAG = pa.int64(), pa.string(), pa.bool_()
EPOCH_END = pa.struct([("epoch", INT), ("end", INT)])


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([("run", pa.int32()), *columns.items()])


_ITEM = {"at": INT, "pos": pa.int32(), "index": INT, "time": INT, "process": INT, "type": TEXT, "f": TEXT}

TABLES: Mapping[str, pa.Schema] = {
    # -- history.jsonl, by partition ------------------------------------------------------------------------
    # One row for each micro-send of an invocation (type invoke) or of a completion (ok, fail, info) of a send
    # or txn; pos: its place in the line's list, from 0; offset, epoch: the ack's, where they are known, also
    # of a txn that is not ok.
    "sends": _schema(partition=INT, value=INT, offset=INT, epoch=INT, **_ITEM),
    # One row for each record that a completed poll or txn returned (type ok, fail, info); pos as above.
    "reads": _schema(partition=INT, value=INT, offset=INT, epoch=INT, **_ITEM),
    # One row for each place that a completed poll could not read, whatever it tried.
    "corrupt": _schema(partition=INT, offset=INT, why=TEXT, **_ITEM),
    # One row for each partition of a list_offsets line; epoch: of the leader that answered. And the same for
    # the beginnings.
    "ends": _schema(partition=INT, offset=INT, epoch=INT, **_ITEM),
    "starts": _schema(partition=INT, offset=INT, **_ITEM),
    # One row for each partition that an assign or subscribe line names.
    "assigned": _schema(partition=INT, **_ITEM),
    # -- history.jsonl, in every unit of the run ------------------------------------------------------------
    # The assign, subscribe and crash lines of clients: they move the position of a process. And the
    # invocations of list_offsets, which show when an end was asked for.
    "moves": _schema(at=INT, index=INT, time=INT, process=INT, type=TEXT, f=TEXT),
    # The ok polls of the final reads that returned nothing: no record, and no place that cannot be read.
    "empty_polls": _schema(at=INT, process=INT),
    # Processes with something special; others have no row. final: its reads are the final reads; overlaps: it
    # had two ops open, or invoked one after an info; uncommitted: its isolation is read_uncommitted (null: as
    # the run's).
    "processes": _schema(process=INT, final=FLAG, overlaps=FLAG, uncommitted=FLAG),
    # Values that the run sent more than once, to whatever partitions.
    "repeated": _schema(value=INT),
    # The lines of the nemesis; fault: the object as JSON.
    "faults": _schema(index=INT, time=INT, f=TEXT, fault=TEXT),
    # -- history.jsonl, in the unit that has all dependencies of its run (transactions.py); else none ----
    # Every line of a client. ident: a number for the partitions and values of its sends, in their order;
    # null: it has no sends.
    "lines": _schema(at=INT, index=INT, time=INT, process=INT, type=TEXT, f=TEXT, ident=INT),
    # How a line of a client is paired with others of its process (read/pairing.py). answers: `at` of the
    # invocation that a completion answers, answers_index: that line's index; null: none, or ambiguous.
    # answered: for an invocation with sends, whether a completion answers it; else null.
    "answers": _schema(at=INT, answers=INT, answers_index=INT, answered=FLAG),
    # -- the final logs -------------------------------------------------------------------------------------
    # One row for each entry of a dump; value: null where the record is not ours. aborted, crc_ok: never null.
    "entries": _schema(node=TEXT, partition=INT, at=INT, offset=INT, epoch=INT, value=INT, crc=INT,
                       crc_ok=FLAG, aborted=FLAG),
    # One row for each replica of a partition below, or whose row contradicts itself; null from hw to running
    # where replicas.jsonl has no row of it. leads, in_isr: by the final leader; complete: its dump has every
    # entry; settled: the run has settled; struck: a fault that lost data or an unclean election affected the
    # partition; cache: its leader epochs, null where nothing is claimed about them.
    "replicas": _schema(node=TEXT, partition=INT, leads=FLAG, in_isr=FLAG, hw=INT, log_start=INT, leo=INT,
                        running=FLAG, complete=FLAG, settled=FLAG, struck=FLAG, compact=FLAG,
                        cache=pa.list_(pa.struct([("start", INT), ("epoch", INT)]))),
    # -- what may be claimed of a partition (run.json, and what the first pass found) ------------------------
    # One row for each that run.json names, if the history or a dump has anything of it. compact: its topic
    # is; leader_known: the leader, its row and its complete dump are known; losses_judged: then, and not
    # compact; log_start, hw: the leader's; claims_from: nothing is claimed about reads below; readable_to,
    # stable_to: the offset below which a reader may see the leader's log, below which it is committed and
    # decided; unseen_judged: final reads must have returned every committed record; by_final_reads,
    # by_any_read: without the leader's log these show losses; keeps_all: the run has settled, and nothing may
    # have deleted records of the partition; loss_in_doubt: the system shows no dumps or no replicas.jsonl;
    # denied_by: the number of nodes, all of which know neither the topic nor its leader, or 0; isr_followers:
    # with their log starts; weak_acks: acks is not all; retried: retries without idempotence; uncommitted: as
    # in runs; decided: the run settled and the leader's row has an lso: its log shows which transactions were
    # committed; from unclean_index on: a send that was invoked before the bound (an index, or a time) may be
    # lost by an unclean election or the fault budget, surely or (maybe) possibly.
    "partitions": _schema(partition=INT, leader=TEXT, leader_known=FLAG, compact=FLAG, losses_judged=FLAG,
                          log_start=INT, claims_from=INT, hw=INT, readable_to=INT, stable_to=INT,
                          unseen_judged=FLAG, by_final_reads=FLAG, by_any_read=FLAG, keeps_all=FLAG,
                          loss_in_doubt=FLAG, denied_by=INT,
                          isr_followers=pa.list_(pa.struct([("node", TEXT), ("log_start", INT)])),
                          weak_acks=FLAG, retried=FLAG, uncommitted=FLAG, decided=FLAG,
                          unclean_index=INT, unclean_time=INT, unclean_maybe=FLAG, unclean_maybe_time=INT,
                          budget_index=INT, budget_maybe_index=INT),
    # Partitions whose final log start may be higher than claims_from, because a row of replicas.jsonl is
    # missing; others have no row. named: run.json names it; else nobody knows what may be lost there either.
    "log_start_unknown": _schema(partition=INT, named=FLAG),
    # transactional: some op of it is a txn; uncommitted: then, and isolation is read_uncommitted;
    # surely_uncommitted: its clients read uncommitted records, with transactions or without; silent: findings
    # with these names are not claimed for any partition of it; internal_index: of a send that was invoked
    # before it, what the internal topics had may be lost; faults_known: no fault is missing in the history;
    # sent_once: no client sends a record again by itself.
    "runs": _schema(transactional=FLAG, uncommitted=FLAG, surely_uncommitted=FLAG, silent=pa.list_(TEXT),
                    internal_index=INT, faults_known=FLAG, sent_once=FLAG),
    # -- trace.jsonl ----------------------------------------------------------------------------------------
    # One row for each line of the events that checks use (read/tables.py), as in the file; cut_from, cut_to:
    # from and to of a truncate, whose cause is null if its file is of an earlier version. Lines without a
    # partition are in every unit of the run.
    "trace": _schema(at=INT, time=INT, node=TEXT, seq=INT, event=TEXT, partition=INT, epoch=INT, leo=INT,
                     hw=INT, role=TEXT, offset=INT, count=INT, epochs=pa.list_(pa.list_(INT)), cut_from=INT,
                     cut_to=INT, cause=TEXT, answer=EPOCH_END, isr=pa.list_(TEXT), start=INT, leader=TEXT,
                     partition_epoch=INT, acks=TEXT, broker=TEXT, follower=TEXT, clean=FLAG),
    # One row for each partition of a run that has a trace. nodes: the run's brokers; replicas: the
    # partition's; min_isr: the members that an acks=all ack needs; complete: no line of the trace is missing;
    # unfenced: when one of its brokers was unfenced; excuses: records written in epochs up to `epoch`, and
    # not after `struck`, may be lost by `permit` from `time` on, which is that of the election of epoch
    # `elected`. Times here and in the next two tables are not outside +-2^61, so that clock_error, at most
    # 2^62, can be added.
    "traced": _schema(partition=INT, nodes=pa.list_(TEXT), replicas=pa.list_(TEXT), clock_error=INT,
                      min_isr=INT, claims_from=INT, complete=FLAG, unfenced=pa.list_(INT),
                      excuses=pa.list_(pa.struct([("permit", pa.int32()), ("epoch", INT), ("struck", INT),
                                                  ("elected", INT), ("time", INT)]))),
    # When a broker surely was registered and not fenced. A time beyond 2^61: for ever.
    "active_brokers": _schema(node=TEXT, since=INT, until=INT),
    # When a fault that lost data struck a node: when it began, and when it had taken effect.
    "strikes": _schema(node=TEXT, since=INT, until=INT),
}  # fmt: skip

# The tables that units of partitions, and of processes, send to the one unit of their run, if it has
# transactions (transactions.py).
SENT_ON_BY_PARTITIONS: Mapping[str, pa.Schema] = {
    # Edges between two lines x and y; some may come twice, of different records. kind (op_graph.py): WR, y
    # read a value of x; WW, y wrote the record after that of x. partition, offset, value: of the record that
    # was read, or the earlier one.
    "dependencies": _schema(kind=pa.int8(), x=INT, y=INT, partition=INT, offset=INT, value=INT),
    # How many edges a run has in the unit, even if there are too many to send.
    "dependency_counts": _schema(edges=INT),
    # One row for each completed txn that read a value which it sends: the line, its index and process; the
    # lowest place of such reads; the lowest index at which such a value was invoked.
    "own_reads": _schema(at=INT, index=INT, process=INT, partition=INT, offset=INT, value=INT, invoked=INT),
    # Of each txn that is not ok, in the unit, the record that shows best whether it was committed, and the
    # one that shows best that it was not (how: aborted, absent, passed). at, invoked: its invocation; done:
    # the index of its completion; permit: 0 where none (torn_transactions.py).
    "txn_fates": _schema(at=INT, committed=FLAG, permit=pa.int32(), partition=INT, value=INT, how=TEXT,
                         offset=INT, invoked=INT, done=INT),
}
SENT_ON_BY_PROCESSES: Mapping[str, pa.Schema] = {
    # One row for each completed op, or send without a completion: op is the line of its invocation, or of its
    # completion if nobody knows the invocation; the indexes of both, null if unknown; f: its place in
    # cycles.OPS; info: its outcome is unknown; overlaps: its process had two ops open.
    "ops": _schema(op=INT, invoked=INT, completed=INT, process=INT, info=FLAG, f=pa.int8(), overlaps=FLAG),
    # One row for each further line of an op.
    "op_lines": _schema(op=INT, line=INT),
}
SENT_ON: Mapping[str, pa.Schema] = {**SENT_ON_BY_PARTITIONS, **SENT_ON_BY_PROCESSES}

# The rows that a law returns: one for each finding. A column that does not apply is null.
FINDINGS = pa.schema([
    ("run", pa.int32()),
    ("name", TEXT),
    ("partition", INT),
    ("offset", INT),
    ("value", INT),
    ("how", TEXT),
    ("nodes", pa.list_(TEXT)),
    ("ops", pa.list_(INT)),  # indexes of lines
    ("seen", INT),  # one more number for the text: the other offset, value or epoch
    ("process", INT),
    ("permit", pa.int32()),  # what permits it (permits.py); null: nothing does
    ("node", TEXT),  # whose line of the trace is to blame: its node, seq and time
    ("seq", INT),
    ("time", INT),
    ("epoch", INT),  # the record's own
    ("upto", INT),  # the records concerned are those from `offset` up to here; null: all from there on
])  # fmt: skip

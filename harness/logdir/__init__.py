"""A Kafka log directory, read: our broker's and Apache Kafka's, frozen or dead. Nothing is written.

rows.py is the way in: the rows of a dump, and what else a replica's files say. Below it stand segments.py
(a partition's files), transactions.py (which records were aborted), record_batches.py (what Kafka stores:
message sets v0 and v1, record batches v2), compression.py and checkpoints.py.
"""

from floodmark.harness.logdir.checkpoints import offsets_in, read_epochs, read_offsets
from floodmark.harness.logdir.rows import LogState, describe, dump
from floodmark.harness.logdir.segments import why_no_log

__all__ = ["LogState", "describe", "dump", "offsets_in", "read_epochs", "read_offsets", "why_no_log"]

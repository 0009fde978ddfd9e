"""Reads Kafka log directories, of our broker and of Apache Kafka, while the broker is frozen or dead. Begin
with rows.py: the rows of a dump, and a replica's state by its files. Nothing is written.
"""

from floodmark.harness.logdir.checkpoints import UNREADABLE, Epochs, offsets_in, read_epochs, read_offsets
from floodmark.harness.logdir.rows import LogState, describe, dump
from floodmark.harness.logdir.segments import why_no_log

__all__ = [
    "UNREADABLE", "Epochs", "LogState", "describe", "dump", "offsets_in", "read_epochs", "read_offsets",
    "why_no_log",
]

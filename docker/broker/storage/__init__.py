"""The log directory on disk, as Kafka lays it out: segments, checkpoints, recovery, and what is durable.

It imports protocol and wire (record batches), never server: only server and tests import it. Every write goes
through log_directory.py, which records what a power cut would leave (durability_side_file.py). Begin
in local_log.py, the log of one partition. The controller's journal is here too.
"""

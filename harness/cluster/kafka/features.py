"""Reads the features of KRaft mode (KIP-584) that a folder was formatted with, and checks that a cluster has
them.

A controller loads its first features from a checkpoint that the format command writes: into the folder itself
up to 4.3, into __cluster_metadata-0 from 4.4 on.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

from floodmark.harness.cluster.kafka.metadata_log import FOLDER, Decisions, apply_record
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.logdir.record_batches import BatchError, frame, records


def formatted_features(log_dir: Path) -> Mapping[str, int]:
    """The formatted level of each feature; empty if there is no checkpoint (before 3.3)."""
    decisions = Decisions()
    for path in sorted((*log_dir.glob("*.checkpoint"), *(log_dir / FOLDER).glob("*.checkpoint"))):
        try:
            _load(path.read_bytes(), decisions)
        except (OSError, BatchError, LookupError, struct.error) as error:
            raise FloodmarkError(f"{path}, which Kafka's format wrote, cannot be read: {error}") from error
    return decisions.features


def _load(data: bytes, decisions: Decisions) -> None:
    at = 0
    while (header := frame(data, at)) is not None and header.size:
        if not header.control:
            for record in records(data, at, header):
                apply_record(decisions, record.value or b"")
        at += header.size


def refuse_other_features(asked: Mapping[str, int], finalized: Mapping[str, int], version: str) -> None:
    """Raises FloodmarkError if a feature's level is not the formatted one. Kafka leaves out those of level
    0."""
    wrong = [f"{name} has level {finalized.get(name, 0)}, not {level}"
             for name, level in sorted(asked.items()) if finalized.get(name, 0) != level]
    if wrong:
        raise FloodmarkError(f"this cluster of Kafka {version} does not have the features that its folder "
                             f"was formatted with: {'; '.join(wrong)}")

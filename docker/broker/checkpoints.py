"""Kafka's small text files in a log directory. (being written: signatures are final)

A malformed file raises CheckpointError, which names file and line. A missing file is what each function says.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.files import Files

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


class CheckpointError(Exception): ...


def read_offsets(log_dir: Path, name: str) -> dict[tuple[str, int], int]:
    """HIGH_WATERMARKS or RECOVERY_POINTS: (topic, partition) -> offset; {} when missing."""
    raise NotImplementedError


def write_offsets(files: Files, name: str, offsets: Mapping[tuple[str, int], int]) -> None: ...


def read_epochs(path: Path) -> tuple[tuple[int, int], ...] | None: ...
def write_epochs(files: Files, name: str, entries: Iterable[tuple[int, int]]) -> None: ...


def ensure_meta(files: Files, *, node_id: int, cluster_id: str) -> None:
    """Writes meta.properties into a new directory; CheckpointError when it belongs to another node or cluster."""


def take_clean_shutdown(files: Files) -> int | None:
    """The broker epoch in .kafka_cleanshutdown (-1: none in it), and deletes it; None: the last stop was unclean."""


def write_clean_shutdown(files: Files, broker_epoch: int) -> None:
    """The last act of an orderly stop, after every log was flushed."""

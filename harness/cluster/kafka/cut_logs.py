"""Simulates a power cut on the files of a dead broker of Apache Kafka: each log loses its end.

Kafka records what it has fsynced only in recovery-point-offset-checkpoint: below a log's recovery point
everything is durable; above it the operating system writes back at any time. So each log is cut at the end of
a batch that is drawn evenly between its recovery point and its end.

Rules
1. A log is not cut below its recovery point, nor below the end that an earlier power cut left; a log that
   fsyncs every message (flush.messages=1) is not cut at all: its recovery point is checkpointed later.
2. Later segments and producer snapshots are removed, and the indexes of the cut segment, which Kafka rebuilds
   when it recovers an unclean log. Checkpoints are not cut: Kafka fsyncs them, and lowers offsets that are
   gone when it loads the logs.
3. The harness records what a cut has left in a file next to the broker's folder. A log that was not written
   since is durable as it is.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from floodmark.harness.cluster import log_extents
from floodmark.harness.cluster.log_extents import Lost, segments_of
from floodmark.harness.logdir import read_offsets

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HOW = "logs cut at a batch boundary above the recovery point"
NOTHING: Mapping[str, int] = {}
_OF_SEGMENT = (".index", ".timeindex", ".txnindex")
_SNAPSHOT = ".snapshot"


class CutLogs:
    """See harness.cluster.log_extents: PowerLoss. durable_file is the file of rule 3."""

    def __init__(self, flushes_every: Callable[[str], bool] = lambda topic: False) -> None:
        self._flushes_every = flushes_every  # whether a topic's messages are fsynced before they are acked
        self._cuts: dict[str, int] = {}  # number of cuts of each node: seeds the next one's draw

    def power_cut(self, durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None) -> Lost:
        number = self._cuts[log_dir.name] = self._cuts.get(log_dir.name, 0) + 1
        random = Random(f"{log_dir.name} {number}")
        before = log_extents.log_extents(log_dir)
        points = read_offsets(log_dir / RECOVERY_POINTS)
        for name in log_extents.partition_folders(log_dir):
            topic, _, partition = name.rpartition("-")
            if not partition.isdecimal() or self._flushes_every(topic):
                continue
            floor = max(points.get((topic, int(partition)), 0), _left_by_cut(durable_file, log_dir / name))
            _cut(log_dir / name, floor, None if keep is None else keep.get(name), random)
        lost = log_extents.records_between(before, log_extents.log_extents(log_dir))
        self.mark_all_durable(durable_file, lost.kept)
        return replace(lost, how=HOW)

    def mark_all_durable(self, durable_file: Path, ends: Mapping[str, int] = NOTHING) -> None:
        durable_file.write_text(json.dumps({**ends}), encoding="utf-8")

    def fsynced(self, durable_file: Path) -> Mapping[str, int] | None:
        return {}  # unknown for every file without the checkpoint


def _left_by_cut(durable_file: Path, folder: Path) -> int:
    """The end of the log that an earlier power cut left, if it was not written since; else 0."""
    try:
        noted_ns = durable_file.stat().st_mtime_ns
        noted: Mapping[str, int] = json.loads(durable_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0
    if all(path.stat().st_mtime_ns <= noted_ns for path in segments_of(folder)):
        return log_extents.log_end_offset(folder)
    return noted.get(folder.name, 0)


def _cut(folder: Path, floor: int, keep: int | None, random: Random) -> None:
    """Cuts one log at the highest end of a batch that is not above `keep`; without it, at a drawn one."""
    segments = segments_of(folder)
    ends = [(number, end) for number, path in enumerate(segments)
            for end in (log_extents.BatchEnd(byte=0, leo=log_extents.base_offset(path)),
                        *log_extents.batch_ends(path))]
    possible = [one for one in ends if one[1].leo >= floor]
    if not possible:
        return  # the log ends below its recovery point: it is damaged already, and is not cut
    chosen = random.choice(possible)
    if keep is not None:
        chosen = max((one for one in possible if one[1].leo <= keep), default=possible[0],
                     key=lambda one: (one[1].leo, one[0]))
    number, end = chosen
    cut = segments[number]
    if number == len(segments) - 1 and end.byte == cut.stat().st_size:
        return
    for path in (*segments[number + 1:], cut):
        for suffix in _OF_SEGMENT:
            path.with_suffix(suffix).unlink(missing_ok=True)
    for path in segments[number + 1:]:
        path.unlink()
    for path in folder.glob(f"*{_SNAPSHOT}"):
        if path.stem.isdecimal() and int(path.stem) > end.leo:
            path.unlink()
    os.truncate(cut, end.byte)

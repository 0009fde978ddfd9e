"""One partition's logs: each one a log as the checks by log want it, and where they do not say the same."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from checkers.chunks import Bools, Ints
from checkers.dumps import Dump
from checkers.folder import Folder, Replica

_SPARSE = 2  # a log that lacks entries is laid out whole up to so many places an entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A replica, one row an offset, from `start` on."""

    start: int
    there: Bools  # the dump has an entry
    ours: Bools
    aborted: Bools
    epoch: Ints
    value: Ints  # 0 where not ours
    crc: Ints

    @property
    def end(self) -> int:
        return self.start + len(self.ours)

    def span(self, low: int, high: int) -> slice:
        return slice(low - self.start, high - self.start)

    def offsets(self, which: Bools) -> Ints:
        return self.start + np.flatnonzero(which)


def logs_of(folder: Folder, key: int, dumps: Mapping[str, Dump]) -> dict[str, Log] | None:
    """The partition in the dump of each of its replicas; None if one of them is no log."""
    logs = {}
    for node, dump in dumps.items():
        if folder.is_stray(node, key):
            continue
        log = log_of(dump, key, folder.replicas.get((node, key)), lacks=node in folder.damaged)
        if log is None:
            return None
        logs[node] = log
    return logs


def log_of(dump: Dump, key: int, row: Replica | None, *, lacks: bool) -> Log | None:
    """The partition in this dump: offsets in step, bytes whole, bounds right, epochs rising and as the cache
    says. A damaged dump `lacks` lines. None: it is no log."""
    rows = dump.groups.of(key)
    offset, epoch = dump.offset[rows], dump.epoch[rows]
    steps = np.diff(offset)
    if not dump.crc_ok[rows].all() or ((steps != 1).any() and (not lacks or (steps <= 0).any())):
        return None
    dated = epoch >= 0
    epochs = epoch if dated.all() else epoch[dated]
    if (epochs[1:] < epochs[:-1]).any() or not fits(row, offset, offset[dated], epochs, lacks=lacks):
        return None
    start = int(offset[0]) if len(offset) else 0
    log = Log(
        start=start, there=np.ones(len(offset), dtype=np.bool_), ours=dump.ours[rows], epoch=epoch,
        aborted=dump.aborted[rows], value=dump.value[rows], crc=dump.crc[rows],
    )  # fmt: skip
    return log if not len(offset) or offset[-1] - start == len(offset) - 1 else spaced(log, offset)


def spaced(log: Log, offset: Ints) -> Log | None:
    """The same with its holes; None where there is hardly anything else."""
    size = int(offset[-1]) - log.start + 1
    if size > _SPARSE * len(offset):
        return None
    told = {}
    for name in ("there", "ours", "aborted", "epoch", "value", "crc"):
        column = getattr(log, name)
        told[name] = np.zeros(size, dtype=column.dtype)
        told[name][offset - log.start] = column
    return Log(start=log.start, **told)


def fits(row: Replica | None, offset: Ints, dated: Ints, epochs: Ints, *, lacks: bool) -> bool:
    """What replicas.jsonl says of the replica; `dated`: the offsets of the records that have these epochs."""
    if row is None:
        return True
    first, end = (int(offset[0]), int(offset[-1]) + 1) if len(offset) else (row.log_start, row.log_start)
    bounded = first >= row.log_start and end <= row.leo if lacks else (first, end) == (row.log_start, row.leo)
    if not bounded or row.epochs is None or not row.running:
        return bounded
    cache = sorted((start, epoch) for epoch, start in row.epochs)
    said = [-1, *(epoch for _, epoch in cache)]
    cuts = np.searchsorted(dated, np.array([start for start, _ in cache], dtype=np.int64)).tolist()
    spans = zip([0, *cuts], [*cuts, len(dated)], said, strict=True)  # until the next entry begins to speak
    return not any((epochs[low:high] != epoch).any() for low, high, epoch in spans)


# -- side by side -----------------------------------------------------------------------------------------


def reference(folder: Folder, key: int, logs: Mapping[str, Log]) -> str | None:
    """The log that all others are held against: the leader's, else the longest."""
    leader = folder.partitions[key].leader
    if leader in logs and leader not in folder.damaged:
        return leader
    return max(logs, key=lambda node: (int(logs[node].there.sum()), node), default=None)


def disagreeing(folder: Folder, key: int, logs: Mapping[str, Log], against: str) -> list[Ints]:
    """Offsets where a replica's record is not that of `against`, where it has one that `against` has not, or
    where an ISR member lacks one of the leader's that its own log start does not excuse."""
    right = logs[against]
    odd: list[Ints] = []
    members = isr_of(folder, key) if against == folder.partitions[key].leader else frozenset()
    for node, log in logs.items():
        if node == against:
            continue
        low, high = max(right.start, log.start), min(right.end, log.end)
        high = max(low, high)
        mine, theirs = log.span(low, high), right.span(low, high)
        other = log.there[mine] != right.there[theirs]
        for name in ("epoch", "value", "ours", "crc"):
            other |= getattr(log, name)[mine] != getattr(right, name)[theirs]
        odd.append(low + np.flatnonzero(other & log.there[mine]))
        offsets = log.offsets(log.there)
        odd.append(offsets[(offsets < low) | (offsets >= high)])
        if node in members:
            offsets = right.offsets(right.there)
            lacks = (offsets < log.start) | (offsets >= log.end)
            odd.append(offsets[lacks & (offsets >= folder.replicas[node, key].log_start)])
    return odd


def isr_of(folder: Folder, key: int) -> frozenset[str]:
    """Members of whom something can be said to lack (facts.members)."""
    isr = folder.partitions[key].isr
    return frozenset(node for node in isr if (node, key) in folder.replicas and node not in folder.damaged)

"""Which records of a log were aborted.

Rules
1. The log decides: the first marker of its producer after a batch says how its transaction ended.
2. Where no such marker is in the log, for compaction has taken it, the segments' index of aborted
   transactions (.txnindex) may still name the abort; a broker tells its consumers from there. What neither
   knows is open.
"""

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.logdir.record_batches import Frame, aborts, frame, records
from floodmark.harness.logdir.segments import SUFFIX, Segment, batches_of, refuse

_ENTRY = struct.Struct(">hqqqq")  # version, producer, first offset, last offset (the marker's), last stable
_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """One entry of an index: from this producer's first record to the marker, both inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """How each producer's transactions ended: offset of each marker, ascending, and whether it aborts."""

    markers: Mapping[int, list[tuple[int, bool]]]
    index: Sequence[Aborted]

    def aborted(self, header: Frame) -> bool:
        """Whether the records of this batch were aborted; those of an open transaction were not."""
        if not header.transactional or header.control:
            return False
        markers = self.markers.get(header.producer_id, [])
        after = bisect_right(markers, (header.last_offset, True))
        if after < len(markers):
            return markers[after][1]
        return any(entry.producer_id == header.producer_id
                   and entry.first_offset <= header.base_offset <= entry.last_offset for entry in self.index)


def fates_of(segments: Sequence[Segment], *, running: bool) -> Fates:
    """Those of a complete log, which is read for its markers."""
    markers: dict[int, list[tuple[int, bool]]] = {}
    for segment in segments:
        for data, at, _ in batches_of(segment, drop_bad_last=segment is segments[-1] and not running):
            header = frame(data, at)
            if header is not None and header.control and header.crc_ok:
                for record in records(data, at, header):
                    markers.setdefault(header.producer_id, []).append((record.offset, aborts(record)))
    return Fates(markers=markers, index=[entry for segment in segments for entry in aborted_index(segment)])


def aborted_index(segment: Segment) -> list[Aborted]:
    """The aborted transactions that a segment's index names; none where there is no such file. A torn last
    entry is left out."""
    path = segment.path.with_name(segment.path.name.replace(SUFFIX, ".txnindex"))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FloodmarkError(f"the index {path} cannot be read: {error}") from error
    entries = []
    for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
        version, producer, first, last, _ = _ENTRY.unpack_from(data, at)
        if version != _VERSION:
            refuse(path, f"entry {at // _ENTRY.size} has version {version}, not {_VERSION}")
        entries.append(Aborted(producer_id=producer, first_offset=first, last_offset=last))
    return entries

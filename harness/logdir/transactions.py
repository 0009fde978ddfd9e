"""Finds which records of a log were aborted.

Rules
1. The log decides: the producer's first marker after a batch says how the batch's transaction ended.
2. If compaction has removed that marker, the segments' index of aborted transactions (.txnindex) may still
   have the abort; brokers use it to answer consumers. Otherwise the transaction counts as open.
"""

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.logdir.segments import SUFFIX, Segment, batches_of, refuse
from floodmark.harness.record_batches import Frame, aborts, frame, records

_ENTRY = struct.Struct(">hqqqq")  # version, producer, first offset, last offset (the marker's), last stable
_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """One entry of an index: the offsets from this producer's first record to the marker, both included."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """How each producer's transactions ended: the offset of each marker, ascending, and whether it aborts."""

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


def transactions_of(segments: Sequence[Segment], *, running: bool) -> Transactions:
    markers: dict[int, list[tuple[int, bool]]] = {}
    for segment in segments:
        for data, at, _ in batches_of(segment, is_last=segment is segments[-1], drop_bad_last=not running):
            header = frame(data, at)
            if header is not None and header.control and header.crc_ok:
                for record in records(data, at, header):
                    markers.setdefault(header.producer_id, []).append((record.offset, aborts(record)))
    index = [entry for segment in segments for entry in aborted_index(segment)]
    return Transactions(markers=markers, index=index)


def aborted_index(segment: Segment) -> list[Aborted]:
    """None where there is no such file. An incomplete last entry is left out."""
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

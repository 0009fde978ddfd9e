"""Builders for the tests of the disk: record batches made by hand, and a log with its side file in a
folder."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.storage.local_log import LocalLog
from floodmark.broker.storage.log_directory import LogDirectory

TOPIC_ID = "00112233445566778899aabbccddeeff"
_AFTER_CRC = Struct(">hiqqqhii")


def batch(base: int, count: int = 1, epoch: int = 0, *, payload: bytes = b"value",
          producer: int = -1) -> Batch:
    """A valid batch; `payload` replaces the records, which nothing here decodes."""
    covered = _AFTER_CRC.pack(0, count - 1, 1_700_000_000_123, 1_700_000_000_123, producer,
                              -1 if producer < 0 else 0, -1 if producer < 0 else 0, count) + payload
    head = base.to_bytes(8, "big") + (9 + len(covered)).to_bytes(4, "big")
    crc = crc32c(covered).to_bytes(4, "big")
    data = head + epoch.to_bytes(4, "big", signed=True) + b"\x02" + crc + covered
    return Batch(base_offset=base, last_offset=base + count - 1, epoch=epoch, data=data, producer_id=producer,
                 producer_epoch=-1 if producer < 0 else 0, base_sequence=-1 if producer < 0 else 0)


SIZE = len(batch(0).data)  # of a batch of one record


def singles(first: int, end: int) -> list[Batch]:
    return [batch(offset) for offset in range(first, end)]


class Disk:
    """A log directory of one partition with its side file; `log` is open until `kill`."""

    def __init__(self, folder: Path, *, segment_bytes: int = 1 << 30, flush_messages: int | None = None,
                 account: bool = True) -> None:
        self.log_dir = folder / "n1"
        self.durable = folder / "work" / "n1.durable"
        self._account = account
        self._segment_bytes = segment_bytes
        self._flush_messages = flush_messages
        self.start()

    def start(self) -> None:
        self.files = LogDirectory.open(self.log_dir, self.durable if self._account else None)
        self.log = LocalLog.open(
            self.files, "log", 0, topic_id=TOPIC_ID, segment_bytes=self._segment_bytes,
            flush_messages=self._flush_messages)

    def kill(self) -> None:
        """Leaves what SIGKILL leaves: everything written, nothing flushed."""
        self.log.close()
        self.files.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    @property
    def folder(self) -> Path:
        return self.log_dir / "log-0"

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def content(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.segments())

    def read_all(self) -> bytes:
        """The log's bytes, by reads of one segment at a time."""
        parts, at = [], self.log.log_start
        while at < self.log.leo:
            data = self.log.read(at, self.log.leo, 1 << 30)
            parts.append(data)
            at = last_offset(data) + 1
        return b"".join(parts)


def last_offset(data: bytes) -> int:
    """The offset of the last batch in the data."""
    position, last = 0, -1
    while position < len(data):
        base = int.from_bytes(data[position:position + 8], "big")
        last = base + int.from_bytes(data[position + 23:position + 27], "big")
        position += 12 + int.from_bytes(data[position + 8:position + 12], "big")
    return last


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Limits the size of files, as a full disk does. (Python ignores the signal that comes with it.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

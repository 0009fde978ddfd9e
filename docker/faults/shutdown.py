"""Cuts a mounted ext4 off from its disk as a loss of power or a broken disk does, and says what it held.

usage: shutdown.py power|read-only DEVICE    what each log held the instant before:
                                             {"log-0": [LEO, bytes, LEO of what was fsynced], ...}
       shutdown.py look DEVICE...            how each is mounted now: {"/dev/loop0": ["rw", ...] or null, ...}
environment: FSYNCED, the broker's account, {"log-0/00000000000000000000.log": bytes, ...}; without it
everything counts as fsynced.
Needs SYS_ADMIN and SYS_PTRACE, the machine's /dev, its /sys at /host/sys, and the process namespace of those
who have the device mounted at /data.

Rules
1. The file system is reached through a process that has it mounted: nothing is mounted here, so nothing here
   keeps it from being unmounted when that process ends.
2. power: every write, fsync and read fails with EIO from now on, and what was not fsynced by now never
   reaches the disk. read-only: as when the kernel finds a broken file system: writes fail with EROFS, reads
   go on, and what was not fsynced is lost when it is unmounted. Both end with the next mount.
3. Back when it is so: a write was tried and refused.
4. LEO: the offset after the last batch that is there whole. No checksum is looked at: a log is cut at its
   first bad batch when it is opened, so that what was appended since is sound.
"""

import errno
import fcntl
import json
import os
import re
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
HOST_SYS = Path("/host/sys")
DATA = "data"
PROBE = ".floodmark-probe"
SEGMENT = re.compile(r"\d{20}\.log")
HEAD = struct.Struct(">qiibIhi")  # base offset, length, epoch, magic, CRC, attributes, last offset's delta
LENGTH_FROM = 12  # a batch's length counts the bytes after its own field
MAGIC = 2


def holder(device: str) -> Path | None:
    """A process that has the device at /data; None: nobody has."""
    number = os.stat(device).st_rdev
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if (process / "root" / DATA).stat().st_dev == number:
                    return process
            except OSError:
                continue  # it has ended, or has no such folder
    return None


def options(process: Path) -> list[str]:
    """How its /data is mounted: the mount's own words and the file system's, each once."""
    for line in (process / "mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        if mount.split()[4] == f"/{DATA}":
            return list(dict.fromkeys(f"{mount.split()[5]},{system.split()[2]}".split(",")))
    return []


def held(log_dir: Path, fsynced: Mapping[str, int] | None) -> dict[str, tuple[int, int, int]]:
    """Of each partition: the LEO of its log, its bytes, and the LEO of what was fsynced."""
    found = {}
    for folder in sorted(log_dir.iterdir()):
        segments = sorted(path for path in folder.glob("*.log") if SEGMENT.fullmatch(path.name))
        if segments:
            last = segments[-1]  # those before it were fsynced when they were closed
            durable = None if fsynced is None else fsynced.get(f"{folder.name}/{last.name}", 0)
            leo, durable_leo = leos(last, durable)
            found[folder.name] = (leo, sum(path.stat().st_size for path in segments), durable_leo)
    return found


def leos(segment: Path, durable: int | None) -> tuple[int, int]:
    """From the heads of its batches alone: a large segment is read in no time."""
    leo = durable_leo = int(segment.stem)
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        size, position = os.fstat(descriptor).st_size, 0
        while len(head := os.pread(descriptor, HEAD.size, position)) == HEAD.size:
            base, length, _, magic, _, _, delta = HEAD.unpack(head)
            position += LENGTH_FROM + length
            if magic != MAGIC or length < HEAD.size or delta < 0 or position > size:
                break
            leo = base + delta + 1
            if durable is None or position <= durable:
                durable_leo = leo
    finally:
        os.close(descriptor)
    return leo, durable_leo


def lose_power(log_dir: Path, _device: str) -> None:
    descriptor = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


def turn_read_only(_log_dir: Path, device: str) -> None:
    (HOST_SYS / "fs" / "ext4" / Path(device).name / "trigger_fs_error").write_text("1")


def refused(log_dir: Path) -> bool:
    """Whether writes are."""
    probe = log_dir / PROBE
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT))
        probe.unlink()
    except OSError as error:
        return error.errno in (errno.EIO, errno.EROFS)
    return False


def strike(how: str, device: str) -> dict[str, tuple[int, int, int]]:
    process = holder(device)
    if process is None:
        sys.exit(f"{device} is not mounted at /{DATA} by any process that can be seen")
    log_dir = process / "root" / DATA
    before = held(log_dir, json.loads(os.environ.get("FSYNCED", "null")))
    {"power": lose_power, "read-only": turn_read_only}[how](log_dir, device)
    if not refused(log_dir):
        sys.exit(f"{device} still takes writes")
    return before


def look(devices: list[str]) -> dict[str, list[str] | None]:
    found: dict[str, list[str] | None] = {}
    for device in devices:
        process = holder(device)
        found[device] = None if process is None else options(process)
    return found


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[2:]) if sys.argv[1] == "look" else strike(*sys.argv[1:])))

"""Stops a mounted ext4 from reaching its disk, as a power cut or a broken disk does.

usage: shutdown.py power|read-only DEVICE    does it, and prints each log as it was right before:
                                             {"log-0": [LEO, bytes, LEO of the fsynced part], ...}
       shutdown.py look DEVICE...            prints mount options: {"/dev/loop0": ["rw", ...] or null, ...}
environment: FSYNCED, the durable lengths that the broker noted, {"log-0/00000000000000000000.log": bytes,
...}; without it everything counts as fsynced.
It needs SYS_ADMIN and SYS_PTRACE, the machine's /dev, its /sys at /host/sys, and the process namespace of the
processes that have the device mounted at /data.

Rules
1. The file system is reached through a process that has it mounted: nothing is mounted here, so nothing here
   keeps it from being unmounted when that process ends.
2. power: from now on every write, fsync and read fails with EIO, and writes that were not fsynced never reach
   the disk. read-only: as when the kernel finds a broken file system: writes fail with EROFS, reads still
   work, and writes that were not fsynced are lost at the unmount. Both end with the next mount.
3. It returns when a test write was refused.
4. LEO: the offset after the last complete batch. Checksums are not verified: a log is cut at its first bad
   batch when it is opened, so all batches appended since are good.
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


def find_process(device: str) -> Path | None:
    """Find a process that has the device mounted at /data; None if there is none."""
    number = os.stat(device).st_rdev
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if (process / "root" / DATA).stat().st_dev == number:
                    return process
            except OSError:
                continue  # it has ended, or has no such folder
    return None


def mount_options(process: Path) -> list[str]:
    """The options of its mount at /data: the mount's own and the file system's, each once."""
    for line in (process / "mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        if mount.split()[4] == f"/{DATA}":
            return list(dict.fromkeys(f"{mount.split()[5]},{system.split()[2]}".split(",")))
    return []


def log_extents(log_dir: Path, fsynced: Mapping[str, int] | None) -> dict[str, tuple[int, int, int]]:
    """For each partition: the LEO of its log, its bytes, and the LEO of its fsynced part."""
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
    """(LEO, LEO of the fsynced part) of a segment. It reads only the batch headers, to be fast."""
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


def refuses_writes(log_dir: Path) -> bool:
    """Whether a test write fails with EIO or EROFS."""
    probe = log_dir / PROBE
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT))
        probe.unlink()
    except OSError as error:
        return error.errno in (errno.EIO, errno.EROFS)
    return False


def strike(how: str, device: str) -> dict[str, tuple[int, int, int]]:
    process = find_process(device)
    if process is None:
        sys.exit(f"{device} is not mounted at /{DATA} by any process that can be seen")
    log_dir = process / "root" / DATA
    before = log_extents(log_dir, json.loads(os.environ.get("FSYNCED", "null")))
    {"power": lose_power, "read-only": turn_read_only}[how](log_dir, device)
    if not refuses_writes(log_dir):
        sys.exit(f"{device} still takes writes")
    return before


def look(devices: list[str]) -> dict[str, list[str] | None]:
    found: dict[str, list[str] | None] = {}
    for device in devices:
        process = find_process(device)
        found[device] = None if process is None else mount_options(process)
    return found


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[2:]) if sys.argv[1] == "look" else strike(*sys.argv[1:])))

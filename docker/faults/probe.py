"""Tries which faults work on the containers of this machine, and prints the results as one line of JSON.

usage: probe.py network|disks
network needs NET_ADMIN in a network namespace of its own, disks SYS_ADMIN, the machine's /dev, its /sys at
/host/sys, and a tmpfs at /images.

Rules
1. Everything is tried; nothing is concluded from a version.
2. The answer is {"can": {name: null, or why not}, "seen": {name: anything}}; the exit code is always 0.
3. Nothing outlives the container: rules and qdiscs belong to its namespace, and a loop device that was made
   by mount is freed when its last mount ends.
"""

import errno
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

COMMAND_S = 10.0
NOBODY = "192.0.2.1"  # nobody has this address (RFC 5737)
QUEUE = 4077  # of netfilter, in a namespace where nobody else has any
FAKETIME = "/opt/floodmark/libfaketime.so.1"
AHEAD_S = 5000
BOUND = Path("/probe")  # a folder that the harness has mounted, if mounts from its machine work
IMAGE = Path("/images/probe.img")
MOUNTED = Path("/images/disk")
HOST_SYS = Path("/host/sys")
FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


class Refused(Exception):
    """It does not work here; the text says why."""


def run(*argv: str, given: str = "", env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; Refused with its error message."""
    try:
        ran = subprocess.run(argv, input=given, env=env, capture_output=True, text=True, timeout=COMMAND_S,
                             check=False)
    except FileNotFoundError:
        raise Refused(f"the image has no {argv[0]}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{argv[0]} took longer than {COMMAND_S:g} s") from None
    if ran.returncode:
        lines = [line.strip() for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
        why = next((line for line in lines if line.startswith("Error:")), lines[0] if lines else "")
        why = why.removeprefix(f"{argv[0]}: ") or f"exit code {ran.returncode}"
        raise Refused(f"{argv[0]}: {why}")
    return ran.stdout


def print_answer(tries: dict[str, Callable[[], None]], seen: dict[str, object]) -> None:
    """Make every attempt, and print the results with `seen`."""
    can: dict[str, str | None] = {}
    for name, attempt in tries.items():
        try:
            attempt()
            can[name] = None
        except Refused as refused:
            can[name] = str(refused)
        except OSError as error:
            can[name] = error.strerror or str(error)
    print(json.dumps({"can": can, "seen": seen}), flush=True)


# -- network, clocks, memory ------------------------------------------------------------------------------


def rule(words: str) -> Callable[[], None]:
    """An attempt to load this firewall rule, for an address that nobody has."""

    def attempt() -> None:
        run("iptables-restore", "-w", given=f"*filter\n-A INPUT -s {NOBODY} {words}\nCOMMIT\n")

    return attempt


def netem() -> None:
    """Delay, drop and throttle the packets to one peer with netem, and no others."""
    run("tc", "-batch", "-", given=f"""
qdisc add dev lo root handle 1: htb default 0
class add dev lo parent 1: classid 1:1 htb rate 10gbit quantum 60000
qdisc add dev lo parent 1:1 netem delay 2ms 1ms loss 1% rate 1000kbit
filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst {NOBODY}/32 flowid 1:1
""")


def queue() -> None:
    """Queue packets to a process, recognize them by a mark when they come back, and serve the queue."""
    rule("-m mark --mark 0x1 -j ACCEPT")()
    rule(f"-j NFQUEUE --queue-num {QUEUE} --queue-bypass")()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:  # NETLINK_NETFILTER
        netlink.settimeout(COMMAND_S)
        netlink.bind((0, 0))
        bind = struct.pack("=HH", 8, 1) + struct.pack("!BxH", 1, socket.AF_INET)  # NFQA_CFG_CMD: bind
        body = struct.pack("!BBH", socket.AF_INET, 0, QUEUE) + bind
        head = struct.pack("=IHHII", 16 + len(body), 3 << 8 | 2, 5, 1, 0)  # QUEUE_CONFIG; request, ack
        netlink.send(head + body)
        (code,) = struct.unpack_from("=i", netlink.recv(4096), 16)
    if code:
        raise Refused(f"no packet queue: {os.strerror(-code)}")


def shift_clock() -> None:
    """Set the wall clock of one running process ahead, and leave its monotonic clock."""
    if not Path(FAKETIME).exists():
        raise Refused("the image has no libfaketime")
    file = Path("/tmp/probe.clock")
    file.write_text("+0\n")
    ahead = ("import time; a, b = time.time(), time.monotonic();"
             f"open({str(file)!r}, 'w').write('+{AHEAD_S}\\n');"
             "print(time.time() - a, time.monotonic() - b)")
    elapsed = run(sys.executable, "-c", ahead, env={
        "LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    wall, monotonic = map(float, elapsed.split())
    if not (AHEAD_S <= wall < AHEAD_S + COMMAND_S and monotonic < COMMAND_S):
        raise Refused(f"libfaketime: {AHEAD_S} s became {wall:.1f} s, {monotonic:.1f} s of monotonic time")


def memory_limit() -> int | None:
    """The memory limit of this container in bytes, as the kernel knows it; None: no limit."""
    for file in ("memory/memory.limit_in_bytes", "memory.max"):
        path = Path("/sys/fs/cgroup") / file
        if path.exists():
            text = path.read_text().strip()
            return None if text == "max" else int(text)
    return None


def exchange_words() -> str | None:
    """Read the word that the harness wrote into the mounted folder, and write it back; None: no folder."""
    try:
        word = (BOUND / "word").read_text()
        (BOUND / "back").write_text(word)
    except OSError:
        return None
    return word


def network() -> None:
    print_answer({
        "cut": rule("-j DROP"),
        "reset": rule("-p tcp -j REJECT --reject-with tcp-reset"),
        "loss": rule("-m statistic --mode random --probability 0.5 -j DROP"),
        "netem": netem,
        "queue": queue,
        "clock": shift_clock,
    }, {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "memory_limit": memory_limit(),
        "word": exchange_words(),
        "monotonic_ns": time.monotonic_ns(),
    })


# -- disks ------------------------------------------------------------------------------------------------


def make_disk() -> None:
    """Make a disk of a file, and mount it."""
    with IMAGE.open("wb") as file:
        file.truncate(16 << 20)
    MOUNTED.mkdir()
    run("mkfs.ext4", "-q", "-F", "-m0", str(IMAGE))
    mount()


def mount() -> None:
    run("mount", "-t", "ext4", "-o", "loop,commit=60,errors=remount-ro", str(IMAGE), str(MOUNTED))


def unmount() -> None:
    run("umount", str(MOUNTED))


def check_mounted() -> None:
    if not os.path.ismount(MOUNTED):
        raise Refused("no disk can be made of a file")


def power_cut() -> None:
    """Cut the power: writes then fail until the next mount, after which only the fsynced file is there."""
    check_mounted()
    for name in ("synced", "unsynced"):
        descriptor = os.open(MOUNTED / name, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"x" * 100)
        if name == "synced":
            os.fsync(descriptor)
        os.close(descriptor)
    descriptor = os.open(MOUNTED, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(descriptor)
    try:
        (MOUNTED / "more").write_bytes(b"x")
        raise Refused("a disk that was shut down still takes writes")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    unmount()
    mount()
    left = sorted(path.name for path in MOUNTED.iterdir() if path.is_file() and path.stat().st_size == 100)
    if left != ["synced"]:
        raise Refused(f"after a power cut these files were left: {', '.join(left) or 'none'}")


def turn_read_only() -> None:
    """Make the file system read-only, as the kernel does when it finds it broken."""
    check_mounted()
    (device,) = (line.split()[0] for line in Path("/proc/mounts").read_text().splitlines()
                 if line.split()[1] == str(MOUNTED))
    trigger = HOST_SYS / "fs" / "ext4" / Path(device).name / "trigger_fs_error"
    if not trigger.exists():
        raise Refused("the machine's /sys/fs/ext4 cannot be seen")
    trigger.write_text("1")
    try:
        (MOUNTED / "more").write_bytes(b"x")
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
    else:
        raise Refused("a disk with a broken file system still takes writes")


def disks() -> None:
    try:
        print_answer({"loops": make_disk, "power_cut": power_cut, "read-only": turn_read_only}, {})
    finally:
        if os.path.ismount(MOUNTED):
            unmount()


if __name__ == "__main__":
    {"network": network, "disks": disks}[sys.argv[1]]()

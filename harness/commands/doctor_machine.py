"""What the doctor finds on this machine, whichever cluster is meant: room, ports, judge and broker."""

import os
import platform
import shutil
import socket
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

from harness import catalog
from harness.cluster.ports import HIGHEST, HOST, LOWEST, Ports
from harness.commands.scenario_names import words
from harness.errors import FloodmarkError
from harness.reports.doctor_table import Row

PYTHON_AT_LEAST = (3, 11)
MEMORY_AT_LEAST = 1 << 30  # three brokers take 60 MB, the judge's JVM the rest
DISK_AT_LEAST = 1 << 29  # a run of half a minute with its trace, and room to judge it
LOOPBACK_S = 2.0
ALL = ("containers", "local")
_PART = "this machine"


def machine_rows(folder: Path) -> list[Row]:
    """folder: where runs would be kept."""
    return [_system(), _python(), _memory(_available_bytes()), _disk(folder), _loopback(), _ports(), _java(),
            _broker()]


def _system() -> Row:
    linux = sys.platform == "linux"
    told = f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} processors"
    return _row("system", linux, told, "clusters run on Linux alone; saved runs can be judged anywhere")


def _python() -> Row:
    told = f"{platform.python_version()} at {sys.executable}"
    return _row("Python", sys.version_info >= PYTHON_AT_LEAST, told, "3.11 or newer is wanted")


def _memory(available: int | None) -> Row:
    if available is None:
        return Row(part=_PART, what="memory", can=None, told="this system does not say")
    return _row("memory", available >= MEMORY_AT_LEAST, f"{_size(available)} available",
                f"end something: {_size(MEMORY_AT_LEAST)} is wanted for brokers and judge")


def _available_bytes() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


def _disk(folder: Path) -> Row:
    free = shutil.disk_usage(folder).free
    return _row("disk", free >= DISK_AT_LEAST, f"{_size(free)} free at {folder}",
                f"make room, or use --out elsewhere: {_size(DISK_AT_LEAST)} is wanted for a run")


def _loopback() -> Row:
    try:
        with socket.create_server((HOST, 0)) as server:
            socket.create_connection(server.getsockname(), LOOPBACK_S).close()
    except OSError as error:
        return _row("loopback", False, f"nothing can be dialled on {HOST}: {error.strerror or error}",
                    "bring the interface up: ip link set lo up")
    return _row("loopback", True, f"{HOST} answers")


def _ports() -> Row:
    ports = None
    try:
        ports = Ports()
        first = ports.choose()
    except (FloodmarkError, OSError) as error:
        return _row("ports", False, str(error), "")
    finally:
        if ports is not None:
            ports.close()
    return _row("ports", True, f"free ones between {LOWEST} and {HIGHEST}, such as {first}")


def _java() -> Row:
    try:
        catalog.can_judge()
        session = import_module(catalog.FIND_JAVA.partition(":")[0])  # Spark stays with the judges
        java = session.find_java()
        told = f"Java {session.version_of(java)} at {java}, Spark {metadata.version('pyspark')}"
    except (FloodmarkError, ImportError) as error:
        return _row("judge", False, str(error), "")
    return _row("judge", True, told)


def _broker() -> Row:
    try:
        rules: Sequence[str] = words().generations
    except FloodmarkError as error:
        return _row("broker", False, str(error), "install floodmark anew: pip install -e . in a checkout")
    return _row("broker", True, f"runs; rules {', '.join(rules)}")


def _row(what: str, can: bool, told: str, todo: str = "") -> Row:
    """What every cluster needs."""
    return Row(part=_PART, what=what, can=can, told=told, todo=todo, needed_by=ALL)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"

"""Every fault by name, and which cluster can suffer it on this machine."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness import catalog
from harness.cluster.containers.ability_probe import (
    CLOCK,
    CUT,
    DELAY,
    LOOPS,
    LOSS,
    MEMORY,
    RATE,
    READ_ONLY,
    RESET,
)
from harness.commands.doctor_engine import Engine
from harness.faults import DISKS_BAD, DISKS_DAMAGED, FAULTS
from harness.reports.doctor_table import FaultRow
from nemesis.compose import Composed, arsenal

# What an engine must be able to do for them; the others need no more than an engine.
_NEEDS: Mapping[str, str] = {
    "cut": CUT, "reset": RESET, "clock": CLOCK, "memory": MEMORY,
    "packet loss": LOSS, "packet delay": DELAY, "packet rate": RATE,
    "bad_disk full": LOOPS, "bad_disk failing": LOOPS, "bad_disk read-only": READ_ONLY,
}
_KINDS: Mapping[str, tuple[str, ...]] = {
    "packet": ("loss", "delay", "rate"), "disk": DISKS_DAMAGED, "bad_disk": DISKS_BAD}
_DOES: Mapping[str, str] = {
    "packet loss": "packets between nodes are lost, at random",
    "packet delay": "packets between nodes come late, more or less",
    "packet rate": "packets between nodes come few at a time",
    "disk wiped": "kill, and empty what the disk held",
    "disk corrupt": "kill, and change a byte of a log's tail",
    "disk truncated": "kill, and cut off bytes of a log's tail",
    "bad_disk full": "no room is left, until mended",
    "bad_disk read-only": "nothing can be written, until mended",
    "bad_disk failing": "nothing can be read or written, until mended",
}
_ON_FILES = "played on files, as in the local cluster, for they cannot have disks of their own"


def fault_rows(engine: Engine) -> list[FaultRow]:
    """All that do harm, in the order of harness.faults; what undoes them goes without saying."""
    undo = {fault.undone_by for fault in FAULTS.values()}
    local = _of_local()
    rows = []
    for f, fault in FAULTS.items():
        for kind in () if f in undo else _KINDS.get(f, ("",)):
            name = f"{f} {kind}".strip()
            can, told, todo = _containers(name, engine)
            rows.append(FaultRow(
                fault=name, does=_DOES.get(name, fault.does), containers=can, told=told, todo=todo,
                local=f in local and (f != "disk" or kind == "wiped")))
    return rows


def _of_local() -> frozenset[str]:
    """The f's that the local cluster answers; it is made, and never started."""
    with tempfile.TemporaryDirectory(prefix="floodmark-") as folder:
        cluster = catalog.cluster("local", Path(folder), 3, rules=catalog.RULES[-1], bugs=(), config={},
                                  links="proxied")
        return Composed(arsenal(cluster)).answers


def _containers(name: str, engine: Engine) -> tuple[bool | None, str, str]:
    """Whether containers can suffer it here; by what means, or why not; what to do."""
    if engine.abilities is None:
        return None, "", ""
    if name == "power_cut":
        loops = engine.abilities[LOOPS]
        return True, "on disks of their own" if loops.can else f"{_ON_FILES}: {loops.why}", ""
    if name not in _NEEDS:
        return True, "", ""
    ability = engine.abilities[_NEEDS[name]]
    if ability.can:
        return True, f"by {ability.how}" if ability.how else "", ""
    return False, ability.why, ability.todo

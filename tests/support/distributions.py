"""Packages of other authors, written as pip would install them, and forgotten by this process."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from floodmark.checkers.laws.registered import loaded
from floodmark.harness.faults import registered_fault
from floodmark.harness.registered import registered


def brings(site: Path, groups: Mapping[str, Sequence[str]], code: str = "", *, name: str = "theirs",
           module: str | None = None) -> Path:
    """Site with a package of this code. groups: `workloads` -> lines of its group."""
    info = site / f"{name}-0.3.dist-info"
    info.mkdir(parents=True)
    (site / f"{module or name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
    lines = [line for group, points in groups.items() for line in (f"[floodmark.{group}]", *points)]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    return site


def forget(*modules: str) -> None:
    """What was installed, as a process that begins."""
    for asked in (registered, registered_fault, loaded):
        asked.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)

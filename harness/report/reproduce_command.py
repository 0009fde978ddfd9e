"""Builds the command that reproduces a saved run, or None where its folder lacks what that needs."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.registered import CLUSTER, WORKLOAD
from floodmark.harness.run import Run
from floodmark.harness.saved_run import SavedRun, read_saved, read_schedule
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.spec import OPTIONS


def reproduce_command(folder: Path, about: Mapping[str, Any], finding: str | None = None) -> str | None:
    """The command `floodmark reproduce ...`; None if the folder lacks what it needs."""
    run = Run(folder=folder)
    try:
        read_reproducible(about, str(folder))
    except FloodmarkError:
        return None  # a damaged run.json, or one of another version
    words = ["floodmark", "reproduce", str(folder), *(["--finding", finding] if finding else [])]
    return shlex.join(words) if run.has(run.history_path) else None


def read_reproducible(about: Mapping[str, Any], source: str) -> tuple[SavedRun, Schedule]:
    """What the run was, and its schedule. FloodmarkError if this floodmark cannot make it again."""
    saved = read_saved(about, source)
    for kind in ("rules", CLUSTER, WORKLOAD, "links", "acks"):
        name, names = getattr(saved.spec, kind), OPTIONS[kind].choices or catalog.names(kind)
        if name not in names:
            raise FloodmarkError(f"{source} cannot be reproduced: this floodmark has no {kind} {name!r}; "
                                 f"there are: {', '.join(names)}")
    usual = saved.spec.node_names
    if saved.nodes != usual:
        raise FloodmarkError(f"{source} cannot be reproduced: its nodes are {', '.join(saved.nodes)}, but "
                             f"a cluster of this size has {', '.join(usual)}")
    if not saved.spec.assignment:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json names no partition")
    return saved, read_schedule(about["schedule"], saved, source)

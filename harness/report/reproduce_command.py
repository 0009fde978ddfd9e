"""Builds the command that reproduces a saved run, or None where its folder lacks what that needs.

The command is `floodmark reproduce`. It repeats the saved run's faults several times and counts how often the
finding comes back: the clients' interleaving differs each time, so one attempt proves little.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.registered import CLUSTER, WORKLOAD
from floodmark.harness.run import Run
from floodmark.harness.saved_run import SavedRun, read_saved, read_schedule
from floodmark.harness.spec import OPTIONS


def reproduce_command(folder: Path, about: Mapping[str, Any], finding: str | None = None) -> str | None:
    """The command `floodmark reproduce ...`; None if the folder lacks what it needs."""
    try:
        saved = read_saved(about, str(folder))
        refuse_unknown(saved, str(folder))
        read_schedule(about["schedule"], saved, str(folder))
    except FloodmarkError:
        return None  # a damaged run.json, or one of another version
    run = Run(folder=folder)
    if not run.has(run.history_path):
        return None
    return shlex.join(["floodmark", "reproduce", str(folder), *(["--finding", finding] if finding else [])])


def refuse_unknown(saved: SavedRun, source: str) -> None:
    """Raises FloodmarkError for names that this floodmark does not know."""
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

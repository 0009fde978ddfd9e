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
from floodmark.harness.saved_run import Settings, read_schedule, read_settings


def reproduce_command(folder: Path, about: Mapping[str, Any], finding: str | None = None) -> str | None:
    """The command `floodmark reproduce ...`; None if the folder lacks what it needs."""
    try:
        settings = read_settings(about, str(folder))
        refuse_unknown(settings, str(folder))
        read_schedule(about, settings, str(folder))
    except FloodmarkError:
        return None  # a damaged run.json, or one of another version
    run = Run(folder=folder)
    if not run.has(run.history_path):
        return None
    return shlex.join(["floodmark", "reproduce", str(folder), *(["--finding", finding] if finding else [])])


def refuse_unknown(settings: Settings, source: str) -> None:
    """Raises FloodmarkError for names that this floodmark does not know."""
    for kind, name, names in (
        ("rules", settings.rules, catalog.RULES),
        ("cluster", settings.cluster, catalog.names(CLUSTER)),
        ("workload", settings.workload, catalog.names(WORKLOAD)),
        ("links", settings.links, ("direct", "proxied")),
        ("acks", settings.acks, ("all", "1", "0")),
    ):
        if name not in names:
            raise FloodmarkError(f"{source} cannot be reproduced: this floodmark has no {kind} {name!r}; "
                                 f"there are: {', '.join(names)}")
    usual = tuple(f"n{number}" for number in range(1, len(settings.nodes) + 1))
    if settings.nodes != usual:
        raise FloodmarkError(f"{source} cannot be reproduced: its nodes are {', '.join(settings.nodes)}, but "
                             f"a cluster of this size has {', '.join(usual)}")
    if not settings.assignment:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json names no partition")

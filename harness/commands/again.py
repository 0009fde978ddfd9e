"""The command that does a run again: the same schedule, cluster and load, from run.json alone.

A moment asked by what is observed (an ack, a state) comes again; one asked by time comes again at that time.
The interleaving of the clients does not: what was found may take several tries.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import catalog
from harness.cluster.properties import settings, typed
from harness.errors import FloodmarkError

_NEEDED = ("seed", "rules", "workload", "nodes", "partitions", "schedule", "concurrency", "duration_s")
_OURS = ("floodmark.rules", "floodmark.bugs")


def command(folder: Path, about: Mapping[str, Any]) -> str | None:
    """`floodmark run ...`, to be typed; None where run.json is of no run that we could make."""
    try:
        return shlex.join(["floodmark", *words(folder, about)])
    except (KeyError, TypeError, ValueError, AttributeError, FloodmarkError):
        return None  # a foreign or damaged run.json: there is nothing to be typed then


def words(folder: Path, about: Mapping[str, Any]) -> list[str]:
    """The command's words; whatever is the default is left out, save what makes it readable."""
    if any(name not in about for name in _NEEDED) or about["cluster"] not in catalog.CLUSTERS:
        raise ValueError("not a run of ours")
    nodes, partitions = list(about["nodes"]), dict(about["partitions"])
    if nodes != [f"n{number}" for number in range(1, len(nodes) + 1)] or not partitions:
        raise ValueError("not a run of ours")
    factor = len(next(iter(partitions.values()))["replicas"])
    said = ["run", "--rules", str(about["rules"]), "--nodes", str(len(nodes))]
    said += ["--partitions", str(len(partitions)), "--replication-factor", str(factor)]
    said += ["--workload", str(about["workload"]), "--concurrency", str(int(about["concurrency"]))]
    said += ["--rate", f"{float(about['rate']):g}"] if about.get("rate") else []
    said += ["--duration", f"{float(about['duration_s']):g}", "--seed", str(int(about["seed"]))]
    acks = str(about["guarantees"].get("acks", "all"))
    said += ["--acks", acks] if acks != "all" else []
    said += ["--schedule", str(folder / "run.json")] if about["schedule"] else []
    return [*said, *config_words(about, len(nodes), factor)]


def config_words(about: Mapping[str, Any], nodes: int, factor: int) -> list[str]:
    """-c KEY=VALUE for each key that is not what this run would have had anyway; --bug NAME likewise."""
    config = dict(about["config"]["n1"])
    usual = typed(settings(defaults(factor), nodes=nodes), rules=str(about["rules"]), bugs=())
    said: list[str] = []
    for bug in filter(None, str(config.get("floodmark.bugs", "")).split(",")):
        said += ["--bug", bug]
    for key, value in config.items():
        if key not in _OURS and usual.get(key) != value:
            said += ["-c", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return said


def defaults(factor: int) -> dict[str, str]:
    """What a run sets when nothing else is said."""
    return {"min.insync.replicas": str(max(1, factor - 1)), "default.replication.factor": str(factor)}

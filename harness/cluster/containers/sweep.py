"""Removes the remains of runs from the Docker engine: at the end of a run, and of dead runs at the start of
the next.

Rules
1. A run whose keeper container runs is alive, and nothing of it is touched: the keeper ends with the harness,
   however that ends.
2. A run without a keeper, or with a keeper that was not started yet, may be about to begin: it is swept only
   when everything it has is older than GRACE_S.
3. The keeper is removed last, so that the next start continues an interrupted sweep.
4. What is already gone is no error: two harnesses may sweep at once.
"""

import contextlib
import datetime
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from docker.errors import APIError, DockerException, NotFound

import docker
from floodmark.harness.errors import FloodmarkError

LABEL = "org.floodmark"
LABEL_RUN = "org.floodmark.run"
LABEL_ROLE = "org.floodmark.role"  # keeper, net, broker, helper, network, volume
KEEPER = "keeper"
GRACE_S = 60.0
AT_ONCE = 4  # removals in parallel: more do not make the engine faster
REMOVE_S = 10.0  # for the engine to finish a container's removal

Hook = Callable[[docker.DockerClient, str], None]  # (client, run): removes further things of a dead run


@dataclass(slots=True, kw_only=True)
class Remains:
    """The resources of one run. Containers by id; networks and volumes by name."""

    keepers: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    alive: bool = False  # its keeper runs
    begun: bool = False  # its keeper was started once
    newest_s: float = 0.0  # when its newest part was made, by the engine's clock


def sweep(client: docker.DockerClient, hooks: Iterable[Hook] = ()) -> dict[str, str | None]:
    """Removes the remains of dead runs: run -> None, or why they could not be removed."""
    found = remains(client)
    now_s = _seconds(client.info()["SystemTime"]) if found else 0.0  # the engine's clock may differ from ours
    swept: dict[str, str | None] = {}
    for run, there in sorted(found.items()):
        if dead(there, now_s):
            try:
                _remove(client, run, there, hooks)
                swept[run] = None
            except (DockerException, FloodmarkError) as error:
                swept[run] = str(error)
    return swept


def dead(there: Remains, now_s: float) -> bool:
    """Whether the run is dead. now_s: by the engine's clock."""
    return not there.alive and (there.begun or now_s - there.newest_s > GRACE_S)


def remove_run(client: docker.DockerClient, run: str, hooks: Iterable[Hook] = ()) -> None:
    """Removes everything of this run, even if it is alive."""
    there = remains(client, f"{LABEL_RUN}={run}").get(run)
    if there is not None:
        _remove(client, run, there, hooks)


def _remove(client: docker.DockerClient, run: str, there: Remains, hooks: Iterable[Hook]) -> None:
    """Kills the keeper, and all processes with it; then removes containers, the hooks' things, volumes and
    networks; the keeper last."""
    api = client.api
    for keeper in there.keepers if there.alive else ():
        with contextlib.suppress(NotFound, APIError):  # it ended meanwhile
            api.kill(keeper)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(_remove_container, client), there.containers))
        for hook in hooks:
            hook(client, run)
        list(pool.map(partial(_unless_gone, api.remove_volume), there.volumes))
        list(pool.map(partial(_unless_gone, api.remove_network), there.networks))
    for keeper in there.keepers:
        _remove_container(client, keeper)


def remains(client: docker.DockerClient, label: str = LABEL_RUN) -> dict[str, Remains]:
    """The resources on this engine with the label, by run."""
    found: dict[str, Remains] = {}

    def of(one: Mapping[str, Any], made_s: float) -> tuple[Remains, str]:
        labels = one.get("Labels") or {}
        there = found.setdefault(labels.get(LABEL_RUN, ""), Remains())
        there.newest_s = max(there.newest_s, made_s)
        return there, labels.get(LABEL_ROLE, "")

    wanted = {"label": label}
    for one in client.api.containers(all=True, filters=wanted):
        there, role = of(one, float(one["Created"]))
        if role == KEEPER:
            there.keepers.append(one["Id"])
            there.alive |= one["State"] in ("running", "paused", "restarting")
            there.begun |= one["State"] != "created"
        else:
            there.containers.append(one["Id"])
    for one in client.api.networks(filters=wanted):
        of(one, _seconds(one["Created"]))[0].networks.append(one["Id"])
    for one in client.api.volumes(filters=wanted)["Volumes"] or ():
        of(one, _seconds(one["CreatedAt"]))[0].volumes.append(one["Name"])
    found.pop("", None)
    return found


def _unless_gone(act: Callable[[str], None], name: str) -> None:
    with contextlib.suppress(NotFound):
        act(name)


def _remove_container(client: docker.DockerClient, container: str) -> None:
    """Removes a container and its anonymous volumes. If another process is removing it, waits until it is
    gone."""
    deadline = time.monotonic() + REMOVE_S
    while True:
        try:
            client.api.remove_container(container, force=True, v=True)
            return
        except NotFound:
            return
        except APIError as error:
            if "already in progress" not in str(error.explanation) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)




def _seconds(timestamp: str) -> float:
    """Seconds from a Go time-stamp, which has nanoseconds; Python reads microseconds."""
    return datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", timestamp)).timestamp()

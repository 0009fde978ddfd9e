"""Names, labels and removes the resources of one cluster on the Docker engine; it makes every call to the
engine.

Rules
1. Everything made has two labels, LABEL and LABEL_RUN with the run's own number, and a name with that number.
   Nothing without this run's number is ever touched.
2. The keeper container is made first and removed last. It ends when its standard input ends, which the engine
   closes when the harness is gone, for whatever reason. All containers of the run are in the keeper's process
   namespace, so that the kernel kills them with it.
3. Every call to the engine has a time-out; an error is a FloodmarkError that says what was wanted.
4. Containers that need no network are made without one (network_disabled): for any other, also for `none`,
   the engine starts a process of its own, which doubles the time of a start.
5. Of dead runs everything is removed at the start of the next. A run whose keeper runs is alive, and is not
   touched. One without a keeper, or with one that was not started yet, may be about to begin: it is swept
   only when everything it has is older than GRACE_S. The keeper is removed last, so that nobody sweeps a run
   that is ending, and the next start ends an interrupted removal. What is already gone is no error: two
   harnesses may sweep at once.
"""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import requests
import urllib3
from docker.errors import APIError, DockerException, NotFound
from docker.types import IPAMConfig, IPAMPool, LogConfig, Mount

import docker
from floodmark.harness.cluster.broker_cluster import JavaSoftware
from floodmark.harness.cluster.containers import engine_client, images
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import gather_all, wait_until
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

IN_IMAGE = "10001:10001"  # the image's own user
MOUNTED = "/floodmark"  # FOLDER/work, in every container
DATA = "/data"  # a broker's log directory, in its container
LISTENER = 9092  # the ports of every process, in its own network namespace
CONTROL_SOCKET = 9090
# A network for benchmarks (RFC 2544): office networks do not use it, and neither do Docker's own pools.
SUBNETS = ipaddress.IPv4Network("198.19.0.0/16")
FIRST_HOST = 11  # n1's address in its subnet; lower ones are the gateway's and the engine's
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # changes with each boot of the kernel
BOOT_FILE = "keeper.boot"  # in FOLDER/work: that of the keeper's kernel
KEEPER_S = 20.0
CALL_S = 30.0
COMMAND_CHARS = 200  # of a command, in a message
END_S = 60.0
IMAGE_S = 1800.0  # it may have to be built, on a slow machine

NO_LOG = LogConfig(type="none")  # processes append their output to a file in the run's folder themselves

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFault:
    """A fault that is over. A broker that met it may end of it a little later, or its end be heard later."""

    sign: str | None  # in the last lines of the broker's log; None: the kernel killed it for want of memory
    until_s: float  # monotonic


class EngineResources:
    """Those of one run. `open` makes keeper and network, `close` removes everything."""

    def __init__(self, work: Path, nodes: Sequence[str], *, clocks: bool = True) -> None:
        self.run = secrets.token_hex(4)
        self.network, self.keeper = f"floodmark-{self.run}", f"floodmark-{self.run}-keeper"
        self.work = work
        self.clocks = clocks  # whether brokers are started so that their clocks can be bumped
        self.user = IN_IMAGE if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
        self.names = (*nodes, CONTROLLER)
        self.image = ""  # the image with the broker and the tools; set by open()
        self.process_image = ""  # the image that the cluster's processes run from; set by open()
        self.one_clock = True  # whether the containers' monotonic clock is the harness's
        self.hooks: list[Hook] = []  # removes further things of the run
        self.excused: set[tuple[str, str]] = set()  # (broker, why its end is expected now, without a request)
        self.past_faults: dict[tuple[str, str], PastFault] = {}  # (broker, why) -> the last such fault
        self._client: docker.DockerClient | None = None
        self._subnet: ipaddress.IPv4Network | None = None
        self._keeper_stdin: Any = None
        self._open_calls: set[Future[Any]] = set()

    @property
    def client(self) -> docker.DockerClient:
        if self._client is None:
            raise FloodmarkError("the cluster was not started: there is no connection to the Docker engine")
        return self._client

    def net(self, name: str) -> str:
        return f"{self.network}-{name}-net"

    def broker(self, name: str) -> str:
        return f"{self.network}-{name}"

    def volume(self, name: str) -> str:
        return f"{self.network}-{name}"

    def labels(self, role: str) -> dict[str, str]:
        return {LABEL: "1", LABEL_RUN: self.run, LABEL_ROLE: role}

    def address(self, name: str) -> str:
        """In the cluster's own network. CLIENTS: its gateway, from which published ports are reached."""
        if self._subnet is None:
            raise FloodmarkError("the cluster was not started: it has no network")
        if name == CLIENTS:
            return str(self._subnet[1])
        return str(self._subnet[FIRST_HOST + self.names.index(name)])

    def mount(self) -> Mount:
        """The mount of the run's folder in every container; a missing folder is an error."""
        return Mount(target=MOUNTED, source=str(self.work), type="bind")

    async def call(self, action: str, fn: Callable[..., T], *args: Any, timeout_s: float = CALL_S,
                   **kwargs: Any) -> T:
        """Calls fn in a thread. action: a verb and its object ("start n1"), for the error message."""
        opened = engine_client.in_daemon_thread(partial(fn, *args, **kwargs))
        self._open_calls.add(opened)
        opened.add_done_callback(self._open_calls.discard)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(opened), timeout_s)
        except TimeoutError:
            raise FloodmarkError(f"waited {timeout_s:g} s for the Docker engine to {action}") from None
        except (DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise FloodmarkError(f"the Docker engine could not {action}: {_why(error)}") from error

    async def exec(self, container: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None,
                   user: str = "0", timeout_s: float = 10) -> str:
        """Runs argv in a running container; returns its output. FloodmarkError if its exit code is not 0."""
        ran: Any = await self.call(
            f"run {argv[0]} in {container}", lambda: self.client.containers.get(container).exec_run(
                list(argv), environment=dict(env or {}), user=user), timeout_s=timeout_s)
        return _printed(argv, f"in {container}", ran.exit_code, ran.output.decode(errors="replace"))

    async def helper(self, argv: Sequence[str], *, volume: str, mounted_at: str, timeout_s: float) -> str:
        """As exec, but as root in a container of its own, without network."""
        code, printed = await self.call(
            f"run {argv[0]} in a helper", engine_client.run_alone, self.client, self.image, argv,
            self.labels("helper"), binds=[f"{volume}:{mounted_at}"], timeout_s=timeout_s)
        return _printed(argv, "in a helper", code, printed)

    async def inspect(self, name: str) -> dict[str, Any]:
        seen: dict[str, Any] = await self.call(
            f"look at {name}", self.client.api.inspect_container, self.broker(name))
        return seen

    async def open(self, say: Callable[[str], None] = lambda _line: None,
                   software: JavaSoftware | None = None) -> None:
        """Connects, finds or builds the images, sweeps, starts the keeper, and makes the network."""
        self._client = await self.call("answer", engine_client.connect)
        self.image = self.process_image = await self.call(
            "have the image of the brokers", images.tools_image, self.client, say, timeout_s=IMAGE_S)
        if software is not None:
            self.process_image = await self.call("have the image of Apache Kafka", images.image_of,
                                                 self.client, software, say, timeout_s=IMAGE_S)
        swept = await self.call("remove the remains of killed runs", sweep, self.client, self.hooks,
                                timeout_s=END_S)
        for run, why in swept.items():
            outcome = "removed" if why is None else f"not removed: {why}"
            say(f"the remains of run {run} on the Docker engine: {outcome}")
        await self._share_folder()
        keeper = await self.call("make the keeper container", self._make_keeper)
        _, self._subnet = await gather_all([
            self.call("start the keeper container", self.client.api.start, keeper),
            self.call("make a network", self._make_network)])
        await wait_until(self._keeper_unseen, "the keeper container to write into the run's folder", KEEPER_S)

    async def close(self) -> None:
        """Removes everything of this run, the keeper last. Safe to call twice. What cannot be removed is left
        to the next start; the keeper has ended then, and all processes with it."""
        client, self._client = self._client, None
        if client is None:
            return
        attached = self._keeper_stdin  # None: nothing was made
        try:
            if attached is not None:
                # Those that go on without a waiter must not make anything after the removal.
                await self.call("end its open calls", wait, tuple(self._open_calls), CALL_S, timeout_s=END_S)
            await self.call("remove what the cluster made", remove_run, client, self.run, self.hooks,
                            timeout_s=END_S)
        finally:
            if attached is not None:  # with its connection, which would else stay open
                connection = attached._sock
                attached._response.close()
                connection.close()
            client.close()

    async def _share_folder(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            os.chown(self.work, *map(int, self.user.split(":")))
        elif "name=rootless" in ((await self.call("describe itself", self.client.info)
                                  ).get("SecurityOptions") or ()):
            self.user = "0:0"  # which is our own user outside

    def _make_keeper(self) -> str:
        """Makes the keeper and attaches to its input before it is started, so that it never runs without."""
        api = self.client.api
        boot_file = f"{MOUNTED}/{BOOT_FILE}"
        keeper: str = api.create_container(
            self.image, ["-c", f"cat /proc/sys/kernel/random/boot_id >{boot_file}; exec cat >/dev/null"],
            entrypoint=["sh"], name=self.keeper, user=self.user, labels=self.labels(KEEPER), stdin_open=True,
            network_disabled=True, host_config=api.create_host_config(
                init=True, cap_drop=["ALL"], log_config=NO_LOG, mounts=[self.mount()]))["Id"]
        self._keeper_stdin = api.attach_socket(keeper, {"stdin": 1, "stream": 1})
        return keeper

    async def _keeper_unseen(self) -> str | None:
        with contextlib.suppress(OSError):
            boot_id = (self.work / BOOT_FILE).read_text().strip()
            if boot_id:
                self.one_clock = boot_id == BOOT_ID.read_text().strip()
                return None
        return (f"{self.work} is not the same folder in the keeper container, or its user {self.user} may not"
                " write to it; the engine must run on this machine, without user namespaces")

    def _make_network(self) -> ipaddress.IPv4Network:
        subnets = list(SUBNETS.subnets(new_prefix=24))
        first = int(self.run, 16) % len(subnets)
        for subnet in (*subnets[first:], *subnets[:first]):
            pool = IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))
            try:
                self.client.networks.create(
                    self.network, driver="bridge", labels=self.labels("network"), check_duplicate=True,
                    ipam=IPAMConfig(pool_configs=[pool]))
                return subnet
            except APIError as error:
                if "overlaps" not in str(error.explanation):
                    raise
        raise FloodmarkError(f"every network in {SUBNETS} is taken: remove some (docker network prune)")


def _printed(argv: Sequence[str], where: str, code: int, printed: str) -> str:
    if code != 0:
        command = " ".join(argv)[:COMMAND_CHARS]
        raise FloodmarkError(f"{command!r} {where} ended with code {code}: {printed.strip()}")
    return printed


_GONE = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError, urllib3.exceptions.HTTPError,
         ConnectionError)


def _why(error: Exception) -> str:
    """The engine's own message, or that it does not answer."""
    if isinstance(error, APIError):
        return str(error.explanation or error).strip()
    if isinstance(error, requests.Timeout):
        return f"it did not answer in time ({error})"
    if isinstance(error, _GONE):
        return f"it does not answer any more; does it still run? ({error})"
    return str(error)


# -- the remains of dead runs -----------------------------------------------------------------------------

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


def dead(there: Remains, now_s: float) -> bool:  # now_s: by the engine's clock
    return not there.alive and (there.begun or now_s - there.newest_s > GRACE_S)


def remove_run(client: docker.DockerClient, run: str, hooks: Iterable[Hook] = ()) -> None:
    there = remains(client, f"{LABEL_RUN}={run}").get(run)
    if there is not None:
        _remove(client, run, there, hooks)


def _remove(client: docker.DockerClient, run: str, there: Remains, hooks: Iterable[Hook]) -> None:
    """The keeper last: without it the run would count as dead, and others that start would sweep it too."""
    api = client.api
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(_remove_container, client), there.containers))
        for hook in hooks:
            hook(client, run)
        list(pool.map(partial(_unless_gone, api.remove_volume), there.volumes))
        list(pool.map(partial(_unless_gone, api.remove_network), there.networks))
    for keeper in there.keepers:
        _remove_container(client, keeper)


def remains(client: docker.DockerClient, label: str = LABEL_RUN) -> dict[str, Remains]:
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
    """With its anonymous volumes. If another process is removing it, waits until it is gone."""
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

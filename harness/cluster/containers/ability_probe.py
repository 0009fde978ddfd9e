"""Tests which faults this machine's container engine can apply, in two short-lived containers; describes the
engine and our images in it.

Rules
1. Abilities are tested (docker/faults/probe.py, in the image that clusters run from), not guessed from a
   version. A missing ability has the reason and what to do.
2. The results are cached in the user's cache folder, for this engine, this boot and this image; but not a
   lack of loop devices, because other runs may have used all of them.
3. Everything here blocks; a caller with an event loop uses a thread.
"""

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from docker.errors import APIError
from docker.types import Mount

import docker
from floodmark.harness.cluster.containers import engine_client, images
from floodmark.harness.cluster.containers.engine_resources import LABEL, LABEL_ROLE, LABEL_RUN
from floodmark.harness.cluster.containers.images import can_make_stand_in
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import MORE_NEMESES, NEMESES
from floodmark.harness.run_location import replacing, temporary_folder
from floodmark.harness.user_cache import cache_folder

# The abilities, in the order in which they are listed. FOLDER: containers see the harness's folders;
# ONE_CLOCK: their monotonic clock is its own; LOOPS: brokers' own disks, which can also lose power.
NAMES = FOLDER, ONE_CLOCK, CUT, RESET, LOSS, DELAY, RATE, LOOPS, READ_ONLY, CLOCK, MEMORY = (
    "folder", "one-clock", "cut", "reset", "loss", "delay", "rate", "loops", "read-only", "clock", "memory")

# The ability that a fault (F, or `F KIND`) needs; the others need only an engine.
NEEDED_BY: Mapping[str, str] = {
    "cut": CUT, "reset": RESET, "clock": CLOCK, "memory": MEMORY,
    "packet loss": LOSS, "packet delay": DELAY, "packet rate": RATE,
    "bad_disk full": LOOPS, "bad_disk failing": LOOPS, "bad_disk read-only": READ_ONLY,
}
PROBE_S = 20.0  # for both containers; on a quiet machine it takes one second
LIMIT = 256 << 20  # bytes: a memory limit that the probe gets, to test that it works
_PROGRAM = "/opt/floodmark/faults/probe.py"
_HERE = "use an engine on this machine, with this kernel"
_NETFILTER = "the engine must be able to grant NET_ADMIN, on a kernel with netfilter"
_SLOW = "modprobe sch_netem, or xt_NFQUEUE and nfnetlink_queue"
_LOOP = "modprobe loop, and use an engine that runs as root: others may not have devices"

Answer = Mapping[str, Any]  # of docker/faults/probe.py, and what the engine did; or {"refused": why}
REGISTRY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """Whether this engine has an ability; how, if there are several ways; why not, and what to do."""

    can: bool
    how: str = ""
    why: str = ""
    todo: str = ""


Abilities = Mapping[str, Ability]


def probe(client: docker.DockerClient, image: str, *, afresh: bool = False) -> Abilities:
    """What this engine can do, by the names above. afresh: do not use the cache."""
    with engine_client.engine_errors():
        key = _key(client, image)
        found = None if afresh else _cached(key)
        if found is None:
            found = _test_all(client, image)
            _cache(key, found)
    return found


def offers(abilities: Abilities) -> frozenset[str]:
    return frozenset(
        name for name in MORE_NEMESES
        if all(fault in NEEDED_BY and abilities[NEEDED_BY[fault]].can for fault in NEMESES[name]))


def _test_all(client: docker.DockerClient, image: str) -> Abilities:
    """Runs both containers at once: most of the time is the engine's."""
    run = secrets.token_hex(4)
    trials = [engine_client.in_daemon_thread(partial(test, client, image, run), "probe")
              for test in (_test_network, _test_disks)]
    if wait(trials, PROBE_S).not_done:
        raise FloodmarkError(f"waited {PROBE_S:g} s for the containers that test what the engine can do")
    return abilities_of(*(trial.result() for trial in trials))


def _test_network(client: docker.DockerClient, image: str, run: str) -> Answer:
    """Tests network, clocks and memory; without a shared folder if the engine refuses one."""
    began_ns = time.monotonic_ns()
    options: dict[str, Any] = {
        "network_mode": "none", "cap_add": ["NET_ADMIN"], "mem_limit": LIMIT, "memswap_limit": LIMIT}
    with temporary_folder("floodmark-probe-") as shared:
        shared.chmod(0o777)  # the container writes there as another user
        (shared / "word").write_text(run, encoding="ascii")
        answer = _run_test(client, image, run, "network",
                      {**options, "mounts": [Mount("/probe", str(shared), type="bind")]})
        back = shared / "back"
        seen = back.exists() and back.read_text(encoding="ascii") == run
    if "refused" in answer:
        answer = _run_test(client, image, run, "network", options)
    return {**answer, "folder_seen": seen, "between_ns": (began_ns, time.monotonic_ns())}


def _test_disks(client: docker.DockerClient, image: str, run: str) -> Answer:
    """The program mounts by itself, as the engine does for a cluster, so no profile may forbid it."""
    return _run_test(client, image, run, "disks", {
        "network_mode": "none", "cap_add": ["SYS_ADMIN"], "security_opt": ["apparmor=unconfined"],
        "device_cgroup_rules": ["b 7:* rwm", "c 10:237 rwm"], "tmpfs": {"/images": ""},
        "binds": ["/dev:/dev", "/sys:/host/sys"]})


def _run_test(client: docker.DockerClient, image: str, run: str, what: str, options: Mapping[str, Any]
              ) -> Answer:
    """The program's answer, or {"refused": the engine's reason}."""
    labels = {LABEL: "1", LABEL_RUN: run, LABEL_ROLE: "probe"}
    try:
        code, printed = engine_client.run_alone(client, image, ["python", _PROGRAM, what], labels,
                                               network_disabled=False, **options)
    except APIError as error:
        return {"refused": str(error.explanation or error).strip()}
    if code:
        raise FloodmarkError(
            f"the container that tests {what} ended with code {code}: {printed.strip()[-500:]}")
    answer: Answer = json.loads(printed)
    return answer


def abilities_of(network: Answer, disks: Answer) -> Abilities:
    net, disk = _reasons(network), _reasons(disks)
    slow = ("netem", net("netem")), ("packet queues", net("queue"))
    shared = None if network["folder_seen"] else "a folder of this machine is empty in a container"
    loss = ("the firewall", net("loss")), *slow
    return {
        FOLDER: _ability(("", shared), todo=_HERE),
        ONE_CLOCK: _ability(("", net("clocks")), todo=_HERE),
        CUT: _ability(("", net("cut")), todo=_NETFILTER),
        RESET: _ability(("", net("reset")), todo=f"{_NETFILTER}; modprobe ipt_REJECT"),
        LOSS: _ability(*loss, todo=f"modprobe xt_statistic; or {_SLOW}"),
        DELAY: _ability(*slow, todo=_SLOW),
        RATE: _ability(*slow, todo=_SLOW),
        LOOPS: _ability(("", disk("loops") or disk("power_cut")), todo=_LOOP),
        READ_ONLY: _ability(("", disk("read-only")), todo=_LOOP),
        CLOCK: _ability(("", net("clock")), todo="build the image on a base with glibc"),
        MEMORY: _ability(("", net("limit")), todo="boot with the kernel parameter cgroup_enable=memory")}

def _ability(*ways: tuple[str, str | None], todo: str) -> Ability:
    """The ability by the first way that works; ways: the name, and why it does not work."""
    for how, why in ways:
        if why is None:
            return Ability(can=True, how=how)
    return Ability(can=False, why="; ".join(f"{how}: {why}" if how else str(why) for how, why in ways),
                   todo=todo)


def _reasons(answer: Answer) -> Callable[[str], str | None]:
    """A function from the name of a test to None, or the reason why it failed."""
    if "refused" in answer:
        return lambda _name: f"the engine refuses such a container: {answer['refused']}"
    why = dict(answer["can"])
    if "between_ns" in answer:
        seen = answer["seen"]
        why["clocks"] = _other_clock(seen, *answer["between_ns"])
        why["limit"] = (None if seen["memory_limit"] == LIMIT
                        else "a limit that was asked for is not in force")
    return why.__getitem__


def _other_clock(seen: Mapping[str, Any], began_ns: int, ended_ns: int) -> str | None:
    if seen["boot_id"] != Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip():
        return "the engine runs on another kernel"
    if not began_ns <= seen["monotonic_ns"] <= ended_ns:
        return "containers have a time namespace of their own"
    return None


def _key(client: docker.DockerClient, image: str) -> str:
    about = client.info()
    parts = (engine_client.address(), about["ID"], about["ServerVersion"], about["KernelVersion"],
             Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"), client.images.get(image).id)
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    key: str
    abilities: dict[str, Ability]

    @staticmethod
    def file() -> Path:
        return cache_folder() / "abilities.json"


def _cached(key: str) -> Abilities | None:
    try:
        cache = msgspec.json.decode(_Cache.file().read_bytes(), type=_Cache)
    except (OSError, msgspec.DecodeError):
        return None
    return cache.abilities if cache.key == key and tuple(cache.abilities) == NAMES else None


def _cache(key: str, found: Abilities) -> None:
    if found[LOOPS].can:
        file = _Cache.file()
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as new:
                new.write(msgspec.json.format(msgspec.json.encode(_Cache(key=key, abilities=dict(found)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    name: str  # and version
    storage: str  # the storage driver, and the version of control groups
    tools: str | None  # the image that clusters run from; None: it is not built
    base: str | None  # the image it is built on; None: it is not in the engine
    wanted_base: str  # the name of the base image to use
    base_available: bool | None  # whether it can be fetched or made; None: not asked
    base_why_not: str = ""  # the registry's answer


def facts(client: docker.DockerClient) -> Facts:
    """The facts. A registry is asked only if the base image is missing; it has REGISTRY_S to answer."""
    with engine_client.engine_errors():
        about, version = client.info(), client.version()
        base = images.found_base(client)
        wanted = base or os.environ.get(images.BASE_VARIABLE) or images.OFFICIAL_BASE
        said = None if base else engine_client.refusal_of(
            lambda: client.images.get_registry_data(wanted), REGISTRY_S)
        return Facts(
            name=f"Docker {version.get('Version', '?')}, API {version.get('ApiVersion', '?')}",
            storage=f"{about.get('Driver', '?')}, control groups v{about.get('CgroupVersion', '1')}",
            tools=images.found_image(client, "tools"), base=base, wanted_base=wanted,
            base_available=None if base else said is None or (
                not os.environ.get(images.BASE_VARIABLE) and can_make_stand_in()),
            base_why_not=said or "")

"""Tests which faults this machine's container engine can apply, in two short-lived containers.

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
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.types import LogConfig, Mount

import docker
from floodmark.harness.cluster.containers.engine_client import address, engine_errors
from floodmark.harness.cluster.containers.sweep import LABEL, LABEL_ROLE, LABEL_RUN
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import MORE_NEMESES, NEMESES
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.user_cache import cache_folder

# The abilities, in the order in which they are listed.
FOLDER = "folder"  # containers see the harness's folders
ONE_CLOCK = "one-clock"  # the containers' monotonic clock is the harness's
CUT = "cut"
RESET = "reset"
LOSS = "loss"
DELAY = "delay"
RATE = "rate"
LOOPS = "loops"  # a disk of its own for each broker, and one that can lose power
READ_ONLY = "read-only"
CLOCK = "clock"
MEMORY = "memory"

NAMES = (FOLDER, ONE_CLOCK, CUT, RESET, LOSS, DELAY, RATE, LOOPS, READ_ONLY, CLOCK, MEMORY)

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
    with engine_errors():
        key = _key(client, image)
        found = None if afresh else _cached(key)
        if found is None:
            found = _test_all(client, image)
            _cache(key, found)
    return found


def offers(abilities: Abilities) -> frozenset[str]:
    """The nemeses that this engine offers, of those that not every engine does."""
    return frozenset(
        name for name in MORE_NEMESES
        if all(fault in NEEDED_BY and abilities[NEEDED_BY[fault]].can for fault in NEMESES[name]))


# -- testing -------------------------------------------------------------------------------------------------


def _test_all(client: docker.DockerClient, image: str) -> Abilities:
    """Runs both containers at once: most of the time is the engine's."""
    run = secrets.token_hex(4)
    network, disks = _at_once(lambda: _test_network(client, image, run),
                              lambda: _test_disks(client, image, run))
    return abilities_of(network, disks)


def _at_once(*trials: Callable[[], Answer]) -> list[Answer]:
    """Runs the tests in daemon threads: an engine that hangs must not block the harness at its end."""
    futures = [Future[Answer]() for _ in trials]

    def run(trial: Callable[[], Answer], future: Future[Answer]) -> None:
        try:
            future.set_result(trial())
        except BaseException as error:
            future.set_exception(error)

    for trial, future in zip(trials, futures, strict=True):
        threading.Thread(target=run, args=(trial, future), name="probe", daemon=True).start()
    deadline = time.monotonic() + PROBE_S
    try:
        return [future.result(max(0.0, deadline - time.monotonic())) for future in futures]
    except TimeoutError:
        raise FloodmarkError(
            f"waited {PROBE_S:g} s for the containers that test what the engine can do") from None


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
    """Tests disks. The program mounts by itself, as the engine does for a cluster, so no profile may forbid
    it."""
    return _run_test(client, image, run, "disks", {
        "network_mode": "none", "cap_add": ["SYS_ADMIN"], "security_opt": ["apparmor=unconfined"],
        "device_cgroup_rules": ["b 7:* rwm", "c 10:237 rwm"], "tmpfs": {"/images": ""},
        "binds": ["/dev:/dev", "/sys:/host/sys"]})


def _run_test(
    client: docker.DockerClient, image: str, run: str, what: str, options: Mapping[str, Any]
) -> Answer:
    """The program's answer, or {"refused": the engine's reason}."""
    api = client.api
    made = ""
    try:
        made = api.create_container(
            image, [_PROGRAM, what], entrypoint=["python"], user="0",
            labels={LABEL: "1", LABEL_RUN: run, LABEL_ROLE: "probe"},
            host_config=api.create_host_config(log_config=LogConfig(type="json-file"), **options))["Id"]
        api.start(made)
        code = api.wait(made)["StatusCode"]
        said = api.logs(made)
    except APIError as error:
        return {"refused": str(error.explanation or error).strip()}
    finally:
        if made:
            api.remove_container(made, force=True, v=True)
    if code:
        text = said.decode(errors="replace").strip()[-500:]
        raise FloodmarkError(f"the container that tests {what} ended with code {code}: {text}")
    answer: Answer = json.loads(said)
    return answer


# -- interpreting ------------------------------------------------------------------------------------------


def abilities_of(network: Answer, disks: Answer) -> Abilities:
    """The abilities, by the answers of the two containers."""
    net, disk = _reasons(network), _reasons(disks)
    slow = ("netem", net("netem")), ("packet queues", net("queue"))
    return {
        FOLDER: _ability(
            None if network["folder_seen"] else "a folder of this machine is empty in a container", _HERE),
        ONE_CLOCK: _ability(_other_clock(network), _HERE),
        CUT: _ability(net("cut"), _NETFILTER),
        RESET: _ability(net("reset"), f"{_NETFILTER}; modprobe ipt_REJECT"),
        LOSS: _first_way(("the firewall", net("loss")), *slow, todo=f"modprobe xt_statistic; or {_SLOW}"),
        DELAY: _first_way(*slow, todo=_SLOW),
        RATE: _first_way(*slow, todo=_SLOW),
        LOOPS: _ability(disk("loops") or disk("power_cut"), _LOOP),
        READ_ONLY: _ability(disk("read-only"), _LOOP),
        CLOCK: _ability(net("clock"), "build the image on a base with glibc"),
        MEMORY: _ability(_no_limit(network), "boot with the kernel parameter cgroup_enable=memory"),
    }

def _ability(why: str | None, todo: str) -> Ability:
    return Ability(can=True) if why is None else Ability(can=False, why=why, todo=todo)


def _first_way(*ways: tuple[str, str | None], todo: str) -> Ability:
    """The ability by the first way that works."""
    for how, why in ways:
        if why is None:
            return Ability(can=True, how=how)
    return Ability(can=False, why="; ".join(f"{how}: {why}" for how, why in ways), todo=todo)


def _reasons(answer: Answer) -> Callable[[str], str | None]:
    """A function from the program's name of a test to None, or the reason why it failed."""
    refusal = _refusal(answer)
    return lambda name: refusal or answer["can"][name]


def _refusal(answer: Answer) -> str | None:
    return f"the engine refuses such a container: {answer['refused']}" if "refused" in answer else None


def _other_clock(network: Answer) -> str | None:
    if "refused" in network:
        return _refusal(network)
    seen = network["seen"]
    began_ns, ended_ns = network["between_ns"]
    if seen["boot_id"] != Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip():
        return "the engine runs on another kernel"
    if not began_ns <= seen["monotonic_ns"] <= ended_ns:
        return "containers have a time namespace of their own"
    return None


def _no_limit(network: Answer) -> str | None:
    if "refused" in network:
        return _refusal(network)
    limit = network["seen"]["memory_limit"]
    return None if limit == LIMIT else "a limit that was asked for is not in force"


# -- caching ------------------------------------------------------------------------------------------------


def _key(client: docker.DockerClient, image: str) -> str:
    """Everything that could change the answers, as one key."""
    about = client.info()
    parts = (address(), about["ID"], about["ServerVersion"], about["KernelVersion"],
             Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"), client.images.get(image).id)
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def _file() -> Path:
    return cache_folder() / "abilities.json"


def _cached(key: str) -> Abilities | None:
    """The cached abilities; None: there are none for this engine, boot, image and version."""
    try:
        kept = json.loads(_file().read_text(encoding="utf-8"))
        found = {name: Ability(**one) for name, one in kept["abilities"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if kept["key"] == key and tuple(found) == NAMES else None


def _cache(key: str, found: Abilities) -> None:
    """Writes the cache; if that fails, the next run tests again."""
    if not found[LOOPS].can:
        return
    file = _file()
    content = {"key": key, "abilities": {name: asdict(one) for name, one in found.items()}}
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(content, indent=1), encoding="utf-8")
        os.replace(new, file)

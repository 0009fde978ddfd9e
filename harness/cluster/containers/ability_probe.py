"""Tries out what this machine's container engine can do to brokers, in two short-lived containers.

Rules
1. What can be tried is tried (docker/faults/probe.py, in the image that clusters run from); nothing is
   concluded from a version. What cannot be done says what is missing and what to do.
2. Answers are kept in the user's cache folder, for this engine, this boot and this image; but not that there
   is no loop device: other runs may have had them all.
3. Everything here blocks; a caller with an event loop uses a thread.
"""

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
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

# What is looked for, in the order in which it is told.
FOLDER = "folder"  # the harness's folders are seen in containers
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

PROBE_S = 20.0  # all of it; on a quiet machine it takes one second
LIMIT = 256 << 20  # bytes, of the probe itself, to see it in force
_PROGRAM = "/opt/floodmark/faults/probe.py"
_HERE = "use an engine on this machine, with this kernel"
_NETFILTER = "the engine must be able to grant NET_ADMIN, on a kernel with netfilter"
_SLOW = "modprobe sch_netem, or xt_NFQUEUE and nfnetlink_queue"
_LOOP = "modprobe loop, and use an engine that runs as root: others may not have devices"

Answer = Mapping[str, Any]  # of docker/faults/probe.py, and what the engine did; or {"refused": why}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """Whether it can be had here; how, where there are several ways; why not, and what to do."""

    can: bool
    how: str = ""
    why: str = ""
    todo: str = ""


Abilities = Mapping[str, Ability]


def probe(client: docker.DockerClient, image: str, *, anew: bool = False) -> Abilities:
    """What this engine can do, by the names above. anew: whatever was found before."""
    with engine_errors():
        key = _key(client, image)
        found = None if anew else _kept(key)
        if found is None:
            found = _try_all(client, image)
            _keep(key, found)
    return found


def offers(abilities: Abilities) -> frozenset[str]:
    """The nemeses that this engine can be struck by, of those that not every engine can."""
    needs = {"packet": (LOSS, DELAY, RATE, RESET), "clock": (CLOCK,), "disk": (LOOPS,), "memory": (MEMORY,)}
    return frozenset(
        name for name, needed in needs.items() if all(abilities[one].can for one in needed))


# -- trying -------------------------------------------------------------------------------------------------


def _try_all(client: docker.DockerClient, image: str) -> Abilities:
    """Two containers at once: most of their time is the engine's."""
    run = secrets.token_hex(4)
    network, disks = _at_once(lambda: _try_network(client, image, run),
                              lambda: _try_disks(client, image, run))
    return understood(network, disks)


def _at_once(*trials: Callable[[], Answer]) -> list[Answer]:
    """In threads that nobody waits for at the end: an engine that hangs must not hang us."""
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
            f"waited {PROBE_S:g} s for the containers that try out what the engine can do") from None


def _try_network(client: docker.DockerClient, image: str, run: str) -> Answer:
    """And clocks and memory. Where the engine will not share a folder: all but that."""
    began_ns = time.monotonic_ns()
    options: dict[str, Any] = {
        "network_mode": "none", "cap_add": ["NET_ADMIN"], "mem_limit": LIMIT, "memswap_limit": LIMIT}
    with tempfile.TemporaryDirectory(prefix="floodmark-probe-", ignore_cleanup_errors=True) as folder:
        shared = Path(folder)
        shared.chmod(0o777)  # who writes there is another user
        (shared / "word").write_text(run, encoding="ascii")
        answer = _try(client, image, run, "network",
                      {**options, "mounts": [Mount("/probe", folder, type="bind")]})
        back = shared / "back"
        seen = back.exists() and back.read_text(encoding="ascii") == run
    if "refused" in answer:
        answer = _try(client, image, run, "network", options)
    return {**answer, "folder_seen": seen, "between_ns": (began_ns, time.monotonic_ns())}


def _try_disks(client: docker.DockerClient, image: str, run: str) -> Answer:
    """The program mounts by itself, as the engine does for a cluster: so no profile must forbid it."""
    return _try(client, image, run, "disks", {
        "network_mode": "none", "cap_add": ["SYS_ADMIN"], "security_opt": ["apparmor=unconfined"],
        "device_cgroup_rules": ["b 7:* rwm", "c 10:237 rwm"], "tmpfs": {"/images": ""},
        "binds": ["/dev:/dev", "/sys:/host/sys"]})


def _try(client: docker.DockerClient, image: str, run: str, what: str, options: Mapping[str, Any]) -> Answer:
    """What the program says, or what the engine refuses."""
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
        words = said.decode(errors="replace").strip()[-500:]
        raise FloodmarkError(f"the container that was to try out {what} ended with code {code}: {words}")
    answer: Answer = json.loads(said)
    return answer


# -- understanding ------------------------------------------------------------------------------------------


def understood(network: Answer, disks: Answer) -> Abilities:
    """What the answers of the two containers mean."""
    net, disk = _whys(network), _whys(disks)
    slow = ("netem", net("netem")), ("packet queues", net("queue"))
    return {
        FOLDER: _able(None if network["folder_seen"] else "a folder of this machine is empty there", _HERE),
        ONE_CLOCK: _able(_other_clock(network), _HERE),
        CUT: _able(net("cut"), _NETFILTER),
        RESET: _able(net("reset"), f"{_NETFILTER}; modprobe ipt_REJECT"),
        LOSS: _first(("the firewall", net("loss")), *slow, todo=f"modprobe xt_statistic; or {_SLOW}"),
        DELAY: _first(*slow, todo=_SLOW),
        RATE: _first(*slow, todo=_SLOW),
        LOOPS: _able(disk("loops") or disk("power_cut"), _LOOP),
        READ_ONLY: _able(disk("read-only"), _LOOP),
        CLOCK: _able(net("clock"), "build the image on a base with glibc"),
        MEMORY: _able(_no_limit(network), "boot with the kernel parameter cgroup_enable=memory"),
    }

def _able(why: str | None, todo: str) -> Ability:
    return Ability(can=True) if why is None else Ability(can=False, why=why, todo=todo)


def _first(*ways: tuple[str, str | None], todo: str) -> Ability:
    """By the first way that can be gone."""
    for how, why in ways:
        if why is None:
            return Ability(can=True, how=how)
    return Ability(can=False, why="; ".join(f"{how}: {why}" for how, why in ways), todo=todo)


def _whys(answer: Answer) -> Callable[[str], str | None]:
    """By the program's name of it: None, or why it cannot be."""
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


# -- keeping ------------------------------------------------------------------------------------------------


def _key(client: docker.DockerClient, image: str) -> str:
    """All that could change the answers."""
    about = client.info()
    parts = (address(), about["ID"], about["ServerVersion"], about["KernelVersion"],
             Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"), client.images.get(image).id)
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def _file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "floodmark" / "abilities.json"


def _kept(key: str) -> Abilities | None:
    """What was found before; None: nothing, or for another engine, or by another version of this."""
    try:
        kept = json.loads(_file().read_text(encoding="utf-8"))
        found = {name: Ability(**one) for name, one in kept["abilities"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if kept["key"] == key and tuple(found) == NAMES else None


def _keep(key: str, found: Abilities) -> None:
    """If it may be written; the next will look again if not."""
    if not found[LOOPS].can:
        return
    file = _file()
    told = {"key": key, "abilities": {name: asdict(one) for name, one in found.items()}}
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(told, indent=1), encoding="utf-8")
        os.replace(new, file)

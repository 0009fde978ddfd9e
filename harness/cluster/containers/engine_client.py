"""Connects to the container engine, or explains why it cannot; runs programs in containers of their own.

Rules
1. Only DOCKER_HOST selects the engine; the docker command's contexts are not read.
2. The engine is on this machine: published ports are reached on 127.0.0.1, run folders are mounted.
3. Every request has a time-out.
4. Whoever waits for the engine with a time-out does so in a daemon thread, for which the interpreter does not
   wait at its end: an engine that hangs must not block the harness.
"""

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import urlsplit

from docker.errors import APIError, DockerException, NotFound
from docker.types import LogConfig

import docker
from floodmark.harness.errors import FloodmarkError

REQUEST_TIMEOUT_S = 60  # a start on a busy machine took 3 s; more than this is an engine that hangs
OLDEST_API = (1, 41)  # of Docker 20.10, the oldest that was tested
_ANY_API = "1.24"  # so that docker-py sends no request of its own; our own question has no version
_SOCKET = "unix://"
_DEFAULT = f"{_SOCKET}/var/run/docker.sock"
_HERE = frozenset({"127.0.0.1", "localhost", "::1"})

T = TypeVar("T")


def address() -> str:
    return os.environ.get("DOCKER_HOST") or _DEFAULT


def connect() -> docker.DockerClient:
    """A client of the engine, which has answered. FloodmarkError if there is no engine that can be used."""
    where = address()
    _on_this_machine(where)
    try:
        if where.startswith(_SOCKET):  # docker-py would leave its half-made socket to the garbage collector
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
                knocking.settimeout(REQUEST_TIMEOUT_S)
                knocking.connect(where.removeprefix(_SOCKET))
        asking = docker.from_env(timeout=REQUEST_TIMEOUT_S, version=_ANY_API)
        with contextlib.closing(asking):
            about = asking.api.version(api_version=False)
        if (reason := _unusable_because(about)) is None:
            return docker.from_env(timeout=REQUEST_TIMEOUT_S, version=about["ApiVersion"])
    except (DockerException, OSError) as error:
        raise FloodmarkError(why_not(error, where)) from error
    raise FloodmarkError(f"the container engine at {where} {reason}")


def in_daemon_thread(act: Callable[[], T], name: str = "docker-call") -> "Future[T]":
    outcome = Future[T]()
    outcome.set_running_or_notify_cancel()  # it cannot be cancelled

    def work() -> None:
        try:
            outcome.set_result(act())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True, name=name).start()
    return outcome


def refusal_of(act: Callable[[], object], timeout_s: float) -> str | None:
    """Why the engine, or the registry that it asks, refuses this; None: it does not."""
    try:
        in_daemon_thread(act).result(timeout_s)
    except TimeoutError:
        return f"no answer in {timeout_s:g} s"
    except (DockerException, OSError) as error:
        return str(getattr(error, "explanation", None) or error).strip()
    return None


def run_alone(client: docker.DockerClient, image: str, argv: Sequence[str], labels: Mapping[str, str], *,
              network_disabled: bool = True, **host: Any) -> tuple[int, str]:
    """As root in a container that is then removed; returns exit code and output, which must be short."""
    api = client.api
    made = api.create_container(
        image, list(argv[1:]), entrypoint=[argv[0]], user="0", labels=dict(labels),
        network_disabled=network_disabled, host_config=api.create_host_config(  # whatever the default log is
            log_config=LogConfig(type="json-file"), **host))["Id"]
    try:
        api.start(made)
        code: int = api.wait(made, timeout=2 * REQUEST_TIMEOUT_S)["StatusCode"]
        return code, api.logs(made).decode(errors="replace")
    finally:
        with contextlib.suppress(NotFound):
            api.remove_container(made, force=True, v=True)


@contextlib.contextmanager
def engine_errors(about: str = "") -> Iterator[None]:
    """Turns errors of the engine, and of reaching it, into FloodmarkError. about: a prefix ("images: ")."""
    try:
        yield
    except (DockerException, OSError) as error:  # requests' errors are OSErrors
        raise FloodmarkError(f"{about}{why_not(error, address())}") from error


def why_not(error: BaseException, where: str) -> str:
    """Why the engine cannot be used, and what to do; one sentence or two."""
    causes = list(_causes(error))
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if any(isinstance(cause, PermissionError) for cause in causes) or errno.EACCES in numbers:
        return (f"no permission to use the container engine at {where}: be a member of the group that owns "
                "the socket (docker, usually; log in again after being added), or run as root")
    if any(isinstance(cause, TimeoutError) or "timed out" in str(cause).lower() for cause in causes):
        return (f"the container engine at {where} did not answer in {REQUEST_TIMEOUT_S} s: "
                "see `docker info`, and restart the engine if that hangs, too")
    if numbers & {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}:
        none = f"no container engine answers at {where}: "
        start = ("start it (systemctl start docker), or put `docker/engine.sh run --` before the command "
                 "(as root)")
        if os.environ.get("DOCKER_HOST"):
            return f"{none}DOCKER_HOST names that address; correct or unset it, or {start}"
        return (f"{none}{start}; if it listens elsewhere, set DOCKER_HOST, because the docker command's "
                "contexts are not read (`docker context inspect` shows the address)")
    refused = any(isinstance(cause, APIError) for cause in causes)
    return f"the container engine at {where} {'refused' if refused else 'cannot be used'}: {error}"


def _on_this_machine(where: str) -> None:
    """Raises FloodmarkError for an address that is none, or another machine's."""
    try:
        parts = urlsplit(where)
        scheme, host = parts.scheme, parts.hostname
    except ValueError:
        scheme, host = "", None
    if scheme not in ("unix", "http+unix", "tcp", "http", "https", "ssh", "npipe"):
        raise FloodmarkError(f"DOCKER_HOST={where} is no engine's address: unix:///PATH is wanted")
    if scheme == "ssh" or (scheme in ("tcp", "http", "https") and host not in _HERE):
        raise FloodmarkError(
            f"the container engine at {where} is on another machine: its containers' ports and the run's "
            "folder would be out of reach; use an engine on this one (unset DOCKER_HOST)")


def _unusable_because(about: dict[str, str]) -> str | None:
    """Why an engine that answers cannot be used; about: its own description. None: it can."""
    if about.get("Os", "linux") != "linux":
        return f"runs containers of {about['Os']}: switch it to Linux containers"
    spoken = about.get("ApiVersion", "0.0")
    try:
        if tuple(map(int, spoken.split("."))) >= OLDEST_API:
            return None
    except ValueError:
        return f"speaks an unknown API, {spoken!r}"
    return (f"is too old: version {about.get('Version', 'unknown')}, API {spoken}; "
            f"20.10, API {OLDEST_API[0]}.{OLDEST_API[1]}, or newer is wanted")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and everything it wraps: requests and urllib3 have causes in `args` as well."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            within = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args)
            waiting += [inner for inner in within if isinstance(inner, BaseException)]

"""The parent process of brokers, controller and links; it makes sure that none of them outlives the harness.

Run as `python -m floodmark.harness.cluster.local.supervisor HARNESS_PID [MODULE]`, with one end of a socket
pair as its standard input. It imports little, so that it starts quickly, and then MODULE, from which it can
fork processes (forked_process.py). What the module is, it does not know.

Rules
1. When the socket from the harness closes, or the harness is no longer its parent, the supervisor kills every
   child (SIGKILL, which also ends stopped ones) and ends. The harness may have died by SIGKILL.
2. When the supervisor dies, its children die: each asks the kernel for that (PR_SET_PDEATHSIG). The kernel
   watches the *thread* that spawned the child, so this process has only one thread.
3. "Killed" is answered when the child has been waited for, "paused" when the kernel has stopped all its
   threads, not when the signal was sent.
4. The supervisor has a session of its own: Ctrl-C in a terminal reaches the harness, which mends, but no
   broker.

JSON lines. Requests: {"id":1,"do":"spawn","name":"n1","argv":[...],"log":PATH} (and "stdin": a descriptor
that the supervisor inherited), {"id":1,"do":"fork","name":"n1","arguments":[...],"log":PATH}, {"id":2,
"do":"kill"|"pause"|"resume"|"terminate","name":"n1"}. Answers:
{"id":1,"ok":{...}} or {"id":1,"error":"..."}. Events: {"exit":"n1","pid":7,"code":-9}.
"""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from floodmark.harness.cluster.local.forked_process import ForkedProcess, Program, load

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
PARENT_LOOK_S = 0.5  # how often it checks that the harness is still its parent
REAP_S = 60.0
_STARTS = ("spawn", "fork")


@dataclass(slots=True, kw_only=True)
class Child:
    name: str
    process: subprocess.Popen[bytes] | ForkedProcess
    paused: bool = False
    killers: list[int] = field(default_factory=list)  # ids to answer when it has been waited for
    pausers: list[int] = field(default_factory=list)  # ids to answer when the kernel has stopped it


class Supervisor:
    """Starts, signals and waits for the children. harness: the socket to answer on; module: what can be
    forked."""

    def __init__(self, harness: socket.socket, module: str | None) -> None:
        self._harness = harness
        self._module = module
        self._program: Program | None = None
        self.has_loaded_ahead = module is None
        self._children: dict[str, Child] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._me = os.getpid()
        self._actions: Mapping[str, Callable[[int, Mapping[str, Any]], None]] = {
            "spawn": self._spawn,
            "fork": self._fork,
            "kill": self._kill,
            "pause": self._pause,
            "resume": self._resume,
            "terminate": self._terminate,
        }

    def obey(self, line: bytes) -> None:
        """Carries out one request line; an error is the answer."""
        request = json.loads(line)
        try:
            if request["do"] in _STARTS and request["name"] in self._children:
                raise ValueError(f"{request['name']} is running already")
            self._actions[request["do"]](request["id"], request)
        except Exception as error:
            self._send({"id": request["id"], "error": f"{type(error).__name__}: {error}"})

    def handle_stops_and_exits(self) -> None:
        """After SIGCHLD: answers requests for children that have stopped or ended."""
        for child in list(self._children.values()):
            if child.pausers and _has_stopped(child.process.pid):
                self._answer(child.pausers)
            code = child.process.poll()
            if code is None:
                continue
            del self._children[child.name]
            self._send({"exit": child.name, "pid": child.process.pid, "code": code})
            self._answer(child.killers)
            self._answer(child.pausers)

    def end(self) -> None:
        """Kills every child and waits for it. A child that is stuck in the kernel is left to init."""
        for child in self._children.values():
            child.process.send_signal(signal.SIGKILL)
        for child in self._children.values():
            try:
                child.process.wait(REAP_S)
            except subprocess.TimeoutExpired:
                print(f"{child.name} (pid {child.process.pid}) was killed but is not gone", file=sys.stderr)
        self._children.clear()

    def load_ahead(self) -> None:
        """Imports the module while the harness requests nothing. Its errors are reported to who forks."""
        self.has_loaded_ahead = True
        with contextlib.suppress(Exception):
            self._load()

    def _load(self) -> Program:
        if self._module is None:
            raise ValueError("this supervisor has no module to fork")
        if self._program is None:
            self._program = load(self._module)
        return self._program

    def _spawn(self, request_id: int, request: Mapping[str, Any]) -> None:
        stdin = request.get("stdin", subprocess.DEVNULL)
        with open(request["log"], "ab") as log:
            process = subprocess.Popen(
                request["argv"],
                stdin=stdin,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=self._before_exec,  # noqa: PLW1509 -- one thread only
            )
        if stdin != subprocess.DEVNULL:
            os.close(stdin)  # or the harness would not see when the child closes it
        self._started(request_id, request["name"], process)

    def _fork(self, request_id: int, request: Mapping[str, Any]) -> None:
        name = request["name"]

        def before() -> None:
            self._before_exec()
            self._libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)  # what `ps` and `top` call it

        program = self._load()
        with open(request["log"], "ab") as log:
            process = ForkedProcess(program, request["arguments"], log.fileno(), before)
        self._started(request_id, name, process)

    def _started(self, request_id: int, name: str, process: subprocess.Popen[bytes] | ForkedProcess) -> None:
        self._children[name] = Child(name=name, process=process)
        self._send({"id": request_id, "ok": {"pid": process.pid}})

    def _before_exec(self) -> None:
        self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._me:  # the supervisor died before the child asked the kernel
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _kill(self, request_id: int, request: Mapping[str, Any]) -> None:
        child = self._children.get(request["name"])
        if child is None:
            self._send({"id": request_id, "ok": {}})
            return
        child.killers.append(request_id)
        child.process.send_signal(signal.SIGKILL)

    def _pause(self, request_id: int, request: Mapping[str, Any]) -> None:
        child = self._children[request["name"]]
        if child.paused:
            self._send({"id": request_id, "ok": {}})
            return
        child.paused = True
        child.pausers.append(request_id)
        child.process.send_signal(signal.SIGSTOP)

    def _resume(self, request_id: int, request: Mapping[str, Any]) -> None:
        child = self._children[request["name"]]
        child.process.send_signal(signal.SIGCONT)
        child.paused = False
        self._send({"id": request_id, "ok": {}})

    def _terminate(self, request_id: int, request: Mapping[str, Any]) -> None:
        self._children[request["name"]].process.send_signal(signal.SIGTERM)
        self._send({"id": request_id, "ok": {}})

    def _answer(self, waiting: list[int]) -> None:
        for request_id in waiting:
            self._send({"id": request_id, "ok": {}})
        waiting.clear()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._harness.sendall(json.dumps(message).encode() + b"\n")


def _has_stopped(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None
    except ChildProcessError:
        return False  # it ended instead


def serve(harness: socket.socket, harness_pid: int, module: str | None) -> None:
    """Serves until the harness is gone."""
    supervisor = Supervisor(harness, module)
    waker, woken = socket.socketpair()
    waker.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(harness, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    pending = b""
    try:
        while os.getppid() == harness_pid:
            wait_s = PARENT_LOOK_S if supervisor.has_loaded_ahead else 0
            ready = {key.fileobj for key, _ in selector.select(wait_s)}
            if not ready and not supervisor.has_loaded_ahead:
                supervisor.load_ahead()
            if woken in ready:
                woken.recv(4096)
                supervisor.handle_stops_and_exits()
            if harness in ready:
                data = harness.recv(65536)
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    supervisor.obey(line)
                if not data:
                    return
    except (BrokenPipeError, ConnectionResetError):
        return  # the harness is gone: rule 1
    finally:
        supervisor.end()


def _ended(*_: object) -> NoReturn:
    raise SystemExit(0)  # through serve's finally


def main() -> None:
    signal.signal(signal.SIGTERM, _ended)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    harness = socket.socket(fileno=os.dup(0))
    serve(harness, int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    main()

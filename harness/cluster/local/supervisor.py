"""The parent process of brokers, controller and links; it makes sure that none of them outlives the harness.

Run as `python -m floodmark.harness.cluster.local.supervisor HARNESS_PID MODULE...`, with one end of a socket
pair as its standard input. It imports the modules; a child whose program is one of them is a fork without an
exec, which costs a tenth of the CPU time of a Python that imports a broker.

Rules
1. When the socket from the harness closes, or the harness is no longer its parent, the supervisor kills every
   child (SIGKILL, which also ends stopped ones) and ends. The harness may have died by SIGKILL.
2. When the supervisor dies, its children die: each asks the kernel for that (PR_SET_PDEATHSIG). The kernel
   watches the *thread* that started the child, so this process has only one thread.
3. A fork keeps nothing of its parent but the imported modules: no open file, no buffered output. (Python's
   random module seeds itself anew in a fork.) Its command line (`ps`, `pgrep -f`) is that of a process of its
   own.
4. The supervisor has a session of its own: Ctrl-C in a terminal reaches the harness, which mends, but no
   broker.

JSON lines. Request: {"id":1,"do":"start","name":"n1","argv":[...],"log":PATH}, with "module", whose `main` to
call instead of argv, and "stdin", an inherited descriptor. Answer: {"id":1,"ok":{"pid":7}} or {"id":1,
"error":"..."}. Event: {"exit":"n1","code":-9}. The harness sends signals itself.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from setproctitle import setproctitle, setthreadtitle

from floodmark.harness.forked_child import end_with_parent

PARENT_LOOK_S = 0.5  # how often it checks that the harness is still its parent
REAP_S = 60.0


def start(*, do: str, name: str, argv: Sequence[str], log: str, module: str | None = None,
          stdin: int | None = None) -> subprocess.Popen[bytes]:
    """Starts a child. Any error in it, before its program begins, is raised here."""
    assert do == "start", f"no request {do!r}"
    main = None if module is None else importlib.import_module(module).main
    gc.freeze()  # a search for garbage would copy the pages that the forks share
    supervisor = os.getpid()

    def before_exec() -> None:
        end_with_parent()
        if os.getppid() != supervisor:  # it died before the child asked the kernel
            os._exit(1)
        if main is not None:
            setproctitle(" ".join(argv))
            setthreadtitle(name)  # what `ps` and `top` call it
            _run(main, argv)

    with open(log, "ab") as output:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=output,
            stderr=subprocess.STDOUT, preexec_fn=before_exec)  # noqa: PLW1509 -- one thread only
    if stdin is not None:
        os.close(stdin)  # or the harness would not see when the child closes it
    return child


def _run(main: Callable[[], int | None], argv: Sequence[str]) -> NoReturn:
    """Ends as `sys.exit(main())` would, but nothing of the parent's frames, which are below, may run."""
    os.closerange(3, 1 << 20)  # Popen waits in the parent until its pipe is closed
    gc.enable()  # Popen has disabled it
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Popen has made them deadly, for programs of other kinds
        signal.signal(number, signal.SIG_IGN)
    sys.argv = ["", *argv[argv.index("-m") + 2:]]
    code: Any = 1
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code or 0)


def serve(harness: socket.socket, harness_pid: int) -> None:
    """Serves until the harness is gone."""
    children: dict[str, subprocess.Popen[bytes]] = {}
    selector = selectors.DefaultSelector()
    selector.register(harness, selectors.EVENT_READ)
    pending = b""
    try:
        while os.getppid() == harness_pid:
            for key, _ in selector.select(PARENT_LOOK_S):
                if key.data is not None:  # a child has ended
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    code = children.pop(key.data).wait()
                    harness.sendall(json.dumps({"exit": key.data, "code": code}).encode() + b"\n")
                    continue
                if not (data := harness.recv(65536)):
                    return
                *lines, pending = (pending + data).split(b"\n")
                for request in map(json.loads, lines):
                    answer: dict[str, Any] = {"id": request.pop("id")}
                    try:
                        child = children[request["name"]] = start(**request)
                        selector.register(os.pidfd_open(child.pid), selectors.EVENT_READ, request["name"])
                        answer["ok"] = {"pid": child.pid}
                    except Exception as error:
                        answer["error"] = f"{type(error).__name__}: {error}"
                    harness.sendall(json.dumps(answer).encode() + b"\n")
    except (BrokenPipeError, ConnectionResetError):
        return  # the harness is gone: rule 1
    finally:
        for child in children.values():
            child.kill()
        for child in children.values():
            child.wait(REAP_S)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for module in sys.argv[2:]:
        with contextlib.suppress(Exception):  # who starts it gets the error
            importlib.import_module(module)
    serve(socket.socket(fileno=os.dup(0)), int(sys.argv[1]))


if __name__ == "__main__":
    main()

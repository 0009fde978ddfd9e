"""Runs a test suite's cluster in a process of its own: `python -m floodmark.harness.commands.pytest_cluster`.

Rules
1. The options of `floodmark cluster up` come as one line of JSON on stdin; the bootstrap address is the only
   line on stdout.
2. When stdin ends, the test process is gone: this process ends in an orderly way, and its cluster with it.
"""

import os
import signal
import sys
import threading

import orjson

from floodmark.harness.commands.cluster import bring_up
from floodmark.harness.commands.error_exits import code_of
from floodmark.harness.spec import decoded


def main() -> int:
    spec = decoded(orjson.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=exit_when_stdin_ends, daemon=True).start()
    return code_of(lambda: bring_up(spec, first_port=None))


def exit_when_stdin_ends() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

"""Runs a test suite's cluster in a process of its own: `python -m floodmark.harness.commands.pytest_cluster`.

Rules
1. The options of `floodmark cluster up` come as one line of JSON on stdin; the bootstrap address is the only
   line on stdout.
2. When stdin ends, whoever asked is gone: this process ends in order, and its cluster with it.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import orjson

from floodmark.harness.commands.cluster import bring_up
from floodmark.harness.commands.error_exits import code_of


def main() -> int:
    asked = orjson.loads(sys.stdin.buffer.readline())
    asked |= {"config": tuple(asked["config"]), "bugs": tuple(asked["bugs"])}
    threading.Thread(target=end_with_the_asker, daemon=True).start()
    return code_of(lambda: bring_up(Path(asked.pop("out")), first_port=None, **asked))


def end_with_the_asker() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

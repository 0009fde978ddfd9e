"""Runs a cluster for Kafka clients (`floodmark cluster up`), and sends it requests from another terminal.

Rules
1. `up` ends by Ctrl-C or SIGTERM, and nothing of the cluster survives it.
2. The only line on stdout is the bootstrap address, for scripts. Everything else goes to stderr.
3. A test suite's cluster is a process of its own, `python -m floodmark.harness.commands.cluster`: the
   options of `floodmark cluster up` come as one line of JSON on stdin. When stdin ends, the test process is
   gone: this process ends in an orderly way, and its cluster with it.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness import catalog
from floodmark.harness.cluster import control_client
from floodmark.harness.commands.broker_questions import refuse_config
from floodmark.harness.commands.cluster_server import ClusterServer, bootstrap, find_cluster, open_server
from floodmark.harness.commands.error_exits import code_of
from floodmark.harness.errors import FloodmarkError, UnfitCluster, UsageError
from floodmark.harness.event_loop import sigterm_handler_restored
from floodmark.harness.protocols import Addressed, Cluster, ability, why_not
from floodmark.harness.reports.cluster_table import hints, table
from floodmark.harness.run import refuse_nonempty
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.spec import PROXIED, RunSpec, decoded, pairs
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_VALID

ASK_S = 60.0  # a start waits for its node
LOOK_AFTER_S = 0.5  # how often to look for nodes that died


def state(folder: Path | None, *, as_json: bool = False) -> int:
    """Prints leader, epoch and ISR of each partition, and LEO and HW of each replica."""
    answer = ask_cluster(folder, "state")
    print(json.dumps(answer) if as_json else table(answer))
    return EXIT_VALID


def strike(folder: Path | None, f: str, nodes: Sequence[str], **besides: Any) -> int:
    """Applies a fault that is a command to the nodes, one after the other."""
    _say(ask_cluster(folder, f, nodes=list(nodes), **besides)["done"])
    return EXIT_VALID


def cut(folder: Path | None, nodes: Sequence[str], *, others: Sequence[str] = (), one_way: bool = False,
        reset: bool = False) -> int:
    """Cuts the nodes from the others (none: all other brokers). one_way: only the nodes receive nothing."""
    return strike(folder, "cut", nodes, others=list(others), one_way=one_way, reset=reset)


def up(cluster: Cluster, folder: Path) -> int:
    """Runs the cluster until Ctrl-C or SIGTERM. folder: its data."""
    with sigterm_handler_restored():
        return asyncio.run(_up(cluster, folder))


async def _up(cluster: Cluster, folder: Path) -> int:
    serving = asyncio.create_task(_serve(cluster, folder))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    try:
        await asyncio.wait([serving])
    finally:
        await cluster.stop()
    return EXIT_HARNESS if serving.cancelled() else serving.result()  # told to stop before the start was done


async def _serve(cluster: Cluster, folder: Path) -> int:
    """Starts the cluster and serves it, until it is cancelled."""
    await cluster.start()
    with contextlib.suppress(asyncio.CancelledError):
        async with open_server(ClusterServer(cluster=cluster, folder=folder, say=_say), folder):
            _say(f"{len(cluster.nodes)} brokers are up; data and logs are in {folder}\n{hints(cluster)}")
            print(bootstrap(cluster), flush=True)
            known: set[str] = set()
            while True:
                for node in set(cluster.died()) - known:
                    known.add(node)
                    _say(f"{node} died by itself: see its log")
                await asyncio.sleep(LOOK_AFTER_S)
    return EXIT_VALID


def ask_cluster(folder: Path | None, do: str, **besides: Any) -> Mapping[str, Any]:
    """The answer of the server of the cluster in `folder` (None: the latest). UsageError, FloodmarkError."""

    async def ask() -> Mapping[str, Any]:
        where, socket, pid = find_cluster(folder)
        limit = control_client.ANSWER_BYTES_MAX
        try:
            reader, writer = await asyncio.open_unix_connection(socket, limit=limit)
        except OSError:
            raise FloodmarkError(f"the cluster in {where} is no longer up (it was process {pid})") from None
        lines = control_client.Lines("the cluster", reader, writer)
        try:
            return await lines.ask(do, timeout_s=ASK_S, **besides)
        except control_client.Refused as refused:
            if refused.answer.get("usage"):
                raise UsageError(refused.answer["error"]) from None
            raise
        finally:
            await lines.close()

    return asyncio.run(ask())


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def bring_up(spec: RunSpec, *, first_port: int | None) -> int:
    """Runs a cluster until Ctrl-C. Links are proxied by default, so that they can be cut."""
    if spec.out is not None:
        refuse_nonempty(spec.out)
    with contextlib.nullcontext(spec.out) if spec.out else temporary_folder("floodmark-") as folder:
        brought = catalog.cluster(
            spec.cluster, folder, spec.nodes, first_port=first_port, rules=spec.rules, bugs=spec.bugs,
            config=pairs(spec.config), links=spec.links or PROXIED, kafka=spec.kafka,
            topic_config=pairs(spec.topic_config, "-t"), trace=False)  # not judged, and may be up for long
        if ability(brought, Addressed) is None:
            raise UnfitCluster(f"no Kafka client reaches this cluster: {why_not(brought, Addressed)}")
        refuse_config(brought)
        return up(brought, folder)


def main() -> int:
    """Runs a test suite's cluster."""
    spec = decoded(orjson.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_exit_when_stdin_ends, daemon=True).start()
    return code_of(lambda: bring_up(spec, first_port=None))


def _exit_when_stdin_ends() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

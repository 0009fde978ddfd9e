"""Real processes for the broker's own tests: a controller and brokers on loopback, with direct connections.

This is not the harness's cluster: no keeper, no links; the tests run `python -m broker` alone.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from run_processes import wait_until

from floodmark.harness.cluster.layout import HOST, Ports

CONTROLLER = 100
HANGS_S = 120.0
# No clock takes a broker out of an ISR while a test works: `expire` does.
KEYS = {
    "broker.session.timeout.ms": "10000",
    "broker.heartbeat.interval.ms": "100",
    "replica.lag.time.max.ms": "60000",
    "replica.fetch.backoff.ms": "50",
    "replica.socket.timeout.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}


class RealBrokers:
    """Brokers 1..n and the controller; as a context it kills what still runs at the end. `{node}` in a key is
    the id."""

    preferred = KEYS

    def __init__(self, folder: Path, brokers: int = 3, **keys: str) -> None:
        self.folder = folder
        self.brokers = tuple(range(1, brokers + 1))
        self._ports = Ports()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.port = {node: self._ports.choose() for node in (CONTROLLER, *self.brokers)}
        self._control = {node: self._ports.choose() for node in self.port}
        given = {key.replace("__", "."): value for key, value in keys.items()}
        for node in self.port:
            self._write(node, {**self.preferred, **given})

    def __enter__(self) -> Self:
        try:
            for node in self.port:
                self.start(node)
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._ports.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.port[node]}" for node in self.brokers)

    def log_dir(self, node: int) -> Path:
        return self.folder / f"n{node}"

    def output(self, node: int) -> str:
        return (self.folder / f"n{node}.out").read_text()

    # -- processes -----------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        with (self.folder / f"n{node}.out").open("ab") as output:
            self._processes[node] = subprocess.Popen(
                [*self.command(), str(self.folder / f"n{node}.properties")], cwd=self.folder,
                stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)  # fmt: skip

    def command(self) -> list[str]:
        return [sys.executable, "-m", "floodmark.broker", "--config"]

    def end(self, node: int, number: int = signal.SIGKILL) -> int:
        """Sends the signal and waits; returns the exit code."""
        self._processes[node].send_signal(number)
        return self._processes[node].wait(HANGS_S)

    def pid(self, node: int) -> int:
        return self._processes[node].pid

    def pause(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGSTOP)

    def resume(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGCONT)

    def running(self, node: int) -> bool:
        return self._processes[node].poll() is None

    # -- what they say ---------------------------------------------------------------------------------------

    def ask(self, node: int, do: str, **besides: Any) -> Mapping[str, Any]:
        with socket.create_connection((HOST, self._control[node]), HANGS_S) as connection:
            connection.sendall(json.dumps({"id": 7, "do": do, **besides}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer: Mapping[str, Any] = json.loads(lines.readline())
        assert answer["id"] == 7
        if "error" in answer:
            raise AssertionError(answer["error"])
        ok: Mapping[str, Any] = answer["ok"]
        return ok

    def expire(self, *nodes: int) -> None:
        """Ends their sessions, as the controller does when it hears nothing from them for long."""
        for node in nodes:
            self.ask(CONTROLLER, "expire", broker=node)

    def seen(self, node: int) -> Mapping[str, Any]:
        """The state, or {} while the node does not answer."""
        try:
            return self.ask(node, "state")
        except (OSError, ValueError):
            return {}

    def wait_ready(self) -> None:
        self.wait_unfenced(*self.brokers)

    def wait_unfenced(self, *nodes: int) -> None:
        def unfenced() -> bool:
            brokers = {each["id"]: each for each in self.seen(CONTROLLER).get("brokers", ())}
            return all(node in brokers and not brokers[node]["fenced"] for node in nodes)

        wait_until(f"{nodes} to be unfenced", unfenced)

    def partition(self, topic: str, index: int = 0) -> Mapping[str, Any]:
        """The controller's view of the partition; {} while there is none."""
        found = self.seen(CONTROLLER).get("partitions", ())
        return next((each for each in found if each["topic"] == topic and each["partition"] == index), {})

    def replica(self, node: int, topic: str, index: int = 0) -> Mapping[str, Any]:
        found = self.seen(node).get("replicas", ())
        return next((each for each in found if each["topic"] == topic and each["partition"] == index), {})

    def wait_isr(self, topic: str, *nodes: int) -> Mapping[str, Any]:
        """Waits until the controller has this ISR and its leader has taken its role."""

        def full() -> Mapping[str, Any]:
            part = self.partition(topic)
            if not part or set(part["isr"]) != set(nodes) or part["leader"] < 0:
                return {}
            leader = self.replica(part["leader"], topic)
            return part if leader.get("epoch") == part["epoch"] and set(leader["isr"]) == set(nodes) else {}

        return wait_until(f"the ISR of {topic} to be {nodes}", full)

    # -- config ---------------------------------------------------------------------------------------------

    def _write(self, node: int, keys: Mapping[str, str]) -> None:
        role = "controller" if node == CONTROLLER else "broker"
        lines = {
            "process.roles": role,
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{HOST}:{self.port[node]}",
            "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{self.port[CONTROLLER]}",
            "log.dirs": str(self.log_dir(node)),
            "floodmark.control": f"{HOST}:{self._control[node]}",
            **({"floodmark.durable": str(self.folder / f"n{node}.durable")} if role == "broker" else {}),
            **{key: value.replace("{node}", str(node)) for key, value in keys.items()},
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        (self.folder / f"n{node}.properties").write_text(text)

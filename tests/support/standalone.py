"""A real standalone Spark cluster on loopback: a master and its workers, of the classes in pyspark.

Rules kept here: every port is a free one that Spark chooses; every wait is for a line of a log, and has a
limit; each process is ended by its id.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from run_processes import wait_until

START_S = 120
END_S = 120
_HOME = Path(pyspark.__file__).parent
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(slots=True, kw_only=True)
class Daemon:
    """One of the cluster's processes, and its log."""

    log: Path
    process: subprocess.Popen[bytes]

    def awaited(self, pattern: str, times: int = 1) -> str:
        """Waits until the log has the pattern so often; returns its first group."""
        def found() -> list[str]:
            text = self.log.read_text(errors="replace")
            assert self.process.poll() is None, f"it ended: {text[-2000:]}"
            several = re.findall(pattern, text)
            return several if len(several) >= times else []

        return str(wait_until(f"{pattern} in {self.log}", found, START_S)[0])

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_S)


@dataclass(slots=True, kw_only=True)
class Standalone:
    folder: Path
    daemons: list[Daemon] = field(default_factory=list)
    master: str = ""

    @property
    def local(self) -> Path:
        """The folder of its executors' files: shuffled blocks, and tables that go to disk."""
        return self.folder / "local"

    def start(self, name: str, role: str, *words: str, core: int | None = None) -> Daemon:
        """Starts a daemon. core: the only core that it and its children may use."""
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        log = self.folder / f"{name}.log"
        env = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
        env |= {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": _QUICK,
                "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": str(self.folder / "work"),
                "SPARK_LOCAL_DIRS": str(self.local)}
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*pinned, _HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", *words,
                 "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env, cwd=self.folder)
        daemon = Daemon(log=log, process=process)
        self.daemons.append(daemon)
        return daemon


@contextmanager
def standalone(
        folder: Path, workers: int, memory: str = "1g", *, pinned: bool = False) -> Iterator[Standalone]:
    """The cluster, with all its workers registered. Each worker has one core; pinned, it may use no other.
    memory: for each worker, for the JVMs of its executors."""
    cluster, cores = Standalone(folder=folder), sorted(os.sched_getaffinity(0))
    try:
        master = cluster.start("master", "master.Master")
        cluster.master = master.awaited(r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            cluster.start(f"worker-{number}", "worker.Worker", cluster.master, "--cores", "1",
                          "--memory", memory, core=cores[number % len(cores)] if pinned else None)
        if workers:
            master.awaited("Registering worker", workers)
        yield cluster
    finally:
        for daemon in reversed(cluster.daemons):
            daemon.end()

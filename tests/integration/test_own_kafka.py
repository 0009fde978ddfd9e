"""`run --bootstrap` on stock Apache Kafka that a script started: floodmark has its address and a TOML.

Valid when healthy, a loss made by hand is found, and SASL over TLS leaves no trace of the password.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import Answer, floodmark, verdict
from confluent_kafka.admin import AdminClient
from real_kafka import quiet, skip_without

from floodmark.harness.cluster.kafka.distribution import distribution
from floodmark.harness.cluster.layout import HOST, Ports

pytestmark = pytest.mark.kafka
SCRIPT = Path(__file__).parents[1] / "support" / "somebodys_kafka.sh"
VERSION = "4.3.1"
PASSWORD = "a-secret-of-theirs"
READY_S = 120.0
SHORT = ("--partitions", "2", "--concurrency", "6", "--rate", "300", "--strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Somebodys:
    folder: Path
    bootstrap: str
    sasl_bootstrap: str  # over TLS

    def faults(self, *, start: str = "start", logs: bool = True) -> Path:
        """The owner's TOML. start: his script's word to start a broker."""
        lines = []
        for node in (1, 2, 3):
            def asks(act: str, *words: str, of: int = node) -> str:
                return json.dumps([str(SCRIPT), act, str(self.folder), str(of), *words])

            acts = ("kill", "stop", "pause", "resume")
            lines += [f"[nodes.n{node}]", *(f"{act} = {asks(act)}" for act in acts),
                      f"start = {asks(start, '{prefix}')}"]
            lines += [f"fetch_logs = {asks('fetch', '{prefix}', '{folder}')}"] if logs else []
        file = self.folder / f"{start}.toml"
        file.write_text("\n".join(lines) + "\n")
        return file

    def until_up(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "logger": quiet()})
        until = time.monotonic() + READY_S
        while True:
            try:
                if len(admin.list_topics(timeout=2).brokers) == 3:
                    return
            except Exception:
                pass  # not up yet
            assert time.monotonic() < until, (self.folder / "1.log").read_text()[-2000:]
            time.sleep(0.2)

    def topics(self) -> set[str]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "logger": quiet()})
        return set(admin.list_topics(timeout=10).topics)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Somebodys]:
    skip_without(VERSION)
    kafka = distribution(VERSION)
    folder = tmp_path_factory.mktemp("theirs")
    ports = Ports()
    chosen = [ports.choose() for _ in range(7)]
    try:
        subprocess.run([SCRIPT, "up", folder, kafka.java, kafka.classpath, *map(str, chosen)], check=True,
                       timeout=READY_S, stdin=subprocess.DEVNULL)
        one = Somebodys(folder=folder, bootstrap=f"{HOST}:{chosen[1]}",
                        sasl_bootstrap=f"{HOST}:{chosen[5]}")
        one.until_up()
        yield one
    finally:
        subprocess.run([SCRIPT, "down", folder], check=False, timeout=60)
        ports.close()


def client_config(theirs: Somebodys, folder: Path, *lines: str) -> Path:
    """Of lines that override one another."""
    config = folder / "client.properties"
    config.write_text("\n".join((
        "security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=me", f"sasl.password={PASSWORD}",
        f"ssl.ca.location={theirs.folder}/certificate.pem", *lines, "")))
    return config


def test_healthy_under_faults_is_valid(theirs: Somebodys, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ran = floodmark("run", "--bootstrap", theirs.bootstrap, *SHORT, "--duration", "20", "--interval", "3",
                    "--nemesis", "crash,pause", "--seed", "3", "--i-may-break-this",
                    "--faults", theirs.faults(), "--out", folder)

    assert ran.code == 0, ran.err + ran.out
    run = json.loads((folder / "run.json").read_text())
    assert (run["settled"], run["observes"]["dumps"]) == (True, True)
    # one machine, one clock: the bound comes from the requests' times
    assert 0 < run["clock_error_ns"] < 1_000_000_000
    assert not any(name.startswith("floodmark-") for name in theirs.topics())


@pytest.mark.parametrize("logs", [False, True])
def test_a_loss_made_by_hand_is_found(theirs: Somebodys, tmp_path: Path, logs: bool) -> None:
    """All three are killed, and half of each log is gone when they start again: a kill may lose no record,
    because the kernel has what was written. Shown by reads alone, and with the logs that the owner fetches.
    """
    schedule = tmp_path / "loss.json"
    schedule.write_text(json.dumps([
        {"f": "kill", "nodes": ["n1", "n2", "n3"], "moment": {"at": "ack", "partition": 0, "count": 400}},
        {"f": "start", "nodes": ["n1", "n2", "n3"]}]))
    folder = tmp_path / "run"
    ran = floodmark("run", "--bootstrap", theirs.bootstrap, *SHORT, "--duration", "30",
                    "--schedule", schedule, "--i-may-break-this",
                    "--faults", theirs.faults(start="start_short", logs=logs), "--out", folder)

    assert ran.code == 1, ran.err + ran.out
    [lost] = [one for one in verdict(folder)["findings"] if one["name"] == "lost-write"]
    assert (lost["class"], lost["permitted_by"]) == ("bug", None)
    assert lost["count"] > 50
    assert {one["how"] for one in lost["examples"]} == {"unread"}  # without replicas.jsonl no log is reliable


def no_secret(ran: Answer, folder: Path) -> None:
    assert PASSWORD not in ran.err + ran.out
    for path in folder.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_sasl_over_tls_and_no_secret_in_the_folder(theirs: Somebodys, tmp_path: Path, mechanism: str) -> None:
    config = client_config(theirs, tmp_path, f"sasl.mechanism={mechanism}")
    for workload in ("log", "idempotent"):
        folder = tmp_path / workload
        ran = floodmark("run", "--bootstrap", theirs.sasl_bootstrap, "--client-config", config, *SHORT,
                        "--duration", "3", "--workload", workload, "--out", folder)

        assert ran.code == 0, ran.err + ran.out
        no_secret(ran, folder)


@pytest.mark.parametrize(("line", "why"), [
    (f"sasl.password={PASSWORD}-not", "refuses the user name or the password"),
    ("ssl.ca.location=", "no TLS with 127.0.0.1"),
])
def test_a_refused_login_is_reported(theirs: Somebodys, tmp_path: Path, line: str, why: str) -> None:
    config = client_config(theirs, tmp_path, line)
    folder = tmp_path / "run"
    ran = floodmark("run", "--bootstrap", theirs.sasl_bootstrap, "--client-config", config, "--out", folder)

    assert ran.code == 4
    assert why in ran.err
    no_secret(ran, folder)

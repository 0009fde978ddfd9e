"""Class-data archives of Apache Kafka: when one is made, what is left where that fails, which one is used.

Java is a fake script here, which starts no Kafka; the real one is in tests/integration/test_kafka_get.py.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from run_processes import wait_until

from floodmark.harness.cluster.kafka import distribution
from floodmark.harness.cluster.kafka.distribution import Distribution

# It starts at once, and writes what it was asked to write when it is ended.
JAVA = """#!/bin/sh
echo $$ >>{calls}
case "$*" in
*StorageTool*) exit 0 ;;
*QuorumPeerMain*) exec sleep 60 ;;
esac
{then}
for word; do case "$word" in -XX:ArchiveClassesAtExit=*) out=${{word#*=}} ;; esac; done
trap 'echo classes >"$out"; exit 143' TERM
echo 'Kafka Server started'
echo '[KafkaServer id=1] started'
while :; do sleep 0.05; done
"""


class Machine:
    """One Kafka and its fake Java."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        jar = folder / "kafka_2.13-4.3.1.jar"
        jar.write_bytes(b"classes")
        self.kafka = Distribution(version="4.3.1", form="kraft", jars=(jar,), java=folder / "java")
        self.archives = folder / "cache" / "floodmark" / "kafka" / "archives"
        self.java()

    def java(self, then: str = "") -> None:
        self.kafka.java.write_text(JAVA.format(calls=self.calls, then=then))
        self.kafka.java.chmod(0o755)

    def make(self, *, again: bool = False) -> list[str]:
        """The lines that it printed."""
        lines: list[str] = []
        distribution.make_archive(self.kafka, lines.append, again=again)
        return lines

    def left(self) -> list[str]:
        return sorted(path.name for path in self.archives.iterdir() if path.name != ".lock")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(distribution.user_cache.UNWANTED, raising=False)
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["4.3.1", "2.8.2"])
def test_it_is_made_once(machine: Machine, version: str) -> None:
    """With ZooKeeper (2.8.2) too, which is ended with it."""
    jar = Path(machine.kafka.classpath).rename(machine.calls.with_name(f"kafka_2.13-{version}.jar"))
    machine.kafka = replace(machine.kafka, version=version, jars=(jar,))
    assert distribution.archive_options(machine.kafka) == ()
    assert len(machine.make()) == 1
    pids = machine.calls.read_text().split()
    assert len(pids) == 2
    assert machine.make() == []
    assert machine.calls.read_text().split() == pids
    archive = distribution.archive_of(machine.kafka)
    assert machine.left() == [archive.name]
    assert archive.read_text() == "classes\n"
    assert distribution.archive_options(machine.kafka)[0] == f"-XX:SharedArchiveFile={archive}"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_it_is_not_used_with_other_jars(machine: Machine) -> None:
    """A jar that was replaced, a further jar, another Java."""
    machine.make()
    kafka = machine.kafka
    jar = Path(kafka.classpath)
    other = jar.with_name("other")
    other.write_bytes(kafka.java.read_bytes())
    assert distribution.archive_options(kafka)
    assert distribution.archive_options(replace(kafka, jars=(jar, jar.with_name("b.jar")))) == ()
    assert distribution.archive_options(replace(kafka, java=other)) == ()
    os.utime(jar, ns=(1, 1))
    assert distribution.archive_options(kafka) == ()


@pytest.mark.parametrize(("then", "why"), [
    ("echo 'Unrecognized option' >&2; exit 1",
     "the broker did not start: Unrecognized option"),
    ("trap 'exit 143' TERM; echo Kafka Server started; while :; do sleep 0.05; done",
     "Java wrote no archive: Kafka Server started"),
])
def test_a_failure_is_noted_and_tried_again_only_when_asked(machine: Machine, then: str, why: str) -> None:
    """A broker that does not start, and one that leaves no archive."""
    machine.java(then)
    assert machine.make()[1] == f"no class-data archive: {why} (Kafka starts without it)"
    assert distribution.archive_options(machine.kafka) == ()
    [note] = machine.left()
    assert note.endswith(".failed")
    machine.java()
    assert machine.make() == []
    assert len(machine.make(again=True)) == 1
    assert machine.left() == [distribution.archive_of(machine.kafka).name]


def test_none_is_made_where_the_environment_forbids_it_or_for_an_image(
        machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution.make_archive(replace(machine.kafka, image="apache/kafka:4.3.1"), print, again=True)
    monkeypatch.setenv(distribution.user_cache.UNWANTED, "1")
    assert machine.make(again=True) == []
    assert not machine.calls.exists()
    monkeypatch.delenv(distribution.user_cache.UNWANTED)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")  # where no cache can be made, that is no error
    [line] = machine.make()
    assert line.startswith("no class-data archive: ")


def test_nothing_is_left_where_it_is_interrupted(machine: Machine) -> None:
    """The broker ends with the process that makes the archive."""
    code = ("import signal, sys\nfrom pathlib import Path\n"
            "from floodmark.harness.cluster.kafka import distribution\n"
            "from floodmark.harness.cluster.kafka.distribution import Distribution\n"
            "def end(*_):\n    raise KeyboardInterrupt\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "kafka = Distribution(version='4.3.1', form='kraft', jars=(Path(sys.argv[1]),),\n"
            "                     java=Path(sys.argv[2]))\n"
            "distribution.make_archive(kafka, print)\n")
    machine.java("echo starts; exec sleep 60")
    process = subprocess.Popen([sys.executable, "-c", code, machine.kafka.classpath, str(machine.kafka.java)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until("the broker", lambda: machine.calls.exists() and len(machine.calls.read_text().split()) == 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    pids = machine.calls.read_text().split()
    wait_until("its end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert machine.left() == []

"""Where Apache Kafka comes from: cached jars, an unpacked distribution, what may be missing; and its archive.

Maven and Java are fake scripts here; the real ones are in tests/integration/test_kafka_get.py.
"""

import json
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from run_processes import wait_until

from floodmark.harness import user_cache
from floodmark.harness.cli import main
from floodmark.harness.cluster.kafka.distribution import (
    archive_of,
    archive_options,
    distribution,
    is_image,
    is_version,
    make_archive,
    mode_of,
    sha256,
    version_of,
    versions_tested,
)
from floodmark.harness.errors import FloodmarkError

MAVEN = """#!{python}
import os, sys, time, zipfile
from pathlib import Path
words = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("-D"))
target, version = Path(words["outputDirectory"]), words["kafka.version"]
with open({calls!r}, "a") as calls:
    calls.write(f"{{os.getpid()}}\\n")
print("[INFO] Downloaded from central: https://x/kafka-clients.jar (1.5 MB at 3 MB/s)", flush=True)
(target / f"kafka-clients-{{version}}.jar").write_bytes(b"clients")
{then}
with zipfile.ZipFile(target / f"kafka_2.13-{{version}}.jar", "w") as archive:
    archive.writestr("kafka/Kafka.class", bytes.fromhex("cafebabe0000") + ({java} + 44).to_bytes(2, "big"))
(target / "zookeeper-3.5.9.jar").write_bytes(b"zookeeper")
"""
NO_VERSION = """print('''[ERROR] Failed to execute goal on project kafka: Could not resolve dependencies for \
project floodmark:kafka:pom:1: The following artifacts could not be resolved: \
org.apache.kafka:kafka_2.13:jar:4.9.9, org.apache.kafka:kafka-tools:jar:4.9.9: Could not find artifact \
org.apache.kafka:kafka_2.13:jar:4.9.9 in central (https://repo.maven.apache.org/maven2) -> [Help 1]
[ERROR] ''')
sys.exit(1)"""
NOT_WHOLE = NO_VERSION.replace("find artifact org.apache.kafka:kafka_2.13",
                               "find artifact org.apache.kafka:kafka-tools")
NO_ROOM = "print('[ERROR] Failed to execute goal copy-dependencies: No space left on device'); sys.exit(1)"
NEW_JAVA = 'openjdk version "17.0.15" 2025-04-15'
# A broker of it starts at once, and writes the archive when it is ended.
JAVA = """#!/bin/sh
case "$*" in
-version) echo '{version}' >&2; exit ;;
*StorageTool*) exit 0 ;;
esac
echo $$ >>{brokers}
case "$*" in *QuorumPeerMain*) exec sleep 60 ;; esac
{then}
for word; do case "$word" in -XX:ArchiveClassesAtExit=*) out=${{word#*=}} ;; esac; done
trap 'echo classes >"$out"; exit 143' TERM
echo 'Kafka Server started'
echo '[KafkaServer id=1] started'
while :; do sleep 0.05; done
"""


class Machine:
    """A PATH with the Maven and the Java that a test needs, and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.cache = folder / "cache" / "floodmark" / "kafka"
        self.calls_file, self.brokers_file = folder / "calls", folder / "brokers"
        self.java(NEW_JAVA)
        self.maven()
        self.environment = {"PATH": str(self.programs), "XDG_CACHE_HOME": str(folder / "cache"),
                            user_cache.NO_CLASS_ARCHIVE: "1"}

    def put(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def java(self, version: str = NEW_JAVA, *, then: str = "") -> None:
        """then: what a broker or ZooKeeper does before it starts."""
        self.put("java", JAVA.format(version=version, brokers=self.brokers_file, then=then))

    def maven(self, then: str = "", *, java: int = 8) -> None:
        """One that runs `then` after its first jar; the broker's class is compiled for this Java."""
        self.put("mvn", MAVEN.format(python=sys.executable, calls=str(self.calls_file), then=then, java=java))

    @property
    def calls(self) -> list[int]:
        """The process ids of every Maven that was started."""
        return numbers_in(self.calls_file)

    def start(self, word: str) -> subprocess.Popen[str]:
        code = "import sys; from floodmark.harness.cli import main; main(sys.argv[1:])"
        return subprocess.Popen([sys.executable, "-c", code, "kafka", "get", word], text=True,
                                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def numbers_in(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return made


def get(word: str) -> Result:
    return CliRunner().invoke(main, ["kafka", "get", word])


def refused(word: str, code: int) -> str:
    """The error message with which `kafka get` ends."""
    result = get(word)
    assert result.exit_code == code, result.output
    sentence = result.stderr.splitlines()[-1]
    assert sentence.startswith("floodmark: ")
    return sentence


# -- the cache ----------------------------------------------------------------------------------------------

def test_a_second_call_needs_no_maven_and_reports_that(machine: Machine) -> None:
    """The first stores each jar with its checksum."""
    first = get("2.8.2")
    (machine.programs / "mvn").unlink()
    second = get("2.8.2")

    libs = machine.cache / "2.8.2" / "libs"
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert first.stdout.splitlines()[-1] == str(libs)
    assert "getting Kafka 2.8.2 with Maven" in first.stderr
    assert second.stderr == "nothing had to be fetched\n"
    assert first.stdout == second.stdout
    sums = json.loads((libs.parent / "manifest.json").read_text())["sha256"]
    assert sums == {path.name: sha256(path) for path in libs.iterdir()}
    found = distribution("2.8.2")
    assert (found.version, found.mode, found.java) == ("2.8.2", "zookeeper", machine.programs / "java")
    assert found.classpath.split(":") == [
        f"{libs}/kafka-clients-2.8.2.jar", f"{libs}/kafka_2.13-2.8.2.jar", f"{libs}/zookeeper-3.5.9.jar"]


JAR = "libs/kafka-clients-3.9.2.jar"


@pytest.mark.parametrize(("name", "content"), [
    (JAR, "Clients"), (JAR, None), ("manifest.json", '{"sha256": {"a'), ("manifest.json", None)])
def test_a_jar_with_another_checksum_is_fetched_again(machine: Machine, name: str, content: str | None
                                                      ) -> None:
    """This is reported; a foreign jar beside the others is on no class path."""
    distribution("3.9.2")
    folder = machine.cache / "3.9.2"
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    messages: list[str] = []

    found = distribution("3.9.2", messages.append)

    assert "fetched again" in messages[0]
    assert (folder / JAR).read_bytes() == b"clients"
    assert len(machine.calls) == 2
    (folder / "libs" / "stranger.jar").write_bytes(b"")
    assert distribution("3.9.2") == found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_download_that_is_ended_does_not_count_as_complete(machine: Machine, number: int) -> None:
    """Ended after one jar; if it could, it has ended Maven too and removed all but the lock. The next call
    starts over, and removes the first's files."""
    machine.maven("time.sleep(60)")
    process = machine.start("4.3.1")
    wait_until("the first jar", lambda: list(machine.cache.glob("*/libs/*.jar")))
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    if number == signal.SIGKILL:
        os.kill(machine.calls[0], signal.SIGKILL)
        assert len(list(machine.cache.iterdir())) == 2  # the lock and the partial download
    else:
        assert process.returncode == 4, errors
        assert [path.name for path in machine.cache.iterdir()] == [".lock"]
        wait_until("Maven's end", lambda: not Path(f"/proc/{machine.calls[0]}").exists())

    machine.maven()
    assert get("4.3.1").exit_code == 0
    assert sorted(path.name for path in machine.cache.iterdir()) == [".lock", "4.3.1"]


# -- what may be missing ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("output", "needed", "why"), [
    ('openjdk version "1.8.0_402"', 8, ""), ('java version "1.8.0_402"', 11, "needs Java 11 or newer, and"),
    ('openjdk version "17" 2021-09-14', 17, ""), ('openjdk version "21.0.2" 2024-01-16', 17, ""),
    ('openjdk version "11.0.22" 2024-01-16', 17, "3.9.2 needs Java 17 or newer, and PATH/java is Java 11"),
    ("openjdk version unknown", 8, "names no version: install another Java"),
])
def test_the_java_that_is_needed_is_read_from_the_jars(
        machine: Machine, output: str, needed: int, why: str) -> None:
    machine.java(output)
    machine.maven(java=needed)
    if why:
        assert why.replace("PATH", str(machine.programs)) in refused("3.9.2", 4)
    else:
        assert get("3.9.2").exit_code == 0


@pytest.mark.parametrize(("then", "code", "sentence"), [
    (NO_VERSION, 2, "there is no Kafka 4.9.9 in Maven's repository: choose another version (tested: 2.8.2, "),
    (NOT_WHOLE, 2,
     "Kafka 4.9.9 is incomplete in Maven's repository, org.apache.kafka:kafka-tools is missing"),
    (NO_ROOM, 4, "Kafka 4.9.9 cannot be fetched, Maven failed: Failed to execute goal copy-dependencies: "
                 "No space left on device"),
    ("sys.exit(1)", 4, "Maven failed: [INFO] Downloaded"),
    ("sys.exit(0)", 4, "Maven gave no kafka_2.13-4.9.9.jar, though it reported no error"),
])
def test_failures_of_maven(machine: Machine, then: str, code: int, sentence: str) -> None:
    machine.maven(then)
    assert sentence in refused("4.9.9", code)
    assert [path.name for path in machine.cache.iterdir()] == [".lock"]


def test_a_maven_without_output_is_killed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.harness.cluster.kafka.distribution.SILENCE_S", 1.0)
    machine.maven("time.sleep(60)")
    assert "Maven printed nothing for 1 s" in refused("4.3.1", 4)
    assert not Path(f"/proc/{machine.calls[0]}").exists()


def test_what_is_missing_is_named_before_anything_is_fetched(
        machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java that is new enough, on the PATH or in JAVA_HOME, Maven, a folder for the cache, kazoo, and the
    package's own list of jars. What a call alone may lack: golden/refusals.txt."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "kazoo", None)
        assert "Kafka 2.8.2 needs ZooKeeper, and for that the Python package kazoo" in refused("2.8.2", 4)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "JAVA_HOME is /nowhere, and has no bin/java" in refused("4.3.1", 4)
    monkeypatch.delenv("JAVA_HOME")
    with monkeypatch.context() as patch:
        patch.setattr("floodmark.harness.cluster.kafka.distribution.POM", Path("/nowhere/pom.xml"))
        assert "install floodmark again" in refused("4.3.1", 4)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", "/dev/null")
        assert "set XDG_CACHE_HOME elsewhere" in refused("4.3.1", 4)
    (machine.programs / "mvn").unlink()
    assert "no mvn is on the PATH: install it" in refused("4.3.1", 4)
    assert "getting" not in get("3.9.2").stderr
    machine.java('openjdk version "11.0.22" 2024-01-16')
    assert "Kafka 4.3.1 needs Java 17 or newer" in refused("4.3.1", 4)
    (machine.programs / "java").unlink()
    assert "no java is on the PATH: install one" in refused("4.3.1", 4)
    assert machine.calls == []


# -- an unpacked distribution -------------------------------------------------------------------------------

def unpacked(folder: Path, *names: str) -> Path:
    libs = folder / "libs"
    libs.mkdir(parents=True, exist_ok=True)
    for name in names:
        with zipfile.ZipFile(libs / name, "w") as archive:
            archive.writestr("kafka/Kafka.class", bytes.fromhex("cafebabe00000034"))
    return folder


def test_an_unpacked_distribution_is_used_as_it_is(machine: Machine, tmp_path: Path) -> None:
    """All its jars; sources and the like have the same version. Nothing is fetched."""
    folder = unpacked(tmp_path / "kafka_2.12-2.8.2", "kafka_2.12-2.8.2.jar", "kafka_2.12-2.8.2-sources.jar",
                      "kafka-clients-2.8.2.jar", "kafka-streams-scala_2.12-2.8.2.jar",
                      "connect-api-2.8.2.jar", "zookeeper-3.5.9.jar", "scala-library-2.12.13.jar",
                      "kafka-log4j-appender-2.8.2.jar")
    found = distribution(str(folder))

    assert (found.version, found.mode) == ("2.8.2", "zookeeper")
    assert found.classpath.split(":") == sorted(map(str, (folder / "libs").iterdir()))
    assert machine.calls == []
    assert not machine.cache.exists()


def test_a_name_that_a_class_path_cannot_hold_is_refused_and_a_vendors_version_is_one(
        machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError, match="class path"):
        distribution(str(unpacked(tmp_path / "a:b", "kafka_2.13-4.3.1.jar")))
    vendors = unpacked(tmp_path / "x", "kafka_2.13-7.5.0-ccs.jar", "kafka-clients-7.5.0-ccs.jar")
    assert distribution(str(vendors)).version == "7.5.0-ccs"


# -- versions -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("words", "version", "image"), [
    ("2.8.2 4.3.1 3.9 4.0.0-rc1 7.5.0-ccs 0.10.2.2", True, False),
    ("apache/kafka:4.3.1 kafka:3.9.2 registry.example.com:5000/a/kafka:4.3.1-rc1", False, True),
    ("4 v4.3.1 ./4.3.1 ../4.3.1 4.3.1/x kafka apache/kafka apache/kafka:latest", False, False),
    ("/opt/kafka:4.3.1 ../kafka:4.3.1", False, False),  # folders
])
def test_what_names_a_version_or_an_image(words: str, version: bool, image: bool) -> None:
    assert {(is_version(word), is_image(word)) for word in words.split()} == {(version, image)}
    assert not image or {version_of(word) for word in words.split()} == {"4.3.1", "3.9.2", "4.3.1-rc1"}


def test_how_a_version_is_run() -> None:
    assert [mode_of(version) for version in ("0.10.2.2", "2.8.2", "3.2.3", "3.3.0", "3.9.2", "4.3.1")] == [
        *["zookeeper"] * 3, *["kraft"] * 3]


def test_the_versions_tested_are_in_the_pom() -> None:
    assert versions_tested() == ("2.8.2", "3.9.2", "4.3.1")
    help_text = CliRunner().invoke(main, ["kafka", "get", "--help"]).output
    assert f"Tested versions: {', '.join(versions_tested())}" in help_text


# -- class-data archives ------------------------------------------------------------------------------------

@pytest.fixture
def theirs(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An unpacked 4.3.1, where an archive is made."""
    machine.environment["PATH"] += f":{os.defpath}"
    del machine.environment[user_cache.NO_CLASS_ARCHIVE]
    monkeypatch.setenv("PATH", machine.environment["PATH"])
    monkeypatch.delenv(user_cache.NO_CLASS_ARCHIVE)
    return str(unpacked(tmp_path / "it", "kafka_2.13-4.3.1.jar"))


def archives(machine: Machine) -> list[str]:
    return sorted(path.name for path in (machine.cache / "archives").iterdir() if path.name != ".lock")


@pytest.mark.parametrize("version", ["4.3.1", "2.8.2"])
def test_an_archive_is_made_once(machine: Machine, theirs: str, tmp_path: Path, version: str) -> None:
    """With ZooKeeper (2.8.2) too, which is ended with it. It is not used with another jar or another Java."""
    word = theirs if version == "4.3.1" else str(unpacked(
        tmp_path / "old", f"kafka_2.13-{version}.jar", "zookeeper-3.5.9.jar"))
    kafka = distribution(word)
    assert archive_options(kafka) == ()
    assert "making a class-data archive" in get(word).stderr
    pids = numbers_in(machine.brokers_file)
    assert "class-data" not in get(word).stderr
    assert (numbers_in(machine.brokers_file), len(pids)) == (pids, 1 + (version == "2.8.2"))
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    archive = archive_of(kafka)
    assert (archives(machine), archive.read_text()) == ([archive.name], "classes\n")
    assert archive_options(kafka)[0] == f"-XX:SharedArchiveFile={archive}"
    other = tmp_path / "other"
    other.write_bytes(kafka.java.read_bytes())
    for changed in (replace(kafka, jars=(*kafka.jars, other)), replace(kafka, java=other)):
        assert archive_options(changed) == ()
    os.utime(kafka.jars[0], ns=(1, 1))
    assert archive_options(kafka) == ()


@pytest.mark.parametrize(("then", "why"), [
    ("echo 'Unrecognized option' >&2; exit 1", "the broker did not start: Unrecognized option"),
    ("trap 'exit 143' TERM; echo Kafka Server started; while :; do sleep 0.05; done",
     "Java wrote no archive: Kafka Server started"),
])
def test_an_archive_that_cannot_be_made_is_tried_again_only_when_asked(
        machine: Machine, theirs: str, then: str, why: str) -> None:
    machine.java(then=then)
    assert f"no class-data archive: {why} (Kafka starts without it)\n" in get(theirs).stderr
    [note] = archives(machine)
    assert note.endswith(".failed")
    machine.java()
    kafka, said = distribution(theirs), list[str]()
    make_archive(kafka, said.append)
    assert (said, archive_options(kafka)) == ([], ())
    assert get(theirs).exit_code == 0
    assert archives(machine) == [archive_of(kafka).name]


def test_no_archive_is_made_where_the_environment_forbids_it_or_for_an_image(
        machine: Machine, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = distribution(theirs)
    make_archive(replace(kafka, image="apache/kafka:4.3.1"), print, again=True)
    with monkeypatch.context() as patch:
        patch.setenv(user_cache.NO_CLASS_ARCHIVE, "1")
        assert "class-data" not in get(theirs).stderr
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")  # where no cache can be made, that is no error
    assert "no class-data archive: " in get(theirs).stderr
    assert not machine.brokers_file.exists()


def test_nothing_is_left_of_an_archive_where_it_is_interrupted(machine: Machine, theirs: str) -> None:
    """The broker ends with the process that makes it."""
    machine.java(then="echo starts; exec sleep 60")
    process = machine.start(theirs)
    wait_until("the broker", lambda: bool(numbers_in(machine.brokers_file)))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    (pid,) = numbers_in(machine.brokers_file)
    wait_until("its end", lambda: not Path(f"/proc/{pid}").exists())
    assert archives(machine) == []

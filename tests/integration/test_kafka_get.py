"""`floodmark kafka get` with real Maven: no network, no such version, and the versions that are tested."""

import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from real_kafka import skip_without

from floodmark.harness.cli import main
from floodmark.harness.cluster.kafka.distribution import archive_options, distribution, versions_tested
from floodmark.harness.cluster.kafka.settings import JVM
from floodmark.harness.user_cache import NO_CLASS_ARCHIVE

SETTINGS = """<settings>
  <localRepository>{repository}</localRepository>
  <mirrors><mirror><id>closed</id><mirrorOf>*</mirrorOf><url>http://127.0.0.1:{port}/</url></mirror></mirrors>
</settings>
"""
needs_maven = pytest.mark.skipif(shutil.which("mvn") is None or shutil.which("java") is None,
                                 reason="java or mvn is not installed")


def get(word: str) -> Result:
    return CliRunner().invoke(main, ["kafka", "get", word])


@pytest.mark.java
@pytest.mark.long
@needs_maven
def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven's repository is a port without a listener, and its own cache is empty: exit 4."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        settings = tmp_path / "settings.xml"
        settings.write_text(SETTINGS.format(repository=tmp_path / "repository", port=port))
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "mvn").write_text(f'#!/bin/sh\nexec {shutil.which("mvn")} -s {settings} "$@"\n')
        (programs / "mvn").chmod(0o755)
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        result = get("4.3.1")

    assert result.exit_code == 4
    assert (f"floodmark: Kafka 4.3.1 cannot be fetched: Maven cannot reach http://127.0.0.1:{port}/: "
            "fix the network") in result.stderr


@pytest.mark.kafka
@needs_maven
def test_a_version_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven's repository answers, and has no such version: exit 2."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = get("2.8.99")
    if "cannot reach" in result.stderr:
        pytest.skip("Maven's repository cannot be reached")

    assert result.exit_code == 2
    assert "floodmark: there is no Kafka 2.8.99 in Maven's repository: choose another" in result.stderr


@pytest.mark.kafka
@needs_maven
@pytest.mark.parametrize("version", versions_tested())
def test_the_versions_tested(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched once into the user's own cache; then nothing is fetched, without Maven."""
    skip_without(version)
    monkeypatch.delenv(NO_CLASS_ARCHIVE)
    again = get(version)
    assert again.exit_code == 0, again.output
    assert "nothing had to be fetched" in again.stderr
    assert "no class-data archive" not in again.stderr
    said: list[str] = []
    found = distribution(version, said.append)

    assert said == []
    assert f"kafka_2.13-{version}.jar" in found.classpath
    assert f"kafka-tools-{version}.jar" in found.classpath
    assert any(f"{name}-" in found.classpath for name in ("slf4j-reload4j", "log4j-slf4j-impl"))
    assert ("zookeeper-" in found.classpath) or found.mode == "kraft"
    # with -Xshare:on Java refuses to start with an archive that it cannot use
    use = [word.replace("auto", "on") for word in archive_options(found)]
    assert use
    call = [found.java, *JVM, *use, "-cp", found.classpath, "kafka.tools.StorageTool", "random-uuid"]
    started = subprocess.run(call, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stdout + started.stderr

"""The class-data archive: one per environment, built by one process at a time, or in the background."""

import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.checkers.spark import jvm_cds
from floodmark.checkers.spark.session import find_java

JAVA = Path("/usr/bin/java")
PATIENCE_S = 120
COMMAND = [sys.executable, "-m", "floodmark.checkers.spark.jvm_cds"]


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is empty, and nothing forbids building."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (*jvm_cds.UNWANTED, jvm_cds.BUILDING):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(name="started")
def started_commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that would have been started."""
    commands: list[list[str]] = []

    def popen(command: list[str], **options: object) -> list[str]:
        commands.append(command)
        return command

    monkeypatch.setattr(jvm_cds.subprocess, "Popen", popen)
    return commands


def test_a_missing_archive_is_built_in_the_background(started: list[list[str]]) -> None:
    assert jvm_cds.build_in_background(JAVA)
    assert started == [[*COMMAND, "--behind"]]


@pytest.mark.parametrize("why", [*jvm_cds.UNWANTED, ".jsa", jvm_cds.FAILED_SUFFIX, "no folder"])
def test_nothing_is_built_where_it_is_forbidden_made_or_impossible(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str
) -> None:
    """By the environment; there is one, or an earlier build failed; the cache is no folder."""
    path = jvm_cds.archive_path(JAVA)
    if why in jvm_cds.UNWANTED:
        monkeypatch.setenv(why, "true")
    elif why == "no folder":
        (tmp_path / "floodmark").touch()
    else:
        path.parent.mkdir(parents=True)
        path.with_suffix(why).touch()

    assert not jvm_cds.build_in_background(JAVA)
    assert not started


def test_a_process_that_fails_leaves_only_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A real one, with a Java that does not start. (One of the lowest priority waits on a busy machine.)"""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Error: no such machine' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    note = jvm_cds.archive_path(java).with_suffix(jvm_cds.FAILED_SUFFIX)
    (note.parent / ".building-of-a-builder-that-was-killed" / "run").mkdir(parents=True)

    subprocess.run(COMMAND, check=True, timeout=PATIENCE_S)

    assert {*note.parent.glob("*")} - {note.parent / "archive.lock"} == {note}
    assert "no such machine" in note.read_text()
    assert not jvm_cds.build_in_background(java)


def test_a_process_builds_no_second_archive() -> None:
    path = jvm_cds.archive_path(find_java())
    path.parent.mkdir(parents=True)
    path.touch()

    subprocess.run(COMMAND, check=True, timeout=PATIENCE_S)

    assert path.stat().st_size == 0

"""How the judge starts Spark: what it imports before, its settings, its master, and what is said where it
cannot start."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import floodmark
from golden_text import answered_as_written

from floodmark.checkers.judge import far_files
from floodmark.checkers.spark import session, settings, spark_master
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.spark_options import ITS_OWN, workers

# -- imports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("imported", "slow"), [
    ("floodmark.harness.commands.check, floodmark.checkers.judge.job",
     {"numpy", "pyarrow", "duckdb", "pandas", "networkx"}),
    ("floodmark.harness.cli, floodmark.harness.commands.check, floodmark.harness.commands.show",
     {"kafka", "kio", "confluent_kafka", "docker", "jinja2", "rich"}),
])
def test_nothing_slow_is_imported_before_it_is_needed(imported: str, slow: set[str]) -> None:
    """The judge's modules are imported while the JVM starts, a Kafka library when a command needs one."""
    code = f"import sys, {imported}; print({slow} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_the_process_that_workers_are_forked_from_ends_in_silence() -> None:
    """It ends when Spark closes its stdin; what it wrote then would come after a command's last line."""
    ended = subprocess.run([sys.executable, "-m", session.DAEMON, "pyspark.worker"], stdin=subprocess.DEVNULL,
                           capture_output=True, check=False)
    assert ended.stderr == b""


# -- settings -----------------------------------------------------------------------------------------------


def answer(line: str) -> str:
    """The heap of so many cores and GB; where a master is; what an option of the command line means."""
    kind, *words = line.split()
    try:
        match kind:
            case "heap":
                return f"= {settings.heap_mb(int(words[0]), int(float(words[1]) * 1024))} MB"
            case "master":
                spark_master.refuse_odd(words[0])
                local, here = spark_master.is_local(words[0]), spark_master.on_loopback(words[0])
                return f"= {'local ' * local}{'loopback' if here else 'far'}"
        return f"= {workers(None if words[0] == '-' else words[0], words[1:])}"
    except UsageError as error:
        return f"! {error}"


def test_heaps_masters_and_options(request: pytest.FixtureRequest) -> None:
    """A heap grows with the cores within half of the memory; only a master here is bound to loopback."""
    answered_as_written("spark_settings.txt", answer, request)


def test_a_setting_that_the_verdict_depends_on_is_the_judges_alone() -> None:
    assert sorted(settings.CERTAIN) == sorted(ITS_OWN)
    assert set(settings.CERTAIN.items()) <= set(far_files._KEYS.items())


def test_a_users_setting_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings.chosen({"spark.ui.enabled": "true", "spark.driver.host": "me"}, loopback=True)
    assert (chosen["spark.ui.enabled"], chosen["spark.driver.host"]) == ("true", "me")
    assert chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in settings.chosen({}, loopback=False)
    monkeypatch.setattr(session.jvm_cds, "options", lambda java: "-Xshare:auto")
    mine = session.launch_environment(Path("/java"), {})
    assert settings.own_cores() >= 1
    assert settings.own_memory_mb() > 256
    heap_mb = settings.heap_mb(settings.own_cores(), settings.own_memory_mb())
    assert mine[settings.HEAP] == f"{heap_mb}m"
    theirs = session.launch_environment(Path("/java"), {settings.HEAP: "8g", settings.JVM_OPTIONS: "-Dx=y"})
    assert theirs[settings.HEAP] == "8g"
    assert theirs[settings.JVM_OPTIONS].endswith(" -Xshare:auto -Dx=y")


def test_spark_defaults_are_read_as_spark_submit_reads_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.driver.memory   5g\nspark.executor.memory=3g\n"
        " spark.x : y z \n! spark.not 1\nother.key 1\nspark.alone\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert settings.spark_defaults() == {
        "spark.driver.memory": "5g", "spark.executor.memory": "3g", "spark.x": "y z"}
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert settings.spark_defaults() == {}


@pytest.mark.parametrize("command", ["check", "rejudge"])
def test_an_invalid_option_is_a_usage_error(tmp_path: Path, command: str) -> None:
    answer = floodmark(command, "--conf", "driver.memory=8g", tmp_path)
    assert (answer.code, "--conf takes KEY=VALUE with a key of Spark's" in answer.err) == (2, True)


# -- masters ------------------------------------------------------------------------------------------------


def test_a_master_without_workers_is_waited_for_up_to_a_limit() -> None:
    """The job that never starts is cancelled."""
    cancelled = threading.Event()
    waiting = SimpleNamespace(count=lambda: cancelled.wait(120))
    spark: Any = SimpleNamespace(parallelize=lambda *_: waiting, cancelAllJobs=cancelled.set)
    with pytest.raises(FloodmarkError, match="spark://far:7077 answers, but gave no worker within 0 s"):
        spark_master.await_worker(spark, "spark://far:7077", wait_s=0.2)
    assert cancelled.is_set()
    spark_master.await_worker(spark, "spark://far:7077", wait_s=30)


@pytest.mark.parametrize("words", [
    "pyspark.errors.PythonException: ...\nModuleNotFoundError: No module named 'checkers'\n",
    'java.io.IOException: Cannot run program "/x/python": error=2, No such file or directory',
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11"])
def test_what_is_missing_on_a_worker_is_reported_for_clusters_alone(
        words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine the worker's Python is this one, so a failure there has another cause."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/x/python")
    far: Any = SimpleNamespace(master="spark://far:7077")
    here: Any = SimpleNamespace(master="local[*]")
    with pytest.raises(FloodmarkError, match="/x/python must be there on every worker"):
        spark_master.refuse_bare_workers(far, RuntimeError(words))
    spark_master.refuse_bare_workers(here, RuntimeError(words))
    spark_master.refuse_bare_workers(far, RuntimeError("java.lang.OutOfMemoryError"))


# -- failures to start --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "message"), [
    ("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n", "is Java 11; the judge needs Java 17"),
    ("#!/bin/sh\necho 'java version \"1.8.0_392\"' >&2\n", "is Java 8; the judge needs Java 17"),
    ("#!/bin/sh\nexit 1\n", "does not say its version"),
    ("rubbish", "does not start: Exec format error; the judge needs Java 17"),
    (None, "but there is no bin/java in it; the judge needs Java 17"),
])
def test_an_unusable_or_missing_java_is_an_error_message(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, message: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = tmp_path / "bin" / "java"
    if text is not None:
        java.parent.mkdir()
        java.write_text(text)
        java.chmod(0o755)
    with pytest.raises(FloodmarkError, match=message):
        session.usable_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FloodmarkError, match="no java on PATH, and JAVA_HOME is not set"):
        session.find_java()


@pytest.mark.spark
def test_an_impossible_heap_is_an_error_message(tmp_path: Path) -> None:
    """And the JVM's own output is not among the verdicts on standard output."""
    (tmp_path / "run.json").write_text('{"format":1,"nodes":["n1"],"partitions":{"0":{"replicas":["n1"]}}}')
    ran = subprocess.run([sys.executable, "-m", "floodmark.harness", "check",
                          "--conf", "spark.driver.memory=lots", tmp_path],
                         capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "Invalid maximum heap size: -Xmxlots" in ran.stderr.splitlines()[-1]
    assert ran.stderr.splitlines()[-1].startswith("floodmark: Spark does not start with ")


def test_a_folder_of_a_process_that_nobody_waited_for_is_swept(tmp_path: Path) -> None:
    """A killed process whose parent was killed too may be a zombie for a while."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        for pid in (ended.pid, os.getpid()):
            (tmp_path / f"{session.PREFIX}{pid}-x").mkdir()
        session.sweep(tmp_path)
    assert [left.name for left in tmp_path.iterdir()] == [f"{session.PREFIX}{os.getpid()}-x"]

"""The judge on more than one machine: --master and spark-submit, on a real standalone cluster."""

import os
import re
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
import real_like
from command_line import GOLDEN, floodmark, golden
from standalone import Standalone, standalone

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.spark

PACKAGES = ("checkers", "docker/broker", "harness", "nemesis", "workloads")
SAVED = sorted(folder.name for folder in GOLDEN.iterdir())[:18]
CALL_S = 540
# Two executors of a core each on this machine. No limit is small, and files are cut into many tasks.
WORKERS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.floodmark.smallBytes": "1",
}
CONF = [word for pair in WORKERS.items() for word in ("--conf", "=".join(pair))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster"), workers=2) as made:
        yield made


def called(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, because this process has a Spark session already."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return subprocess.run([str(word) for word in words], env={**kept, **env}, cwd=ROOT, capture_output=True,
                          text=True, timeout=CALL_S, check=False)


def check(*words: object) -> subprocess.CompletedProcess[str]:
    return called(sys.executable, "-m", "floodmark.harness", "check", *words)


def verdict(folder: Path) -> str:
    """The text of verdict.json without the timings; the file is removed."""
    text = (folder / "verdict.json").read_text()
    (folder / "verdict.json").unlink()
    kept, timings = re.subn(r'"timings_s": \{[^}]*\}', "", text)
    assert timings == 1
    return kept


@pytest.mark.long
def test_two_workers_say_what_one_machine_says(cluster: Standalone, tmp_path: Path) -> None:
    """Byte for byte except timings: saved runs of every kind, and two that the workers' Python filters, one
    of them with losses."""
    big = [real_like.write(tmp_path / f"big-{damage}", ops=2500, partitions=2, damage=damage)
           for damage in (None, "lost")]
    folders = [golden(tmp_path, name) for name in SAVED] + big
    assert sum(file.stat().st_size for file in big[1].rglob("*.jsonl")) > 1 << 20
    here = floodmark("check", *folders)
    verdicts = {folder.name: verdict(folder) for folder in folders}
    there = check("--master", cluster.master, *CONF, *folders)
    assert (there.returncode, "Traceback" in there.stderr) == (here.code, False), there.stderr
    assert {folder.name: verdict(folder) for folder in folders} == verdicts
    assert there.stdout == here.out
    assert "lost-write" in verdicts["big-lost"]
    worked = [daemon.log.read_text().count("Asked to launch executor") for daemon in cluster.daemons[1:]]
    assert min(worked) >= 1, "a worker had nothing to do"


@pytest.mark.long
def test_spark_submit_runs_it_and_gives_its_exit_code(tmp_path: Path) -> None:
    """The master and the keys are spark-submit's."""
    folder = golden(tmp_path, "a-kill-loses-the-tail")
    submit = Path(sys.executable).with_name("spark-submit")
    quick = ("--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    program = ROOT / "harness" / "__main__.py"
    ran = called(submit, "--master", "local[1]", *quick, program, "check", folder,
                 PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.splitlines()[-1] == str(folder)
    assert "lost-write" in verdict(folder)


@pytest.mark.long
def test_a_worker_without_the_packages_is_named_with_what_to_do(cluster: Standalone, tmp_path: Path) -> None:
    """PYSPARK_PYTHON takes precedence over this process's Python."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    real_like.write(tmp_path / "big", ops=2500, partitions=2)
    ran = called(sys.executable, "-m", "floodmark.harness", "check", "--master", cluster.master, *CONF,
                 tmp_path / "big", PYSPARK_PYTHON=str(bare))
    assert ran.returncode == 4, ran.stderr
    assert re.search(rf"floodmark: a worker cannot run floodmark's Python code \(.+\): {bare} must be there",
                     ran.stderr), ran.stderr


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the page's commands are typed: the checkout, its environment, and venv-pack's archive.
    (Its packages are links to this environment's, which avoids packing half a gigabyte; a package without a
    link is missing all the same.)"""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "harness").symlink_to(ROOT / "harness")
    (folder / ".venv").symlink_to(sys.prefix)
    venv.create(folder / "env", symlinks=True)
    [packages] = (folder / "env").glob("lib/python*/site-packages")
    for name in needed("floodmark") - {"floodmark", "pyspark", "py4j"}:
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(str(distribution(name).locate_file(top)))
    (packages / "floodmark").mkdir()
    for name in PACKAGES:
        (packages / "floodmark" / Path(name).name).symlink_to(ROOT / name)
    with tarfile.open(folder / "floodmark-env.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(folder / "env", ".")
    return folder


def needed(name: str) -> set[str]:
    """The distribution and all its dependencies."""
    asked = [word for word in distribution(name).requires or () if ";" not in word]
    return {name}.union(*(needed(re.split(r"[^\w.-]", word.lower())[0]) for word in asked))


@pytest.mark.long
def test_the_last_two_commands_of_the_page_serve_workers_without_packages(
    cluster: Standalone, checkout: Path, tmp_path: Path
) -> None:
    """checkers/README's, with HOST and FOLDER replaced; the first also with a folder that only Spark's JVM
    can read."""
    page = (ROOT / "checkers/README.md").read_text(encoding="utf-8")
    lines = re.findall(r"```sh\n(.*?)```", page.split("### Workers that have nothing but")[1], re.DOTALL)[0]
    commands = lines.replace("\\\n", "").splitlines()
    assert [command.split()[0] for command in commands[:2]] == ["python3", "env/bin/venv-pack"]
    near, far = golden(tmp_path, "a-kill-loses-the-tail"), golden(tmp_path / "far", "a-kill-loses-the-tail")
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.hadoop.fs.viewfs.mounttable.floodmark.link./runs file:{far.parent}\n"
        f"spark.cores.max 1\nspark.executor.extraJavaOptions {WORKERS['spark.executor.extraJavaOptions']}\n")
    floodmark("check", near)
    near_verdict = verdict(near)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    asked = (near, f"viewfs://floodmark/runs/{far.name}"), (near,)
    for command, folders in zip(commands[2:], asked, strict=True):
        typed = command.replace("spark://HOST:7077", cluster.master)
        typed = typed.replace("FOLDER...", " ".join(map(str, folders)))
        ran = called("bash", "-c", f"cd {checkout} && {typed}", PATH=path, SPARK_CONF_DIR=str(tmp_path),
                     SPARK_LOCAL_IP="127.0.0.1")
        assert ran.returncode == 1, ran.stderr
        assert verdict(near) == near_verdict
    assert verdict(far) == near_verdict


def test_a_master_that_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    folder = golden(tmp_path, "a-kill-loses-the-tail")
    ran = check("--master", "spark://127.0.0.1:9", folder)
    assert ran.returncode == 4
    assert ran.stderr.splitlines()[-1] == (
        "floodmark: no Spark master answers at spark://127.0.0.1:9 (127.0.0.1:9: Connection refused); is it "
        "up, and its port open to this machine?")
    assert not (folder / "verdict.json").exists()

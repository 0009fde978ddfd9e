"""docker/engine.sh: uses an engine, starts one, stops it, and leaves the network as it was.

A test starts an engine only in a network namespace of its own: a second one next to another would take over
its bridge and its chains.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

ENGINE = Path(__file__).resolve().parents[2] / "docker" / "engine.sh"
NAMESPACES = ["--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
              "--mount-proc"]
# The beginning of every script below: an engine of its own, a rule that is not Docker's, and a look around.
BEGIN = """
set -u
# The disks of other tests' brokers could not be mounted anew while copies of their mounts are here.
grep -o ' /[^ ]*/volumes/[^ ]*' /proc/mounts | xargs -r umount
export FLOODMARK_ENGINE_DIR=$PWD/engine DOCKER_HOST=unix://$PWD/engine.sock
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_forward
iptables -A FORWARD -s 192.0.2.1 -j ACCEPT
look() {
  iptables -S | sort
  iptables -t nat -S | grep DOCKER
  cat /proc/sys/net/ipv4/ip_forward
  ip -o link | wc -l
}
until_true() { # CONDITION... within 40 s
  local tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 400 ] || exit 99
    sleep 0.1
  done
}
gone() { ! docker info >/dev/null 2>&1 && [ ! -e engine/before ] && [ ! -e engine/pid ]; }
look >before
"""
SAME = "look >after; diff before after && echo same"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, because sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="fm-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def plain(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ENGINE, *words], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        check=False)


def inside(folder: Path, script: str) -> str:
    """The script's output, and "same" if the network is as before. It runs in namespaces of its own, where
    `engine.sh` is on the path. All processes that it starts end with it."""
    if os.geteuid() != 0 or not all(shutil.which(each) for each in ("dockerd", "unshare", "iptables")):
        pytest.skip("an engine is started here only by root, with dockerd, unshare and iptables")
    with (folder / "stderr").open("w") as stderr:
        ran = subprocess.run(
            ["unshare", *NAMESPACES, "bash", "-c", f"{BEGIN}{script}{SAME}"], cwd=folder,
            env={**os.environ, "PATH": f"{ENGINE.parent}:{os.environ['PATH']}"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stdout + (folder / "stderr").read_text()
    return ran.stdout


def test_the_engine_that_answers_is_used(tmp_path: Path) -> None:
    """And no file is written; the exit code is the command's."""
    place = tmp_path / "engine"
    ran = plain("run", "--", "sh", "-c", "docker info -f {{.ID}} && exit 7", FLOODMARK_ENGINE_DIR=str(place))

    assert (ran.returncode, ran.stderr) == (7, "")
    assert ran.stdout.strip()
    assert not place.exists()


def test_without_an_engine_the_command_runs_and_knows(tmp_path: Path) -> None:
    """One line with the reason, in the environment too."""
    ran = plain(
        "run", "--", "sh", "-c", 'echo "$FLOODMARK_NO_ENGINE"; exit 3', DOCKER_HOST="tcp://127.0.0.1:1",
        FLOODMARK_ENGINE_DIR=str(tmp_path / "engine"))

    assert ran.returncode == 3
    assert "nothing answers at DOCKER_HOST=tcp://127.0.0.1:1" in ran.stdout
    assert ran.stderr == f"docker/engine.sh: no engine: {ran.stdout}"


@pytest.mark.parametrize("words", [(), ("run",), ("run", "--"), ("stop",)])
def test_words_it_does_not_know(words: tuple[str, ...]) -> None:
    """Usage, exit code 2."""
    ran = plain(*words)

    assert ran.returncode == 2
    assert ran.stderr == "usage: docker/engine.sh run -- COMMAND...\n"


def test_an_engine_is_started_shared_and_stopped(folder: Path) -> None:
    """The last user stops it; a second engine at another address is refused; the network is as before."""
    output = inside(folder, """
        engine.sh run -- sh -c 'touch up; until [ -e go ]; do sleep 0.1; done; exit 5' & first=$!
        until_true [ -e up ]
        docker network create left-behind >/dev/null && docker volume create left-behind >/dev/null
        iptables -S FORWARD | grep -q DOCKER-USER && ip link show docker0 >/dev/null && echo up
        DOCKER_HOST=unix://$PWD/other.sock engine.sh run -- sh -c 'echo "other: $FLOODMARK_NO_ENGINE"'
        engine.sh run -- sh -c 'touch go; sleep 1; docker info >/dev/null && echo shared' & second=$!
        wait $first; echo first $?
        wait $second; echo second $?
        gone && echo gone
        """)

    lines = output.splitlines()
    assert lines[0] == "up"
    assert lines[1].startswith("other: dockerd runs here already (process ")
    assert sorted(lines[2:4]) == ["first 5", "shared"]
    assert lines[4:] == ["second 0", "gone", "same"]


def test_a_signal_ends_the_command_and_the_engine(folder: Path) -> None:
    """The command gets the signal and may tidy up; the exit code is the shell's for it."""
    output = inside(folder, """
        for signal in TERM INT; do
          echo "trap 'echo tidy; exit 1' $signal; touch up; while :; do sleep 0.1; done" >command
          env --default-signal=INT engine.sh run -- bash command & run=$!
          until_true [ -e up ]; rm up
          kill -$signal $run; wait $run; echo $signal $?
          gone && echo gone
        done
        """)

    assert output.split("\n")[:-1] == ["tidy", "TERM 143", "gone", "tidy", "INT 130", "gone", "same"]


def test_killed_it_leaves_no_engine(folder: Path) -> None:
    """SIGKILL to the script alone: the guard ends the engine."""
    output = inside(folder, """
        engine.sh run -- sh -c 'touch up; exec sleep 60' & run=$!
        until_true [ -e up ]
        kill -KILL $run
        until_true gone && echo gone
        """)

    assert output.split("\n")[:-1] == ["gone", "same"]


def test_after_everything_was_killed_the_next_run_is_clean(folder: Path) -> None:
    """Script, guard and daemons killed at once: the next run starts, and restores the state before the
    first."""
    output = inside(folder, """
        engine.sh run -- sh -c 'touch up; exec sleep 60' & run=$!
        until_true [ -e up ]
        kill -KILL $(pgrep -f 'engine.sh guar[d]') $run $(pgrep 'dockerd|containerd|sleep')
        until_true sh -c '! docker info'
        [ -e engine/before ] && ip link show docker0 >/dev/null && echo remains
        engine.sh run -- docker info -f '{{.DockerRootDir}}'; echo code $?
        gone && echo gone
        """)

    lines = output.split("\n")[:-1]
    assert lines == ["remains", str(folder / "engine" / "root"), "code 0", "gone", "same"]

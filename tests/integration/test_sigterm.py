"""SIGTERM to a command: it ends with exit 4 or in order, and leaves nothing in the temporary folder.

test_cli_campaign.py checks that a judge without a signal leaves nothing there either.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import floodmark, golden
from run_processes import ENDED_WITHIN_S, running, wait_until

from floodmark.harness.commands.error_exits import code_of, raised_by_sigterm
from floodmark.harness.event_loop import sigterm_handler_restored

OURS = f"floodmark-{os.getuid()}"  # the locks of ports: this user's later runs need them


def left(folder: Path) -> list[str]:
    """The contents: Python's and Spark's temporary folders."""
    return sorted(path.name for path in folder.iterdir() if path.name != OURS)


def at_work(temporary: Path) -> bool:
    """Whether Spark has its folders. (Others come and go meanwhile: os.walk does not mind.)"""
    return any(name.startswith("blockmgr-") for _, folders, _ in os.walk(temporary) for name in folders)


@pytest.mark.parametrize(("words", "ripe", "says"), [
    # A judge, whose Spark has folders of its own; here where its user says.
    pytest.param("check saved", at_work, "ended by SIGTERM", marks=pytest.mark.spark),
    # Its own event loop handled the signal before. Spark's folders are where it chooses.
    pytest.param("run --nodes 1 --partitions 1 --concurrency 1 --duration 0.5 --seed 1 --out run", at_work,
                 "ended by SIGTERM", marks=(pytest.mark.cluster, pytest.mark.spark)),
    # After a history has begun: brokers run then. (`scenario run` plays in the same way.)
    pytest.param("demo --out out", lambda temporary: any(temporary.parent.glob("out/*/history.jsonl")),
                 "interrupted", marks=pytest.mark.cluster),
    # As soon as its folder exists: no broker has been started then.
    pytest.param("cluster up --nodes 1", left, "", marks=pytest.mark.cluster),
])
def test_a_command_is_ended(tmp_path: Path, words: str, ripe: Callable[[Path], object], says: str) -> None:
    """A run that was being judged stays to be judged again."""
    temporary = tmp_path / "tmp"
    golden(tmp_path, "a-kill-loses-the-tail", called="saved")
    of_spark = {"SPARK_LOCAL_DIRS": str(temporary), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
    with running(tmp_path, *words.split(), **(of_spark if "check" in words else {})) as process:
        wait_until(f"{words} to be at work; {temporary} has {left(temporary)}",
                   lambda: ripe(temporary) or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=ENDED_WITHIN_S)
    assert (process.returncode, says in said, "Traceback" in said) == (4, True, False), said
    assert left(temporary) == []
    assert list(tmp_path.rglob("verdict.json")) == []
    assert (tmp_path / "run" / "history.jsonl").exists() == words.startswith("run")
    assert not (tmp_path / "histories" / "runs" / "latest").exists()  # only of a run in its default folder


# -- the signal itself --------------------------------------------------------------------------------------


def test_it_is_raised_once_and_what_tidies_up_is_not_disturbed(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    tidied: list[str] = []

    def command() -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            tidied.append("all")
        return 0

    assert code_of(command) == 4
    assert tidied == ["all"]
    assert "ended by SIGTERM" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


def test_its_exit_code_is_kept_wherever_it_strikes(tmp_path: Path) -> None:
    """Also while a class is made from a text, as at the import of a dataclass."""
    (tmp_path / "struck.py").write_text(
        "import signal, sys\nfrom floodmark.harness.commands.error_exits import code_of\n"
        "sys.exit(code_of(lambda: exec('signal.raise_signal(signal.SIGTERM)')))\n")
    ran = subprocess.run([sys.executable, "-m", "struck"], cwd=tmp_path, capture_output=True, text=True,
                         check=False)
    assert (ran.returncode, ran.stderr) == (4, "floodmark: ended by SIGTERM\n")


def test_an_event_loop_that_took_it_gives_it_back() -> None:
    with raised_by_sigterm():
        ours = signal.getsignal(signal.SIGTERM)
        with sigterm_handler_restored():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) == ours


def test_another_thread_lets_it_be() -> None:
    """Only a main thread may set a signal's handler."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(lambda: 7)))
    thread.start()
    thread.join()
    assert codes == [7]


@pytest.mark.spark
def test_who_was_interrupted_can_judge_again(tmp_path: Path) -> None:
    """In one process, as in a notebook: the JVM that was ended is forgotten."""
    folder = golden(tmp_path, "two-partitions-two-elections")
    assert floodmark("check", folder).code == 0

    def command() -> int:
        raise KeyboardInterrupt

    assert code_of(command) == 4
    assert floodmark("check", folder).code == 0

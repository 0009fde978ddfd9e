"""Answers to wrong words on the command line: exit 2, what is wrong, and which words are right."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import floodmark, golden

from floodmark.harness import catalog
from floodmark.harness.cli import main
from floodmark.harness.commands import error_exits
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.registered import CLUSTER, WORKLOAD
from floodmark.harness.spec import RULES
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_USAGE

COMMANDS = ("run", "check", "show", "demo", "explain", "cluster", "scenario", "reproduce", "rejudge")


def test_help_names_every_command_and_the_exit_codes() -> None:
    answer = floodmark("--help")
    assert answer.code == 0
    assert all(f"  {command} " in answer.out for command in COMMANDS)
    assert "0 valid, 1 invalid, 2 usage, 3 unknown, 4 the harness" in answer.out


@pytest.mark.parametrize("words", [(name,) for name in sorted(main.commands)] + [
    ("cluster", name) for name in ("up", "state", "kill", "cut", "heal")], ids=" ".join)
def test_each_command_has_its_help(words: tuple[str, ...]) -> None:
    assert floodmark(*words, "--help").code == 0


@pytest.mark.parametrize(("words", "valid"), [
    (("--rules", "kip-999"), RULES),
    (("--workload", "bank"), catalog.own_names(WORKLOAD)),
    (("--cluster", "cloud"), catalog.own_names(CLUSTER)),
    (("--links", "wet"), ("direct", "proxied")),
    (("--acks", "2"), ("all", "1", "0")),
    (("--nemesis", "crash,gremlin"), (*catalog.NEMESES, "all", "none")),
])
def test_a_name_that_nothing_has_is_usage_and_lists_those_there_are(
        tmp_path: Path, words: tuple[str, ...], valid: tuple[str, ...]) -> None:
    answer = floodmark("run", "--out", tmp_path / "run", *words)
    assert answer.code == 2
    assert all(name in answer.err for name in valid)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("words", "message"), [
    (("--nodes", "0"), "--nodes"),
    (("--duration", "0"), "--duration"),
    (("--duration", "20 sheep"), "'20 sheep' is not a time: write 90s, 20min, 4h or 1h30min"),
    (("--duration", "9" * 400), "is more than a year"),
    (("--duration", "9000h"), "'9000h' is more than a year"),
    (("--rate", "-1"), "--rate"),
    (("--rate", "2e9"), "not in the range 0<x<=1000000000.0"),  # as a reproduction has it
    (("--concurrency", "10001"), "not in the range 0<=x<=10000"),
    (("--partitions", "10001"), "not in the range 1<=x<=10000"),
    (("--nodes", "2", "--replication-factor", "3"), "replication factor 3 needs as many nodes; there are 2"),
    (("-c", "min.insync.replicas"), "-c takes KEY=VALUE, not 'min.insync.replicas'"),
    (("-c", "=2"), "-c takes KEY=VALUE, not '='"),
    (("-c", "min.insync.replicas=two"), "-c min.insync.replicas takes a positive integer, not 'two'"),
    (("-c", "node.id=7"), "-c node.id=... cannot be set"),
    (("-c", "min.insync.replica=1"), "no broker knows this key; the closest valid key: min.insync.replicas"),
    (("-c", "foo=bar"), "-c foo: no broker knows this key; valid keys: auto.create.topics.enable"),
    (("-c", "cleanup.policy=compact"), "-c cleanup.policy: no broker knows this key"),
    (("-c", "linger.ms=5"), "-c linger.ms: no broker knows this key"),
    (("-c", "replica.lag.time.max.ms=soon"), "replica.lag.time.max.ms takes a positive integer, not 'soon'"),
    (("-c", "message.max.bytes=9999999999"), "-c message.max.bytes takes at most 2147483647"),
    (("-c", "replica.lag.time.max.ms=100"),
     "replica.fetch.wait.max.ms (500) may not be above replica.lag.time.max.ms (100)"),
    (("-c", "floodmark.switches=no-such"), "no switch 'no-such'; there are: "),
    (("--bug", "no-such-bug"), "no bug 'no-such-bug'; there are: "),
    (("--links", "direct", "--nemesis", "crash,cut"), "--nemesis cut needs links that can be cut"),
    (("--schedule", "nowhere.json"), "nowhere.json"),
    (("--allow", "lost"), "no finding is called 'lost'"),
    (("--nemsis", "crash"), "No such option"),
])
def test_a_value_that_cannot_be_is_usage(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    answer = floodmark("run", "--out", tmp_path / "run", *words)
    assert answer.code == 2
    assert message in answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["run", "demo", "cluster up"])
def test_a_folder_that_is_not_empty_is_usage_and_left_alone(tmp_path: Path, command: str) -> None:
    """Whatever is in it, a run of ours or not."""
    folder = golden(tmp_path, "two-partitions-two-elections")
    before = sorted(path.name for path in folder.iterdir())
    answer = floodmark(*command.split(), "--out", folder)
    assert answer.code == 2
    assert f"{folder} is not empty" in answer.err
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(("text", "message"), [
    ("[{", "does not parse"),
    ('{"f":"kill"}', "should be an array"),
    ('[{"f":"kill","nodes":["n1"]},{"f":"tickle"}]', 'entry 1: f: is "tickle"; valid: '),
    ('[{"f":"kill"}]', "entry 0 (kill): has no `nodes`"),
    ('[{"f":"kill","nodes":["n9"]}]', "entry 0 (kill): nodes"),
    ('[{"f":"send","sends":[{"partition":9,"value":1}]}]', "entry 0 (send)"),
    ('[{"f":"wait","moment":{"at":"noon"}}]', "entry 0 (wait): moment"),
])
def test_a_schedule_that_is_none_is_reported_by_its_place(tmp_path: Path, text: str, message: str) -> None:
    """The file, the entry, and what is wrong; the valid words if there is a list."""
    file = tmp_path / "schedule.json"
    file.write_text(text)
    answer = floodmark("run", "--out", tmp_path / "run", "--schedule", file)
    assert answer.code == 2
    assert str(file) in answer.err
    assert message in answer.err


@pytest.mark.parametrize("words", [("--nemesis", "crash"), ("--interval", "2"), ("--overspend",)], ids=str)
def test_a_schedule_and_what_draws_one_are_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "schedule.json").write_text("[]")
    answer = floodmark("run", "--out", tmp_path / "run", "--schedule", tmp_path / "schedule.json", *words)
    assert answer.code == 2
    assert f"--schedule and {words[0]} exclude each other: leave one out" in answer.err


# -- numbers, and files to write ----------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "option"), [
    (("run", "--seed", 1 << 63), "--seed"), (("run", "--rate", "nan"), "--rate"),
    (("run", "--interval", "inf"), "--interval"), (("run", "--interval", "nan"), "--interval"),
    (("campaign", "run", "--preset", "simulated", "--seed", -(1 << 63)), "--seed"),
    (("campaign", "run", "--preset", "simulated", "--runs", 10**30), "--runs"),
], ids=str)
def test_a_number_that_no_file_of_a_run_can_have_is_usage(
        tmp_path: Path, words: tuple[object, ...], option: str) -> None:
    answer = floodmark(*words, "--out", tmp_path / "run")
    assert answer.code == 2
    assert re.search(f"{option} is .*, should be a number of 64 bits", answer.err), answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("words", "option"), [
    (("import", "jepsen", "a\udcff.edn"), "file"),
    (("import", "jepsen", "a.edn", "--out", "\udcff"), "--out"),
    (("run", "--schedule", "\udcff.json"), "--schedule"), (("reproduce", "\udcff"), "folder"),
    (("campaign", "run", "--preset", "simulated", "--ledger", "\udcff"), "--ledger"),
    (("campaign", "mark", "x", "--note", "\udcff"), "--note"), (("cluster", "kill", "n1", "\udcff"), "nodes"),
])
def test_a_word_that_no_file_of_ours_can_have_is_usage(words: tuple[str, ...], option: str) -> None:
    answer = floodmark(*words)
    assert (answer.code, answer.out) == (2, "")
    assert re.search(rf"{option} is '.*\\udcff.*', which is no UTF-8", answer.err), answer.err


@pytest.mark.parametrize("words", [
    "check FOLDER --json", "check FOLDER --junit", "check FOLDER --markdown", "rejudge FOLDER --json",
    "run --junit", "reproduce FOLDER --json", "query FOLDER select_1 --csv",
    "query FOLDER select_1 --parquet",
    "report FOLDER --out", "doctor --json", "campaign run --preset smoke --junit",
    "campaign resume FOLDER --markdown", "campaign stats FOLDER --json"])
def test_a_path_that_a_file_of_ours_must_not_replace_is_refused_at_once(tmp_path: Path, words: str) -> None:
    """A folder, a pipe, a link (/dev/stdout is one, and root could replace it)."""
    folder = golden(tmp_path, "double-failover", called="run")
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.mkfifo(tmp_path / "pipe")
    for there in (tmp_path, tmp_path / "link", tmp_path / "pipe"):
        answer = floodmark(*words.replace("FOLDER", str(folder)).split(), there)
        assert (answer.code, f"{there} exists and is no plain file" in answer.err) == (2, True), answer
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("command", "option", "file"), [
    ("check", "--json", "verdict.json"), ("report", "--out", "run.json"),
    ("reproduce", "--json", "run.json")])
def test_a_file_of_a_run_is_not_replaced(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, option: str, file: str) -> None:
    """--json has another form than verdict.json, and who stands in the folder may think of its name."""
    folder = golden(tmp_path, "double-failover")
    (folder / "verdict.json").write_text("{}")
    before = (folder / file).read_bytes()
    monkeypatch.chdir(folder)
    answer = floodmark(command, ".", option, file)
    assert (answer.code, f"a file of the run or campaign in {folder}" in answer.err) == (2, True), answer
    assert (folder / file).read_bytes() == before


@pytest.mark.parametrize("words", ["query FOLDER select_1 --csv FILE --json FILE",
                                   "check FOLDER --junit FILE --markdown ./FILE"])
def test_two_options_that_name_one_file_are_usage(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    golden(tmp_path, "double-failover", called="FOLDER")
    answer = floodmark(*words.split())
    assert (answer.code, "each needs a file of its own" in answer.err) == (2, True), answer
    assert not Path("FILE").exists()


# -- without a cluster --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    ("state",), ("state", "--json"), ("kill", "n1"), ("start", "n1"), ("stop", "n1"), ("pause", "n1"),
    ("resume", "n1"), ("expire", "n1"), ("cut", "n1"), ("heal",)], ids=" ".join)
def test_a_cluster_that_is_not_up_is_reported(tmp_path: Path, words: tuple[str, ...]) -> None:
    answer = floodmark("cluster", *words, "--folder", tmp_path)
    assert answer.code == 4
    assert f"no cluster is up in {tmp_path}" in answer.err


def test_a_notice_of_a_cluster_that_says_nothing_is_none(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for notice in ("{}", "[]", '{"socket": "s", "pid": null}'):
        (tmp_path / "work" / "cluster.json").write_text(notice)
        answer = floodmark("cluster", "state", "--folder", tmp_path)
        assert (answer.code, f"no cluster is up in {tmp_path}" in answer.err) == (4, True), answer


def test_a_cluster_whose_harness_has_gone_is_reported(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "cluster.json").write_text(json.dumps({"socket": str(tmp_path / "s"), "pid": 4711}))
    answer = floodmark("cluster", "state", "--folder", tmp_path)
    assert answer.code == 4
    assert "no longer up (it was process 4711)" in answer.err


# -- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "code", "message"), [
    (UsageError("no such thing"), EXIT_USAGE, "floodmark: no such thing\n"),
    (FloodmarkError("the disk is gone"), EXIT_HARNESS, "floodmark: the disk is gone\n"),
    (PermissionError(13, "Permission denied", "/root/run"), EXIT_HARNESS,
     "floodmark: /root/run: Permission denied\n"),
    (OSError(28, "No space left on device"), EXIT_HARNESS, "floodmark: No space left on device\n"),
    (KeyboardInterrupt(), EXIT_HARNESS, "floodmark: interrupted\n"),
])
def test_a_failure_is_one_sentence_and_never_invalid(
        capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str) -> None:

    def fails() -> int:
        raise error

    assert error_exits.code_of(fails) == code
    assert capsys.readouterr().err == message


def test_a_bug_of_our_own_says_so_and_keeps_its_traceback_in_a_file(
        capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def breaks() -> int:
        raise AssertionError("leo 3 below hw 5")

    assert error_exits.code_of(breaks) == EXIT_HARNESS
    message = capsys.readouterr().err
    assert message.startswith("floodmark: a bug of floodmark's own: AssertionError: leo 3 below hw 5 (")
    assert "Traceback" not in message
    (file,) = tmp_path.iterdir()
    assert str(file) in message
    assert "in breaks" in file.read_text()


def test_a_reader_that_has_gone_is_no_traceback(tmp_path: Path) -> None:
    """`floodmark explain | head -1`: standard output is a pipe that is no longer read."""
    reads, writes = os.pipe()
    os.close(reads)
    ran = subprocess.run([sys.executable, "-m", "floodmark.harness", "explain"], stdout=writes,
                         stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writes)
    assert (ran.returncode, ran.stderr) == (4, "")


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_without_java_nothing_is_run_and_nothing_is_called_invalid(tmp_path: Path, home: str | None) -> None:
    """`run` finds out before it starts a cluster, `check` before it starts Spark; both name the remedy."""
    env = {key: value for key, value in os.environ.items() if key not in ("PATH", "JAVA_HOME")}
    env |= {"PATH": str(tmp_path)} | ({"JAVA_HOME": home} if home else {})
    folder = golden(tmp_path, "a-kill-loses-the-tail")
    for words in (["run", "--out", str(tmp_path / "run")], ["check", str(folder)]):
        ran = subprocess.run([sys.executable, "-m", "floodmark.harness", *words], env=env,
                             capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 4
        assert "needs Java 17 or newer" in ran.stderr
        assert (f"JAVA_HOME is {home}" if home else "no java on PATH") in ran.stderr
        assert ran.stdout == ""
    assert not (tmp_path / "run").exists()
    assert not (folder / "verdict.json").exists()

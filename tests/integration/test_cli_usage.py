"""Calls that cannot be carried out: wrong words are refused at once, and no failure is a traceback; and the
command line's own texts: defaults, the list of findings, shell completion.

golden/refusals.txt has a call a line, and below it the exit code and the sentence.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from command_line import edit_run, floodmark, golden
from golden_text import answered_as_written
from judged_runs import judged
from nights import CRASH, HUNG, night, written

from floodmark.checkers.text.explain import EXPLANATIONS, FACTS, PERMISSIONS
from floodmark.harness.campaign.ledger import Ledger, Night, save
from floodmark.harness.cli import main
from floodmark.harness.commands import error_exits
from floodmark.harness.commands.explain import parts_of
from floodmark.harness.verdict import EXIT_HARNESS

SHOWN = 240  # characters of a sentence: it may go on with all valid words
OWN = '''
name = "own"
zoo = "Z27"
title = "one node loses power"
story = "What one copy alone held is gone."
steps = """
send 0..3
power_cut n1 keep 2
start n1
wait healthy
"""
[[run]]
rules = "kip-320"
permitted = ["lost-write"]
[[run]]
rules = "high-watermark"
control = true
'''
FILES = {
    "mine": "!", "full/mine": "!", "caf\udcff/mine": "!", "empty.json": "[]",
    "empty/work/n1.log": "", "up/work/n1.log": "",
    "lacking/campaign.json": '{"format": 2}', "plan.toml": "for = '1min'",
    "history.edn": "{:process :nemesis, :type :info, :time 1, :f :wipe, :value nil}\n" * 2,
    "own.toml": OWN, "powercut.toml": OWN.replace("power_cut", "powercut"),
    "key.toml": f'{OWN}[config]\n"min.insync.replica" = 1',
    "lag.toml": f'{OWN}[config]\n"replica.lag.time.max.ms" = 10',
    "old/campaign.json": '{"format": 1}', "jars/libs/kafka_2.13-2.8.2.jar": "",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with runs (judged, or not to be had again), campaigns (one is over, others are
    none), plans, scenarios, a history, a link and a pipe; and an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    written(tmp_path / "night", night((CRASH, "valid", ())), Ledger(), plan="for = '1h'")
    written(tmp_path / "empty-night", night(), Ledger(), plan="")
    for name, text in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    judged(tmp_path, "double-failover").rename("judged")
    for name in ("run", "runs/one"):
        golden(tmp_path, "two-partitions-two-elections", called=name)
    for name, rules in (("odd", "kip-966"), ("unjudged", "kip-320")):
        edit_run(golden(tmp_path, "a-kill-loses-the-tail", called=name),
                 concurrency=0, rate=None, duration_s=1, rules=rules)
    marks = Ledger(nights={"b": Night(began="2026", version="1", commit=None, runs={})})
    save(tmp_path / "marks.json", marks.with_finding(HUNG, "b", 1))
    (tmp_path / "link").symlink_to("mine")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def files(folder: Path) -> dict[Path, bytes]:
    """All that is there; locks may be new."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")
            if not path.name.endswith("lock")}


def answer(call: str) -> str:
    """Of `floodmark CALL`, or `echo TEXT > FILE && CALL`."""
    *echo, words = call.replace(r"\udcff", "\udcff").split(" && ")
    before = dict[Path, bytes | None]()
    for _, text, _, name in map(shlex.split, echo):
        file = Path(name)
        before[file] = file.read_bytes() if file.exists() else None
        file.write_text(text.replace(r"\n", "\n"))
    there = files(Path.cwd())
    said = floodmark(*shlex.split(words))
    assert (said.out, files(Path.cwd()) == there) == ("", True), call
    for file, old in before.items():
        file.unlink() if old is None else file.write_bytes(old)
    sentence = " ".join(said.err.replace(str(Path.cwd()), ".").split())
    sentence = sentence.rpartition("Error: ")[2].removeprefix("floodmark: ")
    return f"! {said.code} {sentence[:SHOWN]}{' ...' * (len(sentence) > SHOWN)}"


def test_each_call_is_refused_and_changes_nothing(here: Path, request: pytest.FixtureRequest) -> None:
    answered_as_written("refusals.txt", answer, request)


# -- its own texts -----------------------------------------------------------------------------------------

# These have no default: left out, a file is not written, a filter not applied.
WITHOUT_DEFAULT = {"--bootstrap", "--topic-config", "--client-config", "--faults",
           "--json", "--junit", "--markdown", ("show", "--finding"), "--offset", "--allow", "--conf",
           "--loses", "--spares", "--from", "--csv", ("mark", "--known"), ("mark", "--note"),
           ("stats", "--parquet"), ("query", "--parquet")}
CommandPath = tuple[str, ...]


def test_help_names_every_command_and_the_exit_codes() -> None:
    answer = floodmark("--help")
    assert answer.code == 0
    assert all(f"  {command} " in answer.out for command in main.commands)
    assert "0 valid, 1 invalid, 2 usage, 3 unknown, 4 the harness" in answer.out


def commands(group: click.Group, path: CommandPath = ()) -> Iterator[tuple[CommandPath, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


@pytest.mark.parametrize(("path", "command"), [*commands(main)])
def test_every_default_is_in_the_help(path: CommandPath, command: click.Command) -> None:
    """Of each option that takes a value and may be left out; and the help is given."""
    context = click.Context(command, parent=click.Context(main, **main.context_settings))
    said = floodmark(*path, "--help")
    assert (said.code, [one.opts[-1] for one in command.params if one.opts[-1] not in said.out
                        and isinstance(one, click.Option) and not one.hidden]) == (0, [])
    for option in command.params:
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and record is not None and not option.is_flag:
            name = option.opts[-1]
            without_default = (path[-1], name) in WITHOUT_DEFAULT or name in WITHOUT_DEFAULT
            assert ("[default: " in record[1]) != without_default, record


def test_explain_alone_lists_every_name_with_its_meaning_on_one_line() -> None:
    """Findings, what permits some, facts; each name can be explained."""
    answer = floodmark("explain")
    assert answer.code == 0
    rows, _, more = answer.out.partition("\n\n")
    listed = dict(row.split("  ", 1) for row in rows.splitlines())
    assert list(listed) == [*sorted(EXPLANATIONS), *PERMISSIONS, f"S1 to S{len(FACTS)}"]
    assert all(meaning.strip() and "..." not in meaning for meaning in listed.values())
    assert max(map(len, rows.splitlines())) <= 120
    assert all(parts_of(name) for name in list(listed)[:-1])
    assert "floodmark explain NAME" in more


def completed(*words: str) -> list[str]:
    """The completions of the last word that a shell gets."""
    asked = ShellComplete(main, {}, "floodmark", "_FLOODMARK_COMPLETE")
    return [one.value for one in asked.get_completions([*words[:-1]], words[-1])]


def test_a_shell_completes_commands_options_and_names() -> None:
    """The first as bash asks for it."""
    asked = {"_FLOODMARK_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "floodmark re"}
    ran = subprocess.run([Path(sys.executable).parent / "floodmark"], capture_output=True, text=True,
                         check=True, env={**os.environ, **asked})
    assert ran.stdout.split() == ["plain,rejudge", "plain,report", "plain,reproduce"]
    assert completed("run", "--nem") == ["--nemesis"]
    assert completed("run", "--acks", "") == ["all", "1", "0"]
    assert completed("explain", "und") == ["under-replicated"]
    assert completed("check", "--allow", "G1c-") == ["G1c-process", "G1c-realtime"]
    assert "cut" in completed("cluster", "c")


@pytest.mark.parametrize(("option", "typed", "value"), [
    ("acks", "-1", "all"), ("duration", "20", 20.0), ("duration", "20s", 20.0), ("duration", "4min", 240.0),
    ("duration", "1h30min", 5400.0)])
def test_what_is_typed_has_a_value(option: str, typed: str, value: object) -> None:
    """Kafka's number for all acks is all; a duration is in seconds or has a unit."""
    assert main.commands["run"].make_context("run", [f"--{option}", typed]).params[option] == value


# -- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "message"), [
    (PermissionError(13, "Permission denied", "/root/run"), "/root/run: Permission denied"),
    (OSError(28, "No space left on device"), "No space left on device"),
    (KeyboardInterrupt(), "interrupted"),
])
def test_a_failure_is_one_sentence_and_never_invalid(
        capsys: pytest.CaptureFixture[str], error: BaseException, message: str) -> None:
    def fails() -> int:
        raise error

    assert error_exits.code_of(fails) == EXIT_HARNESS
    assert capsys.readouterr().err == f"floodmark: {message}\n"


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


def test_without_java_nothing_is_run_and_nothing_is_called_invalid(tmp_path: Path) -> None:
    """`run` finds out before it starts a cluster, `check` before it starts Spark; both name the remedy."""
    env = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    folder = golden(tmp_path, "a-kill-loses-the-tail")
    for words, more, why in ((("run", "--out", tmp_path / "run"), {}, "no java on PATH"),
                             (("check", folder), {"JAVA_HOME": "/nowhere"}, "JAVA_HOME is /nowhere")):
        ran = subprocess.run([sys.executable, "-m", "floodmark.harness", *words], env=env | more,
                             capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stdout) == (4, "")
        assert "needs Java 17 or newer" in ran.stderr
        assert why in ran.stderr
    assert not (tmp_path / "run").exists()
    assert not (folder / "verdict.json").exists()


WITHOUT_DOCKER_PY = """
import json, sys
sys.modules |= dict.fromkeys(("docker", "testcontainers"))
from click.testing import CliRunner
from floodmark.harness.cli import main
ran = [CliRunner().invoke(main, words.split(), prog_name="floodmark") for words in sys.argv[1:]]
print(json.dumps([[one.exit_code, one.stderr] for one in ran]))
"""


def test_what_needs_containers_prints_what_to_install_and_the_rest_works() -> None:
    """In a process without docker-py, the extra `containers`."""
    calls = ("scenario list", "run --cluster containers --duration 1", "doctor --cluster containers",
             "scenario run double-failover --cluster containers")
    ran = subprocess.run([sys.executable, "-c", WITHOUT_DOCKER_PY, *calls],
                         capture_output=True, text=True, timeout=60, check=True)
    rest, *results = json.loads(ran.stdout)
    assert rest == [0, ""]
    for code, error in results:
        assert (code, "pip install 'floodmark[containers]'" in error) == (4, True), error
        assert "Traceback" not in error

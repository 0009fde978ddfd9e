"""The command line's own texts: defaults, the list of findings, shell completion."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from command_line import floodmark

from floodmark.checkers.text.explain import EXPLANATIONS, FACTS, PERMISSIONS
from floodmark.harness.cli import main
from floodmark.harness.commands.explain import parts_of

# These have no default: left out, a file is not written, a filter not applied.
WITHOUT_DEFAULT = {"--bootstrap", "--topic-config", "--client-config", "--faults",
           "--json", "--junit", "--markdown", ("show", "--finding"), "--offset", "--allow", "--conf",
           "--loses", "--spares", "--from", "--csv", ("mark", "--known"), ("mark", "--note"),
           ("stats", "--parquet"), ("query", "--parquet")}


CommandPath = tuple[str, ...]


def commands(group: click.Group, path: CommandPath = ()) -> Iterator[tuple[CommandPath, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


COMMANDS = list(commands(main))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_default_is_in_the_help(path: CommandPath, command: click.Command) -> None:
    """Of each option that takes a value and may be left out."""
    context = click.Context(command, parent=click.Context(main, **main.context_settings))
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


def test_kafkas_number_for_all_acks_is_all() -> None:
    run = dict(commands(main))["run",]
    assert run.make_context("run", ["--acks", "-1"]).params["acks"] == "all"


@pytest.mark.parametrize(("typed", "time_s"), [
    ("20", 20.0), ("0.5", 0.5), ("20s", 20.0), ("4min", 240.0), ("1h30min", 5400.0)])
def test_a_duration_is_in_seconds_or_has_a_unit(typed: str, time_s: float) -> None:
    context = main.commands["run"].make_context("run", ["--duration", typed])
    assert context.params["duration"] == time_s

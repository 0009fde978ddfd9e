"""The owner's commands for faults: how to kill, start, stop, pause, resume, cut and heal each node of his
cluster, and how to fetch its logs. Read from TOML, run without a shell.

    timeout_s = 30                                   # of each command
    [commands]                                       # of every node that has none of its own
    kill = ["ssh", "{host}", "sudo", "systemctl", "kill", "-s", "SIGKILL", "kafka"]
    [nodes.n1]
    fetch_logs = ["rsync", "-a", "--include={prefix}*/***", "--exclude=*/", "h1:/var/kafka/", "{folder}"]

Rules
1. An argument list is run as it is, its placeholders filled in: {node} and {host}, of the node struck; {peer}
   and {peer_host}, whom a cut node no longer hears; {folder}, where logs are to lie; {prefix}, with which the
   names of our topics begin. Other braces stay.
2. Each has the time-out; one that passes it is killed with all that it started. One that runs when the run is
   interrupted may end first. What a command printed is
   told when it failed, and its words are not: they may hold a secret.
3. An act is offered only where every node has the commands it takes.
"""

import asyncio
import os
import signal
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import CLIENTS, CONTROLLER

ACTS = ("kill", "start", "stop", "pause", "resume", "cut", "heal", "fetch_logs")
PSEUDO_NODES = (CLIENTS, CONTROLLER)  # which may have commands too: cut and heal
TIMEOUT_S = 30.0
_LONGEST_S = 600.0
_SAID_AT_MOST = 1000  # bytes at the end of a failed command's output
_REAP_S = 5.0
_PLACEHOLDERS = ("node", "host", "peer", "peer_host", "folder", "prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCommands:
    """node -> act -> argument list."""

    of_nodes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    of_all: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # where a node has none of its own
    timeout_s: float = TIMEOUT_S
    source: str = "no --faults FILE was given"

    def has(self, node: str, act: str) -> bool:
        return act in self.of_nodes.get(node, {}) or (act in self.of_all and node not in PSEUDO_NODES)

    def lacking(self, acts: Iterable[str], nodes: Iterable[str]) -> str | None:
        """Why these acts cannot be carried out on every one of these nodes; None: they can."""
        names = sorted(nodes)
        for act in acts:
            if without := [node for node in names if not self.has(node, act)]:
                return f"{self.source} has no command {act} for {', '.join(without)}"
        return None

    def known(self, nodes: Sequence[str]) -> None:
        """UsageError where it speaks of nodes that the cluster has not."""
        strange = sorted({*self.of_nodes} - {*nodes, *PSEUDO_NODES})
        if strange:
            raise UsageError(f"{self.source} speaks of {', '.join(strange)}; this cluster's nodes are "
                             f"{', '.join(nodes)}: n and the broker's id")

    async def run(self, node: str, act: str, words: Mapping[str, str]) -> None:
        """Runs the command; FloodmarkError where it fails or does not end in time."""
        argv = self.of_nodes.get(node, {}).get(act) or self.of_all[act]
        filled = [_filled(word, {"node": node, **words}) for word in argv]
        what = f"the command {act} of {node} ({self.source})"
        with tempfile.TemporaryFile() as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *filled, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True)
            except OSError as error:
                raise FloodmarkError(f"{what} cannot be run: {error.strerror}") from error
            try:
                code = await self._ended(process)
            except TimeoutError:
                await _end(process)
                raise FloodmarkError(
                    f"{what} did not end within {self.timeout_s:g} s{_said(output)}") from None
            if code != 0:
                raise FloodmarkError(f"{what} ended with {code}{_said(output)}")

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """Its exit code. TimeoutError: it has none in time."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await process.wait()
        except asyncio.CancelledError:  # half a command may be worse than all of it
            try:
                async with asyncio.timeout(self.timeout_s):
                    await process.wait()
            except BaseException:
                await _end(process)
            raise


def read_fault_commands(file: Path) -> FaultCommands:
    """UsageError that says where the file is wrong."""
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'no UTF-8'}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is no TOML: {error}") from error
    strange = sorted({*told} - {"timeout_s", "commands", "nodes"})
    if strange:
        raise UsageError(f"{file} has {', '.join(strange)}; there are timeout_s, [commands] and [nodes.NODE]")
    timeout_s = told.get("timeout_s", TIMEOUT_S)
    if type(timeout_s) not in (int, float) or not 0 < timeout_s <= _LONGEST_S:
        raise UsageError(f"{file}: timeout_s is a number of seconds, above 0 and at most {_LONGEST_S:g}")
    nodes = told.get("nodes", {})
    if not isinstance(nodes, dict):
        raise UsageError(f"{file}: nodes are tables, [nodes.n1]")
    return FaultCommands(
        of_nodes={node: _commands(table, f"{file}: [nodes.{node}]") for node, table in nodes.items()},
        of_all=_commands(told.get("commands", {}), f"{file}: [commands]"),
        timeout_s=float(timeout_s), source=str(file))


def _commands(table: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table")
    for act, argv in table.items():
        if act not in ACTS:
            raise UsageError(f"{where} has {act}; the commands are {', '.join(ACTS)}")
        if not isinstance(argv, list) or not argv or not all(
                isinstance(word, str) and "\0" not in word for word in argv) or not argv[0]:
            raise UsageError(f"{where} {act} is no list of arguments: [\"ssh\", \"host\", ...], not one "
                             "line, for no shell reads it")
    return {act: tuple(argv) for act, argv in table.items()}


def _filled(word: str, words: Mapping[str, str]) -> str:
    for name in _PLACEHOLDERS:
        if name in words:
            word = word.replace(f"{{{name}}}", words[name])
    return word


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            await process.wait()


def _said(output: Any) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _SAID_AT_MOST))
    words = output.read().decode(errors="replace").strip()
    return f", having said: {words}" if words else ", and said nothing"

"""Reads and runs the owner's commands for faults, and for fetching logs, from TOML and without a shell.

    timeout_s = 30                                   # of each command
    [commands]                                       # of every node without a command of its own
    kill = ["ssh", "{host}", "sudo", "systemctl", "kill", "-s", "SIGKILL", "kafka"]
    [nodes.n1]
    fetch_logs = ["rsync", "-a", "--include={prefix}*/***", "--exclude=*/", "h1:/var/kafka/", "{folder}"]

Rules
1. Placeholders are {node} and {host}, the node of the fault; {peer} and {peer_host}, from which a cut node
   receives nothing; {folder}, where to put logs; {prefix}, which begins the names of our topics.
2. A command that exceeds the time-out is killed with everything it started; one that runs when the run is
   interrupted may finish. The error of a failed one has its output but not its arguments: they may be secret.
3. An act is offered only if every node has the commands that it needs. The clients and the controller are no
   nodes: they have both cut and heal, or neither, and no command of all nodes is theirs.
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
from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import Cuts, Kills, Pauses, needed_for
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

ABILITIES = (Kills, Pauses, Cuts)  # what commands can do, besides reading logs
ACTS = (*(f for f in FAULTS if needed_for(f) in ABILITIES), "fetch_logs")
PSEUDO_NODES = (CLIENTS, CONTROLLER)
TIMEOUT_S = 30.0
_LONGEST_S = 600.0
_OUTPUT_BYTES = 1000  # shown of a failed command's output, from its end
_REAP_S = 5.0
_PLACEHOLDERS = ("node", "host", "peer", "peer_host", "folder", "prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCommands:
    of_nodes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    of_all: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # for nodes without their own
    timeout_s: float = TIMEOUT_S
    source: str = ""  # the file; empty: none was given

    def has(self, node: str, act: str) -> bool:
        return act in self.of_nodes.get(node, {}) or (act in self.of_all and node not in PSEUDO_NODES)

    def lacking(self, acts: Iterable[str], nodes: Iterable[str]) -> str | None:
        """Why these acts cannot be carried out on all of these nodes; None: they can."""
        names = sorted(nodes)
        for act in acts:
            if without := [node for node in names if not self.has(node, act)]:
                return (f"{self.source} has no command {act} for {', '.join(without)}" if self.source else
                        "no --faults FILE was given, which has the commands for it")
        return None

    def known(self, nodes: Sequence[str]) -> None:
        if strange := sorted({*self.of_nodes} - {*nodes, *PSEUDO_NODES}):
            raise UsageError(f"{self.source} names {', '.join(strange)}; this cluster's nodes are "
                             f"{', '.join(nodes)}: n and the broker's id")

    async def run(self, node: str, act: str, fields: Mapping[str, str]) -> None:
        """Runs the command; FloodmarkError if there is none, or it fails or does not end in time."""
        if (why := self.lacking((act,), (node,))) is not None:
            raise FloodmarkError(why)
        argv = self.of_nodes.get(node, {}).get(act) or self.of_all[act]
        filled = list(argv)
        for name in _PLACEHOLDERS:
            if (text := {"node": node, **fields}.get(name)) is not None:
                filled = [argument.replace(f"{{{name}}}", text) for argument in filled]
        label = f"the command {act} of {node} ({self.source})"
        with tempfile.TemporaryFile() as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *filled, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True)
            except OSError as error:
                raise FloodmarkError(f"{label} cannot be run: {error.strerror}") from error
            try:
                async with asyncio.timeout(self.timeout_s):
                    code = await process.wait()
            except asyncio.CancelledError:  # half a command may be worse than a complete one
                with suppress(BaseException):
                    async with asyncio.timeout(self.timeout_s):
                        await process.wait()
                await _end(process)
                raise
            except TimeoutError:
                await _end(process)
                raise FloodmarkError(
                    f"{label} did not end within {self.timeout_s:g} s{_output_text(output)}") from None
            if code != 0:
                raise FloodmarkError(f"{label} ended with {code}{_output_text(output)}")

def read_fault_commands(file: Path) -> FaultCommands:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'no UTF-8'}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is no TOML: {error}") from error
    if strange := sorted({*table} - {"timeout_s", "commands", "nodes"}):
        raise UsageError(f"{file} has {', '.join(strange)}; there are timeout_s, [commands] and [nodes.NODE]")
    timeout_s = table.get("timeout_s", TIMEOUT_S)
    if type(timeout_s) not in (int, float) or not 0 < timeout_s <= _LONGEST_S:
        raise UsageError(f"{file}: timeout_s is a number of seconds, above 0 and at most {_LONGEST_S:g}")
    nodes = table.get("nodes", {})
    if not isinstance(nodes, dict):
        raise UsageError(f"{file}: nodes are tables, [nodes.n1]")
    of_nodes = {node: _commands(table, f"{file}: [nodes.{node}]") for node, table in nodes.items()}
    for name in PSEUDO_NODES:
        if of_nodes.get(name, {}).keys() not in (set(), {"cut", "heal"}):
            raise UsageError(f"{file}: [nodes.{name}] has {', '.join(of_nodes[name])}; it takes both cut and "
                             "heal, and no other")
    return FaultCommands(
        of_nodes=of_nodes, of_all=_commands(table.get("commands", {}), f"{file}: [commands]"),
        timeout_s=float(timeout_s), source=str(file))


def _commands(table: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table")
    for act, argv in table.items():
        if act not in ACTS:
            raise UsageError(f"{where} has {act}; the commands are {', '.join(ACTS)}")
        if not isinstance(argv, list) or not argv or not all(
                isinstance(argument, str) and "\0" not in argument for argument in argv) or not argv[0]:
            raise UsageError(f"{where} {act} is no list of arguments: [\"ssh\", \"host\", ...], not one "
            "line, because no shell reads it")
    return {act: tuple(argv) for act, argv in table.items()}


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAP_S):
                await process.wait()


def _output_text(output: Any) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _OUTPUT_BYTES))
    text = output.read().decode(errors="replace").strip()
    return f"; its output: {text}" if text else ", without output"

"""The local place: brokers and a controller as processes on loopback, without root and without Docker.

Rules
1. Everything runs under the supervisor (supervisor.py): nothing survives the harness. If the supervisor dies,
   all processes die with it, and everything is `lost`.
2. Proxied links, between processes and from clients, run through the links process (link_proxies.py) and can
   be cut; direct links cannot. Cuts add up until the heal.
3. A power cut is simulated on files, by the system's PowerLoss.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.harness.cluster import processes
from floodmark.harness.cluster.broker_cluster import PYTHON, System, only_in_containers
from floodmark.harness.cluster.layout import LINKS, NOT_STARTED, Ports, lay_out
from floodmark.harness.cluster.log_extents import Lost, wipe
from floodmark.harness.cluster.processes import Process, Processes, is_stopped, last_words
from floodmark.harness.errors import UsageError
from floodmark.harness.protocols import Cuts
from floodmark.harness.schedule.views import FailpointHit

CAN_BE_CUT = ("direct", "proxied")
PROGRAMS = {PYTHON: (sys.executable, "-P")}  # other programs are found on PATH
LINK_PROXIES = "floodmark.harness.cluster.local.link_proxies"
ANSWER_S = 60.0
LISTEN_S = 180.0  # for the links process to start; a busy machine starts slowly


class LocalPlace:
    """See harness.cluster.broker_cluster: Place."""

    name = "local"
    can: Sequence[object] = ()
    read = None
    faulted_exits: Sequence[FailpointHit] = ()

    def __init__(self, folder: Path, system: System, *, links: str, first_port: int | None = None,
                 trace: bool = True) -> None:
        if links not in CAN_BE_CUT:
            raise UsageError(f"links are direct or proxied, not {links!r}")
        self.cannot = only_in_containers(self.name)
        if links == "direct":
            self.cannot[Cuts] = "direct links cannot be cut: use --links proxied"
        self.layout = NOT_STARTED
        own = self.processes = Processes(
            _send, self.is_stopped, lambda name, _process, code: system.expects_exit(name, code))
        self.deaths, self.lives, self.paused = own.deaths, own.lives, own.paused
        self.kill, self.pause, self.resume = own.kill, own.pause, own.resume
        self._folder, self._system, self._first_port, self._trace = folder, system, first_port, trace
        self._cuts: dict[tuple[str, str], bool] = {}  # (sender, receiver) -> whether by reset
        self._ports: Ports | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._supervised: processes.Lines | None = None  # the connection to the supervisor
        self._links: processes.Lines | None = None  # the connection to the links process

    @property
    def lost(self) -> str | None:
        return self.processes.lost

    async def open(self) -> None:
        self._ports = Ports()
        self.layout = lay_out(self._folder, self._system.ids, proxied=Cuts not in self.cannot,
                              ports=self._ports, first_port=self._first_port, trace=self._trace,
                              by_name=self._system.dials_by_name)

    async def begin(self) -> None:
        """Starts the supervisor, and the links process if links are proxied."""
        modules = [LINK_PROXIES] if self._system.module is None else [
            LINK_PROXIES, f"{self._system.module}.__main__"]
        ours, its = socket.socketpair()
        to_links, links_stdin = socket.socketpair()
        with its, links_stdin, self.layout.work("keeper.log").open("ab") as errors:
            stdin = links_stdin.fileno()
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "floodmark.harness.cluster.local.supervisor", str(os.getpid()),
                 *modules],
                stdin=its.fileno(), stdout=errors, stderr=errors, pass_fds=[stdin], start_new_session=True)
        self._supervised = await processes.open_lines(
            ours, "the supervisor", on_event=lambda event: self.processes.ended(event["exit"], event["code"]),
            lost=lambda: self.processes.lose(
                "the supervisor, parent of all brokers, ended, and all brokers with it"))
        if not self.layout.links:
            to_links.close()
            return
        self._links = await processes.open_lines(to_links, "the links process")
        await self._start(LINKS, [*PROGRAMS[PYTHON], "-m", LINK_PROXIES], module=LINK_PROXIES, stdin=stdin)
        await self._links.ask("listen", timeout_s=LISTEN_S, links=self.layout.links_config())

    async def mend(self) -> list[str]:
        """Heals all links; returns a sentence for each that the links process still has cut."""
        self._cuts.clear()
        if self._links is None:
            return []
        try:
            state = await self._set_links(self._links)
        except processes.ControlError as error:
            return [f"the links cannot be healed: {error}"]
        return [f"{sender} to {receiver} is still cut"
                for sender, receiver in state["silent"] + state["reset"]]

    async def close(self) -> None:
        self.processes.ending = True
        if self._supervised is not None:
            await self._supervised.close()  # the supervisor then kills all children and ends
        if self._supervisor is not None:
            try:
                await asyncio.to_thread(self._supervisor.wait, ANSWER_S)
            except subprocess.TimeoutExpired:
                self._supervisor.send_signal(signal.SIGKILL)  # its children die with it
                await asyncio.to_thread(self._supervisor.wait)
        if self._links is not None:
            await self._links.close()
        if self._ports is not None:
            self._ports.close()

    async def spawn(self, name: str) -> None:
        program, *arguments = self._system.command(name)
        is_forked = [program, *arguments[:2]] == [PYTHON, "-m", self._system.module]
        await self._start(name, [*PROGRAMS.get(program, (program,)), *arguments],
                          module=f"{self._system.module}.__main__" if is_forked else None)

    async def _start(self, name: str, argv: Sequence[str], **besides: Any) -> None:
        log = self.layout.log_of(name)
        # Before the supervisor can report its exit: answer and event come over one ordered connection.
        process = self.processes.begin(name, log)
        assert self._supervised is not None, "begin() opened it"
        starting = process.starting = asyncio.create_task(self._supervised.ask(
            "start", timeout_s=ANSWER_S, name=name, argv=argv, log=str(log), **besides))

        def started(_: object) -> None:
            if starting.cancelled() or starting.exception() is not None:
                self.processes.alive.pop(name, None)
            else:
                process.pid = starting.result()["pid"]

        starting.add_done_callback(started)
        await asyncio.shield(starting)  # a cancelled start goes on, and its process can be killed

    async def is_stopped(self, name: str) -> bool:
        process = self.processes.alive.get(name)
        return process is not None and is_stopped(Path(f"/proc/{process.pid}"))

    def last_words(self, name: str) -> str:
        return last_words(self.layout.log_of(name))

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        if Cuts in self.cannot:
            raise UsageError(self.cannot[Cuts])
        self._cuts |= dict.fromkeys(self.layout.pairs_of(grudge), reset)
        assert self._links is not None, "begin() started them"
        await self._set_links(self._links)

    async def heal(self) -> None:
        self._cuts.clear()
        if self._links is not None:
            await self._set_links(self._links)

    async def _set_links(self, links: processes.Lines) -> Mapping[str, Any]:
        """Puts the cuts in force; returns those that are, as the links process says."""
        return await links.ask(
            "set", timeout_s=ANSWER_S, silent=[pair for pair, reset in self._cuts.items() if not reset],
            reset=[pair for pair, reset in self._cuts.items() if reset])

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost:
        await self.kill(name)
        return await asyncio.to_thread(self._system.power.power_cut, *self.layout.disk_of(name), keep=keep)

    async def wipe(self, name: str) -> Lost:
        return await asyncio.to_thread(wipe, self._system.power, *self.layout.disk_of(name))

    async def log_dir(self, node: str) -> Path:
        return self.layout.of(node).log_dir


async def _send(_name: str, process: Process, number: signal.Signals) -> None:
    if not process.pid and process.starting is not None:
        await asyncio.wait([process.starting])
    if process.pid:  # never 0, which would be our own group; no other has it: Linux uses all others first
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

"""Checks what floodmark can do on this machine, with reasons and what to do: `floodmark doctor`.

Rules
1. Nothing is changed: an image is built only with --build, and nothing is left running.
2. A cluster that lacks something it needs cannot run; the exit code is that of the chosen cluster.
3. What cannot be known yet is shown as unknown, neither yes nor no.
"""

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from itertools import groupby
from pathlib import Path

import click
import psutil

from floodmark.harness import catalog
from floodmark.harness.cluster.containers import ability_probe
from floodmark.harness.cluster.containers.ability_probe import Facts, facts
from floodmark.harness.cluster.containers.engine_client import address, connect
from floodmark.harness.cluster.containers.images import BASE_VARIABLE, tools_image
from floodmark.harness.cluster.layout import HIGHEST, HOST, LOWEST, Ports
from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.faults import DISKS_DAMAGED, FAULTS, MENDING
from floodmark.harness.registered import CHECK, CLUSTER, GROUPS, NEMESIS, registered
from floodmark.harness.report.phrases import size_text
from floodmark.harness.report.terminal import table
from floodmark.harness.run import write_json
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.spec import RULES
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_VALID
from floodmark.nemesis.strikes import registered_nemesis, unavailable

MARKS = {True: "yes", False: "no", None: "?"}
SERIOUS = "NO"  # the chosen cluster needs it
COLOURS = {"yes": "green", "no": "yellow", "?": "yellow", SERIOUS: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    part: str  # the heading it is listed under
    item: str
    can: bool | None  # None: unknown
    detail: str = ""  # what was found, or why not
    todo: str = ""  # what to do if it is missing
    needed_by: tuple[str, ...] = ()  # the clusters that cannot run without it


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """One fault, and which cluster can suffer it here."""

    fault: str
    does: str
    local: bool
    simulated: bool
    containers: bool | None  # None: unknown
    detail: str = ""  # by what means, or why containers cannot
    todo: str = ""


def examine_machine(*, cluster: str = "local", json_file: Path | None = None, anew: bool = False,
           build: bool = False) -> int:
    """Prints the results. anew: tests again what containers can do; build: builds their image if there is
    none. EXIT_VALID if the chosen cluster has everything it needs, else EXIT_HARNESS."""
    engine = examine_engine(anew=anew, build=build,
                            say=lambda line: click.echo(f"floodmark: {line}", err=True))
    rows = [*machine_rows(Path.cwd()), *engine.rows, *registered_rows()]
    faults = fault_rows(engine)
    lacks = {name: lacking(rows, name) for name in catalog.names(CLUSTER)}
    click.echo("\n\n".join(tables(rows, faults, chosen=cluster)))
    if any(row.containers is None for row in faults):
        click.echo(f"\n?: what containers can suffer here is not known, for {engine.why_unknown}")
    click.echo()
    for name, missing in lacks.items():
        click.echo(f"the {name} cluster cannot run here: see {', '.join(missing)}" if missing else
                   f"the {name} cluster can run here")
    if json_file is not None:
        write_json(json_file, as_json(rows, faults, lacks))
    return EXIT_HARNESS if lacks[cluster] else EXIT_VALID


def tables(rows: Sequence[Row], faults: Sequence[FaultRow], *, chosen: str) -> list[str]:
    """A table of each part, and one of the faults. chosen: the cluster whose missing parts are marked."""
    found = []
    for part, of_it in groupby(rows, key=lambda row: row.part):
        shown = []
        for row in of_it:
            serious = row.can is False and chosen in row.needed_by
            shown.append((SERIOUS if serious else MARKS[row.can], row.item, row.detail))
            shown += [("", "", f"-> {row.todo}")] if row.todo and not row.can else []
        found.append(table(("", part, ""), shown, COLOURS))
    shown_faults = []
    for one in faults:
        text = f"{one.does} ({one.detail})" if one.detail and one.containers else one.detail or one.does
        shown_faults.append((one.fault, MARKS[one.local], MARKS[one.simulated], MARKS[one.containers], text))
        if one.todo and one.containers is False:
            shown_faults.append(("", "", "", "", f"-> {one.todo}"))
    return [*found, table(("faults", "local", "simul.", "containers", ""), shown_faults, COLOURS)]


def lacking(rows: Sequence[Row], cluster: str) -> list[str]:
    return list(dict.fromkeys(row.item for row in rows if cluster in row.needed_by and row.can is False))


def as_json(rows: Sequence[Row], faults: Sequence[FaultRow], lacks: Mapping[str, Sequence[str]]
            ) -> dict[str, object]:
    """The results as JSON. `can` is null if unknown."""
    keys = {"item": "what", "detail": "told"}  # in the file, which other programs read
    found, struck = ([{keys.get(name, name): value for name, value in asdict(row).items()} for row in each]
                     for each in (rows, faults))
    return {"clusters": {name: {"fit": not missing, "lacks": missing} for name, missing in lacks.items()},
            "found": found, "faults": struck}


def registered_rows() -> list[Row]:
    """The entry points of other distributions; a cluster that cannot be imported cannot run."""
    rows = []
    for one in (one for kind in GROUPS for one in registered(kind)):
        todo = ""
        try:
            if one.kind != CHECK:
                catalog.refuse_name(one.kind, one.name)
            if one.kind == NEMESIS:
                registered_nemesis(one)
            one.load()
        except UsageError as error:
            todo = str(error)
        needed = one.kind == CLUSTER and one.name not in catalog.own_names(CLUSTER)
        rows.append(Row(part="of other packages", item=f"{one.kind} {one.name}", can=not todo, todo=todo,
                        detail=f"{one.distribution}, {one.entry.value}",
                        needed_by=(one.name,) if needed else ()))
    return rows


PYTHON_AT_LEAST = (3, 11)
MEMORY_AT_LEAST = 10**9  # three brokers take 60 MB, the judge's JVM the rest
DISK_AT_LEAST = 5 * 10**8  # a run of half a minute with its trace, and room to judge it
LOOPBACK_S = 2.0
ALL = ("containers", "local", catalog.SIMULATED)
Found = tuple[bool | None, str, str]  # whether it can (None: unknown), what was found, what to do


def machine_rows(folder: Path) -> list[Row]:
    """The rows about this machine, which every cluster needs. folder: where runs would be stored."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} processors"
    checks: dict[str, Callable[[], Found]] = {
        "system": lambda: (sys.platform == "linux", system,
                           "clusters run only on Linux; saved runs can be judged anywhere"),
        "Python": lambda: (sys.version_info >= PYTHON_AT_LEAST,
                           f"{platform.python_version()} at {sys.executable}", "3.11 or newer is needed"),
        "memory": lambda: _room(psutil.virtual_memory().available, MEMORY_AT_LEAST, "available",
                                "end something: {} is needed for brokers and judge"),
        "disk": lambda: _room(shutil.disk_usage(folder).free, DISK_AT_LEAST, f"free at {folder}",
                              "make room, or use --out elsewhere: {} is needed for a run"),
        "loopback": _loopback, "ports": _ports,
        "judge": lambda: (True, "Java {1} at {0}, Spark ".format(*catalog.can_judge())
                          + metadata.version("pyspark"), ""),
        "broker": _broker}
    rows = []
    for item, check in checks.items():
        try:
            can, detail, todo = check()
        except (FloodmarkError, ImportError, OSError) as error:
            can, detail, todo = False, str(error), ""
        rows.append(Row(part="this machine", item=item, can=can, detail=detail, todo=todo,
                        needed_by=() if can is None else ALL))
    return rows


def _room(free: int, least: int, where: str, todo: str) -> Found:
    return free >= least, f"{size_text(free)} {where}", todo.format(size_text(least))


def _loopback() -> Found:
    try:
        with socket.create_server((HOST, 0)) as server:
            socket.create_connection(server.getsockname(), LOOPBACK_S).close()
    except OSError as error:
        return (False, f"no connections on {HOST}: {error.strerror or error}",
                "bring the interface up: ip link set lo up")
    return True, f"{HOST} answers", ""


def _ports() -> Found:
    with closing(Ports()) as ports:
        return True, f"free ones between {LOWEST} and {HIGHEST}, such as {ports.choose()}", ""


def _broker() -> Found:
    try:
        return True, f"runs; rules {', '.join(scenario_words().generations)}", ""
    except FloodmarkError as error:
        return False, str(error), "install floodmark again: pip install -e . in a checkout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The container engine. abilities: which faults it can apply; None: unknown, see `why_unknown`."""

    rows: Sequence[Row]
    abilities: ability_probe.Abilities | None
    why_unknown: str = ""


def examine_engine(*, anew: bool, build: bool, say: Callable[[str], None]) -> Engine:
    """Asks the engine, and tests in containers what it can do, if there is an image for that."""
    rows: list[Row] = []
    item, why_unknown = "engine", "there is no container engine"
    try:
        with closing(connect()) as client:
            item, why_unknown = "containers", "the engine failed"
            if build:
                tools_image(client, say)
            about = facts(client)
            rows += engine_rows(about)
            if about.tools is None:
                return Engine(rows=rows, abilities=None, why_unknown="there is no image to test it with")
            abilities = ability_probe.probe(client, about.tools, afresh=anew)
            return Engine(rows=[*rows, *ability_rows(abilities)], abilities=abilities)
    except FloodmarkError as error:
        return Engine(rows=[*rows, _engine_row(item, False, str(error))], abilities=None,
                      why_unknown=why_unknown)


def engine_rows(about: Facts) -> list[Row]:
    absent = f"{about.wanted_base} is not in the engine"
    how = f"made of Debian's packages ({about.base_why_not})" if about.base_why_not else "fetched"
    base = (True, about.base) if about.base is not None else (
        None, f"{absent}; it will be {how}") if about.base_available else (
        False, f"{absent}, and no registry has it: {about.base_why_not}",
        f"bring it in (docker load), or name one that has Python 3.11: {BASE_VARIABLE}=IMAGE")
    tools = (True, about.tools) if about.tools is not None else (
        None, "not built for the present files in docker/",
        "the first run builds it, in about half a minute; or: floodmark doctor --build")
    return [_engine_row("engine", True, f"{about.name}, at {address()}"),
            _engine_row("storage", True, about.storage), _engine_row("base image", *base),
            _engine_row("image", *tools)]


def ability_rows(abilities: ability_probe.Abilities) -> list[Row]:
    """The rows about abilities that all faults need, or the trace."""
    folder, clock = abilities[ability_probe.FOLDER], abilities[ability_probe.ONE_CLOCK]
    detail = "containers have this machine's clock" if clock.can else f"{clock.why}: runs have no trace"
    return [_engine_row("folder", folder.can, folder.why or "containers see the files of this machine",
                        folder.todo),
            replace(_engine_row("one clock", clock.can, detail, clock.todo), needed_by=())]


def _engine_row(item: str, can: bool | None, detail: str, todo: str = "") -> Row:
    return Row(part="containers", item=item, can=can, detail=detail, todo=todo,
               needed_by=() if can is None else ("containers",))


def fault_rows(engine: Engine) -> list[FaultRow]:
    """The rows of all faults in the order of harness.faults, without the acts that undo them."""
    cannot = {name: _unavailable(name) for name in ALL}
    rows = []
    for f, fault in FAULTS.items():
        for kind, does in () if f in MENDING else fault.kinds.items() or (("", fault.does),):
            name = f"{f} {kind}".strip()
            can, detail, todo = (False, cannot["containers"][f], "") if f in cannot["containers"] else (
                _in_containers(name, engine.abilities))
            on_files = f != "disk" or kind == DISKS_DAMAGED[0]
            rows.append(FaultRow(
                fault=name, does=does, containers=can, detail=detail, todo=todo,
                local=f not in cannot["local"] and on_files,
                simulated=f not in cannot[catalog.SIMULATED] and on_files))
    return rows


def _unavailable(name: str) -> Mapping[str, str]:
    """The faults that this cluster cannot suffer anywhere, and why; it is made but not started."""
    with temporary_folder("floodmark-") as folder:
        return unavailable(catalog.cluster(name, folder, 3, rules=RULES[-1], bugs=(), config={},
                                           links="proxied"))


def _in_containers(name: str, abilities: ability_probe.Abilities | None) -> Found:
    """Whether containers support a fault here; how, or why not; what to do."""
    if abilities is None:
        return None, "", ""
    if name == "power_cut":
        loops = abilities[ability_probe.LOOPS]
        return True, "on disks of their own" if loops.can else (
            "simulated on files, as in the local cluster, because there are no disks of their own: "
            f"{loops.why}"), ""
    if name not in ability_probe.NEEDED_BY:
        return True, "", ""
    ability = abilities[ability_probe.NEEDED_BY[name]]
    how = f"by {ability.how}" if ability.how else ""
    return (True, how, "") if ability.can else (False, ability.why, ability.todo)

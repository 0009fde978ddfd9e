"""What the doctor finds of the container engine: whether it answers, what it is, and what it can do."""

from collections.abc import Callable
from dataclasses import dataclass

from harness.cluster.containers import ability_probe
from harness.cluster.containers.ability_probe import FOLDER, ONE_CLOCK, Abilities
from harness.cluster.containers.engine_client import address, connect
from harness.cluster.containers.engine_facts import Facts, facts
from harness.cluster.containers.images import BASE_VARIABLE, tools_image
from harness.errors import FloodmarkError
from harness.reports.doctor_table import Row

_PART = "containers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """rows: what was found. abilities: what it can do to brokers; None: not known, and `why_unknown`."""

    rows: tuple[Row, ...]
    abilities: Abilities | None
    why_unknown: str = ""


def look(*, anew: bool, build: bool, say: Callable[[str], None]) -> Engine:
    """Asks the engine, and tries out in containers what it can do, if there is an image to try it with."""
    rows: list[Row] = []
    try:
        client = connect()
    except FloodmarkError as error:
        row = _row("engine", False, str(error))
        return Engine(rows=(row,), abilities=None, why_unknown="there is no container engine")
    try:
        if build:
            tools_image(client, say)
        about = facts(client)
        rows += engine_rows(about)
        if about.tools is None:
            return Engine(rows=tuple(rows), abilities=None, why_unknown="there is no image to try it with")
        abilities = ability_probe.probe(client, about.tools, anew=anew)
    except FloodmarkError as error:
        rows.append(_row("containers", False, str(error)))
        return Engine(rows=tuple(rows), abilities=None, why_unknown="the engine failed")
    finally:
        client.close()
    return Engine(rows=(*rows, *ability_rows(abilities)), abilities=abilities)


def engine_rows(about: Facts) -> list[Row]:
    return [_row("engine", True, f"{about.name}, at {address()}"), _row("storage", True, about.storage),
            _base(about), _tools(about)]


def ability_rows(abilities: Abilities) -> list[Row]:
    """What matters whatever the fault."""
    folder, clock = abilities[FOLDER], abilities[ONE_CLOCK]
    return [
        _row("folder", folder.can, folder.why or "containers see the files of this machine", folder.todo),
        Row(part=_PART, what="one clock", can=clock.can, todo=clock.todo,
            told="theirs is ours" if clock.can else f"{clock.why}: runs have no trace"),
    ]


def _base(about: Facts) -> Row:
    if about.base is not None:
        return _row("base image", True, about.base)
    missing = f"{about.wanted_base} is not in the engine"
    if about.base_to_be_had:
        how = f"made of Debian's packages ({about.base_why_not})" if about.base_why_not else "fetched"
        return Row(part=_PART, what="base image", can=None, told=f"{missing}; it will be {how}")
    return _row("base image", False, f"{missing}, and no registry gives it: {about.base_why_not}",
                f"bring it in (docker load), or name one that has Python 3.11: {BASE_VARIABLE}=IMAGE")


def _tools(about: Facts) -> Row:
    if about.tools is not None:
        return _row("image", True, about.tools)
    return Row(part=_PART, what="image", can=None, told="not built for what is in docker/ now",
               todo="the first run builds it, in about half a minute; or: floodmark doctor --build")


def _row(what: str, can: bool, told: str, todo: str = "") -> Row:
    return Row(part=_PART, what=what, can=can, told=told, todo=todo, needed_by=("containers",))

"""`floodmark doctor`: what this machine can do for floodmark and what not, why, and what to do about it.

Rules
1. Nothing is changed: no image is built unless --build asks for it, nothing is left running.
2. What a cluster needs and lacks makes that cluster unfit; the exit code goes by the cluster that was chosen.
3. What cannot be known yet is told as such; it is neither yes nor no.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from harness import catalog
from harness.commands.doctor_engine import look
from harness.commands.doctor_faults import fault_rows
from harness.commands.doctor_machine import machine_rows
from harness.reports.doctor_table import FaultRow, Row, lines
from harness.verdict import EXIT_HARNESS, EXIT_VALID


def doctor(*, cluster: str = "local", json_file: Path | None = None, anew: bool = False,
           build: bool = False) -> int:
    """Prints the findings. anew: tries out again what containers can do; build: builds their image if there
    is none. EXIT_VALID if the chosen cluster has all it needs, else EXIT_HARNESS."""
    engine = look(anew=anew, build=build, say=lambda line: click.echo(f"floodmark: {line}", err=True))
    rows = [*machine_rows(Path.cwd()), *engine.rows]
    faults = fault_rows(engine)
    lacks = {name: lacking(rows, name) for name in sorted(catalog.CLUSTERS)}
    click.echo("\n".join(lines(rows, faults, lacks, chosen=cluster, unknown=engine.why_unknown)))
    if json_file is not None:
        json_file.write_text(json.dumps(told(rows, faults, lacks), indent=2) + "\n", encoding="utf-8")
    return EXIT_HARNESS if lacks[cluster] else EXIT_VALID


def lacking(rows: Sequence[Row], cluster: str) -> list[str]:
    """What this cluster needs and does not have here."""
    return [row.what for row in rows if cluster in row.needed_by and row.can is False]


def told(rows: Sequence[Row], faults: Sequence[FaultRow], lacks: dict[str, list[str]]) -> dict[str, object]:
    """The same, for programs. `can` is null where it is not known."""
    return {
        "clusters": {name: {"fit": not lacking, "lacks": lacking} for name, lacking in lacks.items()},
        "found": [asdict(row) for row in rows],
        "faults": [asdict(row) for row in faults],
    }

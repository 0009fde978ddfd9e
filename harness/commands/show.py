"""`floodmark show`: a run at a glance, the history around a finding, the logs side by side at an offset."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import orjson

from harness import history
from harness.errors import FloodmarkError, UsageError
from harness.op import NEMESIS, Op, Type
from harness.run import LATEST, RUNS, Run, open_run

AROUND = 3  # lines of history before and after one concerned; offsets before and after one asked
EXAMPLES = 3  # of a finding


def show_run(folder: Path | None, *, finding: str | None, partition: int | None, offset: int | None) -> int:
    """Prints what was asked; with nothing asked, the run and its verdict at a glance."""
    run = open_run(folder or RUNS / LATEST)
    if offset is not None:
        show_logs(run, partition or 0, offset)
    elif finding is not None:
        show_finding(run, finding)
    else:
        show_glance(run)
    return 0


# -- at a glance --------------------------------------------------------------------------------------------


def show_glance(run: Run) -> None:
    """What ran, what struck it, and what the judge said."""
    about = run.about()
    click.echo(f"{run.folder}")
    click.echo(
        f"  {about.get('cluster')} cluster, {len(about.get('nodes', []))} nodes, rules {about.get('rules')}, "
        f"workload {about.get('workload')}, seed {about.get('seed')}, ended: {about.get('ended', 'killed')}"
    )
    settled = about.get("settled")
    why = (about.get("settle") or {}).get("why")
    click.echo(f"  settled: {settled}" + (f" ({why})" if why else ""))
    for op in faults(run):
        click.echo(f"  {line_of(op)}")
    verdict = read_verdict(run)
    click.echo(f"  valid: {verdict['valid']}")
    for found in verdict["findings"]:
        permitted = f" (permitted by {found['permitted_by']})" if found.get("permitted_by") else ""
        click.echo(f"  {found['name']}: {found['count']}{permitted}")
    click.echo("next: floodmark show FOLDER --finding NAME, or --partition P --offset O")


def faults(run: Run) -> Iterator[Op]:
    """The nemesis's lines, in order."""
    return (op for op in history.read(run.history_path, on_bad=complain) if op.process == NEMESIS)


# -- a finding ----------------------------------------------------------------------------------------------


def show_finding(run: Run, name: str) -> None:
    """The first examples of the finding: text, lines of history, and the place in the logs."""
    groups = [found for found in read_verdict(run)["findings"] if found["name"] == name]
    if not groups:
        there = sorted({found["name"] for found in read_verdict(run)["findings"]})
        raise UsageError(f"{run.folder} has no finding {name!r}; it has: {', '.join(there) or 'none'}")
    for found in groups:
        click.echo(
            f"{name}: {found['count']} ({found['class']}"
            + (f", permitted by {found['permitted_by']}" if found.get("permitted_by") else "")
            + ")"
        )
        for example in found["examples"][:EXAMPLES]:
            click.echo("")
            click.echo(example.get("text") or orjson.dumps(example).decode())
            show_lines(run, set(example.get("ops") or ()))
            if example.get("partition") is not None and example.get("offset") is not None:
                show_logs(run, example["partition"], example["offset"])


def show_lines(run: Run, indexes: set[int]) -> None:
    """The lines of the history concerned (marked) and those around them."""
    if not indexes:
        return
    near = {index + away for index in indexes for away in range(-AROUND, AROUND + 1)}
    last = None
    click.echo("  history:")
    for op in history.read(run.history_path, on_bad=complain):
        if op.index in near:
            if last is not None and op.index > last + 1:
                click.echo("      ...")
            click.echo(f"  {'>' if op.index in indexes else ' '} {line_of(op)}")
            last = op.index


def line_of(op: Op) -> str:
    """One op on one line, for people: index, seconds, who, what."""
    who = "nemesis" if op.process == NEMESIS else f"process {op.process}"
    what = "" if op.type is Type.INFO and op.process == NEMESIS else f" {op.type}"
    return f"{op.index:>7} {op.time / 1e9:9.3f} s  {who:<12} {op.f}{what} {details_of(op)}".rstrip()


def details_of(op: Op) -> str:
    parts = [
        f"p{s.partition}: {s.value}" + (f" at {s.offset}" if s.offset is not None else "")
        for s in op.sends or ()
    ]
    reads = op.reads or ()
    parts += [f"p{r.partition}: read {r.value} at {r.offset}" for r in reads[:4]]
    parts += [f"... {len(reads) - 4} more"] if len(reads) > 4 else []
    parts += [f"p{partition} ends at {end}" for partition, end in op.offsets or ()]
    parts += [f"partitions {', '.join(map(str, op.partitions))}"] if op.partitions else []
    if op.fault is not None:
        shown = {
            key: value
            for key, value in op.fault.items()
            if key in ("nodes", "grudge", "kind", "keep", "unclean")
        }
        parts.append(" ".join(f"{key}={orjson.dumps(value).decode()}" for key, value in shown.items()))
    return "; ".join(parts + ([op.error] if op.error else []))


# -- logs side by side -------------------------------------------------------------------------------------


def show_logs(run: Run, partition: int, offset: int) -> None:
    """What each replica's final log holds at the offset and around it, one column a node."""
    nodes = [str(node) for node in run.about().get("nodes", ())]
    wanted = range(max(0, offset - AROUND), offset + AROUND + 1)
    held = {node: dict(entries(run, node, partition, wanted)) for node in nodes}
    leader = ((run.about().get("leaders") or {}).get(str(partition)) or {}).get("leader")
    click.echo(f"  final logs of partition {partition}, as epoch/value{'; * leads' if leader else ''}:")
    titles = [node + ("*" if node == leader else "") for node in nodes]
    click.echo("    " + f"{'offset':>8}" + "".join(f"{title:>20}" for title in titles))
    for at in wanted:
        cells = [held[node].get(at, "-") for node in nodes]
        differs = len({cell for cell in cells if cell != "-"}) > 1
        click.echo(
            f"  {'>' if at == offset else ' '} {at:>8}"
            + "".join(f"{cell:>20}" for cell in cells)
            + ("   <- differ" if differs else "")
        )


def entries(run: Run, node: str, partition: int, wanted: range) -> Iterable[tuple[int, str]]:
    """(offset, "epoch/value") of one node's dump, for the offsets wanted."""
    path = run.logs_folder / f"{node}.jsonl"
    if not path.exists():
        click.echo(f"  {path} is missing", err=True)
        return
    with path.open("rb") as dump:
        for line in dump:
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if row.get("partition") == partition and row.get("offset") in wanted:
                value = "control" if row.get("value") is None else row["value"]
                damaged = " bad crc" if row.get("crc_ok") is False else ""
                yield row["offset"], f"{row.get('epoch')}/{value}{damaged}"


def read_verdict(run: Run) -> Mapping[str, Any]:
    """The saved verdict."""
    try:
        verdict: Mapping[str, Any] = orjson.loads(run.verdict_path.read_bytes())
    except FileNotFoundError as error:
        raise FloodmarkError(f"{run.folder} was not judged yet: floodmark check {run.folder}") from error
    except orjson.JSONDecodeError as error:
        raise FloodmarkError(
            f"cannot read {run.verdict_path}: {error}; judge again: floodmark check {run.folder}"
        ) from error
    return verdict


def complain(told: str) -> None:
    click.echo(f"floodmark: {told}", err=True)

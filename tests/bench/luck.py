"""Compares scenarios with luck: seconds to the first violation, with chosen moments and under random faults.

    make bench ARGS='--only luck --luck-runs 20 --luck-seconds 120'

Both have the same cluster: nodes, rules, bugs, guarantees, of a scenario's first row that shows something.
With moments its steps are played. Luck means random faults of the kinds that its steps use, one every 10 s on
average, under a light load, for at most --luck-seconds; sessions and lags are short there (a scenario has
long ones), because nothing would ever be elected otherwise. A violation is any finding of class bug; its time
is that of the first line of the trace to blame; without one, the answer of the first op concerned; for a
finding of the final logs alone, the last write of a replica at that offset. A run that finds nothing in time
counts as later than all that do.
"""

import asyncio
import math
import statistics
import sys
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness import catalog, history
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import Part, named, play, spec_of
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run import Run
from floodmark.harness.runner import Progress, carry_out
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG, Verdict
from floodmark.nemesis.budget import overspends
from floodmark.nemesis.scenario import PATIENT

ZOO = ("Z01", "Z02", "Z04", "Z08", "Z14")
INTERVAL_S = 10.0
AT_ONCE = 2  # clusters at the same time
NEVER = math.inf
NEMESIS_OF: Mapping[str, str] = {
    "kill": "crash", "stop": "restart", "pause": "pause", "cut": "cut", "power_cut": "power", "disk": "power",
    "expire": "expire", "elect": "elect",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the comparison: the seconds of each run, NEVER if nothing was found."""

    part: Part
    moments: Sequence[float]
    luck: Sequence[float]


def bench_luck(scratch: Path, runs: int, bound_s: float) -> None:
    """Plays, judges all in one call, and prints the comparison."""
    print(f"luck: seconds to the first violation, median (range; runs that found one). {runs} runs each; "
          f"random faults every {INTERVAL_S:g} s for {bound_s:g} s at most", flush=True)
    parts = [part for zoo in ZOO for part in parts_of(zoo)]
    folders: list[tuple[int, str, Path]] = []
    for number in range(runs):
        parent = scratch / f"moments-{number}"
        for position, played in enumerate(play(parts, "local", parent, at_once=AT_ONCE)):
            folders += [(position, "moments", played.folder)] if played.recorded else []
    at_random = [(place, scratch / f"luck-{number}-{place}", random_options(part, number, bound_s))
                 for number in range(runs) for place, part in enumerate(parts)]
    asyncio.run(all_of([carried_out(options, folder) for _, folder, options in at_random]))
    folders += [(place, "luck", folder) for place, folder, _ in at_random
                if Run(folder=folder).about_path.is_file()]
    verdicts = catalog.judge().judge([folder for _, _, folder in folders])
    found: dict[tuple[int, str], list[float]] = {}
    for (place, kind, folder), verdict in zip(folders, verdicts, strict=True):
        found.setdefault((place, kind), []).append(first_violation_s(folder, verdict))
    for place, part in enumerate(parts):
        show(Row(part=part, moments=found.get((place, "moments"), []), luck=found.get((place, "luck"), [])))


def parts_of(zoo: str) -> list[Part]:
    """The first scenario of the number, on its first row with a bug; prints a line if none is shipped."""
    for name in (zoo, f"{zoo}a"):
        try:
            one = named(name)[0]
        except UsageError:
            continue
        return [Part(scenario=one, row=next(row for row in one.rows if row.harm))]
    print(f"  {zoo}: no scenario is shipped")
    return []


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


# -- the runs -----------------------------------------------------------------------------------------------


def random_options(part: Part, seed: int, bound_s: float) -> RunSpec:
    """The scenario's cluster with the usual sessions and lags, under the faults that its steps use."""
    steps = {entry.f for entry in part.scenario.schedule}
    named_faults = sorted({NEMESIS_OF[f] for f in steps if f in NEMESIS_OF} | {"crash"})
    base = spec_of(part, "local", Path("unused"))
    pairs = [pair for pair in base.config if pair.partition("=")[0] not in PATIENT]
    return RunSpec(
        nodes=base.nodes, rules=base.rules, bugs=base.bugs, config=tuple(pairs), acks=base.acks,
        partitions=base.partitions, replication_factor=base.replication_factor, workload=base.workload,
        concurrency=4, rate=200.0, nemesis=",".join(named_faults), interval=INTERVAL_S,
        overspend=spends(part), seed=seed, duration=bound_s)


def spends(part: Part) -> bool:
    """Whether the steps go beyond the guarantees: then luck may too."""
    least = int(part.scenario.config.get("min.insync.replicas", "2"))
    return bool(overspends(part.scenario.schedule, min_insync_replicas=least))


async def all_of(runs: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs a few at a time, and prints how many are done."""
    turn, done = asyncio.Semaphore(AT_ONCE), count(1)

    async def one(run: Coroutine[Any, Any, None]) -> None:
        async with turn:
            await run
        say(f"[{next(done)}/{len(runs)}] under random faults")

    await asyncio.gather(*map(one, runs))


async def carried_out(options: RunSpec, folder: Path) -> None:
    def silent(_: Progress) -> None:
        pass

    try:
        await carry_out(planned(replace(options, out=folder)), silent)
    except FloodmarkError as error:
        say(f"{folder.name}: {error}")


# -- when ---------------------------------------------------------------------------------------------------


def first_violation_s(folder: Path, verdict: Verdict) -> float:
    """Seconds since the run began; NEVER if no bug was found."""
    examples = [example for found in verdict.findings if found.klass == BUG for example in found.examples]
    run, blamed, asked, places = Run(folder=folder), set(), set(), set()
    for example in examples:
        if isinstance(example.get("event"), int):
            blamed.add(example["event"])
        elif example.get("ops"):
            asked.add(max(example["ops"]))
        else:
            places.add((example.get("partition"), example.get("offset")))
    times = [op.time for op in history.read(run.history_path) if op.index in asked] if asked else []
    traced = (blamed or places) and run.trace_path.exists()
    lines = [*map(orjson.loads, run.trace_path.open("rb"))] if traced else []
    times += [lines[position]["time"] for position in blamed if position < len(lines)]
    return min([*times, *last_appends(lines, places)], default=NEVER) / 1e9


def last_appends(lines: Sequence[Mapping[str, Any]], places: Collection[tuple[Any, Any]]) -> list[int]:
    """The time of a replica's last write at each (partition, offset): from then on two logs differed
    there."""
    found: dict[tuple[Any, Any], int] = {}
    for line in lines:
        if line.get("event") == "append":
            covered = range(line["offset"], line["offset"] + line["count"])
            found.update({(partition, offset): line["time"] for partition, offset in places
                          if partition == line["partition"] and offset in covered})
    return list(found.values())


def show(row: Row) -> None:
    title = f"{row.part.scenario.zoo} {row.part.scenario.name} on {row.part.row.label}"
    print(f"  {title:<58}  moments {format_times(row.moments)}", flush=True)
    print(f"  {'':<58}  luck    {format_times(row.luck)}", flush=True)


def format_times(seconds: Sequence[float]) -> str:
    """`1.8 s (1.6 to 2.1; 20/20)`."""
    there = [one for one in seconds if one < NEVER]
    if not there:
        return f"never (0/{len(seconds)})"
    middle = statistics.median(seconds)
    word = f"{middle:.1f} s" if middle < NEVER else "not in half of the runs"
    return f"{word} ({min(there):.1f} to {max(there):.1f}; {len(there)}/{len(seconds)})"

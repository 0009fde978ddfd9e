"""`make healthy`: runs of correct brokers with everything drawn. Each must be valid, and go on acking.

    python tests/hunt/healthy.py                  40 seeds from 1: --nemesis all --settings drawn, 30 s each
    python tests/hunt/healthy.py --first 801 --count 5 -- --nodes 5
    python tests/hunt/healthy.py --beside 4       the four with the fewest acks again, without faults
    python tests/hunt/healthy.py --cluster simulated --count 1000 --write FILE
                                                  of 20 virtual seconds each, in batches; a pass that was
                                                  interrupted goes on after those in FILE
    ... --keep DIR                                the run folders stay in DIR; finished ones are not run again
    ... --write FILE                              the tables go into FILE, each row as soon as it is known

Two runs at a time. Exit code 1 if a run is not valid (--strict), or has fewer than a fifth of the acks of the
same seed without faults. A simulated run that is not valid ends the pass, and its folder is kept.
"""

import argparse
import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import simulated_runs

from floodmark.harness.catalog import SIMULATED
from floodmark.harness.faults import MENDING
from floodmark.harness.run import write_whole
from floodmark.harness.schedule.moments import ACTS
from floodmark.harness.schedule.views import CONTROLLER

FLOODMARK = Path(sys.executable).parent / "floodmark"
TIMEOUT_S = 600
LEAST_SHARE = 0.2
_OF_PLAN = -1  # the nemesis' process in the history
_NO_FAULTS = MENDING | ACTS
_HEAD = ("| seed | nodes | acked | faults | elections | truncations | largest | ISR changes by leaders "
         "| by the controller | verdict |\n" + 10 * "|---" + "|")


@dataclass(slots=True, kw_only=True)
class Healthy:
    """What one run of correct brokers had. largest: the most records that one truncation cut."""

    seed: int
    nodes: int = 0
    acked: int = 0
    valid: bool = False
    findings: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # the reasons
    faults: Counter[str] = field(default_factory=Counter)
    elections: int = 0
    truncations: int = 0
    largest: int = 0
    by_leaders: int = 0
    by_controller: int = 0

    def row(self) -> str:
        verdict = "valid" if self.valid else "**" + (", ".join(self.findings) or "not valid") + "**"
        cells = (self.seed, self.nodes, self.acked, self.faults.total(), self.elections, self.truncations,
                 self.largest, self.by_leaders, self.by_controller, verdict)
        return "| " + " | ".join(map(str, cells)) + " |"


def look_at(folder: Path, seed: int) -> Healthy:
    """What the run folder of a judged run tells."""
    verdict = json.loads((folder / "verdict.json").read_bytes())
    about = json.loads((folder / "run.json").read_bytes())
    one = Healthy(seed=seed, nodes=len(about["nodes"]), acked=verdict["counts"]["acked"],
                  valid=verdict["valid"] is True, findings=[found["name"] for found in verdict["findings"]],
                  unknown=[found["reason"] for found in verdict.get("unknown", ())])
    for line in _lines(folder / "history.jsonl", '"fault":'):
        if line["process"] == _OF_PLAN and line["f"] not in _NO_FAULTS:
            one.faults[line["f"]] += 1
    for line in _lines(folder / "trace.jsonl", '"elect"', '"truncate"', '"isr",'):
        _count_event(one, line)
    return one


def _count_event(one: Healthy, line: Mapping[str, Any]) -> None:
    of_controller = line["node"] == CONTROLLER
    match line["event"]:
        case "elect" if line["cause"] != "created":
            one.elections += 1
        case "truncate":
            one.truncations += 1
            one.largest = max(one.largest, line["from"] - line["to"])
        case "isr" if of_controller and line["cause"] == "alter":
            one.by_leaders += 1
        case "isr" if of_controller:
            one.by_controller += 1


def _lines(file: Path, *words: str) -> Iterable[Mapping[str, Any]]:
    """The lines that contain one of the words."""
    with file.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if any(word in line for word in words))


def play(seed: int, folder: Path, run: Sequence[str], *, nemesis: str = "all") -> Healthy:
    """One `floodmark run` and its verdict; a folder that has a verdict is only looked at."""
    if not (folder / "verdict.json").exists():
        command = [*run, "--settings", "drawn", "--nemesis", nemesis, "--strict", "--seed", str(seed),
                   "--out", str(folder)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                                   stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as late:
            raise SystemExit(f"seed {seed}: no end in {TIMEOUT_S} s") from late
        if not (folder / "verdict.json").exists():
            raise SystemExit(f"seed {seed} was not judged (exit {ended.returncode}):\n{ended.stderr}")
    return look_at(folder, seed)


# -- the tables ---------------------------------------------------------------------------------------------


def summary(runs: Sequence[Healthy]) -> str:
    """Least, median and most of each figure, how many runs have one, and the faults by kind."""
    figures = {"acked records": "acked", "faults": "faults", "elections": "elections",
               "truncations": "truncations", "the largest truncation, records": "largest",
               "ISR changes by a leader": "by_leaders", "ISR changes by the controller": "by_controller"}
    rows = ["| in a run | least | median | most | runs that have one |", "|---|---|---|---|---|"]
    for title, name in figures.items():
        values = [getattr(run, name) for run in runs]
        values = [value.total() if isinstance(value, Counter) else value for value in values]
        rows.append(f"| {title} | {min(values):,} | {statistics.median(values):,.0f} | {max(values):,} "
                    f"| {sum(value > 0 for value in values)} |")
    kinds: Counter[str] = sum((run.faults for run in runs), Counter())
    return "\n".join((f"{sum(run.valid for run in runs)} of {len(runs)} valid.", "", *rows, "",
                      "Faults: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) + "."))


def shares(pairs: Sequence[tuple[Healthy, Healthy]]) -> str:
    """The acks of runs with faults as shares of those without."""
    return "Acked, as a share of the same seed without faults: " + ", ".join(
        f"{struck.acked / max(1, calm.acked):.2f} ({struck.seed})" for struck, calm in pairs) + "."


# -- simulated runs -----------------------------------------------------------------------------------------

BATCH = 25
KINDS = ("kill", "stop", "pause", "cut", "power_cut", "expire", "elect", "arm")
_COLUMNS = ("seeds", "runs", "valid", "acked", "elections", "truncations", "faults", *KINDS, "CPU seconds")
_BATCH_ROW = re.compile(r"^\| \d+ to (\d+) \|.*$", re.MULTILINE)


async def simulated(seeds: Sequence[int], scratch: Path, file: Path | None, *, duration_s: float, at_once: int
                    ) -> bool:
    """Plays and judges these seeds, but for those up to the file's last row, until one is not valid; returns
    whether all are."""
    text = file.read_text(encoding="utf-8") if file is not None and file.exists() else ""
    rows = [match[0] for match in _BATCH_ROW.finditer(text)]
    begin = max([seeds[0], *(int(match[1]) + 1 for match in _BATCH_ROW.finditer(text))])
    about = f"Runs: `{' '.join(simulated_runs.OPTIONS)} --nemesis all --duration {duration_s:g} --strict`."
    async with (simulated_runs.started_judge(scratch) as judge,
                simulated_runs.player_with(scratch, {}) as player):
        for seed in range(begin, seeds[-1] + 1):
            shutil.rmtree(scratch / str(seed), ignore_errors=True)  # left by a pass that was interrupted
        batches = [range(first, min(first + BATCH, seeds[-1] + 1))
                   for first in range(begin, seeds[-1] + 1, BATCH)]
        began_s = simulated_runs.cpu_s()
        async for batch, whys in simulated_runs.judged_batches(
                player, judge, batches, scratch, duration_s=duration_s, at_once=at_once):
            if failed := [f"seed {seed}: {why}" for seed, why in zip(batch, whys, strict=True) if why]:
                raise SystemExit("\n".join(failed))
            runs = [look_at(scratch / str(seed), seed) for seed in batch]
            spent_s = simulated_runs.cpu_s() - began_s
            began_s += spent_s
            rows.append(batch_row(runs, spent_s))
            print(rows[-1], flush=True)
            bad = {run.seed: (*run.findings, *run.unknown) for run in runs if not run.valid or run.findings}
            for seed in {*batch} - bad.keys():
                shutil.rmtree(scratch / str(seed))
            if bad:
                print(*(f"not valid: {scratch / str(seed)}: {', '.join(why)}" for seed, why in bad.items()),
                      sep="\n", flush=True)
                return False
            write(file, (about, "\n".join((_line(_COLUMNS), len(_COLUMNS) * "|---" + "|", *rows,
                                           sum_row(rows)))))
    return True


def batch_row(runs: Sequence[Healthy], cpu_s: float) -> str:
    kinds: Counter[str] = sum((run.faults for run in runs), Counter())
    assert not kinds.keys() - {*KINDS}, kinds
    return _line((f"{runs[0].seed} to {runs[-1].seed}", len(runs),
                  sum(run.valid and not run.findings for run in runs), sum(run.acked for run in runs),
                  sum(run.elections for run in runs), sum(run.truncations for run in runs), kinds.total(),
                  *(kinds[kind] for kind in KINDS), round(cpu_s)))


def sum_row(rows: Sequence[str]) -> str:
    columns = zip(*([int(cell) for cell in row.strip("| ").split(" | ")[1:]] for row in rows), strict=True)
    return _line(("all", *(f"{sum(column):,}" for column in columns)))


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def write(file: Path | None, parts: Iterable[str]) -> None:
    if file is not None:
        write_whole(file, ("\n\n".join(parts) + "\n").encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=40, help="how many seeds")
    parser.add_argument("--duration", type=float, help="seconds of each run: 30, simulated 20")
    parser.add_argument("--cluster", choices=("local", SIMULATED), default="local")
    parser.add_argument("--beside", type=int, default=0, help="so many seeds again, without faults")
    parser.add_argument("--at-a-time", type=int, help="2; simulated as many as cores")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--floodmark", type=Path, default=FLOODMARK)
    parser.add_argument("more", nargs="*", help="after `--`: further arguments of `floodmark run`")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.count)
    if asked.cluster == SIMULATED:
        if asked.more or asked.beside:
            parser.error("--cluster simulated takes no --beside and no further arguments of `floodmark run`")
        scratch = asked.keep or Path(tempfile.mkdtemp(prefix="healthy-"))
        scratch.mkdir(parents=True, exist_ok=True)
        valid = asyncio.run(simulated(
            seeds, scratch, asked.write, at_once=asked.at_a_time or simulated_runs.CORES,
            duration_s=asked.duration or simulated_runs.DURATION_S))
        return 0 if valid else 1
    at_a_time = asked.at_a_time or 2
    more = ["--duration", f"{asked.duration or 30:g}", *asked.more]
    run = [str(asked.floodmark), "run", *more]
    about = f"Runs: `{' '.join(('--settings drawn --nemesis all --strict', *more))}`, " \
            f"seeds {seeds[0]} to {seeds[-1]}, {at_a_time} at a time."
    runs: list[Healthy] = []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(at_a_time) as pool:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for done in as_completed([pool.submit(play, seed, folder / str(seed), run) for seed in seeds]):
            runs = sorted([*runs, done.result()], key=lambda one: one.seed)
            table = "\n".join((_HEAD, *(one.row() for one in runs)))
            write(asked.write, (about, table, summary(runs)))
            print(f"{len(runs):3} {done.result().row()}", flush=True)
        fewest = sorted(runs, key=lambda one: one.acked)[:asked.beside]
        calm = [*pool.map(lambda one: play(one.seed, folder / f"{one.seed}-without", run, nemesis="none"),
                          fewest)]
    pairs = [*zip(fewest, calm, strict=True)]
    parts = [summary(runs), *([shares(pairs)] if pairs else [])]
    write(asked.write, (about, table, *parts))
    print(*parts, sep="\n\n")
    few = any(struck.acked < LEAST_SHARE * without.acked for struck, without in pairs)
    return 0 if all(one.valid for one in (*runs, *calm)) and not few else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""`make healthy`: runs of correct brokers with everything drawn. Each must be valid, and go on acking.

    python tests/hunt/healthy.py                  40 seeds from 1: --nemesis all --settings drawn, 30 s each
    python tests/hunt/healthy.py --first 801 --count 5 -- --nodes 5
    python tests/hunt/healthy.py --beside 4       the four with the fewest acks again, without faults
    ... --keep DIR                                the run folders stay in DIR; finished ones are not run again
    ... --write FILE                              the tables go into FILE, each row as soon as it is known

Two runs at a time. Exit code 1 if a run is not valid (--strict), or has fewer than a fifth of the acks of the
same seed without faults.
"""

import argparse
import json
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

from floodmark.harness.faults import MENDING
from floodmark.harness.protocols import CONTROLLER
from floodmark.harness.run import write_whole
from floodmark.harness.schedule.entry import ACTS

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
                  valid=verdict["valid"] is True, findings=[found["name"] for found in verdict["findings"]])
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


def write(file: Path | None, parts: Iterable[str]) -> None:
    if file is not None:
        write_whole(file, ("\n\n".join(parts) + "\n").encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=40, help="how many seeds")
    parser.add_argument("--duration", type=float, default=30.0, help="seconds of each run")
    parser.add_argument("--beside", type=int, default=0, help="so many seeds again, without faults")
    parser.add_argument("--at-a-time", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--floodmark", type=Path, default=FLOODMARK)
    parser.add_argument("more", nargs="*", help="after `--`: further arguments of `floodmark run`")
    asked = parser.parse_args()
    more = ["--duration", f"{asked.duration:g}", *asked.more]
    run = [str(asked.floodmark), "run", *more]
    seeds = range(asked.first, asked.first + asked.count)
    about = f"Runs: `{' '.join(('--settings drawn --nemesis all --strict', *more))}`, " \
            f"seeds {seeds[0]} to {seeds[-1]}, {asked.at_a_time} at a time."
    runs: list[Healthy] = []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(asked.at_a_time) as pool:
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

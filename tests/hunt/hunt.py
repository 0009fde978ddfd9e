"""`make hunt`: measures which of the small bugs of bugs.toml random faults find, bug by bug.

    python tests/hunt/hunt.py                     all bugs: --nemesis all, at most three seeds of 40 s each
    python tests/hunt/hunt.py --fresh             its second list
    python tests/hunt/hunt.py --only NAME,...     some of them
    python tests/hunt/hunt.py --cluster simulated at most thirty seeds of 20 virtual seconds each, in growing
                                                  batches that are judged together
    ... --write FILE                              the table goes into FILE, each row as soon as it is known
    ... --floodmark PROGRAM                       the floodmark of another checkout
    ... -- --settings drawn                       further arguments of `floodmark run`

Two runs at a time. A bug is found by the first run that is invalid; no further seed is tried then. A row that
is in FILE already is not measured again, so a pass that was interrupted goes on. Seconds are real ones; those
of the simulated cluster are of CPU time, everything included. Exit code 0: it measures.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simulated_runs

from floodmark.harness.catalog import SIMULATED
from floodmark.harness.commands.campaign_processes import Worker
from floodmark.harness.run import write_whole

LISTS = tomllib.loads(Path(__file__).with_name("bugs.toml").read_text(encoding="utf-8"))
FLOODMARK = Path(sys.executable).parent / "floodmark"
HEAD = ("| bug | guess | area | found by | seed | runs | seconds | ended otherwise |\n"
        "|---|---|---|---|---|---|---|---|\n")
TIMEOUT_S = 600  # for one run and its judge, on a busy machine
_ROW = re.compile(r"^\| `(?P<bug>[^`]+)` \|.*$", re.MULTILINE)
_SHARE = re.compile(r"\n+Found [^\n]*\n?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A row of bugs.toml: `new` in the place of `old`, which is in `file` once."""

    name: str
    about: str
    area: str
    hard: int
    file: str
    old: str
    new: str

    def put_into(self, folder: Path, floodmark: Path) -> dict[str, str]:
        """Makes a package in the folder: floodmark's checkout with this bug in a copy of the broker. Returns
        the variables of processes that import it."""
        root, package = floodmark.absolute().parents[2], folder / "floodmark"
        package.mkdir(parents=True)
        for part in (root / ".tree" / "floodmark").iterdir():
            if part.name != "broker":
                (package / part.name).symlink_to(part.resolve())
        shutil.copytree(root / "docker" / "broker", package / "broker",
                        ignore=shutil.ignore_patterns("__pycache__"))
        path = package / Path(self.file).relative_to("docker")
        sound = path.read_text(encoding="utf-8")
        if sound.count(self.old) != 1:
            raise SystemExit(f"bug {self.name}: {sound.count(self.old)} times in {self.file}: {self.old!r}")
        path.write_text(sound.replace(self.old, self.new), encoding="utf-8")
        return {"PYTHONPATH": str(folder)}


BUGS, FRESH = ({name: Bug(name=name, **fields) for name, fields in LISTS[which].items()}
               for which in ("bugs", "fresh"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How every bug is hunted. more: further arguments of `floodmark run`."""

    floodmark: Path
    seeds: int
    duration_s: float
    more: tuple[str, ...]
    keep: Path | None  # the folder for the folders of all runs; None: they are deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One run. findings: names of its bugs; red: the reason for an end other than valid, without a
    finding."""

    findings: tuple[str, ...]
    red: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunted:
    """The result of a bug. seconds: from the first run's start to the verdict that found it, or the last."""

    bug: Bug
    findings: tuple[str, ...]
    seed: int | None
    runs: int
    seconds: float
    red: tuple[str, ...]  # the ends of earlier runs that were neither valid nor a find

    def row(self) -> str:
        found = ", ".join(self.findings) if self.findings else "**nothing**"
        seed = "" if self.seed is None else str(self.seed)
        return (f"| `{self.bug.name}` | {self.bug.hard} | {self.bug.area} | {found} | {seed} | {self.runs} "
                f"| {self.seconds:.0f} | {'; '.join(self.red)} |")


def hunted(one: Bug, ends: Iterable[tuple[int, Ended]], spent_s: Callable[[], float]) -> Hunted:
    """What comes of a bug's runs (seed, end), of which none is asked for after one with a finding."""
    red: list[str] = []
    runs = 0
    for runs, (seed, ended) in enumerate(ends, start=1):
        if ended.findings:
            return Hunted(bug=one, findings=ended.findings, seed=seed, runs=runs, seconds=spent_s(),
                          red=tuple(red))
        red += [] if ended.red is None else [ended.red]
    return Hunted(bug=one, findings=(), seed=None, runs=runs, seconds=spent_s(), red=tuple(red))


def hunt(one: Bug, plan: Plan) -> Hunted:
    """Runs until a verdict is invalid, or the seeds are used up."""
    began_s = time.monotonic()
    ends = ((seed, run(one, seed, plan)) for seed in seeds_of(one, plan.seeds))
    return hunted(one, ends, lambda: time.monotonic() - began_s)


def hunt_at_once(wanted: Iterable[Bug], plan: Plan, at_once: int, add: Callable[[Hunted], None]) -> None:
    """Hunts several bugs at once, each with `floodmark run`s of its own."""
    with ThreadPoolExecutor(at_once) as pool:
        hunts = [pool.submit(hunt, one, plan) for one in wanted]
        try:
            for done in as_completed(hunts):
                add(done.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def seeds_of(one: Bug, count: int) -> Sequence[int]:
    """The bug's seeds: the same ones in every pass, and no two bugs share any."""
    first = 1 + max(10, count) * [*BUGS, *FRESH].index(one.name)
    return range(first, first + count)


def run(one: Bug, seed: int, plan: Plan) -> Ended:
    """One `floodmark run` of brokers with this bug, and its verdict."""
    folder = Path(tempfile.mkdtemp(prefix=f"hunt-{one.name}-{seed}-", dir=plan.keep))
    environment = os.environ | one.put_into(folder / "wrong", plan.floodmark)
    verdict = folder / "verdict-of-the-run.json"
    command = [str(plan.floodmark), "run", "--nemesis", "all", "--duration", str(plan.duration_s),
               "--seed", str(seed), "--out", str(folder / "run"), "--json", str(verdict), *plan.more]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
                               check=False, stdin=subprocess.DEVNULL)
        return outcome(ended, verdict)
    except subprocess.TimeoutExpired:
        return Ended(findings=(), red=f"no end in {TIMEOUT_S} s")
    finally:
        if plan.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def outcome(ended: subprocess.CompletedProcess[str], verdict: Path) -> Ended:
    """The result of a `floodmark run` that has ended. Raises if it was no run at all (exit code 2)."""
    if ended.returncode == 2:
        raise SystemExit(f"{shlex.join(ended.args)}\n{ended.stderr}")
    if ended.returncode == 0:
        return Ended(findings=(), red=None)
    verdicts = [*json.loads(verdict.read_bytes()).values()] if verdict.exists() else []
    last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]  # if the judge has said nothing
    return judged_so(verdicts, f"exit {ended.returncode}: ", [] if any(
        judged["unknown"] for judged in verdicts) else last)


def judged_so(verdicts: Sequence[Mapping[str, Any]], head: str, why: Sequence[str]) -> Ended:
    """What was found, or else the reasons for a cell of the table: why, or those of the verdicts."""
    if found := tuple(dict.fromkeys(one["name"] for judged in verdicts for one in judged["findings"]
                                    if one["class"] == "bug")):
        return Ended(findings=found, red=None)
    reasons = why or [one["reason"] for judged in verdicts for one in judged["unknown"]]
    return Ended(findings=(), red=head + " / ".join(one[:120].replace("|", "/") for one in reasons))


# -- simulated runs -----------------------------------------------------------------------------------------


async def hunt_simulated(wanted: Iterable[Bug], plan: Plan, at_once: int, add: Callable[[Hunted], None]
                         ) -> None:
    """Hunts one bug after the other."""
    with tempfile.TemporaryDirectory(prefix="hunt-") as scratch:
        parent = plan.keep or Path(scratch)
        async with simulated_runs.started_judge(Path(scratch)) as judge:
            for one in wanted:
                folder = parent / one.name
                folder.mkdir(parents=True)
                add(await hunt_in_batches(one, plan, judge, folder, at_once))
                if plan.keep is None:
                    shutil.rmtree(folder)


async def hunt_in_batches(one: Bug, plan: Plan, judge: Worker, folder: Path, at_once: int) -> Hunted:
    """Runs and judges batches of the bug's seeds until a verdict is invalid."""
    began_s, ends = simulated_runs.cpu_s(), list[tuple[int, Ended]]()
    wrong = one.put_into(folder / "wrong", plan.floodmark)
    async with simulated_runs.player_with(folder, wrong) as player:
        for seeds in simulated_runs.growing_batches(seeds_of(one, plan.seeds), at_once):
            whys = await simulated_runs.played(
                player, seeds, folder, duration_s=plan.duration_s, at_once=at_once)
            await simulated_runs.judge_runs(judge, seeds, folder)
            ends += [(seed, simulated_outcome(folder / str(seed) / "verdict.json", why))
                     for seed, why in zip(seeds, whys, strict=True)]
            if any(ended.findings for _, ended in ends):
                break
        return hunted(one, ends, lambda: simulated_runs.cpu_s() - began_s)


def simulated_outcome(verdict: Path, why: str | None) -> Ended:
    """The result of one run. why: the reason if it could not be made."""
    verdicts = [json.loads(verdict.read_bytes())] if verdict.exists() else []
    if why is None and verdicts and verdicts[0]["valid"] is True:
        return Ended(findings=(), red=None)
    return judged_so(verdicts, "", [] if why is None else [why])


# -- the table ----------------------------------------------------------------------------------------------


def summary(rows: Iterable[str]) -> str:
    """The share of bugs found, and the median of their seconds, from the table's own rows."""
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    found = [float(row[6]) for row in cells if row[3] != "**nothing**"]
    red = sum(1 for row in cells if row[3] == "**nothing**" and row[7])
    median = f"; median {statistics.median(found):.0f} s to the verdict" if found else ""
    return (f"Found {len(found)} of {len(cells)}{median}. {red} more ended red without a finding, "
            f"{len(cells) - len(found) - red} passed.")


class Table:
    """The rows of one pass, in a file if there is one; written after each bug."""

    def __init__(self, file: Path | None, about: str) -> None:
        self._file = file
        self._about = about
        self.rows: dict[str, str] = {}
        if file is not None and file.exists():
            text = file.read_text(encoding="utf-8")
            self.rows = {match["bug"]: match[0] for match in _ROW.finditer(text)}
            self._about = _SHARE.sub("", text.partition(HEAD)[0]).rstrip("\n") or about

    def add(self, one: Hunted) -> None:
        self.rows[one.bug.name] = one.row()
        if self._file is not None:
            rows = [self.rows[name] for name in (*BUGS, *FRESH) if name in self.rows]
            text = f"{self._about}\n\n{HEAD}" + "\n".join(rows) + f"\n\n{summary(rows)}\n"
            write_whole(self._file, text.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="those of the second list")
    parser.add_argument("--only", default="", help="names of bugs, with commas")
    parser.add_argument("--write", type=Path, help="the file of the table")
    parser.add_argument("--floodmark", type=Path, default=FLOODMARK)
    parser.add_argument("--cluster", choices=("local", SIMULATED), default="local")
    parser.add_argument("--seeds", type=int, help="runs of each bug, at most: 3, simulated 30")
    parser.add_argument("--duration", type=float, help="seconds of each run: 40, simulated 20")
    parser.add_argument("--at-a-time", type=int, help="2; simulated as many as cores")
    parser.add_argument("--keep", type=Path, help="a folder for the folders of all runs")
    parser.add_argument("more", nargs="*", help="after `--`: further arguments of `floodmark run`")
    asked = parser.parse_args()
    only = [name for name in asked.only.split(",") if name]
    listed = FRESH if asked.fresh else BUGS
    if unknown := [name for name in only if name not in listed]:
        raise SystemExit(f"no bug {unknown[0]!r}; there are: {', '.join(listed)}")
    simulated = asked.cluster == SIMULATED
    if simulated and asked.more:
        parser.error("--cluster simulated takes no further arguments of `floodmark run`")
    at_a_time = asked.at_a_time or (simulated_runs.CORES if simulated else 2)
    plan = Plan(floodmark=asked.floodmark, seeds=asked.seeds or (30 if simulated else 3),
                duration_s=asked.duration or (simulated_runs.DURATION_S if simulated else 40.0),
                more=simulated_runs.OPTIONS if simulated else tuple(asked.more), keep=asked.keep)
    table = Table(asked.write, "Runs: `" + " ".join(("--nemesis all", f"--duration {plan.duration_s:g}",
                                                    *plan.more)) + f"`, {at_a_time} at a time.")
    wanted = [one for name, one in listed.items() if name not in table.rows and (not only or name in only)]

    def add(hunted: Hunted) -> None:
        table.add(hunted)
        print(f"{len(table.rows):3} {hunted.row()}", flush=True)

    if simulated:
        asyncio.run(hunt_simulated(wanted, plan, at_a_time, add))
    else:
        hunt_at_once(wanted, plan, at_a_time, add)
    print(summary(table.rows.values()))


if __name__ == "__main__":
    main()

"""`make soak`: judges random run folders by the ten thousand, a thousand in one call, as beside_twin.py says.

    python tests/soak/soak.py --histories 20000 --mutated 100000 --seed 1      all of it (tests/support is
                                                                               on PYTHONPATH)
    python tests/soak/soak.py --only mutated --from 41000 --mutated 500        some of it, or on from there

    partitions  one run of a million partitions, one of them damaged: time and memory

Wrong folders are kept and named, all others are deleted. Whatever the judge does, a batch ends: an exception
is narrowed down to the folder that causes it; a call that does not return ends the soak, which has printed
where to go on. Exit code 1 if anything is wrong.
"""

import argparse
import ctypes
import faulthandler
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from beside_twin import Asked, make, wrong
from soak_wide import wide

from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.spark.session import context
from floodmark.harness.verdict import Verdict

CAMPAIGNS = {"histories": 20_000, "mistyped": 10_000, "mutated": 100_000}
PARTITIONS = 1_000_000
BATCH = 1000  # folders in one call
HANGS_AFTER_S, A_FOLDER_S = 300, 3  # time for a batch, and additional time for each folder
PR_SET_PDEATHSIG = 1


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counts of a campaign so far."""

    campaign: str
    folders: int = 0
    judging_s: float = 0
    elapsed_s: float = 0
    wrongs: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)

    def line(self) -> str:
        rate = self.folders / max(self.elapsed_s, 1e-9)
        judged = self.folders / max(self.judging_s, 1e-9)
        found = ", ".join(f"{count} {what}" for what, count in sorted(self.wrongs.items())) or "nothing wrong"
        return (f"{self.campaign}: {self.folders:,} folders in {self.elapsed_s:,.0f} s, {rate:.1f}/s "
                f"({judged:.1f}/s while judging): {found}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """Runs campaigns in a working folder, and keeps wrong folders in another one."""

    work: Path
    kept: Path
    seed: str
    batch: int

    def run(self, campaign: str, first: int, count: int) -> Tally:
        """Judges the numbers from `first` on; prints one line for each batch."""
        tally, began = Tally(campaign=campaign), time.monotonic()
        with makers() as pool:
            for start in range(first, first + count, self.batch):
                numbers = range(start, min(start + self.batch, first + count))
                self.one_batch(tally, numbers, pool)
                tally.elapsed_s = time.monotonic() - began
                print(f"{tally.line()}; {memory()}; next: --only {campaign} --from {numbers.stop}",
                      flush=True)
        return tally

    def one_batch(self, tally: Tally, numbers: range, pool: ProcessPoolExecutor) -> None:
        root = self.work / tally.campaign
        root.mkdir(parents=True)
        batch = list(pool.map(partial(make, tally.campaign, self.seed, root), numbers, chunksize=20))
        faulthandler.dump_traceback_later(HANGS_AFTER_S + A_FOLDER_S * len(batch), exit=True)
        began = time.monotonic()
        verdicts = judged([asked.path for asked in batch])
        faulthandler.cancel_dump_traceback_later()
        tally.judging_s += time.monotonic() - began
        tally.folders += len(batch)
        for asked, verdict in zip(batch, verdicts, strict=True):
            if found := list(wrong(asked, verdict)):
                self.keep(tally, asked, found)
        shutil.rmtree(root)

    def keep(self, tally: Tally, asked: Asked, found: Sequence[str]) -> None:
        """Copies the folder away, and prints what is wrong."""
        place = self.kept / f"{tally.campaign}-{self.seed}-{asked.number}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(asked.path, place)
        tally.wrongs.update(one.partition(":")[0] for one in found)
        tally.kept.append(str(place))
        print(f"WRONG {place}: {asked.story}", *found, sep="\n  ", flush=True)


def makers() -> ProcessPoolExecutor:
    """Processes that end with this one, however it ends. A fork would inherit the JVM's pipes."""
    return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), end_with_parent)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def judged(paths: Sequence[Path]) -> list[Verdict | str]:
    """A verdict for each folder, or the traceback in its place; never an exception."""
    try:
        return [*SparkJudge().judge(paths)]
    except Exception:
        if len(paths) == 1:
            return [traceback.format_exc(limit=-3, chain=False)]
        middle = len(paths) // 2
        return [*judged(paths[:middle]), *judged(paths[middle:])]


def memory() -> str:
    """The most memory that this process and its children have used so far."""
    most: Counter[str] = Counter()
    mine = str(multiprocessing.current_process().pid)
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            if mine in (fields["Pid"], fields["PPid"]) and "VmHWM" in fields:
                name = fields["Name"]
                most[name] = max(most[name], int(fields["VmHWM"].split()[0]) >> 10)
    return ", ".join(f"{name} {megabytes:,} MB" for name, megabytes in most.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for campaign, count in CAMPAIGNS.items():
        parser.add_argument(f"--{campaign}", type=int, default=count, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="NUMBER")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, metavar="N")
    parser.add_argument("--only", default=",".join((*CAMPAIGNS, "partitions")))
    parser.add_argument("--keep", type=Path, help="where folders go that something is wrong with")
    options = parser.parse_args()
    kept = options.keep or Path(tempfile.gettempdir()) / f"floodmark-soak-{options.seed}"
    kept.mkdir(parents=True, exist_ok=True)
    began, tallies = time.monotonic(), []
    context()
    with tempfile.TemporaryDirectory(prefix="floodmark-soak-") as work:
        soak = Soak(work=Path(work), kept=kept, seed=options.seed, batch=options.batch)
        for campaign in CAMPAIGNS:
            if campaign in options.only.split(","):
                tallies.append(soak.run(campaign, options.first, getattr(options, campaign)))
        asked = "partitions" in options.only.split(",")
        failed = asked and not many_partitions(Path(work), options.partitions)
    print(f"seed {options.seed}, batches of {options.batch}, {time.monotonic() - began:,.0f} s")
    for tally in tallies:
        print(tally.line())
    folders = [folder for tally in tallies for folder in tally.kept]
    print(*(f"kept: {folder}" for folder in folders), sep="\n")
    return 1 if folders or failed else 0


def many_partitions(work: Path, partitions: int) -> bool:
    """Whether the one damage is found, and nothing else."""
    folder, began = wide(work / "wide", partitions=partitions), time.monotonic()
    (verdict,) = SparkJudge().judge([folder])
    found = [(one.name, one.klass, one.count) for one in verdict.findings]
    good = found == [("lost-write", "bug", 1)] and not verdict.unknown
    print(f"partitions: {partitions:,} in {time.monotonic() - began:,.0f} s, {memory()}: "
          f"{'nothing wrong' if good else f'WRONG {found} {verdict.unknown[:3]}'}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())

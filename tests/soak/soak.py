"""`make soak`: judges random run folders by the ten thousand, a thousand in one call, as beside_twin.py says.

    python tests/soak/soak.py --histories 20000 --mutated 100000 --seed 1      all of it (tests/support and
                                                                               tests/twin on PYTHONPATH)
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
class Campaign:
    """One kind of folders, and its counts so far."""

    name: str
    seed: str
    work: Path
    kept: Path  # where folders go that something is wrong with
    folders: int = 0
    judging_s: float = 0
    began_s: float = field(default_factory=time.monotonic)
    wrongs: Counter[str] = field(default_factory=Counter)
    wrong_folders: list[Path] = field(default_factory=list)

    def line(self) -> str:
        took_s = time.monotonic() - self.began_s
        found = ", ".join(f"{count} {what}" for what, count in sorted(self.wrongs.items())) or "nothing wrong"
        return (f"{self.name}: {self.folders:,} folders in {took_s:,.0f} s "
                f"({self.judging_s:,.0f} s of them judging): {found}")

    def run(self, numbers: range, batch: int) -> None:
        """Prints one line for each batch."""
        with makers() as pool:
            for start in numbers[::batch]:
                self.one_batch(range(start, min(start + batch, numbers.stop)), pool)
                print(f"{self.line()}; {memory()}; next: --only {self.name} --from {start + batch}",
                      flush=True)

    def one_batch(self, numbers: range, pool: ProcessPoolExecutor) -> None:
        root = self.work / self.name
        root.mkdir(parents=True)
        batch = list(pool.map(partial(make, self.name, self.seed, root), numbers, chunksize=20))
        faulthandler.dump_traceback_later(HANGS_AFTER_S + A_FOLDER_S * len(batch), exit=True)
        began_s = time.monotonic()
        verdicts = judged([asked.path for asked in batch])
        faulthandler.cancel_dump_traceback_later()
        self.judging_s += time.monotonic() - began_s
        self.folders += len(batch)
        for asked, verdict in zip(batch, verdicts, strict=True):
            if found := list(wrong(asked, verdict)):
                self.keep(asked, found)
        shutil.rmtree(root)

    def keep(self, asked: Asked, found: Sequence[str]) -> None:
        """Copies the folder away, and prints what is wrong."""
        place = self.kept / f"{self.name}-{self.seed}-{asked.number}"
        shutil.copytree(asked.path, place, dirs_exist_ok=True)
        self.wrongs.update(one.partition(":")[0] for one in found)
        self.wrong_folders.append(place)
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
    began, only, campaigns = time.monotonic(), options.only.split(","), []
    context()
    with tempfile.TemporaryDirectory(prefix="floodmark-soak-") as work:
        for name in [name for name in CAMPAIGNS if name in only]:
            campaigns.append(Campaign(name=name, seed=options.seed, work=Path(work), kept=kept))
            campaigns[-1].run(range(options.first, options.first + getattr(options, name)), options.batch)
        failed = "partitions" in only and not many_partitions(Path(work), options.partitions)
    print(f"seed {options.seed}, batches of {options.batch}, {time.monotonic() - began:,.0f} s")
    folders = [folder for campaign in campaigns for folder in campaign.wrong_folders]
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

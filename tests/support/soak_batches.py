"""Runs a campaign of the soak: one process makes batches, another judges them; wrong folders are kept and
named.

Rules kept here:
1. One batch is made ahead, never more; a batch is deleted after it has been judged.
2. Whatever the judge does, a batch ends: an exception is narrowed down to the folder that causes it; a call
   that does not return ends the soak, which prints where to go on.
"""

import multiprocessing
import os
import shutil
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import soak_work
from soak_laws import MISTYPED, TAMPERING, beside_twin, broken, broken_base, comparable, failures
from soak_work import Asked
from twin_compare import as_dict, spoken

from floodmark.harness.verdict import Verdict

MAKERS = {
    "histories": soak_work.histories, "mistyped": soak_work.mistyped, "mutated": soak_work.mutated,
}
HANGS_AFTER_S, A_FOLDER_S = 300, 3  # time for a batch, and additional time for each folder


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counts of a campaign so far."""

    campaign: str
    folders: int = 0
    judging_s: float = 0
    elapsed_s: float = 0
    kinds: Counter[str] = field(default_factory=Counter)
    wrongs: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)

    def line(self) -> str:
        rate = self.folders / max(self.elapsed_s, 1e-9)
        judged = self.folders / max(self.judging_s, 1e-9)
        wrong = ", ".join(f"{count} {what}" for what, count in sorted(self.wrongs.items())) or "nothing wrong"
        return (f"{self.campaign}: {self.folders:,} folders in {self.elapsed_s:,.0f} s, {rate:.1f}/s "
                f"({judged:.1f}/s while judging): {wrong}")


def make(campaign: str, seed: str, first: int, count: int, root: Path) -> list[Asked]:
    """Makes a batch on disk, in the maker's process."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return MAKERS[campaign](seed, first, count, root)


def end_with_parent() -> None:
    """Ends the maker with its soak: it would wait for work for ever if the soak were killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def await_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=await_it, daemon=True).start()


class Soak:
    """Runs campaigns in a working folder, and keeps wrong folders in another one."""

    def __init__(self, work: Path, kept: Path, *, seed: str, batch: int, inline: bool = False) -> None:
        self.work, self.kept, self.seed, self.batch, self.inline = work, kept, seed, batch, inline

    def run(self, campaign: str, first: int, count: int) -> Tally:
        """Judges the numbers from `first` on; prints one line for each batch."""
        tally, began = Tally(campaign=campaign), time.monotonic()
        for start, batch in self.batches(campaign, first, count):
            size = sum(asked.kind != "base" and asked.again < 0 for asked in batch)
            where = f"{campaign} --seed {self.seed} --from {start}"
            with ends(where, HANGS_AFTER_S + A_FOLDER_S * len(batch)):
                began_judging = time.monotonic()
                verdicts = judged([asked.path for asked in batch])
                tally.judging_s += time.monotonic() - began_judging
            tally.folders += size
            tally.kinds.update(asked.kind for asked in batch)
            for asked, laws_broken in wrongs(batch, verdicts):
                self.keep(tally, batch, asked, laws_broken)
            shutil.rmtree(batch[0].path.parent, ignore_errors=True)
            tally.elapsed_s = time.monotonic() - began
            memory = ", ".join(f"{name} {megabytes:,} MB" for name, megabytes in memory_mb().items())
            print(f"{tally.line()}; {memory}; next: --only {campaign} --from {start + size}", flush=True)
        return tally

    def batches(self, campaign: str, first: int, count: int) -> Iterator[tuple[int, list[Asked]]]:
        """Each batch with its first number, while the next one is being made."""
        starts = [(start, min(self.batch, first + count - start))
                  for start in range(first, first + count, self.batch)]
        roots = [self.work / f"{campaign}-{number % 2}" for number in range(len(starts))]
        if self.inline:
            for (start, size), root in zip(starts, roots, strict=True):
                yield start, make(campaign, self.seed, start, size, root)
            return
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit the JVM's pipes
        with ProcessPoolExecutor(1, spawn, end_with_parent) as maker:
            ahead: Future[list[Asked]] | None = None
            for number, (start, size) in enumerate(starts):
                ahead = ahead or maker.submit(make, campaign, self.seed, start, size, roots[number])
                batch, ahead = ahead.result(), None
                if number + 1 < len(starts):
                    ahead = maker.submit(make, campaign, self.seed, *starts[number + 1], roots[number + 1])
                yield start, batch

    def keep(self, tally: Tally, batch: Sequence[Asked], asked: Asked, laws_broken: Sequence[str]) -> None:
        """Moves the folder (with a copy of the folder it was made from) away, and prints what is wrong."""
        name = f"{tally.campaign}-{self.seed}-{asked.number}"
        place = self.kept / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(asked.path, place, symlinks=True)
        if asked.base >= 0:
            shutil.rmtree(self.kept / f"{name}.base", ignore_errors=True)
            shutil.copytree(batch[asked.base].path, self.kept / f"{name}.base")
        tally.wrongs.update(one.partition(":")[0] for one in laws_broken)
        tally.kept.append(str(place))
        print(f"WRONG {place}: {asked.story}", *laws_broken, sep="\n  ", flush=True)


def judged(paths: Sequence[Path]) -> list[Verdict | str]:
    """A verdict for each folder, or the traceback in its place; never an exception."""
    from floodmark.checkers.judge.job import SparkJudge

    try:
        verdicts: list[Verdict | str] = list(SparkJudge().judge(paths))
    except Exception:
        if len(paths) == 1:
            return [traceback.format_exc(limit=-3, chain=False)]
        middle = len(paths) // 2
        return [*judged(paths[:middle]), *judged(paths[middle:])]
    if len(verdicts) != len(paths):
        return [f"{len(verdicts)} verdicts for {len(paths)} folders"] * len(paths)
    return verdicts


def wrongs(batch: Sequence[Asked], verdicts: Sequence[Verdict | str]) -> Iterator[tuple[Asked, list[str]]]:
    """The folders that break a law, with the laws."""
    for asked, verdict in zip(batch, verdicts, strict=True):
        if isinstance(verdict, str):
            yield asked, [f"traceback: {verdict}"]
        elif laws_broken := list(wrong(asked, verdict, batch, verdicts)):
            yield asked, laws_broken


def wrong(asked: Asked, verdict: Verdict, batch: Sequence[Asked], verdicts: Sequence[Verdict | str]
          ) -> Iterator[str]:
    if asked.kind == "history":
        yield from broken_base(asked.must, verdict)
        mine = spoken(as_dict(verdict))
        if asked.wanted != mine:
            yield f"difference:\n    twin  {asked.wanted}\n    judge {mine}"
        return
    if asked.kind == MISTYPED:
        yield from failures(verdict)
        twin_answered = isinstance(asked.wanted, tuple)
        yield from beside_twin(asked.wanted, spoken(as_dict(verdict))) if twin_answered else [asked.wanted]
        return
    if asked.kind == "base":
        yield from broken_base(asked.must, verdict)
        return
    base, files = verdicts[asked.base], batch[asked.base].files
    if isinstance(base, str) or files is None:
        return  # reported for the base
    yield from broken(asked.kind, asked.touched, files, base, verdict)
    first = verdicts[asked.again] if asked.again >= 0 else None
    if asked.kind == TAMPERING and isinstance(first, Verdict) and comparable(first) != comparable(verdict):
        yield f"another verdict of the same folder: {comparable(first)}, then {comparable(verdict)}"


def memory_mb() -> dict[str, int]:
    """The most memory that this process and its children have used so far, by name."""
    most: dict[str, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
        except OSError:
            continue
        if str(os.getpid()) in (fields["Pid"].strip(), fields["PPid"].strip()) and "VmHWM" in fields:
            name = fields["Name"].strip()
            most[name] = max(most.get(name, 0), int(fields["VmHWM"].split()[0]) >> 10)
    return most


@contextmanager
def ends(where: str, timeout_s: float) -> Iterator[None]:
    """Ends the process, with its JVM, if the body does not return in time."""
    def end() -> None:
        print(f"WRONG no verdict in {timeout_s:,.0f} s: {where}", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

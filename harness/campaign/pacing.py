"""How long what is still to be done will take, by what a campaign has seen; whether a run has time. Pure.

A campaign's time is over when its last verdict stands, and not when its last run was begun: behind the runs
of a batch come its judging, the ledger and the pages, and the reproductions of what it found.

Rules
1. What was seen goes before a guess: runs by their case, judging by seconds a run, what comes behind a batch
   by the batches before. The latest count, for the machine's load changes over a night.
2. A run takes as long as the longest of the latest of its case. What is left of the time because most are
   shorter is the next batch's.
3. How many new causes a batch will bring is Good's and Turing's estimate: of the runs so far, the share
   whose cause was seen just once. For those the time of their reproductions is kept free; only the first
   round of a batch goes before it, for clusters that stand idle find nothing at all.
4. The first run asks for its own time alone: until it was made there is nothing to go by.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.harness.campaign.cases import Case
from floodmark.harness.campaign.journal import FAILED, JUDGED, RECORDED, REPRODUCED, State

SETTLING_S = 15.0  # what a run takes besides its load, until one was seen
JUDGE_S = 5.0  # what judging takes a run, until a batch was seen
AFTER_S = 5.0  # what ledger and pages take behind a batch, until one was seen
ENDING_S = 2.0  # until the judge's process has ended
LATEST = 5  # runs of a case; batches
LATEST_JUDGED = 20  # runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What was seen, in seconds."""

    judge_s: float = JUDGE_S  # a run's share of its batch's judging
    after_s: float = AFTER_S  # ledger and pages, behind a batch's judging
    besides_s: float = SETTLING_S  # what a run takes besides its load
    by_case: Mapping[Case, float] = field(default_factory=dict)  # a run of this case
    new_per_run: float = 0.0  # causes that nobody has seen yet, expected of a run more
    has_seen: bool = False  # whether any run was made

    def of_run(self, case: Case) -> float:
        """Seconds that a run of this case will take."""
        return self.by_case.get(case, case.duration + self.besides_s)


def pace_of(state: State, causes: Iterable[int], after_s: Sequence[float]) -> Pace:
    """causes: of each cause that was found, how many runs have shown it; after_s: what the ledger and the
    pages took behind each batch of this session, which no line says."""
    took: dict[Case, deque[float]] = {}
    besides: deque[float] = deque(maxlen=LATEST_JUDGED)
    judged: deque[float] = deque(maxlen=LATEST_JUDGED)
    for line in state.lines:
        if line["event"] in (RECORDED, FAILED) and line.get("took_s") is not None:
            case, took_s = state.runs[int(line["run"])].case, float(line["took_s"])
            took.setdefault(case, deque(maxlen=LATEST)).append(took_s)
            if case.scenario is None:  # a scenario takes its steps' time, whatever its load's is
                besides.append(max(0.0, took_s - case.duration))
        elif line["event"] in (JUDGED, REPRODUCED) and line.get("judge_s") is not None:
            judged.append(float(line["judge_s"]))
    runs = sum(run.judged is not None for run in state.runs.values())
    return Pace(
        judge_s=sum(judged) / len(judged) if judged else JUDGE_S,
        after_s=max(after_s[-LATEST:], default=AFTER_S),
        besides_s=max(besides, default=SETTLING_S),
        by_case={case: max(times) for case, times in took.items()},
        new_per_run=Counter(causes)[1] / runs if runs else 0.0,
        has_seen=bool(took),
    )


@dataclass(slots=True)
class Batch:
    """Runs that are to be played side by side and judged then, as far as they were chosen. left_s: what is
    left of the campaign's time; reproduce: how often each new cause is to be had again."""

    pace: Pace
    at_once: int
    left_s: float
    reproduce: int = 0
    runs: int = 0
    reserved_s: float = 0.0  # for the reproductions of what it may find
    _free_s: list[float] = field(init=False)  # a heap: when each of the clusters side by side is free again

    def __post_init__(self) -> None:
        self._free_s = [0.0] * self.at_once

    def has_time_for(self, run_s: float, *, draw: bool = True) -> bool:
        """Whether a run of so many seconds can be added. draw: it may find something new, as no reproduction
        does."""
        played_s = max(*self._free_s, self._free_s[0] + run_s)
        if not self.pace.has_seen and not self.runs:
            return played_s <= self.left_s
        judged_s = (self.runs + 1) * self.pace.judge_s + self.pace.after_s
        reserved_s = self.reserved_s + (self._reserve(run_s) if draw else 0.0)
        if self.runs < self.at_once:
            reserved_s = 0.0
        return played_s + judged_s + reserved_s + ENDING_S <= self.left_s

    def add(self, run_s: float, *, draw: bool = True) -> None:
        """Whichever cluster is free first plays it."""
        heapq.heapreplace(self._free_s, self._free_s[0] + run_s)
        self.runs += 1
        self.reserved_s += self._reserve(run_s) if draw else 0.0

    @property
    def free_s(self) -> float:
        """When the first of the clusters has nothing to do any more."""
        return self._free_s[0]

    def _reserve(self, run_s: float) -> float:
        each_s = run_s / self.at_once + self.pace.judge_s
        return self.pace.new_per_run * self.reproduce * each_s

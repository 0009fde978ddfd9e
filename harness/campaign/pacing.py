"""Estimates how long a campaign's next runs will take, and decides whether there is time for one more. Pure.

All verdicts must be done before a campaign's time is over, not only the runs: each batch of runs is followed
by its judging, by updates of the ledger and the pages, and by reproductions of what it found.

Rules
1. Estimates use measured times where there are any: of runs by case, of judging by seconds per run, of the
   work after a batch by earlier batches. Only the latest count, because the machine's load changes over a
   night.
2. A run is expected to take as long as the longest of its case's latest runs. Most are shorter; the time
   saved is used by the next batch.
3. The number of new causes in a batch is estimated as by Good and Turing: the share of runs so far whose
   cause was seen exactly once. Time for their reproductions is reserved, except in the first round of a
   batch, because idle clusters find nothing.
4. The first run needs only its own time, because nothing has been measured yet.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.harness.campaign.journal import FAILED, JUDGED, RECORDED, REPRODUCED, State
from floodmark.harness.spec import RunSpec

# Estimates that are used until something was measured:
SETTLING_S = 15.0  # a run's time besides its load
JUDGE_S = 5.0  # the judging of a run
AFTER_S = 5.0  # ledger and pages, after a batch
ENDING_S = 2.0  # until the judge's process has ended
LATEST = 5  # so many runs of a case, or batches, count
LATEST_JUDGED = 20  # so many judged runs count


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The measured times of a campaign, in seconds."""

    judge_s: float = JUDGE_S  # a run's share of its batch's judging
    after_s: float = AFTER_S  # ledger and pages, after a batch's judging
    besides_s: float = SETTLING_S  # a run's time besides its load
    by_case: Mapping[RunSpec, float] = field(default_factory=dict)  # a run of this case
    new_per_run: float = 0.0  # expected number of new causes in one more run
    has_run: bool = False  # whether any run was made

    def of_run(self, case: RunSpec) -> float:
        """The expected seconds of a run of this case."""
        return self.by_case.get(case, case.duration + self.besides_s)


def pace_of(state: State, causes: Iterable[int], after_s: Sequence[float]) -> Pace:
    """Compute the pace of a campaign. causes: for each cause found, the number of runs that showed it.
    after_s: the time for ledger and pages after each batch of this session, which the journal does not
    have."""
    took: dict[RunSpec, deque[float]] = {}
    besides: deque[float] = deque(maxlen=LATEST_JUDGED)
    judged: deque[float] = deque(maxlen=LATEST_JUDGED)
    for line in state.lines:
        if line["event"] in (RECORDED, FAILED) and line.get("took_s") is not None:
            case, took_s = state.runs[int(line["run"])].case, float(line["took_s"])
            took.setdefault(case, deque(maxlen=LATEST)).append(took_s)
            if case.scenario is None:  # the time of a scenario is that of its steps, not of its load
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
        has_run=bool(took),
    )


@dataclass(slots=True)
class Batch:
    """The runs chosen so far that will be made side by side and then judged. left_s: the campaign's remaining
    time. reproduce: how often each new cause will be reproduced."""

    pace: Pace
    at_once: int
    left_s: float
    reproduce: int = 0
    runs: int = 0
    reserved_s: float = 0.0  # for reproductions of what it may find
    _free_s: list[float] = field(init=False)  # a heap: the time at which each of the clusters is free again

    def __post_init__(self) -> None:
        self._free_s = [0.0] * self.at_once

    def has_time_for(self, run_s: float, *, draw: bool = True) -> bool:
        """Whether a run of so many seconds can be added. draw: it is a new run, which may find something new,
        and no reproduction."""
        played_s = max(*self._free_s, self._free_s[0] + run_s)
        if not self.pace.has_run and not self.runs:
            return played_s <= self.left_s
        judged_s = (self.runs + 1) * self.pace.judge_s + self.pace.after_s
        reserved_s = self.reserved_s + (self._reserve(run_s) if draw else 0.0)
        if self.runs < self.at_once:
            reserved_s = 0.0
        return played_s + judged_s + reserved_s + ENDING_S <= self.left_s

    def add(self, run_s: float, *, draw: bool = True) -> None:
        """Add a run, for the cluster that is free first."""
        heapq.heapreplace(self._free_s, self._free_s[0] + run_s)
        self.runs += 1
        self.reserved_s += self._reserve(run_s) if draw else 0.0

    @property
    def free_s(self) -> float:
        """The time at which the first cluster has nothing left to do."""
        return self._free_s[0]

    def _reserve(self, run_s: float) -> float:
        each_s = run_s / self.at_once + self.pace.judge_s
        return self.pace.new_per_run * self.reproduce * each_s

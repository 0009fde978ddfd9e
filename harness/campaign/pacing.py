"""Decides which runs make a batch: they are played side by side, and then judged together.

Rules
1. A batch is what the clusters play in an eighth of the campaign's time (one to four minutes), reproductions
   of new bugs first; the campaign's very first run is a batch of its own, to be measured.
2. A run is added if the time left is enough for playing the batch, for judging it, and for reproducing as
   many new bugs as so many runs have shown until now, by the times that the latest ones have taken.
"""

import heapq
from dataclasses import dataclass, field

from floodmark.harness.campaign.state import State, case_of
from floodmark.harness.spec import RunSpec

# Estimates that are used until something was measured:
SETTLING_S = 15.0  # a run's time besides its load
JUDGE_S = 5.0  # the judging of a run
AFTER_S = 5.0  # ledger and pages, after a batch
ENDING_S = 2.0  # until the judge's process has ended
TOOK = """
SELECT spec, max(took_s) FROM (
    SELECT spec, took_s, row_number() OVER (PARTITION BY spec ORDER BY number DESC) AS age
    FROM runs WHERE took_s IS NOT NULL)
WHERE age <= 5 GROUP BY spec
"""
JUDGED = "SELECT avg(judge_s) FROM (SELECT judge_s FROM runs WHERE judge_s > 0 ORDER BY number DESC LIMIT 20)"
RUNS = "SELECT count(judged) FROM runs"


@dataclass(slots=True, kw_only=True)
class Batch:
    """The runs chosen so far, and what they are expected to take."""

    state: State
    at_once: int
    left_s: float  # of the campaign's time
    reproduce: int = 0  # how often each new bug is reproduced
    after_s: float = AFTER_S
    runs: int = 0
    draws: int = 0  # of them: new runs, which may find something
    took_s: dict[RunSpec, float] = field(init=False)  # case -> the longest of its latest runs
    judge_s: float = field(init=False)  # of a run
    bugs_per_run: float = field(init=False)
    free_s: list[float] = field(init=False)  # a heap: when each of the clusters is free again

    def __post_init__(self) -> None:
        self.took_s = {case_of(spec): took_s for spec, took_s in self.state.select(TOOK)}
        ((judge_s,),), ((judged,),) = self.state.select(JUDGED), self.state.select(RUNS)
        self.judge_s = judge_s or JUDGE_S
        self.bugs_per_run = self.state.bugs / max(judged, 1)
        self.free_s = [0.0] * self.at_once

    def expected_s(self, case: RunSpec) -> float:
        """The seconds of a run of this case. Those of a scenario are its steps', not its load's."""
        besides_s = [took_s - each.duration for each, took_s in self.took_s.items() if each.scenario is None]
        return self.took_s.get(case) or case.duration + max(0.0, max(besides_s, default=SETTLING_S))

    def has_time_for(self, case: RunSpec, *, draw: bool = True) -> bool:
        """Whether a run of this case can be added; draw: it is no reproduction."""
        run_s = self.expected_s(case)
        played_s = max(*self.free_s, self.free_s[0] + run_s)
        if not self.took_s and not self.runs:
            return played_s <= self.left_s  # nothing was measured yet
        judged_s = (self.runs + 1) * self.judge_s + self.after_s + ENDING_S
        again_s = (self.draws + draw) * self.bugs_per_run * self.reproduce * (
            run_s / self.at_once + self.judge_s)
        if self.runs < self.at_once:
            again_s = 0.0  # clusters that idle find nothing at all
        return played_s + judged_s + again_s <= self.left_s

    def add(self, case: RunSpec, *, draw: bool = True) -> None:
        """Add a run, for the cluster that is free first."""
        heapq.heapreplace(self.free_s, self.free_s[0] + self.expected_s(case))
        self.runs += 1
        self.draws += draw

"""Defines what each run of a campaign tests, and the order of the runs. Pure.

Rules
1. The n-th run of a plan is the same in every process: its case and its seed depend only on the plan and the
   campaign's seed. So a campaign that was killed continues with the runs that would have come next.
2. Whenever a campaign stops, each case has had its share of the runs, as exactly as a number of runs allows.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.harness.spec import TYPES, RunSpec, converted

SEEDS = 1 << 31
# The fields of a case in a campaign's files, and what they are called there: `said` is what the plan sets.
CASE_KEYS = ("rules", "bugs", "cluster", "nodes", "links", "workload", "concurrency", "rate", "kafka",
             "partitions", "replication_factor", "acks", "config", "nemesis", "scenario", "interval",
             "overspend", "duration", "settings")
SAID = "said"


def case_to_json(case: RunSpec) -> dict[str, Any]:
    """A case as a campaign's files have it: a cell of the matrix, a spec without seed and folder."""
    return {**{name: list(value) if isinstance(value := getattr(case, name), tuple) else value
               for name in CASE_KEYS}, SAID: sorted(case.given)}


def case_of_json(row: Mapping[str, Any]) -> RunSpec:
    """Read a case; KeyError or ValueError where this is no case. Another floodmark may know other names."""
    values = {name: row[name] for name in CASE_KEYS if name in row or name == "rules"}
    return RunSpec(given=frozenset(row.get(SAID, ())),
                   **{name: converted(value, TYPES[name], name) for name, value in values.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A case and its share of the runs, relative to the other cases."""

    case: RunSpec
    weight: float  # above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One planned run of a campaign. number: from 1."""

    number: int
    case: RunSpec
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder inside the campaign's folder."""
        parts = f"{self.number:05d}-{self.case.system}-{self.case.faults.replace(',', '+')}"
        return f"{parts}-{self.seed}"


def draws(cases: Sequence[Weighted], seed: int, first: Sequence[tuple[RunSpec, int]] = ()) -> Iterator[Draw]:
    """Yield all runs, without end: those of `first` (a case and its seed), then the matrix by smooth weighted
    round robin, which takes the case that is furthest behind its share."""
    number = 0
    for case, known in first:
        number += 1
        yield Draw(number=number, case=case, seed=known)
    total = sum(one.weight for one in cases)
    credit = [0.0] * len(cases)
    while cases:
        number += 1
        credit = [earned + one.weight for earned, one in zip(credit, cases, strict=True)]
        best = max(range(len(cases)), key=lambda position: (credit[position], -position))
        credit[best] -= total
        yield Draw(number=number, case=cases[best].case, seed=seed_of(seed, number))


def seed_of(seed: int, number: int) -> int:
    """The seed of a campaign's n-th run. Runs have consecutive seeds, which draw different settings."""
    first = int.from_bytes(hashlib.sha256(f"{seed}".encode()).digest()[:8])
    return (first + number) % SEEDS

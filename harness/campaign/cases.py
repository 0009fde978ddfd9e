"""Defines what each run of a campaign tests, and the order of the runs. Pure.

Rules
1. The n-th run of a plan is the same in every process: its case and its seed depend only on the plan and the
   campaign's seed. So a campaign that was killed continues with the runs that would have come next.
2. Whenever a campaign stops, each case has had its share of the runs, as exactly as a number of runs allows.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

SYSTEM_KEYS = ("rules", "bugs")
SEEDS = 1 << 31
FIXED, DRAWN = "fixed", "drawn"  # the two kinds of `settings`


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the matrix: the options of a `floodmark run`, with the same units. If it has a scenario,
    the scenario sets most options, and the rules and bugs select its row."""

    rules: str
    bugs: tuple[str, ...] = ()
    cluster: str = "local"
    nodes: int = 3
    links: str | None = None
    workload: str = "log"
    concurrency: int = 10
    rate: float | None = None
    kafka: str | None = None  # a version of Apache Kafka; None: the reference broker
    partitions: int = 4
    replication_factor: int | None = None
    acks: str = "all"
    config: tuple[str, ...] = ()  # KEY=VALUE, from the system and the guarantees
    nemesis: str = "none"
    scenario: str | None = None
    interval: float = 5.0
    overspend: bool = False
    duration: float = 30.0
    settings: str = FIXED
    said: tuple[str, ...] = ()  # the options that the plan sets: they are not drawn

    @property
    def system(self) -> str:
        """The system that runs: `kip-320`, `kip-320+ack-early`, `kafka-4.3.1+kip-320`."""
        parts = (self.rules, *self.bugs)
        return "+".join(parts if self.kafka is None else (f"kafka-{self.kafka}", *parts))

    @property
    def faults(self) -> str:
        """The faults that strike: the scenario's name, or the nemeses' names."""
        return self.scenario or self.nemesis

    @property
    def title(self) -> str:
        """A title for progress lines, without the options that have their usual value."""
        usual = Case(rules=self.rules)
        counted = ("acks", "nodes", "partitions", "interval", "rate")
        named = [f"{name}={getattr(self, name)}" for name in counted
                 if getattr(self, name) != getattr(usual, name)]
        parts = [self.system, self.faults]
        parts += [self.workload] if self.workload != usual.workload else []
        parts += [self.cluster] if self.cluster != usual.cluster else []
        return " ".join((*parts, *named, *self.config))

    def as_json(self) -> dict[str, Any]:
        return {field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
                for field in fields(self)}

    @staticmethod
    def of_json(row: Mapping[str, Any]) -> "Case":
        """Read a case; KeyError, TypeError or ValueError where this is no case."""
        names = {field.name for field in fields(Case)}
        known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                                 for name, value in row.items() if name in names}
        return Case(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A case and its share of the runs, relative to the other cases."""

    case: Case
    weight: float  # above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One planned run of a campaign. number: from 1."""

    number: int
    case: Case
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder inside the campaign's folder."""
        parts = f"{self.number:05d}-{self.case.system}-{self.case.faults.replace(',', '+')}"
        return f"{parts}-{self.seed}"


def draws(cases: Sequence[Weighted], seed: int, first: Sequence[tuple[Case, int]] = ()) -> Iterator[Draw]:
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

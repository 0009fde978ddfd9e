"""What a run of a campaign tests, and which run comes when. Pure.

Rules
1. The n-th run of a plan is the same in every process: its case and its seed follow from the plan and the
   campaign's seed alone. So a campaign that was killed goes on with the runs that were to come.
2. However few runs there is time for, each case has had its share of them as nearly as whole runs allow.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

SYSTEM_KEYS = ("rules", "bugs")
SEEDS = 1 << 31
FIXED, DRAWN = "fixed", "drawn"  # settings of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the matrix, in the words of `floodmark run` (units as there); its scenario's where it has
    one, of which the system's rules and bugs are asked."""

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
    config: tuple[str, ...] = ()  # KEY=VALUE, of the system and of the guarantees
    nemesis: str = "none"
    scenario: str | None = None
    interval: float = 5.0
    overspend: bool = False
    duration: float = 30.0
    settings: str = FIXED
    said: tuple[str, ...] = ()  # of these words, those that the plan says: nothing is drawn for them

    @property
    def system(self) -> str:
        """What runs: `kip-320`, `kip-320+ack-early`, `kafka-4.3.1+kip-320`."""
        words = (self.rules, *self.bugs)
        return "+".join(words if self.kafka is None else (f"kafka-{self.kafka}", *words))

    @property
    def faults(self) -> str:
        """What strikes: the scenario's name, or the nemeses'."""
        return self.scenario or self.nemesis

    @property
    def title(self) -> str:
        """For a line of progress; what is as usual is left out."""
        usual = Case(rules=self.rules)
        counted = ("acks", "nodes", "partitions", "interval", "rate")
        named = [f"{name}={getattr(self, name)}" for name in counted
                 if getattr(self, name) != getattr(usual, name)]
        words = [self.system, self.faults]
        words += [self.workload] if self.workload != usual.workload else []
        words += [self.cluster] if self.cluster != usual.cluster else []
        return " ".join((*words, *named, *self.config))

    def as_json(self) -> dict[str, Any]:
        return {field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
                for field in fields(self)}

    @staticmethod
    def of_json(row: Mapping[str, Any]) -> "Case":
        """KeyError, TypeError or ValueError where this is no case."""
        names = {field.name for field in fields(Case)}
        known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                                 for name, value in row.items() if name in names}
        return Case(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A case and how often it is to be run beside the others."""

    case: Case
    weight: float  # above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One run of a campaign, before it is made. number: from 1."""

    number: int
    case: Case
    seed: int

    @property
    def name(self) -> str:
        """Of its folder in the campaign's."""
        words = f"{self.number:05d}-{self.case.system}-{self.case.faults.replace(',', '+')}"
        return f"{words}-{self.seed}"


def draws(cases: Sequence[Weighted], seed: int, first: Sequence[tuple[Case, int]] = ()) -> Iterator[Draw]:
    """All runs, without end: those of `first` (a case and its seed), then the matrix, by smooth weighted
    round robin: who has waited longest for its share is next."""
    number = 0
    for case, known in first:
        number += 1
        yield Draw(number=number, case=case, seed=known)
    total = sum(one.weight for one in cases)
    credit = [0.0] * len(cases)
    while cases:
        number += 1
        credit = [had + one.weight for had, one in zip(credit, cases, strict=True)]
        best = max(range(len(cases)), key=lambda position: (credit[position], -position))
        credit[best] -= total
        yield Draw(number=number, case=cases[best].case, seed=seed_of(seed, number))


def seed_of(seed: int, number: int) -> int:
    """That of a campaign's n-th run."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:8]) % SEEDS

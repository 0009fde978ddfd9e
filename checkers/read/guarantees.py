"""Reads run.json's `guarantees`: what each may be, and which findings it permits or which checks it decides.

Rules
1. The folder may be a stranger's. A value that is not allowed, or a key that is no guarantee and looks like
   one, makes that guarantee unknown: nobody knows what it permits, so it permits nothing. So does its
   absence, but of those whose default permits most (DEFAULTED).
2. The laws then take its weakest value, and what only that permits is no finding (`unclear`): the checks of
   that guarantee are unknown.
3. Other unknown keys are ignored.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from floodmark.checkers.laws.finding_names import If
from floodmark.checkers.laws.permits import (
    ACKS,
    BUDGET,
    BUDGET_MAYBE,
    INTERNAL,
    INTERNAL_MAYBE,
    ISOLATION,
    RETRIES,
    UNCLEAN,
    UNCLEAN_MAYBE,
)

SHOWN = 60  # characters of a strange key or value
ALIKE = 0.65  # of two names, by difflib: "retry" is meant to be "retries"
DEFAULTED = ("min_insync_replicas", "replication_factor", "flush", "exactly_once")
FEWEST = 3  # characters of a key that may be the beginning of a guarantee's name


class Guarantee(NamedTuple):
    """values: those that are allowed, or the least number; weakest: the one that permits most; row: by which
    checks are unknown; permits: the codes of what it permits."""

    words: str
    values: tuple[Any, ...] | int
    weakest: Any
    row: If = If.UNFIT
    permits: tuple[int, ...] = ()

    def allows(self, given: Any) -> bool:
        if isinstance(self.values, int):
            return type(given) is int and given >= self.values
        return any(type(given) is type(value) and given == value for value in self.values)


_FLAG = "true or false", (True, False)
_INTERNAL = (INTERNAL_MAYBE, INTERNAL)
_BUDGET = (BUDGET, BUDGET_MAYBE, *_INTERNAL)
_LEVELS = ("read_committed", "read_uncommitted")
GUARANTEES: Mapping[str, Guarantee] = {
    "acks": Guarantee('"all" (also "-1" or -1), "1" or "0"', ("all", "-1", -1, "1", "0"), "0", If.ACKS,
                      (ACKS, *_INTERNAL)),
    "min_insync_replicas": Guarantee("a number from 1 on", 1, 1, If.MIN_INSYNC, _BUDGET),
    "replication_factor": Guarantee("a number from 0 on", 0, 0),
    "unclean_leader_election": Guarantee(*_FLAG, True, If.UNCLEAN, (UNCLEAN, UNCLEAN_MAYBE, *_INTERNAL)),
    "idempotence": Guarantee(*_FLAG, False, If.RETRIES, (RETRIES,)),
    "retries": Guarantee("a number from 0 on", 0, 1, If.RETRIES, (RETRIES,)),
    "flush": Guarantee('"os" or "every"', ("os", "every"), "os", If.FLUSH, _BUDGET),
    "isolation": Guarantee('"read_committed" or "read_uncommitted"', _LEVELS, _LEVELS[1], If.ISOLATION,
                           (ISOLATION,)),
    "exactly_once": Guarantee(*_FLAG, False),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """values: by name, as far as they are given; flaws: why a guarantee is unknown, by name."""

    values: Mapping[str, Any] = field(default_factory=dict)
    flaws: Mapping[str, str] = field(default_factory=dict)

    @property
    def weak_acks(self) -> bool:
        """Whether an ack may come before the ISR has the record."""
        return self.values["acks"] not in ("all", "-1", -1)

    @property
    def retried(self) -> bool:
        """Whether clients retry without idempotence: they may write twice and out of order."""
        return self.values["retries"] > 0 and not self.values["idempotence"]

    @property
    def sent_once(self) -> bool:
        """Whether no client sends a record again, perhaps to a later leader, which may know it already."""
        return not (self.values["retries"] > 0 or self.values["idempotence"]
                    or "idempotence" in self.flaws)

    @property
    def uncommitted(self) -> bool:
        """Whether readers may see records of open and aborted transactions."""
        return bool(self.values["isolation"] == "read_uncommitted")

    @property
    def surely_uncommitted(self) -> bool:
        """Whether they must see them."""
        return self.uncommitted and "isolation" not in self.flaws

    @property
    def min_insync(self) -> int | None:
        return self.values.get("min_insync_replicas")

    @property
    def unclean(self) -> bool:
        """Whether unclean elections are allowed."""
        return bool(self.values["unclean_leader_election"])

    @property
    def flushed(self) -> bool:
        """Whether every write is fsynced before it is acked."""
        return bool(self.values.get("flush") == "every")

    @property
    def unclear(self) -> frozenset[int]:
        """The permits that stem from an unknown guarantee: what they cover may be a bug or not."""
        return frozenset(permit for name in self.flaws for permit in GUARANTEES[name].permits)

    def reasons(self) -> Iterator[tuple[If, str]]:
        for name, flaw in self.flaws.items():
            yield GUARANTEES[name].row, f"run.json: {flaw}: nobody knows what it permits"


def guarantees_of(given: Mapping[str, Any], isolation_of: Any) -> Guarantees:
    """Read and check them. isolation_of: that of single processes, which no law looks at."""
    flaws: dict[str, str] = {}
    if isolation_of:
        flaws["isolation"] = "`isolation_of` gives processes another isolation than `guarantees`"
    for key, value in given.items():
        known = GUARANTEES.get(key)
        if known is None and (meant := _resembled(key)) is not None:
            flaws[meant] = f"`guarantees` has {key[:SHOWN]!a}, which is no guarantee; {meant} is one"
        elif known is not None and not known.allows(value):
            flaws[key] = f"{key} of `guarantees` is {json.dumps(value)[:SHOWN]}, and not {known.words}"
    for name in GUARANTEES:
        if name not in given and name not in DEFAULTED:
            flaws.setdefault(name, f"`guarantees` lacks {name}")
    weakest = {name: GUARANTEES[name].weakest for name in flaws}
    return Guarantees(values={**given, **weakest}, flaws=flaws)


def _resembled(key: str) -> str | None:
    """The guarantee that this key may be meant to be: by Kafka's name, or misspelt."""
    plain = re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")
    for name in GUARANTEES:
        if name in plain or (len(plain) >= FEWEST and name.startswith(plain)):
            return name
    return next(iter(get_close_matches(plain, GUARANTEES, 1, ALIKE)), None)

"""Compares two nights: which signatures are new, gone, more or less frequent. Pure.

Fisher's exact test (scipy.stats.fisher_exact, two-sided), over the runs of the signature's own system,
decides whether a rate has changed. A signature that only one night has is new or gone whatever the test says;
its p is shown too, because once in 5 runs and never in 5 proves little.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scipy import stats

from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.verdict import BUG

DIFFERENT_BELOW = 0.01  # for p; it is low because a night has many signatures, each with a test of its own
NEW, GONE, MORE, LESS, SAME = "new", "gone", "more frequent", "less frequent", "as before"
# One night has no run of its system, so nothing is known of what has changed.
NOT_RUN, NOT_RUN_BEFORE = "not run", "not run before"
_ORDER = (NEW, NOT_RUN_BEFORE, MORE, SAME, LESS, GONE, NOT_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counts of one night. runs: system -> runs that were judged; found: signature -> runs that showed
    it."""

    runs: Mapping[str, int]
    found: Mapping[Signature, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One signature in both nights: in how many runs of its system, and how probable such a difference is if
    both nights have the same rate."""

    signature: Signature
    kind: str  # one of _ORDER
    before: tuple[int, int]  # runs that showed it, of runs of its system
    after: tuple[int, int]
    p: float

    @property
    def is_new_bug(self) -> bool:
        return self.kind == NEW and self.signature.klass == BUG


def changes(before: Counted, after: Counted) -> list[Change]:
    """Compare every signature of either night; new ones come first, bugs before permitted findings."""
    return sorted(_changes(before, after), key=lambda one: (
        _ORDER.index(one.kind), one.signature.klass != BUG, -one.after[0], one.signature))


def _changes(before: Counted, after: Counted) -> Iterator[Change]:
    for signature in before.found.keys() | after.found.keys():
        then = (before.found.get(signature, 0), before.runs.get(signature.system, 0))
        now = (after.found.get(signature, 0), after.runs.get(signature.system, 0))
        p = p_same(then, now)
        yield Change(signature=signature, kind=kind_of(then, now, p), before=then, after=now, p=p)


def kind_of(then: tuple[int, int], now: tuple[int, int], p: float) -> str:
    """The kind of a change. then, now: (runs that showed it, runs)."""
    if then[0] == 0:
        return NEW if then[1] else NOT_RUN_BEFORE
    if now[0] == 0:
        return GONE if now[1] else NOT_RUN
    if p >= DIFFERENT_BELOW:
        return SAME
    return MORE if now[0] * then[1] > then[0] * now[1] else LESS


def p_same(then: tuple[int, int], now: tuple[int, int]) -> float:
    """The probability of this difference, or a larger one, if both nights have the same rate."""
    table = [[hits, of - hits] for hits, of in (then, now)]
    return float(stats.fisher_exact(table).pvalue)

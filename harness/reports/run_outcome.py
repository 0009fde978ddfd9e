"""Decides what came of a run, in a word and by an exit code; nobody else does.

`run`, `check`, `rejudge`, `show`, `scenario`, `demo`, `reproduce` and the reports for CI servers ask here, so
that the word above a report, the count above many, the colour of a test case and the exit code agree.

Rules
1. A bug outranks all else. What the options let through is no bug; what --strict takes for one is.
2. Then comes what went wrong with the run itself, which no option lets through: it was interrupted, it ended
   early (a broker that never became ready ends a run so), nothing could be judged, the verdict could not be
   written. A broker that was ready and ended by itself is the cluster's bug: the judge's finding broker-died.
3. Then what nobody can tell. What is left is valid, or was let through: that is never called valid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from floodmark.harness.reports.phrases import many
from floodmark.harness.run import DONE, INTERRUPTED
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, Policy

Json = Mapping[str, Any]  # an object of run.json or verdict.json

LISTS = ("died", "schedule")  # of run.json, which the judge does not need and a report does

INVALID, HARNESS, CUT_SHORT = "invalid", "failed in the harness", "interrupted"
UNKNOWN, LET_THROUGH, VALID = "unknown", "let through", "valid"
EXITS: Mapping[str, int] = {  # the worst first
    INVALID: EXIT_INVALID, HARNESS: EXIT_HARNESS, CUT_SHORT: EXIT_HARNESS, UNKNOWN: EXIT_UNKNOWN,
    LET_THROUGH: EXIT_VALID, VALID: EXIT_VALID,
}
_COLOURS = {EXIT_INVALID: "red", EXIT_HARNESS: "red", EXIT_UNKNOWN: "yellow", EXIT_VALID: "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What came of one run."""

    kind: str  # one of EXITS
    word: str  # the kind, and the judge's word where that is another
    harness: tuple[str, ...] = ()  # what went wrong with the run itself, a sentence each

    @property
    def code(self) -> int:
        return EXITS[self.kind]

    @property
    def heading(self) -> str:
        """The word in its colour, a bug in capitals."""
        word = self.word.replace(INVALID, INVALID.upper(), 1) if self.kind == INVALID else self.word
        return click.style(word, fg=_COLOURS[self.code], bold=True)


def ruling(told: Json, about: Json | None, policy: Policy | None = None, *,
           failed: Iterable[str] = ()) -> Ruling:
    """Of a verdict (verdict.json's form) and run.json (None: it cannot be had). `failed`: what went wrong
    besides."""
    policy = policy or Policy()
    harness = (*harness_failures(told, about), *failed)
    judged = VALID if told.get("valid") is True else INVALID if told.get("valid") is False else UNKNOWN
    if any(fails(found, policy) for found in told.get("findings") or ()):
        word = INVALID if judged == INVALID else f"{INVALID} by --strict"
        return Ruling(kind=INVALID, word=word, harness=harness)
    if harness:
        kind = CUT_SHORT if was_interrupted(about) else HARNESS
        return Ruling(kind=kind, word=f"{kind} (judged {judged})" if told.get("counts") else kind,
                      harness=harness)
    if (told.get("unknown") or judged == UNKNOWN) and not policy.allow_unknown:
        return Ruling(kind=UNKNOWN, word=UNKNOWN if judged == UNKNOWN else f"{UNKNOWN} (invalid let through)")
    if judged != VALID:
        return Ruling(kind=LET_THROUGH, word=f"{judged}, {LET_THROUGH}")
    return Ruling(kind=VALID, word=VALID)


def fails(found: Json, policy: Policy) -> bool:
    """Whether a group of findings fails the gate."""
    return found["name"] not in policy.allow and (policy.strict or found["class"] == BUG)


def harness_failures(told: Json, about: Json | None) -> tuple[str, ...]:
    """What went wrong that says nothing of the cluster."""
    if not told.get("counts"):
        return ("nothing was judged",)
    if about is None or not all(isinstance(about.get(name) or [], list) for name in LISTS):
        return (f"its run.json has gone, or has no list where there should be: {', '.join(LISTS)}",)
    ended = about.get("ended")
    return (f"the run ended early: {ended}",) if ended not in (None, DONE) else ()


def was_interrupted(about: Json | None) -> bool:
    return str((about or {}).get("ended")).startswith(INTERRUPTED)


def summary(rulings: Iterable[Ruling]) -> str:
    """`20 runs: 14 invalid, 3 unknown, 3 valid`."""
    kinds = [ruling.kind for ruling in rulings]
    return f"{many(len(kinds), 'run')}: " + ", ".join(
        f"{kinds.count(kind)} {kind}" for kind in EXITS if kind in kinds)

"""Decides the outcome of a run: one word and an exit code. No other module does.
`run`, `check`, `rejudge`, `show`, `scenario`, `demo`, `reproduce` and the reports for CI servers use it, so
that headings, counts, test cases and exit codes agree.

Rules
1. A bug comes before everything else. A finding that --allow names is none; with --strict a permitted one is.
2. Next are failures of the run itself, which no option allows: it was interrupted, it ended early (for
   example because a broker never became ready), nothing could be judged, or the verdict could not be written.
   A broker that was ready and ended by itself is the cluster's bug: the judge's finding broker-died.
3. Next is unknown. The rest is valid, or let through by an option, which is never called valid.
4. Where checks were not made because the system does not show their data, the word says how many were.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import click

from floodmark.checkers.laws.finding_names import MADE
from floodmark.harness.report.model import Json
from floodmark.harness.report.phrases import many
from floodmark.harness.run import DONE, INTERRUPTED
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, Policy

LISTS = ("died", "schedule")  # keys of run.json that reports need and the judge does not

INVALID, HARNESS, CUT_SHORT = "invalid", "failed in the harness", "interrupted"
UNKNOWN, LET_THROUGH, VALID = "unknown", "let through", "valid"
EXITS: Mapping[str, int] = {  # the worst first
    INVALID: EXIT_INVALID, HARNESS: EXIT_HARNESS, CUT_SHORT: EXIT_HARNESS, UNKNOWN: EXIT_UNKNOWN,
    LET_THROUGH: EXIT_VALID, VALID: EXIT_VALID,
}
_COLOURS = {EXIT_INVALID: "red", EXIT_HARNESS: "red", EXIT_UNKNOWN: "yellow", EXIT_VALID: "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The outcome of one run."""

    kind: str  # one of EXITS
    word: str  # the kind, with the judge's result if it differs
    harness: tuple[str, ...] = ()  # failures of the run itself, a sentence each

    @property
    def code(self) -> int:
        return EXITS[self.kind]

    @property
    def heading(self) -> str:
        """The word in its colour, a bug in capitals."""
        word = self.word.replace(INVALID, INVALID.upper(), 1) if self.kind == INVALID else self.word
        return click.style(word, fg=_COLOURS[self.code], bold=True)


def ruling(verdict: Json, about: Json | None, policy: Policy | None = None, *,
           failed: Iterable[str] = ()) -> Ruling:
    """The outcome by a verdict and run.json (None: missing). failed: further failures of the run itself."""
    policy = policy or Policy()
    harness = (*harness_failures(verdict, about), *failed)
    judged = VALID if verdict.get("valid") is True else INVALID if verdict.get("valid") is False else UNKNOWN
    if any(fails(found, policy) for found in verdict.get("findings") or ()):
        word = INVALID if judged == INVALID else f"{INVALID} by --strict"
        return Ruling(kind=INVALID, word=word, harness=harness)
    if harness:
        kind = CUT_SHORT if str((about or {}).get("ended")).startswith(INTERRUPTED) else HARNESS
        return Ruling(kind=kind, word=f"{kind} (judged {judged})" if verdict.get("counts") else kind,
                      harness=harness)
    kind, word = VALID, VALID
    if (verdict.get("unknown") or judged == UNKNOWN) and not policy.allow_unknown:
        kind, word = UNKNOWN, UNKNOWN if judged == UNKNOWN else f"{UNKNOWN} (invalid let through)"
    elif judged != VALID:
        kind, word = LET_THROUGH, f"{judged}, {LET_THROUGH}"
    left_out = {name for entry in verdict.get("not_made") or () for name in entry["names"]} & {*MADE}
    made = f", {len(MADE) - len(left_out)} of {len(MADE)} checks made" if left_out else ""
    return Ruling(kind=kind, word=word + made)


def fails(found: Json, policy: Policy) -> bool:
    """Whether a group of findings fails the gate."""
    return found["name"] not in policy.allow and (policy.strict or found["class"] == BUG)


def harness_failures(verdict: Json, about: Json | None) -> tuple[str, ...]:
    """The failures of the run itself, a sentence each; they say nothing about the cluster."""
    if not verdict.get("counts"):
        return ("nothing was judged",)
    if about is None or not all(isinstance(about.get(name) or [], list) for name in LISTS):
        return (f"its run.json is missing, or has no list where there should be: {', '.join(LISTS)}",)
    ended = about.get("ended")
    return (f"the run ended early: {ended}",) if ended not in (None, DONE) else ()


def summary(rulings: Iterable[Ruling]) -> str:
    """`20 runs: 14 invalid, 3 unknown, 3 valid`."""
    kinds = [ruling.kind for ruling in rulings]
    return f"{many(len(kinds), 'run')}: " + ", ".join(
        f"{kinds.count(kind)} {kind}" for kind in EXITS if kind in kinds)

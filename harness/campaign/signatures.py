"""Computes the signature of a run's findings: the same text for the same cause, whatever the offsets. Pure.

One broken law causes many findings: a leader acks too early, then a record is lost, then replicas diverge. A
signature names the first step that was wrong:

- the finding that itself names the broken law (LAWS_BROKEN), the first of them in that list; else
- the earliest line of the trace that a finding blames: the event, the role, the reason (without numbers);
- without a trace, the worst finding, and how it shows.

The system and its guarantees are part of a signature: the same loss under acks=1 has another cause. The
faults are not: a crash, a cut or a pause may reveal the same bug. The ledger counts them separately
(`faults`).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.run import system_of
from floodmark.harness.verdict import BUG

Json = Mapping[str, Any]

# Findings that name a broken law; the one that explains most is the first.
LAWS_BROKEN = (
    names.UNCLEAN_ELECTION, names.TWO_LEADERS, names.EPOCH_REGRESSED, names.ACK_RULE, names.UNSAFE_ISR,
    names.RECOVERY_LOSS, names.MALFORMED_LOG,
)  # fmt: skip
# Findings for which the blamed step does not matter: the second leader's first step is not what made it a
# leader.
_STEP_IS_IRRELEVANT = frozenset({names.TWO_LEADERS})
# Of the other findings the worst, for runs whose trace blames no line; those not listed come after them.
WORST_FIRST = (
    names.LOST_WRITE, names.SAW_THEN_LOST, names.DIVERGED, names.EPOCH_LINEAGE, names.DUPLICATE,
    names.INCONSISTENT_OFFSETS,
)  # fmt: skip
CONTROLLER = "controller"
_NUMBERS = re.compile(r"\d+")
# What run.json promises. (Idempotence is left out: duplicates are bugs only with it.)
GUARANTEES = (
    "acks", "isolation", "min_insync_replicas", "replication_factor", "unclean_leader_election", "flush",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Signature:
    """The signature of one cause. Every field is a text; "" where there is none."""

    system: str  # what was tested: rules and known-bad rules, or a version
    guarantees: str  # what run.json promises
    finding: str
    klass: str
    permitted_by: str
    how: str
    step: str  # the wrong step and the role: `truncate as follower: to the high watermark`

    @property
    def id(self) -> str:
        """Ten hex digits. A ledger keeps the id even when a finding is renamed."""
        return hashlib.sha256(orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)).hexdigest()[:10]

    @property
    def finding_and_step(self) -> str:
        """The finding and the step: `unsafe-truncation: truncate as follower: to the high watermark`."""
        how = f" ({self.how})" if self.how else ""
        return f"{self.finding}{how}{f': {self.step}' if self.step else ''}"

    @property
    def sentence(self) -> str:
        """`unsafe-truncation: truncate as follower: to the high watermark [high-watermark, acks=all]`."""
        permitted = f", permitted by {self.permitted_by}" if self.permitted_by else ""
        return f"{self.finding_and_step} [{self.system}, {self.guarantees}{permitted}]"


def signatures(verdict: Json, about: Json, lines: Mapping[int, Json]) -> tuple[Signature, ...]:
    """The signatures of one run: at most one for its bugs, and one for each setting that permitted findings.
    lines: those of the trace that examples name as their `event`, by index from 0."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for found in verdict.get("findings") or ():
        groups.setdefault((found["class"], found["permitted_by"] or ""), []).append(found)
    made = [signature_of(mine, lines, system=system_of(about), guarantees=guarantees_of(about), klass=klass,
                  permitted_by=permitted_by) for (klass, permitted_by), mine in groups.items()]
    return tuple(sorted(made, key=lambda one: (one.klass != BUG, one)))


def signature_of(findings: Sequence[Json], lines: Mapping[int, Json], **of: str) -> Signature:
    """The signature of findings of one class; there must be at least one."""
    for name in LAWS_BROKEN:
        for found in findings:
            if found["name"] == name:
                first = _first_example(found)
                step = "" if name in _STEP_IS_IRRELEVANT else _step(lines.get(_event(first)))
                return Signature(finding=name, how=_how(first), step=step, **of)
    blamed = [(event, found) for found in findings for example in found.get("examples") or ()
              if (event := _event(example)) in lines]
    if blamed:
        event, found = min(blamed, key=lambda one: (one[0], _badness(one[1])))
        line = lines[event]  # a truncation that lost a committed record is unsafe, however the loss shows
        name = names.UNSAFE_TRUNCATION if line.get("event") == "truncate" else str(found["name"])
        return Signature(finding=name, how="", step=_step(line), **of)
    worst = min(findings, key=_badness)
    return Signature(finding=worst["name"], how=_how(_first_example(worst)), step="", **of)


def events_of(verdict: Json) -> set[int]:
    """The lines of the trace that a verdict's examples name."""
    return {_event(example) for found in verdict.get("findings") or ()
            for example in found.get("examples") or ()} - {-1}


def guarantees_of(about: Json) -> str:
    """The guarantees in run.json, in a fixed order, without switches that are off."""
    given = about.get("guarantees")
    given = given if isinstance(given, dict) else {}
    return " ".join(key if given[key] is True else f"{key}={given[key]}"
                    for key in GUARANTEES if given.get(key) not in (None, False))


def _first_example(found: Json) -> Json:
    """The example that is earliest in the trace; else the first."""
    examples: Sequence[Json] = found.get("examples") or ({},)
    traced = [example for example in examples if _event(example) >= 0]
    return min(traced, key=_event) if traced else examples[0]


def _event(example: Json) -> int:
    """The trace line that the example names; -1: none."""
    event = example.get("event")
    return event if type(event) is int else -1


def _how(example: Json) -> str:
    return _NUMBERS.sub("N", str(example.get("how") or ""))


def _step(line: Json | None) -> str:
    """The step that a line of the trace describes, without numbers and nodes."""
    if line is None:
        return ""
    who = CONTROLLER if line.get("node") == CONTROLLER else line.get("role")
    why = _NUMBERS.sub("N", str(line.get("why") or ""))
    return f"{line.get('event')}{f' as {who}' if who else ''}{f': {why}' if why else ''}"


def _badness(found: Json) -> tuple[int, str]:
    name = str(found["name"])
    return (WORST_FIRST.index(name) if name in WORST_FIRST else len(WORST_FIRST), name)

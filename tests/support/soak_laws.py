"""What must hold of a mutated folder's verdict, beside that of the folder as it was.

Rules kept here:
1. No failure of the judge's own, whatever was done.
2. HARMLESS: the verdict is as it was. UNREADABLE: nothing is found that was not found before, valid is no
   longer true, and a bug stands whose evidence lies in other files. QUIET: the same, but valid may stay true.
   TAMPERING: the same folder gets the same verdict again.
3. MISTYPED: no bug that the twin does not call one; what it calls one is told or unknown; valid only where
   it is. The judge may leave more open than the twin does: what cannot be read may have been an excuse.
4. Where a fault that lost data, or the setting, permitted something, or might have, a file that is unreadable
   may take the permission away, or give it: of such a base only 1 and "no longer true" are asked.
5. Where the leader's log can no longer be read, reads and acks speak in its stead: what was unseen may be
   told as a lost write, and a lost write as a duplicate.
6. A line of the history that cannot be read may have recorded a fault that lost data: what that would
   permit is permitted then, and its name is unknown.
"""

import json
from collections.abc import Iterator
from typing import Any

from soak_legal import HARMLESS, HISTORY, QUIET, RUN, TRACE, UNREADABLE
from soak_mutations import Files

from floodmark.harness.verdict import BUG, Verdict

FAILED = "the judge failed"
OF_THE_LOGS = frozenset({"diverged", "under-replicated", "epoch-lineage", "malformed-log", "stuck"})
OF_RUN_JSON = frozenset({"broker-died"})  # whatever else cannot be read
OF_THE_HISTORY = frozenset({
    "inconsistent-offsets", "nonmonotonic-send", "int-nonmonotonic-send", "realtime-order",
    "end-offset-regressed"})
OF_THE_TRACE = frozenset({
    "hw-regressed", "leader-incomplete", "candidate-incomplete", "two-leaders", "ack-rule",
    "unsafe-truncation", "unsafe-isr", "epoch-regressed", "unclean-election", "recovery-loss",
    "read-above-hw", "end-offset-ahead"})
OF_TRACE_AND_HISTORY = frozenset({"unclean-election", "recovery-loss", "read-above-hw", "end-offset-ahead"})
INSTEAD = {"unseen": "lost-write", "lost-write": "duplicate"}  # rule 5
# Each proves itself.
OF_ITS_LINES = frozenset({"hw-regressed", "two-leaders", "epoch-regressed", "unclean-election"})


def stands_without(name: str) -> frozenset[str] | None:
    """The findings that need nothing of this file; None: all that are not the trace's."""
    if name == HISTORY:
        return OF_THE_LOGS | (OF_THE_TRACE - OF_TRACE_AND_HISTORY) | OF_RUN_JSON  # it may tell who asked
    if name == RUN:
        return frozenset()
    if name == TRACE:
        return None
    return OF_THE_HISTORY | OF_ITS_LINES | OF_RUN_JSON


def is_exposed(files: Files, base: Verdict) -> bool:
    """Something was permitted, or might be (rule 4); or a value was sent or answered twice, which excuses
    what only the line that may be missing tells."""
    if any(unknown.reason.startswith("values were sent more than once")
           or unknown.reason.endswith("a completion that fits no invocation") for unknown in base.unknown):
        return True
    if any(finding.klass != BUG for finding in base.findings):
        return True
    told = files.get(RUN) or b""
    try:
        guarantees = json.loads(told).get("guarantees") or {}
        unclean = guarantees.get("unclean_leader_election") is not False
    except (ValueError, AttributeError):
        unclean = True
    history = (files.get(HISTORY) or b"").replace(b" ", b"")
    return unclean or b'"lost":true' in history or b'"unclean":true' in history


def bugs(verdict: Verdict) -> set[str]:
    return {finding.name for finding in verdict.findings if finding.klass == BUG}


def permitted_perhaps(verdict: Verdict) -> set[str]:
    """Permitted, and unknown (rule 6)."""
    unknown = {name for one in verdict.unknown for name in one.names}
    return {finding.name for finding in verdict.findings if finding.klass != BUG} & unknown


def comparable(verdict: Verdict) -> tuple[Any, ...]:
    """What two verdicts of one folder have in common; timings and the words of reasons left out."""
    return (verdict.valid,
            sorted((one.name, one.klass, one.permitted_by or "", one.count) for one in verdict.findings),
            sorted({name for unknown in verdict.unknown for name in unknown.names}), dict(verdict.counts))


def said(verdict: Verdict) -> tuple[Any, ...]:
    return comparable(verdict)[:3]


def failures(verdict: Verdict) -> Iterator[str]:
    """Rule 1."""
    for unknown in verdict.unknown:
        if unknown.reason.startswith(FAILED):
            yield f"traceback: {unknown.reason}"


def broken(kind: str, name: str, files: Files, base: Verdict, verdict: Verdict) -> Iterator[str]:
    """The laws that this verdict breaks; `files` are those before the change of `name`."""
    yield from failures(verdict)
    if kind == HARMLESS and said(base) != said(verdict):
        yield f"not as it was: {said(base)}, now {said(verdict)}"
    if kind not in (UNREADABLE, QUIET):
        return
    if kind == UNREADABLE and verdict.valid is True:
        yield "false valid: nobody noticed"
    if is_exposed(files, base):
        return
    news = bugs(verdict) - bugs(base) - {INSTEAD[name] for name in bugs(base) & INSTEAD.keys()}
    if news:
        yield f"false alarm: {', '.join(sorted(news))}"
    stands = stands_without(name)
    stay = bugs(base) - OF_THE_TRACE if stands is None else bugs(base) & stands
    if name == HISTORY:
        stay -= permitted_perhaps(verdict)
    if not stay <= bugs(verdict):
        yield f"false outranks unknown: {', '.join(sorted(stay - bugs(verdict)))} gone"


def broken_base(must: frozenset[str] | None, verdict: Verdict) -> Iterator[str]:
    """Of a folder as it was made: what was planted is found, and where nothing was, nothing."""
    yield from failures(verdict)
    if must is None:
        return
    if must and verdict.valid is not False:
        yield f"planted, and valid is {verdict.valid}"
    if not must <= bugs(verdict):
        yield f"planted, and not found: {', '.join(sorted(must - bugs(verdict)))}"
    if not must and bugs(verdict):
        yield f"false alarm: {', '.join(sorted(bugs(verdict)))}"


def beside_twin(wanted: tuple[Any, ...], mine: tuple[Any, ...]) -> Iterator[str]:
    """Rule 3; each is valid, findings and unknown names, as `spoken` has them."""
    theirs, ours = ({name for name, klass, *_ in told[1] if klass == BUG} for told in (wanted, mine))
    if harsher := ours - theirs:
        yield f"false alarm: {', '.join(sorted(harsher))}, says the twin"
    if missed := theirs - {name for name, *_ in mine[1]} - set(mine[2]):
        yield f"false valid: {', '.join(sorted(missed))}, says the twin"
    if mine[0] is True and wanted[0] is not True:
        yield f"false valid: {wanted[0]}, says the twin"

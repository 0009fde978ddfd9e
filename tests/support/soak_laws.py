"""Laws of a mutated folder's verdict, compared with the verdict of the folder before.

Rules kept here:
1. The judge itself never fails, whatever was changed.
2. HARMLESS: the verdict is the same. UNREADABLE: nothing is found that was not found before, valid is no
   longer true, and a bug remains if its evidence is in other files. QUIET: the same, but valid may stay true.
   TAMPERING: the same folder gets the same verdict again.
3. MISTYPED: no bug that the twin does not call one; a bug of the twin's is reported or unknown; valid only if
   the twin says so. The judge may leave more open than the twin: an unreadable line may have been an excuse.
4. If a fault that lost data, or the setting, permitted something, or might have, an unreadable file may
   remove the permission, or add it: for such a base only rule 1 and "no longer true" are checked.
5. If the leader's log can no longer be read, reads and acks decide instead: an unseen record may be reported
   as a lost write, and a lost write as a duplicate. If a line of a log could not be read before, records may
   be unseen though the base does not say so.
6. An unreadable line of the history may have recorded a fault that lost data: a loss that such a fault would
   permit is permitted then, and its name is unknown.
7. Where replicas.jsonl was never seen, only the history shows that a stuck partition had worked before.
"""

import json
from collections.abc import Iterator
from typing import Any

from soak_legal import HARMLESS, HISTORY, QUIET, RUN, TRACE, UNREADABLE
from soak_mutations import Files

from floodmark.harness.verdict import BUG, Verdict

FAILED = "the judge failed"
OF_THE_LOGS = frozenset({"diverged", "under-replicated", "epoch-lineage", "malformed-log", "stuck"})
OF_RUN_JSON = frozenset({"broker-died"})  # found whatever else cannot be read, but for the history
OF_THE_HISTORY = frozenset({
    "inconsistent-offsets", "nonmonotonic-send", "int-nonmonotonic-send", "realtime-order",
    "end-offset-regressed"})
OF_THE_TRACE = frozenset({
    "hw-regressed", "leader-incomplete", "candidate-incomplete", "two-leaders", "ack-rule",
    "unsafe-truncation", "unsafe-isr", "epoch-regressed", "unclean-election", "recovery-loss",
    "read-above-hw", "end-offset-ahead"})
OF_TRACE_AND_HISTORY = frozenset({"unclean-election", "recovery-loss", "read-above-hw", "end-offset-ahead"})
INSTEAD = {"unseen": "lost-write", "lost-write": "duplicate"}  # rule 5
# Each of these needs no other evidence.
OF_ITS_LINES = frozenset({"hw-regressed", "two-leaders", "epoch-regressed", "unclean-election"})


def findings_without(name: str) -> frozenset[str] | None:
    """The findings that need nothing of this file; None: all except the trace's."""
    if name == HISTORY:
        return OF_THE_LOGS | (OF_THE_TRACE - OF_TRACE_AND_HISTORY)  # it may tell who asked, and who struck
    if name == RUN:
        return frozenset()
    if name == TRACE:
        return None
    return OF_THE_HISTORY | OF_ITS_LINES | OF_RUN_JSON


def is_exposed(files: Files, base: Verdict) -> bool:
    """Whether something was permitted, or might be (rule 4); or a value was sent or answered twice, which
    excuses what only the missing line may show."""
    if any(unknown.reason.startswith("values were sent more than once")
           or unknown.reason.endswith("a completion that fits no invocation") for unknown in base.unknown):
        return True
    if any(finding.klass != BUG for finding in base.findings):
        return True
    run_json = files.get(RUN) or b""
    try:
        guarantees = json.loads(run_json).get("guarantees") or {}
        unclean = guarantees.get("unclean_leader_election") is not False
    except (ValueError, AttributeError):
        unclean = True
    history = (files.get(HISTORY) or b"").replace(b" ", b"")
    return unclean or b'"lost":true' in history or b'"unclean":true' in history


def bugs(verdict: Verdict) -> set[str]:
    return {finding.name for finding in verdict.findings if finding.klass == BUG}


def permitted_perhaps(verdict: Verdict) -> set[str]:
    """The names of findings that are permitted and unknown (rule 6)."""
    unknown = {name for one in verdict.unknown for name in one.names}
    return {finding.name for finding in verdict.findings if finding.klass != BUG} & unknown


def unseen_perhaps(verdict: Verdict) -> set[str]:
    """`unseen`, if it is unknown because a log cannot be read (rule 5)."""
    torn = (one for one in verdict.unknown if one.reason.startswith("logs/"))
    return {"unseen"} & {name for one in torn for name in one.names}


def comparable(verdict: Verdict) -> tuple[Any, ...]:
    """What two verdicts of one folder must have in common: all except timings and the words of reasons."""
    return (verdict.valid,
            sorted((one.name, one.klass, one.permitted_by or "", one.count) for one in verdict.findings),
            sorted({name for unknown in verdict.unknown for name in unknown.names}), dict(verdict.counts))


def said(verdict: Verdict) -> tuple[Any, ...]:
    return comparable(verdict)[:3]


def failures(verdict: Verdict) -> Iterator[str]:
    """Breaches of rule 1."""
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
    before = bugs(base) | unseen_perhaps(base)
    news = bugs(verdict) - bugs(base) - {INSTEAD[name] for name in before & INSTEAD.keys()}
    if news:
        yield f"false alarm: {', '.join(sorted(news))}"
    remaining = findings_without(name)
    stay = bugs(base) - OF_THE_TRACE if remaining is None else bugs(base) & remaining
    if name == HISTORY:
        stay -= permitted_perhaps(verdict)
        stay -= {"stuck"} if b'"replicas":false' in (files.get(RUN) or b"").replace(b" ", b"") else set()
    if not stay <= bugs(verdict):
        yield f"false outranks unknown: {', '.join(sorted(stay - bugs(verdict)))} gone"


def broken_base(must: frozenset[str] | None, verdict: Verdict) -> Iterator[str]:
    """Checks a folder as it was made: the planted bugs are found, and no others if none was planted."""
    yield from failures(verdict)
    if must is None:
        return
    if must and verdict.valid is not False:
        yield f"made so, and valid is {verdict.valid}"
    if not must <= bugs(verdict):
        yield f"made so, and not found: {', '.join(sorted(must - bugs(verdict)))}"
    if not must and bugs(verdict):
        yield f"false alarm: {', '.join(sorted(bugs(verdict)))}"


def beside_twin(wanted: tuple[Any, ...], mine: tuple[Any, ...]) -> Iterator[str]:
    """Breaches of rule 3; each argument is valid, findings and unknown names, as `spoken` gives them."""
    theirs, ours = ({name for name, klass, *_ in one[1] if klass == BUG} for one in (wanted, mine))
    if harsher := ours - theirs:
        yield f"false alarm: {', '.join(sorted(harsher))}, says the twin"
    if missed := theirs - {name for name, *_ in mine[1]} - set(mine[2]):
        yield f"false valid: {', '.join(sorted(missed))}, says the twin"
    if mine[0] is True and wanted[0] is not True:
        yield f"false valid: {wanted[0]}, says the twin"

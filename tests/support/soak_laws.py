"""Classifies a change to a file of a run folder, by the bytes before and after alone; compares the verdict
with the one before.

    HARMLESS      the file means the same
    UNREADABLE    less of it can be read, and the readable part was there before
    QUIET         the same, but a judge need not notice
    TAMPERING     the file means something else, which may be real damage
    MISTYPED      one value has another type, or is gone (soak_mutations.mistype)

A line counts as unreadable only if the twin's field table refuses it; a key twice in one object, or notation
that JSON's readers treat differently, is tampering.

The laws of verdicts:
1. The judge itself never fails, whatever was changed.
2. HARMLESS: the verdict is the same. UNREADABLE: nothing is found that was not found before, valid is no
   longer true, and a bug remains if its evidence is in other files. QUIET: the same, but valid may stay true.
   TAMPERING: the same folder gets the same verdict again.
3. MISTYPED: no bug that the twin does not call one; a bug of the twin's is reported or unknown; valid only if
   the twin says so. The judge may leave more open than the twin: an unreadable line may have been an excuse.
4. If a fault that lost data, or the setting, permitted something, or might have, an unreadable file may
   remove the permission, or add it: for such a base only rule 1 and "no longer true" are checked.
5. If the leader's log can no longer be read, reads and acks decide instead: an unseen record may be reported
   as a lost write, and a lost write as a duplicate. If a line of a log could not be read before, or the check
   was not made, records may be unseen though the base does not say so.
6. An unreadable line of the history may have recorded a fault that lost data: a loss that such a fault would
   permit is permitted then, and its name is unknown.
7. Where replicas.jsonl was never seen, only the history shows that a stuck partition had worked before.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from twin_folder import Line, fits_field_table, is_entry, is_int, is_offset, is_row, is_text

from floodmark.harness.verdict import BUG, Verdict

HARMLESS, UNREADABLE, QUIET, TAMPERING = "harmless", "unreadable", "quiet", "tampering"
MISTYPED = "mistyped"
HISTORY, ROWS, TRACE, RUN = "history.jsonl", "replicas.jsonl", "trace.jsonl", "run.json"

Files = dict[str, bytes | None]  # by name; None: a folder of that name is there


class SaidTwice(ValueError):
    """An object has a key twice."""


def amounts_to(name: str, before: bytes, after: bytes) -> str:
    """The kind of a change of this file."""
    if name == RUN:
        return of_run(before, after)
    old, new = lines_of(before), lines_of(after)
    first = len(common(old, new))
    last = len(common(old[first:][::-1], new[first:][::-1]))
    gone, come = old[first:len(old) - last], new[first:len(new) - last]
    if name == HISTORY and is_torn(after) and not gone:  # half a line at the end is ignored
        return QUIET if come else TAMPERING
    if len(gone) == len(come) and all(same(*pair) for pair in zip(gone, come, strict=True)):
        return HARMLESS
    if not all(is_unreadable(name, line) for line in come):
        return TAMPERING
    if not come and name not in (HISTORY, ROWS):  # a dump or a trace that ends early looks like a shorter one
        return TAMPERING
    if not come and any(is_unreadable(name, line) for line in gone):  # nothing may be wrong any more
        return TAMPERING
    if name == TRACE and not all(is_surely_noticed(line) for line in come):
        return QUIET
    return UNREADABLE


def is_torn(history: bytes) -> bool:
    """Whether it ends with a line that has no line feed and cannot be read."""
    lines = lines_of(history)
    return bool(lines) and not history.endswith(b"\n") and is_unreadable(HISTORY, lines[-1])


def lines_of(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.strip()]


def common(one: Sequence[bytes], other: Sequence[bytes]) -> list[bytes]:
    """The lines with which both begin."""
    for length, pair in enumerate(zip(one, other, strict=False)):
        if pair[0] != pair[1]:
            return list(one[:length])
    return list(one[:min(len(one), len(other))])


def same(one: bytes, other: bytes) -> bool:
    """Whether two lines mean the same to every reader."""
    if one == other:
        return True
    try:
        return repr(strictly(one)) == repr(strictly(other))  # 1 is not true, nor 1.0
    except (ValueError, RecursionError):
        return False


def strictly(line: bytes) -> Any:
    """The line's value; ValueError if readers of JSON may differ on it."""
    return json.loads(line.decode(), object_pairs_hook=once, parse_constant=refuse)


def once(pairs: list[tuple[str, Any]]) -> Line:
    by_name = dict(sorted(pairs, key=lambda pair: pair[0]))
    if len(by_name) < len(pairs):
        raise SaidTwice
    return by_name


def refuse(word: str) -> None:
    raise ValueError(word)


def is_unreadable(name: str, line: bytes) -> bool:
    """Whether no reader that follows the format takes anything from this line."""
    try:
        row = strictly(line)
    except SaidTwice:
        return False
    except (ValueError, RecursionError):
        return True
    return not isinstance(row, dict) or not law_of(name)(row)


def law_of(name: str) -> Callable[[Line], bool]:
    """The field table of a line of the file."""
    node = name.removeprefix("logs/").removesuffix(".jsonl")
    laws = {HISTORY: fits_field_table, ROWS: is_row, TRACE: is_event}
    return laws.get(name, lambda row: is_entry(row, node))


def is_event(row: Line) -> bool:
    return (is_int(row.get("time")) and is_offset(row.get("seq")) and is_text(row.get("node"))
            and is_text(row.get("event")))


def is_surely_noticed(line: bytes) -> bool:
    """Whether a reader surely notices: bytes that are no UTF-8 in a word make another word, which may mean
    nothing."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def of_run(before: bytes, after: bytes) -> str:
    """The kind of a change of run.json, which is one object, or nothing is known."""
    if same(before, after):
        return HARMLESS
    try:
        data = strictly(after)
    except SaidTwice:
        return TAMPERING
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(data, dict) or data.get("format") != 1:
        return UNREADABLE
    return TAMPERING


# -- laws -------------------------------------------------------------------------------------------------

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
    """`unseen`, if it is unknown because a log cannot be read, or not made (rule 5)."""
    torn = (one for one in verdict.unknown if one.reason.startswith("logs/"))
    return {"unseen"} & {name for one in (*torn, *verdict.not_made) for name in one.names}


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

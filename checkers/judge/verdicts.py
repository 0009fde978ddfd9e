"""Builds a Verdict from rows of findings and reasons: groups sorted, counts exact, examples with their
texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from floodmark.checkers.judge.deaths import may_have_been_struck, unexplained
from floodmark.checkers.judge.examples import EXAMPLES, Row, merged
from floodmark.checkers.judge.failures import Failure
from floodmark.checkers.judge.preconditions import Preconditions
from floodmark.checkers.judge.reasons import listed, stuck
from floodmark.checkers.judge.runs import Run
from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.finding_names import If, Reason, unknown_if
from floodmark.checkers.laws.permits import DOUBT, MAYBES, PERMITTED_BY
from floodmark.checkers.read.folder import Folder
from floodmark.checkers.read.observed import ELECTIONS, not_made
from floodmark.checkers.text.blame_words import NO_STEP, Blame, words_without_line
from floodmark.checkers.text.words import doubt_of, text_of
from floodmark.harness.verdict import BUG, PERMITTED, Finding, Unknown, Valid, Verdict

_EXAMPLE_KEYS = ("partition", "offset", "epoch", "value", "how", "nodes", "ops", "process")


def not_judged(folder: Folder) -> Verdict:
    """The verdict on a folder that is no run, with the reason."""
    return Verdict(valid="unknown", unknown=unknown_of(folder.reasons))


def verdict_of(run: Run, found: Sequence[Sequence[Row]], reasons: Iterable[Reason]) -> Verdict:
    """The verdict on a run. found: the rows from each of its units; reasons: those that only the
    laws could find."""
    folder, seen = run.folder, run.preconditions
    rows = merged(found)
    unclear = folder.guarantees.unclear
    worst = [row for row in rows if row["permit"] not in (DOUBT, *unclear)]
    traced = folder.trace is not None and folder.observes.shows(*ELECTIONS)
    findings = [
        *groups(worst, seen if traced else None),
        *of_run(finding_names.STUCK, stuck_rows(run), NO_STEP if traced else None),
        *of_run(finding_names.BROKER_DIED, broker_died(folder, seen)),
    ]
    without = not_made(folder.observes)
    every_reason = [*folder.reasons, *doubtful_elections(rows), *reasons, *maybes(worst, traced=traced),
                    *doubts(rows, unclear)]  # fmt: skip
    left_out = {name for entry in without for name in entry.names}
    unknown = unknown_of(every_reason, left_out, traced=folder.trace is not None)
    findings.sort(key=lambda finding: (finding.name, finding.klass, finding.permitted_by or ""))
    return Verdict(
        valid=valid_of(findings, unknown),
        findings=tuple(findings),
        unknown=unknown,
        not_made=without,
        counts=counts_of(folder, seen),
    )


def failed(failure: Failure, timings_s: Mapping[str, float], *, died: bool = False) -> Verdict:
    """The verdict if the judge itself failed on this folder: nothing is known. died: Spark's JVM died."""
    whose = "the judge failed: Spark's JVM died" if died else "the judge failed"
    return Verdict(
        valid="unknown",
        unknown=unknown_of([((*finding_names.MADE, finding_names.UNFIT), f"{whose}: {failure.words}")]),
        counts={},
        timings_s=rounded(timings_s),
        failure=failure.traceback,
    )


def rounded(timings_s: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds, 3) for name, seconds in timings_s.items()}


def valid_of(findings: Iterable[Finding], reasons: Sequence[object]) -> Valid:
    if any(finding.klass == BUG for finding in findings):
        return False
    return "unknown" if reasons else True


def unknown_of(
    reasons: Iterable[Reason], left_out: Set[str] = frozenset(), *, traced: bool = False
) -> tuple[Unknown, ...]:
    """One entry for each reason, names sorted; equal reasons are joined. left_out: the checks that are not
    made, of which nothing is unknown."""
    checks_of: dict[str, set[str]] = {}
    for row, reason in reasons:
        checks = unknown_if(row, traced=traced) if isinstance(row, If) else row
        if made := {*checks} - left_out:
            checks_of.setdefault(reason, set()).update(made)
    return tuple(Unknown(names=tuple(sorted(checks)), reason=why) for why, checks in checks_of.items())


def counts_of(folder: Folder, seen: Preconditions) -> dict[str, Any]:
    history, records = seen.history, {node: entries.lines for node, entries in seen.dumps.items()}
    return {
        "ops": history.lines - folder.torn,
        "ok": history.ok,
        "fail": history.fail,
        "info": history.info,
        "acked": history.acked,
        "torn": folder.torn,
        "records": {node: records.get(node, 0) for node in folder.nodes if node in folder.dumps},
    }


def groups(rows: Sequence[Row], trace: Preconditions | None) -> list[Finding]:
    """One Finding for each (name, class, permitted_by); causes that differ only in certainty are one. trace:
    None where nothing shows what is to blame."""
    grouped = dict[tuple[str, str | None], list[Row]]()
    for row in rows:
        grouped.setdefault((row["name"], PERMITTED_BY.get(row["permit"])), []).append(row)
    return [
        Finding(
            name=name,
            klass=PERMITTED if by else BUG,
            permitted_by=by,
            count=sum({row["permit"]: row["count"] for row in mine}.values()),
            examples=tuple(example(row, trace) for row in sorted(mine, key=place)[:EXAMPLES]),
        )
        for (name, by), mine in grouped.items()
    ]


def place(row: Row) -> tuple[bool, int, bool, int, int]:
    partition, offset = row["partition"], row["offset"]
    return partition is None, partition or 0, offset is None, offset or 0, row["rank"]


def example(row: Row, trace: Preconditions | None) -> dict[str, Any]:
    """One finding as verdict.json shows it."""
    shown = applying(row)
    blame = None if row["blame"] is None else Blame(text=row["blame"], known=row["blame_known"])
    if row["name"] in finding_names.CYCLES:
        shown.pop("how", None)  # the cycle, for the text
    if trace is not None and row["at"] is not None:
        shown["event"] = trace.line_at(row["at"])
    elif trace is not None and row["permit"] is None:
        blame = words_without_line(row["name"], row)
    if blame is not None:
        shown["blame"] = blame.as_json
        if blame.known and row["seq"] is not None:  # `event` is another line than the finding's own
            shown["blame"] |= {"shown_by": {"node": row["node"], "seq": row["seq"]}}
    return {**shown, "text": text_of(row["name"], row)}


def applying(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that apply to a finding."""
    return {
        key: row[key] for key in _EXAMPLE_KEYS if row.get(key) is not None and (key, row[key]) != ("ops", [])
    }


def maybes(rows: Iterable[Row], *, traced: bool) -> list[Reason]:
    """Reasons for findings that are permitted only possibly: their names are unknown too."""
    found = sorted({(PERMITTED_BY[row["permit"]], row["name"]) for row in rows if row["permit"] in MAYBES})
    where = "" if traced else "without a trace "
    return [((name,), f"{where}nobody can say whether {cause} covers all of it") for cause, name in found]


def doubtful_elections(rows: Iterable[Row]) -> Iterator[Reason]:
    """The reason why nobody knows whether some unclean elections were allowed: a row for each partition."""
    doubtful = [row for row in rows
                if row["name"] == finding_names.UNCLEAN_ELECTION and row["permit"] == DOUBT]  # fmt: skip
    if doubtful:
        more = ", ..." if doubtful[0]["count"] > len(doubtful) else ""
        yield (
            (finding_names.UNCLEAN_ELECTION,),
            f"partition {listed([row['partition'] for row in doubtful])}{more} had an unclean election, and "
            "nobody can say whether it was allowed: a line of the nemesis that asked for it may be missing, "
            "or too near in time",
        )


def doubts(rows: Iterable[Row], unclear: Set[int]) -> Iterator[Reason]:
    """Reasons for rows of which nobody can tell whether they are findings. unclear: the permits of
    guarantees that nobody knows."""
    for row in rows:
        if row["rank"] == 1 and row["permit"] == DOUBT and row["name"] != finding_names.UNCLEAN_ELECTION:
            yield (row["name"],), doubt_of(row["name"], row)
        elif row["rank"] == 1 and row["permit"] in unclear:
            found = f"{row['count']} of {row['name']}, the first in partition {row['partition']}"
            cause = PERMITTED_BY[row["permit"]]
            yield (row["name"],), f"nobody knows whether {cause} permits what was found: {found}"


def stuck_rows(run: Run) -> list[dict[str, Any]]:
    timeout_s = run.folder.about["settle"].get("timeout_s")
    return [
        {"partition": key, "how": " and ".join(what), "timeout_s": timeout_s}
        for key, what in stuck(run.folder, run.preconditions, run.gates)[0].items()
    ]


def broker_died(folder: Folder, seen: Preconditions) -> list[dict[str, Any]]:
    """A process ended by itself after it had been ready, and no fault explains that. (The harness lists none
    in `died` that a full disk or the like had ended.)"""
    words = folder.about.get("died_words")
    last_words = words if isinstance(words, dict) else {}
    if may_have_been_struck(folder, seen):
        return []
    return [{"nodes": [node], "last_words": last_words.get(node)} for node in unexplained(folder, seen)]


def of_run(name: str, rows: Sequence[Mapping[str, Any]], blame: Blame | None = None) -> list[Finding]:
    """Findings from run.json: always bugs."""
    more = {} if blame is None else {"blame": blame.as_json}
    examples = tuple({**applying(row), **more, "text": text_of(name, row)} for row in rows[:EXAMPLES])
    one = Finding(name=name, klass=BUG, permitted_by=None, count=len(rows), examples=examples)
    return [one] if rows else []

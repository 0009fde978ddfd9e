"""What changed from one verdict of a run to another. Pure."""

from collections import Counter
from collections.abc import Iterator

from floodmark.harness.report import verdict_text
from floodmark.harness.report.model import Json
from floodmark.harness.report.phrases import class_text, many


def changes(before: Json | None, now: Json) -> list[str]:
    """A line for each difference between two verdicts."""
    then: Json = before if before is not None else {"findings": [], "unknown": []}
    return [*_findings(then, now), *_unknowns(then, now)]


def _findings(then: Json, now: Json) -> Iterator[str]:
    names = sorted({found["name"] for verdict in (then, now) for found in verdict["findings"]})
    for name in names:
        was, has = _groups(then, name), _groups(now, name)
        for group in sorted(was.keys() & has.keys(), key=str):
            if was[group]["count"] != has[group]["count"]:
                yield (f"  count      {name}, {class_text(has[group])}: was {was[group]['count']}, "
                       f"is {has[group]['count']}")
        gone = [was[group] for group in sorted(was.keys() - has.keys(), key=str)]
        new = [has[group] for group in sorted(has.keys() - was.keys(), key=str)]
        if len(gone) == len(new) == 1:
            yield (f"  class      {name}: was {class_text(gone[0])} ({gone[0]['count']}), is "
                   f"{class_text(new[0])} ({new[0]['count']})")
            continue
        for found in gone:
            yield f"  gone       {name}: {many(found['count'], 'finding')}, {class_text(found)}"
        for found in new:
            yield f"  new        {name}: {many(found['count'], 'finding')}, {class_text(found)}"
            yield from (f"               {example['text']}" for example in found.get("examples", ())[:1]
                        if example.get("text"))


def _groups(verdict: Json, name: str) -> dict[tuple[str, str | None], Json]:
    """The groups of a finding by class and permission."""
    return {(found["class"], found["permitted_by"]): found
            for found in verdict["findings"] if found["name"] == name}


def _unknowns(then: Json, now: Json) -> Iterator[str]:
    """Yields, for each reason, the checks that became unknown, and those that no longer are."""
    was, has = _by_reason(then), _by_reason(now)
    for reason in sorted(was.keys() | has.keys()):
        lifted = was.get(reason, Counter()) - has.get(reason, Counter())
        added = has.get(reason, Counter()) - was.get(reason, Counter())
        if added:
            yield f"  unknown    {verdict_text.shortened(sorted(added))}: {reason}"
        if lifted:
            yield f"  known now  {verdict_text.shortened(sorted(lifted))}: no longer for: {reason}"


def _by_reason(verdict: Json) -> dict[str, Counter[str]]:
    reasons: dict[str, Counter[str]] = {}
    for entry in verdict.get("unknown") or ():
        reasons.setdefault(entry["reason"], Counter()).update(set(entry["names"]))
    return reasons

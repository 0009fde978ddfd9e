"""A verdict for machines (verdict.json, format 1, written by rename) and for people (plain text)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from harness.run import Run, write_whole
from harness.verdict import BUG, Finding, Verdict

FORMAT = 1
LISTED = 3  # examples of one finding in the text


def as_json(verdict: Verdict) -> dict[str, Any]:
    """verdict.json as data."""
    return {
        "format": FORMAT,
        "valid": verdict.valid,
        "findings": [
            {
                "name": found.name,
                "class": found.klass,
                "permitted_by": found.permitted_by,
                "count": found.count,
                "examples": [dict(example) for example in found.examples],
            }
            for found in verdict.findings
        ],
        "unknown": [{"names": list(told.names), "reason": told.reason} for told in verdict.unknown],
        "counts": dict(verdict.counts),
        "timings_s": dict(verdict.timings_s),
    }


def write(folder: Path, verdict: Verdict) -> None:
    """Puts verdict.json into the run's folder, whole or not at all."""
    write_whole(
        Run(folder=folder).verdict_path,
        orjson.dumps(as_json(verdict), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE),
    )


def text(folder: Path, verdict: Verdict) -> str:
    """The report: the verdict, a paragraph a finding, what is unknown and why, and what was looked at."""
    said = {True: "valid", False: "INVALID", "unknown": "unknown"}[verdict.valid]
    parts = [f"{folder.name}: {said}"]
    parts += [paragraph(folder, found) for found in verdict.findings]
    parts += [f"  unknown  {', '.join(told.names)}\n           {told.reason}" for told in verdict.unknown]
    parts.append(f"  looked at  {looked_at(verdict.counts)}")
    return "\n".join(parts)


def paragraph(folder: Path, found: Finding) -> str:
    """What was found, the worst of it, and where to look."""
    judged = "a bug" if found.klass == BUG else f"permitted by {found.permitted_by}"
    lines = [f"  {found.name}  {found.count} {'finding' if found.count == 1 else 'findings'}, {judged}"]
    lines += [f"    {example.get('text', '')}" for example in found.examples[:LISTED]]
    if found.count > LISTED:
        lines.append(f"    ... and {found.count - min(LISTED, len(found.examples))} more")
    lines.append(
        f"    look: floodmark show {folder} --finding {found.name};  why: floodmark explain {found.name}"
    )
    return "\n".join(lines)


def looked_at(counts: Mapping[str, Any]) -> str:
    """The counts on one line."""
    if not counts:
        return "nothing"
    records = ", ".join(f"{node} {number}" for node, number in counts.get("records", {}).items())
    torn = f", {counts['torn']} half line ignored" if counts.get("torn") else ""
    return (
        f"{counts['ops']} lines of history ({counts['ok']} ok, {counts['fail']} fail, {counts['info']} "
        "info), "
        f"{counts['acked']} acked records{torn}; records in the final logs: {records or 'none'}"
    )

"""A verdict for machines: verdict.json, format 1, by rename (for people: harness.commands.telling)."""

from typing import Any

import orjson

from harness.places import Place
from harness.run import RunAt, write_whole
from harness.verdict import Verdict

FORMAT = 1


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
        "not_made": [{"names": list(told.names), "reason": told.reason} for told in verdict.not_made],
        "counts": dict(verdict.counts),
        "timings_s": dict(verdict.timings_s),
    }


def write(folder: Place, verdict: Verdict) -> None:
    """Puts verdict.json into the run's folder, whole or not at all."""
    write_whole(
        RunAt(folder=folder).verdict_path,
        orjson.dumps(as_json(verdict), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE),
    )

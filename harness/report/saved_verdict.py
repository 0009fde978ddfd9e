"""Reads a run's run.json and verdict.json as mappings, and checks that they have the shape that reports need.
`read_about` and `is_verdict` check the keys. The folder may come from an untrusted source: every text goes
through safe_text.py here.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from floodmark.checkers.text.blame_words import with_blame_apart
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.registered import NAME
from floodmark.harness.report.safe_text import harmless_data
from floodmark.harness.run import FORMAT, SHRUNK, VERDICT_BYTES_AT_MOST, P, Run, RunAt

LEFT_OF_SHRUNK = "only run.json, the verdict and the measures are left: this verdict is the campaign's"


def read_about(run: Run) -> Mapping[str, Any]:
    """run.json; FloodmarkError if the keys that reports show have the wrong type."""
    about = harmless_data(run.about())
    for name in ("partitions", "guarantees", "settle", "leaders", "final_reads", "config"):
        if not isinstance(about.get(name) or {}, dict):
            raise FloodmarkError(f"{run.about_path}: `{name}` is no object")
    return about


def read_verdict(run: RunAt[P]) -> Mapping[str, Any]:
    """The saved verdict; FloodmarkError if there is none, or it cannot be read."""
    judge = f"floodmark check {run.folder}"
    try:
        verdict = orjson.loads(run.read(run.verdict_path, at_most=VERDICT_BYTES_AT_MOST))
    except FileNotFoundError as error:
        raise FloodmarkError(f"{run.folder} was not judged yet: {judge}") from error
    except (OSError, orjson.JSONDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise FloodmarkError(f"cannot read {run.verdict_path}: {why}; judge again: {judge}") from error
    if not is_verdict(verdict):
        raise FloodmarkError(f"{run.verdict_path} is no verdict of format {FORMAT}; judge again: {judge}")
    return harmless_data({**verdict, "findings": [
        {**found, "examples": [with_blame_apart(example) for example in found.get("examples") or ()]}
        for found in verdict["findings"]]})


def kept_verdict(run: RunAt[P]) -> Mapping[str, Any] | None:
    """The verdict of a run that a campaign has shrunk, which nobody can judge again; None for other runs, and
    if it cannot be read."""
    try:
        return read_verdict(run) if run.about().get(SHRUNK) is True else None
    except FloodmarkError:
        return None


def is_verdict(value: Any) -> bool:
    """Whether the value has the keys of a verdict that reports show."""
    if not isinstance(value, dict) or value.get("format") != FORMAT or "valid" not in value:
        return False
    findings, unknown, not_made = value.get("findings"), value.get("unknown", []), value.get("not_made", [])
    return (isinstance(findings, list) and isinstance(unknown, list) and isinstance(not_made, list)
            and isinstance(value.get("counts") or {}, dict)
            and all(isinstance(found, dict) and is_group(found) for found in findings)
            and all(isinstance(entry, dict) and {"names", "reason"} <= entry.keys()
                    and are_texts(entry["names"]) for entry in (*unknown, *not_made)))


def is_group(found: Mapping[str, Any]) -> bool:
    """Whether the value is a group of findings: an entry of `findings`."""
    examples = found.get("examples") or []
    return ({"name", "class", "permitted_by", "count"} <= found.keys()
            and isinstance(found["name"], str) and NAME.fullmatch(found["name"]) is not None
            and type(found["count"]) is int and isinstance(examples, list)
            and all(isinstance(example, dict) and isinstance(example.get("ops") or [], list)
                    and are_texts(example.get("nodes") or []) and is_blame(example.get("blame"))
                    for example in examples))


def is_blame(value: Any) -> bool:
    if value is None:
        return True
    shown_by = value.get("shown_by", {"node": "", "seq": 0}) if isinstance(value, dict) else None
    return (isinstance(shown_by, dict) and {"node", "seq"} <= shown_by.keys()
            and isinstance(value.get("text"), str) and isinstance(value.get("known"), bool))


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)

"""Reads a run's run.json and verdict.json as mappings, and checks that they have the shape that reports need;
and what the folder says besides: its lines that break format 1, the last words of brokers that ended by
themselves. The folder may come from an untrusted source: every text goes through safe_text.py here.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import orjson

from floodmark.checkers.laws.finding_names import BROKER_DIED
from floodmark.checkers.text.blame_words import with_blame_apart
from floodmark.harness import history
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.registered import NAME
from floodmark.harness.report.model import Json, items, mapping, text
from floodmark.harness.report.phrases import command_line
from floodmark.harness.report.safe_text import harmless, harmless_data
from floodmark.harness.run import FORMAT, SHRUNK, VERDICT_BYTES_AT_MOST, P, Run, RunAt
from floodmark.harness.run_location import Place, is_safe_name

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
    judge = command_line("check", run.folder)
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
    """The verdict of a run that a campaign has shrunk, which none can judge again; None for other runs."""
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
            and isinstance(found["class"], str) and isinstance(found["permitted_by"], str | None)
            and type(found["count"]) is int and isinstance(examples, list)
            and all(isinstance(example, dict) and isinstance(example.get("ops") or [], list)
                    and are_texts(example.get("nodes") or []) for example in examples)
            and all(isinstance(blame, dict) and isinstance(blame.get("text"), str)
                    and isinstance(blame.get("known"), bool)
                    and isinstance(shown_by := blame.get("shown_by", {"node": "", "seq": 0}), dict)
                    and {"node", "seq"} <= shown_by.keys()
                    for example in examples if (blame := example.get("blame")) is not None))


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


MOST_LINES = 5  # named of one file
SCAN_LINES = 100_000  # lines read from the first bad one on
_COMPLAINT = re.compile(r"^(history\.jsonl|logs/[^/]+\.jsonl):(\d{1,18}): (\d{1,18}) lines? ")
_ENTRY = {"partition": int, "offset": int, "epoch": int, "crc": int}


def bad_lines(run: RunAt[Place], verdict: Json) -> Iterator[str]:
    """Yields `FILE:LINE: what is wrong`, the first few of each file that the verdict complains about."""
    for entry in verdict.get("unknown") or ():
        complaint = _COMPLAINT.match(str(entry["reason"]))
        if complaint is not None:
            name, first, count = complaint[1], int(complaint[2]), int(complaint[3])
            wrong = flaw_of_op if name == "history.jsonl" else flaw_of_log_entry
            with suppress(OSError), run.open(run.folder / name) as file:
                found = islice(enumerate(file, 1), first - 1, first - 1 + SCAN_LINES)
                flaws = ((number, wrong(line)) for number, line in found if not line.isspace())
                bad = (f"{name}:{number}: {flaw}" for number, flaw in flaws if flaw is not None)
                yield from islice(bad, min(MOST_LINES, count))


def flaw_of_op(line: bytes) -> str | None:
    """What is wrong with a line of the history; None: nothing, or it is a torn last line."""
    try:
        history.decode_op(line)
    except ValueError as error:
        return str(error) if line.endswith(b"\n") else None
    return None


def flaw_of_log_entry(line: bytes) -> str | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    if not isinstance(row, dict):
        return "not a JSON object"
    for name, kind in _ENTRY.items():
        if type(row.get(name)) is not kind:
            return f"{name} is {'missing' if row.get(name) is None else f'{row[name]!r}, not an integer'}"
    value = row.get("value")
    return None if value is None or type(value) is int else f"value is {value!r}, not an integer"


TAIL_BYTES = 2000
LINES = 3


def died_unquoted(run: RunAt[P], about: Json, verdict: Json) -> Iterator[str]:
    """Yields a sentence for each node that died, unless a finding broker-died quotes its lines."""
    found = any(found["name"] == BROKER_DIED for found in verdict.get("findings") or ())
    for node in (harmless(str(node)) for node in items(about, "died")):
        saved = [line.strip() for line in saved_log_lines(about, node)]
        shown = saved if len(saved) <= LINES + 1 else [saved[0], "...", *saved[-LINES:]]
        if not (found and saved):
            yield f"{node} ended by itself; its last words: {' | '.join(shown) or log_tail(run, node)}"


def saved_log_lines(about: Json, node: str) -> list[str]:
    """What run.json has of the node's end: how it ended, then the end of its log. Empty: nothing."""
    words = text(mapping(about, "died_words"), node)
    return [line.rstrip() for line in words.splitlines() if line.strip()]


def log_tail(run: RunAt[P], node: str) -> str:
    """The last lines of the node's log, and the log."""
    if not is_safe_name(node):
        return "none (no broker has such a name)"
    log = run.work_folder / f"{node}.log"
    try:
        with run.open(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return f"none ({log} is not there)"
    except OSError as error:
        return f"none ({log} cannot be read: {error.strerror or error})"
    return harmless(f"{' | '.join(line.strip() for line in lines[-LINES:]) or 'none'} ({log})")

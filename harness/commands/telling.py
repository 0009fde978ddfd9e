"""A verdict as text: what happened, whose fault it is, what cannot be told, and the next command to type.

`check`, `run`, `demo` and `show` all say it with these words; what they print is made from verdict.json and
run.json alone, so that a report of last night reads like one of now.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from checkers import names as checks
from harness.commands import again
from harness.commands.words import many, told_class, verdict_word
from harness.schedule import ACTS
from harness.verdict import BUG

LOSSES = ("lost-write", "diverged")
LISTED = 3  # examples of one finding
ALL_OF_THEM = 8  # more names than these are not spelt out

Told = Mapping[str, Any]


def report(folder: Path, verdict: Told, about: Told | None) -> str:
    """The verdict, a paragraph a finding, what is unknown and why, what was looked at, what to type next."""
    parts = [f"{folder.resolve().name}: {verdict_word(verdict.get('valid'))}"]
    parts += [f"  ran        {ran(about)}", *struck(about)] if about else []
    parts += [paragraph(found) for found in worst_first(verdict.get("findings") or ())]
    parts += unknowns(verdict.get("unknown") or ())
    parts.append(f"  looked at  {looked_at(verdict.get('counts') or {})}")
    parts += next_commands(folder, verdict, about)
    return "\n".join(parts)


def ran(about: Told) -> str:
    """What was run, with which promises."""
    words = [f"{about.get('cluster', 'some')} cluster of {len(about.get('nodes') or ())}",
             *(f"{name} {about.get(name, '?')}" for name in ("rules", "workload")), *promises(about)]
    return ", ".join([*words, f"seed {about.get('seed', '?')}"])


def promises(about: Told) -> list[str]:
    """What the settings promise, by Kafka's keys."""
    guarantees = about.get("guarantees") or {}
    told = [f"{key}={guarantees[name]}" for name, key in (
        ("acks", "acks"), ("min_insync_replicas", "min.insync.replicas")) if name in guarantees]
    return told + (["unclean elections allowed"] if guarantees.get("unclean_leader_election") else [])


def struck(about: Told) -> list[str]:
    """The schedule in one line: how many of which acts."""
    entries = [entry for entry in about.get("schedule") or () if isinstance(entry, Mapping)]
    acts = Counter(str(entry.get("f")) for entry in entries if entry.get("f") not in ACTS)
    told = ", ".join(f"{number} {f}" for f, number in sorted(acts.items()))
    return [f"  struck by  {told}"] if told else []


# -- findings -----------------------------------------------------------------------------------------------


def paragraph(found: Told) -> str:
    """What was found, and the worst of it."""
    name = click.style(found["name"], bold=True)
    lines = [f"  {name}: {many(found['count'], 'finding')}, {told_class(found)}"]
    examples = found.get("examples") or ()
    lines += [f"    {example.get('text') or dict(example)}" for example in examples[:LISTED]]
    left = found["count"] - min(LISTED, len(examples))
    lines += [f"    ... and {left} more"] if left else []
    return "\n".join(lines)


def unknowns(entries: Sequence[Told]) -> Iterator[str]:
    """What the judge may have missed, the reasons for the same checks together."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        reasons.setdefault(tuple(entry["names"]), []).append(entry["reason"])
    for names, told in reasons.items():
        yield "\n".join([f"  {click.style('cannot tell', fg='yellow')}: {shortened(names)}",
                         *(f"    {reason}" for reason in told)])


def shortened(names: Sequence[str]) -> str:
    """The names, or that they are all of them."""
    if set(names) >= set(checks.MADE):
        return "everything"
    if len(names) <= ALL_OF_THEM:
        return ", ".join(names)
    if set(names) >= set(checks.OF_THE_HISTORY):
        return "whatever the history tells (verdict.json names the checks)"
    return f"{', '.join(names[:ALL_OF_THEM])} and {len(names) - ALL_OF_THEM} more (verdict.json has all)"


def looked_at(counts: Told) -> str:
    """The counts on one line."""
    if not counts:
        return "nothing"
    records = ", ".join(f"{node} {number}" for node, number in (counts.get("records") or {}).items())
    torn = f", {counts['torn']} half line ignored" if counts.get("torn") else ""
    ops = ", ".join(f"{counts.get(name, 0)} {name}" for name in ("ok", "fail", "info"))
    acked = many(counts.get("acked", 0), "acked record")
    return (f"{many(counts.get('ops', 0), 'line')} of history ({ops}), {acked}{torn}; "
            f"records in the final logs: {records or 'none'}")


# -- what next ----------------------------------------------------------------------------------------------


def next_commands(folder: Path, verdict: Told, about: Told | None) -> list[str]:
    """Where there is something to be looked into: how to look, what it means, how to see it again."""
    findings = worst_first(verdict.get("findings") or ())
    if about is None or (not findings and verdict.get("valid") is True):
        return []
    look = ["floodmark", "show", str(folder)]
    if not findings:
        return [f"  look       {shlex.join(look)}"]
    name = str(findings[0]["name"])
    typed = [("look", shlex.join([*look, "--finding", name])), ("why", f"floodmark explain {name}")]
    once_more = again.command(folder, about) if findings[0]["class"] == BUG else None
    typed += [("again", once_more)] if once_more else []
    return [f"  {head:<9}  {command}" for head, command in typed]


def worst_first(findings: Sequence[Told]) -> list[Told]:
    """Bugs before what is permitted; a loss before what comes of it; else by name."""
    return sorted(
        findings, key=lambda found: (found["class"] != BUG, found["name"] not in LOSSES, found["name"]))


def summary(codes: Sequence[int], words: Mapping[int, str]) -> str:
    """`20 runs: 14 invalid, 3 unknown, 3 valid`."""
    numbers = Counter(codes)
    return f"{many(len(codes), 'run')}: " + ", ".join(
        f"{numbers[code]} {word}" for code, word in words.items() if numbers[code])

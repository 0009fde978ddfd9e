"""Makes the page of a run as one HTML file: verdict, sentences, the log viewer, charts over time, other
findings, what is unknown, the configuration, and the commands to type next.

Rules
1. Every text of a run is escaped where it is put into the page (`esc`), and so is the page's data (`block`):
   text of a folder is never markup.
2. The page fetches nothing (elements.py).
3. The parts about the finding come first; a part that has nothing to show says why.
"""

import functools
import re
import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from floodmark.harness import __version__
from floodmark.harness.faults import LASTING
from floodmark.harness.report import verdict_text
from floodmark.harness.report.case_names import is_kafka
from floodmark.harness.report.html import charts
from floodmark.harness.report.html.data import data_of, nodes_of
from floodmark.harness.report.html.elements import block, document, esc, package_file, packed, table, typed
from floodmark.harness.report.html.reproduced import Standing
from floodmark.harness.report.model import Event, RunFacts, int_in
from floodmark.harness.report.phrases import PERMITS, many, seconds
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.verdict import BUG

UNBROKEN = 30  # letters: short enough for one line on a phone
LONG = re.compile(r"(?<![\w.:])[1-9]\d{3,}(?![\w.:]|\.\d)")
ROWS = 60  # of the availability table
DEFINED = (
    "As floodmark campaign stats measures them. The first failed op: from the fault on. The wait for an ack: "
    "the longest of any partition, while somebody waited. Acked again: from the mending to the next ack, of "
    "the partition that took longest."
)
CLASSES = {"valid": "good", "unknown": "doubt", "interrupted": "doubt", "let through": "doubt"}

Json = Mapping[str, Any]  # an object of run.json or verdict.json


def page_of(facts: RunFacts) -> bytes:
    """The HTML file."""
    title = " ".join(filter(None, heading(facts)))
    body = "\n".join(
        part
        for part in (
            head_line(facts),
            "<main>",
            trouble(facts),
            verdict_card(facts),
            *in_order(facts),
            availability_card(facts),
            other_findings(facts),
            unknown_card(facts),
            config_card(facts),
            next_card(facts),
            foot(facts),
            "</main>",
        )
        if part
    )
    return document(
        f"{title} - {harmless(facts.folder.name)}",
        [body, block("data", data_of(facts)), *chart_blocks(facts)],
        styles=("page.css",),
        scripts=("copying.js", "viewer.js", "charts.js", "page.js"),
        library=True,
    )


def in_order(facts: RunFacts) -> list[str]:
    """The viewer and the charts; the viewer first if there is a story to step through."""
    parts = [viewer_card(facts), charts.section(facts)]
    return parts if any(event.story is not None for event in facts.events) else parts[::-1]


def chart_blocks(facts: RunFacts) -> list[str]:
    """The specifications of the drawings, and the library that draws them."""
    return [packed_text(name, value) if isinstance(value, str) else block(name, value)
            for name, value in charts.blocks(facts, nodes_of(facts))]  # fmt: skip


@functools.lru_cache(maxsize=1)
def packed_text(name: str, value: str) -> str:
    """A compressed text; cached, because every page of a call has the same library."""
    return packed(name, value.encode(), "text")


# -- verdict ------------------------------------------------------------------------------------------------


def heading(facts: RunFacts) -> tuple[str, str]:
    """`invalid:` and `1 lost write`."""
    if facts.ruled is None:
        return "not judged", ""
    findings = [found for found in facts.findings if found["class"] == BUG] or facts.findings
    word = facts.ruled.word
    if not findings:
        return word, ""
    worst = findings[0]
    name, count = str(worst["name"]), int(worst["count"])
    label = many(count, "lost write") if name == "lost-write" else f"{name} ({count})" if count > 1 else name
    bugs = sum(account.found["class"] == BUG for account in facts.reading.accounts)
    if worst["class"] != BUG:
        return word, f"({label}, permitted by {worst['permitted_by']})"
    return f"{word}:", label + (f" and {many(bugs - 1, 'other event')}" if bugs > 1 else "")


def head_line(facts: RunFacts) -> str:
    word, rest = heading(facts)
    kind = facts.ruled.kind if facts.ruled is not None else "unknown"
    made = f"{facts.made_at:%Y-%m-%d %H:%M} {facts.made_at:%Z}" if facts.made_at is not None else "no date"
    about = facts.about
    system = f"reference broker, floodmark {about.get('version', '?')}" if about.get("rules") and not (
        is_kafka(about)) else ""
    commit = str(about.get("commit") or "")[:7]
    parts = [
        facts.tested,
        system,
        f"commit {commit}" if commit else "",
        f"seed {about['seed']}" if about.get("seed") is not None else "",
        made,
        seconds(facts.last_ns),
    ]
    return (
        f'<header><h1><span class="{CLASSES.get(kind, "bad")}">{esc(word)}</span> {esc(rest)}</h1>'
        f'<p class="tested">{" · ".join(map(unbroken, filter(None, parts)))}</p></header>'
    )


def unbroken(part: str) -> str:
    """The text; a short one is not broken into lines."""
    return f"<span class=nb>{esc(part)}</span>" if len(part) <= UNBROKEN else esc(part)


def trouble(facts: RunFacts) -> str:
    """What could not be read of the folder, and the failures of the run itself."""
    problems = [*(facts.ruled.harness if facts.ruled is not None else ()), *facts.problems]
    if not problems:
        return ""
    lines = "".join(f"<li>{esc(line)}</li>" for line in problems)
    return (
        '<section class="card"><b class="doubt">This page is incomplete</b>'
        f"<ul>{lines}</ul></section>"
    )


def verdict_card(facts: RunFacts) -> str:
    """The worst finding's sentence, its course in a few lines, why it is (not) allowed, and the run in
    numbers."""
    parts = []
    if facts.reading.accounts:
        sentences = dict(facts.reading.accounts[0].parts)
        found = facts.reading.accounts[0].found
        lead = sentences.get("what") or next(iter(facts.reading.accounts[0].others), str(found["name"]))
        parts.append(f'<p class="lead">{esc(lead)}</p>')
        parts += [
            f"<p>{esc(sentence[:1].upper() + sentence[1:])}</p>"
            for head in ("guilty", "event")
            if (sentence := sentences.get(head))
        ]
        if facts.reading.summary:
            rows = "".join(
                f"<dt>{esc(head)}</dt><dd>{esc(line)}</dd>" for head, line in facts.reading.summary
            )
            parts.append(f'<dl class="course">{rows}</dl>')
        parts += [f"<p>{esc(sentences['why'])}</p>"] if "why" in sentences else []
    elif facts.verdict is not None:
        counts = facts.verdict.get("counts") or {}
        parts.append(
            f'<p class="lead">{esc(nothing_found(facts))}</p>'
            f"<p>Looked at: {esc(separated(verdict_text.looked_at(counts)))}.</p>"
        )
    return f'<section class="card" aria-label="what happened">{"".join(parts)}{numbers(facts)}</section>'


def nothing_found(facts: RunFacts) -> str:
    if facts.ruled is not None and facts.ruled.kind == "valid":
        struck = sum(facts.reading.strikes.struck.values())
        through = f"through {many(struck, 'fault')}" if struck else "and no fault struck"
        return f"Every acked write is where it was acked, and no law was broken, {through}."
    return "No broken law was found; what is unknown is listed below."


def separated(sentence: str) -> str:
    """The sentence with separators in its long numbers."""
    return LONG.sub(lambda found: f"{int(found[0]):,}", sentence)


def numbers(facts: RunFacts) -> str:
    """Five numbers at most."""
    counts = (facts.verdict or {}).get("counts") or {}
    faults = facts.reading.strikes.struck
    listed = ", ".join(f"{number} {f.replace('_', ' ')}" for f, number in sorted(faults.items()))
    acked = int_in(counts, "acked")
    shown = [(f"{acked:,}", "acked writes")] if acked is not None else []
    shown.append((f"{sum(faults.values()):,}", f"faults: {listed}" if listed else "faults"))
    if facts.traced.is_there:
        elections, unclean = len(facts.traced.elections), facts.unclean_elections
        cuts, unsafe = (
            len(facts.traced.truncations),
            sum(number in facts.blamed for number, _ in facts.traced.truncations),
        )
        shown += [
            (f"{elections:,}", "elections, " + (f"{unclean} unclean" if unclean else "all clean")),
            (f"{cuts:,}", "truncations" + (f", {unsafe} unsafe" if unsafe else "")),
        ]
    records = counts.get("records")
    if facts.findings:
        shown.append(reproduced(facts.standing))
    elif isinstance(records, Mapping) and records:
        most = max((each for each in records.values() if type(each) is int), default=0)
        shown.append((f"{most:,}", "records in the longest final dump"))
    return (
        '<div class="numbers">'
        + "".join(f"<div><b>{esc(number)}</b>{esc(label)}</div>" for number, label in shown)
        + "</div>"
    )


def reproduced(standing: Standing) -> tuple[str, str]:
    """`2 of 2`, `reproduced; first seen 2026-11-23`."""
    tried = standing.tried > 0
    notes = ["reproduced" if tried else "to reproduce it"]
    notes += [f"known: {standing.known}"] if standing.known else []
    notes += [f"first seen {standing.first}"] if standing.first else []
    return f"{standing.shown} of {standing.tried}" if tried else "not tried", "; ".join(notes)


# -- the viewer ---------------------------------------------------------------------------------------------


def viewer_card(facts: RunFacts) -> str:
    """The log viewer's frame; the script draws its contents."""
    stories = [event for event in facts.events if event.story is not None]
    if not stories and not facts.finals:
        return ""
    labels = [
        f"{event.account.found['name']}, partition {(event.story or {})['partition']}" for event in stories
    ]
    labels += [f"partition {one['partition']}{' in the end' if stories else ''}" for one in facts.finals]
    choices = "".join(
        f'<li><button type="button" data-story="{at}">{esc(label)}</button></li>'
        for at, label in enumerate(labels)
    )
    chosen = f'<ul class="choices" aria-label="partitions">{choices}</ul>' if len(labels) > 1 else ""
    traced = any((event.story or {})["traced"] for event in stories)
    hint = (
        "step through with ← →; the slider goes through every event of the partition"
        if traced
        else "the final dumps"
    )
    title = "How it happened" if stories else "The logs in the end"
    return Template(package_file("viewer.html")).substitute(title=title, hint=hint, choices=chosen)


# -- tables -------------------------------------------------------------------------------------------------


def availability_card(facts: RunFacts) -> str:
    """How each fault affected the clients, as `campaign stats` measures it."""
    clients = facts.clients
    if not clients.faults:
        why = clients.unmeasured
        return wide("Availability", "", f"<p>Nothing is measured: {esc(why)}.</p>") if why else ""
    rows = [availability(row, facts.last_ns) for row in clients.faults[:ROWS]]
    more = len(clients.faults) - ROWS
    heads = ("fault", "at", "lasted", "first failed op after", "longest wait for an ack", "acked again after")
    return wide(
        "Availability",
        "how each fault affected the clients",
        table(heads, rows, kind="times")
        + (f"<p class=small>{more:,} more faults struck.</p>" if more > 0 else "")
        + f"<p class=small>{esc(DEFINED)}</p>",
    )


def availability(row: Json, last_ns: int) -> list[str]:
    """The cells of a fault's row of measures."""
    lasts, mended = row["kind"] in LASTING, row["mended_s"]
    until = mended if mended is not None else last_ns / 1e9
    recovery = span_text(row["recovery_s"], row["recovery_partition"])
    return [
        ", ".join(filter(None, (row["kind"].replace("_", " "), row["detail"])))
        + (f" {' '.join(row['nodes'])}" if row["nodes"] else "") + (" (failed)" if row["failed"] else ""),
        seconds(round(row["began_s"] * 1e9)),
        "at once" if not lasts else span_text(until - row["began_s"])
        + ("" if mended is not None else ", to the end"),
        span_text(row["first_failed_s"]) if row["first_failed_s"] is not None else "none failed",
        span_text(row["gap_s"], row["gap_partition"]),
        recovery if row["recovered"] is not False else f"never, in {recovery}",
    ]  # fmt: skip


def span_text(time_s: float | None, partition: int | None = None) -> str:
    """`12.3 ms in p0`; `-` for None."""
    return interval(None if time_s is None else round(time_s * 1e9)) + (
        "" if partition is None else f" in p{partition}")


def wide(title: str, hint: str, inside: str) -> str:
    small = f" <small>{esc(hint)}</small>" if hint else ""
    return f'<section><h2>{esc(title)}{small}</h2><div class="card wide">{inside}</div></section>'


def interval(time_ns: int | None) -> str:
    """`12.3 ms`, `1.234 s`."""
    if time_ns is None:
        return "-"
    return f"{time_ns / 1e6:.1f} ms" if time_ns < 1_000_000_000 else seconds(time_ns)


def other_findings(facts: RunFacts) -> str:
    """A line for each other event, which opens to its paragraph; and the first event's other groups."""
    parts = []
    stories = [event for event in facts.events if event.story is not None]
    for event in facts.events[:1]:
        parts += [
            f"<li><code>{esc(one.head)}</code> {esc(one.clause)} "
            f"<span class=small>{esc(one.places)}</span></li>"
            for one in event.account.followers
        ]
    same = f"<p>{esc(verdict_text.SAME_EVENT.capitalize())}:</p><ul>{''.join(parts)}</ul>" if parts else ""
    others = "".join(details(event, stories) for event in facts.events[1:])
    extra = ""
    for event in facts.events[:1]:
        lines, left = event.account.others, event.account.left_out
        lines += [f"... and {left} more"] if left > 0 else []
        extra = "".join(f"<li>{esc(line)}</li>" for line in lines)
        extra = f"<p>Of the same finding:</p><ul>{extra}</ul>" if extra else ""
    if not (same or others or extra):
        return ""
    return f'<section><h2>Other findings</h2><div class="card">{extra}{same}{others}</div></section>'


def details(event: Event, stories: Sequence[Event]) -> str:
    found = event.account.found
    parts = event.account.parts or tuple(("", line) for line in event.account.others)
    lead = parts[0][1] if parts else ""
    body = "".join(f"<p><b>{esc(head)}</b> {esc(sentence)}</p>" for head, sentence in parts[1:])
    body += "".join(
        f"<p>{esc(one.head)}: {esc(one.clause)} <span class=small>{esc(one.places)}</span></p>"
        for one in event.account.followers
    )
    button = (
        f'<button type="button" data-story="{stories.index(event)}">show it in the viewer</button>'
        if event in stories
        else ""
    )
    return (
        f"<details><summary><b>{esc(found['name'])}</b> "
        f"({esc(found['count'])}, {esc(class_sentence(found))}): "
        f"{esc(lead)}</summary>{body}{button}</details>"
    )


def class_sentence(found: Json) -> str:
    if found["class"] == BUG:
        return "a bug"
    cause = str(found.get("permitted_by"))
    return f"permitted by {cause}: {PERMITS[cause]}" if cause in PERMITS else f"permitted by {cause}"


def unknown_card(facts: RunFacts) -> str:
    verdict = facts.verdict or {}
    rows = [
        ("cannot tell", verdict_text.shortened(entry["names"]), entry["reason"])
        for entry in verdict.get("unknown") or ()
    ]
    rows += [
        ("not made", verdict_text.shortened(entry["names"]), entry["reason"])
        for entry in verdict.get("not_made") or ()
    ]
    if not rows:
        return ""
    return (
        '<section><h2>Not made and unknown</h2><div class="card wide">'
        + table(("", "checks", "why"), rows, kind="reasons")
        + "</div></section>"
    )


def config_card(facts: RunFacts) -> str:
    """The guarantees, then the config keys: those that differ between nodes first."""
    config = {
        str(node): dict(keys)
        for node, keys in mapping(facts.about.get("config")).items()
        if isinstance(keys, Mapping)
    }
    guarantees = [
        (name.replace("_", " "), shown(value))
        for name, value in sorted(mapping(facts.about.get("guarantees")).items())
    ]
    if not config and not guarantees:
        return ""
    nodes, keys = sorted(config), sorted({key for each in config.values() for key in each})
    differs = {key for key in keys if len({shown(each.get(key)) for each in config.values()}) > 1}
    ordered = sorted(keys, key=lambda key: (key not in differs, key))
    rows = [
        [key, *(shown(config[node].get(key)) for node in nodes)]
        if differs
        else [key, shown(config[nodes[0]].get(key))]
        for key in ordered
    ]
    heads = ["key", *nodes] if differs else ["key", "on every node"]
    said = f"{many(len(differs), 'key')} differ between nodes" if differs else "the same on every node"
    return (
        f'<section><h2>Configuration <small>{said}</small></h2><div class="card wide">'
        + (table(("guarantee", ""), guarantees, kind="pairs") if guarantees else "")
        + (
            f"<details><summary>{many(len(keys), 'key')}</summary>"
            + table(heads, rows, ["differs" if key in differs else "" for key in ordered])
            + "</details>"
            if keys
            else ""
        )
        + "</div></section>"
    )


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def shown(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def next_card(facts: RunFacts) -> str:
    commands = (
        [
            line.split(None, 1)[1]
            for line in verdict_text.next_commands(facts.folder, facts.verdict or {}, facts.about or None)
        ]
        if facts.verdict is not None
        else []
    )
    commands += [command("rejudge", facts)] if facts.verdict is not None else [command("check", facts)]
    lines = typed(commands)
    return f'<section><h2>What to type next</h2><div class="card">{lines}</div></section>'


def command(name: str, facts: RunFacts) -> str:
    return harmless(shlex.join(["floodmark", name, str(facts.folder)]))


def foot(facts: RunFacts) -> str:
    return (
        f"<footer>Made by floodmark {esc(__version__)} from {esc(harmless(str(facts.folder)))}. Times are "
        "of the run's clock, "
        "from its beginning.</footer>"
    )

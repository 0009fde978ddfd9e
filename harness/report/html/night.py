"""Makes the page of a campaign as one HTML file: signatures with their rates, the coverage, the longest runs,
and, apart from findings, the clusters that got stuck and the failures of the harness.

Rules
1. Every text of the campaign's folder and of the ledger goes through `text`: it is never markup and has no
   control characters.
2. Links lead only to pages that exist, with paths relative to this page's folder.
3. A table says how many rows it leaves out.
"""

import datetime
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.harness.campaign.gates import MAX_RECOVERY_S, MAX_UNAVAILABLE_S
from floodmark.harness.campaign.ledger import Entry, Ledger
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.state import FAILED, RunState
from floodmark.harness.report.explanations import short_meaning
from floodmark.harness.report.html import coverage
from floodmark.harness.report.html.elements import Markup, document, esc, table, text, typed
from floodmark.harness.report.html.sparks import Rate, bar, scale_of, spark
from floodmark.harness.report.night import (
    ABSENT,
    KNOWN,
    NEW,
    OLD,
    PERMITTED,
    Cause,
    Results,
    gates_of,
    why_of,
)
from floodmark.harness.report.phrases import PERMITS, count_text, many, short_time_text, time_text
from floodmark.harness.report.rates import per_100, two_digits
from floodmark.harness.report.safe_text import harmless

ROWS = 60  # of a table of runs
SIGNATURES = 200  # of a table of signatures
RUNS = 12  # named beside a signature
LONGEST = 5
SYSTEMS = 4  # named in the page's head
Row = Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class NightFacts:
    """The state of a campaign when its page is made."""

    results: Results
    about: Mapping[str, Any]  # campaign.json
    ledger: Ledger
    has_ledger: bool
    pages: Mapping[str, str]  # by run folder, as `results` names it: the relative address of its page
    made_at: datetime.datetime  # with its zone
    showing: Mapping[Signature, Sequence[RunState]]  # the runs that showed each
    reproductions: int = 0  # that were tried

    @property
    def folder(self) -> str:
        return self.results.folder


def page_of_night(facts: NightFacts) -> bytes:
    """The HTML file."""
    title = heading(facts)
    causes = facts.results.causes
    parts = [
        head(facts, title),
        "<main>",
        incomplete_section(facts),
        numbers(facts),
        signatures(facts, [one for one in causes if not one.is_stuck]),
        coverage_section(facts),
        longest(facts),
        stuck(facts, [one for one in causes if one.is_stuck]),
        gates(facts),
        harness(facts),
        unknown(facts),
        absences(facts),
        plan(facts),
        next_commands(facts),
        foot(facts),
        "</main>",
    ]
    name = harmless(facts.folder.rstrip("/").rpartition("/")[2])
    return document(f"{title} - {name}", filter(None, parts), styles=("page.css", "night.css"),
                    scripts=("copying.js", "night.js"))


# -- the head -----------------------------------------------------------------------------------------------


def heading(facts: NightFacts) -> str:
    """`2 new, 1 known, 412 runs, 1.9 M acked writes, 3 h 58 min`."""
    of = facts.results
    return (f"{counts_text(facts)}, {many(len(of.runs), 'run')}, {count_text(of.acked)} acked writes, "
            f"{time_text(of.spent_s)}")


def head(facts: NightFacts, title: str) -> str:
    found = title[:len(counts_text(facts))]
    sure = not facts.results.trouble and facts.results.runs
    kind = "doubt" if facts.results.causes or not sure else "good"
    words = [f'<span class="{"bad" if is_failing(one) else kind}">{text(one)}</span>'
             for one in found.split(", ")]
    rest = title[len(found):]
    about = facts.about
    commit = str(about.get("commit") or "")[:7]
    systems = list(dict.fromkeys(cell.case.system for cell in facts.results.cells))
    named = ", ".join(systems[:SYSTEMS])
    more = f" and {len(systems) - SYSTEMS} more" if len(systems) > SYSTEMS else ""
    parts = [
        f"{named}{more}",
        f"floodmark {about.get('version', '?')}",
        f"commit {commit}" if commit else "",
        f"seed {about.get('seed', '?')}",
        f"began {moment(about.get('began'))}",
    ]
    return (f'<header><h1>{", ".join(words)}{text(rest)}</h1>'
            f'<p class="tested">{text(" · ".join(filter(None, parts)))}</p></header>')


def counts_text(facts: NightFacts) -> str:
    return ", ".join(count for count, _ in facts.results.counts)


def is_failing(count: str) -> bool:
    """Whether a part of `Results.counts` (`2 new`, `1 seen before (stuck)`) counts signatures that fail."""
    return count.partition(" ")[2].startswith((NEW, OLD))


def moment(written: object) -> str:
    """A time from a file as text: `2026-11-23 05:06 UTC`."""
    try:
        read = datetime.datetime.fromisoformat(str(written))
    except ValueError:
        return str(written)
    return f"{read:%Y-%m-%d %H:%M} {read:%Z}".strip()


def incomplete_section(facts: NightFacts) -> str:
    """What is missing on this page, if anything."""
    lines = []
    if facts.results.trouble:
        lines.append(f"It did not finish: {facts.results.trouble}")
    elif facts.results.why_ended is None:
        left = sum(not run.done for run in facts.results.runs)
        lines.append(f"As of {moment(facts.made_at.isoformat())}: the campaign is not finished; "
                     f"{many(left, 'run')} begun and not judged yet.")
    if not facts.has_ledger:
        lines.append(f"The ledger {facts.about.get('ledger', '?')} is not there: what earlier "
                     "campaigns saw and what is marked as known is not on this page.")
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    title = '<b class="doubt">This page is incomplete</b>'
    return f'<section class="card">{title}<ul>{items}</ul></section>' if lines else ""


def numbers(facts: NightFacts) -> str:
    of, spent_s = facts.results, facts.results.spent_s
    done = sum(run.done for run in facts.results.runs)
    budget_s = facts.about.get("budget_s")
    time = f"of {time_text(budget_s)}" if isinstance(budget_s, int | float) else "at work"
    time += f"; {facts.results.why_ended}" if facts.results.why_ended is not None else ""
    shown = [
        (f"{len(of.runs):,}", f"runs: {of.kinds}"),
        (f"{of.acked:,}", "acked writes"),
        (f"{of.faults:,}", "faults"),
        (time_text(spent_s), time),
        (f"{3600 * done / spent_s:.0f}" if spent_s >= 1 else "-", "runs an hour"
         + (f", and {many(facts.reproductions, 'reproduction')}" if facts.reproductions else "")),
    ]
    inside = "".join(f"<div><b>{text(number)}</b>{text(label)}</div>" for number, label in shown)
    return f'<section class="card" aria-label="what happened"><div class="numbers">{inside}</div></section>'


# -- signatures ---------------------------------------------------------------------------------------------


def signatures(facts: NightFacts, causes: Sequence[Cause]) -> str:
    if not causes:
        judged = sum(run.judged is not None for run in facts.results.runs)
        lead = f"No broken law was found in {many(judged, 'run')}."
        rate = f"{per_100(0, judged)}, by the 95 % interval." if judged else ""
        return section("Signatures", "", f'<div class="card"><p class="lead">{text(lead)}</p>'
                                         f'<p class="small">{text(rate)}</p></div>')
    return section("Signatures", "a cause each, the new ones first", cause_table(facts, causes))


def cause_table(facts: NightFacts, causes: Sequence[Cause]) -> str:
    shown = causes[:SIGNATURES]
    guarantees = {cause.signature.guarantees for cause in shown}
    scale = scale_of(rate for cause in shown if (rate := rate_of(cause)) is not None)
    heads = ("state", "what", "in 100 runs", "the last nights", "first and last seen", "reproduced",
             "smallest run")
    rows = [[wrapped(cell) for cell in (
        state_word(cause), signature_cell(facts, cause, guarantees=len(guarantees) > 1),
        rate_cell(cause, scale),
        spark(cause.trend),
        seen(cause), text(cause.reproduced_text), smallest(facts, cause))] for cause in shown]
    promised = f'<p class="small">Promised: {text(guarantees.pop())}.</p>' if len(guarantees) == 1 else ""
    scaled = f'<p class="small">Bars: 0 to {scale:g} in 100 runs of the system, with the 95 % interval.</p>'
    return (f'<div class="card wide">{table(heads, rows, kind="signatures")}{left_out(causes, SIGNATURES)}'
            f"{promised}{scaled}</div>")


def wrapped(cell: str) -> Markup:
    """A cell's content as one element, because a narrow page lays out the cell as a grid."""
    return Markup(f"<div>{cell}</div>")


def state_word(cause: Cause) -> Markup:
    if cause.standing == ABSENT:
        return Markup(f'<b>gone</b> <span class="small">not seen this time{known_for(cause)}</span>')
    if cause.standing == KNOWN:
        return Markup(f'<b class="doubt">known</b> <span class="small">{text(cause.reason)}</span>')
    if cause.standing == PERMITTED:
        by = cause.signature.permitted_by
        why = f": {PERMITS[by]}" if by in PERMITS else ""
        return Markup(f'<b>permitted</b> <span class="small">by {text(by)}{text(why)}</span>')
    after = f' <span class="small day">since {text(cause.days[0])}</span>' if cause.standing == OLD else ""
    return Markup(f'<b class="bad">{text(cause.standing)}</b>{after}')


def known_for(cause: Cause) -> str:
    return f"; known: {text(cause.reason)}" if cause.reason else ""


def signature_cell(facts: NightFacts, cause: Cause, *, guarantees: bool) -> Markup:
    """A signature's cell: its sentence, the finding's meaning, and the details that a click opens."""
    one = cause.signature
    how = f" ({text(one.how)})" if one.how else ""
    step = f": {text(one.step)}" if one.step else ""
    means = short_meaning(one.finding) if one.finding in EXPLANATIONS else ""
    of = [one.system, *([one.guarantees] if guarantees else []), cause.entry.id]
    return Markup(
        f'<span class="sentence"><b>{text(one.finding)}</b>{how}{step}</span>'
        + "".join(f'<span class="small">{text(line)}</span>' for line in (means, cause.words) if line)
        + f'<span class="small">{text(" · ".join(of))}</span>' + more_of(facts, cause)
    )


def more_of(facts: NightFacts, cause: Cause) -> str:
    entry = facts.ledger.of(cause.signature)
    showing = facts.showing.get(cause.signature, ())
    runs = ", ".join(link(facts, facts.results.where(run), str(run.number)) for run in showing[:RUNS])
    more = f" and {len(showing) - RUNS} more" if len(showing) > RUNS else ""
    lines = [f"<p>Runs that showed it: {runs}{more}.</p>"] if showing else []
    lines += ledger_lines(entry) if entry is not None else []
    commands = [harmless(line) for line in cause.commands]
    if entry is not None and entry.known is None and facts.has_ledger and cause.fails:
        commands.append(harmless(shlex.join(["floodmark", "campaign", "mark", entry.id, "--known", "REASON",
                                             "--ledger", str(facts.about.get("ledger", ""))])))
    return f"<details><summary>runs, notes, what to type</summary>{''.join(lines)}{typed(commands)}</details>"


def ledger_lines(entry: Entry) -> list[str]:
    """Lines from the ledger: the faults in the signature's runs, and people's notes."""
    struck = ", ".join(f"{name} ({count})" for name, count in sorted(entry.faults.items()))
    lines = [f"What struck in its runs: {struck}."] if struck else []
    return [f"<p>{text(line)}</p>" for line in (*lines, *(f"Note: {note}" for note in entry.notes))]


def rate_of(cause: Cause) -> Rate | None:
    return Rate(hits=len(cause.showing), of=cause.of) if cause.of else None


def rate_cell(cause: Cause, scale: float) -> Markup:
    rate = rate_of(cause)
    if rate is None:
        return Markup("-")
    low, high = rate.interval
    return Markup(f"<b>{rate.value:.3g}</b> ({two_digits(low)} to {two_digits(high)}){bar(rate, scale)}"
                  f'<span class="small">{rate.hits:,} of {rate.of:,} runs</span>')


def seen(cause: Cause) -> Markup:
    return Markup("<br>".join(dict.fromkeys(map(text, (*cause.days[:1], *cause.days[-1:])))) or "-")


def smallest(facts: NightFacts, cause: Cause) -> Markup:
    """A link to the smallest run, named by its number if it belongs to this campaign."""
    number = next((run.number for run in facts.showing.get(cause.signature, ())
                   if facts.results.where(run) == cause.smallest), None)
    return link(facts, cause.smallest, f"run {number}" if number is not None else "")


def link(facts: NightFacts, folder: str, label: str = "") -> Markup:
    """A link to the page of a run; only its name if it has no page."""
    name = text(label or folder.rpartition("/")[2] or "-")
    page = facts.pages.get(folder)
    return Markup(f'<a href="{esc(page)}">{name}</a>') if page is not None else name


# -- the matrix, the longest --------------------------------------------------------------------------------


def coverage_section(facts: NightFacts) -> str:
    grid = coverage.grid_of(facts.results.cells, facts.results.causes)
    if not grid.squares:
        return ""
    legend = ('<p class="legend"><span><i class="kfound"></i>a bug was found</span>'
              '<span><i class="kknown"></i>known bugs alone</span><span><i class="kquiet"></i>nothing found'
              '</span><span><i class="kempty"></i>in the plan, and nothing ran</span></p>')
    return section("Coverage", "runs that were judged, of each system under each nemesis or scenario",
                   f'<div class="card wide">{coverage.grid_table(grid)}{legend}</div>')


def longest(facts: NightFacts) -> str:
    """The runs that took the most time, and those whose clients waited longest."""
    runs = facts.results.runs
    long = sorted((run for run in runs if run.took_s is not None and run.status != FAILED),
                  key=lambda run: -(run.took_s or 0.0))
    slow = sorted((run for run in runs if waited_s(run) is not None), key=lambda run: -(waited_s(run) or 0.0))
    tables = ""
    if long:
        rows: list[Row] = [(run_cell(facts, run), text(run.case.title), time_text(run.took_s or 0.0),
                            text(run.kind or "not judged yet")) for run in long[:LONGEST]]
        tables += card("The longest", "from a cluster's start to its end",
                       table(("run", "what ran", "took", "verdict"), rows))
    if slow:
        rows = [(run_cell(facts, run), text(run.case.title), short_time_text(waited_s(run) or 0.0),
                 brief_or_none(measure(run, MAX_RECOVERY_S))) for run in slow[:LONGEST]]
        heads = ("run", "what ran", "longest time without an ack", "from mending to the next ack")
        tables += card("The slowest", "by the longest time that a partition had no ack", table(heads, rows))
    return f'<section aria-label="the longest and the slowest">{tables}</section>' if tables else ""


def measure(run: RunState, name: str) -> float | None:
    value = ((run.judged or {}).get("measures") or {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def waited_s(run: RunState) -> float | None:
    return measure(run, MAX_UNAVAILABLE_S)


def brief_or_none(time_s: float | None) -> str:
    return "-" if time_s is None else short_time_text(time_s)


def run_cell(facts: NightFacts, run: RunState) -> Markup:
    return wrapped(f"{link(facts, facts.results.where(run), str(run.number))} "
                   f'<span class="small">seed {run.seed}</span>')


# -- not findings -------------------------------------------------------------------------------------


def stuck(facts: NightFacts, causes: Sequence[Cause]) -> str:
    there = [cause for cause in causes if cause.standing != ABSENT]
    return section("Clusters that got stuck", "they no longer answered", cause_table(facts, there)) if (
        there) else ""


def gates(facts: NightFacts) -> str:
    return runs_section(
        facts, "Runs that broke a gate", "of the plan", facts.results.troubles.gates, gates_of)


def harness(facts: NightFacts) -> str:
    failed = facts.results.troubles.failed
    return runs_section(facts, "The harness failed", "these say nothing of the cluster", failed,
                        lambda run: why_of(run) or run.kind)


def unknown(facts: NightFacts) -> str:
    return runs_section(facts, "Unknown", "neither valid nor invalid", facts.results.troubles.unknown,
                        lambda run: why_of(run) or "unknown")


def runs_section(facts: NightFacts, title: str, hint: str, runs: Sequence[RunState], why: Any) -> str:
    if not runs:
        return ""
    rows = [(run_cell(facts, run), text(run.case.title), text(" ".join(why(run).split())), text(run.folder))
            for run in runs[:ROWS]]
    return section(title, hint, '<div class="card wide">'
                   + table(("run", "what ran", "why", "folder"), rows) + left_out(runs, ROWS) + "</div>")


def absences(facts: NightFacts) -> str:
    """A sentence that says what did not happen: no stuck cluster, no failure of the harness, no unknown
    run."""
    results = facts.results
    clauses = [] if results.stuck else ["no cluster got stuck"]
    clauses += [] if results.troubles.failed else ["the harness failed in no run"]
    clauses += [] if results.troubles.unknown else ["no run is unknown"]
    sentence = (", ".join(clauses[:-1]) + (" and " if len(clauses) > 1 else "") + clauses[-1]
                if clauses else "")
    judged = any(run.judged is not None for run in facts.results.runs)
    return f'<p class="small">{text(sentence[:1].upper() + sentence[1:])}.</p>' if clauses and judged else ""


# -- the end ------------------------------------------------------------------------------------------------


def plan(facts: NightFacts) -> str:
    written = str(facts.about.get("plan") or "").strip()
    lines = "<br>".join(text(line) for line in written.splitlines()[:ROWS * 5])
    return section("The plan", "", f'<div class="card"><details><summary>as it was written</summary>'
                                   f"<pre>{lines}</pre></details></div>") if written else ""


def next_commands(facts: NightFacts) -> str:
    """The section with the commands to type next."""
    first = next((cause for cause in facts.results.causes if cause.fails and cause.commands), None)
    commands = [*(first.commands if first is not None else ())]
    if facts.results.why_ended is None:
        commands.insert(0, shlex.join(["floodmark", "campaign", "resume", facts.folder]))
    commands.append(shlex.join(["floodmark", "campaign", "stats", facts.folder]))
    return section("What to type next", "", f'<div class="card">{typed(map(harmless, commands))}</div>')


def foot(facts: NightFacts) -> str:
    version = str(facts.about.get("version", "?"))
    return (f"<footer>Made {text(moment(facts.made_at.isoformat(timespec='seconds')))} from "
            f"{text(facts.folder)}, which floodmark {text(version)} made, and the ledger "
            f"{text(facts.about.get('ledger', '?'))}.</footer>")


def section(title: str, hint: str, inside: str) -> str:
    small = f" <small>{text(hint)}</small>" if hint else ""
    return f'<section aria-label="{esc(title.lower())}"><h2>{text(title)}{small}</h2>{inside}</section>'


def card(title: str, hint: str, inside: str) -> str:
    return f'<h2>{text(title)} <small>{text(hint)}</small></h2><div class="card wide">{inside}</div>'


def left_out(rows: Sequence[object], shown: int) -> str:
    return f'<p class="small">{len(rows) - shown:,} more are left out.</p>' if len(rows) > shown else ""

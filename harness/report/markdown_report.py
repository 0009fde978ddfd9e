"""Writes the folders of one call as a Markdown page for a GitHub step summary: `--markdown FILE`.

Rules
1. The page begins with a table of all runs, the worst first. Each run that fails has a section: what
   happened, and the commands that show it.
2. Text of a run is never markup: characters that could be are written as character references, or the text is
   in a fence that is longer than any inside it.
3. The page stays under LIMIT bytes: GitHub drops a summary above 1 MiB. The page says what it leaves out.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from floodmark.harness.report import verdict_text
from floodmark.harness.report.gate_outcomes import Outcome, cut, group_summary, one_line, visible
from floodmark.harness.report.phrases import many
from floodmark.harness.report.run_outcome import EXITS, HARNESS
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_VALID

LIMIT = 1_000_000  # bytes
TABLE_SHARE = 0.6  # of LIMIT, at most
CELL_CHARS = 300
LINE_CHARS = 1_500
LINES = 100  # of one section
RESERVED = 300  # bytes, for the note on what was left out
WORST_FIRST = tuple(EXITS)
HEAD = ("| run | verdict | findings | permitted | unknown, because |", "|---|---|---|---|---|")
_MARKUP = re.compile(r"[&<>|`\\*_\[\]~$#]")
_BEGINS = re.compile(r"^(?:[-+=]|\d(?=\d*[.)]))")  # begins a list item, or underlines a heading


def markdown(heading: str, outcomes: Sequence[Outcome], limit: int = LIMIT) -> bytes:
    """The content of the file."""
    ordered = sorted(outcomes, key=lambda outcome: WORST_FIRST.index(outcome.ruling.kind))
    top = "\n".join([f"## floodmark: {text(heading)}", "", *HEAD, ""])
    room = int(limit * TABLE_SHARE) - len(top.encode())
    rows, left_out = fitting((row(outcome) for outcome in ordered), room)
    page = top + "".join(rows)
    if left_out:
        page += f"\n*Cut for length: {many(left_out, 'more run')} are not in this table.*\n"
    page += "".join(not_made(ordered, limit))
    failing = (section(outcome) for outcome in ordered if outcome.code != EXIT_VALID)
    sections, left_out = fitting(failing, limit - len(page.encode()) - RESERVED)
    page += "".join(sections)
    if left_out:
        page += f"\n*Cut for length: the sections of {many(left_out, 'more failing run')} are not here.*\n"
    return page.encode()


def fitting(pieces: Iterable[str], room: int) -> tuple[list[str], int]:
    """The pieces up to the first that no longer fits into `room` bytes, and how many were left out."""
    taken: list[str] = []
    left_out = 0
    for piece in pieces:
        room -= len(piece.encode())
        if room < 0 or left_out:
            left_out += 1
        else:
            taken.append(piece)
    return taken, left_out


# -- the table ----------------------------------------------------------------------------------------------


def row(outcome: Outcome) -> str:
    """The table row of one run."""
    findings = verdict_text.worst_first(outcome.verdict.get("findings") or ())
    bugs = [f"{found['name']} {found['count']}" for found in findings if found["class"] == BUG]
    permitted = [f"{found['name']} {found['count']} ({found['permitted_by']})"
                 for found in findings if found["class"] != BUG]
    reasons = [str(entry["reason"]) for entry in outcome.unknown]
    verdict = cell(outcome.word) if outcome.code == EXIT_VALID else f"**{cell(outcome.word)}**"
    verdict += f": {cell('; '.join(outcome.ruling.harness))}" if outcome.code == EXIT_HARNESS else ""
    cells = [cell(str(outcome.folder)), verdict,
             *(cell(part) for part in (", ".join(bugs), ", ".join(permitted), "; ".join(reasons)))]
    return f"| {' | '.join(cells)} |\n"


def cell(value: str) -> str:
    """A value as the text of a table cell."""
    return text(cut(one_line(value), CELL_CHARS))


def not_made(outcomes: Sequence[Outcome], limit: int) -> list[str]:
    """A line for each set of checks that were not made, with the number of runs."""
    counts = Counter(checks for outcome in outcomes for checks in verdict_text.left_undone(outcome.verdict))
    lines = (f"\nNot made in {many(number, 'run')}: {text(cut(one_line(checks), LINE_CHARS))}\n"
             for checks, number in counts.items())
    return fitting(lines, limit // 10)[0]


# -- a section ----------------------------------------------------------------------------------------------


def section(outcome: Outcome) -> str:
    """The section of one run: what happened, and the commands that show it."""
    lines = [line for line in finding_lines(outcome) if line.strip()]
    if len(lines) > LINES:
        lines[LINES:] = [f"- ... and {many(len(lines) - LINES, 'more line')}: verdict.json has all"]
    return "\n".join(["", f"### {text(str(outcome.folder))}: {text(outcome.word)}", "", *lines, "",
                      *fenced(commands(outcome)), ""])


def finding_lines(outcome: Outcome) -> Iterator[str]:
    """Yields what happened as items of a list."""
    yield from (item(f"{head}: {line}") for head, line in outcome.loaded_reading.summary)
    if outcome.about is not None:
        yield item(f"ran: {verdict_text.ran_text(outcome.about)}")
        yield from (item(line) for line in verdict_text.struck_text(outcome.loaded_reading))
    yield from (item(f"{HARNESS}: {reason}") for reason in outcome.ruling.harness)
    for account in outcome.loaded_reading.accounts:
        found, parts = account.found, account.shown
        yield item(group_summary(found))
        yield from (item(f"{head}: {sentence}", 1) for head, sentence in parts)
        yield from (item(f"also: {other}" if parts else other, 1) for other in account.others)
        yield item(f"and {account.left_out} more", 1) if account.left_out else ""
        yield item(f"{verdict_text.SAME_EVENT}:", 1) if account.followers else ""
        yield from (item(f"{one.head}: {one.clause}{f' ({one.places})' if one.places else ''}", 2)
                    for one in account.followers)
    for entry in outcome.unknown:
        yield item(f"cannot tell {verdict_text.shortened(entry['names'])}: {entry['reason']}")
    yield from (item(f"not made: {checks}") for checks in verdict_text.left_undone(outcome.verdict))
    yield from (item(f"{head}: {remark}") for head, remark in outcome.remarks)


def item(content: str, depth: int = 0) -> str:
    """A list item at this depth."""
    return f"{'  ' * depth}- {text(cut(one_line(content), LINE_CHARS))}"


def commands(outcome: Outcome) -> list[str]:
    """The commands to show, explain and reproduce; if there is nothing to show, the command to judge
    again."""
    typed = verdict_text.next_commands(outcome.folder, outcome.verdict, outcome.about)
    otherwise = ["floodmark", "check" if outcome.about is None else "show", str(outcome.folder)]
    return [line.split(maxsplit=1)[1] for line in typed] or [shlex.join(otherwise)]


def fenced(lines: Sequence[str]) -> list[str]:
    """The lines in a fence that none of them can end."""
    shown = [cut(visible(line), LINE_CHARS) for line in lines]
    longest = max((len(ticks) for line in shown for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}sh", *shown, fence]


def text(words: str) -> str:
    """One line of text, escaped so that Markdown finds no markup in it."""
    plain = visible(words).replace("\n", " ").replace("\t", " ")
    return _BEGINS.sub(reference, _MARKUP.sub(reference, plain))


def reference(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"

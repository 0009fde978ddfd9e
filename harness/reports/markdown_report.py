"""`--markdown FILE`: the folders of one call as a page, fit for a GitHub step summary.

Rules
1. First a table of all runs, the worst first; then a section for each that fails: what happened, and what to
   type to see it again.
2. Words of a run are never markup: whatever could be is written as a character reference, or stands in a
   fence longer than any that it holds.
3. The page stays under LIMIT bytes: GitHub drops a whole summary that is above 1 MiB. What is left out is
   told.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from floodmark.harness.reports import verdict_text
from floodmark.harness.reports.gate_outcomes import Outcome, cut, group_words, one_line, visible
from floodmark.harness.reports.phrases import many
from floodmark.harness.reports.run_outcome import EXITS, HARNESS
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_VALID

LIMIT = 1_000_000  # bytes
OF_THE_TABLE = 0.6  # of that at most
CELL_CHARS = 300
LINE_CHARS = 1_500
LINES = 100  # of one section
RESERVED = 300  # bytes, for a word on what was left out
WORST_FIRST = tuple(EXITS)
HEAD = ("| run | verdict | findings | permitted | unknown, because |", "|---|---|---|---|---|")
_MARKUP = re.compile(r"[&<>|`\\*_\[\]~$#]")
_BEGINS = re.compile(r"^(?:[-+=]|\d(?=\d*[.)]))")  # an item or an underline, at the head of a line


def markdown(heading: str, outcomes: Sequence[Outcome], limit: int = LIMIT) -> bytes:
    """The page."""
    ordered = sorted(outcomes, key=lambda outcome: WORST_FIRST.index(outcome.ruling.kind))
    top = "\n".join([f"## floodmark: {text(heading)}", "", *HEAD, ""])
    room = int(limit * OF_THE_TABLE) - len(top.encode())
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
    """The pieces up to the first that no longer fits into so many bytes; and how many were left out."""
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
    """One run."""
    findings = verdict_text.worst_first(outcome.told.get("findings") or ())
    bugs = [f"{found['name']} {found['count']}" for found in findings if found["class"] == BUG]
    permitted = [f"{found['name']} {found['count']} ({found['permitted_by']})"
                 for found in findings if found["class"] != BUG]
    reasons = [str(entry["reason"]) for entry in outcome.unknown]
    verdict = cell(outcome.word) if outcome.code == EXIT_VALID else f"**{cell(outcome.word)}**"
    verdict += f": {cell('; '.join(outcome.ruling.harness))}" if outcome.code == EXIT_HARNESS else ""
    cells = [cell(str(outcome.folder)), verdict,
             *(cell(part) for part in (", ".join(bugs), ", ".join(permitted), "; ".join(reasons)))]
    return f"| {' | '.join(cells)} |\n"


def cell(words: str) -> str:
    return text(cut(one_line(words), CELL_CHARS))


def not_made(outcomes: Sequence[Outcome], limit: int) -> list[str]:
    """A line for each set of checks that were not made, and of how many runs that is so."""
    told = Counter(words for outcome in outcomes for words in verdict_text.left_undone(outcome.told))
    lines = (f"\nNot made in {many(number, 'run')}: {text(cut(one_line(words), LINE_CHARS))}\n"
             for words, number in told.items())
    return fitting(lines, limit // 10)[0]


# -- a section ----------------------------------------------------------------------------------------------


def section(outcome: Outcome) -> str:
    """What happened in one run, and the commands that show it."""
    lines = [line for line in finding_lines(outcome) if line.strip()]
    if len(lines) > LINES:
        lines[LINES:] = [f"- ... and {many(len(lines) - LINES, 'more line')}: verdict.json has all"]
    return "\n".join(["", f"### {text(str(outcome.folder))}: {text(outcome.word)}", "", *lines, "",
                      *fenced(commands(outcome)), ""])


def finding_lines(outcome: Outcome) -> Iterator[str]:
    """As items of a list."""
    yield from (item(f"{head}: {line}") for head, line in outcome.read.summary)
    if outcome.about is not None:
        yield item(f"ran: {verdict_text.ran_text(outcome.about)}")
        yield from (item(line) for line in verdict_text.struck_text(outcome.read))
    yield from (item(f"{HARNESS}: {reason}") for reason in outcome.ruling.harness)
    for account in outcome.read.accounts:
        found, parts = account.found, account.shown
        yield item(group_words(found))
        yield from (item(f"{head}: {sentence}", 1) for head, sentence in parts)
        others = verdict_text.others(found, parts)
        yield from (item(f"also: {other}" if parts else other, 1) for other in others)
        left = verdict_text.left_out(found)
        yield item(f"and {left} more", 1) if left else ""
        yield item(f"{verdict_text.SAME_EVENT}:", 1) if account.followers else ""
        yield from (item(f"{one.head}: {one.clause}{f' ({one.places})' if one.places else ''}", 2)
                    for one in account.followers)
    for entry in outcome.unknown:
        yield item(f"cannot tell {verdict_text.shortened(entry['names'])}: {entry['reason']}")
    yield from (item(f"not made: {words}") for words in verdict_text.left_undone(outcome.told))
    yield from (item(f"{head}: {words}") for head, words in outcome.remarks)


def item(words: str, depth: int = 0) -> str:
    return f"{'  ' * depth}- {text(cut(one_line(words), LINE_CHARS))}"


def commands(outcome: Outcome) -> list[str]:
    """Look, why, again; where there is nothing to look at, judge again."""
    typed = verdict_text.next_commands(outcome.folder, outcome.told, outcome.about)
    otherwise = ["floodmark", "check" if outcome.about is None else "show", str(outcome.folder)]
    return [line.split(maxsplit=1)[1] for line in typed] or [shlex.join(otherwise)]


def fenced(lines: Sequence[str]) -> list[str]:
    """The lines as they are, in a fence that none of them can end."""
    shown = [cut(visible(line), LINE_CHARS) for line in lines]
    longest = max((len(ticks) for line in shown for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}sh", *shown, fence]


def text(words: str) -> str:
    """Words on one line that no Markdown takes for markup."""
    plain = visible(words).replace("\n", " ").replace("\t", " ")
    return _BEGINS.sub(reference, _MARKUP.sub(reference, plain))


def reference(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"

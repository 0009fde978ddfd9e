"""Sums up what the gate makes of one folder, as data, and has the words that reports for CI servers share.

Rules
1. A report says what the exit code says: both are the ruling's (rulings.py), never what the verdict reads
   like.
2. Text from a run may hold anything; what no XML and no page can show is spelt out (`\\x1b`).
3. What is cut for its length says so.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from floodmark.harness.reports import verdict_text
from floodmark.harness.reports.case_names import UNREADABLE
from floodmark.harness.reports.phrases import many, told_class
from floodmark.harness.reports.run_outcome import INVALID, Ruling
from floodmark.harness.run_location import Place

Json = Mapping[str, Any]  # an object of run.json or verdict.json

# All but these is allowed in XML 1.0, and harmless on a page: nor do they turn the direction of writing.
_UNFIT = re.compile(
    r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    r"|[\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One folder before the gate."""

    folder: Place
    ruling: Ruling
    told: Json  # the verdict, as verdict.json has it
    about: Json | None = None  # run.json, where anything was judged
    tested: str = UNREADABLE  # what it tested, whether or not anything was judged
    reading: verdict_text.Reading | None = None  # of the run's files; None: of the verdict alone
    failing: tuple[Json, ...] = ()  # the findings that fail the gate, the worst first
    remarks: tuple[tuple[str, str], ...] = ()  # what a report says besides: a head and a text each

    @property
    def code(self) -> int:
        return self.ruling.code

    @property
    def word(self) -> str:
        return self.ruling.word

    @property
    def read(self) -> verdict_text.Reading:
        """What the files tell."""
        return self.reading or verdict_text.reading_of(self.folder, self.told, self.about)

    @property
    def unknown(self) -> tuple[Json, ...]:
        """What the judge may have missed."""
        return tuple(self.told.get("unknown") or ())


def report_of(outcome: Outcome) -> str:
    """The report as `check` prints it, with its colours."""
    remarks = [*(("harness", reason) for reason in outcome.ruling.harness), *outcome.remarks]
    lines = [f"  {head:<9}  {text}" for head, text in remarks]
    return "\n".join([
        verdict_text.report(outcome.folder, outcome.told, outcome.about, ruled=outcome.ruling,
                       reading=outcome.reading), *lines])


def why(outcome: Outcome) -> str:
    """On one line, why the folder fails, or why nobody can tell; nothing for one that is simply valid."""
    if outcome.ruling.kind == INVALID and outcome.failing:
        worst, *others = outcome.failing  # the worst with its sentence first: a list of tests shows no more
        besides = ", ".join(f"{found['name']} {found['count']}" for found in others)
        return one_line(f"{group_words(worst)}. {sentence(worst)}{f' Besides: {besides}.' if others else ''}")
    reasons = list(outcome.ruling.harness)
    if outcome.unknown:
        first, *others = outcome.unknown
        more = f" (and {many(len(others), 'more reason')})" if others else ""
        reasons.append(f"cannot tell {verdict_text.shortened(first['names'])}: {first['reason']}{more}")
    return one_line("; ".join(reasons))


def group_words(found: Json) -> str:
    """`lost-write: 3 findings, a bug`."""
    return f"{found['name']}: {many(found['count'], 'finding')}, {click.unstyle(told_class(found))}"


def sentence(found: Json) -> str:
    """The worst of a group, in words."""
    examples = found.get("examples") or ()
    return str(examples[0].get("text") or dict(examples[0])) if examples else ""


def one_line(text: str) -> str:
    return " ".join(text.split())


def visible(text: str) -> str:
    """The text without colours, and with nothing in it that is not to be seen."""
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), click.unstyle(text))


def cut(text: str, limit: int) -> str:
    """At most so many characters, and how many more there were."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} ... (cut: {many(len(text) - limit, 'more character')})"

"""Reads tests/corpus: cases of the judge as text, each a run folder told in a few lines and its findings.

stories.py makes the folder of a case; `said` writes a verdict as cases do.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stories import told

from floodmark.harness.verdict import Verdict

CORPUS = Path(__file__).parents[1] / "corpus"
RANGE_BYTES = 1000  # of the ranges in which the cases are read: a few lines
GROUPS = {name: names.split() for name, names in (
    line.split(": ") for line in (CORPUS / "groups.txt").read_text().splitlines())}

# The twin's log has one record at an offset, of a known epoch.
BEYOND_THE_TWIN = (
    "what is appended over a record without a truncation does not remove it",
    "the same of an epoch that nobody knows",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: its file and name, its story, and what must be found."""

    file: str
    name: str
    story: tuple[str, ...]
    expected: tuple[str, ...]
    sentences: tuple[str, ...]  # what some reason, or some example as JSON, contains

    @property
    def tells_examples(self) -> bool:
        """Whether a sentence is about an example: its text begins with a capital, a key with its quote."""
        return any(sentence[0] == '"' or sentence[0].isupper() for sentence in self.sentences)

    @property
    def ident(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def for_the_twin(self) -> bool:
        """Whether the twin can judge it."""
        return "unknown: MADE, unfit" not in self.expected and self.name not in BEYOND_THE_TWIN

    def write(self, path: Path) -> Path:
        return told(path, *self.story)


def cases() -> list[Case]:
    return [case for file in sorted(CORPUS.glob("*.txt")) if file.name != "groups.txt"
            for case in cases_of(file)]


def cases_of(file: Path) -> Iterator[Case]:
    for part in f"\n{file.read_text()}".split("\n== ")[1:]:
        name, *lines = part.strip().splitlines()
        said = {mark: tuple(line[3:] for line in lines if line.startswith(mark)) for mark in ("=> ", "?> ")}
        story = tuple(line for line in lines if not line.startswith(("#", *said)))
        yield Case(file=file.stem, name=name, story=story, expected=tuple(sorted(said["=> "])),
                   sentences=said["?> "])


def sentences(verdict: Verdict) -> list[str]:
    """The reasons and the examples, as JSON, of this verdict."""
    reasons = [one.reason for one in (*verdict.unknown, *verdict.not_made)]
    return [*reasons, *(json.dumps(example) for one in verdict.findings for example in one.examples)]


def unsaid(case: Case, verdict: Verdict) -> list[str]:
    """The sentences of the case that the verdict lacks."""
    there = sentences(verdict)
    return [part for part in case.sentences if not any(part in one for one in there)]


def said(verdict: Verdict) -> tuple[str, ...]:
    """What a case must expect of this verdict."""
    unknown = {name for one in verdict.unknown for name in one.names}
    not_made = {name for one in verdict.not_made for name in one.names}
    lines = [finding_said(one) for one in verdict.findings]
    lines += [f"{what}: {grouped(names)}" for what, names in (("unknown", unknown), ("not made", not_made))
              if names]
    return tuple(sorted(lines))


def valid(case: Case) -> bool | str:
    """What the verdict says of the run as a whole, if this is found and unknown."""
    found = [line for line in case.expected if not line.startswith(("unknown: ", "not made: "))]
    if any("(" not in line for line in found):
        return False
    return "unknown" if any(line.startswith("unknown: ") for line in case.expected) else True


def finding_said(one: Any) -> str:
    """NAME [xCOUNT] [(CAUSE)] and how and where each example is."""
    where = ", ".join(filter(None, map(place_of, one.examples)))
    parts = (one.name, f"x{one.count}" if one.count != 1 else "",
             f"({one.permitted_by})" if one.permitted_by else "", where)
    return " ".join(filter(None, parts))


def place_of(example: Any) -> str:
    how = str(example.get("how") or "").replace(" ", "-")
    offset = "" if example.get("offset") is None else f"@{example['offset']}"
    partition = f"{example['partition']}:" if example.get("partition") else ""
    return f"{partition}{'' if how.startswith('[') else how}{offset}"


def grouped(names: set[str]) -> str:
    """These names, in as few words as the groups allow."""
    words = []
    while fitting := [group for group, some in GROUPS.items() if names >= {*some}]:
        best = max(fitting, key=lambda group: (len(GROUPS[group]), group))
        words.append(best.upper())
        names = names - {*GROUPS[best]}
    return ", ".join([*words, *sorted(names)])

"""Reads a run folder for its page: verdict, sentences, clients' ops, trace, faults.

Rules
1. A folder with missing or broken files still gets a page: what could not be read is a sentence in
   `problems`, and its part of the page says that it has nothing to show.
2. Sentences about findings are those of `check` and `show`, made by the same functions.
"""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import verdict_text
from floodmark.harness.report.case_names import case_name
from floodmark.harness.report.finding_evidence import Gathering
from floodmark.harness.report.html.clients import Clients, clients
from floodmark.harness.report.html.reproduced import Standing, standing_of
from floodmark.harness.report.html.spans import spans_of
from floodmark.harness.report.html.stories import final_story, focus_of, near_of, story
from floodmark.harness.report.html.traced import Traced, traced
from floodmark.harness.report.model import Course, Event, Json, Reading, RunFacts, int_in
from floodmark.harness.report.run_outcome import ruling
from floodmark.harness.report.safe_text import harmless_data
from floodmark.harness.report.saved_verdict import read_about, read_verdict
from floodmark.harness.run import Run

STORIES = 6  # findings with a viewer of their own
FINALS = 12


def facts_of(
    folder: Path, verdict: Json | None = None, reading: Reading | None = None
) -> RunFacts:
    """Reads a run folder. verdict, reading: those that the caller has already; None: read them."""
    run, problems = Run(folder=folder.resolve()), list[str]()
    about, verdict = read_run_and_verdict(run, verdict, problems)
    findings = verdict_text.worst_first((verdict or {}).get("findings") or ())
    reading = reading or verdict_text.reading_of(run.folder, verdict or {}, about or None)
    gathering = reading.gathering or verdict_text.gathering_of(run, verdict or {}, about)
    courses = courses_of(gathering, reading)
    nears = [near for course in courses.values()
             if (near := near_of(course.evidence, gathering.files)) is not None]  # fmt: skip
    seen = clients(run, nears)
    trace, stories = stories_of(run, gathering, courses, seen)
    events = tuple(Event(account=one, story=stories.get(at)) for at, one in enumerate(reading.accounts))
    problems += [*seen.problems, *trace.problems]
    return RunFacts(
        folder=run.folder,
        verdict=verdict,
        about=about,
        ruled=ruling(verdict, about or None) if verdict is not None else None,
        tested=case_name(about or None),
        made_at=made_at(run),
        reading=reading,
        findings=tuple(findings),
        events=events,
        clients=seen,
        traced=trace,
        spans=tuple(spans_of(seen.nemesis, max(seen.last_ns, trace.last_ns))),
        lost=lost_of(findings),
        finals=finals_of(gathering, [one.story["partition"] for one in events if one.story is not None]),
        blamed=blamed_of(findings),
        standing=standing_of(run.folder) if findings else Standing(),
        problems=tuple(problems),
    )


def stories_of(
    run: Run, gathering: Gathering, courses: Mapping[int, Course], seen: Clients
) -> tuple[Traced, dict[int, Mapping[str, Any] | None]]:
    """The trace, read once for all stories, and each event's story."""
    focuses = {at: focus for at, course in courses.items() if (focus := focus_of(course)) is not None}
    order = sorted(focuses)
    trace = traced(run, [focuses[at] for at in order])
    shown = {at: trace.shown[place] for place, at in enumerate(order)}
    return trace, {at: story(course, shown.get(at), gathering.files, seen.acked, seen.nemesis)
                   for at, course in courses.items()}  # fmt: skip


def finals_of(gathering: Gathering, with_story: Sequence[int]) -> tuple[Json, ...]:
    """The final state of the first few partitions that have a row in replicas.jsonl, dumps, and no story."""
    known = sorted({partition for _, partition in gathering.files.replicas} - set(with_story))
    return tuple(found for partition in known[:FINALS]
                 if (found := final_story(gathering.files, gathering.about, partition)) is not None)


def read_run_and_verdict(run: Run, verdict: Json | None, problems: list[str]) -> tuple[Json, Json | None]:
    """run.json and the verdict; what is wrong with them is added to the problems."""
    about: Json = {}
    try:
        about = read_about(run)
    except FloodmarkError as error:
        problems.append(str(error))
    try:
        return about, harmless_data(dict(verdict)) if verdict is not None else read_verdict(run)
    except FloodmarkError as error:
        problems.append(str(error))
    return about, None


def courses_of(gathering: Gathering, reading: Reading) -> dict[int, Course]:
    """The courses of the first few events that have an example, by the event's number."""
    found: dict[int, Course] = {}
    for at, account in enumerate(reading.accounts[:STORIES]):
        examples = [one for one in account.found.get("examples") or () if isinstance(one, Mapping)]
        if examples and gathering.about:
            found[at] = gathering.course_of(gathering.evidence_for(account.found, examples[0]))
    return found


def lost_of(findings: Sequence[Json]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (example["partition"], example["value"])
        for found in findings
        if found["name"] == "lost-write"
        for example in found.get("examples") or ()
        if type(example.get("partition")) is int and type(example.get("value")) is int
    )


def blamed_of(findings: Sequence[Json]) -> frozenset[int]:
    """The lines of the trace that some finding blames, from 1."""
    lines = (
        int_in(dict(example), "event")
        for found in findings
        for example in found.get("examples") or ()
        if isinstance(example, Mapping)
    )
    return frozenset(line + 1 for line in lines if line is not None)


def made_at(run: Run) -> datetime.datetime | None:
    """When the run ended, by its history's file time, in this machine's zone: run.json has no date."""
    try:
        stamp = run.history_path.stat().st_mtime
    except OSError:
        return None
    return datetime.datetime.fromtimestamp(stamp, datetime.UTC).astimezone()

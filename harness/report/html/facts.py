"""Reads a run folder for its page: verdict, sentences, clients' ops, trace, faults.

Rules
1. A folder with missing or broken files still gets a page: what could not be read is a sentence in
   `problems`, and its part of the page says that it has nothing to show.
2. Sentences about findings are those of `check` and `show`, made by the same functions.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path

from floodmark.checkers.laws.finding_names import LOST_WRITE
from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import verdict_text
from floodmark.harness.report.case_names import case_name
from floodmark.harness.report.html.reproduced import Standing, standing_of
from floodmark.harness.report.html.story import final_story, near_of, shown_of, story
from floodmark.harness.report.html.timeline import spans_of, traced
from floodmark.harness.report.model import Event, Json, Reading, RunFacts, examples_of, int_in
from floodmark.harness.report.run_outcome import ruling
from floodmark.harness.report.safe_text import harmless_data
from floodmark.harness.report.saved_verdict import read_about, read_verdict
from floodmark.harness.run import Run

STORIES = 6  # findings with a viewer of their own
FINALS = 12  # partitions without a story, of which the end is shown


def facts_of(folder: Path, verdict: Json | None = None, reading: Reading | None = None) -> RunFacts:
    """Reads a run folder. verdict, reading: those that the caller has already; None: read them."""
    run, problems = Run(folder=folder.resolve()), list[str]()
    about, verdict = read_run_and_verdict(run, verdict, problems)
    findings = verdict_text.worst_first((verdict or {}).get("findings") or ())
    reading = reading or verdict_text.reading_of(run.folder, verdict or {}, about or None)
    gathering = reading.gathering or verdict_text.gathering_of(run, verdict or {}, about)
    files = gathering.files
    courses = [None if one.evidence is None or at >= STORIES else
               reading.course if at == 0 else gathering.course_of(one.evidence)
               for at, one in enumerate(reading.accounts)]
    nears = (near_of(course.evidence, files) for course in courses if course is not None)
    seen = catalog.client_activity(run.folder, [near for near in nears if near is not None])
    problems += seen.problems
    shown = [None if course is None else shown_of(course) for course in courses]
    trace = traced(run, [one for one in shown if one is not None], problems)
    stories = [None if course is None else story(course, one, files, seen.acked)
               for course, one in zip(courses, shown, strict=True)]
    with_story = {one["partition"] for one in stories if one is not None}
    others = sorted({partition for _, partition in files.replicas} - with_story)
    finals = (final_story(files, gathering.about, partition) for partition in others[:FINALS])
    blamed = (int_in(one, "event") for found in findings for one in examples_of(found))
    return RunFacts(
        folder=run.folder,
        verdict=verdict,
        about=about,
        ruled=ruling(verdict, about or None) if verdict is not None else None,
        tested=case_name(about or None),
        made_at=made_at(run),
        reading=reading,
        findings=tuple(findings),
        events=tuple(Event(account=account, story=its_story)
                     for account, its_story in zip(reading.accounts, stories, strict=True)),
        clients=seen,
        traced=trace,
        spans=spans_of(files.nemesis, max(seen.last_ns, trace.last_ns)),
        lost=lost_of(findings),
        finals=tuple(final for final in finals if final is not None),
        blamed=frozenset(line + 1 for line in blamed if line is not None),
        standing=standing_of(run.folder) if findings else Standing(),
        problems=tuple(problems),
    )


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


def lost_of(findings: Sequence[Json]) -> tuple[tuple[int, int], ...]:
    """Partition and value of the lost writes that findings name."""
    return tuple((partition, value) for found in findings if found["name"] == LOST_WRITE
                 for one in examples_of(found) if (partition := int_in(one, "partition")) is not None
                 and (value := int_in(one, "value")) is not None)


def made_at(run: Run) -> datetime.datetime | None:
    """When the run ended, by its history's file time, in this machine's zone: run.json has no date."""
    try:
        stamp = run.history_path.stat().st_mtime
    except OSError:
        return None
    return datetime.datetime.fromtimestamp(stamp, datetime.UTC).astimezone()

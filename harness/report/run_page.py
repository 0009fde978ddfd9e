"""Makes the page of a run, one HTML file, from templates/run.html: on request, and automatically for a run
that was judged invalid.

Rules
1. A folder with missing or broken files still gets a page: what could not be read is a sentence in
   `problems`, and its part of the page says that it has nothing to show.
2. Sentences about findings are those of `check` and `show`, made by the same functions.
3. The page's data are JSON: the stories for the viewer, and rows for the drawings, which charts.json
   describes and charts.js fills in. Times are milliseconds of the run with three decimals, which a browser's
   numbers represent exactly.
"""

import base64
import contextlib
import datetime
import functools
import gzip
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import orjson

from floodmark.checkers.judge.report import is_run
from floodmark.checkers.laws.finding_names import LOST_WRITE
from floodmark.checkers.stats.spans import fault_spans
from floodmark.checkers.text.explain import PERMISSIONS
from floodmark.harness import __version__, catalog
from floodmark.harness.campaign import ledger
from floodmark.harness.campaign.state import about_of, is_campaign, state_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import LASTING
from floodmark.harness.report import verdict_text
from floodmark.harness.report.model import (
    Json,
    Reading,
    examples_of,
    int_in,
    items,
    mapping,
    mended_ns,
    partitions_in,
    text,
)
from floodmark.harness.report.phrases import command_line, number_of, seconds
from floodmark.harness.report.render import TEMPLATES, render
from floodmark.harness.report.run_files import RunFiles, read_about, read_verdict
from floodmark.harness.report.run_shown import read_story, story_text
from floodmark.harness.report.run_summary import INVALID, Ruling, case_name, is_kafka, ruling
from floodmark.harness.report.safe_text import escape_controls, escaped_data
from floodmark.harness.report.story import final_story, near_of, shown_of, story
from floodmark.harness.report.timeline import DOWN, silences, traced
from floodmark.harness.run import Run, write_whole
from floodmark.harness.run_location import Place
from floodmark.harness.user_cache import cache_folder
from floodmark.harness.verdict import BUG

REPORT = "report.html"
AT_ONCE_BYTES = 256 << 20  # of history and trace: about ten seconds
STORIES = 6  # findings with a viewer of their own
FINALS = 12  # partitions without a story, of which the end is shown
DAY = len("2026-11-20")
CLASSES = {"valid": "good", "unknown": "doubt", "interrupted": "doubt", "let through": "doubt"}
MARKS = 4_000  # of a kind in the drawings
COLOURS = 5  # of epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the campaign knows about a cause. first: day when first seen; known: why, if it is known."""

    shown: int = 0  # attempts that showed it again
    tried: int = 0
    first: str = ""
    known: str = ""


class RunFacts:
    """All that a page shows of a run. verdict, reading: those that the caller has; None: read them."""

    def __init__(self, folder: Path, verdict: Json | None = None, reading: Reading | None = None) -> None:
        run, self.problems = Run(folder=folder.resolve()), list[str]()
        self.folder = run.folder
        self.about = about = self._read(read_about, run) or {}
        self.verdict = self._read(read_verdict, run) if verdict is None else escaped_data(dict(verdict))
        self.ruled = ruling(self.verdict, about or None) if self.verdict is not None else None
        self.reading = verdict_text.reading_of(
            run.folder, self.verdict or {}, about or None) if reading is None else replace(
            reading, folder=run.folder, about=about or None)
        self.findings = self.reading.findings
        self.standing = standing_of(run.folder) if self.findings else Standing()
        files, accounts = self.reading.files or RunFiles(run), self.reading.accounts
        told = [one.evidence if at < STORIES else None for at, one in enumerate(accounts)]
        nears = [near for one in told if one is not None
                 and (near := near_of(files, one.partition, one.offset)) is not None]
        self.clients = seen = catalog.client_activity(run.folder, nears)
        self.problems += seen.problems
        shown = [None if one is None else shown_of(one) for one in told]
        self.traced = traced(run, [one for one in shown if one is not None], self.problems)
        stories = [None if one is None else story(one, its, files, seen.acked)
                   for one, its in zip(told, shown, strict=True)]
        self.events = list(zip(accounts, stories, strict=True))  # None: without a story for the viewer
        self.stories = [one for one in stories if one is not None]
        others = {partition for _, partition in files.replicas} - {one["partition"] for one in self.stories}
        # Partitions without a story, at the end of the run.
        self.finals = [final for partition in sorted(others)[:FINALS]
                       if (final := final_story(files, about, partition)) is not None]
        self.last_ns = max(seen.last_ns, self.traced.last_ns, 1)  # when the run ended
        # Each fault on one node, or on no particular node (a cut of links, an election).
        self.strikes = [(fault, node) for fault in fault_spans(
            (op.index, op.time, op.f, op.fault or {}) for op in files.nemesis) for node in fault.where]
        # Lines of the trace that bugs are blamed on, from 1.
        self.blamed = {line + 1 for found in self.findings if found["class"] == BUG
                       for one in examples_of(found) if (line := int_in(one, "event")) is not None}

    def _read(self, read: Callable[[Run], Json], run: Run) -> Json | None:
        try:
            return read(run)
        except FloodmarkError as error:
            self.problems.append(str(error))
        return None


def write_report(folder: Path, file: Path | None = None, *, verdict: Json | None = None,
                 reading: Reading | None = None) -> Path:
    """Writes the page of a run folder atomically. FloodmarkError if it cannot be written."""
    file = folder / REPORT if file is None else file
    write_whole(file, page_of(RunFacts(folder, verdict, reading)))
    return file


def write_page_if_invalid(folder: Place, ruled: Ruling, verdict: Json, reading: Reading | None = None, *,
                renew: bool = False) -> Path | None:
    """Writes the page of a run that was just judged, if the run is invalid, or if it has a page already,
    which would show an older verdict (renew: only then). The page does not affect the exit code: an error is
    only reported on stderr."""
    if not isinstance(folder, Path) or not is_run(folder):
        return None
    if (renew or ruled.kind != INVALID) and not (folder / REPORT).is_file():
        return None
    if size_of(folder) > AT_ONCE_BYTES:
        command = command_line("report", folder)
        click.echo(escape_controls(f"{folder}: the run is large, and its page takes a while: {command}"),
                   err=True)
        return None
    return written_page(folder, lambda: write_report(folder, verdict=verdict, reading=reading))


def written_page(folder: Path, write: Callable[[], Path]) -> Path | None:
    """Writes the page of this folder; None if that failed, which is only reported on stderr."""
    try:
        return write()
    except FloodmarkError as error:
        why = str(error)
    except Exception as error:
        why = f"a bug of floodmark's own ({type(error).__name__}: {error})"
    click.echo(escape_controls(f"floodmark: {folder}: its page was not written: {why}"), err=True)
    return None


def size_of(folder: Path) -> int:
    """Bytes of the files that a page is made of."""
    run = Run(folder=folder)
    return sum(path.stat().st_size for path in (run.history_path, run.trace_path) if run.has(path))


def page_of(facts: RunFacts) -> bytes:
    """The HTML file."""
    verdict, about = facts.verdict or {}, facts.about
    counts = verdict.get("counts") or {}
    word, rest = heading(facts)
    records = mapping(counts, "records")
    next_commands = [command for _, command in verdict_text.next_commands(facts.reading)
                     ] if facts.verdict is not None else []
    once_more = "check" if facts.verdict is None else "rejudge"
    mended = min(mended_ns(about), facts.last_ns)
    silent = [  # sends were tried and none was acked
        {"from": since / 1000, "to": until / 1000, "label": f"no ack for {(until - since) / 1e6:.1f} s "
         f"({since / 1e6:.1f} to {until / 1e6:.1f} s)"} for since, until in silences(facts.clients.columns)]
    vega = library() if facts.clients.ops or facts.traced.is_there else ""  # "": there is nothing to draw
    return render(
        "run.html", facts=facts, word=word, rest=rest, version=__version__, permissions=PERMISSIONS,
        kind=CLASSES.get(facts.ruled.kind if facts.ruled is not None else "unknown", "bad"),
        tested=tested(facts),
        problems=[*(facts.ruled.harness if facts.ruled is not None else ()), *facts.problems],
        looked_at="" if facts.reading.accounts else verdict_text.looked_at(counts, grouped=True),
        acked=int_in(counts, "acked"), struck=facts.reading.strikes.struck,
        records=max((int_in(records, node) or 0 for node in records), default=None),
        seen=seen_lines(facts), silences=[row["label"] for row in silent],
        availability=[availability(row, mended) for row in facts.clients.faults],
        same_event=verdict_text.SAME_EVENT,
        undone=[(said, verdict_text.shortened(entry["names"]), entry["reason"])
                for key, said in (("unknown", "cannot tell"), ("not_made", "not made"))
                for entry in verdict.get(key) or ()],
        config=configuration(about),
        next_commands=[*next_commands, command_line(once_more, facts.folder)],
        vega=vega,
        blocks={"data": packed(orjson.dumps(data_of(facts, silent))),
                "vega": packed(vega.encode()) if vega else ""},
    ).encode()  # fmt: skip


@functools.lru_cache(maxsize=2)  # every page of a call has the same library
def packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


@functools.cache
def library() -> str | None:
    """The script of Vega and Vega-Lite; None if vl-convert is not installed. Bundling takes more than a
    second, so the script is kept in the user's cache. It is 0.9 MB, 0.3 compressed (Plotly's 4.8 and 1.5)."""
    try:
        import vl_convert
    except ImportError:
        return None
    cached = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    try:
        return cached.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    with contextlib.suppress(FloodmarkError):  # without a cache it is bundled each time
        write_whole(cached, script.encode())
    return script


# -- words --------------------------------------------------------------------------------------------------

def heading(facts: RunFacts) -> tuple[str, str]:
    """`invalid:` and `1 lost write`."""
    if facts.ruled is None:
        return "not judged", ""
    if not facts.findings:
        return facts.ruled.word, ""
    worst = facts.findings[0]  # bugs come first
    name, count = str(worst["name"]), int(worst["count"])
    label = (number_of(count, "lost write") if name == "lost-write" else
             f"{name} ({count})" if count > 1 else name)
    if worst["class"] != BUG:
        return facts.ruled.word, f"({label}, permitted by {worst['permitted_by']})"
    bugs = sum(account.found["class"] == BUG for account in facts.reading.accounts)
    return f"{facts.ruled.word}:", label + (f" and {number_of(bugs - 1, 'other event')}" if bugs > 1 else "")


def tested(facts: RunFacts) -> list[str]:
    """What was tested, in short parts."""
    about, made = facts.about, None
    with suppress(OSError):  # when the history was written, in this machine's zone: run.json has no date
        stamp = Run(folder=facts.folder).history_path.stat().st_mtime
        made = datetime.datetime.fromtimestamp(stamp, datetime.UTC).astimezone()
    ours = about.get("rules") and not is_kafka(about)
    commit = str(about.get("commit") or "")[:7]
    return [part for part in (
        case_name(about or None),
        f"reference broker, floodmark {about.get('version', '?')}" if ours else "",
        f"commit {commit}" if commit else "",
        f"seed {about['seed']}" if about.get("seed") is not None else "",
        f"{made:%Y-%m-%d %H:%M} {made:%Z}" if made is not None else "no date",
        seconds(facts.last_ns),
    ) if part]  # fmt: skip


def availability(row: Json, last_ns: int) -> list[str]:
    """The cells of a fault's row of measures."""
    mended = row["mended_s"]
    until = mended if mended is not None else last_ns / 1e9
    recovery = span_text(row["recovery_s"], row["recovery_partition"])
    return [
        ", ".join(filter(None, (row["kind"].replace("_", " "), row["detail"])))
        + (f" {' '.join(row['nodes'])}" if row["nodes"] else "") + (" (failed)" if row["failed"] else ""),
        seconds(round(row["began_s"] * 1e9)),
        "at once" if row["kind"] not in LASTING else span_text(until - row["began_s"])
        + ("" if mended is not None else ", to the end"),
        span_text(row["first_failed_s"]) if row["first_failed_s"] is not None else "none failed",
        span_text(row["gap_s"], row["gap_partition"]),
        recovery if row["recovered"] is not False else f"never, in {recovery}",
    ]  # fmt: skip


def span_text(time_s: float | None, partition: int | None = None) -> str:
    """`12.3 ms in p0`, `1.234 s`; `-` for None."""
    time_ns = None if time_s is None else round(time_s * 1e9)
    said = "-" if time_ns is None else f"{time_ns / 1e6:.1f} ms" if time_ns < 1e9 else seconds(time_ns)
    return said if partition is None else f"{said} in p{partition}"


def seen_lines(facts: RunFacts) -> list[str]:
    """What `show` prints of the history for the worst finding, if the viewer has nothing about it."""
    evidence = facts.reading.evidence
    if evidence is None or facts.events[0][1] is not None:
        return []
    try:
        story = read_story(evidence)
    except FloodmarkError:
        return []  # the history cannot be read, which the page says above
    lines = story_text(story, evidence) if story.promise is not None else ()
    return [click.unstyle(line).removeprefix("  ") for line in lines]


def configuration(about: Json) -> dict[str, Any]:
    """The guarantees, and the config keys: those that differ between nodes first."""

    def shown(value: object) -> str:
        return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    config = {str(node): {key: shown(value) for key, value in keys.items()}
              for node, keys in sorted(mapping(about, "config").items()) if isinstance(keys, Mapping)}
    keys = sorted({key for each in config.values() for key in each})
    differing = {key for key in keys if len({each.get(key, "-") for each in config.values()}) > 1}
    columns = list(config.values()) if differing else list(config.values())[:1]
    return {
        "guarantees": [(name.replace("_", " "), shown(value))
                       for name, value in sorted(mapping(about, "guarantees").items())],
        "heads": ["key", *config] if differing else ["key", "on every node"],
        "rows": [[key, *(each.get(key, "-") for each in columns)]
                 for key in sorted(keys, key=lambda key: (key not in differing, key))],
        "differing": differing,
    }


# -- data ---------------------------------------------------------------------------------------------------

def ms(time_ns: int | None) -> float:
    return round((time_ns or 0) / 1e6, 3)


def data_of(facts: RunFacts, silent: Sequence[Json]) -> dict[str, Any]:
    """Everything that the scripts of the page read."""
    nodes = [str(node) for node in items(facts.about, "nodes")] or sorted(
        {node for node, _ in facts.traced.points})
    times = [step["t"] for story in facts.stories[:1] for step in story["steps"]] or [0, ms(facts.last_ns)]
    margin = max(20.0, (max(times) - min(times)) * 0.12)
    known = partitions_in(facts.about) or {partition for _, partition in facts.traced.points}
    return {
        "nodes": nodes, "lanes": [*nodes, "controller"] if facts.traced.is_there else nodes,
        "partitions": list(dict.fromkeys([
            *(story["partition"] for story in facts.stories), *sorted(known)])),
        "span": [0, ms(facts.last_ns)],  # and what the drawings show first: the finding's, or all of the run
        "opens": [max(0, min(times) - margin), min(ms(facts.last_ns), max(times) + margin)],
        "stories": [*facts.stories, *facts.finals],
        "ops": facts.clients.columns,
        "rows": {**fault_rows(facts, nodes), **trace_rows(facts), "silences": silent[:MARKS]},
        "charts": orjson.loads((TEMPLATES / "charts.json").read_bytes()),
    }  # fmt: skip


def fault_rows(facts: RunFacts, nodes: Sequence[str]) -> dict[str, list[Json]]:
    """The faults on each node, those that last as bands; and the lost writes of the clients."""
    rows: dict[str, list[Json]] = {"bands": [], "strikes": [], "faults": []}
    end_ns = min(mended_ns(facts.about), max(facts.clients.last_ns, facts.traced.last_ns))
    for fault, on in facts.strikes[:MARKS]:
        until_ns = fault.mended.get(on, end_ns) if fault.lasts else fault.began_ns
        label, lasted = fault.kind.replace("_", " "), until_ns - fault.began_ns
        label += f", {fault.detail}" if fault.detail else ""
        row = {"label": label, "from": ms(fault.began_ns), "to": ms(until_ns), "at": seconds(fault.began_ns),
               "lasted": seconds(lasted) if lasted >= 1e9 else f"{lasted / 1e6:.3f} ms"}
        rows["bands" if fault.lasts else "strikes"] += [
            {**row, "node": node} for node in ([on] if on is not None else fault.nodes or nodes)]
        if fault.lasts:
            rows["faults"].append({**row, "label": f"{label} {on}" if on else label})
    lost = {(int_in(one, "partition"), int_in(one, "value")) for found in facts.findings
            for one in examples_of(found) if found["name"] == LOST_WRITE}
    rows["lost"] = [
        {"partition": one.partition, "t": ms(one.ended_ns), "at": seconds(one.ended_ns),
         "what": f"value {one.value} acked: lost"}
        for one in facts.clients.acked[:MARKS] if (one.partition, one.value) in lost]
    return rows  # fmt: skip


def trace_rows(facts: RunFacts) -> dict[str, list[Json]]:
    """What the trace has of each partition: leaders, elections, truncations, each replica's LEO and HW."""
    downs = [(node, fault.began_ns) for fault, node in facts.strikes if fault.kind in DOWN]
    reigns: list[Json] = []
    for one in facts.traced.reigns[:MARKS]:
        until = facts.last_ns if one.until_ns is None else one.until_ns
        until = min([until, *(at for node, at in downs if node == one.node and one.since_ns <= at < until)])
        reigns.append({"partition": one.partition, "node": one.node, "leads": one.node, "epoch": one.epoch,
                       "from": ms(one.since_ns), "to": ms(until), "colour": f"e{one.epoch % COLOURS}"})
    return {
        "reigns": reigns,
        "elections": [
            {"partition": int_in(line, "partition"), "node": "controller", "t": ms(int_in(line, "time")),
             "at": seconds(int_in(line, "time") or 0), "elected": text(line, "leader") or "nobody",
             "epoch": int_in(line, "epoch"), "isr": " ".join(map(str, items(line, "isr"))),
             "clean": line.get("clean") is not False, "colour": f"e{(int_in(line, 'epoch') or 0) % COLOURS}"}
            for line in facts.traced.elections[:MARKS]],
        "cuts": [
            {"partition": int_in(line, "partition"), "node": text(line, "node"),
             "t": ms(int_in(line, "time")), "at": seconds(int_in(line, "time") or 0),
             "blamed": number in facts.blamed,
             "truncated": f"from {int_in(line, 'from')} to {int_in(line, 'to')}"}
            for number, line in facts.traced.truncations[:MARKS]],
        "replicas": [
            {"partition": partition, "node": node, "at": [[ms(time), leo, hw] for time, leo, hw in with_gaps(
                points, sorted(at for of, at in downs if of == node), facts.last_ns)]}
            for (node, partition), points in sorted(facts.traced.points.items())],
    }  # fmt: skip


def with_gaps(points: Sequence[tuple[int, int, int]], downs: Sequence[int], end: int
              ) -> list[tuple[int, int | None, int | None]]:
    """A replica's LEO and HW, with a gap from each time when its node went down to the next point."""
    found: list[tuple[int, int | None, int | None]] = []
    marks = sorted([(time, 1, leo, hw) for time, leo, hw in points] + [(time, 0, 0, 0) for time in downs])
    for time, is_point, leo, hw in [*marks, (end, 0, 0, 0)]:
        if is_point:
            found.append((time, leo, hw))
        elif found and found[-1][1] is not None:
            found += [(max(found[-1][0], time), *found[-1][1:]), (time, None, None)]
    return found


def standing_of(folder: Path) -> Standing:
    """The standing of the cause that this run shows; of several, the one tried most often."""
    campaign = next((parent for parent in list(folder.parents)[1:3] if is_campaign(parent)), None)
    if campaign is not None:
        with suppress(FloodmarkError, AttributeError, KeyError, TypeError, ValueError):
            return in_campaign(campaign, folder.relative_to(campaign))
    return Standing()


def in_campaign(campaign: Path, place: Path) -> Standing:
    """By the ledger, which covers all campaigns, or by the campaign's own state."""
    word, state = about_of(campaign).get("ledger"), state_of(campaign)
    known = ledger.load(Path(word)) if isinstance(word, str) else ledger.Ledger()
    if place.parts[0] == "again":
        entries = {place.parts[1]: known.entries.get(place.parts[1])}
    else:
        found = [(signature.id, known.of(signature)) for run in state.runs() if run.folder == place.as_posix()
                 for signature in run.signatures]
        entries = {id_ if entry is None else entry.id: entry for id_, entry in found}
    standings = []
    for id_, entry in entries.items():
        tries = state.reproductions(id_)
        again, first, reason = (sum(map(bool, tries)), len(tries)), "", ""
        if entry is not None:
            again = max(again, entry.reproduced, key=lambda pair: pair[1])
            first = "".join(known.nights[night].began[:DAY] for night in known.nights_with(entry)[:1])
            reason = str(entry.known["reason"]) if entry.known is not None else ""
        standings.append(Standing(shown=again[0], tried=again[1], first=first, known=reason))
    return max(standings, key=lambda one: (one.tried, one.shown), default=Standing())

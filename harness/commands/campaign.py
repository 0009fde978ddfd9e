"""Runs, resumes and marks campaigns: `floodmark campaign run | resume | mark | plan`.
Exit codes of run and resume: 1 a bug was found that is not marked as known, or a run broke a gate of the
plan; else 4 the harness failed in a run; else 3 a verdict is unknown; else 0, also if known bugs were seen
(they are listed).
"""

import asyncio
import datetime
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from floodmark.harness import __version__, catalog
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.cases import case_of_json
from floodmark.harness.campaign.gates import GATE
from floodmark.harness.campaign.journal import FORMAT, CampaignAt, Journal, State, alone
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.plan import Plan, load, preset_text, presets, read
from floodmark.harness.campaign.quantities import seconds, time_text
from floodmark.harness.commands.broker_questions import refuse_configs
from floodmark.harness.commands.campaign_index import index_beside
from floodmark.harness.commands.campaign_play import scenario_spec
from floodmark.harness.commands.campaign_processes import JudgeProcess, PlayerProcess
from floodmark.harness.commands.campaign_run import Bounds, Conductor
from floodmark.harness.commands.error_exits import complain
from floodmark.harness.commands.run import own_commit, planned
from floodmark.harness.commands.scenario import named
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.event_loop import run_loop
from floodmark.harness.pipeline import new_parent, refuse_no_files, write_file
from floodmark.harness.protocols import Cluster
from floodmark.harness.reports.campaign_junit import campaign_junit
from floodmark.harness.reports.campaign_markdown import campaign_markdown
from floodmark.harness.reports.campaign_results import (
    STUCK,
    Cause,
    Results,
    distinguishing_texts,
    gates_of,
    results_of,
    why_of,
)
from floodmark.harness.reports.gate_outcomes import one_line
from floodmark.harness.reports.phrases import many, ruled_table
from floodmark.harness.reports.run_outcome import EXITS, HARNESS, INVALID
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.run import RUNS, write_json, write_whole
from floodmark.harness.run_location import sync
from floodmark.harness.spec import RunSpec
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_VALID, worst

LEDGER = "ledger.json"
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """The report files for CI servers; None: not wanted. UsageError if a path is no plain file."""

    junit_file: Path | None = None
    markdown_file: Path | None = None

    def __post_init__(self) -> None:
        files = {"--junit": self.junit_file, "--markdown": self.markdown_file}
        refuse_no_files({option: file for option, file in files.items() if file is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOptions:
    """The options of `campaign run`. out: the campaign's folder; ledger: None means LEDGER next to it."""

    plan_file: Path | None = None
    preset: str | None = None
    kafka: str | None = None  # the version that the preset is for; None: the reference broker
    budget: str | None = None
    out: Path | None = None
    seed: int | None = None
    runs: int | None = None
    ledger: Path | None = None
    keep: bool = False
    reports: Reports = Reports()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The options that change when a campaign is resumed. None: unchanged."""

    budget: str | None = None  # the total, with the time already spent
    runs: int | None = None
    ledger: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """The changes as keys of campaign.json. UsageError for an invalid time; FloodmarkError for a ledger
        that cannot be read."""
        changed: dict[str, Any] = {}
        if self.budget is not None:
            changed["budget_s"] = time_of(self.budget)
        if self.runs is not None:
            changed["runs"] = self.runs
        if self.ledger is not None:
            ledgers.load(self.ledger)
            changed["ledger"] = str(self.ledger.absolute())
        return changed


# -- run and resume -----------------------------------------------------------------------------------------


def run_campaign(options: CampaignOptions) -> int:
    """Runs a new campaign to its end; the last line of stdout is its folder."""
    plan = plan_of(options)
    budget_s = budget_of(options.budget, plan)
    refuse_impossible_cases(plan)
    folder = new_parent(options.out, "campaign")
    catalog.can_judge()
    ledger_path = (options.ledger or folder.parent / LEDGER).absolute()
    ledger = ledgers.load(ledger_path)
    about = {
        "format": FORMAT,
        "id": secrets.token_hex(6),
        "began": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "version": __version__,
        "commit": own_commit(),
        "seed": secrets.randbelow(2**31) if options.seed is None else options.seed,
        "budget_s": budget_s,
        "runs": options.runs,
        "keep": options.keep,
        "ledger": str(ledger_path),
        "bank": bank_of(ledger, plan),
        "plan": plan.text,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_about(folder, about)
    click.echo(f"{many(len(plan.cases), 'case')}, {time_text(budget_s)}, seed {about['seed']}; folder "
               f"{harmless(str(folder))}", err=True)
    return continue_campaign(folder, options.reports)


def resume_campaign(folder: Path, reports: Reports, changes: Changes | None = None) -> int:
    """Continues a campaign that was interrupted; reports one that is finished."""
    return continue_campaign(folder, reports, changes)


def continue_campaign(folder: Path, reports: Reports, changes: Changes | None = None) -> int:
    """Runs a campaign's next session, and writes its reports however the session ends."""
    at = CampaignAt(folder=folder.resolve())
    changed = changes.as_json() if changes is not None else {}
    about = {**at.about(), **changed}
    plan = read(str(about["plan"]), f"the plan in {at.about_path}")
    matrix = [one.case for one in plan.cases]
    with alone(at.folder):
        if changed:
            write_about(at.folder, about)
        try:
            state = run_session(at, plan, about, lambda state: index_beside(folder, state, about))
            ledger = ledgers.load(Path(about["ledger"]))
        except Exception as error:
            trouble = str(error) or repr(error)
            results = results_so_far(at, about, matrix, str(folder), trouble)
            write_reports(results, reports)
            click.echo(harmless(summary(results), breaks=True))
            index_beside(folder, None, about, trouble)
            raise
        index = index_beside(folder, state, about)
    results = results_of(state, ledger, about, matrix, folder=str(folder))
    unwritten = write_reports(results, reports)
    click.echo(harmless(summary(results), breaks=True))
    if index is not None:
        click.echo(harmless(f"  page       {index}"))
    click.echo(harmless(str(folder)))
    if state.ended_early:
        complain(str(state.why_ended), EXIT_HARNESS)
    return worst([exit_code(state, ledger), *unwritten])


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Writes campaign.json and fsyncs it: without it a campaign cannot be resumed."""
    sync(folder.parent)
    write_json(folder / "campaign.json", about, durable=True)


def results_so_far(at: CampaignAt, about: Mapping[str, Any], matrix: Sequence[RunSpec], folder: str,
                 trouble: str) -> Results:
    """The results of a campaign that an error ended, as far as its files can be read."""
    state, ledger = State(), Ledger()
    with suppress(FloodmarkError):
        state = at.state()
        ledger = ledgers.load(Path(about["ledger"]))
    return results_of(state, ledger, about, matrix, folder=folder, trouble=trouble)


def write_reports(results: Results, reports: Reports) -> list[int]:
    """Writes the report files for CI servers; returns EXIT_HARNESS for each that could not be written."""
    return [
        *write_file(reports.junit_file, lambda file: write_whole(
            file, campaign_junit(results, datetime.datetime.now()))),
        *write_file(reports.markdown_file, lambda file: write_whole(file, campaign_markdown(results))),
    ]


def run_session(at: CampaignAt, plan: Plan, about: Mapping[str, Any],
              look: Callable[[State], object]) -> State:
    """Runs one session to its end. look: called after each batch. Ctrl-C and SIGTERM end it at once, and only
    the unfinished runs are lost."""
    state = at.state()
    journal = Journal(at.journal_path)
    conductor = Conductor(
        at=at, plan=plan, about=about, journal=journal, state=state, ledger_path=Path(about["ledger"]),
        look=look,
        bounds=Bounds(budget_s=float(about["budget_s"]), runs=about["runs"], keep=bool(about["keep"])),
        player=PlayerProcess(at.folder / "players.log"), judge=JudgeProcess(at.folder / "judge.log"),
    )  # fmt: skip

    try:
        return run_loop(conductor.conduct(), (signal.SIGTERM, signal.SIGINT))
    except asyncio.CancelledError as error:
        raise FloodmarkError(
            f"interrupted; to continue: floodmark campaign resume {at.folder}") from error
    except (FloodmarkError, OSError) as error:
        resume = f"floodmark campaign resume {at.folder}"
        sentence = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        advice = "" if resume in sentence else f"; when that is fixed, continue with: {resume}"
        raise FloodmarkError(f"{sentence}{advice}") from error
    finally:
        journal.close()


def plan_of(options: CampaignOptions) -> Plan:
    if (options.plan_file is None) == (options.preset is None):
        raise UsageError(f"name a plan, or --preset {'|'.join(presets())}")
    if options.plan_file is None:
        return read(preset_text(str(options.preset), options.kafka), f"the preset {options.preset}")
    if options.kafka is not None:
        raise UsageError("--kafka goes with --preset: a plan of your own says what it tests, by [[system]] "
                         f"and kafka = {options.kafka!r}")
    return load(options.plan_file)


def budget_of(words: str | None, plan: Plan) -> float:
    """The campaign's time in seconds. UsageError if not even the shortest run fits."""
    budget_s = time_of(words) if words is not None else plan.budget_s
    if budget_s is None:
        raise UsageError("the campaign's time is missing: give --for 20min, or `for = \"20min\"` in the plan")
    least_s = min(one.case.duration for one in plan.cases)
    if budget_s < least_s:
        raise UsageError(f"{time_text(budget_s)} has no room for one run of {time_text(least_s)}: give the "
                         "campaign more time (--for), or its runs less (`duration`)")
    return budget_s


def time_of(words: str) -> float:
    """The seconds of --for; UsageError if it is no time."""
    try:
        return seconds(words)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from error


def refuse_impossible_cases(plan: Plan) -> None:
    """Raises UsageError for a case that cannot run: an unknown nemesis or scenario, or a config that no
    broker would start with."""
    clusters: list[tuple[str, Cluster]] = []
    for one in plan.cases:
        words = f"the plan's case {one.case.title!r} cannot be run"
        try:
            clusters.append((words, _cluster_nowhere(one.case)))
        except UsageError as error:
            raise UsageError(f"{words}: {error}") from error
    refuse_configs(clusters)


def _cluster_nowhere(case: RunSpec) -> Cluster:
    nowhere = RUNS / "never"
    if case.scenario is None:
        return planned(replace(case, seed=1, out=nowhere), ask_broker=False).cluster
    (scenario,) = named(case.scenario)
    return planned(scenario_spec(case, scenario, nowhere), scenario.schedule, ask_broker=False).cluster


def bank_of(ledger: Ledger, plan: Plan) -> list[dict[str, Any]]:
    """Case and seed of the smallest run of each bug in the ledger, for the plan's systems: they are run
    first, those seen last before the others."""
    systems = {one.case.system for one in plan.cases}
    entries = sorted(
        (entry for entry in ledger.entries.values()
         if entry.signature.klass == BUG and entry.smallest is not None
         and case_of_json(entry.smallest.case).system in systems),
        key=lambda entry: [ledger.nights[night].began for night in ledger.nights_with(entry)[-1:]],
        reverse=True)
    return [{"case": dict(entry.smallest.case), "seed": entry.smallest.seed}
            for entry in entries[: plan.bank] if entry.smallest is not None]


# -- results ----------------------------------------------------------------------------------------


def summary(results: Results) -> str:
    """The summary: the heading, tables of violations and stuck clusters, and the other runs that failed."""
    lines = [results.heading]
    for title, causes in (("violation", results.violations), ("stuck", results.stuck)):
        if causes:
            lines += ["", *causes_table(title, causes)]
    runs = {
        "gate": [(run, f"{gates_of(run)}; {run.folder}") for run in results.gates],
        "not made": [(run, why_of(run)) for run in results.not_made],
        "the harness failed": [(run, f"{why_of(run)}; {run.folder}") for run in results.harness],
        "unknown": [(run, f"{why_of(run)}; {run.folder}") for run in results.unknown],
    }
    lines += [f"  {title}: {run.case.title} seed {run.seed}: {one_line(words)}"
              for title, mine in runs.items() for run, words in mine]
    return "\n".join(lines)


def causes_table(title: str, causes: Sequence[Cause]) -> list[str]:
    """A table of causes; below it the guarantees that all have, and the commands to type."""
    texts, common = distinguishing_texts([one.signature for one in causes])
    rows: list[Row] = [("signature", "system", title, "runs", "per 100", "again", "seen")]
    rows += [(one.id, one.signature.system, text, f"{one.runs} of {one.of}",
              one.rate.replace(" per 100 runs", ""), one.reproduced_text, one.standing_text)
             for one, text in zip(causes, texts, strict=True)]
    below = [f"guarantees: {common}"] if common else []
    below += [f"  {one.id}: {one.words}" for one in causes if one.words]
    below += [f"  look at {one.id}: {one.commands[0]}" for one in causes if one.fails and one.commands]
    return [ruled_table(rows), *below]


def exit_code(state: State, ledger: Ledger) -> int:
    """The exit code, see the module's docstring."""
    if any(signature.klass == BUG and not ledger.knows(signature) for signature in state.runs_by_signature()):
        return EXIT_INVALID
    runs = state.runs.values()
    judged = [run.judged for run in runs if run.judged is not None]
    if any(line.get("gates") for line in judged):
        return EXIT_INVALID
    kinds = {line["kind"] for line in judged} - {INVALID, STUCK, GATE}
    if state.ended_early or any(run.why is not None for run in runs) or not any(run.done for run in runs):
        kinds.add(HARNESS)  # also for a campaign without any run
    return worst(EXITS[kind] for kind in kinds)


# -- mark, plan -------------------------------------------------------------------------------------------


def mark(ledger_path: Path, id_: str, *, known: str | None, unknown: bool, note: str | None) -> int:
    """Changes a signature's marks and notes in the ledger."""
    if not (known or unknown or note):
        raise UsageError("give --known REASON, --not-known or --note TEXT")
    today = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    with ledgers.locked(ledger_path):
        ledger = ledgers.load(ledger_path)
        entry = ledger.named(id_)
        if known or unknown:
            ledger = ledger.with_mark(entry.id, reason=known, since=today)
        if note:
            ledger = ledger.with_note(entry.id, note)
        ledgers.save(ledger_path, ledger)
    click.echo(harmless(f"{entry.id}: {entry.signature.sentence}: "
                        + (f"known: {known}" if known else "not known" if unknown else f"noted: {note}")))
    return EXIT_VALID


def show_plan(name: str, kafka: str | None) -> int:
    """Prints a preset, to be copied and edited."""
    click.echo(preset_text(name, kafka), nl=False)
    return EXIT_VALID

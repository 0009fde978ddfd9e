"""Runs, resumes, compares and marks campaigns: `floodmark campaign run | resume | diff | mark | plan`.
Exit codes of run and resume: 1 a bug was found that is not marked as known, or a run broke a gate of the
plan; else 4 the harness failed in a run; else 3 a verdict is unknown; else 0, also if known bugs were seen
(they are listed).
"""

import asyncio
import datetime
import secrets
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from floodmark.harness import __version__, catalog
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.plan import Plan, case_of_json, load, preset_text, presets, read
from floodmark.harness.campaign.state import ABOUT, FORMAT, NEEDED, about_of, alone, writable_state
from floodmark.harness.commands.broker_questions import refuse_configs
from floodmark.harness.commands.campaign_processes import JUDGE, PLAYER, Worker, plan_of_case
from floodmark.harness.commands.campaign_run import CampaignRunner
from floodmark.harness.commands.error_exits import complain
from floodmark.harness.commands.run import own_commit
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.event_loop import run_loop
from floodmark.harness.pipeline import new_parent, write_file
from floodmark.harness.protocols import Cluster
from floodmark.harness.report import night
from floodmark.harness.report.phrases import command_line, number_of, time_text
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.terminal import Screen
from floodmark.harness.run import RUNS, new_folder, write_json
from floodmark.harness.run_location import sync
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_VALID, worst

LEDGER = "ledger.json"
NEVER = RUNS / "never"  # of a run that is only planned


# -- run and resume -----------------------------------------------------------------------------------------

def run_campaign(
    *, plan_file: Path | None, preset: str | None, kafka: str | None, budget_s: float | None,
    out: Path | None, seed: int | None, runs: int | None, ledger: Path | None, keep: bool, **reports: Any,
) -> int:
    """Runs a new campaign; the last line of stdout is its folder. ledger: None: beside that folder."""
    plan = plan_of(plan_file, preset, kafka)
    budget_s = budget_of(budget_s, plan)
    refuse_impossible_cases(plan)
    folder = new_parent(out, "campaign")
    catalog.can_judge()
    ledger_path = (ledger or folder.parent / LEDGER).absolute()
    about = {
        "format": FORMAT,
        "id": secrets.token_hex(6),
        "began": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "version": __version__,
        "commit": own_commit(),
        "seed": secrets.randbelow(2**31) if seed is None else seed,
        "budget_s": budget_s,
        "runs": runs,
        "keep": keep,
        "ledger": str(ledger_path),
        "bank": bank_of(ledgers.load(ledger_path), plan),
        "plan": plan.text,
    }
    with new_folder(folder) as begun:
        write_json(begun / ABOUT, about, durable=True)  # without it a campaign cannot be resumed
    sync(folder.parent)
    click.echo(f"{number_of(len(plan.cases), 'case')}, {time_text(budget_s)}, seed {about['seed']}; folder "
               f"{escape_controls(str(folder))}", err=True)
    return resume_campaign(folder, **reports)


def resume_campaign(folder: Path, *, ledger: Path | None = None, junit_file: Path | None = None,
                    markdown_file: Path | None = None, **bounds: float | None) -> int:
    """Runs a campaign's next session, and writes its reports however that ends. bounds: budget_s, runs."""
    if ledger is not None:
        ledgers.load(ledger)
    more = {**bounds, "ledger": None if ledger is None else str(ledger.absolute())}
    about = {**about_of(folder), **{name: new for name, new in more.items() if new is not None},
             "format": FORMAT}
    if lacking := NEEDED - about.keys():
        raise FloodmarkError(f"{folder / ABOUT} lacks {', '.join(sorted(lacking))}: it cannot be resumed")
    plan = read(str(about["plan"]), f"the plan in {folder.resolve() / ABOUT}")
    failure: Exception | None = None
    with alone(folder):
        try:
            run_session(folder.resolve(), plan, about)
        except Exception as error:
            failure = error
        trouble = "" if failure is None else str(failure) or repr(failure)
        results = results_so_far(folder, about, trouble)
        unwritten = [
            *write_file(junit_file, lambda: night.night_junit(results, datetime.datetime.now())),
            *write_file(markdown_file, lambda: night.night_markdown(results))]
        click.echo(night.summary(results), nl=False)
        index = night.index_beside(folder, about, trouble)
    if failure is not None:
        raise failure
    if index is not None:
        click.echo(escape_controls(f"  page       {index}"))
    click.echo(escape_controls(str(folder)))
    if results.ended_early:
        complain(str(results.why_ended), EXIT_HARNESS)
    return worst([results.exit_code, *unwritten])


def results_so_far(folder: Path, about: Mapping[str, Any], trouble: str) -> night.Results:
    """The campaign's results; after an error as far as its files can be read."""
    try:
        ledger = ledgers.load(Path(about["ledger"]))
    except FloodmarkError as error:
        ledger, trouble = Ledger(), trouble or str(error)
    try:
        return night.results_in(folder, ledger, about, trouble)
    except FloodmarkError as error:
        return night.Results(runs=(), spent_s=0.0, trouble=trouble or str(error), folder=str(folder))


def run_session(folder: Path, plan: Plan, about: Mapping[str, Any]) -> None:
    """Runs one session to its end. Ctrl-C and SIGTERM end it at once; only unfinished runs are lost."""
    resume = command_line("campaign", "resume", folder)
    try:
        state = writable_state(folder, time.time)
        if about != about_of(folder):
            write_json(folder / ABOUT, about, durable=True)
        with Screen(total=float(about["budget_s"])) as screen:
            runner = CampaignRunner(
                folder=folder, plan=plan, about=about, state=state, screen=screen,
                look=lambda: night.index_beside(folder, about), player=Worker(PLAYER, folder / "players.log"),
                judge=Worker(JUDGE, folder / "judge.log"))
            run_loop(runner.run(), (signal.SIGTERM, signal.SIGINT))
    except asyncio.CancelledError as error:
        raise FloodmarkError(f"interrupted; to continue: {resume}") from error
    except (FloodmarkError, OSError) as error:
        sentence = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        advice = "" if resume in sentence else f"; when that is fixed, continue with: {resume}"
        raise FloodmarkError(f"{sentence}{advice}") from error


def plan_of(plan_file: Path | None, preset: str | None, kafka: str | None) -> Plan:
    if (plan_file is None) == (preset is None):
        raise UsageError(f"name a plan, or --preset {'|'.join(presets())}")
    if plan_file is None:
        return read(preset_text(str(preset), kafka), f"the preset {preset}")
    if kafka is not None:
        raise UsageError("--kafka goes with --preset: a plan of your own says what it tests, by [[system]] "
                         f"and kafka = {kafka!r}")
    return load(plan_file)


def budget_of(given_s: float | None, plan: Plan) -> float:
    """The campaign's time. UsageError if not even the shortest run fits."""
    budget_s = plan.budget_s if given_s is None else given_s
    if budget_s is None:
        raise UsageError("the campaign's time is missing: give --for 20min, or `for = \"20min\"` in the plan")
    least_s = min(one.case.duration for one in plan.cases)
    if budget_s < least_s:
        raise UsageError(f"{time_text(budget_s)} has no room for one run of {time_text(least_s)}: give the "
                         "campaign more time (--for), or its runs less (`duration`)")
    return budget_s


def refuse_impossible_cases(plan: Plan) -> None:
    """Raises UsageError for a case with an unknown nemesis or scenario, or a config that no broker takes."""
    clusters: list[tuple[str, Cluster]] = []
    for one in plan.cases:
        words = f"the plan's case {one.case.title!r} cannot be run"
        try:
            plan_of_run, _ = plan_of_case(one.case, 1, NEVER, ask_broker=False)
            clusters.append((words, plan_of_run.cluster))
        except UsageError as error:
            raise UsageError(f"{words}: {error}") from error
    refuse_configs(clusters)


def bank_of(ledger: Ledger, plan: Plan) -> list[dict[str, Any]]:
    """Case and seed of the smallest run of each bug in the ledger, for the plan's systems: they run first,
    the latest before the others. What another floodmark has run may be impossible here: a remark says so."""
    systems = {one.case.system for one in plan.cases}
    bugs = [(ledger.nights_with(entry)[-1:], entry) for entry in ledger.entries.values()
            if entry.signature.klass == BUG]
    bugs.sort(key=lambda bug: [ledger.nights[night].began_at for night in bug[0]], reverse=True)
    bank: list[dict[str, Any]] = []
    for run, id_ in ((entry.smallest, entry.id) for _, entry in bugs):
        if run is None or len(bank) == plan.bank:
            continue
        try:
            case = case_of_json(run.case)
            if case.system in systems:
                plan_of_case(case, run.seed, NEVER, ask_broker=False)
                bank.append({"case": dict(run.case), "seed": run.seed})
        except (KeyError, TypeError, ValueError, UsageError) as error:
            click.echo(escape_controls(f"the ledger's run of {id_} cannot be made here: {error!r}"), err=True)
    return bank


# -- diff, mark ---------------------------------------------------------------------------------------

def diff_campaigns(before: Path, after: Path, ledger: Path | None) -> int:
    """Prints what differs; exit 1 if the second campaign has a bug that is new and not marked as known."""
    then, now = (night.results_in(folder, Ledger(), about_of(folder)) for folder in (before, after))
    marks = ledgers.load(ledger or ledgers.path_of(about_of(after), after))
    found = night.changes(then, now)
    click.echo(escape_controls(night.difference(then, now, found, marks), breaks=True))
    return EXIT_INVALID if any(
        one.is_new_bug and not marks.knows(one.signature) for one in found) else EXIT_VALID


def mark(signature: str, *, ledger: Path, known: str | None, unknown: bool, note: str | None) -> int:
    if not (known or unknown or note) or "" in (known, note):
        raise UsageError("give --known REASON, --not-known or --note TEXT")
    if known and unknown:
        raise UsageError("--known and --not-known exclude each other: leave one out")
    today = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    with ledgers.locked(ledger):
        marks = ledgers.load(ledger)
        entry = marks.named(signature)
        if known or unknown:
            marks = marks.changed(entry.id, known={"reason": known, "since": today} if known else None)
        if note:
            marks = marks.changed(entry.id, notes=(*entry.notes, note))
        ledgers.save(ledger, marks)
    click.echo(escape_controls(f"{entry.id}: {entry.signature.sentence}: "
                        + (f"known: {known}" if known else "not known" if unknown else f"noted: {note}")))
    return EXIT_VALID

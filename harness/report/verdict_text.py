"""Formats verdicts: what `check`, `run`, `demo` and `show` print, what CI servers read, and what
changed from one verdict of a run to another. A report says what happened, which event is to blame, what is
unknown, and the next commands; it is made from the folder alone, so that the report of an old run is like
that of a new one. A group of findings gets a paragraph about its worst example, made from the few lines of
the run's files that are about it (narrative.py).

Rules
1. A report and the exit code agree: both come from the ruling (run_summary.py), not from the verdict alone.
2. In JUnit a `failure` is a bug, or unknown, because the job fails then and the report must say why; an
   `error` is a failure of the harness; `skipped` is unknown that --allow-unknown let through.
3. A test case is named after what was tested, the same every time (run_summary.py): a CI server tracks a test
   by its name. The folder and the seed are properties.
4. Text that was cut for its length says so.
"""

import datetime
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import orjson

from floodmark.checkers.judge.report import as_json
from floodmark.checkers.laws import finding_names as checks
from floodmark.checkers.text.blame_words import blame_in
from floodmark.harness import __version__, catalog
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.registered import CLUSTER, WORKLOAD
from floodmark.harness.report import narrative, run_summary
from floodmark.harness.report.evidence import Evidence, group_findings
from floodmark.harness.report.model import Account, Json, Part, Reading, examples_of, int_in, mapping, text_of
from floodmark.harness.report.narrative import WIDE, heads_covered_by, narrate_finding
from floodmark.harness.report.phrases import (
    class_text,
    command_line,
    cut_text,
    group_text,
    number_of,
    with_heads,
)
from floodmark.harness.report.render import Room, cut, render
from floodmark.harness.report.run_files import LEFT_OF_SHRUNK, RunFiles, bad_lines, died_unquoted
from floodmark.harness.report.safe_text import escape_controls, escaped_data
from floodmark.harness.run import SHRUNK, Run, RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.saved_run import SavedRun, read_saved, read_schedule
from floodmark.harness.schedule.moments import Schedule
from floodmark.harness.spec import OPTIONS
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_VALID, Policy, Verdict

GRAVEST = (  # what clients saw, then the state of the logs, then the causes, then what could have followed
    checks.LOST_WRITE, checks.DIVERGED, checks.SAW_THEN_LOST, checks.INCONSISTENT_OFFSETS, checks.G1A,
    checks.PHANTOM, checks.DUPLICATE, checks.UNSEEN, checks.BROKER_DIED, checks.STUCK,
    "",  # all others: orders that clients saw
    checks.EPOCH_LINEAGE, checks.MALFORMED_LOG, checks.UNDER_REPLICATED, checks.UNSAFE_TRUNCATION,
    checks.UNCLEAN_ELECTION, checks.LEADER_INCOMPLETE, checks.RECOVERY_LOSS, checks.ACK_RULE,
    checks.UNSAFE_ISR, checks.READ_ABOVE_HW, checks.END_OFFSET_AHEAD, checks.TWO_LEADERS,
    checks.HW_REGRESSED, checks.EPOCH_REGRESSED, checks.CANDIDATE_INCOMPLETE,
)  # fmt: skip
SAME_EVENT = "the same, as other checks saw it"
NAMES_SHOWN = 8  # of more names than these the rest is a number


def reading_of(folder: Place, verdict: Json, about: Json | None) -> Reading:
    """Reads what a report needs; without run.json, or if the files are remote, the verdict's sentences."""
    findings = worst_first(verdict.get("findings") or ())
    bare = Reading(folder=folder, verdict=verdict, about=about, findings=findings,
                   accounts=[Account(found=found) for found in findings])
    if about is None or not isinstance(folder, Path):
        return bare
    files, before = RunFiles(RunAt(folder=folder)), list[Evidence]()
    accounts = group_findings((found, evidence_of(files, verdict, about, found)) for found in findings)
    for at, account in enumerate(accounts):
        if account.evidence is not None:
            accounts[at] = replace(account, parts=narrate_finding(account.evidence, before))
            before.append(account.evidence)
    lines = list[Part]()
    if accounts and (worst := accounts[0].evidence) is not None:
        lines = narrative.summary(worst)
        accounts[0] = replace(accounts[0], covered_above=heads_covered_by(lines, worst))
    return replace(bare, accounts=accounts, summary=lines,
                   strikes=run_summary.strikes_of(files.nemesis, about), files=files)


def evidence_of(files: RunFiles, verdict: Json, about: Json, found: Json) -> list[Evidence]:
    """The evidence of each example of a group of findings."""
    return [Evidence(files=files, about=about, unknown=verdict.get("unknown") or (), found=found,
                     example=example) for example in examples_of(found)]


def report(reading: Reading, ruled: run_summary.Ruling | None = None) -> str:
    """The report: the outcome, a summary, a paragraph for each event, what is unknown and why, what was read,
    and the next commands. ruled: the outcome under the gate's options."""
    about, ruled = reading.about, ruled or run_summary.ruling(reading.verdict, reading.about)
    ran = [f"  ran        {ran_text(about)}", *struck_text(reading)] if about else []
    name = escape_controls(reading.folder.resolve().name)
    return "\n".join([f"{name}: {ruled.heading}", *summarised(reading), *ran, *findings_text(reading)])


def findings_text(reading: Reading) -> Iterator[str]:
    """Yields the report from the findings on."""
    yield from map(paragraph, reading.accounts)
    yield from unknowns(reading.verdict.get("unknown") or ())
    yield from (f"  not made   {checks_left}" for checks_left in left_undone(reading.verdict))
    yield f"  looked at  {looked_at(reading.verdict.get('counts') or {})}"
    yield from (f"  {head:<9}  {command}" for head, command in next_commands(reading))


def summarised(reading: Reading) -> list[str]:
    """The summary's lines, each after its head."""
    return [f"  {click.style(f'{head:<9}', bold=True)}  {line}" for head, line in reading.summary]


def ran_text(about: Json) -> str:
    """What was run, with the settings that decide what is guaranteed."""
    named = ("workload",) if run_summary.is_kafka(about) else ("rules", "workload")
    parts = [run_summary.system_text(about),
             *(f"{name} {about.get(name, '?')}" for name in named if about.get(name, "?")),
             *run_summary.guarantee_texts(about)]
    return ", ".join([*parts, f"seed {about.get('seed', '?')}"])


def struck_text(reading: Reading) -> list[str]:
    """The faults that struck, in one line; empty if none was planned."""
    strikes = run_summary.strikes_text(reading.strikes)
    return [f"  struck by  {strikes}"] if strikes else []


# -- findings -----------------------------------------------------------------------------------------------

def paragraph(account: Account) -> str:
    """The text of an event: the paragraph about the worst example, a sentence for each of the next few, the
    number of the others, and a line for each other group of the event."""
    found, followers = account.found, account.followers
    name = click.style(account.name, bold=True)
    lines = [f"  {name}: {group_text(found)}", *with_heads(account.shown)]
    lines += with_heads([("also", other) for other in account.others]) if account.parts else [
        f"    {other}" for other in account.others]
    lines += [f"    ... and {account.left_out} more"] if account.left_out else []
    lines += [f"    {SAME_EVENT}:"] if followers else []
    width = max((len(one.head) for one in followers), default=0)
    for one in followers:
        line, room = one.clause + (f" ({one.places})" if one.places else ""), WIDE - 6 - width - 2
        line = line if len(line) <= room else cut_text(one.clause, room)
        lines.append(f"      {one.head:<{width}}  {line}")
    return "\n".join(lines)


def unknowns(entries: Sequence[Json]) -> Iterator[str]:
    """What the judge may have missed; reasons for the same checks are put together."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        reasons.setdefault(tuple(entry["names"]), []).append(entry["reason"])
    for names, why in reasons.items():
        yield "\n".join([f"  {click.style('cannot tell', fg='yellow')}: {shortened(names)}",
                         *(f"    {reason}" for reason in why)])


def left_undone(verdict: Json) -> list[str]:
    """The checks that were not made, each with its reason, on one line; empty if all were made."""
    reasons = [f"{shortened(entry['names'])}: {entry['reason']}" for entry in verdict.get("not_made") or ()]
    return ["; ".join(reasons)] if reasons else []


def shortened(names: Sequence[str]) -> str:
    """The names of checks; `everything` for all of them."""
    if set(names) >= set(checks.MADE):
        return "everything"
    if len(names) <= NAMES_SHOWN:
        return ", ".join(names)
    if set(names) >= set(checks.unknown_if(checks.If.BREACHED)):
        return "all checks of the history (verdict.json names them)"
    return f"{', '.join(names[:NAMES_SHOWN])} and {len(names) - NAMES_SHOWN} more (verdict.json has all)"


def looked_at(counts: Json, *, grouped: bool = False) -> str:
    """The verdict's counts on one line. grouped: write numbers as `1,234`."""
    if not counts:
        return "nothing"
    records = ", ".join(f"{node} {number:,}" if grouped and type(number) is int else f"{node} {number}"
                        for node, number in mapping(counts, "records").items())
    of = {name: int_in(counts, name) or 0 for name in ("ops", "ok", "fail", "info", "acked", "torn")}
    shown = {name: f"{number:,}" if grouped else str(number) for name, number in of.items()}
    lines, acked, torn = (f"{shown[name]} {noun}{'' if of[name] == 1 else 's'}" for name, noun in (
        ("ops", "line"), ("acked", "acked record"), ("torn", "incomplete line")))
    return (f"{lines} of history ({shown['ok']} ok, {shown['fail']} fail, {shown['info']} info), {acked}"
            f"{f', {torn} ignored' if of['torn'] else ''}; "
            f"{f'records in the final logs: {records}' if records else 'no final logs were collected'}")


# -- the next commands --------------------------------------------------------------------------------------

def next_commands(reading: Reading) -> list[tuple[str, str]]:
    """The commands to type next, each with its head: show, explain, reproduce; empty if there is nothing to
    look into."""
    folder, about, findings = reading.folder, reading.about, reading.findings
    if about is None or not isinstance(folder, Path) or (
            not findings and reading.verdict.get("valid") is True):
        return []  # a remote run must be copied here before it can be shown or reproduced
    if not findings:
        return [("look", escape_controls(command_line("show", folder)))]
    name = str(findings[0]["name"])
    once_more = reproduce_command(folder, about) if findings[0]["class"] == BUG else None
    return [("look", escape_controls(command_line("show", folder, "--finding", name))),
            ("why", f"floodmark explain {name}"),
            *([("again", escape_controls(once_more))] if once_more else [])]


def worst_first(findings: Sequence[Json]) -> list[Json]:
    """The findings in order: bugs before permitted ones, the gravest first, else by name."""
    return sorted(findings, key=lambda found: (
        found["class"] != BUG, GRAVEST.index(found["name"] if found["name"] in GRAVEST else ""),
        found["name"]))


def changes(before: Json | None, now: Json) -> Iterator[str]:
    """Yields a line for each difference between two verdicts."""
    then: Json = before if before is not None else {"findings": [], "unknown": []}
    for name in sorted({found["name"] for verdict in (then, now) for found in verdict["findings"]}):
        was, has = ({(found["class"], found["permitted_by"]): found for found in verdict["findings"]
                     if found["name"] == name} for verdict in (then, now))
        for group in sorted(was.keys() & has.keys(), key=str):
            if was[group]["count"] != has[group]["count"]:
                yield (f"  count      {name}, {class_text(has[group])}: was {was[group]['count']}, "
                       f"is {has[group]['count']}")
        gone = [was[group] for group in sorted(was.keys() - has.keys(), key=str)]
        new = [has[group] for group in sorted(has.keys() - was.keys(), key=str)]
        if len(gone) == len(new) == 1:
            yield (f"  class      {name}: was {class_text(gone[0])} ({gone[0]['count']}), is "
                   f"{class_text(new[0])} ({new[0]['count']})")
            continue
        yield from (f"  gone       {name}: {group_text(found)}" for found in gone)
        for found in new:
            yield f"  new        {name}: {group_text(found)}"
            yield from (f"               {example['text']}" for example in found.get("examples", ())[:1]
                        if example.get("text"))
    unknown = [{(entry["reason"], name) for entry in verdict.get("unknown") or () for name in entry["names"]}
               for verdict in (then, now)]
    for reason in sorted({reason for reason, _ in unknown[0] ^ unknown[1]}):
        lifted, added = (sorted(name for of, name in some if of == reason)
                         for some in (unknown[0] - unknown[1], unknown[1] - unknown[0]))
        if added:
            yield f"  unknown    {shortened(added)}: {reason}"
        if lifted:
            yield f"  known now  {shortened(lifted)}: no longer for: {reason}"


def reproduce_command(folder: Path, about: Mapping[str, Any], finding: str | None = None) -> str | None:
    """The command `floodmark reproduce ...`; None if the folder lacks what it needs."""
    run = Run(folder=folder)
    try:
        read_reproducible(about, str(folder))
    except FloodmarkError:
        return None  # a damaged run.json, or one of another version
    words = ("reproduce", folder, *(["--finding", finding] if finding else []))
    return command_line(*words) if run.has(run.history_path) else None


def read_reproducible(about: Mapping[str, Any], source: str) -> tuple[SavedRun, Schedule]:
    """What the run was, and its schedule. FloodmarkError if this floodmark cannot make it again."""
    saved = read_saved(about, source)
    for kind in ("rules", CLUSTER, WORKLOAD, "links", "acks"):
        name, names = getattr(saved.spec, kind), OPTIONS[kind].choices or catalog.names(kind)
        if name not in names:
            raise FloodmarkError(f"{source} cannot be reproduced: this floodmark has no {kind} {name!r}; "
                                 f"there are: {', '.join(names)}")
    usual = saved.spec.node_names
    if saved.nodes != usual:
        raise FloodmarkError(f"{source} cannot be reproduced: its nodes are {', '.join(saved.nodes)}, but "
                             f"a cluster of this size has {', '.join(usual)}")
    if not saved.spec.assignment:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json names no partition")
    return saved, read_schedule(about["schedule"], saved, source)


# -- a folder at the gate -----------------------------------------------------------------------------------

UNSAVED = ("its verdict could not be written",)
LIMIT = 1_000_000  # bytes of a Markdown page
REPORT_CHARS = 20_000  # of a test case
TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one folder at the gate."""

    reading: Reading
    ruling: run_summary.Ruling
    tested: str = run_summary.UNREADABLE  # the name of what it tested, whether or not anything was judged
    failing: tuple[Json, ...] = ()  # the findings that fail the gate, the worst first
    remarks: tuple[tuple[str, str], ...] = ()  # further lines of a report: a head and a text each

    @property
    def code(self) -> int:
        return self.ruling.code

    @property
    def unknown(self) -> tuple[Json, ...]:
        """The verdict's `unknown`: what the judge may have missed."""
        return tuple(self.reading.verdict.get("unknown") or ())

    @property
    def report(self) -> str:
        """The report as `check` prints it, in colour."""
        remarks = [*(("harness", reason) for reason in self.ruling.harness), *self.remarks]
        lines = [f"  {head:<9}  {text}" for head, text in remarks]
        return "\n".join([report(self.reading, self.ruling), *lines])

    @property
    def why(self) -> str:
        """Why the folder fails or is unknown; empty if it is valid."""
        if self.ruling.kind == run_summary.INVALID and self.failing:
            worst, *others = self.failing  # its sentence comes first: a list of tests shows no more
            examples = worst.get("examples") or ()
            sentence = f"{text_of(examples[0])} {blame_in(examples[0])}".rstrip() if examples else ""
            besides = ", ".join(f"{found['name']} {found['count']}" for found in others)
            return f"{group_summary(worst)}. {sentence}" + (f" Besides: {besides}." if others else "")
        reasons = list(self.ruling.harness)
        if self.unknown:
            first, *others = self.unknown
            more = f" (and {number_of(len(others), 'more reason')})" if others else ""
            reasons.append(f"cannot tell {shortened(first['names'])}: {first['reason']}{more}")
        return "; ".join(reasons)

    @property
    def element(self) -> str | None:
        """Its element in JUnit; None for a case that passed."""
        if self.code == EXIT_VALID:
            return "skipped" if self.unknown else None
        return "error" if self.code == EXIT_HARNESS else "failure"

    @property
    def type(self) -> str:
        """What CI servers group by: the worst finding, else `harness`, `interrupted` or `unknown`."""
        if self.ruling.kind == run_summary.INVALID and self.failing:
            return str(self.failing[0]["name"])
        kind = self.ruling.kind
        return "unknown" if self.code != EXIT_HARNESS else "harness" if kind == run_summary.HARNESS else kind

    @property
    def commands(self) -> list[str]:
        """The commands to show, explain and reproduce; if there is nothing to show, to judge again."""
        typed = next_commands(self.reading)
        otherwise = command_line("check" if self.reading.about is None else "show", self.reading.folder)
        return [command for _, command in typed] or [otherwise]


def outcome_of(folder: Place, verdict: Verdict, policy: Policy, unsaved: str | None = None) -> Outcome:
    """A folder's result at the gate. unsaved: why its verdict could not be written."""
    run: RunAt[Place] = RunAt(folder=folder)
    about, shown = about_of(folder, verdict), escaped_data(as_json(verdict))
    reading = reading_of(folder, shown, about)
    remarks = [("shrunk", LEFT_OF_SHRUNK)] if (about or {}).get(SHRUNK) is True else []
    remarks += [("bad line", line) for line in bad_lines(run, shown)]
    remarks += [("died", sentence) for sentence in died_unquoted(run, about or {}, shown)]
    remarks += [("gate", line) for line in effects_of_options(verdict, policy)]
    return Outcome(
        reading=reading, remarks=tuple(remarks),
        ruling=run_summary.ruling(shown, about, policy, failed=UNSAVED if unsaved else ()),
        tested=run_summary.case_name(about or read_about(folder)),
        failing=tuple(found for found in reading.findings if run_summary.fails(found, policy)))


def about_of(folder: Place, verdict: Verdict) -> Json | None:
    """run.json of a judged folder; None if it is missing now, or LISTS are no lists."""
    about = read_about(folder) if verdict.counts else None
    return about if about and run_summary.has_lists(about) else None


def read_about(folder: Place) -> Json | None:
    """run.json; None if it cannot be read."""
    try:
        return escaped_data(RunAt(folder=folder).about())
    except (FloodmarkError, OSError):
        return None


def effects_of_options(verdict: Verdict, policy: Policy) -> list[str]:
    """Sentences about how the options change the verdict's result; empty if they do not."""
    allowed = sorted({found.name for found in verdict.findings if policy.strict or found.klass == BUG}
                     & policy.allow)
    permitted = sorted({found.name for found in verdict.findings if found.klass != BUG} - policy.allow)
    effects = [f"--strict: {', '.join(permitted)} counted as bugs"] if policy.strict and permitted else []
    effects += [f"--allow: {', '.join(allowed)} let through"] if allowed else []
    effects += ["--allow-unknown: unknown let through"] if policy.allow_unknown and verdict.unknown else []
    return effects


def group_summary(found: Json) -> str:
    """`lost-write: 3 findings, a bug`."""
    return f"{found['name']}: {click.unstyle(group_text(found))}"


def print_reports(outcomes: Sequence[Outcome], pages: Sequence[Path | None]) -> None:
    """Prints the reports, of several with a summary first; each ends with its page, if any, and folder."""
    if len(outcomes) > 1:
        click.echo(run_summary.summary(outcome.ruling for outcome in outcomes) + "\n")
    for outcome, page in zip(outcomes, pages, strict=True):
        if outcome is not outcomes[0]:
            click.echo("")
        click.echo(outcome.report)
        if page is not None:
            click.echo(escape_controls(f"  page       {page}"))
        click.echo(escape_controls(str(outcome.reading.folder)))


# -- for CI servers -----------------------------------------------------------------------------------------

def markdown(outcomes: Sequence[Outcome], limit: int = LIMIT) -> bytes:
    """The content of `--markdown FILE`: the worst runs first."""
    ordered = sorted(outcomes, key=lambda outcome: [*run_summary.EXITS].index(outcome.ruling.kind))
    not_made = Counter(line for one in ordered for line in left_undone(one.reading.verdict))
    return render("run.md", heading=run_summary.summary(one.ruling for one in outcomes), outcomes=ordered,
                  failing=[one for one in ordered if one.code != EXIT_VALID], not_made=[*not_made.items()],
                  room=Room(limit), group_summary=group_summary, ran_text=ran_text, struck_text=struck_text,
                  shortened=shortened, left_undone=left_undone, SAME_EVENT=SAME_EVENT).encode()


def junit(outcomes: Sequence[Outcome], now: datetime.datetime) -> bytes:
    """The content of `--junit FILE`."""
    names = run_summary.numbered(one.tested for one in outcomes)
    cases = [{"name": name, "run": one, "took_s": seconds_of(one.reading.folder),
              "lines": cut(click.unstyle(one.report), REPORT_CHARS).split("\n")}
             for name, one in zip(names, outcomes, strict=True)]
    return render("run.xml", cases=cases, version=__version__, now=now.isoformat(timespec="seconds")).encode()


def seconds_of(folder: Place) -> float | None:
    """The run's length by the last complete line of its history; None if there is no such line. The lines are
    read from the end: they can be long, histories longer."""
    run, tail, lines = RunAt(folder=folder), TAIL_BYTES, list[bytes]()
    try:
        with run.open(run.history_path) as file:
            size = file.seek(0, io.SEEK_END)
            while not lines and tail < 8 * max(size, TAIL_BYTES):
                file.seek(max(0, size - tail))
                begun = file.read().split(b"\n")[tail < size:-1]  # the first may lack its beginning
                lines = [line for line in begun if line.strip()]
                tail *= 8
        time_ns = orjson.loads(lines[-1])["time"]
    except (OSError, orjson.JSONDecodeError, IndexError, KeyError, TypeError):
        return None
    return time_ns / 1e9 if type(time_ns) is int and time_ns >= 0 else None

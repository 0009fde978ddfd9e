"""Lists, shows and plays scenarios of known faults: `floodmark scenario list | show | run`.
Every row is a run, several at once, repeated if it failed or missed a moment; it says what must be found, and
a table shows what was found. `floodmark demo` plays some of them: historical faults of Kafka, on the rules
that had them and on those that fixed them, and shows what was lost and where the logs diverge. The README has
the demo's table; a test compares the two.
"""

import statistics
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.checkers.laws.finding_names import DIVERGED, LOST_WRITE
from floodmark.harness import catalog
from floodmark.harness.cluster.kafka.distribution import is_image, is_version, mode_of, version_of
from floodmark.harness.commands.broker_questions import refuse_configs, scenario_words
from floodmark.harness.commands.run import planned
from floodmark.harness.errors import FloodmarkError, UnfitCluster, UsageError, nearest
from floodmark.harness.pipeline import TRIES, Play, Played, judge_all, new_parent, play_all, say, tidy
from floodmark.harness.protocols import Cluster
from floodmark.harness.report import verdict_text
from floodmark.harness.report.phrases import command_line, number_of
from floodmark.harness.report.run_summary import ROW, SCENARIO, ruling
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.report.terminal import Screen, table
from floodmark.harness.run import Run, write_json
from floodmark.harness.spec import TOPIC, RunPlan, RunSpec, key_values, pairs
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_VALID, Verdict, worst
from floodmark.nemesis import scenario
from floodmark.nemesis.scenario import Row, Scenario

TABLE = "scenarios.json"  # in the parent folder: the table, for programs
WIDTH = 120  # of the demo's stories and notes
HEADINGS = ("scenario", "rules", "verdict", "acked writes lost", "logs diverge")
MARK = "*"  # after rules with an injected bug
WHY_A_BUG: Mapping[str, str] = {
    "no_epoch_bump_on_bounce":
        "both runs have the known bug no_epoch_bump_on_bounce in their rules: the controller does not "
        "notice a broker that dies and is back at once, as in KAFKA-1120. With two replicas this loss "
        "needs both faults: if the controller notices the bounce, n2 has left the ISR and is not "
        "elected, and nothing acked is lost.",
}
# The demo. On Apache Kafka: the old topic loses data, while the new one in the same cluster does not.
SHOWN_ON_KAFKA = ("double-failover-expired", "power-divergence-two-topics")
# The scenario, its row that loses data and the one that does not.
SHOWN = (
    ("double-failover", "high-watermark", "kip-320"),
    ("power-divergence", "high-watermark", "kip-320"),
    ("restart-cuts-follower", "high-watermark no_epoch_bump_on_bounce", "kip-320 no_epoch_bump_on_bounce"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of one scenario, to be played."""

    scenario: Scenario
    row: Row
    kafka: str | None = None  # Apache Kafka, a version or a folder; None: the reference broker
    turn: int = 1  # of the --times plays of this row

    @property
    def title(self) -> str:
        on = "" if self.kafka is None else f"Kafka {self.kafka}, "
        turn = f", time {self.turn}" if self.turn > 1 else ""
        return f"{self.scenario.name} on {on}{self.row.label}{turn}"

    @property
    def folder_name(self) -> str:
        """The run folder's name, without a comma: Kafka's log.dirs is a list."""
        label = self.row.label.replace(" ", "+").replace(",", "+")
        return f"{self.scenario.name}-{label}{f'-time-{self.turn}' if self.turn > 1 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A part after playing, judging and comparing with its row."""

    part: Part
    played: Played
    verdict: Verdict | None  # None: there is no run to judge
    differences: Sequence[str]  # empty: it is as expected


# -- list and show --------------------------------------------------------------------------------------

def list_scenarios() -> int:
    click.echo(table(("name", "zoo", "rows", "plays on", "title"), (
        (one.name, one.zoo, str(len(one.rows)), ", ".join(scenario.systems_of(one)), one.title)
        for one in scenario.shipped(scenario_words()))))
    return EXIT_VALID


def show_scenario(name: str) -> int:
    """Prints the story of each scenario, its steps, and the expected findings on each of its rules."""
    for one in named(name):
        spec, unseen = one.spec, one.uncovered_sends()
        rows = [(row.label, row.expected(), ", ".join(sorted(row.also)) or "-") for row in one.rows]
        click.echo("\n".join([
            f"{escape_controls(f'{one.name} ({one.zoo}): {one.title}')}\n",
            f"{click.wrap_text(escape_controls(one.story, breaks=True), 100)}\n",
            f"{number_of(spec.nodes, 'node')}, {number_of(spec.partitions, 'partition')} of "
            f"{number_of(spec.factor, 'replica')}, workload {spec.workload}, acks {spec.acks}",
            *(f"  {escape_controls(setting)}" for setting in spec.config), "",
            *(f"  {escape_controls(line)}" for line in one.steps.strip().split("\n")), "",
            *([f"{escape_controls(unseen)}\n"] if unseen else []),
            table(("rules", "expected", "may come of it"), rows), "", escape_controls(str(one.source))]))
    return EXIT_VALID


def named(name: str) -> tuple[Scenario, ...]:
    """The scenarios with this name or zoo number (Z06 means Z06a and Z06b too), or the one in this file."""
    known = scenario_words()
    if name.endswith(".toml"):
        return (scenario.load(Path(name), known),)
    every = scenario.shipped(known)
    found = tuple(one for one in every if
                  name == one.name or name.upper() in (one.zoo.upper(), one.zoo.upper().rstrip("ABC")))
    if not found:
        there = nearest(name, [f"{one.name} ({one.zoo})" for one in every])
        raise UsageError(f"no scenario {name!r}; {there}; or a FILE.toml")
    return found


def part_of(case: RunSpec) -> Part:
    """The one scenario that a spec names, on the spec's rules. UsageError if it names several."""
    one, *others = named(str(case.scenario))
    if others:
        names = ", ".join(each.name for each in (one, *others))
        raise UsageError(f"{case.scenario} is {1 + len(others)} scenarios, and one is needed: {names}")
    row = Row(rules=case.rules, bugs=case.bugs, config=pairs(case.config))
    return Part(scenario=one, row=row, kafka=case.kafka)


# -- run ------------------------------------------------------------------------------------------------

def run_scenarios(name: str | None, *, rules: str | None, every: bool, sample: bool, cluster: str,
                  times: int, at_once: int, out: Path | None, kafka: str | None = None) -> int:
    """Plays, judges and compares the rows; exit 0: all as expected, 1: one is not, 4: one was not played."""
    if (name is None) == (not every):
        raise UsageError("name a scenario, or give --all")
    chosen = scenario.shipped(scenario_words()) if name is None else named(name)
    parts = [Part(scenario=one, row=row, kafka=kafka)
             for one in chosen for row in rows_of(one, rules, sample=sample, system=system_of(kafka))]
    if not parts:
        raise UsageError(f"no row has the rules {rules}; there are: "
                         f"{', '.join(sorted({row.rules for one in chosen for row in one.rows}))}")
    parent = new_parent(out, "scenario")
    once = parts_that_fit(parts, cluster, parent)
    parts = [replace(part, turn=turn) for turn in range(1, times + 1) for part in once]
    catalog.can_judge()
    say(f"{number_of(len(parts), 'run')}, {at_once} at a time; folders in {parent}")
    outcomes = judge_plays(parts, play(parts, cluster, parent, at_once=at_once))
    for one in outcomes:
        if one.verdict is not None and one.verdict.valid is True and not one.differences:
            tidy(one.played.folder)
    print_outcomes(outcomes)
    write_json(parent / TABLE, list(map(as_json, outcomes)))
    click.echo(str(parent))
    return worst(EXIT_HARNESS if one.verdict is None or one.played.why else
                 EXIT_INVALID if one.differences else EXIT_VALID for one in outcomes)


def parts_that_fit(parts: Sequence[Part], cluster: str, parent: Path) -> list[Part]:
    """The parts that this cluster can play; the others are printed with their reasons. UsageError if none is
    left, or if no broker would start with a row's settings."""
    fit: list[Part] = []
    clusters: list[tuple[str, Cluster]] = []
    unfit: list[str] = []
    for part in parts:
        row = f"{part.scenario.source}: on {part.row.label}"
        why_not = scenario.why_not_played(part.scenario.schedule, part.row, system_of(part.kafka))
        if why_not is not None:
            unfit.append(f"not played: {part.title}: {why_not}")
            continue
        try:
            plan = plan_of(part, cluster, parent / part.folder_name, ask_broker=False)
            plan.schedule_runner.refuse(plan.schedule)
        except UnfitCluster as error:
            unfit.append(f"not played: {part.title}: {error}")
            continue
        except UsageError as error:
            raise UsageError(f"{row}: {error}") from error
        fit.append(part)
        clusters.append((row, plan.cluster))
    refuse_configs(clusters)
    if not fit:
        raise UsageError(unfit[0])
    for line in unfit:
        click.echo(line, err=True)
    return fit


def rows_of(one: Scenario, rules: str | None, *, sample: bool, system: str | None = None) -> list[Row]:
    """The rows on these rules; for a sample one with findings and one without, which the system can play."""
    found = [row for row in one.rows if rules in (None, row.rules)]
    if not sample:
        return found
    if system is not None:
        found = [row for row in found if scenario.why_not_played(one.schedule, row, system) is None] or found
    return [*[row for row in found if not row.control][:1], *[row for row in found if row.control][:1]]


def plan_of(part: Part, cluster: str, folder: Path, *, ask_broker: bool = True) -> RunPlan:
    """A part's run: the scenario's, on the rules of the row."""
    spec, row = part.scenario.spec, part.row
    config = {**pairs(spec.config), **scenario.config_on(row.config, system_of(part.kafka))}
    if row.switches:
        config["floodmark.switches"] = ",".join(row.switches)
    return planned(replace(
        spec, cluster=cluster, kafka=part.kafka, rules=row.rules, bugs=row.bugs, config=key_values(config),
        topics={f"{TOPIC}-{key}": keys for key, keys in enumerate(row.topics) if keys},
        asked={SCENARIO: part.scenario.name, ROW: row.label}, out=folder),
        part.scenario.schedule, ask_broker=ask_broker)


def plays_of(parts: Sequence[Part], cluster: str, parent: Path) -> list[Play]:
    return [Play(title=part.title, folder=parent / part.folder_name, scenario=part.scenario, tries=TRIES,
                 plan=partial(plan_of, part, cluster)) for part in parts]


def play(parts: Sequence[Part], cluster: str, parent: Path, *, at_once: int) -> list[Played]:
    """Plays all parts, `at_once` at a time; the results are in the given order."""
    with Screen(total=len(parts)) as screen:
        plays = play_all(plays_of(parts, cluster, parent), at_once=at_once, screen=screen)
    if any(played.interrupted for played in plays):
        raise FloodmarkError("interrupted: the scenarios were not played to the end")
    return plays


def system_of(kafka: str | None) -> str:
    """The system's name for --kafka. A folder's version is only known when it is opened."""
    if kafka is None:
        return scenario.REFERENCE
    word = version_of(kafka) if is_image(kafka) else kafka
    return scenario.KRAFT if is_version(word) and mode_of(word) == "kraft" else scenario.ZOOKEEPER


def judge_plays(parts: Sequence[Part], plays: Sequence[Played], what: str = "") -> list[Outcome]:
    """Judges all recorded runs in one call, and compares them with their rows."""
    recorded = [played.folder for played in plays if played.recorded]
    verdicts = {one.folder: one.verdict for one in judge_all(recorded, what=what)}
    outcomes = []
    for part, played in zip(parts, plays, strict=True):
        verdict = verdicts.get(played.folder)
        wrong = [played.why] if played.why else []
        if verdict is not None and not wrong:  # a failed run proves nothing about its row
            wrong = scenario.differences(part.row, verdict, traced=part.kafka is None)
        outcomes.append(Outcome(part=part, played=played, verdict=verdict, differences=wrong))
    return outcomes


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Prints a line for each row (if its plays differ, how often each was found, its median seconds, and how
    many of its plays ended as expected), and the full report of each run that is not as expected."""
    rows, by_row = [], dict[tuple[str, str], list[Outcome]]()
    for outcome in outcomes:
        by_row.setdefault((outcome.part.scenario.name, outcome.part.row.label), []).append(outcome)
    for plays in by_row.values():
        part, right = plays[0].part, sum(not one.differences for one in plays)
        counts = Counter(found(one.verdict) for one in plays).most_common()
        rows.append((
            part.scenario.name, part.scenario.zoo, part.row.label, part.row.expected(),
            " | ".join(f"{count}x {what}" for what, count in counts) if len(counts) > 1 else counts[0][0],
            f"{statistics.median(one.played.seconds for one in plays):.1f}",
            f"{right} of {len(plays)} as expected" if len(plays) > 1 else
            "as expected" if right else "NOT as expected"))
    click.echo(table(("scenario", "zoo", "rules", "expected", "found", "seconds", ""), rows,
                     {"as expected": "green", "NOT as expected": "red"}))
    for outcome in outcomes:
        print_if_unexpected(outcome)
    again = sum(one.played.tries > 1 for one in outcomes)
    what = "row" if all(one.part.turn == 1 for one in outcomes) else "play"
    expected = sum(not one.differences for one in outcomes)
    click.echo(f"\n{number_of(len(outcomes), what)}, {expected} as expected"
               + (f", {again} of them after a repetition" if again else ""))
    invalid = ((one, one.verdict) for one in outcomes if one.verdict and one.verdict.valid is False)
    for outcome, verdict in islice(invalid, 1):
        worst_found = verdict_text.worst_first(report.as_json(verdict)["findings"])[0]["name"]
        click.echo(f"next  {look_at(outcome, worst_found)}")


def found(verdict: Verdict | None) -> str:
    if verdict is None:
        return "no run"
    bugs, permitted = (", ".join(sorted({one.name for one in verdict.findings if (
        one.permitted_by is None) == is_bug})) for is_bug in (True, False))
    parts = [*filter(None, [bugs, permitted and f"permitted: {permitted}"])] or ["nothing"]
    return "; ".join([*parts, "unknown"] if verdict.valid == "unknown" else parts)


def print_if_unexpected(outcome: Outcome) -> None:
    """Prints how the run differs from its row, and its full report; nothing if it is as expected."""
    if not outcome.differences:
        return
    part, folder = outcome.part, outcome.played.folder
    click.echo(f"\nNOT as expected: {part.title}: {'; '.join(outcome.differences)}")
    if part.scenario.uncovered_sends():
        click.echo(escape_controls(part.scenario.uncovered_sends()))
    if outcome.verdict is not None:
        click.echo(verdict_text.report(verdict_text.reading_of(
            folder, report.as_json(outcome.verdict), Run(folder=folder).about())))


def look_at(outcome: Outcome, finding: str) -> str:
    return command_line("show", outcome.played.folder, "--finding", finding)


def as_json(outcome: Outcome) -> Mapping[str, Any]:
    part, played, verdict, row = outcome.part, outcome.played, outcome.verdict, outcome.part.row
    return {
        "scenario": part.scenario.name, "zoo": part.scenario.zoo, "folder": played.folder.name,
        "time": part.turn,
        "rules": row.rules, "bugs": list(row.bugs), "switches": list(row.switches),
        "config": dict(row.config), "control": row.control,
        "expected": {key: sorted(getattr(row, key)) for key in ("latent", "manifest", "permitted", "also")},
        "valid": None if verdict is None else verdict.valid,
        "found": [{"name": one.name, "class": one.klass, "count": one.count} for one in (
            verdict.findings if verdict is not None else ())],
        "off": list(outcome.differences), "tries": played.tries, "seconds": round(played.seconds, 1),
    }  # fmt: skip


# -- demo -----------------------------------------------------------------------------------------------

def demo_acts(kafka: str | None = None) -> tuple[Part, ...]:
    """The six runs: each fault, then its fix. On Apache Kafka two, each with its control in the same run."""
    every = {one.name: one for one in scenario.shipped(scenario_words())}
    if kafka is not None:
        rows = {name: next(row for row in every[name].rows if row.topics) for name in SHOWN_ON_KAFKA}
        return tuple(Part(scenario=every[name], row=row, kafka=kafka) for name, row in rows.items())
    return tuple(Part(scenario=every[name], row=row) for name, *labels in SHOWN for label in labels
                 for row in every[name].rows if row.label == label)


def run_demo(cluster: str, out: Path | None, kafka: str | None = None) -> int:
    """Plays, judges and prints the demo; exit 0 only if all runs ended as expected."""
    parent = new_parent(out, "demo")
    catalog.can_judge()
    parts = demo_acts(kafka) if kafka is None else parts_that_fit(demo_acts(kafka), cluster, parent)
    for part in parts[::2] if kafka is None else parts:
        story = f"{part.scenario.name}: {part.scenario.title}. {part.scenario.story}"
        say(f"\n{textwrap.fill(story, WIDTH, break_on_hyphens=False)}")
    plays = play(parts, cluster, parent, at_once=2 if kafka is None else 1)
    for played in plays:  # a run that failed or missed a moment has nothing to show
        if played.why is not None:
            raise FloodmarkError(f"{played.play.title}: {played.why} ({played.tries} tries); "
                                 f"see {played.folder}")
    outcomes = judge_plays(parts, plays, what=f"the {len(plays)} runs")
    click.echo(demo_table(outcomes) if kafka is None else topics_table(outcomes))
    click.echo(notes(parts))
    for outcome in outcomes:
        print_if_unexpected(outcome)
    click.echo(f"\nnext  {look_at(outcomes[0], LOST_WRITE)}")
    click.echo(f"      {look_at(outcomes[2 if kafka is None else 1], DIVERGED)}")
    click.echo("      floodmark explain diverged")
    click.echo(str(parent))
    return EXIT_INVALID if any(outcome.differences for outcome in outcomes) else EXIT_VALID


def demo_table(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for one in outcomes:
        assert one.verdict is not None
        heading = ruling(report.as_json(one.verdict), Run(folder=one.played.folder).about()).heading
        rows.append((one.part.scenario.name, one.part.row.rules + MARK * bool(one.part.row.bugs),
                     click.unstyle(heading), *lost_and_diverged(one.verdict)))
    return table(HEADINGS, rows, {"INVALID": "red", "valid": "green"})


def topics_table(outcomes: Sequence[Outcome]) -> str:
    return table(("scenario", "topic's message format", *HEADINGS[3:]), (
        (one.part.scenario.name, topic["message.format.version"], *lost_and_diverged(one.verdict, key))
        for one in outcomes if one.verdict is not None for key, topic in enumerate(one.part.row.topics)))


def lost_and_diverged(verdict: Verdict, partition: int | None = None) -> tuple[str, str]:
    """The lost acked writes, and what permits that; where the replicas' logs first differ, and how often.
    partition: only there, by the examples, which are all in these short scenarios."""
    lost, diverged = [], []
    for one in verdict.findings:
        examples: list[Any] = [each for each in one.examples if partition in (None, each.get("partition"))]
        count = one.count if partition is None else len(examples)
        if examples and one.name == LOST_WRITE:
            permitted = "" if one.klass == BUG else f" (permitted: {one.permitted_by})"
            lost.append(f"{count}, from offset {examples[0].get('offset', '?')}{permitted}")
        elif examples and one.name == DIVERGED:
            diverged.append(f"{number_of(count, 'offset')}, from {examples[0]['offset']}")
    return "; ".join(lost) or "-", diverged[0] if diverged else "-"


def notes(parts: Sequence[Part]) -> str:
    bugs = dict.fromkeys(bug for part in parts for bug in part.row.bugs)
    return "\n".join(textwrap.fill(f"{MARK} {WHY_A_BUG[bug]}", WIDTH, subsequent_indent="  ") for bug in bugs)

"""Lists, shows and plays scenarios of known faults: `floodmark scenario list | show | run`.
Every row is a run, several at once, repeated if it failed or missed a moment; it says what must be found, and
a table shows what was found. `floodmark demo` plays some of them: historical faults of Kafka, on the rules
that had them and on those that fixed them, and shows what was lost and where the logs diverge. The README has
the demo's table; a test compares the two.
"""

import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from floodmark.harness import catalog
from floodmark.harness.cluster.kafka.distribution import form_of, is_image, is_version, version_of
from floodmark.harness.commands.broker_questions import refuse_configs, scenario_words
from floodmark.harness.commands.run import planned
from floodmark.harness.errors import FloodmarkError, UnfitCluster, UsageError, nearest
from floodmark.harness.pipeline import TRIES, Play, Played, Say, judge_all, new_parent, play_all, say, tidy
from floodmark.harness.protocols import Cluster, PartitionSpec
from floodmark.harness.report.case_names import ROW, SCENARIO
from floodmark.harness.report.demo_table import WIDTH, demo_table, notes, topics_table
from floodmark.harness.report.phrases import many
from floodmark.harness.report.scenario_table import (
    Outcome,
    Part,
    as_json,
    list_table,
    print_if_unexpected,
    print_unexpected,
    story_text,
    table,
)
from floodmark.harness.run import write_json
from floodmark.harness.spec import TOPIC, RunPlan, RunSpec, key_values
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_INVALID, EXIT_VALID, worst
from floodmark.nemesis import scenario
from floodmark.nemesis.expectations import Row, differences
from floodmark.nemesis.scenario import KRAFT, REFERENCE, ZOOKEEPER, Scenario, config_on, why_not_played

TABLE = "scenarios.json"  # in the parent folder: the table, for programs
# The demo. On Apache Kafka: the old topic loses data, while the new one in the same cluster does not.
SHOWN_ON_KAFKA = ("double-failover-expired", "power-divergence-two-topics")
# The scenario, its row that loses data and the one that does not.
SHOWN = (
    ("double-failover", "high-watermark", "kip-320"),
    ("power-divergence", "high-watermark", "kip-320"),
    ("restart-cuts-follower", "high-watermark no_epoch_bump_on_bounce", "kip-320 no_epoch_bump_on_bounce"),
)


# -- list and show --------------------------------------------------------------------------------------

def list_scenarios() -> int:
    click.echo(list_table(scenario.shipped(scenario_words())))
    return EXIT_VALID


def show_scenario(name: str) -> int:
    for one in named(name):
        click.echo(story_text(one))
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


# -- run ------------------------------------------------------------------------------------------------

def run_scenarios(name: str | None, *, rules: str | None, every: bool, sample: bool, cluster: str,
                  times: int, at_once: int, out: Path | None, kafka: str | None = None) -> int:
    """Plays the rows, judges all plays in one call, and compares; exit 0 if each is as expected, 1 if one is
    not, 4 if one could not be played."""
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
    say(f"{many(len(parts), 'run')}, {at_once} at a time; folders in {parent}")
    outcomes = judge_plays(parts, play(parts, cluster, parent, at_once=at_once, say=say))
    for outcome in outcomes:
        if outcome.verdict is not None and outcome.verdict.valid is True and not outcome.differences_found:
            tidy(outcome.folder)
    click.echo(table(outcomes))
    print_unexpected(outcomes)
    write_json(parent / TABLE, list(map(as_json, outcomes)))
    click.echo(str(parent))
    return worst(EXIT_HARNESS if one.verdict is None or one.why else
                 EXIT_INVALID if one.differences_found else EXIT_VALID for one in outcomes)


def parts_that_fit(parts: Sequence[Part], cluster: str, parent: Path) -> list[Part]:
    """The parts that this cluster can play; the others are printed with their reasons. UsageError if none is
    left, or if no broker would start with a row's settings."""
    fit: list[Part] = []
    clusters: list[tuple[str, Cluster]] = []
    unfit: list[str] = []
    for part in parts:
        row = f"{part.scenario.source}: on {part.row.label}"
        why_not = why_not_played(part.scenario.schedule, part.row, system_of(part.kafka))
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
    """The rows on these rules; for a sample the first row with findings and the first without. system: prefer
    rows that can be played on it."""
    found = [row for row in one.rows if rules in (None, row.rules)]
    if not sample:
        return found
    if system is not None:
        found = [row for row in found if why_not_played(one.schedule, row, system) is None] or found
    return [*[row for row in found if not row.control][:1], *[row for row in found if row.control][:1]]


def plan_of(part: Part, cluster: str, folder: Path, *, ask_broker: bool = True) -> RunPlan:
    return planned(spec_of(part, cluster, folder), part.scenario.schedule, ask_broker=ask_broker)


def plays_of(parts: Sequence[Part], cluster: str, parent: Path) -> list[Play]:
    """The runs of these parts, each with the tries of a scenario."""
    return [Play(title=part.title, folder=parent / part.folder_name, scenario=part.scenario, tries=TRIES,
                 plan=partial(plan_of, part, cluster)) for part in parts]


def play(parts: Sequence[Part], cluster: str, parent: Path, *, at_once: int, say: Say) -> list[Played]:
    """Plays all parts, `at_once` at a time; the results are in the given order."""
    broken_off = "interrupted: the scenarios were not played to the end"
    plays = play_all(plays_of(parts, cluster, parent), at_once=at_once, say=say, broken_off=broken_off)
    if any(played.interrupted for played in plays):
        raise FloodmarkError(broken_off)
    return plays


def spec_of(part: Part, cluster: str, folder: Path) -> RunSpec:
    """A part's run: a cluster without load except what the steps send."""
    scenario, row, setting = part.scenario, part.row, part.scenario.setting
    config = {**scenario.config, **config_on(row.config, system_of(part.kafka))}
    if row.switches:
        config["floodmark.switches"] = ",".join(row.switches)
    return RunSpec(
        cluster=cluster,
        kafka=part.kafka,
        assignment=partitions_of(part) if setting.topics else (),
        topics={f"{TOPIC}-{key}": keys for key, keys in enumerate(row.topics) if keys},
        nodes=setting.nodes,
        rules=row.rules,
        bugs=row.bugs,
        config=key_values(config),
        links=setting.links,
        workload=setting.workload,
        concurrency=0,
        partitions=setting.partitions,
        replication_factor=setting.replication_factor,
        acks=setting.acks,
        seed=1,
        duration=0.1,
        asked={SCENARIO: scenario.name, ROW: row.label},
        out=folder,
    )


def system_of(kafka: str | None) -> str:
    """The system's name for --kafka. A folder's version is only known when it is opened: what it cannot do is
    refused then."""
    if kafka is None:
        return REFERENCE
    word = version_of(kafka) if is_image(kafka) else kafka
    return KRAFT if is_version(word) and form_of(word) == "kraft" else ZOOKEEPER


def partitions_of(part: Part) -> tuple[PartitionSpec, ...]:
    """A topic for each partition, all with the same replicas. Kafka's two fetcher threads get topics with
    these names alternately (AbstractFetcherManager.getFetcherId): records of one topic do not speed up the
    next one's fetches."""
    setting = part.scenario.setting
    return tuple(
        PartitionSpec(key=key, topic=f"{TOPIC}-{key}", partition=0,
                      replicas=setting.names[:setting.replication_factor])
        for key in range(setting.partitions))


def judge_plays(parts: Sequence[Part], plays: Sequence[Played], what: str = "") -> list[Outcome]:
    """Judges all recorded runs in one call, and compares them with their rows."""
    recorded = [played.folder for played in plays if played.recorded]
    verdicts = {one.folder: one.verdict for one in judge_all(recorded, what=what)}
    outcomes = []
    for part, played in zip(parts, plays, strict=True):
        verdict = verdicts.get(played.folder)
        wrong = [played.why] if played.why else []
        if verdict is not None and not wrong:  # a failed run proves nothing about its row
            wrong = differences(part.row, verdict, traced=part.kafka is None)
        outcomes.append(Outcome(part=part, folder=played.folder, why=played.why, tries=played.tries,
                                seconds=played.seconds, verdict=verdict, differences_found=tuple(wrong)))
    return outcomes


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
    plays = play(parts, cluster, parent, at_once=2 if kafka is None else 1, say=say)
    for played in plays:  # a run that failed or missed a moment has nothing to show
        if played.why is not None:
            raise FloodmarkError(f"{played.play.title}: {played.why} ({played.tries} tries); "
                                 f"see {played.folder}")
    outcomes = judge_plays(parts, plays, what=f"the {len(plays)} runs")
    folders = [played.folder for played in plays]
    verdicts = [outcome.verdict for outcome in outcomes if outcome.verdict is not None]
    click.echo(demo_table(parts, folders, verdicts) if kafka is None else topics_table(parts, verdicts))
    click.echo(notes(parts))
    for outcome in outcomes:
        print_if_unexpected(outcome)
    click.echo(f"\nnext  {shlex.join(['floodmark', 'show', str(folders[0]), '--finding', 'lost-write'])}")
    divergence = folders[2] if kafka is None else folders[1]
    click.echo(f"      {shlex.join(['floodmark', 'show', str(divergence), '--finding', 'diverged'])}")
    click.echo("      floodmark explain diverged")
    click.echo(str(parent))
    return EXIT_INVALID if any(outcome.differences_found for outcome in outcomes) else EXIT_VALID

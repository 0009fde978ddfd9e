"""Reads scenarios: a TOML file each, with the steps of a run, their reason, and its rows: the rules of a run,
and the findings that it must have; and says what a verdict has besides, or lacks.

scenarios/README.md describes the file, steps.lark the language of steps. Each step becomes an entry (a few,
if it sends several values) of a schedule, so a scenario is a schedule like every other.

On which systems it can run:
1. A scenario runs completely or not at all: with a step left out it would be another experiment.
2. Failpoints, known bugs and switches are the reference broker's. Settings of single topics exist on Kafka
   alone.
3. Sessions that can be ended by hand, and older protocol generations, are those of Kafka with ZooKeeper.
4. Eligible leader replicas (KIP-966) are a feature of Kafka in KRaft mode; level 0 turns them off, as every
   other system does.

What must be found
5. Every bug that a row names must be found, and no other except those in `also`.
6. A control has no bug at all and is valid. Permitted findings are in `permitted`, in controls too.
7. A row that names a lost write need not name its consequences: its offset is assigned again, which shows in
   acks (AGAIN); and if the loss is permitted, so are the trace's findings about that record (ON_THE_WAY).
8. Latent findings are those of the trace: they need no client. Manifest ones are those of the history and the
   logs. If the system shows less than the trace has, latent findings may be there or not, and it may remain
   unknown whether a setting permits all of the harm that the row permits.
9. If topics with settings of their own are in one cluster, `spared` says which findings one partition must
   not have while another does: it is the control in the same run.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from floodmark.harness.errors import Refused, UsageError, nearest
from floodmark.harness.faults import UNSEEN
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.run_location import is_safe_name, read_text
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Schedule
from floodmark.harness.spec import RULES, TOPIC, RunSpec, converted, key_values, shortened
from floodmark.harness.toml_file import TomlFile
from floodmark.harness.verdict import BUG, PERMITTED, Verdict

LOST = "lost-write"
AGAIN = frozenset({"inconsistent-offsets", "realtime-order"})
ON_THE_WAY = frozenset({"candidate-incomplete", "leader-incomplete", "unsafe-truncation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The names that a scenario may use; the commands collect them."""

    generations: tuple[str, ...]
    bugs: Collection[str]
    switches: Collection[str]
    workloads: tuple[str, ...]
    findings: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of the scenario: its rules, and what must be found."""

    rules: str
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    latent: frozenset[str] = frozenset()
    manifest: frozenset[str] = frozenset()
    permitted: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    control: bool = False
    topics: tuple[Mapping[str, str], ...] = ()  # Kafka's keys of the topic of each partition; empty: none
    spared: Mapping[int, frozenset[str]] = field(default_factory=dict)  # partition -> what it must not show

    @property
    def label(self) -> str:
        """The row's name, unique within a scenario: kip-320 trunc_hw flush.messages=1."""
        of_topics = sorted({key for topic in self.topics for key in topic})
        return " ".join([self.rules, *self.bugs, *self.switches,
                         *(f"{key}={value}" for key, value in self.config.items()),
                         *(f"{key}={','.join(topic.get(key, '') for topic in self.topics)}"
                           for key in of_topics)])

    @property
    def harm(self) -> bool:
        return bool(self.latent or self.manifest)

    def expected(self) -> str:
        words = [", ".join(sorted(self.latent | self.manifest))] if self.harm else []
        words += [f"permitted: {', '.join(sorted(self.permitted))}"] if self.permitted else []
        return "; ".join(words) or "no harm"


def differences(row: Row, verdict: Verdict, *, traced: bool = True) -> list[str]:
    """List how the verdict differs from the row; empty: as expected. traced: the trace shows all of it."""
    bugs, permitted = (frozenset(found.name for found in verdict.findings if found.klass == klass)
                       for klass in (BUG, PERMITTED))
    if not traced:
        bugs -= row.latent | (ON_THE_WAY if LOST in row.manifest else frozenset())
    required = row.latent | row.manifest if traced else row.manifest
    allowed_bugs = required | row.also | (AGAIN if LOST in required else required) if row.harm else required
    allowed_permitted = row.permitted | row.also | (
        AGAIN | ON_THE_WAY if LOST in row.permitted else row.permitted)
    words = [f"no {name}" for name in sorted(required - bugs)]
    words += [f"{name} besides" for name in sorted(bugs - allowed_bugs)]
    words += [f"no permitted {name}" for name in sorted(row.permitted - permitted)]
    words += [f"permitted {name} besides" for name in sorted(permitted - allowed_permitted)]
    spared = [(key, found) for key, names in sorted(row.spared.items()) for found in verdict.findings
              if found.name in names]
    words += [f"{found.name} of partition {key}, which must be spared" for key, found in spared
              if any(one.get("partition") == key for one in found.examples)]
    words += [f"{found.name} {found.count} times, too often for all to be named: partition {key} may have one"
              for key, found in spared if found.count > len(found.examples)]
    if not row.harm and verdict.valid == "unknown":
        in_doubt = {name for one in verdict.unknown for name in one.names}
        if traced or not in_doubt or in_doubt - allowed_permitted:
            words += [f"unknown: {verdict.unknown[0].reason}" if verdict.unknown else "unknown"]
    return words


FOLDER = Path(__file__).with_name("scenarios")
BYTES_AT_MOST = 1 << 20
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
EVERY = "every"  # as `rules`: a row for each generation
_TEXTS = ("name", "zoo", "title", "story", "steps")
_FINDINGS = ("latent", "manifest", "permitted", "also")
_LISTS = ("bugs", "switches", *_FINDINGS)
_ROW_KEYS = ("rules", *_LISTS, "config", "control", "topics", "spared")
_Few, _Some = Annotated[int, Meta(ge=1, le=9)], Annotated[int, Meta(ge=1, le=100)]
_CLUSTER: Mapping[str, Any] = {
    "nodes": _Few, "partitions": _Some, "replication_factor": _Few, "workload": str,
    "acks": Literal["all", "1", "0"], "links": Literal["direct", "proxied"],
    "topics": _Some}  # topics: each partition is the only one of a topic, and all have the same replicas
LEAST_ISR = "min.insync.replicas"
REFERENCE = "reference"
ZOOKEEPER = "kafka with ZooKeeper"
KRAFT = "kafka in KRaft mode"
SYSTEMS = (REFERENCE, ZOOKEEPER, KRAFT)
ELR = "eligible.leader.replicas.version"
WITHOUT = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    zoo: str
    title: str
    story: str
    steps: str  # as written
    spec: RunSpec  # its cluster, without load except what the steps send
    schedule: Schedule
    lines: tuple[int, ...]  # the number of each entry's line in the file
    written: tuple[str, ...]  # and the text of that line
    rows: tuple[Row, ...]
    source: Path

    def uncovered_sends(self) -> str:
        """A sentence on the steps that send with weaker acks than the run's; empty if there is none."""
        weaker = json_form.ACKS[json_form.ACKS.index(self.spec.acks) + 1:]
        steps = dict.fromkeys(
            f"line {line}, {step.partition('#')[0].strip()}"
            for entry, line, step in zip(self.schedule, self.lines, self.written, strict=True)
            if entry.args.get("acks") in weaker)
        return f"{'; '.join(steps)}: recorded as info, because the run's acks are {self.spec.acks} and " \
               "weaker ones promise nothing: the loss of such a record is no finding" if steps else ""


# -- loading ------------------------------------------------------------------------------------------------

def shipped(words: Words) -> tuple[Scenario, ...]:
    """Load every scenario of this package, by zoo and name."""
    found = [load(path, words) for path in sorted(FOLDER.glob("*.toml"))]
    return tuple(sorted(found, key=lambda one: (one.zoo, one.name)))


def load(path: Path, words: Words) -> Scenario:
    """Load the scenario in this file; UsageError with file, line and the valid words."""
    return parse(read_text(path, "the scenario", at_most=BYTES_AT_MOST), path, words)


def parse(text: str, path: Path, words: Words) -> Scenario:
    file = TomlFile(str(path), text, "a scenario")

    def read(key: str, value: Any) -> Any:
        if key in _TEXTS and (not isinstance(value, str) or not value.strip()):
            raise ValueError(f"{key} is {value!r}, should be a text")
        return value

    found = file.values("", (*_TEXTS, "cluster", "config", "run"), read)
    for key in _TEXTS:
        if key not in found:
            file.refuse(f"{key} is missing: a scenario needs {', '.join(_TEXTS)}")
    if not is_safe_name(found["name"]):  # a folder gets this name
        file.refuse(f"name is {found['name'][:60]!a}, which no folder can have", "name")
    spec = _read_cluster(file, words)
    config = {**PATIENT, LEAST_ISR: str(max(1, spec.factor - 1)), **file.values("config", None, _kafka_value)}
    _check_least_isr(file, config, spec, LEAST_ISR, "config")
    schedule, lines, written = _read_schedule(file, spec)
    return Scenario(
        name=found["name"], zoo=found["zoo"], title=found["title"], story=" ".join(found["story"].split()),
        steps=found["steps"], spec=replace(spec, config=key_values(config)), schedule=schedule, lines=lines,
        written=written, rows=_read_rows(file, words, config, spec), source=path)


def _read_cluster(file: TomlFile, words: Words) -> RunSpec:
    def read(key: str, value: Any) -> Any:
        if key == "workload" and value not in words.workloads:
            raise ValueError(f"workload is {shortened(value)}; valid: {', '.join(words.workloads)}")
        return converted(value, _CLUSTER[key], key)

    found = file.values("cluster", _CLUSTER, read)
    topics = found.pop("topics", None)
    if topics and "partitions" in found:
        file.refuse("give topics or partitions, not both", "topics", "cluster")
    spec = RunSpec(**{"partitions": topics or 1, "concurrency": 0, "seed": 1, "duration": 0.1, **found})
    factor = spec.replication_factor or spec.nodes
    if factor > spec.nodes:
        file.refuse(f"replication_factor is {factor}, and there are only {spec.nodes} nodes",
                    "replication_factor", "cluster")
    # Kafka's two fetcher threads get topics with these names alternately (AbstractFetcherManager's
    # getFetcherId): records of one topic do not speed up the next one's fetches.
    return replace(spec, replication_factor=factor, assignment=tuple(
        PartitionSpec(key=key, topic=f"{TOPIC}-{key}", partition=0, replicas=spec.node_names[:factor])
        for key in range(topics or 0)))


def _kafka_value(key: str, value: Any) -> str:
    if not isinstance(value, int | str):
        raise ValueError(f"{key} is {value!r}, should be a text, a number, true or false (quote a key with "
                         "dots in it)")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_least_isr(file: TomlFile, config: Mapping[str, str], spec: RunSpec, *where: Any) -> None:
    least = config[LEAST_ISR]
    if not least.isdecimal() or not 1 <= int(least) <= spec.factor:
        file.refuse(f"{LEAST_ISR} is {least}, should be 1 to the replication factor, {spec.factor}: nothing "
                    "could be acked", *where)


def _read_schedule(file: TomlFile, spec: RunSpec) -> tuple[Schedule, tuple[int, ...], tuple[str, ...]]:
    """An error names its own line: first of lines that are no steps, then of wrong names in steps."""
    from floodmark.nemesis.steps import read_step  # with lark, which few commands need

    found: list[tuple[dict[str, Any], int, str]] = []  # entry, line, text
    for number, line in enumerate(file.data["steps"].splitlines(), file.first_line_of("steps")):
        try:
            found += ((entry, number, line.strip()) for entry in read_step(line))
        except Refused as error:
            raise UsageError(f"{file.source}:{number}: {error}") from None
    if not found:
        file.refuse("steps has no step", "steps")
    entries, lines, written = zip(*found, strict=True)
    schedule = json_form.read([*entries], sources=[f"{file.source}:{number}" for number in lines],
                              nodes=spec.node_names, partitions=range(spec.partitions))
    return schedule, lines, written


def _read_rows(file: TomlFile, words: Words, config: Mapping[str, str], spec: RunSpec) -> tuple[Row, ...]:
    if not (tables := file.tables("run")):
        file.refuse("has no [[run]]: on which rules does it run, and what must be found?")
    found: dict[str, Row] = {}
    for index in range(len(tables)):
        for row in _read_rows_of(file, words, index):
            _check_least_isr(file, {**config, **row.config}, spec, "config", "run", index)
            if row.topics and len(row.topics) != len(spec.assignment):
                file.refuse(f"topics has the keys of {len(row.topics)}, and [cluster] topics should say how "
                            "many there are", "topics", "run", index)
            if row.label in found:
                file.refuse(f"{row.label} was run before", "", "run", index)
            found[row.label] = row
    return tuple(found.values())


def _read_rows_of(file: TomlFile, words: Words, index: int) -> Iterator[Row]:
    valid = {**dict.fromkeys(_FINDINGS, words.findings), "bugs": words.bugs, "switches": words.switches,
             "rules": words.generations}

    def names(key: str, value: Any, valid: Collection[str]) -> tuple[str, ...]:
        for name in (found := converted(value, tuple[str, ...], key)):
            if name not in valid:
                raise ValueError(f"{key} names {name!r}; {nearest(name, valid)}")
        return tuple(found)

    def read(key: str, value: Any) -> Any:
        if key == "rules":
            return words.generations if value == EVERY else names(
                key, [value] if isinstance(value, str) else value, valid[key])
        if key in _LISTS:
            return (tuple if key in ("bugs", "switches") else frozenset)(names(key, value, valid[key]))
        if key == "control":
            return converted(value, bool, key)
        if key == "config":
            return {one: _kafka_value(one, text) for one, text in converted(value, dict, key).items()}
        if key == "topics":
            return tuple(converted(one, dict[str, str], key) for one in converted(value, list[Any], key))
        spared = converted(value, dict[Annotated[str, Meta(pattern="^[0-9]+$")], list[str]], key)
        return {int(one): frozenset(names(key, several, words.findings)) for one, several in spared.items()}

    row = file.values("run", _ROW_KEYS, read, index)
    if row.get("control") and (row.get("latent") or row.get("manifest")):
        file.refuse("control is true: then latent and manifest cannot be, there is no bug to be found",
                    "control", "run", index)
    if not row.get("control") and not any(map(row.get, ("latent", "manifest", "permitted"))):
        file.refuse("rules alone say nothing: what is found (latent, manifest, permitted), or is it a "
                    "control?", "rules", "run", index)
    generations = row.pop("rules", ())
    if not generations:
        file.refuse(f"rules should say on which it is played: {', '.join(words.generations)}, {EVERY}",
                    "rules", "run", index)
    for rules in generations:
        yield Row(rules=rules, **row)


# -- on which systems it can run ----------------------------------------------------------------------------

def systems_of(one: Scenario) -> tuple[str, ...]:
    """The systems on which at least one of its rows can run."""
    return tuple(system for system in SYSTEMS
                 if any(why_not_played(one.schedule, row, system) is None for row in one.rows))


def config_on(config: Mapping[str, str], system: str) -> Mapping[str, str]:
    """A row's settings for this system: a feature that it lacks need not be turned off."""
    return config if system == KRAFT else {
        key: value for key, value in config.items() if (key, value) != (ELR, WITHOUT)}


def why_not_played(schedule: Schedule, row: Row, system: str) -> str | None:
    """None: it can run there, as far as the scenario says."""
    return next(_reasons(schedule, row, system), None)


def _reasons(schedule: Schedule, row: Row, system: str) -> Iterator[str]:
    if system != KRAFT and row.config.get(ELR, WITHOUT) != WITHOUT:
        yield "eligible leader replicas are those of Kafka in KRaft mode"
    if system == REFERENCE:
        if row.topics:
            yield "its topics have settings of their own, and the reference broker has none"
        return
    if any(entry.f in UNSEEN for entry in schedule):
        yield "a step needs a failpoint of the reference broker, and Apache Kafka has none"
    if row.bugs or row.switches or any(key.startswith("floodmark.") for key in row.config):
        yield "its rules have bugs or switches, which only the reference broker has"
    if system == KRAFT and any(entry.f == "expire" for entry in schedule):
        yield "a session is ended by hand, and Kafka in KRaft mode has no sessions"
    if system == KRAFT and (row.rules != RULES[-1] or row.topics):
        yield "older protocols and formats are those of Kafka with ZooKeeper"

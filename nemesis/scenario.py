"""Reads scenarios: a TOML file each, with the steps of a run, their reason, and what must be found.

scenarios/README.md describes the file, steps.lark the language of steps. Each step becomes an entry (a few,
if it sends several values) of a schedule, so a scenario is a schedule like every other.

On which systems it can run:
1. A scenario runs completely or not at all: with a step left out it would be another experiment.
2. Failpoints, known bugs and switches are the reference broker's. Settings of single topics exist on Kafka
   alone.
3. Sessions that can be ended by hand, and older protocol generations, are those of Kafka with ZooKeeper.
4. Eligible leader replicas (KIP-966) are a feature of Kafka in KRaft mode; level 0 turns them off, as every
   other system does.
"""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from floodmark.harness.errors import Refused, UsageError, nearest
from floodmark.harness.faults import UNSEEN
from floodmark.harness.run_location import is_safe_name
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.toml_lines import first_line_of, places
from floodmark.nemesis.expectations import Row, Words

FOLDER = Path(__file__).with_name("scenarios")
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
EVERY = "every"  # as `rules`: a row for each generation
_TEXTS = ("name", "zoo", "title", "story", "steps")
_FINDINGS = ("latent", "manifest", "permitted", "also")
_LISTS = ("bugs", "switches", *_FINDINGS)
_ROW_KEYS = ("rules", *_LISTS, "config", "control", "topics", "spared")
_NODES_MAX = 9
REFERENCE = "reference"
ZOOKEEPER = "kafka with ZooKeeper"
KRAFT = "kafka in KRaft mode"
SYSTEMS = (REFERENCE, ZOOKEEPER, KRAFT)
ELR = "eligible.leader.replicas.version"
WITHOUT = "0"
_LATEST_RULES = "kip-320"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The cluster and the workload of the steps."""

    nodes: int
    partitions: int
    replication_factor: int
    workload: str
    acks: str
    links: str | None  # None: proxied where a step cuts
    topics: bool  # each partition is the only one of a topic, and all have the same replicas

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{index}" for index in range(1, self.nodes + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    zoo: str
    title: str
    story: str
    steps: str  # as written
    setting: Setting
    config: Mapping[str, str]  # by Kafka's keys, the patient defaults among them
    schedule: Schedule
    lines: tuple[int, ...]  # the number of each entry's line in the file
    written: tuple[str, ...]  # and the text of that line
    rows: tuple[Row, ...]
    source: Path

    def uncovered_sends(self) -> str:
        """A sentence on the steps that send with weaker acks than the run's; empty if there is none."""
        weaker = json_form.ACKS[json_form.ACKS.index(self.setting.acks) + 1:]
        steps = dict.fromkeys(
            f"line {line}, {step.partition('#')[0].strip()}"
            for entry, line, step in zip(self.schedule, self.lines, self.written, strict=True)
            if entry.args.get("acks") in weaker)
        return f"{'; '.join(steps)}: recorded as info, because the run's acks are {self.setting.acks} and " \
               "weaker ones promise nothing: the loss of such a record is no finding" if steps else ""


# -- loading ------------------------------------------------------------------------------------------------

def shipped(words: Words) -> tuple[Scenario, ...]:
    """Load every scenario of this package, by zoo and name."""
    found = [load(path, words) for path in sorted(FOLDER.glob("*.toml"))]
    return tuple(sorted(found, key=lambda one: (one.zoo, one.name)))


def load(path: Path, words: Words) -> Scenario:
    """Load the scenario in this file; UsageError with file, line and the valid words."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"the scenario {path} cannot be read: {why}") from error
    return parse(text, path, words)


def parse(text: str, path: Path, words: Words) -> Scenario:
    """Parse the scenario in this text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _, at, rest = str(error).rpartition("(at line ")  # or `(at end of document)`, the last one
        number = rest.partition(",")[0]
        line = int(number) if at and number.isdecimal() else len(text.splitlines())
        raise UsageError(f"{path}:{line}: is no TOML: {error}") from error
    return _Page(path, text, data, words).read_scenario()


class _Page:
    """One parsed file."""

    def __init__(self, path: Path, text: str, data: Mapping[str, Any], words: Words) -> None:
        self._path, self._text, self._data, self._words = path, text, data, words
        self._places = places(text)

    def read_scenario(self) -> Scenario:
        self._check_keys("", self._data, (*_TEXTS, "cluster", "config", "run"))
        texts = {key: self._read_text(key) for key in _TEXTS}
        if not is_safe_name(texts["name"]):  # a folder gets this name
            self._refuse(f"name is {texts['name'][:60]!a}, which no folder can have", "name")
        setting = self._read_setting()
        config = self._read_config(setting)
        schedule, lines, written = self._read_schedule(texts["steps"], setting)
        rows = self._read_rows(config, setting)
        texts["story"] = " ".join(texts["story"].split())
        return Scenario(**texts, setting=setting, config=config, schedule=schedule, lines=lines,
                        written=written, rows=rows, source=self._path)

    def _refuse(self, why: str, key: str, table: str = "", index: int = 0) -> NoReturn:
        line = self._places.of(table, key, index)
        raise UsageError(f"{self._path}:{line}: {why}")

    def _check_keys(self, table: str, found: Mapping[str, Any], valid: Collection[str], index: int = 0
                    ) -> None:
        for key in found:
            if key not in valid:
                where = f"[{table}]" if table else "a scenario"
                self._refuse(f"{where} does not know {key!r}; valid: {', '.join(valid)}", key, table, index)

    def _read_text(self, key: str) -> str:
        value = self._data.get(key)
        if value is None:
            self._refuse(f"{key} is missing: a scenario needs {', '.join(_TEXTS)}", "")
        if not isinstance(value, str) or not value.strip():
            self._refuse(f"{key} is {value!r}, should be a text", key)
        return value

    def _read_table(self, table: str) -> Mapping[str, Any]:
        found = self._data.get(table, {})
        if not isinstance(found, dict):
            self._refuse(f"{table} should be a table, [{table}]", table)
        return found

    # -- the cluster ------------------------------------------------------------------------------------

    def _read_setting(self) -> Setting:
        table = self._read_table("cluster")
        self._check_keys("cluster", table, [*Setting.__annotations__])

        def number(key: str, default: int, most: int) -> int:
            value = table.get(key, default)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                self._refuse(f"{key} is {value!r}, should be 1 to {most}", key, "cluster")
            return value

        def one_of(key: str, default: str, *valid: str) -> str:
            value = table.get(key, default)
            if value not in (default, *valid):
                self._refuse(f"{key} is {value!r}; valid: {', '.join(valid)}", key, "cluster")
            return str(value)

        nodes = number("nodes", 3, _NODES_MAX)
        factor = number("replication_factor", nodes, _NODES_MAX)
        if factor > nodes:
            self._refuse(f"replication_factor is {factor}, and there are only {nodes} nodes",
                         "replication_factor", "cluster")
        if "topics" in table and "partitions" in table:
            self._refuse("give topics or partitions, not both", "topics", "cluster")
        counted = "topics" if "topics" in table else "partitions"
        return Setting(
            nodes=nodes, replication_factor=factor, partitions=number(counted, 1, 100),
            topics=counted == "topics", workload=one_of("workload", "log", *self._words.workloads),
            acks=one_of("acks", "all", *json_form.ACKS),
            links=one_of("links", "", "direct", "proxied") or None)

    def _read_config(self, setting: Setting) -> dict[str, str]:
        config = {**PATIENT, "min.insync.replicas": str(max(1, setting.replication_factor - 1))}
        for key, value in self._read_table("config").items():
            config[key] = self._read_value(key, value, key, "config")
        self._check_min_insync(config, setting, "min.insync.replicas", "config")
        return config

    def _read_value(self, name: str, value: object, *where: Any) -> str:
        if not isinstance(value, int | str):
            self._refuse(f"{name} is {value!r}, should be a text, a number, true or false "
                         "(quote a key with dots in it)", *where)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _check_min_insync(self, config: Mapping[str, str], setting: Setting, *where: Any) -> None:
        least = config["min.insync.replicas"]
        if not least.isdecimal() or not 1 <= int(least) <= setting.replication_factor:
            self._refuse(f"min.insync.replicas is {least}, should be 1 to the replication factor, "
                         f"{setting.replication_factor}: nothing could be acked", *where)

    # -- steps ------------------------------------------------------------------------------------------

    def _read_schedule(self, steps: str, setting: Setting
                       ) -> tuple[Schedule, tuple[int, ...], tuple[str, ...]]:
        """An error names its own line: first of lines that are no steps, then of wrong names in steps."""
        from floodmark.nemesis.steps import read_step  # with lark, which few commands need

        found: list[tuple[dict[str, Any], int, str]] = []  # entry, line, text
        first = first_line_of(self._text, self._places.of("", "steps"))
        for number, line in enumerate(steps.splitlines(), first):
            try:
                found += ((entry, number, line.strip()) for entry in read_step(line))
            except Refused as error:
                raise UsageError(f"{self._path}:{number}: {error}") from None
        if not found:
            self._refuse("steps has no step", "steps")
        entries, lines, written = zip(*found, strict=True)
        read = json_form.read([*entries], sources=[f"{self._path}:{number}" for number in lines],
                              nodes=setting.names, partitions=range(setting.partitions))
        return read, lines, written

    # -- rows -------------------------------------------------------------------------------------------

    def _read_rows(self, config: Mapping[str, str], setting: Setting) -> tuple[Row, ...]:
        tables = self._data.get("run")
        if not isinstance(tables, list) or not tables:
            self._refuse("has no [[run]]: on which rules does it run, and what must be found?", "")
        found: dict[str, Row] = {}
        for index, table in enumerate(tables):
            self._check_keys("run", table, _ROW_KEYS, index)
            for row in self._read_rows_of(table, index):
                self._check_min_insync({**config, **row.config}, setting, "config", "run", index)
                if row.topics and (not setting.topics or len(row.topics) != setting.partitions):
                    self._refuse(f"topics has the keys of {len(row.topics)}, and [cluster] topics should say "
                                 "how many there are", "topics", "run", index)
                if row.label in found:
                    self._refuse(f"{row.label} was run before", "", "run", index)
                found[row.label] = row
        return tuple(found.values())

    def _read_rows_of(self, table: Mapping[str, Any], index: int) -> Iterator[Row]:
        def read(key: str, default: Any, fits: Callable[[Any], bool], should: str) -> Any:
            value = table.get(key, default)
            if not fits(value):
                self._refuse(f"{key} is {value!r}, should be {should}", key, "run", index)
            return value

        def names(key: str, value: Any, valid: Collection[str]) -> tuple[str, ...]:
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                self._refuse(f"{key} is {value!r}, should be an array of names", key, "run", index)
            for name in value:
                if name not in valid:
                    self._refuse(f"{key} names {name!r}; {nearest(name, valid)}", key, "run", index)
            return tuple(value)

        words = self._words
        config = read("config", {}, lambda value: isinstance(value, dict), "a table of Kafka's keys")
        config = {key: self._read_value(key, value, "config", "run", index) for key, value in config.items()}
        bugs, switches, *findings = (
            names(key, table.get(key, []), {"bugs": words.bugs, "switches": words.switches}.get(
                key, words.findings)) for key in _LISTS)
        control = read("control", False, lambda value: isinstance(value, bool), "true")
        if control and (findings[0] or findings[1]):
            self._refuse("control is true: then latent and manifest cannot be, there is no bug to be found",
                         "control", "run", index)
        if not control and not any(findings[:3]):
            self._refuse("rules alone say nothing: what is found (latent, manifest, permitted), or is it a "
                         "control?", "rules", "run", index)
        topics = read("topics", [], lambda value: isinstance(value, list)
                      and all(isinstance(one, dict) for one in value), "an array of tables of Kafka's keys")
        for key, setting in (pair for topic in topics for pair in topic.items()):
            if not isinstance(setting, str):
                self._refuse(f"topics sets {key} to {setting!r}, should be a text", "topics", "run", index)
        spared = read("spared", {}, lambda value: isinstance(value, dict)
                      and all(key.isdecimal() for key in value), "a table: partition = array of names")
        spared = {int(key): frozenset(names("spared", one, words.findings)) for key, one in spared.items()}
        rules = table.get("rules")
        generations = words.generations if rules == EVERY else names(
            "rules", [rules] if isinstance(rules, str) else rules, words.generations)
        if not generations:
            self._refuse(f"rules should say on which it is played: {', '.join(words.generations)}, {EVERY}",
                         "rules", "run", index)
        for one in generations:
            yield Row(rules=one, bugs=bugs, switches=switches, control=control, config=config, spared=spared,
                      topics=tuple(topics), **dict(zip(_FINDINGS, map(frozenset, findings), strict=True)))


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
    if system == KRAFT and (row.rules != _LATEST_RULES or row.topics):
        yield "older protocols and formats are those of Kafka with ZooKeeper"

"""Reads scenarios: a TOML file each, with the steps of a run, their reason, and what must be found.

    name = "double-failover"                 # the file's name without .toml
    zoo = "Z02"                              # the known fault of the protocol
    title = "an acknowledged write vanishes"
    story = '''What happens, why, and where history knows it from (KAFKA and KIP numbers).'''
    steps = '''
    send 0..2
    wait every.leo == 3 and every.hw == 3 and leader == n1     # a step a line; # begins a comment
    '''
    [cluster]                                # every key is optional
    nodes = 3                                # n1, n2, ...; also the default replication_factor
    partitions = 1                           # 0, 1, ...: the preferred leader of p is the p-th node, from n1
    workload = "log"
    acks = "all"
    links = "proxied"                        # the default where a step cuts, else "direct"
    topics = 2                               # instead of partitions: each is the only one of a topic, and
                                             # all have the same replicas and prefer n1
    [config]                                 # Kafka's keys. Sessions and lag are 60 s unless it sets them, so
    "min.insync.replicas" = 2                # that nothing but the steps strikes
    [[run]]                                  # a row: the same steps on these rules
    rules = "high-watermark"                 # a generation, a list of them (a row each), or "every"
    bugs = ["trunc_hw"]                      # known-bad rules; switches = [...]: other correct ones
    config = { "flush.messages" = 1 }        # takes precedence over the scenario's
    latent = ["unsafe-truncation"]           # bugs that the trace must show, before a client could see any
    manifest = ["lost-write"]                # bugs that the history or the logs must show
    permitted = ["lost-write"]               # findings that must be there and that the settings permit
    also = ["saw-then-lost"]                 # possible consequences; nothing else may be found, except the
                                             # usual ones of a lost write (nemesis/expectations.py)
    control = true                           # instead of latent and manifest: no bug at all, verdict valid
    topics = [{ "message.format.version" = "0.10.2" }, {}]     # Kafka's keys of each topic; on Kafka alone
    spared = { 1 = ["lost-write"] }          # what partition 1 must not show: the control in the same run

Each step becomes an entry (a few, if it sends several values) of the schedule that harness/schedule/entry.py
describes, so a scenario is a schedule like every other. steps.lark is the language of steps.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from floodmark.harness.errors import Refused, UsageError
from floodmark.harness.run_location import is_safe_name
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.toml_lines import Places, first_line_of, places
from floodmark.nemesis.expectations import ROW_KEYS, Row, Words, rows

FOLDER = Path(__file__).with_name("scenarios")
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
_TEXTS = ("name", "zoo", "title", "story", "steps")
_TABLES = ("cluster", "config", "run")
_NODES_MAX = 9


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
        line = _find_line(error, text)
        raise UsageError(f"{path}:{line}: is no TOML: {error}") from error
    return _Reader(path, text, data, words).read_scenario()


def _find_line(error: tomllib.TOMLDecodeError, text: str) -> int:
    """Find the line in the parser's message; `(at end of document)` is the last one."""
    _, at, rest = str(error).rpartition("(at line ")
    number = rest.partition(",")[0]
    return int(number) if at and number.isdecimal() else len(text.splitlines())


class _Reader:
    """Reads one parsed file into a Scenario."""

    def __init__(self, path: Path, text: str, data: Mapping[str, Any], words: Words) -> None:
        self._path, self._text, self._data, self._words = path, text, data, words
        self._places: Places = places(text)

    def read_scenario(self) -> Scenario:
        self._check_keys("", self._data, (*_TEXTS, *_TABLES))
        name, zoo, title, story, steps = (self._read_text(key) for key in _TEXTS)
        if not is_safe_name(name):  # a folder gets this name
            self._refuse(self._places.of("", "name"), f"name is {name[:60]!a}, which no folder can have")
        setting = self._read_setting()
        config = {**PATIENT, **self._read_config(setting)}
        schedule, lines, written = self._read_schedule(steps, setting)
        return Scenario(
            name=name, zoo=zoo, title=title, story=" ".join(story.split()), steps=steps, setting=setting,
            config=config, schedule=schedule, lines=lines, written=written, rows=self._read_rows(config,
            setting),
            source=self._path,
        )  # fmt: skip

    def _refuse(self, line: int, why: str) -> NoReturn:
        raise UsageError(f"{self._path}:{line}: {why}")

    # -- texts and tables -------------------------------------------------------------------------------

    def _read_text(self, key: str) -> str:
        value = self._data.get(key)
        if value is None:
            self._refuse(1, f"{key} is missing: a scenario needs {', '.join(_TEXTS)}")
        if not isinstance(value, str) or not value.strip():
            self._refuse(self._places.of("", key), f"{key} is {value!r}, should be a text")
        return value

    def _check_keys(
        self, table: str, found: Mapping[str, Any], valid: Sequence[str], *, index: int = 0
    ) -> None:
        for key in found:
            if key not in valid:
                line = self._places.of(table, key, index) if table else self._places.at_top(key)
                where = f"[{table}]" if table else "a scenario"
                self._refuse(line, f"{where} does not know {key!r}; valid: {', '.join(valid)}")

    def _read_table(self, table: str) -> Mapping[str, Any]:
        found = self._data.get(table, {})
        if not isinstance(found, dict):
            self._refuse(self._places.at_top(table), f"{table} should be a table, [{table}]")
        return found

    def _read_setting(self) -> Setting:
        table = self._read_table("cluster")
        self._check_keys("cluster", table, tuple(Setting.__annotations__))
        nodes = self._read_number(table, "nodes", 3, _NODES_MAX)
        factor = self._read_number(table, "replication_factor", nodes, _NODES_MAX)
        if factor > nodes:
            self._refuse(self._places.of("cluster", "replication_factor"),
                         f"replication_factor is {factor}, and there are only {nodes} nodes")
        if "topics" in table and "partitions" in table:
            self._refuse(self._places.of("cluster", "topics"), "give topics or partitions, not both")
        counted = "topics" if "topics" in table else "partitions"
        return Setting(
            nodes=nodes, replication_factor=factor, partitions=self._read_number(table, counted, 1, 100),
            topics=counted == "topics",
            workload=self._read_one_of(table, "workload", "log", self._words.workloads),
            acks=self._read_one_of(table, "acks", "all", ("all", "1", "0")),
            links=self._read_one_of(table, "links", "", ("direct", "proxied", "")) or None,
        )  # fmt: skip

    def _read_number(self, table: Mapping[str, Any], key: str, default: int, most: int) -> int:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self._refuse(self._places.of("cluster", key), f"{key} is {value!r}, should be 1 to {most}")
        return value

    def _read_one_of(self, table: Mapping[str, Any], key: str, default: str, valid: Sequence[str]) -> str:
        value = table.get(key, default)
        if value not in valid:
            self._refuse(self._places.of("cluster", key),
                         f"{key} is {value!r}; valid: {', '.join(filter(None, valid))}")
        return str(value)

    def _read_config(self, setting: Setting) -> dict[str, str]:
        config = {"min.insync.replicas": str(max(1, setting.replication_factor - 1))}
        for key, value in self._read_table("config").items():
            config[key] = self._read_value(value, self._places.of("config", key), key)
        self._check_min_insync(config, setting, self._places.of("config", "min.insync.replicas"))
        return config

    def _read_value(self, value: object, line: int, key: str) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, int | str):
            self._refuse(line, f"{key} is {value!r}, should be a text, a number, true or false "
                               "(quote a key with dots in it)")
        return str(value)

    def _check_min_insync(self, config: Mapping[str, str], setting: Setting, line: int) -> None:
        least = config["min.insync.replicas"]
        if not least.isdecimal() or not 1 <= int(least) <= setting.replication_factor:
            self._refuse(line, f"min.insync.replicas is {least}, should be 1 to the replication factor, "
                               f"{setting.replication_factor}: nothing could be acked")

    # -- steps ------------------------------------------------------------------------------------------

    def _read_schedule(self, steps: str, setting: Setting
                  ) -> tuple[Schedule, tuple[int, ...], tuple[str, ...]]:
        """An error names its own line: first of lines that are no steps, then of wrong names in steps."""
        from floodmark.nemesis.steps import read_step  # with lark, which few commands need

        found: list[dict[str, Any]] = []
        lines: list[int] = []
        written: list[str] = []
        for number, line in enumerate(steps.splitlines(), first_line_of(
                self._text, self._places.of("", "steps"))):
            try:
                new = read_step(line)
            except Refused as error:
                self._refuse(number, str(error))
            found += new
            lines += [number] * len(new)
            written += [line.strip()] * len(new)
        if not found:
            self._refuse(self._places.of("", "steps"), "steps has no step")
        read = json_form.read(found, sources=[f"{self._path}:{number}" for number in lines],
                              nodes=setting.names, partitions=range(setting.partitions))
        return read, tuple(lines), tuple(written)

    # -- rows -------------------------------------------------------------------------------------------

    def _read_rows(self, config: Mapping[str, str], setting: Setting) -> tuple[Row, ...]:
        tables = self._data.get("run")
        if not isinstance(tables, list) or not tables:
            self._refuse(1, "has no [[run]]: on which rules does it run, and what must be found?")
        found: dict[str, Row] = {}
        for index, table in enumerate(tables):
            self._check_keys("run", table, ROW_KEYS, index=index)
            for row in self._read_rows_of_table(table, index):
                line = self._places.of("run", "", index)
                config_line = self._places.of("run", "config", index)
                self._check_min_insync({**config, **row.config}, setting, config_line)
                if row.topics and (not setting.topics or len(row.topics) != setting.partitions):
                    self._refuse(self._places.of("run", "topics", index), "topics has the keys of "
                                 f"{len(row.topics)}, and [cluster] topics should say how many there are")
                if row.label in found:
                    self._refuse(line, f"{row.label} was run before")
                found[row.label] = row
        return tuple(found.values())

    def _read_rows_of_table(self, table: Mapping[str, Any], index: int) -> Iterator[Row]:
        at = self._places.of("run", "config", index)
        config = table.get("config", {})
        if not isinstance(config, dict):
            self._refuse(at, f"config is {config!r}, should be a table of Kafka's keys")
        fields = {**table, "config": {key: self._read_value(value, at, key) for key, value in config.items()}}
        try:
            yield from rows(fields, self._words)
        except Refused as error:
            key = next((key for key in ROW_KEYS if str(error).startswith(f"{key} ")), "")
            self._refuse(self._places.of("run", key, index), str(error))

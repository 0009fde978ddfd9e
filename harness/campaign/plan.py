"""Reads a campaign's plan, a TOML file: what to test, how often, and within which bounds.
README.md, "Plans", has every key.

Rules
1. A plan that is not valid is refused before anything runs, with the file and the line.
2. Two axes never set the same key of a case, except `config`, which is merged from all axes.
3. The n-th run of a plan is the same in every process: its case and its seed depend only on the plan and the
   campaign's seed. So a campaign that was killed continues with the runs that would have come next.
4. Whenever a campaign stops, each case has had its share of the runs, as exactly as a number of runs allows.
5. A run without a fault, or in which no client waited, passes the gates on times. If a run could not be
   measured, it is unknown whether it passes.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from floodmark.harness import catalog
from floodmark.harness.errors import UsageError
from floodmark.harness.registered import CLUSTER, WORKLOAD
from floodmark.harness.run_location import read_text
from floodmark.harness.spec import DRAWN, TYPES, RunSpec, converted, field_value, seconds, size_bytes
from floodmark.harness.toml_file import TomlFile

PRESETS = Path(__file__).with_name("presets")
KAFKA_PLAN, KAFKA_VERSION = "-kafka", "4.3.1"  # a preset's other form, and the version that it names
BYTES_AT_MOST = 1 << 20
MOST_CASES = 100_000
SEEDS = 1 << 31
AXES: Mapping[str, tuple[str, ...]] = {
    "system": ("rules", "bugs", "config", "kafka", "bootstrap"),
    "workload": ("workload", "concurrency", "rate", "partitions"),
    "guarantees": ("acks", "replication_factor", "config"),
    "cluster": ("cluster", "nodes", "links"),
    "nemesis": ("nemesis", "scenario", "interval", "overspend", "duration", "systems"),
}
_TABLES = ("except", *AXES)  # [[NAME]]
_TOP = ("for", "duration", "disk", "at_once", "reproduce", "bank", "settings", "gates", *_TABLES)
MAX_UNAVAILABLE_S, MAX_RECOVERY_S, MIN_ACKED = GATES = ("max_unavailable_s", "max_recovery_s", "min_acked")
GATE = "gate"  # the result of a run that is valid and breaks a gate of its plan
VERSION = re.compile(r"\d+\.\d+(\.\d+)*([.-][0-9A-Za-z]+)*")  # of Apache Kafka
_FIELDS = {"for": "budget_s", "disk": "disk_bytes"}  # a key at the top -> a field of Plan with another name
_PARSED: Mapping[str, Callable[[str], float]] = {"for": seconds, "disk": size_bytes}
_KINDS: Mapping[str, Any] = {  # of the keys that are no option of a run
    "at_once": Annotated[int, Meta(ge=1)], "systems": tuple[str, ...],
    **dict.fromkeys(("reproduce", "bank"), Annotated[int, Meta(ge=0)]),
    **dict.fromkeys((*GATES, "weight"), Annotated[float, Meta(ge=0)]),
}
_DRAWABLE = {"nodes", "partitions", "replication_factor", "workload"}
# The fields of a case in a campaign's files, and what they are called there: `said` is what the plan sets.
CASE_KEYS = tuple(sorted({*itertools.chain(*AXES.values()), "settings"} - {"bootstrap", "systems"}))
SAID = "said"
_Entry = tuple[Mapping[str, Any], float]  # the options that an entry of an axis sets, and its weight


def case_to_json(case: RunSpec) -> dict[str, Any]:
    """A case as a campaign's files have it: a cell of the matrix, a spec without seed and folder."""
    return {**{name: list(value) if isinstance(value := getattr(case, name), tuple) else value
               for name in CASE_KEYS}, SAID: sorted(case.given)}


def case_of_json(row: Mapping[str, Any]) -> RunSpec:
    """Read a case; KeyError or ValueError where this is no case. Another floodmark may know other names."""
    values = {name: row[name] for name in CASE_KEYS if name in row or name == "rules"}
    return RunSpec(given=frozenset(row.get(SAID, ())),
                   **{name: converted(value, TYPES[name], name) for name, value in values.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A case and its share of the runs, relative to the other cases."""

    case: RunSpec
    weight: float  # above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan as read. None: not set."""

    cases: tuple[Weighted, ...]
    budget_s: float | None = None
    disk_bytes: int | None = None
    at_once: int | None = None
    reproduce: int = 5
    bank: int = 10
    gates: Mapping[str, float] = field(default_factory=dict)
    text: str = ""  # the file's text


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One planned run of a campaign. number: from 1."""

    number: int
    case: RunSpec
    seed: int

    @property
    def name(self) -> str:
        return f"{self.number:05d}-{self.case.system}-{self.case.faults.replace(',', '+')}-{self.seed}"


def draws(cases: Sequence[Weighted], seed: int, first: Sequence[tuple[RunSpec, int]] = ()) -> Iterator[Draw]:
    """Yield all runs, without end: those of `first` (a case and its seed), then the matrix by smooth weighted
    round robin, which takes the case that is furthest behind its share."""
    for number, (case, known) in enumerate(first, 1):
        yield Draw(number=number, case=case, seed=known)
    total = sum(one.weight for one in cases)
    credit = [0.0] * len(cases)
    for number in itertools.count(len(first) + 1):
        credit = [earned + one.weight for earned, one in zip(credit, cases, strict=True)]
        best = max(range(len(cases)), key=lambda position: (credit[position], -position))
        credit[best] -= total
        yield Draw(number=number, case=cases[best].case, seed=seed_of(seed, number))


def seed_of(seed: int, number: int) -> int:
    """The seed of a campaign's n-th run. Runs have consecutive seeds, which draw different settings."""
    first = int.from_bytes(hashlib.sha256(f"{seed}".encode()).digest()[:8])
    return (first + number) % SEEDS


# -- reading ------------------------------------------------------------------------------------------------

def presets(kafka: str | None = None) -> tuple[str, ...]:
    names = sorted(path.stem for path in PRESETS.glob("*.toml"))
    return tuple(name.removesuffix(KAFKA_PLAN) for name in names
                 if name.endswith(KAFKA_PLAN) == (kafka is not None))


def preset_text(name: str, kafka: str | None = None) -> str:
    """The preset's plan. kafka: for this version. UsageError for an unknown name, or what is no version."""
    on = "" if kafka is None else " for Apache Kafka"
    if name not in presets(kafka):
        raise UsageError(f"no preset {name!r}{on}; there are: {', '.join(presets(kafka))}")
    if kafka is None:
        return (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
    if not VERSION.fullmatch(kafka):
        raise UsageError(f"--kafka {kafka}: a campaign takes a version of Apache Kafka, such as "
                         f"{KAFKA_VERSION}")
    text = (PRESETS / f"{name}{KAFKA_PLAN}.toml").read_text(encoding="utf-8")
    return text.replace(KAFKA_VERSION, kafka)


def load(path: Path) -> Plan:
    """Read the plan in this file; UsageError where it is not valid."""
    return read(read_text(path, "the plan", at_most=BYTES_AT_MOST), str(path))


def read(text: str, source: str) -> Plan:
    file, tables = TomlFile(source, text, "a plan"), ("gates", *_TABLES)
    found = file.values("", _TOP, lambda key, value: value if key in tables else _valid(key, value))
    axes = [_axis(file, name) for name in AXES]
    exceptions = [file.values("except", CASE_KEYS, _excepted, index)
                  for index in range(len(file.tables("except")))]
    usual = {key: found.pop(key) for key in ("settings", "duration") if key in found}
    return Plan(cases=_cases(file, axes, exceptions, **usual), text=file.text,
                gates=file.values("gates", GATES, _valid),
                **{_FIELDS.get(key, key): value for key, value in found.items() if key not in tables})


# -- the matrix ---------------------------------------------------------------------------------------------

def _axis(file: TomlFile, name: str) -> list[_Entry]:
    entries: list[_Entry] = []
    for index in range(len(file.tables(name))):
        options = file.values(name, (*AXES[name], "weight"), _valid, index)
        weight = options.pop("weight", 1.0)
        if options.get("scenario") and "nemesis" in options:
            file.refuse("an entry has a nemesis or a scenario, not both", "nemesis", name, index)
        if weight:
            entries.append((options, weight))
    if name in file.data and not entries:
        file.refuse(f"no [[{name}]] has a weight above 0, so nothing would run: give one a weight, "
                    "or remove the table", name)
    return entries or [({}, 1.0)]


def _refuse_unknown_systems(file: TomlFile, systems: Sequence[_Entry]) -> None:
    """Refuse unknown names in `systems`: a misspelled name would silently leave out a nemesis."""
    there = sorted({RunSpec(**{**options, "config": ()}).system for options, _ in systems})
    for index, found in enumerate(file.tables("nemesis")):
        for system in found.get("systems", ()):
            if system not in there:
                file.refuse(f"no [[system]] is {system!r}; there are: {', '.join(there)}", "systems",
                            "nemesis", index)


def _cases(file: TomlFile, axes: Sequence[Sequence[_Entry]],
           exceptions: Sequence[Mapping[str, frozenset[Any]]], *, settings: str = DRAWN, **usual: Any
           ) -> tuple[Weighted, ...]:
    size = math.prod(map(len, axes))
    if size > MOST_CASES:
        file.refuse(f"the matrix has {size:,} cases; at most {MOST_CASES:,} can be planned")
    _refuse_unknown_systems(file, axes[0])
    cases = []
    excepting: set[int] = set()  # the positions of exceptions that agree with a combination
    for entries in itertools.product(*axes):
        options: dict[str, Any] = dict(usual)
        for mine, _ in entries:
            options |= {**mine, "config": options.get("config", ()) + mine.get("config", ())}
        systems = options.pop("systems", None)
        if settings == DRAWN and not options.get("scenario"):  # a scenario has settings of its own
            options |= {"settings": DRAWN, "given": frozenset(_DRAWABLE & options.keys())}
        case = RunSpec(**options)
        agreeing = [index for index, one in enumerate(exceptions) if _agrees(case, one)]
        excepting.update(agreeing)
        if (systems is None or case.system in systems) and not agreeing:
            cases.append(Weighted(case=case, weight=math.prod(weight for _, weight in entries)))
    if not cases:
        file.refuse("every combination is excepted, so nothing would run: remove an [[except]], or "
                    "`systems` of a [[nemesis]]", "except")
    for index in sorted({*range(len(exceptions))} - excepting):
        file.refuse("no combination has all these values, so nothing is excepted: correct them, or "
                    "remove the [[except]]", next(iter(exceptions[index]), ""), "except", index)
    return tuple(cases)


def _valid(key: str, value: Any) -> Any:
    """The value of any other key; ValueError where it is not valid."""
    if key in _PARSED:
        if not isinstance(value, str):
            raise ValueError(f"{key} is {value!r}, should be a text such as \"20min\" or \"20 GB\"")
        try:
            return _PARSED[key](value)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    if key in _KINDS:
        return converted(value, _KINDS[key], key)
    if key == "bootstrap":
        raise ValueError(f"{key}: campaigns cannot run a cluster of your own yet")
    if key == "config":
        if not isinstance(value, dict):
            raise ValueError(f"config is {value!r}, should be a table of Kafka's keys")
        for name, one in value.items():
            if isinstance(one, bool | float) or not isinstance(one, str | int):
                raise ValueError(f"config: {name} is {one!r}, should be a text or a whole number")
    if key == "kafka" and not (isinstance(value, str) and VERSION.fullmatch(value)):
        raise ValueError(f"kafka is {value!r}, should be a version of Apache Kafka, such as \"4.3.1\"")
    value = field_value(key, value)
    if key in (CLUSTER, WORKLOAD):
        value = catalog.present_name(value) if key == CLUSTER else value
        if value not in catalog.names(key):
            raise ValueError(f"{key} is {value!r}; valid: {', '.join(catalog.names(key))}")
    if value == "":
        raise ValueError(f"{key} is {value!r}, should be a name")
    return value


def _excepted(key: str, value: Any) -> frozenset[Any]:
    """What an exception names: one value or alternatives; of `bugs` and `config` all values."""
    if key in ("bugs", "config"):
        return frozenset(_valid(key, value))
    return frozenset(_valid(key, one) for one in (value if isinstance(value, list) else (value,)))


def _agrees(case: RunSpec, exception: Mapping[str, frozenset[Any]]) -> bool:
    row = case_to_json(case)
    return bool(exception) and all(frozenset(row[key]) == named if isinstance(row[key], list)
                                   else row[key] in named for key, named in exception.items())

"""Defines what a run is: RunSpec, one typed class, whoever asks for a run.

It is read from the command line (cli/options.py makes the options from its fields), a campaign's plan
(campaign/plan.py), a campaign's state, run.json (saved_run.py) and a pytest fixture
(commands/pytest_support.py).

Rules
1. To add an option of a run, add a field with `option(...)`. Its type and Meta say what is allowed, in every
   source. `saved` writes it to run.json, and reproduces it; campaign/plan.py says which plans may set.
2. A value that is not allowed is a ValueError that names the field, the value and what is allowed. Who reads
   a file adds where it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, inspect

from floodmark.harness.errors import UsageError
from floodmark.harness.protocols import (
    USUAL_LOAD,
    Cluster,
    LoadShape,
    PartitionSpec,
    ScheduleRunner,
    Workload,
)
from floodmark.harness.registered import CLUSTER, NEMESIS, WORKLOAD

if TYPE_CHECKING:
    from floodmark.harness.schedule.moments import Schedule

RULES = ("high-watermark", "kip-101", "kip-279", "kip-320")  # the protocol generations, the oldest first
FIXED, DRAWN = "fixed", "drawn"  # the two kinds of `settings`
DIRECT, PROXIED = "direct", "proxied"  # the two kinds of `links`
TOPIC = "log"  # of a run's partitions
OPTION = "option"  # the key of a field's metadata
Count = Annotated[int, Meta(ge=1)]
PARTITIONS_AT_MOST = 10_000  # of a reproduction too: a run.json may come from a stranger
YEAR_S = 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What the command line has to know of a field, besides its type and its default."""

    help: str | None = None
    flags: tuple[str, ...] = ()  # absent: --the-field
    metavar: str | None = None
    default_text: str | None = None  # shown for a default of None or ()
    choices: tuple[str, ...] = ()
    most: int | None = None  # only for the command line
    kind: str | None = None  # of names that others may register; or TIME
    file: bool = False
    own_cluster: Literal["takes", "refuses", None] = None  # what a user's own cluster does with it
    saved: str | None = None  # its key in run.json, if a reproduction takes it from there by its name alone


TIME = "time"


def option(default: Any, **about: Any) -> Any:
    """A field of RunSpec that is an option of the command line."""
    return field(default=default, metadata={OPTION: Option(**about)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What a run is, as asked for. The order of the options is that of --help."""

    cluster: str = option("local", kind=CLUSTER, own_cluster="refuses")  # the place
    nodes: Count = option(3, most=9, help="Brokers.", own_cluster="refuses")
    kafka: str | None = option(
        None, metavar="VERSION|DIR|IMAGE", default_text="the reference broker", own_cluster="refuses",
        help="Run Apache Kafka of this version, the one unpacked in this folder, or the one in this image "
             "(apache/kafka:4.3.1), which runs only in containers.")
    topic_config: tuple[str, ...] = option(
        (), flags=("-t", "--topic-config"), metavar="KEY=VALUE",
        help="A Kafka key of topics, for every new topic (repeatable).")
    rules: str = option(RULES[-1], choices=RULES, help="The protocol generation.", own_cluster="refuses")
    bugs: tuple[str, ...] = option(
        (), flags=("--bug",), metavar="NAME", default_text="none", own_cluster="refuses",
        help="A known bug of the protocol, switched on (repeatable).")
    config: tuple[str, ...] = option(
        (), flags=("-c", "--config"), metavar="KEY=VALUE",
        default_text="min.insync.replicas: one less than the replicas; sessions and lag: 2 s",
        help="A Kafka key for every broker (repeatable).")
    links: str | None = option(
        None, choices=(DIRECT, PROXIED), default_text="proxied where a run may cut, else direct",
        help="Only proxied links can be cut.", own_cluster="refuses")
    workload: str = option("log", kind=WORKLOAD)
    concurrency: Annotated[int, Meta(ge=0, le=10_000)] = option(
        10, saved="concurrency", help="Client processes.")
    rate: Annotated[float, Meta(gt=0, le=1e9)] | None = option(
        None, saved="rate", default_text="as fast as answers come; simulated: 100",
        help="Ops a second, all processes together.")
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_AT_MOST)] = option(4)
    replication_factor: Count | None = option(
        None, default_text="3, or --nodes if fewer", help="At most --nodes.")
    acks: str = option("all", choices=("all", "1", "0"), help="-1 is all.")
    nemesis: str = option("none", kind=NEMESIS, metavar="NAME,...")
    interval: Annotated[float, Meta(gt=0)] = option(5.0, help="Mean seconds between strikes.")
    overspend: bool = option(False, help="Faults may break more than the guarantees tolerate.")
    schedule_file: Path | None = option(
        None, flags=("--schedule",), file=True, default_text="by --nemesis",
        help="The faults as a JSON or TOML file, instead of --nemesis.")
    trace: bool = option(True, flags=("--trace/--no-trace",), own_cluster="refuses",
                         help="Whether the brokers write traces; failpoints need them.")
    settings: str = option(
        FIXED, choices=(FIXED, DRAWN), own_cluster="refuses",
        help="Drawn: all that you do not set (nodes, partitions, brokers' config, load, --interval) is drawn "
             "from the seed.")
    seed: int | None = option(None, default_text="drawn", help="The same seed gives the same schedule.")
    duration: Annotated[float, Meta(gt=0, le=YEAR_S)] = option(
        30.0, kind=TIME, saved="duration_s",
        help="Seconds, or with a unit: 20s, 4min. Planned faults are carried out, also if that takes longer.")
    out: Path | None = option(None, default_text="histories/runs/TIME-SEED",
                              help="The run's folder, absent or empty.")
    bootstrap: str | None = option(
        None, metavar="HOST:PORT,...", own_cluster="takes",
        help="Your own cluster, instead of one that is started; -c then sets its topics.")
    client_config: Path | None = option(
        None, metavar="FILE", file=True, own_cluster="takes",
        help="With --bootstrap: Kafka's client properties for TLS and SASL.")
    faults_file: Path | None = option(
        None, flags=("--faults",), metavar="FILE", file=True, own_cluster="takes",
        help="With --bootstrap: TOML with the commands that kill, start, cut ... its nodes.")
    may_break: bool = option(False, flags=("--i-may-break-this",), own_cluster="takes",
                             help="With --bootstrap: faults may strike that cluster.")
    # -- not of the command line ------------------------------------------------------------------------
    scenario: str | None = None  # of a campaign: it sets most of the others; rules and bugs select its row
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)  # single topics' keys
    assignment: tuple[PartitionSpec, ...] = ()  # exactly these partitions, whatever `partitions` says
    given: frozenset[str] = frozenset()  # set by the user: nothing is drawn for these
    load: LoadShape = USUAL_LOAD
    drawn: Mapping[str, Any] | None = field(default=None, hash=False)  # run.json's `drawn`; None: nothing was
    reproduces: Mapping[str, Any] | None = field(default=None, hash=False)  # run.json's `reproduces`
    asked: Mapping[str, Any] | None = field(default=None, hash=False)  # run.json's keys on what is tested

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))

    @property
    def factor(self) -> int:
        return min(3, self.nodes) if self.replication_factor is None else self.replication_factor

    @property
    def broker_config(self) -> dict[str, str]:
        """Kafka's keys for the brokers: the given ones, overriding a run's defaults."""
        usual = {"min.insync.replicas": str(max(1, self.factor - 1)),
                 "default.replication.factor": str(self.factor)}
        return {**usual, **pairs(self.config)}

    @property
    def system(self) -> str:
        """The system that runs: `kip-320`, `kip-320+ack-early`, `kafka-4.3.1+kip-320`."""
        parts = (self.rules, *self.bugs)
        return "+".join(parts if self.kafka is None else (f"kafka-{self.kafka}", *parts))

    @property
    def faults(self) -> str:
        """The faults that strike: the scenario's name, or the nemeses' names."""
        return self.scenario or self.nemesis

    @property
    def title(self) -> str:
        """A title for progress lines, without the options that have their usual value."""
        unusual = {name: value for name in TITLED if (value := getattr(self, name)) != USUAL[name]}
        words = [str(unusual.pop(name)) for name in ("workload", "cluster") if name in unusual]
        return " ".join((self.system, self.faults, *words, *(f"{name}={value}" for name, value in
                                                             unusual.items()), *self.config))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run that is ready to be made. The cluster is not started yet; the folder is absent or empty."""

    spec: RunSpec  # with a seed, a folder, links and `asked`
    run_id: str  # the id that the workload writes into its records
    version: str
    commit: str | None  # of floodmark's checkout; None: it does not run from a checkout
    cluster: Cluster
    partitions: tuple[PartitionSpec, ...]
    workload: Workload
    schedule_runner: ScheduleRunner
    schedule: Schedule = ()
    no_faults_reason: str | None = None  # why a requested nemesis will not strike
    settle_timeout_s: float = 30.0
    read_timeout_s: float = 120.0

    @property
    def folder(self) -> Path:
        assert self.spec.out is not None, "the plan was made for a folder"
        return self.spec.out

    @property
    def seed(self) -> int:
        assert self.spec.seed is not None, "the plan was made from a seed"
        return self.spec.seed


USUAL: Mapping[str, Any] = {one.name: one.default for one in fields(RunSpec)}
TITLED = ("workload", "cluster", "acks", "nodes", "partitions", "interval", "rate")
OPTIONS: Mapping[str, Option] = {one.name: one.metadata[OPTION] for one in fields(RunSpec) if one.metadata}
SAVED: Mapping[str, str] = {name: about.saved for name, about in OPTIONS.items() if about.saved is not None}
_NAMES = tuple(OPTIONS)
CLUSTER_OPTIONS = _NAMES[:_NAMES.index("workload")]  # those of a cluster, which run and cluster up share
TYPES: Mapping[str, Any] = get_type_hints(RunSpec, include_extras=True)


def decoded(values: Mapping[str, Any]) -> RunSpec:
    """The spec of plain values, as JSON has them; other names are ignored. ValueError for a wrong value."""
    return RunSpec(**{name: field_value(name, value) for name, value in values.items() if name in TYPES})


def field_value(name: str, value: Any) -> Any:
    """The value of a field, from a plain one. A mapping of Kafka's keys becomes KEY=VALUE words."""
    if isinstance(value, Mapping) and TYPES[name] == tuple[str, ...]:
        return key_values(value)
    found = converted(value, TYPES[name], name)
    choices = OPTIONS[name].choices if name in OPTIONS else ()
    if choices and found is not None and found not in choices:
        raise ValueError(f"{name} is {shortened(value)}; valid: {', '.join(choices)}")
    return found


def converted(value: Any, kind: Any, what: str) -> Any:
    """The value as this type; ValueError says what it is, and what is allowed."""
    try:
        found = msgspec.convert(value, kind, dec_hook=lambda to, plain: to(plain))
    except msgspec.ValidationError as error:
        raise ValueError(wrong_in(value, kind, what)) from error
    if isinstance(found, int | float) and not is_small(found):
        raise ValueError(f"{what} is {value}, should be {allowed(type_of(kind))}, of 64 bits")
    return found


def is_small(number: float) -> bool:
    """Whether it is a number that a run's files can have: of 64 bits, and neither infinite nor none."""
    return abs(number) < 1 << 63


def wrong_in(value: Any, kind: Any, what: str) -> str:
    """What is wrong with a value that is not of this type: the innermost wrong one, and what is allowed."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    inside: list[tuple[Any, Any, str]] = []
    if isinstance(value, Mapping) and get_origin(bare) is dict:
        of_key, of_item = get_args(bare)
        inside = [(key, of_key, f"a key of {what}") for key in value]
        inside += [(item, of_item, f"{key} of {what}") for key, item in value.items()]
    elif isinstance(value, Mapping) and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        inside = [(value[one.name], one.type, f"{one.name} of {what}" if what else one.name)
                  for one in msgspec.structs.fields(bare) if one.name in value]
    for item, of, name in inside:
        try:
            msgspec.convert(item, of)
        except msgspec.ValidationError:
            return wrong_in(item, of, name)
    return f"{what} is {shortened(value)}, should be {allowed(type_of(kind))}"


def type_of(kind: Any) -> inspect.Type:
    """What msgspec knows of a type; that of a value which is there, where None is allowed."""
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.UnionType):
        return info
    some = tuple(one for one in info.types if not isinstance(one, inspect.NoneType))
    return some[0] if len(some) == 1 else inspect.UnionType(some)


def allowed(info: inspect.Type) -> str:
    if isinstance(info, inspect.IntType | inspect.FloatType):
        noun = "a whole number" if isinstance(info, inspect.IntType) else "a number"
        if info.gt is not None:
            return f"{noun} above {info.gt:g}" + (f" and at most {info.le:g}" if info.le is not None else "")
        if info.ge is None:
            return noun
        return f"{noun} from {info.ge} to {info.le}" if info.le is not None else f"{noun}, {info.ge} or more"
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if isinstance(info, inspect.LiteralType):
        return f"one of {', '.join(map(str, info.values))}"
    if isinstance(info, inspect.VarTupleType):
        if isinstance(info.item_type, inspect.StrType):
            return "a list of names" if info.max_length is None else f"a list of 1 to {info.max_length} names"
        return f"a list of 1 to {info.max_length}, each {allowed(info.item_type)}"
    if isinstance(info, inspect.DictType | inspect.ListType):
        noun = "an object" if isinstance(info, inspect.DictType) else "a list"
        return noun if info.max_length is None else f"{noun} of at most {info.max_length:,}"
    if isinstance(info, inspect.StructType | inspect.DataclassType):
        return f"an object with {', '.join(one.name for one in info.fields if one.required) or 'fields'}"
    if isinstance(info, inspect.UnionType):
        return ", ".join(map(allowed, info.types[:-1])) + f" or {allowed(info.types[-1])}"
    return "a name" if getattr(info, "pattern", None) is None else "a valid name"


def shortened(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def key_values(config: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in config.items())


def pairs(words: Sequence[str], option: str = "-c") -> dict[str, str]:
    split = [word.partition("=") for word in words]
    for key, equals, _ in split:
        if not key or not equals:
            raise UsageError(f"{option} takes KEY=VALUE, not {key + equals!r}")
    for word in words:
        if not word.strip().isprintable():
            raise UsageError(f"{option} {word!a}: a key and its value are one line without control "
                             "characters")
    return {key.strip(): value.strip() for key, _, value in split}


# -- times and sizes, as people write them

_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(?:h|hours?))?\s*(?:(\d+(?:\.\d+)?)\s*(?:m|min|minutes?))?\s*"
                   r"(?:(\d+(?:\.\d+)?)\s*(?:s|seconds?))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|M|G|T)?B")
_UNITS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def seconds(text: str) -> float:
    """Read a time; ValueError where it is not a time above 0 and of a year at most."""
    found = _TIME.fullmatch(text.strip())
    parts = found.groups() if found is not None else ()
    total = sum(float(part or 0) * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    if total > YEAR_S:
        raise ValueError(f"{shortened(text)} is more than a year")
    if not total:
        raise ValueError(f"{text!r} is not a time: write 90s, 20min, 4h or 1h30min")
    return total


def size_bytes(text: str) -> int:
    """Read a size; ValueError where it is not a size above 0."""
    found = _SIZE.fullmatch(text.strip())
    total = float(found[1]) * _UNITS[found[2]] if found is not None else 0.0
    if not 1 <= total < math.inf:
        raise ValueError(f"{text!r} is not a size: write 500 MB or 20 GB")
    return int(total)

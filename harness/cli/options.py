"""Defines options that several commands share, and turns a command's result into its exit."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from floodmark.harness import catalog
from floodmark.harness.campaign.quantities import seconds
from floodmark.harness.commands import error_exits
from floodmark.harness.errors import UsageError
from floodmark.harness.registered import CLUSTER, NEMESIS, WORKLOAD, registered
from floodmark.harness.spark_options import workers

RUN_FOLDER = click.Path(path_type=Path)
OWN_CLUSTER = ("client_config", "faults_file", "may_break")
_NOT_OF_OWN = {  # options that do not apply to a user's own cluster
    "cluster": "--cluster", "system": "--system", "nodes": "--nodes", "rules": "--rules", "bugs": "--bug",
    "kafka": "--kafka", "links": "--links", "trace": "--trace", "settings": "--settings",
}
GATE = ("strict", "allow", "allow_unknown", "json_file", "junit_file", "markdown_file")


class Named(click.ParamType):  # type: ignore[type-arg]  # click before 8.2 takes no argument
    """The name of a workload or a cluster, of floodmark's own or of another distribution. A name that both
    have is ambiguous, and refused if a user types it; a default value means floodmark's own."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(catalog.own_names(self.name))}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        value = catalog.present_name(value) if self.name == CLUSTER else value
        typed = ctx is None or param is None or (
            ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT)
        if typed or value not in catalog.own_names(self.name):
            try:
                catalog.refuse_name(self.name, value)
            except UsageError as error:
                self.fail(str(error), param, ctx)
        return value


class Time(click.ParamType):  # type: ignore[type-arg]  # as above
    """A time in seconds, or with its unit, as campaigns take it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        try:
            return seconds(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Acks(click.Choice):  # type: ignore[type-arg]  # as above
    """all, 1 or 0; Kafka's -1 is all."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert("all" if value == "-1" else value, param, ctx))


class WithRegistered(click.Option):
    """An option whose help lists what other distributions register. They are searched only when help is
    shown."""

    kind = ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        own = catalog.own_names(self.kind)
        others = ", ".join(one.name_and_distribution for one in registered(self.kind) if one.name not in own)
        return (record[0], f"Also: {others}. {record[1]}".strip()) if record and others else record


class ClusterOption(WithRegistered):
    kind = CLUSTER


class WorkloadOption(WithRegistered):
    kind = WORKLOAD


class NemesisOption(WithRegistered):
    kind = NEMESIS


cluster_option = click.option(
    "--cluster", cls=ClusterOption, type=Named(CLUSTER), default="local", show_default=True)


kafka_option = click.option(
    "--kafka", metavar="VERSION|DIR|IMAGE", show_default="the reference broker",
    help="Run Apache Kafka of this version, the one unpacked in this folder, or the one in this image "
         "(apache/kafka:4.3.1), which runs only in containers.")


def exits(command: Callable[..., int]) -> Callable[..., None]:
    """Turn what a command returns or raises into an exit code and one sentence, without a traceback for
    users."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        sys.exit(error_exits.code_of(lambda: command(*args, **kwargs)))

    return wrapped


def set_by_hand() -> frozenset[str]:
    """The parameters of the current command that were set by the user."""
    context = click.get_current_context()
    return frozenset(name for name in context.params
                     if context.get_parameter_source(name) is not ParameterSource.DEFAULT)


def findings(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of findings that begin with this, for completion in a shell."""
    from floodmark.checkers.text.explain import known_findings

    return [name for name in known_findings() if name.startswith(begun)]


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add check's options, which run and rejudge also have; the command gets them as `through`, the gate."""

    @wraps(command)
    def judging(*args: Any, **options: Any) -> Any:
        from floodmark.harness.pipeline import gate

        gate_options = {name: options.pop(name) for name in GATE if name in options}
        return command(*args, through=gate(**gate_options), **options)

    given: Callable[..., Any] = judging
    for option in (
        file_option("--json", "json_file", "Write all verdicts to FILE."),
        click.option("--allow-unknown", is_flag=True, help="'unknown' passes the gate."),
        click.option(
            "--allow",
            multiple=True,
            metavar="NAME",
            shell_complete=findings,
            help="Findings of this name never fail the gate.",
        ),
        click.option("--strict", is_flag=True, help="Take every permitted finding for a bug."),
    ):
        given = option(given)
    return given


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reports that CI servers show."""
    for option in (
        file_option("--markdown", "markdown_file", "Write a page, fit for a GitHub step summary, to FILE."),
        file_option("--junit", "junit_file", "Write a JUnit report, a test case a run, to FILE."),
    ):
        command = option(command)
    return command


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for where the judge's Spark runs; the command gets them as `workers`."""

    @wraps(command)
    def choosing(*args: Any, master: str | None, conf: Sequence[str], **options: Any) -> Any:
        return command(*args, workers=workers(master, conf), **options)

    given: Callable[..., Any] = choosing
    for option in (
        click.option(
            "--conf",
            multiple=True,
            metavar="KEY=VALUE",
            help="A key of Spark's (repeatable), such as spark.driver.memory=8g.",
        ),
        click.option(
            "--master",
            metavar="URL",
            show_default="local[*], the cores of this machine",
            help="Spark's workers, such as spark://HOST:7077.",
        ),
    ):
        given = option(given)
    return given


def file_option(name: str, parameter: str, does: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that names a file to write."""
    return click.option(name, parameter, metavar="FILE", type=click.Path(path_type=Path), help=does)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a cluster, which run and cluster up share."""
    for option in (
        click.option(
            "--links",
            type=click.Choice(["direct", "proxied"]),
            show_default="proxied where a run may cut, else direct",
            help="Only proxied links can be cut.",
        ),
        click.option(
            "-c",
            "--config",
            "config",
            multiple=True,
            metavar="KEY=VALUE",
            show_default="min.insync.replicas: one less than the replicas; sessions and lag: 2 s",
            help="A Kafka key for every broker (repeatable).",
        ),
        click.option("--bug", "bugs", multiple=True, metavar="NAME", hidden=True, help="A known-bad rule."),
        click.option(
            "--rules",
            type=click.Choice(list(catalog.RULES)),
            default=catalog.RULES[-1],
            show_default=True,
            help="The protocol generation.",
        ),
        click.option(
            "-t",
            "--topic-config",
            "topic_config",
            multiple=True,
            metavar="KEY=VALUE",
            help="A Kafka key of topics, for every new topic (repeatable).",
        ),
        kafka_option,
        click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="Brokers."),
        cluster_option,
    ):
        command = option(command)
    return command


def own_cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a user's own cluster: where it is, and what may be done to it."""
    for option in (
        click.option("--i-may-break-this", "may_break", is_flag=True,
                     help="With --bootstrap: faults may strike that cluster."),
        click.option("--faults", "faults_file", metavar="FILE",
                     type=click.Path(path_type=Path, dir_okay=False),
                     help="With --bootstrap: TOML with the commands that kill, start, cut ... its nodes."),
        click.option("--client-config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                     help="With --bootstrap: Kafka's client properties for TLS and SASL."),
        click.option("--bootstrap", metavar="HOST:PORT,...",
                     help="Your own cluster, instead of one that is started; -c then sets its topics."),
    ):
        command = option(command)
    return command


def refuse_without_bootstrap(own: dict[str, Any]) -> None:
    """Raise UsageError for options of a user's own cluster without --bootstrap."""
    if any(own.values()):
        raise UsageError("--client-config, --faults and --i-may-break-this are for a cluster of your own: "
                         "name it by --bootstrap HOST:PORT")


def refuse_with_bootstrap() -> None:
    """Raise UsageError for options that the user set and that only floodmark's own clusters have."""
    context = click.get_current_context()
    given = [word for name, word in _NOT_OF_OWN.items()
             if context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)]
    if given:
        raise UsageError(f"{', '.join(given)} cannot be chosen for a cluster of your own: leave "
                         f"{'them' if len(given) > 1 else 'it'} out, or leave --bootstrap out")

"""Options that several commands share, and how a command ends."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from floodmark.harness import catalog
from floodmark.harness.commands import error_exits
from floodmark.harness.errors import UsageError
from floodmark.harness.registered import CLUSTER, NEMESIS, WORKLOAD, registered
from floodmark.harness.spark_options import workers

RUN_FOLDER = click.Path(path_type=Path)
OWN_CLUSTER = ("client_config", "faults_file", "may_break")
_NOT_OF_OWN = {  # what somebody's own cluster decides
    "cluster": "--cluster", "system": "--system", "nodes": "--nodes", "rules": "--rules", "bugs": "--bug",
    "kafka": "--kafka", "links": "--links", "trace": "--trace", "settings": "--settings",
}
GATE = ("strict", "allow", "allow_unknown", "json_file", "junit_file", "markdown_file")


class Named(click.ParamType):  # type: ignore[type-arg]  # click before 8.2 takes no argument
    """The name of a workload or a cluster, floodmark's own or of another distribution. Who types one of
    floodmark's own that another distribution has too could mean either, and is refused; a default is ours."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(catalog.own_names(self.name))}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        typed = ctx is None or param is None or (
            ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT)
        if typed or value not in catalog.own_names(self.name):
            try:
                catalog.refuse_name(self.name, value)
            except UsageError as error:
                self.fail(str(error), param, ctx)
        return value


class WithRegistered(click.Option):
    """An option whose help lists what other distributions register. Only who asks for help waits for that."""

    kind = ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        own = catalog.own_names(self.kind)
        others = ", ".join(one.brief for one in registered(self.kind) if one.name not in own)
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
    help="What runs: Apache Kafka of this version, unpacked in this folder, or in this image "
         "(apache/kafka:4.3.1), which runs in containers alone.")


def exits(command: Callable[..., int]) -> Callable[..., None]:
    """Turns what a command returns or raises into an exit code and one sentence; no traceback for users."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        sys.exit(error_exits.code_of(lambda: command(*args, **kwargs)))

    return wrapped


def set_by_hand() -> frozenset[str]:
    """The parameters of the command under way that do not have their default."""
    context = click.get_current_context()
    return frozenset(name for name in context.params
                     if context.get_parameter_source(name) is not ParameterSource.DEFAULT)


def findings(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of findings that begin so, for a shell that completes them."""
    from floodmark.checkers.text.explain import known_findings

    return [name for name in known_findings() if name.startswith(begun)]


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """check's options, which run and rejudge take too; the command gets them as one: `through`, the gate."""

    @wraps(command)
    def judging(*args: Any, **options: Any) -> Any:
        from floodmark.harness.commands.check import gate

        words = {name: options.pop(name) for name in GATE if name in options}
        return command(*args, through=gate(**words), **options)

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
    """What CI servers show, of judge_options' verdicts."""
    for option in (
        file_option("--markdown", "markdown_file", "Write a page, fit for a GitHub step summary, to FILE."),
        file_option("--junit", "junit_file", "Write a JUnit report, a test case a run, to FILE."),
    ):
        command = option(command)
    return command


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the judge's Spark works; the command gets them as one: `workers`."""

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
    """A file that is written as a whole."""
    return click.option(name, parameter, metavar="FILE", type=click.Path(path_type=Path), help=does)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a cluster is made of; run and cluster up share it."""
    for option in (
        click.option(
            "--links",
            type=click.Choice(["direct", "proxied"]),
            show_default="proxied where a run may cut, else direct",
            help="Proxied links can be cut.",
        ),
        click.option(
            "-c",
            "--config",
            "config",
            multiple=True,
            metavar="KEY=VALUE",
            show_default="min.insync.replicas: one less than the replicas; sessions and lag: 2 s",
            help="A Kafka key, for every broker (repeatable).",
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
            help="A Kafka key of topics, for every topic created (repeatable).",
        ),
        kafka_option,
        click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="Brokers."),
        cluster_option,
    ):
        command = option(command)
    return command


def own_cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Somebody's own cluster: where it is, who may do what to it."""
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
    """UsageError for words about somebody's own cluster where none is named."""
    if any(own.values()):
        raise UsageError("--client-config, --faults and --i-may-break-this are about a cluster of your own: "
                         "name it by --bootstrap HOST:PORT")


def refuse_with_bootstrap() -> None:
    """UsageError for options, given by hand, that only a cluster of floodmark's making has."""
    context = click.get_current_context()
    given = [word for name, word in _NOT_OF_OWN.items()
             if context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)]
    if given:
        raise UsageError(f"{', '.join(given)} cannot be chosen of a cluster that is yours already: leave "
                         f"{'them' if len(given) > 1 else 'it'} out, or leave --bootstrap out")

"""Defines options that several commands share, and turns a command's result into its exit."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import inspect

from floodmark.harness import catalog, spec
from floodmark.harness.campaign.quantities import seconds
from floodmark.harness.commands import error_exits
from floodmark.harness.errors import UsageError
from floodmark.harness.registered import CLUSTER, NEMESIS, WORKLOAD, registered
from floodmark.harness.spark_options import workers

RUN_FOLDER = click.Path(path_type=Path)
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


_SHOWN: Mapping[str | None, type[WithRegistered]] = {
    CLUSTER: ClusterOption, WORKLOAD: WorkloadOption, NEMESIS: NemesisOption}


def spec_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of these fields of a RunSpec."""

    def adding(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            command = _option_of(name, spec.OPTIONS[name])(command)
        return command

    return adding


def _option_of(name: str, about: spec.Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    usual = spec.USUAL[name]
    settings: dict[str, Any] = {"help": about.help, "hidden": about.hidden, "metavar": about.metavar}
    if about.kind == NEMESIS:
        settings["help"] = (f"{', '.join(catalog.NEMESES)}, all or none; `partition` means cut. In "
                            f"containers also {', '.join(catalog.MORE_NEMESES)}.")
    if usual is False:
        settings["is_flag"] = True
    else:
        settings["type"] = _type_of(name, about)
        settings["multiple"] = usual == ()
        settings |= {} if usual in (None, ()) else {"default": usual}
        settings["show_default"] = about.default_text or usual not in (None, ())
    if about.kind in _SHOWN:
        settings["cls"] = _SHOWN[about.kind]
    return click.option(*(about.flags or (f"--{name.replace('_', '-')}",)), name, **settings)


def _type_of(name: str, about: spec.Option) -> Any:
    if about.kind in (CLUSTER, WORKLOAD):
        return Named(about.kind)
    if about.kind == spec.TIME:
        return Time()
    if about.choices:
        return (Acks if name == "acks" else click.Choice)(list(about.choices))
    info = spec.type_of(spec.TYPES[name])
    if isinstance(info, inspect.IntType) and info.ge is not None:
        return click.IntRange(info.ge, about.most)
    if isinstance(info, inspect.FloatType):
        return click.FloatRange(info.gt, min_open=True)
    if isinstance(info, inspect.CustomType):
        return click.Path(path_type=Path, dir_okay=not about.file)
    return int if isinstance(info, inspect.IntType) else bool if isinstance(info, inspect.BoolType) else str


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


def refuse_without_bootstrap(options: Mapping[str, Any]) -> None:
    """Raise UsageError for options of a user's own cluster without --bootstrap."""
    if any(options[name] for name, about in spec.OPTIONS.items() if about.own_cluster == "takes"):
        raise UsageError("--client-config, --faults and --i-may-break-this are for a cluster of your own: "
                         "name it by --bootstrap HOST:PORT")


def refuse_with_bootstrap() -> None:
    """Raise UsageError for options that the user set and that only floodmark's own clusters have."""
    context = click.get_current_context()
    given = [(about.flags or (f"--{name}",))[0].partition("/")[0] for name, about in spec.OPTIONS.items()
             if about.own_cluster == "refuses"
             and context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)]
    if given:
        raise UsageError(f"{', '.join(given)} cannot be chosen for a cluster of your own: leave "
                         f"{'them' if len(given) > 1 else 'it'} out, or leave --bootstrap out")

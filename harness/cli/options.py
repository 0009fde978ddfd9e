"""Defines options that several commands share, and turns a command's result into its exit."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import inspect

from floodmark.harness import catalog, faults
from floodmark.harness.commands import error_exits
from floodmark.harness.errors import UsageError
from floodmark.harness.registered import CLUSTER, NEMESIS, WORKLOAD, registered
from floodmark.harness.spark_options import workers
from floodmark.harness.spec import OPTIONS, TIME, TYPES, USUAL, Option, RunSpec, is_small, seconds, type_of

RUN_FOLDER = click.Path(path_type=Path)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
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


# In a run's folder, and in a campaign's.
OURS = frozenset({"run.json", "history.jsonl", "replicas.jsonl", "trace.jsonl", "verdict.json",
                  "campaign.json", "campaign.db", "journal.jsonl"})


class WrittenFile(click.Path):
    """A file that the command writes, or replaces. Refused before any work: what must not be replaced (a
    folder, a pipe, a link: /dev/stdout is one; a file of a run), and a file that another option names."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        file = Path(str(super().convert(value, param, ctx)))
        if file.is_symlink() or (file.exists() and not file.is_file()):
            self.fail(f"{file} exists and is no plain file; name another file", param, ctx)
        if file.name in OURS and any(file.with_name(one).exists() for one in ("run.json", "campaign.json")):
            self.fail(f"{file} would replace a file of the run or campaign in {file.resolve().parent}; name "
                      "another file", param, ctx)
        others = {} if ctx is None else ctx.meta.setdefault(f"{__name__}.files", {})
        if others.setdefault(file.resolve(), param) is not param:
            self.fail(f"{others[file.resolve()].opts[0]} has {file} too: each needs a file of its own",
                      param, ctx)
        return file


class WithRegistered(click.Option):
    """An option whose help lists what other distributions register. They are searched only when help is
    shown."""

    def __init__(self, *words: Any, kind: str, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self._kind = kind

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        own = catalog.own_names(self._kind)
        others = ", ".join(one.name_and_distribution for one in registered(self._kind) if one.name not in own)
        return (record[0], f"Also: {others}. {record[1]}".strip()) if record and others else record


def options(*each: Decorator) -> Decorator:
    """Add these options, in their order."""

    def adding(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(each):
            command = option(command)
        return command

    return adding


def spec_options(*names: str) -> Decorator:
    """Add the options of these fields of a RunSpec."""
    return options(*(_option_of(name, OPTIONS[name]) for name in names))


def _option_of(name: str, about: Option) -> Decorator:
    usual = USUAL[name]
    settings: dict[str, Any] = {"help": about.help, "metavar": about.metavar}
    if about.kind == NEMESIS:
        settings["help"] = (f"{', '.join(catalog.NEMESES)}, all or none; `partition` means cut. In "
                            f"containers also {', '.join(faults.MORE_NEMESES)}.")
    if usual is False:
        settings["is_flag"] = True
    else:
        settings |= {"type": _type_of(name, about), "multiple": usual == (),
                     "show_default": about.default_text or usual not in (None, ())}
        settings |= {} if usual in (None, ()) else {"default": usual}
    if about.kind in (CLUSTER, WORKLOAD, NEMESIS):
        settings |= {"cls": WithRegistered, "kind": about.kind}
    return click.option(*(about.flags or (f"--{name.replace('_', '-')}",)), name, **settings)


def _type_of(name: str, about: Option) -> Any:
    if about.kind in (CLUSTER, WORKLOAD):
        return Named(about.kind)
    if about.kind == TIME:
        return Time()
    if about.choices:
        return (Acks if name == "acks" else click.Choice)(list(about.choices))
    info = type_of(TYPES[name])
    if isinstance(info, inspect.IntType) and info.ge is not None:
        return click.IntRange(info.ge, about.most or info.le)
    if isinstance(info, inspect.FloatType):
        least = info.ge if info.gt is None else info.gt
        return click.FloatRange(least, info.le, min_open=info.gt is not None)
    if isinstance(info, inspect.CustomType):
        return click.Path(path_type=Path, dir_okay=not about.file)
    return int if isinstance(info, inspect.IntType) else bool if isinstance(info, inspect.BoolType) else str


def exits(command: Callable[..., int]) -> Callable[..., None]:
    """Turn what a command returns or raises into an exit code and one sentence, without a traceback for
    users."""

    def with_writable_values(*args: Any, **given: Any) -> int:
        for param in click.get_current_context().command.params:
            value = given.get(str(param.name))
            for one in value if isinstance(value, tuple) else (value,):
                refuse_unwritable(param.opts[0], one)
        return command(*args, **given)

    @wraps(command)
    def wrapped(*args: Any, **given: Any) -> None:
        sys.exit(error_exits.code_of(lambda: with_writable_values(*args, **given)))

    return wrapped


def refuse_unwritable(option: str, value: object) -> None:
    """Raise UsageError for a value that JSON, and so a file of a run, cannot have."""
    if isinstance(value, int | float) and not is_small(value):
        raise UsageError(f"{option} is {value}, should be a number of 64 bits")
    if isinstance(value, str | Path):
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{option} is {str(value)!a}, which is no UTF-8: name it otherwise") from error


def command(group: click.Group, name: str, function: str, help_text: str, *params: Decorator) -> None:
    """Add a command that calls this function of harness/commands, `module:name`, and exits with its code. The
    function is imported only then. params: its arguments and options, in the order of --help."""
    group.command(name, help=help_text)(
        exits(options(*params)(catalog.late(f"floodmark.harness.commands.{function}"))))


def set_by_hand() -> frozenset[str]:
    """The parameters of the current command that were set by the user."""
    context = click.get_current_context()
    return frozenset(name for name in context.params
                     if context.get_parameter_source(name) is not ParameterSource.DEFAULT)


def findings(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of findings that begin with this, for completion in a shell."""
    from floodmark.checkers.text.explain import known_findings

    return [name for name in known_findings() if name.startswith(begun)]


def file_option(name: str, parameter: str, does: str, **settings: Any) -> Decorator:
    """An option that names a file to write."""
    return click.option(name, parameter, metavar="FILE", type=WrittenFile(), help=does, **settings)


def out_option(usual: str, what: str) -> Decorator:
    """The option that names a folder to make."""
    return click.option("--out", type=RUN_FOLDER, show_default=usual, help=f"{what}, absent or empty.")


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add check's options, which run and rejudge also have; the command gets them as `through`, the gate."""

    @options(
        click.option("--strict", is_flag=True, help="Take every permitted finding for a bug."),
        click.option("--allow", multiple=True, metavar="NAME", shell_complete=findings,
                     help="Findings of this name never fail the gate."),
        click.option("--allow-unknown", is_flag=True, help="'unknown' passes the gate."),
        file_option("--json", "json_file", "Write all verdicts to FILE."),
    )
    @wraps(command)
    def judging(*args: Any, **given: Any) -> Any:
        from floodmark.harness.pipeline import gate

        gate_options = {name: given.pop(name) for name in GATE if name in given}
        return command(*args, gate=gate(**gate_options), **given)

    return judging


report_options = options(  # reports that CI servers show
    file_option("--junit", "junit_file", "Write a JUnit report, a test case a run, to FILE."),
    file_option("--markdown", "markdown_file", "Write a page, fit for a GitHub step summary, to FILE."))


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for where the judge's Spark runs; the command gets them as `workers`."""

    @options(
        click.option("--master", metavar="URL", show_default="local[*], the cores of this machine",
                     help="Spark's workers, such as spark://HOST:7077."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE",
                     help="A key of Spark's (repeatable), such as spark.driver.memory=8g."),
    )
    @wraps(command)
    def choosing(*args: Any, master: str | None, conf: Sequence[str], **given: Any) -> Any:
        return command(*args, workers=workers(master, conf), **given)

    return choosing


def refuse_misplaced(spec: RunSpec) -> None:
    """Raise UsageError for options of a user's own cluster without --bootstrap, and for options with it that
    only floodmark's own clusters have."""
    misplaced = "takes" if spec.bootstrap is None else "refuses"
    given = [(about.flags or (f"--{name}",))[0].partition("/")[0] for name, about in OPTIONS.items()
             if about.own_cluster == misplaced and name in spec.given]
    if given and spec.bootstrap is None:
        raise UsageError("--client-config, --faults and --i-may-break-this are for a cluster of your "
                         "own: name it by --bootstrap HOST:PORT")
    if given:
        raise UsageError(f"{', '.join(given)} cannot be chosen for a cluster of your own: leave "
                         f"{'them' if len(given) > 1 else 'it'} out, or leave --bootstrap out")

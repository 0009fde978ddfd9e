"""The text of golden/replica.txt and controller.txt: an event with its arguments, messages as one line."""

from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from golden_text import as_written, text_of
from msgspec.structs import asdict

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import Batch, EpochEnd, Message

OUTPUT = ("= ", "~ ", "> ", ". ", "! ")
ERRORS = {code: name for name, code in vars(errors).items() if isinstance(code, int)}


def shown(value: Any) -> str:
    match value:
        case Batch():
            return f"{value.base_offset}-{value.last_offset}e{value.epoch}"
        case EpochEnd():
            return f"{value.epoch}:{value.end_offset}"
        case Message():
            given = {**asdict(value), "acks": None, "epochs": None}
            given["token"] = given.get("token") if str(given.get("token")).startswith("p") else None
            return " ".join([type(value).__name__, *fields(given)])
        case dict():
            return ":".join(map(shown, value.values()))
        case tuple() | list():
            return f"[{' '.join(map(shown, value))}]"
    return str(value).replace(" ", "_")


def fields(given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if name == "results":
            yield f"errors={shown([ERRORS[error] for _, _, error in value])}"
        elif value not in (None, ""):
            yield f"{name}={ERRORS.get(value, value) if name == 'error' else shown(value)}"


def line_text(line: Mapping[str, Any]) -> str:
    """Of a trace."""
    return " ".join([line["event"], *fields({**line, "event": None})])


def words_of(line: str) -> tuple[str, list[Any], dict[str, Any]]:
    """An event and its arguments, as Python writes them without blanks; a word is text."""
    def value(text: str) -> Any:
        try:
            return literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    name, *words = line.split()
    named = [word.partition("=")[::2] for word in words if "=" in word]
    return name, [value(one) for one in words if "=" not in one], {key: value(one) for key, one in named}


def happened_as_written(name: str, happen: Callable[..., Iterator[str]], request: pytest.FixtureRequest
                        ) -> None:
    """A file of events, each with what `happen` tells of it below; # begins a remark, == a story."""
    now = ""
    for line in text_of(name).splitlines():
        if not line.startswith(OUTPUT):
            now += f"{line}\n"
            if not line.startswith(("#", "==")):
                event, given, named = words_of(line)
                now += "".join(f"{one}\n" for one in happen(event, *given, **named))
    as_written(name, now, request)

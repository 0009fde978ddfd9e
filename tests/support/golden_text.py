"""Text files of tests/golden: compared with what comes out now, or written anew by `pytest --rewrite`."""

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"
ANSWERS = ("=", "!")
PYTHONS_OWN = re.compile(r" \(('utf-8' codec|not enough values|too many values|invalid literal) .*\)$")


def text_of(name: str) -> str:
    """Without the remark on the first line: what reads the file, and its legend."""
    return re.sub(r"\A# tests/.*\n", "", (GOLDEN / name).read_text())


def as_written(name: str, now: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        file, before = GOLDEN / name, text_of(name)
        file.write_text(file.read_text().removesuffix(before) + now)
    assert text_of(name) == now


def words_of(page: str) -> list[str]:
    """The text of a page (HTML), a row a line, with nothing of today or of this version."""
    text = re.sub(r"<(script|style|template)\b.*?</\1>", "", page, flags=re.DOTALL)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TODAY", " ".join(text.split()))
    text = re.sub(r"Made by floodmark \S+", "Made by floodmark", text)
    lines = re.sub(r"</(p|tr|h\d|li|section|details|summary)>", "\n", text).split("\n")
    return [words for line in lines if (words := " ".join(unescape(re.sub(r"<[^>]*>", " ", line)).split()))]


def cases_of(name: str) -> dict[str, list[str]]:
    """A file of cases, `== TITLE`: title -> what is given and, below `--`, what came out of it."""
    parts = [part.partition("\n") for part in text_of(name).removeprefix("== ").split("\n== ")]
    cases = {title: rest.split("--\n") for title, _, rest in parts}
    assert len(cases) == len(parts), f"{name}: two cases have one title"
    return cases


def case_as_written(
    name: str, cases: dict[str, list[str]], title: str, now: str, request: pytest.FixtureRequest
) -> None:
    given, *written = cases[title]
    if request.config.getoption("--rewrite"):
        cases[title] = [given, *(written := [now])]
        as_written(name, "".join(
            f"== {title}\n" + "--\n".join(part.strip() + "\n" for part in parts)
            for title, parts in cases.items()), request)
    assert [part.strip() for part in written] == [now.strip()]


def answered_as_written(name: str, answer: Callable[[str], str], request: pytest.FixtureRequest) -> None:
    """A file with an answer below each line, which begins with `=` or `!` (a refusal); # begins a heading."""
    given = [line for line in text_of(name).splitlines() if line[:1] not in ANSWERS]
    now = "".join(f"{line}\n" if line.startswith("#") else f"{line}\n{answer(line)}\n" for line in given)
    as_written(name, now, request)


def refused_as_written(
    kind: str, read: Callable[[Any], object], error: type[Exception], request: pytest.FixtureRequest,
    hidden: str = "",
) -> None:
    """The section of mistakes.txt about this kind: each line is JSON that is refused, with the refusal below
    it. hidden: what a refusal says of this run alone."""
    parts = text_of("mistakes.txt").removeprefix("== ").split("\n== ")
    (at,) = (number for number, part in enumerate(parts) if part.startswith(f"{kind}\n"))
    now = [kind]
    for line in parts[at].splitlines()[1:]:
        if line[:1] not in ANSWERS:
            with pytest.raises(error) as caught:
                read(json.loads(line))
            refusal = PYTHONS_OWN.sub("", str(caught.value))
            now += [line, f"! {refusal}".replace(hidden or "\0", "").replace("\n", " | ")]
    parts[at] = "\n".join(now)
    as_written("mistakes.txt", "== " + "\n== ".join(part.rstrip("\n") for part in parts) + "\n", request)

"""Text files of tests/golden: compared with what comes out now, or written anew by `pytest --rewrite`."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"
ANSWERS = ("=", "!")


def as_written(name: str, now: str, request: pytest.FixtureRequest) -> None:
    file = GOLDEN / name
    if request.config.getoption("--rewrite"):
        file.write_text(now)
    assert file.read_text() == now


def answered_as_written(name: str, answer: Callable[[str], str], request: pytest.FixtureRequest) -> None:
    """A file with an answer below each line, which begins with `=` or `!` (a refusal); # begins a heading."""
    given = [line for line in (GOLDEN / name).read_text().splitlines() if line[:1] not in ANSWERS]
    now = "".join(f"{line}\n" if line.startswith("#") else f"{line}\n{answer(line)}\n" for line in given)
    as_written(name, now, request)

"""What run.json tells of a moment that never came, in lines for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.schedule.entry import Schedule


def missed_of(schedule: Schedule, about: Mapping[str, Any]) -> list[str]:
    """Of a run just made: each entry that was missed, and why."""
    told = []
    for position in about["missed"]:
        entry = schedule[position]
        told.append(f"entry {position} of the schedule was missed: {' '.join((entry.f, *entry.nodes))}")
        told += missed_words(about["missed_words"].get(str(position), {}), indent=2)
    return told


def missed_words(words: Mapping[str, Any], *, indent: int = 0) -> list[str]:
    """What was waited for, what was seen instead, and the likely reasons; nothing where nothing is told."""
    return [" " * indent + line for line in _lines(words)]


def _lines(words: Mapping[str, Any]) -> Iterator[str]:
    if "waited_for" not in words:
        return
    yield f"waited for  {words['waited_for']}"
    for number, line in enumerate(_listed(words.get("seen"))):
        yield f"{'seen' if number == 0 else '':<12}{line}"
    for number, line in enumerate(_listed(words.get("likely"))):
        yield f"{'likely' if number == 0 else '':<12}{line}"


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []

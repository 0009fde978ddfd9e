"""Changes the type of one value in one line of a run's files, or removes it.

Rules kept here: only types change, because a value of the right type cannot be doubted; the files are those
that the twin reads line by line.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

MISTYPED = "mistyped"  # the kind of a folder with such a change
GONE = object()
ODD: tuple[Any, ...] = (
    GONE, None, True, 1.5, 1e300, 10**30, 7, "7", "", "\N{SNOWMAN}", [], [None], [1], ["n1"], [[1]], {},
    {"a": [1]})
FILES = ("history.jsonl", "replicas.jsonl", "trace.jsonl", "logs/n1.jsonl", "logs/n2.jsonl")
SHARES = (4, 1, 6, 1, 1)
# These are read by people only, or reported whatever their type.
LEFT_ALONE = frozenset({"acks", "error", "follower", "fault", "why", "cause", "moment"})
Place = tuple[str | int, ...]


def places(data: Any, at: Place = ()) -> list[Place]:
    """The places of all values in it, but not its own."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found: list[Place] = []
    for key, value in items:
        if key not in LEFT_ALONE:
            found += [(*at, key), *places(value, (*at, key))]
    return found


def object_of(line: str) -> Any:
    """The line's object; None if an earlier damage left none, or an empty one."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) and places(data) else None


def mistype(folder: Path, random: Random) -> str:
    """Changes the folder; returns a description of the change."""
    names = [name for name in FILES if (folder / name).is_file() and (folder / name).stat().st_size]
    if not names:  # an earlier damage has emptied or removed them all
        return "nothing: no file has a line"
    name = random.choices(names, [SHARES[FILES.index(name)] for name in names])[0]
    lines = (folder / name).read_text().split("\n")
    objects = {number: data for number, line in enumerate(lines) if (data := object_of(line))}
    if not objects:
        return f"nothing to {name}"
    number, data = random.choice(list(objects.items()))
    at = random.choice(places(data))
    holder = data
    for key in at[:-1]:
        holder = holder[key]
    was = holder[at[-1]]
    odd = random.choice([odd for odd in ODD if type(odd) is not type(was)])
    if odd is GONE:
        del holder[at[-1]]
    else:
        holder[at[-1]] = odd
    lines[number] = json.dumps(data)
    (folder / name).write_text("\n".join(lines))
    said = "gone" if odd is GONE else json.dumps(odd)
    return f"{name}:{number + 1} {'.'.join(map(str, at))} was {json.dumps(was)[:40]}, is {said}"

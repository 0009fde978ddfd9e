"""One value of one line of a run's files becomes something of another type, or goes.

Rules kept here: only types change, for what a value of the right type says is nobody's to doubt; the files
are those that the twin reads line by line.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

MISTYPED = "mistyped"  # the kind of such a folder
GONE = object()
ODD: tuple[Any, ...] = (
    GONE, None, True, 1.5, 1e300, 10**30, 7, "7", "", "\N{SNOWMAN}", [], [None], [1], ["n1"], [[1]], {},
    {"a": [1]})
FILES = ("history.jsonl", "replicas.jsonl", "trace.jsonl", "logs/n1.jsonl", "logs/n2.jsonl")
SHARES = (4, 1, 6, 1, 1)
# Read by people only, or in any way that is told.
LEFT_ALONE = frozenset({"acks", "error", "follower", "fault", "why", "cause", "moment"})
Place = tuple[str | int, ...]


def places(told: Any, at: Place = ()) -> list[Place]:
    """Of every value in it, but not of itself."""
    items = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    found: list[Place] = []
    for key, value in items:
        if key not in LEFT_ALONE:
            found += [(*at, key), *places(value, (*at, key))]
    return found


def object_of(line: str) -> Any:
    """None where an earlier damage has left no object, or an empty one."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and places(told) else None


def mistype(folder: Path, random: Random) -> str:
    """What was done to the folder."""
    names = [name for name in FILES if (folder / name).is_file() and (folder / name).stat().st_size]
    if not names:  # an earlier damage has emptied or taken them all
        return "nothing: no file has a line"
    name = random.choices(names, [SHARES[FILES.index(name)] for name in names])[0]
    lines = (folder / name).read_text().split("\n")
    objects = {number: told for number, line in enumerate(lines) if (told := object_of(line))}
    if not objects:
        return f"nothing to {name}"
    number, told = random.choice(list(objects.items()))
    at = random.choice(places(told))
    holder = told
    for key in at[:-1]:
        holder = holder[key]
    was = holder[at[-1]]
    odd = random.choice([odd for odd in ODD if type(odd) is not type(was)])
    if odd is GONE:
        del holder[at[-1]]
    else:
        holder[at[-1]] = odd
    lines[number] = json.dumps(told)
    (folder / name).write_text("\n".join(lines))
    said = "gone" if odd is GONE else json.dumps(odd)
    return f"{name}:{number + 1} {'.'.join(map(str, at))} was {json.dumps(was)[:40]}, is {said}"

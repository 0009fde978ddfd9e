"""Mutations of the bytes, lines and fields of a file of a run folder.

Rules kept here: a mutation changes one file and returns the file's name, or None if it has nothing to change;
soak_legal classifies the change, unless the mutation is registered with a kind, because only the mutation
itself shows it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from soak_legal import HARMLESS, HISTORY, ROWS, RUN, TAMPERING, TRACE, UNREADABLE

Files = dict[str, bytes | None]  # by name; None: a folder of that name is there
Change = Callable[[Files, Random], str | None]
DEEP = 5_000  # more than any reader of JSON follows
HUGE = 1 << 20
JUNK = (b"\0", b"\xff\xfe", b"\xc3\x28", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\r",
        b"\xe2\x80\xa8", b"nonsense", b"null", b"-", b"e", b".",
        "\N{ZERO WIDTH SPACE}".encode(), "\N{GRINNING FACE}".encode())
ODD = ("4611686018427387904", "9223372036854775808", "-1", "1e400", "1.5", "5.0", "true", '"5"', "null", "[]",
       "{}", '[[{"a":[null]}]]', "-9223372036854775808", "18446744073709551616", "0", "1", "NaN", '"\\u0000"',
       '"\\ud800"', '"\N{SNOWMAN}"', "007", "9223372036854775807")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A change with its name, and its kind unless soak_legal decides it."""

    change: Change
    kind: Callable[[str], str] | None  # by the name of the changed file


MUTATIONS: dict[str, Mutation] = {}


def mutation(kind: Callable[[str], str] | str | None = None) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        assert change.__name__ not in MUTATIONS
        fixed_kind = kind
        law = (lambda _: fixed_kind) if isinstance(fixed_kind, str) else fixed_kind
        MUTATIONS[change.__name__] = Mutation(change=change, kind=law)
        return change

    return register


def text_file(
    files: Files, random: Random, *, lines: bool = False, least: int = 1
) -> tuple[str, bytes] | None:
    """Some file that is not empty; the history as often as all others together."""
    names = [name for name, data in files.items() if data is not None and len(data) >= least
             and not name.endswith(".parquet") and not (lines and name == RUN)]
    if not names:
        return None
    name = HISTORY if HISTORY in names and random.random() < 0.4 else random.choice(sorted(names))
    return name, files[name] or b""


def some_line(files: Files, random: Random, least: int = 1) -> tuple[str, list[bytes], int] | None:
    """A file of lines, its lines, and the index of one that is not blank."""
    picked = text_file(files, random, lines=True)
    if picked is None:
        return None
    lines = picked[1].split(b"\n")
    spots = [spot for spot, line in enumerate(lines) if line.strip()]
    return (picked[0], lines, random.choice(spots)) if len(spots) >= least else None


def put(files: Files, name: str, lines: list[bytes]) -> str:
    files[name] = b"\n".join(lines)
    return name


# -- bytes --------------------------------------------------------------------------------------------------

@mutation()
def bits_flip(files: Files, random: Random) -> str | None:
    picked = text_file(files, random)
    if picked is None:
        return None
    data = bytearray(picked[1])
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    files[picked[0]] = bytes(data)
    return picked[0]


@mutation()
def a_line_feed_flips(files: Files, random: Random) -> str | None:
    """A line feed becomes another byte."""
    picked = some_line(files, random, 2)
    if picked is None:
        return None
    name, data = picked[0], bytearray(b"\n".join(picked[1]))
    ends = [spot for spot, byte in enumerate(data) if byte == 10]
    data[random.choice(ends)] ^= 1 << random.randrange(8)
    files[name] = bytes(data)
    return name


@mutation()
def bytes_go(files: Files, random: Random) -> str | None:
    picked = text_file(files, random, least=2)
    if picked is None:
        return None
    name, data = picked
    start = random.randrange(len(data))
    files[name] = data[:start] + data[start + random.choice((1, 1, 2, 9, 80)):]
    return name


@mutation()
def bytes_come(files: Files, random: Random) -> str | None:
    picked = text_file(files, random)
    if picked is None:
        return None
    name, data = picked
    start = random.randrange(len(data) + 1)
    files[name] = data[:start] + random.choice(JUNK) * random.choice((1, 1, 3)) + data[start:]
    return name


@mutation()
def the_end_is_cut(files: Files, random: Random) -> str | None:
    picked = text_file(files, random)
    if picked is None:
        return None
    files[picked[0]] = picked[1][:random.randrange(len(picked[1]))]
    return picked[0]


@mutation()
def a_piece_of_nothing(files: Files, random: Random) -> str | None:
    """As after a crash: some bytes are zeros."""
    picked = text_file(files, random)
    if picked is None:
        return None
    name, data = picked
    start = random.randrange(len(data))
    size = min(random.choice((1, 16, 512)), len(data) - start)
    files[name] = data[:start] + bytes(size) + data[start + size:]
    return name


# -- lines --------------------------------------------------------------------------------------------------

@mutation()
def a_line_goes(files: Files, random: Random) -> str | None:
    picked = some_line(files, random)
    if picked is None:
        return None
    name, lines, spot = picked
    return put(files, name, lines[:spot] + lines[spot + 1:])


def twice(name: str) -> str:
    """Lines are known by the index in a history, by the name in rows, by seq in a trace; in a dump it is
    damage."""
    return UNREADABLE if name in (HISTORY, ROWS, TRACE) else TAMPERING


@mutation(twice)
def a_line_comes_twice(files: Files, random: Random) -> str | None:
    picked = some_line(files, random)
    if picked is None:
        return None
    name, lines, spot = picked
    again = random.choice((spot, spot, random.randrange(len(lines)))) + 1
    return put(files, name, [*lines[:again], lines[spot], *lines[again:]])


def swapped(name: str) -> str:
    """Rows and events may be in any order; in a history the index is then wrong."""
    return {HISTORY: UNREADABLE, ROWS: HARMLESS, TRACE: HARMLESS}.get(name, TAMPERING)


@mutation(swapped)
def lines_change_places(files: Files, random: Random) -> str | None:
    picked = some_line(files, random, 2)
    if picked is None:
        return None
    name, lines, spot = picked
    other = random.choice([at for at, line in enumerate(lines) if line.strip() and at != spot])
    if lines[spot] == lines[other]:
        return None
    lines[spot], lines[other] = lines[other], lines[spot]
    return put(files, name, lines)


@mutation()
def lines_are_glued(files: Files, random: Random) -> str | None:
    picked = some_line(files, random, 2)
    if picked is None:
        return None
    name, lines, spot = picked
    if spot + 1 >= len(lines) or not lines[spot + 1].strip():
        return None
    glue = random.choice((b"", b" ", b",", b", ", b"\t", b"\r", b"\0", b";", b"\xff"))
    return put(files, name, [*lines[:spot], lines[spot] + glue + lines[spot + 1], *lines[spot + 2:]])


@mutation()
def a_line_of_something_else(files: Files, random: Random) -> str | None:
    picked = some_line(files, random)
    if picked is None:
        return None
    name, lines, spot = picked
    others = [line for other in files if other != name and not other.endswith(".parquet")
              for line in (files[other] or b"").split(b"\n")[:3]]
    line = random.choice([b"nonsense", b"[1]", b"17", b"null", b'"x"', b"{}", b"[" * DEEP, b'{"a":' * DEEP,
                          b"x" * HUGE, b'{"a":"' + b"y" * HUGE + b'"}', b"\xff\xfe\0", *others])
    end = spot if random.random() < 0.5 else spot + 1  # in place of a line, or before it
    return put(files, name, [*lines[:spot], line, *lines[end:]])


@mutation(HARMLESS)
def blank_lines_come(files: Files, random: Random) -> str | None:
    picked = some_line(files, random)
    if picked is None:
        return None
    name, lines, spot = picked
    blank = random.choice(([b""], [b"   "], [b"", b"", b""]))
    return put(files, name, [*lines[:spot], *blank, *lines[spot:]])


@mutation()
def the_last_line_feed_goes(files: Files, random: Random) -> str | None:
    picked = text_file(files, random)
    if picked is None or not picked[1].endswith(b"\n"):
        return None
    files[picked[0]] = picked[1].rstrip(b"\n")
    return picked[0]


# -- fields -------------------------------------------------------------------------------------------------

def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in it."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for one in value.values() for place in places(one)]
    if isinstance(value, list):
        return ([(value, key) for key in range(len(value))]
                + [place for one in value for place in places(one)])
    return []


def some_object(files: Files, random: Random) -> tuple[str, list[bytes], int, dict[str, Any]] | None:
    """A file, its lines, the index of one, and its object; run.json is one line."""
    if random.random() < 0.2 and files.get(RUN):
        picked: Any = RUN, [files[RUN]], 0
    else:
        picked = some_line(files, random)
    if picked is None:
        return None
    try:
        data = json.loads(picked[1][picked[2]])
    except (ValueError, RecursionError):
        return None
    return (*picked, data) if isinstance(data, dict) and data else None


def write(files: Files, name: str, lines: list[bytes], spot: int, text: str) -> str:
    return put(files, name, [*lines[:spot], text.encode(), *lines[spot + 1:]])


HERE = "\0here\0"  # marks the place of text that json cannot write


@mutation()
def a_value_is_another(files: Files, random: Random) -> str | None:
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, data = picked
    holder, key = random.choice(places(data))
    holder[key] = HERE
    return write(files, name, lines, spot, json.dumps(data).replace(json.dumps(HERE), random.choice(ODD)))


@mutation()
def a_field_goes(files: Files, random: Random) -> str | None:
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, data = picked
    holder, key = random.choice(places(data))
    del holder[key]
    return write(files, name, lines, spot, json.dumps(data))


@mutation()
def a_field_comes_twice(files: Files, random: Random) -> str | None:
    """A field a second time at the front or the end, with the same value or another."""
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, data = picked
    key = random.choice(sorted(data))
    value = json.dumps(data[key]) if random.random() < 0.3 else random.choice(ODD)
    text, again = json.dumps(data), f"{json.dumps(key)}:{value}"
    twice = "{" + again + "," + text[1:] if random.random() < 0.5 else text[:-1] + "," + again + "}"
    return write(files, name, lines, spot, twice)


@mutation(HARMLESS)
def it_is_said_in_other_words(files: Files, random: Random) -> str | None:
    """Fields in another order, spaces, escapes, and unknown fields."""
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, data = picked
    fields = list(data.items())
    random.shuffle(fields)
    fields.insert(random.randrange(len(fields) + 1), ("comment", random.choice(
        ({"why": [1, None]}, "\N{SNOWMAN}", "\u0000", [[]], "a" * 3000, 2**70, 1.5, "\\\"'"))))
    text = json.dumps(dict(fields), separators=random.choice(((",", ":"), (" , ", " : "))),
                      ensure_ascii=random.random() < 0.5)
    if random.random() < 0.3:
        text = text.replace('"index"', '"\\u0069ndex"').replace('"offset"', '"o\\u0066fset"')
    return write(files, name, lines, spot, random.choice(("", " ", "\t")) + text + random.choice(("", "  ")))


@mutation(UNREADABLE)
def the_clock_goes_back(files: Files, random: Random) -> str | None:
    """A line of the history is older than the one before."""
    return changed(files, random, "time", random.randrange)


@mutation(UNREADABLE)
def an_index_comes_twice(files: Files, random: Random) -> str | None:
    """A line of the history has the index of an earlier one."""
    return changed(files, random, "index", lambda before: random.randrange(before + 1))


def changed(files: Files, random: Random, field: str, smaller: Callable[[int], int]) -> str | None:
    """Sets a field of a line of the history to a smaller value than on the line before."""
    lines = (files.get(HISTORY) or b"").split(b"\n")
    spots = [spot for spot, line in enumerate(lines) if spot and line.strip() and lines[spot - 1].strip()]
    if not spots:
        return None
    spot = random.choice(spots)
    try:
        before, data = json.loads(lines[spot - 1]), json.loads(lines[spot])
        data[field] = smaller(before[field])
    except (ValueError, KeyError, TypeError):
        return None
    return write(files, HISTORY, lines, spot, json.dumps(data))


# -- the trace's lines on clients and on restarts -----------------------------------------------------------

def read_lines(files: Files, name: str) -> tuple[list[bytes], dict[int, dict[str, Any]]]:
    """The lines of a file, and those that are objects, by their index."""
    lines, objects = (files.get(name) or b"").split(b"\n"), {}
    for spot, line in enumerate(lines):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            objects[spot] = data
    return lines, objects


def is_number(value: object) -> bool:
    return type(value) is int and 0 < value < 1 << 62


@mutation(TAMPERING)
def a_start_finds_less(files: Files, random: Random) -> str | None:
    """A replica starts with a shorter log than it did: recovery-loss, if it surely had more."""
    lines, objects = read_lines(files, TRACE)
    spots = [spot for spot, data in objects.items()
             if data.get("event") == "start" and is_number(data.get("leo"))]
    if not spots:
        return None
    spot = random.choice(spots)
    objects[spot]["leo"] = random.randrange(objects[spot]["leo"])
    return write(files, TRACE, lines, spot, json.dumps(objects[spot]))


@mutation(TAMPERING)
def no_hw_is_that_high(files: Files, random: Random) -> str | None:
    """All lines of a partition have an HW below its highest: read-above-hw, end-offset-ahead."""
    lines, objects = read_lines(files, TRACE)
    data = {spot: line for spot, line in objects.items() if is_number(line.get("hw"))}
    if not data:
        return None
    partition = random.choice(list(data.values())).get("partition")
    mine = {spot: line for spot, line in data.items() if line.get("partition") == partition}
    most = random.randrange(max(line["hw"] for line in mine.values()))
    for spot, line in mine.items():
        lines[spot] = json.dumps(line | {"hw": min(line["hw"], most)}).encode()
    return put(files, TRACE, lines)


@mutation(TAMPERING)
def an_end_is_higher(files: Files, random: Random) -> str | None:
    """A client got a higher end offset: end-offset-ahead."""
    lines, objects = read_lines(files, HISTORY)
    spots = [spot for spot, data in objects.items() if data.get("f") == "list_offsets"
             and data.get("type") == "ok" and isinstance(data.get("offsets"), list) and data["offsets"]]
    if not spots:
        return None
    spot = random.choice(spots)
    one = random.choice(objects[spot]["offsets"])
    if not isinstance(one, dict) or not is_number(one.get("offset")):
        return None
    one["offset"] += random.randrange(1, 9)
    return write(files, HISTORY, lines, spot, json.dumps(objects[spot]))

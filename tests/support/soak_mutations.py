"""What can happen to the bytes, lines and fields of a file of a run folder.

Rules kept here: a mutation changes one file and answers its name, or None where it has nothing to change;
what the change amounts to is not its business but soak_legal's, unless it is registered with a kind, for
what can be known only of the mutation itself.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from soak_legal import HARMLESS, HISTORY, ROWS, RUN, TAMPERING, TRACE, UNREADABLE

Files = dict[str, bytes | None]  # by name; None: a folder of that name stands there
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
    """A change with its name, and its kind where that is not for soak_legal to say."""

    change: Change
    kind: Callable[[str], str] | None  # of the name of the file that was changed


MUTATIONS: dict[str, Mutation] = {}


def mutation(kind: Callable[[str], str] | str | None = None) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        assert change.__name__ not in MUTATIONS
        told = kind
        law = (lambda _: told) if isinstance(told, str) else told
        MUTATIONS[change.__name__] = Mutation(change=change, kind=law)
        return change

    return register


def text_file(
    files: Files, random: Random, *, lines: bool = False, least: int = 1
) -> tuple[str, bytes] | None:
    """Some file with anything in it, the history as often as all others together."""
    names = [name for name, data in files.items() if data is not None and len(data) >= least
             and not name.endswith(".parquet") and not (lines and name == RUN)]
    if not names:
        return None
    name = HISTORY if HISTORY in names and random.random() < 0.4 else random.choice(sorted(names))
    return name, files[name] or b""


def some_line(files: Files, random: Random, least: int = 1) -> tuple[str, list[bytes], int] | None:
    """A file of lines, its lines, and the place of one that is not blank."""
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
    """What parts two lines becomes something else."""
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
    """As after a crash: a stretch of zeros."""
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
    """A history knows by the index, the rows by the name, a trace by its seq; of a dump it is damage."""
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
    """Rows and events stand in no order; of the history's the index is wrong then."""
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
    end = spot if random.random() < 0.5 else spot + 1  # instead of a line, or before it
    return put(files, name, [*lines[:spot], line, *lines[end:]])


@mutation(HARMLESS)
def blank_lines_come(files: Files, random: Random) -> str | None:
    picked = some_line(files, random)
    if picked is None:
        return None
    name, lines, spot = picked
    blank = random.choice(([b""], [b"   "], [b"", b"", b""]))
    return put(files, name, [*lines[:spot], *blank, *lines[spot:]])


@mutation(HARMLESS)
def the_last_line_feed_goes(files: Files, random: Random) -> str | None:
    picked = text_file(files, random)
    if picked is None or not picked[1].endswith(b"\n"):
        return None
    files[picked[0]] = picked[1].rstrip(b"\n")
    return picked[0]


# -- fields -------------------------------------------------------------------------------------------------

def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for one in value.values() for place in places(one)]
    if isinstance(value, list):
        return ([(value, key) for key in range(len(value))]
                + [place for one in value for place in places(one)])
    return []


def some_object(files: Files, random: Random) -> tuple[str, list[bytes], int, dict[str, Any]] | None:
    """A file, its lines, the place of one, and the object that it is; run.json is all one line."""
    if random.random() < 0.2 and files.get(RUN):
        picked: Any = RUN, [files[RUN]], 0
    else:
        picked = some_line(files, random)
    if picked is None:
        return None
    try:
        told = json.loads(picked[1][picked[2]])
    except (ValueError, RecursionError):
        return None
    return (*picked, told) if isinstance(told, dict) and told else None


def write(files: Files, name: str, lines: list[bytes], spot: int, text: str) -> str:
    return put(files, name, [*lines[:spot], text.encode(), *lines[spot + 1:]])


HERE = "\0here\0"  # stands where something is to be written that json cannot write


@mutation()
def a_value_is_another(files: Files, random: Random) -> str | None:
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, told = picked
    holder, key = random.choice(places(told))
    holder[key] = HERE
    return write(files, name, lines, spot, json.dumps(told).replace(json.dumps(HERE), random.choice(ODD)))


@mutation()
def a_field_goes(files: Files, random: Random) -> str | None:
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, told = picked
    holder, key = random.choice(places(told))
    del holder[key]
    return write(files, name, lines, spot, json.dumps(told))


@mutation()
def a_field_comes_twice(files: Files, random: Random) -> str | None:
    """Once more at the front or the end, with the same value or another."""
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, told = picked
    key = random.choice(sorted(told))
    value = json.dumps(told[key]) if random.random() < 0.3 else random.choice(ODD)
    text, again = json.dumps(told), f"{json.dumps(key)}:{value}"
    twice = "{" + again + "," + text[1:] if random.random() < 0.5 else text[:-1] + "," + again + "}"
    return write(files, name, lines, spot, twice)


@mutation(HARMLESS)
def it_is_said_in_other_words(files: Files, random: Random) -> str | None:
    """Fields in another order, spaces, escapes, and fields that nobody knows."""
    picked = some_object(files, random)
    if picked is None:
        return None
    name, lines, spot, told = picked
    fields = list(told.items())
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
    """A field of a line of the history, to something smaller than on the line before."""
    lines = (files.get(HISTORY) or b"").split(b"\n")
    spots = [spot for spot, line in enumerate(lines) if spot and line.strip() and lines[spot - 1].strip()]
    if not spots:
        return None
    spot = random.choice(spots)
    try:
        before, told = json.loads(lines[spot - 1]), json.loads(lines[spot])
        told[field] = smaller(before[field])
    except (ValueError, KeyError, TypeError):
        return None
    return write(files, HISTORY, lines, spot, json.dumps(told))


# -- what the trace says of clients and of restarts ---------------------------------------------------------

def read_lines(files: Files, name: str) -> tuple[list[bytes], dict[int, dict[str, Any]]]:
    """The lines of a file, and those that are objects by their place."""
    lines, objects = (files.get(name) or b"").split(b"\n"), {}
    for spot, line in enumerate(lines):
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict):
            objects[spot] = told
    return lines, objects


def is_number(value: object) -> bool:
    return type(value) is int and 0 < value < 1 << 62


@mutation(TAMPERING)
def a_start_finds_less(files: Files, random: Random) -> str | None:
    """A replica starts with a shorter log than it did: recovery-loss, where it surely had more."""
    lines, objects = read_lines(files, TRACE)
    spots = [spot for spot, told in objects.items()
             if told.get("event") == "start" and is_number(told.get("leo"))]
    if not spots:
        return None
    spot = random.choice(spots)
    objects[spot]["leo"] = random.randrange(objects[spot]["leo"])
    return write(files, TRACE, lines, spot, json.dumps(objects[spot]))


@mutation(TAMPERING)
def no_hw_is_that_high(files: Files, random: Random) -> str | None:
    """All lines of a partition tell an HW below its highest: read-above-hw, end-offset-ahead."""
    lines, objects = read_lines(files, TRACE)
    told = {spot: line for spot, line in objects.items() if is_number(line.get("hw"))}
    if not told:
        return None
    partition = random.choice(list(told.values())).get("partition")
    mine = {spot: line for spot, line in told.items() if line.get("partition") == partition}
    most = random.randrange(max(line["hw"] for line in mine.values()))
    for spot, line in mine.items():
        lines[spot] = json.dumps(line | {"hw": min(line["hw"], most)}).encode()
    return put(files, TRACE, lines)


@mutation(TAMPERING)
def an_end_is_higher(files: Files, random: Random) -> str | None:
    """A client was told an end that lies further: end-offset-ahead."""
    lines, objects = read_lines(files, HISTORY)
    spots = [spot for spot, told in objects.items() if told.get("f") == "list_offsets"
             and told.get("type") == "ok" and isinstance(told.get("offsets"), list) and told["offsets"]]
    if not spots:
        return None
    spot = random.choice(spots)
    one = random.choice(objects[spot]["offsets"])
    if not isinstance(one, dict) or not is_number(one.get("offset")):
        return None
    one["offset"] += random.randrange(1, 9)
    return write(files, HISTORY, lines, spot, json.dumps(objects[spot]))

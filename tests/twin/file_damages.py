"""Damages to the files of a run folder: to bytes, to lines, to fields, to whole files.

Rules kept here: a damage changes the files (name -> bytes) and returns the name of one that it changed; where
it has nothing to change it raises Unfit.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from folders import Line
from random_runs import Unfit, one

Files = dict[str, bytes | None]  # by name; None: a folder of that name is there
Damage = Callable[[Files, Random], str]
HISTORY, RUN = "history.jsonl", "run.json"
DEEP = 5_000  # more than any reader of JSON follows
HUGE = 1 << 20
JUNK = (b"\0", b"\xff\xfe", b"\xc3\x28", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\r",
        b"\xe2\x80\xa8", b"nonsense", b"null", b"-", b"e", b".",
        "\N{ZERO WIDTH SPACE}".encode(), "\N{GRINNING FACE}".encode())
ODD = ("4611686018427387904", "9223372036854775808", "-1", "1e400", "1.5", "5.0", "true", '"5"', "null", "[]",
       "{}", '[[{"a":[null]}]]', "-9223372036854775808", "18446744073709551616", "0", "1", "NaN", '"\\u0000"',
       '"\\ud800"', '"\N{SNOWMAN}"', "007", "9223372036854775807", "1e300", "1" + 30 * "0", "7", '""',
       "[null]", "[1]", '["n1"]', "[[1]]", '{"a":[1]}', '"compact"', '"../../etc"')
HERE = "\0here\0"  # marks the place of text that json cannot write
DAMAGES: dict[str, Damage] = {}


def damage(of: Callable[[Any], Damage] = lambda change: change) -> Callable[[Any], Any]:
    """of: what it is a damage of; nothing: of the files themselves."""
    def register(change: Any) -> Any:
        DAMAGES[change.__name__] = of(change)
        return change

    return register


def of_bytes(change: Callable[[bytes, Random], bytes]) -> Damage:
    """Of the bytes of some file."""
    def of_file(files: Files, random: Random) -> str:
        name = text_file(files, random)
        files[name] = change(files[name] or b"", random)
        return name

    return of_file


def of_lines(change: Callable[[list[bytes], int, Random], Sequence[bytes]]) -> Damage:
    """Of a file of lines: its lines, and the index of one that is not blank."""
    def of_file(files: Files, random: Random) -> str:
        name, lines, spot = some_line(files, random)
        files[name] = b"\n".join(change(lines, spot, random))
        return name

    return of_file


def of_objects(change: Callable[[Line, Random], str]) -> Damage:
    """Of one line's object; run.json is one line."""
    def of_file(files: Files, random: Random) -> str:
        is_run = random.random() < 0.2 and files.get(RUN)
        name, lines, spot = (RUN, [files[RUN] or b""], 0) if is_run else some_line(files, random)
        lines[spot] = change(object_of(lines[spot]), random).encode()
        files[name] = b"\n".join(lines)
        return name

    return of_file


def text_file(files: Files, random: Random, *without: str) -> str:
    """Some file that is not empty; the history as often as all others together."""
    names = sorted(name for name, data in files.items()
                   if data and not name.endswith(".parquet") and name not in without)
    return HISTORY if HISTORY in names and random.random() < 0.4 else one(random, names)


def some_line(files: Files, random: Random) -> tuple[str, list[bytes], int]:
    name = text_file(files, random, RUN)
    lines = (files[name] or b"").split(b"\n")
    return name, lines, one(random, [spot for spot, line in enumerate(lines) if line.strip()])


def object_of(line: bytes) -> Line:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise Unfit from None
    if not isinstance(data, dict) or not data:
        raise Unfit
    return data


def dumps(files: Files, ending: str = "") -> list[str]:
    return sorted(name for name in files if name.startswith("logs/") and name.endswith(ending))


# -- bytes --------------------------------------------------------------------------------------------------

@damage(of_bytes)
def bits_flip(data: bytes, random: Random) -> bytes:
    return flipped(data, random, random.choice((1, 1, 1, 2, 5)))


def flipped(data: bytes, random: Random, bits: int) -> bytes:
    changed = bytearray(data)
    for _ in range(bits):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


@damage(of_bytes)
def bytes_go(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data))
    return data[:start] + data[start + random.choice((1, 1, 2, 9, 80)):]


@damage(of_bytes)
def bytes_come(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + random.choice(JUNK) * random.choice((1, 1, 3)) + data[start:]


@damage(of_bytes)
def the_end_is_cut(data: bytes, random: Random) -> bytes:
    return data[:random.randrange(len(data))]


@damage(of_bytes)
def a_piece_of_nothing(data: bytes, random: Random) -> bytes:
    """As after a crash: some bytes are zeros."""
    start = random.randrange(len(data))
    size = min(random.choice((1, 16, 512)), len(data) - start)
    return data[:start] + bytes(size) + data[start + size:]


@damage(of_bytes)
def the_last_line_feed_goes(data: bytes, random: Random) -> bytes:
    return data.rstrip(b"\n")


@damage(of_bytes)
def line_ends_of_windows(data: bytes, random: Random) -> bytes:
    return data.replace(b"\n", b"\r\n")


@damage(of_bytes)
def a_mark_of_byte_order(data: bytes, random: Random) -> bytes:
    """Which Windows' editors put in front; JSON does not allow it."""
    return b"\xef\xbb\xbf" + data


@damage(of_bytes)
def a_file_is_something_else(data: bytes, random: Random) -> bytes:
    """Nothing, an archive, a picture, random bytes, text."""
    return random.choice((
        b"", b"\n", b"   \n\n", b"PK\3\4" + random.randbytes(600), b"\x89PNG\r\n\x1a\n" + bytes(300),
        random.randbytes(2000) + b"\n", b"PAR1" + random.randbytes(40) + b"PAR1", b"<html>\n</html>\n"))


# -- lines --------------------------------------------------------------------------------------------------

@damage(of_lines)
def a_line_feed_flips(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    """A line feed becomes another byte."""
    return glued(lines, spot, bytes([10 ^ 1 << random.randrange(8)]))


@damage(of_lines)
def lines_are_glued(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    return glued(lines, spot, random.choice((b"", b" ", b",", b", ", b"\t", b"\r", b"\0", b";", b"\xff")))


def glued(lines: list[bytes], spot: int, glue: bytes) -> list[bytes]:
    if spot + 1 >= len(lines):
        raise Unfit
    return [*lines[:spot], lines[spot] + glue + lines[spot + 1], *lines[spot + 2:]]


@damage(of_lines)
def a_line_goes(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    return lines[:spot] + lines[spot + 1:]


@damage(of_lines)
def a_line_comes_twice(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    again = random.choice((spot, spot, random.randrange(len(lines)))) + 1
    return [*lines[:again], lines[spot], *lines[again:]]


@damage(of_lines)
def lines_change_places(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    other = one(random, [at for at, line in enumerate(lines) if line.strip() and line != lines[spot]])
    lines[spot], lines[other] = lines[other], lines[spot]
    return lines


@damage(of_lines)
def blank_lines_come(lines: list[bytes], spot: int, random: Random) -> list[bytes]:
    return [*lines[:spot], *random.choice(([b""], [b"   "], [b"", b"", b""])), *lines[spot:]]


@damage()
def a_line_of_something_else(files: Files, random: Random) -> str:
    """In place of a line, or before it."""
    name, lines, spot = some_line(files, random)
    others = [line for other in files if other != name and not other.endswith(".parquet")
              for line in (files[other] or b"").split(b"\n")[:3]]
    line = random.choice([b"nonsense", b"[1]", b"17", b"null", b'"x"', b"{}", b"[" * DEEP, b'{"a":' * DEEP,
                          b"x" * HUGE, b'{"a":"' + b"y" * HUGE + b'"}', b"\xff\xfe\0", *others])
    lines[spot:spot + random.randrange(2)] = [line]
    files[name] = b"\n".join(lines)
    return name


# -- fields -------------------------------------------------------------------------------------------------

def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in it."""
    keys = [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@damage(of_objects)
def a_value_is_another(data: Line, random: Random) -> str:
    """Mostly one of another type."""
    holder, key = random.choice(places(data))
    holder[key] = HERE
    return json.dumps(data).replace(json.dumps(HERE), random.choice(ODD))


@damage(of_objects)
def a_field_goes(data: Line, random: Random) -> str:
    holder, key = random.choice(places(data))
    del holder[key]
    return json.dumps(data)


@damage(of_objects)
def a_field_comes_twice(data: Line, random: Random) -> str:
    """A field a second time at the front or the end, with the same value or another. (Of the value that does
    not count readers differ in whether half a surrogate makes the line unreadable.)"""
    key = random.choice(sorted(data))
    value = json.dumps(data[key]) if random.random() < 0.3 else random.choice(ODD).replace("\\ud800", "odd")
    text, again = json.dumps(data), f"{json.dumps(key)}:{value}"
    return "{" + again + "," + text[1:] if random.random() < 0.5 else text[:-1] + "," + again + "}"


@damage(of_objects)
def it_is_said_in_other_words(data: Line, random: Random) -> str:
    """Fields in another order, spaces, escapes, and unknown fields."""
    fields = list(data.items())
    random.shuffle(fields)
    fields.insert(random.randrange(len(fields) + 1), ("comment", random.choice(
        ({"why": [1, None]}, "\N{SNOWMAN}", "\u0000", [[]], "a" * 3000, 2**70, 1.5, "\\\"'"))))
    text = json.dumps(dict(fields), separators=random.choice(((",", ":"), (" , ", " : "))),
                      ensure_ascii=random.random() < 0.5)
    if random.random() < 0.3:
        text = text.replace('"index"', '"\\u0069ndex"').replace('"offset"', '"o\\u0066fset"')
    return random.choice(("", " ", "\t")) + text + random.choice(("", "  "))


@damage()
def a_number_falls(files: Files, random: Random) -> str:
    """A line of the history is older than the one before, or has an index that was there."""
    lines, field = (files.get(HISTORY) or b"").split(b"\n"), random.choice(("time", "index"))
    spot = one(random, range(1, len(lines)))
    before, data = object_of(lines[spot - 1]), object_of(lines[spot])
    try:
        data[field] = random.randrange(before[field] + (field == "index"))
    except (ValueError, KeyError, TypeError):
        raise Unfit from None
    lines[spot] = json.dumps(data).encode()
    files[HISTORY] = b"\n".join(lines)
    return HISTORY


# -- files as units -----------------------------------------------------------------------------------------

@damage()
def a_file_goes(files: Files, random: Random) -> str:
    name = one(random, sorted(files))
    del files[name]
    return name


@damage()
def a_folder_stands_there(files: Files, random: Random) -> str:
    name = text_file(files, random)  # the twin's reader takes a folder for an empty table of Parquet
    files[name] = None
    return name


@damage()
def all_dumps_go(files: Files, random: Random) -> str:
    for name in dumps(files):
        del files[name]
    return "logs/"


@damage()
def two_dumps_change_places(files: Files, random: Random) -> str:
    names = dumps(files, ".jsonl")
    if len(names) < 2:
        raise Unfit
    here, there = random.sample(names, 2)
    files[here], files[there] = files[there], files[here]
    return "logs/"


@damage()
def files_that_nobody_asked_for(files: Files, random: Random) -> str:
    files["verdict.json"] = b'{"format":1,"valid":true}'
    files["logs/.n1.jsonl.fresh"] = random.randbytes(20)
    files["logs/n9.jsonl"] = b"nonsense\n"
    files["nodes/n1/log-0/00000000000000000000.log"] = random.randbytes(60)
    return "verdict.json"


@damage()
def a_parquet_is_broken(files: Files, random: Random) -> str:
    """It ends early, or bits of it have flipped."""
    name = one(random, dumps(files, ".parquet"))
    data = files[name] or b""
    files[name] = random.choice((
        b"", data[:random.randrange(len(data))], data[:-20] + b"PAR1",
        *(flipped(data, random, bits) for bits in (1, 3, 20))))
    return name

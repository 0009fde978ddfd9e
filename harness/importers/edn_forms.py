"""What an EDN text is made of, as Python values: words to forms, brackets to forms, and forms to text again.

Vectors and lists are tuples, maps dicts, sets frozensets, strings str, nil None, ratios Fractions, 1.5M a
Decimal. What Python has no word for has a class here; equal keywords are one object, so that `is` compares.
A word or a bracket that is not EDN is a WrongForm; where it stood is known to the reader alone (edn.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

_PART = r"[\w*!?$%&=<>|+.\-'#]+(?::[\w*!?$%&=<>|+.\-'#]+)*"
_KEYWORD = re.compile(rf":(/|{_PART}(?:/{_PART})?)")
_SYMBOL = re.compile(rf"/|(?![0-9'#]|[+.-][0-9]){_PART}(?:/{_PART})?")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)N?|[+-]?0[xX][0-9a-fA-F]{1,64}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(M?)", re.ASCII)
_RATIO = re.compile(r"[+-]?(?:0|[1-9][0-9]*)/0*[1-9][0-9]*", re.ASCII)
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "b": "\b", "f": "\f", "\\": "\\", '"': '"'}
_ESCAPED = str.maketrans({char: f"\\{name}" for name, char in _ESCAPES.items()})
_CHARACTERS = {
    "newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b",
}
_NAMED = {char: name for name, char in _CHARACTERS.items()}
CONSTANTS: Mapping[str, object] = {
    "nil": None, "true": True, "false": False,
    "##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan"),
}


DEEPEST = 200  # brackets and tags within one another


class WrongForm(ValueError):
    """Not EDN, and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Keyword:
    """By its name, without the colon. Made by keyword() alone."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str


@dataclass(frozen=True, slots=True)
class Character:
    """One character; a string of that length is something else."""

    char: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """A form behind a tag, which says what is to be made of it: `#inst "2024-01-01"`."""

    tag: str
    form: object


_KEYWORDS: dict[str, Keyword] = {}


def keyword(name: str) -> Keyword:
    return _KEYWORDS.setdefault(name, Keyword(name))


# -- words --------------------------------------------------------------------------------------------------


def atom_of(text: str) -> object:
    """A keyword, a symbol or a number."""
    if _KEYWORD.fullmatch(text):
        return keyword(text[1:])
    if _SYMBOL.fullmatch(text):
        return Symbol(text)
    if _INTEGER.fullmatch(text):
        return int(text.removesuffix("N"), 16 if "x" in text.lower() else 10)
    if number := _FLOAT.fullmatch(text):
        return Decimal(text[:-1]) if number[1] else float(text)
    if _RATIO.fullmatch(text):
        return Fraction(text)
    raise WrongForm(f"{text[:40]} is neither a number nor a name")


def tag_of(text: str) -> str:
    """The tag behind a #; with a colon, the namespace of a map's keys."""
    if not text.removeprefix(":")[:1].isalpha() or not _SYMBOL.fullmatch(text.removeprefix(":")):
        raise WrongForm(f"#{text[:40]} is no tag")
    return text


def string_of(text: str) -> str:
    if not _STRING.fullmatch(text):
        raise WrongForm("the string that begins here does not end")
    return _whole(_ESCAPE.sub(_unescaped, text[1:-1])) if "\\" in text else text[1:-1]


def _unescaped(escape: re.Match[str]) -> str:
    if len(escape[1]) == 5:
        return chr(int(escape[1][1:], 16))
    if escape[1] not in _ESCAPES:
        raise WrongForm(f"a string knows no {escape[0]}")
    return _ESCAPES[escape[1]]


def _whole(text: str) -> str:
    """The text with its surrogates in pairs, as Java escapes what is beyond U+FFFF."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise WrongForm("half a character (a surrogate alone)") from error


def character_of(text: str) -> Character:
    r"""`\a`, `\newline`, `\u0061`."""
    name = text[1:]
    if len(name) == 5 and _ESCAPE.fullmatch(text):
        return Character(_whole(chr(int(name[1:], 16))))
    char = _CHARACTERS.get(name, name)
    if len(char) != 1 or name.isspace():
        raise WrongForm(f"{text.strip()[:40]} is no character")
    return Character(char)


# -- brackets -----------------------------------------------------------------------------------------------


def map_of(items: list[object]) -> dict[object, object]:
    if len(items) % 2:
        raise WrongForm("a map with a key that has no value")
    try:
        told = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        told = dict(zip(map(_frozen, items[::2]), items[1::2], strict=True))
    if len(told) * 2 != len(items):
        raise WrongForm("a map with one key twice")
    return told


def set_of(items: list[object]) -> frozenset[object]:
    told = frozenset(map(_frozen, items))
    if len(told) != len(items):
        raise WrongForm("a set with one element twice")
    return told


def _frozen(form: object) -> object:
    """A map as something that may be a key; what holds none stays as it is."""
    if isinstance(form, dict):
        return Tagged("map", frozenset((key, _frozen(value)) for key, value in form.items()))
    if isinstance(form, tuple):
        return tuple(map(_frozen, form))
    return Tagged(form.tag, _frozen(form.form)) if isinstance(form, Tagged) else form


# -- and back -----------------------------------------------------------------------------------------------


def text_of(form: object, depth: int = 0) -> str:
    """The form as EDN, the same text for equal forms (a map's and a set's parts are sorted)."""
    if depth > DEEPEST:
        return "..."  # JSON may be deeper

    def inner(part: object) -> str:
        return text_of(part, depth + 1)

    match form:
        case str():
            return f'"{form.translate(_ESCAPED)}"'
        case Keyword():
            return f":{form.name}"
        case Symbol():
            return form.name
        case Character():
            return f"\\{_NAMED.get(form.char, form.char)}"
        case Tagged():
            return f"#{form.tag} {inner(form.form)}"
        case tuple() | list():
            return f"[{' '.join(map(inner, form))}]"
        case frozenset():
            return f"#{{{' '.join(sorted(map(inner, form)))}}}"
        case dict():
            return f"{{{', '.join(sorted(f'{inner(k)} {inner(v)}' for k, v in form.items()))}}}"
        case Decimal():
            return f"{form}M"
    return next((name for name, value in CONSTANTS.items() if repr(value) == repr(form)), str(form))

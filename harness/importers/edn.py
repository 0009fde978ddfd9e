"""Parses EDN strictly, one form at a time, with memory only for that form.

Rules
1. Invalid EDN is an EdnError with line and column: also a key that occurs twice, a number like 007, and
   brackets that do not match. Accepted in addition, because Clojure reads them: ##Inf, 0x1f, :33%.
2. A text that is one vector or list is read as its elements, so that a file of ten million forms needs no
   more memory than its largest one. A form that is too large (LARGEST, LONGEST) is an error too.

Theory. A pattern finds the tokens; one loop builds the forms with a stack of open brackets. A tag or a #_ is
a mark: it applies to the next form of its depth.

Forms. Vectors and lists are tuples, maps dicts, sets frozensets, strings str, nil None, ratios Fractions,
1.5M a Decimal. Other types have classes here; equal keywords are the same object, so that `is` compares them.
1, 1.0, 1M and true are four values: beside another that Python takes for the same, a key is a Symbol.
An invalid word or bracket is a WrongForm; only the reader knows its position.
"""

import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

Text = bytes | mmap.mmap
_PART = r"[\w*!?$%&=<>|+.\-'#]+(?::[\w*!?$%&=<>|+.\-'#]+)*"
_INTEGER = r"[+-]?(?:0|[1-9][0-9]*)"
_REAL = rf"{_INTEGER}(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_SYMBOL = re.compile(rf"/|(?![0-9'#]|[+.-][0-9]){_PART}(?:/{_PART})?")
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


DEEPEST = 200  # nested brackets and tags


class WrongForm(ValueError):
    """Raised for invalid EDN, with the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Keyword:
    """A keyword, by its name without the colon. Only keyword() makes them."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str


@dataclass(frozen=True, slots=True)
class Character:
    """One character, which differs from a string of length 1."""

    char: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """A form with a tag: `#inst "2024-01-01"`."""

    tag: str
    form: object


_KEYWORDS: dict[str, Keyword] = {}


def keyword(name: str) -> Keyword:
    return _KEYWORDS.setdefault(name, Keyword(name))


# -- atoms --------------------------------------------------------------------------------------------------


# What a word may be, and how it is read.
_ATOMS: tuple[tuple[re.Pattern[str], Callable[[str], object]], ...] = (
    (re.compile(rf":(?:/|{_PART}(?:/{_PART})?)"), lambda text: keyword(text[1:])),
    (_SYMBOL, Symbol),
    (re.compile(rf"{_INTEGER}N?", re.ASCII), lambda text: int(text.removesuffix("N"))),
    (re.compile(r"[+-]?0[xX][0-9a-fA-F]{1,64}", re.ASCII), lambda text: int(text, 16)),
    (re.compile(_REAL, re.ASCII), float),
    (re.compile(f"{_REAL}M", re.ASCII), lambda text: Decimal(text[:-1])),
    (re.compile(rf"{_INTEGER}/0*[1-9][0-9]*", re.ASCII), Fraction),
)


def atom_of(text: str) -> object:
    for pattern, read in _ATOMS:
        if pattern.fullmatch(text):
            return read(text)
    raise WrongForm(f"{text[:40]} is neither a number nor a name")


def tag_of(text: str) -> str:
    """The tag after a #; with a colon, the namespace of a map's keys."""
    if not text.removeprefix(":")[:1].isalpha() or not _SYMBOL.fullmatch(text.removeprefix(":")):
        raise WrongForm(f"#{text[:40]} is no tag")
    return text


def _unescaped(escape: re.Match[str]) -> str:
    if len(escape[1]) == 5:
        return chr(int(escape[1][1:], 16))
    if escape[1] not in _ESCAPES:
        raise WrongForm(f"a string cannot contain {escape[0]}")
    return _ESCAPES[escape[1]]


def _join_surrogates(text: str) -> str:
    """The text with surrogate pairs joined: Java escapes characters above U+FFFF as pairs."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise WrongForm("half a character (a surrogate alone)") from error


def character_of(text: str) -> Character:
    r"""`\a`, `\newline`, `\u0061`."""
    name = text[1:]
    if len(name) == 5 and _ESCAPE.fullmatch(text):
        return Character(_join_surrogates(chr(int(name[1:], 16))))
    char = _CHARACTERS.get(name, name)
    if len(char) != 1 or name.isspace():
        raise WrongForm(f"{text.strip()[:40]} is no character")
    return Character(char)


# -- brackets -----------------------------------------------------------------------------------------------


def map_of(items: list[object]) -> dict[object, object]:
    if len(items) % 2:
        raise WrongForm("a map with a key that has no value")
    try:
        result = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        result = dict(zip(map(_frozen, items[::2]), items[1::2], strict=True))
    if len(result) * 2 != len(items):
        result = dict(zip(map(_apart, items[::2]), items[1::2], strict=True))
    if len(result) * 2 != len(items):
        raise WrongForm("a map with one key twice")
    return result


def set_of(items: list[object]) -> frozenset[object]:
    result = frozenset(map(_frozen, items))
    if len(result) != len(items):
        result = frozenset(map(_apart, items))
    if len(result) != len(items):
        raise WrongForm("a set with one element twice")
    return result


def _frozen(form: object) -> object:
    """The form with hashable maps, so that it can be a key."""
    if isinstance(form, dict):
        return Tagged("map", frozenset((key, _frozen(value)) for key, value in form.items()))
    if isinstance(form, tuple):
        return tuple(map(_frozen, form))
    return Tagged(form.tag, _frozen(form.form)) if isinstance(form, Tagged) else form


def _apart(form: object) -> object:
    """The frozen form, in which nothing equals a whole number but whole numbers."""
    if isinstance(form, bool | float | Decimal):
        return Symbol(text_of(form))
    if isinstance(form, tuple | frozenset):
        return type(form)(map(_apart, form))
    if isinstance(form, dict):
        return Tagged("map", frozenset((_apart(key), _apart(value)) for key, value in form.items()))
    return Tagged(form.tag, _apart(form.form)) if isinstance(form, Tagged) else form


# -- writing -----------------------------------------------------------------------------------------------


def text_of(form: object, depth: int = 0) -> str:
    """The form as EDN; equal forms give the same text (the parts of maps and sets are sorted)."""
    if depth > DEEPEST:
        return "..."  # JSON may be nested deeper

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


# -- reading ------------------------------------------------------------------------------------------------

LARGEST = 4_000_000  # tokens of one form
TOO_MANY = "words and brackets without the end of what began before them"
LONGEST = 1 << 24  # bytes of one token
_WORD = rb'[^ \t\r\f\v\n,\[\](){}";\\]'
_TOKEN = re.compile(
    rb'((?:0|[1-9][0-9]*+)(?!' + _WORD + rb'))|([\[({]|#\{)|([\])}])|'
    rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"|".*|;[^\n]*|#_|##?' + _WORD
    + rb'*|\\(?:[A-Za-z0-9]+|[\x80-\xff]+|.)?|' + _WORD + rb'+)', re.DOTALL)
_NUMBER, _OPENING, _CLOSING = 1, 2, 3  # the groups of a token; the last is any other word
_IN_ONE = re.compile(rb"(?:[ \t\r\f\v\n,]|;[^\n]*)*+[\[(]")  # how a text of one vector or list begins
_CLOSES: Mapping[bytes, bytes] = {b"[": b"]", b"(": b")", b"{": b"}", b"#{": b"}"}
_BRACED: Mapping[bytes, Callable[[list[object]], object]] = {b"{": map_of, b"#{": set_of}
_NO_FORM, _UNKNOWN_WORD = object(), object()  # a mark or comment, no form; an unknown word


class EdnError(ValueError):
    """Invalid EDN, with its position and the reason."""

    def __init__(self, text: Text, at: int, problem: str) -> None:
        self.line, begins = line_at(text, at)
        self.column, self.problem = 1 + len(text[begins:at].decode(errors="replace")), problem
        super().__init__(f"{self.line}:{self.column}: {problem}")


def line_at(text: Text, at: int) -> tuple[int, int]:
    """The number of the line at this byte, and where it begins."""
    before = text[:at]
    return before.count(b"\n") + 1, before.rfind(b"\n") + 1


def forms(text: Text) -> Iterator[tuple[int, object]]:
    """Yields every form (of one vector or list every element) with the byte where it begins; EdnError."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: Text) -> None:
        self._text = text
        self._stack: list[tuple[re.Match[bytes], list[object]]] = []  # a bracket, and the items outside it
        self._marks: list[tuple[int, str | None]] = []  # depth, and tag (None: #_), of waiting marks
        self._known: dict[bytes, object] = {name.encode(): value for name, value in CONSTANTS.items()}

    def read(self) -> Iterator[tuple[int, object]]:
        stack, marks, known, items = self._stack, self._marks, self._known, list[object]()
        base = int(_IN_ONE.match(self._text) is not None)  # the depth of the forms
        most, ended = LARGEST, False  # ended: the one vector is closed
        try:
            for count, found in enumerate(_TOKEN.finditer(self._text)):
                kind, token, begins = found.lastindex, found[0], found
                if kind == _NUMBER:
                    form: object = int(token)
                elif kind == _OPENING:
                    if len(stack) + len(marks) > DEEPEST:
                        raise WrongForm(f"more than {DEEPEST} nested brackets and tags")
                    stack.append((found, items))
                    items = []
                    continue
                elif kind == _CLOSING:
                    if not stack or _CLOSES[stack[-1][0][0]] != token or marks:
                        self._check_close(token)
                    begins, around = stack.pop()
                    form, items = tuple(items) if token != b"}" else _BRACED[begins[0]](items), around
                    if len(stack) < base:
                        ended = True
                        continue
                elif (form := known.get(token, _UNKNOWN_WORD)) is _UNKNOWN_WORD:
                    form = self._word(token)
                if marks and form is not _NO_FORM and marks[-1][0] == len(stack):
                    form = self._marked(form)
                if form is _NO_FORM:
                    continue
                if len(stack) > base:
                    items.append(form)
                    if count > most:
                        raise WrongForm(f"{LARGEST} {TOO_MANY}")
                elif ended:
                    raise WrongForm("there is more text after the one vector or list")
                else:
                    most = count + LARGEST
                    yield begins.start(), form
        except (ValueError, ArithmeticError) as wrong:
            if found.end() == len(self._text) and kind != _CLOSING:  # a word, perhaps in its middle
                self._check_end(found.start())
            problem = str(wrong) if isinstance(wrong, WrongForm) else "not UTF-8, or too large a number"
            raise EdnError(self._text, found.start(), problem) from None
        self._check_end(len(self._text))

    def _check_end(self, at: int) -> None:
        """Raises EdnError if a form is open at the end of the text, where its last word may be incomplete."""
        if self._stack:
            opened = self._shown(self._stack[-1][0])
            raise EdnError(self._text, at, f"the text ends inside {opened}: it is cut off")
        if self._marks:
            raise EdnError(self._text, at, "the text ends after a tag or a #_")

    def _check_close(self, token: bytes) -> None:
        """Raises WrongForm if this bracket closes nothing, or another one."""
        if not self._stack:
            raise WrongForm(f"{token.decode()} closes nothing")
        opened = self._stack[-1][0]
        if _CLOSES[opened[0]] != token:
            raise WrongForm(f"{token.decode()} closes {self._shown(opened)}")
        if self._marks and self._marks[-1][0] == len(self._stack):
            raise WrongForm(f"a tag or a #_ without a form before {token.decode()}")

    def _shown(self, opened: re.Match[bytes]) -> str:
        return f"the {opened[0].decode()} of line {line_at(self._text, opened.start())[0]}"

    def _marked(self, form: object) -> object:
        """Applies the waiting marks of this depth to the form."""
        while self._marks and self._marks[-1][0] == len(self._stack):
            _, tag = self._marks.pop()
            if tag is None:
                return _NO_FORM
            form = Tagged(tag, form)
        return form

    def _word(self, token: bytes) -> object:
        """The form of a word that is not a plain number nor known; names are remembered."""
        if len(token) > LONGEST:
            raise WrongForm(f"{LONGEST >> 20} MiB without the end of what begins here")
        first, text = token[:1], token.decode()
        if first == b";":
            return _NO_FORM
        if first == b'"':
            if not _STRING.fullmatch(text):
                raise WrongForm("the string that begins here does not end")
            return _join_surrogates(_ESCAPE.sub(_unescaped, text[1:-1])) if "\\" in text else text[1:-1]
        if first == b"#":
            if len(self._marks) > DEEPEST:
                raise WrongForm(f"more than {DEEPEST} nested tags")
            self._marks.append((len(self._stack), None if text == "#_" else tag_of(text[1:])))
            return _NO_FORM
        form = character_of(text) if first == b"\\" else atom_of(text)
        if isinstance(form, Keyword | Symbol):
            self._known[token] = form
        return form

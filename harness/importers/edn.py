"""Parses EDN strictly and incrementally: one form at a time, with memory only for that form.

Rules
1. Invalid EDN is an EdnError with line and column: also a key that occurs twice, a number like 007, and
   brackets that do not match. Accepted in addition, because Clojure prints them: ##Inf, 0x1f, :33%.
2. A text that is one vector or list is read as its elements, so that a file of ten million forms needs no
   more memory than its largest one. A form that is too large (LARGEST, LONGEST) is an error too.

Theory. A pattern splits a piece of text into tokens; one loop builds the forms with a stack of open brackets.
A tag or a #_ is a mark: it applies to the next form of its depth. A token's position is only computed for an
error, by splitting the piece again.

Forms. Vectors and lists are tuples, maps dicts, sets frozensets, strings str, nil None, ratios Fractions,
1.5M a Decimal. Other types have classes here; equal keywords are the same object, so that `is` compares them.
An invalid word or bracket is a WrongForm; only the reader knows its position.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import islice

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
    """The tag after a #; with a colon, the namespace of a map's keys."""
    if not text.removeprefix(":")[:1].isalpha() or not _SYMBOL.fullmatch(text.removeprefix(":")):
        raise WrongForm(f"#{text[:40]} is no tag")
    return text


def string_of(text: str) -> str:
    if not _STRING.fullmatch(text):
        raise WrongForm("the string that begins here does not end")
    return _join_surrogates(_ESCAPE.sub(_unescaped, text[1:-1])) if "\\" in text else text[1:-1]


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
        raise WrongForm("a map with one key twice")
    return result


def set_of(items: list[object]) -> frozenset[object]:
    result = frozenset(map(_frozen, items))
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


LARGEST = 4_000_000  # tokens of one form
LONGEST = 1 << 24  # bytes of one token
_TOKEN = re.compile(
    rb'[\[\](){}\n]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|".*|;[^\n]*|#_|#\{|##?[^ \t\r\f\v\n,\[\](){}";\\]*'
    rb'|\\(?:[A-Za-z0-9]+|[\x80-\xff]+|.)?|[^ \t\r\f\v\n,\[\](){}";\\]+', re.DOTALL)
_ZERO, _NEWLINE, _COMMENT = b"0\n;"
_OPENS: Mapping[bytes, bytes] = {b"[": b"]", b"(": b")", b"{": b"}", b"#{": b"}"}
_CLOSES = frozenset(_OPENS.values())
_BRACED: Mapping[bytes, Callable[[list[object]], object]] = {b"{": map_of, b"#{": set_of}
_NO_FORM, _UNKNOWN_WORD = object(), object()  # a mark or comment, no form; an unknown word


class EdnError(ValueError):
    """Invalid EDN, with its position and the reason."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        super().__init__(f"{line}:{column}: {problem}")
        self.line, self.column, self.problem = line, column, problem


def forms(blocks: Iterable[bytes]) -> Iterator[tuple[int, object]]:
    """Yields every form with its first line; for one vector or list, every element of it. EdnError if
    invalid."""
    text = Forms()
    for block in blocks:
        yield from text.read(block)
    yield from text.close()


class Forms:
    """Parses a text that comes in blocks; the caller may read some of its lines itself."""

    def __init__(self) -> None:
        self._reader, self._rest = _Reader(), b""

    @property
    def between(self) -> bool:
        """Whether no form is open: the next text begins a form of its own (and not one in a vector)."""
        return not self._rest and self._reader.between

    def read(self, block: bytes) -> Iterator[tuple[int, object]]:
        """Yields the forms that this block completes."""
        reader, piece = self._reader, self._rest + block
        tokens = _TOKEN.findall(piece)
        goes_on = tokens and tokens[-1] != b"\n" and piece.endswith(tokens[-1])  # perhaps
        self._rest = rest = tokens.pop() if goes_on else b""
        yield from reader.take(tokens, piece[:len(piece) - len(rest)])
        if len(rest) > LONGEST:
            raise EdnError(reader.line, reader.column,
                           f"{LONGEST >> 20} MiB without the end of what begins here")

    def skip_lines(self, lines: int) -> None:
        """Skips complete lines with one form each, which the caller has read itself."""
        if lines:
            assert self.between, f"{lines} lines are skipped inside a form"
            self._reader.skip_lines(lines)

    def close(self) -> Iterator[tuple[int, object]]:
        """Yields the last form at the end of the text."""
        try:
            yield from self._reader.take(_TOKEN.findall(self._rest), self._rest)
        except EdnError:
            if self._rest not in _CLOSES:  # but a word, perhaps in its middle
                self._reader.close()
            raise
        self._reader.close()


class _Reader:
    """Builds forms from tokens, piece by piece."""

    def __init__(self) -> None:
        self.line, self.column = 1, 1  # of the present token; of the begin of the piece
        self._stack: list[tuple[bytes, list[object], int]] = []  # bracket, the items outside it, its line
        self._items: list[object] = []  # in the innermost bracket
        self._marks: list[tuple[int, str | None]] = []  # depth, and tag (None: #_), of waiting marks
        self._known: dict[bytes, object] = {name.encode(): value for name, value in CONSTANTS.items()}
        self._base: int | None = None  # the depth of the forms: 1 inside one vector; None: none began yet
        self._ended = False  # the one vector is closed
        self._open_tokens = 0  # tokens since the last complete form

    @property
    def between(self) -> bool:
        return not self._stack and not self._marks and not self._base

    def skip_lines(self, lines: int) -> None:
        self.line, self.column, self._base = self.line + lines, 1, 0

    def take(self, tokens: list[bytes], piece: bytes) -> Iterator[tuple[int, object]]:
        """Yields the forms that these tokens of this piece complete."""
        stack, marks, known, items, at = self._stack, self._marks, self._known, self._items, 0
        base = self._base_of(tokens)
        self._open_tokens += len(tokens)
        try:
            for at, token in enumerate(tokens):
                where = self.line
                form: object
                if token.isdigit() and (token[0] != _ZERO or len(token) == 1):
                    form = int(token)
                elif token in _OPENS:
                    if len(stack) + len(marks) > DEEPEST:
                        raise WrongForm(f"more than {DEEPEST} nested brackets and tags")
                    stack.append((token, items, where))
                    items = []
                    continue
                elif token in _CLOSES:
                    if not stack or _OPENS[stack[-1][0]] != token or marks:
                        self._check_close(token)
                    opened, around, where = stack.pop()
                    form = tuple(items) if token != b"}" else _BRACED[opened](items)
                    items = around
                    if len(stack) < base:
                        self._ended = True
                        continue
                elif token == b"\n":
                    self.line += 1
                    continue
                elif (form := known.get(token, _UNKNOWN_WORD)) is _UNKNOWN_WORD:
                    form = self._word(token)
                if marks and form is not _NO_FORM and marks[-1][0] == len(stack):
                    form = self._marked(form)
                if form is _NO_FORM:
                    continue
                if len(stack) > base:
                    items.append(form)
                else:
                    self._open_tokens = len(tokens) - at
                    yield where, self._alone(form)
            if self._open_tokens > LARGEST:
                raise WrongForm(f"{LARGEST} words and brackets without the end of what began before them")
        except (ValueError, ArithmeticError) as wrong:
            raise self._error(wrong, piece, at) from None
        self._items = items
        newline = piece.rfind(b"\n")
        self.column = _chars(piece[newline + 1:]) + (1 if newline >= 0 else self.column)

    def close(self) -> None:
        """Raises EdnError if a form is open at the end of the text."""
        if self._stack:
            opened, _, line = self._stack[-1]
            problem = f"the text ends inside the {opened.decode()} of line {line}: it is cut off"
            raise EdnError(self.line, self.column, problem)
        if self._marks:
            raise EdnError(self.line, self.column, "the text ends after a tag or a #_")

    def _base_of(self, tokens: list[bytes]) -> int:
        if self._base is None:
            first = next((token for token in tokens if token[0] not in (_NEWLINE, _COMMENT)), None)
            self._base = None if first is None else int(first in (b"[", b"("))
        return self._base or 0

    def _alone(self, form: object) -> object:
        if self._ended:
            raise WrongForm("there is more text after the one vector or list")
        return form

    def _check_close(self, token: bytes) -> None:
        """Raises WrongForm if this bracket closes nothing, or another one."""
        if not self._stack:
            raise WrongForm(f"{token.decode()} closes nothing")
        opened, _, line = self._stack[-1]
        if _OPENS[opened] != token:
            raise WrongForm(f"{token.decode()} closes the {opened.decode()} of line {line}")
        if self._marks and self._marks[-1][0] == len(self._stack):
            raise WrongForm(f"a tag or a #_ without a form before {token.decode()}")

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
        first, text = token[:1], token.decode()
        if first == b";":
            return _NO_FORM
        if first == b'"':
            string = string_of(text)
            self.line += token.count(b"\n")
            return string
        if first == b"#":
            if len(self._marks) > DEEPEST:
                raise WrongForm(f"more than {DEEPEST} nested tags")
            self._marks.append((len(self._stack), None if text == "#_" else tag_of(text[1:])))
            return _NO_FORM
        form = character_of(text) if first == b"\\" else atom_of(text)
        if isinstance(form, Keyword | Symbol):
            self._known[token] = form
        return form

    def _error(self, wrong: Exception, piece: bytes, at: int) -> EdnError:
        """The error with its position, by finding the token again."""
        problem = str(wrong) if isinstance(wrong, WrongForm) else "not UTF-8, or too large a number"
        found = next(islice(_TOKEN.finditer(piece), at, None), None)
        begins = 0 if found is None else found.start()
        newline = piece.rfind(b"\n", 0, begins)
        column = _chars(piece[newline + 1:begins]) + (1 if newline >= 0 else self.column)
        return EdnError(self.line, column, problem)


def _chars(data: bytes) -> int:
    return len(data.decode(errors="replace"))

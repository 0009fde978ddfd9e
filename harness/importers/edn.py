"""EDN, read strictly and piece by piece: one form at a time, with memory for that form alone.

Rules
1. What is not EDN is an EdnError with line and column, never a guess: a key that stands twice, a number like
   007, a bracket that closes another are errors. Read besides, for Clojure prints them: ##Inf, 0x1f, :33%.
2. A text that is one vector or list is read as its elements, so that a file of ten million forms needs no
   more memory than its largest one. What does not end in time (LARGEST, LONGEST) is an error too.

Theory. A pattern cuts a piece of text into tokens; one loop puts them together on a stack of open brackets.
A tag or a #_ is a mark: it waits for the next form of its own depth. Where a token stood is worked out only
for an error, by cutting the piece once more. Forms are as edn_forms.py has them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from harness.importers.edn_forms import (
    CONSTANTS,
    DEEPEST,
    Keyword,
    Symbol,
    Tagged,
    WrongForm,
    atom_of,
    character_of,
    map_of,
    set_of,
    string_of,
    tag_of,
)

LARGEST = 4_000_000  # tokens of one form
LONGEST = 1 << 24  # bytes of one token
_TOKEN = re.compile(
    rb'[\[\](){}\n]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|".*|;[^\n]*|#_|#\{|##?[^ \t\r\f\v\n,\[\](){}";\\]*'
    rb'|\\(?:[A-Za-z0-9]+|[\x80-\xff]+|.)?|[^ \t\r\f\v\n,\[\](){}";\\]+', re.DOTALL)
_ZERO, _NEWLINE, _COMMENT = b"0\n;"
_OPENS: Mapping[bytes, bytes] = {b"[": b"]", b"(": b")", b"{": b"}", b"#{": b"}"}
_CLOSES = frozenset(_OPENS.values())
_BRACED: Mapping[bytes, Callable[[list[object]], object]] = {b"{": map_of, b"#{": set_of}
_NO_FORM, _NEW_WORD = object(), object()  # a mark or a comment, where a form might be; a word not met before


class EdnError(ValueError):
    """Not EDN: where, and why."""

    def __init__(self, line: int, column: int, what: str) -> None:
        super().__init__(f"{line}:{column}: {what}")
        self.line, self.column, self.what = line, column, what


def forms(blocks: Iterable[bytes]) -> Iterator[tuple[int, object]]:
    """Every form with the line it begins on; of one vector or list, every element of it. EdnError."""
    text = Forms()
    for block in blocks:
        yield from text.read(block)
    yield from text.close()


class Forms:
    """The forms of a text that comes in blocks, for whoever reads some of its lines himself."""

    def __init__(self) -> None:
        self._reader, self._rest = _Reader(), b""

    @property
    def between(self) -> bool:
        """Whether nothing is open: what follows begins a form of its own (and not in a vector of them)."""
        return not self._rest and self._reader.between

    def read(self, block: bytes) -> Iterator[tuple[int, object]]:
        """The forms that are whole with this block."""
        reader, piece = self._reader, self._rest + block
        tokens = _TOKEN.findall(piece)
        goes_on = tokens and tokens[-1] != b"\n" and piece.endswith(tokens[-1])  # perhaps
        self._rest = rest = tokens.pop() if goes_on else b""
        yield from reader.take(tokens, piece[:len(piece) - len(rest)])
        if len(rest) > LONGEST:
            raise EdnError(reader.line, reader.column, f"{LONGEST >> 20} MiB, and no end of what begins here")

    def skip_lines(self, lines: int) -> None:
        """So many whole lines, of one form each, were read by somebody else."""
        if lines:
            assert self.between, f"{lines} lines are passed over inside a form"
            self._reader.skip_lines(lines)

    def close(self) -> Iterator[tuple[int, object]]:
        """The text ends here."""
        yield from self._reader.take(_TOKEN.findall(self._rest), self._rest)
        self._reader.close()


class _Reader:
    """Puts tokens together, piece after piece."""

    def __init__(self) -> None:
        self.line, self.column = 1, 1  # of the token at hand; of where the piece begins
        self._stack: list[tuple[bytes, list[object], int]] = []  # bracket, the items around it, its line
        self._items: list[object] = []  # within the innermost bracket
        self._marks: list[tuple[int, str | None]] = []  # depth, and tag (None: #_) of what waits there
        self._known: dict[bytes, object] = {name.encode(): value for name, value in CONSTANTS.items()}
        self._base: int | None = None  # the depth of the forms: 1 within one vector. None: none began yet
        self._ended = False  # the one vector is closed
        self._held = 0  # tokens since the last form was whole

    @property
    def between(self) -> bool:
        return not self._stack and not self._marks and not self._base

    def skip_lines(self, lines: int) -> None:
        self.line, self.column, self._base = self.line + lines, 1, 0

    def take(self, tokens: list[bytes], piece: bytes) -> Iterator[tuple[int, object]]:
        """The forms that these tokens, cut from this piece, make whole."""
        stack, marks, known, items, at = self._stack, self._marks, self._known, self._items, 0
        base = self._base_of(tokens)
        self._held += len(tokens)
        try:
            for at, token in enumerate(tokens):
                where = self.line
                form: object
                if token.isdigit() and (token[0] != _ZERO or len(token) == 1):
                    form = int(token)
                elif token in _OPENS:
                    if len(stack) + len(marks) > DEEPEST:
                        raise WrongForm(f"more than {DEEPEST} brackets and tags within one another")
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
                elif (form := known.get(token, _NEW_WORD)) is _NEW_WORD:
                    form = self._word(token)
                if marks and form is not _NO_FORM and marks[-1][0] == len(stack):
                    form = self._marked(form)
                if form is _NO_FORM:
                    continue
                if len(stack) > base:
                    items.append(form)
                else:
                    self._held = len(tokens) - at
                    yield where, self._alone(form)
            if self._held > LARGEST:
                raise WrongForm(f"{LARGEST} words and brackets, and no end of what began before them")
        except (ValueError, ArithmeticError) as wrong:
            raise self._error(wrong, piece, at) from None
        self._items = items
        newline = piece.rfind(b"\n")
        self.column = _chars(piece[newline + 1:]) + (1 if newline >= 0 else self.column)

    def close(self) -> None:
        """The text ends here: nothing may be open."""
        if self._stack:
            opened, _, line = self._stack[-1]
            what = f"the text ends inside the {opened.decode()} of line {line}"
            raise EdnError(self.line, self.column, what)
        if self._marks:
            raise EdnError(self.line, self.column, "the text ends behind a tag or a #_")

    def _base_of(self, tokens: list[bytes]) -> int:
        if self._base is None:
            first = next((token for token in tokens if token[0] not in (_NEWLINE, _COMMENT)), None)
            self._base = None if first is None else int(first in (b"[", b"("))
        return self._base or 0

    def _alone(self, form: object) -> object:
        if self._ended:
            raise WrongForm("something stands behind the one vector or list that the text is")
        return form

    def _check_close(self, token: bytes) -> None:
        """Whether this bracket may stand here."""
        if not self._stack:
            raise WrongForm(f"{token.decode()} closes nothing")
        opened, _, line = self._stack[-1]
        if _OPENS[opened] != token:
            raise WrongForm(f"{token.decode()} closes the {opened.decode()} of line {line}")
        if self._marks and self._marks[-1][0] == len(self._stack):
            raise WrongForm(f"a tag or a #_ with nothing behind it before {token.decode()}")

    def _marked(self, form: object) -> object:
        """What the marks that wait at this depth make of the form."""
        while self._marks and self._marks[-1][0] == len(self._stack):
            _, tag = self._marks.pop()
            if tag is None:
                return _NO_FORM
            form = Tagged(tag, form)
        return form

    def _word(self, token: bytes) -> object:
        """A word that is neither a plain number nor known; a name is known from then on."""
        first, text = token[:1], token.decode()
        if first == b";":
            return _NO_FORM
        if first == b'"':
            string = string_of(text)
            self.line += token.count(b"\n")
            return string
        if first == b"#":
            if len(self._marks) > DEEPEST:
                raise WrongForm(f"more than {DEEPEST} tags within one another")
            self._marks.append((len(self._stack), None if text == "#_" else tag_of(text[1:])))
            return _NO_FORM
        form = character_of(text) if first == b"\\" else atom_of(text)
        if isinstance(form, Keyword | Symbol):
            self._known[token] = form
        return form

    def _error(self, wrong: Exception, piece: bytes, at: int) -> EdnError:
        """What is wrong, and where: the token is found again."""
        what = str(wrong) if isinstance(wrong, WrongForm) else "not UTF-8, or a number beyond reason"
        found = next(islice(_TOKEN.finditer(piece), at, None), None)
        begins = 0 if found is None else found.start()
        newline = piece.rfind(b"\n", 0, begins)
        column = _chars(piece[newline + 1:begins]) + (1 if newline >= 0 else self.column)
        return EdnError(self.line, column, what)


def _chars(data: bytes) -> int:
    return len(data.decode(errors="replace"))

"""EDN: the forms of each text, and the place of each mistake."""

import json
from contextlib import suppress

import pytest
from golden_text import answered_as_written, refused_as_written
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.harness.importers import edn
from floodmark.harness.importers.edn import (
    Character,
    EdnError,
    Keyword,
    Symbol,
    Tagged,
    forms,
    keyword,
    line_at,
    text_of,
)

A, B = keyword("a"), keyword("b")


def read(text: str | bytes) -> list[object]:
    return [form for _, form in forms(
        text.encode(errors="surrogateescape") if isinstance(text, str) else text)]


CUT = '{:a "x\\n" :b/c #t [1.5M 2N -3/4 \\a] #_ d :e ##Inf}'


def test_a_text_that_is_cut_off_anywhere_says_so() -> None:
    for end in range(1, len(CUT)):
        with pytest.raises(EdnError, match=r"1:\d+: the text ends inside the . of line 1: it is cut off"):
            read(CUT[:end])


def test_a_text_gives_its_forms(request: pytest.FixtureRequest) -> None:
    """golden/edn.txt: true is not 1, and 2.0 is not 2."""
    answered_as_written("edn.txt", lambda line: f"= {told(read(json.loads(line)))}", request)


def told(form: object) -> str:
    """As Python shows it; a symbol in <>, and the elements of a set in the order of their texts."""
    if isinstance(form, Keyword):
        return f":{form.name}"
    if isinstance(form, (tuple, list)):
        return f"[{', '.join(map(told, form))}]"
    if isinstance(form, frozenset):
        return f"#{{{', '.join(sorted(map(told, form)))}}}"
    if isinstance(form, dict):
        return f"{{{', '.join(f'{told(key)}: {told(value)}' for key, value in form.items())}}}"
    if isinstance(form, Tagged):
        return f"#{form.tag} {told(form.form)}"
    return f"<{form.name}>" if isinstance(form, Symbol) else repr(form)


def test_each_form_has_the_line_it_begins_on() -> None:
    text = b'{:a\n1}\n\n; x\n7 {:a "two\nlines"} :b'
    assert [line_at(text, at)[0] for at, _ in forms(text)] == [1, 5, 5, 6]
    text = b"[\n1\n{:a\n2}]"
    assert [line_at(text, at)[0] for at, _ in forms(text)] == [2, 3]


def test_a_mistake_is_reported_with_its_place(request: pytest.FixtureRequest) -> None:
    """Line, column, and what is wrong."""
    refused_as_written("EDN", read, EdnError, request)


@pytest.mark.parametrize(("text", "column", "problem"), [
    ("9" * 5000, 1, "number"), ("[" * 300, 202, "more than 200"), ("#a " * 300, 604, "more than 200")])
def test_what_is_too_long_or_too_deep_is_refused(text: str, column: int, problem: str) -> None:
    with pytest.raises(EdnError, match=rf"^1:{column}: .*{problem}"):
        read(text)


# -- memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["", "["])
def test_a_form_is_returned_before_the_next_is_read(opening: str) -> None:
    """In one vector as in a file of lines."""
    assert next(forms(f"{opening}{{:a 0}}\n007".encode())) == (len(opening), {A: 0})


def test_an_endless_form_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bracket or quote that is never closed must not read a whole file into memory."""
    monkeypatch.setattr(edn, "LARGEST", 1000)
    monkeypatch.setattr(edn, "LONGEST", 1000)
    for head, body, place in (("1\n{:x ", "{:a 1}\n", None), ('1\n "', "abc", (2, 2)), ("", "a" * 9, (1, 1)),
                              ("\n;", "comment ", (2, 1))):
        with pytest.raises(EdnError) as caught:
            read(head + body * 1000 + " 007")
        assert "without the end" in caught.value.problem
        assert place in (None, (caught.value.line, caught.value.column))
    assert len(read("[" + "{:a 1} " * 5000 + "]")) == 5000  # many forms are not one


# -- written and read -------------------------------------------------------------------------------------

TAGS = st.from_regex(r"[a-z][a-z0-9.]{0,5}(/[a-z]{1,3})?", fullmatch=True)
NAMES = st.from_regex(r"[a-z*!_?][a-z0-9*!_?.\-]{0,8}(/[a-z][a-z0-9\-]{0,4})?", fullmatch=True)
ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), NAMES.filter(
        lambda name: name not in ("nil", "true", "false")).map(Symbol), NAMES.map(keyword),
    st.floats(allow_nan=False), st.characters(categories=["L"], max_codepoint=0x7F).map(Character),
)  # fmt: skip
KEYS = st.one_of(NAMES.map(keyword), st.text(), st.integers())
TREES = st.recursive(ATOMS, lambda inner: st.one_of(
    st.lists(inner, max_size=5).map(tuple), st.dictionaries(KEYS, inner, max_size=4),
    st.frozensets(KEYS, max_size=4), st.builds(Tagged, TAGS, inner)), max_leaves=20)


@settings(max_examples=40)
@given(st.lists(TREES, min_size=1, max_size=5))
def test_forms_written_and_read_again_are_the_same(trees: list[object]) -> None:
    assert read("[" + "\n".join(map(text_of, trees)) + "]") == trees


@given(st.one_of(st.binary(max_size=40), st.text('[](){}#_";:\\ \n,a1-/é', max_size=40).map(str.encode)))
def test_any_bytes_are_forms_or_a_mistake(data: bytes) -> None:
    with suppress(EdnError):
        read(data)

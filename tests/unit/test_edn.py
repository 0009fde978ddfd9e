"""EDN: the forms of each text, and the place of each mistake."""

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from golden_text import refused_as_written
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.harness.importers import edn
from floodmark.harness.importers.edn import (
    Character,
    EdnError,
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


FORMS = [
    ("nil true false", [None, True, False]),
    ("0 -7 +7 12N -0 123456789012345678901234567890", [0, -7, 7, 12, 0, 123456789012345678901234567890]),
    ("1.5 -2e3 1E-2 3. 1.5M 2M 1/2 -4/6", [1.5, -2000.0, 0.01, 3.0, Decimal("1.5"), Decimal(2),
                                           Fraction(1, 2), Fraction(-2, 3)]),
    ("##Inf ##-Inf 0x1f -0XA", [float("inf"), float("-inf"), 31, -10]),
    (":a :a/b :seek-to-beginning? :33% :/", [A, keyword("a/b"), keyword("seek-to-beginning?"),
                                            keyword("33%"), keyword("/")]),
    ("foo a.b/c - -> .x + / a#b x' é", [Symbol(name) for name in (
        "foo", "a.b/c", "-", "->", ".x", "+", "/", "a#b", "x'", "é")]),
    (r'"" "a b" "\t\n\"\\A" "x;y #_ [" "é"', ["", "a b", '\t\n"\\A', "x;y #_ [", "é"]),
    ('"two\nlines" 1', ["two\nlines", 1]),
    (r"\a \newline \space \u0041 \] \é", [Character(char) for char in ("a", "\n", " ", "A", "]", "é")]),
    (" {:a 1, :b [2 (3)]}", [{A: 1, B: (2, (3,))}]),
    ("#{1 2} #{}", [frozenset({1, 2}), frozenset()]),
    ("#{1 true 1.0 1M} #{true}", [frozenset({1, *map(Symbol, ("true", "1.0", "1M"))}), frozenset({True})]),
    ("{[1] :a [true] :b [#{1}] {} [#{1.0}] {}}", [{(1,): A, (Symbol("true"),): keyword("b"),
                                        (frozenset({1}),): {}, (frozenset({Symbol("1.0")}),): {}}]),
    ("{} {:a {}}", [{}, {A: {}}]),
    ('#inst "2020" #a/b {:a 1} #x #y 1', [Tagged("inst", "2020"), Tagged("a/b", {A: 1}),
                                          Tagged("x", Tagged("y", 1))]),
    ("#_ 1 2 #_#_ 3 4 5 #_ #x 6 #_[7 {:a #_8 9}] 10", [2, 5, 10]),
    (r'"\ud83d\ude00"', ["😀"]), ("1 ; [ \" {\n2;3", [1, 2]),
    ("1,2,,3", [1, 2, 3]), ("٣", [Symbol("٣")]),
    ("[{:a 1} {:a 2}]", [{A: 1}, {A: 2}]),  # one vector or list is read as its elements
    ("({:a 1}, {:a 2})\n; end", [{A: 1}, {A: 2}]), ("\n;head\n[ {:a 1}\n{:a 2} ]\n", [{A: 1}, {A: 2}]),
    ("", []), (" ; nothing", []), ("\n\n", []),
    ("#{ {:a 1} [ {:b 2} ] }", [frozenset({Tagged("map", frozenset({(A, 1)})),
                                           (Tagged("map", frozenset({(B, 2)})),)})]),
    ("{ {:a 1} 2 }", [{Tagged("map", frozenset({(A, 1)})): 2}]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FORMS)
def test_a_text_gives_its_forms(text: str, expected: list[object]) -> None:
    """True is not 1 and 2.0 is not 2."""
    found = read(text)
    assert found == expected
    assert [type(form) for form in found] == [type(form) for form in expected]


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

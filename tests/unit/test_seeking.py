"""Lookup of lines in big files by key, by number and by content: as by reading the whole file."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.harness.report.run_files import Budget, LineFile

KEY = re.compile(rb"k(\d+) ")


def line_of(key: int, rest: str) -> bytes:
    return f"k{key} {rest}\n".encode() if key % 7 else f"no key {rest}\n".encode()


LINES = st.lists(st.integers(0, 200), max_size=60, unique=True).map(sorted).flatmap(
    lambda keys: st.tuples(*(st.text("xy", max_size=90).map(lambda rest, key=key: line_of(key, rest))
                             for key in keys)))


@settings(max_examples=50)
@given(lines=LINES, torn=st.booleans(), target=st.integers(0, 210))
def test_a_line_is_found_as_by_reading_all(
        tmp_path_factory: pytest.TempPathFactory, lines: tuple[bytes, ...], torn: bool, target: int) -> None:
    """By its key: the first that is not below; by its number; by its content."""
    data = b"".join(lines)[:-1 if torn else None]
    path = tmp_path_factory.mktemp("seeking") / "file"
    path.write_bytes(data)
    whole = list(enumerate(data.splitlines(keepends=True), 1))

    file = LineFile(path, path.parent)
    matching = [number for number, line in whole if (key := KEY.search(line)) and int(key[1]) >= target]
    assert file.first_at_or_above([KEY], target) == next(iter(matching), None)
    assert list(file.lines()) == whole
    assert list(file.lines(3, 5)) == whole[2:4]
    assert [file.line(number) for number, _ in whole] == [line for _, line in whole]
    assert file.line(0) is file.line(len(whole) + 1) is None
    for wanted in (b"xyx", re.compile(b"xyx")):
        assert list(file.containing(wanted, Budget(left=1 << 20), 2)) == [
            one for one in whole[1:] if b"xyx" in one[1]]


def test_a_search_ends_with_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"here\n" * 100)
    budget = Budget(left=128)
    found = list(LineFile(path, path.parent).containing(b"here", budget))
    assert 20 <= len(found) <= 40
    assert budget.left <= 0
    assert list(LineFile(path, path.parent).containing(b"here", budget)) == []


def test_a_line_out_of_order_may_be_missed_but_no_wrong_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"".join(line_of(key, "x") for key in (9, 3, 8, 1, 12, 2)))
    file = LineFile(path, path.parent)
    for target in range(13):
        found = file.first_at_or_above([KEY], target)
        key = KEY.search(file.line(found) or b"") if found is not None else None
        assert found is None or (key is not None and int(key[1]) >= target)

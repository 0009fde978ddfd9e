"""Lookup of lines in big files by key, by number and by content: as by reading the whole file."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.harness.report import run_files
from floodmark.harness.report.run_files import Budget, LineFile

KEY = re.compile(rb"k(\d+) ")


def key_of(line: bytes) -> int | None:
    found = KEY.search(line)
    return None if found is None else int(found[1])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few lines are several blocks."""
    monkeypatch.setattr(run_files, "BLOCK_BYTES", 64)


def line_of(key: int, rest: str) -> bytes:
    return f"k{key} {rest}\n".encode() if key % 7 else f"no key {rest}\n".encode()


LINES = st.lists(st.integers(0, 200), max_size=60, unique=True).map(sorted).flatmap(
    lambda keys: st.tuples(*(st.text("xy", max_size=90).map(lambda rest, key=key: line_of(key, rest))
                             for key in keys)))


@given(lines=LINES, torn=st.booleans(), target=st.integers(0, 210))
def test_a_line_is_found_as_by_reading_all(
        tmp_path_factory: pytest.TempPathFactory, lines: tuple[bytes, ...], torn: bool, target: int) -> None:
    """By its key: the first that is not below; by its number; by its offset; by its content."""
    data = b"".join(lines)[:-1 if torn else None]
    path = tmp_path_factory.mktemp("seeking") / "file"
    path.write_bytes(data)
    whole = data.splitlines(keepends=True)
    begins = [sum(map(len, whole[:number])) for number in range(len(whole))]

    file = LineFile(path, path.parent)
    found = file.first_at_or_above(key_of, target)
    matching = [line for line in whole if (key := key_of(line)) is not None and key >= target]
    assert (found.line if found else None) == next(iter(matching), None)
    for number in (*range(len(whole), 0, -3), *range(1, len(whole) + 1)):
        numbered = file.numbered(number)
        assert numbered is not None
        assert (numbered.line, numbered.begin) == (whole[number - 1], begins[number - 1])
        assert file.number_of(begins[number - 1]) == number
    assert file.numbered(0) is None
    assert file.numbered(len(whole) + 1) is None
    holding = list(file.containing(b"xyx", Budget(left=1 << 20)))
    assert [one.line for one in holding] == [line for line in whole if b"xyx" in line]
    places = [at for at, line in zip(begins, whole, strict=True) if b"xyx" in line]
    assert [one.begin for one in holding] == places


def test_a_search_ends_with_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"here\n" * 100)
    budget = Budget(left=128)
    found = list(LineFile(path, path.parent).containing(b"here", budget))
    assert 20 <= len(found) <= 40
    assert budget.left <= 0
    assert list(LineFile(path, path.parent).containing(b"here", budget)) == []


def test_a_file_that_grows_is_counted_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a line\n" * 12)
    file = LineFile(path, tmp_path)
    assert (file.numbered(12) is not None, file.numbered(13)) == (True, None)
    path.write_bytes(b"a line\n" * 40)
    assert [file.number_of(7 * number) for number in range(40)] == list(range(1, 41))
    assert all(file.numbered(number) is not None for number in range(1, 41))


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "nothing", tmp_path)
    assert file.first_at_or_above(key_of, 1) is None
    assert file.numbered(1) is None
    assert file.number_of(5) is None
    assert list(file.containing(b"x", Budget(left=9))) == list(file.lines()) == []
    assert file.size() == 0
    assert isinstance(file.trouble, FileNotFoundError)


def test_a_line_out_of_order_may_be_missed_but_no_wrong_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"".join(line_of(key, "x") for key in (9, 3, 8, 1, 12, 2)))
    for target in range(13):
        found = LineFile(path, path.parent).first_at_or_above(key_of, target)
        assert found is None or (key_of(found.line) or -1) >= target


class Counting(bytes):
    """The bytes of a file, which count those that were looked at."""

    looked_at = 0

    def find(self, wanted: bytes, begin: int = 0, *_: int) -> int:  # type: ignore[override]
        found = super().find(wanted, begin)
        self.looked_at += found - begin
        return found


def test_a_look_up_in_a_large_file_reads_little_of_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some dozens of lines of 200,000."""
    data = Counting(b"".join(b"k%d some more words\n" % number for number in range(200_000)))
    monkeypatch.setattr(LineFile, "data", lambda _: data)
    found = LineFile(tmp_path / "file", tmp_path).first_at_or_above(key_of, 123_456)
    assert found is not None
    assert key_of(found.line) == 123_456
    assert 0 < data.looked_at < 10_000

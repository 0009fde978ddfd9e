"""Folders that floodmark makes for itself: a temporary one is gone after its context, wherever a signal
strikes; the user's cache has its place, its locks, and what is kept."""

import os
import shutil
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from floodmark.harness import user_cache
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.user_cache import cache_folder, keep_newest, one_at_a_time, try_lock


class Struck(BaseException):
    """What a signal's handler raises."""


def struck_at(number: int, parent: Path) -> bool:
    """Raises Struck after the given call of a C function, where CPython looks for signals; False if making
    the folder takes fewer."""
    calls = 0

    def step(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "c_return"
        if event == "c_return" and calls == number:
            raise Struck

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        with temporary_folder("data-", parent):
            sys.setprofile(before)
    except Struck:
        return True
    finally:
        sys.setprofile(before)
    return False


def test_it_is_made_and_removed_with_what_is_in_it_unless_it_was_renamed(tmp_path: Path) -> None:
    with temporary_folder("data-", tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith("data-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "deeper").mkdir()
        (folder / "deeper" / "log").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []
    with temporary_folder("data-", tmp_path) as folder:
        folder.rename(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_signal_after_any_call_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    number = 1
    while struck_at(number, tmp_path):
        assert list(tmp_path.iterdir()) == [], number
        number += 1
    assert number > 5


def test_a_signal_before_it_is_removed_leaves_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def struck(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        raise Struck

    monkeypatch.setattr(shutil, "rmtree", struck)
    with pytest.raises(Struck), temporary_folder("data-", tmp_path) as folder:
        (folder / "log").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


# -- the user's cache ---------------------------------------------------------------------------------------


def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "floodmark"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "floodmark"


def test_one_is_alone(tmp_path: Path) -> None:
    lock = tmp_path / "cache" / "lock"
    with try_lock(lock) as first, try_lock(lock) as second:
        assert (first, second) == (True, False)
    with try_lock(lock) as third:
        assert third


def test_the_second_waits_and_says_so_once(tmp_path: Path) -> None:
    lines: list[str] = []
    waits, order = threading.Event(), []

    def report(line: str) -> None:
        lines.append(line)
        waits.set()

    def second() -> None:
        with one_at_a_time(tmp_path / "lock", "making tea", report):
            order.append("second")

    thread = threading.Thread(target=second)
    with one_at_a_time(tmp_path / "lock", "making tea", lines.append):
        thread.start()
        assert waits.wait(120)
        order.append("first")
    thread.join(120)
    assert order == ["first", "second"]
    assert lines == ["another process is making tea: waiting for it"]


def test_it_does_not_wait_for_ever_or_without_a_lock(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_cache, "LOCK_TIMEOUT_S", 0.2)
    with one_at_a_time(tmp_path / "lock", "making tea", print):
        for lock, why in ((tmp_path / "lock", r"has been making tea for 0.2 s \(it locks .*/lock\): end it"),
                          (Path("/dev/null/lock"), "set XDG_CACHE_HOME elsewhere")):
            with pytest.raises(FloodmarkError, match=why), one_at_a_time(lock, "making tea", print):
                raise AssertionError


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for age in range(6):
        path = tmp_path / f"spark-4.3.0-{age}.jsa"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "something-else").touch()
    newest = tmp_path / "spark-4.3.0-5.jsa"  # the oldest by its time, but the one just built

    keep_newest(newest, "spark-*.jsa", 3)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "something-else", "spark-4.3.0-0.jsa", "spark-4.3.0-1.jsa", "spark-4.3.0-5.jsa"]  # fmt: skip

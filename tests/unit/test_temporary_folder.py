"""The temporary folder is gone after its context, wherever a signal strikes."""

import shutil
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from floodmark.harness.run_location import temporary_folder


class Struck(BaseException):
    """What a signal's handler raises."""


def used(parent: Path) -> None:
    with temporary_folder("data-", parent) as folder:
        (folder / "log").write_bytes(b"x")


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


@pytest.mark.parametrize(("owner", "name"), [(Path, "mkdir"), (shutil, "rmtree")])
def test_a_signal_just_after_the_folder_is_made_or_before_it_is_removed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    plain = getattr(owner, name)
    strikes = [1]

    def striking(*args: Any, **more: Any) -> None:
        if name == "mkdir":
            plain(*args, **more)
        if strikes and strikes.pop():
            raise Struck
        if name == "rmtree":
            plain(*args, **more)

    monkeypatch.setattr(owner, name, striking)
    with pytest.raises(Struck):
        used(tmp_path)
    assert strikes == []
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []

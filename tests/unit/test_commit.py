"""run.json's `commit`: that of floodmark's own checkout, never of a repository that happens to enclose it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from floodmark.harness.commands.run import commit

PACKAGE = Path(__file__).parents[2] / "harness"


def git(folder: Path, *words: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ran = subprocess.run(["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words],
                         capture_output=True, text=True, check=True, env=plain)
    return ran.stdout.strip()


def repository(root: Path) -> str:
    """One commit; its name."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    (root / "file").write_text("something")
    git(root, "add", "file")
    git(root, "commit", "-q", "-m", "first")
    return git(root, "rev-parse", "HEAD")


def put(root: Path, *, setup: str | None = "[metadata]\nname = floodmark\n") -> Path:
    """The package in a folder, with a setup.cfg beside it."""
    shutil.copytree(PACKAGE / "client", root / "harness" / "client")
    if setup is not None:
        (root / "setup.cfg").write_text(setup)
    return root / "harness"


def test_a_checkout_tells_its_own(tmp_path: Path) -> None:
    """Also when it was come to by a link, and when a hook of another repository calls."""
    named = repository(tmp_path / "src")
    package = put(tmp_path / "src")
    (tmp_path / "link").symlink_to("src")
    assert commit(package) == named
    assert commit(tmp_path / "link" / "harness") == named


def test_a_hook_of_another_repository_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = repository(tmp_path / "src")
    repository(tmp_path / "other")
    (tmp_path / "other" / "more").write_text("more")
    git(tmp_path / "other", "add", "more")
    git(tmp_path / "other", "commit", "-q", "-m", "second")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert git(tmp_path / "other", "rev-parse", "HEAD") != named
    assert commit(put(tmp_path / "src")) == named


def test_a_project_with_its_environment_in_it_is_somebody_elses(tmp_path: Path) -> None:
    """The usual place of an installed package, a repository above it; that one may have a setup.cfg too."""
    repository(tmp_path / "project")
    (tmp_path / "project" / "setup.cfg").write_text("[metadata]\nname = floodmark\n")
    assert commit(put(tmp_path / "project" / ".venv" / "lib" / "site-packages", setup=None)) is None


@pytest.mark.parametrize("setup", [None, "[metadata]\nname = another\n", "no ini at all", "[options]\n"])
def test_a_repository_that_holds_it_and_is_not_its_own(tmp_path: Path, setup: str | None) -> None:
    """Somebody's copy among other things."""
    repository(tmp_path / "theirs")
    assert commit(put(tmp_path / "theirs", setup=setup)) is None


def test_no_repository_at_all(tmp_path: Path) -> None:
    assert commit(put(tmp_path)) is None

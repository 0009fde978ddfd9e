"""run.json's `commit`: that of floodmark's own checkout, never of a repository that contains it by chance."""

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


def repository(root: Path, content: str = "something") -> str:
    """A repository with one commit; its hash."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    (root / "file").write_text(content)
    git(root, "add", "file")
    git(root, "commit", "-q", "-m", "first")
    return git(root, "rev-parse", "HEAD")


def install_package(root: Path, *, setup: str | None = "[metadata]\nname = floodmark\n") -> Path:
    """The package in a folder, with a setup.cfg beside it."""
    shutil.copytree(PACKAGE / "client", root / "harness" / "client")
    if setup is not None:
        (root / "setup.cfg").write_text(setup)
    return root / "harness"


def test_a_checkout_gives_its_own_commit(tmp_path: Path) -> None:
    """Also through a link."""
    commit_hash = repository(tmp_path / "src")
    package = install_package(tmp_path / "src")
    (tmp_path / "link").symlink_to("src")
    assert commit(package) == commit_hash
    assert commit(tmp_path / "link" / "harness") == commit_hash


def test_the_environment_of_another_repositorys_hook_is_ignored(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_hash, other = repository(tmp_path / "src"), repository(tmp_path / "other", "more")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert other != commit_hash
    assert commit(install_package(tmp_path / "src")) == commit_hash


def test_a_project_that_contains_the_virtual_environment_is_not_the_checkout(tmp_path: Path) -> None:
    """The usual place of an installed package, below a repository that may have a setup.cfg too."""
    repository(tmp_path / "project")
    (tmp_path / "project" / "setup.cfg").write_text("[metadata]\nname = floodmark\n")
    package = install_package(tmp_path / "project" / ".venv" / "lib" / "site-packages", setup=None)
    assert commit(package) is None


@pytest.mark.parametrize("setup", [None, "[metadata]\nname = another\n", "no ini at all", "[options]\n"])
def test_a_repository_that_only_contains_the_package_is_not_the_checkout(
        tmp_path: Path, setup: str | None) -> None:
    """A copy of the package in another project."""
    repository(tmp_path / "theirs")
    assert commit(install_package(tmp_path / "theirs", setup=setup)) is None


def test_without_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert commit(install_package(tmp_path)) is None

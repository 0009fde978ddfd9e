"""run.json's `commit`: that of floodmark's own checkout, never of a repository that contains it by chance."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from floodmark.harness.commands.run import commit

PACKAGE = Path(__file__).parents[2] / "harness"
FLOODMARK = "[metadata]\nname = floodmark\n"


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


def install_package(place: Path, project: Path | None = None, setup: str | None = FLOODMARK) -> Path:
    """The package in a folder of the project, which has this setup.cfg."""
    shutil.copytree(PACKAGE / "client", place / "harness" / "client")
    if setup is not None:
        ((project or place) / "setup.cfg").write_text(setup)
    return place / "harness"


def test_a_checkout_gives_its_own_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also through a link, and in the hook of another repository."""
    commit_hash, other = repository(tmp_path / "src"), repository(tmp_path / "other", "more")
    package = install_package(tmp_path / "src")
    (tmp_path / "link").symlink_to("src")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert other != commit_hash
    assert commit(package) == commit(tmp_path / "link" / "harness") == commit_hash


@pytest.mark.parametrize(("setup", "place"), [
    (None, "."), ("[metadata]\nname = another\n", "."), ("no ini at all", "."), ("[options]\n", "."),
    (FLOODMARK, ".venv/lib/site-packages")])
def test_a_repository_that_only_contains_the_package_is_not_the_checkout(
        tmp_path: Path, setup: str | None, place: str) -> None:
    """A copy of the package in another project; or installed below one, where setup.cfg is the project's."""
    assert commit(install_package(tmp_path / place, tmp_path, setup)) is None  # there is no repository
    repository(tmp_path)
    assert commit(tmp_path / place / "harness") is None

"""The traps of a folder named docker/; setup.cfg lists exactly the distributions that are imported, where
they are needed. (test_installed.py: every package is in the wheel.)"""

import configparser
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import docker

# A line that imports, anywhere in a file: parsing all modules would take ten times as long.
IMPORT = re.compile(r"^[ \t]*(?:from (?=\S+ import )|import (?=\S+$|\S+ as ))(\w+)", re.MULTILINE)
LONG_TEXT = re.compile(r"(\"{3}|'{3})[\s\S]*?\1")
ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("harness", "nemesis", "checkers", "workloads", "docker/broker")
EXTRAS = {extra: ROOT / "harness" / "cluster" / extra for extra in ("containers", "kafka")}  # and folders
TOOLS = {"import-linter", "mypy", "pytest-xdist", "ruff", "setuptools", "types-docker"}  # run, not imported
UNSEEN = {"playwright", "python-snappy", "zstandard"}  # imported if installed; imported by kafka-python


def test_no_package_is_called_docker_or_is_under_tests() -> None:
    """docker/__init__.py would shadow docker-py, and so would a bare folder, a namespace package; a package
    under tests/ would shadow ours, a script in docker/ that is run by its path a dependency."""
    assert docker.__file__ is not None
    assert list((ROOT / "docker").glob("*.py")) == []
    assert not (ROOT / "docker" / "__init__.py").exists()
    assert list((ROOT / "tests").rglob("__init__.py")) == []
    assert [
        p for p in (ROOT / "tests").rglob("*") if p.is_dir() and p.name in {"docker", *PRODUCT, "broker"}
    ] == []


# -- what is imported ---------------------------------------------------------------------------------------


def imported(files: Iterable[Path]) -> dict[str, set[Path]]:
    """Top names of modules that are neither Python's nor floodmark's, and the files that import them."""
    found: dict[str, set[Path]] = {}
    for file in files:
        for name in IMPORT.findall(LONG_TEXT.sub("", file.read_text(encoding="utf-8"))):
            found.setdefault(name, set()).add(file)
    own = {"floodmark", "__future__", *(path.stem for path in (ROOT / "tests").rglob("*.py"))}
    return {name: files for name, files in found.items() if name not in sys.stdlib_module_names | own}


def declared(words: str) -> set[str]:
    """The names of requirements, a line each."""
    lines = [line.partition("#")[0].strip() for line in words.splitlines()]
    return {canonical(re.split(r"[\s<>=!~\[;]", line)[0]) for line in lines if line}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(modules: Mapping[str, set[Path]]) -> set[str]:
    of = packages_distributions()
    return {canonical(of[name][0]) if name in of else name for name in modules}


def test_each_part_imports_what_it_declares() -> None:
    """The product without extras: all but the clusters that have one, and the plugin, which pytest itself
    imports. dev includes the extras: a development environment runs every test."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    always, extra = declared(setup["options"]["install_requires"]), setup["options.extras_require"]
    files = [file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")]
    found = imported(file for file in files if not {*EXTRAS.values()} & {*file.parents}
                     and file.name != "pytest_plugin.py")
    assert distributions(found) == always, found
    for name, folder in EXTRAS.items():
        found = imported(file for file in files if folder in file.parents)
        assert distributions(found) - always == declared(extra[name]), found
    tests, dev = distributions(imported((ROOT / "tests").rglob("*.py"))), declared(extra["dev"])
    extras = {one for name in EXTRAS for one in declared(extra[name])}
    assert tests <= dev | always
    assert extras <= dev <= tests | TOOLS | UNSEEN | extras

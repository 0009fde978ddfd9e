"""The traps of a folder named docker/; setup.cfg lists exactly the distributions that are imported, where
they are needed. (test_installed.py: every package is in the wheel.)"""

import configparser
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import docker

# A line that imports, anywhere in a file: parsing all modules would take ten times as long.
IMPORT = re.compile(r"^[ \t]*(?:from (?=\S+ import )|import (?=\S+$|\S+ as ))(\w+)", re.MULTILINE)
LONG_TEXT = re.compile(r"(\"{3}|'{3})[\s\S]*?\1")
ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("harness", "nemesis", "checkers", "workloads", "docker/broker")
EXTRAS = {extra: ROOT / "harness" / "cluster" / extra for extra in ("containers", "kafka")}  # and folders
TOOLS = {"import-linter", "mypy", "pytest-xdist", "ruff", "setuptools", "types-docker"}  # run, not imported
UNSEEN = {"playwright", "python-snappy", "zstandard"}  # imported if installed; imported by kafka-python


@pytest.fixture(name="setup", scope="module")
def the_setup() -> configparser.ConfigParser:
    words = configparser.ConfigParser(interpolation=None)
    words.read(ROOT / "setup.cfg", encoding="utf-8")
    return words


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


def imported(files: Iterator[Path]) -> dict[str, set[Path]]:
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


def product() -> Iterator[Path]:
    for folder in PRODUCT:
        yield from (ROOT / folder).rglob("*.py")


def test_the_product_imports_what_it_declares(setup: configparser.ConfigParser) -> None:
    """Without extras: all but the clusters that have one, and the plugin, which pytest itself imports."""
    files = (file for file in product() if not {*EXTRAS.values()} & {*file.parents})
    found = imported(file for file in files if file.name != "pytest_plugin.py")
    assert distributions(found) == declared(setup["options"]["install_requires"]), found


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_cluster_imports_what_its_extra_declares(extra: str, setup: configparser.ConfigParser) -> None:
    found = imported(file for file in product() if EXTRAS[extra] in file.parents)
    needed = declared(setup["options.extras_require"][extra])
    assert distributions(found) - declared(setup["options"]["install_requires"]) == needed, found


def test_the_tests_import_what_dev_declares(setup: configparser.ConfigParser) -> None:
    """dev includes the extras: a development environment runs every test."""
    found = distributions(imported((ROOT / "tests").rglob("*.py")))
    dev = declared(setup["options.extras_require"]["dev"])
    assert found <= dev | declared(setup["options"]["install_requires"])
    extras = {name for extra in EXTRAS for name in declared(setup["options.extras_require"][extra])}
    assert extras <= dev
    assert dev <= found | TOOLS | UNSEEN | extras

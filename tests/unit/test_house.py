"""The traps of a folder named docker/, and what is installed."""

import configparser
from pathlib import Path

import docker

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("harness", "nemesis", "checkers", "workloads", "docker/broker")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_import_docker_finds_docker_py() -> None:
    """A namespace package, which a bare docker/ folder makes, has no file."""
    assert docker.__file__ is not None


def test_no_package_is_called_docker_or_is_under_tests() -> None:
    """docker/__init__.py would shadow docker-py; a package under tests/ would shadow ours."""
    assert not (ROOT / "docker" / "__init__.py").exists()
    assert list((ROOT / "tests").rglob("__init__.py")) == []
    assert [
        p for p in (ROOT / "tests").rglob("*") if p.is_dir() and p.name in {"docker", *PRODUCT, "broker"}
    ] == []


def test_no_script_in_docker_shadows_a_dependency() -> None:
    """A script run by its path puts its folder first on the module path."""
    assert [p.name for p in (ROOT / "docker").glob("*.py")] == []


def test_every_package_on_disk_is_installed() -> None:
    """setup.cfg lists packages by hand: a new one that is not listed would be missing from the wheel."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = set(config["options"]["packages"].split())

    on_disk = {
        "floodmark." + name_of(init.parent).replace("docker/", "").replace("/", ".")
        for folder in PRODUCT
        for init in (ROOT / folder).rglob("__init__.py")
    }

    assert listed == on_disk | {"floodmark"}  # which has its __main__.py


def test_harness_and_broker_have_one_version() -> None:
    """They are installed together and share one control protocol."""
    from floodmark import broker, harness

    assert harness.__version__ == broker.__version__

"""The house style that no linter knows, and the traps of a folder named docker/."""

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

import docker

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("harness", "nemesis", "checkers", "workloads", "docker/broker")
LINES_OF_A_MODULE = 700  # a reason to think, not a place to cut
LINES_OF_A_FUNCTION = 50
WIDTH_OF_A_LINE = 110


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


PRODUCT_MODULES = modules(*PRODUCT)
ALL_MODULES = modules(*PRODUCT, "tests")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", ALL_MODULES, ids=name_of)
def test_a_module_fits_the_house(path: Path) -> None:
    """Under 700 lines, no line over 110, and the module says first what it is."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()

    assert len(lines) < LINES_OF_A_MODULE
    assert [n for n, line in enumerate(lines, 1) if len(line) > WIDTH_OF_A_LINE] == []
    assert ast.get_docstring(ast.parse(text)) or not text.strip()


@pytest.mark.parametrize("path", PRODUCT_MODULES, ids=name_of)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    """No function of the product is longer than 50 lines."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    too_long = {
        f.name: f.end_lineno - f.lineno + 1
        for f in functions
        if f.end_lineno and f.end_lineno - f.lineno + 1 > LINES_OF_A_FUNCTION
    }

    assert too_long == {}


def test_import_docker_finds_docker_py() -> None:
    """A namespace package, which a bare docker/ folder makes, has no file."""
    assert docker.__file__ is not None


def test_no_package_is_called_docker_and_none_stands_under_tests() -> None:
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

    assert listed == on_disk


def test_harness_and_broker_are_of_one_version() -> None:
    """They are installed together and speak one control protocol."""
    from floodmark import broker, harness

    assert harness.__version__ == broker.__version__


BREACHES = [
    ("harness/op.py", "import floodmark.harness.runner", "Downward only"),
    ("nemesis/grudges.py", "import floodmark.workloads", "Downward only"),
    ("harness/reports/phrases.py", "import floodmark.harness.commands.show", "Downward only"),
    ("harness/schedule/entry.py", "import floodmark.harness.protocols", "Downward only"),
    ("harness/schedule/entry.py", "import floodmark.harness.schedule.json_form", "No circle in the harness"),
    ("harness/cluster/hosts.py", "import floodmark.harness.cluster.local.cluster",
     "What every place shares"),
    ("harness/reports/phrases.py", "import floodmark.harness.cluster.views",
     "reach a cluster by the catalog"),
    ("harness/cluster/views.py", "import docker", "Docker stays"),
    ("harness/run.py", "import floodmark.broker", "imports the system under test"),
    ("docker/broker/server/broker_server.py", "import floodmark.harness", "knows nothing of its tester"),
    ("docker/broker/protocol/replica.py", "import time", "do no I/O"),
    ("docker/broker/storage/log_segment.py", "import floodmark.broker.server.config", "Arrows in the broker"),
    ("docker/broker/wire/api_keys.py", "import floodmark.broker.storage.log_segment", "Arrows in the broker"),
    ("docker/broker/protocol/errors.py", "import floodmark.broker.testing.bugs", "Arrows in the broker"),
    ("docker/broker/protocol/errors.py", "import floodmark.broker.protocol.replica",
     "No circle in the broker"),
    ("harness/runner.py", "import pyspark", "Spark stays with the judges"),
    ("checkers/judge/job.py", "import asyncio", "touches no cluster"),
    ("workloads/log.py", "import kio", "Two codecs: kio"),
    ("docker/broker/wire/codec.py", "import kafka", "Two codecs: the broker"),
]


@pytest.mark.parametrize(("module", "line", "contract"), BREACHES, ids=[f"{b[0]}: {b[1]}" for b in BREACHES])
def test_a_broken_contract_is_seen(tmp_path: Path, module: str, line: str, contract: str) -> None:
    """Each import contract of setup.cfg fails when a module breaks it."""
    for folder in PRODUCT:
        source = ROOT / folder
        target = tmp_path / "floodmark" / folder.replace("docker/", "")
        for path in source.rglob("*.py"):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "setup.cfg").write_text((ROOT / "setup.cfg").read_text(encoding="utf-8"), encoding="utf-8")
    broken = tmp_path / "floodmark" / module.replace("docker/", "")
    broken.write_text(broken.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")

    lint = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [lint, "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        timeout=120,
        check=False,
    )

    assert ran.returncode != 0, ran.stdout
    broken_contracts = [text for text in ran.stdout.splitlines() if "BROKEN" in text]
    assert any(contract in text for text in broken_contracts), ran.stdout + ran.stderr

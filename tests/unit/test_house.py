"""The house style that no linter checks, and the traps of a folder named docker/."""

import ast
import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import docker

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("harness", "nemesis", "checkers", "workloads", "docker/broker")
LINES_OF_A_MODULE = 700  # not a reason to split a module blindly
LINES_OF_A_FUNCTION = 50
WIDTH_OF_A_LINE = 110
BEGINS_WITH_DOCSTRING = re.compile(r'(?:#.*\n|\n)*r?"""\s*[\w`]')


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


PRODUCT_MODULES = modules(*PRODUCT)
ALL_MODULES = modules(*PRODUCT, "tests")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def faults_of(path: Path) -> list[str]:
    """How a module breaks the house style."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    faults = [f"line {n} is wider than {WIDTH_OF_A_LINE}"
              for n, line in enumerate(lines, 1) if len(line) > WIDTH_OF_A_LINE]
    if len(lines) >= LINES_OF_A_MODULE:
        faults.append(f"{len(lines)} lines")
    if text.strip() and not BEGINS_WITH_DOCSTRING.match(text):
        faults.append("does not begin with a docstring")
    if path in PRODUCT_MODULES:
        faults += [f"{node.name} has {length} lines" for node in functions_of(ast.parse(text))
                   if (length := (node.end_lineno or 0) - node.lineno + 1) > LINES_OF_A_FUNCTION]
    return faults


def functions_of(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Without descending into expressions, which are most of a tree."""
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef):
            yield below
        if not isinstance(below, ast.expr):
            yield from functions_of(below)


def test_every_module_follows_the_house_style() -> None:
    """Under 700 lines, none wider than 110, a docstring first; in the product no function over 50 lines."""
    assert len(PRODUCT_MODULES) > 300
    assert {name_of(path): faults for path in ALL_MODULES if (faults := faults_of(path))} == {}


def test_a_module_that_breaks_the_style_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.py"
    path.write_text("def long() -> None:\n" + "    pass\n" * 698 + "    # " + 110 * "-" + "\n    pass\n")
    monkeypatch.setattr(f"{__name__}.PRODUCT_MODULES", [path])

    assert faults_of(path) == [
        "line 700 is wider than 110", "701 lines", "does not begin with a docstring", "long has 701 lines",
    ]


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


# Module, what it imports, and the contract of setup.cfg that this breaks.
BREACHES = [
    ("harness/op.py", "floodmark.harness.runner", "Downward only"),
    ("nemesis/grudges.py", "floodmark.workloads", "Downward only"),
    ("harness/report/phrases.py", "floodmark.harness.commands.show", "Downward only"),
    ("harness/schedule/entry.py", "floodmark.harness.protocols", "Downward only"),
    ("harness/schedule/fields.py", "floodmark.harness.schedule.json_form", "No circle in the harness"),
    ("harness/cluster/place.py", "floodmark.harness.cluster.local.place",
     "What every place and every system shares"),
    ("harness/cluster/local/place.py", "floodmark.harness.cluster.reference.views",
     "A place knows no system"),
    ("harness/campaign/ledger.py", "floodmark.harness.cluster.simulated",
     "reaches the simulated cluster by its name"),
    ("harness/report/phrases.py", "floodmark.harness.cluster.reference.views",
     "reach a cluster by the catalog"),
    ("harness/cluster/reference/views.py", "docker", "Docker stays"),
    ("harness/run.py", "floodmark.broker", "imports the system under test"),
    ("docker/broker/server/broker_server.py", "floodmark.harness", "knows nothing of its tester"),
    ("docker/broker/protocol/replica.py", "time", "do no I/O"),
    ("docker/broker/storage/log_segment.py", "floodmark.broker.server.config", "Arrows in the broker"),
    ("docker/broker/wire/api_keys.py", "floodmark.broker.storage.log_segment", "Arrows in the broker"),
    ("docker/broker/protocol/errors.py", "floodmark.broker.testing.bugs", "Arrows in the broker"),
    ("docker/broker/protocol/errors.py", "floodmark.broker.protocol.replica",
     "No circle in the broker"),
    ("harness/client/brokers.py", "floodmark.harness.cluster.simulated.scheduler",
     "Who is not the catalogue"),
    ("harness/runner.py", "pyspark", "Spark stays with the judges"),
    ("checkers/judge/job.py", "asyncio", "touches no cluster"),
    ("workloads/log.py", "kio", "Two codecs: kio"),
    ("docker/broker/wire/codec.py", "kafka", "Two codecs: the broker"),
]


@pytest.fixture(scope="module")
def broken_contracts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What lint-imports reports for each contract, on a copy of the product with all breaches at once."""
    root = tmp_path_factory.mktemp("breaches")
    for folder in PRODUCT:
        for path in modules(folder):
            copy = root / "floodmark" / folder.replace("docker/", "") / path.relative_to(ROOT / folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    shutil.copyfile(ROOT / "setup.cfg", root / "setup.cfg")
    for module, imported, _ in BREACHES:
        with (root / "floodmark" / module.replace("docker/", "")).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {imported}\n")
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=root,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        timeout=120,
        check=False,
    )
    assert ran.returncode != 0, ran.stdout + ran.stderr
    _, *parts = re.split(r"\n\n((?:.+\n)+?)-+\n\n", ran.stdout.split("Broken contracts")[1])
    texts = [" ".join(text.split()) for text in parts]  # lines are wrapped
    return dict(zip(texts[::2], texts[1::2], strict=True))


@pytest.mark.parametrize(
    ("module", "imported", "contract"), BREACHES, ids=[f"{b[0]}: import {b[1]}" for b in BREACHES])
def test_a_broken_contract_is_reported(
    broken_contracts: dict[str, str], module: str, imported: str, contract: str
) -> None:
    """Each import contract of setup.cfg names the very import that breaks it."""
    importer = "floodmark." + module.replace("docker/", "").removesuffix(".py").replace("/", ".")
    of_contract = [words for name, words in broken_contracts.items() if contract in name]
    if "circle" in contract:  # these name siblings
        importer, imported = (f".{name.rpartition('.')[2]}" for name in (importer, imported))

    assert len(of_contract) == 1, sorted(broken_contracts)
    assert f"{importer} -> {imported} (" in of_contract[0]


def test_every_contract_has_a_breach() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    prefix = "importlinter:contract:"
    contracts = [section["name"] for name, section in config.items() if name.startswith(prefix)]

    assert [name for name in contracts if not any(breach[2] in name for breach in BREACHES)] == []


@pytest.mark.parametrize("call", ["time.time()", "uuid.uuid4()", "os.urandom(4)", "datetime.datetime.now()",
                                  "random.random()", "threading.Thread()", "subprocess.run([])"])
@pytest.mark.parametrize("folder", ["docker/broker", "harness/client", "nemesis", "workloads"])
def test_lint_forbids_what_a_simulation_refuses(call: str, folder: str) -> None:
    """Outside of the seams."""
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename"]
    code = f"import {call.partition('.')[0]}\n{call}\n"
    found = subprocess.run([*command, f"{folder}/new.py", "-"], input=code, cwd=ROOT, capture_output=True,
                           text=True, check=False)

    assert "TID251" in found.stdout

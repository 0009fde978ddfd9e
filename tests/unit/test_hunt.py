"""The driver of tests/hunt: which runs count as a find, which rows are measured again, their sum."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

HUNT = Path(__file__).resolve().parents[1] / "hunt"


@pytest.fixture(scope="module")
def hunt() -> Iterator[ModuleType]:
    sys.path.insert(0, str(HUNT))
    try:
        spec = importlib.util.spec_from_file_location("hunt_driver", HUNT / "hunt.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(HUNT))


def program(folder: Path, script: str) -> Path:
    """A `floodmark` that runs the script; $VERDICT is the file of --json, and the other variables are the
    options' values."""
    path = folder / "floodmark"
    path.write_text("#!/bin/sh\necho run >> \"$(dirname \"$0\")/runs\"\n"
                    "while [ $# -gt 0 ]; do\n"
                    "case $1 in --json) VERDICT=$2;; --seed) SEED=$2;; --nemesis) NEMESIS=$2;; "
                    "--out) OUT=$2;; esac\n"
                    "shift\ndone\n"
                    f"{script}\n")
    path.chmod(0o755)
    return path


def invalid(name: str, klass: str) -> str:
    return verdict_of(False, findings=[{"name": name, "class": klass}])


def verdict_of(valid: bool | str, *, findings: Sequence[object] = (), unknown: Sequence[object] = ()) -> str:
    """What --json writes for one run."""
    return json.dumps({"folder/run": {"valid": valid, "findings": findings, "unknown": unknown}})


def pass_over(floodmark: Path, table: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", str(HUNT / "hunt.py"), "--floodmark", str(floodmark), "--write", str(table),
         "--only", "hw-skips-a-member,timeout-is-an-ack", *more],
        env={"PYTHONPATH": str(HUNT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60,
        check=False)


def test_a_bug_is_found_by_the_first_invalid_run(tmp_path: Path) -> None:
    found = invalid("lost-write", "bug")
    script = f"[ $SEED = 2 ] || [ $SEED = 12 ] || exit 0; echo '{found}' > $VERDICT; exit 1"
    result = pass_over(program(tmp_path, script), tmp_path / "table.md")
    assert result.returncode == 0, result.stderr
    rows = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[3:6] for row in rows] == [["lost-write", "2", "2"], ["lost-write", "12", "2"]]
    assert "Found 2 of 2" in result.stdout
    assert len((tmp_path / "runs").read_text().splitlines()) == 4


def test_a_permitted_finding_or_another_exit_code_is_no_find(tmp_path: Path) -> None:
    permitted = invalid("lost-write", "permitted")
    script = (f"echo '{permitted}' > $VERDICT; echo the cluster did not start >&2\n"
              "[ $SEED -gt 10 ] && exit 4; exit 0")
    result = pass_over(program(tmp_path, script), tmp_path / "table.md", "--seeds", "1")
    assert "Found 0 of 2. 1 more ended red without a finding, 1 passed." in result.stdout
    assert "exit 4: the cluster did not start |" in (tmp_path / "table.md").read_text()


def test_an_unknown_run_is_listed_with_the_judges_reason(tmp_path: Path) -> None:
    judged = verdict_of("unknown", unknown=[{"names": ["unseen"], "reason": "not settled: n1 is away"}])
    script = f"echo '{judged}' > $VERDICT; echo judging the run >&2; exit 3"
    pass_over(program(tmp_path, script), tmp_path / "table.md", "--seeds", "1")
    assert "exit 3: not settled: n1 is away |" in (tmp_path / "table.md").read_text()


def test_an_interrupted_pass_continues(tmp_path: Path) -> None:
    floodmark, table = program(tmp_path, "exit 0"), tmp_path / "table.md"
    pass_over(floodmark, table, "--seeds", "1", "--", "--settings", "drawn")
    first = table.read_text()
    assert "`--nemesis all --duration 40 --settings drawn`" in first
    result = pass_over(floodmark, table, "--seeds", "1")
    assert result.returncode == 0, result.stderr
    assert len((tmp_path / "runs").read_text().splitlines()) == 2
    assert table.read_text() == first


def test_a_command_that_is_refused_ends_the_pass(tmp_path: Path) -> None:
    result = pass_over(program(tmp_path, "echo no nemesis of that name >&2; exit 2"), tmp_path / "table.md")
    assert result.returncode == 1
    assert "no nemesis of that name" in result.stderr
    assert not (tmp_path / "table.md").exists()


def test_no_two_bugs_share_a_seed(hunt: ModuleType) -> None:
    seeds = [seed for one in hunt.bugs.BUGS.values() for seed in hunt.seeds_of(one, 3)]
    assert len(seeds) == len({*seeds})


def simulated(script: str, table: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(HUNT / script), "--cluster", "simulated", "--write", str(table), *more],
        capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
@pytest.mark.spark
def test_a_bug_is_found_in_simulated_runs(tmp_path: Path) -> None:
    """The first run finds it; a correct broker is valid, and its row is not measured again."""
    table = tmp_path / "found.md"
    result = simulated("hunt.py", table, "--only", "answers-the-last-offset", "--duration", "5", "--keep",
                       str(tmp_path / "keep"))
    assert result.returncode == 0, result.stderr
    (row,) = [line for line in table.read_text().splitlines() if line.startswith("| `")]
    bug, _, _, findings, _, runs, *_ = [cell.strip() for cell in row.strip("|").split("|")]
    assert (bug, "inconsistent-offsets" in findings, runs) == ("`answers-the-last-offset`", True, "1")

    table = tmp_path / "healthy.md"
    words = ("--count", "2", "--duration", "10", "--keep", str(tmp_path / "healthy"))
    result = simulated("healthy.py", table, *words)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line.split(" | ")[:3] for line in table.read_text().splitlines()[4:]]
    assert rows == [["| 1 to 2", "2", "2"], ["| all", "2", "2"]]
    assert not (tmp_path / "healthy" / "1").exists()
    first = table.read_text()
    assert (simulated("healthy.py", table, *words).stdout, table.read_text()) == ("", first)


# -- healthy runs -------------------------------------------------------------------------------------------

TRACE = (
    {"node": "controller", "event": "elect", "cause": "created"},
    {"node": "controller", "event": "elect", "cause": "expired"},
    {"node": "controller", "event": "isr", "cause": "alter"},
    {"node": "controller", "event": "isr", "cause": "expired"},
    {"node": "n1", "event": "isr", "cause": "learnt"},
    {"node": "n2", "event": "truncate", "from": 9, "to": 4},
    {"node": "n2", "event": "truncate", "from": 9, "to": 8},
)
HISTORY = ({"process": 3, "f": "send"}, {"process": -1, "f": "kill", "fault": {}},
           {"process": -1, "f": "start", "fault": {}}, {"process": -1, "f": "wait", "fault": {}})


def judged_run(folder: Path, *, acked: int, finding: str | None = None) -> str:
    """A script that makes a judged run folder as $OUT."""
    folder.mkdir()
    files = {"run.json": [{"nodes": ["n1", "n2", "n3"]}], "history.jsonl": HISTORY, "trace.jsonl": TRACE,
             "verdict.json": [{"valid": finding is None, "counts": {"acked": acked},
                               "findings": [{"name": finding}] if finding else []}]}
    for name, lines in files.items():
        (folder / name).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return f"cp -r {folder} $OUT"


def healthy(floodmark: Path, folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(HUNT / "healthy.py"), "--floodmark", str(floodmark),
         "--keep", str(folder / "keep"),
         "--write", str(folder / "table.md"), "--first", "7", "--count", "2", *more],
        capture_output=True, text=True, timeout=60, check=False)


def test_healthy_runs_are_counted_and_kept(tmp_path: Path) -> None:
    floodmark = program(tmp_path, judged_run(tmp_path / "made", acked=1000))
    assert healthy(floodmark, tmp_path).returncode == 0
    result = healthy(floodmark, tmp_path, "--beside", "1")
    assert result.returncode == 0, result.stderr
    table = (tmp_path / "table.md").read_text()
    assert "| 7 | 3 | 1000 | 1 | 1 | 2 | 5 | 1 | 1 | valid |\n| 8 | 3 | 1000 |" in table
    assert "2 of 2 valid." in table
    assert "1.00 (7)" in table
    assert "Faults: 2 kill." in table
    assert len((tmp_path / "runs").read_text().splitlines()) == 3  # and one without faults


@pytest.mark.parametrize(("acked_without", "finding"), [(2000, "stuck"), (10_000, None)])
def test_an_invalid_run_or_one_with_few_acks_is_no_success(tmp_path: Path, acked_without: int,
                                                           finding: str | None) -> None:
    struck = judged_run(tmp_path / "struck", acked=1000, finding=finding)
    calm = judged_run(tmp_path / "calm", acked=acked_without)
    floodmark = program(tmp_path, f"[ $NEMESIS = none ] && {calm} || {struck}")
    result = healthy(floodmark, tmp_path, "--beside", "1")
    assert result.returncode == 1
    assert (finding or "0.10 (7)") in result.stdout

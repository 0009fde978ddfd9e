"""Checks of other distributions: a SELECT and a function find; an invalid one fails, by its name."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import here
import pytest
from command_line import floodmark
from distributions import brings, forget
from stories import told

from floodmark.checkers.judge import layout
from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.judge.report import as_json
from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.registered import registered as registered_checks
from floodmark.checkers.laws.values import values
from floodmark.checkers.spark import session
from floodmark.harness.verdict import Verdict

MODULE = "somebodys_checks"
CODE = '''
SLOW = """
-- An ack took more than 2,500 ns.
select invoked.run, invoked.partition, acked."offset", invoked.value, invoked.process,
    [invoked.index, acked.index] as ops, 'acked late' as how
from sends invoked join sends acked using (run, partition, value)
where invoked.type = 'invoke' and acked.type = 'ok' and acked.time::hugeint - invoked.time > 2500;
"""

def lonely(unit):
    """A record that no other replica holds.

    Not even a follower outside the ISR."""
    unit.make("lonely", "from by_value where len(leader_at) > 0 and others = 0")
    unit.find("lonely", "select run, partition, leader_low as offset, value, ['n1'] as nodes from lonely")

def fussy(unit):
    if unit.rows("from sends where value = 666").num_rows:
        raise ArithmeticError("666 is too much")
'''
ALONE = (registered_checks,)  # without floodmark's own laws, which do not use what is registered
FEW = (log, values, registered_checks)  # of its own only those whose tables these checks use
Bring = Callable[..., None]
CHECKS = {"slow-ack": "SLOW", "lonely": "lonely", "fussy": "fussy"}


def distribution(site: Path, code: str, checks: Mapping[str, str], name: str = "somebodys") -> Path:
    """checks: name -> attribute."""
    points = [f"{check} = {MODULE}:{attribute}" for check, attribute in checks.items()]
    return brings(site, {"checks": points}, code, name=name, module=MODULE)


@pytest.fixture(name="bring")
def bringing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bring]:
    """Installs a distribution for this process."""

    def bring(code: str, checks: Mapping[str, str], *, name: str = "somebodys") -> None:
        monkeypatch.syspath_prepend(distribution(tmp_path / "site", code, checks, name))
        forget(MODULE)

    yield bring
    monkeypatch.undo()
    forget(MODULE)


TALES = {  # a line takes 1,000 ns
    "healthy": "1 acked 1 2 3",
    "late": "1 acked 1; 3 invoke send 2; fault heal; fault heal; 3 ok send 2@1; log 2",
    "just in time": "1 acked 1; 3 invoke send 2; fault heal; 3 ok send 2@1; log 2",
    "lonely": 'run leaders/0/isr=["n1"]; 1 acked 1; 4 send 5@1; log n1 1 5',
    "two of three": 'run leaders/0/isr=["n1"]; 1 acked 1; 4 send 5@1; log n1 1 5; log n3 1 5',
    "too much": "1 acked 665 666",
}
FOUND: Mapping[str, list[dict[str, Any]]] = {
    "late": [{"partition": 0, "offset": 1, "value": 2, "how": "acked late", "ops": [2, 5], "process": 3,
              "text": "slow-ack: partition 0 offset 1 value 2 process 3: acked late (index 2, 5)."}],
    "lonely": [{"partition": 0, "offset": 1, "value": 5, "nodes": ["n1"],
                "text": "lonely: partition 0 offset 1 value 5 on n1."}],
}
FAILED = "the judge failed: CheckFailed: the check '{}' of somebodys 0.3 failed: "


def check(verdicts: Mapping[str, Verdict]) -> None:
    """Hits, near misses, and the run for which a check raised."""
    for name, verdict in verdicts.items():
        examples = [dict(example) for finding in verdict.findings for example in finding.examples]
        assert examples == FOUND.get(name, []), name
        assert all(finding.klass == "bug" for finding in verdict.findings)
        failed = [f"{FAILED.format('fussy')}ArithmeticError: 666 is too much"] * (name == "too much")
        assert [one.reason for one in verdict.unknown] == failed
        assert verdict.valid == ("unknown" if failed else name not in FOUND)


def test_a_select_and_a_function_find(tmp_path: Path, bring: Bring) -> None:
    bring(CODE, CHECKS)
    folders = [told(tmp_path / name, tale) for name, tale in TALES.items()]

    check(dict(zip(TALES, here.judge(folders, FEW), strict=True)))


@pytest.mark.spark
def test_spark_workers_run_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the workers' own environment: in this process nothing is installed. In bags too:
    tests/integration/test_registered.py."""
    names = "late", "lonely", "too much"
    folders = [told(tmp_path / name, TALES[name]) for name in names]
    root = distribution(tmp_path / "site", CODE, CHECKS)
    monkeypatch.setitem(session.context().environment, "PYTHONPATH", str(root))
    monkeypatch.setattr(layout, "BIG_BYTES", -1)

    check(dict(zip(names, SparkJudge().judge(folders), strict=True)))


UNFIT = {
    "unknown": ("A = 'select run, nope from sends'", 'Binder Error: Referenced column "nope"'),
    "superfluous": ("A = 'select run, value as moment from sends'", '"moment"'),
    "text for a number": ("A = \"select run, 'x' as value from sends\"", "Could not convert string 'x'"),
    "no run": ("A = 'select value from sends'", "a row of it is of no run: every row needs the column run"),
    "no permit": ("A = 'select run, 99 as permit from sends'", "permit is 99; the numbers are those of"),
    "another name": ("def A(unit): unit.find('b', 'select run from sends')", "'b', which is not its name"),
    "no SELECT": ("A = 5", f"TypeError: {MODULE}:A is no SELECT and no function but int"),
    "not there": ("B = 5", "has no attribute 'A'"),
    "no code": ("A = ", "SyntaxError: invalid syntax"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_an_invalid_check_is_never_skipped(case: str, tmp_path: Path, bring: Bring) -> None:
    """The reason names the check and its distribution in one line."""
    code, why = UNFIT[case]
    bring(code, {"a": "A"})

    (verdict,) = here.judge([told(tmp_path / "run", "1 acked 1")], ALONE)

    assert (verdict.valid, verdict.findings, len(verdict.unknown)) == ("unknown", (), 1)
    assert verdict.unknown[0].reason.startswith(FAILED.format("a"))
    assert why in verdict.unknown[0].reason
    assert verdict.failure is not None


@pytest.mark.parametrize(("checks", "why"), [
    (("lost-write",), "check 'lost-write' of somebodys 0.3: floodmark has a finding of that name"),
    (("a'b",), "a name is made of letters, digits and . _ -"),
    (("a", "a"), "check 'a' of somebodys 0.3: others 0.3 brings one of that name too"),
])  # fmt: skip
def test_a_name_belongs_to_one_check(
        checks: tuple[str, ...], why: str, tmp_path: Path, bring: Bring) -> None:
    for name, distribution_name in zip(checks, ("somebodys", "others"), strict=False):
        bring("A = 'from sends limit 0'", {name: "A"}, name=distribution_name)

    (verdict,) = here.judge([told(tmp_path / "run", "1 acked 1")], ALONE)

    assert [why in one.reason for one in verdict.unknown] == [True]


def test_the_permit_is_reported(tmp_path: Path, bring: Bring) -> None:
    bring("A = \"select run, value, 6 as permit from sends where type = 'ok'\"", {"a": "A"})

    (verdict,) = here.judge([told(tmp_path / "run", "1 acked 1 2")], ALONE)

    findings = [(one.name, one.klass, one.permitted_by, one.count) for one in verdict.findings]
    assert (verdict.valid, findings) == (True, [("a", "permitted", "retries", 2)])


def test_explain_names_the_distribution(bring: Bring) -> None:
    """And shows its SELECT, or its function's docstring."""
    bring(CODE, {**CHECKS, "gone": "gone"})

    of = {name: floodmark("explain", name) for name in ("slow-ack", "lonely", "fussy", "gone")}

    assert {answer.code for answer in of.values()} == {0}
    assert "brought by somebodys 0.3, as somebodys_checks:lonely" in of["lonely"].out
    assert "means      A record that no other replica holds. Not even a follower" in of["lonely"].out
    assert "a SELECT   -- An ack took more than 2,500 ns. select invoked.run" in of["slow-ack"].out
    assert "means      its function has no docstring" in of["fussy"].out
    assert "fails      it cannot be loaded: AttributeError" in of["gone"].out
    assert "a check of somebodys 0.3" in floodmark("explain").out
    assert "lonely" in floodmark("explain", "lonley").err
    assert floodmark("explain", "lonley").code == 2


def test_show_reports_it_even_if_it_is_not_installed(tmp_path: Path, bring: Bring) -> None:
    """The folder may be from another machine."""
    bring(CODE, CHECKS)
    folder = told(tmp_path / "run", TALES["lonely"])
    (verdict,) = here.judge([folder], FEW)
    (folder / "verdict.json").write_text(json.dumps(as_json(verdict)))

    there = floodmark("show", folder, "--finding", "lonely")
    (tmp_path / "site" / "somebodys-0.3.dist-info" / "entry_points.txt").unlink()
    forget(MODULE)
    gone = floodmark("show", folder, "--finding", "lonely")

    for answer in (there, gone):
        assert (answer.code, "lonely: 1 finding, a bug" in answer.out) == (0, True), answer
        assert "lonely: partition 0 offset 1 value 5 on n1." in answer.out
    assert floodmark("show", folder, "--finding", "lonley").code == 2

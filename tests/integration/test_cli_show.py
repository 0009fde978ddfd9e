"""`floodmark show` and `explain`: what one sees of a run the next morning, as golden/shown.txt has it."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from command_line import edit_run, floodmark, golden
from folders import write_lines
from golden_text import case_as_written, cases_of
from pyarrow import parquet

from floodmark.checkers.text.explain import EXPLANATIONS, PERMISSIONS

FILE = "shown.txt"
CASES = cases_of(FILE)


def judged(folder: Path, findings: list[Mapping[str, Any]], unknown: list[Mapping[str, Any]]) -> None:
    """Writes the verdict, in the judge's form."""
    bugs = any(found["class"] == "bug" for found in findings)
    counts = {"ops": 20, "ok": 9, "fail": 0, "info": 0, "acked": 3, "torn": 0, "records": {"n1": 3}}
    (folder / "verdict.json").write_text(json.dumps({
        "format": 1, "valid": False if bugs else "unknown" if unknown else True, "findings": findings,
        "unknown": unknown, "counts": counts, "timings_s": {}}))


def made(parent: Path, name: str, changes: Iterable[str]) -> Path:
    """A copy of that saved run, with a verdict of the findings and unknowns, if there are any."""
    folder, findings, unknown = golden(parent, name), list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    for change in changes:
        what, value = change.split(" ", 1)
        file, _, words = value.partition(" ")
        match what:
            case "finding":
                findings.append(json.loads(value))
            case "unknown":
                unknown.append(json.loads(value))
            case "run":
                edit_run(folder, **json.loads(value))
            case "without":
                (folder / file).unlink()
            case "edit":
                (folder / file).write_text(re.sub(*words.split(), (folder / file).read_text()))
            case "file":
                (folder / file).parent.mkdir()
                (folder / file).write_text(words)
    if findings or unknown:
        judged(folder, findings, unknown)
    return folder


@pytest.mark.parametrize("title", CASES)
def test_what_is_shown_of_a_run(title: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    call, *changes = CASES[title][0].strip().splitlines()
    name, *words = call.split()
    answer = floodmark("show", made(tmp_path, name, changes), *words)
    assert answer.code == 0, answer
    said = (answer.err + answer.out).replace(str(tmp_path), "RUNS")
    case_as_written(FILE, CASES, title, "\n".join(line.rstrip() for line in said.splitlines()), request)


LOST = {"partition": 0, "offset": 1, "value": 2, "how": "overwritten", "ops": [9, 10], "text": ""}


def test_faults_before_the_promise_are_in_force_or_forgotten(tmp_path: Path) -> None:
    """A pause that was not resumed when the record was acked is shown as in force; a healed cut is not, nor
    what the run itself had mended by then."""
    folder = golden(tmp_path, "an-offset-is-given-twice")
    ops = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]

    def act(f: str, nodes: list[str]) -> dict[str, object]:
        return {"index": 0, "time": 0, "process": -1, "type": "info", "f": f, "fault": {"nodes": nodes}}

    ops = [act("cut", ["n1"]), act("heal", []), act("kill", ["n3"]), act("start", ["n3"]),
           act("pause", ["n2"]), *ops]
    write_lines(folder / "history.jsonl", [{**op, "index": index} for index, op in enumerate(ops)])
    judged(folder, [{"name": "lost-write", "class": "bug", "permitted_by": None, "count": 1,
                     "examples": [LOST]}], [])
    out = floodmark("show", folder, "--finding", "lost-write").out
    assert "in force then: pause n2\n" in out
    assert " cut n1" not in out
    edit_run(folder, mended=[0, 0])
    assert "in force then" not in floodmark("show", folder, "--finding", "lost-write").out


def test_a_dump_in_parquet_is_read_as_well(tmp_path: Path) -> None:
    """The same columns, the same picture."""
    folder = golden(tmp_path, "the-logs-part-below-the-high-watermark")
    as_lines = floodmark("show", folder, "--offset", 3).out
    for dump in (folder / "logs").glob("*.jsonl"):
        rows = [json.loads(line) for line in dump.read_text().splitlines()]
        parquet.write_table(pyarrow.Table.from_pylist(rows), dump.with_suffix(".parquet"))
        dump.unlink()
    assert floodmark("show", folder, "--offset", 3).out == as_lines
    (folder / "logs" / "n2.parquet").write_bytes(b"half")
    damaged = floodmark("show", folder, "--offset", 3)
    assert (damaged.code, "cannot read" in damaged.err) == (0, True)


# -- explain ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("names", "heads"), [
    (sorted(EXPLANATIONS), ["means", "near miss", "the law", "permitted"]),
    ([f"S{number}" for number in range(1, 21)], ["thought", "in fact"]),
    (PERMISSIONS, ["permits", "not with", "fact S"]),
])
def test_findings_facts_and_what_permits_are_explained(names: Iterable[str], heads: list[str]) -> None:
    """All names that a report has."""
    for name in names:
        answer = floodmark("explain", name)
        assert (answer.code, [word for word in heads if f"\n  {word}" in answer.out]) == (0, heads), name

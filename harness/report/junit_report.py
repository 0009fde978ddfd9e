"""Writes the folders of one call as a JUnit report, a test case each: `--junit FILE`.

Rules
1. A test case has one outcome at most, the gate's: servers show only the first of several. `failure`: a bug,
   or unknown, because the job fails then and the report must say why. `error`: a failure of the harness.
   `skipped`: unknown that --allow-unknown let through.
2. A test case is named after what was tested, the same every time (case_names.py): a CI server tracks a test
   by its name. The folder and the seed are properties.
3. Elements and attributes are those of Jenkins' schema (junit-10.xsd), which rejects others. A test case may
   have no properties there, so the suite's properties have them, with the case's name in front.
4. The XML is well-formed whatever text the findings contain.
"""

import datetime
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO
from xml.etree import ElementTree

import orjson

from floodmark.harness import __version__
from floodmark.harness.report.case_names import numbered
from floodmark.harness.report.gate_outcomes import Outcome, cut, report_of, visible, why
from floodmark.harness.report.run_outcome import CUT_SHORT, HARNESS, INVALID
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN

MESSAGE_CHARS = 1_000
REPORT_CHARS = 20_000
TAIL_BYTES = 1 << 16
OF_A_RUN = ("id", "seed", "rules", "cluster")  # keys of run.json that become properties
KINDS: Mapping[int, str] = {EXIT_INVALID: "failure", EXIT_UNKNOWN: "failure", EXIT_HARNESS: "error"}
Counts = Mapping[str, int]


def junit(outcomes: Sequence[Outcome], now: datetime.datetime) -> bytes:
    """The content of the file."""
    seconds = [seconds_of(outcome.folder) for outcome in outcomes]
    names = numbered(outcome.tested for outcome in outcomes)
    cases = [case_of(name, outcome, took_s) for name, outcome, took_s in zip(
        names, outcomes, seconds, strict=True)]
    return document(cases, properties_of(names, outcomes), now, sum(one or 0.0 for one in seconds))


def document(cases: Sequence[ElementTree.Element], properties: Iterable[tuple[str, str]],
             now: datetime.datetime, took_s: float) -> bytes:
    """The XML of one suite with these cases."""
    counts = {
        "tests": str(len(cases)),
        "failures": str(with_outcome(cases, "failure")),
        "errors": str(with_outcome(cases, "error")),
        "time": f"{took_s:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "floodmark", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {
        "name": "floodmark",
        **counts,
        "skipped": str(with_outcome(cases, "skipped")),
        "timestamp": now.isoformat(timespec="seconds"),
    })
    there = ElementTree.SubElement(suite, "properties")
    for name, value in [("floodmark", __version__), *properties]:
        ElementTree.SubElement(there, "property", {"name": visible(name), "value": visible(value)})
    suite.extend(cases)
    ElementTree.indent(root)
    file = io.BytesIO()
    ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    return file.getvalue() + b"\n"


def with_outcome(cases: Sequence[ElementTree.Element], kind: str) -> int:
    return sum(case.find(kind) is not None for case in cases)


def case_of(name: str, outcome: Outcome, took_s: float | None) -> ElementTree.Element:
    """The test case of one folder."""
    return junit_case(name, kind_of(outcome), report_of(outcome), type_=type_of(outcome), why=why(outcome),
                      took_s=took_s)


def junit_case(name: str, kind: str | None, text: str, *, type_: str = "", why: str = "",
               took_s: float | None = None, group: str = "floodmark") -> ElementTree.Element:
    """A test case. kind: failure, error, skipped, or None if it passed. The text is put where servers show
    it: in the outcome's element, else in system-out."""
    attributes = {"classname": group, "name": visible(name)}
    attributes |= {"time": f"{took_s:.3f}"} if took_s is not None else {}
    case = ElementTree.Element("testcase", attributes)
    text = visible(cut(text, REPORT_CHARS))
    if kind is not None:
        element = ElementTree.SubElement(case, kind, {
            "type": type_, "message": visible(cut(why, MESSAGE_CHARS))})
        element.text = text
    if kind in (None, "skipped"):
        ElementTree.SubElement(case, "system-out").text = text
    return case


def kind_of(outcome: Outcome) -> str | None:
    """The element for the outcome; None for a case that passed."""
    return KINDS.get(outcome.code) or ("skipped" if outcome.unknown else None)


def type_of(outcome: Outcome) -> str:
    """The type that servers group by: the worst finding's name, else `harness`, `interrupted` or
    `unknown`."""
    if outcome.ruling.kind == INVALID and outcome.failing:
        return str(outcome.failing[0]["name"])
    return {HARNESS: "harness", CUT_SHORT: CUT_SHORT}.get(outcome.ruling.kind, "unknown")


def properties_of(names: Sequence[str], outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str]]:
    """The suite's properties: the run of each test case."""
    for case, outcome in zip(names, outcomes, strict=True):
        about = outcome.about or {}
        yield f"{case}: folder", harmless(str(outcome.folder))
        yield from ((f"{case}: {name}", str(about[name])) for name in OF_A_RUN if name in about)


def seconds_of(folder: Place) -> float | None:
    """The run's length by the last complete line of its history; None if there is no such line."""
    try:
        run = RunAt(folder=folder)
        with run.open(run.history_path) as file:
            time_ns = orjson.loads(last_line(file))["time"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return time_ns / 1e9 if type(time_ns) is int and time_ns >= 0 else None


def last_line(file: BinaryIO) -> bytes:
    """The last complete line that is not blank, searched from the end: lines can be long, histories
    longer."""
    size = file.seek(0, io.SEEK_END)
    tail = TAIL_BYTES
    while True:
        file.seek(max(0, size - tail))
        lines = file.read().split(b"\n")[:-1]
        begun = lines if tail >= size else lines[1:]  # the first line lacks its beginning
        complete = next((line for line in reversed(begun) if line.strip()), None)
        if complete is not None or tail >= size:
            return complete or b""
        tail *= 8

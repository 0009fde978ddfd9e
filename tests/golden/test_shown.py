"""What `check`, `show` and the page of a run say of saved and told runs, call by call (shown.txt).

`run NAME` is a copy of a saved run, with its verdict if golden/accounts has one; `story` and `seconds` tell
one (stories.py). `found NAME EXAMPLE` adds a finding, `permitted CAUSE, NAME EXAMPLE` one that is no bug;
`unknown` and `not_made` name checks; after `judged` nothing was found. `about` changes run.json, `file` and
`edit` a file. Below each call (`check` finds what was found, `report` is the page without tags) is its
output, and after `!` what is on stderr.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pyarrow
import pytest
from command_line import edit_run, floodmark, golden
from command_line import verdict as verdict_in
from folders import lines_of
from golden_text import as_written, text_of, words_of
from judged_runs import VALID, VERDICTS, finding, judge_by, judged, judged_names
from pyarrow import parquet
from stories import in_seconds, told

from floodmark.checkers.judge.report import of_json
from floodmark.checkers.text.explain import EXPLANATIONS, PERMISSIONS
from floodmark.harness.report import verdict_text
from floodmark.harness.run import Run

LATEST = "an-offset-is-given-twice"


def folder_of(parent: Path, given: list[str]) -> Path:
    """The folder that these lines describe."""
    stories = [line[6:] for line in given if line.startswith("story ")]
    in_s = [line[8:] for line in given if line.startswith("seconds ")]
    folder = in_seconds(parent / "told", *in_s) if in_s else told(parent / "told", *stories)
    verdict: dict[str, Any] = {}
    for line in given:
        verb, _, rest = line.partition(" ")
        name, _, more = rest.partition(" ")
        if verb == "run":
            folder, saved = golden(parent, name), VERDICTS / f"{name}.json"
            verdict = json.loads(saved.read_text()) if saved.exists() else {}
        elif verb == "about":
            edit_run(folder, **json.loads(rest))
        elif verb == "file":
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(json.loads(more)) if more else (folder / name).unlink()
        elif verb == "edit":
            before, after = json.loads(more)
            (folder / name).write_text((folder / name).read_text().replace(before, after))
        elif verb not in ("story", "seconds"):
            verdict = changed(verdict or {**VALID, "findings": [], "unknown": [], "not_made": []}, verb, rest)
    if verdict:
        (folder / "verdict.json").write_text(json.dumps(verdict))
    return folder


def changed(verdict: dict[str, Any], verb: str, rest: str) -> dict[str, Any]:
    """The verdict with one more finding, or check that cannot tell."""
    head, _, example = rest.partition(" {")
    if verb in ("unknown", "not_made"):
        verdict[verb].append({"names": rest.split(), "reason": "no final reads"})
    elif verb != "judged":
        *cause, name = head.split(", ")
        examples = [{"text": f"{name} it is.", **one} for one in json.loads(f"[{{{example}]")]
        verdict["findings"].append(finding(name, *examples, by=cause[0] if cause else None))
        verdict["valid"] = verdict["valid"] is True and bool(cause)
    return verdict


def test_what_is_shown(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    judge_by(monkeypatch, lambda folder: of_json(verdict_in(folder)))
    now = ""
    for number, part in enumerate(text_of("shown.txt").removeprefix("== ").split("\n== ")):
        title, *lines = part.splitlines()
        written = [line for line in lines if line and not line.startswith(" ")]
        given = [line for line in written if not line.startswith(("show", "report", "check"))]
        folder = folder_of(tmp_path / str(number), given)
        now += "\n".join([f"== {title}", *given, ""])
        for call in written[len(given):]:
            answer = floodmark(*call.split(), folder)
            assert answer.code == 0 or call == "check", answer
            page = folder / "report.html"
            out = words_of(page.read_text()) if call == "report" else answer.out.splitlines()
            shown = [f"    {line}" for line in (*out, *(f"! {line}" for line in answer.err.splitlines()))]
            now += "\n".join([call, *(line.rstrip() for line in shown), ""]).replace(str(folder), "FOLDER")
    as_written("shown.txt", now, request)


@pytest.mark.parametrize("name", judged_names())
def test_every_line_that_is_named_is_the_one_meant(tmp_path: Path, name: str) -> None:
    """It is there, and what is told of it has its time, and of a client's its process."""
    folder = judged(tmp_path, name)
    reading = verdict_text.reading_of(folder, verdict_in(folder), Run(folder=folder).about())
    words = " ".join(click.unstyle(verdict_text.report(reading)).split())
    for file, number in re.findall(r"((?:history|trace|logs/\w+)\.jsonl):(\d+)", words):
        assert int(number) <= len((folder / file).read_text().splitlines())
    for file, who in (("history", r"process (\d+) "), ("trace", "()")):
        told = rf"at (-?[\d.]+) s {who}(?:(?!at -?[\d.]+ s |\.jsonl:).)*?\({file}\.jsonl:(\d+)[;)]"
        for time, process, number in re.findall(told, words):
            line = json.loads((folder / f"{file}.jsonl").read_text().splitlines()[int(number) - 1])
            assert f"{line['time'] / 1e9:.3f}" == time
            assert process in ("", str(line.get("process")))


def test_without_a_folder_the_latest_run_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = floodmark("show")
    assert (nothing.code, "floodmark run makes one" in nothing.err) == (2, True)
    (tmp_path / "histories" / "runs").mkdir(parents=True)
    (tmp_path / "histories" / "runs" / "latest").symlink_to(golden(tmp_path, LATEST))
    assert floodmark("show").out.startswith(f"{LATEST}: not judged yet")


def test_a_dump_in_parquet_is_read_as_well(tmp_path: Path) -> None:
    """The same columns, the same picture."""
    folder = golden(tmp_path, "the-logs-part-below-the-high-watermark")
    as_lines = floodmark("show", folder, "--offset", 3).out
    for dump in (folder / "logs").glob("*.jsonl"):
        parquet.write_table(pyarrow.Table.from_pylist(lines_of(dump)), dump.with_suffix(".parquet"))
        dump.unlink()
    assert floodmark("show", folder, "--offset", 3).out == as_lines
    (folder / "logs" / "n2.parquet").write_bytes(b"half")
    damaged = floodmark("show", folder, "--offset", 3)
    assert (damaged.code, "cannot read" in damaged.err) == (0, True)


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

"""`floodmark show` and `explain`: what an engineer sees of a run the next morning."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pyarrow
import pytest
from command_line import edit_lines, edit_run, floodmark, golden
from folders import write_lines
from pyarrow import parquet

from floodmark.checkers.text.explain import EXPLANATIONS, PERMISSIONS

OVERWRITTEN = "an-offset-is-given-twice"
PARTED = "the-logs-part-below-the-high-watermark"
STUCK = "no-ack-after-mending"
SEVERAL = "two-partitions-two-elections"


def judged(folder: Path, *findings: dict[str, object], unknown: tuple[dict[str, object], ...] = ()) -> Path:
    """The run with a verdict in its folder, in the judge's form."""
    bugs = any(found["class"] == "bug" for found in findings)
    counts = {"ops": 20, "ok": 9, "fail": 0, "info": 0, "acked": 3, "torn": 0, "records": {"n1": 3}}
    verdict = {"format": 1, "valid": False if bugs else "unknown" if unknown else True,
               "findings": list(findings), "unknown": list(unknown), "counts": counts, "timings_s": {}}
    (folder / "verdict.json").write_text(json.dumps(verdict))
    return folder


def finding(name: str, *examples: dict[str, object], by: str | None = None) -> dict[str, object]:
    return {"name": name, "class": "permitted" if by else "bug", "permitted_by": by, "count": len(examples),
            "examples": [{"text": f"{name} it is.", **example} for example in examples]}


LOST = {"partition": 0, "offset": 1, "value": 2, "how": "overwritten", "nodes": [], "ops": [4, 5]}


@pytest.fixture
def overwritten(tmp_path: Path) -> Path:
    """Value 2 was acked at offset 1, and later value 3 too."""
    return judged(golden(tmp_path, OVERWRITTEN), finding("lost-write", LOST))


# -- at a glance --------------------------------------------------------------------------------------------


def test_a_run_at_a_glance(overwritten: Path) -> None:
    """The verdict, the settings, the faults, the findings and what to type next; the folder last."""
    answer = floodmark("show", overwritten)
    assert answer.code == 0
    assert answer.out.startswith(f"{OVERWRITTEN}: INVALID\n")
    for words in ("rules kip-320", "acks=all", "min.insync.replicas=2", "ended      done; settled", "kill n1",
                  "lost-write: 1 finding, a bug", f"show {overwritten} --finding lost-write"):
        assert words in answer.out
    assert answer.last == str(overwritten)


UNSEEN = {"names": ["unseen"], "reason": "no final reads"}
SAID: list[tuple[str, tuple[object, ...], tuple[str, ...]]] = [
    # a run, the words behind its folder, what is said
    (SEVERAL, (), (f"{SEVERAL}: not judged yet", "floodmark check /")),
    ("the-harness-was-killed", (), ("the harness was killed",)),
    ("a-member-is-behind", ("--offset", 2), ("<- not in n3",)),
    (PARTED, ("--offset", 4711), ("no replica's dump has offset 4711",)),
    ("permitted", ("--finding", "lost-write"), (
        "permitted by fault budget", "whose fault: nobody's: more copies lost their data")),
    ("stuck", ("--finding", "stuck"), ("settling: no probe of partition 0 was acked in 30 s",)),
    ("stuck", ("--finding", "unseen"), ("unseen: cannot tell whether there is any: no final reads",)),
]
JUDGED = {  # of which run, and with which verdict
    "permitted": (OVERWRITTEN, finding("lost-write", LOST, by="fault budget"), ()),
    "stuck": (STUCK, finding("stuck", {"partition": 0, "how": "no_ack"}), (UNSEEN,)),
}


@pytest.mark.parametrize(("name", "words", "said"), SAID)
def test_what_is_said_of_a_run(
        tmp_path: Path, name: str, words: tuple[object, ...], said: tuple[str, ...]) -> None:
    run, found, unknown = JUDGED.get(name, (name, None, ()))
    folder = golden(tmp_path, run)
    if found is not None:
        judged(folder, found, unknown=unknown)
    answer = floodmark("show", folder, *words)
    assert (answer.code, [one for one in said if one not in answer.out]) == (0, []), answer


def test_a_node_that_died_is_shown_with_the_end_of_its_log(tmp_path: Path) -> None:
    folder = edit_run(golden(tmp_path, SEVERAL), died=["n2"])
    (folder / "work").mkdir()
    (folder / "work" / "n2.log").write_text("all is well\nout of memory\n")
    out = floodmark("show", folder).out
    assert re.search(r"died +n2 ended by itself; its last words: .*out of memory", out)


def test_without_a_folder_the_latest_run_is_shown(
        overwritten: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = floodmark("show")
    assert (nothing.code, "floodmark run makes one" in nothing.err) == (2, True)
    (tmp_path / "histories" / "runs").mkdir(parents=True)
    (tmp_path / "histories" / "runs" / "latest").symlink_to(overwritten)
    assert floodmark("show").out.startswith(f"{OVERWRITTEN}: INVALID\n")


def test_a_bad_line_is_reported_by_file_and_line_and_the_rest_is_shown(overwritten: Path) -> None:
    edit_lines(overwritten / "history.jsonl", lambda lines: [
        line.replace('"index":5,', '"index":5.5,') for line in lines])
    answer = floodmark("show", overwritten, "--finding", "lost-write")
    assert answer.code == 0
    assert f"{overwritten / 'history.jsonl'}:6: index is 5.5, not an integer" in answer.err
    assert "p0: 3 at 1" in answer.out


# -- a finding ----------------------------------------------------------------------------------------------


def test_a_finding_shows_whose_fault_since_when_and_what_struck_in_between(overwritten: Path) -> None:
    """The ack, the faults after it, and the op that returned another record at the offset, in this order."""
    answer = floodmark("show", overwritten, "--finding", "lost-write")
    assert answer.code == 0
    assert "whose fault: the cluster's" in answer.out
    assert re.search(r"since: [\d.]+ s \(index 5\); at [\d.]+ s \(index 11\) another record", answer.out)
    ack, kill, other = (answer.out.index(words) for words in ("p0: 2 at 1", "kill n1", "p0: 3 at 1"))
    assert ack < kill < other
    marks = {int(line[3:12]): line[2] for line in answer.out.splitlines()
             if re.match(r"  [> !] +\d+ +[\d.]+ s  ", line)}
    assert {index: marks[index] for index in (4, 5, 11)} == {4: ">", 5: ">", 11: ">"}
    assert "!" in marks.values()
    assert "floodmark explain lost-write" in answer.out


def test_faults_before_the_promise_are_in_force_or_forgotten(tmp_path: Path) -> None:
    """A pause that was not resumed when the record was acked is shown as in force; a healed cut is not, nor
    what the run itself had mended by then."""
    folder = golden(tmp_path, OVERWRITTEN)
    ops = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]

    def act(f: str, nodes: list[str]) -> dict[str, object]:
        return {"index": 0, "time": 0, "process": -1, "type": "info", "f": f, "fault": {"nodes": nodes}}

    ops = [act("cut", ["n1"]), act("heal", []), act("kill", ["n3"]), act("start", ["n3"]),
           act("pause", ["n2"]), *ops]
    write_lines(folder / "history.jsonl", [{**op, "index": index} for index, op in enumerate(ops)])
    judged(folder, finding("lost-write", {**LOST, "ops": [9, 10]}))
    out = floodmark("show", folder, "--finding", "lost-write").out
    assert "in force then: pause n2\n" in out
    assert " cut n1" not in out
    edit_run(folder, mended=[0, 0])
    assert "in force then" not in floodmark("show", folder, "--finding", "lost-write").out


def test_a_finding_of_the_logs_alone_shows_them_side_by_side_once(tmp_path: Path) -> None:
    """A second finding next to it is in the same picture."""
    first, second = ({"partition": 0, "offset": offset, "nodes": ["n3"]} for offset in (1, 3))
    folder = judged(golden(tmp_path, PARTED), finding("diverged", first, second))
    out = floodmark("show", folder, "--finding", "diverged").out
    assert out.count("final logs of partition 0") == 1
    assert "<- they differ" in out
    assert "1. diverged it is." in out
    assert "2. diverged it is." in out


# -- the logs -----------------------------------------------------------------------------------------------


def test_the_logs_side_by_side_at_an_offset(tmp_path: Path) -> None:
    """One column for each node, the leader starred; LEO and HW below; the run need not be judged for it."""
    answer = floodmark("show", golden(tmp_path, PARTED), "--partition", 0, "--offset", 3)
    assert answer.code == 0
    lines = answer.out.splitlines()
    titles = next(line for line in lines if "offset" in line and "n2" in line)
    assert len(re.findall(r"n[123]\*?", titles)) == 3
    assert titles.count("*") == 1
    asked = next(line for line in lines if re.match(r"  > +3 ", line))
    assert asked.endswith("<- they differ")
    assert any(re.match(r"    +1 .*<- their CRCs differ: n1 \d+, n2 \d+, n3 \d+", line) for line in lines)
    assert [next(line for line in lines if f" {name} " in line).split()[0] for name in ("LEO", "HW")] == [
        "LEO", "HW"]


def test_a_record_that_the_run_did_not_send_need_not_be_a_control_record(tmp_path: Path) -> None:
    folder = golden(tmp_path, PARTED)
    rows = [json.loads(line) for line in (folder / "logs" / "n2.jsonl").read_text().splitlines()]
    write_lines(folder / "logs" / "n2.jsonl", [{**row, "value": None} for row in rows])
    out = floodmark("show", folder, "--offset", 1).out
    assert re.search(r"  > +1 .* \d+/other", out)
    assert "control" not in out


def test_a_dump_in_parquet_is_read_as_well(tmp_path: Path) -> None:
    """The same columns, the same picture."""
    folder = golden(tmp_path, PARTED)
    as_lines = floodmark("show", folder, "--offset", 3).out
    for dump in (folder / "logs").glob("*.jsonl"):
        rows = [json.loads(line) for line in dump.read_text().splitlines()]
        parquet.write_table(pyarrow.Table.from_pylist(rows), dump.with_suffix(".parquet"))
        dump.unlink()
    assert floodmark("show", folder, "--offset", 3).out == as_lines
    (folder / "logs" / "n2.parquet").write_bytes(b"half")
    damaged = floodmark("show", folder, "--offset", 3)
    assert (damaged.code, "cannot read" in damaged.err) == (0, True)


def test_a_dump_that_is_missing_is_reported_and_the_others_are_shown(tmp_path: Path) -> None:
    folder = golden(tmp_path, PARTED)
    (folder / "logs" / "n2.jsonl").unlink()
    answer = floodmark("show", folder, "--offset", 1)
    assert answer.code == 0
    assert "n2.jsonl is missing" in answer.err
    assert "they differ" in answer.out


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

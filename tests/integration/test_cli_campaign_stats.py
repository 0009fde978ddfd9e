"""`floodmark campaign stats`: many folders in one pass, one of them damaged, and the second question."""

import json
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow.parquet as pq
import pytest
from command_line import floodmark
from stories import in_seconds

from floodmark.checkers import stats
from floodmark.checkers.spark import session
from floodmark.harness.campaign.state import FORMAT, writable_state
from floodmark.harness.spec import RunSpec

pytestmark = pytest.mark.spark


CRASHED = '{"rules": "kip-320", "nemesis": "crash", "seed": 7}'


def killed_for(folder: Path, gap_s: float, about: str = CRASHED) -> Path:
    """A run with a kill of n1 for a second at 10 s, and no ack from then on for so long."""
    return in_seconds(
        folder, f"about {about}", f"1 9-10; 1 10-{10 + gap_s}; 1 30-31; kill n1 10; start n1 11")


def figures(path: Path, *folders: Path | str, code: int = 0) -> dict[str, Any]:
    answer = floodmark("campaign", "stats", *folders, "--json", path)
    assert answer.code == code, answer
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def night(folder: Path, began: str, *gaps_s: float) -> Path:
    """A campaign's folder with a run for each gap, and one in which the harness failed."""
    (folder / "runs").mkdir(parents=True)
    about = {"format": FORMAT, "id": folder.name, "began": began}
    (folder / "campaign.json").write_bytes(orjson.dumps(about))
    state = writable_state(folder, float)
    for number, gap_s in enumerate((*gaps_s, None), 1):
        name = f"runs/{number:05d}"
        state.begin(number, 7, RunSpec(rules="kip-320"), name)
        if gap_s is not None:
            killed_for(folder / name, gap_s)
            state.end_run(number, {})
            state.judge(number, {"kind": "valid"}, None)
    return folder


def test_a_damaged_folder_is_named_and_the_others_count(tmp_path: Path) -> None:
    good = [killed_for(tmp_path / f"gap-{gap_s}", gap_s) for gap_s in (2, 4, 9)]
    torn = killed_for(tmp_path / "torn", 3)
    (torn / "run.json").write_text("{")
    answer = floodmark("campaign", "stats", good[0], torn, *good[1:], tmp_path)
    assert answer.code == 4
    assert f"not measured: {torn}: cannot read {torn / 'run.json'}" in answer.err
    assert f"not measured: {tmp_path}: {tmp_path} is no run folder" in answer.err
    assert answer.err.count("not measured") == 2
    row = next(line for line in answer.out.splitlines() if line.startswith("kill "))
    assert row.split("  ")[1].strip() == "3"
    assert "4 s (9 s)" in row  # the median of 2, 4 and 9 s, and the worst
    assert "~1 s > ~4 s > " in row  # of few sends
    assert "3 s (8 s)" in row  # from the mending, a second after the kill
    assert answer.out.index("gap-9") < answer.out.index("gap-4") < answer.out.index("gap-2")


@pytest.mark.parametrize(("damage", "gap_s"), [("none", 4.0), ("another version", 6.0), ("cut short", 6.0)])
def test_the_second_question_reads_what_the_first_has_kept(
    tmp_path: Path, damage: str, gap_s: float
) -> None:
    """Of a history that has changed since, and of a run that was shrunk. What is kept in another form is made
    anew."""
    run = killed_for(tmp_path / "run", 4)
    first = figures(tmp_path / "first.json", run)
    assert (first["faults"][0]["gap_s"], first["runs"][0]["faults_by_kind"]) == (4.0, {"kill": 1})
    kept = run / "measures.parquet"
    if damage == "cut short":
        kept.write_bytes(kept.read_bytes()[:-20])
    elif damage == "another version":
        pq.write_table(pq.read_table(kept).replace_schema_metadata({"floodmark.measures": "0"}), kept)
    killed_for(tmp_path / "other", 6)
    (tmp_path / "other" / "history.jsonl").replace(run / "history.jsonl")
    second = figures(tmp_path / "second.json", run)
    assert second["faults"][0]["gap_s"] == gap_s
    assert (second == first) == (damage == "none")
    for name in ("history.jsonl", "trace.jsonl", "replicas.jsonl"):
        (run / name).unlink(missing_ok=True)
    assert figures(tmp_path / "shrunk.json", run) == second


def test_nights_side_by_side_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    tuesday = night(tmp_path / "tuesday", "2026-11-24T01:00:00+01:00", 3, 5)
    monday = night(tmp_path / "monday", "2026-11-23T01:00:00+01:00", 2)
    stats = figures(tmp_path / "all.json", tuesday, monday, tuesday / "runs" / "00001")
    names = ["monday 2026-11-23", "tuesday 2026-11-24"]
    assert [row["night"] for row in stats["nights"]] == names
    assert [(row["runs"], row["gap_s"], row["max_gap_s"]) for row in stats["nights"]] == [
        (1, 2.0, 2.0), (2, 4.0, 5.0)]  # a run that is named twice counts once
    assert [(row["kind"], row["night"], row["gap_s"]) for row in stats["trend"]] == [
        ("kill", names[0], 2.0), ("kill", names[1], 4.0)]
    assert [(row["faults"], row["gap_s"]) for row in stats["by_kind"]] == [(3, 3.0)]
    said = floodmark("campaign", "stats", monday, tuesday).out
    assert "The same, night by night" in said
    assert "Nights: sums" in said


def test_parquet_for_a_notebook(tmp_path: Path) -> None:
    runs = [killed_for(tmp_path / f"gap-{gap_s}", gap_s) for gap_s in (2, 4)]
    assert floodmark("campaign", "stats", *runs, "--parquet", tmp_path / "out").code == 0
    faults = pq.read_table(tmp_path / "out" / "faults.parquet").to_pylist()
    assert [(row["run"], row["kind"], row["gap_s"]) for row in faults] == [
        ("gap-2", "kill", 2.0), ("gap-4", "kill", 4.0)]
    assert pq.read_table(tmp_path / "out" / "runs.parquet")["acked"].to_pylist() == [3, 3]
    page = (Path(stats.__file__).parent / "README.md").read_text()
    asked = page.split("```sql")[1].split("```")[0].replace("from '", f"from '{tmp_path / 'out'}/")
    worst, truncated = duckdb.extract_statements(asked)
    assert [row[1] for row in duckdb.execute(worst).fetchall()] == ["gap-4", "gap-2"]
    assert duckdb.execute(truncated).fetchall() == []
    again = floodmark("campaign", "stats", *runs, "--parquet", tmp_path / "out")
    assert (again.code, "is not empty" in again.err) == (2, True)


def test_runs_far_away_have_the_same_figures_and_keep_them(tmp_path: Path) -> None:
    """By a file: address, and in a place that only Hadoop reads; a damaged run is named by its address."""
    root = tmp_path / "nights"
    for gap_s in (2, 4):
        killed_for(root / f"gap-{gap_s}", gap_s)
    near = figures(tmp_path / "near.json", *sorted(root.iterdir()))
    assert figures(tmp_path / "file.json", f"file://{root}/gap-*") == near
    for kept in root.glob("*/measures.parquet"):
        kept.unlink()
    (killed_for(root / "torn", 3) / "run.json").write_text("{")
    (root / "none").mkdir()
    conf = session.context()._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.stats.link./nights", f"file:{root}")
    far = "viewfs://stats/nights"
    stats = figures(tmp_path / "far.json", f"{far}/*", code=4)
    assert [stats[name] for name in ("faults", "by_kind", "trend")] == [
        near[name] for name in ("faults", "by_kind", "trend")]
    assert [row["run"] for row in stats["runs"]] == ["gap-2", "gap-4"]
    failures = dict(stats["not_measured"])
    assert sorted(failures) == [f"{far}/none", f"{far}/torn"]
    assert all(place in why for place, why in failures.items())
    for history in root.glob("gap-*/history.jsonl"):
        history.unlink()
    assert figures(tmp_path / "again.json", f"{far}/gap-*")["runs"] == stats["runs"]
    night(root / "monday", "2026-11-23", 2)
    refused = floodmark("campaign", "stats", f"{far}/monday")
    assert (refused.code, f"name its runs, {far}/monday/runs/*" in refused.err) == (2, True)


def test_a_stranger_s_words_do_no_harm(tmp_path: Path) -> None:
    run = killed_for(tmp_path / "run", 2, r'{"rules": "\u001b[31mkip", "nemesis": "a\nb"}')
    output = floodmark("campaign", "stats", run).out
    assert "\x1b" not in output
    assert "\nb " not in output

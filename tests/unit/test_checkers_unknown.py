"""Damaged folders do not affect those that are judged beside them; dumps may be Parquet."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import Tale
from traced_story import Story

from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

pytestmark = pytest.mark.spark
BREACHED = names.unknown_if(names.If.BREACHED)


def as_parquet(folder: Path, node: str) -> None:
    """The dump of this node as Parquet instead."""
    lines = folder / "logs" / f"{node}.jsonl"
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    flags = ("crc_ok", "aborted")
    names_of_columns = ("node", "partition", "offset", "epoch", "value", "crc")
    table = pa.table(
        {name: pa.array([row.get(name) for row in rows], None if name == "node" else pa.int64())
         for name in names_of_columns}
        | {name: pa.array([row.get(name) for row in rows], pa.bool_()) for name in flags}
    )  # fmt: skip
    pq.write_table(table, folder / "logs" / f"{node}.parquet")
    lines.unlink()


def damaged_folders(root: Path) -> dict[str, Path]:
    """No run.json, another format, a run.json with wrong types, and directories in place of files."""
    bare = root / "bare"
    bare.mkdir()
    older = Tale()
    older.run["format"] = 0
    strange = Tale().acked(1)
    strange.run.update(nodes=5, settle=3)
    heap = Tale().acked(1).write(root / "heap")
    for name in ("history.jsonl", "logs/n1.jsonl", "replicas.jsonl"):
        (heap / name).unlink()
        (heap / name).mkdir()
    return {"bare": bare, "older": older.write(root / "older"), "strange": strange.write(root / "strange"),
            "heap": heap}


def parquet(root: Path) -> dict[str, Path]:
    """Parquet dumps only; one file that only begins and ends as Parquet; one whose footer has one wrong bit,
    which Parquet's reader in Java refuses."""
    readable = Tale().acked(1, 2).send(4, 5, at=[2]).write(root / "parquet")
    for node in ("n1", "n2", "n3"):
        as_parquet(readable, node)
    no_parquet, footer = (Tale().acked(1, 2).write(root / name) for name in ("no-parquet", "footer"))
    for folder in (no_parquet, footer):
        (folder / "logs" / "n2.jsonl").unlink()
    (no_parquet / "logs" / "n2.parquet").write_bytes(b"PAR1 is no Parquet PAR1")
    shutil.copy(Path(__file__).with_name("footer_of_a_dump.parquet"), footer / "logs" / "n2.parquet")
    assert pq.read_table(footer / "logs" / "n2.parquet").num_rows == 2
    return {"parquet": readable, "no-parquet": no_parquet, "footer": footer}


def not_utf8(root: Path) -> dict[str, Path]:
    """Bytes that are not UTF-8, in a word that no check reads."""
    story = Story().begin().produce().say("n1", "sneeze")
    of_clients, of_brokers = Tale().acked(1).fault("kill", "n1"), Tale().acked(1)
    of_brokers.trace = story.lines
    folders = {"clients": of_clients.write(root / "clients"), "brokers": of_brokers.write(root / "brokers")}
    for file, word in ((folders["clients"] / "history.jsonl", b"kill"),
                       (folders["brokers"] / "trace.jsonl", b"sneeze")):
        text = file.read_bytes()
        assert text.count(word) == 1
        file.write_bytes(text.replace(word, word[:2] + b"\xc3("))
    return folders


@pytest.fixture(scope="module", name="beside")
def judged_in_one_call(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """All of these, and a readable one among them."""
    root = tmp_path_factory.mktemp("beside")
    good = Tale().acked(1).send(2, 5, at=[1]).write(root / "good [1] *,{a}")
    folders = {**damaged_folders(root), "good": good, **parquet(root), **not_utf8(root)}
    return dict(zip(folders, SparkJudge().judge(list(folders.values())), strict=True))


def lost_one(verdict: Verdict) -> bool:
    found = [(one.name, one.count) for one in verdict.findings]
    return verdict.valid is False and found == [("lost-write", 1)]


def test_a_damaged_folder_does_not_affect_others(beside: dict[str, Verdict]) -> None:
    damaged = ("bare", "older", "strange", "heap", "no-parquet")
    assert {beside[name].valid for name in damaged} == {"unknown"}
    assert set(names.MADE) < set(beside["bare"].unknown[0].names)
    assert lost_one(beside["good"])


def test_dumps_may_be_parquet(beside: dict[str, Verdict]) -> None:
    """And a footer that Arrow can read is no damage."""
    assert lost_one(beside["parquet"])
    assert beside["parquet"].unknown == ()
    assert beside["parquet"].counts["records"] == {"n1": 2, "n2": 2, "n3": 2}
    assert (beside["footer"].valid, beside["footer"].counts["records"]["n2"]) == (True, 2)


def test_bytes_that_are_not_utf8_make_a_line_unreadable(beside: dict[str, Verdict]) -> None:
    """It may have been another word."""
    unknown_names = [{name for unknown in beside[folder].unknown for name in unknown.names}
            for folder in ("clients", "brokers")]

    assert unknown_names == [{*BREACHED}, {*names.OF_THE_TRACE}]

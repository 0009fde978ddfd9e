"""Damaged folders do not affect those that are judged beside them; dumps may be Parquet, and damaged."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from no_spark import NoSpark
from stories import told

from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.judge.passes import judged_by_many
from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.read.folder import open_folder
from floodmark.harness.parquet_dump import write_parquet
from floodmark.harness.verdict import Verdict

pytestmark = pytest.mark.spark


def in_parquet(folder: Path, node: str = "n2", *, alone: bool = True) -> Path:
    """The dump of this node, as Parquet too, or instead."""
    lines = folder / "logs" / f"{node}.jsonl"
    copy = write_parquet(lines)
    if alone:
        lines.unlink()
    return copy


def with_zeroed_pages(copy: Path) -> None:
    """Everything between the first four bytes and the footer, whose length precedes the last four."""
    content = bytearray(copy.read_bytes())
    ends = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:ends] = bytes(ends - 4)
    copy.write_bytes(content)


def damaged_folders(root: Path) -> dict[str, Path]:
    """No run.json, another format, a run.json with wrong types, and directories in place of files."""
    bare = root / "bare"
    bare.mkdir()
    heap = told(root / "heap", "1 acked 1")
    for name in ("history.jsonl", "logs/n1.jsonl", "replicas.jsonl"):
        (heap / name).unlink()
        (heap / name).mkdir()
    return {"bare": bare, "older": told(root / "older", "run format=0"), "heap": heap,
            "strange": told(root / "strange", "1 acked 1; run nodes=5 settle=3")}


def parquet(root: Path) -> dict[str, Path]:
    """Parquet dumps only; one file that only begins and ends as Parquet; one whose footer has one wrong bit,
    which Parquet's reader in Java refuses; offsets as doubles; pages of zeros, alone and beside the lines; no
    values."""
    names = ("parquet", "no-parquet", "footer", "doubles", "zeroed", "beside", "valueless")
    folders = {name: told(root / name, "1 acked 1 2; 4 send 5@2") for name in names}
    for node in ("n1", "n2", "n3"):
        in_parquet(folders["parquet"], node)
    copies = {name: in_parquet(folders[name], alone=name != "beside") for name in names[1:]}
    copies["no-parquet"].write_bytes(b"PAR1 is no Parquet PAR1")
    shutil.copy(Path(__file__).with_name("footer_of_a_dump.parquet"), copies["footer"])
    assert pq.read_table(copies["footer"]).num_rows == 2
    table = pq.read_table(copies["doubles"])
    doubles = table["offset"].cast(pa.float64())
    pq.write_table(table.set_column(table.column_names.index("offset"), "offset", doubles), copies["doubles"])
    pq.write_table(pq.read_table(copies["valueless"]).drop_columns(["value"]), copies["valueless"])
    with_zeroed_pages(copies["zeroed"])
    with_zeroed_pages(copies["beside"])
    return folders


def not_utf8(root: Path) -> dict[str, Path]:
    """Bytes that are not UTF-8, in a word that no check reads."""
    folders = {"clients": told(root / "clients", "1 acked 1; fault kill n1"),
               "brokers": told(root / "brokers", "1 acked 1; begin; produce 1; say n1 sneeze")}
    for file, word in ((folders["clients"] / "history.jsonl", b"kill"),
                       (folders["brokers"] / "trace.jsonl", b"sneeze")):
        text = file.read_bytes()
        assert text.count(word) == 1
        file.write_bytes(text.replace(word, word[:2] + b"\xc3("))
    return folders


@pytest.fixture(scope="module", name="judged")
def judged_in_one_call(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """All of these, and a readable one among them."""
    root = tmp_path_factory.mktemp("judged")
    good = told(root / "good [1] *,{a}", "1 acked 1; 2 send 5@1")
    folders = {**damaged_folders(root), "good": good, **parquet(root), **not_utf8(root)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("floodmark.checkers.read.folder.PARQUET_FROM_BYTES", 0)
        assert open_folder(folders["beside"]).dumps["n2"].name == "n2.parquet"
        (by_many,) = judged_by_many(NoSpark(), [RunWork.of(0, open_folder(folders["beside"]))]).values()
        verdicts = SparkJudge().judge(list(folders.values()))
    return {**dict(zip(folders, verdicts, strict=True)), "by many": by_many}


def lost_one(verdict: Verdict) -> bool:
    found = [(one.name, one.count) for one in verdict.findings]
    return verdict.valid is False and found == [("lost-write", 1)]


def test_a_damaged_folder_does_not_affect_others(judged: dict[str, Verdict]) -> None:
    damaged = ("bare", "older", "strange", "heap")
    assert {judged[name].valid for name in damaged} == {"unknown"}
    assert set(names.MADE) < set(judged["bare"].unknown[0].names)
    assert lost_one(judged["good"])


def test_dumps_may_be_parquet(judged: dict[str, Verdict]) -> None:
    """And a footer that Arrow can read is no damage. Lines beside a damaged copy are used, by one task and by
    many."""
    for name in ("parquet", "footer", "beside", "by many"):
        assert (lost_one(judged[name]), judged[name].unknown) == (True, ()), name
        assert judged[name].counts["records"] == {"n1": 2, "n2": 2, "n3": 2}


@pytest.mark.parametrize(("name", "reason"), [
    ("doubles", "its column offset is of type double"), ("zeroed", ""), ("no-parquet", ""),
    ("valueless", "it has no column value")])
def test_a_damaged_dump_makes_only_its_own_checks_unknown(
        judged: dict[str, Verdict], name: str, reason: str) -> None:
    """What needs no dump of that node is judged."""
    (unknown,) = judged[name].unknown
    assert unknown.reason.startswith("logs/n2.parquet cannot be read: ")
    assert reason in unknown.reason
    assert {"diverged", "malformed-log"} <= {*unknown.names}
    assert lost_one(judged[name])


def test_bytes_that_are_not_utf8_make_a_line_unreadable(judged: dict[str, Verdict]) -> None:
    """It may have been another word."""
    unknown_names = [{name for unknown in judged[folder].unknown for name in unknown.names}
                     for folder in ("clients", "brokers")]
    assert unknown_names == [{*names.unknown_if(names.If.BREACHED)}, {*names.OF_THE_TRACE}]

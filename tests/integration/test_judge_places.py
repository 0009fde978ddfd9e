"""Run folders by address: a file: address is a path; a Hadoop mount table replaces a far place."""

import re
import shutil
from pathlib import Path

import pytest
import real_like
from command_line import GOLDEN, Answer, floodmark, golden
from pyspark.sql import SparkSession
from stories import told

from floodmark.checkers.judge import far_files, passes
from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.spark import session
from floodmark.checkers.spark.hadoop import HadoopPlace
from floodmark.harness.commands.folder_arguments import chosen_runs
from floodmark.harness.parquet_dump import write_parquet
from floodmark.harness.run_location import path_of, scheme_of

pytestmark = pytest.mark.spark

SAVED = sorted(folder.name for folder in GOLDEN.iterdir())[::12]
FAR = "viewfs://floodmark"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is mounted at viewfs://floodmark/runs, with runs of every kind in it."""
    root = tmp_path_factory.mktemp("far")
    conf = session.context()._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.floodmark.link./runs", f"file:{root}")
    for name in SAVED:
        golden(root, name)
    real_like.write(root / "run=7 [x] {y} %41 é", ops=2000, damage="lost")  # long enough to be filtered
    damaged = ("no-rows", "no-dump", "only-parquet", "torn", "garbled")
    histories = [told(root / name, "1 acked 1 2") / "history.jsonl" for name in damaged]
    (root / "no-rows" / "replicas.jsonl").unlink()
    (root / "no-dump" / "logs" / "n2.jsonl").unlink()
    lines = root / "only-parquet" / "logs" / "n2.jsonl"
    write_parquet(lines)
    lines.unlink()
    *_, torn, garbled = histories
    torn.write_bytes(torn.read_bytes() + b'{"index":99,"ti')
    garbled.write_bytes(garbled.read_bytes().replace(b'"time":1000', b'"time":"x"'))
    (root / "file").write_text("no folder")
    return root


def place(address: str) -> HadoopPlace:
    session.context()
    return HadoopPlace(uri=address)


def verdicts(root: Path) -> dict[str, str]:
    """The text of every verdict.json by its folder, without the timings; the files are removed."""
    texts = {}
    for file in sorted(root.glob("*/verdict.json")):
        texts[file.parent.name] = re.sub(r'"timings_s": \{[^}]*\}', "", file.read_text())
        file.unlink()
    return texts


@pytest.fixture(scope="module")
def judged(runs: Path) -> dict[str, tuple[Answer, dict[str, str]]]:
    """All runs as paths and from the far place, some by a file: address: the answer and the verdicts."""
    by_kind = {}
    for kind, words in (("path", sorted(runs.glob("*/"))), ("file", [f"file://{runs}/no-*"]),
                        ("far", [f"{FAR}/runs/*"])):
        answer = floodmark("check", *words)
        by_kind[kind] = answer, verdicts(runs)
    return by_kind


@pytest.mark.long
def test_from_everywhere_the_verdicts_are_the_same(judged: dict[str, tuple[Answer, dict[str, str]]]) -> None:
    """Byte for byte except timings; for a folder without run.json the path is in the reason. The report of a
    far one lacks what needs the files here: commands that do not take an address."""
    (here, paths), (_, files), (there, far) = (judged[kind] for kind in ("path", "file", "far"))
    assert len(paths) == len(SAVED) + 6
    assert '"n2": 2' in paths["only-parquet"]
    assert files == {name: paths[name] for name in ("no-dump", "no-rows")}
    assert far == paths
    assert here.code == there.code == 1
    assert "lost-write" in far["run=7 [x] {y} %41 é"]
    assert there.out.splitlines()[0] == here.out.splitlines()[0]
    assert there.last == f"{FAR}/runs/{sorted(far)[-1]}"
    assert "floodmark show" not in there.out
    assert "history.jsonl:2: " in there.out


def test_a_verdict_takes_the_place_of_the_last_and_leaves_nothing_beside_it(runs: Path) -> None:
    folder = shutil.copytree(runs / SAVED[0], runs / "again")
    before = sorted(path.name for path in folder.iterdir())
    for command, shown in (("check", "again: "), ("rejudge", "again: unchanged, ")):
        assert shown in floodmark(command, f"{FAR}/runs/again").out
        assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "verdict.json"])
    verdict = folder / "verdict.json"
    verdict.unlink()
    (verdict / "x").mkdir(parents=True)  # where it cannot be written, nothing is left either
    with pytest.raises(OSError):
        (place(f"{FAR}/runs/again") / "verdict.json").write_whole(b"new")
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "verdict.json"])
    shutil.rmtree(folder)


def test_where_the_judge_fails_the_traceback_goes_there_too(
        runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is called out of date when the judge no longer fails: no file can be removed there."""
    folder = shutil.copytree(runs / SAVED[0], runs / "failing")

    def failing(*_: object) -> None:
        raise RuntimeError("injected by a test")

    with monkeypatch.context() as patched:
        patched.setattr(passes, "verdict_of", failing)
        assert floodmark("check", f"{FAR}/runs/failing").code == 4
    assert "RuntimeError: injected by a test" in (folder / "judge-error.txt").read_text()
    assert '"valid": "unknown"' in (folder / "verdict.json").read_text()
    assert floodmark("check", f"{FAR}/runs/failing").code != 4
    assert "Traceback" not in (folder / "judge-error.txt").read_text()
    shutil.rmtree(folder)


@pytest.mark.parametrize(("word", "code", "message"), [
    (f"{FAR}/runs/none", 2, f"{FAR}/runs/none does not exist"),
    (f"{FAR}/runs/none*", 2, f"'{FAR}/runs/none*' matches no folder"),
    (f"{FAR}/runs/fil*", 2, "matches no folder"),
    (f"{FAR}/runs/[", 2, f"{FAR}/runs/["),
    ("viewfs://nobody/runs", 4, "viewfs://nobody/runs: "),
    ("foo://bar/x", 2, "foo://bar/x: Spark knows no file system foo://"),
    ("s3a://bucket/x", 4, "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3."),
    ("hdfs://127.0.0.1:1/x", 4, "hdfs://127.0.0.1:1/x: "),
    ("file://elsewhere/x", 2, "a file: address names no host"),
    ("file:///no/such/folder", 2, "/no/such/folder does not exist"),
])
def test_an_address_of_nothing_is_a_sentence(runs: Path, word: str, code: int, message: str) -> None:
    session.context()._jsc.hadoopConfiguration().set("ipc.client.connect.max.retries", "0")
    answer = floodmark("check", runs / SAVED[0], word)
    assert (answer.code, len(answer.err.splitlines())) == (code, 1)
    assert message in answer.err
    assert verdicts(runs) == {}


def test_a_far_folder_of_runs_is_entered_and_one_without_is_a_usage_error(runs: Path) -> None:
    assert set(map(str, chosen_runs([f"{FAR}/runs"]))) == set(map(str, chosen_runs([f"{FAR}/runs/*"])))
    for word in (f"{FAR}/runs/{SAVED[0]}/logs", f"{FAR}/runs/file"):
        answer = floodmark("check", f"{FAR}/runs/{SAVED[0]}", word)
        assert (answer.code, answer.out) == (2, "")
        assert f"{word} is no run folder: it has no run.json" in answer.err
    assert verdicts(runs) == {}


@pytest.mark.parametrize("range_bytes", [1 << 16, 1 << 24])
def test_the_lines_of_a_far_file_are_its_bytes_in_ranges(
        runs: Path, monkeypatch: pytest.MonkeyPatch, range_bytes: int) -> None:
    """Blank lines, CRs, bytes that are no UTF-8, a byte order mark, a last line without an end: all is
    kept."""
    folder = golden(runs / "bytes", SAVED[0])
    odd = [b"\xef\xbb\xbf{}", b"", b"\r", b"\xff\xfe{}\r", b"  ", b"\xc3\xa9\x85\x0b\x0c", b"x" * 90_000]
    history = folder / "history.jsonl"
    history.write_bytes(b"\n".join(odd * 5) + b"\nlast")
    sizes = dict.fromkeys(("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"),
                          str(range_bytes))
    monkeypatch.setattr(far_files, "_KEYS", {**far_files._KEYS, **sizes})
    work = RunWork.of(0, open_folder(place(f"{FAR}/runs/bytes/{SAVED[0]}")))
    read = far_files.far_ranges(session.context(), [work]).collect()
    mine = sorted(((one.number, data) for one, data in read if one.kind == "history"))
    assert b"".join(data for _, data in mine) == history.read_bytes() + b"\n"
    assert len({number for number, _ in mine}) == len(mine) == (6 if range_bytes == 1 << 16 else 1)
    assert len({(one.kind, one.node) for one, _ in read}) == len(work.ranges)
    shutil.rmtree(runs / "bytes")


def test_a_dump_that_spark_would_not_see_is_damaged_and_not_passed_over(runs: Path) -> None:
    folder = told(runs / "hidden", "1 acked 1 2")
    for file in folder.rglob("*.json*"):
        file.write_text(file.read_text().replace('"n2"', '"_n2"'))
    (folder / "logs" / "n2.jsonl").rename(folder / "logs" / "_n2.jsonl")
    assert floodmark("check", folder).code == 0
    answer = floodmark("check", f"{FAR}/runs/hidden")
    assert answer.code == 3
    assert "logs/_n2.jsonl: Spark reads no file of such a name where it lies" in answer.out
    shutil.rmtree(folder)


# -- the session --------------------------------------------------------------------------------------------


def test_a_session_that_is_there_is_used_and_left_alone(
        runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example a notebook's, with settings that the judge could not use."""
    floodmark("check", runs / SAVED[0])
    near = verdicts(runs)[SAVED[0]]
    theirs = SparkSession.builder.getOrCreate()
    monkeypatch.setattr(session, "_running", [])
    odd = {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.files.maxPartitionBytes": "1g"}
    for key, value in odd.items():
        theirs.conf.set(key, value)
    try:
        floodmark("check", f"{FAR}/runs/{SAVED[0]}")
        assert verdicts(runs)[SAVED[0]] == near
        assert session.context() is theirs.sparkContext
        assert {key: theirs.conf.get(key) for key in odd} == odd
        ours = far_files.own_session()
        assert ours.conf.get("spark.sql.files.ignoreMissingFiles") == "false"
        assert ours.conf.get("spark.sql.files.maxPartitionBytes") != "1g"
    finally:
        for key in odd:
            theirs.conf.unset(key)


def test_another_master_than_that_of_the_session_is_usage(runs: Path) -> None:
    answer = floodmark("check", "--master", "spark://far:7077", runs / SAVED[0])
    assert answer.code == 2
    assert "--master spark://far:7077: Spark works for this process at local[*] already" in answer.err


# -- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "scheme", "path"), [
    ("hdfs://host:8020/runs/a", "hdfs", None), ("S3A://bucket/a", "s3a", None), ("/a/b", None, None),
    ("a:b", None, None), ("c:/a", None, None), ("./hdfs://a", None, None), ("histories/runs/*", None, None),
    ("run:/a", None, None), ("run:/b", "run", None),  # the first is there by that very name
    ("file:/a b/%41", "file", "/a b/%41"), ("file:///a", "file", "/a"), ("file://localhost/a", "file", "/a"),
    ("FILE:/a", "file", "/a")])
def test_an_address_is_distinguished_from_a_path_and_a_file_address_is_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, scheme: str | None, path: str | None
        ) -> None:
    (tmp_path / "run:" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert scheme_of(word) == scheme
    assert path is None or path_of(word) == Path(path)

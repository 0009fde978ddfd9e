"""`import jepsen` as a whole: file forms, invalid guarantees, refused files, the folder. What it makes of a
history: tests/golden/jepsen.txt."""

import hashlib
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from command_line import floodmark
from golden_text import refused_as_written
from jepsen_text import READ, SEND, imported, in_json, nemesis, numbered, places

from floodmark.harness.commands import import_jepsen
from floodmark.harness.commands.import_jepsen import import_history
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report import terminal
from floodmark.harness.report.phrases import size_text

# -- the forms of a file ------------------------------------------------------------------------------------

OPS = numbered(*SEND, *READ, ":process :nemesis, :type :info, :f :kill, :value [\"n1\"]",
               ":process :nemesis, :type :info, :f :kill, :value {\"n1\" :killed}")


@pytest.mark.parametrize("written", [
    OPS, f"[{OPS}]", f"({OPS})", OPS.replace("{:index", "#jepsen.history.Op{:index"), OPS.replace("\n", " "),
    in_json(OPS), in_json(OPS).replace('"send"', '":send"').replace("\n", "\n\n"),
], ids=["lines", "vector", "list", "tagged", "one line", "JSON", "JSON with colons"])
def test_every_form_of_the_file_gives_the_same_history(tmp_path: Path, written: str) -> None:
    (tmp_path / "plain").mkdir()
    plain = imported(tmp_path / "plain", OPS)
    run = imported(tmp_path, written)
    assert run.origin["form"] == ("json" if written.startswith('{"') else "edn")
    assert [(op.f, op.type, places(op), op.time) for op in run.ops] == [
        (op.f, op.type, places(op), op.time) for op in plain.ops]
    assert run.about["partitions"] == plain.about["partitions"]
    assert run.about["nodes"] == ["n1"]


def test_in_json_a_word_is_no_node_and_a_map_has_its_keys(tmp_path: Path) -> None:
    run = imported(tmp_path, in_json(nemesis(
        ":f :start-partition, :value :majority",
        ':f :start-partition, :value [:isolated {"n1" ["n2"], "n2" ["n1"]}]',
        ":f :wipe-out, :value :all", ":f :wipe-out, :value :done",
        ':f :kill, :value "n3"', ':f :kill, :value {"n3" :killed}')))
    assert [(op.f, (op.fault or {})["nodes"]) for op in run.ops[2:]] == [
        ("cut", ["n1", "n2"]), ("wipe-out", ["unnamed"]), ("kill", ["n3"])]


def test_the_same_file_gives_the_same_folder(tmp_path: Path) -> None:
    """It has no time or place of the import, but its source."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        run = imported(tmp_path / name, OPS)
        assert run.origin["file"] == "history.edn"
        assert run.origin["sha256"] == hashlib.sha256(OPS.encode()).hexdigest()
        assert run.about["id"] == run.origin["sha256"][:16]
    for file in ("history.jsonl", "run.json"):
        assert (tmp_path / "one/run" / file).read_bytes() == (tmp_path / "two/run" / file).read_bytes()


# -- refused ------------------------------------------------------------------------------------------------

WIPED = "{:process :nemesis, :type :info, :time 1, :f :wipe, :value nil}\n" * 2


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of which the nemesis has one act, and a folder that is not empty."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "history.edn").write_text(WIPED)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("!")
    return tmp_path


@pytest.mark.parametrize("which", ["--loses", "--spares"])
def test_an_act_that_is_named_is_there(here: Path, which: str) -> None:
    """And the folder for the run may be there, if it is empty."""
    (here / "empty").mkdir()
    answer = floodmark("import", "jepsen", "history.edn", "--out", "empty", which, "wipe")
    assert answer.code == 0
    assert sorted(path.name for path in (here / "empty").iterdir()) == ["history.jsonl", "run.json"]


def test_an_invalid_history_is_refused_and_leaves_no_file(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def read(text: str) -> None:
        imported(tmp_path, text.replace("OPS", OPS).replace("JSON", in_json(OPS)))

    refused_as_written("import jepsen", read, UsageError, request, f"{tmp_path}/")
    assert [path.name for path in tmp_path.iterdir()] == ["history.edn"]


@pytest.mark.parametrize(("text", "missing"), [
    ("", 0), ("; nothing\n", 0), ("[]", 0), ("{:type :invoke, :f :read, :process 0, :value nil}", 1),
    (nemesis(':f :kill, :value ["n1"]', ':f :kill, :value {"n1" :killed}'), 2),
])  # fmt: skip
def test_a_history_without_records_is_imported_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, missing: int
) -> None:
    run = imported(tmp_path, "\n".join(line for line in text.splitlines() if ":f :send" not in line))
    assert not any(op.f in ("send", "poll", "txn") for op in run.ops)
    assert run.about["history_lines"] == len(run.ops) + missing
    assert "it has no send, poll or txn" in capsys.readouterr().err


def test_progress_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PLAIN_EVERY_S", 0.0)
    imported(tmp_path, numbered(*SEND * 6_000) + "\n")
    size = size_text((tmp_path / "history.edn").stat().st_size)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("read ")]
    assert len(lines) > 2
    assert f" of {size}" in lines[0]
    assert lines[-1] == f"read {size} of {size}"


def test_a_full_disk_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_jepsen.Run, "rewrite", full)
    with pytest.raises(FloodmarkError, match=r"cannot write the folder .*: No space left on device"):
        imported(tmp_path, OPS)
    assert [path.name for path in tmp_path.iterdir()] == ["history.edn"]


def test_damaged_files_are_imported_or_refused(tmp_path: Path) -> None:
    """Bytes changed, lost, doubled at random, in EDN and in JSON: a folder of format 1, or an error."""
    outcomes = Counter[str]()
    for seed in range(300):
        random = Random(seed)
        text = list(OPS if seed % 2 else in_json(OPS))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(text))
            text[at:at + random.choice((0, 1, 1, 9))] = random.choice(
                ("", "{", "]", "nil", '"', "-", "9" * 20, "#_", ":send", text[at] * 2, "\\ud83d", "\n"))
        place = tmp_path / str(seed)
        place.mkdir()
        refusal = ""
        try:
            imported(place, "".join(text))
        except UsageError as error:
            refusal = str(error)
        left = sorted(path.name for path in place.iterdir())
        assert left == (["history.edn"] if refusal else ["history.edn", "run"])
        assert not refusal or str(place / "history.edn") in refusal
        outcomes["refused" if refusal else "imported"] += 1
    assert min(outcomes.values()) > 30, outcomes


def test_without_out_it_is_a_run_and_not_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "history.edn").write_text(OPS)
    assert import_history(tmp_path / "history.edn", out=None) == 0
    (folder,) = (tmp_path / "histories/runs").iterdir()
    assert folder.name.endswith("-jepsen")
    assert (folder / "history.jsonl").is_file()

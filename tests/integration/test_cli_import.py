"""`floodmark import jepsen` and the judge: the forms of a file, damaged ones, what only an import has.

What it makes of a history: golden/jepsen.txt. The laws of a history without logs: corpus/reads_alone.txt.
Seeks, rebalances, subscriptions, reads without offsets, at random: tests/property/test_jepsen_histories.py.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from command_line import Answer, floodmark, verdict
from golden_text import refused_as_written
from jepsen_text import edn, imported, in_json

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.commands import import_jepsen
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report import terminal
from floodmark.harness.report.phrases import size_text

KILL = """
:nemesis info kill ["n1"]
:nemesis info kill {"n1" :killed}
"""
OPS = edn(f"""
sent 1@5
polled {{0 [[5 1]]}}
{KILL}
""".replace("\n\n", "\n")).strip()

# -- the forms of a file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [
    OPS, f"[{OPS}]", f"({OPS})", OPS.replace("{:index", "#jepsen.history.Op{:index"), OPS.replace("\n", " "),
    in_json(OPS), in_json(OPS).replace('"send"', '":send"').replace("\n", "\n\n"),
], ids=["lines", "vector", "list", "tagged", "one line", "JSON", "JSON with colons"])
def test_every_form_of_the_file_gives_the_same_history(tmp_path: Path, written: str) -> None:
    """The folder has no time or place of the import, but the digest of its source."""
    (tmp_path / "plain").mkdir()
    plain, run = imported(tmp_path / "plain", OPS), imported(tmp_path, written)
    digest = hashlib.sha256(written.encode()).hexdigest()
    assert (run.about["id"], run.origin["sha256"]) == (digest[:16], digest)
    assert run.origin["form"] == ("json" if written.startswith('{"') else "edn")
    same = {"id": None, "imported": None}
    assert {**run.about, **same} == {**plain.about, **same}
    assert [(op.f, op.type, op.sends, op.reads, op.time) for op in run.ops] == [
        (op.f, op.type, op.sends, op.reads, op.time) for op in plain.ops]


def test_in_json_a_word_is_no_node_and_a_map_has_its_keys(tmp_path: Path) -> None:
    run = imported(tmp_path, in_json(edn("""
sent 1@5
:nemesis info start-partition :majority
:nemesis info start-partition [:isolated {"n1" ["n2"], "n2" ["n1"]}]
:nemesis info wipe-out :all
:nemesis info wipe-out :done
:nemesis info kill "n3"
:nemesis info kill {"n3" :killed}
""")))
    assert [(op.f, (op.fault or {})["nodes"]) for op in run.ops[2:]] == [
        ("cut", ["n1", "n2"]), ("wipe-out", ["unnamed"]), ("kill", ["n3"])]


# -- refused, or with a warning -----------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["--loses", "--spares"])
def test_an_act_that_is_named_is_there(tmp_path: Path, which: str) -> None:
    """And the folder for the run may be there, if it is empty."""
    (tmp_path / "history.edn").write_text(OPS)
    (tmp_path / "empty").mkdir()
    out = tmp_path / "empty"
    answer = floodmark("import", "jepsen", tmp_path / "history.edn", "--out", out, which, "kill")
    assert answer.code == 0
    assert sorted(path.name for path in out.iterdir()) == ["history.jsonl", "run.json"]


def test_an_invalid_history_is_refused_and_leaves_no_file(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def read(text: str) -> None:
        imported(tmp_path, text.replace("OPS", OPS).replace("JSON", in_json(OPS)))

    refused_as_written("import jepsen", read, UsageError, request, f"{tmp_path}/")
    assert [path.name for path in tmp_path.iterdir()] == ["history.edn"]


@pytest.mark.parametrize(("text", "missing"), [
    ("; nothing\n", 0), ("[]", 0), ("{:type :invoke, :f :read, :process 0, :value nil}", 1), (edn(KILL), 0)])
def test_a_history_without_records_is_imported_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, missing: int
) -> None:
    run = imported(tmp_path, text)
    assert not any(op.f in ("send", "poll", "txn") for op in run.ops)
    assert run.about["history_lines"] == len(run.ops) + missing
    said = capsys.readouterr().err
    assert ("it has no send, poll or txn" in said, "cannot be judged" in said) == (True, missing > 0)


def test_progress_and_what_was_left_out_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PLAIN_EVERY_S", 0.0)
    imported(tmp_path, edn("sent 1@5\n" * 6_000 + "polled {0 [[5 1]]}, :poll-ms 100"))
    size = size_text((tmp_path / "history.edn").stat().st_size)
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if line.startswith("read ")]
    assert len(lines) > 2
    assert f" of {size}" in lines[0]
    assert lines[-1] == f"read {size} of {size}"
    assert "not carried: 1 x field :poll-ms" in said
    assert "assumed: acks=all" in said


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


# -- judged -------------------------------------------------------------------------------------------------

# A history alone cannot show these, whatever is in it: these checks are not made.
OF_LOGS = {name for name, law in names.LAWS.items() if law.needs and not law.imports_show}
UNSURE = """
3 invoke send [[:send 0 7]]
3 info send [[:send 0 7]]
"""
LOSES = """
:nemesis info lose-unfsynced-writes ["n1"]
:nemesis info lose-unfsynced-writes {"n1" :done}
"""
HISTORIES: dict[str, tuple[str, tuple[str, ...], dict[str, str | None]]] = {
    # name: text, options, findings (and what permits each)
    "clean": (f"""
sent 1@0
sent 2@1
1 assigned [0]
1 polled {{0 [[0 1]]}}
1 polled {{0 [[1 2]]}}
1 invoke crash
1 info crash
2 assigned [0]{KILL}
2 polled {{0 [[0 1] [1 2]]}}{UNSURE}""", (), {}),
    "no-record": ("assigned [0]", (), {}),
    "below-the-first-read": ("""
sent 1@0
sent 2@1
sent 3@2
1 assigned [0]
1 polled {0 [[1 2] [2 3]]}""", (), {"lost-write": None}),
    "overwritten": ("""
sent 1@0
sent 2@1
1 sent 7@1
2 assigned [0]
2 polled {0 [[0 1] [1 7]]}""", (), {"inconsistent-offsets": None}),
    "overwritten-under-acks-1": (f"""
sent 1@0
sent 2@1{UNSURE}
2 assigned [0]
2 polled {{0 [[0 1] [1 7]]}}""", ("-c", "acks=1"), {"inconsistent-offsets": "acks"}),
    "overwritten-after-a-power-cut": (f"""
sent 1@0
sent 2@1{LOSES}{UNSURE}
2 assigned [0]
2 polled {{0 [[0 1] [1 7]]}}""", (), {"inconsistent-offsets": "fault budget"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    folder: Path
    answer: Answer

    def checks(self, name: str, why: str) -> set[str]:
        """The checks that are `not_made`, or `unknown`."""
        return {check for entry in verdict(self.folder / name)[why] for check in entry["names"]}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """All histories, imported one by one and judged in one call."""
    texts, folder = tmp_path_factory.mktemp("edn"), tmp_path_factory.mktemp("runs")
    for name, (story, options, _) in HISTORIES.items():
        (texts / f"{name}.edn").write_text(edn(story.replace("\n\n", "\n")))
        answer = floodmark("import", "jepsen", texts / f"{name}.edn", "--out", folder / name, *options)
        assert (answer.code, answer.last) == (0, str(folder / name)), answer
    return Judged(folder=folder, answer=floodmark("check", *(folder / name for name in HISTORIES)))


@pytest.mark.spark
@pytest.mark.parametrize("name", HISTORIES)
def test_the_judge_finds_what_was_planted_and_nothing_else(judged: Judged, name: str) -> None:
    """In a clean history no check is unknown; without a record most are."""
    found, planted = verdict(judged.folder / name), HISTORIES[name][2]
    assert {one["name"]: one["permitted_by"] for one in found["findings"]} == planted
    assert judged.checks(name, "not_made") == OF_LOGS
    unknown = judged.checks(name, "unknown")
    assert not unknown & OF_LOGS
    assert ("lost-write" in unknown) == (name == "no-record")
    unsure = name == "no-record" or "fault budget" in planted.values()
    assert found["valid"] == (False if None in planted.values() else "unknown" if unsure else True)
    assert found["counts"]["records"] == {}


@pytest.mark.spark
def test_a_healthy_history_is_valid_and_can_be_shown_like_any(judged: Judged) -> None:
    """By the gate itself, without --allow-unknown. There are no logs to compare, and no run to have again."""
    healthy = floodmark("check", judged.folder / "clean")
    assert (healthy.code, judged.answer.code) == (0, 1), healthy.out
    assert "clean: valid" in healthy.out
    assert len([line for line in healthy.out.splitlines() if line.startswith("  not made   ")]) == 1
    glance = floodmark("show", judged.folder / "overwritten-after-a-power-cut")
    assert (glance.code, "lose-unfsynced-writes" in glance.out) == (0, True)
    shown = floodmark("show", judged.folder / "overwritten", "--finding", "inconsistent-offsets")
    assert shown.code == 0
    assert "floodmark reproduce" not in glance.out + shown.out + judged.answer.out
    assert floodmark("reproduce", judged.folder / "clean").code == 4

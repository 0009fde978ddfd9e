"""A run folder: how it is created, what is refused, and that no file in it is ever half-written."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import floodmark

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import Run, create, default_folder, link_latest, write_pieces

ABOUT = {"format": 1, "seed": 7}


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_that_is_absent_or_empty_gets_run_json_alone(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "deep" / "run"
    if exists:
        folder.mkdir(parents=True)
    run = create(folder, ABOUT)
    assert run.about() == ABOUT
    assert sorted(path.name for path in folder.parent.iterdir()) == ["run"]
    assert sorted(path.name for path in folder.iterdir()) == ["run.json"]


def test_run_json_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    run = create(tmp_path / "run", ABOUT)
    run.rewrite({**ABOUT, "settled": True})
    assert run.about()["settled"] is True
    assert [path.name for path in run.folder.iterdir()] == ["run.json"]


def test_a_file_whose_writing_fails_stays_as_it_was(tmp_path: Path) -> None:
    def half() -> Iterator[bytes]:
        yield b"half"
        raise FloodmarkError("no more")

    path = tmp_path / "n1.jsonl"
    path.write_bytes(b"whole")
    with pytest.raises(FloodmarkError, match="no more"):
        write_pieces(path, half())
    assert path.read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["n1.jsonl"]


def test_latest_points_at_the_last_run_named(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("a", "b"):
        link_latest(create(tmp_path / "elsewhere" / name, {**ABOUT, "name": name}).folder, runs)
    assert Run(folder=runs / "latest").about()["name"] == "b"
    assert [path.name for path in runs.iterdir()] == ["latest"]


def test_the_default_folder_names_time_and_seed() -> None:
    now = datetime.datetime(2026, 11, 21, 14, 5, 9)
    assert default_folder(7, now).as_posix() == "histories/runs/20261121T140509-7"


def test_an_import_does_not_move_latest_and_a_link_is_not_printed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a run into another folder (tests/integration/test_sigterm.py)."""
    monkeypatch.chdir(tmp_path)
    text = '{:index 0, :time 1, :process 0, :type :%s, :f :send, :value [[:send 0 %s]]}\n'
    (tmp_path / "history.edn").write_text(text % ("invoke", "7") + text % ("ok", "[0 7]"))
    for words in (("--out", tmp_path / "elsewhere"), ()):
        answer = floodmark("import", "jepsen", "history.edn", *words)
        assert answer.code == 0, answer.err
    assert not Path("histories/runs/latest").is_symlink()
    link_latest(Path(answer.last))
    for command in (("show",), ("show", "histories/runs/latest"), ("report",)):
        assert floodmark(*command).last.startswith(answer.last), command
    Path(answer.last).rename("elsewhere/moved")
    gone = floodmark("show")
    assert (gone.code, "histories/runs/latest, and its run is gone" in gone.err) == (2, True), gone

"""The page of a run: its contents; damaged folders; when `check` writes it."""

import gzip
import json
import re
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import nights
import pytest
from click.testing import CliRunner
from command_line import edit_lines, edit_run, floodmark, verdict
from judged_runs import judge_by, judged, judged_names
from stories import in_seconds, told

from floodmark.checkers.judge.report import of_json
from floodmark.checkers.stats.seen import Acked
from floodmark.harness.campaign.ledger import Ledger, save
from floodmark.harness.campaign.state import DATABASE
from floodmark.harness.cli import main
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import run_page
from floodmark.harness.report.model import TraceLine
from floodmark.harness.report.run_page import write_report
from floodmark.harness.report.story import acks_of, up_after
from floodmark.harness.report.timeline import POINTS, ReplicaLog, Shown, thinned

LOST, FINE = "double-failover", "traced-and-in-order"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return judged(tmp_path, LOST)


def page(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


def data(text: str) -> dict[str, Any]:
    """The page's data, unpacked as its script does."""
    found = re.search(r'<script type="application/gzip" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    content: dict[str, Any] = json.loads(gzip.decompress(b64decode(found[1])))
    return content


def edit_verdict(folder: Path, **changes: Any) -> None:
    (folder / "verdict.json").write_text(json.dumps({**verdict(folder), **changes}))


def test_the_steps_are_the_relevant_events_and_it_opens_at_the_guilty_one(folder: Path) -> None:
    story = data(page(folder))["stories"][0]

    names = [step["name"] for step in story["steps"]]
    assert 4 <= len(names) <= 8
    assert names[0] == "acked"
    assert {"kill n1", "n3 truncates", "n3 is elected", "n3 appends there"} <= set(names)
    assert names[story["opens"]] == "n3 truncates"
    assert all(story["events"][step["at"]]["t"] <= step["t"] + 0.001 for step in story["steps"])


def test_the_page_loads_nothing(folder: Path) -> None:
    text = page(folder)

    assert "default-src 'none'" in text
    assert not re.search(r"\b(src|href|action|data|poster)\s*=\s*[\"']?\s*(https?:)?//", text)
    assert not re.search(r"https?://", re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S))
    assert not re.search(r"\bimport\s*\(|@import|url\((?!#)", text.replace("url(#hatch)", ""))


def test_every_finding_is_on_the_page_and_each_step_is_an_event(tmp_path: Path) -> None:
    for name in judged_names():
        folder = judged(tmp_path, name)
        text = page(folder)
        assert all(found["name"] in text for found in verdict(folder)["findings"])
        for story in data(text)["stories"]:
            assert all(0 <= step["at"] < len(story["events"]) for step in story["steps"])
            assert 0 <= story["opens"] <= max(0, len(story["steps"]) - 1)


def test_a_damaged_folder_still_has_its_page(folder: Path) -> None:
    """With one damage after another: broken lines are skipped; numbers beyond 64 bits, times out of order;
    files that are gone; a mistyped run.json."""
    for name in ("history.jsonl", "trace.jsonl", "replicas.jsonl"):
        edit_lines(folder / name, lambda lines: ["{broken", "[1, 2]", *lines, '{"time": "x"}'])
    text = page(folder)
    for said in ("invalid", "history.jsonl: 3 line(s) are not in format 1",
                 "trace.jsonl: 2 line(s) are no JSON objects"):
        assert said in text
    for name in ("history.jsonl", "trace.jsonl"):
        edit_lines(folder / name, lambda lines: [
            *lines, *(lines[2].replace('"time":', f'"time":{time}, "was":')
                      for time in (2**63, 2**63 - 1, -5)), lines[2]])
    assert "invalid" in page(folder)

    shutil.rmtree(folder / "logs")
    assert "invalid" in page(folder)
    for damage, said in (
            (lambda: edit_run(folder, partitions=[1, 2]), "`partitions` is no object"),
            (lambda: (folder / "run.json").write_text("{"), "cannot read"),
            ((folder / "history.jsonl").unlink, "there is no history.jsonl"),
            ((folder / "verdict.json").unlink, "was not judged yet")):
        damage()
        assert said in page(folder)


def test_without_dumps_no_log_is_drawn(folder: Path) -> None:
    """Nor with rows of replicas.jsonl alone; of one replica without a dump the others are drawn."""
    (folder / "trace.jsonl").unlink()
    assert [one["node"] for one in data(page(folder))["stories"][0]["replicas"]] == ["n1", "n2", "n3"]
    (folder / "logs" / "n2.jsonl").unlink()
    assert [one["node"] for one in data(page(folder))["stories"][0]["replicas"]] == ["n1", "n3"]

    shutil.rmtree(folder / "logs")
    text = page(folder)
    assert data(text)["stories"] == []
    assert "The logs in the end" not in text
    assert "What the clients saw" in text
    assert "process 3000000  poll  ok     p0: 4 at 3 (epoch 2)" in text  # it had 3 before
    (folder / "replicas.jsonl").write_text("")
    text = page(folder)
    assert data(text)["stories"] == []
    assert "How it happened" not in text


@pytest.mark.parametrize(("sends", "said"), [
    ("1 1-1.1; 2 2-2.2", []),
    ("1 1-1.1; 2 16-16.2", []),  # nobody tried
    ("1 16-16.3; 2 16.4-17.9 info; 3 18-19.5 fail; 4 20-21.4; 5 21.5-21.6",
     ["no ack for 5.0 s (16.4 to 21.4 s)"]),
    ("1 1-2.5 info; 2 2.6-4.1 info", ["no ack for 3.1 s (1.0 to 4.1 s)"]),  # none at all
    ("1 1-1.1; 2 1.2-1.9 fail; 3 2-2.05", []),
    # Another process is acked meanwhile; and after the last ack somebody goes on trying.
    ("1 1-1.9; 2 1-4 fail; 3 2.1-2.7; 4 4-5.5 info", ["no ack for 2.8 s (2.7 to 5.5 s)"]),
])
def test_the_drawing_of_the_run_tells_when_nobody_was_acked(
        tmp_path: Path, sends: str, said: list[str]) -> None:
    text = page(in_seconds(tmp_path / "run", sends))
    assert [one["label"] for one in data(text)["rows"]["silences"]] == said
    assert (f"none was acked: {', '.join(said)}." in text) is bool(said)


def test_the_command_names_the_file_and_refuses_what_is_no_run(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "here.html"

    answer = floodmark("report", folder, "--out", out)

    assert (answer.code, answer.last) == (0, str(out))
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert floodmark("report", folder).last == str(folder / "report.html")
    assert floodmark("report", tmp_path / "absent").code == 2
    assert floodmark("report", folder, "--out", tmp_path).code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    assert floodmark("report", empty).code == 4


# -- the data behind the page -------------------------------------------------------------------------------


def test_a_log_is_replayed_and_truncated_records_are_kept_until_they_are_back() -> None:
    log = ReplicaLog()
    log.apply({"event": "append", "offset": 0, "count": 4, "epochs": [[0, 0], [1, 3]], "leo": 4, "hw": 2})
    assert log.log == [(0, 0, 3), (1, 3, 4)]

    log.apply({"event": "truncate", "from": 4, "to": 2, "leo": 2, "hw": 2})
    assert (log.log, log.cut) == ([(0, 0, 2)], [(0, 2, 3), (1, 3, 4)])

    log.apply({"event": "append", "offset": 2, "count": 2, "epochs": [[0, 2]], "leo": 4, "hw": 2})
    assert (log.log, log.cut) == ([(0, 0, 4)], [(1, 3, 4)])  # offset 3 is there, but of another epoch


def test_a_long_log_is_thinned_but_for_the_time_that_is_shown() -> None:
    points = [(time, time % 7, 0) for time in range(9 * POINTS)]
    kept = thinned(points, [Shown(partition=0, since_ns=900, until_ns=1_000)])
    assert [point for point in kept if 900 <= point[0] <= 1_000] == points[900:1_001]
    assert len(kept) < POINTS + 200


def test_a_leader_that_restarts_leads_no_more(tmp_path: Path) -> None:
    folder = told(tmp_path / "run", "1 acked 1; begin; produce 1; restart n1 time=50000000; take_role n1")
    assert data(page(folder))["rows"]["reigns"][0]["to"] == 50.0


def test_a_leader_of_the_beginning_lacks_no_record_that_came_later(tmp_path: Path) -> None:
    for name, lacks in (("two-leaders-of-one-epoch", False), ("elected-without-a-committed-record", True)):
        stories = data(page(judged(tmp_path, name)))["stories"]
        led = [step["text"] for story in stories for step in story["steps"]
               if "began to lead" in step["text"]]
        assert led
        assert any("without offset" in text for text in led) == lacks


def test_the_ack_of_the_first_offset_is_found_in_the_trace() -> None:
    acked = Acked(partition=0, offset=0, value=7, began_ns=1_000_000, ended_ns=9_000_000)
    line = TraceLine(number=1, fields={"event": "ack", "time": 4_000_000, "offset": 0, "epoch": 2})
    assert acks_of([acked], [line], 0, {}) == [(0, 2, 4.0, 7)]


@pytest.mark.parametrize(("acts", "up"), [
    (["kill", "resume"], "down"), (["kill", "pause"], "down"), (["kill", "start"], ""),
    (["pause", "kill", "resume"], "down"), (["pause", "resume"], ""), (["pause", "kill", "start"], "")])
def test_a_dead_node_is_down_until_it_is_started(acts: list[str], up: str) -> None:
    after = ""
    for f in acts:
        after = up_after({"event": "nemesis", "f": f}, after)
    assert after == up


def test_a_fault_that_the_run_mended_is_drawn_until_then(folder: Path) -> None:
    """Not to the run's end, where it would seem to strike what came after settling."""
    act = {"index": 0, "time": 5, "process": -1, "type": "info", "f": "pause", "fault": {"nodes": ["n2"]}}
    (folder / "history.jsonl").write_text(json.dumps(act) + "\n")
    edit_run(folder, mended=[1_000_000, 2_000_000])
    assert data(page(folder))["rows"]["bands"][0]["to"] == 2.0


def test_reproductions_are_shown_from_the_campaign_and_the_ledger(tmp_path: Path) -> None:
    state, monday = nights.night((nights.CRASH, "invalid", (nights.LOST,))), tmp_path / "nights" / "monday"
    for number in (1, 2, 3):
        state.add("reproductions", signature=nights.LOST.id, folder=f"again/{number}", shown=number != 2)
    folder = judged(tmp_path, LOST)
    assert "<b>not tried</b>to reproduce it" in page(folder)

    (nights.written(monday, state, Ledger(), plan="") / "runs").mkdir()
    folder = folder.rename(monday / "runs" / "1")
    assert "<b>2 of 3</b>reproduced<" in page(folder)

    known = Ledger(nights={"night1": nights.EARLIER}).with_finding(nights.LOST, "night1", 1).changed(
        nights.LOST.id, reproduced=(4, 5), known={"reason": "KAFKA-<1>", "since": "2026-11-21"})
    save(monday.parent / "ledger.json", known)
    assert "<b>4 of 5</b>reproduced; known: KAFKA-&lt;1&gt;; first seen 2026-02-01<" in page(folder)

    (monday / DATABASE).write_bytes(b"no state")
    assert "<b>not tried</b>" in page(folder)


# -- the page that `check` writes into an invalid run --------------------------------------------------------


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` finds what is saved in verdict.json."""
    judge_by(monkeypatch, lambda folder: of_json(verdict(folder)))


def test_a_valid_run_gets_no_page_and_each_of_several_its_own(tmp_path: Path) -> None:
    lost, fine = judged(tmp_path, LOST), judged(tmp_path, FINE)

    answer = floodmark("check", fine, lost)

    assert not (fine / "report.html").exists()
    assert answer.about(lost).splitlines()[-1] == f"  page       {lost / 'report.html'}"
    assert "page" not in answer.about(fine)


def test_an_existing_page_is_updated_to_the_new_verdict(tmp_path: Path) -> None:
    fine = judged(tmp_path, FINE)
    for command in ("check", "rejudge"):
        (fine / "report.html").write_text("invalid")

        assert floodmark(command, fine).code == 0

        assert "<title>valid" in (fine / "report.html").read_text()


@pytest.mark.parametrize("error", [FloodmarkError("cannot write it: the disk is full"), ValueError("odd")])
def test_a_page_that_cannot_be_made_is_reported_and_fails_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    folder = judged(tmp_path, LOST)

    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(run_page, "page_of", fail)
    ran = CliRunner().invoke(main, ["check", str(folder)])  # `floodmark` would fail at a bug of our own

    assert ran.exit_code == 1
    assert ran.stdout.splitlines()[-1] == str(folder)
    assert "page   " not in ran.stdout
    assert f"{folder}: its page was not written: " in ran.stderr
    assert str(error) in ran.stderr
    assert not (folder / "report.html").exists()


def test_nothing_is_written_into_a_folder_that_is_no_run(tmp_path: Path) -> None:
    folder = judged(tmp_path, LOST)
    (folder / "run.json").unlink()
    (folder / "history.jsonl").unlink()

    floodmark("check", folder)

    assert not (folder / "report.html").exists()


def test_a_large_run_gets_its_page_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = judged(tmp_path, LOST)
    monkeypatch.setattr(run_page, "AT_ONCE_BYTES", 100)

    answer = floodmark("check", folder)

    assert (answer.code, answer.last) == (1, str(folder))
    assert f"its page takes a while: floodmark report {folder}" in answer.err
    assert not (folder / "report.html").exists()


def test_a_link_in_the_pages_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder, outside = judged(tmp_path, LOST), tmp_path / "precious"
    outside.write_text("mine")
    (folder / "report.html").symlink_to(outside)

    floodmark("check", folder)

    assert outside.read_text() == "mine"
    assert not (folder / "report.html").is_symlink()

"""Run folders may come from strangers: pipes, devices, links in place of files, and settings that try things.

Nothing here may wait for ever: an alarm goes off after ALARM_S.
"""

import errno
import json
import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import GOLDEN, edit_lines, edit_run, floodmark, golden
from golden_text import answered_as_written

from floodmark.broker.server import config
from floodmark.checkers.read import history_parquet
from floodmark.checkers.read.folder import Folder, open_folder
from floodmark.harness import parquet_dump, run
from floodmark.harness.cluster.layout import property_line
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.importers.jepsen_file import JepsenFile

ALARM_S = 600.0
LOST = "a-kill-loses-the-tail"


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """A test that waits for a writer of a pipe, or for the end of a device, gets an error."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"not done after {ALARM_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, ALARM_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / LOST, tmp_path / "run"))


def put(kind: str, path: Path) -> None:
    """Something else in the place of a file."""
    content = path.read_bytes() if path.is_file() else b"PAR1....PAR1"
    path.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a link that leaves the folder":
        outside = path.parents[2 if path.parent.name == "logs" else 1] / f"outside-{path.name}"
        outside.write_bytes(content)
        path.symlink_to(outside)
    else:
        assert kind == "a loop"
        path.symlink_to(path.name)


WORDS = {
    "a pipe": "a pipe, and only regular files are opened",
    "a folder": "a folder, and only regular files are opened",
    "a device": "a link that leaves the folder",  # the device is outside it
    "a link that leaves the folder": "a link that leaves the folder",
    "a loop": os.strerror(errno.ELOOP),
}


def reasons(folder: Folder) -> str:
    return "\n".join(reason for _, reason in folder.reasons)


# -- the judge ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("name", ["run.json", "history.jsonl", "replicas.jsonl", "trace.jsonl",
                                  "logs/n1.jsonl", "logs/n1.parquet"])
def test_nothing_but_a_regular_file_is_read(folder: Path, name: str, kind: str) -> None:
    """Each is reported by its name, a trace too: a missing trace is no reason, an unreadable one is. Parquet
    beside good lines is ignored; without the lines there is no dump."""
    put(kind, folder / name)
    opened = open_folder(folder)
    if name == "logs/n1.parquet":
        assert opened.dumps["n1"].suffix == ".jsonl"
        (folder / "logs" / "n1.jsonl").unlink()
        assert "n1" in open_folder(folder).damaged
        return
    assert f"{name}: {WORDS[kind]}" in reasons(opened)
    assert opened.judged == (name != "run.json")
    if opened.judged:
        assert (opened.history is None) == (name == "history.jsonl")
        assert opened.rows_damaged == (name == "replicas.jsonl")
        assert ("n1" not in opened.dumps) == (name == "logs/n1.jsonl")
        assert opened.trace is None


def test_a_folder_of_logs_elsewhere_has_no_dumps(folder: Path) -> None:
    """Also in a neighbour whose name begins alike."""
    shutil.move(folder / "logs", folder.parent / "run-2")
    (folder / "logs").symlink_to("../run-2")
    opened = open_folder(folder)
    assert opened.dumps == {}
    assert "logs/n1.jsonl: a link that leaves the folder" in reasons(opened)


def test_links_inside_the_folder_and_a_link_to_the_folder_are_fine(folder: Path) -> None:
    """Near misses: nothing is reported of them."""
    before = open_folder(folder)
    shutil.move(folder / "history.jsonl", folder / "kept.jsonl")
    (folder / "history.jsonl").symlink_to("kept.jsonl")
    shutil.move(folder / "logs", folder / "dumps")
    (folder / "logs").symlink_to(folder / "dumps")
    latest = folder.parent / "latest"
    latest.symlink_to("run")
    opened = open_folder(latest)
    assert opened.history == latest / "history.jsonl"
    assert opened.dumps.keys() == before.dumps.keys()
    assert opened.reasons == before.reasons


def test_an_oversized_run_json_or_replicas_file_is_reported(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of exactly the limit is read."""
    monkeypatch.setattr("floodmark.checkers.read.folder.REPLICAS_BYTES_AT_MOST", 1 << 20)
    monkeypatch.setattr(run, "ABOUT_BYTES_AT_MOST", 1 << 20)
    for name in ("replicas.jsonl", "run.json"):
        for size in (1 << 20, (1 << 20) + 1):
            os.truncate(folder / name, size)
            told = f"{name}: larger than 1 MiB, the limit for this file" in reasons(open_folder(folder))
            assert told == (size > 1 << 20)


# -- the commands -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
@pytest.mark.parametrize(("command", "name"), [
    ("show", "run.json"), ("show", "verdict.json"), ("show", "history.jsonl"), ("reproduce", "verdict.json"),
    ("reproduce", "history.jsonl"), ("rejudge", "run.json"), ("check", "run.json"),
    ("show --partition 0 --offset 1", "logs/n1.jsonl"),
])
def test_no_command_waits_for_a_pipe_or_a_device(folder: Path, command: str, name: str, kind: str) -> None:
    """It names the file, and what is there instead; the exit code is that of a folder that is no run, but
    where a log is shown beside the others."""
    edit_run(folder, concurrency=1, rate=None, duration_s=1.0, links="direct")
    put(kind, folder / name)
    answer = floodmark(*command.split(), folder)
    assert answer.code == (0 if name == "logs/n1.jsonl" else 4)
    assert f"{name}: {WORDS[kind]}" in answer.out + answer.err


def test_a_history_that_is_a_pipe_is_not_imported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history.edn")
    answer = floodmark("import", "jepsen", tmp_path / "history.edn", "--out", tmp_path / "run")
    assert answer.code == 4
    assert "a pipe, and only regular files are opened" in answer.err
    with pytest.raises(UsageError, match="is a folder"):
        JepsenFile(tmp_path)


def test_a_schedule_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.harness.schedule.json_form.BYTES_AT_MOST", 1 << 20)
    answer = floodmark("run", "--schedule", "/dev/zero", "--out", tmp_path / "run")
    assert answer.code == 2
    assert "larger than 1 MiB" in answer.err


# -- what is written into the folder ------------------------------------------------------------------------


def traps(folder: Path, mine: Path, *names: str) -> None:
    """Links to a file of the user's under every name that a writer uses or might use."""
    for name in names:
        for trap in (name, f".{name}.fresh", f".{name}.new", f".{name}.tmp", f".{name}.{os.getpid()}"):
            (folder / trap).unlink(missing_ok=True)
            (folder / trap).symlink_to(mine)


def test_a_prepared_folder_overwrites_nothing_of_the_users(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link under a file's own name is replaced, the others are left alone; a copy in another folder is
    none."""
    monkeypatch.setattr(history_parquet, "FROM_BYTES", 1)
    mine, logs = tmp_path / "mine", folder / "logs"
    mine.write_text("precious")
    traps(folder, mine, "verdict.json", "history.parquet")
    traps(logs, mine, "n1.parquet")
    before = {*folder.iterdir(), *logs.iterdir()}
    run.write_whole(folder / "verdict.json", b"{}\n")
    assert (folder / "verdict.json").read_text() == "{}\n"
    assert history_parquet.keep(folder / "history.jsonl") == folder / "history.parquet"
    assert history_parquet.is_copy(folder / "history.jsonl")
    parquet_dump.write_parquet(logs / "n1.jsonl")
    assert parquet_dump.is_copy(logs / "n1.parquet", logs / "n1.jsonl")
    assert not any(path.is_symlink() for path in (folder / "verdict.json", folder / "history.parquet",
                                                  logs / "n1.parquet"))
    assert mine.read_text() == "precious"
    assert {*folder.iterdir(), *logs.iterdir()} == before
    shutil.move(folder / "history.parquet", tmp_path / "history.parquet")
    (folder / "history.parquet").symlink_to("../history.parquet")
    assert not history_parquet.is_copy(folder / "history.jsonl")


def test_a_file_is_written_whole_with_the_mode_of_the_users_umask(tmp_path: Path) -> None:
    """Or nothing is left behind: in one's place is a folder."""
    before = os.umask(0o027)
    try:
        run.write_whole(tmp_path / "verdict.json", b"{}\n")
    finally:
        os.umask(before)
    assert (tmp_path / "verdict.json").stat().st_mode & 0o777 == 0o640
    (tmp_path / "taken").mkdir()
    with pytest.raises(FloodmarkError, match="cannot write"):
        run.write_whole(tmp_path / "taken", b"{}\n")
    assert {path.name for path in tmp_path.iterdir()} == {"verdict.json", "taken"}


@pytest.mark.parametrize("name", ["died", "missed"])
def test_a_number_in_the_place_of_a_list_is_shown_as_none(folder: Path, name: str) -> None:
    answer = floodmark("show", folder)
    edit_run(folder, **{name: 7})
    assert floodmark("show", folder) == answer


@pytest.mark.parametrize("command", [("show",), ("show", "--partition", "0", "--offset", "2"), ("report",)])
def test_a_number_longer_than_any_is_no_end_of_a_command(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Python refuses to convert one of 5,000 digits: as a time, an index, an offset or a partition."""
    folder = Path(shutil.copytree(GOLDEN / "double-failover", tmp_path / "run"))
    digits = "9" * 5_000
    line = ",".join(f'"{name}":{digits}' for name in ("index", "time", "partition", "offset"))
    for file in (folder / "history.jsonl", folder / "trace.jsonl", *folder.glob("logs/*.jsonl")):
        edit_lines(file, lambda lines: [other for one in lines for other in (one, f"{{{line}}}")])
    edit_run(folder, partitions={**json.loads((folder / "run.json").read_text())["partitions"], digits: {}})

    answer = floodmark(*command, folder)

    assert (answer.code, answer.err) == (0, "")


# -- its settings: no second line of a configuration, no path, no address, no id

NODES = ("n1", "n2", "n3")
LOAD: dict[str, Any] = {"id": "00ff", "concurrency": 1, "rate": None, "duration_s": 1, "links": "direct"}


def strange(parent: Path, **changes: Any) -> Path:
    """A saved run that could be reproduced, except for the changes."""
    return edit_run(golden(parent, "a-kill-loses-the-tail"), **{**LOAD, **changes})


def configured(config: dict[str, Any]) -> dict[str, Any]:
    return {"config": {node: {"min.insync.replicas": 1, **config} for node in NODES}}


def placed(**changes: Any) -> dict[str, Any]:
    partition = {"topic": "log", "partition": 0, "replicas": list(NODES), "cleanup": "delete", **changes}
    return {"partitions": {"0": partition}}


def refused(folder: Path, line: str) -> str:
    """Why a folder with these settings is not reproduced: exit 2, and nothing is created."""
    given = json.loads(line)
    changes = configured(given.pop("configured")) if "configured" in given else {}
    changes |= placed(**given.pop("placed")) if "placed" in given else {}
    if "many nodes" in given:
        changes["nodes"] = [f"n{number}" for number in range(given.pop("many nodes"))]
    if "many partitions" in given:
        one = placed()["partitions"]["0"]
        changes["partitions"] = {str(key): one for key in range(given.pop("many partitions"))}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run = strange(folder, **changes, **given)
    answer = floodmark("reproduce", run, "--out", folder / "out")
    assert (answer.code, (folder / "out").exists(), answer.err.isascii()) == (2, False, True), answer.err
    return f"! {answer.err.strip()}".replace(str(run), "FOLDER").replace("\n", " ")


def test_a_hostile_folder_is_refused_before_anything_starts(
        tmp_path: Path, request: pytest.FixtureRequest) -> None:
    answered_as_written("strange_settings.txt", partial(refused, tmp_path / "parent"), request)


def test_a_history_puts_nothing_strange_into_the_moments(tmp_path: Path) -> None:
    """The leader at a strike becomes a state that is waited for."""
    entries: list[dict[str, Any]] = [
        {"f": "kill", "nodes": ["n3"], "moment": {"at": "time", "time": 1}},
        {"f": "pause", "nodes": ["n2"], "moment": {"at": "time", "time": 2}}]
    folder = strange(tmp_path, schedule=entries)
    strikes = [
        {"index": at, "time": (1 + 2 * at) * 10**9, "process": -1, "type": "info", "f": entry["f"], "fault": {
            "nodes": entry["nodes"], "moment": entry["moment"], "began": (1 + 2 * at) * 10**9,
            "where": {"acks": {}, "leader": {"0": leader}, "isr": {"0": [leader[:2]]}}}}
        for at, (entry, leader) in enumerate(zip(entries, ("n1", "n2\n\x1b[2J"), strict=True))]
    edit_lines(folder / "history.jsonl", lambda _: map(json.dumps, strikes))
    answer = floodmark("reproduce", folder, "--out", tmp_path / "out")
    assert answer.code == 2, answer.err
    assert "by its history, cannot be reproduced" in answer.err
    assert "\\u001b" in answer.err
    assert "\x1b" not in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fault", [{"nodes": 5}, {"nodes": ["n1"], "reached": {"of": 7}},
                                   {"nodes": ["n1"], "reached": {"of": [7]}}, {"where": {"leader": []}}])
def test_a_malformed_fault_in_the_history_breaks_nothing(tmp_path: Path, fault: dict[str, Any]) -> None:
    """The next mistake is reported instead."""
    folder = strange(tmp_path, rules="kip-966", schedule=[{"f": "kill", "nodes": ["n1"]}])
    edit_run(folder, rules="high-watermark", workload="none-such")
    line_ = {"index": 0, "time": 5, "process": -1, "type": "info", "f": "kill", "fault": fault}
    edit_lines(folder / "history.jsonl", lambda _: [json.dumps(line_)])
    answer = floodmark("reproduce", folder, "--out", tmp_path / "out")
    assert answer.code == 4
    assert "none-such" in answer.err


@pytest.mark.parametrize("word", ["a=1\nlog.dirs=/x", "min.insync.replicas=1\rlisteners=x", "a\x1b=1"])
def test_an_option_holds_one_line(tmp_path: Path, word: str) -> None:
    """For `run`, and for `cluster up`, which starts brokers too."""
    for command in (("run", "--out", tmp_path / "run"), ("cluster", "up", "--out", tmp_path / "up")):
        answer = floodmark(*command, "-c", word)
        assert (answer.code, "are one line" in answer.err) == (2, True), answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("key", "value"), [
    ("a", "1\nb=2"), ("a", "1\r"), ("a", "1\x85b=2"), ("a", "1\u2029b=2"), ("a", "1\x0cb=2"), ("a", "1\\"),
    ("a:b", "1"), ("#a", "1"), ("a b", "1"), ("", "1"), ("a=b", "1"),
])
def test_a_line_of_properties_is_one_line(key: str, value: str) -> None:
    """Whatever is written to the file: the broker's reader must not see another line in it."""
    with pytest.raises(UsageError, match="cannot be in a properties file"):
        property_line(key, value, escapes=False)


@pytest.mark.parametrize("value", ["1", "", "PLAINTEXT://127.0.0.1:9092", "/a b/\u00fc", "1@h:2", "a\\b"])
def test_the_broker_reads_the_value_of_a_line(value: str) -> None:
    assert config.read_properties(property_line("log.dirs", value, escapes=False)) == [(1, "log.dirs", value)]

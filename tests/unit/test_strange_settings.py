"""A folder's settings cannot become a second line of a configuration, a path, an address or an id."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import edit_lines, edit_run, floodmark, golden
from golden_text import answered_as_written

from floodmark.broker.server import config
from floodmark.harness.cluster.layout import property_line
from floodmark.harness.errors import UsageError

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

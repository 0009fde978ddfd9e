"""Scenarios on live Apache Kafka: one row that shows something and one control of each, as its file
expects."""

import json
from pathlib import Path

import pytest
from command_line import floodmark
from real_kafka import skip_without

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.spark]
ON_ZOOKEEPER, ON_KRAFT = "2.8.2", "4.3.1"


@pytest.mark.parametrize(("name", "version"), [
    ("unclean-after-a-cut", ON_ZOOKEEPER),
    ("uneven-epochs", ON_ZOOKEEPER),
    ("reassigned-around-a-sleeper", ON_ZOOKEEPER),
    ("reassigned-around-a-sleeper", ON_KRAFT),
    ("last-replica-crashes", ON_KRAFT),
    ("last-replica-after-stops", ON_KRAFT),  # lost without eligible leader replicas, kept with them
    ("unclean-by-hand", ON_KRAFT),
    ("cut-off-leader-appends", ON_KRAFT),  # a broker without its controller hears no decision of it
])
def test_it_comes_out_as_its_rows_say(name: str, version: str, tmp_path: Path) -> None:
    skip_without(version)
    ran = floodmark("scenario", "run", name, "--kafka", version, "--sample", "--at-once", "1",
                    "--out", tmp_path / "out")
    assert ran.code == 0, ran.out + ran.err
    assert json.loads((tmp_path / "out" / "scenarios.json").read_text())


def test_both_fates_of_what_a_deposed_leader_had_appended(tmp_path: Path) -> None:
    """Two sends get the same answer; one record is gone, the other is there."""
    skip_without(ON_KRAFT)
    ran = floodmark("scenario", "run", "deposed-with-a-record", "--kafka", ON_KRAFT,
                    "--out", tmp_path / "out")
    assert ran.code == 0, ran.out + ran.err
    [row] = json.loads((tmp_path / "out" / "scenarios.json").read_text())
    ops = [json.loads(line) for line in
           (tmp_path / "out" / row["folder"] / "history.jsonl").read_text().splitlines()]
    sent = [(op["type"], op.get("error"), op["sends"][0]["offset"]) for op in ops
            if op["f"] == "send" and op["type"] == "info"]
    assert sent == [("info", "NOT_LEADER_OR_FOLLOWER", 1), ("info", "NOT_LEADER_OR_FOLLOWER", 2)]
    read = {one["value"] for op in ops if op["type"] == "ok" for one in op.get("reads", ())}
    assert 3 in read
    assert 1 not in read

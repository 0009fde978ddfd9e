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
    ("deposed-with-a-record", ON_KRAFT),
    ("deposed-with-a-record", "3.9.2"),
    ("cut-off-leader-appends", ON_KRAFT),  # a broker without its controller hears no decision of it
])
def test_it_comes_out_as_its_rows_say(name: str, version: str, tmp_path: Path) -> None:
    skip_without(version)
    ran = floodmark("scenario", "run", name, "--kafka", version, "--sample", "--at-once", "1",
                    "--out", tmp_path / "out")
    assert ran.code == 0, ran.out + ran.err
    assert json.loads((tmp_path / "out" / "scenarios.json").read_text())

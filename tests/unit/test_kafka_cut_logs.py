"""Power cuts simulated on logs that Apache Kafka wrote (tests/golden/kafka_logs): what is lost and kept."""

import os
import shutil
from pathlib import Path

import pytest

from floodmark.harness.cluster.kafka.kafka_system import HOW_CUT, RECOVERY_POINTS, CutLogs
from floodmark.harness.cluster.log_extents import batch_ends, log_end_offset, log_extents

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka_logs"
LOG = "v2-none-client-0"  # its batches end at 1, 6, 8 and 10
SEGMENT = "00000000000000000000"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A broker's log.dirs, without recovery points yet."""
    return Path(shutil.copytree(
        GOLDEN / "2.8.2", tmp_path / "n1", ignore=shutil.ignore_patterns("v0-*", "*lz4*", "*snappy*")))


def recovery_points(node: Path, **points: int) -> None:
    lines = [f"{name.replace('_', '-')} 0 {offset}" for name, offset in points.items()]
    (node / RECOVERY_POINTS).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def leos_of(folder: Path) -> list[int]:
    """The offsets at which a power cut may end the log."""
    return [0, *(end.leo for segment in folder.glob("*.log") for end in batch_ends(segment))]


def test_each_log_ends_with_one_of_its_batches(node: Path, tmp_path: Path) -> None:
    before = log_extents(node)
    twin = Path(shutil.copytree(node, tmp_path / "twin" / "n1"))
    lost = CutLogs().power_cut(tmp_path / "n1.durable", node)
    assert CutLogs().power_cut(tmp_path / "other.durable", twin) == lost, "drawn by the node's name"
    after = log_extents(node)

    assert lost.how == HOW_CUT
    assert lost.kept == {name: leo for name, (leo, _) in after.items()}
    assert lost.records == {name: before[name][0] - leo for name, (leo, _) in after.items()
                            if leo < before[name][0]}
    assert len(lost.records) > len(before) // 2, "most of the draws are not the end"
    assert len({before[name][0] - leo for name, leo in lost.kept.items()}) > 3, "cut at many places"
    for name, leo in lost.kept.items():
        assert leo in leos_of(GOLDEN / "2.8.2" / name), name


def test_nothing_below_the_recovery_point_is_lost(node: Path, tmp_path: Path) -> None:
    """In 15 draws; a recovery point at the LEO (as after an orderly stop) leaves the log unchanged."""
    end = log_end_offset(node / LOG)
    recovery_points(node, v2_none_client=4, v1_none_client=end, transactions=1)
    cuts = CutLogs()
    seen = set()
    for number in range(15):
        copy = Path(shutil.copytree(node, tmp_path / str(number) / "n1"))
        kept = cuts.power_cut(tmp_path / f"{number}.durable", copy).kept
        seen.add(kept[LOG])
        assert kept[LOG] >= 4
        assert kept["v1-none-client-0"] == end
        assert (copy / "v1-none-client-0" / f"{SEGMENT}.log").read_bytes() == (
            GOLDEN / "2.8.2" / "v1-none-client-0" / f"{SEGMENT}.log").read_bytes()
    assert seen == {leo for leo in leos_of(node / LOG) if leo >= 4}


def test_a_cut_keeps_at_least_what_is_given(node: Path, tmp_path: Path) -> None:
    """Up to the batch boundary at or below, and never less than the durable part."""
    recovery_points(node, v2_gzip_broker=6)
    keep = {LOG: 7, "v2-none-broker-0": 0, "v2-gzip-broker-0": 2, "v1-none-client-0": 100}
    kept = CutLogs().power_cut(tmp_path / "n1.durable", node, keep=keep).kept

    assert {name: kept[name] for name in keep} == {
        LOG: 6, "v2-none-broker-0": 0, "v2-gzip-broker-0": 6, "v1-none-client-0": 10}


def test_a_second_cut_loses_nothing_that_the_first_left(node: Path, tmp_path: Path) -> None:
    """Until something new is written; then only that may be lost."""
    cuts, note = CutLogs(), tmp_path / "n1.durable"
    first = cuts.power_cut(note, node, keep={LOG: 6})
    assert cuts.power_cut(note, node, keep=dict.fromkeys(first.kept, 0)).kept == first.kept

    whole = (GOLDEN / "2.8.2" / LOG / f"{SEGMENT}.log").read_bytes()
    shutil.rmtree(node / LOG)
    (node / LOG).mkdir()
    (node / LOG / f"{SEGMENT}.log").write_bytes(whole)
    assert cuts.power_cut(note, node, keep={LOG: 0}).kept[LOG] == first.kept[LOG] == 6


def test_a_second_cut_keeps_what_a_disk_that_was_shut_down_had(node: Path, tmp_path: Path) -> None:
    cuts, note = CutLogs(), tmp_path / "n1.durable"
    cuts.mark_all_durable(note, {LOG: 6})
    later = note.stat().st_mtime + 1
    os.utime(node / LOG / f"{SEGMENT}.log", (later, later))  # it is written again
    assert cuts.power_cut(note, node, keep={LOG: 0}).kept[LOG] == 6


def test_later_segments_and_the_indexes_of_the_cut_one_are_removed(node: Path, tmp_path: Path) -> None:
    folder = node / LOG
    data = (folder / f"{SEGMENT}.log").read_bytes()
    ends = list(batch_ends(folder / f"{SEGMENT}.log"))
    for base, part in ((0, data[:ends[0].byte]), (1, data[ends[0].byte:ends[2].byte]),
                       (8, data[ends[2].byte:])):
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            (folder / f"{base:020}{suffix}").write_bytes(b"")
        (folder / f"{base:020}.log").write_bytes(part)
    lost = CutLogs().power_cut(tmp_path / "n1.durable", node, keep={LOG: 7})

    assert lost.kept[LOG] == 6
    of_first = {f"{SEGMENT}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")}
    of_cut = {f"{1:020}{suffix}" for suffix in (".log", ".snapshot")}
    assert {path.name for path in folder.iterdir() if path.stem.isdecimal()} == of_first | of_cut


def test_fsynced_topics_and_the_controllers_log_are_kept(node: Path, tmp_path: Path) -> None:
    shutil.copytree(node / LOG, node / "__cluster_metadata-0")
    before = log_extents(node)
    kept = CutLogs(lambda topic: topic == "v2-none-client").power_cut(
        tmp_path / "n1.durable", node, keep=dict.fromkeys(before, 0)).kept

    assert {name for name, leo in kept.items() if leo} == {LOG}
    assert log_end_offset(node / "__cluster_metadata-0") == log_end_offset(node / LOG) > 0

"""Compares the reader of log directories with kafka.tools.DumpLogSegments, on files that Apache Kafka wrote.

A broker of each version writes 10,000 records and more in each format and compression, transactions, several
segments and compacted logs; every batch and every record is compared. Small ones are saved, and
tests/golden/test_kafka_logs.py reads them without Java.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_logs import (
    COMPACTED,
    RUN,
    DumpedBatch,
    compare_topic,
    dumped_files,
    parsed,
    rows_of,
    topics_of,
    wait_compacted,
    write,
    write_for_compaction,
    write_transactions,
)
from real_kafka import RealKafka, dump_log_segments, skip_without

from floodmark.harness.logdir import describe
from floodmark.harness.logdir.segments import batches_of, segments_of
from floodmark.harness.logdir.transactions import aborted_index, transactions_of
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.record_batches import frame

pytestmark = [pytest.mark.kafka, pytest.mark.long]
RECORDS = 10_200  # of each format and compression, by two or three writers
SEGMENTS = {"2.8.2": "65536", "4.3.1": "1048576"}  # as small as each version allows, or as needed
TEXT_BYTES = {"2.8.2": 300, "4.3.1": 1_200}  # of two records of three, so that there are several segments
COMPACTED_TOPICS = {
    "2.8.2": {"c-v0-none": "0.9.0", "c-v0-gzip": "0.9.0", "c-v1-none": "0.10.2", "c-v1-gzip": "0.10.2",
              "c-v1-lz4": "0.10.2", "c-v2-none": "2.8", "c-v2-gzip": "2.8"},
    "4.3.1": {"c-v2-none": "", "c-v2-zstd": ""},
}  # fmt: skip
RECORDS_COMPACTED = 5_000


class Written:
    """What a broker wrote before it was stopped, and its DumpLogSegments' output."""

    def __init__(self, folder: Path, version: str) -> None:
        draw = random.Random(11)
        self.version = version
        self.topics = topics_of(version)
        self.numbers: dict[str, int] = {}  # topic -> how many records were sent
        compacted = {
            topic: {**COMPACTED, "segment.bytes": SEGMENTS[version],
                    **({"message.format.version": word} if word else {})}
            for topic, word in COMPACTED_TOPICS[version].items()}
        segmented = {"segment.bytes": SEGMENTS[version]}
        size = TEXT_BYTES[version]
        with RealKafka(folder, version) as self.kafka:
            self.kafka.create({**self.topics, **compacted, "transactions": {}, "segments": segmented,
                               "c-transactions": compacted["c-v2-none"]})
            for topic in compacted:
                write_for_compaction(self.kafka, topic, draw, codec=topic.split("-")[2],
                                     number=RECORDS_COMPACTED, bytes_each=size)
            for topic in self.topics:
                kind, _, _ = topic.rpartition("-")
                writers = sum(name.startswith(f"{kind}-") for name in self.topics)
                self.numbers[topic] = RECORDS // writers
                write(self.kafka, topic, self.numbers[topic], draw)
            write_for_compaction(self.kafka, "segments", draw, codec="none", number=5_000, bytes_each=size)
            self.fates = write_transactions(self.kafka, "transactions", 60, draw)
            write_transactions(self.kafka, "c-transactions", 20, draw, last="aborted")
            write_for_compaction(self.kafka, "c-transactions", draw, codec="none", number=RECORDS_COMPACTED,
                                 bytes_each=size)
            wait_compacted(self.kafka, dict.fromkeys((*compacted, "c-transactions"), RECORDS_COMPACTED))
        self.others = (*compacted, "c-transactions", "transactions", "segments")
        self.log_dir = self.kafka.log_dir
        _, self.dumped = dumped_files(self.kafka, [*self.topics, *self.others])

    def compare(self, topic: str) -> tuple[int, int]:
        return compare_topic(self.log_dir, topic, self.dumped)

    def batches(self, topic: str) -> list[DumpedBatch]:
        return [batch for segment in segments_of(self.log_dir / f"{topic}-0")
                for batch in self.dumped[str(segment.path)]]


@pytest.fixture(scope="module", params=["2.8.2", "4.3.1"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    skip_without(request.param)
    folder = tmp_path_factory.mktemp(f"kafka-{request.param}")
    yield Written(folder, request.param)
    shutil.rmtree(folder, ignore_errors=True)


def test_every_batch_and_record_in_each_format_and_compression(written: Written) -> None:
    """At least 10,000 records of each kind, and no difference."""
    counts: dict[tuple[str, str], int] = {}
    for topic in written.topics:
        name, codec, _ = topic.split("-")
        batches, count = written.compare(topic)
        counts[name, codec] = counts.get((name, codec), 0) + count
        formats = {batch.words["magic"] for batch in written.batches(topic)}
        codecs = {batch.words["compresscodec"].lower() for batch in written.batches(topic)}
        assert formats == {name[1:]}, topic
        assert codec in codecs <= {codec, "none"}, topic
        assert batches < count or (codec == "none" and name != "v2"), topic

    assert min(counts.values()) >= 10_000, counts
    assert len(counts) == (13 if written.version == "2.8.2" else 5)


def test_several_segments(written: Written) -> None:
    _, count = written.compare("segments")

    assert count == 5_000
    assert len(segments_of(written.log_dir / "segments-0")) > 2


def test_transactions(written: Written) -> None:
    """Exactly the aborted values are aborted: none that was committed, left open, or in no transaction."""
    written.compare("transactions")
    rows = {row["value"]: row for row in rows_of(written.log_dir, "transactions") if row["value"] is not None}

    assert {value for value, row in rows.items() if row.get("aborted")} == {
        value for value, fate in written.fates.items() if fate == "aborted"}
    assert set(rows) == set(written.fates)
    assert set(written.fates.values()) == {"plain", "open", "aborted", "committed"}


def test_markers_and_index_say_the_same(written: Written) -> None:
    """For every batch of a transaction that has ended."""
    segments = segments_of(written.log_dir / "transactions-0")
    fates = transactions_of(segments, running=True)
    index = [entry for segment in segments for entry in aborted_index(segment)]
    compared = 0
    for segment in segments:
        for data, at, _ in batches_of(segment, drop_bad_last=False):
            header = frame(data, at)
            assert header is not None
            if header.transactional and not header.control:
                assert fates.aborted(header) == any(
                    entry.producer_id == header.producer_id
                    and entry.first_offset <= header.base_offset < entry.last_offset for entry in index)
                compared += 1
    assert compared > 100
    assert index


def test_compacted_logs(written: Written) -> None:
    """Gaps between batches and inside them, in every format: the remaining records are read, each at its
    offset."""
    for topic in (*COMPACTED_TOPICS[written.version], "c-transactions"):
        _, count = written.compare(topic)
        offsets = [row["offset"] for row in rows_of(written.log_dir, topic)]

        assert offsets == sorted(set(offsets)), topic
        assert len(offsets) == count < RECORDS_COMPACTED, topic
        assert offsets[-1] >= RECORDS_COMPACTED - 1, topic


def test_what_the_files_say_of_a_replica(written: Written) -> None:
    """After an orderly stop the checkpointed HW is the LEO; only batches of v2 have epochs."""
    for topic in (*written.topics, *written.others):
        spec = PartitionSpec(key=0, topic=topic, partition=0, replicas=("n1",))
        for running in (True, False):
            state = describe(written.log_dir, spec, running=running)
            old = any(name in topic for name in ("v0-", "v1-"))

            assert state.leo == state.checkpointed_hw > 0, topic
            assert (state.log_start, state.torn_bytes) == (0, 0), topic
            assert state.epochs == (None if old else ((0, 0),)), topic


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_torn_tail(written: Written, tmp_path: Path, codec: str) -> None:
    """Cut somewhere in the last batch: as many bytes are torn as Kafka says are invalid."""
    draw = random.Random(3)
    cuts: dict[str, tuple[Path, int]] = {}
    for topic in written.topics:
        if topic.endswith(f"-{codec}-client"):
            source = segments_of(written.log_dir / f"{topic}-0")[-1].path
            last = int(written.batches(topic)[-1].words["position"])
            cut = draw.randrange(last + 1, source.stat().st_size)
            path = tmp_path / f"{topic}-0" / source.name
            path.parent.mkdir()
            path.write_bytes(source.read_bytes()[:cut])
            cuts[topic] = path, cut - last
    text = dump_log_segments(written.kafka.kafka, [path for path, _ in cuts.values()])
    dumped = parsed(text)
    for topic, (path, torn) in cuts.items():
        compare_topic(tmp_path, topic, dumped)
        state = describe(tmp_path, PartitionSpec(key=0, topic=topic, partition=0, replicas=("n1",)))

        assert state.torn_bytes == torn
        assert state.leo == written.batches(topic)[-2].last_offset + 1
        lines = text.partition(f"Dumping {path}\n")[2].partition("Dumping ")[0]
        assert f"Found {torn} invalid bytes at the end of {path.name}" in lines


def test_what_our_records_look_like_is_what_was_written(written: Written) -> None:
    """Six of eight records: by their values, in v2 one of the six by its header."""
    for topic in written.topics:
        rows = rows_of(written.log_dir, topic)
        ours = [row["value"] for row in rows if row["value"] is not None]
        expected = [at for at in range(written.numbers[topic]) if at % 8 not in (6, 7)]

        assert ours == expected, (topic, RUN)

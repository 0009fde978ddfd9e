"""Small logs that Apache Kafka 2.8.2 and 4.3.1 wrote, read as their own DumpLogSegments read them: in every
format and compression, by three kinds of writers, in several segments, compacted, of transactions, torn.

tests/golden/kafka_logs/VERSION has them as the broker left them, without their indexes: FORMAT-CODEC-WRITER
(ten records each; the client compresses, the broker does, or a client of that format's time writes),
s- and c-FORMAT-CODEC (several segments of 200 records of a few keys, c: compacted), and transactions of three
producers, some aborted (aborted.txt). dump.txt is DumpLogSegments' output for all of them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.logdir import (
    Segment,
    Transactions,
    aborted_index,
    batches_of,
    describe,
    dump,
    segments_of,
    transactions_of,
)
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.record_batches import MAGIC, MARK, Frame, Record, frame, records, value_of

HERE = Path(__file__).parent / "kafka_logs"
RUN = "0123456789abcdef"
VERSIONS = ("2.8.2", "4.3.1")
TOPICS = [(version, folder.name.removesuffix("-0"))
          for version in VERSIONS for folder in sorted((HERE / version).glob("*-0"))]
_PAIR = re.compile(r"(\w+): (\S+)")


# -- DumpLogSegments ----------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    """One batch: the words of its line, and those of its records."""

    words: Mapping[str, str]
    records: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def last_offset(self) -> int:
        return int(self.words.get("lastOffset") or self.words["offset"])


def parsed(text: str) -> dict[str, list[DumpedBatch]]:
    """File -> its batches, as DumpLogSegments of 2.8 and 4.x prints them."""
    found: dict[str, list[DumpedBatch]] = {}
    batches: list[DumpedBatch] = []
    for line in text.split("\n"):
        if line.startswith("Dumping "):
            batches = found.setdefault(line.removeprefix("Dumping "), [])
        elif line.startswith(("baseOffset: ", "offset: ")):
            batches.append(DumpedBatch(words=dict(_PAIR.findall(line))))
        elif line.startswith("| offset: "):
            head, _, payload = line.partition(" payload: ")
            head, _, key = head.partition(" key: ")
            batches[-1].records.append({**dict(_PAIR.findall(head)), "key": key, "payload": payload})
    return found


def compare(path: Path, dumped: Sequence[DumpedBatch]) -> None:
    """Every batch and record of a segment as read here and by Kafka."""
    position = 0
    segment = Segment(base_offset=int(path.stem), path=path)
    for found, theirs in zip_longest(batches_of(segment, drop_bad_last=False), dumped):
        assert found is not None, (path, theirs)
        assert theirs is not None, (path, position)
        data, at, size = found
        header = frame(data, at)
        assert header is not None
        ours: dict[str, Any] = {
            "position": position, "size": size, "magic": header.magic, "crc": header.crc,
            "compresscodec": header.codec or "none", "isvalid": header.crc_ok}
        if header.magic == MAGIC:
            ours |= {"baseOffset": header.base_offset, "count": header.count,
                     "producerId": header.producer_id, "partitionLeaderEpoch": header.epoch,
                     "isTransactional": header.transactional, "isControl": header.control}
        assert {name: str(value).lower() for name, value in ours.items()} == {
            name: theirs.words[name].lower() for name in ours}, (path, position)
        assert header.last_offset == theirs.last_offset
        compare_records(records(data, at, header), theirs, header, where=(path, position))
        position += size


def compare_records(ours: Sequence[Record], theirs: DumpedBatch, header: Frame, where: object) -> None:
    assert len(ours) == len(theirs.records), where
    for mine, their in zip(ours, theirs.records, strict=True):
        sizes = [-1 if part is None else len(part) for part in (mine.key, mine.value)]
        printed = [int(their[word]) for word in ("offset", "keySize", "valueSize")]
        assert [mine.offset, *sizes] == printed, where
        if header.control:
            continue
        assert (mine.key or b"").decode() == their["key"], where
        assert (mine.value or b"").decode() == their["payload"], where
        if "headerKeys" in their:
            assert their["headerKeys"] == "[" + ",".join(name.decode() for name, _ in mine.headers) + "]"
        if header.magic != MAGIC:
            assert str(mine.crc_ok).lower() == their["isValid"].lower(), where


def spec_of(topic: str) -> PartitionSpec:
    return PartitionSpec(key=0, topic=topic, partition=0, replicas=("n1",))


def rows_of(log_dir: Path, topic: str) -> list[dict[str, Any]]:
    """The rows of partition 0."""
    return list(dump(log_dir, [spec_of(topic)], RUN, "n1"))


def expected_rows(dumped: Sequence[DumpedBatch]) -> list[tuple[int, int, int | None, int, bool]]:
    """(offset, epoch, value, crc, crc_ok), from Kafka's output alone."""
    found = []
    for batch in dumped:
        words = batch.words
        for record in batch.records:
            headers = [(MARK, RUN.encode())] if record.get("headerKeys") == "[floodmark]" else []
            value = (None if words.get("isControl") == "true" or record["valueSize"] == "-1"
                     else value_of(record["payload"].encode(), headers, RUN.encode()))
            found.append((int(record["offset"]), int(words.get("partitionLeaderEpoch", -1)), value,
                          int(words["crc"]), words["isvalid"] == "true"))
    return found


def compare_topic(log_dir: Path, topic: str, dumped: Mapping[str, list[DumpedBatch]]) -> int:
    """All segments of a topic's partition 0, and the rows of its dump, which are counted."""
    expected = []
    for segment in segments_of(log_dir / f"{topic}-0"):
        theirs = dumped[str(segment.path)]
        compare(segment.path, theirs)
        expected += expected_rows(theirs)
    assert [(row["offset"], row["epoch"], row["value"], row["crc"], row.get("crc_ok", True))
            for row in rows_of(log_dir, topic)] == expected, topic
    return len(expected)


# -- the logs --------------------------------------------------------------------------------------------

def dumped(version: str, where: Path) -> dict[str, list[DumpedBatch]]:
    """What Kafka says of the logs, if they are in that folder."""
    return parsed((HERE / version / "dump.txt").read_text(encoding="utf-8").replace("LOGS", str(where)))


@pytest.mark.parametrize(("version", "topic"), TOPICS)
def test_every_batch_and_record_is_as_kafka_reads_it(version: str, topic: str) -> None:
    count = compare_topic(HERE / version, topic, dumped(version, HERE / version))

    assert count == 10 if topic[0] == "v" else count > 0


@pytest.mark.parametrize(("version", "topic"), TOPICS)
def test_what_the_files_say_of_a_replica(version: str, topic: str) -> None:
    """After an orderly stop the checkpointed HW is the LEO; only batches of v2 have epochs."""
    for running in (True, False):
        state = describe(HERE / version, spec_of(topic), running=running)
        old = any(name in topic for name in ("v0-", "v1-"))

        assert state.leo == state.checkpointed_hw > 0
        assert (state.log_start, state.torn_bytes) == (0, 0)
        assert state.epochs == (None if old else ((0, 0),))


@pytest.mark.parametrize(("version", "topic"), [
    (version, topic) for version, topic in TOPICS if topic.endswith(("none-client", "gzip-client"))])
def test_a_torn_tail_is_no_record(version: str, topic: str, tmp_path: Path) -> None:
    """Wherever it was torn in its last batch."""
    (source,) = segments_of(HERE / version / f"{topic}-0")
    file = tmp_path / f"{topic}-0" / source.path.name
    file.parent.mkdir()
    *whole, last = dumped(version, tmp_path)[str(file)]
    position, data = int(last.words["position"]), source.path.read_bytes()
    for end in range(position + 1, len(data), 7):
        file.write_bytes(data[:end])
        state = describe(tmp_path, spec_of(topic))

        assert (state.torn_bytes, state.leo) == (end - position, whole[-1].last_offset + 1 if whole else 0)
        compare_topic(tmp_path, topic, {str(file): whole})


@pytest.mark.parametrize("version", VERSIONS)
def test_the_aborted_are_those_that_were_aborted(version: str) -> None:
    """Some of three producers' transactions."""
    aborted = sorted(row["value"] for row in rows_of(HERE / version, "transactions") if row.get("aborted"))

    assert aborted == [int(word) for word in (HERE / version / "aborted.txt").read_text().split()]
    assert aborted


@pytest.mark.parametrize("version", VERSIONS)
def test_the_index_alone_knows_the_aborted_too(version: str) -> None:
    """Of the same batches, as if compaction had taken the markers."""
    (segment,) = segments_of(HERE / version / "transactions-0")
    by_index = Transactions(markers={}, index=aborted_index(segment))
    by_markers = transactions_of([segment], running=True)
    headers = [frame(data, at) for data, at, _ in batches_of(segment, drop_bad_last=False)]

    assert all(header and by_index.aborted(header) == by_markers.aborted(header) for header in headers)
    assert any(header and by_index.aborted(header) for header in headers)

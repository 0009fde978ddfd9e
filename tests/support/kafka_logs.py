"""Logs that Apache Kafka wrote, in every format and compression, and DumpLogSegments' output for them.

    python tests/support/kafka_logs.py FOLDER       makes the small saved ones of tests/golden/kafka_logs
"""

import random
import re
import shutil
import string
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from real_kafka import RealKafka, dump_log_segments, quiet

from floodmark.harness.logdir import dump
from floodmark.harness.logdir.segments import Segment, batches_of, segments_of
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.record_batches import MAGIC, frame, records
from floodmark.harness.signature import HEADER, in_value, value_of

RUN = "0123456789abcdef"
MESSAGE_FORMATS = {"v0": "0.9.0", "v1": "0.10.2", "v2": "2.8"}  # name -> message.format.version
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# format -> the broker version that librdkafka is to write for
OLD_CLIENTS = {"v0": "0.9.0.1", "v1": "0.10.1.0"}
DUMPS, ABORTED = "dump.txt", "aborted.txt"  # beside saved logs
HW_FILE = "replication-offset-checkpoint"
LOGS = "LOGS"  # in place of the folder that they were in
WAIT_S = 90.0
_PAIR = re.compile(r"(\w+): (\S+)")
_OF_ITS_BATCH = re.compile(r"^(\| offset: .*? valueSize: \S+) .*? isvalid: \S+", re.MULTILINE)


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


def compare(path: Path, dumped: Sequence[DumpedBatch]) -> tuple[int, int]:
    """Compares every batch and record of a segment as read here and by Kafka; returns how many there were."""
    position = count = 0
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
        count += _compare_records(data, at, theirs, where=(path, position))
        position += size
    return len(dumped), count


def _compare_records(data: bytes, at: int, theirs: DumpedBatch, where: tuple[Path, int]) -> int:
    header = frame(data, at)
    assert header is not None
    ours = records(data, at, header)
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
    return len(ours)


def rows_of(log_dir: Path, topic: str) -> list[dict[str, Any]]:
    """The rows of partition 0."""
    spec = PartitionSpec(key=0, topic=topic, partition=0, replicas=("n1",))
    return list(dump(log_dir, [spec], RUN, "n1"))


def expected_rows(dumped: Sequence[DumpedBatch]) -> list[tuple[int, int, int | None, int, bool]]:
    """(offset, epoch, value, crc, crc_ok), from Kafka's output alone."""
    found = []
    for batch in dumped:
        words = batch.words
        for record in batch.records:
            headers = [(HEADER, RUN.encode())] if record.get("headerKeys") == "[floodmark]" else []
            value = (None if words.get("isControl") == "true" or record["valueSize"] == "-1"
                     else value_of(record["payload"].encode(), headers, RUN.encode()))
            found.append((int(record["offset"]), int(words.get("partitionLeaderEpoch", -1)), value,
                          int(words["crc"]), words["isvalid"] == "true"))
    return found


def compare_topic(log_dir: Path, topic: str, dumped: Mapping[str, list[DumpedBatch]]) -> tuple[int, int]:
    """Compares all segments of a topic's partition 0, and the rows of its dump; counts batches and
    records."""
    batches = count = 0
    expected = []
    for segment in segments_of(log_dir / f"{topic}-0"):
        theirs = dumped[str(segment.path)]
        more = compare(segment.path, theirs)
        batches, count = batches + more[0], count + more[1]
        expected += expected_rows(theirs)
    rows = rows_of(log_dir, topic)
    assert [(row["offset"], row["epoch"], row["value"], row["crc"], row.get("crc_ok", True))
            for row in rows] == expected, topic
    return batches, count


def dumped_files(kafka: RealKafka, topics: Sequence[str]) -> tuple[str, dict[str, list[DumpedBatch]]]:
    """DumpLogSegments' output for all their segments, as text and parsed."""
    files = [segment.path for topic in topics for segment in segments_of(kafka.log_dir / f"{topic}-0")]
    text = dump_log_segments(kafka.kafka, files)
    return text, parsed(text)


# -- topics -------------------------------------------------------------------------------------------------

def formats(version: str) -> tuple[str, ...]:
    """The formats that topics of this Kafka can have; from 4.0 on only v2."""
    return ("v2",) if int(version.partition(".")[0]) >= 4 else tuple(MESSAGE_FORMATS)


def topics_of(version: str) -> dict[str, dict[str, str]]:
    """FORMAT-CODEC-WRITER -> configs. Writers: the client compresses (librdkafka), the broker does (Java), or
    a client of that format's time writes (librdkafka as it did then)."""
    found = {}
    for name in formats(version):
        config = {"message.format.version": MESSAGE_FORMATS[name]} if len(formats(version)) > 1 else {}
        for codec in CODECS:
            if codec == "zstd" and name != "v2":
                continue
            found[f"{name}-{codec}-client"] = {**config}
            broker = "uncompressed" if codec == "none" else codec
            found[f"{name}-{codec}-broker"] = {**config, "compression.type": broker}
            if name in OLD_CLIENTS:
                found[f"{name}-{codec}-old"] = {**config}
    return found


def write(kafka: RealKafka, topic: str, number: int, draw: random.Random, *, longest: int = 300) -> None:
    """Writes some of our records, by value and (v2) by header, and other records of all kinds, in random
    batches."""
    name, codec, writer = topic.split("-")
    keys: dict[str, Any] = {"compression.type": "none" if writer == "broker" else codec}
    if writer == "old":
        keys |= {"api.version.request": False, "broker.version.fallback": OLD_CLIENTS[name]}
    producer = _producer(kafka, **keys)
    errors: list[Any] = []
    left = 0
    for at in range(number):
        producer.produce(topic, **_record(at, draw, longest, headers=name == "v2"),
                         on_delivery=lambda error, _: errors.append(error) if error else None)
        left -= 1
        if left < 0:
            producer.flush(30)
            left = draw.choice((0, 1, 4, 4, 30, 200))
    assert producer.flush(60) == 0
    assert errors == [], topic


def _record(at: int, draw: random.Random, longest: int, *, headers: bool) -> dict[str, Any]:
    key = draw.choice((None, b"", b"key %d" % at))
    kind = at % 8
    if kind == 5 and headers:
        return {"key": key, "value": b"%d" % at, "headers": [("floodmark", RUN.encode())]}
    if kind == 6:
        return {"key": b"key %d" % at, "value": draw.choice((None, b""))}
    if kind == 7:
        text = "".join(draw.choices(string.ascii_letters + "äµ€", k=draw.randrange(longest)))
        more = [("other", b"x"), ("more", None)] if headers else None
        return {"key": key, "value": text.encode(), "headers": more}
    return {"key": key, "value": in_value(RUN.encode(), at)}


def _producer(kafka: RealKafka, **keys: Any) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "logger": quiet(),
                     **{key.replace("__", "."): value for key, value in keys.items()}})


# -- transactions -------------------------------------------------------------------------------------------

def write_transactions(kafka: RealKafka, topic: str, rounds: int, draw: random.Random, *,
                       last: str = "open") -> dict[int, str]:
    """Writes interleaved transactions of three producers, committed and aborted, and records outside of them.
    The last transactions end as `last` says. Returns value -> how it ended."""
    producers = [_producer(kafka, transactional__id=f"{topic}-{number}", transaction__timeout__ms=600_000)
                 for number in range(3)]
    for producer in producers:
        producer.init_transactions(60)
    plain = _producer(kafka)
    fates: dict[int, str] = {}
    value = 0
    for number in range(rounds):
        taking_part = draw.sample(producers, draw.randrange(1, 4))
        sent: dict[Producer, list[int]] = {producer: [] for producer in taking_part}
        for producer in taking_part:
            producer.begin_transaction()
        for _ in range(draw.randrange(1, 6)):
            for producer in (*taking_part, plain):
                producer.produce(topic, in_value(RUN.encode(), value), key=b"%d" % (value % 20))
                producer.flush(30)
                if producer is plain:
                    fates[value] = "plain"
                else:
                    sent[producer].append(value)
                value += 1
        for producer in draw.sample(taking_part, len(taking_part)):
            fate = last if number == rounds - 1 else draw.choice(("aborted", "committed"))
            if fate == "aborted":
                producer.abort_transaction(60)
            elif fate == "committed":
                producer.commit_transaction(60)
            fates |= dict.fromkeys(sent[producer], fate)
    return fates


# -- compaction ---------------------------------------------------------------------------------------------

SEGMENT_MS = 100
SEGMENTED = {"segment.ms": str(SEGMENT_MS)}
COMPACTED = {**SEGMENTED, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
             "delete.retention.ms": "100"}
NUMBER = 200  # records of a log of several segments, compacted or not


def segmented_of(version: str) -> dict[str, dict[str, str]]:
    """WHAT-FORMAT-CODEC -> configs, of logs of several segments; c: compacted."""
    found = {"s-v2-none": SEGMENTED, "c-v2-none": COMPACTED, "c-v2-zstd": COMPACTED}
    if len(formats(version)) > 1:
        found |= {f"c-{name}-{codec}": {**COMPACTED, "message.format.version": MESSAGE_FORMATS[name]}
                  for name, codec in (("v0", "none"), ("v0", "gzip"), ("v1", "none"), ("v1", "lz4"))}
    return found


def write_segments(kafka: RealKafka, topic: str, draw: random.Random, codec: str) -> None:
    """Writes NUMBER records of a few keys; segments end by their age."""
    producer = _producer(kafka, compression__type=codec)
    for at in range(NUMBER):
        text = "".join(draw.choices(string.ascii_letters, k=20)).encode()
        value = text if at % 3 else in_value(RUN.encode(), at)
        producer.produce(topic, key=b"%d" % draw.randrange(20), value=None if at % 50 == 0 else value)
        if at % 20 == 19:
            assert producer.flush(30) == 0
            time.sleep(1.5 * SEGMENT_MS / 1000)


def wait_compacted(kafka: RealKafka, topics: Iterable[str]) -> None:
    """Waits until each topic has fewer records than were written, and the same number twice."""
    until = time.monotonic() + WAIT_S
    for topic in topics:
        before = NUMBER
        while True:
            now = _count(kafka.log_dir, topic)
            if now is not None and now == before < NUMBER * 0.9:
                break
            before = NUMBER if now is None else now
            assert time.monotonic() < until, f"waited {WAIT_S:g} s for {topic} to be compacted: {before}"
            time.sleep(1.0)


def _count(log_dir: Path, topic: str) -> int | None:
    """The number of records; None while the cleaner exchanges files."""
    try:
        return len(rows_of(log_dir, topic))
    except Exception:
        return None


# -- saved logs ---------------------------------------------------------------------------------------------

def _save(folder: Path) -> None:
    """Writes FOLDER/VERSION/TOPIC-0 as the broker left it, without its indexes; dump.txt, DumpLogSegments'
    output (without the words on the batch that 2.8 adds to every record's line); aborted.txt, the values that
    were aborted. c-transactions was compacted: markers of transactions are gone."""
    for version in ("2.8.2", "4.3.1"):
        draw = random.Random(7)
        with tempfile.TemporaryDirectory() as made, RealKafka(Path(made), version) as kafka:
            topics, segmented = topics_of(version), segmented_of(version)
            kafka.create({**topics, **segmented, "transactions": {}, "c-transactions": COMPACTED})
            for topic in topics:
                write(kafka, topic, 10, draw, longest=20)
            fates = write_transactions(kafka, "transactions", 4, draw)
            write_transactions(kafka, "c-transactions", 8, draw, last="aborted")
            codecs = {topic: topic.rpartition("-")[2] for topic in segmented} | {"c-transactions": "none"}
            for topic, codec in codecs.items():
                write_segments(kafka, topic, draw, codec)
            wait_compacted(kafka, [topic for topic in codecs if topic[0] == "c"])
            kafka.stop()
            target = folder / version
            shutil.rmtree(target, ignore_errors=True)
            saved = (*topics, *segmented, "transactions", "c-transactions")
            text, _ = dumped_files(kafka, saved)
            for topic in saved:
                (target / f"{topic}-0").mkdir(parents=True)
                for path in (kafka.log_dir / f"{topic}-0").iterdir():
                    if path.suffix == ".log" or path.name == "leader-epoch-checkpoint" or (
                            path.suffix == ".txnindex" and path.stat().st_size):
                        shutil.copy(path, target / f"{topic}-0" / path.name)
            shutil.copy(kafka.log_dir / HW_FILE, target / HW_FILE)
            text = _OF_ITS_BATCH.sub(r"\1", text).replace(str(kafka.log_dir), LOGS)
            (target / DUMPS).write_text(text, encoding="utf-8")
            aborted = sorted(value for value, fate in fates.items() if fate == "aborted")
            (target / ABORTED).write_text(" ".join(map(str, aborted)) + "\n")


if __name__ == "__main__":
    _save(Path(sys.argv[1]))

"""Small logs that Apache Kafka 2.8.2 and 4.3.1 wrote, read as their own DumpLogSegments read them: in every
format and compression, by three kinds of writers, in several segments, compacted, of transactions, torn.

They are saved in tests/golden/kafka_logs (tests/support/kafka_logs.py makes them).
"""

from pathlib import Path

import pytest
from kafka_logs import (
    ABORTED,
    CODECS,
    DUMPS,
    LOGS,
    MESSAGE_FORMATS,
    NUMBER,
    DumpedBatch,
    compare_topic,
    parsed,
    rows_of,
    segmented_of,
    topics_of,
)

from floodmark.harness.logdir import describe
from floodmark.harness.logdir.segments import batches_of, segments_of
from floodmark.harness.logdir.transactions import Transactions, aborted_index, transactions_of
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.record_batches import frame

HERE = Path(__file__).parent / "kafka_logs"
VERSIONS = ("2.8.2", "4.3.1")
OF_TRANSACTIONS = ("transactions", "c-transactions")
TOPICS = [(version, topic) for version in VERSIONS
          for topic in (*topics_of(version), *segmented_of(version), *OF_TRANSACTIONS)]


def dumped(version: str, where: Path) -> dict[str, list[DumpedBatch]]:
    """What Kafka says of the logs, if they are in that folder."""
    return parsed((HERE / version / DUMPS).read_text(encoding="utf-8").replace(LOGS, str(where)))


def spec_of(topic: str) -> PartitionSpec:
    return PartitionSpec(key=0, topic=topic, partition=0, replicas=("n1",))


@pytest.mark.parametrize(("version", "topic"), TOPICS)
def test_every_batch_and_record_is_as_kafka_reads_it(version: str, topic: str) -> None:
    batches, count = compare_topic(HERE / version, topic, dumped(version, HERE / version))

    assert 0 < batches <= count
    assert topic not in topics_of(version) or count == 10


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_of_several_segments_and_what_compaction_left_are_read(version: str) -> None:
    """Each remaining record at its offset: there are gaps between batches and inside them."""
    for topic in (*segmented_of(version), "c-transactions"):
        offsets = [row["offset"] for row in rows_of(HERE / version, topic)]

        assert len(segments_of(HERE / version / f"{topic}-0")) > 1
        assert offsets == sorted(set(offsets))
        assert offsets[-1] >= NUMBER - 1
        assert (len(offsets) == NUMBER) == (topic[0] == "s"), topic


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

    assert aborted == [int(word) for word in (HERE / version / ABORTED).read_text().split()]
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


def test_they_have_every_format_and_compression() -> None:
    """As DumpLogSegments says, and of many records in one batch each."""
    kinds = set()
    for version in VERSIONS:
        for batches in parsed((HERE / version / DUMPS).read_text(encoding="utf-8")).values():
            kinds |= {(f"v{batch.words['magic']}", codec) for batch in batches
                      if (codec := batch.words["compresscodec"].lower()) == "none" or len(batch.records) > 1}

    assert kinds == {(name, codec) for name in MESSAGE_FORMATS for codec in CODECS
                     if codec != "zstd" or name == "v2"}

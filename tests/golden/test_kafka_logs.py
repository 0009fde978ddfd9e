"""Small logs that Apache Kafka 2.8.2 and 4.3.1 wrote, read as their own DumpLogSegments read them.

They are saved in tests/golden/kafka_logs (tests/support/kafka_logs.py makes them). With 10,000 records of
each kind, written by a broker that it starts, tests/integration/test_kafka_logs.py does the same.
"""

from pathlib import Path

import pytest
from kafka_logs import (
    ABORTED,
    CODECS,
    DUMPS,
    LOGS,
    MESSAGE_FORMATS,
    compare_topic,
    parsed,
    rows_of,
    topics_of,
)

from floodmark.harness.logdir.segments import batches_of, segments_of
from floodmark.harness.logdir.transactions import Transactions, aborted_index, transactions_of
from floodmark.harness.record_batches import frame

HERE = Path(__file__).parent / "kafka_logs"
VERSIONS = ("2.8.2", "4.3.1")
TOPICS = [(version, topic) for version in VERSIONS for topic in (*topics_of(version), "transactions")]


@pytest.mark.parametrize(("version", "topic"), TOPICS)
def test_every_batch_and_record_is_as_kafka_reads_it(version: str, topic: str) -> None:
    text = (HERE / version / DUMPS).read_text(encoding="utf-8")
    batches, count = compare_topic(HERE / version, topic, parsed(text.replace(LOGS, str(HERE / version))))

    assert 0 < batches <= count
    assert topic == "transactions" or count == 10


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

"""The record batch codec against hand-made batches, kafka-python's own, and any bytes."""

import warnings

import kafka_batches
import pytest
from crc32c import crc32c
from disk import batch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.wire.record_batch import BatchTooLarge, CorruptBatch, parse_batches, stamp_batch

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated call
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch

CRC_COVERED_FROM = 21


@pytest.mark.parametrize("compression", [0, DefaultRecordBatch.CODEC_GZIP])
def test_a_batch_of_another_codec_is_read_without_touching_its_records(compression: int) -> None:
    data = kafka_batches.batch(
        0, [b"a", b"b", b"c"], codec=compression, producer=7, producer_epoch=1, sequence=40)

    [found] = parse_batches(data)

    assert (found.base_offset, found.last_offset, found.count) == (0, 2, 3)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 1, 40)
    assert found.data is data
    assert parse_batches(memoryview(data)) == [found]
    assert stamp_batch(found) is data  # correct already: nothing is copied


def test_a_tail_cut_anywhere_is_left_out_of_a_fetch_and_refused_in_a_produce() -> None:
    """Every length between one whole batch and two."""
    first, second = batch(0, 2), batch(2, 3)
    assert parse_batches(first.data + second.data) == [first, second]
    for length in range(1, len(second.data)):
        data = first.data + second.data[:length]
        assert parse_batches(data, partial_tail=True) == [first]
        with pytest.raises(CorruptBatch) as caught:
            parse_batches(data)
        assert caught.value.position == len(first.data)


def contradicting() -> bytes:
    """A batch of three records whose last offset delta is that of five, with a valid CRC."""
    data = bytearray(batch(0, 3).data)
    data[23:27] = (4).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[CRC_COVERED_FROM:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(("data", "why"), [
    (contradicting(), "3 records but last offset delta 4"),
    (b"\0" * 100, "length 0"),
    (b"\xff" * 100, "length -1"),
    (b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 60, "cut short"),
    (batch(0).data[:16] + b"\x01" + batch(0).data[17:], "magic 1"),
    (batch(0, 0).data, "0 records"),
    (b"\xff" * 8 + batch(0).data[8:], "base offset -1"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4, "batch"),
])
def test_an_invalid_batch_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(CorruptBatch, match=why):
        parse_batches(data)


def test_a_batch_of_exactly_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    data = batch(0).data

    assert len(parse_batches(data, max_batch_bytes=len(data))) == 1
    with pytest.raises(BatchTooLarge) as caught:
        parse_batches(data, max_batch_bytes=len(data) - 1)
    assert (caught.value.size, caught.value.limit) == (len(data), len(data) - 1)


# -- any bytes are batches or corrupt; the codec never fails otherwise -----------------------------------


def tried(data: bytes, partial_tail: bool) -> tuple[list[Batch], int | None]:
    """The batches, or the position where it was corrupt."""
    try:
        return parse_batches(data, partial_tail=partial_tail), None
    except CorruptBatch as error:
        return [], error.position


@given(data=st.binary(max_size=300), partial_tail=st.booleans())
def test_any_bytes_are_batches_or_corrupt(data: bytes, partial_tail: bool) -> None:
    found, corrupt_at = tried(data, partial_tail)

    assert corrupt_at is None or 0 <= corrupt_at < len(data)
    assert data.startswith(b"".join(one.data for one in found))


@given(count=st.integers(1, 5), first=st.integers(0, 7), payload=st.binary(max_size=40),
       base=st.integers(0, 2**40), epoch=st.integers(-1, 2**31 - 1))
def test_a_stamp_can_be_read_back_and_undone(count: int, first: int, payload: bytes, base: int, epoch: int
                                             ) -> None:
    data = batch(0, count, first, payload=payload).data
    [sent] = parse_batches(data)
    [found] = parse_batches(stamp_batch(
        replace(sent, base_offset=base, last_offset=base + count - 1, epoch=epoch)))
    assert (found.base_offset, found.last_offset, found.epoch) == (base, base + count - 1, epoch)
    assert stamp_batch(replace(found, base_offset=0, last_offset=count - 1, epoch=first)) == data

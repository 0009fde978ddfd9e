"""Record batches v2 against kafka-python's own codec, both ways, and damaged bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka_batches import batch, messages

from floodmark.harness import record_batches

RUN = "0123456789abcdef"
NOW_MS = 1_700_000_000_123


def stamped(data: bytes, base_offset: int, epoch: int) -> bytes:
    """With the base offset and epoch that a leader sets; neither is under the CRC."""
    return base_offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]


@given(values=st.lists(st.integers(0, 2**62), min_size=1, max_size=70), base=st.integers(0, 2**40),
       epoch=st.integers(0, 2**30))
def test_a_batch_is_byte_for_byte_what_kafka_python_writes_and_is_read_back(
        values: list[int], base: int, epoch: int) -> None:
    """Except the leader epoch, which the leader sets (bytes 12 to 15). Also compressed, the same bytes each
    time, and without headers, by the values alone."""
    ours = record_batches.encode(values, RUN, NOW_MS)
    theirs = batch(0, [b"%d" % value for value in values], headers=[("floodmark", RUN.encode())],
                   times=[NOW_MS] * len(values))
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]
    packed = record_batches.encode(values, RUN, NOW_MS, compressed=True)
    assert packed == record_batches.encode(values, RUN, NOW_MS, compressed=True)
    bare = record_batches.encode(values, RUN, NOW_MS, headers=False)
    for data in (ours, packed, bare):
        at = stamped(data, base, epoch)
        assert list(record_batches.decode(at, RUN)) == [record_batches.Batch(
            last_offset=base + len(values) - 1, epoch=epoch, values=tuple(enumerate(values, base)))]
        assert {value for one in record_batches.decode(at, "f" * 16) for _, value in one.values} == {None}
        read = MemoryRecords(at).next_batch()
        assert read is not None
        assert read.validate_crc()
        assert [(record.offset, record.key) for record in read] == [
            (base + index, None) for index in range(len(values))]
    assert [record.headers for record in MemoryRecords(bare).next_batch() or ()] == [[] for _ in values]


def test_a_control_batch_takes_its_offsets_and_shows_no_record() -> None:
    data = bytearray(record_batches.encode([1, 2], RUN, NOW_MS))
    data[22] |= 0x20
    data[17:21] = record_batches.crc32c(bytes(data[21:])).to_bytes(4, "big")
    [read] = record_batches.decode(bytes(data), RUN)
    assert (read.last_offset, read.values) == (1, ())


def test_a_last_batch_that_is_cut_off_anywhere_is_left_out() -> None:
    whole, last = record_batches.encode([1], RUN, NOW_MS), record_batches.encode([2], RUN, NOW_MS)
    for length in range(len(last)):
        assert [one.values for one in record_batches.decode(whole + last[:length], RUN)] == [((0, 1),)]


def test_damage_under_the_crc_and_a_wrong_count_are_corrupt() -> None:
    data = record_batches.encode([123], RUN, NOW_MS)
    bad = [bytearray(data) for _ in range(16, len(data) + 1)]
    for position, one in enumerate(bad[:-1], 16):
        one[position] ^= 1
    bad[-1][57:61] = (2).to_bytes(4, "big")  # it claims more records than it holds
    bad[-1][17:21] = record_batches.crc32c(bytes(bad[-1][21:])).to_bytes(4, "big")
    for one in bad:
        with pytest.raises(record_batches.Corrupt):
            list(record_batches.decode(bytes(one), RUN))


# -- message formats v0 and v1, which have no headers ------------------------------------------------------

def test_an_old_message_that_is_not_ours_cut_or_damaged() -> None:
    """One with a key is not; one that is cut is left out, and a damaged one is corrupt."""
    ours = b"floodmark %s 7" % RUN.encode()
    [read] = record_batches.decode(messages(1, 0, [ours], key=b"k"), RUN)
    assert read.values == ((0, None),)
    data = messages(1, 0, [ours] * 2)
    assert len(list(record_batches.decode(data[:-1], RUN))) == 1
    with pytest.raises(record_batches.Corrupt):
        list(record_batches.decode(data[:-1] + bytes([data[-1] ^ 1]), RUN))

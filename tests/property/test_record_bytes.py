"""For any bytes the codec finds batches or reports that they are corrupt; it never fails otherwise."""

from disk import batch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.wire.record_batch import CorruptBatch, parse_batches, stamp_batch

SHAPE = st.tuples(st.integers(1, 5), st.integers(0, 7), st.binary(max_size=40))  # count, epoch, payload
SHAPES = st.lists(SHAPE, min_size=1, max_size=4)


def tried(data: bytes, partial_tail: bool) -> tuple[list[Batch], int | None]:
    """The batches, or the position where it was corrupt."""
    try:
        return parse_batches(data, partial_tail=partial_tail), None
    except CorruptBatch as error:
        return [], error.position


def batches_of(shapes: list[tuple[int, int, bytes]]) -> list[bytes]:
    found, at = [], 0
    for count, epoch, payload in shapes:
        found.append(batch(at, count, epoch, payload=payload).data)
        at += count
    return found


@given(data=st.binary(max_size=300), partial_tail=st.booleans())
def test_any_bytes_are_batches_or_corrupt(data: bytes, partial_tail: bool) -> None:
    found, corrupt_at = tried(data, partial_tail)

    assert corrupt_at is None or 0 <= corrupt_at < len(data)
    assert data.startswith(b"".join(one.data for one in found))


@given(shapes=SHAPES, where=st.integers(0), flip=st.integers(1, 255), partial_tail=st.booleans())
def test_a_damaged_byte_is_reported_or_harms_only_offset_and_epoch(
        shapes: list[tuple[int, int, bytes]], where: int, flip: int, partial_tail: bool) -> None:
    """Batches that are found are undamaged, except for fields that no CRC covers; and all batches before the
    damaged byte are found."""
    originals = batches_of(shapes)
    data = bytearray(b"".join(originals))
    where %= len(data)
    data[where] ^= flip
    found, corrupt_at = tried(bytes(data), partial_tail)

    if corrupt_at is not None:
        assert corrupt_at <= where
        return
    for one, was in zip(found, originals, strict=False):
        same = parse_batches(was)[0]
        assert stamp_batch(replace(one, base_offset=same.base_offset, last_offset=same.last_offset,
                             epoch=same.epoch)) == was
    starts = [sum(map(len, originals[:number])) for number in range(len(originals))]
    assert len(found) == len(originals) or (partial_tail and starts[len(found)] <= where)


@given(shapes=SHAPES, base=st.integers(0, 2**40), epoch=st.integers(-1, 2**31 - 1))
def test_a_stamp_can_be_read_back_and_undone(shapes: list[tuple[int, int, bytes]], base: int,
                                             epoch: int) -> None:
    for data in batches_of(shapes):
        [sent] = parse_batches(data)
        moved = replace(sent, base_offset=base, last_offset=base + sent.count - 1, epoch=epoch)
        [found] = parse_batches(stamp_batch(moved))
        assert (found.base_offset, found.last_offset, found.epoch) == (base, base + sent.count - 1, epoch)
        assert stamp_batch(replace(found, base_offset=sent.base_offset, last_offset=sent.last_offset,
                             epoch=sent.epoch)) == data

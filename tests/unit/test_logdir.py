"""The reader of Kafka's log directories, on batches from kafka-python's own record builder: damage, other
writers, and what no broker of the golden logs writes (tests/golden/test_kafka_logs.py: every format and
compression); and batches as a client sends and reads them."""

import re
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import crc32c
import kafka_batches
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka_batches import messages

from floodmark.harness import record_batches
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.logdir import UNREADABLE, LogState, describe, dump, read_offsets, why_no_log
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.record_batches import HEADER_BYTES, in_value

RUN = "0123456789abcdef"
NOW_MS = 1_700_000_000_123
OURS = [("floodmark", RUN.encode())]
SPEC = PartitionSpec(key=3, topic="log", partition=0, replicas=("n1",))
GZIP, LZ4 = 1, 3
batch = partial(kafka_batches.batch, headers=OURS)


def sealed(data: bytearray) -> bytes:
    """The changed batch, with its CRC."""
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    """A control batch as a broker writes it at the end of a transaction."""
    data = bytearray(batch(base, [b"\0\0\0\0\0\0"], key=struct.pack(">hh", 0, commit), headers=[],
                           producer=producer, transactional=True))
    data[22] |= 0x20
    return sealed(data)


def wrapper(magic: int, offset: int, codec: int, packed: bytes) -> bytes:
    body = bytes([magic, codec]) + b"\0" * 8 * magic + struct.pack(">ii", -1, len(packed)) + packed
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def put(log_dir: Path, *batches: bytes, base: int = 0) -> Path:
    folder = log_dir / "log-0"
    folder.mkdir(exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def rows(log_dir: Path, **options: Any) -> list[dict[str, Any]]:
    return list(dump(log_dir, [SPEC], RUN, "n1", **options))


def offsets_and_values(log_dir: Path) -> list[tuple[int, int | None]]:
    return [(row["offset"], row["value"]) for row in rows(log_dir)]


def whole_ones(log_dir: Path, **options: Any) -> list[tuple[int, bool]]:
    """The offsets, and whether the CRC is right."""
    return [(row["offset"], row.get("crc_ok", True)) for row in rows(log_dir, **options)]


@pytest.mark.parametrize(("value", "headers"), [
    (b"17", []), (b"17", [("floodmark", b"another run's id")]), (b"17", [("other", RUN.encode())]),
    (b"x17", OURS), (b" 17", OURS), (b"1_7", OURS), (None, OURS), (b"", OURS)])
def test_a_record_of_another_writer_has_no_value(tmp_path: Path, value: bytes | None, headers: Any) -> None:
    """Near misses of a run's records: another header, another run, no decimal digits. A run's may have more
    headers, before and after, and a key."""
    put(tmp_path, batch(0, [value], headers=headers),
        batch(1, [b"9" * 19], headers=[("a", None), *OURS, ("trace", b"x")], key=b"k"))

    assert offsets_and_values(tmp_path) == [(0, None), (1, int("9" * 19))]


@given(values=st.lists(st.integers(0, 10**20), min_size=1, max_size=70), at=st.integers(0, 10_000),
       change=st.integers(0, 255))
def test_plain_batches_are_read_as_all_others(tmp_path_factory: pytest.TempPathFactory, values: list[int],
                                              at: int, change: int) -> None:
    """Those that the fast way reads are read alike the long way, also with one byte that is another."""
    data = bytearray(batch(at, [b"%d" % value for value in values], epoch=2, times=[0] * len(values)))
    data[HEADER_BYTES + at % (len(data) - HEADER_BYTES)] ^= change
    folder = tmp_path_factory.mktemp("log")
    put(folder, sealed(data))

    def read() -> object:
        try:
            return rows(folder)
        except FloodmarkError as error:
            return str(error)

    fast = read()
    with patch.object(record_batches, "read_own_batch", lambda *_: None):
        assert read() == fast


@pytest.mark.parametrize(("magic", "codec"), [(2, 0), (2, GZIP), (1, 0), (1, GZIP), (0, 0), (0, GZIP)])
def test_every_torn_tail_is_reported(tmp_path: Path, magic: int, codec: int) -> None:
    """Cut at each byte of the last batch: whole batches are read, the rest is counted. So are zeros, ones,
    and zeros with the magic byte of a header."""
    def made(base: int, values: list[bytes]) -> bytes:
        return batch(base, values, codec=codec) if magic == 2 else messages(magic, base, values, codec=codec)

    head, tail = made(0, [b"1"]), made(1, [b"2", b"3"] if codec or magic == 2 else [b"2"])
    for torn in (*(tail[:kept] for kept in range(1, len(tail))),
                 b"\0" * 500, b"\xff" * 500, b"\0" * 16 + b"\2" + b"\0" * 100):
        put(tmp_path, head, torn)

        assert [row["offset"] for row in rows(tmp_path, running=bool(len(torn) % 2))] == [0], torn
        assert describe(tmp_path, SPEC, running=bool(len(torn) % 2)) == LogState(
            log_start=0, leo=1, torn_bytes=len(torn), epochs=None, checkpointed_hw=0)


@pytest.mark.parametrize("at", [17, 21, 62, -1])
def test_a_damaged_batch_is_reported_with_its_offsets(tmp_path: Path, at: int) -> None:
    """One flipped bit under the CRC, or in it: crc_ok is false, and the batches after it are read."""
    bad = bytearray(batch(1, [b"2", b"3"]))
    bad[at] ^= 0x40
    put(tmp_path, batch(0, [b"1"]), bytes(bad), batch(3, [b"4"]))

    assert whole_ones(tmp_path) == [(0, True), (1, False), (2, False), (3, True)]


def test_a_bad_last_batch_is_torn_only_if_the_node_is_not_running(tmp_path: Path) -> None:
    """A running node has it in its log; a stopped one would truncate it at its start."""
    bad = bytearray(batch(1, [b"2"]))
    bad[-1] ^= 1
    put(tmp_path, batch(0, [b"1"]), bytes(bad))

    assert (whole_ones(tmp_path), describe(tmp_path, SPEC).leo) == ([(0, True), (1, False)], 2)
    stopped = describe(tmp_path, SPEC, running=False)
    assert (whole_ones(tmp_path, running=False), stopped.leo) == ([(0, True)], 1)
    assert stopped.torn_bytes == len(bad)


@pytest.mark.parametrize(("first", "second", "resent"), [
    ({"producer": 9, "producer_epoch": 0}, {"producer": 9, "producer_epoch": 1}, {7}),
    ({"producer": 9, "producer_epoch": 0}, {"producer": 8, "producer_epoch": 0}, {7}),
    ({"producer": 9, "producer_epoch": 1}, {"producer": 9, "producer_epoch": 1}, set()),  # the broker's fault
    ({}, {}, set()),  # a producer that is not idempotent
    ({}, {"producer": 9, "producer_epoch": 0}, set()),
    ({"producer": 9, "producer_epoch": 0, "headers": []}, {"producer": 9, "producer_epoch": 1}, set()),
])
@pytest.mark.parametrize("more", [[], [b"8"]])
def test_what_a_producer_repeated_under_another_id_or_epoch(
        tmp_path: Path, first: Any, second: Any, resent: set[int], more: list[bytes]) -> None:
    """A repeat with the same producer id and epoch could have been recognized by the broker."""
    put(tmp_path, batch(0, [b"7"], **first), batch(1, [b"7", *more], **second))
    found: set[int] = set()

    assert [row["value"] for row in rows(tmp_path, resent=found)][1:] == [7, *map(int, more)]
    assert found == resent


def test_several_segments_and_a_log_start(tmp_path: Path) -> None:
    """Segments are ordered by base offset; records below log-start-offset-checkpoint are not dumped."""
    put(tmp_path, batch(10, [b"10"]), batch(11, [b"11"]), base=10)
    put(tmp_path, batch(12, [b"12"]), base=12)
    put(tmp_path, base=13)
    (tmp_path / "log-0" / "00000000000000000010.index").write_bytes(b"x")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nlog 0 11\n")

    assert offsets_and_values(tmp_path) == [(11, 11), (12, 12)]
    assert describe(tmp_path, SPEC) == LogState(log_start=11, leo=13, torn_bytes=0, epochs=None,
                                                checkpointed_hw=0)


def test_an_interrupted_compaction(tmp_path: Path) -> None:
    """A complete .swap segment replaces those it was made from; an incomplete .cleaned one is ignored, and so
    are .deleted ones."""
    folder = tmp_path / "log-0"
    put(tmp_path, batch(0, [b"0"]), batch(1, [b"1"]))
    put(tmp_path, batch(2, [b"2"]), batch(3, [b"3"]), base=2)
    put(tmp_path, batch(4, [b"4"]), base=4)
    (folder / f"{0:020d}.log.cleaned").write_bytes(batch(1, [b"1"]))
    assert offsets_and_values(tmp_path) == [(n, n) for n in range(5)]

    (folder / f"{0:020d}.log.cleaned").rename(folder / f"{0:020d}.log.swap")
    assert offsets_and_values(tmp_path) == [(n, n) for n in range(1, 5)]
    (folder / f"{0:020d}.log.swap").write_bytes(batch(1, [b"1"]) + batch(3, [b"3"]))
    assert offsets_and_values(tmp_path) == [(1, 1), (3, 3), (4, 4)]
    (folder / f"{0:020d}.log").rename(folder / f"{0:020d}.log.deleted")
    assert offsets_and_values(tmp_path) == [(1, 1), (3, 3), (4, 4)]
    (folder / f"{0:020d}.index.cleaned").write_bytes(b"")  # of a split that was interrupted: it is undone
    (folder / f"{0:020d}.log.deleted").rename(folder / f"{0:020d}.log")
    assert offsets_and_values(tmp_path) == [(n, n) for n in range(5)]
    (folder / f"{0:020d}.index.cleaned").unlink()
    (folder / f"{0:020d}.log.swap").write_bytes(b"")
    assert offsets_and_values(tmp_path) == [(2, 2), (3, 3), (4, 4)]
    assert describe(tmp_path, SPEC).leo == 5


@pytest.mark.parametrize("running", [True, False])
def test_a_torn_segment_before_another_is_refused(tmp_path: Path, running: bool) -> None:
    """What is gone there would be judged as a loss."""
    path = put(tmp_path, batch(0, [b"0"]), batch(1, [b"1"])[:-1])
    put(tmp_path, batch(2, [b"2"]), base=2)

    with pytest.raises(FloodmarkError, match=f"{path.name} cannot be read: its last .* no batch"):
        rows(tmp_path, running=running)


def test_a_segment_that_cannot_be_opened_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = put(tmp_path, batch(0, [b"0"]))
    path.unlink()
    path.mkdir()

    for read in (lambda: rows(tmp_path), lambda: why_no_log(path.parent), lambda: describe(tmp_path, SPEC)):
        with pytest.raises(FloodmarkError, match=f"{path.name} cannot be read: .*directory"):
            read()


def test_a_batch_larger_than_a_window(tmp_path: Path) -> None:
    """Windows grow with the batch, and a batch may span two of them."""
    big = batch(0, [b"1" * 6_000_000], headers=[])
    put(tmp_path, big, *(batch(n, [b"%d" % n]) for n in range(1, 30_000)))

    assert offsets_and_values(tmp_path) == [(0, None), *((n, n) for n in range(1, 30_000))]


def odd_lz4(harm: str) -> bytes:
    """A wrapper of format v0 whose lz4 frame is damaged."""
    packed = bytearray(lz4.frame.compress(messages(0, 0, [b"1" * 300_000]), block_linked=harm == "linked",
                                          store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB))
    packed[11 if harm == "block" else 0] ^= {"magic": 1, "block": 0xFF}.get(harm, 0)
    return wrapper(0, 0, LZ4, bytes(packed[:-4] if harm == "cut" else packed))


def of_codec(codec: int) -> bytes:
    data = bytearray(batch(0, [b"1"]))
    data[22] = codec
    return sealed(data)


@pytest.mark.parametrize(("data", "why"), [
    *((odd_lz4(harm), "lz4") for harm in ("cut", "linked", "magic", "block")),
    # the wrapper's own offset is below those of its messages
    *((messages(magic, 0, [b"1", b"2", b"3"], codec=GZIP, stamped=1), "wrapper's last message has offset 2")
      for magic in (0, 1)),
    (of_codec(6), "codec 6"),
], ids=["lz4"] * 4 + ["wrapper"] * 2 + ["codec"])
def test_a_batch_that_cannot_be_read_though_its_crc_is_right_is_refused(
        tmp_path: Path, data: bytes, why: str) -> None:
    """It was written like that."""
    put(tmp_path, data)
    with pytest.raises(FloodmarkError, match=why):
        rows(tmp_path)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_message_is_reported_with_its_offset(tmp_path: Path, magic: int) -> None:
    """One flipped bit: in a single message, in a wrapper and, with the wrapper's CRC right, in a message
    inside."""
    alone = bytearray(messages(magic, 0, [b"1"]))
    alone[-1] ^= 1
    bad = bytearray(messages(magic, 1, [b"2", b"3"], codec=GZIP))
    bad[-1] ^= 1
    inside = bytearray(messages(magic, 0 if magic else 3, [b"4"]))
    inside[-1] ^= 1
    packed = zlib.compress(bytes(inside) + messages(magic, 1 if magic else 4, [b"5"]), wbits=31)
    put(tmp_path, bytes(alone), bytes(bad), wrapper(magic, 4, GZIP, packed), messages(magic, 5, [b"6"]))

    assert whole_ones(tmp_path) == [(0, False), (2, False), (3, False), (4, True), (5, True)]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_runs_id_may_be_in_the_value(tmp_path: Path, magic: int) -> None:
    """In every format; near misses: another run, no number, text after the number, a truncated prefix."""
    mine = RUN.encode()
    values = [in_value(mine, 17), in_value(b"another run's id", 18), b"floodmark " + mine, b"17",
              in_value(mine, 19) + b" ", b"floodmark " + mine + b" x", in_value(mine, 20)[1:],
              b"floodmark " + mine + b" " + b"9" * 5000, b"", None]
    if magic == 2:
        put(tmp_path, batch(0, values, headers=[]))
    else:
        put(tmp_path, *(messages(magic, at, [value]) for at, value in enumerate(values)))

    assert offsets_and_values(tmp_path) == [(0, 17), *((at, None) for at in range(1, len(values)))]


def aborted_entry(producer: int, first: int, last: int) -> bytes:
    return struct.pack(">hqqqq", 0, producer, first, last, last + 1)


def test_an_abort_without_its_marker_is_read_from_the_index(tmp_path: Path) -> None:
    """Compaction removed the marker at 2; the index entry does not affect the producer's other transactions,
    and an existing marker decides."""
    put(tmp_path,
        batch(0, [b"1"], producer=7, transactional=True), batch(1, [b"2"], producer=8, transactional=True),
        batch(3, [b"3"], producer=7, transactional=True), batch(4, [b"4"], producer=9, transactional=True),
        marker(5, 9, commit=True))
    index = tmp_path / "log-0" / "00000000000000000000.txnindex"

    assert [row["offset"] for row in rows(tmp_path) if row.get("aborted")] == []
    index.write_bytes(aborted_entry(7, 0, 2) + aborted_entry(9, 4, 5) + aborted_entry(8, 1, 2)[:20])
    assert [row["offset"] for row in rows(tmp_path) if row.get("aborted")] == [0]
    index.write_bytes(b"\0\1" + aborted_entry(7, 0, 2)[2:])
    with pytest.raises(FloodmarkError, match="entry 0 has version 1"):
        rows(tmp_path)


@pytest.mark.parametrize("text", ["", "0\n", "0\n2\n0 0\n", "0\n1\n0 ze"])
def test_an_epoch_checkpoint_that_is_empty_or_torn_is_unreadable_beside_records_with_epochs(
        tmp_path: Path, text: str) -> None:
    """Kafka creates the file before it has anything to write; and the first formats have no epochs."""
    records = batch(0, [b"a"])
    for content, checkpoint, epochs in (
            (records, text, UNREADABLE), (records, "0\n0\n", ()), (b"", text, ()),
            (messages(1, 0, [b"a"]), text, ())):
        put(tmp_path, content).with_name("leader-epoch-checkpoint").write_text(checkpoint)
        for running in (True, False):
            assert describe(tmp_path, SPEC, running=running).epochs == epochs


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """Half a file, another version, a missing field, a field that is no number."""
    path = tmp_path / "replication-offset-checkpoint"
    for text in ("0\n", "1\n0\n", "0\n2\nlog 0 10\n", "0\n1\nlog 0\n", "0\n1\nlog 0 ten\n"):
        path.write_text(text)
        with pytest.raises(FloodmarkError, match="damaged"):
            read_offsets(path)


@pytest.mark.parametrize(("name", "content", "why"), [
    ("00000000000000000007.log", batch(7, [b"a"]), None),
    ("00000000000000000007.log", batch(9, [b"a"]), None),  # compacted: earlier records were removed
    ("00000000000000000007.log", b"", None),  # of an empty topic
    ("00000000000000000007.log", batch(7, [b"a"])[:9], None),  # torn
    ("00000000000000000007.log", bytes(4096), None),  # preallocated
    ("00000000000000000007.log", messages(1, 7, [b"a"]), None),
    ("00000000000000000007.log", b"[2026-11-25 23:00:00,000] INFO starting", "does not begin as a log does"),
    ("00000000000000000007.log", batch(3, [b"a"]), "does not begin as a log does"),
    ("server.log", batch(7, [b"a"]), r"it has no log-0/\*\.log"),
])  # fmt: skip
def test_why_a_folder_is_no_log(tmp_path: Path, name: str, content: bytes, why: str | None) -> None:
    folder = tmp_path / "log-0"
    folder.mkdir()
    (folder / name).write_bytes(content)
    problem = why_no_log(folder)
    assert problem is None if why is None else problem is not None and re.search(why, problem)
    assert why_no_log(tmp_path / "log-1") == "it has no log-1/*.log"


# -- batches as a client sends and reads them -------------------------------------------------------------


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
    theirs = batch(0, [b"%d" % value for value in values], times=[NOW_MS] * len(values))
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
    [read] = record_batches.decode(sealed(data), RUN)
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
    sealed(bad[-1])
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

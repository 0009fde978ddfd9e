"""The harness's reader reads the directories that the broker's storage writes: two codecs, one format."""

from pathlib import Path

import kafka_batches
import pytest
from disk import Disk
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from floodmark.broker.wire.record_batch import parse_batches
from floodmark.harness.logdir import describe, dump
from floodmark.harness.protocols import PartitionSpec

RUN = "0123456789abcdef"
SPEC = PartitionSpec(key=0, topic="log", partition=0, replicas=("n1",))
appends = st.tuples(st.just("append"), st.integers(1, 3), st.integers(0, 1))
truncations = st.tuples(st.just("truncate"), st.integers(1, 4), st.just(0))
restarts = st.tuples(st.just("restart"), st.just(0), st.just(0))


def produced(values: list[int]) -> bytes:
    """One batch as a client sends it: offsets from 0, no epoch."""
    return kafka_batches.batch(0, [b"%d" % value for value in values], headers=[("floodmark", RUN.encode())])


@settings(max_examples=15)
@given(acts=st.lists(st.one_of(appends, appends, appends, truncations, restarts), max_size=25))
def test_the_reader_sees_what_the_storage_holds(tmp_path_factory: pytest.TempPathFactory,
                                                acts: list[tuple[str, int, int]]) -> None:
    """Appends, rolls, truncations, new epochs and restarts, in any order."""
    disk = Disk(tmp_path_factory.mktemp("disk"), segment_bytes=400)
    held: list[list[tuple[int, int, int]]] = []  # batch -> (offset, epoch, value) of its records
    epochs: list[tuple[int, int]] = []
    value = epoch = 0
    for act, number, step in acts:
        leo = disk.log.leo
        if act == "append":
            epoch += step
            if not epochs or epochs[-1][0] < epoch:
                epochs.append((epoch, leo))
                disk.log.save_epochs(epochs)
            values = list(range(value, value + number))
            value += number
            (batch,) = parse_batches(produced(values))
            disk.log.append([replace(batch, base_offset=leo, last_offset=leo + number - 1, epoch=epoch)])
            held.append([(leo + at, epoch, one) for at, one in enumerate(values)])
        elif act == "truncate" and held:
            del held[-number:]
            to = held[-1][-1][0] + 1 if held else 0
            disk.log.truncate(to)
            epochs = [(one, start) for one, start in epochs if start < to]
            disk.log.save_epochs(epochs)
        elif act == "restart":
            disk.restart()

    rows = list(dump(disk.log_dir, [SPEC], RUN, "n1"))
    state = describe(disk.log_dir, SPEC)
    leo = disk.log.leo
    disk.kill()

    assert [(row["offset"], row["epoch"], row["value"]) for row in rows] == [
        record for batch in held for record in batch]
    assert (state.log_start, state.leo, state.torn_bytes) == (0, leo, 0)
    assert (state.epochs or ()) == tuple(epochs)
    assert not any("crc_ok" in row for row in rows)


def test_nothing_of_a_log_that_was_only_made(tmp_path: Path) -> None:
    """A new log has no rows, and its end is its start."""
    disk = Disk(tmp_path)
    disk.kill()

    assert list(dump(disk.log_dir, [SPEC], RUN, "n1")) == []
    assert describe(disk.log_dir, SPEC).leo == 0

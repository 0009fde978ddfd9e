"""Compares the disk with a model: random acts, kills and power cuts; and a kill before every act on the disk.

The model knows the batches, the segment of each, and how many of them a power cut would keep. The harness's
reader reads what the broker's storage writes: two codecs, one format.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka_batches
import pytest
from disk import Disk, batch
from how_many import cases
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from floodmark.broker.protocol.messages import Batch
from floodmark.broker.storage import durability_side_file as durable_module
from floodmark.broker.storage import log_directory as files_module
from floodmark.broker.storage.checkpoint_files import (
    HIGH_WATERMARKS,
    read_epoch_checkpoint,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from floodmark.broker.wire.record_batch import parse_batches
from floodmark.harness.cluster.reference.power_loss import power_cut
from floodmark.harness.logdir import describe, dump
from floodmark.harness.protocols import PartitionSpec

NAME = "log-0"
SEGMENT_BYTES = 300  # three of the smallest batches
RUN = "0123456789abcdef"
SPEC = PartitionSpec(key=0, topic="log", partition=0, replicas=("n1",))


@dataclass
class Model:
    """The expected log: `log` in order, of which a power cut keeps the first `durable` batches."""

    start: int = 0
    log: list[Batch] = field(default_factory=list)
    durable: int = 0
    segment: int = 0  # bytes in the last segment
    bases: list[int] = field(default_factory=lambda: [0])  # the segments' base offsets
    values: dict[int, int] = field(default_factory=dict)  # the last that was written to an offset

    @property
    def leo(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else self.start

    def append(self, one: Batch) -> None:
        if self.segment and self.segment + len(one.data) > SEGMENT_BYTES:
            self.durable = len(self.log)
            self.bases.append(one.base_offset)
            self.segment = 0
        self.log.append(one)
        self.segment += len(one.data)

    def truncate(self, count: int) -> None:
        """Keep the first `count` batches."""
        del self.log[count:]
        self.durable = min(self.durable, count)
        while self.bases[-1] > self.leo:
            self.bases.pop()
        self.measure()

    def measure(self) -> None:
        self.segment = sum(len(one.data) for one in self.log if one.base_offset >= self.bases[-1])

    def bytes(self) -> bytes:
        return b"".join(one.data for one in self.log)

    def records(self) -> list[tuple[int, int, int]]:
        """The offset, the epoch and the value of each."""
        return [(offset, one.epoch, self.values[offset]) for one in self.log
                for offset in range(one.base_offset, one.last_offset + 1)]


def produced(base: int, epoch: int, values: list[int], padding: int) -> Batch:
    """One batch as a leader writes it."""
    (batch,) = parse_batches(kafka_batches.batch(
        base, [b"%d" % value for value in values], epoch=epoch, key=b"k" * padding,
        headers=[("floodmark", RUN.encode())]))
    return batch


class DiskMachine(RuleBasedStateMachine):
    """Does each act on a real log and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.disk = Disk(self.root, segment_bytes=SEGMENT_BYTES)
        self.model = Model()
        self.epoch = 0
        self.values = count()
        self.hw_durable: int | None = None  # the value in replication-offset-checkpoint after a power cut

    def teardown(self) -> None:
        self.disk.kill()
        shutil.rmtree(self.root)

    @rule(shapes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 250)), min_size=1, max_size=6),
          new_epoch=st.booleans())
    def append(self, shapes: list[tuple[int, int]], new_epoch: bool) -> None:
        if new_epoch:
            self.epoch += 1
        batches, at = [], self.model.leo
        for records, padding in shapes:
            values = [*islice(self.values, records)]
            batches.append(produced(at, self.epoch, values, padding))
            self.model.values.update(enumerate(values, at))
            at += records
        self.disk.log.append(batches)
        for one in batches:
            self.model.append(one)

    @rule()
    def flush(self) -> None:
        self.disk.log.flush()
        self.model.durable = len(self.model.log)

    @precondition(lambda self: self.model.log)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        count = round(share * len(self.model.log))
        self.disk.log.truncate(self.model.start if count == 0 else self.model.log[count - 1].last_offset + 1)
        self.model.truncate(count)
        self.epoch += 1

    @rule(beyond=st.integers(0, 50))
    def reset(self, beyond: int) -> None:
        start = self.model.leo + beyond
        self.disk.log.reset(start)
        self.model = Model(start=start, bases=[start])

    @rule()
    def checkpoint(self) -> None:
        self.hw_durable = self.model.leo
        write_offset_checkpoint(self.disk.files, HIGH_WATERMARKS, {("log", 0): self.hw_durable})

    @rule()
    def save_epochs(self) -> None:
        """As the machine does before it leads: the new epoch starts at LEO."""
        self.epoch += 1
        self.disk.log.save_epochs([*self.epochs_of_batches(), (self.epoch, self.model.leo)])

    @rule()
    def kill_and_start(self) -> None:
        self.disk.kill()
        self.started()

    @rule(torn=st.integers(1, 60))
    def kill_in_the_middle_of_a_write(self, torn: int) -> None:
        self.disk.kill()
        with self.disk.segments()[-1].open("ab") as file:
            file.write(batch(self.model.leo).data[:torn])
        self.started(cut=f"{torn} of ")

    @rule()
    def cut_power(self) -> None:
        self.check_what_was_lost(power_cut_of(self.disk), self.model.durable)

    @rule(share=st.floats(0, 1.2), torn=st.integers(0, 60))
    def cut_power_and_keep(self, share: float, torn: int) -> None:
        """A torn tail is never kept, whatever is asked."""
        asked = self.model.start + round(share * (self.model.leo - self.model.start))
        wanted = sum(one.last_offset < asked for one in self.model.log)
        with self.disk.segments()[-1].open("ab") as file:
            file.write(batch(self.model.leo).data[:torn])
        self.check_what_was_lost(power_cut_of(self.disk, keep={NAME: asked}), max(wanted, self.model.durable))

    def check_what_was_lost(self, lost: Any, count: int) -> None:
        records = self.model.leo
        self.model.truncate(count)
        self.model.durable = count
        assert lost.kept == {NAME: self.model.leo}
        assert lost.lost_records == records - self.model.leo
        self.started()
        assert self.disk.log.recovery_point == self.model.leo
        found = read_offset_checkpoint(self.disk.log_dir, HIGH_WATERMARKS)
        assert found == ({} if self.hw_durable is None else {("log", 0): self.hw_durable})

    def started(self, cut: str | None = None) -> None:
        """After a start the epoch file fits the batches; it may have one later entry, at LEO."""
        self.disk.start()
        found = self.disk.log.recovered.cut
        assert found is None if cut is None else cut in (found or "")
        entries = list(read_epoch_checkpoint(self.disk.folder / "leader-epoch-checkpoint") or ())
        expected = self.epochs_of_batches()
        assert entries[:len(expected)] == expected
        assert all(start == self.model.leo for _, start in entries[len(expected):])
        assert len(entries) <= len(expected) + 1

    def epochs_of_batches(self) -> list[tuple[int, int]]:
        epochs: list[tuple[int, int]] = []
        for one in self.model.log:
            if not epochs or one.epoch > epochs[-1][0]:
                epochs.append((one.epoch, one.base_offset))
        return epochs

    @invariant()
    def the_log_is_the_model(self) -> None:
        log, model = self.disk.log, self.model
        assert (log.log_start, log.leo) == (model.start, model.leo)
        assert self.disk.content() == model.bytes()
        assert self.disk.read_all() == model.bytes()
        assert [int(path.stem) for path in self.disk.segments()] == model.bases
        assert log.recovery_point == (
            model.log[model.durable - 1].last_offset + 1 if model.durable else model.start
        )

    @invariant()
    def the_harness_reads_the_same(self) -> None:
        rows = list(dump(self.disk.log_dir, [SPEC], RUN, "n1"))
        assert [(row["offset"], row["epoch"], row["value"]) for row in rows] == self.model.records()
        assert not any("crc_ok" in row for row in rows)
        state = describe(self.disk.log_dir, SPEC)
        assert (state.log_start, state.leo, state.torn_bytes) == (self.model.start, self.model.leo, 0)
        entries = read_epoch_checkpoint(self.disk.folder / "leader-epoch-checkpoint")
        assert (state.epochs or ()) == tuple(entries or ())


def power_cut_of(disk: Disk, **how: Any) -> Any:
    disk.kill()
    return power_cut(disk.durable, disk.log_dir, **how)


DiskMachine.TestCase.settings = settings(
    max_examples=cases(30, few=12), stateful_step_count=25,
    suppress_health_check=list(HealthCheck))
TestDisk = DiskMachine.TestCase


# -- a kill before every act on the disk ------------------------------------------------------------------


class Killed(BaseException):
    """A SIGKILL for Python code."""


ACTS = ("open", "pwrite", "write", "fsync", "fdatasync", "ftruncate", "unlink", "replace", "link")


class Kernel:
    """Wraps the broker's calls of the kernel: it kills on demand, and knows what has really been fsynced."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 30  # acts until the kill; an entry in the side file is an act too
        self.synced: dict[int, int] = {}  # inode -> the size at its last fsync, less if cut since
        # inode -> the size that a power cut may restore after a cut that is not fsynced yet
        self.sizes: dict[int, int] = {}
        real = files_module.os
        patched = {name: self.counted(getattr(real, name)) for name in ACTS}
        patch.setattr(files_module, "os", SimpleNamespace(**{**vars(real), **patched}))
        patch.setattr(
            durable_module.DurabilitySideFile,
            "_write_note",
            self.counted(durable_module.DurabilitySideFile._write_note),
        )

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            result = function(*args, **kwargs)
            if function.__name__ in ("fsync", "fdatasync", "ftruncate"):
                self.watch(function.__name__, os.fstat(args[0]))
            return result
        return call

    def watch(self, act: str, state: os.stat_result) -> None:
        synced = self.synced.get(state.st_ino, 0)
        if act == "ftruncate":
            self.synced[state.st_ino] = min(state.st_size, synced)
            if state.st_size < synced:
                self.sizes[state.st_ino] = synced
        else:
            self.synced[state.st_ino] = state.st_size
            self.sizes.pop(state.st_ino, None)

    def claims_no_more_than_was_synced(self, disk: Disk) -> None:
        """Checks a directory that holds only what the side file calls durable."""
        for path in disk.segments():
            state = path.stat()
            assert state.st_size <= self.synced.get(state.st_ino, 0), path


FIRST = [batch(at, epoch=1, payload=b"y" * 30) for at in range(7)]  # over three segments


def begun(folder: Path) -> Disk:
    disk = Disk(folder, segment_bytes=SEGMENT_BYTES)
    disk.log.append(FIRST[:4])
    disk.log.save_epochs([(1, 0)])
    disk.log.flush()
    disk.log.append(FIRST[4:])
    return disk


def truncate_then_append(disk: Disk) -> None:
    disk.log.truncate(5)
    disk.log.append([batch(5, epoch=3)])
    disk.log.flush()


ALONE: dict[str, Callable[[Disk], object]] = {
    "start": lambda disk: None,  # only the one that follows
    "start again": Disk.restart,
    "append and roll": lambda disk: disk.log.append(
        [batch(at, epoch=2, payload=b"z" * 100) for at in range(7, 11)]),
    "truncate across segments": lambda disk: disk.log.truncate(2),
    "truncate, then append": truncate_then_append,
    "reset": lambda disk: disk.log.reset(100),
    "epochs": lambda disk: disk.log.save_epochs([(1, 0), (2, 7)]),
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("cut", [False, True], ids=["killed", "power cut"])
def test_a_kill_before_any_single_act_leaves_a_log_from_before_or_after_it(
        tmp_path: Path, name: str, cut: bool) -> None:
    """At every point: a prefix of the log before or after the act; never less than was durable before it,
    unless the act removes it; the epoch file is complete; and the log accepts appends."""
    reference, act = begun(tmp_path / "reference"), ALONE[name]
    act(reference)
    after = reference.read_all()
    reference.kill()
    before = b"".join(one.data for one in FIRST)
    shrinks = name.startswith(("truncate", "reset"))
    durable = b"".join(one.data for one in FIRST[:2 if shrinks else 6])
    for acts in range(200):
        with pytest.MonkeyPatch.context() as patch:
            kernel = Kernel(patch)
            disk = begun(tmp_path / str(acts))
            kernel.left = acts
            try:
                act(disk)
                finished = True
            except Killed:
                finished = False
        assert not (finished and kernel.sizes), "a truncation of durable bytes returned without fsync"
        disk.kill()
        if cut:
            power_cut(disk.durable, disk.log_dir)
            kernel.claims_no_more_than_was_synced(disk)
        disk.start()
        content = disk.read_all()
        assert before.startswith(content) or after.startswith(content)
        if name != "reset":
            assert content.startswith(durable)
        if not cut and not finished and not shrinks:
            assert content.startswith(before)
        if finished and not cut:
            assert content == after
        saved = read_epoch_checkpoint(disk.folder / "leader-epoch-checkpoint")
        assert saved is not None
        disk.log.append([batch(disk.log.leo, epoch=9)])
        disk.restart()
        assert disk.log.recovered.cut is None
        disk.kill()
        if kernel.left >= 0:
            break
    else:
        pytest.fail("the act never ended")

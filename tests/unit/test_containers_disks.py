"""The disks of containers, as far as no engine is needed: copies, damage, counts and edits of files."""

import io
import shutil
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from disk import SIZE, Disk, batch
from fault_programs import fault_program

from floodmark.harness.cluster.containers import disks
from floodmark.harness.cluster.containers.disks import edits
from floodmark.harness.cluster.log_extents import corrupt, log_extents, records_between, truncated
from floodmark.harness.cluster.reference import power_loss


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Five batches of two records, three of them fsynced, in one segment; the broker was killed."""
    one = Disk(tmp_path)
    one.log.append([batch(2 * number, 2) for number in range(3)])
    one.log.flush()
    one.log.append([batch(6, 2), batch(8, 2)])
    one.kill()
    return one


@pytest.fixture(scope="module")
def shutdown() -> ModuleType:
    return fault_program("shutdown")


# -- log extents: two readers -----------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [b"", batch(10).data[:-1], bytes(300)], ids=["", "torn", "zeros"])
def test_the_fault_program_and_the_harness_count_alike(
        disk: Disk, shutdown: ModuleType, behind: bytes) -> None:
    """Records, not the bytes that a crash has left behind them."""
    fsynced = power_loss.fsynced(disk.durable)
    with disk.segments()[0].open("ab") as file:
        file.write(behind)

    assert shutdown.log_extents(disk.log_dir, fsynced) == {"log-0": (10, 5 * SIZE + len(behind), 6)}
    assert log_extents(disk.log_dir) == {"log-0": (10, 5 * SIZE + len(behind))}


def test_with_many_segments_the_last_one_gives_the_leo(tmp_path: Path, shutdown: ModuleType) -> None:
    """A durability file that covers everything lists nothing."""
    one = Disk(tmp_path, segment_bytes=2 * SIZE)
    one.log.append([batch(offset) for offset in range(5)])
    one.kill()

    assert len(one.segments()) == 3
    assert shutdown.log_extents(one.log_dir, power_loss.fsynced(one.durable)) == {"log-0": (5, 5 * SIZE, 4)}
    assert log_extents(one.log_dir) == {"log-0": (5, 5 * SIZE)}
    power_loss.mark_all_durable(one.durable)
    assert power_loss.fsynced(one.durable) is None


def test_lost_records_are_those_missing_from_the_second_listing() -> None:
    before = {"a-0": (10, 900), "b-0": (4, 300), "c-0": (2, 80)}

    lost = records_between(before, {"a-0": (6, 500), "b-0": (4, 300)})

    assert (lost.kept, lost.records) == ({"a-0": 6, "b-0": 4}, {"a-0": 4, "c-0": 2})


# -- damage (its loss, on an engine: tests/integration/test_containers_broker.py) -------------------------


def test_damage_is_done_where_there_are_records(tmp_path: Path) -> None:
    """Not in the empty segment or partition that comes first or last, nor in a copy of the controller's log,
    which is fetched again."""
    (tmp_path / "empty" / "log-0").mkdir(parents=True)
    assert corrupt(tmp_path / "empty") is None
    one = Disk(tmp_path, segment_bytes=2 * SIZE)
    one.log.append([batch(0), batch(1)])
    one.kill()
    shutil.copytree(one.folder, one.log_dir / "__cluster_metadata-0")
    (one.log_dir / "a-0").mkdir()
    (one.log_dir / "a-0" / f"{0:020d}.log").touch()
    (one.folder / f"{2:020d}.log").touch()

    for damage in (truncated, corrupt):
        found = damage(one.log_dir)
        assert found is not None
        assert (found.partition, found.file, found.lost_records) == ("log-0", f"log-0/{0:020d}.log", 1)
        assert SIZE < found.position < 2 * SIZE


# -- files truncated on a copy, then on the disk ----------------------------------------------------------


def test_edits_turn_one_listing_into_the_other() -> None:
    before = {"a": 10, "b": 20, "c": 30, "d": 40, "e": 50}
    after = {"a": 10, "b": 5, "d": 44, "f": 6}

    assert edits(before, after, restored=("d", "f")) == ["size", "b", "5", "remove", "c", "remove", "e"]


# -- archives ---------------------------------------------------------------------------------------------


def archive_of(*members: tuple[str, bytes | str | None]) -> bytes:
    """name -> content; None: a folder; a text: a link to it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
            elif content is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return archive.getvalue()


def listing(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("piece", [1, 511, 1 << 20])
def test_an_archive_writes_nothing_but_files_below_its_folder(tmp_path: Path, piece: int) -> None:
    """Whatever its pieces; one that is cut off is an error."""
    target, content = tmp_path / "copy", bytes(range(256)) * 9
    target.mkdir()
    data = archive_of(
        ("data", None), ("data/log-0", None), ("data/log-0/one", content), ("data/meta", b""),
        ("data/../../evil", b"x"), ("/data/evil", b"x"), ("data/link", "/etc/passwd"),
        ("data/.floodmark-fill-1", b"x"))

    disks.unpack((data[at:at + piece] for at in range(0, len(data), piece)), target, without=".floodmark-")

    assert listing(tmp_path) == {"copy/log-0/one": content, "copy/meta": b""}
    with pytest.raises(OSError, match="cannot be read"):
        disks.unpack([data[:2000]], target, without="!")

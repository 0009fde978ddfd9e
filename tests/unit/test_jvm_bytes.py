"""How much work the JVM is chosen for: what the sieve will take counts little."""

import json
from pathlib import Path

from command_line import GOLDEN

from checkers import frames
from checkers.folder import Folder, open_folder
from checkers.judge import SIEVED_SHARE, jvm_bytes

UNTRACED, TRACED = GOLDEN / "nobody-ever-read-it", GOLDEN / "traced-and-in-order"


def compacted(folder: Folder, parent: Path) -> Folder:
    """The same files of a run with a compacted partition."""
    about = json.loads((folder.path / "run.json").read_bytes())
    for partition in about["partitions"].values():
        partition["cleanup"] = "compact"
    for path in GOLDEN.joinpath(folder.path.name).iterdir():
        (parent / path.name).symlink_to(path)
    (parent / "run.json").unlink()
    (parent / "run.json").write_text(json.dumps(about))
    return open_folder(parent)


def test_what_is_sieved_counts_little_what_is_not_in_full(tmp_path: Path) -> None:
    sieved = open_folder(UNTRACED)
    whole = compacted(sieved, tmp_path)
    size = frames.work_bytes([sieved])
    assert sieved.trace is None
    assert jvm_bytes([sieved], size) == size // SIEVED_SHARE
    assert jvm_bytes([whole], size) == size
    assert jvm_bytes([sieved, whole], 2 * size) == size + size // SIEVED_SHARE


def test_no_sieve_takes_a_trace() -> None:
    folder = open_folder(TRACED)
    assert folder.trace is not None
    work, trace = frames.work_bytes([folder]), folder.trace.stat().st_size
    assert jvm_bytes([folder], work + trace) == work // SIEVED_SHARE + trace

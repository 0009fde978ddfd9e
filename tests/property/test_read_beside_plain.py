"""Run folders read by ranges give the plain reader's result, whatever happened to them and however they are
cut."""

from pathlib import Path
from random import Random

import pytest
import ranged_read
import soak_work
from how_many import cases
from soak_mistyped import mistype

from floodmark.checkers.read.folder import open_folder

SEED = "read"
RANGE_BYTES = (40, 300, 2000, 1 << 20)


def cut_of(number: int) -> int:
    return Random(f"{SEED} {number}").choice(RANGE_BYTES)


@pytest.mark.parametrize("damaged", [False, True], ids=["as they are", "mistyped"])
def test_histories(tmp_path: Path, *, damaged: bool) -> None:
    for number in range(cases(16, few=5)):
        story, path = soak_work.story_of(f"{SEED} {damaged}", number, 2, tmp_path)
        done = mistype(path, Random(f"{SEED} {number}")) if damaged else ""
        assert not ranged_read.differences(path, cut_of(number)), (number, done, story)


def test_mutated_folders(tmp_path: Path) -> None:
    """Except names that come twice in an object (test_json_lines.py), and invalid Parquet."""
    folders, looked_at = cases(40, few=12), 0
    for one in soak_work.mutated(SEED, 0, folders, tmp_path):
        if one.story.startswith(("a_field_comes_twice", "a_parquet")) or not open_folder(one.path).judged:
            continue
        looked_at += 1
        assert not ranged_read.differences(one.path, cut_of(one.number)), one.story
    assert looked_at > folders // 2

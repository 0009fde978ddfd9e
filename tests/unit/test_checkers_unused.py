"""Partitions that were not used, and rows of replicas.jsonl that contradict themselves."""

from collections.abc import Callable

import here
import pytest
from folders import Tale

Change = Callable[[Tale], None]


def hw_above_leo(tale: Tale) -> None:
    tale.row("n1")["hw"] = 9


def cache_above_leo(tale: Tale) -> None:
    tale.row("n2")["epochs"] = [[0, 0], [3, 9]]


def leo_without_records(tale: Tale) -> None:
    tale.row("n3", 1)["leo"] = 2


def log_start_without_records(tale: Tale) -> None:
    tale.row("n3", 1)["log_start"] = 1


ROWS = hw_above_leo, cache_above_leo, leo_without_records, log_start_without_records


def no_op_was_on_it(tale: Tale) -> None:
    """Partition 1 is in no op."""


def only_its_end_offset_was_requested(tale: Tale) -> None:
    tale.assign(5, 0, 1).ends(5, 0, partition=1)


@pytest.fixture(scope="module", name="valid")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[Change, object]:
    """Partition 0 is healthy, partition 1 was never used; a run for each change, all judged in one call."""
    root = tmp_path_factory.mktemp("runs")
    folders = []
    for change in (*ROWS, *UNUSED):
        tale = Tale(partitions=2).acked(1, 2)
        change(tale)
        folders.append(tale.write(root / change.__name__))
    return dict(zip((*ROWS, *UNUSED), (one.valid for one in here.judge(folders)), strict=True))


UNUSED = no_op_was_on_it, only_its_end_offset_was_requested


@pytest.mark.parametrize("change", ROWS)
def test_a_row_that_contradicts_itself_is_a_finding_though_nothing_else_is_wrong(
    change: Change, valid: dict[Change, object]
) -> None:
    assert valid[change] is False


@pytest.mark.parametrize("change", UNUSED)
def test_an_unused_partition_is_valid(change: Change, valid: dict[Change, object]) -> None:
    assert valid[change] is True

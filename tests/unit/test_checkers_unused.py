"""What was not used, or is wrong only in what replicas.jsonl says."""

from collections.abc import Callable

import here
import pytest
from folders import Tale

Change = Callable[[Tale], None]


def hw_above_leo(tale: Tale) -> None:
    tale.row("n1")["hw"] = 9


def cache_above_leo(tale: Tale) -> None:
    tale.row("n2")["epochs"] = [[0, 0], [3, 9]]


def no_entries(tale: Tale) -> None:
    tale.row("n3", 1)["leo"] = 2


def no_beginning(tale: Tale) -> None:
    tale.row("n3", 1)["log_start"] = 1


ROWS = hw_above_leo, cache_above_leo, no_entries, no_beginning


def nobody_used_it(tale: Tale) -> None:
    """Held it may have been, without a read."""


def its_end_was_asked_for(tale: Tale) -> None:
    tale.assign(5, 0, 1).ends(5, 0, partition=1)


@pytest.fixture(scope="module", name="valid")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[Change, object]:
    """Of partition 0 all is well, partition 1 was never used; a run for each change, all in one call."""
    root = tmp_path_factory.mktemp("runs")
    folders = []
    for change in (*ROWS, *UNUSED):
        tale = Tale(partitions=2).acked(1, 2)
        change(tale)
        folders.append(tale.write(root / change.__name__))
    return dict(zip((*ROWS, *UNUSED), (one.valid for one in here.judge(folders)), strict=True))


UNUSED = nobody_used_it, its_end_was_asked_for


@pytest.mark.parametrize("change", ROWS)
def test_a_row_that_contradicts_itself_is_a_finding_though_nothing_else_is_wrong(
    change: Change, valid: dict[Change, object]
) -> None:
    assert valid[change] is False


@pytest.mark.parametrize("change", UNUSED)
def test_a_partition_that_nobody_used_is_valid(change: Change, valid: dict[Change, object]) -> None:
    assert valid[change] is True

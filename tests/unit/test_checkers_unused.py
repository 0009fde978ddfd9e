"""What was not used, or is wrong only in what replicas.jsonl says."""

from collections.abc import Callable
from pathlib import Path

import here
import pytest
from folders import Tale


def hw_above_leo(tale: Tale) -> None:
    tale.row("n1")["hw"] = 9


def cache_above_leo(tale: Tale) -> None:
    tale.row("n2")["epochs"] = [[0, 0], [3, 9]]


def no_entries(tale: Tale) -> None:
    tale.row("n3", 1)["leo"] = 2


def no_beginning(tale: Tale) -> None:
    tale.row("n3", 1)["log_start"] = 1


ROWS = hw_above_leo, cache_above_leo, no_entries, no_beginning


@pytest.mark.parametrize("change", ROWS)
def test_a_row_that_contradicts_itself_is_a_finding_though_nothing_else_is_wrong(
    change: Callable[[Tale], None], tmp_path: Path
) -> None:
    """Of partition 0 all is well, partition 1 was never used."""
    tale = Tale(partitions=2).acked(1, 2)
    [healthy] = here.judge([tale.write(tmp_path / "healthy")])
    change(tale)
    [verdict] = here.judge([tale.write(tmp_path / "run")])

    assert (healthy.valid, verdict.valid) == (True, False)


def test_a_partition_that_nobody_used_is_valid(tmp_path: Path) -> None:
    """Held it may have been, without a read; of another the end was asked for."""
    tale = Tale(partitions=4).acked(1, 2, 3).assign(5, 0, 1, 2).ends(5, 0, partition=3)
    [verdict] = here.judge([tale.write(tmp_path / "run")])

    assert verdict.valid is True

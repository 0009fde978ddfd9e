"""The sieve and what was not used, or is wrong only in what replicas.jsonl says: nothing passes of either."""

from collections.abc import Callable
from pathlib import Path

import pytest
from folders import Tale

from checkers import sifted
from checkers.facts import Seen, contradicted
from checkers.folder import open_folder
from checkers.judge import SparkJudge
from checkers.sieve import Sieved, sieve


def sieved(tale: Tale, path: Path) -> Sieved:
    return sieve(open_folder(tale.write(path / "run")))


def test_a_partition_of_which_nobody_said_anything_is_not_looked_at(tmp_path: Path) -> None:
    """Held it may have been, without a read; a partition whose end was asked for is looked at."""
    passed = sieved(Tale(partitions=4).acked(1, 2, 3).assign(5, 0, 1, 2).ends(5, 0, partition=3), tmp_path)

    assert list(passed.passed) == [0, 3]


def hw_above_leo(tale: Tale) -> None:
    tale.row("n1")["hw"] = 9


def cache_above_leo(tale: Tale) -> None:
    tale.row("n2")["epochs"] = [[0, 0], [3, 9]]


def no_entries(tale: Tale) -> None:
    tale.row("n3", 1)["leo"] = 2


def no_beginning(tale: Tale) -> None:
    tale.row("n3", 1)["log_start"] = 1


ROWS = hw_above_leo, cache_above_leo, no_entries, no_beginning


@pytest.mark.parametrize("change", [*ROWS, None])
def test_where_nothing_passes_a_row_may_still_contradict_itself(
    change: Callable[[Tale], None] | None, tmp_path: Path
) -> None:
    """Of partition 0 all is plain, partition 1 was never used."""
    tale = Tale(partitions=2).acked(1, 2)
    if change is not None:
        change(tale)
    passed = sieved(tale, tmp_path)
    seen = Seen(used=frozenset(passed.passed), whole=frozenset(passed.whole))
    folder = open_folder(tmp_path / "run")

    assert seen == Seen(used=frozenset({0}), whole=frozenset())
    assert contradicted(folder, seen) is (change is not None)


@pytest.mark.spark
def test_a_row_that_contradicts_itself_is_a_finding_though_nothing_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for change in ROWS:
        tale = Tale(partitions=2).acked(1, 2)
        change(tale)
        folders.append(tale.write(tmp_path / change.__name__))
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)
    with_it = SparkJudge().judge(folders)
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 1 << 40)
    without = SparkJudge().judge(folders)

    assert [verdict.valid for verdict in with_it] == [False] * len(ROWS)
    for one, other in zip(with_it, without, strict=True):
        assert (one.findings, one.unknown) == (other.findings, other.unknown)

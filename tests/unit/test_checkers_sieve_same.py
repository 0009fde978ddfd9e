"""The sieve changes no verdict: folders of every kind, judged with it and without."""

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import damages_clients
import damages_files
import damages_logs
import damages_losses
import damages_orders
import damages_txn
import damages_unread
import pytest
from damages import DAMAGES, FILES, NEAR_MISSES
from sieve_shapes import SHAPES, as_parquet, written
from tangles import tangle
from txn_histories import healthy_txns

from checkers import judge, sifted
from checkers.judge import SparkJudge
from checkers.survey import Survey
from harness.verdict import Verdict
from histories import RunFolder, healthy

ADDED_BY = (  # imported for what they add
    damages_clients, damages_files, damages_logs, damages_losses, damages_orders,
    damages_txn, damages_unread)


@pytest.mark.spark
def test_the_sieve_changes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Healthy and damaged folders in every shape, judged with every one sieved and with none."""
    catalogue = DAMAGES | NEAR_MISSES | FILES
    folders = []
    for number, name in enumerate(sorted(catalogue)):
        random = Random(f"sieve {number}")
        folder = one_of(random)
        with suppress(IndexError, KeyError, StopIteration, ValueError):  # one that finds nothing to damage
            catalogue[name](folder, random)
        SHAPES[number % len(SHAPES)](folder, random)
        if number % 9 == 0:
            confuse(folder, random)
        path = written(folder, tmp_path / name)
        folders.append(as_parquet(path) if random.random() < 0.2 else path)

    sieved: list[sifted.Sifted] = []
    monkeypatch.setattr(judge, "sift", lambda *told: noted(sieved, sifted.sift(*told)))
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)
    with_it = SparkJudge().judge(folders)
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 1 << 40)
    without = SparkJudge().judge(folders)

    assert list(map(told, without)) == list(map(told, with_it))
    assert not any(verdict.failure for verdict in (*with_it, *without))
    [through, beside] = sieved
    assert (len(beside.surveys), beside.rows) == (0, 0)
    assert len(through.surveys) > len(folders) / 2  # the others are damaged, or of a kind that is not sieved
    assert through.rows < sum(map(rows_of, through.surveys.values())) * 4 / 5  # many damages: all of it


def noted(sieved: list[sifted.Sifted], made: sifted.Sifted) -> sifted.Sifted:
    sieved.append(made)
    return made


def rows_of(survey: Survey) -> int:
    """At least as many rows would be looked at without the sieve: lines of the history and of the dumps."""
    return survey.lines + sum(survey.entries.values())


def confuse(folder: RunFolder, random: Random) -> None:
    """Some lines bear another's index, or lists that they do not carry."""
    for _ in range(random.randrange(1, 4)):
        line, other = random.sample(folder.lines, 2)
        line["index"], other["index"] = other["index"], line["index"] + random.choice((0, 0, 1))
    for name in ("sends", "reads", "offsets", "partitions"):
        line, other = random.choice(folder.lines), random.choice(folder.lines)
        line.setdefault(name, other.get(name) or [])


def one_of(random: Random) -> RunFolder:
    """A healthy run; half of them with transactions, and of these some in a tangle."""
    steps, settled = random.randrange(40, 80), random.random() < 0.8
    if random.random() < 0.5:
        return healthy(random, steps=steps, settled=settled)
    folder = healthy_txns(random, steps=steps, settled=settled, uncommitted=random.random() < 0.2)
    if random.random() < 0.4:
        tangle(folder, random)
    return folder


def told(verdict: Verdict) -> tuple[Any, ...]:
    """A verdict but for its timings."""
    return verdict.valid, verdict.findings, verdict.unknown, verdict.counts

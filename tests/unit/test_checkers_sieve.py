"""The sieve lets through what is odd, refuses what it cannot vouch for, and changes no verdict."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import damages_clients
import damages_files
import damages_logs
import damages_losses
import pytest
from damages import DAMAGES, FILES, NEAR_MISSES
from folders import Tale
from sieve_shapes import SHAPES, as_parquet, written

from checkers import sifted
from checkers.chunks import Blemished
from checkers.folder import open_folder
from checkers.judge import SparkJudge
from checkers.sieve import Sieved, sieve
from harness.verdict import Verdict
from histories import healthy

ADDED_BY = (damages_clients, damages_files, damages_logs, damages_losses)  # imported for what they add
NODES = ("n1", "n2", "n3")


def sieved(tale: Tale, path: Path) -> Sieved:
    return sieve(open_folder(tale.write(path / "run")))


def test_of_a_healthy_run_nothing_passes(tmp_path: Path) -> None:
    """Acked once, alike in every log, read only there, and by the final reader."""
    passed = sieved(Tale(partitions=2).acked(1, 2).poll(5, (0, 1)).acked(3, partition=1), tmp_path)

    assert passed.whole == set()
    assert [list(each.values) for each in passed.passed.values()] == [[], []]


def test_a_lost_value_passes_with_what_came_in_its_place(tmp_path: Path) -> None:
    """All values at the places of an odd one, and no others."""
    passed = sieved(Tale().acked(1, 2).send(7, 9, at=[2]).acked(3, 4), tmp_path)

    assert list(passed.passed[0].values) == [3, 9]
    assert list(passed.passed[0].offsets) == [2]


def doubtful(tale: Tale) -> None:
    tale.send(7, 9, kind="info")


def failed_and_logged(tale: Tale) -> None:
    tale.send(7, 9, kind="fail").logged(9)


def phantom(tale: Tale) -> None:
    tale.logged(9)


def unseen(tale: Tale) -> None:
    tale.acked(9).final = False
    tale.assign(900, 0).poll(900, (0, 1), (1, 2))


def read_elsewhere(tale: Tale) -> None:
    tale.acked(9).poll(8, (5, 9))


def differs(tale: Tale) -> None:
    tale.acked(9).entry("n2", 2)["crc"] = 7


def member_lacks(tale: Tale) -> None:
    tale.acked(9).drop("n3", 2)


def twice(tale: Tale) -> None:
    tale.acked(9).logged(9)


@pytest.mark.parametrize(
    "change", [doubtful, failed_and_logged, phantom, unseen, read_elsewhere, differs, member_lacks, twice]
)
def test_an_odd_value_passes_alone(change: Callable[[Tale], None], tmp_path: Path) -> None:
    """The partition does not pass whole, the value 9 does."""
    tale = Tale().acked(1, 2)
    change(tale)
    passed = sieved(tale, tmp_path)

    assert passed.whole == set()
    assert list(passed.passed[0].values) == [9]


def gap(tale: Tale) -> None:
    tale.drop("n3", 1)


def wrong_cache(tale: Tale) -> None:
    tale.row("n2")["epochs"] = [[3, 0]]


def against_time(tale: Tale) -> None:
    tale.logged(8, 7).send(5, 7, at=[4]).send(6, 8, at=[3])


def a_poll_falls(tale: Tale) -> None:
    tale.poll(5, (0, 1), (1, 2)).poll(5, (1, 2))


def a_poll_skips(tale: Tale) -> None:
    tale.poll(5, (0, 1)).poll(5, (2, 3))


def an_end_falls(tale: Tale) -> None:
    tale.ends(5, 3).ends(5, 2)


def compacted(tale: Tale) -> None:
    tale.run["partitions"]["0"]["cleanup"] = "compact"


@pytest.mark.parametrize(
    "change", [gap, wrong_cache, against_time, a_poll_falls, a_poll_skips, an_end_falls, compacted]
)
def test_what_is_out_of_order_passes_whole(change: Callable[[Tale], None], tmp_path: Path) -> None:
    """And only that partition does."""
    tale = Tale(partitions=2).acked(1, 2, 3).acked(11, partition=1)
    change(tale)

    assert sieved(tale, tmp_path).whole == {0}


def test_a_position_that_was_given_up_is_not_out_of_order(tmp_path: Path) -> None:
    """After an assign that does not keep the partition a process may begin anew."""
    tale = Tale(partitions=2).acked(1, 2).acked(11, partition=1).assign(5, 0).poll(5, (0, 1), (1, 2))

    assert sieved(tale.assign(5, 1).assign(5, 0).poll(5, (0, 1)), tmp_path).whole == set()


@pytest.mark.parametrize(("polls", "whole"), [
    ("ok 0, info 1, ok 1 2", False),  # it moved nothing
    ("ok 0, fail 1 2, ok 3", False),  # what was shown may be passed over
    ("ok 0, info 1, info 2, ok 3", False),
    ("ok 0, fail 1 2, fail 1, ok 3", False),
    ("ok 0, info 1, ok 3", True),
    ("ok 0, info 2, ok 1", True),
    ("ok 0 1, info 1 2, ok 3", True),
    ("info 2 1, ok 3", True),
    ("info 0 2, ok 3", True),
    ("info 2, ok 0", False),  # nobody knows where it stood
    ("ok 0, info 1, ok 2, ok 1", True),
    ("ok 0 1, ok 1", True),
])  # fmt: skip
def test_a_poll_that_failed_moves_nothing_but_shows(polls: str, whole: bool, tmp_path: Path) -> None:
    tale = Tale().acked(1, 2, 3, 4, 5)
    for poll in polls.split(", "):
        kind, *offsets = poll.split()
        tale.poll(8, *((int(offset), int(offset) + 1) for offset in offsets), kind=kind)

    assert sieved(tale, tmp_path).whole == ({0} if whole else set())


def test_a_partition_that_nobody_named_passes_whole(tmp_path: Path) -> None:
    assert sieved(Tale().acked(1, 2).send(2, 9, at=[0], partition=3), tmp_path).whole == {3}


def read_early(tale: Tale) -> None:
    tale.poll(8, (2, 9)).send(7, 9, at=[2]).logged(9)


def read_while_it_was_sent(tale: Tale) -> None:
    asked = [{"partition": 0, "value": 9}]
    tale.line(7, "invoke", "send", sends=asked).poll(8, (2, 9))
    tale.line(7, "ok", "send", sends=[{**asked[0], "offset": 2}]).logged(9)


@pytest.mark.parametrize(("change", "odd"), [(read_early, [9]), (read_while_it_was_sent, [])])
def test_a_value_that_was_read_before_it_was_sent_passes(
    change: Callable[[Tale], None], odd: list[int], tmp_path: Path
) -> None:
    """Though it stands where it should: nobody can have known it then."""
    tale = Tale().acked(1, 2)
    change(tale)

    assert list(sieved(tale, tmp_path).passed[0].values) == odd


def edited(lines: Callable[[list[Any]], Any]) -> Tale:
    tale = Tale().acked(1, 2, 3)
    tale.edit = lines
    return tale


@pytest.mark.parametrize("tale", [
    edited(lambda lines: [{**line, "index": len(lines) - at} for at, line in enumerate(lines)]),
    edited(lambda lines: lines[2].update(sends=lines[2]["sends"] or [], f="txn")),
    edited(lambda lines: [*lines, '{"index":9,"index":8}\n']),
    edited(lambda lines: [*lines, '{"index":8,"time":9},"more":{}\n']),
    edited(lambda lines: [*(json.dumps(line) + "\r\n" for line in lines)]),
    edited(lambda lines: [*lines, "\ufeff{}\n"]),
    edited(lambda lines: lines[0].update(reads=[{"partition": 0, "offset": 0, "value": 1}])),
    Tale().send(1, 5, f="txn"),
    Tale(files={"history.jsonl": None}),
    Tale(files={"history.jsonl": "{}\n"}),
])  # fmt: skip
def test_what_another_reader_may_see_otherwise_is_refused(tale: Tale, tmp_path: Path) -> None:
    """Such a run goes to the checks whole."""
    with pytest.raises(Blemished):
        sieved(tale, tmp_path)


@pytest.mark.spark
def test_the_sieve_changes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Healthy and damaged folders in every shape, judged with every one sieved and with none."""
    catalogue = DAMAGES | NEAR_MISSES | FILES
    folders = []
    for number, name in enumerate(sorted(catalogue)):
        random = Random(f"sieve {number}")
        folder = healthy(random, steps=random.randrange(40, 80), settled=random.random() < 0.8)
        with suppress(IndexError, KeyError, StopIteration, ValueError):  # one that finds nothing to damage
            catalogue[name](folder, random)
        SHAPES[number % len(SHAPES)](folder, random)
        path = written(folder, tmp_path / name)
        folders.append(as_parquet(path) if random.random() < 0.2 else path)

    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)
    with_it = SparkJudge().judge(folders)
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 1 << 40)
    without = SparkJudge().judge(folders)

    assert list(map(told, without)) == list(map(told, with_it))


def told(verdict: Verdict) -> tuple[Any, ...]:
    """A verdict but for its timings."""
    return verdict.valid, verdict.findings, verdict.unknown, verdict.counts

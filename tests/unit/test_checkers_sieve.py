"""The sieve lets through what is odd, refuses what it cannot vouch for, and changes no verdict."""

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
from damages import DAMAGES, NEAR_MISSES
from folders import Tale

from checkers import sifted
from checkers.columns import Blemished
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
    assert [list(values) for values in passed.values.values()] == [[], []]


def test_a_lost_value_passes_with_what_came_in_its_place(tmp_path: Path) -> None:
    """All values at the places of an odd one, and no others."""
    passed = sieved(Tale().acked(1, 2).send(7, 9, at=[2]).acked(3, 4), tmp_path)

    assert list(passed.values[0]) == [3, 9]
    assert list(passed.offsets[0]) == [2]


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
    assert list(passed.values[0]) == [9]


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


def nobody_leads(tale: Tale) -> None:
    tale.final = False
    tale.run["leaders"]["0"]["leader"] = None


@pytest.mark.parametrize(
    "change", [gap, wrong_cache, against_time, a_poll_falls, a_poll_skips, an_end_falls, nobody_leads]
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


def edited(lines: Callable[[list[Any]], Any]) -> Tale:
    tale = Tale().acked(1, 2, 3)
    tale.edit = lines
    return tale


@pytest.mark.parametrize("tale", [
    edited(lambda lines: [*lines, "null\n"]),
    edited(lambda lines: [*lines, "\n"]),
    edited(lambda lines: [*lines, '{"index"']),
    edited(lambda lines: lines[1].update(index="1")),
    edited(lambda lines: lines[1].update(time=1.5)),
    edited(lambda lines: lines[1].update(process=True)),
    edited(lambda lines: lines[1].update(type="yes")),
    edited(lambda lines: lines[1].update(error=5)),
    edited(lambda lines: lines[1]["sends"].append(None)),
    edited(lambda lines: lines[1]["sends"][0].update(offset=-1)),
    edited(lambda lines: lines[1]["sends"][0].update(value=77)),
    edited(lambda lines: lines[2].update(time=10)),
    edited(lambda lines: lines.pop()),
    Tale().send(1, 5, kind="info").send(1, 6),
    Tale().send(1, 5).send(2, 5),
    Tale().send(1, 5, f="txn"),
    Tale().acked(1, partition=0).send(2, 2, partition=3),
    Tale(files={"logs/n2.jsonl": None}),
    Tale(files={"logs/n2.jsonl": "{}\n"}),
])  # fmt: skip
def test_a_blemish_is_refused(tale: Tale, tmp_path: Path) -> None:
    """Such a run goes to the checks whole, which tell where it is."""
    with pytest.raises(Blemished):
        sieved(tale, tmp_path)


@pytest.mark.spark
def test_the_sieve_changes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Healthy and damaged folders, judged with every one sieved and with none."""
    catalogue = DAMAGES | NEAR_MISSES
    folders = []
    for number, name in enumerate(sorted(catalogue)):
        random = Random(f"sieve {number}")
        folder = healthy(random, steps=random.randrange(40, 80), settled=random.random() < 0.8)
        with suppress(
            IndexError, KeyError, StopIteration, ValueError
        ):  # a damage that finds nothing to damage
            catalogue[name](folder, random)
        folders.append(folder.write(tmp_path / name))

    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 0)
    with_it = SparkJudge().judge(folders)
    monkeypatch.setattr(sifted, "SIEVED_FROM_BYTES", 1 << 40)
    without = SparkJudge().judge(folders)

    assert list(map(told, without)) == list(map(told, with_it))


def told(verdict: Verdict) -> tuple[Any, ...]:
    """A verdict but for its timings and the worst lines of its reasons."""
    unknown = {name for one in verdict.unknown for name in one.names}
    return verdict.valid, verdict.findings, sorted(unknown), verdict.counts

"""The sieve lets through what is odd, and refuses what it cannot vouch for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import Tale, reads_of
from txn_tales import mutual

from checkers.chunks import Blemished
from checkers.folder import open_folder
from checkers.sieve import Sieved, sieve

NODES = ("n1", "n2", "n3")


def sieved(tale: Tale, path: Path) -> Sieved:
    return sieve(open_folder(tale.write(path / "run")))


def test_of_a_healthy_run_nothing_passes(tmp_path: Path) -> None:
    """Acked once, alike in every log, read only there, and by the final reader."""
    passed = sieved(Tale(partitions=2).acked(1, 2).poll(5, (0, 1)).acked(3, partition=1), tmp_path)

    assert passed.whole == set()
    assert [list(each.values) for each in passed.passed.values()] == [[], []]


def test_of_what_never_came_about_nothing_passes(tmp_path: Path) -> None:
    """Failed, in doubt, never answered, and aborted: not acked, not read, nowhere in force."""
    tale = Tale().acked(1, 2).send(7, 8, kind="fail").send(6, 9, kind="info")
    aborted(tale.send(5, 10, kind="fail", f="txn"), 10, 2).logged(None)
    tale.line(4, "invoke", "send", sends=[{"partition": 0, "value": 11}])
    passed = sieved(tale, tmp_path).passed[0]

    assert not passed.whole
    assert (list(passed.values), list(passed.offsets)) == ([], [])


def test_a_lost_value_passes_with_what_came_in_its_place(tmp_path: Path) -> None:
    """All values at the places of an odd one, and no others."""
    passed = sieved(Tale().acked(1, 2).send(7, 9, at=[2]).acked(3, 4), tmp_path)

    assert list(passed.passed[0].values) == [3, 9]
    assert list(passed.passed[0].offsets) == [2]


def doubtful_and_logged(tale: Tale) -> None:
    tale.send(7, 9, kind="info").logged(9)


def doubtful_and_read(tale: Tale) -> None:
    tale.send(7, 9, kind="info").poll(8, (2, 9))


def failed_and_logged(tale: Tale) -> None:
    tale.send(7, 9, kind="fail").logged(9)


def failed_and_read(tale: Tale) -> None:
    tale.send(7, 9, kind="fail").poll(8, (2, 9))


def aborted(tale: Tale, value: int, offset: int) -> Tale:
    """In every log."""
    tale.logged(value)
    for node in NODES:
        tale.entry(node, offset)["aborted"] = True
    return tale


def aborted_and_read(tale: Tale) -> None:
    aborted(tale.send(7, 9, kind="fail", f="txn"), 9, 2).poll(8, (2, 9))


def aborted_and_acked(tale: Tale) -> None:
    aborted(tale.send(7, 9, at=[2], f="txn"), 9, 2)


def aborted_by_nobody(tale: Tale) -> None:
    aborted(tale, 9, 2)


def aborted_and_differs(tale: Tale) -> None:
    aborted(tale.send(7, 9, kind="fail", f="txn"), 9, 2).entry("n2", 2)["crc"] = 7


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
    "change",
    [
        doubtful_and_logged, doubtful_and_read, failed_and_logged, failed_and_read, phantom, unseen,
        read_elsewhere, differs, member_lacks, twice, aborted_and_read, aborted_and_acked, aborted_by_nobody,
        aborted_and_differs,
    ],
)
def test_an_odd_value_passes_alone(change: Callable[[Tale], None], tmp_path: Path) -> None:
    """The partition does not pass whole, the value 9 does."""
    tale = Tale().acked(1, 2)
    change(tale)
    passed = sieved(tale, tmp_path)

    assert passed.whole == set()
    assert list(passed.passed[0].values) == [9]


def reads_before_it_sends(tale: Tale) -> None:
    sent = {"partition": 0, "value": 7}
    tale.line(5, "invoke", "txn", sends=[sent]).logged(7)
    tale.line(5, "ok", "txn", sends=[{**sent, "offset": 4}], reads=reads_of([(0, 1), (1, 2)], 0))


def reads_on_after_a_crash(tale: Tale) -> None:
    tale.poll(5, (2, 3), (3, 9)).op(5, "crash", "info").poll(5, (0, 1))


def reads_back_in_the_next_life(tale: Tale) -> None:
    tale.assign(5, 0).poll(5, (2, 3), (3, 9)).op(5, "crash", "fail").assign(5, 0).poll(5, (0, 1))


@pytest.mark.parametrize(
    "change", [reads_before_it_sends, reads_on_after_a_crash, reads_back_in_the_next_life]
)
def test_what_owes_no_order_is_not_out_of_order(change: Callable[[Tale], None], tmp_path: Path) -> None:
    tale = Tale().acked(1, 2, 3, 9)
    change(tale)
    passed = sieved(tale, tmp_path).passed[0]

    assert not passed.whole
    assert list(passed.values) == []


def test_what_transactions_make_of_one_another_is_found(tmp_path: Path) -> None:
    """Though no record of theirs is odd."""
    found = sieved(mutual(), tmp_path)

    assert [list(each.values) for each in found.passed.values()] == [[], []]
    assert [one["name"] for one in found.found] == ["G1c"]


def a_transaction_skips(tale: Tale) -> None:
    """It failed, so that the next poll says what it did not read."""
    tale.poll(5, (0, 1)).op(5, "txn", "fail", reads=reads_of([(2, 3)], 0))


def a_transaction_reads_again(tale: Tale) -> None:
    tale.poll(5, (0, 1), (1, 2)).op(5, "txn", reads=reads_of([(1, 2), (2, 3)], 0))


def a_transaction_reads_backwards(tale: Tale) -> None:
    tale.op(5, "txn", reads=reads_of([(1, 2), (0, 1)], 0))


def a_transaction_sends_backwards(tale: Tale) -> None:
    tale.logged(8, 7).send(7, 7, 8, at=[4, 3], f="txn")


def a_process_sends_backwards_and_a_read_tells(tale: Tale) -> None:
    tale.logged(8, 7).send(5, 7).send(6, 6, kind="fail").send(5, 8)


def an_op_sends_backwards_and_a_read_tells(tale: Tale) -> None:
    tale.logged(8, 7).send(5, 7, 8, at=[4, None])


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
    "change", [
        gap, wrong_cache, against_time, a_poll_falls, a_poll_skips, a_transaction_skips,
        a_transaction_reads_again, a_transaction_reads_backwards, a_transaction_sends_backwards,
        a_process_sends_backwards_and_a_read_tells, an_op_sends_backwards_and_a_read_tells, an_end_falls,
        compacted,
    ],
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
    ("ok 0, fail 1 2, ok 3", True),  # what a failed poll showed was given back
    ("ok 0, info 1, info 2, ok 3", True),  # nobody asks more after an info
    ("ok 0, fail 1 2, fail 1, ok 3", True),
    ("ok 0, fail 1 2, fail 1, ok 1 2 3", False),
    ("ok 0, info 1, ok 3", True),
    ("ok 0, info 2, ok 1", True),
    ("ok 0 1, info 1 2, ok 3", True),
    ("info 2 1, ok 3", True),
    ("info 0 2, ok 3", True),
    ("info 2, ok 0", False),  # nobody knows where it stood
    ("ok 0, info 1, ok 2, ok 1", True),
    ("ok 0 1, ok 1", True),
])  # fmt: skip
def test_a_poll_that_failed_moves_and_excuses_nothing(polls: str, whole: bool, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["sends", "reads", "offsets", "partitions"])
def test_a_list_that_a_line_does_not_carry_gives_nothing(name: str, tmp_path: Path) -> None:
    """As the checks have it: there it is a field that nobody knows."""
    given: list[Any] = [7] if name == "partitions" else [{"partition": 7, "offset": 3, "value": 9}]
    tale = Tale().acked(1).op(5, "crash").line(5, "invoke", "poll", reads=given)
    tale.edit = lambda lines: lines[2].update({name: given})
    passed = sieved(tale, tmp_path)

    assert list(passed.passed) == [0]
    assert list(passed.passed[0].values) == []


def edited(lines: Callable[[list[Any]], Any]) -> Tale:
    tale = Tale().acked(1, 2, 3)
    tale.edit = lines
    return tale


@pytest.mark.parametrize("tale", [
    edited(lambda lines: [*lines, '{"index":9,"index":8}\n']),
    edited(lambda lines: [*lines, '{"index":8,"time":9},"more":{}\n']),
    edited(lambda lines: [*(json.dumps(line) + "\r\n" for line in lines)]),
    edited(lambda lines: [*lines, "\ufeff{}\n"]),
    Tale().line(5, "invoke", "poll").send(5, 1, at=[0]).send(5, 2, at=[1]).line(
        5, "ok", "send", sends=[{"partition": 0, "value": 1, "offset": 0}]),
    Tale(files={"history.jsonl": None}),
    Tale(files={"history.jsonl": "{}\n"}),
])  # fmt: skip
def test_what_another_reader_may_see_otherwise_is_refused(tale: Tale, tmp_path: Path) -> None:
    """Such a run goes to the checks whole."""
    with pytest.raises(Blemished):
        sieved(tale, tmp_path)

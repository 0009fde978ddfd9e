"""What a history that breaks its field table still proves, and what no longer; judge and twin agree."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import Line, Tale
from judging import Tales
from txn_tales import A, C, ended, logged, txn
from txn_tales import two as two_partitions

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
BREACHED = names.IF_BREACHED
ALL = ("n1", "n2", "n3")
Edit = Callable[[list[Line]], Any]


def fields(number: int, **told: object) -> Edit:
    """Puts these fields into a line of the history."""
    return lambda lines: lines[number].update(told)


def garbled(number: int, cut: int = 0) -> Edit:
    """A line loses its last bytes: it is none any more."""

    def edit(lines: list[Line]) -> list[Line | str]:
        text = json.dumps(lines[number])[: -1 - cut]
        return [*lines[:number], text + "\n", *lines[number + 1 :]]

    return edit


def glued(number: int) -> Edit:
    """A line and the next one are one, which is none."""

    def edit(lines: list[Line]) -> list[Line | str]:
        both = "".join(json.dumps(line) for line in lines[number : number + 2])
        return [*lines[:number], both + "\n", *lines[number + 2 :]]

    return edit


def gone(number: int) -> Edit:
    return lambda lines: lines[:number] + lines[number + 1 :]


# -- indexes that do not rise: what came before what is not known -------------------------------------------


@TALES.tale(unknown=BREACHED)
def an_index_comes_twice_and_no_send_is_out_of_order(tale: Tale) -> None:
    tale.acked(1, 2, 3).edit = fields(5, index=1)


@TALES.tale(unknown=BREACHED)
def nor_is_an_end_offset(tale: Tale) -> None:
    tale.ends(5, 0).acked(1, 2).ends(5, 2).edit = fields(7, index=0)


@TALES.tale(unknown=BREACHED)
def two_ops_of_one_index_are_two_ops(tale: Tale) -> None:
    tale.send(1, 1, 2, at=[0, 1]).send(2, 3, 4, at=[2, 3]).logged(1, 2, 3, 4).edit = fields(3, index=1)


@TALES.tale("int-nonmonotonic-poll bug 1", "int-nonmonotonic-send bug 1", unknown=BREACHED)
def what_one_line_shows_it_shows_whatever_its_index(tale: Tale) -> None:
    tale.send(1, 1, 2, at=[1, 0]).logged(2, 1).poll(5, (1, 1), (0, 2)).edit = fields(3, index=0)


def out_of_order(tale: Tale) -> Tale:
    """A process's sends and the ends that it was told, both falling."""
    return tale.ends(1, 2).send(1, 2, at=[1]).send(1, 1, at=[0]).ends(1, 1).logged(1, 2)


FALLING = ("end-offset-regressed bug 1", "nonmonotonic-send bug 1")


@TALES.tale(*FALLING, unknown=BREACHED)
def with_a_line_less_the_others_keep_their_order(tale: Tale) -> None:
    out_of_order(tale.poll(7)).edit = gone(1)


@TALES.tale(*FALLING, unknown=BREACHED)
def with_a_line_that_is_none_too(tale: Tale) -> None:
    out_of_order(tale.poll(7)).edit = garbled(0)


@TALES.tale(*FALLING, unknown=BREACHED)
def and_where_two_are_one(tale: Tale) -> None:
    out_of_order(tale.poll(7)).edit = glued(0)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_fault_of_a_wrong_index_may_have_come_after(tale: Tale) -> None:
    tale.acked(1).send(2, 9, at=[1]).fault("power_cut", *ALL, lost=True).edit = fields(4, index=0)


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def so_may_an_unclean_election(tale: Tale) -> None:
    tale.acked(1).send(2, 9, at=[1]).fault("elect", "n2", unclean=True).edit = fields(4, index=0)


# -- faults that nobody can read ----------------------------------------------------------------------------


def a_loss_by(tale: Tale, f: str, **told: object) -> Tale:
    """An ack without a record, and then a fault: line 4."""
    return tale.acked(1).send(2, 9, at=[1]).fault(f, *ALL, **told)


def scheduled(tale: Tale, *acts: dict[str, object]) -> Tale:
    tale.run["schedule"] = list(acts)
    return tale


CUT = {"f": "power_cut", "nodes": [*ALL]}


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_power_cut_that_cannot_be_read_may_excuse_a_loss(tale: Tale) -> None:
    a_loss_by(tale, "power_cut", lost=True).edit = garbled(4)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def so_may_one_that_does_not_get_to_the_point(tale: Tale) -> None:
    a_loss_by(tale, "power_cut", lost=True).edit = garbled(4, cut=20)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def so_may_one_behind_a_kill_on_the_same_line(tale: Tale) -> None:
    a_loss_by(tale, "kill").fault("power_cut", *ALL, lost=True).edit = glued(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def not_so_a_kill_behind_a_kill(tale: Tale) -> None:
    a_loss_by(tale, "kill").fault("kill", "n1").edit = glued(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def not_so_a_kill(tale: Tale) -> None:
    a_loss_by(tale, "kill").edit = garbled(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def nor_anything_where_every_write_is_flushed(tale: Tale) -> None:
    a_loss_by(tale, "power_cut", lost=True).edit = garbled(4)
    tale.run["guarantees"]["flush"] = "every"


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def an_unclean_election_that_cannot_be_read_may(tale: Tale) -> None:
    a_loss_by(tale, "elect", unclean=True).edit = garbled(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def a_clean_one_may_not(tale: Tale) -> None:
    a_loss_by(tale, "elect", unclean=False).edit = garbled(4)


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def one_that_does_not_say_may(tale: Tale) -> None:
    a_loss_by(tale, "elect", unclean=True).edit = garbled(4, cut=12)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_line_is_missing_and_a_power_cut_of_the_schedule_too(tale: Tale) -> None:
    scheduled(a_loss_by(tale, "power_cut", lost=True), CUT).edit = gone(4)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def or_a_line_says_nothing_any_more(tale: Tale) -> None:
    scheduled(a_loss_by(tale, "power_cut", lost=True), CUT).edit = lambda lines: [
        *lines[:4],
        "\0\0\n",
        *lines[5:],
    ]


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def or_an_unclean_election_of_it(tale: Tale) -> None:
    scheduled(a_loss_by(tale, "elect", unclean=True), {"f": "elect", "unclean": True}).edit = gone(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def with_every_act_of_the_schedule_told_a_missing_line_is_none_of_them(tale: Tale) -> None:
    tale.fault("power_cut", *ALL, lost=True)
    scheduled(tale.acked(1).send(2, 9, at=[1]).poll(7), CUT, {"f": "kill", "nodes": ["n1"]}).edit = gone(5)


@TALES.tale("lost-write bug 1", unknown=[*BREACHED, "unfit"])
def nor_is_it_an_act_that_never_came(tale: Tale) -> None:
    scheduled(tale.acked(1).send(2, 9, at=[1]).poll(7), CUT).edit = gone(5)
    tale.run["missed"] = [0]


# -- fields where they do not belong, and answers that come again -------------------------------------------


@TALES.tale()
def only_an_answer_says_what_was_read(tale: Tale) -> None:
    told = [{"partition": 0, "offset": 0, "value": 2}, {"partition": 0, "offset": 0, "value": 1}]
    tale.line(7, "invoke", "poll", reads=told).line(7, "ok", "poll", reads=[])
    tale.line(8, "invoke", "assign", partitions=[0], reads=told)
    tale.line(8, "ok", "assign", partitions=[0], reads=told)
    tale.send(2, 9, kind="fail").acked(1, 2)


@TALES.tale()
def only_who_sends_says_what_was_sent_or_where_the_end_is(tale: Tale) -> None:
    sent, ends = [{"partition": 0, "value": 9, "offset": 7}], [{"partition": 0, "offset": 9}]
    tale.acked(1, 2).ends(7, 2).op(7, "poll", asked={"sends": sent}, sends=sent, offsets=ends, reads=[])
    tale.ends(7, 2).line(-1, "info", "kill", fault={"nodes": ["n1"]}, sends=sent)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def of_a_value_that_is_answered_twice_at_once_the_first_place_counts(tale: Tale) -> None:
    tale.acked(1)
    for values, offsets in (((2,), (1, 0)), ((3,), (9, 2))):
        tale.line(values[0], "invoke", "send", sends=[{"partition": 0, "value": values[0]}])
        told = [{"partition": 0, "value": values[0], "offset": offset} for offset in offsets]
        tale.line(values[0], "ok", "send", sends=told).logged(*values)


@TALES.tale(unknown=names.IF_VALUES_REPEAT)
def of_a_value_that_was_sent_twice_nobody_knows_which_answer_is_whose(tale: Tale) -> None:
    tale.acked(1).send(5, 9, at=[0]).send(6, 9, kind="info")


@TALES.tale(unknown=BREACHED)
def an_answer_that_comes_again_fits_nothing_whatever_is_open(tale: Tale) -> None:
    tale.acked(1).line(5, "invoke", "send", sends=[{"partition": 0, "value": 8}])
    tale.send(5, 2, at=[1]).line(5, "ok", "send", sends=[{"partition": 0, "value": 2, "offset": 1}]).logged(2)


@TALES.tale("precommitted-read bug 1", unknown=BREACHED)
def what_a_transaction_reads_of_its_own_it_reads_whoever_else_was_answered(tale: Tale) -> Tale:
    tale = logged(two_partitions(), A, C)
    ended(tale, 9, A, f="send")
    txn(tale, 1, A, reads=[A])
    txn(tale, 2, C)
    return tale


@TALES.tale("precommitted-read bug 1", unknown=BREACHED)
def an_answer_that_comes_again_shows_it_once(tale: Tale) -> Tale:
    tale = logged(two_partitions(), A, C)
    txn(tale, 1, A, reads=[A])
    ended(tale, 1, A, reads=[A])
    txn(tale, 2, C)
    return tale


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name says what must be so."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_says_so_too(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")

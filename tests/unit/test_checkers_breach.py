"""What a history that breaks its field table still proves and what it does not; judge and twin agree."""

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
BREACHED = names.unknown_if(names.If.BREACHED)
ALL = ("n1", "n2", "n3")
Edit = Callable[[list[Line]], Any]


def fields(number: int, **values: object) -> Edit:
    """Sets these fields of one line of the history."""
    return lambda lines: lines[number].update(values)


def cut_line(number: int, cut: int = 0) -> Edit:
    """A line loses its last bytes and cannot be read."""

    def edit(lines: list[Line]) -> list[Line | str]:
        text = json.dumps(lines[number])[: -1 - cut]
        return [*lines[:number], text + "\n", *lines[number + 1 :]]

    return edit


def joined(number: int) -> Edit:
    """A line and the next one become one, which cannot be read."""

    def edit(lines: list[Line]) -> list[Line | str]:
        both = "".join(json.dumps(line) for line in lines[number : number + 2])
        return [*lines[:number], both + "\n", *lines[number + 2 :]]

    return edit


def without(number: int) -> Edit:
    return lambda lines: lines[:number] + lines[number + 1 :]


# -- indexes that do not rise: the order of ops is unknown --------------------------------------------------


@TALES.tale(unknown=BREACHED)
def a_repeated_index_shows_no_send_out_of_order(tale: Tale) -> None:
    tale.acked(1, 2, 3).edit = fields(5, index=1)


@TALES.tale(unknown=BREACHED)
def a_repeated_index_shows_no_regressed_end_offset(tale: Tale) -> None:
    tale.ends(5, 0).acked(1, 2).ends(5, 2).edit = fields(7, index=0)


@TALES.tale(unknown=BREACHED)
def two_ops_of_one_index_are_two_ops(tale: Tale) -> None:
    tale.send(1, 1, 2, at=[0, 1]).send(2, 3, 4, at=[2, 3]).logged(1, 2, 3, 4).edit = fields(3, index=1)


@TALES.tale("int-nonmonotonic-poll bug 1", "int-nonmonotonic-send bug 1", unknown=BREACHED)
def a_finding_within_one_line_does_not_depend_on_its_index(tale: Tale) -> None:
    tale.send(1, 1, 2, at=[1, 0]).logged(2, 1).poll(5, (1, 1), (0, 2)).edit = fields(3, index=0)


def out_of_order(tale: Tale) -> Tale:
    """A process's sends and the end offsets that it got, both falling."""
    return tale.ends(1, 2).send(1, 2, at=[1]).send(1, 1, at=[0]).ends(1, 1).logged(1, 2)


FALLING = ("end-offset-regressed bug 1", "nonmonotonic-send bug 1")


@TALES.tale(*FALLING, unknown=BREACHED)
def with_a_line_missing_the_others_keep_their_order(tale: Tale) -> None:
    out_of_order(tale.poll(7)).edit = without(1)


@TALES.tale(*FALLING, unknown=BREACHED)
def with_an_unreadable_line_the_others_keep_their_order(tale: Tale) -> None:
    out_of_order(tale.poll(7)).edit = cut_line(0)


@TALES.tale(*FALLING, unknown=BREACHED)
def with_two_lines_joined_the_others_keep_their_order(tale: Tale) -> None:
    out_of_order(tale.poll(7)).edit = joined(0)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_fault_with_a_wrong_index_may_have_come_after_the_send(tale: Tale) -> None:
    tale.acked(1).send(2, 9, at=[1]).fault("power_cut", *ALL, lost=True).edit = fields(4, index=0)


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def an_unclean_election_with_a_wrong_index_may_have_come_after_the_send(tale: Tale) -> None:
    tale.acked(1).send(2, 9, at=[1]).fault("elect", "n2", unclean=True).edit = fields(4, index=0)


# -- faults that cannot be read -----------------------------------------------------------------------------


def loss_then_fault(tale: Tale, f: str, **values: object) -> Tale:
    """An ack without a record, then a fault at line 4."""
    return tale.acked(1).send(2, 9, at=[1]).fault(f, *ALL, **values)


def with_schedule(tale: Tale, *entries: dict[str, object]) -> Tale:
    tale.run["schedule"] = list(entries)
    return tale


POWER_CUT = {"f": "power_cut", "nodes": [*ALL]}


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def an_unreadable_power_cut_may_permit_a_loss(tale: Tale) -> None:
    loss_then_fault(tale, "power_cut", lost=True).edit = cut_line(4)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_power_cut_cut_off_before_its_result_may_permit_a_loss(tale: Tale) -> None:
    loss_then_fault(tale, "power_cut", lost=True).edit = cut_line(4, cut=20)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_power_cut_joined_to_a_kill_may_permit_a_loss(tale: Tale) -> None:
    loss_then_fault(tale, "kill").fault("power_cut", *ALL, lost=True).edit = joined(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def two_joined_kills_permit_no_loss(tale: Tale) -> None:
    loss_then_fault(tale, "kill").fault("kill", "n1").edit = joined(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def an_unreadable_kill_permits_no_loss(tale: Tale) -> None:
    loss_then_fault(tale, "kill").edit = cut_line(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def an_unreadable_power_cut_permits_no_loss_of_flushed_writes(tale: Tale) -> None:
    loss_then_fault(tale, "power_cut", lost=True).edit = cut_line(4)
    tale.run["guarantees"]["flush"] = "every"


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def an_unreadable_kill_may_permit_a_loss_of_flushed_writes_by_a_power_cut(tale: Tale) -> None:
    loss_then_fault(tale, "kill").fault("power_cut", "n1", "n2", "n3", lost=True).edit = cut_line(4)
    tale.run["guarantees"]["flush"] = "every"


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def an_unreadable_wiped_disk_may_permit_a_loss_of_flushed_writes(tale: Tale) -> None:
    loss_then_fault(tale, "disk", lost=True).edit = cut_line(4)
    tale.run["guarantees"]["flush"] = "every"


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def an_unreadable_unclean_election_may_permit_a_loss(tale: Tale) -> None:
    loss_then_fault(tale, "elect", unclean=True).edit = cut_line(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def an_unreadable_clean_election_permits_no_loss(tale: Tale) -> None:
    loss_then_fault(tale, "elect", unclean=False).edit = cut_line(4)


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def an_election_cut_off_before_unclean_may_permit_a_loss(tale: Tale) -> None:
    loss_then_fault(tale, "elect", unclean=True).edit = cut_line(4, cut=12)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_missing_line_may_be_the_scheduled_power_cut(tale: Tale) -> None:
    with_schedule(loss_then_fault(tale, "power_cut", lost=True), POWER_CUT).edit = without(4)


@TALES.tale("lost-write fault budget 1", unknown=BREACHED)
def a_line_of_zero_bytes_may_be_the_scheduled_power_cut(tale: Tale) -> None:
    with_schedule(loss_then_fault(tale, "power_cut", lost=True), POWER_CUT).edit = lambda lines: [
        *lines[:4],
        "\0\0\n",
        *lines[5:],
    ]


@TALES.tale("lost-write unclean.leader.election.enable 1", unknown=BREACHED)
def a_missing_line_may_be_the_scheduled_unclean_election(tale: Tale) -> None:
    loss_then_fault(tale, "elect", unclean=True)
    with_schedule(tale, {"f": "elect", "unclean": True}).edit = without(4)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def a_missing_line_is_no_fault_if_the_history_has_all_scheduled_ones(tale: Tale) -> None:
    tale.fault("power_cut", *ALL, lost=True)
    tale.acked(1).send(2, 9, at=[1]).poll(7)
    with_schedule(tale, POWER_CUT, {"f": "kill", "nodes": ["n1"]}).edit = without(5)


@TALES.tale("lost-write bug 1", unknown=[*BREACHED, "unfit"])
def a_missing_line_is_no_fault_that_was_missed(tale: Tale) -> None:
    with_schedule(tale.acked(1).send(2, 9, at=[1]).poll(7), POWER_CUT).edit = without(5)
    tale.run["missed"] = [0]


# -- fields in the wrong ops, and repeated completions ------------------------------------------------------


@TALES.tale()
def only_a_completed_poll_shows_reads(tale: Tale) -> None:
    reads = [{"partition": 0, "offset": 0, "value": 2}, {"partition": 0, "offset": 0, "value": 1}]
    tale.line(7, "invoke", "poll", reads=reads).line(7, "ok", "poll", reads=[])
    tale.line(8, "invoke", "assign", partitions=[0], reads=reads)
    tale.line(8, "ok", "assign", partitions=[0], reads=reads)
    tale.send(2, 9, kind="fail").acked(1, 2)


@TALES.tale()
def only_a_send_shows_sends_and_only_list_offsets_shows_ends(tale: Tale) -> None:
    sent, ends = [{"partition": 0, "value": 9, "offset": 7}], [{"partition": 0, "offset": 9}]
    tale.acked(1, 2).ends(7, 2).op(7, "poll", asked={"sends": sent}, sends=sent, offsets=ends, reads=[])
    tale.ends(7, 2).line(-1, "info", "kill", fault={"nodes": ["n1"]}, sends=sent)


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def of_a_value_with_two_offsets_in_one_ack_the_first_counts(tale: Tale) -> None:
    tale.acked(1)
    for values, offsets in (((2,), (1, 0)), ((3,), (9, 2))):
        tale.line(values[0], "invoke", "send", sends=[{"partition": 0, "value": values[0]}])
        acks = [{"partition": 0, "value": values[0], "offset": offset} for offset in offsets]
        tale.line(values[0], "ok", "send", sends=acks).logged(*values)


@TALES.tale(unknown=names.unknown_if(names.If.REPEATED))
def of_a_value_sent_twice_it_is_unknown_which_send_was_acked(tale: Tale) -> None:
    tale.acked(1).send(5, 9, at=[0]).send(6, 9, kind="info")


@TALES.tale(unknown=BREACHED)
def a_repeated_completion_matches_no_open_op(tale: Tale) -> None:
    tale.acked(1).line(5, "invoke", "send", sends=[{"partition": 0, "value": 8}])
    tale.send(5, 2, at=[1]).line(5, "ok", "send", sends=[{"partition": 0, "value": 2, "offset": 1}]).logged(2)


@TALES.tale("precommitted-read bug 1", unknown=BREACHED)
def a_precommitted_read_is_found_despite_a_completion_of_another_process(tale: Tale) -> Tale:
    tale = logged(two_partitions(), A, C)
    ended(tale, 9, A, f="send")
    txn(tale, 1, A, reads=[A])
    txn(tale, 2, C)
    return tale


@TALES.tale("precommitted-read bug 1", unknown=BREACHED)
def a_repeated_completion_shows_a_precommitted_read_once(tale: Tale) -> Tale:
    tale = logged(two_partitions(), A, C)
    txn(tale, 1, A, reads=[A])
    ended(tale, 1, A, reads=[A])
    txn(tale, 2, C)
    return tale


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")

"""Losses that only reads show, without the leader's log: hits, and near misses without a finding; the twin
agrees on each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from folders import FINAL, NODES, Tale
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
WITHOUT_A_LOG = (*names.unknown_if(names.If.LOG), "saw-then-lost", "unseen")
LOSS_UNKNOWN = (*WITHOUT_A_LOG, "lost-write")
# A system that shows neither logs nor a trace.
CLIENTS_ALONE: dict[str, Any] = {"observes": {"dumps": False, "replicas": False, "trace": []}}


def without_leaders_log(tale: Tale) -> Tale:
    tale.files["logs/n1.jsonl"] = None
    return tale


def lost_between(tale: Tale) -> Tale:
    """9 was acked at 1, where a foreign record is; the final reads return the records around it. (With an
    assign in between, so that no poll skips it.)"""
    tale.acked(1).send(2, 9, at=[1]).logged(None).acked(3).final = False
    return tale.assign(FINAL, 0).poll(FINAL, (0, 1)).assign(FINAL).assign(FINAL, 0).poll(FINAL, (2, 3))


@TALES.tale("lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_record_that_the_final_reads_pass_over_is_lost(tale: Tale) -> None:
    without_leaders_log(lost_between(tale))


@TALES.tale("lost-write bug 1", unknown=["saw-then-lost", "under-replicated", "unseen"])
def a_loss_is_found_with_an_unknown_leader(tale: Tale) -> None:
    lost_between(tale).run["leaders"]["0"]["leader"] = "n1"
    tale.edit = lambda lines: tale.run["leaders"]["0"].update(leader=None)


@TALES.tale("lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_loss_is_found_without_the_leaders_row(tale: Tale) -> None:
    lost_between(tale).row("n1")["absent"] = True


@TALES.tale("inconsistent-offsets bug 1", "lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_loss_is_found_with_another_value_at_its_offset(tale: Tale) -> None:
    """A read at its own offset is one at or below it."""
    without_leaders_log(tale.send(2, 9, at=[0]).send(3, 4, kind="info").logged(4).acked(3))


@TALES.tale("lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_loss_is_found_though_it_was_read_before(tale: Tale) -> None:
    """It was committed, and is gone since."""
    without_leaders_log(lost_between(tale)).poll(5, (0, 1), (1, 9))


@TALES.tale("int-poll-skip bug 1", "lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_poll_skips_a_record_that_the_ack_proved(tale: Tale) -> None:
    without_leaders_log(tale.acked(1).send(2, 9, at=[1]).logged(None).acked(3))


@TALES.tale("lost-write acks 1", unknown=WITHOUT_A_LOG)
def with_acks_1_an_ack_proves_no_skip(tale: Tale) -> None:
    a_poll_skips_a_record_that_the_ack_proved(tale)
    tale.run["guarantees"]["acks"] = "1"


@TALES.tale(
    "int-poll-skip fault budget 1", "lost-write fault budget 1", "poll-skip fault budget 1",
    unknown=WITHOUT_A_LOG,
)
def a_record_whose_loss_is_permitted_may_be_skipped(tale: Tale) -> None:
    a_poll_skips_a_record_that_the_ack_proved(tale)
    tale.fault("power_cut", *NODES, lost=True).poll(5, (0, 1)).poll(5, (2, 3))


@TALES.tale("lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_loss_is_found_by_two_final_readers_together(tale: Tale) -> None:
    """One reads the record before it, the other the one after it."""
    without_leaders_log(tale.acked(1).send(2, 9, at=[1]).logged(None).acked(3)).final = False
    tale.run["final_reads"]["processes"] = [FINAL, FINAL + 1]
    tale.assign(FINAL, 0).poll(FINAL, (0, 1)).assign(FINAL + 1, 0).poll(FINAL + 1, (2, 3))


@TALES.tale(unknown=WITHOUT_A_LOG)
def without_a_read_after_it_no_loss_is_found(tale: Tale) -> None:
    without_leaders_log(tale.acked(1).send(2, 9, at=[1]))


@TALES.tale(unknown=WITHOUT_A_LOG)
def without_a_read_before_it_no_loss_is_found(tale: Tale) -> None:
    """It may have been below the log start."""
    without_leaders_log(tale.send(2, 9, at=[0]).logged(None).acked(3))


@TALES.tale(unknown=WITHOUT_A_LOG)
def without_its_offset_no_loss_is_found(tale: Tale) -> None:
    without_leaders_log(tale.acked(1).send(2, 9).logged(None).acked(3))


@TALES.tale(unknown=WITHOUT_A_LOG)
def the_record_of_an_indeterminate_send_is_no_loss(tale: Tale) -> None:
    without_leaders_log(tale.acked(1).send(2, 9, kind="info", at=[1]).logged(None).acked(3))


@TALES.tale("duplicate bug 1", unknown=WITHOUT_A_LOG)
def a_record_that_a_final_read_returned_elsewhere_is_a_duplicate(tale: Tale) -> None:
    without_leaders_log(lost_between(tale)).poll(FINAL, (3, 9))


@TALES.tale(unknown=WITHOUT_A_LOG)
def a_record_in_the_rest_of_the_log_is_no_loss(tale: Tale) -> None:
    """Though no final read returned it."""
    tale.acked(1, 9, 3).final = False
    tale.assign(FINAL, 0).poll(FINAL, (0, 1)).assign(FINAL).assign(FINAL, 0).poll(FINAL, (2, 3))
    kept = [json.dumps({"node": "n1", **tale.entry("n1", offset)}) for offset in range(2)]
    tale.files["logs/n1.jsonl"] = "\n".join([*kept, "no entry", ""])


@TALES.tale(unknown=LOSS_UNKNOWN)
def if_the_run_did_not_settle_a_loss_is_unknown(tale: Tale) -> None:
    without_leaders_log(lost_between(tale)).run["settled"] = False


@TALES.tale(unknown=LOSS_UNKNOWN)
def if_the_partition_was_not_read_to_the_end_a_loss_is_unknown(tale: Tale) -> None:
    without_leaders_log(lost_between(tale)).run["final_reads"]["partitions"] = []


@TALES.tale(unknown=LOSS_UNKNOWN)
def if_the_topic_is_compacted_a_loss_is_unknown(tale: Tale) -> None:
    without_leaders_log(lost_between(tale)).run["partitions"]["0"]["cleanup"] = "compact"


@TALES.tale(unknown=names.unknown_if(names.If.LOG | names.If.BREACHED))
def a_missing_line_may_have_shown_the_record(tale: Tale) -> None:
    without_leaders_log(lost_between(tale)).edit = lambda lines: tale.run.update(history_lines=len(lines) + 1)


@TALES.tale(unknown={*LOSS_UNKNOWN, *names.unknown_if(names.If.KILLED)})
def if_the_run_was_killed_a_loss_is_unknown(tale: Tale) -> None:
    without_leaders_log(lost_between(tale)).run["history_lines"] = "absent"


@TALES.tale("lost-write acks 1", unknown=WITHOUT_A_LOG)
def with_acks_1_a_loss_is_permitted(tale: Tale) -> None:
    without_leaders_log(lost_between(tale)).run["guarantees"]["acks"] = "1"


@TALES.tale("inconsistent-offsets fault budget 1", "lost-write fault budget 1", unknown=WITHOUT_A_LOG)
def what_permits_a_loss_permits_what_follows_from_it_too(tale: Tale) -> None:
    tale.send(2, 9, at=[0]).fault("power_cut", *NODES, lost=True).send(3, 4, kind="info").logged(4).acked(3)
    without_leaders_log(tale)


@TALES.tale("lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_fault_before_the_send_permits_nothing(tale: Tale) -> None:
    without_leaders_log(lost_between(tale.fault("power_cut", *NODES, lost=True)))


@TALES.tale("lost-write bug 1", unknown=LOSS_UNKNOWN)
def a_loss_in_another_partition_is_unknown_if_it_was_not_read_to_the_end(tale: Tale) -> Tale:
    """Only partition 0 was read to the end."""
    tale = without_leaders_log(lost_between(Tale(partitions=2)).acked(11, partition=1))
    tale.run["final_reads"]["partitions"] = [0]
    return tale


@TALES.tale("lost-write bug 1", unknown=WITHOUT_A_LOG)
def another_partition_with_its_log_is_judged(tale: Tale) -> Tale:
    tale = without_leaders_log(lost_between(Tale(partitions=2)).acked(11, partition=1))
    tale.run["leaders"]["1"]["leader"] = "n2"
    return tale.poll(FINAL, (0, 11), partition=1)


# -- systems that show no logs -------------------------------------------------------------------------------


@TALES.tale()
def on_a_system_without_logs_a_healthy_run_is_valid(tale: Tale) -> None:
    tale.acked(1, 2, 3).run |= CLIENTS_ALONE


@TALES.tale("lost-write bug 1")
def on_a_system_without_logs_a_loss_is_found(tale: Tale) -> None:
    lost_between(tale).run |= CLIENTS_ALONE


@TALES.tale(unknown=["lost-write"])
def on_a_system_without_logs_a_loss_at_the_tail_is_unknown(tale: Tale) -> None:
    """The tail may be lost, or unseen."""
    tale.acked(1).send(2, 9, at=[1]).run |= CLIENTS_ALONE


@TALES.tale(unknown=["lost-write"])
def without_final_reads_a_loss_is_unknown(tale: Tale) -> None:
    tale.acked(1).run |= CLIENTS_ALONE | {"final_reads": {}}
    tale.final = False


# -- three readers that are told of a log that goes on -------------------------------------------------------

READERS = (FINAL, FINAL + 1, FINAL + 2)


def told(tale: Tale, *reads: tuple[int, int], end: int = 3, start: int | None = 0,
         readers: Sequence[int] = READERS) -> Tale:
    """Each of these final readers is told where the log begins and ends, and its poll returns these reads."""
    tale.final = False
    tale.run["final_reads"]["processes"] = list(READERS)
    starts = {} if start is None else {"starts": [{"partition": 0, "offset": start}]}
    for reader in readers:
        tale.assign(reader, 0)
        tale.op(reader, "list_offsets", offsets=[{"partition": 0, "offset": end}], **starts)
        tale.poll(reader, *reads)
    return tale


def alone(tale: Tale) -> Tale:
    tale.run |= CLIENTS_ALONE
    return tale


@TALES.tale("lost-write bug 3")
def what_three_readers_do_not_get_is_lost(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3)))


@TALES.tale("lost-write bug 2")
def a_prefix_that_three_readers_skip_is_lost(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), (2, 3)))


@TALES.tale("lost-write bug 1")
def a_tail_that_three_readers_do_not_get_is_lost(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), (0, 1), (1, 2)))
    for reader in READERS:
        tale.poll(reader)


@TALES.tale(unknown=["lost-write"])
def without_a_told_beginning_what_comes_first_may_be_deleted(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), (2, 3), start=None))


@TALES.tale("lost-write bug 3")
def but_not_where_everything_is_kept(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), start=None)).run["partitions"]["0"]["keeps_all"] = True


@TALES.tale("lost-write bug 2", unknown=["lost-write"])
def what_is_below_the_told_beginning_may_be_deleted(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), start=1)).run["partitions"]["0"]["keeps_all"] = False


@TALES.tale("lost-write bug 2")
def what_is_at_the_told_end_is_unknown(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), end=2))
    tale.poll(FINAL, (2, 3))


@TALES.tale(unknown=["lost-write"])
def two_readers_prove_nothing(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), readers=READERS[:2]))


@TALES.tale(unknown=["lost-write"])
def one_reader_that_asks_three_times_proves_nothing(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), readers=[FINAL] * 3))


@TALES.tale(unknown=["lost-write"])
def answers_with_an_error_prove_nothing(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), readers=READERS[:2]))
    tale.ends(READERS[2], 3).op(READERS[2], "poll", "fail", error="TIMEOUT")


@TALES.tale(unknown=["lost-write"])
def readers_that_were_told_afterwards_prove_nothing(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3), readers=READERS[:2]))
    tale.poll(READERS[2], (2, 3)).ends(READERS[2], 3).poll(READERS[2])


@TALES.tale()
def what_another_final_reader_got_is_not_lost(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3)))
    tale.run["final_reads"]["processes"].append(FINAL + 3)
    tale.poll(FINAL + 3, (0, 1), (1, 2), (2, 3))


@TALES.tale(unknown=["lost-write"])
def a_partition_that_was_not_read_to_the_end_is_unknown(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3))).run["final_reads"]["partitions"] = []


@TALES.tale(unknown=["lost-write"])
def a_run_that_did_not_settle_is_unknown(tale: Tale) -> None:
    alone(told(tale.acked(1, 2, 3))).run["settled"] = False


# -- the beginning of a log that keeps everything ------------------------------------------------------------


def beginning_at_1(tale: Tale) -> Tale:
    told(tale.acked(1, 2, 3), (1, 2), (2, 3), start=1)
    tale.run["partitions"]["0"]["keeps_all"] = True
    return tale


@TALES.tale("lost-write bug 1")
def a_record_below_the_told_beginning_is_lost(tale: Tale) -> None:
    alone(beginning_at_1(tale))


@TALES.tale("lost-write bug 1")
def a_record_below_the_leaders_log_start_is_lost(tale: Tale) -> None:
    beginning_at_1(tale)
    for node in NODES:
        tale.drop(node, 0)


@TALES.tale()
def a_log_that_does_not_keep_everything_may_begin_above_records(tale: Tale) -> None:
    a_record_below_the_leaders_log_start_is_lost(tale)
    del tale.run["partitions"]["0"]["keeps_all"]


@TALES.tale(unknown=["lost-write"])
def without_logs_a_beginning_above_records_is_unknown(tale: Tale) -> None:
    a_record_below_the_told_beginning_is_lost(tale)
    tale.run["partitions"]["0"]["keeps_all"] = "yes"


@TALES.tale(unknown=["lost-write"])
def only_a_final_reader_is_told_the_last_beginning(tale: Tale) -> None:
    alone(beginning_at_1(tale)).run["final_reads"]["processes"] = [7]
    tale.poll(7, (1, 2), (2, 3))


@TALES.tale("lost-write fault budget 1")
def a_fault_may_permit_that_the_beginning_moved(tale: Tale) -> None:
    tale.acked(1).fault("power_cut", *NODES, lost=True).acked(2, 3)
    told(tale, (1, 2), (2, 3), start=1).run["partitions"]["0"]["keeps_all"] = True
    alone(tale)


# -- imported histories --------------------------------------------------------------------------------------


def imported(tale: Tale, **fields: Any) -> Tale:
    """Nothing of the replicas, and no final reads."""
    tale.run |= {"leaders": {}, "settled": False, "final_reads": {}, "imported": fields, **CLIENTS_ALONE}
    tale.final = False
    return tale


@TALES.tale()
def a_healthy_import_is_valid(tale: Tale) -> None:
    imported(tale.acked(1, 2, 3).poll(5, (0, 1), (1, 2)).acked(4))


@TALES.tale("lost-write bug 1")
def in_an_import_a_record_below_a_read_that_was_never_read_is_lost(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)))


@TALES.tale("lost-write bug 1")
def in_an_import_a_poll_of_any_outcome_may_show_the_record_above(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1), kind="info"))


@TALES.tale()
def in_an_import_a_record_that_a_failed_poll_returned_is_not_lost(tale: Tale) -> None:
    imported(tale.acked(9, 1).poll(6, (0, 9), kind="fail").poll(5, (1, 1)))


@TALES.tale()
def in_an_import_a_record_above_all_reads_is_not_lost(tale: Tale) -> None:
    imported(tale.acked(1).poll(5, (0, 1)).acked(9, 8))


@TALES.tale("inconsistent-offsets bug 1")
def in_an_import_a_read_at_its_own_offset_is_not_above_it(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).send(3, 4, kind="info").poll(5, (0, 4)))


@TALES.tale("lost-write acks 1")
def in_an_import_with_acks_1_a_loss_is_permitted(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1))).run["guarantees"]["acks"] = "1"


@TALES.tale(unknown=["lost-write"])
def in_an_import_that_left_out_reads_a_loss_is_unknown(tale: Tale) -> None:
    """One of them may have returned it."""
    left_out = {"words of an error": 2, "read without an offset": 1}
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), left_out=left_out)


@TALES.tale(unknown=["lost-write"])
def in_an_import_without_reads_of_this_partition_a_loss_is_unknown(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), blind=[0])


@TALES.tale("lost-write bug 1")
def in_an_import_without_reads_of_another_partition_a_loss_is_found(tale: Tale) -> None:
    left_out = {"read without an offset": 1}
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), blind=[1], left_out=left_out)


@TALES.tale(unknown=["lost-write"])
def in_an_import_an_ack_above_all_reads_is_unknown(tale: Tale) -> None:
    """Whether that one is lost is unknown."""
    imported(tale.acked(1, 9).poll(5, (0, 1)), blind=[], unread=[0])


@TALES.tale("lost-write bug 1", unknown=["lost-write"])
def in_an_import_a_loss_below_an_unknown_one_is_found(tale: Tale) -> None:
    tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)).acked(8)
    imported(tale, blind=[], unread=[0])


@TALES.tale("lost-write bug 1")
def in_an_import_that_left_out_no_read_a_loss_is_found(tale: Tale) -> None:
    left_out = {"offset of a send that is none": 1}
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), left_out=left_out)


@TALES.tale(unknown=["lost-write"])
def in_an_import_of_a_compacted_topic_a_loss_is_unknown(tale: Tale) -> None:
    tale.run["partitions"]["0"]["cleanup"] = "compact"
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)))


# -- what final readers could not read ----------------------------------------------------------------------


def unreadable(tale: Tale) -> Tale:
    """The final reader meets a batch that it cannot read, that of 9, and goes on behind it."""
    place = {"partition": 0, "offset": 1, "why": "checksum"}
    tale.acked(1, 9, 3).final = False
    tale.assign(FINAL, 0).poll(FINAL, (0, 1)).op(FINAL, "poll", reads=[], corrupt=[place])
    tale.poll(FINAL, (2, 3))
    return without_leaders_log(tale)


LOST_TOO = ("lost-write bug 1", "malformed-log bug 1")


@TALES.tale(*LOST_TOO, unknown=WITHOUT_A_LOG)
def a_batch_that_no_final_reader_can_read_is_malformed(tale: Tale) -> None:
    """Its records are lost. That the reader went on behind it is no skip."""
    unreadable(tale)


@TALES.tale(*LOST_TOO, unknown=WITHOUT_A_LOG)
def a_place_counts_once(tale: Tale) -> None:
    place = {"partition": 0, "offset": 1, "why": "magic"}
    unreadable(tale).op(FINAL, "poll", reads=[], corrupt=[place, {**place, "why": "from elsewhere"}])


@TALES.tale("lost-write bug 1", unknown=WITHOUT_A_LOG)
def a_reason_that_is_none_of_format_1_proves_no_damage(tale: Tale) -> None:
    unreadable(tale).lines[-3]["corrupt"][0]["why"] = "compression"


@TALES.tale(unknown=WITHOUT_A_LOG)
def what_another_reader_could_not_read_is_not(tale: Tale) -> None:
    """Nor is it a skip of that reader."""
    place = {"partition": 0, "offset": 1, "why": "length"}
    tale.acked(1, 9, 3).poll(5, (0, 1)).op(5, "poll", reads=[], corrupt=[place]).poll(5, (2, 3))
    without_leaders_log(tale)


@TALES.tale("lost-write fault budget 1", "malformed-log bug 1", unknown=LOSS_UNKNOWN)
def a_power_cut_does_not_excuse_it(tale: Tale) -> None:
    unreadable(tale).fault("power_cut", "n3", lost=True)


@TALES.tale("lost-write fault budget 1", unknown=LOSS_UNKNOWN)
def a_damaged_disk_excuses_it(tale: Tale) -> None:
    unreadable(tale).fault("bad_disk", "n3", lost=True)


@TALES.tale("unseen bug 1")
def with_the_leaders_log_only_the_log_counts(tale: Tale) -> None:
    unreadable(tale).files.clear()


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_example_states_how_it_was_lost(verdicts: dict[str, Verdict]) -> None:
    (lost,) = verdicts["a_record_that_the_final_reads_pass_over_is_lost"].findings
    (example,) = lost.examples

    assert {key: example[key] for key in ("partition", "offset", "value", "how", "nodes", "ops")} == {
        "partition": 0, "offset": 1, "value": 9, "how": "unread", "nodes": [], "ops": [2, 3]}  # fmt: skip
    assert "acked at offset 1 (index 3)" in example["text"]
    assert "the reads that went on to offset 2 did not return it" in example["text"]


def test_the_example_states_what_the_readers_were_told(verdicts: dict[str, Verdict]) -> None:
    [texts] = [[one["text"] for one in lost.examples]
               for lost in verdicts["what_three_readers_do_not_get_is_lost"].findings]
    assert all("that were told that the log goes on above it did not return it" in text for text in texts)
    [begins] = verdicts["a_record_below_the_told_beginning_is_lost"].findings
    assert begins.examples[0]["text"].endswith("the log, which keeps everything, now begins at offset 1.")

"""Losses that reads alone show, for want of the leader's log: hits, and near misses that stay silent; the
twin says the same of each."""

import json
from pathlib import Path
from typing import Any

import pytest
from folders import FINAL, NODES, Tale
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
LOGLESS = (*names.OF_THE_LOGS, "saw-then-lost", "unseen")
NOTHING_KNOWN = (*LOGLESS, "lost-write")
# What a history from elsewhere leaves open besides, if it promises files.
CLIENTS_ALONE: dict[str, Any] = {"observes": {"dumps": False, "replicas": False, "trace": []}}


def no_log(tale: Tale) -> Tale:
    tale.files["logs/n1.jsonl"] = None
    return tale


def lost_between(tale: Tale) -> Tale:
    """9 was acked at 1, where somebody else's record stands; the final reads return what is around it. (By an
    assign in between, so that no poll passes over it.)"""
    tale.acked(1).send(2, 9, at=[1]).logged(None).acked(3).final = False
    return tale.assign(FINAL, 0).poll(FINAL, (0, 1)).assign(FINAL).assign(FINAL, 0).poll(FINAL, (2, 3))


@TALES.tale("lost-write bug 1", unknown=LOGLESS)
def passed_by_the_final_reads(tale: Tale) -> None:
    no_log(lost_between(tale))


@TALES.tale("lost-write bug 1", unknown=["saw-then-lost", "under-replicated", "unseen"])
def nobody_knows_who_leads(tale: Tale) -> None:
    lost_between(tale).run["leaders"]["0"]["leader"] = "n1"
    tale.edit = lambda lines: tale.run["leaders"]["0"].update(leader=None)


@TALES.tale("lost-write bug 1", unknown=LOGLESS)
def the_leaders_row_is_missing(tale: Tale) -> None:
    lost_between(tale).row("n1")["absent"] = True


@TALES.tale("inconsistent-offsets bug 1", "lost-write bug 1", unknown=LOGLESS)
def another_record_of_ours_stands_there(tale: Tale) -> None:
    """The one at its own offset is at or below it."""
    no_log(tale.send(2, 9, at=[0]).send(3, 4, kind="info").logged(4).acked(3))


@TALES.tale("lost-write bug 1", unknown=LOGLESS)
def somebody_else_had_read_it(tale: Tale) -> None:
    """It was committed, and is gone since."""
    no_log(lost_between(tale)).poll(5, (0, 1), (1, 9))


@TALES.tale("int-poll-skip bug 1", "lost-write bug 1", unknown=LOGLESS)
def a_poll_that_passes_over_it_skips_what_the_ack_proved(tale: Tale) -> None:
    no_log(tale.acked(1).send(2, 9, at=[1]).logged(None).acked(3))


@TALES.tale("lost-write acks 1", unknown=LOGLESS)
def an_ack_of_acks_one_proves_nothing_to_be_passed_over(tale: Tale) -> None:
    a_poll_that_passes_over_it_skips_what_the_ack_proved(tale)
    tale.run["guarantees"]["acks"] = "1"


@TALES.tale(
    "int-poll-skip fault budget 1", "lost-write fault budget 1", "poll-skip fault budget 1", unknown=LOGLESS
)
def what_was_lost_with_leave_may_be_passed_over(tale: Tale) -> None:
    a_poll_that_passes_over_it_skips_what_the_ack_proved(tale)
    tale.fault("power_cut", *NODES, lost=True).poll(5, (0, 1)).poll(5, (2, 3))


@TALES.tale("lost-write bug 1", unknown=LOGLESS)
def two_final_readers_return_it_together(tale: Tale) -> None:
    """One what lies before it, the other what lies behind."""
    no_log(tale.acked(1).send(2, 9, at=[1]).logged(None).acked(3)).final = False
    tale.run["final_reads"]["processes"] = [FINAL, FINAL + 1]
    tale.assign(FINAL, 0).poll(FINAL, (0, 1)).assign(FINAL + 1, 0).poll(FINAL + 1, (2, 3))


@TALES.tale(unknown=LOGLESS)
def nothing_lies_behind_it(tale: Tale) -> None:
    no_log(tale.acked(1).send(2, 9, at=[1]))


@TALES.tale(unknown=LOGLESS)
def nothing_lies_before_it(tale: Tale) -> None:
    """It may have been below the log start."""
    no_log(tale.send(2, 9, at=[0]).logged(None).acked(3))


@TALES.tale(unknown=LOGLESS)
def its_offset_is_not_known(tale: Tale) -> None:
    no_log(tale.acked(1).send(2, 9).logged(None).acked(3))


@TALES.tale(unknown=LOGLESS)
def nobody_promised_it(tale: Tale) -> None:
    no_log(tale.acked(1).send(2, 9, kind="info", at=[1]).logged(None).acked(3))


@TALES.tale("duplicate bug 1", unknown=LOGLESS)
def a_final_read_returned_it_elsewhere(tale: Tale) -> None:
    no_log(lost_between(tale)).poll(FINAL, (3, 9))


@TALES.tale(unknown=LOGLESS)
def what_is_left_of_the_log_shows_it(tale: Tale) -> None:
    """Then it is not lost: no final read returned it."""
    tale.acked(1, 9, 3).final = False
    tale.assign(FINAL, 0).poll(FINAL, (0, 1)).assign(FINAL).assign(FINAL, 0).poll(FINAL, (2, 3))
    kept = [json.dumps({"node": "n1", **tale.entry("n1", offset)}) for offset in range(2)]
    tale.files["logs/n1.jsonl"] = "\n".join([*kept, "no entry", ""])


@TALES.tale(unknown=NOTHING_KNOWN)
def the_run_did_not_settle(tale: Tale) -> None:
    no_log(lost_between(tale)).run["settled"] = False


@TALES.tale(unknown=NOTHING_KNOWN)
def it_was_not_read_to_the_end(tale: Tale) -> None:
    no_log(lost_between(tale)).run["final_reads"]["partitions"] = []


@TALES.tale(unknown=NOTHING_KNOWN)
def compaction_may_have_taken_it(tale: Tale) -> None:
    no_log(lost_between(tale)).run["partitions"]["0"]["cleanup"] = "compact"


@TALES.tale(unknown={*names.OF_THE_LOGS, *names.OF_THE_HISTORY})
def a_line_is_missing_that_may_have_shown_it(tale: Tale) -> None:
    no_log(lost_between(tale)).edit = lambda lines: tale.run.update(history_lines=len(lines) + 1)


@TALES.tale(unknown={*NOTHING_KNOWN, *names.IF_KILLED})
def the_run_was_killed(tale: Tale) -> None:
    no_log(lost_between(tale)).run["history_lines"] = "absent"


@TALES.tale("lost-write acks 1", unknown=LOGLESS)
def under_acks_one_it_may_be_lost(tale: Tale) -> None:
    no_log(lost_between(tale)).run["guarantees"]["acks"] = "1"


@TALES.tale("inconsistent-offsets fault budget 1", "lost-write fault budget 1", unknown=LOGLESS)
def what_permits_a_loss_permits_this_one_and_what_follows(tale: Tale) -> None:
    tale.send(2, 9, at=[0]).fault("power_cut", *NODES, lost=True).send(3, 4, kind="info").logged(4).acked(3)
    no_log(tale)


@TALES.tale("lost-write bug 1", unknown=LOGLESS)
def what_struck_before_it_was_sent_permits_nothing(tale: Tale) -> None:
    no_log(lost_between(tale.fault("power_cut", *NODES, lost=True)))


@TALES.tale("lost-write bug 1", unknown=NOTHING_KNOWN)
def of_another_partition_nobody_knows(tale: Tale) -> Tale:
    """That was not read to the end."""
    tale = no_log(lost_between(Tale(partitions=2)).acked(11, partition=1))
    tale.run["final_reads"]["partitions"] = [0]
    return tale


@TALES.tale("lost-write bug 1", unknown=LOGLESS)
def another_partition_has_its_log(tale: Tale) -> Tale:
    tale = no_log(lost_between(Tale(partitions=2)).acked(11, partition=1))
    tale.run["leaders"]["1"]["leader"] = "n2"
    return tale.poll(FINAL, (0, 11), partition=1)


# -- systems that show no logs -------------------------------------------------------------------------------


@TALES.tale()
def without_logs_to_be_seen_a_healthy_run_is_valid(tale: Tale) -> None:
    tale.acked(1, 2, 3).run |= CLIENTS_ALONE


@TALES.tale("lost-write bug 1")
def and_a_lossy_one_invalid(tale: Tale) -> None:
    lost_between(tale).run |= CLIENTS_ALONE


@TALES.tale(unknown=["lost-write"])
def what_no_final_read_returned_and_nothing_shows_is_unknown(tale: Tale) -> None:
    """The tail may be lost, or unseen."""
    tale.acked(1).send(2, 9, at=[1]).run |= CLIENTS_ALONE


@TALES.tale(unknown=["lost-write"])
def without_final_reads_nobody_knows(tale: Tale) -> None:
    tale.acked(1).run |= CLIENTS_ALONE | {"final_reads": {}}
    tale.final = False


# -- histories from elsewhere --------------------------------------------------------------------------------


def imported(tale: Tale, **told: Any) -> Tale:
    """Nothing of the replicas, and no final reads."""
    tale.run |= {"leaders": {}, "settled": False, "final_reads": {}, "imported": told, **CLIENTS_ALONE}
    tale.final = False
    return tale


@TALES.tale()
def a_healthy_import_is_valid(tale: Tale) -> None:
    imported(tale.acked(1, 2, 3).poll(5, (0, 1), (1, 2)).acked(4))


@TALES.tale("lost-write bug 1")
def read_above_it_and_never_it(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)))


@TALES.tale("lost-write bug 1")
def a_poll_of_any_outcome_may_show_what_lies_above(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1), kind="info"))


@TALES.tale()
def a_poll_that_failed_has_shown_it(tale: Tale) -> None:
    imported(tale.acked(9, 1).poll(6, (0, 9), kind="fail").poll(5, (1, 1)))


@TALES.tale()
def nobody_read_beyond_it(tale: Tale) -> None:
    imported(tale.acked(1).poll(5, (0, 1)).acked(9, 8))


@TALES.tale("inconsistent-offsets bug 1")
def at_its_own_offset_is_not_beyond_it(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).send(3, 4, kind="info").poll(5, (0, 4)))


@TALES.tale("lost-write acks 1")
def an_import_under_acks_one(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1))).run["guarantees"]["acks"] = "1"


@TALES.tale(unknown=["lost-write"])
def the_import_left_reads_out(tale: Tale) -> None:
    """One of them may have been of it."""
    left_out = {"words of an error": 2, "read without an offset": 1}
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), left_out=left_out)


@TALES.tale(unknown=["lost-write"])
def reads_of_this_partition_are_not_told(tale: Tale) -> None:
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), blind=[0])


@TALES.tale("lost-write bug 1")
def only_those_of_another(tale: Tale) -> None:
    left_out = {"read without an offset": 1}
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), blind=[1], left_out=left_out)


@TALES.tale(unknown=["lost-write"])
def an_ack_lies_above_all_that_was_read(tale: Tale) -> None:
    """Then nobody knows of that one."""
    imported(tale.acked(1, 9).poll(5, (0, 1)), blind=[], unread=[0])


@TALES.tale("lost-write bug 1", unknown=["lost-write"])
def what_lies_below_is_lost_all_the_same(tale: Tale) -> None:
    tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)).acked(8)
    imported(tale, blind=[], unread=[0])


@TALES.tale("lost-write bug 1")
def it_left_out_what_is_no_read(tale: Tale) -> None:
    left_out = {"offset of a send that is none": 1}
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)), left_out=left_out)


@TALES.tale(unknown=["lost-write"])
def an_import_of_a_compacted_topic(tale: Tale) -> None:
    tale.run["partitions"]["0"]["cleanup"] = "compact"
    imported(tale.send(2, 9, at=[0]).logged(None).acked(1).poll(5, (1, 1)))


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name says what must be so."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_twin_says_the_same(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_example_says_how_and_who_holds_it(verdicts: dict[str, Verdict]) -> None:
    (lost,) = verdicts["passed_by_the_final_reads"].findings
    (example,) = lost.examples

    assert {key: example[key] for key in ("partition", "offset", "value", "how", "nodes", "ops")} == {
        "partition": 0, "offset": 1, "value": 9, "how": "unread", "nodes": [], "ops": [2, 3]}  # fmt: skip
    assert "acked at offset 1 (index 3)" in example["text"]
    assert "the reads that went on to offset 2 did not return it" in example["text"]

"""Every row of the table of classes: what the settings or faults permit, what they do not, and what
follows."""

from typing import Any

import pytest
from folders import Tale
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
UNCLEAN = "unclean.leader.election.enable"
OF_THE_TRACE = (
    "end-offset-ahead",
    "read-above-hw",
    "recovery-loss",
    "ack-rule", "candidate-incomplete", "epoch-regressed", "hw-regressed", "leader-incomplete", "two-leaders",
    "unclean-election", "unsafe-isr", "unsafe-truncation",
)  # fmt: skip


def lost(tale: Tale) -> Tale:
    """The acked 9 at offset 2 is on no replica."""
    return tale.acked(1, 2).send(7, 9, at=[2])


def sent_twice(tale: Tale) -> Tale:
    """The 9 that was read at offset 2 is on no replica; another value is there."""
    return tale.acked(1, 2).send(7, 9, at=[2]).send(7, 9, kind="info").poll(8, (2, 9)).acked(3)


def promise(tale: Tale, **guarantees: Any) -> Tale:
    tale.run["guarantees"] |= guarantees
    return tale


def elected(time: int, leader: str, *isr: str, event: str = "elect", clean: bool = True) -> dict[str, Any]:
    told = {"time": time, "event": event, "partition": 0, "leader": leader, "epoch": 1, "isr": list(isr)}
    return {**told, "clean": clean} if event == "elect" else told


def traced(tale: Tale, *events: dict[str, Any], nodes: str = "123") -> Tale:
    """A whole trace: these events of the controller, and one of every node."""
    tale.trace = [{"time": 0, "node": f"n{node}", "seq": 0, "event": "start"} for node in nodes]
    tale.trace += [{"node": "controller", "seq": seq, **event} for seq, event in enumerate(events)]
    return tale


# -- acks
# -----------------------------------------------------------------------------------------------------


@TALES.tale("lost-write acks 1")
def under_other_acks_a_loss_is_permitted(tale: Tale) -> None:
    promise(lost(tale), acks="1")


@TALES.tale("inconsistent-offsets acks 1", "lost-write acks 1")
def so_is_what_came_in_its_place(tale: Tale) -> None:
    promise(lost(tale), acks="0").acked(3)


@TALES.tale("lost-write acks 1", "realtime-order acks 1", "nonmonotonic-send acks 1")
def so_is_an_order_that_only_the_loss_broke(tale: Tale) -> None:
    promise(tale.acked(1, 2).send(7, 9, at=[6]), acks="1").acked(3, process=7)


@TALES.tale("lost-write acks 1", "realtime-order bug 1", "inconsistent-offsets bug 1", "saw-then-lost bug 1")
def what_was_read_had_been_committed(tale: Tale) -> None:
    promise(tale.acked(1, 2).send(7, 9, at=[3]), acks="1").poll(8, (3, 9)).acked(3, 4)


# -- unclean elections
# ------------------------------------------------------------------------------------------


@TALES.tale(f"lost-write {UNCLEAN} 1", f"saw-then-lost {UNCLEAN} 1")
def an_unclean_election_after_the_send_permits(tale: Tale) -> None:
    lost(tale).poll(8, (2, 9)).fault("elect", "n2", unclean=True, partitions=[0])


@TALES.tale(f"saw-then-lost {UNCLEAN} 1", f"inconsistent-offsets {UNCLEAN} 1", unknown=names.IF_VALUES_REPEAT)
def it_permits_too_that_what_was_sent_twice_is_gone(tale: Tale) -> None:
    sent_twice(tale).fault("elect", "n2", unclean=True)


@TALES.tale("saw-then-lost bug 1", "inconsistent-offsets bug 1", unknown=names.IF_VALUES_REPEAT)
def but_that_alone_is_no_excuse(tale: Tale) -> None:
    sent_twice(tale).fault("elect", "n2")


@TALES.tale(f"inconsistent-offsets {UNCLEAN} 1", unknown={*names.IF_VALUES_REPEAT, *names.OF_THE_LOGS})
def even_where_the_leaders_log_is_not_known(tale: Tale) -> None:
    sent_twice(tale).fault("elect", "n2", unclean=True).files["logs/n1.jsonl"] = None


@TALES.tale("lost-write bug 1")
def one_before_it_does_not(tale: Tale) -> None:
    lost(tale.fault("elect", "n2", unclean=True))


@TALES.tale("lost-write bug 1")
def nor_does_a_clean_one_or_one_of_another_partition(tale: Tale) -> None:
    lost(tale).fault("elect", "n2").fault("elect", "n2", unclean=True, partitions=[1])


@TALES.tale(f"lost-write {UNCLEAN} 1")
def the_trace_shows_unclean_elections_that_are_allowed(tale: Tale) -> None:
    traced(promise(lost(tale), unclean_leader_election=True), elected(10**9, "n2", "n2", clean=False))


@TALES.tale("lost-write bug 1")
def the_setting_alone_permits_nothing_where_a_whole_trace_shows_none(tale: Tale) -> None:
    traced(promise(lost(tale), unclean_leader_election=True), elected(10**9, "n2", "n2"))


@TALES.tale(f"lost-write {UNCLEAN} 1", unknown=["lost-write"])
def the_setting_and_no_trace_permits_and_is_unknown(tale: Tale) -> None:
    promise(lost(tale), unclean_leader_election=True)


@TALES.tale(f"lost-write {UNCLEAN} 1", unknown=["lost-write", *OF_THE_TRACE])
def a_trace_with_a_gap_is_none(tale: Tale) -> None:
    traced(promise(lost(tale), unclean_leader_election=True), elected(10**9, "n2", "n2"))
    assert tale.trace is not None
    tale.trace.append({"time": 10**9, "node": "n1", "seq": 7, "event": "start"})


# -- the fault budget
# -------------------------------------------------------------------------------------------


@TALES.tale("lost-write fault budget 1")
def min_insync_replicas_struck_after_the_send_permit(tale: Tale) -> None:
    lost(tale).fault("power_cut", "n1", lost=True).fault("power_cut", "n3", lost=True)


@TALES.tale("lost-write fault budget 1", unknown=["lost-write"])
def fewer_permit_and_are_unknown(tale: Tale) -> None:
    lost(tale).fault("power_cut", "n1", lost=True).fault("power_cut", "n1", lost=True)


@TALES.tale("lost-write bug 1")
def strikes_before_the_send_do_not(tale: Tale) -> None:
    lost(tale.fault("power_cut", "n1", "n2", "n3", lost=True))


@TALES.tale("lost-write bug 1")
def nor_do_faults_that_lose_nothing(tale: Tale) -> None:
    lost(tale).fault("kill", "n1", "n2", "n3").fault("disk", "n1", "n2", kind="full")


@TALES.tale("lost-write bug 1")
def flushed_records_survive_a_power_cut(tale: Tale) -> None:
    promise(lost(tale), flush="every").fault("power_cut", "n1", "n2", "n3", lost=True)


@TALES.tale("lost-write fault budget 1")
def with_a_trace_a_leader_chosen_from_struck_copies_permits(tale: Tale) -> None:
    traced(
        lost(tale).fault("power_cut", "n2", lost=True),
        elected(0, "n1", "n1", "n2"),
        elected(10**9, "n2", "n2"),
    )


@TALES.tale("lost-write bug 1")
def with_a_trace_two_struck_nodes_that_did_not_lead_permit_nothing(tale: Tale) -> None:
    lost(tale).fault("power_cut", "n2", lost=True).fault("power_cut", "n3", lost=True)
    traced(tale, elected(0, "n1", "n1", "n2", "n3"), elected(10**9, "n2", "n1", "n2"))


@TALES.tale("lost-write bug 1", "unsafe-isr bug 1")
def with_a_trace_a_leader_whose_copy_was_not_struck_permits_nothing(tale: Tale) -> None:
    """Though it names an ISR without itself, of which all were."""
    traced(
        lost(tale).fault("power_cut", "n2", lost=True),
        elected(0, "n1", "n1", "n2"),
        elected(10**9, "n3", "n2"),
    )


@TALES.tale("lost-write bug 1")
def a_copy_taken_into_the_isr_again_is_struck_no_more(tale: Tale) -> None:
    traced(
        lost(tale).fault("power_cut", "n2", lost=True),
        elected(0, "n1", "n1", "n2"),
        elected(10**9, "n1", "n1", event="isr"),
        elected(10**9 + 1, "n1", "n1", "n2", event="isr"),
        elected(10**9 + 2, "n2", "n2"),
    )
    assert tale.trace is not None
    tale.trace.append({"time": 10**9, "node": "n2", "seq": 1, "event": "start"})


@TALES.tale("lost-write fault budget 1")
def unless_it_was_taken_in_dead(tale: Tale) -> None:
    traced(
        lost(tale).fault("power_cut", "n2", lost=True),
        elected(0, "n1", "n1", "n2"),
        elected(10**9, "n1", "n1", event="isr"),
        elected(10**9 + 1, "n1", "n1", "n2", event="isr"),
        elected(10**9 + 2, "n2", "n2"),
    )


# -- what follows, retries, subscribe, isolation
# ------------------------------------------------------------------


@TALES.tale(
    "lost-write fault budget 2",
    "inconsistent-offsets fault budget 1",
    "saw-then-lost fault budget 2",
    "end-offset-regressed fault budget 1",
    "nonmonotonic-poll fault budget 1",
    "realtime-order fault budget 1",
)
def what_follows_from_a_permitted_loss_is_permitted_with_it(tale: Tale) -> None:
    tale.acked(1, 2).send(7, 8, 9, at=[2, 3]).poll(8, (2, 8), (3, 9)).ends(8, 4)
    tale.fault("power_cut", "n1", "n2", "n3", lost=True).ends(8, 2).poll(8, (1, 2)).acked(3)


@TALES.tale("diverged bug 1", "epoch-lineage bug 1")
def divergence_is_never_permitted(tale: Tale) -> None:
    tale.acked(1, 2).send(5, 9, kind="info").fault("power_cut", "n1", "n2", "n3", lost=True)
    tale.entry("n3", 1)["value"] = 9


@TALES.tale("duplicate retries 1", "nonmonotonic-send retries 1", "realtime-order bug 1")
def retries_without_idempotence_may_write_twice(tale: Tale) -> None:
    promise(tale.logged(1, 2, 1), retries=3).send(7, 1, at=[2]).send(7, 2, at=[1]).final = False
    tale.poll(900, (0, 1)).poll(900, (1, 2))


@TALES.tale("int-nonmonotonic-send retries 1")
def and_out_of_order_inside_an_op(tale: Tale) -> None:
    promise(tale.logged(2, 1), retries=3).send(7, 1, 2, at=[1, 0])


@TALES.tale("duplicate bug 1")
def idempotence_withdraws_that(tale: Tale) -> None:
    promise(tale.logged(1, 1), retries=3, idempotence=True).send(7, 1, at=[0]).final = False
    tale.poll(900, (0, 1))


@TALES.tale("nonmonotonic-poll subscribe 1", "poll-skip subscribe 1")
def a_group_may_rewind_and_skip(tale: Tale) -> None:
    tale.acked(1, 2, 3).assign(5, 0, f="subscribe").poll(5, (0, 1)).poll(5, (2, 3)).poll(5, (1, 2))


@TALES.tale("nonmonotonic-poll bug 1")
def an_assign_after_the_subscribe_may_not(tale: Tale) -> None:
    tale.acked(1, 2).assign(5, 0, f="subscribe").assign(5, 0).poll(5, (0, 1), (1, 2)).poll(5, (1, 2))


@TALES.tale("G1a isolation 1")
def read_uncommitted_reads_what_fails(tale: Tale) -> None:
    promise(tale.acked(1), isolation="read_uncommitted").send(7, 9, kind="fail").logged(9).poll(
        8, (0, 1), (1, 9)
    )
    for node in ("n1", "n2", "n3"):
        tale.entry(node, 1)["aborted"] = True


@TALES.tale("G1a bug 1")
def what_stands_in_the_log_was_not_only_read(tale: Tale) -> None:
    promise(tale.acked(1), isolation="read_uncommitted").send(7, 9, kind="fail").logged(9)


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name says what must be so."""
    TALES.check(name, verdicts)

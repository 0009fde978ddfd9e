"""Every row of the table of classes: what settings or faults permit, what they do not, what follows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import NODES, Tale
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.read.guarantees import GUARANTEES
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
UNCLEAN = "unclean.leader.election.enable"
REPEATED = names.unknown_if(names.If.REPEATED)


def lost(tale: Tale) -> Tale:
    """The acked 9 at offset 2 is on no replica."""
    return tale.acked(1, 2).send(7, 9, at=[2])


def sent_twice(tale: Tale) -> Tale:
    """The 9 that was read at offset 2 is on no replica; another value is there."""
    return tale.acked(1, 2).send(7, 9, at=[2]).send(7, 9, kind="info").poll(8, (2, 9)).acked(3)


def with_guarantees(tale: Tale, **guarantees: Any) -> Tale:
    tale.run["guarantees"] |= guarantees
    return tale


def elected(time: int, leader: str, *isr: str, event: str = "elect", clean: bool = True) -> dict[str, Any]:
    line = {"time": time, "event": event, "partition": 0, "leader": leader, "epoch": 1, "isr": list(isr)}
    return {**line, "clean": clean} if event == "elect" else line


def traced(tale: Tale, *events: dict[str, Any], nodes: str = "123") -> Tale:
    """A whole trace: these events of the controller, and a start of every node."""
    tale.trace = [{"time": 0, "node": f"n{node}", "seq": 0, "event": "start"} for node in nodes]
    tale.trace += [{"node": "controller", "seq": seq, **event} for seq, event in enumerate(events)]
    return tale


# -- acks ---------------------------------------------------------------------------------------------------


@TALES.tale("lost-write acks 1")
def with_other_acks_a_loss_is_permitted(tale: Tale) -> None:
    with_guarantees(lost(tale), acks="1")


@TALES.tale("inconsistent-offsets acks 1", "lost-write acks 1")
def with_other_acks_another_value_at_the_offset_is_permitted(tale: Tale) -> None:
    with_guarantees(lost(tale), acks="0").acked(3)


@TALES.tale("lost-write acks 1", "realtime-order acks 1", "nonmonotonic-send acks 1")
def with_other_acks_an_order_broken_only_by_the_loss_is_permitted(tale: Tale) -> None:
    with_guarantees(tale.acked(1, 2).send(7, 9, at=[6]), acks="1").acked(3, process=7)


@TALES.tale("lost-write acks 1", "realtime-order bug 1", "inconsistent-offsets bug 1", "saw-then-lost bug 1")
def with_other_acks_the_loss_of_what_was_read_is_a_bug(tale: Tale) -> None:
    with_guarantees(tale.acked(1, 2).send(7, 9, at=[3]), acks="1").poll(8, (3, 9)).acked(3, 4)


# -- guarantees that nobody knows permit nothing ------------------------------------------------------------


def of(name: str) -> tuple[str, ...]:
    """The checks that are unknown with this guarantee, in a run without a trace."""
    return names.unknown_if(GUARANTEES[name].row)


@TALES.tale("lost-write bug 1")
def kafkas_word_for_all_acks_is_all(tale: Tale) -> None:
    with_guarantees(lost(tale), acks="-1")


@TALES.tale("lost-write bug 1")
def kafkas_number_for_all_acks_is_all(tale: Tale) -> None:
    with_guarantees(lost(tale), acks=-1)


def strange(name: str, value: Any, change: Callable[[Tale], object], key: str | None = None) -> None:
    """A tale with a guarantee of this value; what the weakest one would permit is no finding."""

    def tell(tale: Tale) -> None:
        change(tale)
        if key is not None:
            del tale.run["guarantees"][name]
        with_guarantees(tale, **{key or name: value})

    tell.__name__ = f"strange_{key or name}_{value}"
    TALES.tale(unknown=of(name))(tell)


def struck_and_lost(tale: Tale) -> Tale:
    return lost(tale).fault("power_cut", "n1", "n2", lost=True)


def doubled(tale: Tale) -> None:
    with_guarantees(tale.acked(1).send(3, 2, at=[2]).logged(2, 2), retries=3)


for value in ("ALL", "two", 1, None, True, -1.0, ["all"]):
    strange("acks", value, lost)
for value in ("2", 0, True, 2.0):
    strange("min_insync_replicas", value, struck_and_lost)
for name in ("replication_factor", "exactly_once"):
    strange(name, "three", lambda tale: tale.acked(1))
strange("unclean_leader_election", "true", lost)
strange("flush", "never", struck_and_lost)
strange("retries", "many", doubled)
strange("retries", -1, doubled)
strange("idempotence", "no", doubled)
strange("isolation", "serializable", lambda tale: tale.acked(1))
strange("acks", "1", lost, key="ack")
strange("acks", "1", lost, key="Acks")
strange("min_insync_replicas", 1, struck_and_lost, key="min.insync.replicas")
strange("unclean_leader_election", True, lost, key="unclean_leader_elections")
strange("unclean_leader_election", True, lost, key="unclean.leader.election.enable")
strange("flush", "os", struck_and_lost, key="log.flush.interval.messages")
strange("retries", 3, doubled, key="retry")
strange("idempotence", False, doubled, key="enable.idempotence")
strange("isolation", "read_uncommitted", lambda tale: tale.acked(1), key="isolation.level")


@TALES.tale(unknown=of("isolation"))
def processes_have_an_isolation_of_their_own(tale: Tale) -> None:
    tale.acked(1).run["isolation_of"] = {"8": "read_uncommitted", "9" * 5000: "read_uncommitted"}


@TALES.tale("lost-write bug 1")
def a_key_that_resembles_no_guarantee_is_ignored(tale: Tale) -> None:
    with_guarantees(lost(tale), codec="zstd", linger_ms=5, note="acks are what they are", a=1)


# -- unclean elections --------------------------------------------------------------------------------------


@TALES.tale(f"lost-write {UNCLEAN} 1", f"saw-then-lost {UNCLEAN} 1")
def an_unclean_election_after_the_send_permits_a_loss(tale: Tale) -> None:
    lost(tale).poll(8, (2, 9)).fault("elect", "n2", unclean=True, partitions=[0])


@TALES.tale(f"saw-then-lost {UNCLEAN} 1", f"inconsistent-offsets {UNCLEAN} 1", unknown=REPEATED)
def an_unclean_election_permits_the_loss_of_a_value_sent_twice(tale: Tale) -> None:
    sent_twice(tale).fault("elect", "n2", unclean=True)


@TALES.tale("saw-then-lost bug 1", "inconsistent-offsets bug 1", unknown=REPEATED)
def sending_a_value_twice_permits_no_loss(tale: Tale) -> None:
    sent_twice(tale).fault("elect", "n2")


@TALES.tale(f"inconsistent-offsets {UNCLEAN} 1", unknown=names.unknown_if(names.If.REPEATED | names.If.LOG))
def an_unclean_election_permits_a_loss_without_the_leaders_log_too(tale: Tale) -> None:
    sent_twice(tale).fault("elect", "n2", unclean=True).files["logs/n1.jsonl"] = None


@TALES.tale("lost-write bug 1")
def an_unclean_election_before_the_send_permits_nothing(tale: Tale) -> None:
    lost(tale.fault("elect", "n2", unclean=True))


@TALES.tale("lost-write bug 1")
def a_clean_election_or_one_of_another_partition_permits_nothing(tale: Tale) -> None:
    lost(tale).fault("elect", "n2").fault("elect", "n2", unclean=True, partitions=[1])


@TALES.tale(f"lost-write {UNCLEAN} 1")
def an_allowed_unclean_election_in_the_trace_permits_a_loss(tale: Tale) -> None:
    traced(with_guarantees(lost(tale), unclean_leader_election=True), elected(10**9, "n2", "n2", clean=False))


@TALES.tale("lost-write bug 1")
def the_setting_permits_nothing_if_a_whole_trace_shows_no_unclean_election(tale: Tale) -> None:
    traced(with_guarantees(lost(tale), unclean_leader_election=True), elected(10**9, "n2", "n2"))


@TALES.tale(f"lost-write {UNCLEAN} 1", unknown=["lost-write"])
def the_setting_without_a_trace_permits_a_loss_and_is_unknown(tale: Tale) -> None:
    with_guarantees(lost(tale), unclean_leader_election=True)


@TALES.tale(f"lost-write {UNCLEAN} 1", unknown=["lost-write", *names.OF_THE_TRACE])
def a_trace_with_a_gap_counts_as_no_trace(tale: Tale) -> None:
    traced(with_guarantees(lost(tale), unclean_leader_election=True), elected(10**9, "n2", "n2"))
    assert tale.trace is not None
    tale.trace.append({"time": 10**9, "node": "n1", "seq": 7, "event": "start"})


# -- the fault budget ---------------------------------------------------------------------------------------


@TALES.tale("lost-write fault budget 1")
def data_loss_on_min_insync_replicas_nodes_after_the_send_permits_a_loss(tale: Tale) -> None:
    lost(tale).fault("power_cut", "n1", lost=True).fault("power_cut", "n3", lost=True)


@TALES.tale("lost-write fault budget 1", unknown=["lost-write"])
def data_loss_on_fewer_nodes_permits_a_loss_and_is_unknown(tale: Tale) -> None:
    lost(tale).fault("power_cut", "n1", lost=True).fault("power_cut", "n1", lost=True)


@TALES.tale("lost-write bug 1")
def data_loss_before_the_send_permits_nothing(tale: Tale) -> None:
    lost(tale.fault("power_cut", "n1", "n2", "n3", lost=True))


@TALES.tale("lost-write bug 1")
def faults_without_data_loss_permit_nothing(tale: Tale) -> None:
    lost(tale).fault("kill", "n1", "n2", "n3").fault("disk", "n1", "n2", kind="full")


@TALES.tale("lost-write bug 1")
def flushed_records_survive_a_power_cut(tale: Tale) -> None:
    with_guarantees(lost(tale), flush="every").fault("power_cut", "n1", "n2", "n3", lost=True)

# Where every write is flushed, a power cut takes only what a killed process left unflushed.


def flushed(tale: Tale, *, at_recovery: bool = False) -> Tale:
    if at_recovery:
        tale.run["system"] = {"flushes_at_recovery": True}
    return with_guarantees(lost(tale), flush="every")


def killed_and_cut(tale: Tale, f: str = "kill") -> Tale:
    """All nodes."""
    return tale.fault(f, *NODES).fault("start", *NODES).fault("power_cut", *NODES, lost=True)


@TALES.tale("lost-write fault budget 1")
def a_wiped_disk_takes_flushed_writes_too(tale: Tale) -> None:
    flushed(tale).fault("disk", *NODES, kind="wiped", lost=True)


@TALES.tale("lost-write fault budget 1")
def a_bad_disk_takes_flushed_writes_though_recovery_flushes(tale: Tale) -> None:
    flushed(tale, at_recovery=True).fault("bad_disk", *NODES, lost=True)


@TALES.tale("lost-write fault budget 1")
def a_kill_before_the_power_cut_may_leave_a_write_unflushed(tale: Tale) -> None:
    killed_and_cut(flushed(tale))


@TALES.tale("lost-write bug 1")
def a_killed_node_that_flushes_at_recovery_has_flushed(tale: Tale) -> None:
    killed_and_cut(flushed(tale, at_recovery=True))


@TALES.tale("lost-write bug 1")
def an_orderly_stop_before_the_power_cut_leaves_nothing_unflushed(tale: Tale) -> None:
    killed_and_cut(flushed(tale), "stop")


@TALES.tale("lost-write bug 1")
def what_was_sent_after_the_kill_was_flushed(tale: Tale) -> None:
    tale.fault("kill", *NODES).fault("start", *NODES)
    flushed(tale).fault("power_cut", *NODES, lost=True)


@TALES.tale("lost-write bug 1")
def a_kill_after_the_power_cut_leaves_nothing_unflushed(tale: Tale) -> None:
    flushed(tale).fault("power_cut", *NODES, lost=True).fault("kill", *NODES)


@TALES.tale("lost-write fault budget 1", unknown=["lost-write"])
def of_fewer_killed_nodes_the_loss_may_be_permitted(tale: Tale) -> None:
    flushed(tale).fault("kill", "n1").fault("start", "n1").fault("power_cut", *NODES, lost=True)


@TALES.tale("lost-write fault budget 1", f"broker-died bug {len(NODES)}")
def a_node_that_died_may_have_left_a_write_unflushed(tale: Tale) -> None:
    flushed(tale).fault("power_cut", *NODES, lost=True).run["died"] = list(NODES)


@TALES.tale("lost-write fault budget 1")
def a_node_that_is_started_and_was_not_stopped_had_ended_somehow(tale: Tale) -> None:
    flushed(tale).fault("start", *NODES).fault("power_cut", *NODES, lost=True)


def elected_after_the_cut(tale: Tale) -> None:
    """A whole trace: the leader comes from copies that all lost power."""
    traced(tale, elected(0, "n1", *NODES), elected(10**9, "n2", *NODES))


@TALES.tale("lost-write fault budget 1")
def in_a_trace_a_kill_before_the_power_cut_permits_the_loss(tale: Tale) -> None:
    elected_after_the_cut(killed_and_cut(flushed(tale)))


@TALES.tale("lost-write bug 1")
def in_a_trace_a_power_cut_alone_permits_no_loss_of_flushed_writes(tale: Tale) -> None:
    elected_after_the_cut(flushed(tale).fault("power_cut", *NODES, lost=True))


@TALES.tale("lost-write fault budget 1")
def a_later_power_cut_takes_nothing_back_of_what_a_wiped_disk_permits(tale: Tale) -> None:
    tale.fault("kill", *NODES).fault("start", *NODES)
    flushed(tale).fault("disk", *NODES, kind="wiped", lost=True).fault("start", *NODES)
    elected_after_the_cut(tale.fault("power_cut", *NODES, lost=True))


@TALES.tale("lost-write fault budget 1")
def with_a_trace_a_leader_elected_after_its_data_loss_permits_a_loss(tale: Tale) -> None:
    traced(
        lost(tale).fault("power_cut", "n2", lost=True),
        elected(0, "n1", "n1", "n2"),
        elected(10**9, "n2", "n2"),
    )


@TALES.tale("lost-write bug 1")
def with_a_trace_data_loss_on_two_nodes_that_did_not_lead_permits_nothing(tale: Tale) -> None:
    lost(tale).fault("power_cut", "n2", lost=True).fault("power_cut", "n3", lost=True)
    traced(tale, elected(0, "n1", "n1", "n2", "n3"), elected(10**9, "n2", "n1", "n2"))


@TALES.tale("lost-write bug 1", "unsafe-isr bug 1")
def with_a_trace_a_leader_without_data_loss_permits_nothing(tale: Tale) -> None:
    """Though the election names an ISR without it, in which every member lost data."""
    traced(
        lost(tale).fault("power_cut", "n2", lost=True),
        elected(0, "n1", "n1", "n2"),
        elected(10**9, "n3", "n2"),
    )


@TALES.tale("lost-write bug 1")
def a_node_that_rejoined_the_isr_after_its_data_loss_permits_nothing(tale: Tale) -> None:
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
def a_node_added_to_the_isr_while_down_after_its_data_loss_permits_a_loss(tale: Tale) -> None:
    traced(
        lost(tale).fault("power_cut", "n2", lost=True),
        elected(0, "n1", "n1", "n2"),
        elected(10**9, "n1", "n1", event="isr"),
        elected(10**9 + 1, "n1", "n1", "n2", event="isr"),
        elected(10**9 + 2, "n2", "n2"),
    )


# -- what follows, retries, subscribe, isolation ------------------------------------------------------------


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
    with_guarantees(tale.logged(1, 2, 1), retries=3).send(7, 1, at=[2]).send(7, 2, at=[1]).final = False
    tale.poll(900, (0, 1)).poll(900, (1, 2))


@TALES.tale("int-nonmonotonic-send retries 1")
def retries_without_idempotence_may_reorder_inside_an_op(tale: Tale) -> None:
    with_guarantees(tale.logged(2, 1), retries=3).send(7, 1, 2, at=[1, 0])


@TALES.tale("duplicate bug 1")
def with_idempotence_a_duplicate_is_a_bug(tale: Tale) -> None:
    with_guarantees(tale.logged(1, 1), retries=3, idempotence=True).send(7, 1, at=[0]).final = False
    tale.poll(900, (0, 1))


@TALES.tale("nonmonotonic-poll subscribe 1", "poll-skip subscribe 1")
def a_consumer_group_may_rewind_and_skip(tale: Tale) -> None:
    tale.acked(1, 2, 3).assign(5, 0, f="subscribe").poll(5, (0, 1)).poll(5, (2, 3)).poll(5, (1, 2))


@TALES.tale("nonmonotonic-poll bug 1")
def after_an_assign_a_consumer_may_not_rewind(tale: Tale) -> None:
    tale.acked(1, 2).assign(5, 0, f="subscribe").assign(5, 0).poll(5, (0, 1), (1, 2)).poll(5, (1, 2))


def read_though_failed(tale: Tale, f: str = "send") -> Tale:
    with_guarantees(tale.acked(1), isolation="read_uncommitted").send(7, 9, kind="fail", f=f).logged(9)
    for node in NODES:
        tale.entry(node, 1)["aborted"] = True
    return tale.poll(8, (0, 1), (1, 9))


@TALES.tale("G1a isolation 1")
def read_uncommitted_may_read_failed_transactions(tale: Tale) -> None:
    read_though_failed(tale, "txn")


@TALES.tale("G1a bug 1")
def without_transactions_nobody_may_read_failed_sends(tale: Tale) -> None:
    read_though_failed(tale)


@TALES.tale("G1a bug 1")
def without_transactions_and_logs_nobody_may_read_failed_sends(tale: Tale) -> None:
    """A cluster that shows only its answers, and a record that it refused."""
    read_though_failed(tale).run["observes"] = {"dumps": False, "replicas": False, "trace": []}
    for node in NODES:
        tale.files[f"logs/{node}.jsonl"] = None


@TALES.tale("G1a bug 1")
def without_transactions_a_failed_send_in_the_log_is_a_bug_up_to_the_high_watermark(tale: Tale) -> None:
    """A last stable offset is no matter of this run."""
    tale.acked(1).send(7, 9, kind="fail").logged(9)
    for node in NODES:
        tale.row(node)["lso"] = 1


@TALES.tale("G1a bug 1")
def a_failed_send_in_the_log_is_a_bug_under_read_uncommitted_too(tale: Tale) -> None:
    with_guarantees(tale.acked(1), isolation="read_uncommitted").send(7, 9, kind="fail").logged(9)


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    """The tale's name states what is expected; the twin agrees."""
    TALES.check(name, verdicts)
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_reason_names_the_guarantee_its_value_and_what_it_can_be(verdicts: dict[str, Verdict]) -> None:
    reasons = {name: [one.reason for one in verdicts[name].unknown]
               for name in ("strange_acks_two", "strange_ack_1")}
    found = "nobody knows whether acks permits what was found: 1 of lost-write, the first in partition 0"
    assert reasons["strange_acks_two"] == [
        'run.json: acks of `guarantees` is "two", and not "all" (also "-1" or -1), "1" or "0": nobody knows '
        "what it permits", found]
    assert reasons["strange_ack_1"] == [
        "run.json: `guarantees` has 'ack', which is no guarantee; acks is one: nobody knows what it permits",
        found]


@pytest.mark.parametrize("guarantees", [[], "", 0, False, "all", [["acks", "all"]]])
def test_guarantees_that_are_no_object_make_everything_unknown(guarantees: Any, tmp_path: Path) -> None:
    tale = lost(Tale())
    tale.run["guarantees"] = guarantees
    folder = open_folder(tale.write(tmp_path / "run"))
    assert [why for _, why in folder.reasons] == ["run.json: `guarantees` is no object"]
    assert not folder.judged

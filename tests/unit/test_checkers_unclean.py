"""Unclean elections: what permits one, what one permits, and what is known if times are too close.

The send of 9, which is lost, is invoked at 4000 ns (index 4) and acked at 5000; what the nemesis does next is
written at 6000 (index 6).
"""

from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
story_in = traced_in(TALES)
SETTING = "unclean.leader.election.enable"
PERMITTED_LOSS = f"lost-write {SETTING} 1"
TRACE_CHECKS = sorted(names.OF_THE_TRACE)
ERROR_NS = 1000


def lost(tale: Tale) -> Tale:
    """The acked 9 at offset 2 is on no replica."""
    return tale.acked(1, 2).send(7, 9, at=[2])


def allowed(tale: Tale) -> Tale:
    tale.run["guarantees"]["unclean_leader_election"] = True
    return tale


def with_request(tale: Tale, **fields: Any) -> Tale:
    return tale.fault("elect", unclean=True, **fields)


def elected(time: int, leader: str | None, *isr: str, clean: bool = True, **fields: Any) -> dict[str, Any]:
    """An elect line of the controller."""
    return {"time": time, "event": "elect", "partition": 0, "leader": leader, "epoch": 1, "isr": list(isr),
            "clean": clean, **fields}  # fmt: skip


def in_isr(time: int, *isr: str) -> dict[str, Any]:
    return {"time": time, "event": "isr", "partition": 0, "leader": "n1", "epoch": 1, "isr": list(isr)}


def traced(tale: Tale, *events: dict[str, Any]) -> Tale:
    """A whole trace: these events of the controller, and a start of every node."""
    tale.trace = [{"time": 0, "node": f"n{node}", "seq": 0, "event": "start"} for node in "123"]
    tale.trace += [{"node": "controller", "seq": seq, **event} for seq, event in enumerate(events)]
    return tale


def unclean_at(time: int, **fields: Any) -> dict[str, Any]:
    return elected(time, "n2", "n2", clean=False, **fields)


def with_clock_error(tale: Tale) -> Tale:
    """The clocks of two nodes may differ by this much."""
    tale.run["clock_error_ns"] = ERROR_NS
    return tale


# -- what permits an unclean election


@TALES.tale("lost-write bug 1", "unclean-election bug 1")
def one_that_is_not_allowed_is_a_bug_and_permits_nothing(tale: Tale) -> None:
    traced(lost(tale), unclean_at(10**9))


@TALES.tale("unclean-election bug 2")
def each_one_that_is_not_allowed_is_a_bug_though_nothing_was_lost(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9), elected(2 * 10**9, "n1", "n1"), unclean_at(3 * 10**9))


@TALES.tale(PERMITTED_LOSS)
def the_setting_allows_an_unclean_election(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(10**9))


@TALES.tale(PERMITTED_LOSS)
def a_request_of_the_nemesis_allows_an_unclean_election(tale: Tale) -> None:
    traced(with_request(lost(tale), partitions=[0]), unclean_at(10**9))


@TALES.tale(PERMITTED_LOSS)
def a_request_without_partitions_is_for_all(tale: Tale) -> None:
    traced(with_request(lost(tale)), unclean_at(10**9))


@TALES.tale()
def a_request_before_the_send_allows_a_later_election_though_nothing_was_lost(tale: Tale) -> None:
    traced(with_request(tale).acked(1), unclean_at(10**9))


@TALES.tale(PERMITTED_LOSS)
def a_request_before_the_send_permits_the_loss_by_a_later_election(tale: Tale) -> None:
    """By the trace: the nemesis line comes before the send."""
    traced(lost(with_request(tale)), unclean_at(10**9))


@TALES.tale(PERMITTED_LOSS)
def a_request_begun_before_the_election_may_be_recorded_after_it(tale: Tale) -> None:
    traced(with_request(lost(tale), began=4500), unclean_at(5500))


@TALES.tale("lost-write bug 1", "unclean-election bug 1")
def a_request_for_another_partition_allows_nothing(tale: Tale) -> None:
    traced(with_request(lost(tale), partitions=[1]), unclean_at(10**9))


@TALES.tale("lost-write bug 1", "unclean-election bug 1")
def a_request_for_a_clean_election_allows_nothing(tale: Tale) -> None:
    traced(lost(tale).fault("elect", "n2"), unclean_at(10**9))


@TALES.tale(PERMITTED_LOSS, "unclean-election bug 1")
def an_election_before_its_request_is_not_allowed(tale: Tale) -> None:
    """The second one, after its request, permits the loss."""
    traced(with_request(lost(tale), began=5800), unclean_at(5500), unclean_at(7000))


@TALES.tale("unclean-election bug 1", unknown=TRACE_CHECKS)
def an_election_in_a_trace_with_missing_lines_is_found(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9))
    assert tale.trace is not None
    tale.trace.append({"time": 10**9, "node": "n1", "seq": 7, "event": "start"})


@TALES.tale(unknown=TRACE_CHECKS)
def an_elect_line_of_a_broker_is_ignored(tale: Tale) -> None:
    """Only the controller elects."""
    traced(tale.acked(1), {"time": 1, "event": "register", "broker": "n1"})
    assert tale.trace is not None
    tale.trace.append({"node": "n1", "seq": 1, **unclean_at(10**9)})


@TALES.tale()
def an_election_of_a_partition_that_run_json_does_not_name_is_ignored(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9, partition=5))


@TALES.tale()
def an_election_is_ignored_if_observes_does_not_list_elect(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9))
    tale.run["observes"] = {"trace": ["isr"]}


# -- requested, and perhaps not done


@TALES.tale("lost-write bug 1")
def a_request_permits_nothing_where_a_whole_trace_shows_clean_elections_only(tale: Tale) -> None:
    traced(with_request(lost(tale), partitions=[0]), elected(10**9, "n2", "n2"))


@TALES.tale("lost-write bug 1")
def a_request_permits_nothing_where_a_whole_trace_shows_no_election(tale: Tale) -> None:
    traced(with_request(lost(tale)), in_isr(10**9, "n1", "n2"))


@TALES.tale("lost-write bug 1")
def a_request_that_was_done_for_another_partition_permits_nothing(tale: Tale) -> Tale:
    return traced(with_request(lost(Tale(partitions=2))), {**unclean_at(10**9), "partition": 1})


@TALES.tale(PERMITTED_LOSS)
def without_a_trace_a_request_permits_the_loss(tale: Tale) -> None:
    with_request(lost(tale))


@TALES.tale(PERMITTED_LOSS)
def where_the_trace_shows_no_elections_a_request_permits_the_loss(tale: Tale) -> None:
    traced(with_request(lost(tale))).run["observes"] = {"trace": ["isr", "start"]}


@TALES.tale(PERMITTED_LOSS, unknown=TRACE_CHECKS)
def with_a_gap_in_the_trace_a_request_permits_the_loss(tale: Tale) -> None:
    traced(with_request(lost(tale)), *(elected(time, "n2", "n2") for time in (10**9, 10**9 + 1, 10**9 + 2)))
    assert tale.trace is not None
    del tale.trace[-2]


# -- unknown whether it was allowed


@TALES.tale(unknown=names.unknown_if(names.If.UNCLEAN, traced=True))
def a_damaged_setting_makes_it_unknown(tale: Tale) -> None:
    traced(lost(tale), unclean_at(10**9)).run["guarantees"]["unclean_leader_election"] = "no"


@TALES.tale(unknown=["unclean-election"])
def a_missing_setting_makes_it_unknown(tale: Tale) -> None:
    del traced(tale.acked(1), unclean_at(10**9)).run["guarantees"]["unclean_leader_election"]


def with_schedule(tale: Tale, **fields: Any) -> Tale:
    tale.run["schedule"] = [{"f": "elect", "moment": {"at": "time", "s": 1}, **fields}]
    return tale


@TALES.tale("unclean-election bug 1", unknown=names.unknown_if(names.If.BREACHED, traced=True))
def missing_lines_are_no_request_that_was_not_scheduled(tale: Tale) -> None:
    traced(with_schedule(tale.acked(1)), unclean_at(10**9)).run["history_lines"] = 40


@TALES.tale(unknown=[*names.unknown_if(names.If.BREACHED, traced=True), "unclean-election"])
def missing_lines_may_be_a_scheduled_request(tale: Tale) -> None:
    traced(with_schedule(tale.acked(1), unclean=True), unclean_at(10**9)).run["history_lines"] = 40


KILLED = {*names.unknown_if(names.If.KILLED | names.If.UNSETTLED, traced=True)}


@TALES.tale(unknown=KILLED | {"unclean-election"})
def a_killed_harness_may_not_have_written_a_scheduled_request(tale: Tale) -> None:
    traced(with_schedule(tale.acked(1), unclean=True), unclean_at(10**9)).run["history_lines"] = None


@TALES.tale(unknown=KILLED | {"unclean-election"})
def a_killed_harness_without_a_schedule_may_have_requested_one(tale: Tale) -> None:
    run = traced(tale.acked(1), unclean_at(10**9)).run
    run["history_lines"] = run["schedule"] = None


@TALES.tale("unclean-election bug 1", unknown=KILLED)
def a_killed_harness_with_none_scheduled_requested_none(tale: Tale) -> None:
    traced(tale.acked(1), unclean_at(10**9)).run["history_lines"] = None


# -- consequences of an election in the trace


def led_without_the_records(story: Story) -> None:
    """n3 never had the three committed records, is elected uncleanly, and n1 truncates them."""
    story.produce(3, by=["n2"]).elect("n3", "n3", clean=False).append("n3").commit()
    story.take_role("n1").truncate("n1", 1)


CONSEQUENCES = ("leader-incomplete", "unsafe-truncation", "candidate-incomplete")


@story_in(*(f"{name} bug 1" for name in CONSEQUENCES), "unclean-election bug 1", "ack-rule bug 1")
def consequences_of_an_election_that_is_not_allowed_are_bugs(story: Story, tale: Tale) -> None:
    led_without_the_records(story)


@story_in(*(f"{name} {SETTING} 1" for name in CONSEQUENCES[:2]), f"candidate-incomplete {SETTING} 1",
          "ack-rule bug 1")
def consequences_of_an_allowed_election_are_permitted(story: Story, tale: Tale) -> None:
    allowed(tale)
    led_without_the_records(story)


@story_in(*(f"{name} {SETTING} 1" for name in CONSEQUENCES), "ack-rule bug 1")
def consequences_are_permitted_by_the_trace_without_logs_too(story: Story, tale: Tale) -> None:
    led_without_the_records(story)
    allowed(tale.acked(2, 3)).run["observes"] = {"dumps": False}
    tale.files |= {f"logs/{node}.jsonl": None for node in tale.logs}


@story_in(*(f"{name} {SETTING} 1" for name in CONSEQUENCES), "ack-rule bug 1",
          unknown=[*CONSEQUENCES, "unclean-election"])
def consequences_are_permitted_and_unknown_with_an_unknown_setting(story: Story, tale: Tale) -> None:
    led_without_the_records(story)
    del tale.run["guarantees"]["unclean_leader_election"]


@story_in(
    PERMITTED_LOSS, f"leader-incomplete {SETTING} 1", f"candidate-incomplete {SETTING} 2",
    f"unsafe-truncation {SETTING} 1", "unsafe-truncation bug 1", "candidate-incomplete bug 1",
    unknown=["candidate-incomplete", "leader-incomplete", "lost-write", "unclean-election",
             "unsafe-truncation"],
)  # fmt: skip
def records_of_the_new_leader_are_not_covered_by_a_loss_at_their_offset(story: Story, tale: Tale) -> None:
    """Also if the election, and so the loss, is only possibly permitted."""
    del tale.run["guarantees"]["unclean_leader_election"]
    with_request(tale.send(7, 9, at=[1]), began=10**9)
    story.produce().ruling("isr", ["n1", "n2"], cause="alter").produce()
    story.elect("n3", "n3", clean=False).append("n3").commit().take_role("n1").truncate("n1", 1)
    story.append("n1").ruling("isr", ["n1", "n3"], cause="alter").truncate("n1", 1)


# -- times within the clocks' error: the send was invoked at 4000


def election_at(time: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """The setting is on, and the one unclean election has this time."""

    def one_tale(tale: Tale) -> None:
        traced(with_clock_error(allowed(lost(tale))), unclean_at(time))

    one_tale.__name__ = f"an_unclean_election_at_{time}"
    TALES.tale(*found, unknown=unknown)(one_tale)


election_at(5001, PERMITTED_LOSS)  # surely after the send
election_at(5000, PERMITTED_LOSS, unknown=("lost-write",))
election_at(4000, PERMITTED_LOSS, unknown=("lost-write",))
election_at(3500, PERMITTED_LOSS, unknown=("lost-write",))  # possibly after it, by a clock that is behind
election_at(3000, PERMITTED_LOSS, unknown=("lost-write",))
election_at(2999, "lost-write bug 1")  # surely before it


@TALES.tale(PERMITTED_LOSS, unknown=["lost-write"])
def without_clock_error_only_the_same_time_is_unknown(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(4000))


@TALES.tale("lost-write bug 1")
def without_clock_error_an_election_just_before_the_send_permits_nothing(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(3999))


@TALES.tale(PERMITTED_LOSS)
def an_election_surely_after_the_send_permits_beside_an_uncertain_one(tale: Tale) -> None:
    traced(with_clock_error(allowed(lost(tale))), unclean_at(3500), unclean_at(9000))


@TALES.tale(PERMITTED_LOSS, unknown=["lost-write", *TRACE_CHECKS])
def with_a_damaged_clock_error_no_times_are_compared(tale: Tale) -> None:
    traced(allowed(lost(tale)), unclean_at(10**9)).run["clock_error_ns"] = "little"


def request_and_election_at(time: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """The nemesis requested it at 6000, after the send; the election has this time."""

    def one_tale(tale: Tale) -> None:
        traced(with_clock_error(with_request(lost(tale))), unclean_at(time))

    one_tale.__name__ = f"requested_at_6000_and_elected_at_{time}"
    TALES.tale(*found, unknown=unknown)(one_tale)


request_and_election_at(7001, PERMITTED_LOSS)
request_and_election_at(7000, PERMITTED_LOSS, unknown=("lost-write", "unclean-election"))
request_and_election_at(5500, PERMITTED_LOSS, unknown=("lost-write", "unclean-election"))
request_and_election_at(5000, PERMITTED_LOSS, unknown=("lost-write", "unclean-election"))
request_and_election_at(4999, "lost-write bug 1", "unclean-election bug 1")


@TALES.tale(PERMITTED_LOSS, unknown=["lost-write", "unclean-election"])
def an_election_possibly_before_request_and_send_permits_and_is_unknown(tale: Tale) -> None:
    traced(with_clock_error(lost(with_request(tale, began=100))), unclean_at(900))
    tale.lines[5]["time"] = tale.lines[6]["time"] = 1500  # of the send
    tale.lines[1]["time"] = tale.lines[2]["time"] = tale.lines[3]["time"] = tale.lines[4]["time"] = 1200


# -- faults, elections and restarts within the clocks' error: n2 loses data at 6000


BUDGET = "lost-write fault budget 1"


def data_loss_and_election_at(time: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """Only n2 is in the ISR, and it is elected at this time."""

    def one_tale(tale: Tale) -> None:
        with_clock_error(lost(tale).fault("power_cut", "n2", lost=True))
        traced(tale, elected(0, "n1", "n1", "n2"), elected(time, "n2", "n2"))

    one_tale.__name__ = f"data_lost_at_6000_and_elected_at_{time}"
    TALES.tale(*found, unknown=unknown)(one_tale)


data_loss_and_election_at(7001, BUDGET)
data_loss_and_election_at(7000, BUDGET, unknown=("lost-write",))
data_loss_and_election_at(5500, BUDGET, unknown=("lost-write",))
data_loss_and_election_at(5000, BUDGET, unknown=("lost-write",))
data_loss_and_election_at(4999, "lost-write bug 1")


def data_loss_and_restart_at(started: int, rejoined: int, *found: str, unknown: tuple[str, ...] = ()) -> None:
    """n2 starts at the first time, rejoins the ISR at the second, and is elected long after."""

    def one_tale(tale: Tale) -> None:
        with_clock_error(lost(tale).fault("power_cut", "n2", lost=True))
        traced(tale, elected(0, "n1", "n1", "n2"), in_isr(100, "n1"), in_isr(rejoined, "n1", "n2"),
               elected(10**9, "n2", "n2"))  # fmt: skip
        assert tale.trace is not None
        tale.trace += [{"time": rejoined - 1, "node": "controller", "seq": 4, "event": "register",
                        "broker": "n2", "broker_epoch": 2},
                       {"time": started, "node": "n2", "seq": 1, "event": "start"}]  # fmt: skip

    one_tale.__name__ = f"data_lost_at_6000_started_at_{started}_and_in_sync_at_{rejoined}"
    TALES.tale(*found, unknown=unknown)(one_tale)


data_loss_and_restart_at(7001, 9000, "lost-write bug 1")  # surely after the fault, by the new process
data_loss_and_restart_at(7000, 9000, BUDGET, unknown=("lost-write",))
data_loss_and_restart_at(5500, 9000, BUDGET, unknown=("lost-write",))
data_loss_and_restart_at(4999, 6500, BUDGET)  # the process that the fault ended


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


def test_the_election_is_described_with_its_line(verdicts: dict[str, Verdict]) -> None:
    """The leader, the epoch, and the line of the trace."""
    verdict = verdicts["one_that_is_not_allowed_is_a_bug_and_permits_nothing"]
    (example,) = next(one for one in verdict.findings if one.name == names.UNCLEAN_ELECTION).examples

    assert {name: example[name] for name in ("partition", "nodes", "event")} == {
        "partition": 0, "nodes": ["n2"], "event": 3}  # fmt: skip
    assert "n2" in example["text"]
    assert "epoch 1" in example["text"]
    assert "controller, seq 0 of its trace" in example["text"]

"""Which deaths of run.json's `died` the schedule explains: broker-died, and what is none."""

from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
S = 1_000_000_000
KAFKA = {"broker.session.timeout.ms": 2000}


def struck(tale: Tale, *faults: tuple[float, str, Any], died_at: float | None = None,
           mended: float | None = None, config: dict[str, int] = KAFKA) -> Tale:
    """n2 died. faults: (s, f, a node or a grudge)."""
    tale.acked(1).run |= {"died": ["n2"], "config": {"n2": config}}
    for at_s, f, on in faults:
        fault = {"nodes": [], "grudge": on} if isinstance(on, dict) else {"nodes": on.split()}
        tale.line(-1, "info", f, time=int(at_s * S), fault=fault)
    if died_at is not None:
        tale.run["died_at"] = {"n2": [int(died_at * S)]}
    if mended is not None:
        tale.run["mended"] = [int(mended * S), int((mended + 1) * S)]
    tale.edit = rising
    return tale


def rising(lines: list[dict[str, Any]]) -> None:
    time = 0
    for line in lines:
        line["time"] = time = max(time, line["time"])


ALL_DOWN = [(1, "kill", "controller"), (1.1, "kill", "n1 n2 n3")]


@TALES.tale()
def a_broker_that_was_started_before_the_controller_gave_up_after_its_time_out(tale: Tale) -> None:
    struck(tale, *ALL_DOWN, (5, "start", "n2"), (66, "start", "controller"), died_at=68)


@TALES.tale()
def so_it_is_if_the_controller_came_just_before_it_had_ended(tale: Tale) -> None:
    struck(tale, *ALL_DOWN, (5, "start", "n2"), mended=66, died_at=68)


@TALES.tale("broker-died bug 1")
def before_its_time_out_it_has_no_reason_to_give_up(tale: Tale) -> None:
    struck(tale, *ALL_DOWN, (5, "start", "n2"), died_at=20)


@TALES.tale("broker-died bug 1")
def that_the_controller_was_away_before_it_was_started_is_no_reason(tale: Tale) -> None:
    struck(tale, *ALL_DOWN, (90, "start", "n2"), (95, "start", "controller"), died_at=99)


@TALES.tale("broker-died bug 1")
def nor_is_an_outage_that_was_over_long_ago(tale: Tale) -> None:
    struck(tale, (1, "pause", "controller"), (4, "resume", "controller"), died_at=30)


@TALES.tale("broker-died bug 1")
def nor_one_that_came_after_the_death(tale: Tale) -> None:
    struck(tale, (50, "kill", "controller"), died_at=30)


@TALES.tale("broker-died bug 1")
def nor_is_another_brokers_end(tale: Tale) -> None:
    struck(tale, (1, "kill", "n1"), died_at=200)


@TALES.tale()
def a_session_ends_while_the_controller_does_not_answer(tale: Tale) -> None:
    struck(tale, (1, "pause", "controller"), (4, "resume", "controller"), died_at=5)


@TALES.tale("broker-died bug 1")
def not_while_it_is_away_for_less_than_a_session(tale: Tale) -> None:
    struck(tale, (1, "pause", "controller"), (2.5, "resume", "controller"), died_at=3)


@TALES.tale()
def a_cut_from_the_controller_in_one_direction_is_enough(tale: Tale) -> None:
    struck(tale, (1, "cut", {"n2": ["controller"]}), died_at=10)


@TALES.tale()
def so_is_the_loss_or_delay_of_packets(tale: Tale) -> None:
    struck(tale, (1, "packet", {"n2": ["controller"]}), died_at=10)


@TALES.tale("broker-died bug 1")
def but_not_once_they_pass_again(tale: Tale) -> None:
    struck(tale, (1, "packet", {"n2": ["controller"]}), (2, "heal", ""), died_at=10)


@TALES.tale("broker-died bug 1")
def times_before_the_run_are_no_reason(tale: Tale) -> None:
    struck(tale, died_at=-10, mended=-5)


@TALES.tale("broker-died bug 1")
def a_cut_of_another_broker_is_not(tale: Tale) -> None:
    struck(tale, (1, "cut", {"n1": ["controller", "n2"]}), died_at=10)


@TALES.tale()
def zookeeper_is_a_controller_with_a_time_out_of_its_own(tale: Tale) -> None:
    struck(tale, (1, "kill", "controller"), (2, "kill", "n2"), (3, "start", "n2"), died_at=10,
           config={"broker.session.timeout.ms": 2000, "zookeeper.connection.timeout.ms": 6000})


@TALES.tale("broker-died bug 1")
def one_of_two_controllers_that_are_known_of_three_is_no_majority(tale: Tale) -> None:
    struck(tale, (1, "kill", "c1"), (2, "start", "c1"), (3, "kill", "c2"), (4, "start", "c2"),
           (5, "kill", "c3"), died_at=100)


@TALES.tale()
def a_starting_broker_may_need_any_other(tale: Tale) -> None:
    struck(tale, (1, "kill", "n1 n2 n3"), (5, "start", "n2"), died_at=66)


@TALES.tale("broker-died bug 1")
def one_that_runs_needs_no_other(tale: Tale) -> None:
    struck(tale, (1, "kill", "n1 n3"), died_at=66)


@TALES.tale("broker-died bug 1")
def of_two_deaths_both_must_be_explained(tale: Tale) -> None:
    struck(tale, (1, "kill", "controller n2"), (5, "start", "n2"), (66, "start", "controller"))
    tale.run["died_at"] = {"n2": [68 * S, 200 * S]}


@TALES.tale()
def if_nobody_knows_when_it_died_it_may_have_been_then(tale: Tale) -> None:
    struck(tale, *ALL_DOWN, (5, "start", "n2"), (66, "start", "controller"))


@TALES.tale("broker-died bug 1")
def but_not_if_nothing_was_away_for_long_enough(tale: Tale) -> None:
    struck(tale, *ALL_DOWN, (5, "start", "n2"), (6, "start", "controller n1 n3"))


@TALES.tale("broker-died bug 1")
def a_start_by_the_mending_begins_a_new_life(tale: Tale) -> None:
    struck(tale, *ALL_DOWN, mended=90, died_at=92)


@TALES.tale(unknown=["broker-died", *names.unknown_if(names.If.BREACHED)])
def a_line_of_the_nemesis_that_is_missing_may_explain_it(tale: Tale) -> None:
    struck(tale, (1, "kill", "controller"), died_at=1.5).run["history_lines"] = 99


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_agrees(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")

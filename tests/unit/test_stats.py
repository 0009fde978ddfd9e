"""What a fault cost: every figure of one fault by hand, and near misses of each definition."""

from pathlib import Path
from typing import Any

import pytest
from timed_runs import TimedRun

from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.stats.measures import measured
from floodmark.checkers.stats.tables import KEPT
from floodmark.harness.errors import FloodmarkError

Row = dict[str, Any]


def figures(tmp_path: Path, run: TimedRun) -> Row:
    """The run's row; its own columns and no other."""
    row = measured(open_folder(run.write(tmp_path / "run")))
    assert row.keys() == set(KEPT.names)
    return row


def fault_of(tmp_path: Path, run: TimedRun) -> Row:
    """The row of its only fault."""
    (fault,) = figures(tmp_path, run)["of_faults"]
    return dict(fault)


def one_kill() -> TimedRun:
    """n1 is killed from 10 s (down at 10.5 s) to 14 s: in force for 4 s. A second is as wide as six letters.
    A process usually begins an op each second, so that sends are due at the places of the dots too.

            8     9     10    11    12    13    14    15    16
    p 0     [ok 1 s][ok]  [info, 9.5 . 12 . ][fail][ok, 13 . 15 ][ok]
    p 1                 [ok][    ok, 11  .     .     .     .  16 ]
    """
    run = TimedRun(partitions=2)
    run.sent(1, 8, 9).sent(1, 9, 9.2).sent(1, 9.5, 12, "info").sent(2, 12, 13, "fail").sent(2, 13, 15)
    run.sent(2, 15, 15.5).sent(3, 10, 10.1, partition=1).sent(3, 11, 16, partition=1).polled(4, 14.2, 15)
    return run.fault("kill", 10, 10.5, "n1").fault("start", 13.8, 14, "n1")


def with_trace(run: TimedRun) -> TimedRun:
    isr = ["n1", "n2"]
    run.traced(-1, "elect", leader="n1", isr=isr, clean=True, cause="election")
    run.traced(10.1, "elect", leader="n1", isr=isr, clean=True, cause="created")
    run.traced(10.2, "elect", leader="n2", isr=isr, clean=True, cause="expired")
    run.traced(10.4, "elect", leader="n2", isr=isr, clean=False, cause="election")
    run.traced(11, "isr", leader="n2", isr=isr, cause="alter")
    run.traced(11.5, "isr", leader="n2", isr=isr, cause="expired")
    run.traced(11.6, "isr", leader="n2", isr=isr, cause="learnt", leo=9, hw=9)
    run.traced(12, "truncate", leo=4, hw=4, **{"from": 7, "to": 4})
    run.traced(12.1, "truncate", leo=4, hw=4, **{"from": 4, "to": 4})
    run.traced(12.2, "ack", leo=4, hw=4, offset=3, acks="all", isr=["truncate"])
    run.traced(12.3, "checkpoint", what="hw", value={"event": "elect"})
    return run.traced(20, "elect", leader="n1", isr=isr, clean=True, cause="election")


def test_the_figures_of_one_fault(tmp_path: Path) -> None:
    assert fault_of(tmp_path, with_trace(one_kill())) == {
        "index": 7, "kind": "kill", "detail": None, "nodes": ["n1"], "failed": False,
        "began_s": 10.0, "effect_s": 10.5, "mended_s": 14.0,
        "first_failed_s": 2.0,  # the info at 12 s
        "gap_s": 5.5, "gap_partition": 0,  # from the first send after the ack, at 9.5 s, to 15 s
        "recovery_s": 2.0, "recovery_partition": 1, "recovered": True,  # to 16 s; partition 0 took 1 s
        # 1, 0.2; 5.5 s of the info at 9.5 s, to the next ack at 15 s
        "before_p50_ms": 1000.0, "before_p99_ms": 5500.0, "before_p999_ms": 5500.0, "before_sends": 3,
        # 0.1, 3 (the fail, to 15 s), 2, 5; waiting behind the info 4.5, 3.5, behind the last 4, 3
        "during_p50_ms": 3000.0, "during_p99_ms": 5000.0, "during_p999_ms": 5000.0, "during_sends": 8,
        # 0.5; waiting 1, 2, 1
        "after_p50_ms": 1000.0, "after_p99_ms": 2000.0, "after_p999_ms": 2000.0, "after_sends": 4,
        "elections": 2, "unclean_elections": 1, "isr_changes": 2, "truncations": 1,
    }  # fmt: skip


def test_the_figures_of_its_run(tmp_path: Path) -> None:
    run = with_trace(one_kill())
    run.about = {"rules": "kip-320", "nemesis": "crash", "seed": 7}
    row = figures(tmp_path, run)
    del row["of_faults"]
    assert row == {
        "system": "kip-320", "nemesis": "crash", "seed": 7, "load_s": 16.0,
        "acked": 6, "ok": 7, "fail": 1, "info": 1, "unanswered": 0, "broken_lines": 0,
        "faults": 1, "faults_by_kind": [("kill", 1)],
        "elections": 3, "unclean_elections": 1, "isr_changes": 2, "isr_by_leader": 1, "isr_by_controller": 1,
        "truncations": 1, "largest_truncation": 3, "max_unavailable_s": 5.5, "max_recovery_s": 2.0,
        "p50_ms": 2000.0, "p99_ms": 5500.0, "p999_ms": 5500.0,  # of all these 15
    }  # fmt: skip


def test_without_a_trace_the_figures_of_the_protocol_are_null(tmp_path: Path) -> None:
    row = figures(tmp_path, one_kill())
    names = ("elections", "unclean_elections", "isr_changes", "truncations")
    assert {row[name] for name in (*names, "isr_by_leader", "largest_truncation")} == {None}
    assert {row["of_faults"][0][name] for name in names} == {None}


def test_figures_of_events_that_are_not_traced_are_null_and_the_others_are_not(tmp_path: Path) -> None:
    run = with_trace(one_kill())
    run.about = {"observes": {"trace": ["elect"]}}
    row = figures(tmp_path, run)
    assert (row["elections"], row["isr_changes"], row["truncations"]) == (3, None, None)


# -- near misses ---------------------------------------------------------------------------------------------


def test_no_ack_before_the_fault(tmp_path: Path) -> None:
    """The gap begins with the first send."""
    run = TimedRun().sent(1, 9, 13).sent(1, 13, 15).fault("kill", 10, 10, "n1").fault("start", 14, 14, "n1")
    fault = fault_of(tmp_path, run)
    assert (fault["gap_s"], fault["before_p50_ms"], fault["recovery_s"]) == (4.0, 4000.0, 1.0)


def test_the_window_before_a_fault_is_as_long_as_the_fault(tmp_path: Path) -> None:
    """In force from 10 to 14 s: a send before 6 s does not count."""
    run = one_kill().sent(5, 1, 5.9)
    assert fault_of(tmp_path / "apart", run)["before_sends"] == 3
    assert fault_of(tmp_path / "within", run.sent(5, 6.5, 8.5))["before_sends"] == 5  # due at 6.5 and 7.5 s


def steady(*, until_s: float) -> TimedRun:
    """Two processes send in turn, every 0.1 s each, and are acked after 0.01 s; until 10 s, and from then."""
    run = TimedRun(partitions=2)
    for tenth in [*range(50, 100), *range(round(10 * until_s), 200)]:
        for process in (1, 2):
            run.sent(process, tenth / 10, tenth / 10 + 0.01, partition=process - 1)
    return run.fault("cut", 10, 10).fault("heal", until_s, until_s)


def test_a_process_that_waits_does_not_hide_what_it_would_have_sent(tmp_path: Path) -> None:
    """One ack of 0.01 s, and one send that takes 3.99 s: what is due meanwhile takes half of it in the
    middle."""
    run = steady(until_s=14).sent(1, 10, 13.99).sent(2, 10, 10.01, partition=1)
    fault = fault_of(tmp_path, run)
    assert (fault["before_p50_ms"], fault["before_p99_ms"], fault["before_sends"]) == (10.0, 10.0, 80)
    assert (fault["during_p50_ms"], fault["during_p999_ms"]) == (pytest.approx(2000, abs=100), 3990.0)
    assert fault["during_sends"] == 40


@pytest.mark.parametrize("kind", ["fail", "info", None])
def test_a_send_that_was_not_acked_is_served_with_the_next_ack(tmp_path: Path, kind: str | None) -> None:
    """Fails that are answered at once do not make a cut look fast; without an answer it lasts until the load
    ends, at 19.91 s."""
    run = steady(until_s=14).sent(3, 10, None if kind is None else 10.05, str(kind))
    fault = fault_of(tmp_path, run)
    assert fault["during_p999_ms"] == pytest.approx(9910 if kind is None else 4010)


def test_a_process_that_rests_waits_for_nothing(tmp_path: Path) -> None:
    """It sent nothing from 10 to 14 s, with everything acked."""
    fault = fault_of(tmp_path, steady(until_s=14).sent(1, 10, 10.02))
    assert (fault["during_p50_ms"], fault["during_sends"]) == (20.0, 1)


def test_a_fault_that_is_never_mended_lasts_as_long_as_the_load(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 10).sent(1, 13, 17, "info").fault("kill", 10.5, 10.5, "n1")
    run.fault("start", 12, 12, "n2")  # another node
    fault = fault_of(tmp_path, run)
    assert (fault["mended_s"], fault["recovery_s"], fault["recovered"]) == (None, None, None)
    assert (fault["first_failed_s"], fault["gap_s"]) == (6.5, 4.0)  # to the end of the load, 17 s


def test_a_partition_that_never_comes_back(tmp_path: Path) -> None:
    """It took at least that long."""
    run = TimedRun(partitions=2).fault("kill", 10, 10, "n1").fault("start", 12, 12, "n1")
    run.sent(1, 9, 15, "info").sent(2, 11, 13, partition=1)
    fault = fault_of(tmp_path, run)
    assert (fault["recovery_s"], fault["recovery_partition"], fault["recovered"]) == (3.0, 0, False)


def test_an_op_without_an_answer_is_waited_for_and_has_not_failed(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 9.5).sent(1, 11, None).polled(2, 19, 20)
    fault = fault_of(tmp_path, run.fault("kill", 10, 10, "n1").fault("start", 12, 12, "n1"))
    assert (fault["first_failed_s"], fault["gap_s"]) == (None, 9.0)  # from 11 s to the end of the load, 20 s
    assert (fault["recovery_s"], fault["recovered"], fault["during_p50_ms"]) == (8.0, False, 9000.0)
    assert figures(tmp_path / "again", run)["unanswered"] == 1


def test_an_ack_at_the_instant_of_mending_is_not_the_next_one(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 12).sent(2, 11, 13).fault("pause", 10, 10, "n1").fault("resume", 12, 12, "n1")
    assert fault_of(tmp_path, run)["recovery_s"] == 1.0


def test_a_completion_without_an_invocation_is_an_ack_and_no_send_of_its_own(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, None).sent(2, 10, 12)
    run.lines = [line for line in run.lines if (line["process"], line["type"]) != (2, "invoke")]
    run.fault("pause", 10, 10, "n1").fault("resume", 11, 11, "n1")
    row = figures(tmp_path, run)
    assert (row["ok"], row["unanswered"], row["p50_ms"], row["max_recovery_s"]) == (1, 1, 3000.0, 1.0)


def test_an_ack_before_the_first_known_send_after_mending_makes_no_recovery_negative(tmp_path: Path) -> None:
    run = TimedRun().sent(2, 11, 12.5).sent(1, 13, 14).fault("cut", 10, 10).fault("heal", 12, 12)
    run.lines = [line for line in run.lines if (line["process"], line["type"]) != (2, "invoke")]
    fault = fault_of(tmp_path, run)
    assert (fault["recovery_s"], fault["recovered"]) == (0.0, True)


def test_a_change_of_an_isr_has_the_cause_it_names_and_no_other(tmp_path: Path) -> None:
    run = one_kill().traced(11, "isr", leader="n2", isr=["n1"], why="recovery of n2")
    row = figures(tmp_path, run)
    assert (row["isr_changes"], row["isr_by_leader"], row["isr_by_controller"]) == (1, 0, 0)


def test_a_cut_that_names_no_node_is_healed(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 13).fault("cut", 10, 10).fault("heal", 12, 12)
    assert fault_of(tmp_path, run)["mended_s"] == 12.0


def test_there_is_no_gap_while_no_send_is_open(tmp_path: Path) -> None:
    """From 9 s to 20 s no ack came, and nothing was sent before 19 s."""
    run = TimedRun().sent(1, 8, 9).sent(1, 19, 20).fault("kill", 10, 10, "n1").fault("start", 12, 12, "n1")
    fault = fault_of(tmp_path, run)
    assert (fault["gap_s"], fault["recovery_s"]) == (None, 1.0)


def test_a_gap_counts_in_full_if_any_of_it_lies_in_the_fault(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 11.9).sent(1, 11.9, 16).fault("pause", 11, 11, "n1").fault(
        "resume", 12, 12, "n1")
    assert fault_of(tmp_path, run)["gap_s"] == 4.1
    apart = TimedRun().sent(1, 9, 12).sent(1, 12, 16).fault("pause", 10.5, 10.5, "n1").fault(
        "resume", 12, 12, "n1")
    assert fault_of(tmp_path / "apart", apart)["gap_s"] == 3.0  # the one from 12 s on is outside the fault


def test_settling_and_final_reads_are_no_load(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 9.5).sent(1, 10, 13, "info").fault("kill", 10, 10, "n1").fault(
        "start", 14, 14, "n1")
    run.sent(40, 15, 20).polled(900, 21, 22)
    run.about = {"settle": {"processes": [40]}}
    fault, row = fault_of(tmp_path, run), figures(tmp_path / "again", run)
    assert (fault["gap_s"], fault["recovery_s"]) == (3.0, None)  # the load was over at 13 s
    assert (row["acked"], row["load_s"]) == (1, 13.0)


def test_a_failure_before_the_fault_or_of_an_op_begun_after_it_does_not_count(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 9.9, "fail").sent(1, 12, 13, "fail").fault("pause", 10, 10, "n1").fault(
        "resume", 12, 12, "n1")
    assert fault_of(tmp_path, run)["first_failed_s"] is None


def test_a_fault_that_nothing_ends_is_in_force_for_a_second(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 10.2).sent(1, 10.9, 11.5, "fail").sent(1, 11.5, 12).fault(
        "expire", 10, 10.1, "n1")
    fault = fault_of(tmp_path, run)
    assert (fault["mended_s"], fault["first_failed_s"]) == (None, 1.5)
    assert fault["recovery_s"] == pytest.approx(0.1)  # of the send that was open then
    assert (fault["before_p50_ms"], fault["after_p50_ms"]) == (1200.0, 500.0)


def test_a_fault_of_two_nodes_is_mended_with_the_last(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 9.5).fault("kill", 10, 10, "n1", "n2").fault("start", 11, 11, "n1")
    assert fault_of(tmp_path, run.fault("start", 13, 13, "n2"))["mended_s"] == 13.0


def test_faults_that_overlap_are_each_measured_and_armed_failpoints_are_none(tmp_path: Path) -> None:
    run = TimedRun().sent(1, 9, 9.5).sent(1, 10.5, 15)
    run.fault("arm", 9, 9, "n1").fault("kill", 10, 10, "n1").fault("cut", 11, 11, "n1", "n2", kind="halves")
    run.fault("start", 12, 12, "n1").fault("heal", 13, 13).fault("release", 14, 14, "n1")
    rows = figures(tmp_path, run)["of_faults"]
    names = ("kind", "detail", "mended_s", "gap_s", "recovery_s")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("kill", None, 12.0, 4.5, 3.0), ("cut", "halves", 13.0, 4.5, 2.0)]


def test_a_broken_line_is_counted_and_a_torn_last_one_is_not(tmp_path: Path) -> None:
    folder = one_kill().write(tmp_path / "run")
    history = folder / "history.jsonl"
    lines = history.read_text().splitlines()
    history.write_text("\n".join([*lines, '{"index": 20}', '{"ind']))
    row = measured(open_folder(folder))
    assert (row["broken_lines"], row["ok"], row["max_unavailable_s"]) == (1, 7, 5.5)


def test_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    row = figures(tmp_path, TimedRun())
    assert (row["ok"], row["faults"], row["max_unavailable_s"], row["p50_ms"]) == (0, 0, None, None)


def test_a_folder_without_a_history_cannot_be_measured(tmp_path: Path) -> None:
    folder = one_kill().write(tmp_path / "run")
    (folder / "history.jsonl").unlink()
    with pytest.raises(FloodmarkError, match=r"^history\.jsonl: No such file"):
        measured(open_folder(folder))

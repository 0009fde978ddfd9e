"""Who is to blame for a finding: the node and step that were wrong first; nobody, where no line shows it."""

from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from here import judge
from traced_story import Story

from floodmark.checkers.text.blame_words import BLAMED, UNDECIDED, split_blame
from floodmark.harness.reports import verdict_text

Json = dict[str, Any]


def told(folder: Path, story: Story, tale: Tale | None = None) -> dict[str, Json]:
    """Of the bugs in a story their worst examples, by name, each with `line`: the line to blame."""
    tale = Tale().acked(1) if tale is None else tale
    tale.trace = story.lines
    (verdict,) = judge([tale.write(folder)])
    assert verdict.failure is None
    worst = {one.name: dict(one.examples[0]) for one in verdict.findings if one.klass == "bug"}
    for example in worst.values():
        example["line"] = story.lines[example["event"]] if "event" in example else {}
    return worst


def blame(example: Json) -> str:
    return split_blame(example["text"])[1].removeprefix(BLAMED.strip()).strip()


def begun() -> Story:
    return Story().begin()


def asked(story: Story, follower: str, offset: int) -> Story:
    """The leader's line of a follower's fetch."""
    return story.say(story.leader, "fetch", follower=follower, offset=offset, follower_epoch=story.epoch)


def cut_after_an_early_hw(early: bool) -> Story:
    """n1 commits offset 1; n3, which has it or not, is elected, and n1 and n2 cut."""
    story = begun().produce(1)
    story.append("n1").append("n2")
    if not early:
        story.append("n3")
    story.commit().ack(1)
    if not early:
        story.truncate("n3", 1, "for no reason")
    story.elect("n3", "n3", "n1", "n2")
    return story.truncate("n1", 1, "epoch 0 ends at 1 on the leader")


def test_a_leader_that_credits_too_much_is_to_blame_not_the_follower_that_cuts(tmp_path: Path) -> None:
    worst = told(tmp_path, cut_after_an_early_hw(early=True))
    for name in ("unsafe-truncation", "leader-incomplete", "candidate-incomplete"):
        line = worst[name]["line"]
        assert (line["node"], line["event"], line["hw"]) == ("n1", "hw", 2), name
        assert blame(worst[name]) == (
            "n1, which as the leader moved its HW over offset 1 before n3 of its ISR had appended it.")


def test_where_the_members_had_it_the_leader_is_not_to_blame(tmp_path: Path) -> None:
    """n3 cut it by itself: that is the first wrong step."""
    worst = told(tmp_path, cut_after_an_early_hw(early=False))
    line = worst["leader-incomplete"]["line"]
    assert (line["node"], line["event"]) == ("n3", "truncate")
    assert blame(worst["leader-incomplete"]) == "n3, which truncated its log to 1 and cut the record."


def test_a_follower_that_asks_above_its_log_is_to_blame(tmp_path: Path) -> None:
    """The leader credited what it was asked for."""
    story = begun().produce(1)
    asked(story.append("n1").append("n2"), "n3", 2).commit()
    worst = told(tmp_path, story)
    line = worst["candidate-incomplete"]["line"]
    assert (line["event"], line["follower"], line["offset"]) == ("fetch", "n3", 2)
    assert blame(worst["candidate-incomplete"]).startswith("n3, which asked its leader n1")


def test_a_follower_that_asks_for_what_comes_next_has_pretended_nothing(tmp_path: Path) -> None:
    story = begun().produce(1)
    asked(story.append("n1").append("n2"), "n3", 1).commit()
    assert blame(told(tmp_path, story)["candidate-incomplete"]).startswith("n1, which as the leader moved")


def test_a_member_that_its_leader_need_not_count_proves_nothing(tmp_path: Path) -> None:
    """The leader has learnt of the smaller ISR before it moved its HW: what n3 lacks is no fault of its."""
    story = begun().produce(1).append("n1").append("n2")
    story.ruling("isr", ["n1", "n2"], cause="alter").say("n1", "isr", isr=["n1", "n2"], leader="n1")
    story.commit().ruling("isr", ["n1", "n2", "n3"], cause="alter")
    assert "moved its HW" not in blame(told(tmp_path, story)["candidate-incomplete"])


@pytest.mark.parametrize(("to", "why", "who"), [
    (1, "epoch 0 ends at 1 on the leader", f"{UNDECIDED}: n1 held the record, and n2 cut it by the answer"),
    (0, "epoch 0 ends at 2 on the leader", "n2, which cut offset 0 though its leader told it another end"),
    (0, "epoch 0 ends at 1 on the leader", "n2, which cut offset 0 though its leader told it another end"),
    (1, "to the high watermark", ""),  # its own decision, as the finding says
])
def test_a_follower_that_cuts_what_its_leader_holds(tmp_path: Path, to: int, why: str, who: str) -> None:
    example = told(tmp_path, begun().produce(2).truncate("n2", to, why))["unsafe-truncation"]
    assert (example["line"]["node"], example["line"]["event"]) == ("n2", "truncate")
    assert blame(example).startswith(who)
    assert bool(blame(example)) == bool(who)


def test_an_earlier_cut_of_another_follower_is_not_to_blame(tmp_path: Path) -> None:
    """n3 has fetched again what it had cut; then n2 cuts what its leader still holds."""
    story = begun().produce(2).truncate("n3", 1, "to the high watermark").append("n3")
    tale = Tale().acked(1)
    tale.trace = story.truncate("n2", 1, "to the high watermark").lines
    (verdict,) = judge([tale.write(tmp_path)])
    (found,) = (one for one in verdict.findings if one.name == "unsafe-truncation")
    assert [one["nodes"] for one in found.examples] == [["n2"], ["n3"]]
    assert [[story.lines[one["event"]]["node"]] for one in found.examples] == [["n2"], ["n3"]]


def test_of_a_new_leader_whose_hw_is_above_every_leaders_nobody_can_tell(tmp_path: Path) -> None:
    """Its leader may have said so."""
    story = begun().produce(1).append("n1").append("n2")
    story.hw["n2"] = 2
    worst = told(tmp_path, story.elect("n2", "n2", "n3"))["candidate-incomplete"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n2", "become_leader")
    assert blame(worst).startswith(
        f"{UNDECIDED}: n2 began to lead with an HW of 2 when no leader's HW had been above 1;")


def test_a_new_leader_that_was_told_its_hw_is_not_to_blame(tmp_path: Path) -> None:
    story = begun().produce(1).append("n1").append("n2").commit()
    story.hw["n2"] = 2
    worst = told(tmp_path, story.elect("n2", "n2", "n3"))["candidate-incomplete"]
    assert blame(worst).startswith("n1, which as the leader moved its HW")


def test_whether_a_diverging_member_or_its_leader_was_wrong_nobody_can_tell(tmp_path: Path) -> None:
    """n3 has another record at offset 1, and asks for offset 2."""
    story = begun().produce(1).append("n3", epoch=0).elect("n2", "n2", "n3").append("n2")
    asked(story, "n3", 2).commit()
    worst = told(tmp_path, story)["candidate-incomplete"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n2", "hw")
    assert blame(worst).startswith(f"{UNDECIDED}: n2 moved its HW over offset 1 by a fetch of n3")


@pytest.mark.parametrize("fetched_again", [False, True])
def test_a_member_that_came_back_without_the_record_is_named_with_its_start(
        tmp_path: Path, fetched_again: bool) -> None:
    """Nobody can tell whether its disk should have had it. What it has fetched since it has not lost so."""
    story = begun().produce(2).restart("n3", leo=1, epochs=[[0, 0]])
    if fetched_again:
        story.append("n3")
    for event in ("register", "unfence"):
        story.say("controller", event, broker="n3", broker_epoch=2, clean=False, alone=True)
    story.take_role("n3")
    if fetched_again:
        story.append("n1").append("n2").commit()
    worst = told(tmp_path, story)["candidate-incomplete"]
    if fetched_again:
        assert blame(worst).startswith("n1, which as the leader moved its HW over offset 2")
    else:
        assert (worst["line"]["node"], worst["line"]["event"]) == ("n3", "start")
        assert blame(worst).startswith(f"{UNDECIDED}: n3 started with LEO 1, without the record")


def taken_in(*, proposed: bool, restarted: bool = False) -> Story:
    """n3 is taken into the ISR behind the HW."""
    story = begun().produce(1)
    story.ruling("isr", ["n1", "n2"], cause="alter").say("n1", "isr", isr=["n1", "n2"], leader="n1")
    story.produce(2)
    builds_on = story.partition_epoch
    story.say("n1", "isr_proposed", isr=["n1", "n2", "n3"] if proposed else ["n1"],
              partition_epoch=builds_on)
    if restarted:
        story.restart("n3", leo=0).register("n3")
    return story.ruling("isr", ["n1", "n2", "n3"], cause="alter")


def test_the_leader_that_proposed_a_replica_behind_the_hw_is_to_blame(tmp_path: Path) -> None:
    worst = told(tmp_path, taken_in(proposed=True))["unsafe-isr"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n1", "isr_proposed")
    assert blame(worst) == "n1, which as the leader proposed an ISR with n3, which was behind the HW."


def test_the_controller_that_took_in_a_replica_unasked_is_to_blame(tmp_path: Path) -> None:
    worst = told(tmp_path, taken_in(proposed=False))["unsafe-isr"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("controller", "isr")
    assert blame(worst).startswith("the controller, which took into the ISR")


def test_whether_leader_or_controller_let_in_a_restarted_replica_nobody_can_tell(tmp_path: Path) -> None:
    worst = told(tmp_path, taken_in(proposed=True, restarted=True))
    assert UNDECIDED in blame(worst["unsafe-isr"])


def test_without_a_trace_nothing_is_said_of_blame(tmp_path: Path) -> None:
    tale = Tale().acked(1)
    tale.logs["n1"] = []
    (verdict,) = judge([tale.write(tmp_path)])
    assert verdict.valid is False
    assert not any(BLAMED in example["text"] for one in verdict.findings for example in one.examples)


@pytest.mark.parametrize(("why", "head"), [("to the high watermark", "guilty"),
                                           ("epoch 0 ends at 1 on the leader", "event")])
def test_the_report_names_the_guilty_only_where_somebody_is(tmp_path: Path, why: str, head: str) -> None:
    """Its first sentence says who is to blame, or that nobody can tell."""
    story = begun().produce(2).truncate("n2", 1, why)
    tale = Tale().acked(1)
    tale.trace = story.lines
    folder = tale.write(tmp_path)
    (verdict,) = judge([folder])
    found = [{"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count,
              "examples": list(one.examples)} for one in verdict.findings]
    first, *_ = verdict_text.reading_of(
        folder, {"valid": False, "findings": found, "unknown": []}, tale.run).accounts
    parts = dict(first.parts)
    assert first.found["name"] == "unsafe-truncation"
    assert head in parts
    assert (UNDECIDED in parts["what"]) == (head == "event")
    assert not any(BLAMED in one.clause for one in first.followers)

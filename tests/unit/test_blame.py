"""Who is to blame for a finding: the node and step that were wrong first; nobody, where no line shows it."""

from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from here import judge
from traced_story import Story

from floodmark.checkers.text.blame_words import BLAMED, UNDECIDED, split_blame
from floodmark.harness.reports import verdict_text
from floodmark.harness.verdict import Verdict

Json = dict[str, Any]


class Told:
    """Of each story the bugs' worst examples, by name, each with `line`: the line to blame."""

    def __init__(self) -> None:
        self.tales: dict[str, Tale] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.root = Path()

    def add(self, name: str, story: Story) -> None:
        assert name not in self.tales
        self.tales[name] = Tale().acked(1)
        self.tales[name].trace = story.lines

    def judge(self, root: Path) -> None:
        """All in one unit."""
        self.root = root
        folders = [tale.write(root / name) for name, tale in self.tales.items()]
        self.verdicts = dict(zip(self.tales, judge(folders), strict=True))

    def __getitem__(self, name: str) -> dict[str, Json]:
        verdict = self.verdicts[name]
        assert verdict.failure is None
        worst = {one.name: dict(one.examples[0]) for one in verdict.findings if one.klass == "bug"}
        for example in worst.values():
            example["line"] = (self.tales[name].trace or [])[example["event"]] if "event" in example else {}
        return worst


TOLD = Told()


@pytest.fixture(scope="module", name="told")
def judged_together(tmp_path_factory: pytest.TempPathFactory) -> Told:
    TOLD.judge(tmp_path_factory.mktemp("stories"))
    return TOLD


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


TOLD.add("an early HW", cut_after_an_early_hw(early=True))
TOLD.add("cut for no reason", cut_after_an_early_hw(early=False))


def test_a_leader_that_credits_too_much_is_to_blame_not_the_follower_that_cuts(told: Told) -> None:
    worst = told["an early HW"]
    for name in ("unsafe-truncation", "leader-incomplete", "candidate-incomplete"):
        line = worst[name]["line"]
        assert (line["node"], line["event"], line["hw"]) == ("n1", "hw", 2), name
        assert blame(worst[name]) == (
            "n1, which as the leader moved its HW over offset 1 before n3 of its ISR had appended it.")


def test_where_the_members_had_it_the_leader_is_not_to_blame(told: Told) -> None:
    """n3 cut it by itself: that is the first wrong step."""
    worst = told["cut for no reason"]
    line = worst["leader-incomplete"]["line"]
    assert (line["node"], line["event"]) == ("n3", "truncate")
    assert blame(worst["leader-incomplete"]) == "n3, which truncated its log to 1 and cut the record."


def asks_for(offset: int) -> Story:
    story = begun().produce(1)
    return asked(story.append("n1").append("n2"), "n3", offset).commit()


TOLD.add("asks above its log", asks_for(2))
TOLD.add("asks for what comes next", asks_for(1))


def test_a_follower_that_asks_above_its_log_is_to_blame(told: Told) -> None:
    """The leader credited what it was asked for."""
    worst = told["asks above its log"]
    line = worst["candidate-incomplete"]["line"]
    assert (line["event"], line["follower"], line["offset"]) == ("fetch", "n3", 2)
    assert blame(worst["candidate-incomplete"]).startswith("n3, which asked its leader n1")


def test_a_follower_that_asks_for_what_comes_next_has_pretended_nothing(told: Told) -> None:
    worst = told["asks for what comes next"]
    assert blame(worst["candidate-incomplete"]).startswith("n1, which as the leader moved")


def committed_without_n3() -> Story:
    story = begun().produce(1).append("n1").append("n2")
    story.ruling("isr", ["n1", "n2"], cause="alter").say("n1", "isr", isr=["n1", "n2"], leader="n1")
    return story.commit().ruling("isr", ["n1", "n2", "n3"], cause="alter")


TOLD.add("committed without n3", committed_without_n3())


def test_a_member_that_its_leader_need_not_count_proves_nothing(told: Told) -> None:
    """The leader has learnt of the smaller ISR before it moved its HW: what n3 lacks is no fault of its."""
    assert "moved its HW" not in blame(told["committed without n3"]["candidate-incomplete"])


CUTS = [
    (1, "epoch 0 ends at 1 on the leader", f"{UNDECIDED}: n1 held the record, and n2 cut it by the answer"),
    (0, "epoch 0 ends at 2 on the leader", "n2, which cut offset 0 though its leader told it another end"),
    (0, "epoch 0 ends at 1 on the leader", "n2, which cut offset 0 though its leader told it another end"),
    (1, "to the high watermark", ""),  # its own decision, as the finding says
]
for to, why, _ in CUTS:
    TOLD.add(f"cut to {to}: {why}", begun().produce(2).truncate("n2", to, why))


@pytest.mark.parametrize(("to", "why", "who"), CUTS)
def test_a_follower_that_cuts_what_its_leader_holds(told: Told, to: int, why: str, who: str) -> None:
    example = told[f"cut to {to}: {why}"]["unsafe-truncation"]
    assert (example["line"]["node"], example["line"]["event"]) == ("n2", "truncate")
    assert blame(example).startswith(who)
    assert bool(blame(example)) == bool(who)


TWO_CUTS = begun().produce(2).truncate("n3", 1, "to the high watermark").append("n3")
TOLD.add("two cuts", TWO_CUTS.truncate("n2", 1, "to the high watermark"))


def test_an_earlier_cut_of_another_follower_is_not_to_blame(told: Told) -> None:
    """n3 has fetched again what it had cut; then n2 cuts what its leader still holds."""
    (found,) = (one for one in told.verdicts["two cuts"].findings if one.name == "unsafe-truncation")
    assert [one["nodes"] for one in found.examples] == [["n2"], ["n3"]]
    assert [[TWO_CUTS.lines[one["event"]]["node"]] for one in found.examples] == [["n2"], ["n3"]]


def n2_elected_with_hw_2(story: Story) -> Story:
    story.hw["n2"] = 2
    return story.elect("n2", "n2", "n3")


TOLD.add("an HW above all", n2_elected_with_hw_2(begun().produce(1).append("n1").append("n2")))
TOLD.add(
    "an HW that it was told", n2_elected_with_hw_2(begun().produce(1).append("n1").append("n2").commit()))


def test_of_a_new_leader_whose_hw_is_above_every_leaders_nobody_can_tell(told: Told) -> None:
    """Its leader may have said so."""
    worst = told["an HW above all"]["candidate-incomplete"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n2", "become_leader")
    assert blame(worst).startswith(
        f"{UNDECIDED}: n2 began to lead with an HW of 2 when no leader's HW had been above 1;")


def test_a_new_leader_that_was_told_its_hw_is_not_to_blame(told: Told) -> None:
    worst = told["an HW that it was told"]["candidate-incomplete"]
    assert blame(worst).startswith("n1, which as the leader moved its HW")


TOLD.add("diverging", asked(
    begun().produce(1).append("n3", epoch=0).elect("n2", "n2", "n3").append("n2"), "n3", 2).commit())


def test_whether_a_diverging_member_or_its_leader_was_wrong_nobody_can_tell(told: Told) -> None:
    """n3 has another record at offset 1, and asks for offset 2."""
    worst = told["diverging"]["candidate-incomplete"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n2", "hw")
    assert blame(worst).startswith(f"{UNDECIDED}: n2 moved its HW over offset 1 by a fetch of n3")


def came_back(*, fetched_again: bool) -> Story:
    story = begun().produce(2).restart("n3", leo=1, epochs=[[0, 0]])
    if fetched_again:
        story.append("n3")
    for event in ("register", "unfence"):
        story.say("controller", event, broker="n3", broker_epoch=2, clean=False, alone=True)
    story.take_role("n3")
    if fetched_again:
        story.append("n1").append("n2").commit()
    return story


for again in (False, True):
    TOLD.add(f"came back; fetched again: {again}", came_back(fetched_again=again))


@pytest.mark.parametrize("fetched_again", [False, True])
def test_a_member_that_came_back_without_the_record_is_named_with_its_start(
        told: Told, fetched_again: bool) -> None:
    """Nobody can tell whether its disk should have had it. What it has fetched since it has not lost so."""
    worst = told[f"came back; fetched again: {fetched_again}"]["candidate-incomplete"]
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


TOLD.add("proposed", taken_in(proposed=True))
TOLD.add("unasked", taken_in(proposed=False))
TOLD.add("proposed, restarted", taken_in(proposed=True, restarted=True))


def test_the_leader_that_proposed_a_replica_behind_the_hw_is_to_blame(told: Told) -> None:
    worst = told["proposed"]["unsafe-isr"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n1", "isr_proposed")
    assert blame(worst) == "n1, which as the leader proposed an ISR with n3, which was behind the HW."


def test_the_controller_that_took_in_a_replica_unasked_is_to_blame(told: Told) -> None:
    worst = told["unasked"]["unsafe-isr"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("controller", "isr")
    assert blame(worst).startswith("the controller, which took into the ISR")


def test_whether_leader_or_controller_let_in_a_restarted_replica_nobody_can_tell(told: Told) -> None:
    assert UNDECIDED in blame(told["proposed, restarted"]["unsafe-isr"])


def test_without_a_trace_nothing_is_said_of_blame(tmp_path: Path) -> None:
    tale = Tale().acked(1)
    tale.logs["n1"] = []
    (verdict,) = judge([tale.write(tmp_path)])
    assert verdict.valid is False
    assert not any(BLAMED in example["text"] for one in verdict.findings for example in one.examples)


@pytest.mark.parametrize(("why", "head"), [("to the high watermark", "guilty"),
                                           ("epoch 0 ends at 1 on the leader", "event")])
def test_the_report_names_the_guilty_only_where_somebody_is(told: Told, why: str, head: str) -> None:
    """Its first sentence says who is to blame, or that nobody can tell."""
    tale, verdict = told.tales[f"cut to 1: {why}"], told.verdicts[f"cut to 1: {why}"]
    found = [{"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count,
              "examples": list(one.examples)} for one in verdict.findings]
    first, *_ = verdict_text.reading_of(
        told.root / f"cut to 1: {why}", {"valid": False, "findings": found, "unknown": []}, tale.run).accounts
    parts = dict(first.parts)
    assert first.found["name"] == "unsafe-truncation"
    assert head in parts
    assert (UNDECIDED in parts["what"]) == (head == "event")
    assert not any(BLAMED in one.clause for one in first.followers)

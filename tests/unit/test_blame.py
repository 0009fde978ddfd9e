"""Who is to blame for a finding: the node with the first wrong step, or nobody if no line shows it."""

import json
from pathlib import Path
from typing import Any

import pytest
from folders import Tale
from here import judge
from traced_story import Story

from floodmark.checkers.text.blame_words import blame_in, knows_blame
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report import verdict_text
from floodmark.harness.report.saved_verdict import read_verdict
from floodmark.harness.run import Run
from floodmark.harness.verdict import Verdict

Json = dict[str, Any]
UNDECIDED = "nobody can tell"


class JudgedStories:
    """For each story the worst example of each bug, by name, with `line`: the line to blame."""

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


STORIES = JudgedStories()


@pytest.fixture(scope="module", name="judged")
def judged_together(tmp_path_factory: pytest.TempPathFactory) -> JudgedStories:
    STORIES.judge(tmp_path_factory.mktemp("stories"))
    return STORIES


def blame(example: Json) -> str:
    return str(example["blame"]["text"]) if "blame" in example else ""


def ends(end: int, epoch: int = 0) -> dict[str, Any]:
    """Fields of a truncation by this answer."""
    return {"cause": "epoch", "answer": {"epoch": epoch, "end": end}}


def new_story() -> Story:
    return Story().begin()


def fetch(story: Story, follower: str, offset: int) -> Story:
    """The leader's line of a follower's fetch."""
    return story.say(story.leader, "fetch", follower=follower, offset=offset, follower_epoch=story.epoch)


def truncate_after_an_early_hw(early: bool) -> Story:
    """n1 commits offset 1, n3 is elected without it, n1 truncates; `early`: n3 never appended it."""
    story = new_story().produce(1)
    story.append("n1").append("n2")
    if not early:
        story.append("n3")
    story.commit().ack(1)
    if not early:
        story.truncate("n3", 1, "hw")
    story.elect("n3", "n3", "n1", "n2")
    return story.truncate("n1", 1, **ends(1))


STORIES.add("an early HW", truncate_after_an_early_hw(early=True))
STORIES.add("truncated for no reason", truncate_after_an_early_hw(early=False))


def test_a_leader_that_moves_its_hw_too_early_is_to_blame_not_the_truncating_follower(
        judged: JudgedStories) -> None:
    worst = judged["an early HW"]
    for name in ("unsafe-truncation", "leader-incomplete", "candidate-incomplete"):
        line = worst[name]["line"]
        assert (line["node"], line["event"], line["hw"]) == ("n1", "hw", 2), name
        assert blame(worst[name]) == (
            "n1, which as the leader moved its HW over offset 1 before n3 of its ISR had appended it.")


def test_if_all_isr_members_had_the_record_the_leader_is_not_to_blame(judged: JudgedStories) -> None:
    """n3 truncated it by itself: that is the first wrong step."""
    worst = judged["truncated for no reason"]
    line = worst["leader-incomplete"]["line"]
    assert (line["node"], line["event"]) == ("n3", "truncate")
    assert blame(worst["leader-incomplete"]) == "n3, which truncated its log to 1 and cut the record."


def n3_fetches(offset: int) -> Story:
    story = new_story().produce(1)
    return fetch(story.append("n1").append("n2"), "n3", offset).commit()


STORIES.add("fetches above its LEO", n3_fetches(2))
STORIES.add("fetches from its LEO", n3_fetches(1))


def test_a_follower_that_fetches_above_its_leo_is_to_blame(judged: JudgedStories) -> None:
    """The leader counted the fetch offset as appended."""
    worst = judged["fetches above its LEO"]
    line = worst["candidate-incomplete"]["line"]
    assert (line["event"], line["follower"], line["offset"]) == ("fetch", "n3", 2)
    assert blame(worst["candidate-incomplete"]).startswith("n3, which asked its leader n1")


def test_a_follower_that_fetches_from_its_leo_is_not_to_blame(judged: JudgedStories) -> None:
    worst = judged["fetches from its LEO"]
    assert blame(worst["candidate-incomplete"]).startswith("n1, which as the leader moved")


def committed_without_n3() -> Story:
    story = new_story().produce(1).append("n1").append("n2")
    story.ruling("isr", ["n1", "n2"], cause="alter").say("n1", "isr", isr=["n1", "n2"], leader="n1")
    return story.commit().ruling("isr", ["n1", "n2", "n3"], cause="alter")


STORIES.add("committed without n3", committed_without_n3())


def test_the_leader_is_not_to_blame_for_a_replica_outside_its_isr(judged: JudgedStories) -> None:
    """The leader applied the smaller ISR before it moved its HW, so n3 did not count."""
    assert "moved its HW" not in blame(judged["committed without n3"]["candidate-incomplete"])


TRUNCATIONS: list[tuple[str, int, dict[str, Any], str]] = [
    ("as answered", 1, ends(1), f"{UNDECIDED}: n1 held the record, and n2 cut it by the answer that epoch 0"),
    ("below the answer", 0, ends(2), "n2, which truncated offset 0 though n1 had answered that epoch 0 ends"),
    ("below it by one", 0, ends(1), "n2, which truncated offset 0 though n1 had answered that epoch 0 ends"),
    ("below an answer without an epoch", 0, ends(2, epoch=-1),
     "n2, which truncated offset 0 though n1 had answered that its log ends at 2."),
    # records of a later epoch than the answered one have to go, wherever that ends (KIP-279)
    ("by an answer of an older epoch", 3, ends(9, epoch=0), f"{UNDECIDED}: n1 held the record, "),
    ("to its HW", 1, {"cause": "hw"}, ""),  # its own decision, as the finding says
    ("by an unknown answer", 1, {"cause": "epoch"},
     f"{UNDECIDED}: n2 truncated its log to 1, and no line shows what n1 had answered"),
    ("in an old file", 1, {"cause": None, "why": "epoch 0 ends at 9 on the leader"},
     f"{UNDECIDED}: n2 truncated its log to 1, and no line shows what n1 had answered"),
]
for how, to, fields, _ in TRUNCATIONS:
    truncated = new_story().produce(2)
    if how == "by an answer of an older epoch":
        truncated.elect("n1", "n1", "n2", "n3").produce(2)
    STORIES.add(f"truncated {how}", truncated.truncate("n2", to, **fields))


@pytest.mark.parametrize(("how", "to", "fields", "blamed"), TRUNCATIONS)
def test_a_follower_that_truncates_what_its_leader_has(
        judged: JudgedStories, how: str, to: int, fields: dict[str, Any], blamed: str) -> None:
    example = judged[f"truncated {how}"]["unsafe-truncation"]
    assert (example["line"]["node"], example["line"]["event"]) == ("n2", "truncate")
    assert blame(example).startswith(blamed)
    assert bool(blame(example)) == bool(blamed)
    assert example.get("blame", {}).get("known") == (None if not blamed else UNDECIDED not in blamed)


TWO_TRUNCATIONS = new_story().produce(2).truncate("n3", 1).append("n3")
STORIES.add("two truncations", TWO_TRUNCATIONS.truncate("n2", 1))


def test_an_earlier_truncation_of_another_follower_is_not_to_blame(judged: JudgedStories) -> None:
    """n3 fetched again what it had truncated; then n2 truncates what its leader still has."""
    (found,) = (one for one in judged.verdicts["two truncations"].findings if one.name == "unsafe-truncation")
    assert [one["nodes"] for one in found.examples] == [["n2"], ["n3"]]
    assert [[TWO_TRUNCATIONS.lines[one["event"]]["node"]] for one in found.examples] == [["n2"], ["n3"]]


def n2_elected_with_hw_2(story: Story) -> Story:
    story.hw["n2"] = 2
    return story.elect("n2", "n2", "n3")


STORIES.add("an HW above all", n2_elected_with_hw_2(new_story().produce(1).append("n1").append("n2")))
STORIES.add(
    "a fetched HW", n2_elected_with_hw_2(new_story().produce(1).append("n1").append("n2").commit()))


def test_a_new_leader_with_an_hw_above_every_earlier_leaders_is_undecided(judged: JudgedStories) -> None:
    """Its leader may have sent that HW."""
    worst = judged["an HW above all"]["candidate-incomplete"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n2", "become_leader")
    assert blame(worst).startswith(
        f"{UNDECIDED}: n2 began to lead with an HW of 2 when no leader's HW had been above 1;")


def test_a_new_leader_that_fetched_its_hw_is_not_to_blame(judged: JudgedStories) -> None:
    worst = judged["a fetched HW"]["candidate-incomplete"]
    assert blame(worst).startswith("n1, which as the leader moved its HW")


STORIES.add("diverging", fetch(
    new_story().produce(1).append("n3", epoch=0).elect("n2", "n2", "n3").append("n2"), "n3", 2).commit())


def test_between_a_diverging_member_and_its_leader_is_undecided(judged: JudgedStories) -> None:
    """n3 has another record at offset 1, and fetches from offset 2."""
    worst = judged["diverging"]["candidate-incomplete"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n2", "hw")
    assert blame(worst).startswith(f"{UNDECIDED}: n2 moved its HW over offset 1 by a fetch of n3")


def restarted_without_record(*, fetched_again: bool) -> Story:
    story = new_story().produce(2).restart("n3", leo=1, epochs=[[0, 0]])
    if fetched_again:
        story.append("n3")
    for event in ("register", "unfence"):
        story.say("controller", event, broker="n3", broker_epoch=2, clean=False, alone=True)
    story.take_role("n3")
    if fetched_again:
        story.append("n1").append("n2").commit()
    return story


for again in (False, True):
    STORIES.add(f"restarted; fetched again: {again}", restarted_without_record(fetched_again=again))


@pytest.mark.parametrize("fetched_again", [False, True])
def test_a_member_that_restarts_without_the_record_is_named_with_its_start(
        judged: JudgedStories, fetched_again: bool) -> None:
    """Undecided whether its disk should have had it. A record that it fetched later was not lost that way."""
    worst = judged[f"restarted; fetched again: {fetched_again}"]["candidate-incomplete"]
    if fetched_again:
        assert blame(worst).startswith("n1, which as the leader moved its HW over offset 2")
    else:
        assert (worst["line"]["node"], worst["line"]["event"]) == ("n3", "start")
        assert blame(worst).startswith(f"{UNDECIDED}: n3 started with LEO 1, without the record")


def added_to_isr(*, proposed: bool, restarted: bool = False) -> Story:
    """n3 is added to the ISR while behind the HW."""
    story = new_story().produce(1)
    story.ruling("isr", ["n1", "n2"], cause="alter").say("n1", "isr", isr=["n1", "n2"], leader="n1")
    story.produce(2)
    builds_on = story.partition_epoch
    story.say("n1", "isr_proposed", isr=["n1", "n2", "n3"] if proposed else ["n1"],
              partition_epoch=builds_on)
    if restarted:
        story.restart("n3", leo=0).register("n3")
    return story.ruling("isr", ["n1", "n2", "n3"], cause="alter")


STORIES.add("proposed", added_to_isr(proposed=True))
STORIES.add("not proposed", added_to_isr(proposed=False))
STORIES.add("proposed, restarted", added_to_isr(proposed=True, restarted=True))


def test_the_leader_that_proposed_a_replica_behind_the_hw_is_to_blame(judged: JudgedStories) -> None:
    worst = judged["proposed"]["unsafe-isr"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("n1", "isr_proposed")
    assert blame(worst) == "n1, which as the leader proposed an ISR with n3, which was behind the HW."


def test_the_controller_that_adds_an_unproposed_replica_is_to_blame(judged: JudgedStories) -> None:
    worst = judged["not proposed"]["unsafe-isr"]
    assert (worst["line"]["node"], worst["line"]["event"]) == ("controller", "isr")
    assert blame(worst).startswith("the controller, which took into the ISR")


def test_between_leader_and_controller_is_undecided_for_a_restarted_replica(judged: JudgedStories) -> None:
    assert UNDECIDED in blame(judged["proposed, restarted"]["unsafe-isr"])


def test_without_a_trace_no_finding_names_blame(tmp_path: Path) -> None:
    tale = Tale().acked(1)
    tale.logs["n1"] = []
    (verdict,) = judge([tale.write(tmp_path)])
    assert verdict.valid is False
    assert not any("blame" in example for one in verdict.findings for example in one.examples)


@pytest.mark.parametrize(("how", "head"), [("to its HW", "guilty"), ("as answered", "event")])
def test_the_report_has_a_guilty_event_only_if_it_is_decided(
        judged: JudgedStories, how: str, head: str) -> None:
    """Its first sentence names who is to blame, or says that it is undecided."""
    tale, verdict = judged.tales[f"truncated {how}"], judged.verdicts[f"truncated {how}"]
    found = [{"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count,
              "examples": list(one.examples)} for one in verdict.findings]
    first, *_ = verdict_text.reading_of(
        judged.root / f"truncated {how}", {"valid": False, "findings": found, "unknown": []},
        tale.run
    ).accounts
    parts = dict(first.parts)
    assert first.found["name"] == "unsafe-truncation"
    assert head in parts
    assert (UNDECIDED in parts["what"]) == (head == "event")
    assert not any(UNDECIDED in one.clause for one in first.followers)


def saved(folder: Path, **example: object) -> Run:
    found = {"name": "lost-write", "class": "bug", "permitted_by": None, "count": 1, "examples": [example]}
    (folder / "verdict.json").write_text(json.dumps({"format": 1, "valid": False, "findings": [found]}))
    return Run(folder=folder)


@pytest.mark.parametrize(("blame", "known"), [
    ("n2, which truncated its log to 1.", True), ("nobody can tell: no line shows a step.", False)])
def test_a_saved_verdict_with_the_blame_in_its_text_is_told_like_others(
        tmp_path: Path, blame: str, known: bool) -> None:
    """As verdicts of earlier versions have it."""
    run = saved(tmp_path, text=f"A record is lost. To blame: {blame}")
    [example] = read_verdict(run)["findings"][0]["examples"]
    assert (example["text"], blame_in(example)) == ("A record is lost.", f"To blame: {blame}")
    assert knows_blame(example) is known


@pytest.mark.parametrize("blame", [
    "n2", {"text": "n2."}, {"text": 2, "known": True}, {"text": "n2.", "known": "no"},
    {"text": "n2.", "known": True, "shown_by": {"node": "n1"}}])
def test_a_saved_verdict_with_a_mistyped_blame_is_refused(tmp_path: Path, blame: object) -> None:
    with pytest.raises(FloodmarkError, match="judge again"):
        read_verdict(saved(tmp_path, text="A record is lost.", blame=blame))

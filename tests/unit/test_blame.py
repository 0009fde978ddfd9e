"""Who is to blame for a finding: the node with the first wrong step, or nobody if no line shows it."""

import json
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Blamed:
    """What the worst example of the finding says."""

    finding: str
    line: tuple[str, str] | None  # that it quotes: node and event; None: whichever
    words: str  # how the blame begins; "": nobody is named


def begun() -> Story:
    return Story().begin()


def produced_by_two() -> Story:
    """n1 and n2 have offset 1, n3 does not."""
    return begun().produce(1).append("n1").append("n2")


def fetch(story: Story, follower: str, offset: int) -> Story:
    """The leader's line of a follower's fetch."""
    return story.say(story.leader, "fetch", follower=follower, offset=offset, follower_epoch=story.epoch)


def ends(end: int, epoch: int = 0) -> Json:
    """Fields of a truncation by this answer."""
    return {"cause": "epoch", "answer": {"epoch": epoch, "end": end}}


def truncate_after_an_early_hw(early: bool) -> Story:
    """n1 commits offset 1, n3 is elected without it, n1 truncates; `early`: n3 never appended it."""
    story = produced_by_two()
    if not early:
        story.append("n3")
    story.commit().ack(1)
    if not early:
        story.truncate("n3", 1, "hw")
    return story.elect("n3", "n3", "n1", "n2").truncate("n1", 1, **ends(1))


def committed_without_n3() -> Story:
    story = produced_by_two()
    story.ruling("isr", ["n1", "n2"], cause="alter").say("n1", "isr", isr=["n1", "n2"], leader="n1")
    return story.commit().ruling("isr", ["n1", "n2", "n3"], cause="alter")


def truncated(to: int, *, again: bool = False, **fields: Any) -> Story:
    story = begun().produce(2)
    if again:
        story.elect("n1", "n1", "n2", "n3").produce(2)
    return story.truncate("n2", to, **fields)


def n2_elected_with_hw_2(story: Story) -> Story:
    story.hw["n2"] = 2
    return story.elect("n2", "n2", "n3")


def restarted_without_record(*, fetched_again: bool) -> Story:
    story = begun().produce(2).restart("n3", leo=1, epochs=[[0, 0]])
    if fetched_again:
        story.append("n3")
    for event in ("register", "unfence"):
        story.say("controller", event, broker="n3", broker_epoch=2, clean=False, alone=True)
    story.take_role("n3")
    return story.append("n1").append("n2").commit() if fetched_again else story


def added_to_isr(*, proposed: bool, restarted: bool = False) -> Story:
    """n3 is added to the ISR while behind the HW."""
    story = begun().produce(1)
    story.ruling("isr", ["n1", "n2"], cause="alter").say("n1", "isr", isr=["n1", "n2"], leader="n1")
    story.produce(2)
    story.say("n1", "isr_proposed", isr=["n1", "n2", "n3"] if proposed else ["n1"],
              partition_epoch=story.partition_epoch)
    if restarted:
        story.restart("n3", leo=0).register("n3")
    return story.ruling("isr", ["n1", "n2", "n3"], cause="alter")


EARLY = "n1, which as the leader moved its HW over offset 1 before n3 of its ISR had appended it."
MOVED = "n1, which as the leader moved its HW over offset "
NO_ANSWER = f"{UNDECIDED}: n2 truncated its log to 1, and no line shows what n1 had answered"
CUT = ("n2", "truncate")
CASES: dict[str, tuple[Story, list[Blamed]]] = {
    "a leader that moves its HW too early, not the follower that truncates": (
        truncate_after_an_early_hw(early=True),
        [Blamed(finding=name, line=("n1", "hw"), words=EARLY)
         for name in ("unsafe-truncation", "leader-incomplete", "candidate-incomplete")]),
    "not the leader if all of the ISR had it, but who truncated it": (
        truncate_after_an_early_hw(early=False),
        [Blamed(finding="leader-incomplete", line=("n3", "truncate"),
                words="n3, which truncated its log to 1 and cut the record.")]),
} | {title: (story, [Blamed(finding=name, line=line, words=words)]) for title, story, name, line, words in (
    ("who fetches above its LEO: the leader counted the offset as appended",
     fetch(produced_by_two(), "n3", 2).commit(),
     "candidate-incomplete", ("n1", "fetch"), "n3, which asked its leader n1"),
    ("not who fetches from its LEO",
     fetch(produced_by_two(), "n3", 1).commit(), "candidate-incomplete", None, MOVED),
    ("not the leader for a replica that was outside of its ISR when it moved its HW",
     committed_without_n3(), "candidate-incomplete", None, f"{UNDECIDED}: the leader may have proposed"),
    ("who truncates as answered: undecided", truncated(1, **ends(1)), "unsafe-truncation", CUT,
     f"{UNDECIDED}: n1 held the record, and n2 cut it by the answer that epoch 0"),
    ("who truncates below the answer", truncated(0, **ends(2)), "unsafe-truncation", CUT,
     "n2, which truncated offset 0 though n1 had answered that epoch 0 ends"),
    ("below it by one", truncated(0, **ends(1)), "unsafe-truncation", CUT,
     "n2, which truncated offset 0 though n1 had answered that epoch 0 ends"),
    ("below an answer without an epoch", truncated(0, **ends(2, epoch=-1)), "unsafe-truncation", CUT,
     "n2, which truncated offset 0 though n1 had answered that its log ends at 2."),
    ("records of a later epoch than the answered one have to go, wherever that ends (KIP-279)",
     truncated(3, again=True, **ends(9)), "unsafe-truncation", CUT, f"{UNDECIDED}: n1 held the record"),
    ("to its HW: its own decision", truncated(1, cause="hw"), "unsafe-truncation", CUT, ""),
    ("by an unknown answer", truncated(1, cause="epoch"), "unsafe-truncation", CUT, NO_ANSWER),
    ("in an old file", truncated(1, cause=None, why="epoch 0 ends at 9 on the leader"),
     "unsafe-truncation", CUT, NO_ANSWER),
    ("a new leader with an HW above every earlier leader's: its leader may have sent it",
     n2_elected_with_hw_2(produced_by_two()), "candidate-incomplete", ("n2", "become_leader"),
     f"{UNDECIDED}: n2 began to lead with an HW of 2 when no leader's HW had been above 1;"),
    ("not a new leader that fetched its HW",
     n2_elected_with_hw_2(produced_by_two().commit()), "candidate-incomplete", None, MOVED),
    ("a member with another record at the offset, or its leader: undecided",
     fetch(begun().produce(1).append("n3", epoch=0).elect("n2", "n2", "n3").append("n2"), "n3", 2).commit(),
     "candidate-incomplete", ("n2", "hw"), f"{UNDECIDED}: n2 moved its HW over offset 1 by a fetch of n3"),
    ("a member that restarts without the record: should its disk have had it?",
     restarted_without_record(fetched_again=False), "candidate-incomplete", ("n3", "start"),
     f"{UNDECIDED}: n3 started with LEO 1, without the record"),
    ("not that restart if it fetched the record later",
     restarted_without_record(fetched_again=True), "candidate-incomplete", None, f"{MOVED}2"),
    ("the leader that proposed a replica behind the HW", added_to_isr(proposed=True), "unsafe-isr",
     ("n1", "isr_proposed"), "n1, which as the leader proposed an ISR with n3, which was behind the HW."),
    ("the controller that adds a replica nobody proposed", added_to_isr(proposed=False), "unsafe-isr",
     ("controller", "isr"), "the controller, which took into the ISR"),
    ("leader or controller, for a replica that was restarted: undecided",
     added_to_isr(proposed=True, restarted=True), "unsafe-isr", None, UNDECIDED),
)}
TWO_TRUNCATIONS = "not the earlier truncation of another follower, which fetched the record again"
STORIES = {title: story for title, (story, _) in CASES.items()} | {
    TWO_TRUNCATIONS: begun().produce(2).truncate("n3", 1).append("n3").truncate("n2", 1)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stories")


@pytest.fixture(scope="module")
def verdicts(folder: Path) -> dict[str, Verdict]:
    """Of each story; all are judged in one call, and one without a trace."""
    folders = []
    for number, story in enumerate(STORIES.values()):
        tale = Tale().acked(1)
        tale.trace = story.lines
        folders.append(tale.write(folder / str(number)))
    untraced = Tale().acked(1)
    untraced.logs["n1"] = []
    folders.append(untraced.write(folder / "untraced"))
    return dict(zip([*STORIES, "untraced"], judge(folders), strict=True))


def blame(example: Json) -> str:
    return str(example["blame"]["text"]) if "blame" in example else ""


@pytest.mark.parametrize(("title", "blamed"), [
    pytest.param(title, one, id=f"{title}; {one.finding}")
    for title, (_, several) in CASES.items() for one in several])
def test_who_is_to_blame(verdicts: dict[str, Verdict], title: str, blamed: Blamed) -> None:
    """And it is known whether anybody is."""
    worst = {one.name: dict(one.examples[0]) for one in verdicts[title].findings if one.klass == "bug"}
    example = worst[blamed.finding]
    if blamed.line is not None:
        line = STORIES[title].lines[example["event"]]
        assert (line["node"], line["event"]) == blamed.line
    assert blame(example).startswith(blamed.words)
    assert bool(blame(example)) == bool(blamed.words)
    known = UNDECIDED not in blamed.words if blamed.words else None
    assert example.get("blame", {}).get("known") == known


def test_of_two_truncations_each_has_its_own_line(verdicts: dict[str, Verdict]) -> None:
    (found,) = (one for one in verdicts[TWO_TRUNCATIONS].findings if one.name == "unsafe-truncation")
    assert [one["nodes"] for one in found.examples] == [["n2"], ["n3"]]
    lines = STORIES[TWO_TRUNCATIONS].lines
    assert [[lines[one["event"]]["node"]] for one in found.examples] == [["n2"], ["n3"]]


def test_without_a_trace_no_finding_names_blame(verdicts: dict[str, Verdict]) -> None:
    assert verdicts["untraced"].valid is False
    assert not any("blame" in example for one in verdicts["untraced"].findings for example in one.examples)


@pytest.mark.parametrize(("title", "head"), [
    ("to its HW: its own decision", "guilty"),
    ("who truncates as answered: undecided", "event")])
def test_the_report_has_a_guilty_event_only_if_it_is_decided(
        verdicts: dict[str, Verdict], folder: Path, title: str, head: str) -> None:
    """Its first sentence names who is to blame, or says that it is undecided."""
    found = [{"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count,
              "examples": list(one.examples)} for one in verdicts[title].findings]
    run = folder / str(list(STORIES).index(title))
    first, *_ = verdict_text.reading_of(
        run, {"valid": False, "findings": found, "unknown": []}, json.loads((run / "run.json").read_text())
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

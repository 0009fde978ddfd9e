"""Damages of the ISR in a healthy trace, and damages of the trace as a file.

The rules are those of damages_trace.py; FILES are the changes of the file, with what must be unknown then.
"""

import json
from random import Random
from typing import Any

import twin_trace
from damages import BUG, Damage, Expect
from damages_trace import a_leaders_hw_falls, a_member_cuts_what_is_committed, bounced, plant
from trace_scene import CONTROLLER, Scene

from histories import Line, RunFolder

FILES: dict[str, Damage] = {}
ALL = frozenset(twin_trace.NAMES)


# -- unsafe-isr ---------------------------------------------------------------------------------------------

def left_behind(scene: Scene) -> str:
    """Takes a follower out of the ISR and commits a record without it; returns the follower."""
    scene.shrink(scene.other)
    scene.append(scene.leader)
    scene.copy(scene.one)
    scene.commit()
    return scene.other


def take_in(scene: Scene, late: str) -> None:
    """The leader proposes it, the controller applies it, the leader learns of it."""
    scene.propose(late)
    scene.word("isr", isr=[*scene.isr, late], cause="alter")
    scene.learn()


@plant(unsafe_isr=BUG, candidate_incomplete=BUG)
def taken_in_below_the_hw(scene: Scene) -> None:
    scene.fetch(left_behind(scene))
    take_in(scene, scene.other)


@plant()
def proposed_below_the_hw(scene: Scene) -> None:
    """The proposal is never applied: the leader broke the rule, but no ISR has it yet."""
    scene.fetch(left_behind(scene))
    scene.propose(scene.other)


@plant()
def taken_in_without_a_fetch(scene: Scene) -> None:
    """It has all records, but this leader cannot know it."""
    scene.shrink(scene.other)
    scene.change(scene.one)
    take_in(scene, next(node for node in scene.nodes if node not in scene.isr))


@plant(unsafe_isr=BUG)
def taken_in_below_the_epochs_start(scene: Scene) -> None:
    late, new = scene.other, scene.one
    scene.shrink(late)
    scene.append(scene.leader)
    scene.copy(new)
    scene.change(new)
    scene.fetch(late)
    take_in(scene, late)


@plant()
def taken_in_at_the_hw(scene: Scene) -> None:
    """As it should be: the leader has more records, but none of them is committed."""
    late = left_behind(scene)
    scene.append(late, role="follower")
    scene.append(scene.leader)
    scene.fetch(late)
    scene.propose(late)
    scene.word("isr", isr=[*scene.isr, late], cause="alter")
    scene.learn()
    scene.copy(scene.one, late)
    scene.commit()
    scene.ack()


def taken_in_unheard(scene: Scene) -> tuple[list[str], str]:
    """The controller has applied a larger ISR; its leader does not know yet, and commits more. Returns the
    ISR before, and the new member."""
    late = left_behind(scene)
    scene.append(late, role="follower")
    scene.fetch(late)
    before = list(scene.isr)
    scene.propose(late)
    scene.word("isr", isr=[*before, late], cause="alter")
    scene.append(scene.leader)
    scene.copy(scene.one, late)
    scene.commit()
    return before, late


@plant()
def counted_before_it_is_taken_in(scene: Scene) -> None:
    """A leader counts the replica that it has proposed, and the controller applies it before the leader
    knows."""
    before, late = taken_in_unheard(scene)
    scene.ack([*before, late])
    scene.learn()


@plant(unsafe_isr=BUG)
def not_counted_although_taken_in(scene: Scene) -> None:
    before, _ = taken_in_unheard(scene)
    scene.ack(before)


@plant(unsafe_isr=BUG)
def a_shrink_is_believed_too_early(scene: Scene) -> None:
    """The proposal never reached the controller."""
    scene.say(scene.leader, "isr_proposed", isr=sorted([scene.leader, scene.one]),
              partition_epoch=scene.partition_epoch)
    scene.append(scene.leader)
    scene.copy(scene.one, scene.other)
    scene.commit()
    scene.ack([scene.leader, scene.one])


@plant()
def an_old_leader_knows_another_isr(scene: Scene) -> None:
    """It knows the ISR of its own epoch; the controller's line is of the next."""
    old = scene.leader
    scene.shrink(scene.other)
    scene.append(old)
    scene.copy(scene.one)
    scene.commit()
    scene.append(scene.other, role="follower")
    scene.elect(scene.one, isr=scene.nodes)
    scene.say(old, "ack", offset=scene.states[old].hw - 1, acks="all", isr=sorted([old, scene.one]))


@plant(unsafe_isr=BUG, candidate_incomplete=BUG, recovery_loss=BUG)
def taken_in_with_an_empty_disk(scene: Scene) -> None:
    """It restarted between the proposal and the controller's line."""
    scene.outgrow()
    late = caught_up_outsider(scene)
    bounced(scene, late, 0)
    scene.word("isr", isr=[*scene.isr, late], cause="alter")


@plant(recovery_loss=BUG)
def taken_in_before_its_death_is_known(scene: Scene) -> None:
    """It is up with fewer records, and not yet registered when the controller applies the ISR; then it
    leaves."""
    scene.outgrow()
    late = caught_up_outsider(scene)
    scene.start(late, 0)
    before = list(scene.isr)
    scene.word("isr", isr=[*before, late], cause="alter")
    scene.broker("register", late)
    scene.word("isr", isr=before, cause="registration")
    scene.broker("unfence", late)


def caught_up_outsider(scene: Scene) -> str:
    late = left_behind(scene)
    scene.append(late, role="follower")
    scene.fetch(late)
    scene.propose(late)
    return late


# -- the trace as a file ------------------------------------------------------------------------------------

def spoilt(damage: Damage) -> Damage:
    FILES[damage.__name__] = damage
    return damage


def lines_of(folder: RunFolder) -> list[Line]:
    assert folder.trace is not None
    return folder.trace


def inner_line(folder: RunFolder, random: Random) -> Line:
    """A line of a node that has lines before and after it."""
    lines = lines_of(folder)
    last = {line["node"]: line["seq"] for line in lines}
    return random.choice([line for line in lines if 0 < line["seq"] < last[line["node"]]])


@spoilt
def a_line_is_missing(folder: RunFolder, random: Random) -> Expect:
    lines_of(folder).remove(inner_line(folder, random))
    return Expect(unknown=ALL, valid="unknown")


@spoilt
def a_node_is_missing(folder: RunFolder, random: Random) -> Expect:
    folder.trace = [line for line in lines_of(folder) if line["node"] != "n2"]
    return Expect(unknown=ALL, valid="unknown")


@spoilt
def no_line_at_all(folder: RunFolder, random: Random) -> Expect:
    folder.trace = []
    return Expect(unknown=ALL, valid="unknown")


@spoilt
def no_trace(folder: RunFolder, random: Random) -> Expect:
    folder.trace = None
    return Expect(valid=True)


@spoilt
def a_torn_last_line(folder: RunFolder, random: Random) -> Expect:
    text = "".join(json.dumps(line) + "\n" for line in lines_of(folder))
    folder.files["trace.jsonl"] = text[:-random.randrange(3, 20)].encode()
    return Expect(unknown=ALL, valid="unknown")


@spoilt
def a_garbled_line(folder: RunFolder, random: Random) -> Expect:
    texts = [json.dumps(line) for line in lines_of(folder)]
    texts[random.randrange(len(texts))] = '{"time":17,'
    folder.files["trace.jsonl"] = ("\n".join(texts) + "\n").encode()
    return Expect(unknown=ALL, valid="unknown")


@spoilt
def blank_lines(folder: RunFolder, random: Random) -> Expect:
    folder.files["trace.jsonl"] = "\n".join(
        json.dumps(line) + "\n" * random.randrange(3) for line in lines_of(folder)).encode()
    return Expect(valid=True)


@spoilt
def a_gap_and_a_fall_of_the_hw(folder: RunFolder, random: Random) -> Expect:
    """A finding that one node's own lines show remains."""
    a_leaders_hw_falls(Scene(folder, random))
    lines_of(folder).remove(inner_line(folder, random))
    return Expect(must={"hw-regressed": BUG}, unknown=ALL)


@spoilt
def a_gap_and_a_committed_record_cut(folder: RunFolder, random: Random) -> Expect:
    """A finding that missing lines might excuse is not reported."""
    lines_of(folder).remove(inner_line(folder, random))
    a_member_cuts_what_is_committed(Scene(folder, random))
    return Expect(unknown=ALL, valid="unknown")


@spoilt
def clocks_that_prove_nothing(folder: RunFolder, random: Random) -> Expect:
    """The commit and the cut are on two nodes, whose clocks may differ that much."""
    a_member_cuts_what_is_committed(Scene(folder, random))
    folder.run["clock_error_ns"] = 10**15
    return Expect(valid=True)


@spoilt
def clocks_that_do_not_matter(folder: RunFolder, random: Random) -> Expect:
    a_leaders_hw_falls(Scene(folder, random))
    folder.run["clock_error_ns"] = 10**15
    return Expect(must={"hw-regressed": BUG})


@spoilt
def appends_without_epochs(folder: RunFolder, random: Random) -> Expect:
    for line in lines_of(folder):
        line.pop("epochs", None)
    return Expect(valid=True)


@spoilt
def events_and_fields_that_nobody_knows(folder: RunFolder, random: Random) -> Expect:
    """Also lines of partitions that are not the run's, and lines that concern the node and no partition."""
    lines = lines_of(folder)
    for line in lines:
        line["wind"] = {"from": "west"}
    extras: list[dict[str, Any]] = [
        {"event": "sneeze"}, {"event": "failpoint", "name": "L.hw", "action": "report", "partition": 0},
        {"event": "start", "clean": True, "partition": 77, "epoch": 4, "leo": 4, "hw": 9},
        {"event": "hw", "partition": 77, "epoch": 4, "leo": 4, "hw": 0, "role": "leader"}]
    for node in (*folder.run["nodes"], CONTROLLER):
        last = next(line for line in reversed(lines) if line["node"] == node)
        for more, extra in enumerate(extras, start=1):
            lines.append({"time": last["time"], "node": node, "seq": last["seq"] + more} | extra)
    lines.sort(key=lambda line: (line["time"], line["node"], line["seq"]))
    return Expect(valid=True)


@spoilt
def many_things_at_one_instant(folder: RunFolder, random: Random) -> Expect:
    """A part of the run has one time, and no order between nodes is known."""
    lines = lines_of(folder)
    first = random.randrange(len(lines))
    for line in lines[first:first + random.randrange(2, 60)]:
        line["time"] = lines[first]["time"]
    return Expect(valid=True)

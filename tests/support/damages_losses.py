"""Damages that lose acked records, and everything that permits or does not permit such a loss.

The rules are those of damages.py; here the class of a finding is what matters.
"""

from dataclasses import replace
from random import Random
from typing import Any

from damages import (
    BUG,
    Expect,
    acks,
    any_ack,
    damage,
    failed_or_info,
    follower,
    found,
    index_of_invocation,
    insert,
    rewrite,
    shorten,
    unread,
    was_read,
)

from histories import NODES, Line, RunFolder, checksum, starts


def lose_tail(folder: RunFolder, random: Random, nodes: tuple[str, ...] | None = None
              ) -> tuple[int, int, int, bool] | None:
    """Removes the last acked record from these logs (all by default); half of the time from the reads as
    well."""
    ack = any_ack(folder, random, tail=True)
    if ack is None:
        return None
    for node in nodes or NODES:
        shorten(folder, node, ack[0])
    if random.random() < 0.5:
        unread(folder, ack[2])
    return (*ack, was_read(folder, ack[2]))


def lost(seen: bool) -> Expect:
    return found("lost-write", *(("saw-then-lost",) if seen else ()))


@damage
def tail_gone(folder: RunFolder, random: Random) -> Expect | None:
    """The last record, acked, is in no log."""
    gone = lose_tail(folder, random)
    return None if gone is None else lost(gone[3])


@damage
def tail_gone_from_the_leader(folder: RunFolder, random: Random) -> Expect | None:
    """The followers have an acked record that the leader lacks."""
    ack = any_ack(folder, random, tail=True)
    if ack is None:
        return None
    shorten(folder, folder.leader(ack[0]), ack[0])
    return lost(was_read(folder, ack[2]))


@damage
def overwritten(folder: RunFolder, random: Random) -> Expect | None:
    """A record of an info send is in the place of an acked one."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    other = failed_or_info(folder, ack[0], "info")
    rewrite(folder, ack[0], ack[1], value=other, crc=checksum(ack[0], other))
    return lost(was_read(folder, ack[2]))


@damage
def overwritten_and_both_acked(folder: RunFolder, random: Random) -> Expect | None:
    """Two sends were acked at one offset; the later one is in the log."""
    ack = any_ack(folder, random, tail=True)
    if ack is None:
        return None
    other, process = folder.fresh_value(), folder.fresh_process()
    send = {"partition": ack[0], "value": other}
    # invoked first, so that no read comes before it
    insert(folder, 0, process, "invoke", "send", sends=[send])
    folder.add(process, "ok", "send", sends=[{**send, "offset": ack[1]}])
    for _, read in folder.reads():
        if read["value"] == ack[2]:
            read["value"] = other
    rewrite(folder, ack[0], ack[1], value=other, crc=checksum(ack[0], other))
    return found("lost-write", "inconsistent-offsets")


@damage
def moved(folder: RunFolder, random: Random) -> Expect | None:
    """Two acked records have swapped places in every log."""
    one = any_ack(folder, random)
    others = [ack for ack in acks(folder) if one and ack[0] == one[0] and ack != one]
    if one is None or not others:
        return None
    other = random.choice(others)
    for mine, yours in ((one, other), (other, one)):
        rewrite(folder, one[0], mine[1], value=yours[2], crc=checksum(one[0], yours[2]))
    return found("lost-write", may=("saw-then-lost",))


@damage
def acked_above_the_end(folder: RunFolder, random: Random) -> Expect | None:
    """An ack named an offset that no log ever reached; the value lies elsewhere."""
    line = next((line for line in folder.lines if line["type"] == "ok" and line["f"] == "send"
                 and "offset" in line["sends"][-1]), None)
    if line is None:
        return None
    line["sends"][-1]["offset"] += 1000
    return found("lost-write", may=("realtime-order", "nonmonotonic-send", "int-nonmonotonic-send"))


# -- permitted losses ---------------------------------------------------------------------------------------

def cut_power(folder: RunFolder, nodes: tuple[str, ...]) -> Line:
    line = folder.add(-1, "info", "power_cut",
                      fault={"nodes": list(nodes), "moment": {"at": "time", "time": 1}, "lost": True})
    folder.add(-1, "info", "start", fault={"nodes": list(nodes)})
    return line


def permitted(by: str, seen: bool, *, sure: bool = True) -> Expect:
    """A permitted loss, and the loss of what readers saw (unless acks alone excuse the loss)."""
    names = ["lost-write", *(["saw-then-lost"] if seen else [])]
    return Expect(must=dict.fromkeys(names, ("permitted", by)), valid=True if sure else "unknown",
                  unknown=frozenset() if sure else frozenset(names))


@damage
def power_cut_of_all(folder: RunFolder, random: Random) -> Expect | None:
    """Every node loses power, and the tail is lost: beyond the budget."""
    folder.trace = None
    gone = lose_tail(folder, random)
    cut_power(folder, NODES)
    return None if gone is None else permitted("fault budget", gone[3])


@damage
def power_cut_of_one(folder: RunFolder, random: Random) -> Expect | None:
    """One node loses power, and the tail is lost: without a trace it is unknown whether that was the
    reason."""
    folder.trace = None
    gone = lose_tail(folder, random)
    cut_power(folder, (random.choice(NODES),))
    return None if gone is None else permitted("fault budget", gone[3], sure=False)


@damage
def power_cut_though_every_record_is_flushed(folder: RunFolder, random: Random) -> Expect | None:
    """flush.messages=1: a power cut excuses nothing."""
    folder.trace = None
    folder.run["guarantees"]["flush"] = "every"
    gone = lose_tail(folder, random)
    cut_power(folder, NODES)
    return None if gone is None else lost(gone[3])


@damage
def power_cut_before_the_send(folder: RunFolder, random: Random) -> Expect | None:
    """The power cut came before the lost record was sent: it excuses nothing."""
    folder.trace = None
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    insert(folder, index_of_invocation(folder, gone[2]), -1, "info", "power_cut",
           fault={"nodes": list(NODES), "lost": True})
    return lost(gone[3])


def traced(folder: RunFolder) -> None:
    """Gives the folder a trace if it has none: each node's start, and no election."""
    if folder.trace is None:
        folder.trace = starts()


def next_seq(folder: RunFolder) -> int:
    return sum(1 for event in folder.trace or [] if event["node"] == "c")


def after_all(folder: RunFolder) -> int:
    """A time after everything in the folder so far, whatever the clocks' error."""
    latest = max(line["time"] for line in [*folder.lines, *(folder.trace or [])])
    return int(latest + 1 + (folder.run.get("clock_error_ns") or 0))


def add_ruling(folder: RunFolder, event: str, **fields: Any) -> None:
    """Adds a line of the controller to the trace, after everything in the history."""
    assert folder.trace is not None
    seq = next_seq(folder)
    line = {"time": after_all(folder), "node": "c", "seq": seq, "event": event, **fields}
    folder.trace.append(line | ({"partition_epoch": 100 + seq} if "isr" in fields else {}))


def elected(folder: RunFolder, partition: int, isr: tuple[str, ...], *, clean: bool = True) -> None:
    """Adds to the controller's trace, after everything in the history, that the first of these was
    elected."""
    add_ruling(folder, "elect", partition=partition, leader=isr[0], epoch=99, isr=list(isr), clean=clean)


@damage
def a_struck_leader_by_the_trace(folder: RunFolder, random: Random) -> Expect | None:
    """The trace shows that the last ISR member lost power and was elected again: certainly permitted."""
    traced(folder)
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    cut_power(folder, (folder.leader(gone[0]),))
    elected(folder, gone[0], (folder.leader(gone[0]),))
    return permitted("fault budget", gone[3])


@damage
def an_unstruck_copy_in_the_isr(folder: RunFolder, random: Random) -> Expect | None:
    """The trace shows ISR members without a power cut when the struck one was elected: a bug, whatever was
    lost."""
    traced(folder)
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    leader = folder.leader(gone[0])
    cut_power(folder, (leader,))
    elected(folder, gone[0], (leader, follower(folder, random, gone[0])))
    return lost(gone[3])


def started_anew(folder: RunFolder, node: str) -> None:
    """Adds to the trace that the node started again, and that the controller knows the new incarnation."""
    assert folder.trace is not None
    folder.trace.append({"time": after_all(folder), "node": node, "seq": 1, "event": "start",
                         "clean": False})
    add_ruling(folder, "register", broker=node, broker_epoch=99)
    add_ruling(folder, "unfence", broker=node)


@damage
def struck_and_taken_in_again(folder: RunFolder, random: Random) -> Expect | None:
    """The struck node had caught up and was in the ISR again before it was elected alone: a bug."""
    traced(folder)
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    leader, other = folder.leader(gone[0]), follower(folder, random, gone[0])
    cut_power(folder, (leader,))
    add_ruling(folder, "isr", partition=gone[0], leader=other, epoch=98, isr=[other], cause="test")
    started_anew(folder, leader)
    add_ruling(folder, "isr", partition=gone[0], leader=other, epoch=98, isr=[other, leader], cause="test")
    elected(folder, gone[0], (leader,))
    return lost(gone[3])


@damage
def unclean_by_the_trace(folder: RunFolder, random: Random) -> Expect | None:
    """The controller's trace has an unclean election afterwards, which was allowed, or requested."""
    traced(folder)
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    if random.random() < 0.5:
        folder.run["guarantees"]["unclean_leader_election"] = True
    else:
        folder.add(-1, "info", "elect", fault={"nodes": [], "unclean": True, "partitions": [gone[0]]})
    elected(folder, gone[0], (folder.leader(gone[0]),), clean=False)
    return permitted("unclean.leader.election.enable", gone[3])


@damage
def unclean_and_nobody_had_allowed_it(folder: RunFolder, random: Random) -> Expect | None:
    """The setting is off, and nobody had requested the election, or only for another partition, or too
    late."""
    traced(folder)
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    expect = lost(gone[3])
    if random.random() < 0.5:
        folder.add(-1, "info", "elect", fault={"nodes": [], "unclean": True, "partitions": [gone[0] + 7]})
    elected(folder, gone[0], (folder.leader(gone[0]),), clean=False)
    return replace(expect, must=expect.must | {"unclean-election": BUG})


@damage
def unclean_by_a_trace_with_a_gap(folder: RunFolder, random: Random) -> Expect | None:
    """An unclean election that the trace shows is certain, though the trace lacks other lines."""
    expect = unclean_by_the_trace(folder, random)
    folder.trace = (folder.trace or [])[1:]
    if expect is None:
        return None
    return replace(expect, unknown=frozenset({"ack-rule", "candidate-incomplete"}), valid="unknown")


@damage
def a_strike_and_a_trace_with_a_gap(folder: RunFolder, random: Random) -> Expect | None:
    """A trace that lacks a node does not prove that no leader was elected from struck copies."""
    traced(folder)
    gone = lose_tail(folder, random)
    if gone is None or folder.trace is None:
        return None
    cut_power(folder, (random.choice(NODES),))
    folder.trace = [event for event in folder.trace if event["node"] != "n2"]
    return permitted("fault budget", gone[3], sure=False)


@damage
def unclean_of_another_partition(folder: RunFolder, random: Random) -> Expect | None:
    """An unclean election of some other partition excuses nothing here."""
    traced(folder)
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    elected(folder, gone[0] + 1, ("n1",), clean=False)
    folder.run["guarantees"]["unclean_leader_election"] = True
    return lost(gone[3])


@damage
def unclean_by_the_nemesis(folder: RunFolder, random: Random) -> Expect | None:
    """The nemesis requested an unclean election afterwards, and no trace shows whether there was one."""
    folder.trace = None
    gone = lose_tail(folder, random)
    folder.add(-1, "info", "elect", fault={"nodes": [], "unclean": True})
    return None if gone is None else permitted("unclean.leader.election.enable", gone[3])


@damage
def unclean_allowed_and_no_trace(folder: RunFolder, random: Random) -> Expect | None:
    """The setting is on, and there is no trace."""
    folder.trace = None
    folder.run["guarantees"]["unclean_leader_election"] = True
    gone = lose_tail(folder, random)
    return None if gone is None else permitted("unclean.leader.election.enable", gone[3], sure=False)


@damage
def unclean_allowed_but_the_trace_has_none(folder: RunFolder, random: Random) -> Expect | None:
    """The setting is on, and the trace shows that there was no unclean election."""
    traced(folder)
    folder.run["guarantees"]["unclean_leader_election"] = True
    gone = lose_tail(folder, random)
    return None if gone is None else lost(gone[3])


@damage
def acks_one(folder: RunFolder, random: Random) -> Expect | None:
    """Under acks=1 an ack may be lost; what was read had been committed, and its loss is still a bug."""
    folder.run["guarantees"]["acks"] = random.choice(("1", "0"))
    gone = lose_tail(folder, random)
    if gone is None:
        return None
    must: dict[str, tuple[str, str | None]] = {"lost-write": ("permitted", "acks")}
    if gone[3]:
        must["saw-then-lost"] = BUG
    return Expect(must=must, valid=not gone[3])


@damage
def overwritten_after_a_power_cut(folder: RunFolder, random: Random) -> Expect | None:
    """Two acks at one offset, the first lost to a power cut of all: both findings follow from it."""
    folder.trace = None
    ack = any_ack(folder, random, tail=True)
    if ack is None:
        return None
    cut_power(folder, NODES)
    if overwritten_and_both_acked(folder, random) is None:
        return None
    names = ("lost-write", "inconsistent-offsets")
    return Expect(must=dict.fromkeys(names, ("permitted", "fault budget")), valid=True)

"""Damages that only reads can show because the leader's log is missing, and near misses.

In what the final readers got, and in imported histories. The rules are those of damages.py. An ack proves a
record to a reader that skips it, so a loss brings skips along.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from damages import (
    NOTHING,
    Expect,
    acks,
    damage,
    failed_or_info,
    final_reads,
    found,
    insert,
    near_miss,
    rewrite,
    some_partition,
    spoilt_file,
    unread,
)

from histories import NODES, READER, Line, RunFolder, checksum

OF_LOGS = frozenset({"diverged", "epoch-lineage", "malformed-log", "under-replicated", "saw-then-lost",
                     "unseen"})
SKIPS = ("poll-skip", "int-poll-skip")


def without_the_leaders_log(folder: RunFolder, partition: int) -> None:
    folder.trace = None
    folder.files[f"logs/{folder.leader(partition)}.jsonl"] = None


def clients_alone(folder: RunFolder) -> None:
    """Turns the folder into an imported history."""
    folder.trace = None
    folder.run |= {"leaders": {}, "settled": False, "final_reads": {},
                   "imported": {"blind": [], "unread": []},
                   "observes": {"dumps": False, "replicas": False, "trace": []}}
    folder.files |= {"replicas.jsonl": None, **{f"logs/{node}.jsonl": None for node in NODES}}


def lose_one_between(folder: RunFolder, random: Random) -> tuple[int, int, int] | None:
    """Loses an acked record between others that the final reader got: another record is in its place, and no
    read returns that one."""
    between = []
    for ack in acks(folder):
        shown = [read["offset"] for _, read in final_reads(folder, ack[0])]
        if min(shown, default=ack[1]) < ack[1] < max(shown, default=ack[1]):
            between.append(ack)
    if not between:
        return None
    partition, offset, value = random.choice(between)
    rewrite(folder, partition, offset, value=None, crc=checksum(partition, None))
    unread(folder, value)
    return partition, offset, value


def and_unknown(expect: Expect) -> Expect:
    return replace(expect, unknown=OF_LOGS)


@damage
def unreadable_to_a_final_reader(folder: RunFolder, random: Random) -> Expect | None:
    """A final poll tells of a batch that it could not read, and another poll may do so too. A process that
    went on behind it skipped nothing."""
    polls = [line for line in folder.lines if line["f"] == "poll" and line["type"] == "ok"]
    final = [line for line in polls if line["process"] == READER and line.get("reads")]
    if not final:
        return None
    partition, place = final[0]["reads"][0]["partition"], {"offset": random.randrange(5), "why": "length"}
    for line in (random.choice(final), random.choice(polls)):
        line["corrupt"] = [{"partition": partition, **place}]
    without_the_leaders_log(folder, partition)
    return and_unknown(found("malformed-log"))


@damage
def lost_between_final_reads(folder: RunFolder, random: Random) -> Expect | None:
    lost = lose_one_between(folder, random)
    if lost is None:
        return None
    without_the_leaders_log(folder, lost[0])
    return and_unknown(found("lost-write", may=SKIPS))


@damage
def lost_between_final_reads_and_nobody_leads(folder: RunFolder, random: Random) -> Expect | None:
    """The logs are there, but it is unknown which one counts."""
    lost = lose_one_between(folder, random)
    if lost is None:
        return None
    folder.trace = None
    folder.run["leaders"][str(lost[0])] = {"leader": None}
    return found("lost-write", may=SKIPS)


@damage
def lost_under_acks_one_between_final_reads(folder: RunFolder, random: Random) -> Expect | None:
    """An ack of acks=1 proves nothing to a reader either."""
    lost = lose_one_between(folder, random)
    if lost is None:
        return None
    without_the_leaders_log(folder, lost[0])
    folder.run["guarantees"]["acks"] = "1"
    return Expect(must={"lost-write": ("permitted", "acks")}, valid="unknown", unknown=OF_LOGS)


@damage
def overwritten_between_final_reads(folder: RunFolder, random: Random) -> Expect | None:
    """The record of an info send is there instead, and is read. Every node lost power: so it is permitted."""
    lost = lose_one_between(folder, random)
    if lost is None:
        return None
    partition, offset, _ = lost
    other = failed_or_info(folder, partition, "info")
    rewrite(folder, partition, offset, value=other, crc=checksum(partition, other))
    without_the_leaders_log(folder, partition)
    process = folder.run["final_reads"]["processes"][0]
    shown: list[Line] = [{"partition": partition, "offset": offset, "value": other}]
    folder.run["final_reads"]["processes"].append(process + 1)
    folder.add(process + 1, "invoke", "poll")
    folder.add(process + 1, "ok", "poll", reads=shown)
    names = ["lost-write", "inconsistent-offsets"]
    if random.random() < 0.5:
        folder.add(-1, "info", "power_cut", fault={"nodes": list(NODES), "lost": True})
        return Expect(must=dict.fromkeys(names, ("permitted", "fault budget")), may=frozenset(SKIPS),
                      unknown=OF_LOGS, valid="unknown")
    return and_unknown(found(*names, may=SKIPS))


@damage
def lost_below_what_was_read_elsewhere(folder: RunFolder, random: Random) -> Expect | None:
    """The loss is found by Jepsen's inference."""
    lost = lose_one_between(folder, random)
    if lost is None:
        return None
    clients_alone(folder)
    return found("lost-write", may=SKIPS)


@near_miss
def a_healthy_history_from_elsewhere(folder: RunFolder, random: Random) -> Expect | None:
    """An imported history in which all acked values are read; sometimes nobody reads its end."""
    if not folder.run["settled"]:
        return None
    if random.random() < 0.5:
        key = some_partition(folder, random)
        tail = [read for _, read in final_reads(folder, key)][-1:]
        for read in tail:
            unread(folder, read["value"])
    clients_alone(folder)
    return NOTHING


def denied_by(folder: RunFolder, nodes: Sequence[str], act: str = "kill", **fault: object) -> Expect | None:
    """Only the wire is seen of a system that was struck, and then acked nothing more; every node answered,
    and these did not know its topics. None: nothing had been acked before a fault."""
    faults = [line["index"] for line in folder.lines if line["process"] == -1]
    acked = {send["partition"] for line in folder.lines[:min(faults, default=None)]
             if line["type"] == "ok" and line["process"] not in folder.run["settle"]["processes"]
             for send in line.get("sends") or []}
    if not acked or any(line["fault"].get("lost") for line in folder.lines if line["process"] == -1):
        return None
    clients_alone(folder)
    del folder.run["imported"]
    folder.add(-1, "info", act, fault={"nodes": list(NODES), **fault})
    folder.run["leaders"] = {key: {"leader": None} for key in folder.run["partitions"]}
    folder.run["settle"] |= {"no_ack": sorted(acked), "answering": list(NODES), "topic_unknown": list(nodes)}
    return found("stuck")


@damage
def no_node_knows_the_topics(folder: RunFolder, random: Random) -> Expect | None:
    """Also where a fault struck before, and where acks were weak."""
    stuck = denied_by(folder, random.sample(NODES, len(NODES)))
    if stuck is None or random.random() < 0.7:
        return stuck and found("lost-write", "stuck")
    folder.run["guarantees"]["acks"] = "1"
    return replace(stuck, must={**stuck.must, "lost-write": ("permitted", "acks")})


@damage
def one_node_may_know_the_topics(folder: RunFolder, random: Random) -> Expect | None:
    """Or an act of the run explains that none does: nothing is lost for certain."""
    stuck = random.choice((
        lambda: denied_by(folder, NODES[:-1]),
        lambda: denied_by(folder, NODES, "delete_topic"),
        lambda: denied_by(folder, NODES, "power_cut", lost=True)))()
    return stuck and replace(stuck, unknown=frozenset({"lost-write"}))


@near_miss
def nodes_that_may_not_have_been_up(folder: RunFolder, random: Random) -> Expect | None:
    """Or a partition that nobody ever saw work."""
    if denied_by(folder, ()) is None:
        return None
    settle = folder.run["settle"]
    if random.random() < 0.5:
        settle["answering"] = random.choice((list(NODES[1:]), None, 7, {"n1": 1}))
    else:
        insert(folder, 0, -1, "info", "heal", fault={"nodes": []})
    return Expect(unknown=frozenset({"stuck", "lost-write"}), valid="unknown")


@spoilt_file
def the_leaders_log_is_not_there_and_all_was_read(folder: RunFolder, random: Random) -> Expect | None:
    """Reads decide what is lost: nothing."""
    without_the_leaders_log(folder, some_partition(folder, random))
    return Expect(unknown=OF_LOGS, valid="unknown")

"""Damages of what clients saw, and near misses: values that nobody sent, orders against time, reads that
jump.

The rules are those of damages.py. These damages change the history, and the logs only so that they agree with
it.
"""

from random import Random

from damages import (
    NOTHING,
    Expect,
    acks,
    any_ack,
    damage,
    extend,
    failed_or_info,
    final_reads,
    found,
    near_miss,
    rewrite,
    some_partition,
)

from histories import READER, RunFolder, checksum


def last_reader(folder: RunFolder, partition: int, reads: list[dict[str, int]]) -> int:
    """Adds a new process that reads this, at the end of the history."""
    process = folder.fresh_process()
    folder.add(process, "invoke", "assign", partitions=[partition])
    folder.add(process, "ok", "assign", partitions=[partition])
    folder.add(process, "invoke", "poll")
    folder.add(process, "ok", "poll", reads=reads)
    return process


@damage
def a_duplicate(folder: RunFolder, random: Random) -> Expect | None:
    """An acked value is in every log a second time, at the end."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    extend(folder, ack[0], ack[2])
    return found("duplicate")


@damage
def a_duplicate_by_retries(folder: RunFolder, random: Random) -> Expect | None:
    """With retries and without idempotence a duplicate is permitted."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    folder.run["guarantees"] |= {"retries": 3, "idempotence": False}
    extend(folder, ack[0], ack[2])
    return Expect(must={"duplicate": ("permitted", "retries")}, valid=True)


@damage
def a_duplicate_in_spite_of_idempotence(folder: RunFolder, random: Random) -> Expect | None:
    """An idempotent producer may retry and must not repeat."""
    folder.run["guarantees"] |= {"retries": 3, "idempotence": True}
    return a_duplicate(folder, random)


@near_miss
def a_duplicate_that_was_aborted(folder: RunFolder, random: Random) -> Expect | None:
    """The second copy belongs to an aborted transaction."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    offset = extend(folder, ack[0], ack[2])
    rewrite(folder, ack[0], offset, aborted=True)
    return NOTHING


@damage
def a_phantom_in_the_log(folder: RunFolder, random: Random) -> Expect | None:
    """Every log ends with a value that nobody sent."""
    extend(folder, some_partition(folder, random), folder.fresh_value())
    return found("phantom")


@damage
def a_phantom_of_another_partition(folder: RunFolder, random: Random) -> Expect | None:
    """A value sent to one partition is in the logs of another one."""
    ack = any_ack(folder, random)
    others = [int(key) for key in folder.run["partitions"] if ack and int(key) != ack[0]]
    if ack is None or not others:
        return None
    extend(folder, random.choice(others), ack[2])
    return found("phantom")


@damage
def a_phantom_read(folder: RunFolder, random: Random) -> Expect | None:
    """A poll returned a value that nobody sent and that is in no log."""
    partition = some_partition(folder, random)
    end = folder.row("n1", partition)["leo"]
    last_reader(folder, partition, [{"partition": partition, "offset": end, "value": folder.fresh_value()}])
    return found("phantom", "saw-then-lost")


@damage
def a_failed_value_in_the_log(folder: RunFolder, random: Random) -> Expect | None:
    """A send failed for certain, and its record is committed in every log."""
    partition = some_partition(folder, random)
    extend(folder, partition, failed_or_info(folder, partition, "fail"))
    return found("G1a")


@damage
def a_failed_value_read(folder: RunFolder, random: Random) -> Expect | None:
    """A send failed for certain, and a poll returned its value."""
    partition = some_partition(folder, random)
    value = failed_or_info(folder, partition, "fail")
    end = folder.row("n1", partition)["leo"]
    last_reader(folder, partition, [{"partition": partition, "offset": end, "value": value}])
    return found("G1a", "saw-then-lost")


@near_miss
def a_failed_value_above_the_high_watermark(folder: RunFolder, random: Random) -> Expect | None:
    """Not settled: a failed send's value is only in the leader's log, above the high watermark."""
    if folder.run["settled"]:
        return None
    partition = some_partition(folder, random)
    leader = folder.leader(partition)
    hw = folder.row(leader, partition)["hw"]
    extend(folder, partition, failed_or_info(folder, partition, "fail"), (leader,))
    folder.row(leader, partition)["hw"] = hw
    return NOTHING


@near_miss
def an_info_value_in_the_log(folder: RunFolder, random: Random) -> Expect | None:
    """A send of unknown fate survived, or was still open when the run ended."""
    partition = some_partition(folder, random)
    value = failed_or_info(folder, partition, "info")
    if random.random() < 0.5:
        folder.lines.pop()
    extend(folder, partition, value)
    return NOTHING


@damage
def another_value_read(folder: RunFolder, random: Random) -> Expect | None:
    """A poll showed another value at an offset than the ack, the other polls and the log show."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    value = failed_or_info(folder, ack[0], "info")
    last_reader(folder, ack[0], [{"partition": ack[0], "offset": ack[1], "value": value}])
    return found("inconsistent-offsets", "saw-then-lost")


@near_miss
def an_info_offset_that_is_wrong(folder: RunFolder, random: Random) -> Expect | None:
    """The offset of an info send is only a remark: it may be another record's offset."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    failed_or_info(folder, ack[0], "info")
    folder.lines[-1]["sends"][0]["offset"] = ack[1]
    return NOTHING


# -- orders -------------------------------------------------------------------------------------------------

@damage
def against_real_time(folder: RunFolder, random: Random) -> Expect | None:
    """Two sends that followed each other in time have swapped places in logs, acks and reads."""
    oks = [line for line in folder.lines
           if line["type"] == "ok" and line["f"] == "send" and "offset" in line["sends"][0]]
    pairs = [(a, b) for a in oks for b in oks
             if a["sends"][0]["partition"] == b["sends"][0]["partition"] and invoked(folder, b) > a["index"]]
    if not pairs:
        return None
    one, other = (line["sends"][0] for line in random.choice(pairs))
    swap = {one["value"]: other["value"], other["value"]: one["value"]}
    one["offset"], other["offset"] = other["offset"], one["offset"]
    key = one["partition"]
    for _, read in folder.reads():
        read["value"] = swap.get(read["value"], read["value"])
    for send in (one, other):
        rewrite(folder, key, send["offset"], value=send["value"], crc=checksum(key, send["value"]))
    return found("realtime-order", may=("nonmonotonic-send", "int-nonmonotonic-send", "G1c", "G1c-process",
                                         "G1c-realtime"))


def invoked(folder: RunFolder, line: dict[str, object]) -> int:
    return max(int(other["index"]) for other in folder.lines[:int(str(line["index"]))]
               if other["process"] == line["process"] and other["type"] == "invoke")


@near_miss
def side_by_side_out_of_order(folder: RunFolder, random: Random) -> Expect | None:
    """Two sends overlap in time, and the one that was answered first has the higher offset."""
    partition = some_partition(folder, random)
    values = (folder.fresh_value(), folder.fresh_value() + 1)
    processes = (folder.fresh_process(), folder.fresh_process() + 1)
    offsets = [extend(folder, partition, value) for value in reversed(values)]
    for process, value in zip(processes, values, strict=True):
        folder.add(process, "invoke", "send", sends=[{"partition": partition, "value": value}])
    for process, value, offset in zip(processes, values, reversed(offsets), strict=True):
        send = {"partition": partition, "value": value, "offset": offset}
        folder.add(process, "ok", "send", sends=[send])
    end = [{"partition": partition, "offset": offset, "value": value}
           for value, offset in zip(reversed(values), offsets, strict=True)]
    if folder.run["settled"]:
        folder.add(READER, "invoke", "poll")
        folder.add(READER, "ok", "poll", reads=end)
    return None if final_skips(folder, partition, offsets[0]) else NOTHING


def final_skips(folder: RunFolder, partition: int, offset: int) -> bool:
    """Whether the final reader's last poll would jump over a record of ours before this offset."""
    before = [entry for entry in folder.log("n1", partition) if entry["offset"] < offset]
    seen = {read["offset"] for _, read in final_reads(folder, partition)}
    return any(entry["value"] is not None and entry["offset"] not in seen for entry in before)


@damage
def sent_backwards(folder: RunFolder, random: Random) -> Expect | None:
    """The second value of one op has the lower offset."""
    lines = [line for line in folder.lines if line["type"] == "ok" and line["f"] == "send"
             and len(line["sends"]) > 1 and "offset" in line["sends"][0]]
    if not lines:
        return None
    one, other = random.choice(lines)["sends"][:2]
    one["offset"], other["offset"] = other["offset"], one["offset"]
    swap = {one["value"]: other["value"], other["value"]: one["value"]}
    for _, read in folder.reads():
        read["value"] = swap.get(read["value"], read["value"])
    for send in (one, other):
        rewrite(folder, one["partition"], send["offset"], value=send["value"],
                crc=checksum(one["partition"], send["value"]))
    return found("int-nonmonotonic-send")


@damage
def the_final_read_stops_short(folder: RunFolder, random: Random) -> Expect | None:
    """The last acked record is in the leader's log and no final read returned it."""
    ack = any_ack(folder, random, tail=True)
    mine = final_reads(folder, ack[0]) if ack else []
    if ack is None or not mine or mine[-1][1]["value"] != ack[2]:
        return None
    mine[-1][0]["reads"].remove(mine[-1][1])
    return found("unseen")


@damage
def the_final_read_jumps(folder: RunFolder, random: Random) -> Expect | None:
    """A final read left out a record of the leader's log."""
    reads = [(line, read) for line, read in final_reads(folder, some_partition(folder, random))]
    if len(reads) < 3:
        return None
    line, read = random.choice(reads[1:-1])
    line["reads"].remove(read)
    return Expect(may=frozenset({"unseen", "poll-skip", "int-poll-skip"}), valid=False)


@damage
def read_again(folder: RunFolder, random: Random) -> Expect | None:
    """The next poll of a process starts where its last one started."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    read = {"partition": ack[0], "offset": ack[1], "value": ack[2]}
    process = last_reader(folder, ack[0], [read])
    folder.add(process, "invoke", "poll")
    folder.add(process, random.choice(("ok", "fail", "info")), "poll", reads=[read])
    return found("nonmonotonic-poll")


@damage
def read_backwards(folder: RunFolder, random: Random) -> Expect | None:
    """One poll returned a record twice."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    read = {"partition": ack[0], "offset": ack[1], "value": ack[2]}
    last_reader(folder, ack[0], [read, dict(read)])
    return found("int-nonmonotonic-poll")


@damage
def a_poll_jumps_over_what_was_shown_before(folder: RunFolder, random: Random) -> Expect | None:
    """A poll jumps over a record; that an earlier poll showed it is no excuse."""
    partition = some_partition(folder, random)
    reads = [dict(read) for _, read in final_reads(folder, partition)]
    if len(reads) < 3:
        return None
    process = last_reader(folder, partition, reads)
    for partitions in ([], [partition]):
        folder.add(process, "invoke", "assign", partitions=partitions)
        folder.add(process, "ok", "assign", partitions=partitions)
    folder.add(process, "invoke", "poll")
    folder.add(process, random.choice(("ok", "fail", "info")), "poll", reads=[reads[0], reads[-1]])
    return found("int-poll-skip")


@near_miss
def read_again_after_an_assign(folder: RunFolder, random: Random) -> Expect | None:
    """An assign without a partition forgets the position in it; a later poll shows again what a failed poll
    showed."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    read = {"partition": ack[0], "offset": ack[1], "value": ack[2]}
    process = last_reader(folder, ack[0], [read])
    for partitions in ([], [ack[0]]):
        folder.add(process, "invoke", "assign", partitions=partitions)
        folder.add(process, "ok", "assign", partitions=partitions)
    for kind in ("fail", "ok"):
        folder.add(process, "invoke", "poll")
        folder.add(process, kind, "poll", reads=[read])
    return NOTHING


@damage
def read_again_under_a_subscription(folder: RunFolder, random: Random) -> Expect | None:
    """A subscriber may get a partition again, and start before its last position."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    read = {"partition": ack[0], "offset": ack[1], "value": ack[2]}
    process = last_reader(folder, ack[0], [])
    folder.add(process, "invoke", "subscribe", partitions=[ack[0]])
    folder.add(process, "ok", "subscribe", partitions=[ack[0]])
    for _ in range(2):
        folder.add(process, "invoke", "poll")
        folder.add(process, "ok", "poll", reads=[read])
    return Expect(must={"nonmonotonic-poll": ("permitted", "subscribe")}, valid=True)


@damage
def the_end_falls(folder: RunFolder, random: Random) -> Expect | None:
    """A process gets a lower end offset than before, or one not above what it has polled."""
    ack = any_ack(folder, random)
    if ack is None or ack[1] == 0:
        return None
    process = folder.fresh_process()
    if random.random() < 0.5:
        process = last_reader(folder, ack[0], [{"partition": ack[0], "offset": ack[1], "value": ack[2]}])
        ends = [ack[1]]
    else:
        ends = [ack[1], ack[1] - 1]
    for end in ends:
        folder.add(process, "invoke", "list_offsets")
        folder.add(process, "ok", "list_offsets", offsets=[{"partition": ack[0], "offset": end}])
    return found("end-offset-regressed")


def behind_an_ack(folder: RunFolder, random: Random, epoch: int) -> bool:
    """A process that reads uncommitted records is told, in this epoch, that a log ends at an acked record,
    which another process read in epoch 7."""
    ack = any_ack(folder, random)
    if ack is None or folder.run["guarantees"]["acks"] != "all":
        return False
    reader = folder.fresh_process()
    asker = reader + 1
    read = {"partition": ack[0], "offset": ack[1], "value": ack[2], "epoch": 7}
    folder.add(reader, "invoke", "poll")
    folder.add(reader, "ok", "poll", reads=[read])
    folder.run["isolation_of"] = {str(asker): "read_uncommitted"}
    folder.add(asker, "invoke", "list_offsets")
    folder.add(asker, "ok", "list_offsets",
               offsets=[{"partition": ack[0], "offset": ack[1], "epoch": epoch}])
    return True


@damage
def an_end_is_behind_an_ack(folder: RunFolder, random: Random) -> Expect | None:
    return found("end-offset-regressed") if behind_an_ack(folder, random, epoch=7) else None


@near_miss
def a_new_leader_tells_an_end_behind_an_ack(folder: RunFolder, random: Random) -> Expect | None:
    """What isolation decides is unknown there, where a process has its own."""
    return Expect(valid="unknown") if behind_an_ack(folder, random, epoch=8) else None


@near_miss
def two_clients_are_told_different_ends(folder: RunFolder, random: Random) -> Expect | None:
    """An end offset that another client got before does not matter."""
    for end in (7, 3):
        process = folder.fresh_process()
        folder.add(process, "invoke", "list_offsets")
        folder.add(process, "ok", "list_offsets", offsets=[{"partition": 0, "offset": end}])
    return NOTHING


@near_miss
def every_ack_below_an_unread_info(folder: RunFolder, random: Random) -> Expect | None:
    """A record of an info send at the end of every log that no final read returned is not unseen."""
    partition = some_partition(folder, random)
    if not acks(folder):
        return None
    extend(folder, partition, failed_or_info(folder, partition, "info"))
    return NOTHING

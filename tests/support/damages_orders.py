"""Damages of the order in which clients send and read, and near misses.

Orders inside a transaction, over polls that failed, over crashes, and where only reads show the offsets. The
rules are those of damages.py. New sends are at the end of every log, and the final reader sees them.
"""

from random import Random

from damages import NOTHING, Expect, damage, final_reads, found, near_miss, some_partition
from damages_clients import last_reader
from txn_clients import after, clients

from histories import Line, RunFolder

KINDS = ("ok", "fail", "info")


def three_reads(folder: RunFolder, random: Random) -> list[Line] | None:
    """Three records of one partition that the final reader got one after the other."""
    reads = [dict(read) for _, read in final_reads(folder, some_partition(folder, random))]
    if len(reads) < 3:
        return None
    at = random.randrange(len(reads) - 2)
    return reads[at:at + 3]


def reads_on(folder: RunFolder, process: int, kind: str, *reads: Line, f: str = "poll") -> None:
    folder.add(process, "invoke", f)
    folder.add(process, kind, f, reads=[dict(read) for read in reads])


@damage
def a_txn_jumps(folder: RunFolder, random: Random) -> Expect | None:
    """Inside a transaction, whatever its outcome, a record is skipped."""
    reads = three_reads(folder, random)
    if reads is None:
        return None
    reads_on(folder, folder.fresh_process(), random.choice(KINDS), reads[0], reads[2], f="txn")
    return found("int-poll-skip")


@damage
def a_txn_reads_backwards(folder: RunFolder, random: Random) -> Expect | None:
    reads = three_reads(folder, random)
    if reads is None:
        return None
    reads_on(folder, folder.fresh_process(), random.choice(KINDS), reads[1], reads[0], f="txn")
    return found("int-nonmonotonic-poll")


@damage
def a_txn_sends_backwards(folder: RunFolder, random: Random) -> Expect | None:
    """Its second record has a lower offset than its first; an ack shows the offset, or only a read."""
    key = some_partition(folder, random)
    txn, reader = clients(folder, [key, key], [])
    txn.asks()
    shown = [txn.appends(1), txn.appends(0)]
    if random.random() < 0.5:
        remove_offsets(txn.sends, random)
        reader.process += 1
    txn.answers("ok")
    reader.asks()
    reader.answers("ok", *shown)
    return after(folder, found("int-nonmonotonic-send"))


def remove_offsets(sends: list[Line], random: Random) -> None:
    """Removes the offsets from the acks of one or more of these sends."""
    for send in random.sample(sends, random.randrange(1, len(sends) + 1)):
        send.pop("offset")


@near_miss
def a_txn_sends_behind_what_it_reads(folder: RunFolder, random: Random) -> Expect | None:
    """A transaction's sends and reads have no order between them."""
    reads = three_reads(folder, random)
    if reads is None:
        return None
    (txn,) = clients(folder, [reads[0]["partition"]])
    txn.asks()
    txn.appends()
    txn.answers("ok", *reads)
    return after(folder, NOTHING)


@damage
def a_poll_jumps_over_what_was_given_back(folder: RunFolder, random: Random) -> Expect | None:
    """A record that only a failed poll or transaction showed must be shown again, and here it is not."""
    reads = three_reads(folder, random)
    if reads is None:
        return None
    process = last_reader(folder, reads[0]["partition"], reads[:1])
    reads_on(folder, process, "fail", *reads[1:random.choice((2, 3))], f=random.choice(("poll", "txn")))
    reads_on(folder, process, random.choice(KINDS), reads[2], f=random.choice(("poll", "txn")))
    return found("poll-skip")


@near_miss
def what_was_given_back_is_shown_again(folder: RunFolder, random: Random) -> Expect | None:
    reads = three_reads(folder, random)
    if reads is None:
        return None
    process = last_reader(folder, reads[0]["partition"], reads[:1])
    for kind in ("fail", "fail", random.choice(KINDS)):
        reads_on(folder, process, kind, *reads[1:], f=random.choice(("poll", "txn")))
    return NOTHING


@near_miss
def a_consumer_crashes_and_begins_anew(folder: RunFolder, random: Random) -> Expect | None:
    """After a crash it reads everything again, with an assign or without."""
    reads = three_reads(folder, random)
    if reads is None:
        return None
    process = last_reader(folder, reads[0]["partition"], reads)
    for kind in random.choices(("ok", "fail"), k=2):
        folder.add(process, "invoke", "crash")
        folder.add(process, kind, "crash")
        if random.random() < 0.5:
            folder.add(process, "invoke", "assign", partitions=[reads[0]["partition"]])
            folder.add(process, "ok", "assign", partitions=[reads[0]["partition"]])
        reads_on(folder, process, "ok", *reads[random.randrange(3):])
    return NOTHING


@damage
def read_again_though_another_crashed(folder: RunFolder, random: Random) -> Expect | None:
    """A crash concerns one process; and a crash that is still open has ended nothing."""
    reads = three_reads(folder, random)
    if reads is None:
        return None
    process, other = last_reader(folder, reads[0]["partition"], reads), folder.fresh_process()
    folder.add(other, "invoke", "crash")
    folder.add(other, random.choice(KINDS), "crash")
    reads_on(folder, process, random.choice(KINDS), *reads[1:])
    return found("nonmonotonic-poll")


@damage
def sent_backwards_as_reads_tell(folder: RunFolder, random: Random) -> Expect | None:
    """A process's second op has a lower offset than its first; an ack of at least one of them lacks the
    offset."""
    key = some_partition(folder, random)
    first, second, reader = clients(folder, [key], [key], [], f=random.choice(("send", "txn")))
    second.process, reader.f = first.process, "poll"
    first.asks()
    shown = [second.appends(), first.appends()]
    remove_offsets([first.sends[0], second.sends[0]], random)
    first.answers("ok")
    second.asks()
    second.answers("ok")
    reader.asks()
    reader.answers("ok", *shown)
    return after(folder, found("nonmonotonic-send"))


@near_miss
def sent_forwards_as_reads_tell(folder: RunFolder, random: Random) -> Expect | None:
    """The same, in order."""
    key = some_partition(folder, random)
    first, second, reader = clients(folder, [key], [key], [], f="send")
    second.process, reader.f = first.process, "poll"
    for op in (first, second):
        op.asks()
        op.appends()
        op.sends[0].pop("offset")
        op.answers("ok")
    return after(folder, NOTHING)


@damage
def acked_here_and_read_there(folder: RunFolder, random: Random) -> Expect | None:
    """The ack names a higher offset than the one where the record was read. There is no leader's log, which
    would show a lost write."""
    key = some_partition(folder, random)
    folder.trace, folder.files[f"logs/{folder.leader(key)}.jsonl"] = None, None
    (client,) = clients(folder, [key], f=random.choice(("send", "txn")))
    client.asks()
    shown = client.appends()
    client.sends[0]["offset"] += random.choice((1, 7))
    client.answers("ok")
    (reader,) = clients(folder, [], f="poll")
    reader.asks()
    reader.answers(random.choice(KINDS), shown)
    return after(folder, found("duplicate"))

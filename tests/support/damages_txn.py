"""Damages of transactions that are bugs, and near misses: a read of one's own write or of an aborted one,
rings.

Rings of reads, with or without time. The rules are those of damages.py. Each damage adds ops at the end of
the history, with their records at the end of every log, and the final reader sees them; so each fits a folder
with or without transactions. Findings that the isolation level permits may be in any run with transactions:
tests look only for bugs, and for what an Expect requires.
"""

from random import Random

from damages import NOTHING, Expect, damage, extend, found, near_miss, some_partition
from txn_clients import (
    Client,
    after,
    clients,
    last_record,
    picks,
)

from histories import NODES, RunFolder

# -- a transaction and its own writes -----------------------------------------------------------------------

@damage
def a_txn_reads_its_own_write(folder: RunFolder, random: Random) -> Expect | None:
    """Whatever its outcome; if it is aborted, it read a failed write as well."""
    kind = random.choice(("ok", "info", "fail"))
    (txn,) = clients(folder, picks(folder, random, 2))
    txn.asks()
    reads = [txn.appends(which, aborted=kind == "fail") for which in range(2)]
    txn.answers(kind, *reads[:random.randrange(1, 3)])
    return after(folder, found("precommitted-read", *(("G1a",) if kind == "fail" else ())))


@damage
def an_aborted_value_is_read(folder: RunFolder, random: Random) -> Expect | None:
    """A transaction failed for certain, and a poll or transaction of any outcome read its value."""
    (txn,) = clients(folder, picks(folder, random, 1))
    txn.asks()
    value = txn.appends(aborted=True)
    txn.answers("fail")
    (reader,) = clients(folder, [], f=random.choice(("txn", "poll")))
    reader.asks()
    reader.answers(random.choice(("ok", "fail", "info")), value)
    return after(folder, found("G1a"))


@damage
def a_reader_gets_what_was_aborted(folder: RunFolder, random: Random) -> Expect | None:
    """Its client never learnt that, or was even told ok: only the log shows it."""
    (txn,) = clients(folder, picks(folder, random, 1))
    txn.asks()
    value = txn.appends(aborted=True)
    kind = random.choice(("ok", "info", "never"))
    if kind != "never":
        txn.answers(kind)
    (reader,) = clients(folder, [], f=random.choice(("txn", "poll")))
    reader.process = txn.process + 1
    reader.asks()
    reader.answers("ok", value)
    return after(folder, found("G1a", may=("unseen",)))


@near_miss
def an_aborted_value_is_passed_over(folder: RunFolder, random: Random) -> Expect | None:
    """Its record is in the logs and no read returned it; a marker follows."""
    txn, reader, other = clients(folder, picks(folder, random, 2), [], picks(folder, random, 1))
    txn.asks()
    for which in range(2):
        txn.appends(which, aborted=True)
        extend(folder, txn.sends[which]["partition"], None)
    txn.answers("fail")
    other.asks()
    value = other.appends()
    other.answers("ok")
    reader.asks()
    reader.answers("ok", value)
    return after(folder, NOTHING)


@near_miss
def an_abort_is_under_way(folder: RunFolder, random: Random) -> Expect | None:
    """A transaction was answered as failed, and the run ended before its marker: its record is undecided, and
    any read of it is allowed."""
    folder.run["settled"] = False
    folder.run["guarantees"]["isolation"] = random.choice(("read_committed", "read_uncommitted"))
    (txn,) = clients(folder, picks(folder, random, 1))
    txn.asks()
    txn.appends()
    for node in NODES:
        folder.row(node, txn.sends[0]["partition"])["lso"] = txn.sends[0]["offset"]
    txn.answers("fail")
    return Expect(valid="unknown")


@damage
def an_ok_txn_was_aborted(folder: RunFolder, random: Random) -> Expect | None:
    """It was answered ok, its records are in the logs as aborted, and no final read returned them."""
    (txn,) = clients(folder, picks(folder, random, 1), f=random.choice(("txn", "send")))
    txn.asks()
    txn.appends(aborted=True)
    txn.answers("ok")
    return after(folder, found("unseen"))


@near_miss
def an_aborted_txn_reads_once_more(folder: RunFolder, random: Random) -> Expect | None:
    """An abort rewinds: the next transaction of the process reads the same records again, and then those that
    the first one sends again."""
    partition = some_partition(folder, random)
    value = last_record(folder, partition)
    first, second, third = clients(folder, [partition], [partition], [])
    second.process = third.process = first.process
    if value is None:
        return None
    first.asks()
    first.appends(aborted=True)
    first.answers("fail", value)
    second.asks()
    sent = second.appends()
    second.answers("ok", value)
    third.asks()
    third.answers("ok", sent)
    return after(folder, NOTHING)


# -- transactions that take effect in part ------------------------------------------------------------------

def in_part(
    folder: RunFolder, random: Random, kind: str, fates: list[bool | None], *, f: str = "txn"
) -> None:
    """A client sends records and gets this answer; each of them is committed (True), aborted (False), or in
    no log (None)."""
    (txn,) = clients(folder, picks(folder, random, len(fates)), f=f)
    for row in folder.rows:
        row["lso"] = row["hw"]
    txn.asks()
    for which, committed in enumerate(fates):
        if committed is not None:
            txn.appends(which, aborted=not committed)
    if kind != "never":
        txn.answers(kind)


@damage
def a_txn_takes_effect_in_part(folder: RunFolder, random: Random) -> Expect | None:
    """One record is committed, another is aborted or was never there; nobody was told ok."""
    if not folder.run.get("settled"):
        return None
    fates = [True, random.choice((False, None)), *random.choices((True, False, None), k=random.randrange(3))]
    random.shuffle(fates)
    kind = random.choice(("info", "fail", "never"))
    in_part(folder, random, kind, fates)
    return after(folder, found("torn-transaction", *(("G1a",) if kind == "fail" else ())))


@near_miss
def a_txn_takes_effect_as_a_whole(folder: RunFolder, random: Random) -> Expect | None:
    """Or not at all; a plain send of two records may take effect in part."""
    whole = random.choice((True, False))
    fates = random.choice(([True, True], [False, False], [None, None], [False, None]))
    in_part(folder, random, random.choice(("info", "never")), fates if whole else [True, None],
            f="txn" if whole else "send")
    return after(folder, NOTHING)


# -- rings of reads -----------------------------------------------------------------------------------------

@damage
def two_txns_read_each_other(folder: RunFolder, random: Random) -> Expect | None:
    """At the same time, or one after the other."""
    one, other = clients(folder, *([key] for key in picks(folder, random, 2)))
    kinds = random.choices(("ok", "info"), k=2)
    one.asks()
    if random.random() < 0.5:
        other.asks()
    mine, yours = one.appends(), other.appends()
    one.answers(kinds[0], yours)
    if folder.lines[-2]["process"] != other.process:
        other.asks()
    other.answers(kinds[1], mine)
    return after(folder, found("G1c"))


@damage
def three_txns_in_a_ring(folder: RunFolder, random: Random) -> Expect | None:
    """Each read what the next one sent."""
    ring = clients(folder, *([key] for key in picks(folder, random, 3)))
    for txn in ring:
        txn.asks()
    values = [txn.appends() for txn in ring]
    for txn, value in zip(ring, values[1:] + values[:1], strict=True):
        txn.answers(random.choice(("ok", "ok", "info")), value)
    return after(folder, found("G1c"))


@damage
def a_ring_that_a_failure_breaks(folder: RunFolder, random: Random) -> Expect | None:
    """Two read each other, but one of them failed: it wrote nothing, and reading it is another finding."""
    one, other = clients(folder, *([key] for key in picks(folder, random, 2)))
    one.asks()
    other.asks()
    mine, yours = one.appends(), other.appends(aborted=True)
    one.answers("ok", yours)
    other.answers("fail", mine)
    return after(folder, found("G1a"))


@near_miss
def a_chain_of_reads(folder: RunFolder, random: Random) -> Expect | None:
    """Each read what the one before it sent; the first, of unknown outcome, read nothing."""
    chain = clients(folder, *([key] for key in picks(folder, random, 3)))
    for txn in chain:
        txn.asks()
    values = [txn.appends() for txn in chain]
    for txn, value in reversed(list(zip(chain[1:], values[:-1], strict=True))):
        txn.answers("ok", value)
    if random.random() < 0.5:
        chain[0].answers(random.choice(("ok", "info")))
    return after(folder, NOTHING)


# -- rings through time -------------------------------------------------------------------------------------

def long_one_around_two(folder: RunFolder, random: Random, kind: str, *, one_process: bool, overlap: bool
                        ) -> list[Client]:
    """The first, which has this outcome, reads what the long one sends; then (or at the same time) the second
    is invoked, and the long one reads what it sends."""
    long, first, second = clients(folder, *([key] for key in picks(folder, random, 3)))
    if one_process:
        second.process = first.process
    long.asks()
    first.asks()
    value = long.appends()
    first.appends(aborted=kind == "fail")
    if overlap:
        second.asks()
    first.answers(kind, value)
    if not overlap:
        second.asks()
    early = second.appends()
    second.answers(random.choice(("ok", "info")))
    long.answers(random.choice(("ok", "info")), early)
    return [long, first, second]


@damage
def a_ring_through_time(folder: RunFolder, random: Random) -> Expect | None:
    """What an op had read when it was answered, whatever the answer, came before later invocations."""
    kind = random.choice(("ok", "fail", "info"))
    long_one_around_two(folder, random, kind, one_process=False, overlap=False)
    return after(folder, found("G1c-realtime"))


@damage
def a_ring_through_a_process(folder: RunFolder, random: Random) -> Expect | None:
    """The same in one process: its order is an order of time too, and the ring is one finding."""
    long_one_around_two(folder, random, random.choice(("ok", "fail")), one_process=True, overlap=False)
    return after(folder, found("G1c-process"))


@near_miss
def a_ring_that_an_overlap_breaks(folder: RunFolder, random: Random) -> Expect | None:
    """The second was invoked before the first was answered."""
    kind = random.choice(("ok", "fail", "info"))
    long_one_around_two(folder, random, kind, one_process=False, overlap=True)
    return after(folder, NOTHING)


def read_early(folder: RunFolder, random: Random, sender_f: str, reader_f: str, *, own: bool) -> None:
    """A value is read before its send was invoked."""
    key = some_partition(folder, random)
    (sender,) = clients(folder, [key], f=sender_f)
    reader = Client(folder=folder, f=reader_f, process=sender.process + (0 if own else 1), sends=[])
    value = sender.appends()
    reader.asks()
    reader.answers(random.choice(("ok", "fail") if own else ("ok", "fail", "info")), value)
    sender.asks()
    kind = random.choice(("ok", "ok", "info", "never"))
    if kind != "never":
        sender.answers(kind)


@damage
def read_before_it_was_sent(folder: RunFolder, random: Random) -> Expect | None:
    """A poll reads a plain send's value, in a run that may have no transactions."""
    read_early(folder, random, "send", "poll", own=False)
    return after(folder, found("G1c-realtime"))


@damage
def read_by_its_own_sender_before_it_was_sent(folder: RunFolder, random: Random) -> Expect | None:
    """With transactions or without: it is one finding."""
    read_early(folder, random, "send", "poll", own=True)
    return after(folder, found("G1c-process"))


@damage
def a_txns_write_is_read_before_it_began(folder: RunFolder, random: Random) -> Expect | None:
    """By a poll or a transaction, of the same process or another."""
    own = random.random() < 0.5
    read_early(folder, random, "txn", random.choice(("poll", "txn")), own=own)
    return after(folder, found("G1c-process" if own else "G1c-realtime"))


@damage
def a_failed_send_is_read_before_it_was_sent(folder: RunFolder, random: Random) -> Expect | None:
    """The send failed: reading it is G1a, and no cycle."""
    (sender,) = clients(folder, picks(folder, random, 1), f=random.choice(("send", "txn")))
    reader = Client(folder=folder, f="poll", process=sender.process + 1, sends=[])
    value = sender.appends(aborted=True)
    reader.asks()
    reader.answers("ok", value)
    sender.asks()
    sender.answers("fail")
    return after(folder, found("G1a"))


@near_miss
def read_before_it_was_answered(folder: RunFolder, random: Random) -> Expect | None:
    """A value may be read once its send was invoked, by an op that was invoked before."""
    (sender,) = clients(folder, picks(folder, random, 1), f=random.choice(("send", "txn")))
    reader = Client(folder=folder, f=random.choice(("poll", "txn")), process=sender.process + 1, sends=[])
    reader.asks()
    sender.asks()
    reader.answers("ok", sender.appends())
    sender.answers(random.choice(("ok", "info")))
    return after(folder, NOTHING)

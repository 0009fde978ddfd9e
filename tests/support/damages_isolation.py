"""Damages of transactions that the isolation level permits, and others whose class other damage makes
unknown.

The rules are those of damages_txn.py.
"""

from dataclasses import replace
from random import Random

from damages import Expect, damage, found, spoilt_file
from damages_txn import (
    a_ring_through_a_process,
    a_ring_through_time,
    a_txn_reads_its_own_write,
    an_aborted_value_is_read,
    long_one_around_two,
    read_before_it_was_sent,
    read_by_its_own_sender_before_it_was_sent,
    three_txns_in_a_ring,
    two_txns_read_each_other,
)
from txn_clients import (
    BY_PROCESS,
    OF_TXNS,
    after,
    clients,
    must_permit,
    picks,
    two_partitions,
)

from histories import RunFolder

# -- permitted by the isolation level -----------------------------------------------------------------------

@damage
def writes_interleave(folder: RunFolder, random: Random) -> Expect | None:
    """Two open transactions wrote in between each other, in one partition or in two."""
    one, other = clients(folder, *(picks(folder, random, 1) * 2,) * 2)
    if random.random() < 0.5:
        keys = two_partitions(folder, random)
        for txn, mine in zip((one, other), (keys, keys[::-1]), strict=True):
            for send, key in zip(txn.sends, mine, strict=False):
                send["partition"] = key
    for txn in (one, other):
        txn.asks()
    order = ((one, 0), (other, 0), (other, 1), (one, 1))
    if one.sends[0]["partition"] != one.sends[1]["partition"]:
        order = ((one, 0), (other, 1), (other, 0), (one, 1))
    for txn, which in order:
        txn.appends(which)
    for txn in (other, one):
        txn.answers("ok")
    return after(folder, must_permit("G0"))


@damage
def writes_against_time(folder: RunFolder, random: Random) -> Expect | None:
    """A long transaction wrote before one and after another, which was invoked after the first was
    answered."""
    keys = two_partitions(folder, random)
    if not keys:
        return None
    long, first, second = clients(folder, keys, keys[:1], keys[1:])
    own = random.random() < 0.5
    if own:
        second.process = first.process
    long.asks()
    long.appends(0)
    for txn in (first, second):
        txn.asks()
        txn.appends()
        txn.answers("ok")
    long.appends(1)
    long.answers("ok")
    return after(folder, must_permit("G0-process" if own else "G0-realtime"))


@damage
def a_ring_through_the_order_of_writes(folder: RunFolder, random: Random) -> Expect | None:
    """One transaction wrote before the other in a log, and read what the other wrote."""
    key, more = picks(folder, random, 2)
    one, other = clients(folder, [key], [key, more])
    one.asks()
    other.asks()
    one.appends()
    value = other.appends(0)
    if random.random() < 0.5:
        value = other.appends(1)
    else:
        other.sends.pop()
        folder.lines[-1]["sends"].pop()
    other.answers("ok")
    one.answers("ok", value)
    return after(folder, must_permit("G1c"))


@damage
def what_reading_uncommitted_permits(folder: RunFolder, random: Random) -> Expect | None:
    """Any of the bugs above, under isolation read_uncommitted. It permits nothing in a run without
    transactions."""
    folder.run["guarantees"]["isolation"] = "read_uncommitted"
    plant = random.choice((a_txn_reads_its_own_write, an_aborted_value_is_read, two_txns_read_each_other,
                           a_ring_through_time, a_ring_through_a_process, read_before_it_was_sent,
                           read_by_its_own_sender_before_it_was_sent))
    expect = plant(folder, random)
    txns = any(line["f"] == "txn" for line in folder.lines)
    return must_permit(*expect.must) if expect is not None and txns else None


# -- unknown because of other damage ------------------------------------------------------------------------

@damage
def a_ring_through_a_process_that_overlaps(folder: RunFolder, random: Random) -> Expect | None:
    """The process had two ops open at once: its order proves nothing, the order of time still does."""
    ring = long_one_around_two(folder, random, "ok", one_process=True, overlap=False)
    process = random.choice((ring[1].process, folder.fresh_process()))
    for kind in ("invoke", "invoke", "ok", "ok"):
        folder.add(process, kind, "poll", **({"reads": []} if kind == "ok" else {}))
    name = "G1c-realtime" if process == ring[1].process else "G1c-process"
    return after(folder, replace(found(name), unknown=BY_PROCESS))


@damage
def a_ring_in_a_broken_history(folder: RunFolder, random: Random) -> Expect | None:
    """A line breaks the field table: the ring of reads is still certain."""
    expect = random.choice((two_txns_read_each_other, three_txns_in_a_ring))(folder, random)
    folder.lines[0]["index"] = 7
    return None if expect is None else replace(expect, unknown=OF_TXNS)


@damage
def a_ring_in_a_run_that_was_killed(folder: RunFolder, random: Random) -> Expect | None:
    """The harness was killed: a missing end of the history removes no cycle."""
    plant = random.choice((two_txns_read_each_other, a_ring_through_time, read_before_it_was_sent))
    expect = plant(folder, random)
    for name in ("settled", "settle", "final_reads", "history_lines", "ended"):
        folder.run.pop(name, None)
    return None if expect is None else replace(expect, unknown=frozenset({"phantom", "unseen"}))


@spoilt_file
def a_ring_through_time_in_a_broken_history(folder: RunFolder, random: Random) -> Expect | None:
    """An index may be wrong, and with it the order of time and of processes."""
    random.choice((a_ring_through_time, a_ring_through_a_process, read_before_it_was_sent))(folder, random)
    folder.lines[0]["index"] = 7
    return Expect(unknown=OF_TXNS, valid="unknown")


@spoilt_file
def a_ring_of_values_sent_twice(folder: RunFolder, random: Random) -> Expect | None:
    """A value was sent twice, so it is unknown which send was read."""
    plant = random.choice((two_txns_read_each_other, a_ring_through_time, a_txn_reads_its_own_write,
                           read_before_it_was_sent))
    before = len(folder.lines)
    if plant(folder, random) is None:
        return None
    for line in [line for line in folder.lines[before:] if line["type"] == "invoke" and line.get("sends")]:
        process = folder.fresh_process()
        folder.add(process, "invoke", line["f"], sends=line["sends"])
        folder.add(process, "info", line["f"], sends=line["sends"])
    return Expect(unknown=OF_TXNS, valid="unknown")

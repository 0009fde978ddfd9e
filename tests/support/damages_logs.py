"""Damages of single replicas, and near misses: logs that differ, lack, repeat or contradict themselves.

The rules are those of damages.py. These damages change only dumps, rows and the settling.
"""

from random import Random

from damages import (
    BUG,
    NOTHING,
    Expect,
    acks,
    damage,
    extend,
    failed_or_info,
    follower,
    found,
    near_miss,
    rewrite,
    shorten,
    some_partition,
)

from histories import NODES, RunFolder, checksum


def place(folder: RunFolder, random: Random, least: int = 3) -> tuple[int, str, int] | None:
    """A partition with at least so many records, one of its followers, and an offset inside its log."""
    long = [key for key in map(int, folder.run["partitions"]) if folder.row("n1", key)["leo"] >= least]
    if not long:
        return None
    key = random.choice(long)
    start = folder.row(folder.leader(key), key)["log_start"]
    inside = random.randrange(1, folder.row("n1", key)["leo"] - start - 1)
    return key, follower(folder, random, key), start + inside


@damage
def another_record_on_a_follower(folder: RunFolder, random: Random) -> Expect | None:
    """A follower has another record under the same epoch: the logs differ, and one epoch has two records
    there."""
    where = place(folder, random)
    if where is None:
        return None
    other = failed_or_info(folder, where[0], "info")
    rewrite(folder, where[0], where[2], (where[1],), value=other, crc=checksum(where[0], other))
    return found("diverged", "epoch-lineage")


@damage
def other_bytes_on_a_follower(folder: RunFolder, random: Random) -> Expect | None:
    """The value is the same, its batch is not."""
    where = place(folder, random)
    if where is None:
        return None
    rewrite(folder, where[0], where[2], (where[1],), crc=1)
    return found("diverged", "epoch-lineage")


@damage
def another_epoch_on_a_follower(folder: RunFolder, random: Random) -> Expect | None:
    """The same record under another epoch: the logs differ, and the follower's cache and epoch order are
    wrong."""
    where = place(folder, random)
    if where is None:
        return None
    rewrite(folder, where[0], where[2], (where[1],), epoch=77)
    return found("diverged", "epoch-lineage")


@damage
def an_epoch_falls_everywhere(folder: RunFolder, random: Random) -> Expect | None:
    """All replicas have the same log, and its epochs fall."""
    where = place(folder, random)
    if where is None:
        return None
    rewrite(folder, where[0], where[2], epoch=77)
    return found("epoch-lineage")


@near_miss
def a_dead_replica_keeps_its_tail(folder: RunFolder, random: Random) -> Expect | None:
    """Not settled: a replica that is down differs above its high watermark, under an older epoch."""
    partition = some_partition(folder, random)
    isr = folder.run["leaders"][str(partition)]["isr"]
    (outsider,) = set(NODES) - set(isr)
    row, log = folder.row(outsider, partition), folder.log(outsider, partition)
    if not log:
        return None
    end, epoch = log[-1]["offset"], 50
    row |= {"hw": min(row["hw"], end), "running": False, "leader": None}
    rewrite(folder, partition, end, (outsider,), crc=5)
    for node in isr:
        for entry in folder.log(node, partition)[end:]:
            rewrite(folder, partition, entry["offset"], (node,), epoch=epoch)
        own = folder.row(node, partition)
        if own["leo"] > end:
            own["epochs"] = [*(pair for pair in own["epochs"] if pair[1] < end), [epoch, end]]
    return NOTHING


@damage
def a_member_lacks_the_tail(folder: RunFolder, random: Random) -> Expect | None:
    """Settled, and an ISR member lacks the last committed records."""
    where = place(folder, random)
    if where is None:
        return None
    shorten(folder, where[1], where[0], random.randrange(1, 3))
    return found("under-replicated")


@near_miss
def an_outsider_lacks_the_tail(folder: RunFolder, random: Random) -> Expect | None:
    """A replica outside the ISR may lack any records."""
    where = place(folder, random)
    if where is None:
        return None
    shorten(folder, where[1], where[0])
    isr = [node for node in NODES if node != where[1]]
    folder.run["leaders"][str(where[0])]["isr"] = isr
    for node in NODES:
        folder.row(node, where[0])["isr"] = isr
    return NOTHING


@damage
def a_hole(folder: RunFolder, random: Random) -> Expect | None:
    """A follower's log jumps over an offset."""
    where = place(folder, random)
    if where is None:
        return None
    folder.set_log(where[1], where[0], [entry for entry in folder.log(where[1], where[0])
                                        if entry["offset"] != where[2]])
    return found("malformed-log", "under-replicated")


@damage
def a_doubled_offset(folder: RunFolder, random: Random) -> Expect | None:
    """A follower has one offset twice."""
    where = place(folder, random)
    if where is None:
        return None
    log = folder.log(where[1], where[0])
    spot = next(spot for spot, entry in enumerate(log) if entry["offset"] == where[2])
    folder.set_log(where[1], where[0], [*log[:spot], log[spot], *log[spot:]])
    return found("malformed-log")


@damage
def a_checksum_that_does_not_fit(folder: RunFolder, random: Random) -> Expect | None:
    """The bytes of one batch do not match its checksum."""
    where = place(folder, random)
    if where is None:
        return None
    rewrite(folder, where[0], where[2], (where[1],), crc_ok=False)
    return found("malformed-log")


@damage
def a_high_watermark_above_the_end(folder: RunFolder, random: Random) -> Expect | None:
    """A running follower's high watermark is above its LEO."""
    row = folder.row(random.choice(NODES), some_partition(folder, random))
    row["hw"] = row["leo"] + 1
    return found("malformed-log")


@near_miss
def a_high_watermark_above_the_end_of_the_dead(folder: RunFolder, random: Random) -> Expect | None:
    """The same on a node that is not running, where it does not count."""
    partition = some_partition(folder, random)
    row = folder.row(follower(folder, random, partition), partition)
    row |= {"hw": row["leo"] + 1, "running": False, "leader": None, "epochs": [[5, 99]]}
    return NOTHING


@damage
def an_end_that_the_log_contradicts(folder: RunFolder, random: Random) -> Expect | None:
    """A replica's LEO is above the end of its last record."""
    folder.row(random.choice(NODES), some_partition(folder, random))["leo"] += 2
    return found("malformed-log")


@damage
def a_start_that_the_log_contradicts(folder: RunFolder, random: Random) -> Expect | None:
    """A follower's log_start is above its first record."""
    where = place(folder, random)
    if where is None:
        return None
    folder.row(where[1], where[0])["log_start"] = 1
    return found("malformed-log")


@damage
def a_cache_that_is_one_off(folder: RunFolder, random: Random) -> Expect | None:
    """In a running node's cache an epoch starts one record too early, or is missing."""
    where = place(folder, random)
    if where is None:
        return None
    row = folder.row(where[1], where[0])
    first = folder.log(where[1], where[0])[0]["offset"]
    inside = [pair for pair in row["epochs"] if first < pair[1] < row["leo"]]
    if inside and random.random() < 0.5:
        pair = random.choice(inside)
        row["epochs"] = [[pair[0], pair[1] + 1] if other == pair else other for other in row["epochs"]]
    else:
        row["epochs"] = []
    return found("epoch-lineage")


@damage
def a_cache_beyond_the_end(folder: RunFolder, random: Random) -> Expect | None:
    """The cache has an epoch that would start above LEO."""
    row = folder.row(random.choice(NODES), some_partition(folder, random))
    row["epochs"] = [*row["epochs"], [row["epochs"][-1][0] + 1, row["leo"] + 1]]
    return found("epoch-lineage")


@near_miss
def elected_and_nothing_written(folder: RunFolder, random: Random) -> Expect | None:
    """An epoch may start at LEO, where nothing is written yet; and the first may start at or below
    log_start."""
    partition = some_partition(folder, random)
    for node in NODES:
        row = folder.row(node, partition)
        row["epochs"] = [pair for pair in row["epochs"] if pair[1] < row["leo"]]
        row["epochs"].append([row["epoch"] + 100, row["leo"]])
    return NOTHING


def delete_the_first(folder: RunFolder, random: Random) -> int:
    """Deletes the start of every log of a partition, which is returned."""
    partition = some_partition(folder, random)
    start = random.randrange(folder.row("n1", partition)["leo"])
    for node in NODES:
        own = min(start, random.choice((start, start // 2))) if node != folder.leader(partition) else start
        row = folder.row(node, partition)
        row["log_start"] = own
        kept = [entry for entry in folder.log(node, partition) if entry["offset"] >= own]
        folder.set_log(node, partition, kept)
    return partition


@near_miss
def retention(folder: RunFolder, random: Random) -> Expect | None:
    """The start of every log was deleted after everything had been read."""
    delete_the_first(folder, random)
    return NOTHING


@damage
def a_beginning_that_moved(folder: RunFolder, random: Random) -> Expect | None:
    """The same, of a topic that keeps everything."""
    partition = delete_the_first(folder, random)
    folder.run["partitions"][str(partition)]["keeps_all"] = True
    start = folder.row(folder.leader(partition), partition)["log_start"]
    below = [ack for ack in acks(folder) if ack[0] == partition and ack[1] < start]
    return found("lost-write") if below and folder.run["settled"] is True else None


@near_miss
def a_stray_copy(folder: RunFolder, random: Random) -> Expect | None:
    """A follower is not among the replicas: its copy may hold anything, and proves nothing."""
    where = place(folder, random)
    if where is None:
        return None
    key, node, offset = where
    folder.run["partitions"][str(key)]["replicas"].remove(node)
    rewrite(folder, key, offset, (node,), value=folder.fresh_value(), epoch=random.choice((0, 40)), crc=7)
    if random.random() < 0.5:
        folder.set_log(node, key, [entry for entry in folder.log(node, key) if entry["offset"] != offset - 1])
    if random.random() < 0.5:
        folder.row(node, key).update(hw=900, log_start=random.choice((0, 800)), epochs=[[70, 999]])
    return NOTHING


@near_miss
def no_epochs_in_the_format(folder: RunFolder, random: Random) -> Expect | None:
    """A stored format without epochs, and a protocol without a cache."""
    for partition in map(int, folder.run["partitions"]):
        for node in NODES:
            folder.set_log(node, partition, [{**entry, "epoch": -1} for entry in folder.log(node, partition)])
            folder.row(node, partition).pop("epochs")
    return NOTHING


@near_miss
def records_of_somebody_else(folder: RunFolder, random: Random) -> Expect | None:
    """Records of another client are at the end of every log."""
    extend(folder, some_partition(folder, random), None)
    return NOTHING


@damage
def nobody_leads(folder: RunFolder, random: Random) -> Expect | None:
    """After mending no leader was elected: stuck, and much else is unknown."""
    partition = some_partition(folder, random)
    folder.run["settled"] = False
    folder.run["leaders"][str(partition)] = {"leader": None, "epoch": 1, "isr": []}
    folder.run["settle"] |= {random.choice(("no_leader", "no_ack")): [partition], "why": "no leader"}
    for node in NODES:
        folder.row(node, partition)["leader"] = None
    return Expect(must={"stuck": BUG}, unknown=frozenset(
        {"lost-write", "unseen", "saw-then-lost", "under-replicated", "diverged"}))


@damage
def a_broker_died(folder: RunFolder, random: Random) -> Expect | None:
    """A node ended by itself: that is a bug; a partition without a leader is then no second one."""
    expect = nobody_leads(folder, random) if random.random() < 0.5 else None
    folder.run["died"] = random.sample(NODES, random.randrange(1, 3)) + random.choice(([], ["n1", "n1"]))
    return Expect(must={"broker-died": BUG}, unknown=expect.unknown if expect else frozenset())


@near_miss
def a_broker_gave_up_without_a_controller(folder: RunFolder, random: Random) -> Expect | None:
    """The nemesis had killed the controller, or cut it off, and nothing says when it was back."""
    node = random.choice(NODES)
    if random.random() < 0.5:
        folder.add(-1, "info", "kill", fault={"nodes": ["controller"]})
    else:
        folder.add(-1, "info", "cut", fault={"nodes": [node], "grudge": {node: ["controller"]}})
    folder.run["died"] = [node]
    return Expect()


@near_miss
def nobody_leads_for_a_reason(folder: RunFolder, random: Random) -> Expect | None:
    """No leader was elected, but a fault was left behind, or only the ISR was too small."""
    expect = nobody_leads(folder, random)
    assert expect is not None
    if random.random() < 0.5:
        folder.run["residue"] = "a cut that could not be healed"
    else:
        folder.run["settle"] |= {"no_leader": [], "no_ack": [], "isr_short": [0]}
    return Expect(unknown=expect.unknown, valid="unknown")


@near_miss
def settled_too_late(folder: RunFolder, random: Random) -> Expect | None:
    """Not settled: the logs may differ above a high watermark, and followers may lack any records."""
    where = place(folder, random)
    if where is None:
        return None
    folder.run["settled"] = False
    shorten(folder, where[1], where[0])
    return Expect(unknown=frozenset({"diverged", "under-replicated", "unseen"}), valid="unknown")


@near_miss
def the_leader_by_the_rows(folder: RunFolder, random: Random) -> Expect | None:
    """run.json does not name the leaders, but all rows agree on them."""
    del folder.run["leaders"]
    for row in folder.rows:
        row["epoch"] = 1000
    return NOTHING


@near_miss
def the_leader_against_the_rows(folder: RunFolder, random: Random) -> Expect | None:
    """run.json does not name the leaders, and the leader of the highest epoch does not know of it. Final
    reads, if there are any, still show losses."""
    partition = some_partition(folder, random)
    del folder.run["leaders"]
    for row in folder.rows:
        row["epoch"] = 1000
    first, second, third = [folder.row(node, partition) for node in NODES]
    first["leader"], second["leader"], third["leader"] = "n2", "n1", "n1"
    lost = set() if folder.run["settled"] else {"lost-write"}
    names = {"unseen", "saw-then-lost", "under-replicated"} | lost
    return Expect(unknown=frozenset(names), valid="unknown")

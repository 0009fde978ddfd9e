"""The cluster of real_like.py: logs that fill, leaders that change, and the trace of both.

Rules kept here: three nodes, every partition on each; min.insync.replicas 2; at most one node is down. A
record is appended by the leader and by the followers that are up, and committed, in one step; a node that was
down catches up when it is started and then joins the ISR again. A leader that is killed had just appended
records that no other node has: it truncates them when it is back.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any, BinaryIO

import orjson

NODES = ("n1", "n2", "n3")
# values below 0: OTHERS is not ours; ABORTED - value is ours, of an aborted transaction
OTHERS, ABORTED = -1, -2
TAIL = 3  # at most so many records that only a killed leader has


class Cluster:
    """The partitions as one log each: the log that every replica has in the end."""

    def __init__(self, partitions: int, random: Random, block: int, trace: BinaryIO | None) -> None:
        self.random, self.block, self.trace = random, block, trace
        self.logs = [array("q") for _ in range(partitions)]
        self.free: list[list[int]] = [[] for _ in range(partitions)]  # offsets of an open block, ascending
        self.starts: list[list[list[int]]] = [[[0, 0]] for _ in range(partitions)]  # [epoch, start]
        self.leaders = [NODES[key % len(NODES)] for key in range(partitions)]
        self.versions = [0] * partitions  # partition epochs
        self.down: str | None = None
        # partition -> where the log of the node that is down differs from the others
        self.shared: list[int] = []
        self.tails: dict[int, int] = {}  # partition -> its records above that
        self.brokers = 0  # broker epochs
        self.lost = 0
        self.now = 0
        self.seqs: dict[str, int] = {}
        if trace is not None:
            self.begin_trace()

    def epoch(self, key: int) -> int:
        return self.starts[key][-1][0]

    def end(self, key: int) -> int:
        """The end of what is committed and may be read: below the block that is being written backwards."""
        return self.free[key][0] if self.free[key] else len(self.logs[key])

    # -- records ------------------------------------------------------------------------------------------

    def append(self, key: int, value: int) -> int:
        log, free = self.logs[key], self.free[key]
        if self.block == 1:
            log.append(value)
            return len(log) - 1
        if not free:
            free.extend(range(len(log), len(log) + self.block))
            log.extend([OTHERS] * self.block)
        offset = free.pop()
        log[offset] = value
        return offset

    def close_blocks(self) -> None:
        """Closes open blocks; what was not written of them stays other clients' records."""
        for free in self.free:
            free.clear()

    def committed(self, keys: Sequence[int], *, transaction: bool) -> None:
        """Traces the records appended to each of these partitions (a key may come several times); a
        transaction ends with a control record in each."""
        for key, count in Counter(keys).items():
            if transaction:
                self.append(key, OTHERS)
                count += 1
            if self.trace is not None:
                self.trace_append(key, count, ack=count - transaction)

    def abort(self, sends: Sequence[dict[str, int]]) -> None:
        for send in sends:
            self.append(send["partition"], ABORTED - send["value"])
        self.committed([send["partition"] for send in sends], transaction=True)

    def read(self, key: int, start: int, most: int) -> list[dict[str, int]]:
        """Our records from there on, from so many offsets."""
        stop = min(self.end(key), start + most)
        return self.read_between(key, start, stop)

    def read_between(self, key: int, start: int, stop: int) -> list[dict[str, int]]:
        found = enumerate(self.logs[key][start:stop], start)
        return [{"partition": key, "offset": offset, "value": value} for offset, value in found if value >= 0]

    def lose(self, key: int, offset: int) -> None:
        self.logs[key][offset] = OTHERS
        self.lost += 1

    def entries(self) -> Iterator[tuple[int, int, int, int, bool]]:
        """Partition, offset, epoch, value (-1: not ours), aborted."""
        for key, log in enumerate(self.logs):
            spans = [*self.starts[key], [0, len(log)]]
            for (epoch, start), (_, stop) in pairwise(spans):
                for offset in range(start, stop):
                    value = log[offset]
                    aborted = value <= ABORTED
                    yield key, offset, epoch, ABORTED - value if aborted else value, aborted

    # -- nodes --------------------------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """Its partitions get another leader from the ISR, and lose it from the ISR."""
        self.close_blocks()
        led = [key for key, leader in enumerate(self.leaders) if leader == node]
        self.tails = {key: self.random.randint(0, TAIL) for key in led}
        self.shared = [len(log) for log in self.logs]
        for key, count in self.tails.items():
            if count:
                self.trace_appended(node, key, len(self.logs[key]), count, role="leader")
        self.down = node
        self.emit("controller", "fence", broker=node, broker_epoch=NODES.index(node))
        alive = [other for other in NODES if other != node]
        for key, leader in enumerate(self.leaders):
            self.versions[key] += 1
            if leader == node:
                self.elect(key, self.random.choice(alive), alive)
            else:
                self.change_isr(key, alive)

    def start(self) -> None:
        """It follows, truncates what only it had, catches up, and joins the ISR again."""
        self.close_blocks()
        node = self.down
        assert node is not None
        self.emit(node, "start", clean=False)
        self.brokers += 1
        self.emit("controller", "register", broker=node, broker_epoch=len(NODES) + self.brokers, clean=False)
        self.emit("controller", "unfence", broker=node, broker_epoch=len(NODES) + self.brokers)
        self.down = None
        for key, log in enumerate(self.logs):
            common = self.shared[key]
            was = common + self.tails.get(key, 0)
            leader = self.leaders[key]
            self.emit(node, "become_follower", **self.state(key, leo=was), leader=leader)
            if was > common:
                cut = {"from": was, "to": common, "cause": "epoch",
                       "answer": {"epoch": 0, "end": common}, "why": "the leader's end of an epoch"}
                self.emit(node, "truncate", **self.state(key, leo=common), **cut)
            if len(log) > common:
                self.trace_appended(node, key, common, len(log) - common, role="follower")
            self.trace_fetch(key, node)
            self.versions[key] += 1
            self.change_isr(key, NODES)

    def elect(self, key: int, leader: str, isr: Sequence[str]) -> None:
        self.leaders[key] = leader
        self.starts[key].append([self.epoch(key) + 1, len(self.logs[key])])
        word = {"partition": key, "leader": leader, "epoch": self.epoch(key), "isr": isr}
        self.emit("controller", "elect", **word, partition_epoch=self.versions[key], clean=True)
        self.emit(leader, "become_leader", **self.state(key), isr=isr, start=len(self.logs[key]),
                  partition_epoch=self.versions[key])  # fmt: skip
        for node in isr:
            if node != leader:
                self.emit(node, "become_follower", **self.state(key), leader=leader)

    def change_isr(self, key: int, isr: Sequence[str]) -> None:
        leader, version = self.leaders[key], self.versions[key]
        self.emit(leader, "isr_proposed", **self.state(key), isr=isr, partition_epoch=version - 1)
        word = {"leader": leader, "isr": isr, "partition_epoch": version, "cause": "alter"}
        self.emit("controller", "isr", partition=key, epoch=self.epoch(key), **word)
        self.emit(leader, "isr", **self.state(key), **word)

    # -- the trace ----------------------------------------------------------------------------------------

    def state(self, key: int, *, leo: int | None = None, hw: int | None = None) -> dict[str, Any]:
        end = len(self.logs[key])
        leo = end if leo is None else leo
        hw = min(leo, end) if hw is None else hw
        return {"partition": key, "epoch": self.epoch(key), "leo": leo, "hw": hw}

    def emit(self, node: str, event: str, **fields: Any) -> None:
        if self.trace is None:
            return
        self.now += 1_000
        seq = self.seqs.get(node, 0)
        self.seqs[node] = seq + 1
        first = {"partition": fields["partition"]} if "partition" in fields else {}
        line = {"time": self.now, "node": node, "seq": seq, **first, "event": event, **fields}
        self.trace.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def begin_trace(self) -> None:
        for number, node in enumerate(NODES):
            self.emit(node, "start", clean=False)
            self.emit("controller", "register", broker=node, broker_epoch=number, clean=False)
            self.emit("controller", "unfence", broker=node, broker_epoch=number)
        for key, leader in enumerate(self.leaders):
            word = {"partition": key, "leader": leader, "epoch": 0, "isr": NODES, "partition_epoch": 0}
            self.emit("controller", "elect", **word, clean=True)
            self.emit(leader, "become_leader", **self.state(key), isr=NODES, start=0, partition_epoch=0)
            for node in NODES:
                if node != leader:
                    self.emit(node, "become_follower", **self.state(key), leader=leader)

    def in_sync(self) -> list[str]:
        return [node for node in NODES if node != self.down]

    def trace_append(self, key: int, count: int, *, ack: int) -> None:
        """Traces an append from the leader's line until the followers know the HW; the log has the records
        already."""
        leader, end = self.leaders[key], len(self.logs[key])
        followers = [node for node in self.in_sync() if node != leader]
        for node in (leader, *followers):
            role = "leader" if node == leader else "follower"
            self.trace_appended(node, key, end - count, count, role=role)
        for node in followers:
            self.trace_fetch(key, node, hw=end - count)
        self.emit(leader, "hw", **self.state(key), role="leader")
        acked = end - 1 - (count - ack)
        self.emit(leader, "ack", **self.state(key), offset=acked, acks="all", isr=self.in_sync())
        for node in followers:
            self.emit(node, "hw", **self.state(key), role="follower")

    def trace_appended(self, node: str, key: int, offset: int, count: int, *, role: str) -> None:
        """Traces an append of one replica. The epochs are those of the records: a follower that catches up
        may have several."""
        end = offset + count
        first = max((at for at in self.starts[key] if at[1] <= offset), key=lambda at: (at[1], at[0]))
        later = [at for at in self.starts[key] if offset < at[1] < end]
        epochs = [[first[0], offset], *later]
        state = self.state(key, leo=end, hw=min(offset, len(self.logs[key])))
        self.emit(node, "append", **state, role=role, offset=offset, count=count, epochs=epochs)

    def trace_fetch(self, key: int, node: str, *, hw: int | None = None) -> None:
        epoch, end = self.epoch(key), len(self.logs[key])
        self.emit(self.leaders[key], "fetch", **self.state(key, hw=hw), follower=node, offset=end,
                  follower_epoch=epoch)  # fmt: skip

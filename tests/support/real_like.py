"""Writes run folders like those that `floodmark run --nemesis all` leaves, of any size, for the bench.

Such runs have what tidy ones lack: sends of one to four values, of which some fail, and some get no answer
(half of these were written, half were not); polls that fail, with the records they had returned or with none;
polls without an answer; processes that get a new number after an op without an answer; consumers that crash,
that are assigned other partitions and that subscribe; clients that ask for end offsets; a node that is killed
and started at intervals, with the elections and epochs that follow, and the tail that only the dead leader
had, which it then truncates. Every partition settles and is read to the end.

Rules kept here: the same arguments give the same bytes. The cluster is correct: an op takes effect in one
moment between its invocation and its completion, and a record that is in a log stays there. So a folder is
valid, whatever its size, unless a damage (DAMAGES) was asked for. Memory keeps two numbers for each record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import orjson
from folders import Line
from real_like_cluster import NODES, Cluster

from histories import run_json

PRODUCERS, CONSUMERS = 8, 2  # clients that run at once, as with --concurrency 10
PROBER, READER = 2_000_000, 3_000_000  # the first processes that probe, and that read in the end
CHUNK = 500  # records of one poll at the most
FAULTS = 12  # kills in a run, each followed by a start
STEP_NS = 20_000
POLL_SHARE = 0.05  # of the turns of a consumer: it waits most of the time
FAILED, UNANSWERED = 0.02, 0.01  # shares of ops
LOST_WRITES = 200
ENTRIES_AT_ONCE = 20_000
REVERSED = 64  # records in a block that is written backwards
ERRORS = ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "CONNECTION", "REQUEST_TIMED_OUT")

# The damages of a folder, and a name that the judge must then find.
DAMAGES: Mapping[str, str] = {
    "lost": "lost-write",  # 200 acked records are replaced by others in every log
    "one-percent": "diverged",  # one record in a hundred differs on n3
    "skipping": "int-poll-skip",  # consumers return every other record
    "ends": "end-offset-regressed",  # every end offset is below what its client had read
    "disorder": "realtime-order",  # records are written, and polls returned, backwards, block by block
}

@dataclass(slots=True)
class Client:
    """One of the clients that run at once. After an op without an answer it goes on as another process."""

    process: int
    consumes: bool
    held: tuple[int, ...] | None = None  # partitions; None: it must assign some first
    positions: dict[int, int] = field(default_factory=dict)
    op: Line | None = None  # the open op: its f and its request
    happened: bool = False  # the op took effect
    type: str = "ok"
    sends: list[Line] | None = None  # for its completion, like the fields below
    reads: list[Line] | None = None
    end: Line | None = None


class Run:
    """A run of so many client ops, written line by line while its logs fill."""

    def __init__(
        self, *, ops: int, partitions: int, seed: int, transactions: bool, damage: str | None,
        history: BinaryIO, trace: BinaryIO | None, faults: int = FAULTS,
    ) -> None:  # fmt: skip
        self.random = Random(f"{seed} {ops} {partitions}")
        self.ops, self.damage, self.transactions, self.history = ops, damage, transactions, history
        self.faults = faults
        block = REVERSED if damage == "disorder" else 1
        self.cluster = Cluster(partitions, self.random, block, trace)
        self.partitions = tuple(range(partitions))
        self.index = self.value = self.now = 0
        self.begun = 0
        self.clients = [Client(number, number >= PRODUCERS) for number in range(PRODUCERS + CONSUMERS)]
        self.next_process = len(self.clients)

    def line(self, process: int, kind: str, f: str, **fields: Any) -> None:
        line = {"index": self.index, "time": self.now, "process": process, "type": kind, "f": f, **fields}
        self.history.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self.index += 1
        self.now += 100

    # -- the clients --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Gives clients turns at random: each begins an op, its op takes effect, it gets the answer."""
        clients, random = self.clients, self.random
        fault_every = max(len(clients), self.ops // (2 * self.faults))
        next_fault, last_fault = fault_every, self.ops - fault_every // 2
        while self.begun < self.ops:
            client = clients[int(random.random() * len(clients))]
            self.now += STEP_NS
            self.step(client)
            if self.begun >= next_fault and self.begun < last_fault:
                self.fault()
                next_fault += fault_every
        if self.cluster.down is not None:
            self.fault()
        for client in clients:
            while client.op is not None:
                self.now += STEP_NS
                self.step(client)
        self.settle()

    def step(self, client: Client) -> None:
        if client.op is None:
            if client.consumes and self.random.random() > POLL_SHARE:
                return
            client.op = self.asked(client)
            client.happened = False
            self.begun += 1
            self.line(client.process, "invoke", **client.op)
        elif not client.happened:
            client.happened = True
            self.cluster.now = self.now
            self.take_effect(client)
            self.now = max(self.now, self.cluster.now)
        else:
            self.complete(client)

    def asked(self, client: Client) -> Line:
        random = self.random
        if not client.consumes:
            if not self.transactions:
                return {"f": "send", "sends": self.new_sends(random.choice(self.partitions))}
            chosen = random.sample(self.partitions, min(len(self.partitions), random.choice((1, 1, 2))))
            return {"f": "txn", "sends": [send for key in chosen for send in self.new_sends(key)]}
        luck = random.random()
        if client.held is None or luck < 0.02:
            count = random.randint(1, min(2, len(self.partitions)))
            held = sorted(random.sample(self.partitions, count))
            return {"f": random.choice(("assign", "subscribe")), "partitions": held}
        if luck < 0.03:
            return {"f": "crash"}
        return {"f": "list_offsets" if luck < 0.12 else "poll"}

    def new_sends(self, partition: int) -> list[Line]:
        first = self.value
        self.value += self.random.choice((1, 1, 1, 1, 2, 3, 4))
        return [{"partition": partition, "value": value} for value in range(first, self.value)]

    def take_effect(self, client: Client) -> None:
        """Applies the op to the cluster, and decides its client's answer."""
        assert client.op is not None
        luck, f = self.random.random(), client.op["f"]
        failed, unanswered = luck < FAILED, FAILED <= luck < FAILED + UNANSWERED
        client.type = "fail" if failed else "info" if unanswered else "ok"
        client.sends = client.reads = client.end = None
        if f in ("send", "txn"):
            if f == "txn":
                client.reads = self.poll(client, 5)
            client.sends = client.op["sends"]
            if not failed and (not unanswered or luck < FAILED + UNANSWERED / 2):
                client.sends = self.write(client.op["sends"], transaction=f == "txn")
                if self.damage == "lost" and client.type == "ok":
                    self.lose(client.sends[0])
            elif failed and f == "txn":
                self.cluster.abort(client.op["sends"])
        elif f == "poll":
            client.reads = [] if client.type != "ok" and luck < FAILED / 2 else self.poll(client, CHUNK)
        elif f == "list_offsets":
            client.end = self.end_offset(client)
        else:
            client.type = "ok"  # an op that needs no cluster does not fail
            self.take_partitions(client)

    def write(self, sends: list[Line], *, transaction: bool) -> list[Line]:
        added = [{**send, "offset": self.cluster.append(send["partition"], send["value"])} for send in sends]
        self.cluster.committed([send["partition"] for send in added], transaction=transaction)
        return added

    def lose(self, send: Line) -> None:
        """At intervals replaces a record that will be acked by another one, before any client can read it."""
        lost, most = self.cluster.lost, min(LOST_WRITES, max(1, self.ops // 50))
        if lost < most and self.begun >= self.ops * lost // (2 * most):
            self.cluster.lose(send["partition"], send["offset"])

    def poll(self, client: Client, most: int) -> list[Line]:
        """The next records of one of its partitions. A transaction's process reads from any place; it never
        reads what an open op wrote, because an op that took effect is committed."""
        partition = self.random.choice(client.held or self.partitions)
        start = client.positions.get(partition, 0)
        if client.held is None and partition not in client.positions:
            start = self.cluster.end(partition)
        records = self.cluster.read(partition, start, most)
        if self.damage == "skipping":
            records = records[::2]
        if self.damage == "disorder":
            records = records[::-1]
        if client.type == "ok" and records:
            client.positions[partition] = max(record["offset"] for record in records) + 1
        elif client.type == "ok":
            client.positions[partition] = start
        return records

    def end_offset(self, client: Client) -> Line:
        partition = self.random.choice(client.held or self.partitions)
        offset = self.cluster.end(partition)
        if self.damage == "ends":
            offset = max(0, min(offset, client.positions.get(partition, 0)) - 1)
        return {"partition": partition, "offset": offset}

    def take_partitions(self, client: Client) -> None:
        """A consumer goes on at its position in partitions that it keeps, and begins shortly before the end
        of others."""
        assert client.op is not None
        if client.op["f"] == "crash":
            client.held, client.positions = None, {}
            return
        client.held = tuple(client.op["partitions"])
        client.positions = {
            key: client.positions.get(key, max(0, self.cluster.end(key) - self.random.randrange(CHUNK * 4)))
            for key in client.held
        }

    def complete(self, client: Client) -> None:
        op, kind = client.op, client.type
        assert op is not None
        fields: Line = {}
        if op["f"] in ("send", "txn"):
            fields["sends"] = client.sends if kind == "ok" else op["sends"]
        if client.reads is not None and (client.reads or kind == "ok" or op["f"] == "txn"):
            fields["reads"] = client.reads
        if op["f"] == "list_offsets" and kind == "ok":
            fields["offsets"] = [client.end]
        if "partitions" in op:
            fields["partitions"] = op["partitions"]
        if kind != "ok":
            fields["error"] = self.random.choice(ERRORS)
        self.line(client.process, kind, op["f"], **fields)
        client.op = None
        if kind == "info":
            self.renumber(client)

    def renumber(self, client: Client) -> None:
        client.process, client.held, client.positions = self.next_process, None, {}
        self.next_process += 1

    # -- faults, and the end ------------------------------------------------------------------------------

    def fault(self) -> None:
        """Kills a node or, if one is down, starts it."""
        cluster = self.cluster
        cluster.now = self.now
        moment = {"at": "time", "time": self.now}
        if cluster.down is None:
            node = NODES[self.random.randrange(len(NODES))]
            self.line(-1, "info", "kill", fault={"nodes": [node], "moment": moment, "began": self.now})
            cluster.kill(node)
        else:
            fault = {"nodes": [cluster.down], "moment": moment, "began": self.now}
            self.line(-1, "info", "start", fault=fault)
            cluster.start()
        self.now = max(self.now, cluster.now)

    def settle(self) -> None:
        """Sends a probe to each partition; then a new process reads every partition once more."""
        for key in self.partitions:
            sends = [{"partition": key, "value": self.value}]
            self.value += 1
            self.line(PROBER + key, "invoke", "send", sends=sends)
            self.cluster.now = self.now
            sends = self.write(sends, transaction=False)
            self.now = max(self.now, self.cluster.now) + STEP_NS
            self.line(PROBER + key, "ok", "send", sends=sends)
        self.cluster.close_blocks()
        for key in self.partitions:
            self.line(READER + key, "invoke", "assign", partitions=[key])
            self.line(READER + key, "ok", "assign", partitions=[key])
            start, end = 0, self.cluster.end(key)
            while start < end:
                stop = min(end, start + CHUNK)
                self.line(READER + key, "invoke", "poll")
                self.line(READER + key, "ok", "poll", reads=self.cluster.read_between(key, start, stop))
                start = stop

    def about(self) -> Line:
        run, cluster = run_json(self.partitions), self.cluster
        run["guarantees"]["isolation"] = "read_committed" if self.transactions else "read_uncommitted"
        run["settle"]["processes"] = [PROBER + key for key in self.partitions]
        run["final_reads"]["processes"] = [READER + key for key in self.partitions]
        return run | {
            "workload": "txn" if self.transactions else "log", "history_lines": self.index,
            "leaders": {str(key): {"leader": cluster.leaders[key], "epoch": cluster.epoch(key), "isr": NODES}
                        for key in self.partitions}}


def rows(cluster: Cluster, transactions: bool) -> Iterator[bytes]:
    """The lines of replicas.jsonl."""
    for node in NODES:
        for key, log in enumerate(cluster.logs):
            row = {"node": node, "partition": key, "leader": cluster.leaders[key],
                   "epoch": cluster.epoch(key), "log_start": 0, "leo": len(log), "hw": len(log),
                   "isr": NODES, "clean": True, "epochs": cluster.starts[key]}  # fmt: skip
            row |= {"lso": len(log)} if transactions else {}
            yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def write_dumps(folder: Path, cluster: Cluster, damage: str | None) -> None:
    """Writes logs/NODE.jsonl, which are the same except for the node and, on n3, the damage."""
    (folder / "logs").mkdir()
    files = {node: (folder / "logs" / f"{node}.jsonl").open("wb", buffering=1 << 20) for node in NODES}
    entries = cluster.entries()
    while some := list(islice(entries, ENTRIES_AT_ONCE)):
        for node, file in files.items():
            wrong = damage == "one-percent" and node == NODES[-1]
            file.writelines(dumped(node, some, is_wrong if wrong else lambda offset: False))
    for file in files.values():
        file.close()


def is_wrong(offset: int) -> bool:
    return offset % 100 == 50


def dumped(
    node: str, entries: Iterable[tuple[int, int, int, int, bool]], is_wrong: Callable[[int], bool]
) -> Iterator[bytes]:
    """The lines of one dump; value -1 is a record that is not ours."""
    for partition, offset, epoch, value, aborted in entries:
        crc = ((value + 2) * 2654435761 + (1 if is_wrong(offset) else 0)) % 2**32
        shown = "null" if value < 0 else value
        flag = ',"aborted":true' if aborted else ""
        yield (
            f'{{"node":"{node}","partition":{partition},"offset":{offset},"epoch":{epoch},"value":{shown},'
            f'"crc":{crc}{flag}}}\n'
        ).encode()


def write(
    folder: Path, *, ops: int, partitions: int = 4, seed: int = 1, transactions: bool = False,
    trace: bool = False, damage: str | None = None, faults: int = FAULTS,
) -> Path:  # fmt: skip
    """Writes one folder, which must not exist yet, and returns it. Only runs without a trace can have a
    damage."""
    assert damage is None or (damage in DAMAGES and not trace), damage
    folder.mkdir(parents=True)
    lines = (folder / "trace.jsonl").open("wb", buffering=1 << 20) if trace else None
    with (folder / "history.jsonl").open("wb", buffering=1 << 20) as history:
        run = Run(ops=ops, partitions=partitions, seed=seed, transactions=transactions, damage=damage,
                  history=history, trace=lines, faults=faults)  # fmt: skip
        run.run()
    if lines is not None:
        lines.close()
    write_dumps(folder, run.cluster, damage)
    (folder / "replicas.jsonl").write_bytes(b"".join(rows(run.cluster, transactions)))
    (folder / "run.json").write_bytes(orjson.dumps(run.about(), option=orjson.OPT_INDENT_2))
    return folder

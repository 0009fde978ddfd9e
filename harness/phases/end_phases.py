"""The phases of a run after the main. Settle waits after mending until the cluster is healthy, checks that
by probe writes, and reads every partition again; collect freezes all brokers, dumps every replica's log, and
writes the state that each node reported.

Rules
1. A run is settled if, within timeout_s of the controller's first answer, every partition has a leader and a
   full ISR, a probe write of each is acked, and then LEO and HW are equal on every replica. After a time-out
   run.json says what was missing, and the run continues.
2. Probes and final reads are ops like any other, with processes of their own; a process ends at its first
   info.
3. Where only the wire is seen, run.json also says which nodes answered throughout timeout_s, and which of
   them did not know our topics, if the cluster did not settle.
4. A partition counts as read only if a final read reached its end offset, or if for STALL_S no reader got any
   further and READERS_AT_LEAST of them, each with connections of its own, were answered EMPTY_POLLS times
   that there was nothing. Any other read without progress for STALL_S is given up, and run.json says how far
   it got.
5. Where the first record read is above the log's beginning, two more processes read what comes first.
6. Nodes that answer are frozen while their logs are read; the others are killed first. No node is stopped
   gracefully, because leadership would move. A cluster that cannot freeze is observed again after its logs
   were read: if anything moved in between, the run is not settled.
7. A dump file is complete or absent. A log that cannot be read is reported and left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any

from floodmark.harness import logdir, protocols
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import end_all, raise_first
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Type
from floodmark.harness.parquet_dump import write_parquet
from floodmark.harness.phases.main_phase import ask
from floodmark.harness.protocols import Cluster, PartitionSpec, Session, Workload, ability
from floodmark.harness.run import Run, json_line, write_pieces
from floodmark.harness.schedule.views import UNKNOWN, ReplicaView, View
from floodmark.harness.trace import Raw, merge

PROBES = 2_000_000  # processes that probe are numbered from here on
READERS = 3_000_000
READERS_AT_LEAST = 3  # whose answers together prove that a record cannot be read
EMPTY_POLLS = 3
STALL_S = 20.0  # longer than any single op of a client can take
_OBSERVE_EVERY_S = 0.1
_WATCH_EVERY_S = 0.5
_BETWEEN_PROCESSES_S = 0.1
_ROWS_A_PIECE = 10_000
_ROW_FIELDS = ("leader", "epoch", "log_start", "leo", "hw", "isr", "clean")  # of a running replica


@dataclass(slots=True, kw_only=True)
class _Observations:
    controller_answered: bool = False  # at least once
    led: set[int] = field(default_factory=set)  # partitions that had a leader in any view
    full: set[int] = field(default_factory=set)  # partitions with a full ISR in the latest view
    unmet: list[str] = field(default_factory=list)  # why the cluster was not healthy in the latest view
    window_s: float = 0.0  # since when timeout_s counts
    # Since when each node has been in these sets of the views; infinite where it no longer is.
    since_s: dict[str, dict[str, float]] = field(
        default_factory=lambda: {"answering": {}, "topic_unknown": {}})

    def note_sets(self, view: View | None, now_s: float) -> bool:
        """Whether a node came into one of them for the first time. view: None if nobody answered."""
        came = False
        for name, since in self.since_s.items():
            nodes: frozenset[str] = getattr(view, name, frozenset())
            came |= bool(nodes - since.keys())
            since |= dict.fromkeys(nodes - since.keys(), now_s)
            since |= dict.fromkeys(since.keys() - nodes, inf)
        return came

    def throughout(self) -> dict[str, list[str]]:
        """run.json's keys with the nodes that were in these sets all the time; no set that was empty."""
        return {name: sorted(node for node, at_s in since.items() if at_s <= self.window_s)
                for name, since in self.since_s.items() if since}


@dataclass(slots=True, kw_only=True)
class Reach:
    end: int | None = None  # the offset to reach; None: not known yet
    reached: int = 0
    moved_s: float = 0.0  # the time of the latest progress
    done: bool = False
    whole: int = 0  # processes that read to the end
    fruitless: int = 0  # processes that got nothing more, since the latest progress
    skipped: bool = True  # no process read the record at the log's beginning

    def update(self, end: int | None, reached: int) -> None:
        if reached > self.reached or (self.end is None and end is not None):
            self.moved_s, self.fruitless = asyncio.get_running_loop().time(), 0
        self.end = end if self.end is None else self.end
        self.reached = max(reached, self.reached)

    def progress_text(self) -> str:
        return "its end offset is unknown" if self.end is None else f"at {self.reached} of {self.end}"


@dataclass(slots=True, kw_only=True)
class _ProcessPool:
    workload: Workload
    recorder: Recorder
    next_process: int
    processes: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    def session(self) -> tuple[int, Session]:
        process = self.next_process
        self.next_process += 1
        self.processes.append(process)
        return process, self.workload.final_session(process)


async def settle(cluster: Cluster, workload: Workload, recorder: Recorder, specs: Sequence[PartitionSpec],
                 timeout_s: float) -> dict[str, Any]:
    """At most timeout_s. Returns run.json's `settle`; its `why` is None if the cluster is healthy."""
    pool = _ProcessPool(workload=workload, recorder=recorder, next_process=PROBES)
    probes = {asyncio.create_task(_probe(pool, spec.key)) for spec in specs}
    try:
        observed = await _wait_until_healthy(cluster, specs, probes, timeout_s)
    finally:
        await end_all(probes)
    raise_first(probes)
    no_ack = [spec.key for spec in specs if spec.key not in pool.done]
    unmet = [f"no probe write of partition {key} was acked" for key in no_ack] + observed.unmet
    return {
        "timeout_s": timeout_s, "processes": pool.processes,
        "no_leader": [spec.key for spec in specs
                      if observed.controller_answered and spec.key not in observed.led],
        "no_ack": no_ack,
        "isr_short": [spec.key for spec in specs if spec.key not in observed.full],
        "why": "; ".join(unmet) or None,
        **(observed.throughout() if unmet and timeout_s else {})}


async def read_all(workload: Workload, recorder: Recorder, specs: Sequence[PartitionSpec],
                   timeout_s: float, *, stall_s: float = STALL_S,
                   reaches: dict[int, Reach] | None = None) -> Mapping[str, Any]:
    """From its start to its end offset. Returns run.json's `final_reads`, with the progress of the reads that
    did not reach it. `reaches` is updated during the reads, to show their progress."""
    pool = _ProcessPool(workload=workload, recorder=recorder, next_process=READERS)
    reaches = {} if reaches is None else reaches
    loop = asyncio.get_running_loop()
    reaches.update({spec.key: Reach(moved_s=loop.time()) for spec in specs})
    readers = {asyncio.create_task(_read(pool, key, reach)): reach for key, reach in reaches.items()}
    deadline_s = loop.time() + timeout_s
    waiting = set(readers)
    try:
        while waiting:
            await asyncio.wait(waiting, timeout=min(_WATCH_EVERY_S, stall_s))
            now_s = loop.time()
            waiting = {task for task in waiting if not task.done()
                       and now_s < min(deadline_s, readers[task].moved_s + stall_s)}
    finally:
        await end_all(readers)
    raise_first(readers)
    stalled = loop.time() < deadline_s
    for key, reach in reaches.items():
        if stalled and not reach.done and reach.fruitless >= READERS_AT_LEAST:
            pool.done.add(key)
            reach.done = True
    unread = {str(key): f"{reach.progress_text()}, without progress for {stall_s:g} s" if stalled
              else f"{reach.progress_text()} after {timeout_s:g} s"
              for key, reach in sorted(reaches.items()) if not reach.done}
    return {"processes": pool.processes, "partitions": sorted(pool.done),
            **({"lacking": unread} if unread else {})}


def reading_text(reaches: Mapping[int, Reach]) -> str:
    return ", ".join(f"partition {key} {reach.progress_text()}" for key, reach in sorted(reaches.items())
                     if not reach.done)


def what_moved(before: View, after: View, specs: Sequence[PartitionSpec]) -> str | None:
    """What changed between two views: an epoch, ISR, LEO or HW; None: nothing."""
    for spec in specs:
        was, now = before.partitions.get(spec.key), after.partitions.get(spec.key)
        if was is None or now is None:
            return f"the controller did not report the leader of partition {spec.key}"
        if (was.leader, was.epoch, set(was.isr)) != (now.leader, now.epoch, set(now.isr)):
            return f"the leader, epoch or ISR of partition {spec.key} changed while it was read"
        for node in spec.replicas:
            old, new = before.replicas.get((node, spec.key)), after.replicas.get((node, spec.key))
            if old is None or new is None:
                return f"{node} did not report its state of partition {spec.key}"
            if UNKNOWN in (old.leo, new.leo) or any(
                    first != second and UNKNOWN not in (first, second)
                    for first, second in zip(_state(old), _state(new), strict=True)):
                return f"partition {spec.key} changed on {node} while it was read"
    return None


def _state(own: ReplicaView) -> tuple[object, ...]:
    return own.leo, own.epoch, own.hw, UNKNOWN if own.isr is UNKNOWN else frozenset(own.isr)


def uneven_replicas(view: View, specs: Sequence[PartitionSpec]) -> list[str]:
    """Why the cluster is not healthy, for people; empty: it is."""
    unmet = []
    for spec in specs:
        truth = view.partitions.get(spec.key)
        leader = truth.leader if truth else None
        if truth is None or leader is None:
            unmet.append(f"partition {spec.key} has no leader")
            continue
        if away := sorted(set(spec.replicas) - set(truth.isr)):
            unmet.append(f"{', '.join(away)} never came back to the ISR of partition {spec.key}")
            continue
        led = view.replicas.get((leader, spec.key))
        for node in spec.replicas:
            replica = view.replicas.get((node, spec.key))
            if led is None or replica is None:
                unmet.append(
                    f"{leader if led is None else node} did not report its state of partition {spec.key}")
            elif replica.leader not in (leader, UNKNOWN) or replica.epoch not in (truth.epoch, UNKNOWN):
                unmet.append(f"{node} has not learned the leader of partition {spec.key}")
            elif UNKNOWN in (replica.leo, led.leo, led.hw):
                unmet.append(f"the LEO and HW of partition {spec.key} on {node} are not visible")
            elif not replica.leo == led.leo == led.hw or replica.hw not in (led.hw, UNKNOWN):
                unmet.append(f"{node} has LEO {replica.leo} and HW {replica.hw} of partition {spec.key}, "
                            f"the leader {leader} {led.leo} and {led.hw}")
    return unmet


async def _wait_until_healthy(cluster: Cluster, specs: Sequence[PartitionSpec],
                       probes: Collection[asyncio.Task[None]], timeout_s: float) -> _Observations:
    """After the last probe was acked, or until the time is over. The time counts from the controller's first
    answer, which may take as long again: without the controller no leader can be elected and no replica can
    return to an ISR. Where only the wire is seen, each node's first answer counts so."""
    loop = asyncio.get_running_loop()
    latest_s = loop.time() + timeout_s
    observed = _Observations(window_s=loop.time())
    while True:
        probed = all(probe.done() for probe in probes)
        raise_first([probe for probe in probes if probe.done()])  # such as a full disk: do not wait then
        try:
            view = await cluster.observe()
            now_s = loop.time()
            if observed.note_sets(view, now_s) or (view.partitions and not observed.controller_answered):
                observed.window_s = min(now_s, latest_s)
            observed.controller_answered |= bool(view.partitions)
            observed.led |= {key for key, truth in view.partitions.items() if truth.leader}
            observed.full = {spec.key for spec in specs if spec.key in view.partitions
                             and set(view.partitions[spec.key].isr) == set(spec.replicas)}
            observed.unmet = uneven_replicas(view, specs)
        except FloodmarkError as error:
            observed.note_sets(None, loop.time())
            observed.unmet = [f"the cluster could not be observed: {error}"]
        if (probed and not observed.unmet) or loop.time() >= observed.window_s + timeout_s:
            return observed
        await asyncio.sleep(_OBSERVE_EVERY_S)


async def _with_processes(pool: _ProcessPool, key: int, work: Callable[[int, Session], Awaitable[bool]]
                          ) -> None:
    """Do this work on the partition, with as many processes as that takes, until one has done it."""
    while True:
        process, session = pool.session()
        try:
            if await work(process, session):
                pool.done.add(key)
                return
        finally:
            await session.close()
        await asyncio.sleep(_BETWEEN_PROCESSES_S)


async def _probe(pool: _ProcessPool, key: int) -> None:
    async def is_acked(process: int, session: Session) -> bool:
        while True:
            outcome = await ask(session, process, pool.workload.probe(key), pool.recorder)
            if outcome.type in (Type.OK, Type.INFO) or session.over:
                return outcome.type is Type.OK

    await _with_processes(pool, key, is_acked)


async def _read(pool: _ProcessPool, key: int, reach: Reach) -> None:
    async def is_read(process: int, session: Session) -> bool:
        if await _read_through(pool, process, session, key, reach):
            reach.whole += 1
            reach.done = not reach.skipped or reach.whole == READERS_AT_LEAST
        return reach.done

    await _with_processes(pool, key, is_read)


async def _read_through(pool: _ProcessPool, process: int, session: Session, key: int, reach: Reach) -> bool:
    """With one process; False: it was over before the end offset, or got nothing more."""
    end, start, reached, empty = None, 0, 0, 0
    intent = Intent(f="assign", partitions=(key,))
    while True:
        outcome = await ask(session, process, intent, pool.recorder)
        if outcome.type is Type.INFO or session.over:
            return False
        if end is None:
            end, begin = (next((one.offset for one in found if one.partition == key), None)
                          for found in (outcome.offsets, outcome.starts))
            start = begin or 0
            reached = start
        reach.skipped &= start not in (end, *(read.offset for read in outcome.reads))
        reached = max([reached, *(read.offset + 1 for read in outcome.reads)])
        reach.update(end, reached)
        answered = intent.f == "poll" and outcome.type is Type.OK
        is_empty = answered and not outcome.reads and not outcome.corrupt
        empty = empty + 1 if is_empty else 0
        if outcome.type is Type.FAIL:  # such as a partition without a leader: try again after a pause
            await asyncio.sleep(_BETWEEN_PROCESSES_S)
        if end is None:
            intent = Intent(f="list_offsets", partitions=(key,))
        elif reached >= end or (reach.whole and outcome.reads):
            return True
        elif empty == EMPTY_POLLS:
            reach.fruitless += 1
            return False
        else:
            begins = intent.f == "list_offsets" and start > 0
            intent = Intent(f="poll", partitions=(key,), offset=start) if begins else Intent(f="poll")


# -- collect -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The result of collecting. leaders: as in run.json. problems: what could not be read, for people. moved:
    what changed while the logs of a cluster that cannot freeze were read."""

    frozen: View | None
    moved: str | None
    leaders: Mapping[str, Any]
    problems: tuple[str, ...]
    clock_error_ns: int | None  # of the trace's stamps; None: there is no trace
    resent: tuple[int, ...]  # the values that their producer itself repeated (logdir.py)


async def collect(
    cluster: Cluster, run: Run, specs: Sequence[PartitionSpec], run_id: str, origin_ns: int) -> Collected:
    """Writes logs/, replicas.jsonl and trace.jsonl, with times from origin_ns; stops the cluster."""
    problems: list[str] = []
    freezes = ability(cluster, protocols.Freezes)
    frozen: View | None = None
    moved: str | None = None
    try:
        frozen = await (cluster.observe() if freezes is None else freezes.freeze())
    except FloodmarkError as error:
        problems.append(f"the cluster could not be frozen: {error}")
    answering = {node for node, _ in frozen.replicas} & frozen.running if frozen else frozenset()
    dumps = _Dumps(cluster=cluster, run=run, specs=specs, run_id=run_id, problems=problems)
    rows = [{"node": replica.node, "partition": replica.partition,
             **{name: getattr(replica, name) for name in _ROW_FIELDS},
             **_epochs_in_row(None if replica.epochs is UNKNOWN else replica.epochs)}
            for replica in (frozen.replicas.values() if frozen else ()) if replica.node in answering]
    for node in sorted(cluster.nodes, key=lambda node: (node not in answering, node)):
        rows += await dumps.write(node, running=node in answering)
    if freezes is None and frozen is not None:
        try:
            moved = what_moved(frozen, await cluster.observe(), specs)
        except FloodmarkError as error:
            moved = f"the cluster could not be observed after it was read: {error}"
    try:
        await cluster.stop()
    except FloodmarkError as error:  # what was read is kept
        problems.append(f"the cluster could not be stopped: {error}")
    for lines in sorted(run.logs_folder.glob("*.jsonl")):
        with suppress(FloodmarkError):  # a second time, for the judge, which reads it faster than the lines
            await asyncio.to_thread(write_parquet, lines)
    traces = ability(cluster, protocols.Traces)
    raw_trace = None if traces is None else traces.traces()
    if raw_trace is not None:
        problems += await asyncio.to_thread(_write_trace, raw_trace, run, origin_ns)
    known = [row for row in rows if UNKNOWN not in row.values()]
    known.sort(key=lambda row: (row["partition"], row["node"]))
    write_pieces(run.replicas_path, map(json_line, known))
    leaders = {  # as the controller reports them; a partition without a leader has no entry
        str(key): {"leader": truth.leader, "epoch": truth.epoch, "isr": list(truth.isr)}
        for key, truth in sorted((frozen.partitions if frozen else {}).items()) if truth.leader is not None}
    return Collected(frozen=frozen, moved=moved, leaders=leaders, problems=tuple(problems),
                     clock_error_ns=None if raw_trace is None else raw_trace.clock_error_ns,
                     resent=tuple(sorted(dumps.resent)))


def observes_of(cluster: Cluster) -> dict[str, Any]:
    """run.json's `observes`: which parts of its state the system shows. Empty if it shows everything."""
    dumps = any(ability(cluster, kind) is not None for kind in (protocols.ReadsLogs, protocols.KeepsLogs))
    replicas = not cluster.not_shown & {*_ROW_FIELDS}
    traces = ability(cluster, protocols.Traces)
    events = None if traces is None else traces.traced_events
    if dumps and replicas and events is None:
        return {}
    shown = {} if events is None else {"trace": sorted(events)}
    return {"observes": {"dumps": dumps, "replicas": replicas, **shown}}


def _write_trace(raw_trace: Raw, run: Run, origin_ns: int) -> list[str]:
    """Write trace.jsonl and delete the raw files; returns what is missing in it."""
    problems: list[str] = []
    try:
        write_pieces(run.trace_path, merge(raw_trace, origin_ns, problems))
    except FloodmarkError as error:
        return [f"the trace could not be written: {error}"]
    if not problems:
        for path in raw_trace.files.values():
            path.unlink(missing_ok=True)
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dumps:
    """From folders or from a cluster without files; failures are appended to `problems`."""

    cluster: Cluster
    run: Run
    specs: Sequence[PartitionSpec]
    run_id: str
    problems: list[str]
    resent: set[int] = field(default_factory=set)  # as in Collected

    async def write(self, node: str, *, running: bool) -> list[dict[str, Any]]:
        """Returns the node's rows for replicas.jsonl if it does not run: its log is then the only source."""
        kills, files = ability(self.cluster, protocols.Kills), ability(self.cluster, protocols.ReadsLogs)
        logs_in_memory = ability(self.cluster, protocols.KeepsLogs)
        try:
            if not running and kills is not None:
                await kills.kill(node)
            if files is None and logs_in_memory is None:
                return []
            folder = None if files is None else await files.log_dir(node)
        except FloodmarkError as error:
            self.problems.append(f"the log directory of {node} could not be read: {error}")
            return []
        if folder is not None:
            log = logdir.dump(folder, self.specs, self.run_id, node, running=running, resent=self.resent)
            return await asyncio.to_thread(
                self._dump, node, log, lambda spec: logdir.describe(folder, spec, running=False), running)
        assert logs_in_memory is not None, "checked above"
        return self._dump(node, logs_in_memory.log_rows(node, self.run_id),
                          lambda spec: logs_in_memory.log_state(node, spec.key), running)

    def _dump(self, node: str, log: Iterator[dict[str, Any]],
              describe: Callable[[PartitionSpec], logdir.LogState], running: bool) -> list[dict[str, Any]]:
        try:
            pieces = iter(lambda: b"".join(map(json_line, islice(log, _ROWS_A_PIECE))), b"")
            write_pieces(self.run.logs_folder / f"{node}.jsonl", pieces)
        except FloodmarkError as error:
            self.problems.append(f"the log of {node} could not be dumped: {error}")
        rows = []
        for spec in self.specs if not running else ():
            if node in spec.replicas:
                try:
                    rows.append(_dead_row(node, spec, describe(spec)))
                except FloodmarkError as error:
                    self.problems.append(
                        f"the state of partition {spec.key} on {node} cannot be read: {error}")
        return rows


def _dead_row(node: str, spec: PartitionSpec, state: logdir.LogState) -> dict[str, Any]:
    """The row of a node that does not run. clean is false: no restart has confirmed an orderly stop."""
    epochs = state.epochs
    return {
        "node": node, "partition": spec.key, "running": False, "leader": None,
        "epoch": epochs[-1][0] if epochs and epochs != logdir.UNREADABLE else -1,
        "log_start": state.log_start, "leo": state.leo, "hw": min(state.checkpointed_hw, state.leo),
        "isr": [], "clean": False, "torn_bytes": state.torn_bytes, **_epochs_in_row(epochs)}


def _epochs_in_row(epochs: logdir.Epochs) -> dict[str, Any]:
    if epochs == logdir.UNREADABLE:
        return {"epochs_unreadable": True}
    return {} if epochs is None else {"epochs": [list(entry) for entry in epochs]}

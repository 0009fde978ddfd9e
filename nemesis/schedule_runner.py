"""Carries out a schedule: waits for each entry's moment, resolves its roles, strikes, and records the strike.

Rules
1. Entries are carried out one after the other. One whose moment does not come is missed: it does not strike,
   and the next one follows. One that mends (start, resume, heal, release) is carried out anyway, otherwise
   the harm would outlast its plan.
2. Every strike that began is recorded, whether it took effect or failed: a judge must know of every fault,
   above all of one that may have lost data. The death of a node by an armed crash is recorded as a kill as
   soon as it is noticed: between two strikes, and before its moment counts as reached. If a node has died by
   itself, entries that are then impossible are missed, and the schedule continues.
3. After a cluster without any fault in force did not become healthy in the time of an entry, later entries
   wait at most UNHEALTHY_S for that, until it is healthy again: a broken cluster does not prolong its run.
4. Between a moment and its act the cluster is observed only if that is needed: to resolve a role, or if the
   moment was a time (then the op records the state at the strike).
5. If no node has a role, the runner waits for one, as long as for the moment.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import end_all
from floodmark.harness.faults import MENDING, OF_LINKS, loses
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome, Send
from floodmark.harness.protocols import Cluster, Nemesis, PartitionSpec, Sender, Struck
from floodmark.harness.schedule.entry import ACTS, Entry, Schedule
from floodmark.harness.schedule.moments import HEALTHY, POLL_S, Failpoint, Reached, Time, describe_met
from floodmark.harness.schedule.stage import ActiveFaults, Stage, needs_view, resolve
from floodmark.harness.schedule.views import Met, Sight, View
from floodmark.nemesis.moment_watch import Miss, Watch, explain
from floodmark.nemesis.strikes import refuse_schedule

UNHEALTHY_S = 10.0
NOWAIT_PATIENCE_S = 10.0  # of an op that stays open: a later step may have to release its leader first
DRAIN_TIMEOUT_S = 3.0  # an op that gets its answer only after mending stays open
_ARGS_OF_ONE_NODE = frozenset({"leader", "to", "from"})  # args that name one node


class ScheduleRunner:
    """Implements protocols.ScheduleRunner with these nemeses. No two may carry out the same f."""

    _sight: Sight
    _recorder: Recorder
    _scripted: "_Scripted"
    _stays_unhealthy: bool
    _deaths: int  # by armed crashes, recorded so far
    _started_ns: dict[str, int]  # when each node's last start began

    def __init__(self, nemeses: Sequence[Nemesis], partitions: Sequence[PartitionSpec],
                 cluster: Cluster | None = None, *, besides: Sequence[str] = ()) -> None:
        """cluster: what schedules are checked against. besides: nodes that must be up, too."""
        self._by_f: dict[str, Nemesis] = {}
        for nemesis in nemeses:
            assert not self._by_f.keys() & nemesis.answers, f"{nemesis} answers what another does"
            self._by_f |= dict.fromkeys(nemesis.answers, nemesis)
        self._cluster, self._besides = cluster, tuple(besides)
        self.assign(partitions)
        self._faults = ActiveFaults()
        self._striking = False
        self._misses: dict[int, Miss] = {}  # by position in the schedule

    def assign(self, partitions: Sequence[PartitionSpec]) -> None:
        """From now on the cluster has these partitions."""
        self._replicas = {spec.key: spec.replicas for spec in partitions}

    def missed_words(self) -> Mapping[int, Mapping[str, Any]]:
        return self._misses

    def in_force(self) -> tuple[str, ...]:
        return self._faults.describe()

    def mended(self) -> None:
        """Forget every fault: the run has mended the cluster."""
        self._faults = ActiveFaults()

    def refuse(self, schedule: Schedule) -> None:
        """UsageError for an entry that this cluster cannot carry out."""
        if self._cluster is not None:
            refuse_schedule(schedule, self._cluster)

    async def carry_out(self, schedule: Schedule, sight: Sight, recorder: Recorder,
                        send: Sender) -> tuple[int, ...]:
        self.refuse(schedule)
        self._faults, self._started_ns, self._deaths = ActiveFaults(), {}, len(sight.crashes())
        self._stays_unhealthy = False
        self._sight, self._recorder, self._scripted = sight, recorder, _Scripted(send)
        death_watch = asyncio.create_task(self._notice_deaths(), name="deaths by armed crashes")
        self._misses = {}
        done_ns = sight.now_ns()
        try:
            for position, entry in enumerate(schedule):
                try:
                    miss = await self._carry_out(entry, done_ns)
                except FloodmarkError as error:
                    if not sight.died():
                        raise FloodmarkError(
                            f"entry {position} of the schedule ({entry.text()}): {error}") from error
                    words = f"{', '.join(sight.died())} ended without being asked to"
                    miss = {"waited_for": "it could not be carried out", "seen": [str(error), words],
                            "likely": []}
                if miss is not None:
                    self._misses[position] = miss
                done_ns = sight.now_ns()
            await self._scripted.drain()
            if death_watch.done():
                death_watch.result()
            return tuple(self._misses)
        finally:
            death_watch.cancel()
            await asyncio.wait([death_watch])
            await end_all(self._scripted.open)
            if death_watch.cancelled():  # otherwise the history can no longer be written, as its owner says
                self._record_deaths()

    async def _carry_out(self, entry: Entry, done_ns: int) -> Miss | None:
        """Carry out one entry; returns what was missed, its moment or its role, if anything was."""
        if self._stays_unhealthy and entry.moment == HEALTHY:
            entry = replace(entry, timeout_s=min(entry.timeout_s, UNHEALTHY_S))
        watch = Watch(
            sight=self._sight, stage=self._stage, timeout_s=entry.timeout_s, done_ns=done_ns)
        reached = await watch.wait_for(entry.moment)
        if entry.moment == HEALTHY:
            self._stays_unhealthy = reached is None and not self._faults.lasting
        miss = None
        if reached is None:
            miss = await explain(entry, watch.stuck[-1], self._sight, self._stage())
        self._record_deaths()
        if entry.f == "wait" or (miss is not None and entry.f not in MENDING):
            return miss
        target = await resolve_targets(entry, reached, self._sight, self._stage)
        if target is None:
            return miss or await explain(entry, None, self._sight, self._stage())
        if entry.f in ACTS:
            await self._scripted.run_op(target.entry)
        elif target.nodes or not entry.nodes:
            await self._strike(target)
        return miss

    def _stage(self) -> Stage:
        return Stage(replicas=self._replicas, faults=self._faults, besides=self._besides)

    async def _strike(self, target: "Target") -> None:
        """Strike, and write the line in the history, even if the strike fails half-way."""
        self._record_deaths()
        began = self._recorder.now_ns()
        f, args = target.entry.f, target.entry.args
        struck_at = _where(target, self._sight, sorted(self._replicas))
        struck = Struck(nodes=target.nodes)
        failed: dict[str, Any] = {}
        self._striking = True
        try:
            struck = await self._by_f[f].strike(target.entry, target.nodes)
        except BaseException as error:
            failed = {"error": str(error) or type(error).__name__}
            raise
        finally:
            self._striking = False
            on = struck.nodes or target.nodes
            named = [args.get("kind", " ".join(on))] if f in OF_LINKS else on
            self._faults = self._faults.after(f, named, point=args.get("point"), began_ns=began)
            if f == "start":
                self._started_ns |= dict.fromkeys(on, began)
            fault = {"nodes": list(on), **args, **struck.detail, **_asked(target), "began": began,
                     **struck_at, **failed}
            self._recorder.strike(f, {**fault, "lost": True} if loses(f, args) else fault)

    # -- deaths by armed crashes ----------------------------------------------------------------------------

    async def _notice_deaths(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if not self._striking:  # a strike writes its line first
                self._record_deaths()

    def _record_deaths(self) -> None:
        """Record a kill for each new death; one that a start has undone since is not in force."""
        crashes = self._sight.crashes()
        for position, crash in enumerate(crashes[self._deaths:], start=self._deaths):
            count = sum((one.node, one.name) == (crash.node, crash.name) for one in crashes[: position + 1])
            self._recorder.strike("kill", _death(crash, self._sight.now_ns(), count))
            if crash.time_ns >= self._started_ns.get(crash.node, 0):
                self._faults = self._faults.after("kill", [crash.node])
        self._deaths = len(crashes)


def _death(crash: Met, noticed_ns: int, count: int) -> Mapping[str, Any]:
    """The `fault` of a kill that no entry struck: the node reached a point that was armed to crash it. The
    kill began when the point was reached, and was noticed later. count: which of its deaths at that point it
    is. Or (action None) the node ended because of a fault in force, which `why` names."""
    if crash.action is None:
        return {"nodes": [crash.node], "why": crash.name, "reached": {"time": noticed_ns},
                "began": crash.time_ns}
    moment = Failpoint(node=crash.node, name=crash.name, partition=crash.partition)
    return {"nodes": [crash.node], "moment": moment.to_json(),
            "reached": {"time": noticed_ns, **describe_met(crash, count)}, "began": crash.time_ns}


# -- targets ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An entry whose moment has come, with nodes for its roles."""

    entry: Entry  # its args with nodes for roles
    nodes: tuple[str, ...]
    reached: Reached | None  # None: the moment was missed
    view: View | None  # that resolved the roles, or fulfilled the moment


async def resolve_targets(entry: Entry, reached: Reached | None, sight: Sight,
                          stage: Callable[[], Stage]) -> Target | None:
    """Resolve the roles. None: no node had one of them within the entry's time-out."""
    grudge = entry.args.get("grudge", {})
    named = (*entry.nodes, *grudge, *(name for unheard in grudge.values() for name in unheard),
             *(entry.args[key] for key in _ARGS_OF_ONE_NODE & entry.args.keys()))
    view = reached.view if reached is not None else None
    if view is None and (needs_view(named) or _strikes_by_time(entry)):
        view = await sight.view()
    deadline_ns = sight.now_ns() + int(entry.timeout_s * 1e9)
    while True:
        now = stage()
        nodes = resolve(entry.nodes, entry.partition, view, now)
        args = _resolve_args(entry, view, now)
        if nodes is not None and args is not None:
            return Target(entry=replace(entry, args=args), nodes=nodes, reached=reached, view=view)
        if not needs_view(named) and not now.faults.may_crash:
            # No node is down, or paused, and only our own acts can change that.
            nobody = Target(entry=entry, nodes=(), reached=reached, view=view)
            return nobody if entry.f in MENDING else None
        if sight.now_ns() >= deadline_ns:
            return None
        await asyncio.sleep(POLL_S)
        if needs_view(named):
            view = await sight.view()


def _resolve_args(entry: Entry, view: View | None, stage: Stage) -> Mapping[str, Any] | None:
    """Copy the args with nodes for roles. None: no node has one of the roles."""
    found = dict(entry.args)
    for key in sorted(_ARGS_OF_ONE_NODE & found.keys()):
        meant = resolve([found[key]], entry.partition, view, stage)
        if meant is None:
            return None
        found[key] = meant[0]
    grudge: dict[str, list[str]] = {}
    for hearer, unheard in found.get("grudge", {}).items():
        hearers = resolve([hearer], entry.partition, view, stage)
        snubbed = resolve(unheard, entry.partition, view, stage)
        if hearers is None or snubbed is None:
            return None
        for node in hearers:
            grudge.setdefault(node, []).extend(name for name in snubbed if name != node)
    return {**found, "grudge": grudge} if "grudge" in found else found


def _strikes_by_time(entry: Entry) -> bool:
    return isinstance(entry.moment, Time) and entry.f not in MENDING


def _asked(target: Target) -> dict[str, Any]:
    """The requested roles and moment, and how the moment was reached."""
    entry, reached = target.entry, target.reached
    asked = {} if entry.nodes in ((), target.nodes) else {"asked": list(entry.nodes)}
    return asked if entry.moment is None else {
        **asked, "moment": entry.moment.to_json(), "reached": None if reached is None else reached.describe()}


def _where(target: Target, sight: Sight, partitions: Sequence[int]) -> dict[str, Any]:
    """The state at a fault's time: acks so far, leader and ISR of each partition."""
    if target.view is None or not _strikes_by_time(target.entry):
        return {}
    seen = {key: target.view.partitions[key] for key in partitions if key in target.view.partitions}
    return {"where": {
        "acks": {str(key): sight.acks(key) for key in partitions},
        "leader": {str(key): view.leader for key, view in seen.items()},
        "isr": {str(key): list(view.isr) for key, view in seen.items()},
    }}


# -- scripted ops -------------------------------------------------------------------------------------------


class _Scripted:
    """Runs entries as ops. Ops with `nowait` are open until `drain`."""

    def __init__(self, send: Sender) -> None:
        self._send = send
        self.open: set[asyncio.Task[Outcome]] = set()

    async def run_op(self, entry: Entry) -> None:
        args, nowait = entry.args, entry.args.get("nowait")
        intent = Intent(
            f=entry.f, partitions=tuple(args.get("partitions", ())),
            sends=tuple(Send(**one) for one in args.get("sends", ())),
            node=args.get("to", args.get("from")), acks=args.get("acks"), offset=args.get("offset"),
            client=args.get("client"), patience_s=NOWAIT_PATIENCE_S if nowait else None)
        if not nowait:
            await self._send(intent)
            return
        begun = asyncio.Event()

        async def send_op() -> Outcome:
            begun.set()
            return await self._send(intent)

        self.open.add(asyncio.create_task(send_op(), name=f"scripted {entry.f}"))
        await begun.wait()

    async def drain(self) -> None:
        """Wait for the open ops; one without an answer stays open in the history."""
        if not self.open:
            return
        done, self.open = await asyncio.wait(self.open, timeout=DRAIN_TIMEOUT_S)
        for task in done:
            if isinstance(error := task.exception(), FloodmarkError):
                raise FloodmarkError(f"an op that the schedule left open: {error}") from error
            task.result()

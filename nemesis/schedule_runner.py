"""Carries out a schedule: waits for each entry's moment, resolves its roles, strikes, and records the strike.
Of a moment that did not come it says what the run waited for, what it saw instead, and likely reasons.

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
6. Each kind of moment says itself what it waits for (harness/schedule/moments.py). The time-out of an entry
   applies to all of a sequence together, without the parts that always come.
7. What is said of a missed moment shows one view of the cluster, taken at the end of the wait. A likely
   reason is given only if the view fits it, with the step that would help. Several may fit; if none does,
   none is given.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import end_all
from floodmark.harness.faults import FAULTS, MENDING, OF_LINKS, loses
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome, Send
from floodmark.harness.protocols import Cluster, Nemesis, PartitionSpec, Sender, Struck
from floodmark.harness.schedule.moments import (
    ACTS,
    HEALTHY,
    POLL_S,
    Ack,
    Entry,
    Failpoint,
    FirstOf,
    InTurn,
    Moment,
    Reached,
    Schedule,
    Time,
    WhenState,
    describe_met,
    reached_now,
)
from floodmark.harness.schedule.states import Condition, Healthy, Observation
from floodmark.harness.schedule.views import (
    UNKNOWN,
    ActiveFaults,
    FailpointHit,
    FaultContext,
    PartitionView,
    ReplicaView,
    RunObserver,
    View,
    needs_view,
    resolve,
)
from floodmark.nemesis.strikes import refuse_schedule

PARTITIONS_MAX = 4  # shown for a moment that names none
_OF_COMMITTING = {"hw", "checkpointed_hw", "isr"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Waits. `context` returns the current assignment and faults."""

    observer: RunObserver
    context: Callable[[], FaultContext]
    timeout_s: float
    done_ns: int  # when the entry before, or the moment before in a sequence, was done
    stuck: list[Moment] = field(default_factory=list)  # the single moment that is awaited now

    async def wait_for(self, moment: Moment | None) -> Reached | None:
        """Wait until the moment comes (None: at once); None: it did not within the time-out."""
        if moment is None:
            return reached_now(self.observer)
        self.stuck[:] = [moment]
        due_ns = moment.due_ns(self.done_ns)
        if due_ns is not None:
            now_ns = await self._sleep_until(due_ns)
            late = {"asked": due_ns, "late_ns": now_ns - due_ns}
            reached: Reached | None = Reached(time_ns=now_ns, came_ns=due_ns, detail=late)
        elif isinstance(moment, InTurn):
            reached = await self._all_in_turn(moment.of)
        else:
            reached = await (self._first_of(moment.of) if isinstance(moment, FirstOf)
                             else self._look_for(moment))
        if reached is None or moment.then_ns is None:
            return reached
        now_ns = await self._sleep_until(reached.came_ns + moment.then_ns)
        later = {**reached.detail, "then_ns": now_ns - reached.came_ns}
        return replace(reached, came_ns=now_ns, detail=later, view=None)  # the view is outdated by now

    async def _sleep_until(self, due_ns: int) -> int:
        """Sleep until this time of the run; returns the time then."""
        while (left_ns := due_ns - self.observer.now_ns()) > 0:
            await asyncio.sleep(left_ns / 1e9)
        return self.observer.now_ns()

    async def _look_for(self, moment: Moment) -> Reached | None:
        deadline_ns = self.observer.now_ns() + int(self.timeout_s * 1e9)
        while True:
            reached = await moment.look(self.observer, self.context)
            left_ns = deadline_ns - self.observer.now_ns()
            if reached is not None or left_ns <= 0:
                return reached
            if moment.woken_by_acks:
                await self.observer.ack_or(left_ns / 1e9)
            else:
                await asyncio.sleep(moment.looks_every_s)

    async def _all_in_turn(self, moments: Sequence[Moment]) -> Reached | None:
        details: list[dict[str, Any]] = []
        reached, watch = None, self
        for part in moments:
            began_ns = self.observer.now_ns()
            reached = await watch.wait_for(part)
            if reached is None:
                return None
            now_ns = self.observer.now_ns()
            spent_s = 0.0 if part.due_ns(0) is not None else (now_ns - began_ns) / 1e9
            watch = replace(watch, done_ns=now_ns, timeout_s=max(0.0, watch.timeout_s - spent_s))
            details.append(reached.describe())
        assert reached is not None, "a sequence has at least one moment"
        return replace(reached, detail={"of": details})

    async def _first_of(self, moments: Sequence[Moment]) -> Reached | None:
        """Wait for what comes first, and cancel the others. Of several at once the first listed."""
        parts = [asyncio.create_task(replace(self, stuck=[]).wait_for(one)) for one in moments]
        try:
            pending = set(parts)
            while pending:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                came = next((index for index, one in enumerate(parts) if one.done() and one.result()), None)
                if came is not None:
                    reached = parts[came].result()
                    assert reached is not None
                    return replace(reached, detail={**reached.detail, "first": came})
            return None
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)


# -- a moment that did not come -----------------------------------------------------------------------------

Miss = Mapping[str, Any]  # in sentences, as in run.json's `missed_words`: waited_for, seen, likely


async def explain(entry: Entry, stuck: Moment | None, observer: RunObserver, context: FaultContext) -> Miss:
    """Explain that `stuck`, a moment or part of one, did not come; None: no node had the entry's role."""
    limit, of = f" ({entry.timeout_s:g} s)", entry.partition
    if stuck is None:
        asked = f"a node that is {', '.join(entry.nodes) or 'meant'} of partition {of}{limit}"
        leader = Observation(field="leader", partition=of)
        stuck = WhenState(state=Condition(seen=leader, how="!=", value=None))
    else:
        whole = f", in {entry.moment.text()}" if isinstance(entry.moment, InTurn) else ""
        asked = f"{stuck.text()}{limit}{whole}"
    try:
        view = await observer.view()
        held = [met for node in sorted({armed.node for armed in context.faults.armed})
                for met in [one for one in await observer.met(node) if one.held][-1:]]
    except FloodmarkError as error:
        return {"waited_for": asked, "seen": [f"the cluster could not be observed: {error}"], "likely": []}
    keys = sorted(stuck.partitions() & context.replicas.keys()) or sorted(context.replicas)[:PARTITIONS_MAX]
    seen = [line for key in keys for line in describe_partition(key, view, context, acks=observer.acks(key))]
    likely = dict.fromkeys(guess_reasons(stuck, keys, view, context, held))
    return {"waited_for": asked, "seen": seen, "likely": list(likely)}


# -- what was seen: pure -------------------------------------------------------------------------------------

def describe_partition(partition: int, view: View, context: FaultContext, *, acks: int) -> Iterator[str]:
    """Describe a partition as the controller sees it, then as each replica does."""
    truth = view.partitions.get(partition)
    if truth is None:
        yield f"partition {partition}: unknown to the controller; {acks} records acked"
    else:
        yield (f"partition {partition}: leader {truth.leader or 'nobody'}, epoch {truth.epoch}, "
               f"ISR {', '.join(truth.isr) or 'empty'}; {acks} record{'s' * (acks != 1)} acked")
    for node in context.replicas.get(partition, ()):
        words = describe_node(node, view, context)
        if (node, partition) in view.replicas:
            words.append(_describe_replica(view.replicas[node, partition]))
        yield f"  {node}: {'; '.join(words) or 'no answer'}"


def describe_node(node: str, view: View, context: FaultContext) -> list[str]:
    """`down`, `paused`, `fenced`; nothing where it is up and unfenced."""
    unfenced = node in view.unfenced
    if node not in context.faults.paused and node in view.running:
        return [] if unfenced else ["fenced"]
    word = "paused" if node in context.faults.paused else "down"
    return [f"{word}, its session not ended" if unfenced else f"{word}, fenced"]


def _describe_replica(own: ReplicaView) -> str:
    role = "leads" if own.leader == own.node else f"follows {own.leader}" if own.leader else "has no leader"
    words = [] if own.leader is UNKNOWN else [
        role if own.epoch is UNKNOWN else f"{role} in epoch {own.epoch}"]
    words += [f"{word} {value}" for word, value in (("LEO", own.leo), ("HW", own.hw)) if value is not UNKNOWN]
    if own.epochs is not UNKNOWN and own.epochs is not None:
        starts = own.epochs if isinstance(own.epochs, str) else ", ".join(
            f"{epoch} from {start}" for epoch, start in own.epochs)
        words.append(f"epochs {starts or 'none'}")
    return ", ".join(words) or "its system shows nothing of it"


# -- why: pure -----------------------------------------------------------------------------------------------

def guess_reasons(moment: Moment, keys: Sequence[int], view: View, context: FaultContext,
                  held: Sequence[FailpointHit]) -> Iterator[str]:
    """Guess reasons from the view, each with the step that would help. held: nodes that stand at a point."""
    for met in held:
        yield f"{met.node} is held at {met.name}: `release {met.node}` releases it"
    parts = list(moment.parts())
    for part in parts:
        yield from part.reasons(context)
    observed = [condition.seen for part in parts for condition in part.conditions()]
    fields = {one.field for one in observed}
    for truth in (view.partitions[key] for key in keys if key in view.partitions):
        yield from _guess_from_partition(
            truth, view, context, of_isr="isr" in fields,
            committing=isinstance(moment, Ack) or bool(fields & _OF_COMMITTING))
    for node in (node for part in parts for node in part.nodes(view, context)):
        # One that is down or paused shows no replica, so no condition on it can be met.
        if node in context.faults.paused:
            yield f"{node} is paused and does not answer: `resume {node}`"
        elif node not in view.running:
            yield f"{node} is down and does not answer: `start {node}`"
    for name in sorted({one.field for one in observed if one.needs_answer}):
        if any(getattr(own, name) is UNKNOWN for own in view.replicas.values()):
            yield f"this system does not show the {name} of a replica"
    if (isinstance(moment, WhenState) and isinstance(moment.state, Healthy)
            and not moment.state.holds(view, context)):
        for f, on in context.faults.lasting:
            undo = FAULTS[f].undone_by or ""
            yield f"{f} {on} is in force: `{undo if undo == 'heal' else f'{undo} {on}'}`"
    elif context.faults.cut:
        yield "links are cut: messages over them wait for `heal`"


def _guess_from_partition(
    truth: PartitionView, view: View, context: FaultContext, *, committing: bool, of_isr: bool
) -> Iterator[str]:
    key, leader = truth.partition, truth.leader
    if leader is None:
        yield (f"nobody leads partition {key}, because no member of its ISR ({', '.join(truth.isr)}) is "
               f"alive and unfenced: `start {truth.isr[0] if truth.isr else 'down'}`, or "
               "`elect NODE unclean`")
        return
    word = "paused" if leader in context.faults.paused else "down"
    unavailable = word == "paused" or leader not in view.running
    if unavailable and leader in view.unfenced:
        yield (f"{leader} is {word} and still leads partition {key}: a leader is replaced when its session "
               f"ends, and this one's has not: `expire {leader}`")
        return
    for node in truth.isr if committing else ():
        if node != leader and node in view.unfenced and (
                node in context.faults.paused or node not in view.running):
            state = "paused" if node in context.faults.paused else "down"
            yield (f"{node} is {state} and still in the ISR, so the high watermark waits for it: "
                   f"`expire {node}` removes it")
    if committing and len(truth.isr) == 1 and len(context.replicas.get(key, ())) > 1:
        yield (f"the ISR of partition {key} is {leader} alone: if min.insync.replicas is above 1 nothing is "
               "committed or acked")
    if of_isr and context.faults.cut:
        yield ("a live follower that is cut off leaves the ISR after replica.lag.time.max.ms (60 s in a "
               "scenario whose [config] does not set it)")


# -- the runner ---------------------------------------------------------------------------------------------

UNHEALTHY_S = 10.0
NOWAIT_PATIENCE_S = 10.0  # of an op that stays open: a later step may have to release its leader first
DRAIN_TIMEOUT_S = 3.0  # an op that gets its answer only after mending stays open
_ARGS_OF_ONE_NODE = frozenset({"leader", "to", "from"})  # args that name one node


class ScheduleRunner:
    """Implements protocols.ScheduleRunner with these nemeses. No two may carry out the same f."""

    _observer: RunObserver
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

    async def carry_out(self, schedule: Schedule, observer: RunObserver, recorder: Recorder,
                        send: Sender) -> tuple[int, ...]:
        self.refuse(schedule)
        self._faults, self._started_ns, self._deaths = ActiveFaults(), {}, len(observer.crashes())
        self._stays_unhealthy = False
        self._observer, self._recorder, self._scripted = observer, recorder, _Scripted(send)
        death_watch = asyncio.create_task(self._notice_deaths(), name="deaths by armed crashes")
        self._misses = {}
        done_ns = observer.now_ns()
        try:
            for position, entry in enumerate(schedule):
                try:
                    miss = await self._carry_out(entry, done_ns)
                except FloodmarkError as error:
                    if not observer.died():
                        raise FloodmarkError(
                            f"entry {position} of the schedule ({entry.text()}): {error}") from error
                    words = f"{', '.join(observer.died())} ended without being asked to"
                    miss = {"waited_for": "it could not be carried out", "seen": [str(error), words],
                            "likely": []}
                if miss is not None:
                    self._misses[position] = miss
                done_ns = observer.now_ns()
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
            observer=self._observer, context=self._context, timeout_s=entry.timeout_s, done_ns=done_ns)
        reached = await watch.wait_for(entry.moment)
        if entry.moment == HEALTHY:
            self._stays_unhealthy = reached is None and not self._faults.lasting
        miss = None
        if reached is None:
            miss = await explain(entry, watch.stuck[-1], self._observer, self._context())
        self._record_deaths()
        if entry.f == "wait" or (miss is not None and entry.f not in MENDING):
            return miss
        target = await resolve_targets(entry, reached, self._observer, self._context)
        if target is None:
            return miss or await explain(entry, None, self._observer, self._context())
        if entry.f in ACTS:
            await self._scripted.run_op(target.entry)
        elif target.nodes or not entry.nodes:
            await self._strike(target)
        return miss

    def _context(self) -> FaultContext:
        return FaultContext(replicas=self._replicas, faults=self._faults, besides=self._besides)

    async def _strike(self, target: "Target") -> None:
        """Strike, and write the line in the history, even if the strike fails half-way."""
        self._record_deaths()
        began = self._recorder.now_ns()
        f, args = target.entry.f, target.entry.args
        struck_at = _where(target, self._observer, sorted(self._replicas))
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
        crashes = self._observer.crashes()
        for position, crash in enumerate(crashes[self._deaths:], start=self._deaths):
            count = sum((one.node, one.name) == (crash.node, crash.name) for one in crashes[: position + 1])
            self._recorder.strike("kill", _death(crash, self._observer.now_ns(), count))
            if crash.time_ns >= self._started_ns.get(crash.node, 0):
                self._faults = self._faults.after("kill", [crash.node])
        self._deaths = len(crashes)


def _death(crash: FailpointHit, noticed_ns: int, count: int) -> Mapping[str, Any]:
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


async def resolve_targets(entry: Entry, reached: Reached | None, observer: RunObserver,
                          context: Callable[[], FaultContext]) -> Target | None:
    """Resolve the roles. None: no node had one of them within the entry's time-out."""
    grudge = entry.args.get("grudge", {})
    named = (*entry.nodes, *grudge, *(name for unheard in grudge.values() for name in unheard),
             *(entry.args[key] for key in _ARGS_OF_ONE_NODE & entry.args.keys()))
    view = reached.view if reached is not None else None
    if view is None and (needs_view(named) or _strikes_by_time(entry)):
        view = await observer.view()
    deadline_ns = observer.now_ns() + int(entry.timeout_s * 1e9)
    while True:
        now = context()
        nodes = resolve(entry.nodes, entry.partition, view, now)
        args = _resolve_args(entry, view, now)
        if nodes is not None and args is not None:
            return Target(entry=replace(entry, args=args), nodes=nodes, reached=reached, view=view)
        if not needs_view(named) and not now.faults.may_crash:
            # No node is down, or paused, and only our own acts can change that.
            nobody = Target(entry=entry, nodes=(), reached=reached, view=view)
            return nobody if entry.f in MENDING else None
        if observer.now_ns() >= deadline_ns:
            return None
        await asyncio.sleep(POLL_S)
        if needs_view(named):
            view = await observer.view()


def _resolve_args(entry: Entry, view: View | None, context: FaultContext) -> Mapping[str, Any] | None:
    """Copy the args with nodes for roles. None: no node has one of the roles."""
    found = dict(entry.args)
    for key in sorted(_ARGS_OF_ONE_NODE & found.keys()):
        meant = resolve([found[key]], entry.partition, view, context)
        if meant is None:
            return None
        found[key] = meant[0]
    grudge: dict[str, list[str]] = {}
    for hearer, unheard in found.get("grudge", {}).items():
        hearers = resolve([hearer], entry.partition, view, context)
        snubbed = resolve(unheard, entry.partition, view, context)
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


def _where(target: Target, observer: RunObserver, partitions: Sequence[int]) -> dict[str, Any]:
    """The state at a fault's time: acks so far, leader and ISR of each partition."""
    if target.view is None or not _strikes_by_time(target.entry):
        return {}
    seen = {key: target.view.partitions[key] for key in partitions if key in target.view.partitions}
    return {"where": {
        "acks": {str(key): observer.acks(key) for key in partitions},
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

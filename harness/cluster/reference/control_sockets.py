"""Sends requests to the control sockets of a cluster's processes, except to those that cannot answer now;
arms and releases failpoints, and reads from the trace which were met; converts the answers to View and
FailpointHit.

Rules
1. A process that is down is armed by its properties, only for its next start; so is one that ends at a
   failpoint during the request.
2. Failpoints that were hit are read from the trace, which outlives the process. A cluster without traces is
   asked on the control sockets, and what a process met is then lost at its end.
3. A process that ends at an armed crash has not died by itself. The crash is reported as met when the
   process's end is known, not before: whoever waits for it may start the node at once.
4. A running broker of another incarnation than the controller knows is not unfenced: it was restarted, and
   until it registers (KIP-380) the controller's ISR is about the earlier one.
"""

import asyncio
import json
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from floodmark.harness import runtime
from floodmark.harness.cluster.broker_cluster import Place
from floodmark.harness.cluster.layout import CONTROLLER_ID, Layout, host_port, ids_of
from floodmark.harness.cluster.processes import ANSWER_BYTES_MAX, ControlError, Lines, Refused
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import CRASH
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER, FailpointHit, PartitionView, ReplicaView, View
from floodmark.harness.trace import Feed, Raw

FAILPOINTS = "floodmark.failpoints"
ASK_S = 60.0
END_KNOWN_S = 30.0  # from a lost connection to the host's report that the process has ended
POLL_S = 0.02


State = Mapping[str, Any]  # the `ok` of a `state` (docker/README.md)


class Names:
    """Translates the cluster's ids of brokers and partitions to the history's names, and back."""

    def __init__(self, nodes: Sequence[str], partitions: Sequence[PartitionSpec]) -> None:
        self.id_of, self.node_of = ids_of(nodes), dict(enumerate(nodes, start=1))
        self.place_of = {spec.key: spec.place for spec in partitions}
        self._key_of = {spec.place: spec.key for spec in partitions}

    def nodes(self, brokers: Sequence[int]) -> tuple[str, ...]:
        return tuple(map(self.node_of.__getitem__, brokers))

    def key(self, state: State) -> int | None:
        """The partition's key; None: the run did not make it (an application did, on `cluster up`)."""
        return self._key_of.get((state["topic"], state["partition"]))


def view_from_answers(names: Names, states: Mapping[str, State], *, time_ns: int, running: frozenset[str]
                      ) -> View:
    """The View from one round of answers; states: of those that answered."""
    truth = states.get(CONTROLLER, {"partitions": (), "brokers": ()})
    brokers = {node: state for node, state in states.items() if node != CONTROLLER}
    epochs = {node: state["broker_epoch"] for node, state in brokers.items()}
    return View(
        time_ns=time_ns, running=running,
        replicas={(node, key): _replica(names, node, key, replica)
                  for node, state in brokers.items() for replica in state["replicas"]
                  if (key := names.key(replica)) is not None},
        partitions={key: PartitionView(
            partition=key, leader=names.node_of.get(one["leader"]), epoch=one["epoch"],
            isr=names.nodes(one["isr"]), partition_epoch=one["partition_epoch"])
            for one in truth["partitions"] if (key := names.key(one)) is not None},
        unfenced=frozenset(
            node for broker in truth["brokers"] if not broker["fenced"]
            and (node := names.node_of.get(broker["id"])) is not None
            and epochs.get(node, broker["epoch"]) == broker["epoch"]))


def _replica(names: Names, node: str, key: int, replica: State) -> ReplicaView:
    epochs = replica["epochs"]
    return ReplicaView(
        node=node, partition=key, leader=names.node_of.get(replica["leader"]),
        isr=names.nodes(replica["isr"]),
        epochs=None if epochs is None else tuple((epoch, start) for epoch, start in epochs),
        **{name: replica[name] for name in ("epoch", "log_start", "leo", "hw", "checkpointed_hw", "clean",
                                            "proposing")})


def point_request(names: Names, point: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule's failpoint as the request of `arm` and `release` (docker/README.md)."""
    request = {key: value for key, value in point.items() if key not in ("name", "partition", "peer")}
    if "name" in point:
        request["point"] = point["name"]
    if "partition" in point:
        if point["partition"] not in names.place_of:
            raise FloodmarkError(f"there is no partition {point['partition']}")
        request["topic"], request["partition"] = names.place_of[point["partition"]]
    if "peer" in point:
        request["peer"] = names.id_of[point["peer"]]
    return request


def met_from_answer(names: Names, node: str, row: State) -> FailpointHit:
    """A FailpointHit from one row of the answer to `points`; -1 in a row means unknown."""
    known = {key: row[key] for key in ("epoch", "offset") if row.get(key, -1) >= 0}
    peer = row.get("peer", -1)
    return FailpointHit(
        node=node, name=row["point"], action=row.get("action"), time_ns=row["time"], held=row["held"],
        partition=names.key(row) if row.get("topic") is not None else None,
        peer=CONTROLLER if peer == CONTROLLER_ID else names.node_of.get(peer), **known)


class ControlSockets:
    """The control sockets of all processes: connected at the first request, and again after the connection
    was lost. A process that does not run, or is paused, is not asked."""

    def __init__(self, place: Place | None = None) -> None:
        self._place = place
        self._lines: dict[str, Lines] = {}
        self._dialling: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def place(self) -> Place:
        if self._place is None:
            raise FloodmarkError("the cluster was not started")
        return self._place

    def attach(self, place: Place) -> None:
        self._place = place

    def answers(self, name: str) -> bool:
        return self.place.lives(name) and not self.place.paused(name)

    async def ask(self, name: str, do: str, *, timeout_s: float = ASK_S, **besides: Any) -> State:
        """ControlError if it does not answer, Refused if it answers with an error."""
        if not self.answers(name):
            raise FloodmarkError(f"{name} is paused, or down, and cannot be asked to {do}")
        try:
            async with asyncio.timeout(timeout_s):
                lines = await self._connected(name)
        except TimeoutError:
            raise ControlError(f"{name} did not take a control connection in {timeout_s:g} s") from None
        except OSError as error:
            asked = host_port(self.place.layout.places[name].asked)
            raise ControlError(f"{name} does not listen on its control socket {asked} ({error})") from None
        return await lines.ask(do, timeout_s=timeout_s, **besides)

    async def ask_all(self, do: str, names: Sequence[str], timeout_s: float) -> dict[str, State]:
        """The answers by name, without processes that did not answer."""
        asked = [name for name in names if self.answers(name)]
        answers = await asyncio.gather(
            *(self.ask(name, do, timeout_s=timeout_s) for name in asked), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, FloodmarkError):
                raise answer  # else it ended meanwhile, or is silent
        return {name: answer for name, answer in zip(asked, answers, strict=True)
                if not isinstance(answer, BaseException)}

    async def hang_up(self, *names: str) -> None:
        """Closes the connections to these processes; none: to all."""
        for name in names or list(self._lines):
            if (lines := self._lines.pop(name, None)) is not None:
                await lines.close()

    async def _connected(self, name: str) -> Lines:
        async with self._dialling[name]:
            if name not in self._lines or not self._lines[name].open:
                address = self.place.layout.places[name].asked
                reader, writer = await asyncio.open_connection(*address, limit=ANSWER_BYTES_MAX)
                self._lines[name] = Lines(name, reader, writer)
            return self._lines[name]


class FailpointControl:
    """The failpoints of one cluster's processes. specs: returns its partitions so far."""

    def __init__(self, sockets: ControlSockets, specs: Callable[[], Sequence[PartitionSpec]]) -> None:
        self.sockets = sockets
        self.crashes: list[FailpointHit] = []  # in the order in which the ends became known
        self._specs = specs
        self._pending: dict[str, list[dict[str, Any]]] = {}  # for processes that are down
        self._used: set[str] = set()  # processes that ever had an armed failpoint
        self._to_crash: dict[str, str] = {}  # process -> the failpoint at which it is to end
        self._crashed: set[str] = set()  # processes that ended at one and were not started since
        self._began_ns: dict[str, int] = {}  # when each was last started
        self._feed: Feed | None = None
        self._closed = False
        self._met: dict[str, list[FailpointHit]] = {}

    @property
    def layout(self) -> Layout:
        return self.sockets.place.layout

    async def arm(self, name: str, point: Mapping[str, Any]) -> None:
        """A process that does not run is armed at its next start, before it does anything else."""
        self.layout.of(name)
        self._read_trace()  # from now on the trace is read
        request = point_request(self._names, point)
        self._used.add(name)
        if point["action"] == CRASH:
            self._to_crash[name] = point["name"]
        if not self.sockets.place.lives(name) or await self._ask_or_none(name, "arm", request) is None:
            self._pending.setdefault(name, []).append(request)
            _arm_at_start(self.layout, name, self._pending[name])

    async def release(self, name: str, point: Mapping[str, Any] | None) -> int:
        """Returns how many processes it held. None is no error: a hold can end by itself."""
        self.layout.of(name)
        request = point_request(self._names, point or {})
        if request.get("point") in (None, self._to_crash.get(name)):
            self._to_crash.pop(name, None)
        if not self.sockets.place.lives(name):
            self._drop_pending(name, request)
            return 0
        try:
            ok = await self._ask_or_none(name, "release", request)
        except Refused:
            left = await self._left(name)
            if left and request.get("point", left[0]) in left:
                raise
            return 0
        if ok is None:
            self._drop_pending(name, request)
        return 0 if ok is None else int(ok["released"])

    async def release_all(self, names: Sequence[str]) -> list[str]:
        """Releases and disarms everything; returns a sentence for each process where that failed."""
        for name in list(self._pending):
            self._drop_pending(name, {})
        asked = [name for name in names if name in self._used and self.sockets.answers(name)]
        return [why for why in await asyncio.gather(*map(self._release_all_of, asked)) if why is not None]

    async def met(self, name: str) -> Sequence[FailpointHit]:
        self.layout.of(name)
        if self._read_trace():
            return [one for one in self._met.get(name, ()) if one.action != CRASH or one in self.crashes]
        met: list[FailpointHit] = [one for one in self.crashes if one.node == name]
        if self.sockets.answers(name):
            ok = await self.sockets.ask(name, "points")
            rows = (met_from_answer(self._names, name, row) for row in ok["met"])
            met += (one for one in rows if one.action != CRASH)
        return met

    def started(self, name: str) -> None:
        """Notes that a process has started; its properties still name the failpoints to arm."""
        self._crashed.discard(name)
        self._began_ns[name] = runtime.current.monotonic_ns()
        if not any(request["action"] == CRASH for request in self._pending.get(name, ())):
            self._to_crash.pop(name, None)

    def clear_pending(self, name: str) -> None:
        """It has read its properties, or ended: the pending failpoints are removed from them."""
        if self._pending.pop(name, None):
            _arm_at_start(self.layout, name, [])

    def crashed(self, name: str) -> bool:
        """Whether the process is down because of an armed crash."""
        return name in self._crashed

    def expects_exit(self, name: str, code: int) -> bool:
        """Whether this end is an armed crash; if so, `met` reports it from now on."""
        if name not in self._used:
            return False
        if self._read_trace():
            crash = next((one for one in reversed(self._met.get(name, ())) if one.action == CRASH
                          and one.time_ns >= self._began_ns.get(name, 0)), None)
        else:
            point = self._to_crash.pop(name, None) if code == -signal.SIGKILL else None
            crash = None if point is None else FailpointHit(
                node=name, name=point, action=CRASH, time_ns=runtime.current.monotonic_ns())
        if crash is None or crash in self.crashes:
            return False
        self.crashes.append(crash)
        self._crashed.add(name)
        return True

    def close(self) -> None:
        if self._feed is not None and not self._closed:
            self._read_trace()
            self._feed.close()
        self._closed = True

    @property
    def _names(self) -> Names:
        return Names(self.layout.nodes, self._specs())

    def _read_trace(self) -> bool:
        """Reads the trace's new lines. False: there is no trace."""
        if self._feed is None:
            if (raw := raw_traces(self.layout, self._specs())) is None:
                return False
            self._feed = Feed(raw, 0, events=["failpoint"])
        for line in self._feed.read_new_lines():
            self._met.setdefault(line["node"], []).append(FailpointHit(
                node=line["node"], name=line["name"], action=line["action"], time_ns=line["time"],
                partition=line.get("partition"), epoch=line.get("epoch"), peer=line.get("peer"),
                offset=line.get("offset")))
        return True

    async def _ask_or_none(self, name: str, do: str, request: Mapping[str, Any]) -> State | None:
        """The answer; None: the process ended by an armed crash before it could answer."""
        try:
            return await self.sockets.ask(name, do, **request)
        except Refused:
            raise
        except ControlError:
            deadline = runtime.monotonic_s() + END_KNOWN_S
            while not self.crashed(name):
                if runtime.monotonic_s() > deadline:
                    raise
                await asyncio.sleep(POLL_S)
            return None

    def _drop_pending(self, name: str, request: Mapping[str, Any]) -> None:
        pending = self._pending.get(name, [])
        kept = [one for one in pending if any(one.get(key) != value for key, value in request.items())]
        if len(kept) < len(pending):
            self._pending[name] = kept
            _arm_at_start(self.layout, name, kept)

    async def _release_all_of(self, name: str) -> str | None:
        try:
            await self.sockets.ask(name, "release")
            left = await self._left(name)
        except FloodmarkError as error:
            gone = not self.sockets.answers(name)  # and with it what it held
            return None if gone else f"{name} may still be held at a failpoint: {error}"
        return f"{name} has failpoints left: {', '.join(left)}" if left else None

    async def _left(self, name: str) -> list[str]:
        """The failpoints that are armed, or hold something."""
        ok = await self.sockets.ask(name, "points")
        return [row["point"] for row in (*ok["armed"], *(row for row in ok["met"] if row["held"]))]


def _arm_at_start(layout: Layout, name: str, requests: Sequence[Mapping[str, Any]]) -> None:
    """Sets the failpoints that the process arms first at its next starts. Empty: none."""
    path = layout.properties_of(name)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines()
             if not line.startswith(f"{FAILPOINTS}=")]
    lines += [f"{FAILPOINTS}={json.dumps(requests)}"] if requests else []
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def raw_traces(layout: Layout, partitions: Sequence[PartitionSpec]) -> Raw | None:
    """The trace files of the processes, and the names of their ids; None: no traces are written."""
    files = {name: place.trace for name, place in layout.places.items() if place.trace is not None}
    if not files:
        return None
    return Raw(
        files=files, names={place.node_id: name for name, place in layout.places.items()},
        keys={spec.place: spec.key for spec in partitions})

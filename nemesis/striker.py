"""Carries out a schedule: waits for each entry's moment, resolves who is meant, strikes, records what it did.

Rules
1. Entries go one after the other. One whose moment does not come is missed: it strikes not, the next goes
   on. One that mends (start, resume, heal) is carried out all the same, or the harm would outlast its plan.
2. Every strike that began is recorded, when it took effect or when it failed: a judge must know of every
   fault, above all of one that may have lost data.
3. Nothing is looked at that is not needed: between a moment and its act there is no look at the cluster,
   unless a role has to be resolved or the moment was a time (then the op says where it struck).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import FloodmarkError
from harness.faults import FAULTS, LOSES
from harness.op import Intent, Send
from harness.protocols import Nemesis, PartitionSpec, Recording, Sender, Sight, Struck, View
from harness.schedule import ACTS, Entry, Schedule
from nemesis.compose import Composed
from nemesis.ledger import MENDING, Ledger
from nemesis.moments import POLL_S, Reached, reach
from nemesis.roles import Stage, needs_a_look, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """What a run lends to the striker."""

    sight: Sight
    recording: Recording
    send: Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aimed:
    """An entry whose moment has come and whose roles have names."""

    entry: Entry  # its grudge, if it has one, by names
    nodes: tuple[str, ...]
    reached: Reached | None  # None: the moment was missed
    view: View | None  # the look that resolved it, or that the moment was reached with


class Striker:
    """protocols.Striker over these nemeses."""

    def __init__(self, nemeses: Sequence[Nemesis], partitions: Sequence[PartitionSpec]) -> None:
        self._nemesis = Composed(nemeses)
        self._replicas = {spec.key: spec.replicas for spec in partitions}
        self._ledger = Ledger()

    def in_force(self) -> tuple[str, ...]:
        return self._ledger.told()

    def mended(self) -> None:
        """The cluster was mended from outside: nothing is in force any more."""
        self._ledger = Ledger()

    async def carry_out(self, schedule: Schedule, sight: Sight, recording: Recording,
                        send: Sender) -> tuple[int, ...]:
        self._refuse_what_nobody_answers(schedule)
        self._ledger = Ledger()
        around = _Around(sight=sight, recording=recording, send=send)
        missed = []
        done_ns = sight.now_ns()
        for position, entry in enumerate(schedule):
            try:
                if not await self._carry_out(entry, around, done_ns):
                    missed.append(position)
            except FloodmarkError as error:
                on = f" {' '.join(entry.nodes)}" if entry.nodes else ""
                raise FloodmarkError(f"entry {position} of the schedule ({entry.f}{on}): {error}") from error
            done_ns = sight.now_ns()
        return tuple(missed)

    def _refuse_what_nobody_answers(self, schedule: Schedule) -> None:
        for position, entry in enumerate(schedule):
            if entry.f in FAULTS and entry.f not in self._nemesis.answers:
                able = ", ".join(sorted(self._nemesis.answers)) or "nothing"
                raise FloodmarkError(f"entry {position}: this cluster cannot suffer {entry.f} "
                                     f"(it can {able})")

    async def _carry_out(self, entry: Entry, around: _Around, done_ns: int) -> bool:
        """Whether its moment came, and whoever it means was there."""
        stage = self._stage()
        reached = await reach(entry.moment, around.sight, timeout_s=entry.timeout_s, stage=stage,
                              done_ns=done_ns)
        if entry.f == "wait":
            return reached is not None
        if entry.f in ACTS:
            if reached is not None:
                await around.send(_intent(entry))
            return reached is not None
        if reached is None and entry.f not in MENDING:
            return False
        aimed = await self._aim(entry, reached, around.sight, stage)
        if aimed is None:
            return False
        if aimed.nodes or not entry.nodes:
            await self._strike(aimed, around)
        return reached is not None

    def _stage(self) -> Stage:
        return Stage(replicas=self._replicas, ledger=self._ledger)

    # -- who ------------------------------------------------------------------------------------------------

    async def _aim(self, entry: Entry, reached: Reached | None, sight: Sight, stage: Stage) -> _Aimed | None:
        """Resolves the roles; waits, as long as for a moment, until each is played. None: one never was."""
        partition, grudge = entry.args.get("partition", 0), entry.args.get("grudge", {})
        named = (*entry.nodes, *grudge, *(name for unheard in grudge.values() for name in unheard))
        view = reached.view if reached is not None else None
        if view is None and (needs_a_look(named) or _asked_by_time(entry)):
            view = await sight.view()
        deadline_ns = sight.now_ns() + int(entry.timeout_s * 1e9)
        while True:
            nodes = resolve(entry.nodes, partition, view, stage)
            by_name = _resolved(grudge, partition, view, stage)
            if nodes is not None and by_name is not None:
                args = {**entry.args, "grudge": by_name} if grudge else entry.args
                return _Aimed(entry=replace(entry, args=args), nodes=nodes, reached=reached, view=view)
            if not needs_a_look(named):  # nobody is down, or paused, and only our own acts can change that
                nobody = _Aimed(entry=entry, nodes=(), reached=reached, view=view)
                return nobody if entry.f in MENDING else None
            if sight.now_ns() >= deadline_ns:
                return None
            await asyncio.sleep(POLL_S)
            view = await sight.view()

    # -- the act --------------------------------------------------------------------------------------------

    async def _strike(self, aimed: _Aimed, around: _Around) -> None:
        """The act and its line in the history, which is written even if the act fails half-way."""
        began = around.recording.now_ns()
        where = _where(aimed, around.sight, self._replicas)
        struck = Struck(nodes=aimed.nodes)
        failed: dict[str, Any] = {}
        try:
            struck = await self._nemesis.strike(aimed.entry, aimed.nodes)
        except BaseException as error:
            failed = {"error": str(error) or type(error).__name__}
            raise
        finally:
            f = aimed.entry.f
            on = struck.nodes or aimed.nodes
            named = [aimed.entry.args.get("kind", " ".join(on))] if f == "cut" else on
            self._ledger = self._ledger.after(f, named)
            fault = {"nodes": list(on), **aimed.entry.args, **struck.detail, **_asked(aimed), "began": began,
                     **where, **failed}
            around.recording.strike(f, {**fault, "lost": True} if f in LOSES else fault)


def _intent(entry: Entry) -> Intent:
    return Intent(f=entry.f, partitions=tuple(entry.args.get("partitions", ())), sends=tuple(
        Send(partition=send["partition"], value=send["value"]) for send in entry.args.get("sends", ())))


def _resolved(grudge: Mapping[str, Sequence[str]], partition: int, view: View | None,
              stage: Stage) -> dict[str, list[str]] | None:
    """A grudge with names for roles. None: one of the roles has no player."""
    by_name: dict[str, list[str]] = {}
    for hearer, unheard in grudge.items():
        hearers = resolve([hearer], partition, view, stage)
        snubbed = resolve(unheard, partition, view, stage)
        if hearers is None or snubbed is None:
            return None
        for node in hearers:
            by_name[node] = [*by_name.get(node, []), *(name for name in snubbed if name != node)]
    return by_name


def _asked_by_time(entry: Entry) -> bool:
    return entry.moment is not None and entry.moment["at"] == "time" and entry.f not in MENDING


def _asked(aimed: _Aimed) -> dict[str, Any]:
    """The moment that was asked, the one that was reached, and the roles that were given for names."""
    told: dict[str, Any] = {}
    if aimed.entry.nodes and aimed.entry.nodes != aimed.nodes:
        told["asked"] = list(aimed.entry.nodes)
    if aimed.entry.moment is not None:
        told["moment"] = dict(aimed.entry.moment)
        told["reached"] = aimed.reached.told() if aimed.reached is not None else None
    return told


def _where(aimed: _Aimed, sight: Sight, replicas: Mapping[int, tuple[str, ...]]) -> dict[str, Any]:
    """For a fault asked by time, where it struck: acks so far, leader and ISR of each partition."""
    if aimed.view is None or not _asked_by_time(aimed.entry):
        return {}
    seen = {partition: aimed.view.partitions[partition] for partition in sorted(replicas)
            if partition in aimed.view.partitions}
    return {"where": {
        "acks": {str(partition): sight.acks(partition) for partition in sorted(replicas)},
        "leader": {str(partition): view.leader for partition, view in seen.items()},
        "isr": {str(partition): list(view.isr) for partition, view in seen.items()},
    }}

"""Moments, roles and faults in force at one look at a cluster: states.txt.

`look` changes a healthy cluster of three nodes (partition 1 is led by n2, with n1); `struck` is what a
schedule has done. Every other line is a state, a moment, `role NAME`, `described`, `in force`, `settled`
(what is uneven, and what moved since it was healthy) or `meant STEP` (the nodes of its roles). Below it is
what comes of it: `=`; for a moment that has not come, likely reasons (`>`), each with the step that helps.
`pytest --rewrite` writes those; then read the diff.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from golden_text import as_written, text_of
from looks import NODES, SPEC
from looks import replica as healthy

from floodmark.harness.phases.end_phases import uneven_replicas, what_moved
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Moment, WhenState, read_moment
from floodmark.harness.schedule.views import (
    UNKNOWN,
    ActiveFaults,
    FailpointHit,
    FaultContext,
    PartitionView,
    RunObserver,
    View,
    resolve,
)
from floodmark.nemesis.schedule_runner import describe_partition, guess_reasons, resolve_targets
from floodmark.nemesis.steps import read_step

REPLICAS = {0: NODES, 1: ("n2", "n1")}
HW_BELOW_LEO: dict[str, Any] = {"leo": 6, "hw": 5, "checkpointed_hw": 3}


def value_of(text: str) -> Any:
    return UNKNOWN if text == "unknown" else json.loads(text)


def names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text != "nobody" else ()


class Look:
    """A view of the cluster, and what has struck it."""

    def __init__(self) -> None:
        self.faults, self.replicas, self.held = ActiveFaults(), dict(REPLICAS), list[FailpointHit]()
        self.change("hw=6")
        self.settled = self.view
        self.change("")

    def change(self, words: str) -> None:
        """From the healthy one."""
        given = dict(word.split("=") for word in words.split())
        isr, leader = names(given.pop("isr", ",".join(NODES))), given.pop("leader", "n1")
        leader_now = None if leader == "nobody" else leader
        running, unfenced = (frozenset(names(given.pop(name, ",".join(NODES))))
                             for name in ("running", "unfenced"))
        silent = names(given.pop("silent", "nobody"))
        seen = {(node, 0): healthy(node, epoch=2, leader=leader_now, isr=isr, **HW_BELOW_LEO)
                for node in NODES}
        seen |= {(node, 1): healthy(node, partition=1, epoch=1, leader="n2", isr=("n2", "n1"), **HW_BELOW_LEO)
                 for node in ("n1", "n2")}
        for word, value in given.items():
            name, _, node = reversed(word.partition(".")) if "." in word else (word, "", "")
            for one in (node,) if node else NODES:
                seen[one, 0] = replace(seen[one, 0], **{name: value_of(value)})
        self.view = View(
            time_ns=0, running=running, unfenced=unfenced,
            replicas={key: one for key, one in seen.items() if key[0] not in silent and key[0] in running},
            partitions={
                0: PartitionView(partition=0, leader=leader_now, epoch=2, isr=isr, partition_epoch=3),
                1: PartitionView(partition=1, leader="n2", epoch=1, isr=("n2", "n1"), partition_epoch=0)})

    async def seen(self) -> View:
        return self.view

    def strike(self, words: str) -> None:
        """As one step after another."""
        self.faults = ActiveFaults()
        for step in filter(None, words.split("; ")):
            for entry in read_step(step):
                self.faults = self.faults.after(entry["f"], entry.get("nodes", [entry.get("kind", "links")]),
                                                point=entry.get("point"))

    def told(self, line: str) -> Iterator[str]:
        context = FaultContext(replicas=self.replicas, faults=self.faults)
        name, _, rest = line.partition(" ")
        match name:
            case "look":
                self.change(rest)
            case "struck":
                self.strike(rest)
            case "besides":
                self.replicas = {**REPLICAS, **{int(key): ("n1",) for key in rest.split()}}
            case "held":
                node, point = rest.split()
                self.held = [FailpointHit(node=node, name=point, action="hold", time_ns=1, held=True)]
            case "role":
                roles, _, partition = rest.partition(" of ")
                found = resolve(roles.split(), int(partition or 0), self.view, context)
                yield f"= {'nobody' if found is None else ' '.join(found)}"
            case "settled":
                moved = [what_moved(before, after, [SPEC]) for before, after in (
                    (self.settled, self.view), (self.view, self.settled))]
                yield f"= {'; '.join(uneven_replicas(self.view, [SPEC])) or 'even'}"
                yield f"= {' / '.join(map(str, moved))}"
            case "meant":
                for entry in json_form.read(read_step(rest), nodes=NODES, partitions=(0, 1)):
                    meant = asyncio.run(resolve_targets(
                        entry, None, cast(RunObserver, SimpleNamespace(now_ns=int, view=self.seen)),
                        lambda: context))
                    assert meant is not None
                    args = meant.entry.args
                    given = {key: args[key] for key in ("grudge", "to", "from", "leader") if args.get(key)}
                    yield f"= {' '.join(meant.nodes)} {json.dumps(given)}"
            case "described":
                yield from (f"= {one}" for one in describe_partition(0, self.view, context, acks=1))
            case "in":  # force
                crash = "; a crash may come" if context.faults.may_crash else ""
                yield f"= {', '.join(context.faults.describe()) or 'nothing'}{crash}"
            case _:
                yield from self.moment(line, context)
                self.held = []

    def moment(self, line: str, context: FaultContext) -> Iterator[str]:
        moment = moment_of(line) if not line.startswith("{") else read_moment(json.loads(line))
        if not line.startswith("{") and "partition" not in line:
            assert (moment.text(), moment_of(moment.text())) == (line, moment)
        holds = isinstance(moment, WhenState) and moment.state.holds(self.view, context)
        yield "= yes" if holds else "= no"
        if not holds:
            yield from (f"> {one}" for one in guess_reasons(moment, [0], self.view, context, self.held))


def moment_of(text: str) -> Moment:
    return read_moment(read_step(f"wait {text}")[0]["moment"])


def test_what_a_look_shows(request: pytest.FixtureRequest) -> None:
    look, now = Look(), ""
    for line in text_of("states.txt").splitlines():
        if not line.startswith(("= ", "> ")):
            told = [] if line.startswith("#") else look.told(line)
            now += "".join(f"{one}\n" for one in (line, *told))
    as_written("states.txt", now, request)

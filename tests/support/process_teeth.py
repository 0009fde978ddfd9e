"""Schedules that undo a broker with a known bug, on real processes, and leave a correct one unharmed.

Each waits on what is observed. They want an idle cluster with proxied links: nothing but their own sends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acts import isr, led_by, seen, send, wait

from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.schedule.entry import Entry, Schedule
from floodmark.nemesis.scenario import shipped

PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tooth:
    """A bug, the schedule that brings it out, and a finding that must then be there as a bug."""

    bugs: tuple[str, ...]
    finding: str
    nodes: int
    config: Mapping[str, str]
    schedule: Schedule
    story: str

    @property
    def name(self) -> str:
        return "+".join(self.bugs)


def strike(f: str, *nodes: str, **args: Any) -> Entry:
    return Entry(f=f, nodes=nodes, args=args)


def pause_s(seconds: float) -> Entry:
    return Entry(f="wait", moment={"at": "after", "after_ns": int(seconds * 1e9)})


HEALTHY = Entry(f="wait", moment={"at": "state", "healthy": True})


def ack_before_isr() -> Schedule:
    """The followers do not hear the leader, which acks all the same and dies."""
    return (
        *map(send, range(3)),
        wait(seen("every", "leo", "==", 3), seen("every", "hw", "==", 3), led_by("n1")),
        strike("cut", grudge={"n2": ["n1"], "n3": ["n1"]}),
        send(3),
        strike("kill", "n1"),
        strike("expire", "n1"),
        wait(led_by("n2"), seen("n2", "leader", "==", "n2")),
        strike("heal"),
        strike("start", "n1"),
        HEALTHY,
        send(4),
    )


def reuse_of_an_offset() -> Schedule:
    """The leader loses power and is back before its session ends: if it leads on in the same epoch, offsets
    that its followers hold are given again, and no epoch tells the two records apart."""
    return (
        *map(send, range(4)),
        wait(seen("every", "leo", "==", 4), seen("every", "hw", "==", 4), led_by("n1")),
        strike("cut", grudge={"n1": ["n2", "n3"]}),  # it is not asked for anything before it has written
        strike("power_cut", "n1", keep={"0": 2}),
        strike("start", "n1"),
        # Whoever leads: n1 itself, or another where the bounce is noticed.
        wait(seen("n1", "leader", "==", {"field": "leader"})),
        send(10),
        send(11),
        strike("heal"),
        HEALTHY,
        send(12),
    )


def fetches_of_an_older_epoch() -> Schedule:
    """A fetch of n3 is held on the wire while n3 truncates what it had fetched; the next leader credits n3
    with it, shows the record to a reader as committed, and dies."""
    return (
        *map(send, range(4)),
        wait(seen("every", "leo", "==", 4), seen("every", "hw", "==", 4), led_by("n1")),
        strike("expire", "n1"),
        wait(led_by("n2"), isr("n1", "n2", "n3"), seen("every", "leader", "==", "n2")),
        strike("cut", grudge={"n1": ["n2"]}),  # n1 does not get the next record
        send(4),  # in n2 and n3; nobody knows whether it is committed
        wait(seen("n2", "leo", "==", 5), seen("n3", "leo", "==", 5), seen("n1", "leo", "==", 4)),
        strike("cut", grudge={"n2": ["n3"]}),
        pause_s(
            3.0
        ),  # several replica.fetch.wait.max.ms: n3's next fetch from 5 is on the wire, and held there
        strike("elect", partitions=[0]),
        wait(
            led_by("n1"),
            seen("n3", "leader", "==", "n1"),
            seen("n3", "leo", "==", 4),
            seen("n2", "leader", "==", "n1"),
            seen("n2", "leo", "==", 5),
        ),
        strike("pause", "n3"),
        strike("kill", "n1"),
        strike("expire", "n1"),
        wait(led_by("n2"), seen("n2", "leader", "==", "n2")),
        strike("heal"),  # the old fetch arrives
        pause_s(1.0),
        Entry(f="poll", args={"partitions": [0]}),
        strike("kill", "n2"),
        strike("expire", "n2"),
        wait(led_by("n3")),
        strike("resume", "n3"),
        wait(seen("n3", "leader", "==", "n3")),
        strike("start", "n2"),
        strike("start", "n1"),
        HEALTHY,
        send(5),
    )


SCENARIOS = {scenario.name: scenario for scenario in shipped(scenario_words())}
LOST, PARTED = SCENARIOS["double-failover"], SCENARIOS["power-divergence"]
SHORT_FETCHES = {"replica.fetch.wait.max.ms": "500"}

TEETH = (
    Tooth(
        bugs=("ack_on_append",),
        finding="lost-write",
        nodes=3,
        config=PATIENT,
        schedule=ack_before_isr(),
        story="acks=all is answered before the ISR has the record",
    ),
    Tooth(
        bugs=("trunc_hw",),
        finding="lost-write",
        nodes=3,
        config=LOST.config,
        schedule=LOST.schedule,
        story="a follower cuts its log at its own high watermark",
    ),
    Tooth(
        bugs=("fetch_no_epoch_fence", "hw_any_epoch"),
        finding="saw-then-lost",
        nodes=3,
        config={**PATIENT, **SHORT_FETCHES},
        schedule=fetches_of_an_older_epoch(),
        story="fetches of any leader epoch are served and credited",
    ),
    Tooth(
        bugs=("no_epoch_bump_on_bounce",),
        finding="epoch-lineage",
        nodes=3,
        config=PATIENT,
        schedule=reuse_of_an_offset(),
        story="a new incarnation leads on in the epoch of the old one",
    ),
    Tooth(
        bugs=("forget_epoch",),
        finding="diverged",
        nodes=2,
        config=PARTED.config,
        schedule=PARTED.schedule,
        story="the leader-epoch-checkpoint is not read at a restart",
    ),
)

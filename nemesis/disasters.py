"""Kafka's two historical disasters as schedules: the same acts undo the old rules and spare the new.

Both wait on what is observed and never for a time. They want an idle cluster: nothing but their own sends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.protocols import PartitionSpec
from harness.schedule import Entry, Schedule

# Sessions and lag so long that nobody is fenced or leaves an ISR but by the schedule's own acts.
_PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaster:
    """One of the two: what it takes (nodes n1..nk, config by Kafka's keys) and what it does."""

    name: str
    title: str
    story: str
    nodes: int
    partitions: tuple[PartitionSpec, ...]
    config: Mapping[str, str]
    schedule: Schedule


def _lost_write() -> Disaster:
    """KAFKA-1211: three replicas, min.insync.replicas=2, every election clean."""
    last = 3  # the value, and the offset, of the write that vanishes
    schedule = (
        *(send(value) for value in range(last)),
        # Everybody's HW is at the end. The next HW comes to a follower only with the answer to a later fetch.
        wait(seen("every", "leo", "==", last), seen("every", "hw", "==", last), led_by("n1")),
        send(last),
        Entry(f="kill", nodes=("n1",), moment={"at": "ack", "partition": 0, "count": last + 1}),
        Entry(f="pause", nodes=("n2",)),
        # n3 holds the record and does not know it committed. If it does, n1 lived too long: run it again.
        wait(seen("n3", "leo", "==", last + 1), seen("n3", "hw", "==", last), timeout_s=2.0),
        Entry(f="expire", nodes=("n1",)),
        # n2 leads, and cannot answer. Under the old rules n3 now cuts its log to its HW.
        wait(led_by("n2"), seen("n3", "epoch", ">=", {"field": "epoch"})),
        Entry(f="expire", nodes=("n2",)),
        wait(led_by("n3"), seen("n3", "leader", "==", "n3")),
        Entry(f="resume", nodes=("n2",)),
        Entry(f="start", nodes=("n1",)),
        Entry(f="wait", moment={"at": "state", "healthy": True}),
        send(last + 1),
    )
    return Disaster(
        name="lost-write", title="an acknowledged write vanishes", nodes=3,
        story="KAFKA-1211: three replicas, min.insync.replicas=2, acks=all, clean elections only. The leader "
              "dies before any follower hears that the record is committed, and the next just after.",
        partitions=(PartitionSpec(key=0, topic="log", partition=0, replicas=("n1", "n2", "n3")),),
        # A parked fetch carries the HW when it times out: long enough that the kill always comes before.
        config={**_PATIENT, "min.insync.replicas": "2", "replica.fetch.wait.max.ms": "2000"},
        schedule=schedule,
    )


def _diverged() -> Disaster:
    """KIP-101's second scenario: two replicas, one of which loses what it had not fsynced."""
    first, kept, second = 10, 5, 20
    schedule = (
        *(send(value) for value in range(first)),
        # n2 would restart with a HW that covers all ten: the wait that matters.
        wait(seen("every", "leo", "==", first), seen("n2", "checkpointed_hw", "==", first), led_by("n1")),
        Entry(f="kill", nodes=("n2",)),
        Entry(f="expire", nodes=("n2",)),
        wait(isr("n1")),
        Entry(f="power_cut", nodes=("n1",), args={"keep": {"0": kept}}),
        Entry(f="start", nodes=("n1",)),
        wait(led_by("n1"), seen("n1", "leader", "==", "n1"), seen("n1", "leo", "==", kept)),
        *(send(value) for value in range(first, second)),
        wait(seen("n1", "leo", ">=", first)),
        Entry(f="start", nodes=("n2",)),
        Entry(f="wait", moment={"at": "state", "healthy": True}),
    )
    return Disaster(
        name="diverged", title="two replicas differ for ever", nodes=2,
        story="KIP-101, scenario 2: two replicas, min.insync.replicas=1. The follower dies; the leader loses "
              "power, and with it half of its log, and writes other records there; the follower comes back.",
        partitions=(PartitionSpec(key=0, topic="log", partition=0, replicas=("n1", "n2")),),
        config={**_PATIENT, "min.insync.replicas": "1",
                "replica.high.watermark.checkpoint.interval.ms": "200"},
        schedule=schedule,
    )


# -- words: schedules of other stories use them too --------------------------------------------------------

def send(value: int) -> Entry:
    return Entry(f="send", args={"sends": [{"partition": 0, "value": value}]})


def wait(*states: Mapping[str, Any], timeout_s: float = 30.0) -> Entry:
    return Entry(f="wait", timeout_s=timeout_s,
                 moment={"at": "state", "all": [dict(state) for state in states]})


def seen(replica: str, field: str, how: str, value: Any) -> dict[str, Any]:
    return {"partition": 0, "replica": replica, "field": field, "is": how, "value": value}


def led_by(node: str) -> dict[str, Any]:
    return {"partition": 0, "field": "leader", "is": "==", "value": node}


def isr(*nodes: str) -> dict[str, Any]:
    return {"partition": 0, "field": "isr", "is": "==", "value": list(nodes)}


DISASTERS: Sequence[Disaster] = (_lost_write(), _diverged())

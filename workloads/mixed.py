"""The log workload with idempotent processes among its own: both send to the same partitions at once.

The client of record knows what certainly failed; an idempotent producer retries, with several batches in
flight. Each can reveal bugs that the other cannot. The guarantees are the idempotent workload's, no
duplicates, which the client of record keeps by not retrying at all.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from random import Random
from typing import Any

from floodmark.harness.op import Intent
from floodmark.harness.protocols import Session, Workload, WorkloadSettings
from floodmark.workloads.idempotent import IdempotentWorkload
from floodmark.workloads.log import NAME, LogWorkload


class MixedWorkload:
    """Implements protocols.Workload. Probes and final reads are the client of record's."""

    name = NAME

    def __init__(self, settings: WorkloadSettings) -> None:
        values = count(settings.first_value)
        self._settings = settings
        self._log = LogWorkload(settings, values)
        self._idempotent = IdempotentWorkload(settings, values)

    @property
    def guarantees(self) -> Mapping[str, Any]:
        return self._idempotent.guarantees

    def intents(self, process: int, random: Random) -> Iterator[Intent]:
        return self._of(process).intents(process, random)

    def probe(self, partition: int) -> Intent:
        return self._log.probe(partition)

    def session(self, process: int) -> Session:
        return self._of(process).session(process)

    def final_session(self, process: int) -> Session:
        return self._log.final_session(process)

    def _of(self, process: int) -> Workload:
        place = process % self._settings.concurrency
        return self._log if place % self._settings.load.idempotent_every else self._idempotent


def make(settings: WorkloadSettings) -> Workload:
    return MixedWorkload(settings)

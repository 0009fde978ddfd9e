"""Finds the records that their own producer repeated under another producer id or epoch.

A broker recognizes a repeated batch by its producer's id, epoch and sequence, so these repeats are not its
fault. librdkafka makes them: when a broker refuses a batch as out of order, it takes a new epoch and sends
again what is in flight, also what was appended before (confluentinc/librdkafka issue 4953). That needs two
batches in flight. A repeat with the same id and epoch is the broker's fault, and is not among these.
"""

from dataclasses import dataclass, field

from floodmark.harness.logdir.record_batches import NO_PRODUCER

Producer = tuple[int, int]  # the producer's id and epoch


@dataclass(slots=True)
class Resends:
    """The values in one replica's log whose producer repeated them so."""

    values: set[int] = field(default_factory=set)
    _producers: dict[int, Producer] = field(default_factory=dict)  # value -> of its first copy

    def note(self, value: int | None, producer: Producer) -> None:
        """A record of the log, in the order of offsets."""
        if value is None or producer[0] == NO_PRODUCER:
            return
        if self._producers.setdefault(value, producer) != producer:
            self.values.add(value)

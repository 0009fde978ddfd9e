"""Remembers the leader of each partition, as one process has read it in metadata. Pure.

Rule: a process never uses a lower leader epoch of a partition than it has seen (KIP-320), so that neither a
zombie leader nor a broker with old metadata can take it back in time.
"""

from collections.abc import Mapping

from floodmark.harness.client.codec import ClusterMetadata

_NO_REPLICA = 9  # REPLICA_NOT_AVAILABLE: some replica is away, the leader stands


class Leaders:
    """keys: the history's partition -> (topic, partition)."""

    def __init__(self, keys: Mapping[int, tuple[str, int]]) -> None:
        self._keys = keys
        self._epochs: dict[int, int] = {}
        self._leaders: dict[int, int] = {}

    def epoch(self, key: int) -> int:
        """The highest epoch seen; -1 if none."""
        return self._epochs.get(key, -1)

    def leader(self, key: int) -> int | None:
        """The leader; None where there is none or it is in doubt."""
        return self._leaders.get(key)

    def doubt(self, key: int) -> None:
        """The leader did not behave as one: ask for metadata before the next request."""
        self._leaders.pop(key, None)

    def learn(self, metadata: ClusterMetadata) -> None:
        """Take a Metadata response, for the partitions where it is not older than what is known."""
        for key, place in self._keys.items():
            led = metadata.partitions.get(place)
            if led is None or led.epoch < self.epoch(key):
                continue
            self._epochs[key] = led.epoch
            if led.error in (0, _NO_REPLICA) and led.leader >= 0:
                self._leaders[key] = led.leader
            else:
                self._leaders.pop(key, None)

"""Remembers the leader of each partition, as one process has learned it from metadata. Pure.

Rule: a process never uses a lower leader epoch of a partition than it has seen (KIP-320), so an old leader or
a broker with old metadata cannot mislead it.
"""

from collections.abc import Mapping

from floodmark.harness.client.codec import ClusterMetadata

_NO_REPLICA = 9  # REPLICA_NOT_AVAILABLE: a replica is missing, but the leader is valid


class Leaders:
    """The leaders that one process knows. keys: the history's partition -> (topic, partition)."""

    def __init__(self, keys: Mapping[int, tuple[str, int]]) -> None:
        self._keys = keys
        self._epochs: dict[int, int] = {}
        self._leaders: dict[int, int] = {}

    def epoch(self, key: int) -> int:
        """The highest epoch seen; -1 if none."""
        return self._epochs.get(key, -1)

    def leader(self, key: int) -> int | None:
        """The leader; None: there is none, or it is in doubt."""
        return self._leaders.get(key)

    def doubt(self, key: int) -> None:
        """Forget the leader, because it did not act as one; metadata is requested before the next request."""
        self._leaders.pop(key, None)

    def learn(self, metadata: ClusterMetadata) -> None:
        """Use a Metadata response, for partitions in which it is not older than what is known."""
        for key, place in self._keys.items():
            led = metadata.partitions.get(place)
            if led is None or led.epoch < self.epoch(key):
                continue
            self._epochs[key] = led.epoch
            if led.error in (0, _NO_REPLICA) and led.leader >= 0:
                self._leaders[key] = led.leader
            else:
                self._leaders.pop(key, None)

"""Named points between two steps of the protocol, and what is armed at them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something stands; None and -1: the point has no such thing."""

    name: str
    topic: str | None = None
    partition: int = -1
    epoch: int = -1  # leader epoch
    peer: int = -1  # the node it comes from or goes to
    offset: int = -1


class Failpoints:
    """What is armed in this process. `armed` is false while nothing is: then nobody asks further."""

    def __init__(self) -> None:
        self.armed = False

    def stops(self, place: Place) -> bool:
        """Whether whatever reached this place is held there; an armed crash does not return."""
        return False

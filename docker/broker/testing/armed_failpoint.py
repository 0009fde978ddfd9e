"""Says what an armed failpoint does with a site, and what a release covers; pure."""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from floodmark.broker.testing.failpoint_requests import Arm, CarriedEpochs, FailpointSite, Release


class Fate(enum.Enum):
    """What the caller must do with the step or message that met a point."""

    GO = "go"
    HELD = "held"  # wait: `resume` will be called
    DROPPED = "dropped"
    DOUBLED = "doubled"  # go now; `resume` will be called for the duplicate


@dataclass(slots=True, kw_only=True, eq=False)
class ArmedFailpoint:
    """One arm, and how often it has matched and acted."""

    arm: Arm
    id: int = 0
    matched: int = 0
    acted: int = 0
    blocked: set[int] = field(default_factory=set)  # peers whose messages C.elected holds

    @property
    def done(self) -> bool:
        return 0 < self.arm.times <= self.acted

    @property
    def spent(self) -> bool:
        return self.done and not self.blocked

    def match(self, sites: Sequence[FailpointSite]) -> FailpointSite | None:
        """Return the site, of the given sites of one step or message, at which it acts now; None: at none."""
        arm = self.arm
        site = next((each for each in sites if arm.matches(each)), None)
        if sites[0].peer in self.blocked:
            self.matched += 1
            return site or sites[0]
        if site is None or self.done:
            return None
        self.matched += 1
        if self.matched <= arm.skip:
            return None
        self.acted += 1
        if arm.point == "C.elected" and arm.action == "hold" and arm.scope == "partition":
            self.blocked.add(site.peer)
        return site

    def unblock(self, peer: int | None) -> None:
        if peer is None:
            self.blocked.clear()
        else:
            self.blocked.discard(peer)

    def is_named_by(self, release: Release) -> bool:
        """Whether the release covers it. If it blocks some peers, a release of another peer does not."""
        arm = self.arm
        if self.blocked and release.peer is not None and release.peer not in self.blocked:
            return False
        return release.covers(arm.point, arm.topic, arm.partition, arm.peer)

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, **self.arm.as_json(), "matched": self.matched, "acted": self.acted}


@dataclass(slots=True, kw_only=True, eq=False)
class HeldAt:
    """A step or a message that is held."""

    site: FailpointSite
    carried: CarriedEpochs | None  # None: its site says all
    resume: Callable[[], None]

    def is_named_by(self, release: Release) -> bool:
        site = self.site
        if self.carried is not None:
            return release.covers(site.name, None, None, site.peer) and self.carried.is_touched_by(release)
        return covers_site(release, site)


Held = TypeVar("Held", bound=HeldAt)


def select_released(all_held: Iterable[Held], release: Release) -> list[Held]:
    """Select what is released, in the order of arrival; a later message to a peer never overtakes one that
    stays held."""
    released: list[Held] = []
    stays: set[int] = set()
    for held in all_held:
        if not held.is_named_by(release):
            continue
        if held.carried is not None and not held.carried.stays_within(release):
            stays.add(held.site.peer)
        elif held.carried is None or held.site.peer not in stays:
            released.append(held)
    return released


def blocked_first(armed: Iterable[ArmedFailpoint]) -> list[ArmedFailpoint]:
    """In the order in which they are asked: nothing else decides about a peer that is blocked."""
    return sorted(armed, key=lambda each: not each.blocked)


def covers_site(release: Release, site: FailpointSite) -> bool:
    partition = None if site.topic is None else site.partition
    return release.covers(site.name, site.topic, partition, site.peer)

"""Defines the failpoints, and parses the requests to arm and release them; pure.

Rules
1. An unknown word, or one that does not fit its point, is refused with the words that would fit.
2. A condition that is left out matches anything; one about a field that the site lacks matches nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BROKER, CONTROLLER = "broker", "controller"  # the roles a process may have
_STEP_ACTIONS = ("report", "crash", "hold", "delay")
_REQUEST_ACTIONS = (*_STEP_ACTIONS, "drop")
_MESSAGE_ACTIONS = (*_REQUEST_ACTIONS, "duplicate")


class FailpointError(ValueError):
    """The request cannot be served; the text says which could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailpointSite:
    """Where a step or a message has reached a failpoint; None and -1: the point has no such field."""

    name: str
    topic: str | None = None
    partition: int = -1
    epoch: int = -1  # leader epoch
    peer: int = -1  # the node that the message comes from or goes to
    offset: int = -1
    last: int = -1  # the last of several offsets; -1: there is only one


@dataclass(frozen=True, slots=True, kw_only=True)
class FailpointKind:
    """One failpoint: the role that has it, and the actions that can be armed there."""

    role: str
    actions: tuple[str, ...] = _STEP_ACTIONS


POINTS: Mapping[str, FailpointKind] = {
    "F.appended": FailpointKind(role=BROKER),
    "F.before_refetch": FailpointKind(role=BROKER, actions=_REQUEST_ACTIONS),
    "F.truncated": FailpointKind(role=BROKER),
    "F.epoch_req": FailpointKind(role=BROKER, actions=_REQUEST_ACTIONS),
    "F.fetch_resp": FailpointKind(role=BROKER, actions=_MESSAGE_ACTIONS),
    "F.followed": FailpointKind(role=BROKER),
    "L.elected": FailpointKind(role=BROKER),
    "L.hw": FailpointKind(role=BROKER),
    "L.acked": FailpointKind(role=BROKER),
    "L.alter_sent": FailpointKind(role=BROKER, actions=_MESSAGE_ACTIONS),
    "L.alter_answer": FailpointKind(role=BROKER, actions=_MESSAGE_ACTIONS),
    "P.parked": FailpointKind(role=BROKER),
    "D.ckpt": FailpointKind(role=BROKER),
    "D.ckpt_done": FailpointKind(role=BROKER, actions=("report", "crash")),
    "D.fsync": FailpointKind(role=BROKER),
    "B.registered": FailpointKind(role=BROKER),
    "C.elected": FailpointKind(role=CONTROLLER, actions=_MESSAGE_ACTIONS),
    "C.alter_applied": FailpointKind(role=CONTROLLER, actions=_REQUEST_ACTIONS),
}
SCOPES = ("partition", "broker")
_NUMBERS = ("partition", "epoch", "peer", "offset")  # conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A request to arm: the action, the sites, and how often."""

    point: str
    action: str
    topic: str | None = None
    partition: int | None = None
    epoch: int | None = None
    peer: int | None = None
    offset: int | None = None
    times: int = 1  # how often it acts; 0: always
    skip: int = 0  # how many matching sites it lets pass first
    for_ms: int | None = None  # of a delay
    scope: str = "partition"

    def matches(self, site: FailpointSite) -> bool:
        """Whether the site fulfils the conditions (the counts aside)."""
        last = max(site.offset, site.last)
        return (
            self.point == site.name
            and self.topic in (None, site.topic)
            and self.partition in (None, site.partition)
            and self.epoch in (None, site.epoch)
            and self.peer in (None, site.peer)
            and (self.offset is None or site.offset <= self.offset <= last)
        )

    def as_json(self) -> dict[str, Any]:
        """The request as it was: fields that were left out are left out."""
        every = {name: getattr(self, name) for name in _ARM_KEYS}
        return {key: value for key, value in every.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A request to release."""

    point: str | None = None
    topic: str | None = None
    partition: int | None = None
    peer: int | None = None
    through_epoch: int | None = None  # at C.elected: only messages without a later leader epoch
    keep: bool = False  # the point stays armed

    @property
    def names_target(self) -> bool:
        """Whether it names a target; else it releases everything that is held, which may be nothing."""
        return (self.point, self.topic, self.partition, self.peer) != (None,) * 4

    def covers(self, point: str, topic: str | None, partition: int | None, peer: int | None) -> bool:
        """Whether it covers a held or armed thing with these attributes; None: it has no such attribute."""
        pairs = ((self.point, point), (self.topic, topic), (self.partition, partition), (self.peer, peer))
        return all(wanted is None or had is None or wanted == had for wanted, had in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedEpochs:
    """The leader epochs that a message carries, for a release by epoch."""

    epochs: Mapping[tuple[str, int], int] = field(default_factory=dict)  # by topic and partition

    def stays_within(self, release: Release) -> bool:
        """Whether no epoch that the release covers is beyond its `through_epoch`."""
        if release.through_epoch is None:
            return True
        return all(epoch <= release.through_epoch for epoch in self._epochs_covered(release))

    def is_touched_by(self, release: Release) -> bool:
        """Whether it carries a partition that the release covers."""
        return (release.topic is None and release.partition is None) or bool(self._epochs_covered(release))

    def _epochs_covered(self, release: Release) -> list[int]:
        return [
            epoch
            for (topic, partition), epoch in self.epochs.items()
            if release.topic in (None, topic) and release.partition in (None, partition)
        ]


_ARM_KEYS = ("point", "action", "topic", "partition", "epoch", "peer", "offset", "times", "skip", "for_ms",
             "scope")  # fmt: skip
_RELEASE_KEYS = ("point", "topic", "partition", "peer", "through_epoch", "keep")
_ENVELOPE = ("id", "do")  # of a request on the control socket


def points_of_role(role: str) -> tuple[str, ...]:
    return tuple(name for name, point in POINTS.items() if point.role == role)


def parse_arm(request: Mapping[str, Any], role: str) -> Arm:
    """Parse a request to arm. Raises FailpointError."""
    given = _check_fields(request, _ARM_KEYS, "arm")
    point = _read_word(given, "point", points_of_role(role), f"a {role} has")
    if point is None:
        raise FailpointError(f"arm wants a point; a {role} has: {', '.join(points_of_role(role))}")
    action = _read_word(given, "action", POINTS[point].actions, f"at {point} there are")
    if action is None:
        raise FailpointError(f"arm wants an action; at {point} there are: {', '.join(POINTS[point].actions)}")
    scope = _read_word(given, "scope", SCOPES, "there are") or SCOPES[0]
    if scope == "broker" and action not in ("hold", "delay"):
        raise FailpointError(f"scope broker is for hold and delay, not for {action}")
    for_ms = _read_number(given, "for_ms", 1)
    if (for_ms is not None) != (action == "delay"):
        raise FailpointError("delay wants for_ms, and nothing else does")
    return Arm(
        point=point,
        action=action,
        topic=_read_text(given, "topic"),
        **{key: _read_number(given, key) for key in _NUMBERS},
        times=_or_default(_read_number(given, "times"), 1),
        skip=_or_default(_read_number(given, "skip"), 0),
        for_ms=for_ms,
        scope=scope,
    )


def parse_release(request: Mapping[str, Any], role: str) -> Release:
    """Parse a request to release. Raises FailpointError."""
    given = _check_fields(request, _RELEASE_KEYS, "release")
    point = _read_word(given, "point", points_of_role(role), f"a {role} has")
    through_epoch = _read_number(given, "through_epoch")
    if through_epoch is not None and point != "C.elected":
        raise FailpointError("through_epoch is for the point C.elected alone")
    keep = given.get("keep", False)
    if type(keep) is not bool:
        raise FailpointError(f"keep is true or false, not {keep!r}")
    return Release(
        point=point,
        topic=_read_text(given, "topic"),
        partition=_read_number(given, "partition"),
        peer=_read_number(given, "peer"),
        through_epoch=through_epoch,
        keep=keep or through_epoch is not None,
    )


def parse_failpoint_setting(text: str) -> tuple[Mapping[str, Any], ...]:
    """Parse the value of floodmark.failpoints. Raises ValueError; the requests themselves are parsed when the
    role is known."""
    try:
        requests = json.loads(text or "[]")
    except ValueError as error:
        raise FailpointError(f"not JSON: {error}") from None
    if not isinstance(requests, list) or not all(isinstance(each, dict) for each in requests):
        raise FailpointError("an array of objects is wanted")
    return tuple(requests)


def parse_arms(requests: Iterable[Mapping[str, Any]], role: str) -> tuple[Arm, ...]:
    """Parse several requests to arm. Raises FailpointError with the position of the bad one."""
    arms = []
    for position, request in enumerate(requests):
        try:
            arms.append(parse_arm(request, role))
        except FailpointError as error:
            raise FailpointError(f"[{position}]: {error}") from None
    return tuple(arms)


def _check_fields(request: Mapping[str, Any], known: Sequence[str], verb: str) -> dict[str, Any]:
    """The request's fields without nulls, which count as left out."""
    given = {key: value for key, value in request.items() if key not in _ENVELOPE and value is not None}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise FailpointError(f"{verb} knows no {', '.join(unknown)}; there are: {', '.join(known)}")
    return given


def _read_word(given: Mapping[str, Any], key: str, words: Sequence[str], there_are: str) -> str | None:
    word = given.get(key)
    if word is not None and word not in words:
        raise FailpointError(f"no {key} {word!r}; {there_are}: {', '.join(words)}")
    return word


def _read_text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise FailpointError(f"{key} is a name, not {value!r}")
    return value


def _read_number(given: Mapping[str, Any], key: str, least: int = 0) -> int | None:
    value = given.get(key)
    if value is not None and (type(value) is not int or value < least):
        raise FailpointError(f"{key} is a whole number from {least} up, not {value!r}")
    return value


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value

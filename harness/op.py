"""Defines an op, which is one line of history.jsonl (format 1), and the intent that it comes from.

A process is a single-threaded logical client, numbered from 0. It has at most one open op, and sends no
further request after an info: as in Jepsen, it is then retired. The nemesis is process -1; its ops are single
lines of type info.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NEMESIS = -1


class Type(StrEnum):
    """A line's type: invoke, then ok (it happened), fail (it certainly did not) or info (unknown)."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One micro-send: a value sent to a partition. offset and epoch are None until known."""

    partition: int
    value: int
    offset: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One record that a poll returned; records that this run did not send are left out."""

    partition: int
    offset: int
    value: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class LogOffset:
    """One offset of a partition as list_offsets answered it, with the leader epoch if the answer has one."""

    partition: int
    offset: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A place of a log that could not be read, whatever was tried."""

    partition: int
    offset: int
    why: object = None  # checksum, magic or length


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A request that a workload wants made; it has no process and no time yet."""

    f: str  # send, poll, assign, list_offsets, ...
    sends: tuple[Send, ...] = ()
    partitions: tuple[int, ...] = ()  # for assign and list_offsets
    node: str | None = None  # send to this node even if it does not lead, like a client with old metadata
    acks: str | None = None  # for a send: all, 1 or 0; None: the workload's
    offset: int | None = None  # for a poll: where to read from; None: from the process's position
    client: int | None = None  # for a schedule: the process that served this number before; None: a new one
    patience_s: float | None = None  # for a send: how long leader and client wait; None: the client's default


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an intent: a completion that has no index and no time yet."""

    type: Type
    sends: tuple[Send, ...] = ()
    reads: tuple[Read, ...] = ()
    corrupt: tuple[Unreadable, ...] = ()
    partitions: tuple[int, ...] = ()
    offsets: tuple[LogOffset, ...] = ()  # of list_offsets: the ends
    starts: tuple[LogOffset, ...] = ()  # of list_offsets: the beginnings
    error: str | None = None  # Kafka's name for the error, or CONNECTION or TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One line of the history. Fields that do not apply are None and are not written."""

    index: int
    time: int  # ns since the run began, by the harness's monotonic clock
    process: int
    type: Type
    f: str
    sends: tuple[Send, ...] | None = None
    reads: tuple[Read, ...] | None = None
    corrupt: tuple[Unreadable, ...] | None = None
    partitions: tuple[int, ...] | None = None
    offsets: tuple[LogOffset, ...] | None = None
    starts: tuple[LogOffset, ...] | None = None
    error: str | None = None
    fault: Mapping[str, Any] | None = None

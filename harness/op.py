"""What an op is: one line of history.jsonl (format 1), and the intent it grows from.

A process is a single-threaded logical client, >= 0; it has at most one op open and asks nothing more after an
info. The nemesis is process -1 and its ops are single lines of type info.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NEMESIS = -1


class Type(StrEnum):
    """invoke; then ok (it happened), fail (it certainly did not) or info (nobody knows)."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One micro-send. offset and epoch are None until known."""

    partition: int
    value: int
    offset: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One record that a poll returned; records that are not ours are left out."""

    partition: int
    offset: int
    value: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An op that has no process and no time yet: what a workload wants asked."""

    f: str  # send, poll, assign, list_offsets, ...
    sends: tuple[Send, ...] = ()
    partitions: tuple[int, ...] = ()  # of assign; of list_offsets: those asked
    node: str | None = None  # ask this node, whoever leads: a client with stale metadata
    acks: str | None = None  # of a send: all, 1 or 0; None: as the workload has it
    offset: int | None = None  # of a poll: from here on; None: from where the process stands
    client: int | None = None  # of a schedule: the process that asked for this number before; None: a new one
    patience_s: float | None = None  # of a send: how long leader and client wait; None: as the client does


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an intent: the completion, before it has an index and a time."""

    type: Type
    sends: tuple[Send, ...] = ()
    reads: tuple[Read, ...] = ()
    partitions: tuple[int, ...] = ()
    offsets: tuple[tuple[int, int], ...] = ()  # (partition, end offset) of list_offsets
    error: str | None = None  # Kafka's error name, or CONNECTION, TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One line of the history. Fields that do not apply are empty and are not written."""

    index: int
    time: int  # ns since the run began, the harness's monotonic clock
    process: int
    type: Type
    f: str
    sends: tuple[Send, ...] | None = None
    reads: tuple[Read, ...] | None = None
    partitions: tuple[int, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None
    error: str | None = None
    fault: Mapping[str, Any] | None = field(default=None)

"""What is to strike, as data: run.json's `schedule`, a scenario's steps and a random nemesis's plan are all this.

An entry waits for its moment, then acts. Entries go one after the other, in order. A moment that does not come
within its time-out is `missed`: told, never skipped in silence.

    {"f": "kill", "nodes": ["leader"], "partition": 0, "moment": {"at": "ack", "partition": 0, "count": 1}}
    {"f": "send", "sends": [{"partition": 0, "value": 17}]}
    {"f": "wait", "moment": {"at": "state", "partition": 0, "replica": "n3", "field": "epoch", "is": ">=", "value": 1}}

Moments (`at`):
  time   {"time": ns}                          since the run began
  ack    {"partition": p, "count": k}          the k-th acked micro-send of the partition in this run
  state  {"partition": p, "replica": who, "field": leo|hw|epoch|checkpointed_hw|leader|isr|running, "is": OP, "value": v}
         {"partition": p, "field": leader|epoch|isr, ...}       no replica: the controller's word
         {"all": [state, ...]}                 all of them at one look
         `value` may name another observation: {"replica": who, "field": ...}
         {"healthy": true}                     every broker up and unfenced, every ISR full, nothing in force
  after  {"after_ns": d}                       d after the entry before it was done
OP is one of == != < <= > >=, or for isr: == (as a set), contains, lacks.
Roles: leader, follower (the first in the assignment that does not lead), last-in-isr, controller; else a node's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ACTS = frozenset({"send", "wait"})  # entries that are no faults
ROLES = frozenset({"leader", "follower", "last-in-isr", "controller"})
MOMENT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One act. `nodes` are names or roles, resolved when it strikes (for the partition in args, else 0)."""

    f: str
    nodes: tuple[str, ...] = ()
    moment: Mapping[str, Any] | None = None  # None: at once
    timeout_s: float = MOMENT_TIMEOUT_S  # of the moment
    args: Mapping[str, Any] = field(default_factory=dict)  # grudge, unclean, sends, keep, ...: by f


Schedule = tuple[Entry, ...]

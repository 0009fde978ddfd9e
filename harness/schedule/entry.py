"""Defines the form of schedules: run.json's `schedule`, scenario steps and random plans all have it.

An entry waits for its moment, then acts. Entries are carried out one after the other, in order. A moment that
does not come within its time-out is `missed` and reported; its act is left out (one that mends is done all
the same), and the entries after it still follow. json_form.py reads and writes the JSON form:

    {"f": "kill", "nodes": ["leader"], "partition": 0, "moment": {"at": "ack", "partition": 0, "count": 1}}
    {"f": "cut", "kind": "halves", "grudge": {"n1": ["n2", "n3"], "n2": ["n1"], "n3": ["n1"]}}
    {"f": "power_cut", "nodes": ["n1"], "keep": {"0": 5}, "moment": {"at": "state", "healthy": true}}
    {"f": "send", "sends": [{"partition": 0, "value": 17}]}
    {"f": "wait", "moment": {"at": "state", "partition": 0, "replica": "n3", "field": "epoch", "is": ">=",
                             "value": 1}}
    {"f": "arm", "nodes": ["n2"], "point": {"name": "F.truncated", "action": "hold", "partition": 0}}
    {"f": "wait", "moment": {"at": "failpoint", "node": "n2", "name": "F.truncated"}}

Keys of an entry: `f`, `nodes`, `moment` (left out: at once), `timeout_s` (of the moment, 30), and by f:
  kill stop start pause resume expire   nodes; `partition` for whose roles they are resolved (0)
  cut          `grudge`: whom each node does not hear; or `nodes` instead: these, away from all the others.
               `kind` is a name for people; `reset`: connections are reset instead of losing packets
  heal         nothing
  power_cut    nodes; `keep`: partition -> LEO to keep at most; or `keep_share`: that share of each log, 0 to
               1; neither: exactly what had been fsynced. Never less than that
  elect        `partitions` (all); `unclean` (false); `leader`: this replica and no other, a name or a role
  packet       `grudge`: whom each node hears badly; or `nodes`, as in a cut; and the packets' faults: `loss`
               (0 to 1), `delay_ms`, `jitter_ms` (at most the delay), `rate_kbit`. Ended by heal
  reset        `grudge` or `nodes`, as in a cut: resets the open connections, once
  disk         nodes; `kind`: they are killed, and their logs wiped (emptied), or the tail of one of them
               corrupt (a byte is another) or truncated (the last bytes are gone)
  bad_disk     nodes; `kind`: full, read-only or failing (I/O errors; what was not fsynced is gone), until
               mend_disk. A broker may end of it
  clock        nodes; `offset_ms`: their wall clocks are off by so much, until reset_clock
  memory       nodes; `limit_mb`: no more for their processes, until free_memory; the kernel may end them
  mend_disk reset_clock free_memory   nodes
  arm          nodes; `point`: see below. On a node that is down: at its next start
  release      nodes; `point`: releases and disarms what fits it (left out: everything held and armed)
  send         `sends`: the micro-sends of one op, all to one partition; `acks` (the workload's): all, 1 or 0;
               `to`: that node, whoever leads, once; `nowait`: the schedule goes on while the op is open
  poll         `partitions`: a new process assigns itself these and polls once, from the beginning, or from
               `offset`; `from`: that node, whoever leads
  list_offsets `partitions`: their end offsets, asked by a new process; `from`: of that node, whoever leads
               Any of these three with `client`: a number; by the process that asked last for it, as long as
               it lives (an info, or a log that lost what it had read, ends it). Left out: by a new process
  wait         only its moment

A `point` to arm: `name` (failpoints.py has them) and `action`: report, crash, hold, delay (which needs
`for_ms`), drop, duplicate; its conditions: `partition`, `epoch`, `peer` (a node's name), `offset`, any of
them left out: anything; `skip` (0): so many matches pass first; `times` (1): it acts so often (0: always);
`scope` (partition): `broker` stops all of the process. To release: `name`, `partition`, `peer`,
`through_epoch` (at C.elected: only messages up to that leader epoch), `keep` (true: stays armed).
A node that an armed crash ends is down as after a kill; the history records a kill, with the failpoint as its
moment.

Moments (`at`):
  time   {"time": ns}                          since the run began; with `after_ns` too: not sooner than that
                                               after the entry before it was done
  ack    {"partition": p, "count": k}          the k-th acked micro-send of the partition in this run; with
                                               `leader` too: of those that this node acked by its own
                                               trace (before the response has left it)
  state  {"partition": p, "replica": who, "field": FIELD, "is": OP, "value": v}
         {"partition": p, "field": leader|epoch|isr, ...}       no replica: as the controller has it
         {"all": [state, ...]}                 all of them in one view
         {"any": [state, ...]}                 one of them
         {"healthy": true}                     every broker up and unfenced, every ISR full, its leader and
                                               epoch known to all its members, no fault in force
         `value` may be another observation: {"replica": who, "field": ...}, and `partition` if another
         `replica` may be a role, or every: then it must hold of each replica of the partition
  after  {"after_ns": d}                       d after the entry before it was done
  failpoint  {"node": who, "name": POINT}      the node meets a point that an entry before has armed; with
                                               `partition`, `epoch`, `peer` or `offset`: there; with `count`
                                               (1): the k-th time since it was last armed so
  sequence   {"of": [moment, ...]}             one after the other, within one time-out
  first      {"of": [moment, ...]}             whichever comes first
Any of them may have `then_ns`: so much later.
FIELD is one of leo, hw, epoch, checkpointed_hw, leader, isr, running, unfenced. OP is one of == != < <= >
>=, or for isr: == != (as sets), contains, lacks. A field that is not visible (the broker does not answer)
fulfils nothing, not even !=; `running` and `unfenced` (alive for the controller) are a broker's, are always
visible, and need no partition.
Roles: leader, follower (the first in the assignment that does not lead), last-in-isr, controller (its
process); down (every node that a fault in force has ended), paused; else a node's name. A role that no node
has is waited for, as the moment is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ACTS = frozenset({"send", "poll", "list_offsets", "wait"})  # entries that are no faults
ROLES = frozenset({"leader", "follower", "last-in-isr", "controller", "down", "paused"})
EVERY = "every"  # as a `replica` of a state: each of the partition's
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

"""Defines the form of schedules: run.json's `schedule`, scenario steps and random plans all have it.

An entry waits for its moment, then acts. Entries are carried out one after the other, in order. If a moment
does not come within its time-out, the entry is reported as `missed` and its act is skipped (except acts that
mend); the entries after it are still carried out. json_form.py reads and writes the JSON form:

    {"f": "kill", "nodes": ["leader"], "partition": 0, "moment": {"at": "ack", "partition": 0, "count": 1}}
    {"f": "cut", "kind": "halves", "grudge": {"n1": ["n2", "n3"], "n2": ["n1"], "n3": ["n1"]}}
    {"f": "power_cut", "nodes": ["n1"], "keep": {"0": 5}, "moment": {"at": "state", "healthy": true}}
    {"f": "send", "sends": [{"partition": 0, "value": 17}]}
    {"f": "wait", "moment": {"at": "state", "partition": 0, "replica": "n3", "field": "epoch", "is": ">=",
                             "value": 1}}
    {"f": "arm", "nodes": ["n2"], "point": {"name": "F.truncated", "action": "hold", "partition": 0}}
    {"f": "wait", "moment": {"at": "failpoint", "node": "n2", "name": "F.truncated"}}

Keys of an entry: `f`, `nodes`, `moment` (left out: at once), `timeout_s` (of the moment, 30), and by f:
  kill stop start pause resume expire   nodes
  cut          `grudge`: node -> the nodes from which it receives nothing; or `nodes`: these are cut from all
               others. `kind` is a name for people; `reset`: reset connections instead of dropping packets
  heal         no keys
  power_cut    nodes; `keep`: partition -> the LEO to keep at most; or `keep_share`: the share of each log to
               keep, 0 to 1; neither: exactly what was fsynced. What was fsynced is always kept
  elect        `partitions` (all); `unclean` (false); `leader`: only this replica, a name or a role
  packet       `grudge`: node -> the nodes from which it receives badly; or `nodes`, as in a cut; and `loss`
               (0 to 1), `delay_ms`, `jitter_ms` (at most the delay), `rate_kbit`. It ends with heal
  reset        `grudge` or `nodes`, as in a cut: resets the open connections, once
  disk         nodes; `kind`: they are killed; their logs are wiped (emptied), or the tail of one log is
               corrupt (a byte is changed) or truncated (the last bytes are removed)
  bad_disk     nodes; `kind`: full, read-only or failing (I/O errors; what was not fsynced is lost), until
               mend_disk. A broker may crash because of it
  clock        nodes; `offset_ms`: their wall clocks are wrong by so much, until reset_clock
  memory       nodes; `limit_mb`: the memory limit of their processes, until free_memory; the kernel may kill
               them
  mend_disk reset_clock free_memory   nodes
  arm          nodes; `point`: see below. If a node is down, it is armed at its next start
  release      nodes; `point`: releases and disarms matching points (left out: all)
  send         `sends`: the micro-sends of one op, all to one partition; `acks`: all, 1 or 0 (the workload's);
               `to`: send to that node even if it does not lead, once; `nowait`: the schedule continues while
               the op is open
  poll         `partitions`: a new process assigns itself these and polls once, from the beginning, or from
               `offset`; `from`: poll that node even if it does not lead
  list_offsets `partitions`: a new process requests their end offsets; `from`: from that node even if it does
               not lead
               Each of these three can have `client`: a number; it is done by the process that last served
               this number, as long as that process is not over (after an info, or if the log lost what it had
               read). Left out: by a new process
  wait         only its moment

A `point` to arm: `name` (listed in failpoints.py) and `action`: report, crash, hold, delay (which needs
`for_ms`), drop, duplicate; its conditions: `partition`, `epoch`, `peer` (a node's name), `offset` (a missing
condition matches anything); `skip` (0): the first matches, which have no effect; `times` (1): how often it
acts (0: always); `scope` (partition): `broker` stops the complete process. To release: `name`, `partition`,
`peer`,
`through_epoch` (at C.elected: only messages up to that leader epoch), `keep` (true: it stays armed).
After an armed crash the node is down as after a kill; the history records a kill, with the failpoint as its
moment.

A moment has its kind in `at` (time, after, ack, failpoint, state, sequence, first): moments.py has a class
for each, with its keys; states.py describes the states.
Roles: leader, follower (the first in the assignment that does not lead), last-in-isr, controller (its
process); down (every node that a fault in force has stopped), paused; else a node's name. They are those of
the entry's `partition` (every fault takes it), else of the partition of its ops or its point, else of 0. If
no node has the role, the entry waits for one, as it waits for its moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.schedule.moments import Moment

ACTS = frozenset({"send", "poll", "list_offsets", "wait"})  # entries that are no faults
MOMENT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a schedule. `nodes` are names or roles; roles are resolved when it strikes, for its
    partition."""

    f: str
    nodes: tuple[str, ...] = ()
    moment: Moment | None = None  # None: at once
    timeout_s: float = MOMENT_TIMEOUT_S  # of the moment
    args: Mapping[str, Any] = field(default_factory=dict)  # grudge, unclean, sends, keep, ...: by f

    @property
    def partition(self) -> int:
        """The partition for which roles are resolved: the entry's, that of its ops or its point, else 0."""
        named = [self.args, *self.args.get("sends", ()), self.args.get("point", {})]
        partitions = (one["partition"] for one in named if "partition" in one)
        return int(next(partitions, next(iter(self.args.get("partitions", ())), 0)))


Schedule = tuple[Entry, ...]

"""Ten more small bugs for the broker, by an author who had seen none of the checks and none of the faults.

The rules are those of bugs.py. The author read only the broker, as its maintainer would: a guess `hard` is
made without knowing the checks. `make hunt ARGS=--fresh` measures them.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

from bugs import HuntBug, bug, replace

FRESH: dict[str, HuntBug] = {}
fresh = partial(bug, into=FRESH)


# -- protocol: leader and follower -------------------------------------------------------------------------


@fresh("leo-never-falls", "protocol.leader:Leader._update_fetch_state", "protocol", 3,
       "a follower that has lost records is still credited with the highest offset that it has fetched from")
def _(original: Any, self: Any, remote: Any, event: Any, leo: int) -> None:
    original(self, remote, replace(event, offset=max(remote.leo, event.offset)), leo)


@fresh("followers-note-no-epochs", "protocol.replica_state:ReplicaState.append", "protocol", 2,
       "only a leader's appends are noted in the epoch cache, until a restart mends it")
def _(original: Any, self: Any, batches: Any, *, leading: bool) -> None:
    rules = self.rules
    self.rules = replace(rules, keeps_epochs=rules.keeps_epochs and leading)
    original(self, batches, leading=leading)
    self.rules = rules


# -- storage -----------------------------------------------------------------------------------------------


@fresh("recovery-point-outlives-a-truncation", "storage.local_log:LocalLog._truncate_segment", "storage", 4,
       "after a truncation of flushed records, what is written in their place counts as flushed")
def _(original: Any, self: Any, segment: Any, to: int, position: int) -> None:
    flushed = self._recovery_point
    original(self, segment, to, position)
    self._recovery_point = flushed


@fresh("a-time-means-after-it", "storage.offsets_by_timestamp:find_offset", "storage", 4,
       "an offset by timestamp is that of the first record after the time, not at it")
def _(original: Any, log: Any, timestamp: int, end: int) -> Any:
    return original(log, timestamp + (timestamp >= 0), end)


# -- server ------------------------------------------------------------------------------------------------


@fresh("answers-in-order-of-arrival", "server.produce_requests:PendingProduce.complete", "server", 3,
       "the answers of a produce to several partitions stand in the order in which they came")
def _(original: Any, self: Any, index: int, answer: Any) -> None:
    free = next(at for at, each in enumerate(self.answers) if each[2:] == (0, -1, -1))
    original(self, free, answer)


@fresh("altered-min-isr-waits-for-a-restart", "server.replica_manager:ReplicaManager._configure_replica",
       "server", 4, "a replica that is there is not given the min.insync.replicas that its topic has now")
def _(original: Any, self: Any, hosted: Any, topic: Any) -> None:
    original(self, SimpleNamespace(log=hosted.log, replica=SimpleNamespace(configure=id)), topic)
    hosted.configs = topic.configs


# -- idempotent producers ----------------------------------------------------------------------------------


@fresh("a-known-batch-is-answered-at-once", "protocol.leader:Leader.handle_produce", "idempotence", 3,
       "a retry with acks=all of a batch that the leader has is answered before the ISR has it")
def _(original: Any, self: Any, event: Any) -> None:
    state, leo = self.state, self.state.log.end
    original(self, event)
    retries = [one for one in state.delayed_produces if one.token is event.token and state.log.end == leo]
    for one in retries:
        state.delayed_produces.remove(one)
    state.answer_produces(retries, 0)


@fresh("producer-ids-are-not-in-the-journal", "protocol.controller:Controller._allocate_producer_ids",
       "idempotence", 4, "a controller that starts again gives the same producer ids once more")
def _(original: Any, self: Any, event: Any) -> Any:
    answer = original(self, event)
    self._records.clear()
    return answer


# -- the controller ----------------------------------------------------------------------------------------


@fresh("fencing-stops-at-the-first-partition", "protocol.controller:Controller._remove_from_partitions",
       "controller", 2, "a broker that fails leaves the ISR and the leadership of one partition only")
def _(original: Any, self: Any, broker: int, stale: Any = None) -> None:
    written = len(self._records)
    for one in list(self._all_partitions()):
        self._all_partitions = lambda one=one: [one]
        original(self, broker, stale)
        del self._all_partitions
        if len(self._records) > written:
            return


@fresh("false-is-a-text-too", "protocol.controller:Controller._allows_unclean_election", "controller", 4,
       "a topic whose unclean.leader.election.enable is said to be false elects uncleanly")
def _(original: Any, self: Any, topic: str) -> bool:
    own = self._state.topics[topic].configs.get("unclean.leader.election.enable")
    return bool(original(self, topic) or own)

"""Small bugs for the broker, to measure what random faults find: each replaces one named function at start.

Rules
1. A bug is one wrong line that somebody could have written: none is in broker.testing.bugs, and no two are
   the same. The machines' own assertions stay: a broker that ends because of one counts apart from a finding.
2. `hard` guesses, before anything was measured, how hard `--nemesis all` finds it: 1 any run, 2 most runs
   with faults, 3 a certain fault or workload, 4 a rare coincidence, 5 nothing of today (no check, no fault,
   no setting), or harmless.
3. The list does not change after a measurement; later bugs go into a list of their own.
4. A function that is gone, or has other parameters, is an error that names it.
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from msgspec import Struct, structs

Wrong = Callable[..., Any]  # the wrong function; its first argument is the right one


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntBug:
    """where: module:Class.function, of floodmark.broker. area: protocol, storage, server, idempotence or
    controller."""

    name: str
    where: str
    area: str
    hard: int
    does: str
    wrong: Wrong


BUGS: dict[str, HuntBug] = {}


def replace(value: Any, **changes: Any) -> Any:
    """A copy of a message, or of another value, with these changes."""
    copied = structs.replace if isinstance(value, Struct) else dataclasses.replace
    return copied(value, **changes)


def bug(name: str, where: str, area: str, hard: int, does: str, *,
        into: dict[str, HuntBug] = BUGS) -> Callable[[Wrong], Wrong]:
    def register(wrong: Wrong) -> Wrong:
        assert name not in BUGS.keys() | into.keys(), name
        into[name] = HuntBug(name=name, where=where, area=area, hard=hard, does=does, wrong=wrong)
        return wrong

    return register


def install(name: str) -> None:
    """Puts the bug in place of its function; call it before the broker is imported."""
    listed: dict[str, HuntBug] = BUGS | import_module("fresh_bugs").FRESH  # fresh_bugs imports this module
    if name not in listed:
        raise SystemExit(f"no bug {name!r}; there are: {', '.join(listed)}")
    holder, attribute, found = find(listed[name])
    original = found.fget if isinstance(found, property) else found

    def replaced(*given: Any, **named: Any) -> Any:
        return listed[name].wrong(original, *given, **named)

    setattr(holder, attribute, property(replaced) if isinstance(found, property) else replaced)


def find(one: HuntBug) -> tuple[Any, str, Any]:
    """The class or module, the attribute's name and its present value."""
    module, _, path = one.where.partition(":")
    holder: Any = import_module(f"floodmark.broker.{module}")
    *classes, attribute = path.split(".")
    try:
        for name in classes:
            holder = getattr(holder, name)
        return holder, attribute, inspect.getattr_static(holder, attribute)
    except AttributeError as error:
        raise SystemExit(f"bug {one.name}: there is no {one.where} any more ({error})") from error


# -- protocol: the leader ---------------------------------------------------------------------------------


@bug("hw-skips-a-member", "protocol.leader:Leader._recompute_isr_members", "protocol", 2,
     "the HW does not wait for the last member of an ISR of three or more")
def _(original: Any, self: Any) -> None:
    original(self)
    if len(self._isr_remotes) > 1:
        self._isr_remotes = self._isr_remotes[:-1]


@bug("timeout-is-an-ack", "protocol.replica_state:ReplicaState.answer_produces", "protocol", 2,
     "a produce whose time is up is answered without an error")
def _(original: Any, self: Any, parked: Any, error: int) -> None:
    original(self, parked, 0 if error == 7 else error)


@bug("demotion-is-an-ack", "protocol.replica_state:ReplicaState.answer_produces", "protocol", 2,
     "produces that wait when their leader is deposed are answered without an error")
def _(original: Any, self: Any, parked: Any, error: int) -> None:
    original(self, parked, 0 if error == 6 else error)


@bug("demotion-denies-the-append", "protocol.replica_state:ReplicaState.answer_produce", "protocol", 2,
     "error 6 with offset -1 (nothing was appended) for a record that was")
def _(original: Any, self: Any, parked: Any, error: int) -> None:
    original(self, parked, error)
    if error == 6:
        self.effects[-1] = replace(self.effects[-1], base_offset=-1)


@bug("refused-but-appended", "protocol.leader:Leader._refuse_produce", "protocol", 2,
     "a produce refused for too few replicas (19) is appended all the same")
def _(original: Any, self: Any, event: Any, error: int) -> None:
    if error == 19:
        self.state.append(self._assign_offsets(event.batches), leading=True)
    original(self, event, error)


@bug("min-isr-one-less", "protocol.replica_state:ReplicaState.min_insync", "protocol", 2,
     "one replica fewer than min.insync.replicas is enough")
def _(original: Any, self: Any) -> Any:
    return max(1, original(self) - 1)


@bug("new-leader-believes-its-followers", "protocol.leader:Leader.__init__", "protocol", 2,
     "a new leader takes the LEO of the ISR's members to be its own: all it has is committed at once")
def _(original: Any, self: Any, state: Any, now_ms: int) -> None:
    original(self, state, now_ms)
    for broker, remote in self.remotes.items():
        if broker in state.isr:
            remote.leo = state.log.end


@bug("shorter-logs-never-diverge", "protocol.leader:Leader._find_divergence", "protocol", 1,
     "a fetch below the leader's LEO is not compared by epoch")
def _(original: Any, self: Any, event: Any) -> Any:
    return (0, None) if event.offset <= self.state.log.end else original(self, event)


@bug("end-offset-is-leo", "protocol.leader:Leader.handle_list_offsets", "protocol", 3,
     "a client is told the LEO for the end offset")
def _(original: Any, self: Any, event: Any) -> Any:
    return original(self, replace(event, replica=0))


@bug("reads-one-above-hw", "protocol.leader:Leader.handle_fetch", "protocol", 3,
     "a client may read one record above the HW")
def _(original: Any, self: Any, event: Any) -> None:
    original(self, event)
    answer = self.state.effects[-1] if self.state.effects else None
    if event.replica == -1 and answer is not None and not getattr(answer, "error", 1):
        end = min(self.state.log.end, answer.end + 1)
        self.state.effects[-1] = replace(answer, end=max(answer.end, end))


@bug("credits-one-more", "protocol.leader:Leader._update_fetch_state", "protocol", 1,
     "a follower is credited with the record that it asks for")
def _(original: Any, self: Any, remote: Any, event: Any, leo: int) -> None:
    original(self, remote, replace(event, offset=min(event.offset + 1, leo)), leo)


@bug("proposal-hides-metadata", "protocol.isr:Isr.apply_metadata", "protocol", 3,
     "metadata that comes while a proposal is in flight is dropped")
def _(original: Any, self: Any, isr: Any, partition_epoch: int) -> bool:
    in_flight = self.pending is not None and not self.pending.to_send
    if in_flight and set(isr) != {broker for broker, _ in self.pending.proposal.isr}:
        return False
    return bool(original(self, isr, partition_epoch))


# -- protocol: the follower and its log -------------------------------------------------------------------


@bug("truncates-one-too-far", "protocol.replica_state:ReplicaState.truncate", "protocol", 4,
     "one record more than diverges is cut, and fetched again")
def _(original: Any, self: Any, to: int, why: str) -> None:
    original(self, max(self.log.start, to - 1) if to < self.log.end else to, why)


@bug("out-of-range-throws-the-log-away", "protocol.follower:Follower.handle_log_ends_response", "protocol", 4,
     "after OFFSET_OUT_OF_RANGE a follower begins anew at the leader's first offset")
def _(original: Any, self: Any, event: Any) -> None:
    if event.asked == self.next_request() and not event.error:
        self._must_ask_log_ends = False
        self.state.reset(event.log_start)
    else:
        original(self, event)


@bug("follower-hw-one-ahead", "protocol.follower:Follower._append_fetched", "protocol", 4,
     "a follower's HW is one above what its leader told")
def _(original: Any, self: Any, event: Any) -> None:
    original(self, event)
    self.state.hw = min(self.state.log.end, self.state.hw + 1)


@bug("epoch-begins-one-late", "protocol.leader_epoch_cache:LeaderEpochFileCache.assign", "protocol", 2,
     "an epoch's start offset is noted one too high")
def _(original: Any, self: Any, epoch: Any, start: Any) -> Any:
    return original(self, epoch, start + 1 if self.entries else start)


@bug("epoch-ends-where-it-begins", "protocol.leader_epoch_cache:LeaderEpochFileCache.end_offset_for",
     "protocol", 2, "a past epoch is said to end at its own start offset")
def _(original: Any, self: Any, epoch: int, leo: int) -> Any:
    end = original(self, epoch, leo)
    starts = dict(self.entries)
    if end is None or end.epoch == self.latest_epoch or end.epoch not in starts:
        return end
    return replace(end, end_offset=starts[end.epoch])


@bug("truncation-drops-an-epoch-more", "protocol.leader_epoch_cache:LeaderEpochFileCache.truncate_from_end",
     "protocol", 4, "a truncation forgets also the epoch that the log now ends in")
def _(original: Any, self: Any, to: int) -> bool:
    changed = bool(original(self, to))
    if changed and len(self.entries) > 1:
        self.entries.pop()
    return changed


# -- idempotence ------------------------------------------------------------------------------------------


@bug("truncation-keeps-producers", "protocol.producer_state_manager:ProducerStateManager.truncate_to",
     "idempotence", 3, "a batch that was truncated is still known: its retry is answered as a duplicate")
def _(original: Any, self: Any, to: Any) -> None:
    pass


@bug("remembers-one-batch", "protocol.producer_state_manager:ProducerStateManager._remember",
     "idempotence", 5, "of a producer only its last batch is known")
def _(original: Any, self: Any, index: int) -> None:
    original(self, index)
    batches = self._by_id[self._ids[index]].batches
    while len(batches) > 1:
        batches.popleft()


@bug("a-retry-is-appended-again", "protocol.producer_state_manager:ProducerStateManager.check_batch",
     "idempotence", 2, "a batch that is known is appended once more")
def _(original: Any, self: Any, batch: Any) -> Any:
    return (original(self, batch)[0], None)


@bug("a-retry-gets-the-next-offset", "protocol.producer_state_manager:ProducerStateManager.check_batch",
     "idempotence", 3, "a retry is answered with an offset one too high")
def _(original: Any, self: Any, batch: Any) -> Any:
    error, known = original(self, batch)
    moved = None if known is None else replace(
        known, base_offset=known.base_offset + 1, last_offset=known.last_offset + 1)
    return error, moved


@bug("producer-ids-twice", "protocol.controller:Controller._allocate_producer_ids", "idempotence", 3,
     "every broker gets the same block of producer ids")
def _(original: Any, self: Any, event: Any) -> Any:
    answer = original(self, event)
    return answer if answer.error else replace(answer, first=0)


# -- storage ----------------------------------------------------------------------------------------------


@bug("recovery-drops-the-last-batch", "storage.log_recovery:scan_segment", "storage", 3,
     "a restart cuts the last batch off, though it is sound")
def _(original: Any, *args: Any, **keys: Any) -> Any:
    found = original(*args, **keys)
    if found.bad is not None or not found.batches:
        return found
    return replace(found, batches=found.batches[:-1], ends=found.ends[:-1], bad="the last batch")


@bug("truncation-stays-in-memory", "storage.log_directory:LogDirectory.truncate", "storage", 3,
     "a truncated file keeps its bytes: a restart may find them behind what was written over them")
def _(original: Any, self: Any, name: Any, descriptor: Any, to: Any) -> None:
    pass


@bug("flush-does-not-sync", "storage.local_log:LocalLog.flush", "storage", 4,
     "a flush moves the recovery point and syncs nothing")
def _(original: Any, self: Any) -> None:
    self._recovery_point = self.leo


@bug("roll-does-not-flush", "storage.local_log:LocalLog._roll", "storage", 5,
     "a segment is closed without being flushed: a power cut leaves a hole")
def _(original: Any, self: Any) -> Any:
    return self._new_segment(self.leo)


@bug("truncation-leaves-later-segments", "storage.local_log:LocalLog._delete_segments", "storage", 5,
     "segments behind a truncation stay on disk")
def _(original: Any, self: Any, segments: Any) -> None:
    pass


@bug("a-full-answer-begins-one-batch-late", "storage.log_segment:LogSegment.batch_range", "storage", 2,
     "a read that has more than its bytes leaves its first batch out")
def _(original: Any, self: Any, start: int, end: int, max_bytes: int) -> Any:
    begin, stop = original(self, start, end, max_bytes)
    later = [position for position in self.positions if begin < position < stop]
    return (later[0], stop) if later and stop - begin > max_bytes // 2 else (begin, stop)


@bug("checkpoints-the-leo", "server.effect_runner:HostedPartition.checkpointable_hw", "storage", 3,
     "replication-offset-checkpoint holds the LEO in place of the HW")
def _(original: Any, self: Any) -> Any:
    return self.replica.leo


@bug("checkpoint-mixes-partitions", "storage.checkpoint_files:write_offset_checkpoint", "storage", 4,
     "with several partitions each gets the next one's offset in the checkpoints")
def _(original: Any, files: Any, name: str, offsets: Any) -> None:
    keys = sorted(offsets)
    values = [offsets[key] for key in keys]
    original(files, name, dict(zip(keys, values[1:] + values[:1], strict=True)))


@bug("batches-keep-the-senders-epoch", "wire.record_batch:stamp_batch", "storage", 1,
     "a leader writes a batch without its own epoch")
def _(original: Any, batch: Any) -> bytes:
    epoch = int.from_bytes(batch.data[12:16], "big", signed=True)
    return bytes(original(replace(batch, epoch=epoch)))


@bug("journal-forgets-its-last-line", "storage.controller_journal:_recover", "controller", 5,
     "a controller that starts again does not read the last thing that it wrote")
def _(original: Any, path: Any, descriptor: int) -> Any:
    records, torn = original(path, descriptor)
    return records[:-1], torn


# -- wire and server --------------------------------------------------------------------------------------


@bug("answers-the-last-offset", "server.produce_requests:PendingProduce.complete", "server", 1,
     "a produce of several records is answered with the offset of the last one")
def _(original: Any, self: Any, index: int, answer: Any) -> None:
    last = getattr(answer, "last_offset", -1)
    original(self, index, replace(answer, base_offset=last) if last > answer.base_offset >= 0 else answer)


@bug("busy-publisher-drops-metadata", "server.metadata_publisher:MetadataPublisher.publish", "server", 2,
     "metadata that comes while a broker has not answered the last is not sent to it")
def _(original: Any, self: Any) -> None:
    if not self._messages:
        original(self)


@bug("unanswered-metadata-is-delivered", "server.metadata_publisher:MetadataPublisher._send", "server", 3,
     "metadata that a broker did not answer is not sent again")
async def _(original: Any, self: Any, message: Any, *, quiet: bool) -> bool:
    await original(self, message, quiet=quiet)
    return True


@bug("same-leader-is-no-news", "server.replica_manager:ReplicaManager.apply_metadata", "server", 2,
     "a partition whose leader is the same as before is not told its new epoch and ISR")
def _(original: Any, self: Any, metadata: Any) -> None:
    def fresh(topic: Any, part: Any) -> bool:
        hosted = self.partitions.get((topic.name, part.partition))
        return hosted is None or hosted.replica.leader != part.leader
    topics = {
        name: replace(topic, partitions=tuple(part for part in topic.partitions if fresh(topic, part)))
        for name, topic in metadata.topics.items()
    }
    original(self, replace(metadata, topics=topics))


@bug("no-answer-is-a-yes", "server.controller_client:AlterPartitionManager._deliver_response", "server", 4,
     "an ISR proposal without an answer is taken for accepted")
def _(original: Any, self: Any, in_flight: Any, error: int, part: Any = None) -> None:
    if error == 13:
        asked, error = in_flight.proposal, 0
        part = SimpleNamespace(leader_epoch=asked.leader_epoch, partition_epoch=asked.partition_epoch + 1,
                               isr=[broker for broker, _ in asked.isr], error_code=0)
    original(self, in_flight, error, part)


@bug("refused-fetch-is-not-repeated", "server.replica_fetcher:ReplicaFetcher._back_off", "server", 1,
     "a follower whose fetch was refused does not ask the same again")
def _(original: Any, self: Any, hosted: Any, request: Any) -> None:
    original(self, hosted, request)
    self._backoffs[hosted.key] = replace(self._backoffs[hosted.key], until_ms=1 << 60)


@bug("fetches-wait-for-ever", "protocol.purgatory:DelayedFetchPurgatory.expired", "server", 1,
     "a fetch whose time is up is not answered")
def _(original: Any, self: Any, now_ms: Any) -> Any:
    return []


@bug("checkpoints-in-place", "storage.log_directory:LogDirectory.replace", "storage", 5,
     "a checkpoint is written over the old one, not beside it")
def _(original: Any, self: Any, name: str, data: bytes) -> None:
    self.path(name).write_bytes(data)
    self._note_durable_length(name, len(data))


# -- the controller ---------------------------------------------------------------------------------------


@bug("fencing-keeps-the-isr", "protocol.elections:remove_broker", "controller", 2,
     "a broker that fails loses its leaderships and stays in its ISRs")
def _(original: Any, partition: Any, broker: int, active: Any, rules: Any, *, unclean: bool) -> Any:
    change = original(partition, broker, active, rules, unclean=unclean)
    return change if change is None else replace(change, isr=partition.isr)


@bug("last-member-out", "protocol.elections:remove_broker", "controller", 2,
     "when the last member of an ISR fails, all replicas become its members")
def _(original: Any, partition: Any, broker: int, active: Any, rules: Any, *, unclean: bool) -> Any:
    if partition.isr == (broker,):
        partition = replace(partition, isr=partition.replicas)
    return original(partition, broker, active, rules, unclean=unclean)


@bug("leaderless-for-ever", "protocol.controller:Controller._elect_leaderless", "controller", 2,
     "a partition that has lost its leader gets none when one is back")
def _(original: Any, self: Any) -> None:
    pass


@bug("heartbeats-do-not-count", "protocol.controller:Controller._handle_heartbeat", "controller", 1,
     "a session lasts from the registration on, whatever is heard")
def _(original: Any, self: Any, event: Any) -> Any:
    session = self._sessions.get(event.broker)
    heard_ms = None if session is None else session.heard_ms
    answer = original(self, event)
    if session is not None and heard_ms is not None:
        session.heard_ms = heard_ms
    return answer


@bug("one-partition-epoch-late", "protocol.controller:Controller._check_alter_partition", "controller", 4,
     "an ISR proposal may be one partition epoch behind")
def _(original: Any, self: Any, event: Any, partition: Any) -> int:
    if event.partition_epoch == partition.partition_epoch - 1:
        event = replace(event, partition_epoch=partition.partition_epoch)
    return int(original(self, event, partition))

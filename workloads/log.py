"""The log workload: sends, polls and list_offsets of unique values, by the client of record.

Every send is tried once and goes to one partition. One process in four (or as the load says) reads: it
assigns some partitions to itself, polls them from offset 0 on, lists their end offsets now and then, and
after a while begins with others. With fewer processes than that each does a little of both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import count
from random import Random
from typing import Any

from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.errors import UsageError
from floodmark.harness.op import Intent, Outcome, Send, Type
from floodmark.harness.protocols import USUAL_LOAD, LoadShape, Session, Workload, WorkloadSettings

NAME = "log"
_READING_SHARE = 0.95  # of a reader's ops
_MIXED_SHARE = 0.1  # with too few processes for separate readers and writers
_READS_PER_ASSIGN = (20, 200)
_END_OFFSETS_EVERY = 10
_LOAD_FETCH_BYTES = 16 << 10  # small responses: a reader shares the machine with the brokers
_LOAD_FETCH_WAIT_MS = 300
_LOAD_FETCH_MIN_BYTES = 8 << 10
_FINAL_FETCH_BYTES = 256 << 10
_SHORT_FETCH_WAIT_MS = 20
_ANSWER_TAKES_S = 0.5  # at most, after the leader has waited
_ACKS_1_BATCHES = (10, 20)  # records: a process ends with each info, so it sends seldom
_RETRIES = 2**31 - 1  # of an idempotent producer
_ACKS_STRENGTH = {"0": 0, "1": 1, "all": 2}


class LogSession:
    """One process with its client. A final session is for probes and final reads, after mending: it fetches
    larger pieces and waits less. idempotent: its sends are an idempotent producer's."""

    def __init__(self, settings: WorkloadSettings, process: int, *, final: bool = False,
                 idempotent: bool = False) -> None:
        # A pure reader waits for a large piece; a process that also writes would wait for itself.
        waits = not final and settings.concurrency >= settings.load.readers_every
        self._acks = "all" if final else settings.acks  # a probe needs its ack, whatever acks the load uses
        timeout_ms = USUAL_LOAD.timeout_ms if final else settings.load.timeout_ms
        self._client = settings.clients(ClientSettings(
            run_id=settings.run_id,
            keys={spec.key: spec.place for spec in settings.partitions},
            without_headers=frozenset(spec.key for spec in settings.partitions if not spec.headers),
            acks=self._acks,
            fetch_max_bytes=_FINAL_FETCH_BYTES if final else _LOAD_FETCH_BYTES,
            fetch_wait_ms=_LOAD_FETCH_WAIT_MS if waits else _SHORT_FETCH_WAIT_MS,
            fetch_min_bytes=_LOAD_FETCH_MIN_BYTES if waits else 1,
            lists_starts=final,
            compression=settings.load.compression,
            produce_timeout_ms=timeout_ms,
            request_timeout_s=timeout_ms / 1000 + _ANSWER_TAKES_S,
            shares_requests=not final and is_one(process, settings, settings.load.sharing_every),
            in_flight=settings.load.in_flight if idempotent else 0,
        ), Random(f"{settings.seed}/client/{process}"))
        self._sends_left = (settings.load.producer_lasts if idempotent else 0) or -1  # below 0: any number

    @property
    def over(self) -> bool:
        return self._client.over or self._sends_left == 0

    async def apply(self, intent: Intent) -> Outcome:
        match intent.f:
            case "send":
                self._sends_left -= 1
                outcome = await self._client.send(
                    intent.sends, node=intent.node, acks=intent.acks, patience_s=intent.patience_s)
                # The run's guarantee does not cover an ack that is weaker than it.
                weaker = intent.acks is not None and _ACKS_STRENGTH[intent.acks] < _ACKS_STRENGTH[self._acks]
                return replace(outcome, type=Type.INFO) if weaker and outcome.type is Type.OK else outcome
            case "poll":
                if intent.offset is not None:
                    self._client.seek(intent.partitions, intent.offset)
                return await self._client.poll(node=intent.node)
            case "assign":
                self._client.assign(intent.partitions)
                return Outcome(type=Type.OK, partitions=intent.partitions)
            case "list_offsets":
                return await self._client.list_offsets(intent.partitions, node=intent.node)
        raise ValueError(f"the log workload knows no {intent.f!r}")

    async def close(self) -> None:
        await self._client.close()


class LogWorkload:
    """Implements protocols.Workload, also the idempotent one, of which every process is an idempotent one.
    Where the load says so some are: both kinds send to the same partitions at once. The client of record
    knows what certainly failed; an idempotent producer retries, with several batches in flight: each can
    reveal bugs that the other cannot. The guarantees are then no duplicates, which the client of record keeps
    by not retrying at all. Probes and final reads are its too."""

    def __init__(self, settings: WorkloadSettings, name: str = NAME) -> None:
        self.name = name
        self._settings = settings
        self._values = count(settings.first_value)
        self._keys = tuple(spec.key for spec in settings.partitions)
        self._idempotent_every = settings.load.idempotent_every if name == NAME else 1  # 0: none
        if self._idempotent_every:  # the library is loaded where it is used
            self._idempotent = import_module("floodmark.workloads.idempotent").session_maker(settings)

    @property
    def guarantees(self) -> Mapping[str, Any]:
        idempotent = self._idempotent_every > 0
        return {"acks": "all" if idempotent else self._settings.acks, "idempotence": idempotent,
                "retries": _RETRIES if idempotent else 0, "isolation": "read_uncommitted"}

    def intents(self, process: int, random: Random) -> Iterator[Intent]:
        """Draw intents; for an idempotent process without list_offsets: the library lists offsets without a
        leader epoch, so that a zombie leader's answer could make a correct cluster look broken."""
        share, load = reading_share(process, self._settings), self._settings.load
        if self._is_idempotent(process):
            return (intent for intent in intents(self._keys, self._values, share, random, load)
                    if intent.f != "list_offsets")
        # Some processes' sends wait for the leader alone. Each is an info then: the run's guarantee does not
        # cover it. A leader that is cut off goes on appending what such processes send.
        with_acks_1 = self._settings.acks == "all" and is_one(process, self._settings, load.acks_1_every, 1)
        drawn = intents(self._keys, self._values, share, random,
                        replace(load, batch_sizes=_ACKS_1_BATCHES) if with_acks_1 else load)
        return (replace(intent, acks="1") if with_acks_1 and intent.f == "send" else intent
                for intent in drawn)

    def probe(self, partition: int) -> Intent:
        return send(partition, [next(self._values)])

    def session(self, process: int) -> Session:
        return self._session(process, idempotent=self._is_idempotent(process))

    def final_session(self, process: int) -> Session:
        return self._session(process, idempotent=self.name != NAME, final=True)

    def _session(self, process: int, *, idempotent: bool, final: bool = False) -> Session:
        if not idempotent:
            return LogSession(self._settings, process, final=final)
        made: Session = self._idempotent(process, final=final)
        return made

    def _is_idempotent(self, process: int) -> bool:
        return is_one(process, self._settings, self._idempotent_every)


def make(settings: WorkloadSettings) -> Workload:
    refuse_compression(settings)
    return LogWorkload(settings)


def refuse_compression(settings: WorkloadSettings) -> None:
    """Raise UsageError if the client of record does not have it."""
    if settings.load.compression not in ("none", "gzip"):
        raise UsageError("the client of record compresses by gzip or not at all, not by "
                         f"{settings.load.compression}")


# -- the ops, shared with the idempotent workload ----------------------------------------------------------

def is_one(process: int, settings: WorkloadSettings, every: int, place: int = 0) -> bool:
    """Whether a process is one of those of which there is one in `every` (0: none)."""
    return every > 0 and process % settings.concurrency % every == place


def reading_share(process: int, settings: WorkloadSettings) -> float:
    every = settings.load.readers_every
    if settings.concurrency < every:
        return _MIXED_SHARE
    return _READING_SHARE if is_one(process, settings, every, every - 1) else 0.0


def intents(keys: Sequence[int], values: Iterator[int], share: float, random: Random,
            load: LoadShape) -> Iterator[Intent]:
    """Draw intents without end. The first read is an assign; so is the one after each series of reads."""
    left, assigned = 0, tuple(keys[:1])
    while True:
        if random.random() >= share:
            sent = [next(values) for _ in range(random.choice(load.batch_sizes))]
            yield send(random.choice(busy_keys(keys, sent[0], load.rest_for)), sent)
        elif left == 0:
            left = random.randint(*_READS_PER_ASSIGN)
            assigned = tuple(sorted(random.sample(keys, random.randint(1, min(2, len(keys))))))
            yield Intent(f="assign", partitions=assigned)
        else:
            left -= 1
            if left % _END_OFFSETS_EVERY == 0:
                yield Intent(f="list_offsets", partitions=(random.choice(assigned),))
            else:
                yield Intent(f="poll")


def busy_keys(keys: Sequence[int], value: int, rest_for: int) -> Sequence[int]:
    """The partitions that this value may be sent to. While a partition rests, what its brokers think of one
    another is not overtaken by new records."""
    if not rest_for or len(keys) < 2:
        return keys
    return Random(value // rest_for).sample(keys, len(keys) // 2)


def send(partition: int, values: Sequence[int]) -> Intent:
    return Intent(f="send", sends=tuple(Send(partition=partition, value=value) for value in values))

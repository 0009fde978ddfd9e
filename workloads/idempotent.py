"""The idempotent workload: sends and polls by confluent-kafka, as an application would.

The library retries by itself, so that every outcome except ok is info. With one batch in flight it never
writes a duplicate; with several it may (logdir.py), and the judge then permits that one. Each process
has one producer and one consumer. The library blocks and calls back from poll(), so that each op runs in a
thread of the workload. In a simulation, which no library can enter, the client of record does all of this
(harness/client/client.py).
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from floodmark.harness.client.classify import CONNECTION, TIMEOUT, retried
from floodmark.harness.errors import FloodmarkError, UnfitCluster, UsageError
from floodmark.harness.op import Intent, LogOffset, Outcome, Read, Send, Type
from floodmark.harness.protocols import Session, Workload, WorkloadSettings
from floodmark.harness.record_batches import MARK
from floodmark.workloads.log import LogSession, LogWorkload, refuse_compression

NAME = "idempotent"
_MESSAGE_TIMEOUT_MS = 3000
_SEND_TIMEOUT_S = 5.0  # librdkafka checks once a second for messages that timed out
_POLL_TIMEOUT_S = 0.3
_POLL_RECORDS = 500
_ASK_TIMEOUT_S = 1.5
_FLUSH_TIMEOUT_S = 0.2
_CLOSE_TIMEOUT_S = 5.0
_BACKOFFS = {  # short back-offs: the leaders of a test cluster change within seconds
    "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.fast.interval.ms": 20,
    "socket.connection.setup.timeout.ms": 1000, "socket.timeout.ms": 1000, "log_level": 0,
}


_SILENT = logging.getLogger("floodmark.confluent")  # errors are in the op's outcome
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class IdempotentSession:
    """One process with a producer and a consumer, each created when first needed."""

    def __init__(self, settings: WorkloadSettings, threads: ThreadPoolExecutor, *,
                 final: bool = False) -> None:
        self.over = False
        self._final = final
        self._settings = settings
        self._threads = threads
        self._places = {spec.key: spec.place for spec in settings.partitions}
        self._keys = {place: key for key, place in self._places.items()}
        self._producer: Producer | None = None
        self._sends_left = settings.load.producer_lasts  # 0: any number
        self._consumer: Consumer | None = None
        self._positions: dict[int, int] = {}

    async def apply(self, intent: Intent) -> Outcome:
        seeks = intent.offset is not None and not self._final
        if intent.node is not None or intent.acks is not None or seeks:
            raise FloodmarkError(f"a scripted {intent.f} with to, from, acks or offset needs the log "
                                 "workload: the library of the idempotent one chooses the broker itself")
        do = {"send": self._send, "poll": self._poll, "assign": self._assign,
              "list_offsets": self._list_offsets}.get(intent.f)
        if do is None:
            raise ValueError(f"the idempotent workload knows no {intent.f!r}")
        return await asyncio.get_running_loop().run_in_executor(self._threads, do, intent)

    async def close(self) -> None:
        """Close both clients, or give up on them after _CLOSE_TIMEOUT_S: librdkafka may wait for its own
        threads for ever (confluent-kafka-python issue 1667). In a daemon thread that wait blocks neither the
        run nor the exit of this process."""
        closed: Future[None] = Future()
        closed.set_running_or_notify_cancel()  # so that giving up does not cancel it

        def close() -> None:
            try:
                self._close()
            except Exception as error:
                closed.set_exception(error)
            else:
                closed.set_result(None)

        threading.Thread(target=close, name=f"{NAME}-close", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(closed), _CLOSE_TIMEOUT_S)

    # -- in a thread ------------------------------------------------------------------------------------

    def _send(self, intent: Intent) -> Outcome:
        sends, patience_s = intent.sends, intent.patience_s or 0.0
        delivered: dict[int, tuple[KafkaError | None, int | None]] = {}

        def note_delivery(index: int) -> Callable[[KafkaError | None, Message], None]:
            return lambda error, message: delivered.__setitem__(index, (error, message.offset()))

        try:
            producer = self._get_producer(patience_s)
            for index, one in enumerate(sends):
                topic, partition = self._places[one.partition]
                producer.produce(topic, value=b"%d" % one.value, partition=partition,
                                 headers=[(MARK.decode(), self._settings.run_id.encode())],
                                 on_delivery=note_delivery(index))
            deadline_s = time.monotonic() + max(_SEND_TIMEOUT_S, patience_s)
            while len(delivered) < len(sends) and time.monotonic() < deadline_s:
                producer.poll(0.05)
        except (KafkaException, BufferError, SystemError) as error:  # a fatal error may come as a SystemError
            self.over = True
            return Outcome(type=Type.INFO, sends=sends, error=_error_name(error))
        self._sends_left -= 1
        self.over = self.over or self._sends_left == 0
        return outcome_of_delivery(sends, delivered)

    def _assign(self, intent: Intent) -> Outcome:
        self._positions = {key: self._positions.get(key, 0) for key in intent.partitions}
        places = [TopicPartition(*self._places[key], offset) for key, offset in self._positions.items()]
        try:
            self._get_consumer().assign(places)
        except KafkaException as error:
            self.over = True
            return Outcome(type=Type.FAIL, error=_error_name(error))
        return Outcome(type=Type.OK, partitions=intent.partitions)

    def _poll(self, intent: Intent) -> Outcome:
        reads, errors = [], []
        if intent.offset is not None:
            self._positions = dict.fromkeys(intent.partitions, intent.offset)
            self._assign(intent)
        try:
            messages = self._get_consumer().consume(_POLL_RECORDS, timeout=_POLL_TIMEOUT_S)
        except KafkaException as error:
            self.over = True
            return Outcome(type=Type.FAIL, error=_error_name(error))
        for message in messages:
            if kafka_error := message.error():
                errors.append(_error_name(KafkaException(kafka_error)))
                # The log no longer has the record at the position (auto.offset.reset=error): a new process
                # begins.
                reset = kafka_error.code() == KafkaError._AUTO_OFFSET_RESET
                self.over = self.over or reset or kafka_error.fatal()
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None, "a record comes from somewhere"
            assert partition is not None, "a record comes from somewhere"
            assert offset is not None, "a record lies somewhere"
            key = self._keys[topic, partition]
            self._positions[key] = offset + 1
            if (value := self._read_value(message)) is not None:
                reads.append(Read(partition=key, offset=offset, value=value, epoch=message.leader_epoch()))
        if self._final and not messages:  # the library does not say whether a broker answered
            errors.append(TIMEOUT)
        if errors and not reads:
            return Outcome(type=Type.FAIL, error=errors[0])
        return Outcome(type=Type.OK, reads=tuple(reads))

    def _list_offsets(self, intent: Intent) -> Outcome:
        offsets, starts = [], []
        try:
            for key in intent.partitions:
                place = TopicPartition(*self._places[key])
                consumer = self._get_consumer()
                start, end = consumer.get_watermark_offsets(place, timeout=_ASK_TIMEOUT_S, cached=False)
                offsets.append(LogOffset(key, end))
                starts.append(LogOffset(key, start))
        except KafkaException as error:
            return Outcome(type=Type.FAIL, error=_error_name(error))
        return Outcome(type=Type.OK, offsets=tuple(offsets), starts=tuple(starts))

    def _read_value(self, message: Message) -> int | None:
        ours = message.headers() == [(MARK.decode(), self._settings.run_id.encode())]
        digits = message.value() or b""
        return int(digits) if ours and message.key() is None and digits.isdigit() else None

    def _get_producer(self, patience_s: float) -> Producer:
        """patience_s: how long its sends are tried at least; it counts only when the producer is created."""
        if self._producer is None:
            load = self._settings.load
            # Batches of two records at most: an op then has several of them in flight.
            several = {"batch.num.messages": 2} if load.in_flight > 1 else {}
            self._producer = Producer({
                **_BACKOFFS, **self._settings.library, "bootstrap.servers": self._bootstrap(),
                "enable.idempotence": True,
                "linger.ms": 0, "compression.type": load.compression,
                "max.in.flight": load.in_flight, **several,
                "message.timeout.ms": max(_MESSAGE_TIMEOUT_MS, round(1000 * patience_s)),
                "request.timeout.ms": 1000,
            }, logger=_SILENT)
        return self._producer

    def _get_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({
                **_BACKOFFS, **self._settings.library, "bootstrap.servers": self._bootstrap(),
                "group.id": f"floodmark-{self._settings.run_id}",
                "enable.auto.commit": False, "auto.offset.reset": "error", "check.crcs": True,
                "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 20,
            }, logger=_SILENT)
        return self._consumer

    def _bootstrap(self) -> str:
        assert self._settings.addresses is not None, "the workload is made with addresses alone"
        return ",".join(f"{host}:{port}" for host, port in self._settings.addresses().values())

    def _close(self) -> None:
        """Close both; messages that still wait in the producer are dropped: their op was an info."""
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=False)
            try:
                self._producer.flush(_FLUSH_TIMEOUT_S)
            except (KafkaException, SystemError):
                pass  # a fatal error, which the op's outcome has
            self._producer = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def session_maker(settings: WorkloadSettings) -> Callable[..., Session]:
    if settings.addresses is None:
        if not settings.wire:
            raise UnfitCluster("the idempotent workload speaks Kafka's wire, and this cluster has no "
                               "addresses: use --workload log")
        refuse_compression(settings)
    if settings.acks != "all":
        raise UsageError(f"the idempotent workload needs acks all, not {settings.acks}")
    if settings.addresses is None:
        return lambda process, *, final: LogSession(settings, process, final=final, idempotent=True)
    threads = ThreadPoolExecutor(max_workers=settings.concurrency + len(settings.partitions) + 1,
                                 thread_name_prefix=NAME)
    return lambda _, *, final: IdempotentSession(settings, threads, final=final)


def make(settings: WorkloadSettings) -> Workload:
    return LogWorkload(settings, NAME)


def outcome_of_delivery(
    sends: Sequence[Send], delivered: Mapping[int, tuple[KafkaError | None, int | None]]
) -> Outcome:
    """delivered: position of a send -> error and offset, from the library's callback. ok only if every value
    was delivered at an offset. A value that the library gave up on may have been appended by an earlier
    attempt. One without an offset was acked by no broker: librdkafka calls a refused batch delivered as soon
    as a later one of its producer was acked. That does not follow: where a broker has no batch of a producer,
    Kafka lets it begin anywhere, also with the later one."""
    errors = [error for error, _ in delivered.values() if error is not None]
    if errors or len(delivered) < len(sends):
        name = _error_name(KafkaException(errors[0])) if errors else TIMEOUT
        return Outcome(type=Type.INFO, sends=tuple(sends), error=name)
    return retried(sends, [delivered[index][1] for index in range(len(sends))])


def _error_name(error: Exception) -> str:
    """Kafka's name of the error; CONNECTION or TIMEOUT for the library's own errors."""
    kafka_error = error.args[0] if isinstance(error, KafkaException) and error.args else None
    if not isinstance(kafka_error, KafkaError):
        return CONNECTION
    if kafka_error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT):
        return TIMEOUT
    return CONNECTION if kafka_error.code() < -1 else str(kafka_error.name())

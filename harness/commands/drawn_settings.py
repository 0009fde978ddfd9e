"""Draws a run's settings from its seed: cluster, brokers' config and load (`--settings drawn`).

Rules
1. Settings that the user gave are kept, and the drawn ones fit them.
2. The drawn settings permit no loss under the planned faults: each ack rests on two copies at least, unless
   every write is fsynced (then a power cut loses nothing).
3. The same seed and the same options draw the same settings. The faults are drawn by another Random.
4. The settings that decide most what shows go round with the seed, each at its own period, so that three
   seeds in a row have all replicas in sync in one run, an fsync after every write in one or two, a lag limit
   below the session in one or two, and small segments in one or more.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.broker_config import broker_keys
from floodmark.harness.protocols import USUAL_LOAD, Compression, LoadShape
from floodmark.harness.spec import TOPIC, RunSpec, key_values, pairs

SESSION, LAG, WAIT = "broker.session.timeout.ms", "replica.lag.time.max.ms", "replica.fetch.wait.max.ms"
LEAST_ISR, FLUSH, SEGMENT = "min.insync.replicas", "log.flush.interval.messages", "log.segment.bytes"
CHECKPOINT = "replica.high.watermark.checkpoint.interval.ms"
UNCLEAN = "unclean.leader.election.enable"
LOG, IDEMPOTENT = "log", "idempotent"
_COMPRESSIONS: Mapping[str, tuple[Compression, ...]] = {
    LOG: ("none", "none", "gzip"), IDEMPOTENT: ("none", "gzip", "snappy", "lz4", "zstd"),
}
_SMALL_BATCH = 4  # records
_SESSIONS_MS = (1000, 1000, 1500, 2000)
_INTERVALS_S = (0.5, 1.0, 1.0, 2.0)
# Each goes round with the seed; the lengths have no common divisor, so that all combinations come up.
_ALL_IN_SYNC = (True, False, False)
_SEGMENTS = (4 << 10, 16 << 10, 64 << 10, 0)  # bytes; 0: a large one
_FLUSHES = (True, False, True, False, False)
_LAG_FACTORS = (0.5, 2.0, 1.0, 0.7, 3.0, 0.5, 2.0)  # of the session
_BATCH_SIZES = ((1, 1, 1, 1, 1, 2, 3, 4), (1, 2, 5, 10), (5, 10, 20))


def with_drawn_settings(spec: RunSpec) -> RunSpec:
    """The spec with all that was not given drawn from its seed. Given values change no other draw."""
    assert spec.seed is not None, "the settings are drawn from it"
    seed, random = spec.seed, Random(f"{spec.seed}/settings")
    given = broker_keys(pairs((*spec.config, *spec.topic_config)))
    reference = spec.kafka is None  # other systems' settings are unknown here
    at_place = catalog.takes_system(spec.cluster)
    # Kafka's library (simulated: what takes its place) reaches it. A schedule's own sends may say whom they
    # ask, which the library chooses for itself.
    library = at_place and spec.schedule_file is None and spec.acks == "all"
    nodes = max(spec.replication_factor or 1, random.choice((3, 3, 3, 4, 5)))
    nodes = spec.nodes if "nodes" in spec.given else nodes
    partitions = random.choice((1, 2, 4, 4, 6, 8))
    partitions = max(partitions, 4) if nodes > 3 else partitions  # else some nodes would have none
    factor = min(nodes, random.choice((3, 3, 3, 4)))
    # Seldom the library alone, whose answers hide most faults; it sends beside the log workload, too.
    workload = random.choice((*7 * (LOG,), IDEMPOTENT))
    if "workload" in spec.given or not library:
        workload = spec.workload
    partitions = spec.partitions if "partitions" in spec.given else partitions
    factor = spec.replication_factor or factor
    interval_s = random.choice(_INTERVALS_S)
    drawn_pace = reference and "interval" not in spec.given  # other systems recover later
    config = _config(random, seed, factor, given)
    fsyncs = _number({**config, **given}, FLUSH, 0) == 1
    load = _load(random, workload, library=library, simulated=spec.cluster == catalog.SIMULATED,
                 fsyncs=fsyncs)
    if config.get(SEGMENT) == str(4 << 10) and max(load.batch_sizes) > _SMALL_BATCH:
        config[SEGMENT] = str(16 << 10)  # a file every few batches: the brokers would do little else
    of_topic = _topic_config(random, config, given)
    if not reference:
        config = {key: value for key, value in config.items() if key in (LEAST_ISR, FLUSH)}
    if not (reference and at_place and not spec.assignment):
        of_topic = {}
    if of_topic:
        config[LEAST_ISR] = "1"  # an administrator altered the topic; its brokers have Kafka's default
    values: dict[str, Any] = {
        "nodes": nodes, "partitions": partitions, "replication_factor": factor, "workload": workload,
        **({"interval": interval_s} if drawn_pace else {})}
    recorded = {**{key: value for key, value in values.items() if key not in spec.given}, **config}
    recorded |= {"topic_config": of_topic} if of_topic else {}
    return replace(spec, **values, load=load, drawn=recorded, topics={TOPIC: of_topic} if of_topic else {},
                   config=(*key_values(config), *spec.config))


def _config(random: Random, seed: int, factor: int, given: Mapping[str, str]) -> dict[str, str]:
    """The drawn keys, without given ones."""
    session_ms = _number(given, SESSION, random.choice(_SESSIONS_MS))
    lag_ms = round(session_ms * _LAG_FACTORS[seed % len(_LAG_FACTORS)])
    wait_ms = random.choice((100, 300, 500))
    lag_ms = max(lag_ms, _number(given, WAIT, 0))
    wait_ms = min(wait_ms, _number(given, LAG, lag_ms))
    drawn = {SESSION: str(session_ms), LAG: str(lag_ms), WAIT: str(wait_ms),
             CHECKPOINT: random.choice(("200", "1000", "5000"))}
    segment = _SEGMENTS[seed % len(_SEGMENTS)] or random.choice((1 << 20, None))
    drawn |= {SEGMENT: str(segment)} if segment is not None else {}
    flushes = _FLUSHES[seed % len(_FLUSHES)]  # there a power cut may take all copies at once
    least_isr = random.choice((1, factor - 1, factor - 1, min(2, factor), min(2, factor)))
    if _ALL_IN_SYNC[seed % len(_ALL_IN_SYNC)]:
        least_isr = min(3, factor)  # of three: a replica that stays out of the ISR then stops every ack
    fsyncs = _number(given, FLUSH, 1 if flushes or least_isr < 2 else 0) == 1
    if least_isr < 2 and not fsyncs:
        least_isr = min(2, factor)
    if fsyncs:
        drawn[FLUSH] = "1"
    drawn[LEAST_ISR] = str(max(1, least_isr))
    return {key: value for key, value in drawn.items() if key not in given}


def _topic_config(random: Random, drawn: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The drawn min.insync.replicas as the topic's own, in half of the runs, and no unclean elections."""
    if random.random() < 0.5 or LEAST_ISR not in drawn:
        return {}
    return {LEAST_ISR: drawn[LEAST_ISR], **({} if UNCLEAN in given else {UNCLEAN: "false"})}


def _number(given: Mapping[str, str], key: str, otherwise: int) -> int:
    """A given number; an invalid value is refused later, by the code that uses it."""
    value = given.get(key, "")
    return int(value) if value.isascii() and value.isdecimal() else otherwise


def _load(random: Random, workload: str, *, library: bool, simulated: bool, fsyncs: bool) -> LoadShape:
    """library: whether Kafka's or what takes its place may be used, with acks=all. fsyncs: after every write.
    Else no process sends with acks=1: what it sends may be read while one replica alone has it, and be lost
    by a power cut."""
    sizes, in_flight = random.choice(_BATCH_SIZES), random.choice((1, 5, 5))
    compression = random.choice(_COMPRESSIONS.get(LOG if simulated else workload, _COMPRESSIONS[LOG][:1]))
    readers_every, idempotent_every = random.choice((2, 3, 4, 4)), random.choice((0, 3, 4, 5))
    rest_for = random.choice((0, 0, 0, 3000, 10_000, 30_000))
    sharing_every = random.choice((0, 1, 2, 2)) if library and workload == LOG else 0
    producer_lasts = random.choice((0, 5, 50))
    acks_1_every, timeout_ms = random.choice((5, 10)), random.choice((300, 1000))
    if workload not in _COMPRESSIONS:  # of another distribution: it may not support this
        return USUAL_LOAD
    idempotent_every = idempotent_every if library and workload == LOG else 0
    produces = workload == IDEMPOTENT or idempotent_every > 0
    return LoadShape(batch_sizes=sizes, compression=compression, readers_every=readers_every,
                     in_flight=in_flight if produces else 1, idempotent_every=idempotent_every,
                     rest_for=rest_for, sharing_every=sharing_every,
                     producer_lasts=producer_lasts if produces else 0,
                     acks_1_every=acks_1_every if fsyncs and workload == LOG else 0,
                     timeout_ms=timeout_ms if workload == LOG else USUAL_LOAD.timeout_ms)

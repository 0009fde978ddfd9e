"""The ops of the workloads: unique values, one partition a send, reads that were assigned, by the seed."""

from ast import literal_eval
from itertools import islice
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError
from golden_text import answered_as_written

from floodmark.harness import catalog
from floodmark.harness.client.client import wire_clients
from floodmark.harness.errors import UnfitCluster, UsageError
from floodmark.harness.op import Intent, Send, Type
from floodmark.harness.protocols import USUAL_LOAD, LoadShape, PartitionSpec, Workload, WorkloadSettings
from floodmark.harness.runner import first_free_value, spread
from floodmark.harness.schedule.moments import Entry
from floodmark.workloads.idempotent import IdempotentSession, outcome_of_delivery
from floodmark.workloads.log import LogSession

PARTITIONS = tuple(
    PartitionSpec(key=key, topic="log", partition=key, replicas=("n1", "n2", "n3")) for key in range(4))


def settings_of(acks: str = "all", concurrency: int = 8, load: LoadShape = USUAL_LOAD, **changes: Any
                ) -> WorkloadSettings:
    return WorkloadSettings(**{
        "run_id": "0" * 16, "seed": 1, "partitions": PARTITIONS, "addresses": dict, "acks": acks,
        "concurrency": concurrency, "first_value": 100, "clients": wire_clients(dict), "load": load,
        **changes})


def made(name: str, acks: str = "all", concurrency: int = 8, load: LoadShape = USUAL_LOAD) -> Workload:
    return catalog.workload(name, settings_of(acks, concurrency, load))


def drawn(workload: Workload, process: int, size: int = 400) -> list[Intent]:
    return list(islice(workload.intents(process, Random(process)), size))


@pytest.mark.parametrize("name", ["log", "idempotent"])
def test_values_are_unique_over_all_processes_and_probes_and_begin_at_the_first(name: str) -> None:
    """A send goes to one partition and carries one to four of them."""
    workload = made(name)
    ops = [*drawn(workload, 0), *drawn(workload, 1), *drawn(workload, 3)]
    sends = [intent.sends for intent in ops if intent.f == "send"]
    probes = [workload.probe(key).sends for key in range(4)]
    values = [send.value for micro in (*sends, *probes) for send in micro]
    assert len(values) == len(set(values))
    assert min(values) == 100
    assert {len(micro) for micro in sends} == {1, 2, 3, 4}
    assert all(len({send.partition for send in micro}) == 1 for micro in sends)
    assert {micro[0].partition for micro in sends} == {0, 1, 2, 3}


def shown(line: str) -> str:
    """A workload, its load and concurrency: what the processes do, those together that do the same."""
    name, *options = line.split()
    shape = {key: literal_eval(value) for key, value in (option.split("=") for option in options)}
    concurrency = shape.pop("concurrency", 8)
    workload, told = made(name, concurrency=concurrency, load=LoadShape(**shape)), dict[str, list[int]]()
    for process in range(2 * concurrency):
        ops = drawn(workload, process, 2000)
        sends = [one for one in ops if one.f == "send"]
        words = [*sorted({one.f for one in ops} - {"send"}), "send",
                 ",".join(map(str, sorted({len(one.sends) for one in sends}))),
                 *(f"with acks {acks}" for acks in {one.acks for one in sends} - {None}),
                 *(["idempotently"] if isinstance(workload.session(process), IdempotentSession) else [])]
        told.setdefault(" ".join(words), []).append(process)
    assert isinstance(workload.final_session(0), LogSession if name == "log" else IdempotentSession)
    return "= " + "; ".join(f"{' '.join(map(str, each))}: {words}" for words, each in told.items())


def test_what_the_processes_of_a_load_do(request: pytest.FixtureRequest) -> None:
    answered_as_written("loads.txt", shown, request)


@pytest.mark.parametrize("name", ["log", "idempotent"])
def test_partitions_rest_in_turn(name: str) -> None:
    """Half of them at a time, for as many values; none without rest_for."""
    workload = made(name, load=LoadShape(batch_sizes=(1,), rest_for=50))
    busy: dict[int, set[int]] = {}
    for one in drawn(workload, 0):
        if one.f == "send":
            busy.setdefault(one.sends[0].value // 50, set()).add(one.sends[0].partition)
    keys = {*range(len(settings_of().partitions))}
    assert {len(some) for some in busy.values()} == {len(keys) // 2}
    assert set.union(*busy.values()) == keys
    always = {one.sends[0].partition for one in drawn(made(name), 0, 50) if one.f == "send"}
    assert always == keys


def test_a_load_that_its_client_cannot_send_is_refused() -> None:
    for name, changes in {"log": {}, "idempotent": {"addresses": None}}.items():
        with pytest.raises(UsageError, match="compresses by gzip or not at all, not by lz4"):
            catalog.workload(name, settings_of(load=LoadShape(compression="lz4"), **changes))
    made("idempotent", load=LoadShape(compression="lz4"))
    with pytest.raises(UsageError, match="needs acks all"):
        made("idempotent", acks="1")


def test_where_no_library_can_be_the_client_of_record_takes_its_place() -> None:
    """A client of another distribution's cluster cannot: it may not know what an idempotent producer is."""
    for load, name in {USUAL_LOAD: "idempotent", LoadShape(idempotent_every=4): "log"}.items():
        workload = catalog.workload(name, settings_of(addresses=None, load=load))
        assert isinstance(workload.session(0), LogSession)
        assert workload.guarantees == made("idempotent").guarantees
        with pytest.raises(UnfitCluster, match="has no addresses: use --workload log"):
            catalog.workload(name, settings_of(addresses=None, wire=False, load=load))


def test_nothing_is_read_before_it_was_assigned() -> None:
    assigned: tuple[int, ...] = ()
    for intent in drawn(made("log"), 3):
        if intent.f == "assign":
            assigned = intent.partitions
        elif intent.f == "poll":
            assert assigned
        elif intent.f == "list_offsets":
            assert set(intent.partitions) <= set(assigned)


ONE, TWO = Send(partition=0, value=7), Send(partition=0, value=8)


@pytest.mark.parametrize(("delivered", "kind", "offsets", "error"), [
    ({0: (None, 4), 1: (None, 5)}, Type.OK, [4, 5], None),
    ({0: (None, 4), 1: (None, -1)}, Type.INFO, [None, None], "NO_OFFSET"),  # no broker has acked it
    ({0: (None, 4), 1: (None, None)}, Type.INFO, [None, None], "NO_OFFSET"),
    ({0: (None, 4)}, Type.INFO, [None, None], "TIMEOUT"),  # no delivery report of the other
    ({}, Type.INFO, [None, None], "TIMEOUT"),
    ({0: (None, 4), 1: (KafkaError(KafkaError._MSG_TIMED_OUT), None)}, Type.INFO, [None, None], "TIMEOUT"),
    ({0: (None, 4), 1: (KafkaError(45), None)}, Type.INFO, [None, None], "OUT_OF_ORDER_SEQUENCE_NUMBER"),
])
def test_an_idempotent_send_is_ok_only_if_every_value_was_delivered(
        delivered: dict[int, tuple[KafkaError | None, int | None]], kind: Type, offsets: list[int | None],
        error: str | None) -> None:
    outcome = outcome_of_delivery((ONE, TWO), delivered)
    assert (outcome.type, outcome.error) == (kind, error)
    assert [send.offset for send in outcome.sends] == offsets


def test_replicas_and_preferred_leaders_are_spread_over_the_nodes() -> None:
    specs = spread(("n1", "n2", "n3", "n4"), "log", 3, 2)
    assert [spec.replicas for spec in specs] == [("n1", "n2"), ("n2", "n3"), ("n3", "n4")]
    with pytest.raises(UsageError, match="needs as many nodes"):
        spread(("n1", "n2"), "log", 1, 3)


def test_values_begin_above_those_a_schedule_sends() -> None:
    assert first_free_value(()) == 0
    assert first_free_value((Entry(f="kill", nodes=("n1",)), Entry(f="send", args={"sends": [
        {"partition": 0, "value": 17}, {"partition": 0, "value": 4}]}))) == 18

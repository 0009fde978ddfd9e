"""What `--settings drawn` draws: from the seed, around what was given, never permitting a loss."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from floodmark.harness.commands.drawn_settings import (
    FLUSH,
    LAG,
    LEAST_ISR,
    SEGMENT,
    SESSION,
    UNCLEAN,
    WAIT,
    with_drawn_settings,
)
from floodmark.harness.commands.run import planned
from floodmark.harness.runner import guarantees, spread
from floodmark.harness.spec import RunSpec, key_values

seeds = st.integers(0, 2**31)


class Drawn(RunSpec):
    """What was drawn, apart from what was given."""

    @property
    def keys(self) -> Mapping[str, str]:
        return {key: value for key, value in (self.drawn or {}).items() if "." in key}

    @property
    def topic_keys(self) -> Mapping[str, str]:
        return self.topics.get("log", {})


def draw(seed: int, by_hand: tuple[str, ...] = (), config: Mapping[str, str] | None = None, **more: Any
         ) -> Drawn:
    spec = with_drawn_settings(RunSpec(seed=seed, given=frozenset(by_hand), config=key_values(config or {}),
                                       **more))
    return Drawn(**{one.name: getattr(spec, one.name) for one in fields(RunSpec)})


@given(seed=seeds)
def test_what_is_drawn_permits_no_loss(seed: int) -> None:
    """Two copies behind each ack, or every write fsynced."""
    drawn = draw(seed)
    least_isr = int({**drawn.keys, **drawn.topic_keys}[LEAST_ISR])
    assert least_isr >= 2 or drawn.keys[FLUSH] == "1"
    assert least_isr <= drawn.replication_factor <= drawn.nodes
    assert drawn.keys.get(SEGMENT) != "4096" or max(drawn.load.batch_sizes) <= 4
    assert int(drawn.keys[WAIT]) <= int(drawn.keys[LAG])
    assert drawn == draw(seed)


@given(seed=seeds)
def test_given_settings_stay_and_drawn_ones_fit_them(seed: int) -> None:
    by_hand = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "300", SEGMENT: "99999", FLUSH: "7"}
    drawn = draw(seed, ("nodes", "partitions", "workload", "interval"), by_hand, nodes=5, partitions=3,
                 replication_factor=2, workload="idempotent", interval=7.0)
    assert (drawn.nodes, drawn.partitions, drawn.interval) == (5, 3, 7.0)
    assert (drawn.replication_factor, drawn.workload) == (2, "idempotent")
    assert not {*by_hand} & {*drawn.keys}
    assert int(drawn.keys[WAIT]) <= 300
    assert not {"nodes", "partitions", "workload", "interval", *by_hand} & {*(drawn.drawn or {})}


@given(seed=seeds)
def test_a_topics_own_settings_are_drawn_where_a_topic_can_have_them(seed: int) -> None:
    """The brokers then have Kafka's default, so that only the topic's own setting keeps acked records."""
    drawn, without = draw(seed), draw(seed, assignment=spread(("n1",), "log", 1, 1))
    assert not without.topic_keys
    assert not draw(seed, kafka="4.3.1").topic_keys
    assert LEAST_ISR not in draw(seed, config={LEAST_ISR: "2"}).topic_keys
    if drawn.topic_keys:
        assert drawn.topic_keys == {LEAST_ISR: without.keys[LEAST_ISR], UNCLEAN: "false"}
        assert drawn.keys == {**without.keys, LEAST_ISR: "1"}
        assert draw(seed, config={UNCLEAN: "true"}).topic_keys == {LEAST_ISR: without.keys[LEAST_ISR]}
    else:
        assert (drawn.drawn, drawn.config) == (without.drawn, without.config)


@given(seed=seeds)
def test_library_settings_are_drawn_only_where_the_library_reaches_the_cluster(seed: int) -> None:
    for drawn in (draw(seed, cluster="somebodys"), draw(seed, acks="1")):
        assert (drawn.workload, drawn.load.idempotent_every, drawn.load.in_flight) == ("log", 0, 1)
        assert drawn.load.sharing_every == 0
    assert draw(seed, ("workload",), workload="idempotent").load.idempotent_every == 0
    other = draw(seed, kafka="4.3.1")
    assert {*other.keys} <= {LEAST_ISR, FLUSH}
    assert (other.interval, "interval" in (other.drawn or {})) == (5.0, False)


@given(seed=seeds)
def test_the_client_of_record_gets_no_compression_that_it_does_not_have(seed: int) -> None:
    drawn = draw(seed, ("workload",), workload="idempotent", cluster="simulated")
    assert drawn.load.compression in ("none", "gzip")


def test_everything_is_drawn_by_some_seed() -> None:
    drawn = [draw(seed) for seed in range(400)]
    assert {one.nodes for one in drawn} == {3, 4, 5}
    assert {one.keys.get(SEGMENT) for one in drawn} == {None, "4096", "16384", "65536", "1048576"}
    assert {one.keys[SESSION] for one in drawn} == {"1000", "1500", "2000"}
    assert {one.interval for one in drawn} == {0.5, 1.0, 2.0}
    beyond = {int(one.keys[LAG]) - int(one.keys[SESSION]) for one in drawn}
    assert min(beyond) < 0 < max(beyond)
    assert {one.keys.get(FLUSH) for one in drawn} == {None, "1"}
    assert {one.keys[LEAST_ISR] for one in drawn} == {"1", "2", "3"}
    assert {one.topic_keys.get(LEAST_ISR) for one in drawn} == {None, "1", "2", "3"}
    assert {one.load.rest_for for one in drawn} == {0, 3000, 10_000, 30_000}
    assert {one.load.sharing_every for one in drawn if one.workload == "log"} == {0, 1, 2}
    assert {one.load.sharing_every for one in drawn if one.workload != "log"} == {0}
    assert {one.load.idempotent_every for one in drawn if one.workload == "log"} == {0, 3, 4, 5}
    producing = [one for one in drawn if one.workload == "idempotent" or one.load.idempotent_every]
    assert {one.load.in_flight for one in producing} == {1, 5}
    assert {one.load.in_flight for one in drawn if one not in producing} == {1}
    assert {one.load.acks_1_every for one in drawn} == {0, 5, 10}
    assert {one.keys.get(FLUSH) for one in drawn if one.load.acks_1_every} == {"1"}
    assert {one.load.timeout_ms for one in drawn} == {300, 1000}
    assert {one.load.producer_lasts for one in producing} == {0, 5, 50}
    assert {one.load.producer_lasts for one in drawn if one not in producing} == {0}
    assert {one.load.compression for one in drawn} == {"none", "gzip", "snappy", "lz4", "zstd"}


@given(first=seeds)
def test_three_seeds_in_a_row_differ_where_it_matters(first: int) -> None:
    drawn = [draw(seed) for seed in range(first, first + 3)]
    least_isr = [int({**one.keys, **one.topic_keys}[LEAST_ISR]) for one in drawn]
    assert any(least == min(3, one.replication_factor) for least, one in zip(least_isr, drawn, strict=True))
    assert any(one.keys.get(FLUSH) == "1" for one in drawn)
    assert any(int(one.keys[LAG]) < int(one.keys[SESSION]) for one in drawn)
    assert any(int(one.keys.get(SEGMENT, 1 << 30)) <= 16 << 10 for one in drawn)


def test_a_run_records_what_was_drawn(tmp_path: Path) -> None:
    plan = planned(RunSpec(cluster="simulated", settings="drawn", seed=3, nemesis="all",
                              config=("segment.bytes=4096",), out=tmp_path / "run"))
    assert plan.spec.drawn is not None
    assert plan.spec.drawn["nodes"] == len(plan.cluster.nodes)
    assert plan.spec.drawn[LAG] == str(plan.cluster.config["n1"][LAG])
    assert plan.cluster.config["n1"][SEGMENT] == 4096
    assert planned(RunSpec(cluster="simulated", seed=3, out=tmp_path / "run")).spec.drawn is None


def test_a_drawn_topic_is_planned_with_its_own_min_insync_replicas(tmp_path: Path) -> None:
    plan = next(plan for plan in (
        planned(RunSpec(settings="drawn", seed=seed, nemesis="power", out=tmp_path / f"{seed}"),
                ask_broker=False)
        for seed in range(20)) if "topic_config" in (plan.spec.drawn or {}))
    assert plan.spec.drawn is not None
    assert plan.cluster.system["topics"] == {"log": plan.spec.drawn["topic_config"]}
    assert plan.cluster.config["n1"][LEAST_ISR] == 1
    assert guarantees(plan)["min_insync_replicas"] == int(plan.spec.drawn["topic_config"][LEAST_ISR])
    assert any(entry.f == "power_cut" for entry in plan.schedule)

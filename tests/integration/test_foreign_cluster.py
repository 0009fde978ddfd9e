"""`run --bootstrap` on a system of others, of which only the wire is seen: its bugs, each beside what a
correct system may show too."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Answer, floodmark, verdict
from foreign_broker import ForeignCluster, Quirk, foreign_cluster

from floodmark.harness import runner
from floodmark.harness.commands.own_cluster import planned_on_own
from floodmark.harness.spec import RunSpec

pytestmark = pytest.mark.spark
GIVEN_UP_S = 2.2  # more than twice the system's session and lag time
SHORT = ("--partitions", "2", "--concurrency", "4", "--rate", "200", "--duration", "2", "--seed", "1")


@pytest.fixture
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not settle, or cannot be read, is given up soon."""
    settle = runner.settle
    monkeypatch.setattr(runner, "settle", lambda *given: settle(*given[:-1], GIVEN_UP_S))
    monkeypatch.setattr(runner, "read_all", partial(runner.read_all, stall_s=GIVEN_UP_S))


def run(cluster: ForeignCluster, folder: Path, *words: object) -> Answer:
    return floodmark("run", "--bootstrap", cluster.bootstrap, *SHORT, *words, "--out", folder / "run")


def about(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "run" / "run.json").read_text())
    return data


@pytest.mark.parametrize("quirks", [
    (), (Quirk.PARTIAL_LAST_BATCH, Quirk.LSO_BELOW_HW),
    (Quirk.QUIET_FETCH, Quirk.OLD_FETCH, Quirk.EMPTY_BY_QUOTA)], ids=str)
def test_a_correct_foreign_system_is_valid(tmp_path: Path, quirks: tuple[Quirk, ...]) -> None:
    with foreign_cluster(*quirks) as cluster:
        ran = run(cluster, tmp_path, "--strict")

        assert ran.code == 0, ran.err + ran.out
        assert about(tmp_path)["settled"] is True
        assert not cluster.topics


def restarted(cluster: ForeignCluster, folder: Path) -> Answer:
    """A run in which all brokers are killed once, and started when it mends."""
    schedule = folder / "s.json"
    schedule.write_text(json.dumps([{"f": "kill", "nodes": ["n1", "n2", "n3"],
                                     "moment": {"at": "time", "time": 1_500_000_000}}]))
    return run(cluster, folder, "--i-may-break-this", "--faults", cluster.faults_file(folder / "f.toml"),
               "--schedule", schedule, "--strict")


def found(folder: Path) -> dict[str, str]:
    """The findings: name -> the `how` of its first example."""
    return {one["name"]: one["examples"][0]["how"] for one in verdict(folder / "run")["findings"]}


def unknown(folder: Path) -> set[str]:
    return {name for one in verdict(folder / "run")["unknown"] for name in one["names"]}


@pytest.mark.parametrize("quirk", [None, Quirk.NO_CONTROLLER_YET], ids=str)
def test_a_restart_of_all_its_brokers_is_valid(tmp_path: Path, quirk: Quirk | None) -> None:
    with foreign_cluster(*([quirk] if quirk else [])) as cluster:
        ran = restarted(cluster, tmp_path)

    assert ran.code == 0, ran.err + ran.out


@pytest.mark.usefixtures("given_up_soon")
def test_a_system_that_forgets_its_topic_lost_all_that_was_acked(tmp_path: Path) -> None:
    with foreign_cluster(Quirk.FORGETS_TOPIC) as cluster:
        ran = restarted(cluster, tmp_path)

    assert ran.code == 1, ran.err + ran.out
    assert found(tmp_path) == {"lost-write": "gone", "stuck": "no ack"}
    assert "none of 3 nodes knows its topic any more" in ran.out
    lost, _ = verdict(tmp_path / "run")["findings"]
    assert lost["count"] == verdict(tmp_path / "run")["counts"]["acked"]


@pytest.mark.usefixtures("given_up_soon")
@pytest.mark.parametrize("near", [Quirk.LISTS_FEWER, Quirk.ONE_REMEMBERS], ids=str)
def test_a_topic_that_not_all_deny_may_not_be_lost(tmp_path: Path, near: Quirk) -> None:
    with foreign_cluster(Quirk.FORGETS_TOPIC, near) as cluster:
        ran = restarted(cluster, tmp_path)

    assert (list(found(tmp_path)), "lost-write" in unknown(tmp_path)) == (["stuck"], True), ran.out


@pytest.mark.usefixtures("given_up_soon")
def test_without_a_controller_nothing_is_claimed(tmp_path: Path) -> None:
    with foreign_cluster(Quirk.NO_CONTROLLER_YET) as cluster:
        cluster.unready_answers = 1 << 30
        ran = restarted(cluster, tmp_path)

    assert (ran.code, found(tmp_path)) == (3, {}), ran.err + ran.out
    assert unknown(tmp_path) >= {"lost-write", "stuck"}


@pytest.mark.usefixtures("given_up_soon")
@pytest.mark.parametrize(("odd_from", "finds"), [(20, {"stuck": "no ack"}), (0, {})], ids=["later", "never"])
def test_a_system_that_acks_no_more_is_stuck(tmp_path: Path, odd_from: int, finds: dict[str, str]) -> None:
    """One that never acked may only be set up wrongly."""
    with foreign_cluster(Quirk.NO_ACKS) as cluster:
        cluster.odd_from = odd_from
        ran = run(cluster, tmp_path)

    assert (ran.code, found(tmp_path)) == (1 if finds else 3, finds), ran.err + ran.out
    assert ("stuck" in unknown(tmp_path)) is not bool(finds)


@pytest.mark.parametrize(("quirk", "words"), [
    (Quirk.BAD_CHECKSUM, "its checksum is wrong"), (Quirk.UNKNOWN_MAGIC, "its magic is of no format")])
def test_a_batch_that_nobody_can_read_is_named_with_its_offset(
        tmp_path: Path, quirk: Quirk, words: str) -> None:
    """Its acked records are lost; the readers go on behind it, which is no skip."""
    with foreign_cluster(quirk) as cluster:
        ran = run(cluster, tmp_path)

    assert ran.code == 1, ran.err + ran.out
    assert found(tmp_path).keys() == {"malformed-log", "lost-write"}
    _, malformed = verdict(tmp_path / "run")["findings"]
    assert malformed["count"] == 2  # one of each partition
    assert all(one["offset"] >= 20 and words in one["text"] for one in malformed["examples"])
    assert not unknown(tmp_path)
    assert about(tmp_path)["final_reads"]["partitions"] == [0, 1]


@pytest.mark.parametrize(("settings", "timeout_s"), [
    ({}, 60),  # Kafka's default lag time counts where none is shown
    ({"replica.lag.time.max.ms": "1000", "broker.session.timeout.ms": "9000"}, 30),
    ({"replica.lag.time.max.ms": "1000", "zookeeper.session.timeout.ms": "18000"}, 36),
    ({"replica.lag.time.max.ms": "45000", "broker.session.timeout.ms": "9000"}, 90),
    ({"replica.lag.time.max.ms": "a while"}, 60),
])
def test_a_cluster_has_twice_its_longest_time_to_settle(
        tmp_path: Path, settings: dict[str, str], timeout_s: int) -> None:
    with foreign_cluster() as cluster:
        cluster.settings = settings
        plan = planned_on_own(RunSpec(bootstrap=cluster.bootstrap, out=tmp_path / "run"))

    assert plan.settle_timeout_s == timeout_s


def test_acked_records_below_a_beginning_that_moved_are_lost(tmp_path: Path) -> None:
    with foreign_cluster(Quirk.BEGINNING_MOVES) as cluster:
        ran = run(cluster, tmp_path)

    assert (ran.code, found(tmp_path)) == (1, {"lost-write": "log-start"}), ran.err + ran.out
    assert "now begins at offset" in ran.out


def test_what_retention_deletes_is_no_loss(tmp_path: Path) -> None:
    with foreign_cluster(Quirk.DELETES_BY_AGE) as cluster:
        ran = run(cluster, tmp_path)

    assert found(tmp_path) == {}, ran.err + ran.out


@pytest.mark.parametrize("quirk", [Quirk.READS_NOTHING, Quirk.SKIPS_PREFIX], ids=str)
def test_acked_records_that_no_reader_gets_are_lost(
        tmp_path: Path, quirk: Quirk, request: pytest.FixtureRequest) -> None:
    if quirk is Quirk.READS_NOTHING:
        request.getfixturevalue("given_up_soon")
    with foreign_cluster(quirk) as cluster:
        ran = run(cluster, tmp_path)

    assert (ran.code, found(tmp_path)) == (1, {"lost-write": "unread"}), ran.err + ran.out
    assert verdict(tmp_path / "run")["findings"][0]["examples"][0]["offset"] == 0


def test_an_end_behind_an_ack_is_found(tmp_path: Path) -> None:
    with foreign_cluster(Quirk.END_BEHIND_ACK) as cluster:
        ran = run(cluster, tmp_path)

    assert (ran.code, found(tmp_path)) == (1, {"end-offset-regressed": "behind-ack"}), ran.err + ran.out
    [fallen] = verdict(tmp_path / "run")["findings"]
    assert "had been acked in that epoch before it asked" in fallen["examples"][0]["text"]

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


def restarted(cluster: ForeignCluster, folder: Path) -> Answer:
    """A run in which all brokers are killed once, and started when it mends."""
    schedule = folder / "s.json"
    schedule.write_text(json.dumps([{"f": "kill", "nodes": ["n1", "n2", "n3"],
                                     "moment": {"at": "time", "time": 1_500_000_000}}]))
    return run(cluster, folder, "--i-may-break-this", "--faults", cluster.faults_file(folder / "f.toml"),
               "--schedule", schedule, "--strict")


def found(folder: Path) -> dict[str, str]:
    """The findings: name -> the `how` of its first example. Which broker is asked decides whether a leader is
    missed, too."""
    return {one["name"]: one["examples"][0]["how"].removeprefix("no leader and ")
            for one in verdict(folder / "run")["findings"]}


def unknown(folder: Path) -> set[str]:
    return {name for one in verdict(folder / "run")["unknown"] for name in one["names"]}


LOST, STUCK, FALLEN = "lost-write", "stuck", "end-offset-regressed"
SEEN: list[tuple[tuple[Quirk, ...], bool, dict[str, str], str]] = [
    # what it does; whether all its brokers are killed and started again; the findings; what the report says
    ((), False, {}, ""),
    ((Quirk.PARTIAL_LAST_BATCH, Quirk.LSO_BELOW_HW), False, {}, ""),
    ((Quirk.QUIET_FETCH, Quirk.OLD_FETCH, Quirk.EMPTY_BY_QUOTA), False, {}, ""),
    ((Quirk.DELETES_BY_AGE,), False, {LOST: "unknown"}, ""),
    ((), True, {}, ""),
    ((Quirk.NO_CONTROLLER_YET,), True, {}, ""),
    ((Quirk.FORGETS_TOPIC,), True, {LOST: "gone", STUCK: "no ack"},
     "none of 3 nodes knows its topic any more"),
    ((Quirk.FORGETS_TOPIC, Quirk.LISTS_FEWER), True, {LOST: "unknown", STUCK: "no ack"}, ""),
    ((Quirk.FORGETS_TOPIC, Quirk.ONE_REMEMBERS), True, {LOST: "unknown", STUCK: "no ack"}, ""),
    ((Quirk.BEGINNING_MOVES,), False, {LOST: "log-start"}, "now begins at offset"),
    ((Quirk.READS_NOTHING,), False, {LOST: "unread"}, ""),
    ((Quirk.SKIPS_PREFIX,), False, {LOST: "unread"}, ""),
    ((Quirk.END_BEHIND_ACK,), False, {FALLEN: "behind-ack"}, "had been acked in that epoch before it asked"),
]
HANG = {Quirk.FORGETS_TOPIC, Quirk.READS_NOTHING}  # without an end, where nobody gives up


@pytest.mark.parametrize(("quirks", "again", "findings", "words"), SEEN, ids=str)
def test_what_is_found_of_a_system_by_the_wire_alone(
        tmp_path: Path, request: pytest.FixtureRequest, quirks: tuple[Quirk, ...], again: bool,
        findings: dict[str, str], words: str) -> None:
    """Lost is what all nodes deny; what a reader does not get; what lies below a beginning that moved."""
    if HANG & {*quirks}:
        request.getfixturevalue("given_up_soon")
    longer = ("--duration", "5") if Quirk.END_BEHIND_ACK in quirks else ()  # some must have asked for an end
    with foreign_cluster(*quirks) as cluster:
        ran = restarted(cluster, tmp_path) if again else run(cluster, tmp_path, *longer)

    seen = found(tmp_path) | ({LOST: "unknown"} if LOST in unknown(tmp_path) else {})
    assert (seen, words in " ".join(ran.out.split())) == (findings, True), ran.err + ran.out
    assert (ran.code == 1) == bool(found(tmp_path))
    if findings.get(LOST) == "gone":
        judged = verdict(tmp_path / "run")
        assert judged["findings"][0]["count"] == judged["counts"]["acked"]
    if not findings:
        assert (ran.code, about(tmp_path)["settled"], bool(cluster.topics)) == (0, True, False)


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

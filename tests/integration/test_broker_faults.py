"""Brokers as real processes that are killed, stopped, paused, expired and frozen."""

import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from raw import Raw, batch
from real_brokers import CONTROLLER, RealBrokers, wait_for

from floodmark.broker.protocol import errors
from floodmark.broker.storage.durability_side_file import DurabilitySideFile, Note
from floodmark.harness.cluster.reference.power_loss import power_cut

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    """One cluster for all tests; each leaves every process as it found it, except the last, which freezes
    them."""
    with RealBrokers(tmp_path_factory.mktemp("faults")) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    """One in which sessions end by the clock."""
    keys = {"broker.session.timeout.ms": "2000"}
    with RealBrokers(tmp_path_factory.mktemp("quick"), **keys) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    """One in which no clock ends fetches."""
    keys = {"replica.fetch.wait.max.ms": "30000", "replica.socket.timeout.ms": "60000"}
    with RealBrokers(tmp_path_factory.mktemp("patient"), **keys) as brokers:
        yield brokers


@pytest.fixture
def topic(cluster: RealBrokers, request: pytest.FixtureRequest) -> str:
    """A new topic, led by broker 1."""
    return made(cluster, request.node.name)


def made(cluster: RealBrokers, name: str, **configs: str) -> str:
    with Raw(cluster.port[3]) as raw:
        assert raw.create(name, (1, 2, 3), **configs) == errors.NONE
    cluster.wait_isr(name, 1, 2, 3)
    return name


def acked(cluster: RealBrokers, topic: str, node: int, *values: bytes) -> list[int]:
    """Offsets of values that this node has acked."""
    with Raw(cluster.port[node]) as raw:
        answers = [raw.produce(topic, batch(value)) for value in values]
    assert [error for error, _ in answers] == [errors.NONE] * len(values)
    return [offset for _, offset in answers]


def start_follower(cluster: RealBrokers, topic: str, node: int) -> None:
    """Starts the node; returns when its replica is in the ISR of broker 1."""
    cluster.start(node)
    wait_for(f"broker {node} to follow", lambda: cluster.replica(node, topic).get("leader") == 1)
    cluster.wait_isr(topic, 1, 2, 3)


def values_at(cluster: RealBrokers, topic: str, node: int) -> bytes:
    """All bytes of the log below the HW."""
    found = b""
    offset = 0
    with Raw(cluster.port[node]) as raw:
        while True:
            part = raw.fetch(topic, offset)
            if not part.records:
                return found
            found += bytes(part.records)
            offset = part.high_watermark


def test_a_broker_flushes_what_it_had_only_written_when_it_was_killed(cluster: RealBrokers) -> None:
    """Killed between the write and the fsync of a record (the side file is as it was before the fsync), it
    comes back into the ISR with that record: a power cut must not take it any more."""
    topic = made(cluster, "flushed", **{"flush.messages": "1"})
    acked(cluster, topic, 1, b"v-1", b"v-2")
    wait_for("broker 3 to have both", lambda: cluster.replica(3, topic)["leo"] == 2)
    segment = f"{topic}-0/00000000000000000000.log"
    durable = cluster.folder / "n3.durable"
    cluster.end(3)
    notes = DurabilitySideFile.open(durable)
    assert notes.get(segment) == Note(length=(cluster.log_dir(3) / segment).stat().st_size)
    notes.note(segment, (cluster.log_dir(3) / segment).stat().st_size // 2)
    notes.close()
    start_follower(cluster, topic, 3)
    cluster.end(3)

    lost = power_cut(durable, cluster.log_dir(3))

    start_follower(cluster, topic, 3)
    assert lost.kept[f"{topic}-0"] == 2


def test_an_orderly_stop_moves_leadership_first(cluster: RealBrokers, topic: str) -> None:
    """SIGTERM: leadership moves before the process ends, well before its session would; the clean-shutdown
    marker is written, and the next start removes it."""
    acked(cluster, topic, 1, b"v")
    code = cluster.end(1, signal.SIGTERM)
    marker = cluster.log_dir(1) / ".kafka_cleanshutdown"

    assert code == 0
    assert cluster.partition(topic)["leader"] in (2, 3)
    assert "let_go=True" in cluster.output(1).splitlines()[-1]
    assert marker.exists()
    assert f"{topic} 0 1" in (cluster.log_dir(1) / "replication-offset-checkpoint").read_text()
    assert f"{topic} 0 1" in (cluster.log_dir(1) / "recovery-point-offset-checkpoint").read_text()
    cluster.start(1)
    cluster.wait_isr(topic, 1, 2, 3)
    assert not marker.exists()
    assert cluster.replica(1, topic)["clean"]


def test_a_short_isr_refuses_and_a_parked_produce_times_out(cluster: RealBrokers, topic: str) -> None:
    """Both followers stopped: error 7 with its offset while they are in the ISR, 19 and -1 when they are not;
    acks=1 is still served."""
    offset = acked(cluster, topic, 1, b"v")[0]
    for node in (2, 3):
        cluster.pause(node)
    with Raw(cluster.port[1]) as raw:
        assert raw.produce(topic, batch(b"parked"), timeout_ms=300) == (errors.REQUEST_TIMED_OUT, offset + 1)
        cluster.expire(2, 3)
        cluster.wait_isr(topic, 1)
        assert raw.produce(topic, batch(b"refused")) == (errors.NOT_ENOUGH_REPLICAS, -1)
        assert raw.produce(topic, batch(b"alone"), acks=1) == (errors.NONE, offset + 2)
    for node in (2, 3):
        cluster.resume(node)
    cluster.wait_isr(topic, 1, 2, 3)
    assert b"refused" not in values_at(cluster, topic, 1)


def test_a_new_leader_is_asked_at_once(patient: RealBrokers) -> None:
    """A fetch that is parked at the old leader for half a minute does not delay fetches from the new one."""
    topic = made(patient, "asked-at-once")
    acked(patient, topic, 1, b"v")
    patient.expire(1)
    part = wait_for(
        "a new leader", lambda: patient.partition(topic)["leader"] in (2, 3) and patient.partition(topic)
    )
    wait_for("its role", lambda: patient.replica(part["leader"], topic)["epoch"] == part["epoch"])

    acked(patient, topic, part["leader"], b"w")
    patient.wait_isr(topic, 1, 2, 3)


def test_a_paused_controller_ends_nobodys_session(quick: RealBrokers) -> None:
    """The controller is stopped for longer than a session: when it goes on, no broker is fenced for the
    controller's absence."""
    topic = made(quick, "absent")
    before = quick.ask(CONTROLLER, "state")["brokers"]
    quick.pause(CONTROLLER)
    threading.Event().wait(2.5)  # the session is 2 s; nothing can be seen while it is paused
    quick.resume(CONTROLLER)
    acked(quick, topic, 1, b"v")

    assert quick.ask(CONTROLLER, "state")["brokers"] == before


def test_frozen_is_frozen(cluster: RealBrokers, topic: str) -> None:
    """A frozen process does nothing: no answer to clients, no heartbeat, no new state; only `state` is
    answered. (The shared cluster stays frozen from here on.)"""
    acked(cluster, topic, 1, b"v")
    frozen = {node: cluster.ask(node, "freeze") for node in (CONTROLLER, *cluster.brokers)}
    with Raw(cluster.port[1], timeout_s=1.0) as raw, pytest.raises(TimeoutError):
        raw.produce(topic, batch(b"unheard"))

    assert {node: cluster.ask(node, "state") for node in frozen} == frozen
    assert {node: cluster.ask(node, "freeze") for node in frozen} == frozen
    assert {each["leo"] for each in frozen[1]["replicas"] if each["topic"] == topic} == {1}
    with pytest.raises(AssertionError, match="frozen"):
        cluster.expire(1)
    with pytest.raises(AssertionError, match="frozen"):
        cluster.ask(1, "arm", point="L.acked", action="hold")
    with pytest.raises(AssertionError, match="there are: arm, freeze, points, release, state"):
        cluster.ask(1, "thaw")


def test_a_disk_that_refuses_ends_the_broker(tmp_path: Path) -> None:
    """No answer, a clear last line, and a special exit code."""
    with RealBrokers(tmp_path, brokers=1, **{"min.insync.replicas": "1"}) as cluster:
        with Raw(cluster.port[1]) as raw:
            assert raw.create("t", (1,)) == errors.NONE
            cluster.wait_isr("t", 1)
            _limit_file_size(cluster.pid(1), 4096)
            with pytest.raises((EOFError, ConnectionError)):
                _until_refused(raw)
        code = wait_for("its end", lambda: not cluster.running(1)) and cluster.end(1)

        assert code == 70
        assert "DiskError" in cluster.output(1).splitlines()[-1]


def _until_refused(raw: Raw) -> None:
    for _ in range(200):
        raw.produce("t", batch(b"v" * 49))


def _limit_file_size(pid: int, size: int) -> None:
    """RLIMIT_FSIZE from outside: a write beyond fails with EFBIG (Python ignores SIGXFSZ)."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))

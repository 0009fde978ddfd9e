"""What a cluster is made of: files, settings and commands of the reference broker and of Apache
Kafka; views, and what Kafka's controller has recorded. Without Java or an engine.
"""

import asyncio
import itertools
import json
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from golden_text import GOLDEN, answered_as_written, as_written
from kafka.protocol.admin import ElectLeadersRequest
from looks import SPEC, look, replica

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_cluster import JavaSoftware, Place, healthy
from floodmark.harness.cluster.containers import place as containers_place
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.images import image_of
from floodmark.harness.cluster.kafka import kafka_system, kraft, metadata_log
from floodmark.harness.cluster.kafka.distribution import Distribution, is_image
from floodmark.harness.cluster.kafka.kafka_system import KafkaSystem
from floodmark.harness.cluster.kafka.kraft import KRaft
from floodmark.harness.cluster.kafka.metadata_log import (
    ControllerState,
    Decisions,
    MetadataLog,
    apply_record,
    formatted_features,
    refuse_other_features,
)
from floodmark.harness.cluster.kafka.settings import OURS, effective
from floodmark.harness.cluster.layout import Layout, ids_of, lay_out, node_names, property_line
from floodmark.harness.cluster.log_extents import METADATA
from floodmark.harness.cluster.reference import control_sockets
from floodmark.harness.cluster.reference import system as reference
from floodmark.harness.commands.cluster import state_text
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import system_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import Clocks, Expires, Failpoints, PartitionSpec, ability
from floodmark.harness.record_batches import frame
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, UNKNOWN
from floodmark.harness.spec import RunSpec

NODES = node_names(3)
IDS = ids_of(NODES)
NAMES = (*NODES, CONTROLLER)
KAFKA = Distribution(version="4.3.1", mode="kraft", jars=(Path("/jars/a.jar"),), java=Path("/bin/java"))
TWO = ids_of(("n1", "n2"))
IMAGE = "apache/kafka:4.3.1"
RECORDS = (GOLDEN / "kafka_lines" / "4.3.1-controller.records").read_bytes()
MADE: dict[str, Any] = {"rules": "kip-320", "bugs": (), "config": {}}


class Addresses:
    """The part of EngineResources that these tests use."""

    def address(self, name: str) -> str:
        return "198.19.7.1" if name == CLIENTS else f"198.19.7.{11 + NAMES.index(name)}"


class Counting:
    """Ports in the order in which they are asked for."""

    def __init__(self) -> None:
        self._left = itertools.count(9001)

    def choose(self) -> int:
        return next(self._left)

    def take(self, port: int) -> int:
        return port


def told(title: str, layout: Layout, without: Collection[str]) -> Iterator[str]:
    """The properties of two brokers and the controller, without these lines; addresses, paths, links."""
    for name in ("n1", "n2", CONTROLLER):
        yield f"== {title}: {name}"
        lines = layout.properties_of(name).read_text().splitlines()
        yield from (line for line in lines if line not in without)
        place = layout.places[name]
        yield f"reached at {place.reached}, advertised at {place.advertised}, asked at {place.asked}"
        yield f"here {place.log_dir}, {place.durable}, {place.trace}"
        if (hosts := layout.work(f"{name}.hosts")).exists():
            yield f"hosts {', '.join(hosts.read_text().splitlines())}"
    yield from (f"link {' '.join(map(str, link.values()))}" for link in layout.links_config())


def test_the_users_values_win_and_other_keys_pass() -> None:
    """Kafka has more keys than a test cluster sets. A topic's key sets the broker's of the same meaning,
    which a broker would ignore; a small cluster requires no more replicas than it has."""
    chosen = reference.broker_settings(
        {"min.insync.replicas": "1", "log.segment.bytes": "4096", "flush.messages": "1"}, nodes=3)

    assert chosen.items() >= {"min.insync.replicas": "1", "log.segment.bytes": "4096",
                              "log.flush.interval.messages": "1", "replica.lag.time.max.ms": "2000"}.items()
    assert "flush.messages" not in chosen
    alone = reference.broker_settings({}, nodes=1)
    assert (alone["min.insync.replicas"], alone["default.replication.factor"]) == ("1", "1")


def test_run_json_has_integers_booleans_and_strings() -> None:
    """And names the rules in force."""
    config = reference.typed_config({"a": "-1", "b": "TRUE", "c": "false", "d": "snappy", "e": "1.5"},
                              rules="kip-320", bugs=["ack-before-isr"])

    assert config == {"a": -1, "b": True, "c": False, "d": "snappy", "e": "1.5",
                      "floodmark.rules": "kip-320", "floodmark.bugs": "ack-before-isr"}


def test_what_the_processes_of_a_cluster_are_told(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """golden/cluster_files.txt: on this machine without links, everybody dials the listeners; with links
    nobody does: each has its own link to each. Inside of containers are their own addresses and paths, and
    outside published ports: a control socket serves the engine's machine alone, which comes from the gateway.
    The settings are shown once."""
    folder = tmp_path / "run"
    lay: dict[str, Callable[[Counting], Layout]] = {
        "direct": lambda ports: lay_out(folder, IDS, proxied=False, ports=ports, first_port=None),
        "proxied": lambda ports: lay_out(folder, IDS, proxied=True, ports=ports, first_port=8001),
        "containers": lambda ports: containers_place.lay_out(
            cast(EngineResources, Addresses()), folder, IDS, ports=ports, first_port=7001, trace=True)}
    settings = {f"{key}={value}" for key, value in reference.broker_settings({}, nodes=3).items()}
    lines = sorted(settings)
    for title, make in lay.items():
        layout = make(Counting())
        chosen = reference.broker_settings({}, nodes=3)
        reference.write_properties(layout, chosen, rules="kip-320", bugs=["a", "b"])
        lines += told(title, layout, settings)
    assert [*(folder / "nodes" / "n1").iterdir()] == []  # Kafka's own, without one of the harness
    as_written("cluster_files.txt", "\n".join([*lines, ""]).replace(str(tmp_path), ""), request)


def controller(**changes: Any) -> dict[str, Any]:
    partition = {"topic": "log", "partition": 0, "leader": 1, "epoch": 2, "isr": [1, 2, 3],
                 "partition_epoch": 4, "replicas": [1, 2, 3], **changes}
    return {"partitions": [partition, {**partition, "topic": "somebody-elses"}],
            "brokers": [{"id": number, "epoch": number, "fenced": False} for number in (1, 2, 3)]}


def broker(number: int, **changes: Any) -> dict[str, Any]:
    replica = {"topic": "log", "partition": 0, "leader": 1, "epoch": 2, "log_start": 0, "leo": 6, "hw": 5,
               "isr": [1, 2, 3], "checkpointed_hw": 4, "epochs": [[0, 0], [2, 5]], "clean": True,
               "proposing": False, **changes}
    others = {**replica, "topic": "somebody-elses"}
    return {"node": number, "broker_epoch": number, "replicas": [replica, others]}


def seen(line: str) -> str:
    """What a view shows of answers that differ so from usual ones (JSON), and what is not healthy in it."""
    given = json.loads(line)
    states = {name: controller(**given[name]) if name == CONTROLLER else {
        **broker(int(name[1]), **given[name]), **given.get("incarnation", {}).get(name, {})}
        for name in (*NODES, CONTROLLER) if name in given}
    view = control_sockets.view_from_answers(
        control_sockets.Names(NODES, [SPEC]), states, time_ns=7, running=frozenset(NODES))
    return "\n".join([
        f"= unfenced: {', '.join(sorted(view.unfenced)) or 'none'}; "
        f"{healthy(view, [SPEC], NODES) or 'healthy'}",
        *(f"= {key}: leader {one.leader}, epoch {one.epoch}, ISR {', '.join(one.isr)}"
          for key, one in view.partitions.items()),
        *(f"= {node}, {key}: leader {one.leader}, epoch {one.epoch}, LEO {one.leo}, HW {one.hw}, "
          f"epochs {one.epochs}" for (node, key), one in view.replicas.items())])


def test_a_view_of_answers_has_the_historys_names(request: pytest.FixtureRequest) -> None:
    """golden/views.txt: ids become nodes, topics keys; partitions that the run did not make are left out."""
    answered_as_written("views.txt", seen, request)


def test_the_table_shows_a_broker_without_an_answer_as_silent() -> None:
    """A broker that did not answer has no LEO, not an old one. Eligible leader replicas are beside the
    ISR."""
    answer = {
        "bootstrap": "127.0.0.1:9092", "nodes": ["n1", "n2"], "running": ["n1"], "unfenced": ["n1"],
        "died": ["n2"],
        "cuts": ["n1 are cut from n2"],
        "partitions": [{"key": 0, "topic": "log", "partition": 0, "replicas": ["n1", "n2"],
                        "truth": {"leader": "n1", "epoch": 3, "isr": ["n1"], "elr": ["n2"]},
                        "views": {"n1": {"leader": "n1", "epoch": 3, "leo": 12, "hw": 11}}}]}

    lines = [" ".join(line.split()) for line in state_text(answer).splitlines()]
    assert [*lines[:5], *lines[6:]] == [
        "bootstrap 127.0.0.1:9092",
        "brokers n1 up, n2 died by itself",
        "cut n1 are cut from n2",
        "",
        "partition leader epoch ISR replica LEO HW epoch follows",
        "log-0 n1 3 n1 (ELR n2) n1 12 11 3 leads",
        "n2 - - - (silent)",
    ]


# -- Apache Kafka ------------------------------------------------------------------------------------------


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a Kafka, whatever this machine has."""
    image = of_image(IMAGE)._kafka
    monkeypatch.setattr(kafka_system, "ready_kafka", lambda word: image if is_image(word) else KAFKA)


def kafka(**words: Any) -> KafkaSystem:
    return kafka_system.kafka_system(3, **{"version_or_dir": "4.3.1", "topic_config": {}, **MADE, **words})


def cluster(place: str, folder: Path, **words: Any) -> Any:
    return catalog.cluster(place, folder, 3, links="direct", **MADE, **words)


def of_image(image: str | None) -> KafkaSystem:
    jars = tuple(Path("/cache/libs") / name for name in ("a.jar", "b.jar"))
    kafka = Distribution(version="4.3.1", mode="kraft", jars=jars, java=Path("/usr/bin/java"), image=image,
                         needs_java=17)
    return KafkaSystem(kafka, KRaft(kafka, {}, TWO), TWO, power=cast(Any, None))


# -- settings -----------------------------------------------------------------------------------------------


@pytest.fixture
def layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Layout]:
    """Formatted by a fake tool."""

    def format_folder(_: KRaft, home: Path) -> None:
        (home / "meta.properties").write_text("version=1\nnode.id=100\ndirectory.id=template\n")
        (home / "bootstrap.checkpoint").write_text("features")

    monkeypatch.setattr(KRaft, "_format", format_folder)
    monkeypatch.setattr(socket, "gethostname", lambda: "this-machine")  # it is in the hosts files
    return {
        **{word: containers_place.lay_out(
            cast(EngineResources, Addresses()), tmp_path / word, TWO, ports=Counting(), first_port=None,
            trace=True, software=of_image(None).software) for word in ("containers", "image")},
        **{word: lay_out(tmp_path / word, IDS, proxied=word == "proxied", ports=Counting(), first_port=None,
                         by_name=True) for word in ("direct", "proxied")}}


ELR = "eligible.leader.replicas.version"


@pytest.mark.parametrize(("version", "level", "features"), [
    ("4.3.1", "1", {ELR: "1"}), ("4.3.1", "0", {ELR: "0"}), ("3.9.2", "1", {ELR: "1"}),
    ("3.9.2", "0", {})])  # this version has none to turn off
def test_a_feature_is_an_option_of_the_format_and_no_setting(
        version: str, level: str, features: dict[str, str]) -> None:
    mode = KRaft(replace(KAFKA, version=version), {ELR: level, "num.io.threads": "3"}, IDS)
    assert mode.feature_options() == [
        word for name in features for word in ("--feature", f"{name}={level}")]
    assert mode.about == ({"features": features} if features else {})
    assert (ELR in mode.settings, mode.settings["num.io.threads"]) == (False, "3")


def test_what_the_processes_are_told(
        layouts: dict[str, Layout], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """golden/kafka_files.txt: proxied brokers dial each other by name, which resolves to the dialer's own
    link, and its own name to its listener. In a container Java, jars and all paths are those of the image.
    The settings are shown once."""
    settings = [*(f"{key}={value}" for key, value in KRaft(KAFKA, {}, IDS).settings.items())]
    lines = settings.copy()
    here = KafkaSystem(KAFKA, KRaft(KAFKA, {"num.io.threads": "3"}, IDS), IDS, power=cast(Any, None))
    for title, layout in layouts.items():
        runs = {"containers": of_image(None), "image": of_image(IMAGE)}.get(title, here)
        runs.attach(cast(Place, SimpleNamespace(layout=layout)))
        lines += told(title, layout, settings) if title != "image" else []
        for name in ("n1", CONTROLLER):
            words = [word for word in runs.command(name) if "\n" not in word and "; " not in word]
            lines.append(f"{title} {name}: {' '.join(words)}")
    direct = layouts["direct"]
    metas = {(direct.places[node].log_dir / "meta.properties").read_text() for node in direct.nodes}
    assert {meta.splitlines()[1] for meta in metas} == {"node.id=1", "node.id=2", "node.id=3"}
    assert len(metas) == 3
    assert not any("directory.id=template" in meta for meta in metas)
    as_written("kafka_files.txt", "\n".join([*lines, ""]).replace(str(tmp_path), ""), request)


@pytest.mark.parametrize(("version", "advertises"), [("3.8.1", False), ("3.9.2", True), ("4.3.1", True)])
def test_the_controller_advertises_an_address_where_it_may(layouts: dict[str, Layout], version: str,
                                                           advertises: bool) -> None:
    """Without links its own; Kafka refuses the key before 3.9."""
    layout = layouts["direct"]
    KRaft(replace(KAFKA, version=version), {}, IDS).write_files(layout)
    host, port = layout.places["n1"].controller
    given = [line for line in layout.properties_of(CONTROLLER).read_text().splitlines()
             if line.startswith("advertised.listeners=")]
    assert given == [f"advertised.listeners=CONTROLLER://{host}:{port}"] * advertises


@pytest.mark.parametrize(("unfenced", "election", "restored", "result", "asked"), [
    ((1, 2, 3), 0, 0, {"elected": [0], "refused": {}}, "n1 n2 n1 n2 n1 n2"),  # n1 does not answer
    ((2, 3), 0, 0, {"elected": [0], "refused": {}}, "n2 n2 n2"),
    ((2,), None, 0, {"elected": [], "refused": {"0": "n3 is silent"}}, "n2 n2 n1 n3 n2"),
    ((2, 3), 0, 7, {"elected": [], "refused": {
        "0": "the order of its replicas is not restored: REQUEST_TIMED_OUT (7)"}}, "n2 n2 n2"),
])
def test_the_order_of_replicas_is_restored_after_any_election(
        layouts: dict[str, Layout], found: None, monkeypatch: pytest.MonkeyPatch, unfenced: tuple[int, ...],
        election: int | None, restored: int, result: dict[str, Any], asked: str) -> None:
    """election, restored: the codes of these answers; None: no broker answers."""
    layout, runs, asks, orders = layouts["direct"], kafka(), [], []

    def once(address: tuple[str, int]) -> Any:
        node = next(node for node in layout.nodes if layout.places[node].asked == address)

        async def ask(kind: Any, timeout_s: float, **fields: Any) -> Any:
            asks.append(node)
            if node == "n1" or (kind is ElectLeadersRequest and election is None):
                raise FloodmarkError(f"{node} is silent")
            part = SimpleNamespace(partition_index=0, partition_id=0, error_code=election)
            if kind is not ElectLeadersRequest:
                orders.append(fields["topics"][0].partitions[0].replicas)
                part.error_code = restored if len(orders) == 2 else 0
            topic = SimpleNamespace(name="log", topic="log", partitions=[part], partition_result=[part])
            return SimpleNamespace(error_code=0, responses=[topic], replica_election_results=[topic])

        return ask

    monkeypatch.setattr(kafka_system, "once", once)
    monkeypatch.setattr(KRaft, "controller_state", AsyncMock(
        return_value=ControllerState(partitions={}, unfenced=unfenced)))
    runs.attach(cast(Place, SimpleNamespace(
        layout=layout, lives=lambda _: True, paused=lambda _: False)))
    runs.partitions = (PartitionSpec(key=0, topic="log", partition=0, replicas=("n1", "n2", "n3")),)

    assert asyncio.run(runs.elect_replica([0], "n2")) == result
    assert orders == [[2, 1, 3], [1, 2, 3]]
    assert " ".join(asks) == asked


def test_a_hw_is_unknown_if_something_changed_after_it_was_seen() -> None:
    """The log is one that Kafka wrote."""
    runs = of_image(None)
    runs.partitions = (replace(SPEC, topic="v2-none-client"),)
    for epoch, leo, hw in ((2, 6, 6), (2, 10, 6), (2, 11, UNKNOWN), (3, 6, UNKNOWN)):
        seen = look(replica("n1", leo=leo))
        (found,) = runs._replicas_on_disk(
            [seen], look(epoch=epoch).partitions, {"n1": GOLDEN / "kafka_logs" / "2.8.2"}).values()
        assert (found.leo, found.hw) == (10, hw)


# -- keys that may be set or not --------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "traced"), [("2.7.2", False), ("2.8.0", True)])
def test_no_trace_is_promised_below_2_8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str,
                                        traced: bool, capsys: pytest.CaptureFixture[str]) -> None:
    old = replace(KAFKA, version=version, mode="zookeeper")
    monkeypatch.setattr(kafka_system, "ready_kafka", lambda _: old)
    plan = planned(RunSpec(kafka=version, out=tmp_path / "run", duration=1, seed=1), ask_broker=False)

    assert plan.spec.trace is traced
    why = f"no trace: Kafka {version} is older than 2.8, the oldest from whose log a trace is made\n"
    assert capsys.readouterr().err == ("" if traced else why)


def test_any_other_key_is_passed_to_kafka(found: None) -> None:
    runs = kafka(config={"no.such.key": "x\\"}, topic_config={"flush.messages": "1", "segment.ms": "7"})

    assert runs.config["n1"]["no.such.key"] == "x\\"
    assert runs.config["n1"]["log.flush.interval.messages"] == 1
    assert "segment.ms" not in runs.config["n1"]
    assert runs.about == {"name": "kafka", "version": "4.3.1", "form": "kraft",
                          "topic_config": {"flush.messages": "1", "segment.ms": "7"}}
    assert property_line("no.such.key", "x\\", escapes=True) == "no.such.key=x\\\\\n"
    assert property_line("log.dirs", "/ü/🪵", escapes=True) == "log.dirs=/\\u00fc/\\ud83e\\udeb5\n"
    assert effective({"min.insync.replicas": "1", "a": "TRUE"}, {"min.insync.replicas": "2", "b": "1"}) == {
        "min.insync.replicas": 2, "a": True}  # a topic's key overrides its brokers'
    assert not {*kraft.PREFERRED} & OURS


def test_faults_that_kraft_does_not_support_are_listed_with_the_reason(found: None) -> None:
    runs = kafka()

    assert "no session that can be ended" in runs.lacks[Expires]
    assert "no failpoints" in runs.lacks[Failpoints]
    unsupported = catalog.unsupported_nemeses("4.3.1", rules="kip-320", bugs=(), config={})
    assert {"expire", "moments"} <= set(unsupported)
    assert not {"crash", "pause", "elect"} & set(unsupported)
    assert catalog.unsupported_nemeses(None) == {}


# -- features ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("folder", ["", METADATA])  # up to 4.3, and from 4.4 on
def test_the_features_of_a_formatted_folder_are_read(folder: str, tmp_path: Path) -> None:
    """Of records that a controller wrote."""
    checkpoint = tmp_path / folder / "00000000000000000000-0000000000.checkpoint"
    checkpoint.parent.mkdir(exist_ok=True)
    checkpoint.write_bytes(RECORDS)
    assert formatted_features(tmp_path).items() > {"metadata.version": 30, ELR: 1}.items()

    checkpoint.write_bytes(bytes(8) + (60).to_bytes(4) + bytes(4) + b"\x02" + b"\x07" * 55)
    why = re.escape(f"{checkpoint}, which Kafka's format wrote, cannot be read")
    with pytest.raises(FloodmarkError, match=why):
        formatted_features(tmp_path)


def test_features_other_than_requested_are_refused_by_name() -> None:
    """Kafka leaves out those of level 0."""
    refuse_other_features({"a": 1, "gone": 0}, {"a": 1, "of no interest": 3}, "4.3.1")
    with pytest.raises(FloodmarkError, match=r"4\.3\.1 .*: a has level 2, not 1; elr has level 0, not 1$"):
        refuse_other_features({"elr": 1, "a": 1}, {"a": 2}, "4.3.1")


# -- the controller's log: of a saved one, by parts ---------------------------------------------------------

def controllers_log(folder: Path, **segments: bytes) -> MetadataLog:
    """segments: by their first offset."""
    (folder / METADATA).mkdir(exist_ok=True)
    for base, data in segments.items():
        (folder / METADATA / f"{int(base[1:]):020d}.log").write_bytes(data)
    return MetadataLog(folder)


def test_a_metadata_log_is_read_by_one_thread_at_a_time_and_on_in_the_next_segment(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, read = threading.Barrier(2, timeout=0.2), metadata_log._records
    first = frame(RECORDS, 0)
    assert first is not None
    assert controllers_log(tmp_path).decisions() == Decisions(), "it is only being made"
    log = controllers_log(tmp_path, _0=RECORDS[:first.size])
    log.decisions()

    def meet(data: bytes) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait()
        return read(data)

    monkeypatch.setattr(metadata_log, "_records", meet)
    controllers_log(tmp_path, _9=RECORDS[first.size:])
    with ThreadPoolExecutor(2) as readers:
        list(readers.map(lambda _: log.decisions(), range(2)))
    (tmp_path / "whole").mkdir()
    whole = controllers_log(tmp_path / "whole", _0=RECORDS).decisions()
    assert log.decisions() == whole
    assert len(whole.partitions) > 1


def test_a_metadata_log_without_its_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError, match="no longer begins at offset 0"):
        controllers_log(tmp_path, _42=b"").decisions()


def test_a_controller_of_an_old_metadata_version_fences_brokers_by_records_of_their_own() -> None:
    """As with -c metadata.version=4, which 3.3 to 3.9 accept: FenceBroker, UnfenceBroker."""
    decisions = Decisions()
    for kind, fenced in ((7, True), (8, False)):
        apply_record(decisions, bytes([1, kind, 0]) + struct.pack(">iq", 2, 5) + b"\0")
        assert decisions.fenced == {2: fenced}


# -- in containers, without an engine --------------------------------------------------------------------


def test_a_broker_formats_only_an_unformatted_disk(layouts: dict[str, Layout], tmp_path: Path) -> None:
    """Once; existing files stay. The next empty disk gets another directory id."""
    runs, layout, disk = of_image(None), layouts["containers"], tmp_path / "disk"
    runs.attach(cast(Place, SimpleNamespace(layout=layout)))
    disk.mkdir()

    def start() -> str:
        shell, _, script, *_ = runs.command("n1")
        result = subprocess.run(
            [shell, "-c", script, layout.work("n1.prepared"), disk, "echo", "Kafka", "starts"],
            capture_output=True, text=True, check=True, timeout=60)
        assert result.stdout == "Kafka starts\n", result.stderr
        return (disk / "meta.properties").read_text()

    first = start()
    assert "node.id=1\n" in first
    assert {path.name for path in disk.iterdir()} == {"meta.properties", "bootstrap.checkpoint"}
    (disk / "bootstrap.checkpoint").write_text("of Kafka")
    asyncio.run(runs.starting("n1"))
    assert start() == first
    assert (disk / "bootstrap.checkpoint").read_text() == "of Kafka"
    (disk / "meta.properties").unlink()
    second = start()
    assert second != first
    assert "node.id=1\n" in second


# -- images by their names ----------------------------------------------------------------------------------


def test_an_image_brings_what_it_cannot_suffer(tmp_path: Path, found: None) -> None:
    there = cluster("containers", tmp_path, kafka=IMAGE)
    assert there.system["image"] == IMAGE
    assert "libfaketime" in there.lacks[Clocks]
    assert "clock" in catalog.unsupported_nemeses(IMAGE, rules="kip-320", bugs=(), config={})
    assert ability(there, Clocks) is None
    assert (system_of(IMAGE), system_of("apache/kafka:2.8.2")) == (system_of("4.3.1"), system_of("2.8.2"))


def test_jars_that_are_too_new_for_the_images_java_are_refused() -> None:
    software = JavaSoftware(version="9.0.0", java=Path("java"), jars=(), needs_java=25)

    with pytest.raises(FloodmarkError, match=r"needs Java 25, and the image is built with Java 17"):
        image_of(cast(Any, None), software, print)


def test_without_access_to_files_looks_omit_epochs(tmp_path: Path, found: None) -> None:
    for place in ("containers", "local"):
        assert ("epochs" in cluster(place, tmp_path, kafka="4.3.1").not_shown) == (place == "containers")

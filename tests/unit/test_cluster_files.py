"""The files of a local cluster and of one in containers: properties, layout, the view made of control
sockets' answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from golden_text import answered_as_written, as_written
from laid_out import Counting, told

from floodmark.harness.cluster.broker_cluster import healthy
from floodmark.harness.cluster.containers import place as containers_place
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.layout import Layout, ids_of, lay_out, node_names
from floodmark.harness.cluster.reference import control_sockets, system
from floodmark.harness.commands.cluster import state_text
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

NODES = node_names(3)
IDS = ids_of(NODES)
SPEC = PartitionSpec(key=0, topic="log", partition=0, replicas=NODES)


NAMES = (*NODES, CONTROLLER)


class Addresses:
    """The part of EngineResources that these tests use."""

    def address(self, name: str) -> str:
        return "198.19.7.1" if name == CLIENTS else f"198.19.7.{11 + NAMES.index(name)}"


def test_the_users_values_win_and_other_keys_pass() -> None:
    """Kafka has more keys than a test cluster sets. A topic's key sets the broker's of the same meaning,
    which a broker would ignore; a small cluster requires no more replicas than it has."""
    chosen = system.broker_settings(
        {"min.insync.replicas": "1", "log.segment.bytes": "4096", "flush.messages": "1"}, nodes=3)

    assert chosen.items() >= {"min.insync.replicas": "1", "log.segment.bytes": "4096",
                              "log.flush.interval.messages": "1", "replica.lag.time.max.ms": "2000"}.items()
    assert "flush.messages" not in chosen
    alone = system.broker_settings({}, nodes=1)
    assert (alone["min.insync.replicas"], alone["default.replication.factor"]) == ("1", "1")


def test_run_json_has_integers_booleans_and_strings() -> None:
    """And names the rules in force."""
    config = system.typed_config({"a": "-1", "b": "TRUE", "c": "false", "d": "snappy", "e": "1.5"},
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
    settings = {f"{key}={value}" for key, value in system.broker_settings({}, nodes=3).items()}
    lines = sorted(settings)
    for title, make in lay.items():
        layout = make(Counting())
        chosen = system.broker_settings({}, nodes=3)
        system.write_properties(layout, chosen, rules="kip-320", bugs=["a", "b"])
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

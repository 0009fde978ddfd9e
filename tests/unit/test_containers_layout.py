"""Addresses, ports and paths in the properties of a cluster in containers; no engine needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.place import lay_out
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.layout import lay_out as local_lay_out
from floodmark.harness.cluster.ports import Ports
from floodmark.harness.cluster.reference.broker_settings import (
    broker_settings,
    ids_of,
    properties,
    raw_traces,
)
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

NODES = ("n1", "n2", "n3")
NAMES = (*NODES, CONTROLLER)


class Addresses:
    """The part of EngineResources that these tests use."""

    def address(self, name: str) -> str:
        return "198.19.7.1" if name == CLIENTS else f"198.19.7.{11 + NAMES.index(name)}"


@pytest.fixture
def ports() -> Iterator[Ports]:
    one = Ports()
    yield one
    one.close()


def laid_out(folder: Path, ports: Ports, *, first_port: int | None = None, trace: bool = True) -> Layout:
    return lay_out(cast(EngineResources, Addresses()), folder, ids_of(NODES), ports=ports,
                   first_port=first_port, trace=trace)


def properties_of(layout: Layout, name: str) -> dict[str, str]:
    return properties(layout.places[name], broker_settings({}, nodes=3), rules="kip-320", bugs=())


def test_brokers_dial_each_other_inside_and_clients_dial_loopback(tmp_path: Path, ports: Ports) -> None:
    """Brokers dial each other by address; clients dial a published port."""
    layout = laid_out(tmp_path, ports)
    lines = properties_of(layout, "n2")
    host, port = layout.places["n2"].advertised
    assert host == "127.0.0.1"
    assert lines["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert lines["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:{port}"
    assert lines["floodmark.dial"] == "1@198.19.7.11:9092,3@198.19.7.13:9092"
    assert lines["controller.quorum.voters"] == "100@198.19.7.14:9092"
    assert properties_of(layout, CONTROLLER)["floodmark.dial"] == (
        "1@198.19.7.11:9092,2@198.19.7.12:9092,3@198.19.7.13:9092")


def test_all_published_ports_differ(tmp_path: Path, ports: Ports) -> None:
    """Those for clients and those of the control sockets."""
    places = laid_out(tmp_path, ports).places.values()
    assert len({place.reached for place in places} | {place.asked for place in places}) == 8


def test_a_control_socket_has_one_address_and_serves_only_the_engines_machine(
        tmp_path: Path, ports: Ports) -> None:
    """The container's own address; connections to the port on loopback come from the gateway."""
    layout = laid_out(tmp_path, ports)
    for number, name in enumerate(NAMES, 11):
        lines = properties_of(layout, name)
        assert lines["floodmark.control"] == f"198.19.7.{number}:9090"
        assert lines["floodmark.control.from"] == "198.19.7.1"
        assert layout.places[name].asked[0] == "127.0.0.1"


def test_a_local_control_socket_is_on_loopback(tmp_path: Path, ports: Ports) -> None:
    for proxied in (False, True):
        layout = local_lay_out(tmp_path, ids_of(NODES), proxied=proxied, ports=ports, first_port=None)
        hosts = {properties_of(layout, name)["floodmark.control"].split(":")[0] for name in NAMES}
        assert hosts == {"127.0.0.1"}


def test_the_brokers_ports_are_consecutive_from_the_first_port(tmp_path: Path, ports: Ports) -> None:
    """So clients can be configured before the cluster starts."""
    free = ports.choose()
    ports.close()
    layout = laid_out(tmp_path, ports, first_port=free)
    assert [layout.places[node].advertised[1] for node in NODES] == [free, free + 1, free + 2]


def test_the_error_names_the_port_that_is_taken(tmp_path: Path, ports: Ports) -> None:
    """Here by another run of floodmark."""
    other = Ports()
    try:
        taken = other.choose()
        with pytest.raises(FloodmarkError, match=f"port {taken} is taken"):
            laid_out(tmp_path, ports, first_port=taken)
    finally:
        other.close()


def test_paths_are_those_inside_the_container(tmp_path: Path, ports: Ports) -> None:
    """The run's folder is /floodmark there, a broker's disk /data."""
    layout = laid_out(tmp_path, ports)
    lines = properties_of(layout, "n1")
    assert lines["log.dirs"] == "/data"
    assert lines["floodmark.durable"] == "/floodmark/n1.durable"
    assert lines["floodmark.trace"] == "/floodmark/n1.trace"
    assert layout.places["n1"].trace == tmp_path / "work" / "n1.trace"
    assert properties_of(layout, CONTROLLER)["log.dirs"] == "/floodmark/controller"


def test_without_a_trace_none_is_written(tmp_path: Path, ports: Ports) -> None:
    """The broker has no trace property, and the harness reads no trace."""
    layout = laid_out(tmp_path, ports, trace=False)
    assert "floodmark.trace" not in properties_of(layout, "n1")
    assert raw_traces(layout, ()) is None


def test_names_of_a_run_contain_its_number(tmp_path: Path) -> None:
    """Two runs have different numbers."""
    one, other = EngineResources(tmp_path, NODES), EngineResources(tmp_path, NODES)
    assert one.run != other.run
    for name in (one.net("n1"), one.broker("n1"), one.volume("n1"), one.keeper, one.network):
        assert one.run in name
    with pytest.raises(FloodmarkError, match="not started"):
        one.address(CLIENTS)

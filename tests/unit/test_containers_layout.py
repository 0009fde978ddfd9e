"""Addresses, ports and paths in the properties of a cluster in containers; no engine needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.place import lay_out
from floodmark.harness.cluster.layout import Layout
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


def test_inside_are_addresses_and_paths_of_the_container_outside_published_ports(
        tmp_path: Path, ports: Ports) -> None:
    """Brokers dial each other by address, clients a port on loopback. The run's folder is /floodmark there, a
    broker's disk /data. A control socket serves the engine's machine alone, which comes from the gateway."""
    free = ports.choose()
    ports.close()
    layout = laid_out(tmp_path, ports, first_port=free)
    port = {node: number for number, node in enumerate(NODES, free)}
    for number, name in enumerate(NAMES, 11):
        lines = properties_of(layout, name)
        assert lines["floodmark.control"] == f"198.19.7.{number}:9090"
        assert lines["floodmark.control.from"] == "198.19.7.1"
        assert lines["floodmark.trace"] == f"/floodmark/{name}.trace"
        assert lines["log.dirs"] == ("/floodmark/controller" if name == CONTROLLER else "/data")
        assert layout.places[name].trace == tmp_path / "work" / f"{name}.trace"
        assert layout.places[name].asked[0] == "127.0.0.1"

    n2, controller = properties_of(layout, "n2"), properties_of(layout, CONTROLLER)
    assert {node: layout.places[node].advertised for node in NODES} == {
        node: ("127.0.0.1", number) for node, number in port.items()}
    assert n2["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert n2["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:{port['n2']}"
    assert n2["floodmark.dial"] == "1@198.19.7.11:9092,3@198.19.7.13:9092"
    assert n2["controller.quorum.voters"] == "100@198.19.7.14:9092"
    assert n2["floodmark.durable"] == "/floodmark/n2.durable"
    assert controller["floodmark.dial"] == "1@198.19.7.11:9092,2@198.19.7.12:9092,3@198.19.7.13:9092"
    places = layout.places.values()
    assert len({place.reached for place in places} | {place.asked for place in places}) == 8


def test_a_port_that_is_taken_is_named_and_a_trace_may_be_switched_off(tmp_path: Path, ports: Ports) -> None:
    with pytest.raises(FloodmarkError, match=f"port {(taken := ports.choose())} is taken"):
        laid_out(tmp_path, Ports(), first_port=taken)
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

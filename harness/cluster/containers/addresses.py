"""Chooses addresses, ports and files of a cluster in containers.

Rules
1. In every container a process listens on LISTENER (clients and brokers) and CONTROL_SOCKET.
2. Brokers and controller connect to each other by their addresses in the cluster's network: no name is
   resolved, so that no fault affects name resolution. Clients and the harness connect to ports of the
   engine's machine, published only on loopback. The control socket listens on the container's address in that
   network (published ports do not reach its loopback), and answers only the engine's machine.
3. FOLDER/work is mounted in every container, so that properties, logs, traces and side files are where those
   of a local cluster are. A broker's log directory is a volume; FOLDER/nodes has copies of it. The
   controller's log directory is in FOLDER/work.
"""

from collections.abc import Mapping
from pathlib import Path

from floodmark.harness.cluster.containers.engine_resources import MOUNTED, EngineResources
from floodmark.harness.cluster.layout import Address, Layout, ProcessAddresses
from floodmark.harness.cluster.ports import HOST, Ports
from floodmark.harness.cluster.system import JavaSoftware
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

LISTENER = 9092
CONTROL_SOCKET = 9090
DATA = "/data"  # a broker's log directory, in its container
EVERYWHERE = "0.0.0.0"  # of the container's own network namespace
JARS = "/opt/kafka/libs"  # in an image of Apache Kafka, the official one too


def lay_out(
    lab: EngineResources, folder: Path, ids: Mapping[str, int], *, ports: Ports,
    first_port: int | None, trace: bool, software: JavaSoftware | None = None,
) -> Layout:
    """Lays out a cluster; lab must be open, so that its addresses are known. ids, first_port: as in
    harness.cluster.layout.lay_out. software: the Java and jars in the image of the processes, if any."""
    nodes = tuple(name for name in ids if name != CONTROLLER)
    folder = folder.resolve()
    published: dict[str, Address] = {
        node: (HOST, ports.choose() if first_port is None else ports.take(first_port + index))
        for index, node in enumerate(nodes)
    }
    published[CONTROLLER] = (HOST, ports.choose())
    inside: dict[str, Address] = {name: (lab.address(name), LISTENER) for name in ids}
    installed = {} if software is None else {software.java: "java", software.jars[0].parent: JARS}
    places = {
        name: ProcessAddresses(
            node_id=number,
            is_controller=name == CONTROLLER,
            listens=(EVERYWHERE, LISTENER),
            reached=published[name],
            advertised=published[name],
            control=(lab.address(name), CONTROL_SOCKET),
            asked=(HOST, ports.choose()),
            asked_from=lab.address(CLIENTS),
            log_dir=folder / "work" / CONTROLLER if name == CONTROLLER else folder / "nodes" / name,
            durable=None if name == CONTROLLER else folder / "work" / f"{name}.durable",
            controller=inside[CONTROLLER],
            dial={ids[other]: inside[other] for other in nodes if other != name},
            trace=folder / "work" / f"{name}.trace" if trace else None,
            mounted={folder / "nodes" / name: DATA, folder / "work": MOUNTED, **installed},
            log_dir_copied=name != CONTROLLER,
        )
        for name, number in ids.items()
    }
    return Layout(folder=folder, nodes=nodes, places=places, links={})

"""Writes hosts files by which brokers connect to each other through links that can be cut.
A broker advertises one address to all others, so it advertises its node's name. Each process is started with
jdk.net.hosts.file (Java 9 and newer), in which that name is the address of its own link.
"""

import socket

from floodmark.harness.cluster.layout import Address, Layout
from floodmark.harness.cluster.ports import HOST


def advertised_to_brokers(layout: Layout, node: str) -> Address:
    """The address that the node, or the controller, advertises to brokers."""
    place = layout.places[node]
    if not layout.link_hosts:
        return place.controller if place.is_controller else place.control
    return node, place.control[1]  # all links to it listen on this port, at different addresses


def write_hosts(layout: Layout) -> None:
    """Writes the hosts file of each process. Java then uses no other source, so it has the machine's name
    too."""
    for name, host in layout.link_hosts.items():
        lines = [f"{HOST} localhost {socket.gethostname()} {name}",
                 *(f"{host} {other}" for other in layout.names if other != name)]
        layout.hosts_of(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
